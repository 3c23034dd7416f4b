//! The checks of [`Semaphore`], for each semaphore.

use sudog::low_level::Semaphore;
use sudog_lab_core::conformance::semaphores as checks;
use sudog_lab_core::semaphores::{SemaphoreJob, SemaphoreName, with_semaphore};

impl SemaphoreJob for super::Named {
    type Out = ();
    fn run<S: Semaphore + 'static>(self) {
        self.check::<S>(&checks::checks::<S>());
    }
}

crate::over_every_backend! {
    with_semaphore of SemaphoreName;
    backends {
        runtime = Runtime;
        parking_lot_core = ParkingLotCore;
        #[cfg(target_os = "linux")] futex = Futex;
        benaphore = Benaphore;
        benaphore_twa = BenaphoreTwa;
        ticket = Ticket;
        twa = Twa;
        twa_far = TwaFar;
        twa_chain = TwaChain;
        twa_channel = TwaChannel;
        twa_location = TwaLocation;
        ticket_spin = TicketSpin;
        twa_spin = TwaSpin;
        twa_chain_spin = TwaChainSpin;
        twa_yield = TwaYield;
        twa_chain_yield = TwaChainYield;
        #[cfg(target_os = "linux")] sem_t = SemT;
        twa_spin_0 = TwaSpin0;
        twa_spin_2 = TwaSpin2;
        twa_spin_4 = TwaSpin4;
        twa_spin_8 = TwaSpin8;
        twa_2 = Twa2;
        twa_4 = Twa4;
        twa_8 = Twa8;
        twa_spin_paired = TwaSpinPaired;
        twa_spin_mixed = TwaSpinMixed;
        twa_paired = TwaPaired;
        bounded_runtime = BoundedRuntime;
        #[cfg(target_os = "linux")] bounded_futex = BoundedFutex;
        #[cfg(target_os = "linux")] platoon_futex = PlatoonFutex;
        #[cfg(target_os = "linux")] bounded_futex_1 = BoundedFutex1;
        #[cfg(target_os = "linux")] bounded_futex_2 = BoundedFutex2;
        #[cfg(target_os = "linux")] bounded_futex_16 = BoundedFutex16;
        lifo = Lifo;
        bounded_lifo = BoundedLifo;
        twa_chain_printed = TwaChainPrinted;
        twa_chain_printed_spin = TwaChainPrintedSpin;
        twa_channel_printed = TwaChannelPrinted;
        twa_channel_printed_spin = TwaChannelPrintedSpin;
        twa_location_printed = TwaLocationPrinted;
        twa_chain_told_spin = TwaChainToldSpin;
        twa_chain_delegated_spin = TwaChainDelegatedSpin;
        twa_conservative = TwaConservative;
        twa_spin_conservative = TwaSpinConservative;
        ticket_spin_proportional = TicketSpinProportional;
        twa_4096 = Twa4096;
        twa_spin_orbit = TwaSpinOrbit;
        twa_spin_gray = TwaSpinGray;
        twa_spin_stride_one = TwaSpinStrideOne;
        event_count = EventCount;
        event_count_polite = EventCountPolite;
        event_count_one_key = EventCountOneKey;
        twa_far_1 = TwaFar1;
        twa_chain_no_look_spin = TwaChainNoLookSpin;
        twa_chain_no_undo_spin = TwaChainNoUndoSpin;
        twa_channel_undo_spin = TwaChannelUndoSpin;
        twa_location_guess = TwaLocationGuess;
        twa_location_one = TwaLocationOne;
        ticket_lfence = TicketLfence;
    }
    checks {
        permits_are_counted
        a_deadline_in_the_past_is_a_try
        a_deadline_ends_a_wait_and_not_too_soon
        every_release_ends_a_wait
        no_wake_up_is_lost
        release_many_wakes_that_many
        producers_and_consumers_conserve_permits
        a_storm_of_deadlines_conserves_permits
        waiters_are_served_in_their_order
        a_handed_off_permit_cannot_be_stolen
        nor_those_that_are_granted
    }
}
