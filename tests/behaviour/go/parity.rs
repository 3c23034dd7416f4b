//! Checks that each of Go's tests, benchmarks and examples has a counterpart in this workspace, or a reason for having
//! none.
//!
//! `tests/go/parity.tsv` is the list: the tests of `sync`, `internal/sync`, `sync/atomic`, `context`, `os/signal`,
//! `golang.org/x/sync` and `x/time/rate`; of `net` about deadlines, closing, pipes and packets, of `net/http` about time
//! limits, connections and ends, of `io` about pipes, of
//! `internal/poll` about its mutex, of `internal/synctest`, of `runtime` about semaphores and channels, and of the race
//! detector about channels. The trees are those of 1.28 in development, of x/sync of 2026-02, and, for `os/signal` and
//! the race detector, of 1.27.3. A test over threads and over goroutines stands there once for each. The tests of Go's
//! hash trie run over three hashes. Go tests each operation of an atomic as a function and as a method, which are the
//! same here.
//!
//! The columns of the list: the package in Go; the names in Go; the counterparts, separated by
//! commas; a note. A counterpart is `SUITE MODULE::TEST`, in the words of `cargo test --test SUITE MODULE::TEST` (or of
//! `cargo test -p sudog-sync --lib MODULE::TEST`); or a row of `cargo lab-peers syncbench` (`bench NAME`) or of `cargo lab
//! versus-go` (`versus-go NAME`); or a benchmark of `benches/FILE.rs` (`criterion FILE: NAME`).

use std::fs;
use std::path::Path;

/// The suites, and the folders of their modules relative to the workspace's root.
const SUITES: &[(&str, &str)] = &[
    ("behaviour", "tests/behaviour"),
    ("goroutine", "tests/goroutine"),
    ("channel", "tests/channel"),
    ("go_atomic", "tests/process/go_atomic"),
    ("signal", "tests/process/signal"),
    ("no_alloc", "tests/process/no_alloc"),
    ("loom_race_matrix", "runtime/tests/loom_race_matrix"),
    ("loom_weighted", "sync/tests/loom_weighted"),
    ("features", "http/tests/features"),
    ("http", "http/tests/http"),
    ("net", "net/tests/net"),
    ("go_net", "net/tests/go_net"),
    ("pipe", "net/tests/pipe"),
    ("loom_fd_mutex", "net/tests/loom_fd_mutex"),
    ("sudog-sync", "sync/src"),
];

fn read(path: &str) -> Option<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).ok()
}

/// Returns whether the sources contain this counterpart.
fn exists(counterpart: &str) -> bool {
    let Some((suite, name)) = counterpart.split_once(' ') else { return false };
    let is_in = |path: &str, text: &str| read(path).is_some_and(|source| source.contains(text));
    // Both commands have all of these.
    let is_mix = |name: &str| {
        let mix = name.strip_prefix("Map");
        mix.is_some_and(|mix| is_in("lab/peers/src/syncbench/map/mixes.rs", &format!("\n            \"{mix}\", ")))
    };
    match suite {
        "bench" => is_in("lab/peers/src/syncbench/benches.rs", &format!("\"{name}\"")) || is_mix(name),
        "versus-go" => is_in("lab/peers/src/versus_go/benches.rs", &format!("\"{name}\"")) || is_mix(name),
        "criterion" => name.split_once(": ").is_some_and(|(file, bench)| is_in(&format!("benches/{file}.rs"), bench)),
        _ => SUITES.iter().find(|(known, _)| *known == suite).is_some_and(|(_, folder)| {
            let (file, test) = match name.rsplit_once("::") {
                Some((module, test)) => (format!("{folder}/{}.rs", module.replace("::", "/")), test),
                None => (format!("{folder}.rs"), name),
            };
            // (The last pattern finds a test in a table, such as a table of `must_fail!`.)
            [format!("fn {test}("), format!("fn {test}<"), format!("\n    {test}: ")]
                .iter()
                .any(|text| is_in(&file, text))
        }),
    }
}

#[test]
fn the_counterparts_exist() {
    let table = read("tests/go/parity.tsv").expect("the list");
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("package\tGo\there\tnote"));
    let mut missing = Vec::new();
    let mut found = 0;
    for line in lines {
        let [package, go, here, note] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not four columns: {line}")
        };
        assert!(!package.is_empty() && !go.is_empty(), "{line}");
        assert!(!here.is_empty() || !note.is_empty(), "neither a counterpart nor a reason: {line}");
        for counterpart in here.split(", ").filter(|counterpart| !counterpart.is_empty()) {
            found += 1;
            if !exists(counterpart) {
                missing.push(counterpart);
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(found > 200, "only {found}: is the list complete?");
}
