//! `Serialize` for [`Metrics`]. Feature `serde`.

use std::ops::Range;
use std::time::Duration;

use serde_core::ser::SerializeStruct;
use serde_core::{Serialize, Serializer};

use super::{Histogram, Metrics, WorkerMetrics};

/// Implements `Serialize` for a struct, field by field. A field that is missing here does not compile.
macro_rules! serialize {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self { $($field),* } = self;
                let mut fields = serializer.serialize_struct(stringify!($type), [$(stringify!($field)),*].len())?;
                $(fields.serialize_field(stringify!($field), $field)?;)*
                fields.end()
            }
        }
    };
}

serialize!(Metrics {
    max_procs,
    goroutines,
    goroutines_created,
    running,
    runnable,
    blocking,
    waiting,
    threads,
    mutex_wait,
    mutex_starvations,
    mutex_spin_wins,
    latencies,
    workers,
});
serialize!(WorkerMetrics { is_idle, run_queue, goroutines, steals, sleeps, vain_searches, yields });

/// The buckets that have times, shortest first.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.buckets().map(|(times, count)| Bucket { times, count }))
    }
}

struct Bucket {
    times: Range<Duration>,
    count: u64,
}

serialize!(Bucket { times, count });
