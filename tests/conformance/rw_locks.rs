//! The checks of [`RawRwLock`], for each readers-writer lock.

use sudog::low_level::RawRwLock;
use sudog_lab_core::conformance::rw_locks as checks;
use sudog_lab_core::rw_locks::{RwJob, RwLockName, with_rw_lock};

impl RwJob for super::Named {
    type Out = ();
    fn run<L: RawRwLock + 'static>(self) {
        self.check::<L>(&checks::checks::<L>());
    }
}

crate::over_every_backend! {
    with_rw_lock of RwLockName;
    backends {
        sudog_rw_mutex = Sudog;
        phase_fair = PhaseFair;
        sharded = Sharded;
        mutex = Mutex;
        std_rw_lock = Std;
        parking_lot_0_12 = ParkingLot012;
        parking_lot_0_13 = ParkingLot013;
        crossbeam = Crossbeam;
    }
    checks {
        who_excludes_whom
        one_writer_or_readers
        readers_are_inside_together
        a_deadline_in_the_past_is_a_try
        a_deadline_ends_a_wait_and_not_too_soon
        a_release_ends_all_waits
        a_writer_that_gives_up_lets_readers_in
        a_downgrade_lets_readers_in_and_no_writer
        a_storm_of_timeouts_leaves_nothing_behind
    }
}
