//! The page: the picture, an explanation, and the figures.

use crate::output::report::{Page, definitions, facts, table};
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

/// Switches that enlarge the picture, without a script: see `.zoomed` in the style sheet.
const ZOOM: &str = "<p>Zoom: \
    <label><input type=\"radio\" name=\"zoom\" checked> 1</label> \
    <label><input type=\"radio\" name=\"zoom\" class=\"four\"> 4</label> \
    <label><input type=\"radio\" name=\"zoom\" class=\"sixteen\"> 16</label>. \
    Point at a bar, an arrow or a mark for its times.</p>\n";

/// Returns the page of a run: a headline, the picture, the figures, and sentences on the run.
pub fn page(headline: &str, svg: &str, figures: &Table, remarks: &[String], on: Contenders) -> String {
    let mut page = Page::new("Starvation mode, seen", headline);
    page.html(ZOOM);
    page.html(format_args!("<figure class=\"zoomed\" tabindex=\"0\">{svg}</figure>\n"));
    page.section("What is to be seen", definitions(MEANINGS));
    page.section("In figures", table(figures));
    for remark in remarks {
        page.paragraph(remark);
    }
    page.section("Where it was recorded", facts(&on));
    page.render()
}
