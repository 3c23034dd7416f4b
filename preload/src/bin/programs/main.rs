//! Measures real programs over the locks: `cargo run --release -p sudog-preload --bin programs`.
//!
//! The programs are Debian's, which `preload/fetch-programs` fetches. Each runs for a second or so, on each lock in turn,
//! and all of that several times, so that slow hours hit all locks. A program that does not end in time is stopped.

#[cfg(target_os = "linux")]
mod memcached;
#[cfg(target_os = "linux")]
mod program;

#[cfg(target_os = "linux")]
fn main() -> Result<(), String> {
    use program::{Place, Program, Row};

    let mut place = Place::find()?;
    let (mut runs, mut programs) = (3, Program::ALL.to_vec());
    // `none`: without the library. `pthread`: glibc's locks through the library.
    let mut locks =
        "none,pthread,sudog,sudog/go-1.14,sudog+futex,std,parking_lot_0_12,parking_lot_0_13,mcs,clh,ticket,\
                     reciprocating,sudog+twa,tts-yield,tts-spin"
            .to_owned();
    let mut args = std::env::args().skip(1);
    while let Some(option) = args.next() {
        let value = args.next().ok_or_else(|| format!("{option} needs a value\n{HELP}"))?;
        match option.as_str() {
            "--seconds" => place.seconds = value.parse().map_err(|_| HELP)?,
            "--threads" => place.threads = value.parse().map_err(|_| HELP)?,
            "--runs" => runs = value.parse().map_err(|_| HELP)?,
            "--locks" => locks = value,
            "--programs" => programs = value.split(',').map(Program::named).collect::<Result<_, _>>()?,
            _ => return Err(HELP.to_owned()),
        }
    }
    let locks: Vec<&str> = locks.split(',').collect();
    place.prepare()?;

    let mut rows: Vec<Row<'_>> =
        programs.iter().flat_map(|&program| locks.iter().map(move |&lock| Row::new(program, lock))).collect();
    for run in 1..=runs {
        for row in &mut rows {
            eprint!("\r\x1b[Krun {run} of {runs}: {} on {}", row.program.name(), row.lock);
            row.measure(&place);
        }
    }
    eprintln!("\r\x1b[K");
    println!(
        "{} threads, {runs} runs. Rates: median and worst. p99: median. longest: worst of all runs.",
        place.threads
    );
    for program in programs {
        let rows: Vec<_> = rows.iter().filter(|row| row.program == program).collect();
        program::print(program, &rows);
    }
    Ok(())
}

#[cfg(target_os = "linux")]
const HELP: &str = "programs [--seconds S] [--threads N] [--runs N] [--locks none,LOCK,..] [--programs NAME,..]";

#[cfg(not(target_os = "linux"))]
fn main() {}
