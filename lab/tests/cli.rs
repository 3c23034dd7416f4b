//! The command line, from outside. Nothing here depends on how fast anything is.

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::{folder, has_fields, records, refused, stdout};
use serde_json::Value;
use sudog_lab::locks::LockName;
use sudog_lab::semaphores::SemaphoreName;

#[test]
fn list_has_everything() {
    let text = stdout(&["list"]);
    for name in LockName::ALL.iter().map(|l| l.name()).chain(SemaphoreName::ALL.iter().map(|s| s.name())) {
        assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}");
    }
    let records = records(&["list", "--json"]);
    assert_eq!(records.len(), LockName::ALL.len() + SemaphoreName::ALL.len());
    records.iter().for_each(|record| has_fields(record, &["kind", "name", "about", "bytes", "deadlines"]));
}

#[test]
fn mutexbench_runs_every_lock_and_writes_every_field() {
    let records =
        records(&["mutexbench", "--threads", "2", "--seconds", "0.05", "--runs", "1", "--ncs", "3", "--json"]);
    let names: Vec<_> = records.iter().map(|record| record["lock"].as_str().unwrap()).collect();
    assert_eq!(names, LockName::ALL.iter().map(|lock| lock.name()).collect::<Vec<_>>());
    for record in &records {
        has_fields(record, &["bench", "lock", "on", "threads", "run", "seconds", "acquisitions", "throughput"]);
        has_fields(
            record,
            &["min_max", "jain", "gini", "longest_run", "max_bypass", "per_thread", "cs", "ncs", "seed"],
        );
        has_fields(record, &["wait_p50_ns", "wait_p99_ns", "wait_p999_ns", "wait_max_ns", "sample_rate"]);
        has_fields(record, &["voluntary_switches", "involuntary_switches", "cpus", "other_cpus"]);
        assert!(record["on"] == "threads" && record.get("workers").is_none(), "{record}");
        let per_thread = record["per_thread"].as_array().unwrap();
        assert_eq!(per_thread.len(), 2);
        let sum: u64 = per_thread.iter().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(record["acquisitions"], sum);
    }
}

#[test]
fn locks_take_turns() {
    let records = records(&[
        "mutexbench",
        "--locks",
        "std,go",
        "--threads",
        "1,3",
        "--seconds",
        "0.002",
        "--runs",
        "2",
        "--json",
    ]);
    let order: Vec<_> =
        records.iter().map(|r| (r["run"].as_u64(), r["threads"].as_u64(), r["lock"].as_str())).collect();
    let mut expected = Vec::new();
    for run in [1, 2] {
        for threads in [1, 3] {
            expected.extend(["std", "go"].map(|lock| (Some(run), Some(threads), Some(lock))));
        }
    }
    assert_eq!(order, expected);
}

#[test]
#[cfg(unix)]
fn goroutines_contend_for_what_does_not_block_their_threads() {
    let able: Vec<_> = LockName::ALL.iter().filter(|lock| !lock.blocks_threads()).map(|lock| lock.name()).collect();
    assert!(able.contains(&"go") && !able.contains(&"std"), "{able:?}");
    let run = ["mutexbench", "--on", "goroutines", "--workers", "2", "--threads", "1,5", "--seconds", "0.01"];
    let records = records(&[&run[..], &["--runs", "1", "--json"]].concat());
    let locks: Vec<_> = records.iter().map(|record| record["lock"].as_str().unwrap()).collect();
    assert_eq!(locks, [&able[..], &able].concat());
    for record in &records {
        assert!(record["on"] == "goroutines" && record["workers"] == 2, "{record}");
        assert_eq!(record["per_thread"].as_array().unwrap().len() as u64, record["threads"].as_u64().unwrap());
    }
    let text = stdout(&run);
    assert!(text.starts_with("mutexbench on goroutines (2 workers): "), "{text}");
    assert!(!text.contains("do not meet"), "{text}");
    assert!(stdout(&["mutexbench", "--locks", "go", "--threads", "1", "--seconds", "0.01"]).contains("on threads: "));
}

#[test]
#[cfg(unix)]
fn every_goroutine_ends_on_however_few_workers() {
    for workers in [1, 3] {
        let number = workers.to_string();
        let run = ["mutexbench", "--on", "goroutines", "--workers", &number, "--threads", "64", "--seconds", "0.01"];
        let records = records(&[&run[..], &["--runs", "2", "--json"]].concat());
        assert!(records.iter().all(|r| r["workers"] == workers && r["per_thread"][63].is_u64()));
        assert_eq!(stdout(&run).contains("do not meet"), workers == 1);
    }
}

#[test]
#[cfg(unix)]
fn there_are_as_many_workers_as_processors_unless_somebody_says() {
    let run = ["uncontended", "--on", "goroutines", "--locks", "go,std", "--rounds", "1", "--json"];
    let workers = |told: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sudog-lab"));
        command.args(run).env_remove("SUDOG_MAXPROCS");
        told.map(|told| command.env("SUDOG_MAXPROCS", told));
        let output = command.output().unwrap();
        let record: Value = serde_json::from_slice(output.stdout.split(|&c| c == b'\n').next().unwrap()).unwrap();
        assert_eq!(record["on"], "goroutines");
        record["workers"].as_u64().unwrap()
    };
    assert!(workers(None) >= 1);
    assert_eq!(workers(Some("7")), 7);
}

#[test]
#[cfg(unix)]
fn locks_that_block_threads_are_refused_for_goroutines() {
    refused(&["mutexbench", "--on", "goroutines", "--locks", "go,std"], "who waits for std blocks a thread");
    refused(
        &["mutexbench", "--on", "goroutines", "--locks", "go+parking_lot_core"],
        "locks for goroutines: go, go-1.14",
    );
    // Nobody waits.
    assert!(
        stdout(&["uncontended", "--on", "goroutines", "--locks", "std", "--rounds", "1"]).contains("on goroutines")
    );
}

#[test]
#[cfg(unix)]
fn compare_on_goroutines() {
    let path = folder("goroutines").join("page.html");
    let path = path.to_str().unwrap();
    let text = stdout(&["compare", "--quick", "--on", "goroutines", "--workers", "2", "--report", path]);
    assert!(text.contains("T: goroutines (2 workers) that contend"), "{text}");
    assert!(!text.contains("parking_lot"), "{text}");
    let page = fs::read_to_string(path).unwrap();
    assert!(page.contains("<dt>on</dt><dd>goroutines (2 workers)</dd>"), "{page}");
    assert_eq!(page.matches("<svg").count(), 3);
}

#[test]
fn no_sampling_no_waits() {
    let records =
        records(&["mutexbench", "--locks", "go", "--threads", "1", "--seconds", "0.002", "--sample", "0", "--json"]);
    assert!(
        records.iter().all(|r| r["sample_rate"] == 0.0 && r["wait_p50_ns"].is_null() && r["wait_max_ns"].is_null())
    );
}

#[test]
fn mutexbench_for_people() {
    let text = stdout(&["mutexbench", "--locks", "go,std,parking_lot_0_12", "--threads", "1,2", "--seconds", "0.01"]);
    assert!(text.contains("sample_rate 1/"), "{text}");
    assert!(text.contains("as a ratio to that of parking_lot_0_12"), "{text}");
    assert!(text.contains("Better than go"), "{text}");
}

#[test]
fn uncontended_and_semtable() {
    let records = records(&["uncontended", "--rounds", "1", "--json"]);
    assert_eq!(records.len(), LockName::ALL.len());
    for record in &records {
        has_fields(record, &["bench", "lock", "rounds", "ns", "ns_min", "ratio"]);
        assert_eq!(record["on"], "threads");
    }

    let records = self::records(&["semtable", "--ns", "10,40", "--runs", "1", "--json"]);
    assert_eq!(records.len(), 4);
    records.iter().for_each(|record| has_fields(record, &["bench", "case", "n", "runs", "ns_per_op"]));
    assert!(stdout(&["semtable", "--ns", "10,40", "--runs", "1"]).contains("ManyAddrCollision"));
}

#[test]
fn compare_writes_a_page_that_stands_alone() {
    let folder = folder("compare");
    let path = folder.join("page.html");
    let text = stdout(&["compare", "--quick", "--report", path.to_str().unwrap()]);
    assert!(text.contains("p99.9") && text.contains("ManyAddrCollision"), "{text}");
    let page = fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href="));
    assert!(LockName::ALL.iter().all(|lock| page.contains(lock.name())));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "the draft is still there");
}

#[test]
fn the_default_report_is_in_the_target_directory() {
    let target = folder("target");
    let output = Command::new(env!("CARGO_BIN_EXE_sudog-lab"))
        .args(["--json", "compare", "--quick"])
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(target.join("lab/report.html").is_file());
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
}

#[test]
fn mutexbench_writes_a_report_if_asked() {
    let path = folder("mutexbench").join("page.html");
    let run = ["mutexbench", "--locks", "go", "--threads", "1", "--seconds", "0.01", "--sample", "1", "--report"];
    stdout(&[&run[..], &[path.to_str().unwrap()]].concat());
    assert_eq!(fs::read_to_string(path).unwrap().matches("<svg").count(), 3);
}

#[test]
fn unknown_locks_are_refused_with_the_known_ones() {
    refused(&["mutexbench", "--locks", "go,nope"], "unknown lock 'nope'; known: go, go-1.14");
    refused(&["uncontended", "--locks", ""], "unknown lock");
}

#[test]
fn nonsense_is_refused() {
    refused(&["mutexbench", "--threads", "0"], "from 1 to 4096");
    refused(&["mutexbench", "--threads", "4097"], "from 1 to 4096");
    refused(&["mutexbench", "--threads", "2,2"], "twice");
    refused(&["mutexbench", "--locks", "go,go"], "twice");
    for seconds in ["0", "-1", "NaN", "inf", "1e9"] {
        refused(&["mutexbench", "--seconds", seconds], "from 0.001 to 3600");
    }
    refused(&["mutexbench", "--seconds", "soon"], "invalid float");
    refused(&["mutexbench", "--runs", "0"], "from 1");
    refused(&["mutexbench", "--on", "fibres"], "only 'threads' and 'goroutines'");
    for bench in ["mutexbench", "compare", "uncontended"] {
        refused(&[bench, "--workers", "2"], "only goroutines have workers");
        refused(&[bench, "--on", "goroutines", "--workers", "0"], "from 1 to 256");
    }
    refused(&["semtable", "--on", "goroutines"], "in semtable nothing contends");
    refused(&["mutexbench", "--cs", "-1"], "--cs");
    refused(&["uncontended", "--rounds", "0"], "from 1");
    refused(&["semtable", "--ns", "1"], "from 2");
    refused(&["juggle"], "juggle");
    refused(&["--json", "list", "--report", "x"], "write a report");
}

#[test]
fn a_bad_path_is_refused_before_anything_is_measured() {
    let folder = folder("bad");
    refused(&["--report", folder.to_str().unwrap()], "not a regular file");
    refused(&["mutexbench", "--report", folder.join("none/page.html").to_str().unwrap()], "cannot write the report");
    let file = folder.join("file");
    fs::write(&file, "").unwrap();
    refused(&["--report", file.join("page.html").to_str().unwrap()], "cannot write the report");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for arguments in [&["list"][..], &["list", "--json"], &["semtable", "--ns", "2", "--runs", "1", "--json"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sudog-lab"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
