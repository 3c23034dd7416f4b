//! A page about a picture.

use super::{Page, ReportFile, definitions, deliver, facts, table};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::run::contenders::Contenders;

/// An explanation of the picture for readers that do not know the source.
const MEANINGS: [(&str, &str); 6] = [
    ("holds the mutex", "the time from the return of lock to the call of unlock"),
    ("sleeps in line", "the contender is in the queue of the mutex's semaphore, and has no processor"),
    (
        "waits awake",
        "the time from the call of lock to the first sleep; and from each wake-up until the contender has the mutex, \
         or sleeps again because another contender was faster. A woken contender may still wait for a processor",
    ),
    (
        "starvation mode",
        "turned on by a waiter that has waited too long, was woken, and found the mutex locked again. In starvation \
         mode a newcomer goes to the end of the queue, and each unlock hands the mutex to the first waiter in the \
         queue",
    ),
    (
        "hands over",
        "an arrow from the unlock to the time at which the receiver has the mutex. No contender holds the mutex in \
         between",
    ),
    ("overtakes sleepers", "a newcomer, which was awake, took the mutex while waiters slept"),
];

/// The page.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// The headline: a line on the run.
    pub headline: &'a str,
    /// The picture.
    pub svg: &'a str,
    /// The figures.
    pub table: &'a Table,
    /// Sentences on the run.
    pub remarks: &'a [String],
    pub on: Contenders,
}

/// Switches that enlarge the picture, without a script: see `.zoomed` in the style sheet.
const ZOOM: &str = "<p>Zoom: \
    <label><input type=\"radio\" name=\"zoom\" checked> 1</label> \
    <label><input type=\"radio\" name=\"zoom\" class=\"four\"> 4</label> \
    <label><input type=\"radio\" name=\"zoom\" class=\"sixteen\"> 16</label>. \
    Point at a bar, an arrow or a mark for its times.</p>\n";

impl Picture<'_> {
    /// Writes the page, and prints the path of the page.
    pub fn write(&self, file: ReportFile, output: Output) -> Result<(), Failure> {
        deliver(file, &self.page(), output)
    }

    fn page(&self) -> String {
        let mut page = Page::new("Starvation mode, seen", self.headline);
        page.html(ZOOM);
        page.html(format_args!("<figure class=\"zoomed\" tabindex=\"0\">{}</figure>\n", self.svg));
        page.section("What is to be seen", definitions(MEANINGS));
        page.section("In figures", table(self.table));
        for remark in self.remarks {
            page.paragraph(remark);
        }
        page.section("Where it was recorded", facts(&self.on));
        page.render()
    }
}
