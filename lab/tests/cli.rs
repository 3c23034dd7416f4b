//! The command line, from outside. No test depends on how fast the machine is.

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::{folder, has_fields, records, refused, stdout};
use serde_json::Value;
use sudog_lab::names::HashName;
use sudog_lab_core::locks::LockName;
use sudog_lab_core::rw_locks::RwLockName;
use sudog_lab_core::semaphores::SemaphoreName;

#[test]
fn list_has_everything() {
    let text = stdout(&["list"]);
    let locks = LockName::ALL.iter().map(|l| l.name()).chain(RwLockName::ALL.iter().map(|l| l.name()));
    for name in locks.chain(SemaphoreName::ALL.iter().map(|s| s.name())) {
        assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}");
    }
    let records = records(&["list", "--json"]);
    assert_eq!(records.len(), LockName::ALL.len() + RwLockName::ALL.len() + SemaphoreName::ALL.len());
    assert_eq!(records.iter().filter(|record| record["kind"] == "rwlock").count(), RwLockName::ALL.len());
    records.iter().for_each(|record| has_fields(record, &["kind", "name", "about", "bytes", "deadlines"]));
}

#[test]
fn mutexbench_runs_every_lock_and_writes_every_field() {
    let records =
        records(&["mutexbench", "--threads", "2", "--seconds", "0.05", "--runs", "1", "--ncs", "3", "--json"]);
    let names: Vec<_> = records.iter().map(|record| record["lock"].as_str().unwrap()).collect();
    assert_eq!(names, LockName::usual().iter().map(|lock| lock.name()).collect::<Vec<_>>());
    for record in &records {
        has_fields(record, &["bench", "lock", "on", "threads", "run", "seconds", "acquisitions", "throughput"]);
        has_fields(record, &["min_max", "jain", "longest_run", "max_bypass", "per_thread", "cs", "ncs", "seed"]);
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
fn rwbench_runs_every_lock_and_writes_every_field() {
    let run = ["rwbench", "--threads", "1,2", "--writes", "0,100,1000", "--seconds", "0.02", "--runs", "1"];
    let records = records(&[&run[..], &["--sample", "1", "--json"]].concat());
    let names: Vec<_> = records.iter().map(|record| record["rwlock"].as_str().unwrap()).collect();
    let all: Vec<_> = RwLockName::ALL.iter().map(|lock| lock.name()).collect();
    assert_eq!(names, all.repeat(6));
    for record in &records {
        has_fields(record, &["bench", "rwlock", "on", "threads", "run", "seconds", "throughput", "min_max", "jain"]);
        has_fields(record, &["cs", "ncs", "seed", "sample_rate", "read_throughput", "write_throughput"]);
        has_fields(record, &["voluntary_switches", "involuntary_switches", "cpus", "other_cpus"]);
        let [reads, writes] = ["reads", "writes"].map(|count| record[count].as_u64().unwrap());
        let per_thread = record["per_thread"].as_array().unwrap();
        assert_eq!(per_thread.len() as u64, record["threads"].as_u64().unwrap());
        assert_eq!(per_thread.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), reads + writes);
        let again = record["same_writer"].as_f64().map(|part| (part * writes as f64).round() as u64);
        assert_eq!(again.is_some(), writes > 0, "{record}");
        match per_thread.len() {
            1 => assert_eq!(again.unwrap_or(0), writes.saturating_sub(1), "all but the first: {record}"),
            _ => assert!(again.unwrap_or(0) <= writes, "{record}"),
        }
        let share = record["writes_in_1000"].as_u64().unwrap();
        assert!((share < 1000 || reads == 0) && (share > 0 || writes == 0), "{record}");
        for quantile in ["p50_ns", "p99_ns", "p999_ns", "max_ns"] {
            assert_eq!(record[format!("read_wait_{quantile}")].is_u64(), reads > 0, "{record}");
            assert_eq!(record[format!("write_wait_{quantile}")].is_u64(), writes > 0, "{record}");
        }
    }
}

#[test]
fn rwbench_for_people() {
    let run = ["rwbench", "--threads", "1,3", "--writes", "10", "--seconds", "0.005", "--runs", "2", "--locks"];
    let text = stdout(&[&run[..], &["sudog,sharded,std"]].concat());
    for start in ["rwbench on threads: medians of 2 runs", "lock ", "sudog ", "sharded ", "std ", "writes in 1000: "] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert!(text.contains("write p50"));
}

#[test]
#[cfg(unix)]
fn rwbench_on_goroutines() {
    let run = ["rwbench", "--on", "goroutines", "--workers", "2", "--threads", "5", "--seconds", "0.01", "--runs", "1"];
    let records = records(&[&run[..], &["--writes", "100", "--json"]].concat());
    let locks: Vec<_> = records.iter().filter_map(|record| record["rwlock"].as_str()).collect();
    assert_eq!(locks, ["sudog", "phase-fair", "sharded", "mutex"]);
    assert!(records.iter().all(|record| record["on"] == "goroutines" && record["workers"] == 2));
    refused(
        &[&run[..], &["--locks", "sudog,std"]].concat(),
        "rwlocks for goroutines: sudog, phase-fair, sharded, mutex",
    );
}

#[test]
fn locks_are_composed_by_name() {
    let text = stdout(&["list"]);
    for example in ["capacitor(INNER", "sliding(INNER", "multilane(INNER", "fractional:P", "wait=park|yield|spin"] {
        assert!(text.contains(example), "{example}: {text}");
    }
    let run = ["--threads", "3", "--seconds", "0.01", "--runs", "1", "--json", "--locks"];
    let locks = "sudog,capacitor( std, admit=gated,b=2 ),sliding(sudog,admit=gated),multilane(tts,count=separate,lanes=3),\
                 sliding(sudog,wait=yield,b=2)";
    let canonical = [
        "sudog",
        "capacitor(std,b=2,admit=gated)",
        "sliding(sudog)",
        "multilane(tts,lanes=3,count=separate)",
        "sliding(sudog,b=2,wait=yield)",
    ];
    let mutexbench = records(&[&["mutexbench"], &run[..], &[locks]].concat());
    assert_eq!(mutexbench.iter().map(|r| r["lock"].as_str().unwrap()).collect::<Vec<_>>(), canonical);
    mutexbench.iter().for_each(|r| has_fields(r, &["throughput", "min_max", "jain", "max_bypass", "per_thread"]));
    let alone = records(&["uncontended", "--rounds", "1", "--json", "--locks", locks]);
    assert_eq!(alone.iter().map(|r| r["lock"].as_str().unwrap()).collect::<Vec<_>>(), canonical);

    let text = stdout(&["mutexbench", "--threads", "2", "--seconds", "0.01", "--runs", "1", "--locks", locks]);
    assert!(text.contains("sliding(sudog)") && text.contains("--tax` for the price alone"), "{text}");
    assert!(
        stdout(&["uncontended", "--rounds", "1", "--locks", "sliding(sudog)"]).contains("--tax` for the price alone")
    );
    assert!(!stdout(&["uncontended", "--rounds", "1", "--locks", "sudog"]).contains("--tax"));
}

#[test]
fn what_cannot_be_composed_is_refused() {
    for (locks, because) in [
        ("sudog,capacitor", "'capacitor' goes around a lock: as in 'capacitor(sudog)'"),
        ("capacitor(sudog,b=2,std", "a ')' is missing"),
        ("sliding(sudog),sliding(sudog,admit=gated)", "'sliding(sudog,admit=gated)' is there twice"),
    ] {
        for command in ["mutexbench", "uncontended"] {
            refused(&[command, "--locks", locks], because);
        }
    }
}

#[test]
#[cfg(unix)]
fn goroutines_contend_for_compositions() {
    let run = ["mutexbench", "--on", "goroutines", "--workers", "2", "--threads", "5", "--seconds", "0.01", "--locks"];
    let locks = "capacitor(sudog),sliding(sudog),capacitor(sudog,sema=runtime,admit=gated),multilane(sudog),sliding(sudog,b=2,wait=spin)";
    let records = records(&[&run[..], &[locks, "--json"]].concat());
    assert!(records.len() == 15 && records.iter().all(|r| r["on"] == "goroutines"), "{records:?}");
    for blocks in ["sliding(tts)", "capacitor(sudog,sema=parking_lot_core)", "multilane(std)", "tts"] {
        refused(&[&run[..], &[blocks]].concat(), &format!("a goroutine that waits for {blocks} blocks the thread"));
    }
}

#[test]
fn capacitor_has_four_curves_for_each_lock_and_the_tax() {
    let run = ["capacitor", "--locks", "lifo,sudog", "--b", "3", "--sema", "twa", "--threads", "1,3", "--runs", "2"];
    let run = [&run[..], &["--seconds", "0.005", "--rounds", "1"]].concat();
    let (tax, figure): (Vec<_>, Vec<_>) =
        records(&[&run[..], &["--json"]].concat()).into_iter().partition(|record| record["bench"] == "capacitor-tax");
    let names = |inner: &str| {
        [
            inner.to_owned(),
            format!("capacitor({inner},b=3,sema=twa)"),
            format!("capacitor({inner},b=3,sema=twa,admit=fractional:0.01)"),
            format!("sliding({inner},b=3)"),
        ]
    };
    let turns: Vec<_> = figure.iter().map(|record| record["lock"].as_str().unwrap()).collect();
    let names = ["lifo", "sudog"].map(|inner| names(inner).into_iter().cycle().take(4 * 4));
    assert_eq!(turns, names.into_iter().flatten().collect::<Vec<_>>(), "the variants of a lock take turns");
    for record in &figure {
        has_fields(record, &["bench", "threads", "run", "throughput", "min_max", "jain", "wait_p999_ns"]);
        assert_eq!(record["bench"], "capacitor");
    }
    assert_eq!(tax.len(), 2 * 5);
    for record in &tax {
        has_fields(record, &["lock", "inner", "exact", "on", "rounds", "ns", "ns_min", "ratio"]);
        assert_eq!(record["exact"], record["inner"] == "lifo", "{record}");
        assert!(record["lock"] != record["inner"] || record["ratio"] == 1.0, "{record}");
    }

    let text = stdout(&run);
    for start in
        ["capacitor on threads: medians of 2 runs", "lifo: ", "sudog: ", "The tax, alone on threads", "In a box"]
    {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    // A column is as wide as the content, so normalise the columns to two spaces apart.
    let mut narrow = text.clone();
    while narrow.contains("   ") {
        narrow = narrow.replace("   ", "  ");
    }
    for heading in
        ["  platoon  min/max  platoon, one in a hundred  min/max  window, gate  ", "  platoon, gate  / bare  "]
    {
        assert!(narrow.contains(heading), "{heading}: {text}");
    }
    assert!(text.contains("--tax` for the price alone"), "{text}");
}

#[test]
fn capacitor_sweeps_and_taxes_alone() {
    let run = ["capacitor", "--locks", "tts", "--sweep", "--threads", "3", "--seconds", "0.002", "--runs", "1"];
    let sweep = records(&[&run[..], &["--json"]].concat());
    assert!(sweep.len() == 20 && sweep.iter().all(|record| record["bench"] == "capacitor-sweep"));
    assert!(sweep[0]["lock"] == "capacitor(tts,b=1)" && sweep[19]["lock"] == "sliding(tts,b=31,admit=always)");
    assert!(stdout(&run).contains("tts, T=3: "));

    let tax = records(&["capacitor", "--tax", "--rounds", "1", "--json"]);
    assert_eq!(tax.len(), 6 * 5);
    assert!(tax.iter().all(|record| record["bench"] == "capacitor-tax" && record["exact"] == true));

    refused(&["capacitor", "--tax", "--sweep"], "cannot be used with");
    let not_read = ["--threads=2", "--sema=twa", "--seconds=1", "--runs=1", "--cs=1", "--ncs=1", "--sample=1"];
    for option in not_read.into_iter().chain(["--metrics"]) {
        let name = option.split('=').next().unwrap();
        refused(&["capacitor", "--tax", option], &format!("'--tax' cannot be used with '{name}"));
    }
    refused(&["capacitor", "--tax", "--runs=1", "--metrics"], "with: --runs <N> --metrics");
    for option in ["--b=2", "--rounds=2"] {
        let name = option.split('=').next().unwrap();
        refused(&["capacitor", "--sweep", option], &format!("'--sweep' cannot be used with '{name}"));
    }
    refused(&["capacitor", "--b", "32"], "from 1 to 31");
    for command in ["capacitor", "bypass"] {
        refused(
            &[command, "--locks", "sudog,sliding(sudog)"],
            "'sliding(sudog)' is composed; this command takes inner locks",
        );
    }
    refused(&["capacitor", "--sema", "nope"], "unknown semaphore 'nope'");
    #[cfg(target_os = "linux")]
    refused(&["capacitor", "--sema", "sem_t"], "a newcomer can take a permit of sem_t");
    #[cfg(unix)]
    {
        let able = "inner locks for goroutines, with '--locks': sudog, sudog/go-1.14, ";
        refused(&["capacitor", "--on", "goroutines"], able);
        refused(
            &["capacitor", "--on", "goroutines", "--locks", "sudog,tts"],
            "a goroutine that waits for tts blocks the thread",
        );
        refused(&["capacitor", "--on", "goroutines", "--locks", "tts", "--sweep"], able);
    }
}

#[test]
fn capacitor_logs_the_figure_and_the_sweep() {
    let run = ["capacitor", "--locks", "lifo", "--threads", "3", "--seconds", "0.005", "--runs", "1", "--metrics"];
    for (how, runs) in [(&["--rounds", "1"][..], 4), (&["--sweep"], 20)] {
        let records = records(&[&run[..], how, &["--json"]].concat());
        let (tax, logged): (Vec<_>, Vec<_>) = records.iter().partition(|record| record["bench"] == "capacitor-tax");
        assert_eq!((logged.len(), tax.is_empty()), (runs, how[0] == "--sweep"));
        for record in logged {
            metrics_are_sane(record);
        }
        let text = stdout(&[&run[..], how].concat());
        assert_eq!(text.matches("\nlogged: ").count(), 1, "{text}");
    }
}

/// Checks that each opened tag is closed, in order, except tags that are never closed.
fn assert_balanced(page: &str) {
    let mut open = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("'<{tag}' has no end"));
        let name = tag.split_whitespace().next().unwrap().trim_end_matches('/');
        match name.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "in {tag}"),
            None if tag.ends_with('/') || ["!doctype", "!--", "?xml", "meta", "br"].contains(&name) => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn figures_are_a_page_that_stands_alone() {
    let path = folder("figures").join("page.html");
    let run = ["figures", "--threads", "1,2", "--seconds", "0.002", "--report", path.to_str().unwrap()];
    let text = stdout(&run);
    assert!(text.contains("not measured: as threads are added"), "{text}");
    let page = fs::read_to_string(&path).unwrap();
    assert_balanced(&page);
    // A figure of semaphores, one of listings, one for each of five locks, three for each of three locks; and beside each
    // figure its claims.
    assert_eq!(page.matches("<figure>").count(), 1 + 1 + 5 + 9 + 4);
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href="));
    assert!(page.contains(" real processors</h1>"));
    for target in
        ["twa-spin", "capacitor(tts-spin,b=10,sema=twa-spin)", "sliding(mcs-spin,b=31,admit=always,wait=spin)"]
    {
        assert!(page.contains(&format!("<td class=\"word\">{target}</td>")), "{target}");
    }

    let records = records(&[&run[..], &["--json", "--only", "semaphores"]].concat());
    let (claims, runs): (Vec<_>, Vec<_>) = records.iter().partition(|record| record["bench"] == "figures-claim");
    assert_eq!(runs.len(), 4 * 2);
    claims.iter().for_each(|claim| has_fields(claim, &["source", "row", "says", "verdict", "figures"]));
    runs.iter().for_each(|run| has_fields(run, &["semaphore", "threads", "throughput", "min_max"]));
    let about_many = claims.iter().find(|claim| claim["says"] == "as threads are added, TWA outperforms ticket");
    assert!(about_many.unwrap()["verdict"].is_null(), "{claims:?}"); // the claim is about 16 contenders and more
}

#[test]
fn bypass_is_within_what_is_promised() {
    let run = ["bypass", "--locks", "lifo,mcs", "--threads", "5", "--b", "3", "--acquisitions", "3000"];
    let records = records(&[&run[..], &["--json"]].concat());
    assert_eq!(records.len(), 2 * 10 + 1);
    for record in &records {
        has_fields(
            record,
            &["bench", "lock", "inner", "threads", "b", "stall", "past", "by_past", "max", "p99", "mean", "holds"],
        );
        has_fields(record, &["by_one", "by_one_again", "at_lock", "falls", "jumps"]);
        assert!(record["by_one"].as_u64() <= record["max"].as_u64(), "{record}");
        let by_clock = ["capacitor(lifo,b=3)", "capacitor(mcs,b=3)"].contains(&record["lock"].as_str().unwrap());
        assert_eq!(record["by_clock"], by_clock || record["lock"].as_str().unwrap().contains("separate"), "{record}");
        let bound = record["bound"].as_u64().unwrap();
        let histogram = record["histogram"].as_array().unwrap();
        assert_eq!(histogram.len() as u64, bound + 1);
        let counted: u64 = histogram.iter().chain([&record["beyond"]]).map(|n| n.as_u64().unwrap()).sum();
        let [past, late] = ["past", "late"].map(|of| record[of].as_u64().unwrap());
        assert_eq!(counted + past, 3000 + late, "{record}");
        let lock = record["lock"].as_str().unwrap();
        let promised = !lock.contains("separate") && !lock.contains("no capacitor");
        assert_eq!(record["promised"], promised, "{record}");
        assert_eq!(bound, if lock.starts_with("multilane") { 5 } else { 2 });
        if promised {
            assert!(record["holds"] == true && record["max"].as_u64().unwrap() <= bound, "{record}");
        }
    }
    let text = stdout(&[&run[..], &["--stall", "off"]].concat());
    for start in ["bypass on threads: 5 contenders", "sliding(lifo,b=3)", "lifo, no capacitor: 3 permits"] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert!(text.contains("no arrival is delayed") && text.contains("Over the benaphore"), "{text}");
    refused(&["bypass", "--threads", "1"], "from 2 to 4096");
    refused(&["bypass", "--b", "0"], "from 1 to 31");
    refused(&["bypass", "--acquisitions", "10000001"], "from 1 to 10000000");
    refused(&["bypass", "--stall", "perhaps"], "'on' or 'off'");
}

#[test]
fn locks_take_turns() {
    let records = records(&[
        "mutexbench",
        "--locks",
        "std,sudog",
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
            expected.extend(["std", "sudog"].map(|lock| (Some(run), Some(threads), Some(lock))));
        }
    }
    assert_eq!(order, expected);
}

#[test]
#[cfg(unix)]
fn goroutines_contend_for_what_does_not_block_their_threads() {
    let able: Vec<_> =
        LockName::usual().into_iter().filter(|lock| !lock.blocks_threads()).map(|lock| lock.name()).collect();
    assert!(able.contains(&"sudog") && !able.contains(&"std"), "{able:?}");
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
    assert!(!text.contains("do not contend"), "{text}");
    assert!(
        stdout(&["mutexbench", "--locks", "sudog", "--threads", "1", "--seconds", "0.01"]).contains("on threads: ")
    );
}

#[test]
#[cfg(unix)]
fn every_goroutine_ends_on_however_few_workers() {
    for workers in [1, 3] {
        let number = workers.to_string();
        let run = ["mutexbench", "--on", "goroutines", "--workers", &number, "--threads", "64", "--seconds", "0.01"];
        let records = records(&[&run[..], &["--runs", "2", "--json"]].concat());
        assert!(records.iter().all(|r| r["workers"] == workers && r["per_thread"][63].is_u64()));
        assert_eq!(stdout(&run).contains("do not contend"), workers == 1);
    }
}

#[test]
#[cfg(unix)]
fn there_are_as_many_workers_as_processors_unless_somebody_says() {
    let run = ["uncontended", "--on", "goroutines", "--locks", "sudog,std", "--rounds", "1", "--json"];
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
    refused(
        &["mutexbench", "--on", "goroutines", "--locks", "sudog,std"],
        "a goroutine that waits for std blocks the thread",
    );
    refused(
        &["mutexbench", "--on", "goroutines", "--locks", "sudog+parking_lot_core"],
        "locks for goroutines: sudog, sudog/go-1.14",
    );
    // No contender waits in this benchmark.
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
    assert!(text.contains("T: the number of contenders (goroutines (2 workers))"), "{text}");
    assert!(!text.contains("parking_lot"), "{text}");
    let page = fs::read_to_string(path).unwrap();
    assert!(page.contains("<dt>on</dt><dd>goroutines (2 workers)</dd>"), "{page}");
    assert_eq!(page.matches("<svg").count(), 4);
}

#[test]
fn semabench_runs_every_semaphore_and_the_floors() {
    let run = ["semabench", "--threads", "1,2", "--seconds", "0.02", "--runs", "1", "--json"];
    let all: Vec<_> = SemaphoreName::usual().iter().map(|semaphore| semaphore.name()).collect();
    let (alone, contended): (Vec<_>, Vec<_>) =
        records(&run).into_iter().partition(|record| record["bench"] == "uncontended");

    let (floors, alone): (Vec<_>, Vec<_>) = alone.into_iter().partition(|record| record["floor"].is_string());
    assert_eq!(alone.iter().map(|record| record["semaphore"].as_str().unwrap()).collect::<Vec<_>>(), all);
    assert!(floors.len() == 1 && floors[0]["floor"] == "two-rmws" && floors[0]["ratio"] == 1.0, "{floors:?}");
    alone.iter().for_each(|record| has_fields(record, &["on", "rounds", "ns", "ns_min", "ratio"]));

    let (floors, contended): (Vec<_>, Vec<_>) = contended.into_iter().partition(|record| record["floor"].is_string());
    assert!(floors.len() == 1 && floors[0]["floor"] == "handover" && floors[0]["threads"] == 2, "{floors:?}");
    assert!(floors[0]["max_bypass"].as_u64().unwrap() <= 1, "they take turns: {}", floors[0]);
    assert!(floors[0]["overtaken"].as_f64().unwrap_or(0.0) == 0.0, "they take turns: {}", floors[0]);
    let names: Vec<_> = contended.iter().map(|record| record["semaphore"].as_str().unwrap()).collect();
    assert_eq!(names, [&all[..], &all].concat());
    for record in contended.iter().chain(&floors) {
        has_fields(record, &["bench", "on", "threads", "run", "seconds", "acquisitions", "throughput", "min_max"]);
        has_fields(record, &["jain", "longest_run", "max_bypass", "max_bypass_waiting", "overtaken", "per_thread"]);
        has_fields(record, &["voluntary_switches", "involuntary_switches", "cpus", "other_cpus"]);
        assert!(record["bench"] == "semabench" && record["cs"] == 1 && record["ncs"] == 1, "{record}");
    }
}

#[test]
fn semabench_for_people() {
    let run = ["semabench", "--threads", "1,3", "--seconds", "0.01", "--runs", "1", "--semaphores"];
    let text = stdout(&[&run[..], &["runtime,benaphore"]].concat());
    for start in ["semabench on threads: ", "two-rmws ", "handover ", "runtime ", "benaphore ", "max bypass waiting: "]
    {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert!(text.contains("/ runtime") && text.contains("overtaken T=3"), "{text}");
    #[cfg(target_os = "linux")]
    assert!(stdout(&[&run[..], &["runtime,sem_t"]].concat()).contains("/ sem_t"));
}

#[test]
#[cfg(unix)]
fn semabench_on_goroutines() {
    let usual = SemaphoreName::usual();
    let able = usual.iter().filter(|semaphore| !semaphore.blocks_threads());
    let able: Vec<_> = able.map(|semaphore| semaphore.name()).collect();
    assert!(able.contains(&"benaphore") && !able.contains(&"futex"), "{able:?}");
    let run = ["semabench", "--on", "goroutines", "--workers", "2", "--threads", "5", "--seconds", "0.01"];
    let records = records(&[&run[..], &["--runs", "1", "--json"]].concat());
    assert!(records.iter().all(|record| record["on"] == "goroutines" && record["workers"] == 2));
    let contended = records.iter().filter(|record| record["bench"] == "semabench");
    let names: Vec<_> = contended.filter_map(|record| record["semaphore"].as_str()).collect();
    assert_eq!(names, able);
    refused(
        &[&run[..], &["--semaphores", "parking_lot_core"]].concat(),
        "a goroutine that waits for parking_lot_core blocks the thread",
    );
    #[cfg(target_os = "linux")]
    refused(&[&run[..], &["--semaphores", "twa,sem_t"]].concat(), "semaphores for goroutines: runtime, benaphore");
}

#[test]
fn collisions_counts_and_computes() {
    let run = ["collisions", "--ns", "1,3", "--seconds", "0.01", "--runs", "1"];
    let (measured, computed): (Vec<_>, Vec<_>) =
        records(&[&run[..], &["--json"]].concat()).into_iter().partition(|record| record["bench"] == "collisions");
    assert_eq!((measured.len(), computed.len()), (4 * 2 * HashName::ALL.len(), 2 * HashName::ALL.len()));
    for record in &measured {
        has_fields(record, &["protocol", "hash", "pairs", "threads", "run", "seconds", "throughput", "waited"]);
        has_fields(record, &["acquisitions", "futile", "futile_per_acquisition", "voluntary_switches", "other_cpus"]);
        assert_eq!(record["threads"], 2 * record["pairs"].as_u64().unwrap());
    }
    for record in &computed {
        assert_eq!(record["bench"], "entrainment");
        has_fields(record, &["hash", "buckets", "waiters", "shared", "by_chance"]);
    }
    let text = stdout(&run);
    for name in HashName::ALL.iter().map(|hash| hash.name()) {
        assert_eq!(text.matches(name).count(), 9, "four protocols, two quantities, and once computed: {text}");
    }
    assert!(text.contains("by chance, 64") && text.contains("by chance, 2048"), "{text}");
    let one = ["collisions", "--ns", "2", "--seconds", "0.01", "--runs", "1", "--json"];
    assert_eq!(self::records(&[&one[..], &["--hashes", "mixed-64"]].concat()).len(), 5);
}

#[test]
fn semtable_with_queues() {
    let queues = ["one-level", "two-level", "treap"];
    let run = ["semtable", "--ns", "10,1000", "--runs", "1", "--queue"];
    let all = [&run[..], &["one-level,two-level,treap"]].concat();
    let records = records(&[&all[..], &["--json"]].concat());
    let of = |bench: &str| records.iter().filter(move |r| r["bench"] == bench).collect::<Vec<_>>();
    let measured = of("semtable");
    assert_eq!(measured.len(), 2 * 2 + 2 * 2 * 3);
    for record in &measured {
        has_fields(record, &["case", "queue", "n", "runs", "ns_per_op"]);
        assert!(record["ns_per_op"].as_f64().unwrap() > 0.0, "{record}");
    }
    let order: Vec<_> =
        measured[4..].iter().map(|r| (r["case"].as_str().unwrap(), r["queue"].as_str().unwrap())).collect();
    let of_case = |case| queues.map(|queue| (case, queue));
    assert_eq!(order, ["TwoLocks", "TwoLocks", "ManyLocks", "ManyLocks"].map(of_case).concat());
    let growths = of("semtable-growth");
    assert_eq!(growths.len(), 2 * 3);
    for growth in growths {
        has_fields(growth, &["case", "queue"]);
        assert!(growth["from_n"] == 10 && growth["to_n"] == 1000 && growth["exponent"].is_number(), "{growth}");
    }

    let text = stdout(&all);
    assert!(text.contains("TwoLocks   one-level") && text.contains("growth exponent"), "{text}");
    let text = stdout(&[&run[..], &["two-level"]].concat());
    assert!(!text.contains("treap") && !text.contains("ManyAddrCollision") && text.contains("ManyLocks"), "{text}");
}

#[test]
fn collide_runs_every_queue_in_both_places() {
    let run = ["collide", "--ns", "4,9", "--rounds", "3", "--runs", "2", "--on", "threads"];
    let records = records(&[&run[..], &["--json"]].concat());
    let of = |bench: &str| records.iter().filter(move |r| r["bench"] == bench).collect::<Vec<_>>();
    let measured = of("collide");
    let of_whom = |record: &&Value| ["n", "placement", "queue"].map(|field| record[field].to_string());
    let (once, again) = measured.split_at(2 * 2 * 4);
    let order: Vec<_> = once.iter().map(|r| r["queue"].as_str().unwrap()).collect();
    assert_eq!(order, ["one-level", "two-level", "treap", "treap-go"].repeat(4), "they take turns");
    let not_long = once.iter().filter(|r| r["seconds"].as_f64().unwrap() < 4.0);
    assert!(again.iter().map(of_whom).eq(not_long.map(of_whom)), "what takes long is not repeated");
    for record in &measured {
        has_fields(record, &["placement", "n", "rounds", "hogs", "run", "seconds", "locks", "ns_per_lock"]);
        has_fields(record, &["hog_locks", "in_line_of_a", "in_line_of_b", "cpus", "other_cpus"]);
        assert!(record["on"] == "threads" && record["hogs"] == 10, "{record}");
        assert_eq!(record["locks"].as_u64().unwrap(), 6 * record["n"].as_u64().unwrap());
        assert!(record["in_line_of_a"].as_f64().unwrap() > 0.0, "they stand in line from the start: {record}");
    }
    assert_eq!(of("collide-growth").len(), 2 * 4);
    of("collide-growth").into_iter().for_each(|r| has_fields(r, &["case", "queue", "from_n", "to_n", "exponent"]));
}

#[test]
fn many_locks_strides_costs_and_gates() {
    let run = ["collide", "--case", "many-locks", "--ns", "6", "--rounds", "2", "--runs", "1", "--on", "threads"];
    let records = records(&[&run[..], &["--json"]].concat());
    for record in records.iter().filter(|record| record["bench"] == "collide") {
        assert!(record["case"] == "many-locks" && record["locks"] == 12 && record["hogs"] == 0, "{record}");
    }
    assert!(stdout(&run).starts_with("collide on threads: medians of 1 runs. n/2 locks"));
    let strides = self::records(&["semtable", "--strides", "--json"]);
    let of = |record: &&Value| record["rule"] == "prime-251" && record["stride"] == 2008;
    assert_eq!(strides.iter().find(of).map(|record| &record["used"]), Some(&Value::from(1)));
    assert!(
        stdout(&["semtable", "--strides"]).contains("prime-251: of the 1024 strides up to 8192, 4 put more than 8")
    );
    refused(&["semtable", "--strides", "--runs", "2"], "cannot be used");
    let costs = self::records(&["semtable", "--costs", "--runs", "1", "--json"]);
    assert!(costs.iter().all(|record| record["ns"].as_f64().unwrap() > 0.0), "{costs:?}");
    let operations = ["no-waiter", "waiter-elsewhere", "neighbours-padded", "neighbours-unpadded"];
    assert!(costs[3..].iter().map(|record| &record["operation"]).eq(operations), "{costs:?}");
    let gates = ["gates", "--ns", "1,2", "--rounds", "3"];
    let records = self::records(&[&gates[..], &["--json"]].concat());
    assert_eq!(records.len(), 2 * 2 * 2);
    records.iter().for_each(|r| has_fields(r, &["wait", "wakes", "n", "rounds", "waker_ns", "first_ns", "last_ns"]));
    assert!(stdout(&gates).contains("systolic"));
}

#[test]
#[cfg(unix)]
fn collide_for_people_on_goroutines() {
    let text = stdout(&["collide", "--ns", "5,20", "--runs", "1", "--workers", "2", "--queue", "treap,one-level"]);
    for start in ["collide on goroutines (2 workers): ", "colliding  treap ", "apart      one-level "] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert!(text.contains("growth exponent") && !text.contains("two-level"), "{text}");
}

#[test]
fn no_sampling_no_waits() {
    let records =
        records(&["mutexbench", "--locks", "sudog", "--threads", "1", "--seconds", "0.002", "--sample", "0", "--json"]);
    assert!(
        records.iter().all(|r| r["sample_rate"] == 0.0 && r["wait_p50_ns"].is_null() && r["wait_max_ns"].is_null())
    );
}

#[test]
fn contenders_start_together() {
    let run = ["mutexbench", "--locks", "mcs", "--threads", "3", "--seconds", "0.005", "--runs", "1"];
    let ungathered = [&run[..], &["--ungathered"]].concat();
    for (run, is) in [(&run[..], true), (&ungathered, false)] {
        assert_eq!(stdout(run).contains("contenders start together"), is);
        assert!(records(&[run, &["--json"]].concat()).iter().all(|record| record["gathered"] == is));
    }
}

#[test]
fn mutexbench_for_people() {
    let text =
        stdout(&["mutexbench", "--locks", "sudog,std,parking_lot_0_12", "--threads", "1,2", "--seconds", "0.01"]);
    assert!(text.contains("sample_rate 1/"), "{text}");
    assert!(text.contains("as a ratio to that of parking_lot_0_12"), "{text}");
    assert!(text.contains("Better than sudog"), "{text}");
}

#[test]
fn uncontended_and_semtable() {
    let records = records(&["uncontended", "--rounds", "1", "--json"]);
    assert_eq!(records.len(), LockName::usual().len());
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
    assert!(text.contains("p99.9"), "{text}");
    let page = fs::read_to_string(&path).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    let (few, all) = page.split_once("<div class=\"plots all\">").unwrap();
    assert_eq!([few, all].map(|plots| plots.matches("<svg").count()), [4, 4]);
    let names = ["<title>sudog</title>", "<title>std</title>"];
    assert!(names.iter().all(|name| few.matches(name).count() == 4), "a line in each plot: {few}");
    assert!(!few.contains("<title>sudog+") && all.contains("<title>sudog+"), "variants only by the switch: {page}");
    assert!(page.contains("The longest wait</figcaption>"), "{page}");
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href="));
    assert!(LockName::compared().iter().all(|lock| page.contains(&format!("<td class=\"word\">{}</td>", lock.name()))));
    let left_out =
        LockName::usual().into_iter().filter(|lock| !LockName::compared().contains(lock)).map(|lock| lock.name());
    let told = text.lines().find(|line| line.starts_with("Not measured, to save time: ")).unwrap();
    left_out.for_each(|name| assert!(told.contains(name) && !page.contains(&format!(">{name}<")), "{name}: {told}"));
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
fn unknown_names_are_refused_with_the_known_ones() {
    refused(&["mutexbench", "--locks", "sudog,nope"], "unknown lock 'nope'; known: sudog, sudog/go-1.14");
    refused(&["uncontended", "--locks", ""], "unknown lock");
    refused(&["rwbench", "--locks", "nope"], "unknown readers-writer lock 'nope'; known: sudog, phase-fair, sharded");
    refused(&["semabench", "--semaphores", "twa,nope"], "unknown semaphore 'nope'; known: runtime, parking_lot_core");
    refused(&["collisions", "--hashes", "nope"], "unknown hash 'nope'; known: plain-64, mixed-64");
    for command in ["semtable", "collide"] {
        refused(&[command, "--queue", "treap,nope"], "unknown queue 'nope'; known: one-level, two-level, treap");
    }
}

#[test]
fn nonsense_is_refused() {
    refused(&["mutexbench", "--threads", "0"], "from 1 to 4096");
    refused(&["mutexbench", "--threads", "4097"], "from 1 to 4096");
    refused(&["mutexbench", "--threads", "2,2"], "twice");
    refused(&["mutexbench", "--locks", "sudog,sudog"], "twice");
    for seconds in ["0", "-1", "NaN", "inf", "1e9"] {
        refused(&["mutexbench", "--seconds", seconds], "from 0.001 to 3600");
    }
    refused(&["mutexbench", "--seconds", "soon"], "invalid float");
    refused(&["mutexbench", "--runs", "0"], "from 1");
    refused(&["mutexbench", "--on", "fibres"], "threads, goroutines");
    refused(&["rwbench", "--writes", "1001"], "from 0 to 1000");
    refused(&["rwbench", "--ungathered"], "readers enter together");
    refused(&["rwbench", "--writes", "-1"], "--writes");
    refused(&["rwbench", "--writes", "10,10"], "twice");
    refused(&["semabench", "--semaphores", "twa,twa"], "twice");
    refused(&["collisions", "--ns", "2049"], "from 1 to 2048");
    refused(&["collisions", "--on", "goroutines"], "--on");
    for bench in ["mutexbench", "rwbench", "semabench", "compare", "uncontended"] {
        refused(&[bench, "--workers", "2"], "only goroutines have workers");
        refused(&[bench, "--on", "goroutines", "--workers", "0"], "from 1 to 256");
    }
    refused(&["mutexbench", "--cs", "-1"], "--cs");
    refused(&["uncontended", "--rounds", "0"], "from 1");
    refused(&["semtable", "--ns", "1"], "from 2");
    refused(&["semtable", "--queue", "treap,treap"], "twice");
    refused(&["collide", "--ns", "0"], "from 1");
    refused(&["collide", "--on", "threads", "--workers", "2"], "only goroutines have workers");
    refused(&["collide", "--on", "threads", "--ns", "4090"], "4100 threads, with the hogs: there can be 4096");
    refused(&["figures", "--threads", "0"], "from 1 to 4096");
    refused(&["figures", "--only", "locks"], "semaphores, listings, capacitors, window");
    refused(&["figures", "--report", "none/such/page.html"], "cannot write the report");
    refused(&["juggle"], "juggle");
    refused(&["rwbench", "--report", "x"], "--report");
}

#[test]
fn a_bad_path_is_refused_before_anything_is_measured() {
    let folder = folder("bad");
    refused(&["compare", "--report", folder.to_str().unwrap()], "not a regular file");
    refused(&["compare", "--report", folder.join("none/page.html").to_str().unwrap()], "cannot write the report");
    let file = folder.join("file");
    fs::write(&file, "").unwrap();
    refused(&["compare", "--report", file.join("page.html").to_str().unwrap()], "cannot write the report");
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

/// Runs the benchmark until a run turns starvation mode on and off, however many runs that takes.
fn starvation(options: &[&str]) -> (Vec<Value>, Value) {
    let path = folder(&format!("starvation{}", options.concat())).join("page.html");
    let run = ["starvation", "--json", "--seconds", "0.1", "--report", path.to_str().unwrap()];
    for _ in 0..100 {
        let mut events = records(&[&run[..], options].concat());
        let summary = events.pop().unwrap();
        assert_eq!(summary["summary"], true);
        if summary["dropped"] != 0 {
            continue; // the recorder was not stopped in time, and does not know all events
        }
        let [handoffs, longest, passed] =
            ["handoffs", "handoffs_to_the_longest_waiting", "handoffs_to_one_who_had_passed"]
                .map(|count| summary[count].as_u64().unwrap());
        assert_eq!((summary["handoffs_to_another"].as_u64(), longest + passed), (Some(0), handoffs), "{summary}");
        let count = |kind| events.iter().filter(|event| event["event"] == kind).count() as u64;
        assert_eq!(summary["starving_enters"], count("starving-enter"));
        assert_eq!(count("starving-exit"), count("starving-enter"), "all got what they waited for");
        if count("starving-enter") > 0 {
            return (events, summary);
        }
    }
    panic!("{options:?}: no starvation mode in a hundred runs");
}

#[test]
fn starvation_mode_is_turned_on_and_off() {
    let (events, summary) = starvation(&[]);
    for event in &events {
        has_fields(event, &["bench", "event", "at_ns", "who", "contender", "role", "waiter"]);
    }
    assert!(events.is_sorted_by_key(|event| event["at_ns"].as_u64()));
    has_fields(&summary, &["policy", "on", "seconds"]);
    has_fields(&summary, &["handoffs_not_judged", "starving_ns", "barges", "spin_wins", "requeues", "dropped"]);
    let contenders = summary["contenders"].as_array().unwrap();
    assert_eq!(
        contenders.iter().map(|c| c["contender"].as_str().unwrap()).collect::<Vec<_>>(),
        ["hog", "victim 1", "victim 2"]
    );
    for contender in contenders {
        has_fields(contender, &["acquisitions", "share", "wait_p50_ns", "wait_max_ns"]);
        let locked = |event: &&Value| event["event"] == "locked" && event["contender"] == contender["contender"];
        assert_eq!(contender["acquisitions"], events.iter().filter(locked).count());
    }
    starvation(&["--policy", "go-1.9"]);
    starvation(&["--policy", "fifo"]);
}

#[test]
#[cfg(unix)]
fn starvation_on_goroutines() {
    let (events, summary) = starvation(&["--on", "goroutines", "--workers", "3"]);
    assert!(summary["on"] == "goroutines" && summary["workers"] == 3);
    assert!(events.iter().all(|event| event["who"].as_str().unwrap().starts_with("goroutine ")));
}

#[test]
fn go_1_8_never_starves() {
    let path = folder("starvation-1.8").join("page.html");
    let run = ["starvation", "--policy", "go-1.8", "--seconds", "0.05", "--json", "--report", path.to_str().unwrap()];
    let records = records(&run);
    let summary = records.last().unwrap();
    assert!(summary["starving_enters"] == 0 && summary["handoffs"] == 0 && summary["starving_ns"] == 0, "{summary}");
}

#[test]
fn starvation_for_people() {
    let folder = folder("starvation-people");
    let [page, svg] = ["page.html", "picture.svg"].map(|name| folder.join(name));
    let run = ["starvation", "--seconds", "0.02", "--report"];
    let text = stdout(&[&run[..], &[page.to_str().unwrap(), "--svg", svg.to_str().unwrap()]].concat());
    for start in ["starvation on threads: 1 hog, 2 victims; go-1.14", "hog  ", "victim 1 "] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert!(text.contains("holds the mutex for 100") && text.contains("Starvation mode: turned on"), "{text}");
    let [page, svg] = [page, svg].map(|path| fs::read_to_string(path).unwrap());
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n") && page.contains(&svg));
    assert!(svg.starts_with("<svg xmlns=") && !page.contains("<script") && !page.contains("href="));
    assert!(page.contains("class=\"sixteen\"") && page.contains(".sixteen:checked) + .zoomed > svg"), "{page}");

    refused(&["starvation", "--policy", "nonsense"], "unknown policy 'nonsense'; known: go-1.8, go-1.9, go-1.14, fifo");
    refused(&["starvation", "--workers", "2"], "only goroutines have workers");
    refused(&["starvation", "--svg", folder.to_str().unwrap()], "not a regular file");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

#[test]
fn stages_has_a_line_for_each_stage_and_number() {
    let records = records(&["stages", "--threads", "1,2", "--seconds", "0.02", "--runs", "1", "--json"]);
    let stages: Vec<_> = records.iter().map(|record| record["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8"].repeat(2));
    for record in &records {
        has_fields(record, &["bench", "lock", "on", "threads", "seconds", "acquisitions", "throughput", "min_max"]);
        has_fields(record, &["wait_p999_ns", "wakes", "handoffs", "ctx_switches", "per_thread"]);
        let switches = ["voluntary_switches", "involuntary_switches"].map(|field| record[field].as_u64().unwrap());
        assert_eq!(record["ctx_switches"], switches[0] + switches[1]);
        assert!(record["threads"] == 2 || record["wakes"] == 0, "alone, nobody sleeps: {record}");
    }
    refused(&["stages", "--stages", "v9"], "known: v1, v2");
}

/// Checks the properties of any metrics, whatever the lock and whichever threads had the processors.
#[track_caller]
fn metrics_are_sane(record: &Value) {
    let metrics = &record["metrics"];
    has_fields(metrics, &["acquisitions", "seconds", "log_full", "bypass", "windows", "short_term", "handover"]);
    has_fields(metrics, &["waits", "holds", "wakeups"]);
    has_fields(&metrics["holds"], &["hold_jain", "lot_jain"]);
    let wakeups = ["sleeps_per_acquisition", "futile_wakeups_per_acquisition"];
    has_fields(&metrics["wakeups"], &wakeups);
    let threads = record["threads"].as_u64().unwrap();
    let acquisitions = metrics["acquisitions"].as_u64().unwrap();
    if acquisitions == 0 {
        return; // no contender had a processor in time
    }
    let waits = ["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|of| metrics["waits"][of].as_u64().unwrap());
    assert!(waits.is_sorted(), "{record}");
    let hold_jain = metrics["holds"]["hold_jain"].as_f64().unwrap();
    assert!(hold_jain <= 1.000_001 && hold_jain * threads as f64 >= 0.999_999, "{record}");
    let wakeup = |of: &str| metrics["wakeups"][of].as_f64().unwrap_or(0.0);
    assert!(wakeup(wakeups[0]) >= wakeup(wakeups[1]), "{record}");
    if metrics["bypass"].is_null() {
        for of in ["windows", "short_term", "handover"] {
            assert!(metrics[of].is_null(), "{record}");
        }
        assert!(metrics["holds"]["lot_jain"].is_null(), "{record}");
        return;
    }
    has_fields(&metrics["short_term"], &["lwss", "lwss_window", "mttr", "longest_run"]);
    let [p99, max] = ["p99", "max"].map(|of| metrics["bypass"][of].as_u64().unwrap());
    assert!(p99 <= max && max <= acquisitions, "{record}");
    let longest_run = metrics["short_term"]["longest_run"].as_u64().unwrap();
    assert!((1..=acquisitions).contains(&longest_run), "{record}");
    assert!(metrics["handover"]["dead_time"].as_f64().unwrap() >= 0.0, "{record}");
    if threads == 1 {
        assert_eq!((max, longest_run), (0, acquisitions), "{record}");
        assert!(metrics["handover"]["handover_max_ns"].is_null() && hold_jain == 1.0, "{record}");
    }
}

#[test]
fn metrics_of_locks() {
    let run = ["mutexbench", "--locks", "sudog,sudog/fifo,std", "--threads", "1,3", "--seconds", "0.02", "--runs", "1"];
    let with = |options: &[&'static str]| [&run[..], &["--metrics"], options].concat();
    for record in &records(&with(&["--json"])) {
        metrics_are_sane(record);
        let windows = &record["metrics"]["windows"];
        assert!(windows.is_null() || windows["admissions"] == 64 * record["threads"].as_u64().unwrap(), "{record}");
    }
    assert!(records(&[&run[..], &["--json"]].concat()).iter().all(|record| record.get("metrics").is_none()));
    let text = stdout(&with(&[]));
    for start in ["logged: ", "bypass: ", "LWSS: ", "MTTR: ", "dead: ", "handover: ", "sleeps, futile: "] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("sudog/fifo ")).count(), 2 + 1 + 2 + 2, "{text}");
    assert!(text.contains("  max between") && text.contains("  bypass max  windows  ") && !text.contains("max bypass"));
    assert!(!text.contains("several contenders may be inside"), "{text}");
}

#[test]
fn metrics_where_several_are_inside() {
    let run = ["--threads", "3", "--seconds", "0.02", "--runs", "1", "--metrics"];
    let bench = ["rwbench", "--locks", "sudog,std", "--writes", "10"];
    let records = records(&[&bench[..], &run, &["--json"]].concat());
    let measured: Vec<_> = records.iter().filter(|record| record.get("metrics").is_some()).collect();
    assert_eq!(measured.len(), 2);
    for record in measured {
        metrics_are_sane(record);
        assert!(record["metrics"]["short_term"].is_null(), "{record}");
    }
    let text = stdout(&[&bench[..], &run].concat());
    assert_eq!(text.matches("there is no order of admissions").count(), 1, "{text}");
}

#[test]
fn metrics_of_stages() {
    let run = ["stages", "--stages", "v1,v8", "--threads", "2", "--seconds", "0.02", "--runs", "1", "--metrics"];
    records(&[&run[..], &["--json"]].concat()).iter().for_each(metrics_are_sane);
    assert!(stdout(&run).lines().any(|line| line.starts_with("stage  T") && line.contains("  dead ")));
}

#[test]
#[cfg(unix)]
fn metrics_of_goroutines() {
    let run = ["mutexbench", "--on", "goroutines", "--workers", "2", "--locks", "sudog", "--threads", "5", "--metrics"];
    for record in &records(&[&run[..], &["--seconds", "0.02", "--runs", "1", "--json"]].concat()) {
        metrics_are_sane(record);
        assert!(record["metrics"]["wakeups"]["sleeps_per_acquisition"].is_null(), "{record}");
    }
}

#[test]
fn critical_sections_may_differ() {
    let few = ["--threads", "3", "--seconds", "0.005", "--runs", "1"];
    for bench in ["mutexbench", "semabench", "rwbench", "stages"] {
        let run = [&[bench], &few[..]].concat();
        let cs = |options: &[&str]| {
            let records = records(&[&run[..], options, &["--json"]].concat());
            records.iter().filter_map(|record| record.get("cs").cloned()).collect::<Vec<_>>()
        };
        let [one, several] = [cs(&["--cs", "7"]), cs(&["--cs", "1,1,10"])];
        assert!(!one.is_empty() && one.iter().all(|cs| *cs == 7), "{one:?}");
        assert!(several.iter().all(|cs| *cs == serde_json::json!([1, 1, 10])), "{several:?}");
        refused(&[bench, "--cs", "1,2,x"], "'x' is no number of steps");
        refused(&[bench, "--cs", "1,1000001"], "from 0 to 1000000");
    }
    let text = stdout(&[&["mutexbench", "--locks", "sudog", "--cs", "1,1,10"], &few[..]].concat());
    assert!(text.contains("; critical section 1,1,10 steps by contender, non-critical 0; "), "{text}");
}

#[test]
fn history_tells_both_stories() {
    let quick = ["history", "--runs", "1", "--limit", "20ms", "--seconds", "0.01", "--contenders", "2", "--json"];
    for on in ["threads", "goroutines"] {
        let records = records(&[&quick[..], &["--on", on]].concat());
        let (hog, collapse): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| record["story"] == "hog");
        let policies = |records: &[Value]| records.iter().map(|r| r["policy"].as_str().unwrap().to_owned()).collect();
        let told: [Vec<String>; 2] = [policies(&hog), policies(&collapse)];
        assert_eq!(told[0], ["go-1.8", "go-1.9", "go-1.14", "fifo", "threads"]);
        assert_eq!(told[1], ["go-1.8", "go-1.9", "go-1.14", "threads"]);
        for record in &hog {
            has_fields(record, &["issue", "run", "hold_ns", "acquisitions", "wait_p50_ns", "wait_max_ns", "cut_short"]);
        }
        for record in &collapse {
            has_fields(record, &["issue", "contenders", "cost_ns", "stall_ns", "operations", "throughput", "starving"]);
        }
    }
    refused(&["history", "--story", "war"], "hog, collapse");
    refused(&["history", "--limit", "100"], "it has no unit");
    refused(&["history", "--on", "goroutines", "--workers", "1"], "that only compute do not contend");
}

#[test]
#[cfg(target_os = "linux")]
fn calibrate_needs_a_round() {
    refused(&["calibrate", "--rounds", "0"], "'--rounds <N>'");
    refused(&["calibrate", "--rounds", "-1"], "'--rounds <N>'");
}

/// `cargo test -p sudog-lab --features observe --test cli each_tool`: the feature is not on by default.
#[cfg(all(unix, feature = "observe"))]
#[test]
fn each_tool_names_the_bottleneck() {
    let folder = folder("profile");
    let records = records(&["profile", "--json", "--out", folder.to_str().unwrap()]);
    let tools: Vec<_> = records.iter().map(|record| record["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["mutex profile", "block profile", "dump", "metrics", "trace"]);
    assert!(records.iter().all(|record| record["found"] == true), "{records:?}");
    for file in ["mutex.pb.gz", "block.pb.gz", "trace.json"] {
        assert!(fs::metadata(folder.join(file)).unwrap().len() > 0, "{file}");
    }
}

/// A measurement in a process of its own prints a record, and the command that starts such processes reads it.
#[cfg(all(unix, feature = "observe", feature = "peers"))]
#[test]
fn costs_of_observing() {
    let wait = records(&["cost-child", "waits"]);
    assert!(matches!(&wait[..], [wait] if wait["ns"].as_f64().unwrap() > 0.0), "{wait:?}");
    let few = ["--bench", "Mutex", "--workers", "1", "--runs", "1", "--min-time", "0.001"];
    let figures = records(&[&["cost", "--json", "--tools", "mutex-profile,recorder"][..], &few].concat());
    assert_eq!(figures.len(), 3, "{figures:?}");
    figures.iter().for_each(|figure| has_fields(figure, &["tool", "figure", "unit", "value", "goal", "reached"]));
}

/// A row that is counted, and so is the same on any machine.
#[test]
fn claims_are_checked_by_their_commands() {
    let records = records(&["--json", "claims", "--source", "go-mutex", "--row", "35"]);
    assert_eq!(records.len(), 1);
    has_fields(&records[0], &["source", "row", "claim", "place", "figures"]);
    assert_eq!((&records[0]["verdict"], &records[0]["source"]), (&Value::from("refuted"), &Value::from("003")));
    assert!(records[0]["figures"][0].as_str().unwrap().contains("1000"), "{records:?}");
    let text = stdout(&["claims", "--source", "003", "--row", "35"]);
    assert!(text.contains("cargo lab semtable --strides") && text.contains("1 refuted"), "{text}");
    refused(&["claims", "--source", "001"], "no such source");
}
