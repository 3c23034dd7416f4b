//! Checks for all public types whether they are `Send` and `Sync`, over parameters that are and that are not. The
//! compiler decides the table; a look at the sources tells whether a type is missing in the table.
//!
//! The parameters: `Rc` is neither `Send` nor `Sync`, `Cell` is only `Send`, `Both` is both.
#![cfg(all(target_os = "linux", feature = "locks", not(sudog_loom)))]
#![forbid(unsafe_code)]

use std::cell::Cell as StdCell;
use std::future::Ready;
use std::marker::PhantomData;
use std::path::Path;
use std::rc::Rc as StdRc;
use std::{fs, io};

use sudog::chan::*;
use sudog::context::{self, CancelCauseFunc, CancelFunc, CancelOnDrop, Cause, Context, DoneFuture, Key};
use sudog::csp::{ActiveSet, End, Failed, ReadFuture, Reclaimed, Unwritten, WriteFuture};
use sudog::locks::capacitor::*;
use sudog::locks::spin_lock::*;
use sudog::locks::waiting_array::*;
use sudog::low_level::event::{self, Event, Recorder, Recording, Who, clock};
use sudog::low_level::sema::{self, Acquire, NotifyList};
use sudog::low_level::{policy, *};
use sudog::runtime::*;
use sudog::study::queue::{OneLevelList, Recorded, RotatingTreap, Treap, TwoLevelList};
use sudog::study::stages::{V1, V2, V3, V4, V5, V6, V7, V8};
use sudog::study::{self, *};
use sudog::sync::atomic::{Pointer, Value};
use sudog::sync::*;
use sudog::time::*;
use sudog::x::{ErrGroup, Flight, Held, SingleFlight, Weighted};
use sudog::*;
use sudog_runtime::chan::SelectUntil;
use sudog_runtime::chan::macros::{FutureCase, StaticCases};
use sudog_runtime::goroutine::PerGoroutine;
use sudog_runtime::sema::testing::DetachedQueue;
use sudog_sync::signal::{Received, Signal, StopFunc, StopOnDrop};

type Rc = StdRc<u32>;
type Cell = StdCell<u32>;
type Both = u32;

/// A type whose `IS` is the inherent constant if `T` is `Send`, and otherwise the constant of [`No`].
struct IsSend<T: ?Sized>(PhantomData<T>);
struct IsSync<T: ?Sized>(PhantomData<T>);

trait No {
    const IS: bool = false;
}

impl<T: ?Sized> No for IsSend<T> {}
impl<T: ?Sized> No for IsSync<T> {}

#[allow(dead_code)] // used only for a `T` that is `Send`
impl<T: ?Sized + Send> IsSend<T> {
    const IS: bool = true;
}

#[allow(dead_code)] // used only for a `T` that is `Sync`
impl<T: ?Sized + Sync> IsSync<T> {
    const IS: bool = true;
}

macro_rules! table {
    ($($type:ty => $send:literal, $sync:literal;)+) => {
        $(
            const _: () = {
                assert!(IsSend::<$type>::IS == $send, concat!(stringify!($type), ": Send"));
                assert!(IsSync::<$type>::IS == $sync, concat!(stringify!($type), ": Sync"));
            };
        )+
        /// All types of the table, as the table writes them.
        const WRITTEN: &[&str] = &[$(stringify!($type)),+];
    };
}

table! {
    // ---- the runtime: Send, Sync ----
    G => false, false;
    ParkResult => true, true;
    sema::Order => true, true;
    sema::Wake => true, true;
    Global => true, true;
    WaitError => true, true;
    WaitLimit<'static> => true, true;
    Cancel => true, true;
    NotifyList => true, true;
    sema::Ticket<'static> => false, false;
    SemTable => true, true;
    Acquire<'static> => true, true;
    DetachedQueue => false, false;
    Treap => true, false;
    OneLevelList => true, false;
    RotatingTreap => true, false;
    TwoLevelList => true, false;
    Recorded<Treap> => true, false;
    Builder => true, true;
    Placement => true, true;
    OnPanic => true, true;
    JoinHandle<Both> => true, true;
    JoinHandle<Cell> => true, true;
    JoinHandle<Rc> => false, false;
    Scope<'static, 'static> => true, true;
    ScopedJoinHandle<'static, Both> => true, true;
    ScopedJoinHandle<'static, Cell> => true, true;
    ScopedJoinHandle<'static, Rc> => false, false;
    sudog_runtime::Coop => true, true;
    LocalKey<Rc> => true, true;
    SleepAsync => true, true;
    Timer => true, true;
    Ticker => true, true;
    TimerFuture<'static> => true, true;
    sudog::time::AfterFunc => true, true;
    Goexit => true, true;
    Event => true, true;
    Who => true, true;
    event::Kind => true, true;
    Recording => true, true;
    Recorder => true, true;
    clock::Reading => true, true;
    clock::Scale => true, true;
    // ---- network, rates ----
    sudog_net::TcpStream => true, true;
    sudog_net::TcpListener => true, true;
    sudog_net::UdpSocket => true, true;
    sudog_net::UnixStream => true, true;
    sudog_net::UnixListener => true, true;
    sudog_net::UnixDatagram => true, true;
    sudog_net::PipeStream => true, true;
    sudog_net::PipeReader => true, true;
    sudog_net::PipeWriter => true, true;
    sudog_net::PipeAddr => true, true;
    sudog_net::PipeListener => true, true;
    sudog_net::PipeDialer => true, true;
    sudog_net::process::OnDone<'static> => true, false;
    sudog_net::BlockingIo<Both> => true, true;
    sudog_net::BlockingIo<Cell> => true, false;
    sudog_net::Awaited => true, true;
    sudog_net::Wait<'static> => true, true;
    sudog_net::Closed => true, true;
    sudog_net::Side => true, true;
    sudog_net::low_level::LockError => true, true;
    sudog_net::low_level::FdMutex<Both> => true, true;
    sudog_net::low_level::FdMutex<Cell> => true, false;
    sudog_net::low_level::FdMutex<Rc> => false, false;
    sudog_net::low_level::FdRef<'static, Both> => true, true;
    sudog_net::low_level::FdRef<'static, Cell> => false, false;
    sudog_net::low_level::FdGuard<'static, Both> => true, true;
    sudog_net::low_level::FdGuard<'static, Cell> => false, false;
    sudog::x::rate::Limit => true, true;
    sudog::x::rate::Limiter => true, true;
    sudog::x::rate::Reservation<'static> => true, true;
    sudog::x::rate::Sometimes => true, true;
    sudog::x::rate::Error => true, true;
    // ---- channels ----
    Chan<Both> => true, true;
    Chan<Cell> => true, true;
    Chan<Rc> => false, false;
    SendOnly<Cell> => true, true;
    SendOnly<Rc> => false, false;
    RecvOnly<Cell> => true, true;
    RecvOnly<Rc> => false, false;
    Sender<Cell> => true, true;
    Sender<Rc> => false, false;
    Receiver<Cell> => true, true;
    Receiver<Rc> => false, false;
    SendFuture<'static, Sender<Cell>> => true, true;
    SendFuture<'static, Sender<Rc>> => false, true;
    ReserveFuture<'static, Sender<Cell>> => true, true;
    ReserveFuture<'static, Sender<Rc>> => false, true;
    Permit<'static, Sender<Cell>> => true, true;
    Permit<'static, Sender<Rc>> => false, false;
    RecvFuture<'static, Receiver<Cell>> => true, true;
    RecvFuture<'static, Receiver<Rc>> => false, true;
    sudog_runtime::chan::RecvStream<Receiver<Cell>> => true, true;
    sudog_runtime::chan::RecvStream<Receiver<Rc>> => false, true;
    SelectFuture<sudog_runtime::chan::macros::StaticCases<0, ()>> => true, true;
    SelectFuture<StaticCases<1, (FutureCase<Ready<Cell>>, ())>> => true, true;
    SelectFuture<StaticCases<1, (FutureCase<Ready<Rc>>, ())>> => false, true;
    SelectUntil<sudog_runtime::chan::macros::StaticCases<0, ()>> => true, true;
    Select<'static, Both> => false, false;
    Iter<'static, Receiver<Cell>> => true, true;
    TryIter<'static, Receiver<Rc>> => false, false;
    sudog::chan::IntoIter<Receiver<Cell>> => true, true;
    SendError<Cell> => true, false;
    TrySendError<Cell> => true, false;
    SendLimitedError<Rc> => false, false;
    GaveUp<Cell> => true, false;
    RecvError => true, true;
    TryRecvError => true, true;
    RecvLimitedError => true, true;
    GaveUp<Cell, context::Error> => true, false;
    SendLimitedError<Rc, context::Error> => false, false;
    RecvLimitedError<context::Error> => true, true;
    // ---- dumps ----
    Dump => true, true;
    GoroutineInfo => true, true;
    GoroutineGroup<'static> => true, true;
    GoroutineState => true, true;
    // ---- profiles ----
    sudog_runtime::profile::Profile => true, true;
    sudog_runtime::profile::Record => true, true;
    sudog_runtime::profile::Frame => true, true;
    // ---- switches ----
    SwitchHooks => true, true;
    Entering => true, true;
    Leaving => true, true;
    TooManySwitchHooks => true, true;
    PerGoroutine<Both> => true, true;
    PerGoroutine<Rc> => false, false;
    // ---- mutexes ----
    GoMutex => true, true;
    GoMutex<FutexSema, policy::Go> => true, true;
    LockFuture<'static, RuntimeSema, policy::Threads> => true, true;
    FifoMutex => true, true;
    V1 => true, true;
    V2 => true, true;
    V3 => true, true;
    V4 => true, true;
    V5 => true, true;
    V6 => true, true;
    V7 => true, true;
    V8 => true, true;
    policy::SpinStrategy => true, true;
    policy::Go => true, true;
    study::policy::Go1_14 => true, true;
    study::policy::Go1_9 => true, true;
    study::policy::Go1_8 => true, true;
    study::policy::Fifo => true, true;
    policy::Threads => true, true;
    study::policy::Recorded<policy::Go> => true, true;
    ApiLock<GoMutex> => true, true;
    Mutex<Both> => true, true;
    Mutex<Cell> => true, true;
    Mutex<Rc> => false, false;
    MutexWith<Mcs, Cell> => true, true;
    MutexWith<Mcs, Rc> => false, false;
    MutexGuard<'static, Both> => true, true;
    MutexGuard<'static, Cell> => true, false;
    MutexGuard<'static, Rc> => false, false;
    lock_api::MappedMutexGuard<'static, ApiLock<GoMutex>, Both> => true, true;
    lock_api::MappedMutexGuard<'static, ApiLock<GoMutex>, Cell> => true, false;
    lock_api::ArcMutexGuard<ApiLock<GoMutex>, Both> => true, true;
    WaitFuture<'static> => true, true;
    GuardFuture<'static, GoMutex, Both> => true, true;
    GuardFuture<'static, GoMutex, Cell> => true, true;
    GuardFuture<'static, GoMutex, Rc> => false, false;
    // ---- readers-writer mutexes ----
    GoRwMutex => true, true;
    PhaseFairRwMutex => true, true;
    ShardedRwMutex => true, true;
    SharedGuard => true, true;
    RLocker<'static, GoMutex, RuntimeSema> => true, true;
    ApiRwLock<GoRwMutex> => true, true;
    RwMutex<Both> => true, true;
    RwMutex<Cell> => true, false;
    RwMutex<Rc> => false, false;
    RwMutexWith<ShardedRwMutex, Cell> => true, false;
    RwMutexReadGuard<'static, Both> => true, true;
    RwMutexReadGuard<'static, Cell> => false, false;
    RwMutexReadGuard<'static, Rc> => false, false;
    RwMutexWriteGuard<'static, Both> => true, true;
    RwMutexWriteGuard<'static, Cell> => false, false; // `lock_api` asks for `Sync`
    RwMutexWriteGuard<'static, Rc> => false, false;
    // ---- semaphores ----
    RuntimeSema => true, true;
    TableSema<Global> => true, true;
    FutexSema => true, true;
    ParkingLotSema => true, true;
    Benaphore => true, true;
    CountedDoorway => true, true;
    Tickets => true, true;
    TicketSema<GrantWait> => true, true;
    sudog::locks::waiting_array::Ticket => true, true;
    Twa => true, true;
    TwaChain => true, true;
    TwaChannel => true, true;
    TwaLocation => true, true;
    GrantWait => true, true;
    ChainWait => true, true;
    ToldWait => true, true;
    ChannelWait => true, true;
    BucketWait => true, true;
    LocationWait => true, true;
    Conservative<BucketWait> => true, true;
    LocationWaiter => true, true;
    EventKey => true, true;
    Closed => true, true;
    Refused => true, true;
    PlainHash => true, true;
    MixedHash => true, true;
    PairedHash => true, true;
    OrbitHash => true, true;
    GrayHash => true, true;
    // ---- spin locks ----
    Spin => true, true;
    SpinThenYield => true, true;
    SpinThenPark => true, true;
    Mcs => true, true;
    McsGuard => false, false;
    Clh => true, true;
    ClhGuard => true, true;
    Tts => true, true;
    Lifo => true, true;
    Reciprocating => true, true;
    ReciprocatingGuard => false, false;
    TicketLock => true, true;
    lock_api::MutexGuard<'static, ApiLock<Mcs>, Both> => false, false;
    lock_api::MutexGuard<'static, ApiLock<Reciprocating>, Both> => false, false;
    lock_api::MutexGuard<'static, ApiLock<Clh>, Both> => true, true;
    lock_api::ArcMutexGuard<ApiLock<Mcs>, Both> => false, false;
    // ---- capacitors ----
    Capacitor<Tts> => true, true;
    Sliding<Mcs> => true, true;
    Wrapped<GoMutex, Platoon, Always> => true, true;
    WrappedGuard<(), u64> => true, true;
    WrappedGuard<McsGuard, u64> => false, false;
    <Sliding<Mcs> as RawLock>::Guard => false, false;
    <Sliding<GoMutex> as RawLock>::Guard => true, true;
    Platoon => true, true;
    SlidingWindow => true, true;
    Bounded<FutexSema> => true, true;
    WindowTicket => true, true;
    Multilane => true, true;
    LaneChoice => true, true;
    SeparateLanes => true, true;
    Arrival<'static, SlidingWindow> => true, true;
    Path => true, true;
    Always => true, true;
    Gated => true, true;
    Fractional => true, true;
    // ---- channels whose fibres are reclaimed ----
    End<Both> => true, false;
    End<Cell> => true, false;
    End<Rc> => false, false;
    ReadFuture<'static, Cell> => true, true;
    ReadFuture<'static, Rc> => false, true;
    WriteFuture<'static, Cell> => true, true;
    WriteFuture<'static, Rc> => false, true;
    Unwritten<Both> => true, true;
    Unwritten<Rc, Failed> => false, false;
    ActiveSet => true, true;
    Reclaimed => true, true;
    Failed => true, true;
    // ---- the rest of sync ----
    Cond => true, true;
    WaitGroup => true, true;
    Once => true, true;
    OnceValue<Both> => true, true;
    OnceValue<Cell> => true, false;
    OnceValue<Rc> => false, false;
    OnceValue<Both, Rc> => false, false;
    OnceValues<Both, Both> => true, true;
    OnceValues<Cell, Both> => true, false;
    OnceFunc => true, true;
    OnceFunc<Box<dyn FnOnce() + Send>> => true, true;
    OnceFunc<Box<dyn FnOnce()>> => false, false;
    Pool<Both> => true, true;
    Pool<Cell> => true, true;
    Pool<Rc> => false, false;
    Pool<Both, NoNew> => true, true;
    NoNew => true, true;
    Pooled<'static, Both> => true, true;
    Pooled<'static, Cell> => true, false;
    Pooled<'static, Rc> => false, false;
    Map<Both, Both> => true, true;
    Map<Both, Cell> => false, false;
    Map<Both, Rc> => false, false;
    Map<Cell, Both> => false, false;
    Value<Both> => true, true;
    Value<Cell> => false, false;
    Value<Rc> => false, false;
    Pointer<Both> => true, true;
    Pointer<Cell> => false, false;
    atomic::Int32 => true, true;
    SharedPanic => true, true;
    SingleFlight<Both, Both> => true, true;
    SingleFlight<Both, Cell> => false, false;
    SingleFlight<Cell, Both> => false, false;
    Flight<Both> => true, true;
    Flight<Cell> => true, false;
    ErrGroup => true, true;
    Weighted => true, true;
    Held<'static> => true, true;
    Context => true, true;
    Cause => true, true;
    context::Error => true, true;
    context::AfterFunc => true, true;
    CancelFunc => true, true;
    CancelCauseFunc => true, true;
    CancelOnDrop => true, true;
    DoneFuture => true, true;
    Key<Rc> => true, true;
    Signal => true, true;
    Received => true, true;
    StopFunc => true, true;
    StopOnDrop => true, true;
}

/// The types that exist only with the feature `metrics`: `runtime/tests/metrics.rs` checks them.
const CHECKED_ELSEWHERE: &[&str] = &["Histogram", "Metrics", "WorkerMetrics"];

/// The types that are in private modules, hidden, or part of a model.
const NOT_PUBLIC: &[&str] = &[
    "Access",
    "Acquisition",
    "LockCount",
    "LockTag",
    "WaiterRoom",
    "Alarm",
    "Deed",
    "Step",
    "NetWait",
    "CaseRef",
    "Chosen",
    "Core",
    "Either",
    "WaitOutcome",
    "Instant",
    "CallStates",
    "TicketQueue",
    "Link",
    "Never",
    "OfThread",
    "Outcome",
    "Own",
    "Panics",
    "Parker",
    "Part",
    "RecvCase",
    "Registration",
    "Ring",
    "Room",
    "Sc",
    "Searches",
    "SendCase",
    "SendFromCase",
    "Static",
    "Sudog",
    "SudogPtr",
    "ThreadClock",
    "TimerCase",
    "TimerRef",
    "Turn",
    "WeakChan",
    "Words",
];

/// Checks that every public type of the sources is in the table.
#[test]
fn no_type_is_missing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut missing = Vec::new();
    for sources in ["runtime/src", "sync/src", "csp/src", "net/src", "locks/src"] {
        each_file(&root.join(sources), &mut |text| {
            for line in text.lines().map(str::trim_start) {
                let Some(rest) = ["pub struct ", "pub enum ", "pub type "].iter().find_map(|p| line.strip_prefix(p))
                else {
                    continue;
                };
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                let is_it = |word: &str| word == name;
                let written = |text: &&&str| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(is_it);
                // (The `$Name` of a macro yields an empty name.)
                let is_known = [NOT_PUBLIC, CHECKED_ELSEWHERE].iter().any(|names| names.contains(&&*name));
                if !name.is_empty() && !is_known && WRITTEN.iter().find(written).is_none() {
                    missing.push(name);
                }
            }
        })
        .unwrap();
    }
    assert!(missing.is_empty(), "{missing:?}");
}

fn each_file(folder: &Path, f: &mut impl FnMut(&str)) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            each_file(&path, f)?;
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            f(&fs::read_to_string(path)?);
        }
    }
    Ok(())
}
