//! The threads that wait, for dumps and for the search for cycles of waits.
//!
//! While switches are observed, a thread that waits is in a list: a thread that is no worker, or a worker whose goroutine
//! waits where the goroutine may not switch. The list's entry is on the stack of the waiting thread, so a wait allocates
//! nothing. Entries are linked and unlinked under the lock of the list. A dump copies the entries under that lock, and
//! reads the names of the threads afterwards.

use crate::shim::system;
use crate::shim::system::Mutex;
use std::cell::Cell;
use std::panic::Location;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::goroutine::native::fibre::wait::Wait;
use crate::goroutine::native::sched::clock;
use crate::list::{self, Links, List};
use crate::lock_order::{self, Holder};
use crate::shim::system::atomic::Ordering;

/// A waiting thread.
struct Entry {
    /// The system's number of the thread.
    id: u64,
    /// The [`holder_id`](lock_order::holder_id) of the waiter: the thread, or the goroutine that waits on the thread. 0 in
    /// builds in which locks do not know their holders.
    waiter: u64,
    wait: Wait,
    /// The call that waits for a lock, if known.
    place: Option<&'static Location<'static>>,
    has_deadline: bool,
    since: Instant,
    links: Links<Entry>,
}

impl list::Entry for Entry {
    fn links(&self) -> &Links<Self> {
        &self.links
    }
}

/// The waiting threads. The entry that was listed last is the first.
static LIST: Mutex<List<Entry>> = Mutex::new(List::new());

system::thread_local! {
    /// The note of the thread's next wait.
    static NOTE: Cell<Wait> = const { Cell::new(Wait::NONE) };
}

/// The most holders of a resource that are listed.
const HOLDERS: usize = 8;

/// A thread as a dump describes it.
#[derive(Clone, Debug)]
pub(super) struct ThreadInfo {
    pub(super) id: u64,
    name: String,
    /// See [`Entry::waiter`].
    pub(super) waiter: u64,
    pub(super) wait_reason: &'static str,
    /// The address of the awaited object; 0 if the object is not known.
    pub(super) object: usize,
    /// The call that waits for a lock, if known.
    pub(super) place: Option<&'static Location<'static>>,
    pub(super) waited: Duration,
    /// The time at which the wait began.
    pub(super) since: Duration,
    pub(super) has_deadline: bool,
    /// The goroutines and threads that hold the awaited resource; 0 after the last.
    holders: [u64; HOLDERS],
}

/// Notes the wait that the calling thread is about to begin.
#[cold]
pub(crate) fn note_wait(wait: Wait) {
    NOTE.set(wait);
}

/// Calls `wait`, in which the calling thread waits, and lists the thread meanwhile. `of_goroutine` is the note of the
/// goroutine that waits on this thread, if a goroutine does.
pub(crate) fn while_listed<T>(of_goroutine: Option<Wait>, has_deadline: bool, wait: impl FnOnce() -> T) -> T {
    /// Unlinks the entry, even if `wait` panics.
    struct Listed<'a>(&'a Entry);
    impl Drop for Listed<'_> {
        fn drop(&mut self) {
            let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the entry was put into this list, and only this drop takes it out.
            unsafe { list.remove(self.0) };
        }
    }
    let entry = Entry {
        id: thread_id(),
        #[cfg(all(debug_assertions, not(sudog_sim)))]
        waiter: lock_order::holder_id(),
        #[cfg(not(all(debug_assertions, not(sudog_sim))))]
        waiter: 0,
        wait: of_goroutine.unwrap_or_else(take_note),
        place: lock_order::place(),
        has_deadline,
        since: system::now(),
        links: Links::new(),
    };
    let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: `entry` is new, and stays in this frame until `Listed` has taken it out of the list, under the lock. A holder
    // of the lock only reads the entry, whose holders are alive: see `Entry::holders`.
    unsafe { list.push_front(&entry) };
    let _listed = Listed(&entry);
    drop(list);
    wait()
}

/// Returns the note of the thread's wait. A note with holders stays until the noted wait has ended, as the thread may be
/// woken in vain, and wait again.
fn take_note() -> Wait {
    let wait = NOTE.get();
    if !wait.knows_holders() {
        NOTE.set(Wait::NONE);
    }
    wait
}

/// Describes the threads that wait, the longest wait first, without their names.
pub(super) fn waiting() -> Vec<ThreadInfo> {
    // Reserve memory outside of the lock: the allocator may be a user's, and may wait.
    let mut infos = Vec::new();
    loop {
        let list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        let count = list.iter().count();
        if count <= infos.capacity() {
            let now = system::now();
            infos.extend(list.iter().map(|entry| entry.info(now)));
            break;
        }
        drop(list);
        infos.reserve(count + 8);
    }
    infos.reverse();
    infos
}

/// Adds the names of the threads. A thread without a name of its own has that of the thread that started it: a worker's, if
/// a goroutine did. Leaves that name out.
pub(super) fn add_names(infos: &mut [ThreadInfo]) {
    let is_of_worker = |name: &str| name.strip_prefix("sudog-").is_some_and(|index| index.parse::<u32>().is_ok());
    for info in infos {
        let name = thread_name(info.id);
        let is_worker = !matches!(lock_order::decode(info.waiter), Holder::Thread);
        info.name = if is_worker || !is_of_worker(&name) { name } else { String::new() };
    }
}

impl Entry {
    /// Copies the ids of the goroutines and threads that hold the awaited resource. Does not allocate, as the list is
    /// locked.
    fn holders(&self) -> [u64; HOLDERS] {
        // SAFETY: there are no holders, or the object is alive until the next `note_wait` of the thread, or of the goroutine that waits
        // on the thread, by the contract of `note_wait`. The thread still waits, as its entry is listed and the list is
        // locked.
        let ids = unsafe { self.wait.holders() }.iter().map(|holder| holder.load(Ordering::Relaxed));
        let mut holders = [0; HOLDERS];
        for (place, id) in holders.iter_mut().zip(ids.filter(|&id| id != 0)) {
            *place = id;
        }
        holders
    }

    fn info(&self, now: Instant) -> ThreadInfo {
        ThreadInfo {
            id: self.id,
            name: String::new(),
            waiter: self.waiter,
            wait_reason: self.wait.what(),
            object: self.wait.object(),
            place: self.place,
            waited: now.saturating_duration_since(self.since),
            since: clock::time_of(self.since),
            has_deadline: self.has_deadline,
            holders: self.holders(),
        }
    }
}

impl ThreadInfo {
    /// Returns the goroutines and threads that hold the awaited resource.
    pub(super) fn holders(&self) -> &[u64] {
        &self.holders[..self.holders.iter().position(|&id| id == 0).unwrap_or(HOLDERS)]
    }

    /// Returns the thread's number and name, as reports print them, and the goroutine that waits on the thread.
    pub(super) fn title(&self) -> String {
        let mut title = format!("thread {}", self.id);
        if !self.name.is_empty() {
            title += &format!(" {:?}", self.name);
        }
        if let Holder::Goroutine(id @ 1..) | Holder::Poll(id) = lock_order::decode(self.waiter) {
            title += &format!(", goroutine {id}");
        }
        title
    }
}

/// Returns the system's number of the calling thread. Does not call `thread::current`, which may allocate.
#[cfg(all(target_os = "linux", not(sudog_sim)))]
fn thread_id() -> u64 {
    // SAFETY: `gettid` takes no arguments and cannot fail.
    unsafe { libc::gettid() as u64 }
}

#[cfg(not(all(target_os = "linux", not(sudog_sim))))]
fn thread_id() -> u64 {
    // SAFETY: `pthread_self` takes no arguments and cannot fail.
    unsafe { libc::pthread_self() as u64 }
}

/// Returns the name that the system has for a thread of this process, at most 15 bytes on Linux; nothing if the thread has
/// ended, or if the system does not say.
#[cfg(all(target_os = "linux", not(sudog_sim)))]
fn thread_name(id: u64) -> String {
    std::fs::read_to_string(format!("/proc/self/task/{id}/comm"))
        .map_or(String::new(), |name| name.trim_end().to_owned())
}

#[cfg(not(all(target_os = "linux", not(sudog_sim))))]
fn thread_name(_: u64) -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::shim::system::atomic::AtomicU64;

    /// A note with holders is for the next wait, too, as a thread may be woken in vain. Another note is for one wait.
    #[test]
    fn a_note_with_holders_stays() {
        let holder = AtomicU64::new(7);
        let object = ptr::from_ref(&holder).cast();
        let info = || {
            let infos = while_listed(None, false, waiting);
            infos.into_iter().find(|info| info.id == thread_id()).expect("it waits")
        };
        let says = |what, object: *const (), holders: &[u64]| {
            let info = info();
            assert_eq!((info.wait_reason, info.object, info.holders()), (what, object.addr(), holders));
        };
        note_wait(Wait::new("lock", object).held_by(std::slice::from_ref(&holder)));
        says("lock", object, &[7]);
        holder.store(0, Ordering::Relaxed);
        says("lock", object, &[]);
        note_wait(Wait::new("other", object));
        says("other", object, &[]);
        says("", ptr::null(), &[]);
        assert!(waiting().iter().all(|info| info.id != thread_id()));
    }
}
