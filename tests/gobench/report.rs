//! Reads markers from sources, and waits from reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A goroutine that is stuck.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stuck {
    name: String,
    /// The wait, and the holder of the lock: `sync.Mutex.Lock, held by test`.
    wait: String,
    /// The file and the line of the wait.
    place: String,
}

impl Stuck {
    /// Returns whether this is the goroutine, and the place, of a wanted lock.
    pub fn is_at(&self, (name, place): &(String, String)) -> bool {
        self.name == *name && self.place == *place
    }
}

impl fmt::Debug for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} at {}", self.name, self.wait, self.place)
    }
}

/// Returns the waits that the markers of the function `name` announce.
pub fn markers(source: &str, file: &str, name: &str) -> BTreeSet<Stuck> {
    let lines = (1..).zip(source.lines());
    let function = lines.skip_while(|(_, line)| !line.starts_with(&format!("pub fn {name}()")));
    let function = function.take_while(|(_, line)| *line != "}");
    let of_a_line = |(number, line): (i32, &str)| {
        let markers: Vec<_> = line.split("//~ ").skip(1).map(str::trim).collect();
        let stuck = |marker: &str| {
            let (name, wait) = marker.split_once(": ").unwrap();
            Stuck { name: name.into(), wait: wait.into(), place: format!("{file}:{number}") }
        };
        markers.into_iter().map(stuck).collect::<Vec<_>>()
    };
    function.flat_map(of_a_line).collect()
}

/// Returns the waits that a report shows, but for the goroutine `watcher`.
pub fn stuck(report: &str, watcher: &str) -> BTreeSet<Stuck> {
    let mut found = BTreeSet::new();
    let mut lines = report.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((title, rest)) = line.strip_prefix("goroutine ").and_then(|line| line.split_once(" [")) else {
            continue;
        };
        let name = title.split_once(' ').map_or(title, |(_, name)| name.trim_matches('"')).to_owned();
        let (wait, after) = rest.split_once(']').unwrap();
        let wait = wait.split(", ").next().unwrap();
        // Keep only the name of the holder. A holder without a name in the report has ended.
        let holder = match after.strip_prefix(", held by goroutine ") {
            Some(holder) if holder.contains('"') => format!(", held by {}", holder.split('"').nth(1).unwrap()),
            Some(_) => ", held by a goroutine that has ended".to_owned(),
            None => String::new(),
        };
        let mut innermost = None;
        while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
            // The first place is that of the innermost function.
            if let Some(at) = line.trim().strip_prefix("at ") {
                innermost.get_or_insert_with(|| place(at));
            }
        }
        let place = innermost.unwrap_or_else(|| "nowhere".into());
        if name != watcher {
            found.insert(Stuck { name, wait: format!("{wait}{holder}"), place });
        }
    }
    found
}

/// Returns the name of the goroutine, and the place of the lock that it now wants, of each report that begins with
/// `head`, but for those of the goroutine `watcher`.
pub fn wants(text: &str, head: &str, watcher: &str) -> Vec<(String, String)> {
    let reports = text.split(head).skip(1).map(|report| {
        let mut lines = report.lines().skip(1);
        let name = lines.next().unwrap().split('"').nth(1).unwrap_or_default();
        let (_, at) = lines.next().unwrap().rsplit_once(" at ").unwrap();
        (name.to_owned(), place(at))
    });
    reports.filter(|(name, _)| name != watcher).collect()
}

/// Returns a place without the column, and with the path in this package.
fn place(at: &str) -> String {
    at[at.find("tests/").unwrap_or(0)..].rsplit_once(':').unwrap().0.to_owned()
}

/// Returns the waits that are a cycle: a goroutine of each holds the lock that another waits for.
pub fn cycle(waits: &BTreeSet<Stuck>) -> BTreeSet<Stuck> {
    let holders: BTreeMap<_, _> =
        waits.iter().filter_map(|stuck| Some((&*stuck.name, stuck.wait.split_once("held by ")?.1))).collect();
    let is_in_it = |stuck: &&Stuck| {
        let mut at = &*stuck.name;
        (0..waits.len()).any(|_| {
            at = holders.get(at).copied().unwrap_or("");
            at == stuck.name
        })
    };
    waits.iter().filter(is_in_it).cloned().collect()
}

/// Returns the names of the goroutines that nothing can wake: those of a cycle, those that wait for a goroutine that has
/// ended, and those that wait for one of these.
pub fn never_woken(waits: &BTreeSet<Stuck>) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = cycle(waits).into_iter().map(|stuck| stuck.name).collect();
    loop {
        let is_held = |stuck: &&Stuck| {
            let holder = stuck.wait.split_once("held by ").map_or("", |(_, holder)| holder);
            holder == "a goroutine that has ended" || names.contains(holder)
        };
        let more: BTreeSet<String> = waits.iter().filter(is_held).map(|stuck| stuck.name.clone()).collect();
        if more.is_subset(&names) {
            return names;
        }
        names.extend(more);
    }
}
