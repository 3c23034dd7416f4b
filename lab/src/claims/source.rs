//! The claims of a source as data: a text file beside this file for each source, and the table that a document has of it.
//!
//! A file has a head and a paragraph for each claim. Each line is a key, a colon and a value:
//!
//! | line | content |
//! |---|---|
//! | `source`, `document`, `hash` | number and title; the document with the table; hash of all quotations |
//! | `A` to `Z`, `a` to `z`, in the head | a command as a user would type it; the first word `slow` keeps it for `--all` |
//! | `claim`, `place`, `quote` | the claim in words of this project; where the source has it; the source's own words |
//! | a command's letter, in a claim | a [`Figure`] of that command; the next line, `=`, has the last result |
//! | `seen` | verdict, file, text: the verdict is backed by a test, a model or code with this text in this file |
//! | `argued` | verdict, reason: the verdict follows from the reason |
//! | `open`, `note` | why there is no verdict; a remark about the verdict |
//!
//! The source `own` has claims of newer papers and of prototypes of this project, without quotations.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::figure::{Figure, Stored};
use crate::output::failure::Failure;

/// The files of the sources, in this folder.
pub const FILES: [&str; 5] = ["waiting-arrays.txt", "capacitors.txt", "go-mutex.txt", "csp.txt", "others.txt"];

/// Returns the root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the laboratory is a folder of the workspace")
}

/// What is known of a claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Each check holds, for each seed.
    Confirmed,
    /// A check holds for some seeds only, or there is no check.
    Open,
    /// A check holds for no seed.
    Refuted,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "confirmed",
            Self::Open => "open",
            Self::Refuted => "refuted",
        })
    }
}

/// A check of a claim.
#[derive(Debug)]
pub enum Check {
    /// A figure of a command.
    Figure(Figure),
    /// A file, and the text in it that backs the verdict.
    Seen { verdict: Verdict, file: String, text: String },
    /// A reason, from which the verdict follows.
    Argued { verdict: Verdict, reason: String },
}

impl Check {
    fn verdict(&self) -> Verdict {
        match self {
            Self::Figure(figure) => figure.stored.as_ref().map_or(Verdict::Open, Stored::verdict),
            Self::Seen { verdict, .. } | Self::Argued { verdict, .. } => *verdict,
        }
    }
}

/// A claim.
#[derive(Debug, Default)]
pub struct Claim {
    pub says: String,
    pub place: String,
    pub quote: String,
    pub checks: Vec<Check>,
    /// The reason why there is no verdict.
    pub open: Option<String>,
    pub note: Option<String>,
}

impl Claim {
    /// Returns the verdict: that of the worst check, or none if the claim is open.
    pub fn verdict(&self) -> Verdict {
        if self.open.is_some() {
            return Verdict::Open;
        }
        self.checks.iter().map(Check::verdict).max().unwrap_or(Verdict::Open)
    }

    /// Returns the claim's figures, to be changed.
    pub fn figures_mut(&mut self) -> impl Iterator<Item = &mut Figure> {
        self.checks.iter_mut().filter_map(|check| match check {
            Check::Figure(figure) => Some(figure),
            _ => None,
        })
    }

    /// Returns the claim's figures.
    pub fn figures(&self) -> impl Iterator<Item = &Figure> {
        self.checks.iter().filter_map(|check| match check {
            Check::Figure(figure) => Some(figure),
            _ => None,
        })
    }
}

/// A command of a source.
#[derive(Debug)]
pub struct Command {
    pub letter: char,
    pub text: String,
    /// True if the command is run with `--all` only.
    pub slow: bool,
}

/// A source with its claims.
#[derive(Debug, Default)]
pub struct Source {
    pub file: PathBuf,
    pub number: String,
    pub title: String,
    document: String,
    pub hash: String,
    pub commands: Vec<Command>,
    pub claims: Vec<Claim>,
}

impl Source {
    /// Reads all sources.
    pub fn all() -> Result<Vec<Self>, Failure> {
        FILES.iter().map(|file| Self::read(&root().join("lab/src/claims").join(file))).collect()
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let text = read(path)?;
        let mut source = Self { file: path.to_owned(), ..Self::default() };
        for (number, line) in text.lines().enumerate() {
            let wrong = |why: String| Failure::Run(format!("{}:{}: {why}", path.display(), number + 1));
            source.line(line).map_err(wrong)?;
        }
        Ok(source)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        let Some((key, value)) = line.split_once(':').map(|(key, value)| (key, value.trim().to_owned())) else {
            let result = line.trim().strip_prefix('=').ok_or("no key")?;
            let figure = match self.claims.last_mut().and_then(|claim| claim.checks.last_mut()) {
                Some(Check::Figure(figure)) => figure,
                _ => return Err("a result without a figure".to_owned()),
            };
            figure.stored = Some(result.trim().parse()?);
            return Ok(());
        };
        let letter = key.chars().next().filter(|letter| key.len() == 1 && letter.is_ascii_alphabetic());
        match (key, letter, self.claims.last_mut()) {
            ("claim", ..) => self.claims.push(Claim { says: value, ..Claim::default() }),
            ("source", ..) => {
                let (number, title) = value.split_once(' ').ok_or("a number and a title")?;
                (self.number, self.title) = (number.to_owned(), title.to_owned());
            }
            ("document", ..) => self.document = value,
            ("hash", ..) => self.hash = value,
            (_, Some(letter), None) => {
                let slow = value.strip_prefix("slow ");
                let text = slow.unwrap_or(&value).to_owned();
                self.commands.push(Command { letter, slow: slow.is_some(), text });
            }
            (_, Some(letter), Some(claim)) => claim.checks.push(Check::Figure(Figure::new(letter, &value)?)),
            ("place", _, Some(claim)) => claim.place = value,
            ("quote", _, Some(claim)) => claim.quote = value,
            ("open", _, Some(claim)) => claim.open = Some(value),
            ("note", _, Some(claim)) => claim.note = Some(value),
            ("seen", _, Some(claim)) => {
                let [verdict, file, text] = fields(&value)?;
                claim.checks.push(Check::Seen { verdict: parse_verdict(&verdict)?, file, text });
            }
            ("argued", _, Some(claim)) => {
                let [verdict, reason] = fields(&value)?;
                claim.checks.push(Check::Argued { verdict: parse_verdict(&verdict)?, reason });
            }
            _ => return Err(format!("unknown key '{key}'")),
        }
        Ok(())
    }

    /// Returns the command of a letter.
    pub fn command(&self, letter: char) -> Option<&Command> {
        self.commands.iter().find(|command| command.letter == letter)
    }

    /// Returns whether this is the source that a user names by its number, or by its file without the suffix.
    pub fn is_named(&self, name: &str) -> bool {
        name == self.number || self.file.file_stem().is_some_and(|stem| stem == name)
    }

    /// Returns whether each claim quotes the source.
    pub fn has_quotes(&self) -> bool {
        self.number != "own"
    }

    /// Writes the results of the figures into the file, each on the line below its figure.
    pub fn write_results(&self) -> Result<(), Failure> {
        let mut results = self.claims.iter().flat_map(Claim::figures).map(|figure| figure.stored.as_ref());
        let mut text = String::new();
        let mut in_claims = false;
        for line in read(&self.file)?.lines().filter(|line| !line.trim_start().starts_with('=')) {
            in_claims |= line.starts_with("claim:");
            let _ = writeln!(text, "{line}");
            if in_claims
                && line.as_bytes().get(1) == Some(&b':')
                && let Some(stored) = results.next().flatten()
            {
                let _ = writeln!(text, " = {stored}");
            }
        }
        Ok(fs::write(&self.file, text)?)
    }

    /// Returns the text of the document with the table of today, and the text that the document has.
    pub fn document(&self) -> Result<(PathBuf, String, String), Failure> {
        let path = root().join(&self.document);
        let text = read(&path)?;
        let [begin, end] = ["begin", "end"].map(|word| format!("<!-- claims of {}: {word} -->\n", self.number));
        let parts = text.split_once(&begin).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
        let (head, tail) = parts.ok_or_else(|| Failure::Run(format!("{}: no '{}'", path.display(), begin.trim())))?;
        let new = format!("{head}{begin}{}{end}{tail}", self.table());
        Ok((path, new, text))
    }

    /// Returns the commands and the table of all claims, in Markdown.
    fn table(&self) -> String {
        let mut text = String::from("\n```text\n");
        for Command { letter, text: command, .. } in &self.commands {
            let _ = writeln!(text, "{letter}  {command}");
        }
        text += "```\n\n| | claim, and its place | found | verdict |\n|--:|---|---|---|\n";
        for (row, claim) in (1..).zip(&self.claims) {
            let found: Vec<_> = claim.checks.iter().map(|check| self.found(check)).collect();
            let verdict = claim.verdict();
            let remark = claim.open.iter().chain(&claim.note).flat_map(|remark| [": ", remark]).collect::<String>();
            let Claim { says, place, .. } = claim;
            let _ = writeln!(text, "| {row} | {says} ({place}) | {} | {verdict}{remark} |", found.join("; "));
        }
        text + "\n"
    }

    fn found(&self, check: &Check) -> String {
        match check {
            Check::Figure(figure) => format!("{}, {figure}", figure.command),
            Check::Seen { file, text, .. } => {
                let up = Path::new(&self.document).iter().skip(1).map(|_| "../").collect::<String>();
                let name = Path::new(file).file_name().unwrap_or_default().display();
                format!("`{text}` ([{name}]({up}{file}))")
            }
            Check::Argued { reason, .. } => reason.clone(),
        }
    }

    /// Returns the hash of all quotations. They are hashed without white space and hyphens, as lines of the sources are
    /// broken and words hyphenated.
    #[cfg(test)]
    pub fn hash_of_quotes(&self) -> String {
        let quotes = self.claims.iter().map(|claim| plain(&claim.quote));
        let bytes = quotes.flat_map(|quote| quote.into_bytes().into_iter().chain([0]));
        format!(
            "{:016x}",
            bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
        )
    }
}

/// Returns a text without white space and hyphens.
#[cfg(test)]
pub fn plain(text: &str) -> String {
    text.chars().filter(|&c| !c.is_whitespace() && c != '-').collect()
}

/// Reads a file, and names the file if that fails.
pub fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| Failure::Run(format!("{}: {error}", path.display())))
}

/// Splits a value at ` | `.
fn fields<const N: usize>(value: &str) -> Result<[String; N], String> {
    let parts: Vec<_> = value.split(" | ").map(|part| part.trim().to_owned()).collect();
    parts.try_into().map_err(|_| format!("{N} parts with ' | ' between"))
}

fn parse_verdict(text: &str) -> Result<Verdict, String> {
    match text {
        "confirmed" => Ok(Verdict::Confirmed),
        "open" => Ok(Verdict::Open),
        "refuted" => Ok(Verdict::Refuted),
        _ => Err(format!("no verdict: '{text}'")),
    }
}
