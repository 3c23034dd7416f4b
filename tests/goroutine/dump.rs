//! Dumps: their contents for each goroutine, and the progress of the program during a dump.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sudog::chan::channel;
use sudog::low_level::sema::{Wake, semacquire, semrelease};
use sudog::low_level::{G, ParkResult};
use sudog::runtime::{Dump, GoroutineInfo, GoroutineState, current_goroutine, dump, gosched};
use sudog::sync::{GoMutex, LockAsync, Mutex, RwMutex, WaitGroup};
use sudog::time::sleep;
use sudog::{Builder, blocking, run, spawn_async, synctest, without_switching};
use support::goroutine::alone_with;
use support::{Watchdog, eventually};

/// True if dumps have stacks and places: where switches are observed, which is the default of builds with debug
/// assertions.
const OBSERVED: bool = cfg!(debug_assertions);

fn find(dump: &Dump, name: &str) -> Option<GoroutineInfo> {
    dump.goroutines.iter().find(|info| info.name.as_deref() == Some(name)).cloned()
}

/// Makes dumps until a goroutine of this name is in the expected state.
fn until(name: &str, does: impl Fn(&GoroutineInfo) -> bool) -> GoroutineInfo {
    loop {
        if let Some(info) = find(&dump(), name).filter(&does) {
            return info;
        }
        gosched();
    }
}

/// Makes dumps until each worker has answered.
fn whole_dump() -> Dump {
    loop {
        let dump = dump();
        if dump.silent_workers.is_empty() {
            return dump;
        }
    }
}

#[test]
fn what_a_goroutine_does() {
    let _watchdog = Watchdog::new();
    #[inline(never)]
    fn here_a_reader_waits(rx: &sudog::chan::Receiver<u32>) {
        _ = rx.recv();
    }
    run(|| {
        let (tx, rx) = channel(0);
        let line = line!() + 1;
        Builder::new().name("dump-reader").go(move || here_a_reader_waits(&rx));
        let reader = until("dump-reader", |info| info.state == GoroutineState::Waiting);
        assert_eq!(reader.wait_reason, "chan receive");
        assert!(!reader.has_deadline && reader.holders.is_empty());
        assert!(reader.started_as.contains("dump::what_a_goroutine_does::"), "{reader:?}");
        let text = reader.to_string();
        assert!(text.starts_with(&format!("goroutine {} \"dump-reader\" [chan receive, ", reader.id)), "{text}");
        if OBSERVED {
            let place = reader.created_at.unwrap();
            assert_eq!((place.file(), place.line()), (file!(), line));
            assert!(text.contains(&format!("created at {}:{line}:", file!())), "{text}");
            assert!(text.contains("dump::what_a_goroutine_does::here_a_reader_waits"), "{text}");
            assert!(!text.contains("sudog_runtime::") && !text.contains("corosensei"), "{text}");
        }
        drop(tx);

        let stop = Arc::new(AtomicBool::new(false));
        let (slept, stopped) = (stop.clone(), stop.clone());
        // Sleep again and again: a dump may take long, beside other tests.
        Builder::new().name("dump-sleeper").go(move || {
            while !slept.load(Relaxed) {
                sleep(Duration::from_millis(10))
            }
        });
        assert!(until("dump-sleeper", |info| info.wait_reason == "sleep").has_deadline);
        Builder::new().name("dump-yielder").go(move || {
            while !stopped.load(Relaxed) {
                gosched()
            }
        });
        let yielder = until("dump-yielder", |info| info.state != GoroutineState::Waiting);
        assert_eq!((yielder.wait_reason, yielder.waited), ("", Duration::ZERO));
        stop.store(true, Relaxed);
    });
}

/// A wait that has no name begins at its own time, and has no part of an earlier wait, even if that wait was over before
/// the goroutine suspended.
#[test]
fn a_wait_without_a_name() {
    let _watchdog = Watchdog::new();
    static OLD: AtomicU32 = AtomicU32::new(0);
    static NEW: AtomicU32 = AtomicU32::new(0);
    run(|| {
        Builder::new().name("dump-old").go(|| semacquire(&OLD));
        until("dump-old", |info| info.waited > Duration::from_millis(300));
        let begun = Instant::now();
        drop(dump()); // the clock of waits is exact
        Builder::new().name("dump-new").go(|| {
            sudog_runtime::note_wait("a wait that is over at once");
            assert_eq!(G::current().park(Some(Instant::now()), || ()), ParkResult::TimedOut);
            sudog_runtime::note_wait("a wait that ends before the goroutine suspends");
            let g = G::current();
            // SAFETY: `g` is alive and about to park, and this is the only `ready` for that `park`.
            assert_eq!(g.park(None, || unsafe { G::ready(&raw const g) }), ParkResult::Unparked);
            semacquire(&NEW);
        });
        let info = until("dump-new", |info| info.state == GoroutineState::Waiting);
        assert_eq!(info.wait_reason, "");
        assert!(info.waited <= begun.elapsed() + Duration::from_millis(1), "{info} after {:?}", begun.elapsed());
        semrelease(&OLD, Wake::Normal);
        semrelease(&NEW, Wake::Normal);
    });
}

#[test]
fn who_holds_a_mutex() {
    let _watchdog = Watchdog::new();
    run(|| {
        let mutex = Arc::new(Mutex::new(()));
        let (theirs, (tx, rx)) = (mutex.clone(), channel::<()>(0));
        Builder::new().name("dump-keeper").go(move || {
            let _guard = theirs.lock();
            _ = rx.recv();
        });
        let keeper = until("dump-keeper", |info| info.wait_reason == "chan receive");
        Builder::new().name("dump-waiter").go(move || drop(mutex.lock()));
        let waiter = until("dump-waiter", |info| info.wait_reason == "sync.Mutex.Lock");
        // The mutex knows its holder only in builds with debug assertions.
        assert_eq!(waiter.holders, Vec::from_iter(cfg!(debug_assertions).then_some(keeper.id)));
        let text = whole_dump().to_string();
        let held = format!(", held by goroutine {} \"dump-keeper\"\n", keeper.id);
        assert_eq!(text.contains(&held), cfg!(debug_assertions), "{text}");
        drop(tx);
    });
}

#[test]
fn who_holds_a_readers_writer_mutex() {
    let _watchdog = Watchdog::new();
    run(|| {
        let rw = Arc::new(RwMutex::new(()));
        let (tx, rx) = channel::<()>(0);
        let mut readers = ["dump-reads", "dump-reads-too"].map(|name| {
            let (theirs, rx) = (rw.clone(), rx.clone());
            Builder::new().name(name).go(move || {
                let _guard = theirs.read();
                _ = rx.recv();
            });
            until(name, |info| info.wait_reason == "chan receive").id
        });
        readers.sort_unstable();
        let theirs = rw.clone();
        Builder::new().name("dump-writes").go(move || drop(theirs.write()));
        let writer = until("dump-writes", |info| info.wait_reason == "sync.RWMutex.Lock");
        Builder::new().name("dump-waits-behind").go(move || drop(rw.read()));
        let behind = until("dump-waits-behind", |info| info.wait_reason == "sync.RWMutex.RLock");
        if cfg!(debug_assertions) {
            assert_eq!((&writer.holders[..], &behind.holders[..]), (&readers[..], &[writer.id][..]));
            let text = writer.to_string();
            assert!(text.contains(&format!(", held by goroutines {}, {}\n", readers[0], readers[1])), "{text}");
        } else {
            assert!(writer.holders.is_empty() && behind.holders.is_empty());
        }
        drop(tx);
    });
}

/// Each poll of a task has an id of its own. After the poll has ended, that id names no holder of a lock.
#[test]
#[allow(clippy::await_holding_lock)] // that is what is tested
fn a_task_that_holds_a_mutex_is_not_known() {
    let _watchdog = Watchdog::new();
    run(|| {
        let mutex = Arc::new(Mutex::new(()));
        let (theirs, (tx, rx)) = (mutex.clone(), channel::<()>(0));
        let task = spawn_async(async move {
            let _guard = theirs.lock();
            _ = rx.recv_async().await;
        });
        while !mutex.is_locked() {
            gosched();
        }
        Builder::new().name("dump-waits-for-task").go(move || drop(mutex.lock()));
        let waiter = until("dump-waits-for-task", |info| info.waited > Duration::from_millis(500));
        assert!(waiter.holders.is_empty() && !waiter.is_stuck, "{waiter}");
        drop(tx);
        task.join().unwrap();
    });
}

#[test]
fn leaks_and_goroutines_that_are_stuck() {
    let _watchdog = Watchdog::new();
    const LONG: Duration = Duration::from_millis(300);
    run(|| {
        let (tx, rx) = channel::<()>(0);
        for _ in 0..2 {
            let rx = rx.clone();
            Builder::new().name("leak-receives").go(move || _ = rx.recv());
        }
        let (mutex, other) = (Arc::new(GoMutex::new()), Arc::new(GoMutex::new()));
        let theirs = mutex.clone();
        Builder::new().spawn(move || theirs.lock()).join().unwrap();
        let (first, second) = (mutex.clone(), other.clone());
        Builder::new().name("leak-waits-for-ended").go(move || {
            second.lock();
            first.lock();
            second.unlock();
        });
        until("leak-waits-for-ended", |info| info.wait_reason == "sync.Mutex.Lock");
        Builder::new().name("leak-waits-behind").go(move || other.lock());
        Builder::new().name("leak-sleeps").spawn(|| sleep(4 * LONG)).join().unwrap();
        // A dump marks no goroutine if a worker does not answer in time, when asked again.
        let leaks = loop {
            let leaks = whole_dump().leaks(LONG);
            if !cfg!(debug_assertions) || find(&leaks, "leak-waits-behind").is_some_and(|info| info.is_stuck) {
                break leaks;
            }
        };
        let names = |is_stuck| {
            let infos = leaks.goroutines.iter().filter(|info| info.is_stuck == is_stuck);
            let mut names: Vec<_> =
                infos.filter_map(|info| info.name.as_deref()).filter(|name| name.starts_with("leak-")).collect();
            names.sort_unstable();
            names
        };
        let (receive, wait) = (["leak-receives", "leak-receives"], ["leak-waits-behind", "leak-waits-for-ended"]);
        if cfg!(debug_assertions) {
            assert_eq!((names(true), names(false)), (wait.to_vec(), receive.to_vec()), "{leaks}");
            let text = find(&leaks, "leak-waits-behind").unwrap().to_string();
            assert!(text.contains("s, stuck], held by goroutine "), "{text}");
        } else {
            assert_eq!((names(true), names(false)), (vec![], [receive, wait].concat()), "{leaks}");
        }
        assert!(whole_dump().leaks(Duration::MAX).goroutines.is_empty());
        mutex.unlock();
        drop(tx);
    });
}

/// A thread that waits is listed, with the holder of the mutex, as long as it waits.
#[test]
fn threads_that_wait() {
    let _watchdog = Watchdog::new();
    let mutex = Arc::new(Mutex::new(()));
    let ((tx, rx), (told, holder)) = (channel::<()>(0), channel::<String>(0));
    let theirs = mutex.clone();
    let main = thread::spawn(move || {
        run(|| {
            let _guard = theirs.lock();
            told.send(current_goroutine().unwrap()).unwrap();
            _ = rx.recv();
        });
    });
    let holder = holder.recv().unwrap();
    let held = format!(" s], held by goroutine {holder}");
    let waiter = thread::Builder::new().name("dump-thread".into()).spawn(move || drop(mutex.lock())).unwrap();
    let waits = if cfg!(target_os = "linux") { " \"dump-thread\" [sync.Mutex.Lock, " } else { " [sync.Mutex.Lock, " };
    let is_listed = || {
        let threads = |line: &str| line.starts_with("thread ") && line.contains(waits) && line.ends_with(&held);
        dump().to_string().lines().any(threads)
    };
    if OBSERVED {
        eventually(is_listed);
        // The thread of the holder waits for the result of `run`.
        assert!(dump().to_string().lines().any(|line| line.starts_with("thread ") && line.contains(" [run, ")));
    }
    drop(tx);
    waiter.join().unwrap();
    main.join().unwrap();
    assert!(!is_listed());
}

/// Async tasks are listed, with what they wait for, as long as they exist.
#[test]
fn tasks_that_wait() {
    let _watchdog = Watchdog::new();
    async fn a_task_receives(rx: sudog::chan::Receiver<u32>) {
        _ = rx.recv_async().await;
    }
    run(|| {
        let (tx, rx) = channel(0);
        let mutex = Arc::new(Mutex::new(()));
        let (theirs, held) = (mutex.clone(), mutex.lock());
        let line = line!() + 1;
        let receives = spawn_async(a_task_receives(rx));
        let locks = spawn_async(async move { drop(theirs.lock_async().await) });
        let waits = spawn_async(std::future::poll_fn(|cx| {
            FOREIGN.lock().replace(cx.waker().clone());
            if FOREIGN_IS_OVER.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending }
        }));
        static FOREIGN: Mutex<Option<Waker>> = Mutex::new(None);
        static FOREIGN_IS_OVER: AtomicBool = AtomicBool::new(false);
        // Returns the first line on each task of this test.
        let tasks = || {
            let text = dump().to_string();
            let lines: Vec<_> = text.lines().map(str::to_owned).collect();
            let is_ours = |at: usize| {
                lines.get(at + 1).is_some_and(|line| {
                    line.contains("::dump::a_task_receives") || line.contains("::tasks_that_wait::")
                })
            };
            let of_tasks = (0..lines.len()).filter(|&at| lines[at].starts_with("task ") && is_ours(at));
            of_tasks.map(|at| (lines[at].clone(), lines[at + 2].clone())).collect::<Vec<_>>()
        };
        if OBSERVED {
            for reason in [" [chan receive, ", " [sync.Mutex.Lock, ", " [waiting, "] {
                eventually(|| tasks().iter().any(|(task, _)| task.contains(reason)));
            }
            let place = format!("    created at {}:{line}:24", file!());
            assert!(
                tasks().iter().any(|(task, created)| task.contains("[chan receive") && *created == place),
                "{:?}",
                tasks()
            );
        }
        eventually(|| FOREIGN.lock().is_some());
        drop((tx, held));
        FOREIGN_IS_OVER.store(true, Relaxed);
        FOREIGN.lock().take().unwrap().wake();
        [receives, locks, waits].into_iter().for_each(|task| task.join().unwrap());
        assert!(tasks().is_empty());
    });
}

/// All that wait for the same object have the same address. A thread that waits for a lock has the place of its call.
#[test]
fn the_object_of_a_wait() {
    let _watchdog = Watchdog::new();
    async fn a_task_locks(mutex: Arc<Mutex<()>>) {
        drop(mutex.lock_async().await);
    }
    async fn a_task_takes(rx: sudog::chan::Receiver<u32>) {
        _ = rx.recv_async().await;
    }
    const LONG: Duration = Duration::from_secs(3600);
    run(|| {
        let (mutex, rw) = (Arc::new(Mutex::new(())), Arc::new(RwMutex::new(())));
        let (tx, rx) = channel(0);
        let (locked, read) = (mutex.lock(), rw.read());
        let (ours, theirs) = (mutex.clone(), rx.clone());
        Builder::new().name("object-locks").go(move || drop(ours.lock()));
        Builder::new().name("object-takes").go(move || _ = theirs.recv());
        let ours = rw.clone();
        Builder::new().name("object-writes").go(move || drop(ours.write()));
        // Returns the description of the waiter with `name`. A description begins with a line that is not indented.
        let about = |name: &str| {
            let text = dump().to_string();
            let texts = text.replace("\ngoroutine ", "\0").replace("\nthread ", "\0").replace("\ntask ", "\0");
            texts.split('\0').find(|text| text.contains(name)).map(str::to_owned)
        };
        let object_of = |name: &str| loop {
            let text = about(name);
            let lines = text.iter().flat_map(|text| text.lines());
            if let Some(object) = lines.filter_map(|line| line.strip_prefix("    waits for the object at 0x")).next() {
                break object.to_owned();
            }
            gosched();
        };
        // A mutex has an address in builds with debug assertions only.
        let waiters =
            if OBSERVED { &["object-takes\"", "object-locks\"", "object-writes\""][..] } else { &["object-takes\""] };
        let objects: Vec<_> = waiters.iter().map(|name| object_of(name)).collect();
        let mut tasks = Vec::new();
        let mut threads = Vec::new();
        if OBSERVED {
            assert!(objects[0] != objects[1] && objects[1] != objects[2] && objects[2] != objects[0], "{objects:?}");
            // A reader waits for the next writer, which waits for readers.
            let (ours, line) = (rw.clone(), line!() + 1);
            threads.push(thread::spawn(move || drop(ours.read())));
            assert_eq!(object_of(&format!("waits at {}:{line}:", file!())), objects[2]);
            let (ours, line) = (mutex.clone(), line!() + 1);
            threads.push(thread::spawn(move || drop(ours.try_lock_for(LONG))));
            assert_eq!(object_of(&format!("waits at {}:{line}:", file!())), objects[1]);
            // The system gives a thread without a name the name of the thread that started it, here of a worker. The dump
            // leaves that name out.
            let text = about(&format!("waits at {}:{line}:", file!())).unwrap();
            assert!(!text.contains("\"sudog-"), "{text}");
            // A writer that waits for another writer waits for a mutex inside `rw`. The dump names the call that locks `rw`.
            let (ours, line) = (rw.clone(), line!() + 1);
            threads.push(thread::spawn(move || drop(ours.write())));
            object_of(&format!("waits at {}:{line}:", file!()));
            tasks.push(spawn_async(a_task_locks(mutex.clone())));
            assert_eq!(object_of("::a_task_locks"), objects[1]);
            tasks.push(spawn_async(a_task_takes(rx.clone())));
            assert_eq!(object_of("::a_task_takes"), objects[0]);
            // A thread that has locked, and waits for something else, waits at no lock.
            let (ours, rx, told) = (Arc::new(Mutex::new(())), rx.clone(), channel(1));
            threads.push(
                thread::Builder::new()
                    .name("object-thread".into())
                    .spawn(move || {
                        let _guard = ours.lock();
                        told.0.send(()).unwrap();
                        _ = rx.recv();
                    })
                    .unwrap(),
            );
            told.1.recv().unwrap();
            if cfg!(target_os = "linux") {
                assert_eq!(object_of("object-thread"), objects[0]);
                assert!(!about("object-thread").unwrap().contains("waits at"));
            }
        }
        drop((tx, locked, read));
        tasks.into_iter().for_each(|task| task.join().unwrap());
        blocking(|| threads.into_iter().for_each(|thread| thread.join().unwrap()));
    });
}

/// A task that waits in a poll, the blocking way, is among the goroutines.
#[test]
fn a_task_that_blocks() {
    let _watchdog = Watchdog::new();
    run(|| {
        let mutex = Arc::new(Mutex::new(()));
        let (theirs, held) = (mutex.clone(), mutex.lock());
        let task = spawn_async(async move { drop(theirs.lock()) });
        let polled = || {
            let dump = dump();
            let poll = dump
                .goroutines
                .iter()
                .find(|info| info.started_as == "a task" && info.wait_reason == "sync.Mutex.Lock");
            poll.is_some_and(|poll| {
                let by = format!(" [polled by goroutine {}]\n", poll.id);
                !OBSERVED || dump.to_string().contains(&by)
            })
        };
        eventually(polled);
        drop(held);
        task.join().unwrap();
    });
}

/// Tests with more goroutines than a worker describes between two of its scheduling choices.
#[test]
fn each_of_many_is_listed_once() {
    let _watchdog = Watchdog::new();
    const MANY: usize = 600;
    run(|| {
        let group = Arc::new(WaitGroup::new());
        let (tx, rx) = channel::<()>(0);
        for _ in 0..MANY {
            let rx = rx.clone();
            group.go(move || _ = rx.recv());
        }
        let is_ours = |info: &&GoroutineInfo| {
            info.started_as.contains("each_of_many_is_listed_once") && info.wait_reason == "chan receive"
        };
        let mut ids: Vec<u64>;
        let whole = loop {
            let dump = dump();
            ids = dump.goroutines.iter().filter(is_ours).map(|info| info.id).collect();
            if ids.len() >= MANY {
                break dump;
            }
        };
        let groups = whole.groups();
        let ours = groups.iter().find(|group| is_ours(&group.longest)).unwrap();
        assert_eq!(ours.count, MANY);
        assert!(whole.goroutines.iter().filter(is_ours).all(|info| info.waited <= ours.longest.waited));
        let text = ours.to_string();
        assert!(text.starts_with("600 goroutines; the one that has waited longest:\ngoroutine "), "{text}");
        assert!(groups.is_sorted_by(|a, b| a.count >= b.count));
        assert_eq!(groups.iter().map(|group| group.count).sum::<usize>(), whole.goroutines.len());
        assert_eq!(ids.len(), MANY);
        assert!(ids.is_sorted_by(|a, b| a < b));
        drop(tx);
        group.wait();
    });
}

/// Goroutines wait, end and begin, with stacks that are freed, and threads wait, while threads and goroutines make dumps.
#[test]
fn the_program_goes_on() {
    let _watchdog = Watchdog::new();
    const ROUNDS: u64 = 300;
    static SUM: AtomicU64 = AtomicU64::new(0);
    run(|| {
        let group = Arc::new(WaitGroup::new());
        let (tx, rx) = channel::<u64>(0);
        for _ in 0..4 {
            let (tx, rx) = (tx.clone(), rx.clone());
            group.go(move || (0..ROUNDS).for_each(|i| tx.send(i).unwrap()));
            group.go(move || {
                (0..ROUNDS).for_each(|_| _ = SUM.fetch_add(rx.recv().unwrap(), Relaxed));
            });
        }
        group.go(|| (0..20).for_each(|_| sleep(Duration::from_millis(1))));
        group.go(|| {
            for _ in 0..50 {
                let sized = Builder::new().stack_size(64 << 10).spawn(gosched);
                sized.join().unwrap();
            }
        });
        let mutex = Arc::new(Mutex::new(0_u64));
        let add = |mutex: Arc<Mutex<u64>>| move || (0..ROUNDS).for_each(|_| *mutex.lock() += 1);
        let adding: Vec<_> = (0..2).map(|_| thread::spawn(add(mutex.clone()))).collect();
        (0..2).for_each(|_| group.go(add(mutex.clone())));
        let dumping: Vec<_> = (0..2).map(|_| thread::spawn(|| (0..20).map(|_| dump()).collect::<Vec<_>>())).collect();
        group.go(|| (0..20).for_each(|_| drop(dump())));
        group.wait();
        for dumps in dumping {
            for dump in blocking(|| dumps.join().unwrap()) {
                assert!(dump.goroutines.is_sorted_by(|a, b| a.id < b.id), "{dump}");
            }
        }
        adding.into_iter().for_each(|thread| blocking(|| thread.join().unwrap()));
        assert_eq!(*mutex.lock(), 4 * ROUNDS);
    });
    assert_eq!(SUM.load(Relaxed), 4 * ROUNDS * (ROUNDS - 1) / 2);
}

#[test]
fn from_wherever() {
    let _watchdog = Watchdog::new();
    let (tx, rx) = channel::<()>(0);
    Builder::new().name("dump-other").go(move || _ = rx.recv());
    // Dump from a thread.
    eventually(|| find(&dump(), "dump-other").is_some_and(|info| info.state == GoroutineState::Waiting));
    // Dump from a goroutine that may not switch, and so is running.
    Builder::new().name("dump-fixed").run(|| {
        let dump = without_switching(whole_dump);
        assert_eq!(find(&dump, "dump-fixed").unwrap().state, GoroutineState::Running);
        assert!(find(&dump, "dump-other").is_some());
    });
    // Dump from a goroutine that waits for the dump.
    Builder::new().name("dump-caller").run(|| {
        assert_eq!(find(&whole_dump(), "dump-caller").unwrap().wait_reason, "dump");
    });
    synctest::test(|| assert!(find(&whole_dump(), "dump-other").is_some()));
    drop(tx);
}

#[test]
fn a_worker_that_does_not_answer() {
    let _watchdog = Watchdog::new();
    let _alone = alone_with(2);
    static COMPUTES: AtomicBool = AtomicBool::new(true);
    run(|| {
        static RUNS: AtomicBool = AtomicBool::new(false);
        let hog = Builder::new().name("dump-hog").spawn(|| {
            RUNS.store(true, Relaxed);
            while COMPUTES.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
        let dump = blocking(|| {
            eventually(|| RUNS.load(Relaxed));
            let mut last = dump();
            // Another worker may answer late, too.
            while last.silent_workers.len() != 1 || find(&last, "dump-hog").is_some() {
                last = dump();
            }
            COMPUTES.store(false, Relaxed); // the main goroutine may be on the same worker
            last
        });
        assert!(dump.to_string().contains(" has not answered: "), "{dump}");
        hog.join().unwrap();
    });
}
