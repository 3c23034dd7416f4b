//! The registry of the queues that a bucket of the semaphore table can have. Each queue has a table of its own, so that
//! neither another queue nor the runtime's own table disturbs its measurement.

use sudog_runtime::sema::queue::{OneLevelList, RotatingTreap, Treap as TreapQueue, TwoLevelList};
use sudog_runtime::sema::{BUCKETS, SemTable, Table};

use crate::targets::registry::registry;

registry! {
    /// The name of a queue.
    enum QueueName;
    /// A job on a queue of any type: the `Queue` of a [`Table`].
    trait QueueJob over Table;
    fn with_queue;
    unknown "queue";

    OneLevel = "one-level": OneLevel, "one list of all waiters: Go's, until 1.8";
    TwoLevel = "two-level": TwoLevel, "a list of addresses, each with a line: CL 36792, in no release of Go";
    Treap = "treap": Treap, "a treap of addresses, each with a line, whose places do not change";
    TreapGo = "treap-go": TreapGo, "the same with rotations and random priorities: Go's, since 1.9";
}

macro_rules! table {
    ($(#[$doc:meta])* $Name:ident: $Queue:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $Name {}

        // SAFETY: `table` returns the same static each time.
        unsafe impl Table for $Name {
            type Queue = $Queue;

            fn table() -> &'static SemTable<BUCKETS, $Queue> {
                static TABLE: SemTable<BUCKETS, $Queue> = SemTable::const_new();
                &TABLE
            }
        }
    };
}

table! {
    /// A table of [`OneLevelList`]s.
    OneLevel: OneLevelList
}
table! {
    /// A table of [`TwoLevelList`]s.
    TwoLevel: TwoLevelList
}
table! {
    /// A table of [treaps](TreapQueue).
    Treap: TreapQueue
}
table! {
    /// A table of [`RotatingTreap`]s.
    TreapGo: RotatingTreap
}

/// Returns the bucket of an address, as in Go.
pub const fn bucket(addr: usize) -> usize {
    (addr >> 3) % BUCKETS
}
