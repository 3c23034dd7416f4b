//! The page.

use std::fmt::{self, Display, Write};

use super::plot::{self, Quantity};
use super::{Report, machine};
use crate::bench::semtable;
use crate::failure::Failure;
use crate::floors::FloorName;
use crate::table::Table;
use crate::units;

pub(super) const STYLE: &str = include_str!("style.css");

/// What the columns of the tables mean.
const COLUMNS: [(&str, &str); 11] = [
    (
        "alone",
        "lock and unlock, or acquire and release, by one contender with nobody else about: the median over the rounds",
    ),
    (
        "T",
        "how many contend, threads or goroutines, each in a loop; more of them than processors, or than \
         workers, is more than fits",
    ),
    ("throughput", "acquisitions per second, of all together. More is better"),
    (
        "min/max",
        "the acquisitions of the one that got the fewest over those of the one that got the most: 1 is even, 0 is one \
         that never got in. Over a short run a lock that is fair in the long run can look uneven",
    ),
    (
        "Jain",
        "Jain's index of fairness: the part of all that, sharing evenly, would make as uneven a whole. 1 is even, 1/T is \
         one that had everything",
    ),
    (
        "p50, p99, p99.9",
        "the wait from request to entry that half, 99 in 100, 999 in 1000 acquisitions do not exceed. Less is better. Of \
         short waits a random sample is timed; those of about two milliseconds and more are all counted. Each acquisition \
         counts as one: one that gets in a thousand times running waits a thousand times for nothing, and whoever \
         waits for it waits once. So read them together with the longest wait. None is shorter than it takes to read the \
         clock",
    ),
    ("max wait", "the longest wait that was seen; of the short ones, only those in the sample are"),
    ("longest run", "the most acquisitions in a row by one contender while others wanted the lock too"),
    (
        "max bypass",
        "the most acquisitions by others between two of one contender: how often it was overtaken, as long as all do \
         nothing but want the lock, and have processors",
    ),
    ("geometric mean", "of the ratios in the row"),
    (
        "queue + dequeue",
        "a waiter put into the queue of one bucket of the semaphore table, with n in it, and taken out again. A queue \
         that looks at every waiter would grow by 4 from n to 4n",
    ),
];

/// What those of semabench mean.
const OVERVIEW: [(&str, &str); 7] = [
    ("x floor", "alone, over two-rmws"),
    (FloorName::TwoRmws.name(), FloorName::TwoRmws.about()),
    (
        FloorName::Handover.name(),
        "a turn that is handed round: each contender sleeps until its turn comes, and has it once a round. What is first \
         come, first served, with more contenders than processors, cannot do better, but for those who are awake when \
         their turn comes",
    ),
    ("geomean", "of the throughputs with more than one contender"),
    ("FIFO", "those who wait are served in order; who does not wait may come first"),
    (
        "max bypass waiting",
        "the most acquisitions by others between a request and its entry, of all waits of two milliseconds and more, and of \
         a sample of the others. First come, first served allows T - 1; more than that came while the contender was on its \
         way to its place in line and without a processor",
    ),
    (
        "overtaken",
        "of all acquisitions by others during waits, the part that is beyond T - 1 in one. First come, first served: nearly \
         0. One that has it n times running while all others wait: 1 - 1/n",
    ),
];

const PLOTS: [(&str, Quantity); 3] = [
    (
        "Throughput",
        Quantity { axis: "acquisitions per second", of: |s| s.throughput, label: units::rate, logarithmic: true },
    ),
    (
        "Fairness",
        Quantity { axis: "min/max", of: |s| s.min_max, label: |share| format!("{share:.1}"), logarithmic: false },
    ),
    ("Long waits", Quantity { axis: "p99.9 wait", of: |s| s.p999, label: units::time, logarithmic: true }),
];

/// The whole page.
pub fn page(report: &Report<'_>) -> Result<String, Failure> {
    let mut page = String::new();
    let kind = report.contended.kind();
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>sudog-lab</title>\n\
         <style>\n{STYLE}</style>\n<h1>{}s compared</h1>\n\
         <p>A {kind} that is fast because one contender keeps it is of no use to the others, and one that is fair because \
         it is handed from sleeper to sleeper is of no use to anybody. So read throughput and fairness together: in the \
         first plot high is good, in the second high is good, in the third low is good. Every figure is a median over \
         runs in which the {kind}s took turns.</p>\n",
        capitalised(kind)
    );
    section(&mut page, "Where it was measured", definitions(machine::facts(report.contended.on)));
    contended(&mut page, report)?;
    if let Some(overview) = report.overview {
        section(&mut page, "All in one table", table(overview));
    }
    if !report.uncontended.is_empty() {
        section(&mut page, "Alone", table(&uncontended(report)));
    }
    if !report.semtable.is_empty() {
        section(&mut page, "The queue of the semaphore table", table(&semtable::table(report.semtable)));
    }
    let of_overview = report.overview.map(|_| OVERVIEW);
    let columns = COLUMNS.into_iter().chain(of_overview.into_iter().flatten());
    section(&mut page, "What the columns mean", definitions(columns));
    page.push_str("</html>\n");
    Ok(page)
}

fn contended(page: &mut String, report: &Report<'_>) -> Result<(), Failure> {
    let summaries = report.contended;
    let mut plots = String::from("<ul class=\"legend\">");
    for &subject in &summaries.subjects {
        let plotters::style::RGBColor(r, g, b) = plot::colour(subject);
        let (name, about) = (Escaped(subject.name()), Escaped(subject.about()));
        let _ = write!(plots, "<li title=\"{about}\"><span style=\"background:rgb({r},{g},{b})\"></span>{name}</li>");
    }
    plots.push_str("</ul>\n<div class=\"plots\">\n");
    for (title, quantity) in PLOTS {
        let svg = plot::plot(summaries, quantity)?;
        let _ = writeln!(plots, "<figure><figcaption>{title}</figcaption>{svg}</figure>");
    }
    plots.push_str("</div>\n");
    section(page, "Contended", plots);
    section(page, "Contended, in figures", table(&summaries.table()));
    if let Some((title, ratios)) = summaries.ratios() {
        let _ = write!(page, "<p>{}</p>\n{}", Escaped(&title), table(&ratios));
    }
    for remark in summaries.remarks() {
        let _ = writeln!(page, "<p>{}</p>", Escaped(&remark));
    }
    Ok(())
}

fn uncontended(report: &Report<'_>) -> Table {
    let mut table = Table::new(2, ["lock", "", "alone", "ratio to the fastest usual mutex"]);
    for r in report.uncontended {
        let ratio = units::ratio(r.ratio.unwrap_or(f64::NAN));
        table.row([r.subject.name(), r.subject.about(), &units::time(r.ns), &ratio]);
    }
    table
}

pub(super) fn section(page: &mut String, title: &str, body: impl Display) {
    let _ = write!(page, "<h2>{}</h2>\n{body}", Escaped(title));
}

pub(super) fn definitions<T: AsRef<str>>(pairs: impl IntoIterator<Item = (&'static str, T)>) -> String {
    let mut html = String::from("<dl>\n");
    for (term, text) in pairs {
        let _ = writeln!(html, "<dt>{}</dt><dd>{}</dd>", Escaped(term), Escaped(text.as_ref()));
    }
    html + "</dl>\n"
}

pub(super) fn table(table: &Table) -> String {
    let mut html = String::from("<div class=\"wide\"><table>\n");
    for (n, row) in table.rows().enumerate() {
        let (open, tag, close) = if n == 0 { ("<thead>", "th", "</thead>\n<tbody>") } else { ("", "td", "") };
        html.push_str(open);
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class = if table.is_words(column) { " class=\"word\"" } else { "" };
            let _ = write!(html, "<{tag}{class}>{}</{tag}>", Escaped(cell));
        }
        let _ = writeln!(html, "</tr>{close}");
    }
    html + "</tbody></table></div>\n"
}

/// With a capital letter.
fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(word.len().min(1));
    first.to_uppercase() + rest
}

/// Text that means nothing to HTML.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_through() {
        assert_eq!(Escaped("<a href=\"x\">&").to_string(), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}
