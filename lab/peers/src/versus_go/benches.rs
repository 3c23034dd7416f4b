//! The list of benchmarks.

use std::sync::LazyLock;
use std::time::Duration;

use serde::Serialize;
use sudog_sync::GoRwMutex;

use super::bodies::rest::{CheapHashMap, DefaultMap};
use super::bodies::round::Round;
use super::bodies::{chan, context, create, load, pingpong, rest, sema, sync, talkers, x};
use crate::listed::listed;
use crate::rounds::WORK;
use crate::syncbench::map::mixes;
use crate::syncbench::{once, rw_mutex};
use crate::targets::registry::names;

names! {
    /// A group of benchmarks, which share a mean.
    enum Group;
    unknown "group";
    Sync = "sync", "Mutexes, wait groups, conditions.";
    Sched = "sched", "The costs of starting, switching and waking goroutines.";
    Load = "load", "Whole tasks.";
    Chan = "chan", "Channels, select, and pools.";
    Sema = "sema", "The semaphore.";
    RwMutex = "rwmutex", "Readers-writer locks.";
    Once = "once", "Functions that run once, and `atomic.Value`.";
    Pool = "pool", "Pools of free items.";
    Map = "map", "Maps with the default hash.";
    CheapMap = "cheapmap", "Maps with a hash that is as cheap as Go's.";
    Context = "context", "Contexts.";
    X = "x", "The types of `golang.org/x/sync`.";
}

/// A benchmark.
#[derive(Clone, Copy, Serialize, Debug)]
pub struct Bench {
    /// Go's name of the benchmark, if Go has the benchmark.
    pub name: &'static str,
    /// The group of the benchmark.
    pub group: Group,
    /// The name of Go's side; `None` if a Go program cannot do the benchmark.
    pub go: Option<&'static str>,
    /// A description of an operation.
    pub about: &'static str,
    /// The least number of workers: with fewer, the benchmark measures nothing.
    pub least_workers: usize,
    /// The largest number of workers: with more, the benchmark measures something else.
    pub most_workers: Option<usize>,
    /// True if the benchmark makes only a single round, however short.
    pub once: bool,
    /// True if Go's side needs `golang.org/x/sync`.
    pub x_sync: bool,
    /// The code of the benchmark.
    #[serde(skip)]
    pub body: fn(&mut Round),
}

const SHORT: Duration = Duration::from_micros(5);
const LONG: Duration = Duration::from_micros(50);
const IDLE: Duration = Duration::from_micros(100);

use Group::{Chan, CheapMap, Context, Load, Map, Once, Pool, RwMutex, Sched, Sema, Sync, X};

/// The benchmarks of a type of maps.
macro_rules! maps {
    ($group:ident, $M:ty, $prefix:literal, $suffix:literal; $($name:literal, $about:literal, $mix:ident($($n:expr),*);)+) => {
        &[$(
            Bench::new($group, concat!($prefix, "Map", $name), concat!($about, $suffix), |r| mixes::$mix::<$M, _>(r $(, $n)*))
                .go(concat!("Map", $name)),
        )+]
    };
}

/// The benchmarks, in the order in which they are shown.
static ALL: LazyLock<Vec<Bench>> = LazyLock::new(|| {
    let cheap = mixes::all!(maps!(CheapMap, CheapHashMap, "Cheap", ", a cheap hash";));
    [BEFORE_MAPS, mixes::all!(maps!(Map, DefaultMap, "", "";)), cheap, AFTER_MAPS].concat()
});

#[rustfmt::skip] // one benchmark, one line
static BEFORE_MAPS: &[Bench] = &[
    Bench::new(Sync, "MutexUncontended", "lock and unlock, everybody his own", sync::mutex_uncontended),
    Bench::new(Sync, "Mutex", "lock and unlock", |r| sync::mutex(r, 1, 0)),
    Bench::new(Sync, "MutexSlack", "the same, 10 goroutines a worker", |r| sync::mutex(r, 10, 0)),
    Bench::new(Sync, "MutexWork", "lock and unlock, then 25 ns of work", |r| sync::mutex(r, 1, WORK)),
    Bench::new(Sync, "MutexWorkSlack", "the same, 10 goroutines a worker", |r| sync::mutex(r, 10, WORK)),
    Bench::new(Sync, "MutexNoSpin", "1 lock in 4; else a new goroutine is waited for", sync::mutex_no_spin),
    Bench::new(Sync, "MutexSpin", "lock and unlock, then 4096 words are touched", sync::mutex_spin),
    Bench::new(Sync, "WaitGroupUncontended", "add, done, wait, everybody his own", sync::wait_group_uncontended),
    Bench::new(Sync, "WaitGroupAddDone", "add and done", |r| sync::wait_group_add_done(r, 0)),
    Bench::new(Sync, "WaitGroupAddDoneWork", "add, 25 ns of work, done", |r| sync::wait_group_add_done(r, WORK)),
    Bench::new(Sync, "WaitGroupWait", "wait for nothing", |r| sync::wait_group_wait(r, 0)),
    Bench::new(Sync, "WaitGroupWaitWork", "wait for nothing, 25 ns of work", |r| sync::wait_group_wait(r, WORK)),
    Bench::new(Sync, "WaitGroupActuallyWait", "start a goroutine and wait for it", sync::wait_group_actually_wait),
    Bench::new(Sync, "Cond1", "a barrier of 2", |r| sync::cond(r, 1)),
    Bench::new(Sync, "Cond2", "a barrier of 3", |r| sync::cond(r, 2)),
    Bench::new(Sync, "Cond4", "a barrier of 5", |r| sync::cond(r, 4)),
    Bench::new(Sync, "Cond8", "a barrier of 9", |r| sync::cond(r, 8)),
    Bench::new(Sync, "Cond16", "a barrier of 17", |r| sync::cond(r, 16)),
    Bench::new(Sync, "Cond32", "a barrier of 33", |r| sync::cond(r, 32)),
    Bench::new(Sched, "CreateGoroutines", "each starts the next and ends", |r| create::chains(r, 1)),
    Bench::new(Sched, "CreateGoroutinesParallel", "the same, a chain for each worker", create::parallel_chains),
    Bench::new(Sched, "CreateGoroutinesSingle", "one starts all", create::single),
    Bench::new(Sched, "Switch", "a yield, of two goroutines that yield to each other", create::switch).at_most(1),
    Bench::new(Sched, "PingPong", "there and back between two goroutines", pingpong::ping_pong),
    Bench::new(Sched, "PingPongHog", "the same beside a third that always has work", pingpong::ping_pong_hog),
    Bench::new(Sched, "XPing", "there and back between two workers", |r| pingpong::across(r, Duration::ZERO))
        .go("PingPong").at_least(2),
    Bench::new(Sched, "XPingIdle100us", "the same, the one being busy for 100 us first", |r| pingpong::across(r, IDLE))
        .at_least(2),
    Bench::new(Sched, "WakeupParallel5us", "two wake each other and spin; 20 us at least", |r| pingpong::wakeup(r, SHORT))
        .at_least(2),
    Bench::new(Sched, "WakeupParallel50us", "the same; 110 us at least", |r| pingpong::wakeup(r, LONG)).at_least(2),
    Bench::new(Sched, "Sleep100us", "a sleep of 100 us", pingpong::sleep),
    Bench::new(Sched, "DaisyChain", "10,000 goroutines in a line, started and passed through", create::daisy_chain),
    Bench::new(Load, "ForkJoin", "10,000 tasks of 20 to 200 us", load::fork_join),
    Bench::new(Load, "Imbalance", "64 goroutines that have waited for one gate have 10 ms to do each", load::imbalance),
    Bench::new(Load, "ImbalanceAsync", "the same, stackless", load::imbalance_async).go("Imbalance"),
    Bench::new(Load, "Million", "a million goroutines at one gate, the second time", load::million).once(),
    Bench::new(Load, "MillionAsync", "the same, stackless", load::million_async).go("Million").once(),
    Bench::new(Chan, "MakeChanByte", "make and drop a channel of 8 bytes", chan::make::<u8>),
    Bench::new(Chan, "MakeChanInt", "the same of integers", chan::make::<i64>),
    Bench::new(Chan, "MakeChanPtr", "the same of pointers", chan::make::<Option<Box<u8>>>),
    Bench::new(Chan, "MakeChanStruct0", "the same of nothing", chan::make::<()>),
    Bench::new(Chan, "MakeChanStruct32", "the same of 32 bytes", chan::make::<[i64; 4]>),
    Bench::new(Chan, "MakeChanStruct40", "the same of 40 bytes", chan::make::<[i64; 5]>),
    Bench::new(Chan, "ChanNonblocking", "a receive that does not wait, of an empty channel", chan::nonblocking),
    Bench::new(Chan, "SelectUncontended", "a select with one ready case of two, and a send", chan::select_uncontended),
    Bench::new(Chan, "SelectSyncContended", "a select of three, unbuffered, all on the same", chan::select_sync_contended),
    Bench::new(Chan, "SelectAsyncContended", "a select of two, buffered, all on the same", chan::select_async_contended),
    Bench::new(Chan, "SelectNonblock", "four selects that do not wait", chan::select_nonblock),
    Bench::new(Chan, "ChanUncontended", "100 sends, 100 receives, each goroutine on its own", chan::uncontended),
    Bench::new(Chan, "ChanContended", "100 sends, 100 receives, all on the same", chan::contended),
    Bench::new(Chan, "ChanSync", "a send and a receive between two goroutines, unbuffered", |r| chan::sync(r, 0)),
    Bench::new(Chan, "ChanSyncWork", "the same, and 25 ns of work for each", |r| chan::sync(r, WORK)),
    Bench::new(Chan, "ChanProdCons0", "producers and consumers, capacity 0", |r| chan::prod_cons(r, 0, 0)),
    Bench::new(Chan, "ChanProdCons10", "producers and consumers, capacity 10", |r| chan::prod_cons(r, 10, 0)),
    Bench::new(Chan, "ChanProdCons100", "producers and consumers, capacity 100", |r| chan::prod_cons(r, 100, 0)),
    Bench::new(Chan, "ChanProdConsWork0", "producers and consumers, capacity 0, 25 ns of work", |r| chan::prod_cons(r, 0, WORK)),
    Bench::new(Chan, "ChanProdConsWork10", "producers and consumers, capacity 10, 25 ns of work", |r| chan::prod_cons(r, 10, WORK)),
    Bench::new(Chan, "ChanProdConsWork100", "producers and consumers, capacity 100, 25 ns of work", |r| chan::prod_cons(r, 100, WORK)),
    Bench::new(Chan, "SelectProdCons", "the same by select of three cases, capacity 128", chan::select_prod_cons),
    Bench::new(Chan, "ReceiveDataFromClosedChan", "a receive from a closed channel that has values", chan::receive_from_closed),
    Bench::new(Chan, "ChanCreation", "make a channel, send, receive", chan::creation),
    Bench::new(Chan, "ChanSem", "a channel as a semaphore", chan::semaphore),
    Bench::new(Chan, "ChanPopular", "a send to each of 1000 goroutines that select", chan::popular),
    Bench::new(Chan, "ChanClosed", "a receive from a closed channel", chan::closed),
    Bench::new(Chan, "Pool", "8 workers on a channel of capacity 8, 1000 jobs of 20 to 200 us", |r| chan::pool(r, 8)),
    Bench::new(Chan, "PoolSync", "the same, unbuffered", |r| chan::pool(r, 0)),
    Bench::new(Chan, "Pipeline", "a value through 4 stages, capacity 16", |r| chan::pipeline(r, 16)),
    Bench::new(Chan, "PipelineSync", "the same, unbuffered", |r| chan::pipeline(r, 0)),
    Bench::new(Chan, "FanOutIn", "a value to one of 8 workers and back", chan::fan),
    Bench::new(Chan, "PubSub", "a value to all of 8 subscribers, by 4 publishers", talkers::pub_sub),
    Bench::new(Chan, "PubSubTogether", "the same, kept on one worker", talkers::pub_sub_together).go("PubSub"),
    Bench::new(Chan, "Broadcast", "a value to all of 8 receivers", talkers::broadcast),
    Bench::new(Chan, "BroadcastTogether", "the same, kept on one worker", talkers::broadcast_together).go("Broadcast"),
    Bench::new(Chan, "ActorRing", "a value around a ring of 8 actors", talkers::actor_ring),
    Bench::new(Chan, "ActorRingTogether", "the same, kept on one worker", talkers::actor_ring_together).go("ActorRing"),
    Bench::new(Chan, "OneServer", "a request to one server, by 8 clients, and the answer", talkers::one_server),
    Bench::new(Chan, "OneServerTogether", "the same, kept on one worker", talkers::one_server_together).go("OneServer"),
    Bench::new(Chan, "PrimeSieve", "the first 100 primes, a goroutine for each", chan::sieve),
    Bench::new(Chan, "MillionChan", "a million goroutines on one channel, the second time", chan::million).once(),
    Bench::new(Sema, "Handoff", "a release with handoff; who gets on first?", sema::handoff).no_go().once(),
    Bench::new(RwMutex, "RWMutexUncontended", "a read in a read, and a write, each goroutine on its own", rest::rw_mutex_uncontended),
    Bench::new(RwMutex, "RWMutexWrite100", "a write in 100, else reads", |r| rw_mutex::mixed::<GoRwMutex, _>(r, 100, 0)),
    Bench::new(RwMutex, "RWMutexWrite10", "a write in 10, else reads", |r| rw_mutex::mixed::<GoRwMutex, _>(r, 10, 0)),
    Bench::new(RwMutex, "RWMutexWorkWrite100", "a write in 100, else reads with 25 ns of work", |r| rw_mutex::mixed::<GoRwMutex, _>(r, 100, WORK)),
    Bench::new(RwMutex, "RWMutexWorkWrite10", "a write in 10, else reads with 25 ns of work", |r| rw_mutex::mixed::<GoRwMutex, _>(r, 10, WORK)),
    Bench::new(Once, "Once", "what has run, for all", |r| once::once::<sudog_sync::Once, _>(r)),
    Bench::new(Once, "OnceFuncOnce", "what a function that has run is made of", rest::once_alone),
    Bench::new(Once, "OnceFuncGlobal", "a function that has run, a global", rest::once_func_global),
    Bench::new(Once, "OnceFuncLocal", "a function that has run, local", rest::once_func_local),
    Bench::new(Once, "OnceFuncMake", "make a function that runs once", rest::once_func_make),
    Bench::new(Once, "OnceValueOnce", "what a function of one value that has run is made of", rest::once_value_alone),
    Bench::new(Once, "OnceValueGlobal", "a function of one value that has run, a global", rest::once_value_global),
    Bench::new(Once, "OnceValueLocal", "a function of one value that has run, local", rest::once_value_local),
    Bench::new(Once, "OnceValueMake", "make a function of one value that runs once", rest::once_value_make),
    Bench::new(Once, "OnceValuesOnce", "what a function of two values that has run is made of", rest::once_values_alone),
    Bench::new(Once, "OnceValuesGlobal", "a function of two values that has run, a global", rest::once_values_global),
    Bench::new(Once, "OnceValuesLocal", "a function of two values that has run, local", rest::once_values_local),
    Bench::new(Once, "OnceValuesMake", "make a function of two values that runs once", rest::once_values_make),
    Bench::new(Once, "ValueRead", "load an atomic value", rest::value_read),
    Bench::new(Pool, "SyncPool", "put an item, get one", |r| rest::pool(r, 1, 1)),
    Bench::new(Pool, "SyncPoolOverflow", "put 100 items, get 100", |r| rest::pool(r, 100, 100)),
    Bench::new(Pool, "SyncPoolStarvation", "put 67 items, get 100", |r| rest::pool(r, 67, 100)),
];

#[rustfmt::skip] // one benchmark, one line
static AFTER_MAPS: &[Bench] = &[
    Bench::new(Map, "HashTrieMapLoadSmall", "load one of 8 words", |r| rest::words_load(r, 1 << 3)),
    Bench::new(Map, "HashTrieMapLoad", "load one of 128 words", |r| rest::words_load(r, 1 << 7)),
    Bench::new(Map, "HashTrieMapLoadLarge", "load one of 131,072 words", |r| rest::words_load(r, 1 << 17)),
    Bench::new(Map, "HashTrieMapLoadOrStore", "load or store one of 128 words", |r| rest::words_load_or_store(r, 1 << 7)),
    Bench::new(Map, "HashTrieMapLoadOrStoreLarge", "load or store one of 131,072 words", |r| rest::words_load_or_store(r, 1 << 17)),
    Bench::new(Context, "CommonParentCancel", "make a child of one parent, look for a value, cancel", context::common_parent_cancel),
    Bench::new(Context, "WithTimeout40", "make 10 with a timeout, and cancel them, beside 40", |r| context::with_timeouts(r, 40)),
    Bench::new(Context, "WithTimeout4000", "the same beside 4000", |r| context::with_timeouts(r, 4000)),
    Bench::new(Context, "WithTimeout400000", "the same beside 400000", |r| context::with_timeouts(r, 400_000)),
    Bench::new(Context, "CancelTreeBackground1", "a line of 1 on the background", |r| context::cancel_tree_background(r, 1)),
    Bench::new(Context, "CancelTreeBackground10", "a line of 10 on the background", |r| context::cancel_tree_background(r, 10)),
    Bench::new(Context, "CancelTreeBackground100", "a line of 100 on the background", |r| context::cancel_tree_background(r, 100)),
    Bench::new(Context, "CancelTreeBackground1000", "a line of 1000 on the background", |r| context::cancel_tree_background(r, 1000)),
    Bench::new(Context, "CancelTreeOpenCanceler1", "a line of 1, whose root is then cancelled", |r| context::cancel_tree_open(r, 1)),
    Bench::new(Context, "CancelTreeOpenCanceler10", "a line of 10, whose root is then cancelled", |r| context::cancel_tree_open(r, 10)),
    Bench::new(Context, "CancelTreeOpenCanceler100", "a line of 100, whose root is then cancelled", |r| context::cancel_tree_open(r, 100)),
    Bench::new(Context, "CancelTreeOpenCanceler1000", "a line of 1000, whose root is then cancelled", |r| context::cancel_tree_open(r, 1000)),
    Bench::new(Context, "CancelTreeClosedCanceler1", "a line of 1 on one that has been cancelled", |r| context::cancel_tree_closed(r, 1)),
    Bench::new(Context, "CancelTreeClosedCanceler10", "a line of 10 on one that has been cancelled", |r| context::cancel_tree_closed(r, 10)),
    Bench::new(Context, "CancelTreeClosedCanceler100", "a line of 100 on one that has been cancelled", |r| context::cancel_tree_closed(r, 100)),
    Bench::new(Context, "CancelTreeClosedCanceler1000", "a line of 1000 on one that has been cancelled", |r| context::cancel_tree_closed(r, 1000)),
    Bench::new(Context, "CheckCanceledErr", "the error of a context that is done", context::err_canceled),
    Bench::new(Context, "CheckCanceledDone", "a select that does not wait on one that is done", context::check_canceled_done),
    Bench::new(Context, "ContextCancelDone", "the same on one that is not, for all", context::context_cancel_done),
    Bench::new(Context, "DeepValueNewGoRoutine10", "look for a value in 10 contexts, in a new goroutine", |r| context::deep_value_new(r, 10)),
    Bench::new(Context, "DeepValueNewGoRoutine20", "look for a value in 20 contexts, in a new goroutine", |r| context::deep_value_new(r, 20)),
    Bench::new(Context, "DeepValueNewGoRoutine30", "look for a value in 30 contexts, in a new goroutine", |r| context::deep_value_new(r, 30)),
    Bench::new(Context, "DeepValueNewGoRoutine50", "look for a value in 50 contexts, in a new goroutine", |r| context::deep_value_new(r, 50)),
    Bench::new(Context, "DeepValueNewGoRoutine100", "look for a value in 100 contexts, in a new goroutine", |r| context::deep_value_new(r, 100)),
    Bench::new(Context, "DeepValueSameGoRoutine10", "look for a value in 10 contexts", |r| context::deep_value_same(r, 10)),
    Bench::new(Context, "DeepValueSameGoRoutine20", "look for a value in 20 contexts", |r| context::deep_value_same(r, 20)),
    Bench::new(Context, "DeepValueSameGoRoutine30", "look for a value in 30 contexts", |r| context::deep_value_same(r, 30)),
    Bench::new(Context, "DeepValueSameGoRoutine50", "look for a value in 50 contexts", |r| context::deep_value_same(r, 50)),
    Bench::new(Context, "DeepValueSameGoRoutine100", "look for a value in 100 contexts", |r| context::deep_value_same(r, 100)),
    Bench::new(Context, "ErrOK", "the error of a context that is not done", context::err_ok),
    Bench::new(Context, "ErrCanceled", "the error of a context that is done", context::err_canceled),
    Bench::new(X, "SemaphoreNewSeq1", "make a weighted semaphore of 1", |r| x::semaphore_new(r, 1)).x_sync(),
    Bench::new(X, "SemaphoreNewSeq128", "make a weighted semaphore of 128", |r| x::semaphore_new(r, 128)).x_sync(),
    Bench::new(X, "SemaphoreAcquireSeq1x1x1", "acquire 1 of 1, and release", |r| x::semaphore_acquire(r, 1, 1, 1)).x_sync(),
    Bench::new(X, "SemaphoreAcquireSeq2x1x1", "acquire 1 of 2, and release", |r| x::semaphore_acquire(r, 2, 1, 1)).x_sync(),
    Bench::new(X, "SemaphoreAcquireSeq16x1x1", "acquire 1 of 16, and release", |r| x::semaphore_acquire(r, 16, 1, 1)).x_sync(),
    Bench::new(X, "SemaphoreAcquireSeq128x1x1", "acquire 1 of 128, and release", |r| x::semaphore_acquire(r, 128, 1, 1)).x_sync(),
    Bench::new(X, "SemaphoreAcquireSeq2x2x1", "acquire 2 of 2, and release", |r| x::semaphore_acquire(r, 2, 2, 1)).x_sync(),
    Bench::new(X, "SemaphoreAcquireSeq16x2x8", "acquire 2 of 16, 8 times, and release", |r| x::semaphore_acquire(r, 16, 2, 8)).x_sync(),
    Bench::new(X, "SemaphoreAcquireSeq128x2x64", "acquire 2 of 128, 64 times, and release", |r| x::semaphore_acquire(r, 128, 2, 64)).x_sync(),
    Bench::new(X, "SemaphoreAcquireSeq2x1x2", "acquire 1 of 2, 2 times, and release", |r| x::semaphore_acquire(r, 2, 1, 2)).x_sync(),
    Bench::new(X, "SemaphoreAcquireSeq16x8x2", "acquire 8 of 16, 2 times, and release", |r| x::semaphore_acquire(r, 16, 8, 2)).x_sync(),
    Bench::new(X, "SemaphoreAcquireSeq128x64x2", "acquire 64 of 128, 2 times, and release", |r| x::semaphore_acquire(r, 128, 64, 2)).x_sync(),
    Bench::new(X, "SemaphoreTryAcquireSeq1x1x1", "try to acquire 1 of 1, and release", |r| x::semaphore_try_acquire(r, 1, 1, 1)).x_sync(),
    Bench::new(X, "SemaphoreTryAcquireSeq2x1x1", "try to acquire 1 of 2, and release", |r| x::semaphore_try_acquire(r, 2, 1, 1)).x_sync(),
    Bench::new(X, "SemaphoreTryAcquireSeq16x1x1", "try to acquire 1 of 16, and release", |r| x::semaphore_try_acquire(r, 16, 1, 1)).x_sync(),
    Bench::new(X, "SemaphoreTryAcquireSeq128x1x1", "try to acquire 1 of 128, and release", |r| x::semaphore_try_acquire(r, 128, 1, 1)).x_sync(),
    Bench::new(X, "SemaphoreTryAcquireSeq2x2x1", "try to acquire 2 of 2, and release", |r| x::semaphore_try_acquire(r, 2, 2, 1)).x_sync(),
    Bench::new(X, "SemaphoreTryAcquireSeq16x2x8", "try to acquire 2 of 16, 8 times, and release", |r| x::semaphore_try_acquire(r, 16, 2, 8)).x_sync(),
    Bench::new(X, "SemaphoreTryAcquireSeq128x2x64", "try to acquire 2 of 128, 64 times, and release", |r| x::semaphore_try_acquire(r, 128, 2, 64)).x_sync(),
    Bench::new(X, "SemaphoreTryAcquireSeq2x1x2", "try to acquire 1 of 2, 2 times, and release", |r| x::semaphore_try_acquire(r, 2, 1, 2)).x_sync(),
    Bench::new(X, "SemaphoreTryAcquireSeq16x8x2", "try to acquire 8 of 16, 2 times, and release", |r| x::semaphore_try_acquire(r, 16, 8, 2)).x_sync(),
    Bench::new(X, "SemaphoreTryAcquireSeq128x64x2", "try to acquire 64 of 128, 2 times, and release", |r| x::semaphore_try_acquire(r, 128, 64, 2)).x_sync(),
    Bench::new(X, "ErrGroupGo", "start a goroutine of a group", x::err_group_go).x_sync(),
    Bench::new(X, "SingleFlightDo", "a call that does nothing, each goroutine for its own key", |r| x::single_flight_do(r, false)).x_sync(),
    Bench::new(X, "SingleFlightDoSame", "the same, all for one key", |r| x::single_flight_do(r, true)).x_sync(),
];

impl Bench {
    const fn new(group: Group, name: &'static str, about: &'static str, body: fn(&mut Round)) -> Self {
        Self {
            name,
            group,
            go: Some(name),
            about,
            least_workers: 1,
            most_workers: None,
            once: false,
            x_sync: false,
            body,
        }
    }

    const fn go(mut self, name: &'static str) -> Self {
        self.go = Some(name);
        self
    }

    const fn no_go(mut self) -> Self {
        self.go = None;
        self
    }

    const fn at_least(mut self, workers: usize) -> Self {
        self.least_workers = workers;
        self
    }

    const fn at_most(mut self, workers: usize) -> Self {
        self.most_workers = Some(workers);
        self
    }

    const fn x_sync(mut self) -> Self {
        self.x_sync = true;
        self
    }

    const fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Returns, in words, the numbers of workers for which the benchmark is meant.
    pub fn workers(&self) -> String {
        match (self.least_workers, self.most_workers) {
            (_, Some(most)) => most.to_string(),
            (1, None) => "any".to_owned(),
            (least, None) => format!("{least} or more"),
        }
    }

    /// Returns whether the benchmark is meant for this number of workers.
    pub fn runs_at(&self, workers: usize) -> bool {
        self.least_workers <= workers && self.most_workers.is_none_or(|most| workers <= most)
    }
}

listed! {
    /// A benchmark, by name.
    Name of Bench, in ALL;
    "'versus-go --list' shows those that there are"
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_different_and_are_found() {
        let names: HashSet<_> = Name::all().map(|bench| bench.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(Name::all().all(|bench| bench.name.parse() == Ok(bench)));
        assert!("Nope".parse::<Name>().unwrap_err().starts_with("unknown benchmark 'Nope'"));
    }

    #[test]
    fn workers() {
        let of = |name: &str| {
            let bench: Name = name.parse().unwrap();
            (bench.workers(), [1, 2, 3].map(|workers| bench.runs_at(workers)))
        };
        assert_eq!(of("Mutex"), ("any".to_owned(), [true; 3]));
        assert_eq!(of("Switch"), ("1".to_owned(), [true, false, false]));
        assert_eq!(of("XPing"), ("2 or more".to_owned(), [false, true, true]));
    }
}
