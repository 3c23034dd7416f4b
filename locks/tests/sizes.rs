//! Checks that the documents `locks/docs/waiting-array.md` and `locks/docs/capacitor.md` give the sizes of the types.
#![cfg(all(target_os = "linux", target_arch = "x86_64", not(sudog_loom)))]

use sudog_locks::capacitor::{Bounded, Capacitor, Multilane, Platoon, SeparateLanes, Sliding, SlidingWindow};
use sudog_locks::spin_lock::Tts;
use sudog_locks::waiting_array::{Benaphore, Ticket, Twa, TwaChain, TwaChannel, TwaLocation};
use sudog_sync::semaphore::{FutexSema, RuntimeSema};

/// The names and sizes of types.
macro_rules! sizes {
    ($($Type:ty),+ $(,)?) => { [$((stringify!($Type).replace(' ', ""), size_of::<$Type>())),+] };
}

/// The rows of a document's table whose head is `| type | bytes | ...`: names without quotes or spaces, and sizes.
fn table(document: &str) -> Vec<(String, usize)> {
    let rows = document.lines().skip_while(|line| !line.starts_with("| type | bytes |")).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            (cells[1].replace(['`', ' '], ""), cells[2].parse().expect("a size in bytes"))
        })
        .collect()
}

#[test]
fn semaphores_have_the_sizes_of_their_table() {
    let sizes = sizes![RuntimeSema, FutexSema, Ticket, Twa, TwaChain, TwaChannel, TwaLocation, Benaphore];
    assert_eq!(table(include_str!("../docs/waiting-array.md")), sizes);
}

#[test]
fn capacitors_have_the_sizes_of_their_table() {
    let sizes = sizes![
        Platoon<Benaphore>,
        Platoon<Twa>,
        SlidingWindow,
        Multilane,
        SeparateLanes<Benaphore>,
        Capacitor<Tts>,
        Sliding<Tts>,
        Bounded<FutexSema>,
    ];
    assert_eq!(table(include_str!("../docs/capacitor.md")), sizes);
}
