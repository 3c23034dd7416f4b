//! A figure of a claim: a value of a command's records, and the bound that the claim asks of the value.
//!
//! `TWA over ticket, T = % | throughput twa@% / ticket@% > 1 | 16 64` is a label, an expression, and the words that
//! stand for `%`, one after the other. An expression has one term, or two with `/` or `-` between, and a bound: `<`,
//! `<=`, `>`, `>=`, or `in 0.5..2`; 3ms are 3000000. Without a bound the figure is only printed. A term is a field of
//! the records and the selectors of a record, with `@` between; the second term may leave the field out. A selector
//! `key=value` asks for this value of a field, a number for so many threads, contenders, pairs or waiters, and a word,
//! in which `~` is a space, for any field with this value. In front, `most` or `least` takes all records that are
//! selected.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use super::source::Verdict;
use crate::output::units;

/// The fields that a number without a key selects.
const SIZES: [&str; 4] = ["threads", "contenders", "pairs", "n"];

/// A figure.
#[derive(Debug)]
pub struct Figure {
    /// The letter of the command.
    pub command: char,
    label: String,
    /// The expression, without the bound.
    terms: String,
    bound: Option<Bound>,
    /// The words that stand for `%`.
    words: Vec<String>,
    /// The result of the last run that was written.
    pub stored: Option<Stored>,
}

/// The bound of a figure.
#[derive(Debug)]
struct Bound {
    text: String,
    least: f64,
    most: f64,
    /// True if the limits themselves are out of bounds.
    strict: bool,
}

/// A result: for how many samples the figure was within its bound, and the values.
#[derive(Clone, Debug)]
pub struct Stored {
    held: usize,
    samples: usize,
    values: String,
}

impl Stored {
    pub fn verdict(&self) -> Verdict {
        match self.held {
            0 => Verdict::Refuted,
            held if held == self.samples => Verdict::Confirmed,
            _ => Verdict::Open,
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.held, self.samples, self.values)
    }
}

impl FromStr for Stored {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(' ').and_then(|(counts, values)| Some((counts.split_once('/')?, values)));
        let ((held, samples), values) = parts.ok_or("a result is as '7/7 1.02'")?;
        let [held, samples] = [held, samples].map(|n| n.parse().map_err(|_| format!("no number: '{n}'")));
        Ok(Self { held: held?, samples: samples?, values: values.to_owned() })
    }
}

impl Bound {
    fn new(sign: &str, limit: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let (digits, unit) = text.strip_suffix("ms").map_or((text, 1.0), |digits| (digits, 1e6));
            digits.parse::<f64>().map(|number| number * unit).map_err(|_| format!("no number: '{text}'"))
        };
        let (least, most) = match sign {
            "<" | "<=" => (f64::NEG_INFINITY, number(limit)?),
            ">" | ">=" => (number(limit)?, f64::INFINITY),
            _ => {
                let (least, most) = limit.split_once("..").ok_or("a range is as '0.5..2'")?;
                (number(least)?, number(most)?)
            }
        };
        let text = if sign == "in" { limit.replace("..", " to ") } else { format!("{sign} {limit}") };
        Ok(Self { text, least, most, strict: matches!(sign, "<" | ">") })
    }

    fn holds(&self, value: f64) -> bool {
        match self.strict {
            true => self.least < value && value < self.most,
            false => self.least <= value && value <= self.most,
        }
    }
}

impl Figure {
    /// Parses a figure of a command.
    pub fn new(command: char, text: &str) -> Result<Self, String> {
        let mut parts = text.split(" | ").map(str::trim);
        let label = parts.next().unwrap_or_default().to_owned();
        let expression = parts.next().ok_or("no expression")?;
        let words: Vec<String> = parts.next().unwrap_or("%").split_whitespace().map(str::to_owned).collect();
        let signs = [" < ", " <= ", " > ", " >= ", " in "];
        let found = signs.iter().find_map(|sign| Some((expression.split_once(sign)?, sign.trim())));
        let (terms, bound) = match found {
            Some(((terms, limit), sign)) => (terms, Some(Bound::new(sign, limit.trim())?)),
            None => (expression, None),
        };
        Expression::parse(terms)?;
        Ok(Self { command, label, terms: terms.to_owned(), bound, words, stored: None })
    }

    /// Returns the names that the figure selects.
    #[cfg(test)]
    pub fn names(&self) -> Vec<String> {
        let of = |word: &String| {
            let text = self.terms.replace('%', word);
            let Expression { first, second, .. } = Expression::parse(&text).expect("it was parsed");
            let terms = [Some(first), second.map(|(_, term)| term)];
            let names = terms.into_iter().flatten().flat_map(|(_, of)| selectors(of)).filter(|name| is_name(name));
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        self.words.iter().flat_map(of).collect()
    }

    /// Returns the result for these samples, each of which is the records of a run.
    pub fn evaluate(&self, samples: &[Vec<Value>]) -> Result<Stored, String> {
        let of = |sample: &Vec<Value>| {
            self.words.iter().map(|word| Expression::parse(&self.terms.replace('%', word))?.evaluate(sample)).collect()
        };
        let rows = samples.iter().map(of).collect::<Result<Vec<Vec<f64>>, String>>()?;
        let holds = |row: &&Vec<f64>| self.bound.as_ref().is_none_or(|bound| row.iter().all(|&v| bound.holds(v)));
        let held = rows.iter().filter(holds).count();
        let is_time = self.terms.split_whitespace().any(|word| word.ends_with("_ns")) && !self.terms.contains(" / ");
        let value = |n: usize| spread(rows.iter().map(|row| row[n]).collect(), is_time);
        let values: Vec<_> = (0..self.words.len()).map(value).collect();
        Ok(Stored { held, samples: rows.len(), values: values.join(", ") })
    }
}

/// The label, the values, and the bound.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.stored.as_ref().map_or(units::NOTHING, |stored| &stored.values);
        write!(f, "{}: {values}", self.label.replace('%', &self.words.join(", ")))?;
        let Some(Bound { text, .. }) = &self.bound else { return Ok(()) };
        write!(f, " [{text}")?;
        match &self.stored {
            Some(Stored { held, samples, .. }) if (1..*samples).contains(held) => {
                write!(f, ": {held} of {samples}]")
            }
            _ => write!(f, "]"),
        }
    }
}

/// Returns the median, and the range if there is one.
fn spread(mut values: Vec<f64>, is_time: bool) -> String {
    values.sort_by(f64::total_cmp);
    let format = |value| if is_time { units::time(value) } else { digits(value) };
    let [least, median, most] = [0, values.len() / 2, values.len() - 1].map(|n| format(values[n]));
    if least == most { median } else { format!("{median} ({least} to {most})") }
}

/// Formats a number with three digits.
fn digits(value: f64) -> String {
    match value.abs() {
        size if value.fract() == 0.0 && size < 1e5 => format!("{value}"),
        size if size >= 999.5 => units::count(value),
        size => {
            let decimals: usize = [99.95, 9.995, 0.0995].map(|limit| usize::from(size < limit)).iter().sum();
            format!("{value:.decimals$}")
        }
    }
}

/// Combines two values, as `most` and `least` do.
type Combine = fn(f64, f64) -> f64;

/// An expression without a bound.
struct Expression<'a> {
    /// Combines the values of all records that are selected. `None` if there must be one.
    all: Option<Combine>,
    /// The field and the selectors.
    first: (&'a str, &'a str),
    /// The sign, and the second term.
    second: Option<(&'a str, (&'a str, &'a str))>,
}

impl<'a> Expression<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let (all, words): (Option<Combine>, _) = match &words[..] {
            ["most", rest @ ..] => (Some(f64::max), rest),
            ["least", rest @ ..] => (Some(f64::min), rest),
            words => (None, words),
        };
        let (first, second) = match *words {
            [field] => ((field, ""), None),
            [field, of] => ((field, of), None),
            [field, of, sign, other] => ((field, of), Some((sign, (field, other)))),
            [field, of, sign, another, other] => ((field, of), Some((sign, (another, other)))),
            _ => return Err(format!("one term or two: '{text}'")),
        };
        Ok(Self { all, first, second })
    }

    fn evaluate(&self, records: &[Value]) -> Result<f64, String> {
        let first = select(records, self.first, self.all)?;
        match self.second {
            None => Ok(first),
            Some(("/", term)) => Ok(first / select(records, term, self.all)?),
            Some(("-", term)) => Ok(first - select(records, term, self.all)?),
            Some((sign, _)) => Err(format!("unknown sign '{sign}'")),
        }
    }
}

/// Returns the field of the record that the selectors choose; of all these records, if `all` says how to combine them.
fn select(records: &[Value], (field, of): (&str, &str), all: Option<Combine>) -> Result<f64, String> {
    let selectors: Vec<_> = selectors(of).collect();
    let chosen = records.iter().filter(|record| selectors.iter().all(|selector| is_selected(record, selector)));
    let values: Vec<f64> = chosen.filter_map(|record| number(at(record, field)?)).collect();
    match (&values[..], all) {
        ([value], None) => Ok(*value),
        ([first, rest @ ..], Some(combine)) => Ok(rest.iter().fold(*first, |so_far, &value| combine(so_far, value))),
        _ => Err(format!("{} records with '{field}' for '{of}'", values.len())),
    }
}

fn selectors(text: &str) -> impl Iterator<Item = &str> {
    text.split('@').filter(|selector| !selector.is_empty())
}

/// Returns a field; `a.b` is the field `b` of the field `a`, and `a.0` the first value of the list `a`.
fn at<'a>(record: &'a Value, field: &str) -> Option<&'a Value> {
    field.split('.').try_fold(record, |value, key| value.get(key).or_else(|| value.get(key.parse::<usize>().ok()?)))
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_bool().map(|is| f64::from(u8::from(is))))
}

/// Returns whether a selector is a name: neither a number nor `key=value`.
fn is_name(selector: &str) -> bool {
    let is_key = |key: &str| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    selector.parse::<f64>().is_err() && !selector.split_once('=').is_some_and(|(key, _)| is_key(key))
}

fn is_selected(record: &Value, selector: &str) -> bool {
    let is = |value: &Value, text: &str| value.as_str().map_or_else(|| value.to_string(), str::to_owned) == text;
    if is_name(selector) {
        let name = selector.replace('~', " ");
        return record.as_object().is_some_and(|fields| fields.values().any(|value| value.as_str() == Some(&name)));
    }
    match selector.split_once('=') {
        Some((key, text)) => at(record, key).is_some_and(|value| is(value, text)),
        None => SIZES.iter().any(|key| record.get(key).is_some_and(|value| is(value, selector))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn samples() -> Vec<Vec<Value>> {
        let of = |twa: f64| {
            vec![
                json!({"semaphore": "twa", "threads": 2, "throughput": twa, "holds": true}),
                json!({"semaphore": "ticket", "threads": 2, "throughput": 2.0, "wait_ns": 1500}),
            ]
        };
        [of(3.0), of(5.0), of(1.0)].into()
    }

    fn result(text: &str) -> (Verdict, String) {
        let stored = Figure::new('A', text).unwrap().evaluate(&samples()).unwrap();
        (stored.verdict(), stored.to_string())
    }

    #[test]
    fn a_bound_holds_for_all_samples_for_some_or_for_none() {
        let expected = |verdict, text: &str| (verdict, text.to_owned());
        assert_eq!(result("r | throughput twa@2 / ticket@2 > 1"), expected(Verdict::Open, "2/3 1.50 (0.50 to 2.50)"));
        assert_eq!(
            result("r | throughput twa@2 / ticket@2 < 3"),
            expected(Verdict::Confirmed, "3/3 1.50 (0.50 to 2.50)")
        );
        assert_eq!(result("r | throughput ticket@2 in 2.5..3"), expected(Verdict::Refuted, "0/3 2"));
        assert_eq!(result("r | throughput %@2 | ticket twa"), expected(Verdict::Confirmed, "3/3 2, 3 (1 to 5)"));
        assert_eq!(result("r | most throughput threads=2 >= 2"), expected(Verdict::Confirmed, "3/3 3 (2 to 5)"));
        assert_eq!(result("r | holds twa >= 1").0, Verdict::Confirmed);
        assert_eq!(result("r | wait_ns ticket").1, "3/3 1.50 µs");
    }

    #[test]
    fn a_figure_that_is_not_there_is_an_error() {
        let fails = |text| Figure::new('A', text).and_then(|figure| figure.evaluate(&samples())).unwrap_err();
        assert!(fails("r | throughput mcs@2").contains("0 records"));
        assert!(fails("r | throughput threads=2").contains("2 records"));
        assert!(fails("r | throughput twa in 3").contains("range"));
        assert!(fails("r").contains("expression"));
    }

    #[test]
    fn a_result_is_read_as_it_was_written() {
        let stored: Stored = "2/7 1.50 (0.50 to 2.50)".parse().unwrap();
        assert_eq!((stored.verdict(), stored.to_string().as_str()), (Verdict::Open, "2/7 1.50 (0.50 to 2.50)"));
        let mut figure = Figure::new('A', "T = % | throughput twa@% > 1 | 2 4").unwrap();
        assert_eq!(figure.to_string(), "T = 2, 4: - [> 1]");
        figure.stored = Some(stored);
        assert_eq!(figure.to_string(), "T = 2, 4: 1.50 (0.50 to 2.50) [> 1: 2 of 7]");
    }
}
