//! Capacitors around locks, as types: for the checks of locks only. In the benchmarks they are composed by name.

use sudog_locks::capacitor::{Always, Capacitor, Fractional, Gated, Multilane, SeparateLanes, Sliding, Wrapped};
use sudog_locks::spin_lock::{Clh, Lifo, Mcs, Reciprocating, TicketLock, Tts};
use sudog_locks::waiting_array::{Benaphore, Twa};
use sudog_sync::GoMutex;
use sudog_sync::semaphore::RuntimeSema;

use super::inner::DynLock;
use super::{AnyAdmission, AnyCapacitor};
use crate::targets::locks::Job;
use crate::targets::registry::registry;

registry! {
    /// The name of a lock in a capacitor.
    enum StudyName;
    jobs Job;
    fn with_study;
    unknown "lock in a capacitor";

    CapacitorSudog = "capacitor-sudog": Capacitor<GoMutex>,
        "platoons before the Go mutex";
    CapacitorSudogGated = "capacitor-sudog-gated": Capacitor<GoMutex, RuntimeSema, Gated>,
        "the same over the runtime's semaphore, with the gate";
    CapacitorSudogFractional = "capacitor-sudog-fractional": Capacitor<GoMutex, Twa, Fractional>,
        "the same over the TWA semaphore, for one in a hundred";
    SlidingSudog = "sliding-sudog": Sliding<GoMutex>,
        "the window and the gate before the Go mutex";
    SlidingSudogAlways = "sliding-sudog-always": Sliding<GoMutex, Always>,
        "the window before the Go mutex";
    MultilaneSudog = "multilane-sudog": Wrapped<GoMutex, Multilane, Always>,
        "lanes that are counted together before the Go mutex";
    SeparateSudog = "separate-sudog": Wrapped<GoMutex, SeparateLanes<Benaphore>, Always>,
        "lanes that are counted each for itself before the Go mutex";
    CapacitorTts = "capacitor-tts": Capacitor<Tts>,
        "platoons before test-and-test-and-set";
    SlidingTts = "sliding-tts": Sliding<Tts>,
        "the window and the gate before test-and-test-and-set";
    CapacitorLifo = "capacitor-lifo": Capacitor<Lifo, RuntimeSema, Gated>,
        "platoons and the gate before last come, first served";
    SlidingLifo = "sliding-lifo": Sliding<Lifo>,
        "the window and the gate before last come, first served";
    SlidingMcs = "sliding-mcs": Sliding<Mcs>,
        "the window and the gate before MCS";
    SlidingClh = "sliding-clh": Sliding<Clh>,
        "the window and the gate before CLH";
    SlidingTicket = "sliding-ticket": Sliding<TicketLock, Always>,
        "the window before the ticket lock";
    SlidingReciprocating = "sliding-reciprocating": Sliding<Reciprocating>,
        "the window and the gate before the reciprocating lock";
    Boxed = "boxed": Wrapped<DynLock, AnyCapacitor, AnyAdmission>,
        "what a name is made into";
}
