//! What `docs/go-parity.md` names exists.
#![cfg(not(sudog_loom))]

use std::fs;
use std::path::Path;

#[test]
fn what_is_named_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: String| fs::read_to_string(root.join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let benches = |path: &str| read(format!("lab/src/bench/{path}/benches.rs"));
    let (syncbench, versus_go) = (benches("syncbench"), benches("versus_go"));
    let table = read("docs/go-parity.md".to_owned());
    let mut missing = Vec::new();
    let mut found = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let here = row.trim_end_matches('|').rsplit(" | ").next().expect("a last column");
        assert!(!here.trim().is_empty(), "nothing in {row}");
        for name in here.split('`').skip(1).step_by(2) {
            let exists = if let Some(bench) = name.strip_prefix("bench ") {
                syncbench.contains(&format!("\"{bench}\""))
            } else if let Some(bench) = name.strip_prefix("versus-go ") {
                versus_go.contains(&format!("\"{bench}\""))
            } else if let Some(bench) = name.strip_prefix("criterion ") {
                let (file, bench) = bench.split_once(": ").expect("`criterion FILE: NAME`");
                read(format!("benches/{file}.rs")).contains(bench)
            } else if let Some((suite, test)) = name.split_once("::").filter(|(suite, _)| suite.starts_with("go")) {
                let suite = read(format!("tests/{suite}.rs"));
                suite.contains(&format!("fn {test}(")) || suite.contains(&format!("fn {test}<"))
            } else if let Some((file, test)) = name.split_once(".rs: ") {
                read(format!("{file}.rs")).contains(&format!("fn {test}("))
            } else {
                continue; // a type, a command, a word
            };
            found += 1;
            if !exists {
                missing.push(name);
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(found > 150, "only {found}: has the table another form?");
}
