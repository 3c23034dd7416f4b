//! The number of times that each contender was overtaken, from the order of the admissions.
//!
//! W *bypasses* V if W came later, and was admitted before V. W came later if W's arrival began after V's had ended,
//! which the numbers of arrivals tell:
//!
//! | W | is later than V, which has arrived, if |
//! |---|---|
//! | has arrived | `W.began > V.ended` |
//! | went past the gate | `W.began > V.announced` |
//!
//! If only the place of an arrival is known, its ticket, the arrival begins and ends there. A contender that went past
//! the gate has no place, so it is not bypassed; nor did it wait. The check of such a contender is stricter than the
//! bound: its beginning is the moment when it had the inner lock, before its second look. No contender that was
//! announced by then may still be waiting; so the contenders that it bypasses are counted separately, and there must be
//! none.
//!
//! A contender that got in only after the log was full bypasses no contender in the log. The contenders in the log may
//! have bypassed it, and a contender that starves to the end is bypassed by most of them: so such a contender counts,
//! as far as the log goes.

use serde::Serialize;

/// An admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The admission of a contender that has arrived.
    Arrived {
        /// The number at which the contender's arrival began.
        began: u32,
        /// The number at which the contender had its place.
        ended: u32,
        /// The number at which the contender had its place, as far as contenders that go past the gate can tell.
        announced: u32,
    },
    /// The admission of a contender that went past the gate.
    Past {
        /// The number of contenders that had announced themselves when this contender had the inner lock.
        began: u32,
    },
}

impl Entry {
    /// Returns the admission of an arrival of which only the place is known.
    pub const fn at(place: u32) -> Self {
        Self::Arrived { began: place, ended: place, announced: place }
    }
}

/// The admissions of a run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ArrivalHistory {
    /// The admissions, in their order.
    pub admitted: Vec<Entry>,
    /// The contenders that were admitted after these: the last admission of each.
    pub late: Vec<Entry>,
    /// Further facts about each of `admitted`, then of `late`.
    pub beside: Vec<Beside>,
}

/// The facts about an admission besides its place.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Beside {
    pub contender: u16,
    /// The number of contenders that had been let through to the lock and had not released the lock, this contender
    /// included: those between arrival and departure, except for the few instructions before and after. 0 if this
    /// contender went past the gate.
    pub at_lock: u16,
}

/// A Fenwick tree of numbers: tells how many of the counted numbers are at most a given number.
struct Below(Vec<u32>);

impl Below {
    fn new(most: u32) -> Self {
        Self(vec![0; most as usize + 2])
    }

    fn count(&mut self, number: u32) {
        let mut place = number as usize + 1;
        while place < self.0.len() {
            self.0[place] += 1;
            place += place & place.wrapping_neg();
        }
    }

    fn at_most(&self, number: u32) -> u32 {
        let mut place = (number as usize + 1).min(self.0.len() - 1);
        let mut sum = 0;
        while place > 0 {
            sum += self.0[place];
            place &= place - 1;
        }
        sum
    }
}

/// The number of times that a contender was bypassed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Bypassed {
    /// Bypasses by contenders that had arrived.
    pub by_arrived: u32,
    /// Bypasses by contenders that went past the gate.
    pub by_past: u32,
}

impl Bypassed {
    /// Returns the number of all bypasses.
    pub const fn times(self) -> u32 {
        self.by_arrived + self.by_past
    }
}

/// Returns how often each contender that has arrived was bypassed, in the order of their admission; then the same for
/// the late contenders. Takes O(n log n).
pub fn bypasses(ArrivalHistory { admitted, late, .. }: &ArrivalHistory) -> Vec<Bypassed> {
    let most = |past: bool| {
        let began = admitted.iter().filter_map(|entry| match *entry {
            Entry::Arrived { began, .. } if !past => Some(began),
            Entry::Past { began } if past => Some(began),
            _ => None,
        });
        began.max().unwrap_or(0)
    };
    let (mut arrived, mut past) = (Below::new(most(false)), Below::new(most(true)));
    let (mut have_arrived, mut have_passed) = (0, 0);
    let mut bypasses = Vec::with_capacity(admitted.len() + late.len());
    for (n, entry) in admitted.iter().chain(late).enumerate() {
        let counts = n < admitted.len();
        match *entry {
            Entry::Arrived { began, ended, announced } => {
                bypasses.push(Bypassed {
                    by_arrived: have_arrived - arrived.at_most(ended),
                    by_past: have_passed - past.at_most(announced),
                });
                if counts {
                    arrived.count(began);
                    have_arrived += 1;
                }
            }
            Entry::Past { began } if counts => {
                past.count(began);
                have_passed += 1;
            }
            Entry::Past { .. } => {}
        }
    }
    bypasses
}

/// Returns how often each contender that has arrived was bypassed by the same contender, at most: in the order of
/// [`bypasses`]. Contenders that went past the gate do not count.
pub fn bypasses_by_one(ArrivalHistory { admitted, late, beside }: &ArrivalHistory) -> Vec<u32> {
    let contenders = beside.iter().map(|beside| usize::from(beside.contender) + 1).max().unwrap_or(0);
    // For each contender, the numbers at which its arrivals began, in their order, which is that of the numbers.
    let mut began_of: Vec<Vec<u32>> = vec![Vec::new(); contenders];
    let mut most = Vec::with_capacity(admitted.len() + late.len());
    for (n, (entry, beside)) in admitted.iter().chain(late).zip(beside).enumerate() {
        let Entry::Arrived { began, ended, .. } = *entry else { continue };
        let later = |began_of: &Vec<u32>| began_of.iter().rev().take_while(|&&began| began > ended).count() as u32;
        most.push(began_of.iter().map(later).max().unwrap_or(0));
        if n < admitted.len() {
            began_of[usize::from(beside.contender)].push(began);
        }
    }
    most
}

/// The numbers of contenders that were at the lock at the admissions.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Sawtooth {
    /// The numbers of admissions at which only the owner was there, the owner and one more contender, and so on.
    pub at_lock: Vec<u64>,
    /// The mean number, the owner included.
    pub at_lock_mean: f64,
    /// The part of the admissions after which the number was lower by one: all but one in B, if B contenders are let
    /// through at once.
    pub falls: f64,
    /// The part of the admissions after which the number was higher by two or more.
    pub jumps: f64,
}

impl Sawtooth {
    /// Returns the numbers for the contenders that did not go past the gate.
    pub fn of(beside: &[Beside]) -> Self {
        let numbers: Vec<usize> = beside.iter().map(|b| usize::from(b.at_lock)).filter(|&n| n > 0).collect();
        let mut at_lock = vec![0; numbers.iter().copied().max().unwrap_or(0)];
        numbers.iter().for_each(|&n| at_lock[n - 1] += 1);
        let steps = numbers.len().saturating_sub(1).max(1) as f64;
        let part = |is: fn(usize, usize) -> bool| {
            numbers.windows(2).filter(|pair| is(pair[0], pair[1])).count() as f64 / steps
        };
        Self {
            at_lock,
            at_lock_mean: numbers.iter().sum::<usize>() as f64 / numbers.len().max(1) as f64,
            falls: part(|before, after| after + 1 == before),
            jumps: part(|before, after| after >= before + 2),
        }
    }
}

/// The statistics of the bypasses of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Bypass {
    /// The largest number of bypasses of a contender.
    pub max: u32,
    /// The number that 99 in 100 contenders do not exceed.
    pub p99: u32,
    pub mean: f64,
    /// The numbers of contenders that were bypassed 0 times, once, and so on up to the bound.
    pub histogram: Vec<u64>,
    /// The number of contenders that were bypassed more often.
    pub beyond: u64,
    /// Bypasses by contenders that went past the gate.
    pub by_past: u64,
}

impl Bypass {
    /// Returns the statistics of the result of [`bypasses`].
    pub fn of(bypasses: &[Bypassed], bound: u64) -> Self {
        let by_past = bypasses.iter().map(|bypassed| u64::from(bypassed.by_past)).sum();
        let mut bypasses: Vec<u32> = bypasses.iter().map(|bypassed| bypassed.times()).collect();
        let mut histogram = vec![0; bound as usize + 1];
        let mut beyond = 0;
        for &bypass in &bypasses {
            *histogram.get_mut(bypass as usize).unwrap_or(&mut beyond) += 1;
        }
        bypasses.sort_unstable();
        let n = bypasses.len();
        let at = |rank: usize| bypasses.get(rank.saturating_sub(1)).copied().unwrap_or(0);
        let sum: u64 = bypasses.iter().map(|&bypass| u64::from(bypass)).sum();
        Self {
            max: at(n),
            p99: at((99 * n).div_ceil(100)),
            mean: sum as f64 / n.max(1) as f64,
            histogram,
            beyond,
            by_past,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::measure::mt::Mt;

    use super::*;

    fn history(admitted: &[Entry], late: &[Entry]) -> ArrivalHistory {
        ArrivalHistory { admitted: admitted.to_vec(), late: late.to_vec(), beside: Vec::new() }
    }

    fn times(admitted: &[Entry]) -> Vec<u32> {
        bypasses(&history(admitted, &[])).into_iter().map(Bypassed::times).collect()
    }

    fn places(places: &[u32]) -> Vec<u32> {
        times(&places.iter().map(|&place| Entry::at(place)).collect::<Vec<_>>())
    }

    #[test]
    fn by_places() {
        assert!(places(&[]).is_empty());
        assert_eq!(places(&[0, 1, 2, 3]), [0, 0, 0, 0]);
        assert_eq!(places(&[3, 2, 1, 0]), [0, 1, 2, 3]);
        assert_eq!(places(&[1, 2, 0, 5, 4, 3]), [0, 0, 2, 0, 1, 2]);
    }

    #[test]
    fn past_the_gate() {
        // Tickets 0 and 1 wait. A contender that saw one ticket, and a contender that saw both, are faster.
        let admitted = [Entry::Past { began: 1 }, Entry::Past { began: 2 }, Entry::at(1), Entry::at(0)];
        assert_eq!(
            bypasses(&history(&admitted, &[])),
            [(0, 1), (1, 2)].map(|(by_arrived, by_past)| Bypassed { by_arrived, by_past })
        );
        // The contender past the gate saw no other contender: it is not later than the first.
        assert_eq!(times(&[Entry::Past { began: 0 }, Entry::at(0)]), [0]);
    }

    #[test]
    fn what_overlaps_is_not_later() {
        let arrived = |began, ended| Entry::Arrived { began, ended, announced: began };
        assert_eq!(times(&[arrived(3, 9), arrived(2, 3)]), [0, 0]);
        assert_eq!(times(&[arrived(4, 9), arrived(2, 3)]), [0, 1]);
    }

    #[test]
    fn who_is_late_is_bypassed_and_bypasses_nobody() {
        let late = |admitted: &[Entry], late: &[Entry]| {
            bypasses(&history(admitted, late)).into_iter().skip(admitted.len()).map(Bypassed::times).collect::<Vec<_>>()
        };
        let admitted = [1, 2, 4, 3].map(Entry::at);
        // Ticket 0 starves to the end; ticket 7 comes before 5, and is not in the log.
        assert_eq!(late(&admitted, &[7, 0, 5].map(Entry::at)), [0, 4, 0]);
        let past = [Entry::at(1), Entry::Past { began: 3 }];
        let bypassed = Bypassed { by_arrived: 1, by_past: 1 };
        assert_eq!(
            bypasses(&history(&past, &[Entry::Past { began: 9 }, Entry::at(0)])),
            [Bypassed::default(), bypassed]
        );
    }

    /// Counts the bypasses by the definition, word by word.
    fn naive(ArrivalHistory { admitted, late, .. }: &ArrivalHistory) -> Vec<u32> {
        let is_later = |w: &Entry, (v_ended, v_announced)| match *w {
            Entry::Arrived { began, .. } => began > v_ended,
            Entry::Past { began } => began > v_announced,
        };
        let arrived = admitted.iter().chain(late).enumerate().filter_map(|(n, entry)| match *entry {
            Entry::Arrived { ended, announced, .. } => Some((n, (ended, announced))),
            Entry::Past { .. } => None,
        });
        let before = |n: usize| &admitted[..n.min(admitted.len())];
        arrived.map(|(n, v)| before(n).iter().filter(|w| is_later(w, v)).count() as u32).collect()
    }

    #[test]
    fn it_is_its_definition() {
        for seed in 0..200 {
            let mut random = Mt::new(seed);
            let mut draw = |below: u32| random.next_u32() % below;
            let late = draw(8);
            let mut admitted: Vec<Entry> = (0..late + draw(60))
                .map(|_| match draw(4) {
                    0 => Entry::Past { began: draw(40) },
                    1 => Entry::at(draw(40)),
                    _ => Entry::Arrived { began: draw(40), ended: draw(40), announced: draw(40) },
                })
                .collect();
            let late = admitted.split_off(admitted.len() - late as usize);
            let history = ArrivalHistory { admitted, late, beside: Vec::new() };
            let times: Vec<_> = bypasses(&history).into_iter().map(Bypassed::times).collect();
            assert_eq!(times, naive(&history), "{history:?}");
        }
    }

    #[test]
    fn by_one_contender() {
        // The contenders are 0, 1 and 2. Contender 1 overtakes ticket 0 twice, and contender 2 overtakes ticket 0 once.
        // No contender overtakes the late tickets, 5 and 4.
        let entry = |(contender, place)| (Beside { contender, at_lock: 1 }, Entry::at(place));
        let (beside, entries): (Vec<_>, Vec<_>) =
            [(1, 1), (2, 2), (1, 3), (0, 0), (2, 5), (1, 4)].map(entry).into_iter().unzip();
        let (admitted, late) = entries.split_at(4);
        let history = ArrivalHistory { admitted: admitted.to_vec(), late: late.to_vec(), beside };
        assert_eq!(bypasses_by_one(&history), [0, 0, 0, 2, 0, 0]);
        assert!(bypasses_by_one(&ArrivalHistory::default()).is_empty());
    }

    #[test]
    fn a_sawtooth_falls_and_jumps() {
        let of = |numbers: &[u16]| {
            let beside: Vec<_> = numbers.iter().map(|&at_lock| Beside { contender: 0, at_lock }).collect();
            Sawtooth::of(&beside)
        };
        let platoons = of(&[3, 2, 1, 3, 0, 2, 1]);
        assert_eq!((platoons.at_lock, platoons.at_lock_mean), (vec![2, 2, 2], 2.0));
        assert_eq!((platoons.falls, platoons.jumps), (0.8, 0.2));
        let window = of(&[3, 3, 3, 3]);
        assert_eq!((window.at_lock, window.falls, window.jumps), (vec![0, 0, 4], 0.0, 0.0));
        assert_eq!(of(&[]).at_lock, [0; 0]);
    }

    #[test]
    fn what_it_comes_to() {
        let of = |times: &[u32]| {
            let bypassed: Vec<_> = times.iter().map(|&by_arrived| Bypassed { by_arrived, by_past: 0 }).collect();
            Bypass::of(&bypassed, 3)
        };
        let bypass = of(&[0, 3, 1, 0, 9]);
        assert_eq!((bypass.max, bypass.p99, bypass.beyond, bypass.histogram), (9, 9, 1, vec![2, 1, 0, 1]));
        assert!((bypass.mean - 2.6).abs() < 1e-12);
        let many = of(&[vec![0; 99], vec![7]].concat());
        assert_eq!((many.max, many.p99), (7, 0));
        assert_eq!(of(&[]).max, 0);
        let past = Bypass::of(&[Bypassed { by_arrived: 1, by_past: 2 }; 3], 3);
        assert_eq!((past.max, past.by_past, past.beyond), (3, 6, 0));
    }
}
