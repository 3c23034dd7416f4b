//! The simulated machine on which a command runs, under `--cfg sudog_sim`.

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use sudog_sim::{Details, Machine, PRESETS, Preset};

use crate::options::duration;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::run::calibration::Calibration;

/// The simulated machine, and the settings with which it starts.
#[derive(Args, Clone, Debug)]
pub struct MachineArgs {
    /// The simulated machine, or a file that `cargo lab --json calibrate` wrote [default: x5-2; collapse: forty]
    #[arg(long, global = true, value_name = "NAME|PATH", value_parser = machine)]
    pub machine: Option<&'static Preset>,

    /// Number of processors that are used [default: all]
    #[arg(long, global = true, value_name = "N")]
    pub processors: Option<usize>,

    /// Time from a wake-up to the first instruction on a processor that was idle, as in '50us' [default: the machine's]
    #[arg(long, global = true, value_name = "TIME", value_parser = duration)]
    pub idle_exit: Option<Duration>,

    /// Latency of a line in a cache of another socket, in cycles [default: the machine's]
    #[arg(long, global = true, value_name = "N")]
    pub far: Option<u64>,

    /// Parts that the machine has otherwise not, as in 'cache=512,tlb=64,pairs,futex=32768': lines of a core's cache,
    /// pages of its TLB, misses that fetch pairs of lines, buckets of the system's futex table
    #[arg(long, global = true, value_name = "PART,PART", value_parser = details)]
    pub details: Option<Details>,

    /// Seed of the machine's random numbers: where threads start, how long an access takes
    #[arg(long, global = true, value_name = "N", default_value_t = 0)]
    pub machine_seed: u64,

    /// Simulated time after which a program counts as one that spins for ever, in seconds [default: 600]
    #[arg(long, global = true, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub machine_limit: Option<u64>,
}

/// The simulated machine of this process.
#[derive(Clone, Copy, Serialize, Debug)]
pub struct Simulated {
    machine: &'static str,
    /// The number of processors that are used.
    processors: usize,
    mhz: u64,
    /// The time from a wake-up to the first instruction on an idle processor; see [`System`](sudog_sim::System).
    idle_exit_ns: u64,
}

impl fmt::Display for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} simulated processors of '{}'", self.processors, self.machine)
    }
}

static SIMULATED: OnceLock<Simulated> = OnceLock::new();

/// Returns the machine on which the command runs.
pub fn simulated() -> Simulated {
    *SIMULATED.get().expect("commands run on a machine")
}

fn machine(name: &str) -> Result<&'static Preset, String> {
    if let Some(preset) = Preset::named(name) {
        return Ok(preset);
    }
    if !Path::new(name).exists() {
        let known: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        return Err(format!("unknown machine, and no file; known: {}", known.join(", ")));
    }
    let calibration = Calibration::read(Path::new(name))?;
    if calibration.processors > Machine::MOST {
        return Err(format!("a machine has 1 to {} processors, not {}", Machine::MOST, calibration.processors));
    }
    let base = Preset::named("two").expect("it is known");
    // Leak the preset: it is made once in a process, and is used until the process ends.
    Ok(Box::leak(Box::new(calibration.preset(name.to_owned().leak(), base))))
}

fn details(text: &str) -> Result<Details, String> {
    let mut details = Details::NONE;
    for part in text.split(',') {
        let (name, number) = part.split_once('=').unwrap_or((part, "1"));
        let number = number.parse().ok().filter(|&n| n > 0).ok_or_else(|| format!("no number: '{part}'"))?;
        match name {
            "cache" => details.cache = number,
            "tlb" => details.tlb = number,
            "pairs" => details.pairs = true,
            "futex" => details.futex = number,
            _ => return Err(format!("unknown part '{name}'; known: cache, tlb, pairs, futex")),
        }
    }
    Ok(details)
}

/// Returns the name of the processors on which everything runs, as in "72 simulated processors of 'x5-2'".
pub fn name() -> String {
    SIMULATED.get().map_or_else(|| "a simulated machine".to_owned(), Simulated::to_string)
}

/// Works for about `time` without touching shared memory: up to a tenth more or less, as no two rounds of a real
/// program take the same time.
pub fn work(time: Duration) {
    let cycles = time.as_nanos() as u64 * simulated().mhz / 1000;
    let tenth = cycles / 10;
    sudog_sim::work(cycles - tenth + sudog_sim::random() % (2 * tenth + 1));
}

impl MachineArgs {
    /// Refuses these options, for a command that runs on no machine with costs, and says `why`.
    pub fn refused(&self, why: &str) -> Result<(), Failure> {
        let Self { machine, processors, idle_exit, far, details, machine_limit, machine_seed: _ } = self;
        let costs = [machine.is_some(), idle_exit.is_some(), far.is_some(), details.is_some()];
        match costs.contains(&true) || processors.is_some() || machine_limit.is_some() {
            true => Err(Failure::Usage(format!(
                "{why}, so no --machine, --processors, --idle-exit, --far, --details, --machine-limit"
            ))),
            false => Ok(()),
        }
    }

    /// Runs a command as the first thread of the machine. If the options name no machine, the machine is the one named
    /// `usual`.
    pub fn run(
        self,
        usual: &str,
        output: Output,
        command: impl FnOnce() -> Result<(), Failure> + 'static,
    ) -> Result<(), Failure> {
        let mut preset = self.machine.or_else(|| Preset::named(usual)).expect("the usual machine is known").clone();
        if let Some(time) = self.idle_exit {
            preset.system.idle_exit = time.as_nanos() as u64;
        }
        preset.memory.far = self.far.unwrap_or(preset.memory.far);
        preset.details = self.details.unwrap_or(preset.details);
        let processors = self.processors.unwrap_or(preset.processors);
        if !(1..=preset.processors).contains(&processors) {
            let (name, most) = (preset.name, preset.processors);
            return Err(Failure::Usage(format!("--processors {processors}: the machine '{name}' has 1 to {most}")));
        }
        let (machine, mhz, idle_exit_ns) = (preset.name, preset.mhz, preset.system.idle_exit);
        let simulated = SIMULATED.get_or_init(|| Simulated { machine, processors, mhz, idle_exit_ns });
        output.text(format_args!("on {simulated}"))?;
        let limit = Duration::from_secs(self.machine_limit.unwrap_or(600));
        let machine = Machine { processors, limit, seed: self.machine_seed, ..Machine::new(&preset) };
        machine.run(command).unwrap_or_else(|stopped| Err(Failure::Run(stopped.to_string())))
    }
}
