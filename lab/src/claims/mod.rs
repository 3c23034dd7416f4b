//! The command `claims`: each claim of the sources, confirmed, refuted or open, with the figures.
//!
//! The claims are in a text file for each source: [`source`] has the format. A figure is checked by a command of the
//! laboratory, which runs in a process of its own: on a simulated machine once for each seed. `--write` puts the results
//! into the files, and the tables of all claims into the documents.

mod figure;
mod source;

use std::collections::HashMap;
use std::fs;
use std::process::{Command as Process, Stdio};

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use sudog_runtime::shim::system::thread;

use self::figure::{Figure, Stored};
pub use self::source::Verdict;
use self::source::{Check, Claim, Command, Source, root};
use crate::output::Output;
use crate::output::failure::Failure;

/// The beginning of the commands that this program runs.
const PROGRAM: &str = if cfg!(sudog_sim) { "cargo sim " } else { "cargo lab " };

/// Options of `claims`.
#[derive(Args, Clone, Debug)]
pub struct ClaimsArgs {
    /// Only the claims of this source: 000 or waiting-arrays, 002 or capacitors, 003 or go-mutex, 004 or csp,
    /// own or others
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,

    /// Only the claim in this row of the source's table
    #[arg(long, value_name = "N")]
    row: Option<usize>,

    /// Run slow commands, too; '--row' does
    #[arg(long)]
    all: bool,

    /// Number of seeds, each of which is a run of a simulated machine
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,

    /// Write the results into the files of claims, and the tables into the documents
    #[arg(long)]
    write: bool,
}

/// The record of a claim.
#[derive(Serialize)]
struct ClaimRecord<'a> {
    bench: &'static str,
    source: &'a str,
    row: usize,
    claim: &'a str,
    place: &'a str,
    verdict: Verdict,
    figures: Vec<String>,
}

/// The samples that commands have given so far, by the command.
type Samples = HashMap<String, Vec<Vec<Value>>>;

/// Runs the commands of the claims that are asked for, and prints the claims. Fails if a verdict differs from the
/// documents', or a figure is not in the records.
pub fn run(args: &ClaimsArgs, output: Output) -> Result<(), Failure> {
    let mut differing = Vec::new();
    let mut counts = [0; 3];
    let asked = |source: &Source| args.source.as_ref().is_none_or(|name| source.is_named(name));
    let mut sources: Vec<Source> = Source::all()?.into_iter().filter(asked).collect();
    if sources.is_empty() {
        return Err(Failure::Usage("no such source: 000, 002, 003, 004 or own".into()));
    }
    let mut samples = Samples::new();
    for source in &mut sources {
        output.text(format_args!("{} {}\n", source.number, source.title))?;
        for index in 0..source.claims.len() {
            let row = index + 1;
            if args.row.is_some_and(|only| only != row) {
                continue;
            }
            let old = source.claims[index].verdict();
            let (ran, failed) = measure(source, index, args, &mut samples)?;
            differing.extend(failed.iter().map(|why| format!("{} row {row}: {why}", source.number)));
            let claim = &source.claims[index];
            let verdict = claim.verdict();
            counts[verdict as usize] += 1;
            print(source, row, ran, output)?;
            // Fewer seeds than were written decide less. Compare what both decide.
            if verdict != old && !args.write && (old != Verdict::Open && verdict != Verdict::Open || args.seeds >= 7) {
                differing.push(format!("{} row {row}: {verdict}, was {old}", source.number));
            }
        }
        if args.write {
            source.write_results()?;
            let (path, new, _) = source.document()?;
            fs::write(path, new)?;
        }
    }
    let [confirmed, open, refuted] = counts;
    output.text(format_args!("{confirmed} confirmed, {refuted} refuted, {open} open"))?;
    match differing.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(format!("not as in the documents: {}", differing.join("; ")))),
    }
}

/// Runs the commands of a claim, unless they have been run, and stores the results. Returns how many figures were
/// measured, and what the records lack for the others.
fn measure(
    source: &mut Source,
    index: usize,
    args: &ClaimsArgs,
    samples: &mut Samples,
) -> Result<(usize, Vec<String>), Failure> {
    let mut results: Vec<Option<Stored>> = Vec::new();
    let mut lacking = Vec::new();
    for figure in source.claims[index].figures() {
        let command = source.command(figure.command).expect("each figure has a command");
        let Some(words) =
            command.text.strip_prefix(PROGRAM).filter(|_| args.all || args.row.is_some() || !command.slow)
        else {
            results.push(None);
            continue;
        };
        if !samples.contains_key(words) {
            samples.insert(words.to_owned(), sample(words, args.seeds)?);
        }
        results.push(figure.evaluate(&samples[words]).map_err(|why| lacking.push(why)).ok());
    }
    let measured = results.iter().flatten().count();
    for (figure, result) in source.claims[index].figures_mut().zip(results) {
        figure.stored = result.or(figure.stored.take());
    }
    Ok((measured, lacking))
}

/// A claim beside a figure of the command `figures`, judged by the records of that figure.
#[derive(Serialize)]
pub struct Beside {
    bench: &'static str,
    source: String,
    row: usize,
    pub says: String,
    /// `None` if the records lack what the claim is about.
    pub verdict: Option<Verdict>,
    pub figures: Vec<String>,
}

/// Returns the claims whose commands are `figures --only` this figure, judged by these records.
pub fn beside(figure: &str, records: &[impl Serialize]) -> Result<Vec<Beside>, Failure> {
    let records: Result<Vec<Value>, _> = records.iter().map(serde_json::to_value).collect();
    let samples = runs(records.map_err(|error| Failure::Run(error.to_string()))?);
    let asked = format!(" figures --only {figure} ");
    let mut all = Vec::new();
    for mut source in Source::all()? {
        let letters: Vec<char> = source.commands.iter().filter(|c| c.text.contains(&asked)).map(|c| c.letter).collect();
        for (row, claim) in (1..).zip(&mut source.claims) {
            let mut figures: Vec<&mut Figure> =
                claim.figures_mut().filter(|figure| letters.contains(&figure.command)).collect();
            for figure in &mut figures {
                figure.stored = figure.evaluate(&samples).ok();
            }
            let verdicts = || figures.iter().filter_map(|figure| Some(figure.stored.as_ref()?.verdict()));
            // A check that fails decides, even if another was not measured.
            let verdict = verdicts().max().filter(|&v| v == Verdict::Refuted || verdicts().count() == figures.len());
            if !figures.is_empty() {
                let (source, figures) = (source.number.clone(), figures.iter().map(ToString::to_string).collect());
                all.push(Beside { bench: "figures-claim", source, row, says: claim.says.clone(), verdict, figures });
            }
        }
    }
    Ok(all)
}

/// Runs a command, on a simulated machine with each seed. Returns the records of each run.
fn sample(command: &str, seeds: u64) -> Result<Vec<Vec<Value>>, Failure> {
    let seeds: Vec<u64> = if cfg!(sudog_sim) { (0..seeds).collect() } else { vec![0] };
    let at_a_time = if cfg!(sudog_sim) { thread::available_parallelism().map_or(1, |n| n.get()) } else { 1 };
    let mut samples = Vec::new();
    for seeds in seeds.chunks(at_a_time) {
        let start = |&seed: &u64| {
            let mut process = Process::new(std::env::current_exe()?);
            process.args(words(command)).arg("--json").stdout(Stdio::piped()).current_dir(root());
            if cfg!(sudog_sim) {
                process.args(["--machine-seed", &seed.to_string()]);
            }
            process.spawn()
        };
        let children = seeds.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        for child in children {
            let finished = child.wait_with_output()?;
            if !finished.status.success() {
                return Err(Failure::Run(format!("failed: {PROGRAM}{command}")));
            }
            let lines = String::from_utf8_lossy(&finished.stdout);
            let records: Result<Vec<Value>, _> = lines.lines().map(serde_json::from_str).collect();
            samples.extend(runs(records.map_err(|error| Failure::Run(format!("{command}: {error}")))?));
        }
    }
    Ok(samples)
}

/// Splits records by their runs. A record of no run belongs to each.
fn runs(records: Vec<Value>) -> Vec<Vec<Value>> {
    let run = |record: &Value| record.get("run").and_then(Value::as_u64);
    let most = records.iter().filter_map(run).max().unwrap_or(1);
    let of = |n| records.iter().filter(|record| run(record).is_none_or(|run| run == n)).cloned().collect();
    (1..=most).map(of).collect()
}

/// Splits a command into words at spaces outside of single quotes, as a shell does.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in command.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("there is a word").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Prints a claim with its figures.
fn print(source: &Source, row: usize, measured: usize, output: Output) -> Result<(), Failure> {
    let claim = &source.claims[row - 1];
    let Claim { says, place, quote, open, note, .. } = claim;
    let verdict = claim.verdict();
    let figures: Vec<_> = claim.figures().map(Figure::to_string).collect();
    output.record(&ClaimRecord {
        bench: "claims",
        source: &source.number,
        row,
        claim: says,
        place,
        verdict,
        figures,
    })?;
    let written = if measured == 0 && claim.figures().next().is_some() { ", as written" } else { "" };
    output.text(format_args!("{row:2}  {verdict}{written}: {says} ({place})"))?;
    if source.has_quotes() {
        output.text(format_args!("    \"{quote}\""))?;
    }
    for check in &claim.checks {
        match check {
            Check::Figure(figure) => {
                let text = source.command(figure.command).map_or("", |Command { text, .. }| text);
                output.text(format_args!("    {}, {figure}\n       {text}", figure.command))?;
            }
            Check::Seen { file, text, .. } => output.text(format_args!("    {file}: {text}"))?,
            Check::Argued { reason, .. } => output.text(format_args!("    {reason}"))?,
        }
    }
    for remark in open.iter().chain(note) {
        output.text(format_args!("    {remark}"))?;
    }
    output.text("")
}

#[cfg(test)]
mod tests {
    use super::source::{plain, read};
    use super::*;

    /// The environment variable that names the folder with the texts of the sources, as `002_*.txt`.
    const TEXTS: &str = "SUDOG_SOURCES";

    fn all() -> Vec<Source> {
        Source::all().unwrap()
    }

    #[test]
    fn the_tables_of_the_documents_are_those_of_the_claims() {
        for source in all() {
            let (path, new, old) = source.document().unwrap();
            assert!(new == old, "{}: run `cargo lab claims --source {} --write`", path.display(), source.number);
        }
    }

    /// Checks the quotations against the sources, if they are there, and against the hash of quotations that were checked.
    #[test]
    fn the_quotations_are_the_sources_words() {
        for source in all().into_iter().filter(Source::has_quotes) {
            if let Some(folder) = std::env::var_os(TEXTS) {
                let file = fs::read_dir(folder)
                    .unwrap()
                    .map(|file| file.unwrap().path())
                    .find(|path| path.file_name().unwrap().to_string_lossy().starts_with(&source.number));
                let text = plain(&read(&file.expect("the source is in the folder")).unwrap());
                for claim in &source.claims {
                    assert!(text.contains(&plain(&claim.quote)), "{}: {}", source.number, claim.quote);
                }
            }
            let hash = source.hash_of_quotes();
            assert_eq!(source.hash, hash, "{}: check the quotations with {TEXTS}, then write the hash", source.number);
        }
    }

    #[test]
    fn each_claim_has_a_quotation_and_a_reason_for_its_verdict() {
        for source in all() {
            for claim in &source.claims {
                let at = format!("{}: {}", source.number, claim.says);
                assert_eq!(claim.quote.len() >= 8, source.has_quotes(), "{at}");
                assert!(!claim.place.is_empty(), "{at}");
                assert!(claim.open.is_some() || !claim.checks.is_empty(), "{at}");
                assert!(claim.figures().all(|figure| source.command(figure.command).is_some()), "{at}");
                assert!(claim.figures().all(|figure| figure.stored.is_some()), "{at}: not measured");
                for check in &claim.checks {
                    let Check::Seen { file, text, .. } = check else { continue };
                    assert!(read(&root().join(file)).unwrap().contains(text.as_str()), "{at}: {file} has no {text}");
                }
            }
        }
    }

    /// Checks that the command line takes each command, and that the command knows the names which figures select.
    #[test]
    fn the_commands_of_the_claims_are_commands_of_the_laboratory() {
        for source in all() {
            for Command { letter, text, .. } in &source.commands {
                let Some(rest) = ["cargo lab ", "cargo sim "].iter().find_map(|program| text.strip_prefix(program))
                else {
                    continue;
                };
                let machine = ["--machine", "--processors", "--idle-exit", "--far", "--details"];
                let mut line = words(rest);
                while let Some(at) = line.iter().position(|word| machine.contains(&word.as_str())) {
                    line.drain(at..at + 2);
                }
                if !["collapse", "explore"].contains(&line[0].as_str()) {
                    crate::cli::check(&line).unwrap_or_else(|error| panic!("{letter}: {text}: {error}"));
                }
                let figures = source.claims.iter().flat_map(Claim::figures).filter(|figure| figure.command == *letter);
                for name in figures.flat_map(|figure| figure.names()) {
                    let listed = ["mutexbench ", "semabench "].iter().any(|bench| rest.starts_with(bench));
                    assert!(!listed || rest.contains(&name), "{letter}: {name} is not in: {text}");
                }
            }
        }
    }

    #[test]
    fn words_may_be_quoted() {
        assert_eq!(words("a --b 'c(d, e)',f  g"), ["a", "--b", "c(d, e),f", "g"]);
    }
}
