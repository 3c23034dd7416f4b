//! The checks of [`RawLock`], for each lock.

use sudog::low_level::RawLock;
use sudog_lab_core::compose::{StudyJob, StudyName, with_study};
use sudog_lab_core::conformance::locks as checks;
use sudog_lab_core::locks::{Job, LockName, with_lock};

/// Makes the tests of all checks, for each lock of a registry.
macro_rules! over_every_lock {
    ($($registry:tt)*) => {
        crate::conformance::over_every_backend! {
            $($registry)*
            checks {
                one_at_a_time
                try_lock_takes_a_free_lock_only
                a_deadline_in_the_past_is_a_try
                a_deadline_ends_a_wait_and_not_too_soon
                a_far_deadline_is_a_lock
                a_storm_of_timeouts_leaves_nothing_behind
                a_forgotten_guard_leaves_it_locked
            }
        }
    };
}

over_every_lock! {
    with_lock of LockName, Job over RawLock;
    backends {
        go = Go;
        go_1_14 = Go114;
        go_1_9 = Go19;
        go_1_8 = Go18;
        go_fifo = GoFifo;
        go_parking_lot_core = GoParkingLotCore;
        #[cfg(target_os = "linux")] go_futex = GoFutex;
        go_benaphore = GoBenaphore;
        go_ticket = GoTicket;
        go_twa = GoTwa;
        go_twa_chain = GoTwaChain;
        go_twa_channel = GoTwaChannel;
        go_twa_location = GoTwaLocation;
        #[cfg(target_os = "linux")] go_bounded_futex = GoBoundedFutex;
        v1 = V1;
        v2 = V2;
        v3 = V3;
        v4 = V4;
        v5 = V5;
        v6 = V6;
        v7 = V7;
        std_mutex = Std;
        parking_lot_0_12 = ParkingLot012;
        parking_lot_0_12_fair = ParkingLot012Fair;
        parking_lot_0_13 = ParkingLot013;
        parking_lot_0_13_fair = ParkingLot013Fair;
        #[cfg(unix)] pthread = Pthread;
        tts = Tts;
        ticket_lock = Ticket;
        mcs = Mcs;
        clh = Clh;
        lifo = Lifo;
        reciprocating = Reciprocating;
        tts_spin = TtsSpin;
        tts_yield = TtsYield;
        ticket_lock_spin = TicketSpin;
        mcs_spin = McsSpin;
        mcs_yield = McsYield;
        clh_spin = ClhSpin;
        lifo_spin = LifoSpin;
        reciprocating_spin = ReciprocatingSpin;
        tas_backoff = TasBackoff;
        anderson = Anderson;
        cna = Cna;
        twa_lock_model = TwaLockModel;
        bar_david_tts = BarDavidTts;
        bar_david_lifo = BarDavidLifo;
        bar_david_mcs = BarDavidMcs;
        std_model = StdModel;
        parking_lot_model = ParkingLotModel;
    }
}

over_every_lock! {
    with_study of StudyName, StudyJob over RawLock;
    backends {
        capacitor_go = CapacitorGo;
        capacitor_go_gated = CapacitorGoGated;
        capacitor_go_fractional = CapacitorGoFractional;
        sliding_go = SlidingGo;
        sliding_go_always = SlidingGoAlways;
        multilane_go = MultilaneGo;
        separate_go = SeparateGo;
        capacitor_tts = CapacitorTts;
        sliding_tts = SlidingTts;
        capacitor_lifo = CapacitorLifo;
        sliding_lifo = SlidingLifo;
        sliding_mcs = SlidingMcs;
        sliding_clh = SlidingClh;
        sliding_ticket = SlidingTicket;
        sliding_reciprocating = SlidingReciprocating;
        boxed = Boxed;
    }
}
