//! The command: counts each path in a child process, and prints, checks or writes the figures.

use std::env;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::paths::{COUNTED, NOTHING, PATHS};
use crate::tracer::{self, Count};

const USAGE: &str = "usage: cargo instructions [--check | --write]";
/// The figures of [`compiler`]: lines of `path TAB instructions TAB locked ones TAB calls of libraries`.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.tsv");

pub fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => counts().map(|counts| print(&counts)),
        ["--check"] => counts().and_then(|counts| check(&counts)),
        ["--write"] => counts().and_then(|counts| write(&counts)),
        ["path", n] => {
            PATHS[n.parse::<usize>().expect("a path")].1();
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            println!("this system allows no tracing (ptrace): nothing was counted");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

type Row = (String, Count);

/// Counts all paths, less the count of [`NOTHING`].
fn counts() -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut nothing = 0;
    for (n, (name, _)) in PATHS.into_iter().enumerate() {
        let mut child = Command::new(env::current_exe()?)
            .args(["path", &n.to_string()])
            .env("SUDOG_MAXPROCS", "1") // keep other workers from searching for work
            .spawn()?;
        let mut rounds = tracer::rounds(&mut child).map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => error,
            _ => io::Error::other(format!("{name}: {error}")),
        })?;
        assert!(rounds.len() > COUNTED as usize, "{name}: {} rounds", rounds.len());
        rounds.truncate(COUNTED as usize);
        rounds.sort_unstable();
        let mut count = rounds[rounds.len() / 10];
        if name == NOTHING {
            nothing = count.own;
        } else {
            count.own = count.own.saturating_sub(nothing);
            rows.push((name.to_owned(), count));
        }
    }
    Ok(rows)
}

fn print(rows: &[Row]) {
    println!("instructions  of these locked  calls out");
    for (name, count) in rows {
        println!("{:12}  {:15}  {:9}  {name}", count.own, count.locked, count.foreign);
    }
}

/// Returns the compiler that built this program: other compilers make other instructions.
fn compiler() -> &'static str {
    env!("SUDOG_RUSTC")
}

fn check(rows: &[Row]) -> io::Result<()> {
    print(rows);
    let text = fs::read_to_string(FILE)?;
    let (of, written) = parse(&text).ok_or_else(|| io::Error::other(format!("{FILE} is damaged")))?;
    if of != compiler() {
        println!("\nnot compared: counts.tsv is of {of}, this program of {}", compiler());
        return Ok(());
    }
    let differences = differences(&written, rows);
    if differences.is_empty() {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "\n{}\nIf a change is meant, write it down: cargo instructions --write",
        differences.join("\n")
    )))
}

/// Returns a line for each path whose figures differ from the written figures.
fn differences(written: &[Row], rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, now) in rows {
        match written.iter().find(|row| row.0 == *name) {
            None => lines.push(format!("{name}: not in counts.tsv")),
            Some((_, then)) if then != now => lines.push(format!(
                "{name}: {} instructions, {} of them locked, and {} calls out; were {}, {} and {}",
                now.own, now.locked, now.foreign, then.own, then.locked, then.foreign
            )),
            Some(_) => {}
        }
    }
    for (name, _) in written {
        if !rows.iter().any(|row| row.0 == *name) {
            lines.push(format!("{name}: in counts.tsv, and not a path"));
        }
    }
    lines
}

fn parse(text: &str) -> Option<(&str, Vec<Row>)> {
    let mut lines = text.lines();
    let compiler = lines.next()?.strip_prefix("# ")?;
    let rows = lines.map(|line| {
        let mut cells = line.split('\t');
        let row = (
            cells.next()?.to_owned(),
            Count {
                own: cells.next()?.parse().ok()?,
                locked: cells.next()?.parse().ok()?,
                foreign: cells.next()?.parse().ok()?,
            },
        );
        cells.next().is_none().then_some(row)
    });
    Some((compiler, rows.collect::<Option<_>>()?))
}

fn write(rows: &[Row]) -> io::Result<()> {
    print(rows);
    let mut text = format!("# {}\n", compiler());
    for (name, count) in rows {
        text += &format!("{name}\t{}\t{}\t{}\n", count.own, count.locked, count.foreign);
    }
    fs::write(Path::new(FILE), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, own: u64, locked: u64, foreign: u64) -> Row {
        (name.to_owned(), Count { own, locked, foreign })
    }

    #[test]
    fn each_difference_is_named() {
        let (of, written) = parse("# rustc 1\nlock\t15\t1\t0\nspawn\t900\t9\t2\ngone\t1\t0\t0\n").expect("a good file");
        assert_eq!(of, "rustc 1");
        let now = [row("lock", 15, 2, 0), row("spawn", 900, 9, 2), row("new", 5, 0, 0)];
        assert_eq!(
            differences(&written, &now),
            [
                "lock: 15 instructions, 2 of them locked, and 0 calls out; were 15, 1 and 0",
                "new: not in counts.tsv",
                "gone: in counts.tsv, and not a path"
            ]
        );
        assert!(differences(&written, &written).is_empty());
    }

    #[test]
    fn a_damaged_file_is_refused() {
        for text in [
            "",
            "lock\t15\t1\t0\n",
            "# rustc 1\nlock\t15\t1\n",
            "# rustc 1\nlock\tx\t1\t0\n",
            "# rustc 1\nlock\t1\t0\t0\t0\n",
        ] {
            assert!(parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn the_file_is_of_these_paths() {
        let (_, written) = parse(include_str!("../counts.tsv")).expect("a good file");
        let names: Vec<_> = PATHS.iter().map(|path| path.0).filter(|name| *name != NOTHING).collect();
        assert_eq!(written.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(), names);
    }
}
