//! The command line on the simulated machine: exact, and the same each time.
//!
//! `RUSTFLAGS="--cfg sudog_sim" cargo stress -p sudog-lab --test sim_cli`
#![cfg(sudog_sim)]

mod common;

use common::{lab, records, refused, stdout};
use sudog_sim::PRESETS;

/// Returns a number of the calibration that `calibrate` prints.
fn field(text: &str, name: &str) -> Option<f64> {
    let (_, value) = text.split_once(&format!("\"{name}\": "))?;
    value.split([',', '\n']).next()?.parse().ok()
}

/// Checks that a machine's measurements of itself give its preset. On a single processor the machine finds the properties
/// of threads of a single processor, with two cores the rest. Use one round: a second round finds the lines in the cache
/// that the first has fetched from memory.
#[test]
fn calibrate_finds_each_preset_again() {
    for preset in PRESETS {
        let (memory, system) = (preset.memory, preset.system);
        let found = |processors: usize| {
            let processors = processors.to_string();
            let run = ["calibrate", "--machine", preset.name, "--processors", &processors, "--rounds", "1"];
            let text = stdout(&run);
            assert_eq!(stdout(&run), text, "a simulation is the same each time");
            text
        };
        // The tolerances: of exact figures; of figures to which a loop adds; and of misses, which vary by up to an
        // eighth.
        let (exact, nearly, miss) = (0.001, 0.02, 1.0 / 16.0);
        let one: &[(&str, u64, f64)] = &[
            ("mhz", preset.mhz, exact),
            ("load", memory.load, exact),
            ("store", memory.store, exact),
            ("rmw", memory.rmw, exact),
            ("pause", memory.pause, exact),
            ("clock", memory.clock, exact),
            ("first", memory.first, miss),
            ("syscall", system.syscall, exact),
            ("switch", system.switch, nearly),
            ("quantum", system.quantum, nearly),
        ];
        let two: &[(&str, u64, f64)] =
            &[("near", memory.near, miss), ("wake", system.wake, nearly), ("idle_exit", system.idle_exit, nearly)];
        // Two hyperthreads share a cache, so take two cores.
        for (processors, expected) in [(1, one), (2 * preset.threads_per_core, two)] {
            let text = found(processors);
            for &(name, value, tolerable) in expected {
                let measured = field(&text, name).unwrap_or_else(|| panic!("no {name} of {}: {text}", preset.name));
                let off = (measured - value as f64).abs();
                // The figure is printed without a fraction.
                assert!(off <= 0.5 + tolerable * value as f64, "{}: {name}: {value}: {text}", preset.name);
            }
        }
    }
}

#[test]
fn what_no_machine_has_is_refused() {
    refused(&["mutexbench", "--machine", "x5-2", "--processors", "73"], "the machine 'x5-2' has 1 to 72");
    refused(&["mutexbench", "--machine", "altra", "--processors", "129"], "the machine 'altra' has 1 to 128");
    refused(&["mutexbench", "--processors", "0"], "--processors 0");
    refused(&["mutexbench", "--processors", "many"], "'--processors <N>'");
    refused(
        &["mutexbench", "--machine", "cray"],
        "unknown machine, and no file; known: two, x5-2, altra, forty, core128",
    );
    refused(
        &["mutexbench", "--machine", "Cargo.toml"],
        "Cargo.toml: no calibration: `cargo lab --json calibrate` writes one",
    );
    refused(&["mutexbench", "--machine-limit", "0"], "'--machine-limit <S>'");
    refused(&["collapse", "--idle-exit", "soon"], "not a time");
    refused(&["compare"], "real machines only");
}

#[test]
fn a_calibration_is_a_machine() {
    let path = std::env::temp_dir().join(format!("sudog-calibration-{}.jsonl", std::process::id()));
    let calibration = |processors: u32| {
        format!(
            r#"{{"bench":"calibration","processors":{processors},"mhz":1000,"memory":{{"load":3,"store":null,"rmw":40,"pause":null,"clock":null,"near":77,"first":null}},"system":{{"syscall":null,"switch":null,"wake":null,"idle_exit":null,"quantum":null}}}}"#
        )
    };
    let machine = path.to_str().expect("a name of letters");
    std::fs::write(&path, calibration(129)).expect("a temporary file");
    refused(&["mutexbench", "--machine", machine], "a machine has 1 to 128 processors, not 129");
    std::fs::write(&path, calibration(5)).expect("a temporary file");
    let text = stdout(&["calibrate", "--machine", machine, "--processors", "1"]);
    std::fs::remove_file(&path).expect("it has been written");
    assert!(text.starts_with(&format!("on 1 simulated processors of '{machine}'")), "{text}");
    for (name, value) in [("mhz", 1000.0), ("load", 3.0), ("rmw", 40.0)] {
        assert_eq!(field(&text, name), Some(value), "{name}: {text}");
    }
}

#[test]
fn what_cannot_be_explored_is_refused() {
    let one = ["explore", "--test", "rwmutex"];
    let with = |more: &[&'static str]| [&one[..], more].concat();
    refused(&with(&["--seeds", "0"]), "'--seeds <N>'");
    refused(&with(&["--seeds", "many"]), "'--seeds <N>'");
    refused(&with(&["--test", "nonsense"]), "no program 'nonsense'; known: ");
    refused(&with(&["--machine", "two"]), "explore has no costs");
    refused(&with(&["--processors", "4"]), "explore has no costs");
    refused(&["explore", "--replay", "5:run1"], "a schedule is of one program");
    // In order: no number, no choice, an unknown choice, decisions out of order, a timeline, a trace.
    for bad in
        ["run1", "5:", "5:stop", "7:run1,5:run0", "{\"format\":\"sudog-sim 1\",\"traceEvents\":[]}", "10 ns  thread 0"]
    {
        refused(&with(&["--replay", bad]), "is no schedule: 'DECISION:CHOICE,...'");
    }
}

/// Replays schedules none of whose decisions may be met, as of other code or another version: then the program does its
/// default.
#[test]
fn a_schedule_of_another_program_is_replayed_as_far_as_it_goes() {
    for schedule in ["", "3:run9,5:wake77", "99999999:timer"] {
        assert!(stdout(&["explore", "--test", "rwmutex", "--replay", schedule]).contains("it does not fail"));
    }
}

#[test]
fn what_outlasts_its_limit_is_stopped_with_the_place_of_each_thread() {
    let output = lab(&["collapse", "--contenders", "2", "--seconds", "3", "--runs", "1", "--machine-limit", "1"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("error: the simulated time is up"), "{text}");
    assert_eq!(lines.len(), 4, "the first thread and two contenders: {text}");
    assert!(lines[1..].iter().all(|line| line.contains(", at ") && line.contains(".rs:")), "{text}");
}

/// Checks that extensions of slices keep a spinning lock from collapsing, where its owner is preempted in the section
/// otherwise.
#[test]
fn an_extended_slice_helps_a_lock_that_spins() {
    let locks = ["--locks", "tts-spin,extended(tts-spin)"];
    let run = ["mutexbench", "--machine", "two", "--threads", "8", "--seconds", "0.1", "--runs", "1", "--json"];
    let sections = ["--cs", "200", "--ncs", "1000"];
    let records = records(&[&run[..], &locks, &sections].concat());
    let [bare, extended] = [0, 1].map(|lock: usize| records[lock]["throughput"].as_f64().unwrap());
    assert!(extended > 1.5 * bare, "{extended} and {bare} acquisitions a second");
}
