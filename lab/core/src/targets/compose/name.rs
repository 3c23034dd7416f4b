//! The names of compositions.
//!
//! | name | options, in the order of canonical names | defaults |
//! |---|---|---|
//! | `capacitor(INNER...)` | `b=N`, `sema=NAME`, `admit=HOW` | 4, `benaphore`, `always` |
//! | `sliding(INNER...)` | `b=N`, `admit=HOW`, `wait=park\|yield\|spin` | 4, `gated`, `park` |
//! | `extended(INNER)` | | |
//! | `multilane(INNER...)` | `lanes=N`, `b=N`, `sema=NAME`, `deal=HOW`, `count=HOW`; `sema` and `deal` only with `count=separate` | 2, 4, `benaphore`, `in-turn`, `together` |
//!
//! Options may be given in any order. A canonical name has the options that are not the default, each once, in the
//! order of the table; two compositions are equal if their canonical names are.

use std::fmt;
use std::str::FromStr;

use sudog_locks::capacitor::{DEFAULT_LIMIT, LaneChoice};

use super::any::AnyCapacitor;
use super::extended::SliceExtension;
use super::serving_in_order;
use crate::targets::locks::LockName;
use crate::targets::semaphores::SemaphoreName;

/// The parts of a composition.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Recipe {
    /// The lock in the capacitor.
    pub inner: LockName,
    /// The bypass limit.
    pub limit: u32,
    /// The front end, at which contenders arrive.
    pub front: Front,
    /// The contenders that arrive.
    pub admit: Admit,
}

/// A front end, at which contenders arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Front {
    Platoon {
        /// The semaphore that contenders wait for.
        sema: SemaphoreName,
    },
    /// The sliding window.
    Window {
        /// The way in which contenders wait that are not yet let through.
        wait: Wait,
    },
    /// Requests for longer slices of time.
    Extended,
    /// Lanes that are counted together.
    Together { lanes: u32 },
    /// Lanes that are counted separately.
    Separate {
        /// The semaphore that contenders wait for.
        sema: SemaphoreName,
        lanes: u32,
        /// The rule by which contenders choose lanes.
        dealing: LaneChoice,
    },
}

/// A way to wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Spins, then sleeps.
    Park,
    /// Spins, then yields.
    Yield,
    Spin,
}

/// The contenders that arrive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Admit {
    /// All contenders.
    Always,
    /// The contenders that do not pass the gate.
    Gated,
    /// The given part of all contenders.
    Fractional(f64),
}

/// A kind of compositions, by which a name begins.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    /// The names of the options, in the order of canonical names.
    options: &'static [&'static str],
    /// The largest bypass limit.
    most: u32,
    /// The contenders that arrive, by default.
    admit: Admit,
}

const CAPACITOR: Kind =
    Kind { name: "capacitor", options: &["b", "sema", "admit"], most: MAX_LIMIT, admit: Admit::Always };
const SLIDING: Kind = Kind { name: "sliding", options: &["b", "admit", "wait"], most: MAX_WINDOW, admit: Admit::Gated };
const MULTILANE: Kind = Kind {
    name: "multilane",
    options: &["lanes", "b", "sema", "deal", "count"],
    most: MAX_LIMIT,
    admit: Admit::Always,
};
const EXTENDED: Kind = Kind { name: "extended", options: &[], most: MAX_LIMIT, admit: Admit::Always };

pub const KINDS: [Kind; 4] = [CAPACITOR, SLIDING, MULTILANE, EXTENDED];

/// The grammar, for the help text.
pub const GRAMMAR: &str = "\
A lock can also be composed: an inner lock, any of those above, in a capacitor.
  capacitor(INNER[,b=N][,sema=NAME][,admit=HOW])   platoons of N: 4, benaphore, always
  sliding(INNER[,b=N][,admit=HOW][,wait=park|yield|spin])
                                                   the window, N wide: 4, gated, park
  multilane(INNER[,lanes=N][,b=N])                 lanes of N that are counted together: 2, 4
  multilane(INNER,count=separate[,lanes=N][,b=N][,sema=NAME][,deal=in-turn|by-thread|at-random])
                                                   each for itself: 2, 4, benaphore, in-turn
  extended(INNER)                                  asks for longer slices of time: simulated, or Linux 7.0
HOW: always, gated, or fractional:P, for a part P of the acquisitions. NAME: a semaphore that is FIFO with handoff.
Composed locks are called through jumps, and inner locks are in a box, so their times without contention are too
long; 'capacitor --tax' measures the price of a capacitor alone.
For example: capacitor(tts)  sliding(sudog,b=8)  capacitor(lifo,sema=twa,admit=fractional:0.01)  multilane(mcs,lanes=4)";

/// The most lanes. More lanes would never be filled.
const MAX_LANES: u32 = 1024;
/// The largest limit of a platoon, and of all lanes together.
const MAX_LIMIT: u32 = 1 << 20;
/// The largest limit of a window.
pub const MAX_WINDOW: u32 = 31;

const DEALINGS: [(&str, LaneChoice); 3] =
    [("in-turn", LaneChoice::InTurn), ("by-thread", LaneChoice::ByThread), ("at-random", LaneChoice::AtRandom)];

const WAITS: [(&str, Wait); 3] = [("park", Wait::Park), ("yield", Wait::Yield), ("spin", Wait::Spin)];

/// The values of `count`: true if each lane is counted separately.
const COUNTS: [(&str, bool); 2] = [("together", false), ("separate", true)];

/// The default number of lanes.
const LANES: u32 = 2;

/// The semaphore of platoons and of lanes by default.
const SEMA: SemaphoreName = SemaphoreName::Benaphore;

fn name_of<T: PartialEq>(all: &[(&'static str, T)], one: T) -> &'static str {
    all.iter().find(|(_, known)| *known == one).map_or("?", |(name, _)| name)
}

fn known<T: Copy>(option: &str, all: &[(&str, T)], value: &str) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == value).map(|&(_, found)| found);
    found.ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        format!("unknown {option} '{value}'; known: {}", names.join(", "))
    })
}

fn number(option: &str, value: &str, most: u32) -> Result<u32, String> {
    match value.parse() {
        Ok(n) if (1..=most).contains(&n) => Ok(n),
        _ => Err(format!("{option} must be from 1 to {most}, and is '{value}'")),
    }
}

/// Parses the name of a semaphore that a capacitor can have.
pub fn sema(value: &str) -> Result<SemaphoreName, String> {
    let sema: SemaphoreName = value.parse()?;
    if AnyCapacitor::can_have(sema) {
        return Ok(sema);
    }
    let able: Vec<_> = serving_in_order().map(SemaphoreName::name).collect();
    Err(format!(
        "a newcomer can take a permit of {value} before the waiters, so there would be no bound; a capacitor can \
         have: {}",
        able.join(", ")
    ))
}

fn admit(value: &str) -> Result<Admit, String> {
    match (value, value.strip_prefix("fractional:")) {
        ("always", _) => Ok(Admit::Always),
        ("gated", _) => Ok(Admit::Gated),
        (_, Some(part)) => match part.parse::<f64>() {
            Ok(p) if p > 0.0 && p * f64::from(u32::MAX) < 1.0 => {
                Err(format!("it is drawn from 32 bits, so fractional:{part} would be never, which is fractional:0"))
            }
            // Turn -0 into 0.
            Ok(p) if (0.0..=1.0).contains(&p) => Ok(Admit::Fractional(p.abs())),
            _ => Err(format!("the part in fractional:P must be from 0 to 1, and is '{part}'")),
        },
        _ => Err(format!("unknown admit '{value}'; known: always, gated, fractional:P")),
    }
}

/// Returns the items of a list: the parts between commas, except commas in parentheses.
pub fn items(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
    .collect()
}

/// Splits a text at the parenthesis that closes an open one. Returns the text before that parenthesis and the text
/// behind it.
fn closed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some((&text[..at], &text[at + 1..])),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

impl Recipe {
    /// Returns a description of the recipe in one line.
    pub fn about(&self) -> String {
        let b = self.limit;
        let front = match self.front {
            Front::Platoon { sema } => format!("platoons of {b}, over the semaphore {}", sema.name()),
            Front::Window { wait: Wait::Park } => format!("a window of {b}"),
            Front::Window { wait: Wait::Yield } => format!("a window of {b}, waiting awake"),
            Front::Window { wait: Wait::Spin } => format!("a window of {b}, spinning"),
            Front::Extended => return format!("{}, whose owners ask for longer slices of time", self.inner.name()),
            Front::Together { lanes } => format!("{lanes} lanes of {b}, dealt in turn, counted together"),
            Front::Separate { sema, lanes, dealing } => format!(
                "{lanes} lanes of {b}, dealt {}, counted each for itself, over the semaphore {}",
                name_of(&DEALINGS, dealing),
                sema.name()
            ),
        };
        let admit = match self.admit {
            Admit::Always => String::new(),
            Admit::Gated => ", behind the gate".to_owned(),
            Admit::Fractional(part) => format!(", for a part of {part}"),
        };
        format!("{} behind {front}{admit}", self.inner.name())
    }
}

/// Writes the canonical name.
impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// An option, whose text is empty if the option has its default.
        fn option<T: PartialEq>(name: &str, value: T, default: T, text: impl Fn(T) -> String) -> String {
            if value == default { String::new() } else { format!(",{name}={}", text(value)) }
        }
        let sema = |sema: SemaphoreName| option("sema", sema, SEMA, |sema| sema.to_string());
        let lanes = |lanes| option("lanes", lanes, LANES, |lanes| lanes.to_string());
        let (kind, before, behind) = match self.front {
            Front::Platoon { sema: of } => (CAPACITOR, String::new(), sema(of)),
            Front::Window { wait } => {
                let wait = option("wait", wait, Wait::Park, |wait| name_of(&WAITS, wait).to_owned());
                (SLIDING, String::new(), wait)
            }
            Front::Extended => (EXTENDED, String::new(), String::new()),
            Front::Together { lanes: n } => (MULTILANE, lanes(n), String::new()),
            Front::Separate { sema: of, lanes: n, dealing } => {
                let deal = option("deal", dealing, LaneChoice::InTurn, |deal| name_of(&DEALINGS, deal).to_owned());
                (MULTILANE, lanes(n), format!("{}{deal},count=separate", sema(of)))
            }
        };
        let b = option("b", self.limit, DEFAULT_LIMIT, |b| b.to_string());
        let admit = option("admit", self.admit, kind.admit, |admit| match admit {
            Admit::Always => "always".to_owned(),
            Admit::Gated => "gated".to_owned(),
            Admit::Fractional(part) => format!("fractional:{part}"),
        });
        let (first, last) = if kind.name == SLIDING.name { (admit, behind) } else { (behind, admit) };
        write!(f, "{}({}{before}{b}{first}{last})", kind.name, self.inner)
    }
}

impl FromStr for Recipe {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let count = |sign| text.matches(sign).count();
        match count('(').cmp(&count(')')) {
            std::cmp::Ordering::Greater => return Err(format!("a ')' is missing in '{text}'")),
            std::cmp::Ordering::Less => return Err(format!("there is a ')' too many in '{text}'")),
            std::cmp::Ordering::Equal => {}
        }
        let (name, rest) = text.split_once('(').ok_or_else(|| format!("'{text}' is not composed"))?;
        let found = KINDS.into_iter().find(|kind| kind.name == name.trim());
        let kind = found.ok_or_else(|| {
            let known = KINDS.map(|kind| kind.name);
            format!("'{}' is nothing that goes around a lock; known: {}", name.trim(), known.join(", "))
        })?;
        let (rest, behind) = closed(rest).ok_or_else(|| format!("a ')' is missing in '{text}'"))?;
        if !behind.is_empty() {
            return Err(format!("'{behind}' is behind the end of '{}'", &text[..text.len() - behind.len()]));
        }
        let mut items = items(rest).into_iter();
        let inner = items.next().filter(|inner| !inner.is_empty());
        let inner = inner.ok_or_else(|| format!("no lock in '{text}': as in '{}(sudog)'", kind.name))?;
        match inner.split_once('(') {
            None => {}
            Some((name, _)) if KINDS.iter().any(|kind| kind.name == name.trim()) => {
                return Err(format!("'{inner}' is composed, and cannot be composed again"));
            }
            Some(_) => return Err(format!("'{inner}' is no lock: as in '{}(sudog)'", kind.name)),
        }
        let inner = inner.parse()?;

        let (mut lanes, mut limit, mut of, mut admits) = (LANES, DEFAULT_LIMIT, SEMA, kind.admit);
        let (mut wait, mut dealing, mut separate) = (Wait::Park, LaneChoice::InTurn, false);
        let mut seen = Vec::new();
        for item in items {
            let (name, value) = item.split_once('=').ok_or_else(|| format!("'{item}' is no option: as in 'b=4'"))?;
            let (name, value) = (name.trim(), value.trim());
            if seen.contains(&name) {
                return Err(format!("the option '{name}' is there twice in '{text}'"));
            }
            seen.push(name);
            match name {
                _ if !kind.options.contains(&name) => {
                    return Err(format!("{} has no option '{name}'; it has: {}", kind.name, kind.options.join(", ")));
                }
                "lanes" => lanes = number(name, value, MAX_LANES)?,
                "b" => limit = number(name, value, kind.most)?,
                "sema" => of = sema(value)?,
                "admit" => admits = admit(value)?,
                "wait" => wait = known(name, &WAITS, value)?,
                "deal" => dealing = known(name, &DEALINGS, value)?,
                _ => separate = known(name, &COUNTS, value)?,
            }
        }

        let front = match kind.name {
            "sliding" => Front::Window { wait },
            "capacitor" => Front::Platoon { sema: of },
            "extended" if SliceExtension::is_here() => Front::Extended,
            "extended" => {
                return Err(format!(
                    "no slice of time can be extended here, as in '{text}': that needs Linux 7.0, or 'cargo sim'"
                ));
            }
            _ if !separate && dealing != LaneChoice::InTurn => {
                return Err(format!("lanes that are counted together are dealt in turn: '{text}'"));
            }
            _ if !separate && seen.contains(&"sema") => {
                return Err(format!(
                    "lanes that are counted together have tickets of their own, and no 'sema': '{text}'"
                ));
            }
            _ if lanes.saturating_mul(limit) > MAX_LIMIT => {
                return Err(format!("lanes times b must be {MAX_LIMIT} at most in '{text}'"));
            }
            _ if separate => Front::Separate { sema: of, lanes, dealing },
            _ => Front::Together { lanes },
        };
        Ok(Self { inner, limit, front, admit: admits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        text.parse::<Recipe>().unwrap_or_else(|why| panic!("{text}: {why}")).to_string()
    }

    #[test]
    fn canonical_names() {
        for (text, name) in [
            ("capacitor(sudog)", "capacitor(sudog)"),
            (" capacitor ( sudog , b = 4 , admit=always,sema=benaphore ) ", "capacitor(sudog)"),
            ("capacitor(sudog,sema=twa,b=8)", "capacitor(sudog,b=8,sema=twa)"),
            ("capacitor(sudog,admit=gated)", "capacitor(sudog,admit=gated)"),
            ("sliding(sudog,admit=gated)", "sliding(sudog)"),
            ("sliding(sudog,admit=always,b=1)", "sliding(sudog,b=1,admit=always)"),
            ("sliding(sudog,admit=fractional:1e-2)", "sliding(sudog,admit=fractional:0.01)"),
            ("sliding(sudog,admit=fractional:1.0)", "sliding(sudog,admit=fractional:1)"),
            ("sliding(sudog,admit=fractional:-0)", "sliding(sudog,admit=fractional:0)"),
            ("sliding(sudog,admit=fractional:2.4e-10)", "sliding(sudog,admit=fractional:0.00000000024)"),
            ("sliding(sudog,wait=park)", "sliding(sudog)"),
            ("sliding(sudog,wait=spin,admit=always,b=2)", "sliding(sudog,b=2,admit=always,wait=spin)"),
            ("sliding(sudog,wait=yield)", "sliding(sudog,wait=yield)"),
            #[cfg(sudog_sim)]
            (" extended( sudog )", "extended(sudog)"),
            ("multilane(sudog,deal=in-turn,count=together,lanes=2)", "multilane(sudog)"),
            (
                "multilane(sudog,count=separate,lanes=3,deal=at-random)",
                "multilane(sudog,lanes=3,deal=at-random,count=separate)",
            ),
        ] {
            assert_eq!(canonical(text), name, "{text}");
        }
    }

    #[test]
    fn a_canonical_name_means_what_it_names() {
        let admits = ["always", "gated", "fractional:0", "fractional:0.01", "fractional:0.3333333333333333"];
        let mut names = Vec::new();
        for inner in LockName::ALL.iter().map(|inner| inner.name()) {
            for b in [1, 4, 31] {
                for admit in admits {
                    names.push(format!("sliding({inner},b={b},admit={admit})"));
                    names.extend(WAITS.map(|(wait, _)| format!("sliding({inner},b={b},admit={admit},wait={wait})")));
                    for sema in serving_in_order().map(SemaphoreName::name) {
                        names.push(format!("capacitor({inner},b={b},sema={sema},admit={admit})"));
                    }
                }
                for (deal, _) in DEALINGS {
                    for lanes in [1, 2, 1024] {
                        names.push(format!("multilane({inner},lanes={lanes},b={b},deal={deal},count=separate)"));
                    }
                }
                names.push(format!("multilane({inner},b={b},lanes=3)"));
                names.push(format!("multilane({inner},b={b},sema=twa,count=separate)"));
            }
        }
        for name in names {
            let recipe: Recipe = name.parse().unwrap();
            let canonical = recipe.to_string();
            assert_eq!(canonical.parse(), Ok(recipe), "{name}, {canonical}");
            assert_eq!(self::canonical(&canonical), canonical);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, because) in [
            (
                "condenser(sudog)",
                "'condenser' is nothing that goes around a lock; known: capacitor, sliding, multilane, extended",
            ),
            ("(sudog)", "'' is nothing that goes around a lock"),
            ("sudog", "'sudog' is not composed"),
            ("capacitor(sudog", "a ')' is missing in 'capacitor(sudog'"),
            ("capacitor(sudog))", "a ')' too many"),
            ("capacitor(sudog)x", "'x' is behind the end of 'capacitor(sudog)'"),
            ("capacitor(sudog)()", "'()' is behind the end of 'capacitor(sudog)'"),
            ("sliding(sudog) , (b=2)", "' , (b=2)' is behind the end of 'sliding(sudog)'"),
            ("capacitor()", "no lock in 'capacitor()': as in 'capacitor(sudog)'"),
            ("capacitor(,b=4)", "no lock in"),
            ("capacitor(nope)", "unknown lock 'nope'; known: sudog, "),
            ("capacitor(b=4)", "unknown lock 'b=4'; known: sudog, "),
            ("capacitor(sliding(sudog))", "'sliding(sudog)' is composed, and cannot be composed again"),
            ("capacitor((sudog))", "'(sudog)' is no lock: as in 'capacitor(sudog)'"),
            ("capacitor(nope(sudog))", "'nope(sudog)' is no lock: as in 'capacitor(sudog)'"),
            ("capacitor(sudog,)", "'' is no option: as in 'b=4'"),
            ("capacitor(sudog,std)", "'std' is no option: as in 'b=4'"),
            ("capacitor(sudog,size=4)", "capacitor has no option 'size'; it has: b, sema, admit"),
            ("sliding(sudog,sema=twa)", "sliding has no option 'sema'; it has: b, admit, wait"),
            ("capacitor(sudog,wait=spin)", "capacitor has no option 'wait'; it has: b, sema, admit"),
            ("multilane(sudog,wait=spin)", "multilane has no option 'wait'"),
            ("sliding(sudog,wait=sleep)", "unknown wait 'sleep'; known: park, yield, spin"),
            ("sliding(sudog,lanes=2)", "sliding has no option 'lanes'"),
            ("multilane(sudog,admit=gated)", "multilane has no option 'admit'; it has: lanes, b, sema, deal, count"),
            ("capacitor(sudog,b=4,b=4)", "the option 'b' is there twice in 'capacitor(sudog,b=4,b=4)'"),
            ("capacitor(sudog,b=0)", "b must be from 1 to 1048576, and is '0'"),
            ("capacitor(sudog,b=1048577)", "b must be from 1 to 1048576"),
            ("capacitor(sudog,b=-1)", "b must be from 1"),
            ("capacitor(sudog,b=few)", "b must be from 1"),
            ("capacitor(sudog,b=)", "b must be from 1"),
            ("sliding(sudog,b=32)", "b must be from 1 to 31, and is '32'"),
            ("multilane(sudog,lanes=0)", "lanes must be from 1 to 1024"),
            ("multilane(sudog,lanes=1024,b=1025)", "lanes times b must be 1048576 at most"),
            ("capacitor(sudog,admit=fractional:1.5)", "the part in fractional:P must be from 0 to 1, and is '1.5'"),
            ("capacitor(sudog,admit=fractional:-0.1)", "from 0 to 1"),
            ("capacitor(sudog,admit=fractional:NaN)", "from 0 to 1"),
            ("capacitor(sudog,admit=fractional:2.3e-10)", "fractional:2.3e-10 would be never, which is fractional:0"),
            ("capacitor(sudog,admit=fractional:)", "from 0 to 1"),
            ("capacitor(sudog,admit=fractional)", "unknown admit 'fractional'; known: always, gated, fractional:P"),
            ("capacitor(sudog,sema=nope)", "unknown semaphore 'nope'; known: runtime"),
            ("multilane(sudog,deal=by-name)", "unknown deal 'by-name'; known: in-turn, by-thread, at-random"),
            ("multilane(sudog,count=never)", "unknown count 'never'; known: together, separate"),
            ("multilane(sudog,deal=by-thread)", "lanes that are counted together are dealt in turn"),
            ("multilane(sudog,sema=twa)", "lanes that are counted together have tickets of their own, and no 'sema'"),
        ] {
            let why = text.parse::<Recipe>().unwrap_err();
            assert!(why.contains(because) && !why.contains('\n'), "{text}: {why}");
        }
        if !SliceExtension::is_here() {
            let why = "extended(sudog)".parse::<Recipe>().unwrap_err();
            assert!(why.contains("that needs Linux 7.0"), "{why}");
        }
        #[cfg(target_os = "linux")]
        for sema in ["futex", "sem_t"] {
            let why = format!("capacitor(sudog,sema={sema})").parse::<Recipe>().unwrap_err();
            assert!(why.contains("before the waiters") && why.contains("benaphore"), "{why}");
        }
    }

    #[test]
    fn commas_in_parentheses_do_not_divide() {
        assert_eq!(items("sudog, sliding(sudog,b=2),std"), ["sudog", "sliding(sudog,b=2)", "std"]);
        assert_eq!(items("capacitor(sudog,b=2,std"), ["capacitor(sudog,b=2,std"]);
        assert_eq!(items("sudog),std"), ["sudog)", "std"]);
        assert_eq!(items(""), [""]);
    }
}
