//! A page about a picture.

use super::{Page, ReportFile, definitions, deliver, facts, table};
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::run::contenders::Contenders;

/// An explanation of the picture for readers that do not know the source.
const MEANINGS: [(&str, &str); 6] = [
    ("holds the mutex", "from the end of lock to the beginning of unlock"),
    ("sleeps in line", "in the queue of the mutex's semaphore, on no processor"),
    (
        "waits awake",
        "from lock to the first sleep; and from a wake until it has the mutex, or goes back to sleep because somebody was \
         faster. It may be on its way to a processor",
    ),
    (
        "starvation mode",
        "turned on by one who has waited too long and was beaten once more. While it lasts nobody may overtake: who comes \
         queues, and each unlock hands the mutex to the first in line",
    ),
    (
        "hands over",
        "from the unlock to the moment when the one whom it is for has the mutex: nobody holds it in between",
    ),
    ("overtakes sleepers", "took the mutex while others slept: of the two who wanted it, the one that was awake"),
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
    /// The kind of contenders.
    pub on: Contenders,
}

impl Picture<'_> {
    /// Writes the page, and prints the path of the page.
    pub fn write(&self, file: ReportFile, output: Output) -> Result<(), Failure> {
        deliver(file, &self.page(), output)
    }

    fn page(&self) -> String {
        let mut page = Page::new("Starvation mode, seen", self.headline);
        page.html(format_args!("<figure class=\"wide\" style=\"margin:0\">{}</figure>\n", self.svg));
        page.section("What is to be seen", definitions(MEANINGS));
        page.section("In figures", table(self.table));
        for remark in self.remarks {
            page.paragraph(remark);
        }
        page.section("Where it was recorded", facts(&self.on));
        page.render()
    }
}
