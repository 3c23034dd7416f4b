//! The costs of a machine: `calibrate` writes them, and `cargo sim --machine PATH` reads them.

#[cfg(sudog_sim)]
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The name of the record among the records of other benchmarks.
const BENCH: &str = "calibration";

/// The measured fields of a preset. A field is `None` if it was not measured: some need several processors, and others
/// need a single processor.
#[derive(Clone, Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    bench: String,
    /// Processors of the machine, hyperthreads included.
    pub processors: usize,
    /// Million cycles a second.
    pub mhz: u64,
    /// The costs of memory, in cycles.
    pub memory: MemoryCosts,
    /// The costs of the system, in nanoseconds.
    pub system: SystemCosts,
}

/// The costs of memory: see `sudog_sim::Memory`.
#[derive(Clone, Copy, Serialize, Deserialize, PartialEq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct MemoryCosts {
    pub load: Option<u64>,
    pub store: Option<u64>,
    pub rmw: Option<u64>,
    pub pause: Option<u64>,
    pub clock: Option<u64>,
    pub near: Option<u64>,
    pub first: Option<u64>,
}

/// The costs of the system: see `sudog_sim::System`.
#[derive(Clone, Copy, Serialize, Deserialize, PartialEq, Default, Debug)]
#[serde(deny_unknown_fields)]
pub struct SystemCosts {
    pub syscall: Option<u64>,
    pub switch: Option<u64>,
    pub wake: Option<u64>,
    pub idle_exit: Option<u64>,
    pub quantum: Option<u64>,
}

impl Calibration {
    /// Returns the calibration of a machine with so many processors.
    pub fn new(processors: usize, mhz: u64, memory: MemoryCosts, system: SystemCosts) -> Self {
        Self { bench: BENCH.to_owned(), processors, mhz, memory, system }
    }

    /// Reads the calibration in a file of JSON lines.
    #[cfg(sudog_sim)]
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Self::parse(&text)
            .ok_or_else(|| format!("{}: no calibration: `cargo lab --json calibrate` writes one", path.display()))
    }

    #[cfg(any(sudog_sim, test))]
    fn parse(lines: &str) -> Option<Self> {
        let mut calibrations = lines.lines().filter_map(|line| serde_json::from_str::<Self>(line).ok());
        calibrations.rfind(|found| found.bench == BENCH && found.processors > 0 && found.mhz > 0)
    }

    /// Returns the machine as a preset, whose fields that were not measured are those of `base`.
    #[cfg(sudog_sim)]
    pub fn preset(&self, name: &'static str, base: &sudog_sim::Preset) -> sudog_sim::Preset {
        let mut preset = base.clone();
        let MemoryCosts { load, store, rmw, pause, clock, near, first } = self.memory;
        let SystemCosts { syscall, switch, wake, idle_exit, quantum } = self.system;
        let (memory, system) = (&mut preset.memory, &mut preset.system);
        for (field, value) in [
            (&mut memory.load, load),
            (&mut memory.store, store),
            (&mut memory.rmw, rmw),
            (&mut memory.pause, pause),
            (&mut memory.clock, clock),
            (&mut memory.near, near),
            (&mut memory.first, first),
            (&mut system.syscall, syscall),
            (&mut system.switch, switch),
            (&mut system.wake, wake),
            (&mut system.idle_exit, idle_exit),
            (&mut system.quantum, quantum),
        ] {
            *field = value.unwrap_or(*field);
        }
        (preset.name, preset.source) = (name, "a file of `calibrate`");
        (preset.processors, preset.threads_per_core, preset.cores_per_socket) = (self.processors, 1, self.processors);
        preset.mhz = self.mhz;
        preset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_calibration_of_a_file_counts() {
        let memory = MemoryCosts { load: Some(1), ..MemoryCosts::default() };
        let system = SystemCosts { wake: Some(6000), ..SystemCosts::default() };
        let [first, last] = [2000, 3687].map(|mhz| Calibration::new(2, mhz, memory, system));
        let json = |calibration| serde_json::to_string(calibration).unwrap();
        let file = format!("{{\"bench\":\"calibrate\"}}\n{}\n{}\n", json(&first), json(&last));
        assert_eq!(Calibration::parse(&file), Some(last.clone()));
        let other_version = json(&last).replace("wake", "wake_up");
        let none = json(&Calibration::new(0, 1, memory, system));
        for bad in ["", "x", "{}", "{\"bench\":\"calibrate\"}", &other_version, &none] {
            assert_eq!(Calibration::parse(bad), None, "{bad}");
        }
    }
}
