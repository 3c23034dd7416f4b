//! The checks of [`RawLock`], for each lock.

use sudog::low_level::RawLock;
use sudog_lab_core::compose::{StudyName, with_study};
use sudog_lab_core::conformance::locks as checks;
use sudog_lab_core::locks::{Job, LockName, with_lock};

impl Job for super::Named {
    type Out = ();
    fn run<L: RawLock + 'static>(self) {
        self.check::<L>(&checks::checks::<L>());
    }
}

/// Makes the tests of all checks, for each lock of a registry.
macro_rules! over_every_lock {
    ($($registry:tt)*) => {
        crate::over_every_backend! {
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
    with_lock of LockName;
    backends {
        sudog_mutex = Sudog;
        sudog_go_1_14 = SudogGo114;
        sudog_go_1_9 = SudogGo19;
        sudog_go_1_8 = SudogGo18;
        sudog_fifo = SudogFifo;
        sudog_parking_lot_core = SudogParkingLotCore;
        #[cfg(target_os = "linux")] sudog_futex = SudogFutex;
        sudog_benaphore = SudogBenaphore;
        sudog_ticket = SudogTicket;
        sudog_twa = SudogTwa;
        sudog_twa_chain = SudogTwaChain;
        sudog_twa_channel = SudogTwaChannel;
        sudog_twa_location = SudogTwaLocation;
        #[cfg(target_os = "linux")] sudog_bounded_futex = SudogBoundedFutex;
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
        twa_lock_chain = TwaLockChain;
        ticket_lines = TicketLines;
        ticket_pair = TicketPair;
        hapax = Hapax;
        fissile = Fissile;
        bar_david_tts = BarDavidTts;
        bar_david_lifo = BarDavidLifo;
        bar_david_mcs = BarDavidMcs;
        std_model = StdModel;
        parking_lot_model = ParkingLotModel;
    }
}

over_every_lock! {
    with_study of StudyName;
    backends {
        capacitor_sudog = CapacitorSudog;
        capacitor_sudog_gated = CapacitorSudogGated;
        capacitor_sudog_fractional = CapacitorSudogFractional;
        sliding_sudog = SlidingSudog;
        sliding_sudog_always = SlidingSudogAlways;
        multilane_sudog = MultilaneSudog;
        separate_sudog = SeparateSudog;
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
