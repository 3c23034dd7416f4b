//! The policies of the Go mutex, by name: those of Go's versions, and the default policy of this project.

use sudog_sync::mutex::policy::{self, Policy};

use crate::targets::registry::registry;

registry! {
    /// The name of a policy.
    enum PolicyName;
    /// A job on a policy of any type.
    trait PolicyJob over Policy;
    fn with_policy;
    unknown "policy";

    Go1_8 = "go-1.8": policy::Go1_8,
        "Go 1.8: no starvation mode; a beaten waiter goes to the end of the queue";
    Go1_9 = "go-1.9": policy::Go1_9,
        "Go 1.9 to 1.13: starvation mode after 1 ms; the owner that hands the mutex over keeps its processor";
    Go1_14 = "go-1.14": policy::Go,
        "Go since 1.14: the owner that hands the mutex over also yields its processor";
    Fifo = "fifo": policy::Fifo,
        "first come, first served";
    Threads = "threads": policy::Threads,
        "the default: one waiter stays awake and watches the mutex, and is handed it after 100 us";
}
