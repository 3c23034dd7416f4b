//! The number of buckets in which the locks of an array lie, by the distance between neighbours and by the rule of the
//! table. The numbers are computed: nothing is measured.
//!
//! | rule | bucket |
//! |---|---|
//! | `prime-251` | `(address >> 3) % 251`: Go's, and this library's |
//! | `power-256` | `(address >> 3) % 256`: a table whose size is a power of two |
//! | `mixed-256` | the top 8 bits of the address times 2^64 over the golden ratio |

use serde::Serialize;
use sudog_runtime::sema::BUCKETS;

use super::BASE;
use crate::output::Output;
use crate::output::failure::Failure;
use crate::output::table::Table;
use crate::output::units;

const LOCKS: usize = 1000;

/// The largest stride that is tried, in bytes. All multiples of 8 up to this value are tried.
const MOST: usize = 8192;

/// The strides that the table shows.
const SHOWN: [usize; 12] = [8, 16, 24, 64, 128, 256, 1024, 2000, 2008, 2016, 2048, 4096];

/// A rule: the name, and the function from an address to the bucket.
pub type Rule = (&'static str, fn(usize) -> usize);

pub const RULES: [Rule; 3] = [
    ("prime-251", prime),
    ("power-256", |address| (address >> 3) % 256),
    ("mixed-256", |address| ((address as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize),
];

const fn prime(address: usize) -> usize {
    (address >> 3) % BUCKETS
}

/// The result of a rule with a stride.
#[derive(Clone, Copy, Serialize, Debug)]
struct StrideRecord {
    bench: &'static str,
    rule: &'static str,
    stride: usize,
    locks: usize,
    /// The number of buckets that have a lock.
    used: usize,
    /// The number of locks in the fullest bucket.
    most: usize,
}

fn record((rule, bucket): Rule, stride: usize) -> StrideRecord {
    let mut buckets = [0; 256];
    (0..LOCKS).for_each(|n| buckets[bucket(BASE + n * stride)] += 1);
    let used = buckets.iter().filter(|&&locks| locks > 0).count();
    let most = buckets.into_iter().max().unwrap_or(0);
    StrideRecord { bench: "strides", rule, stride, locks: LOCKS, used, most }
}

/// Runs `semtable --strides`: computes and prints.
pub fn run(output: Output) -> Result<(), Failure> {
    let header = ["stride"].map(str::to_owned).into_iter();
    let header = header.chain(RULES.iter().flat_map(|(rule, _)| [format!("{rule}: used"), "fullest".to_owned()]));
    let mut table = Table::new(1, header);
    for stride in SHOWN {
        let records = RULES.map(|rule| record(rule, stride));
        records.iter().try_for_each(|record| output.record(record))?;
        let cells = records.iter().flat_map(|record| [record.used.to_string(), record.most.to_string()]);
        table.row([stride.to_string()].into_iter().chain(cells));
    }
    output.text(format_args!("{LOCKS} locks in an array, by the bytes from one to the next:\n\n{table}\n"))?;
    for rule in RULES {
        let all: Vec<_> = (8..=MOST).step_by(8).map(|stride| record(rule, stride)).collect();
        // Call a stride bad if the fullest bucket has more than twice as many locks as an even spread puts there.
        let bad = |r: &&StrideRecord| r.most > 2 * LOCKS.div_ceil(BUCKETS);
        let worst: Vec<_> = all.iter().filter(bad).map(|r| r.stride.to_string()).take(8).collect();
        output.text(format_args!(
            "{}: of the {} strides up to {MOST}, {} put more than {} locks into one bucket: {}{}",
            rule.0,
            all.len(),
            all.iter().filter(bad).count(),
            2 * LOCKS.div_ceil(BUCKETS),
            if worst.is_empty() { units::NOTHING.to_owned() } else { worst.join(", ") },
            if all.iter().filter(bad).count() > worst.len() { ", ..." } else { "" },
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::queues::bucket;

    #[test]
    fn a_prime_fails_its_multiples_only() {
        for stride in (8..=MOST).step_by(8) {
            let record = record(RULES[0], stride);
            match stride % (8 * BUCKETS) {
                0 => assert_eq!((record.used, record.most), (1, LOCKS), "{stride}"),
                _ => assert_eq!((record.used, record.most), (BUCKETS, 4), "{stride}"),
            }
        }
        assert_eq!(record(RULES[1], 2048).used, 1);
        assert_eq!(prime(BASE), bucket(BASE));
    }
}
