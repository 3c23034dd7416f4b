//! The simulated machine on which a command runs, under `--cfg sudog_sim`.

use std::sync::OnceLock;
use std::time::Duration;

use clap::Args;
use sudog_sim::{Machine, PRESETS, Preset};

use crate::output::Output;
use crate::output::failure::Failure;

/// Which machine, and how it begins.
#[derive(Args, Clone, Debug)]
pub struct MachineArgs {
    /// The simulated machine
    #[arg(long, global = true, default_value = "x5-2", value_parser = machine)]
    pub machine: &'static Preset,

    /// How many of its processors are used [default: all]
    #[arg(long, global = true, value_name = "N")]
    pub processors: Option<usize>,

    /// Simulated time after which a program counts as one that spins for ever, in seconds
    #[arg(long, global = true, value_name = "S", default_value_t = 600)]
    pub machine_limit: u64,
}

fn machine(name: &str) -> Result<&'static Preset, String> {
    Preset::named(name).ok_or_else(|| {
        let known: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        format!("unknown machine; known: {}", known.join(", "))
    })
}

/// The machine of this process, in words.
static NAME: OnceLock<String> = OnceLock::new();

/// The processors on which everything runs, as in "72 simulated processors of 'x5-2'".
pub fn name() -> String {
    NAME.get().cloned().unwrap_or_else(|| "a simulated machine".to_owned())
}

impl MachineArgs {
    /// Runs a command as the first thread of the machine.
    pub fn run(self, output: Output, command: impl FnOnce() -> Result<(), Failure> + 'static) -> Result<(), Failure> {
        let processors = self.processors.unwrap_or(self.machine.processors);
        if !(1..=self.machine.processors).contains(&processors) {
            let (name, most) = (self.machine.name, self.machine.processors);
            return Err(Failure::Usage(format!("--processors {processors}: the machine '{name}' has 1 to {most}")));
        }
        let name = NAME.get_or_init(|| format!("{processors} simulated processors of '{}'", self.machine.name));
        output.text(format_args!("on {name}"))?;
        let machine =
            Machine { processors, limit: Duration::from_secs(self.machine_limit), ..Machine::new(self.machine) };
        machine.run(command).unwrap_or_else(|stopped| Err(Failure::Run(stopped.to_string())))
    }
}
