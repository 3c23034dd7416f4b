//! Reading and writing as futures: fibres without a stack, in the same lists as goroutines and threads.
//!
//! | stage | the waiter | on poll | on drop |
//! |---|---|---|---|
//! | `New` | is in no list | meets a partner, or hangs: `Hangs` | a write drops its value |
//! | `Hangs` | is in the list of its channel, or taken by a G that is about to ready the waiter | registers the waker; if readied: `Over` | leaves the list. A read that was met leaves its value in its end. A write that was not met drops its value |
//! | `Over` | is in no list | panics | nothing |
//!
//! A task hangs without a limit, so its end does not count while the future hangs. A task belongs to no active set.
//!
//! The waker is registered after the channel has been unlocked, because a waker's `clone` is user code. A `ready` that
//! comes before the registration sets a flag in the G, which the poll then finds.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use sudog_runtime::shim::mark;
use sudog_runtime::{Coop, G};

use crate::channel::{Channel, Hanging, Hung, Locked, Met};
use crate::end::End;
use crate::error::{Reclaimed, Unwritten};
use crate::list::{Dir, Place, Waiter};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Hangs,
    Over,
}

/// A waiter with its G, inside a future of a channel's end.
struct TaskWait {
    /// The stage: see the table at the head of this file. While the stage is `Hangs`, `waiter` is initialised, and the
    /// channel is alive.
    stage: Cell<Stage>,
    g: G,
    coop: Coop,
    /// The waiter, which `hang` makes. The field is a cell because partners write to the waiter while it is listed.
    waiter: UnsafeCell<MaybeUninit<Waiter>>,
}

/// The state in which a waiter has left its list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// The waiter has left by itself, or its channel is dead. No partner has used its slot.
    Unmet,
    /// A partner has moved the value.
    Met,
}

impl TaskWait {
    fn new() -> Self {
        let waiter = UnsafeCell::new(MaybeUninit::uninit());
        Self { stage: Cell::new(Stage::New), g: G::task(), coop: Coop::new(), waiter }
    }

    /// Returns true if this is the first poll. Then the future is over, unless `hang` is called. Returns false if the
    /// future hangs.
    ///
    /// # Panics
    ///
    /// Panics if the future is over.
    fn begin(&self) -> bool {
        match self.stage.get() {
            Stage::New => self.stage.set(Stage::Over),
            Stage::Hangs => return false,
            Stage::Over => panic!("a future was polled after it was ready"),
        }
        true
    }

    /// Makes the waiter, puts it into the list of `channel`, and unlocks. If the future's end is the last counted end,
    /// returns the fibres that hang; the caller must wake them.
    ///
    /// # Safety
    ///
    /// - `begin` has just returned true. `locked` is the lock of `channel`, from the `Met::Nobody` that `meet` returned
    ///   for `dir`.
    /// - This value, the slot and the channel stay alive, and the first two in place, until `poll_left` has returned
    ///   `Ready`, or `leave` has returned.
    /// - For a write, the slot has a value; for a read, the slot has room for a value. Only a partner uses the slot
    ///   until then.
    unsafe fn hang<'a>(
        &self,
        channel: &Arc<Channel>,
        locked: Locked<'a>,
        dir: Dir,
        slot: *mut (),
    ) -> Result<(), Hanging<'a>> {
        let waiter = Waiter::new(&raw const self.g, slot, false, Arc::as_ptr(channel), ptr::null());
        // SAFETY: nothing else uses the waiter, because the future was in no list when `begin` was called.
        let waiter = unsafe { (*self.waiter.get()).write(waiter) };
        // SAFETY:
        // - `waiter` is new, so no list contains it. `waiter` stays alive and in place until it has left the list and
        //   has been readied, by the contract of this function. Its set is null.
        // - `waiter.channel` points to `channel`, whose lock is `locked`, from a `Met::Nobody` for `dir`.
        match unsafe { locked.hang(dir, waiter) } {
            Hung::Listed(listed) => {
                self.stage.set(Stage::Hangs);
                listed.unlock();
                Ok(())
            }
            Hung::Last(others) => Err(others),
            Hung::SetIsClosed => unreachable!("a task belongs to no set"),
        }
    }

    /// Returns the waiter of a future that hangs.
    fn waiter(&self) -> &Waiter {
        assert!(self.stage.get() == Stage::Hangs, "a future that does not hang has no waiter");
        // SAFETY: the stage is `Hangs`, so `hang` has made the waiter, which is changed only through its cells.
        unsafe { (*self.waiter.get()).assume_init_ref() }
    }

    /// Ends the future, whose waiter has been readied.
    fn readied(&self) -> Left {
        let met = self.waiter().place.get() == Place::Met;
        self.stage.set(Stage::Over);
        if met { Left::Met } else { Left::Unmet }
    }

    /// Returns how the waiter has left, if another G has readied it; then the future is over. If this returns
    /// `Pending`, the waker will be woken.
    fn poll_left(&self, waker: &Waker) -> Poll<Left> {
        if !self.g.poll_ready(waker) {
            return Poll::Pending;
        }
        let left = self.readied();
        mark(if left == Left::Met { "a task is met" } else { "a task is reclaimed" });
        Poll::Ready(left)
    }

    /// Takes the waiter of a future that hangs out of its list, or waits for the `ready` of the G that has taken the
    /// waiter. Then the future is over.
    fn leave(&self, channel: &Channel) -> Left {
        // SAFETY: the waiter is alive, and was put into the list of `channel`, which is the channel of this future.
        if unsafe { channel.leave(self.waiter()) } {
            mark("a task is dropped while it hangs");
            self.stage.set(Stage::Over);
            return Left::Unmet;
        }
        self.g.await_ready();
        let left = self.readied();
        mark(if left == Left::Met {
            "a task is dropped when it has been met"
        } else {
            "a task is dropped when reclaimed"
        });
        left
    }
}

/// A future that reads a value. Made by [`End::read_async`].
///
/// The future may be dropped at any time, and a dropped future has read nothing: if a writer has given a value to the
/// future just before the drop, the value stays in the end, for the next read of that end. The drop may have to wait for
/// a write that is under way on another thread.
///
/// A future that has been polled must be polled again when its waker is woken, or be dropped. A leaked future hangs for
/// ever, and swallows the value that a writer gives to the future.
#[must_use = "a future does nothing unless polled"]
pub struct ReadFuture<'a, T> {
    end: &'a mut End<T>,
    wait: TaskWait,
    /// The room into which a writer moves the value, while the waiter is listed.
    slot: UnsafeCell<MaybeUninit<T>>,
    _pinned: PhantomPinned,
}

// SAFETY: the fields of `wait` and the slot are read and written under the channel's lock while the waiter is listed; by
// the G that has taken the waiter, until it readies the waiter; and otherwise by the owner of the future. The owner may
// move the future to another thread, as any value. The future's G is a task. Such a G is not bound to a thread: it
// contains only a lock around a flag and a waker, and both are `Send`. The end, and a value in the slot, are sent with
// the future, and are `Send` if `T` is.
unsafe impl<T: Send> Send for ReadFuture<'_, T> {}
// SAFETY: a shared reference to this future permits no operation.
unsafe impl<T> Sync for ReadFuture<'_, T> {}

impl<T> Future for ReadFuture<'_, T> {
    type Output = Result<T, Reclaimed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, Reclaimed>> {
        let this = self.as_ref().get_ref();
        ready!(this.wait.coop.poll_proceed(cx));
        if this.wait.begin() {
            let channel = &this.end.channel;
            if let Some(value) = this.end.unread.take() {
                mark("a value that a dropped task was given is read");
                return Poll::Ready(Ok(*value));
            }
            match channel.meet(Dir::Read) {
                // SAFETY: `writer` was taken out of this end's channel here, for a read, and is not used afterwards.
                Met::Partner(writer) => return Poll::Ready(Ok(unsafe { writer.take_value() })),
                Met::Dead => return Poll::Ready(Err(Reclaimed)),
                Met::Nobody(locked) => {
                    let slot = this.slot.get().cast();
                    // SAFETY:
                    // - `begin` has returned true. `locked` is the lock of `channel`, from a `meet` for reading.
                    // - The future is pinned, and its drop leaves the list, so the waiter and the slot stay in place.
                    //   The end, which this future borrows, keeps the channel alive.
                    // - The slot has room, and is used by this future after `Left::Met` only.
                    if let Err(others) = unsafe { this.wait.hang(channel, locked, Dir::Read, slot) } {
                        others.wake(channel);
                        return Poll::Ready(Err(Reclaimed));
                    }
                }
            }
        }
        match ready!(this.wait.poll_left(cx.waker())) {
            // SAFETY: a writer has moved a value into the slot. The future is over, so the value is read once.
            Left::Met => Poll::Ready(Ok(unsafe { (*this.slot.get()).assume_init_read() })),
            Left::Unmet => Poll::Ready(Err(Reclaimed)),
        }
    }
}

impl<T> Drop for ReadFuture<'_, T> {
    fn drop(&mut self) {
        if self.wait.stage.get() == Stage::Hangs && self.wait.leave(&self.end.channel) == Left::Met {
            // SAFETY: a writer has moved a value into the slot. The future is over, so the value is read once.
            let value = unsafe { (*self.slot.get()).assume_init_read() };
            self.end.unread.set(Some(Box::new(value)));
        }
    }
}

/// A future that writes a value. Made by [`End::write_async`].
///
/// The future may be dropped at any time. Then a reader has read the value, or the value is dropped with the future. The
/// drop may have to wait for a read that is under way on another thread.
///
/// A future that has been polled must be polled again when its waker is woken, or be dropped.
#[must_use = "a future does nothing unless polled"]
pub struct WriteFuture<'a, T> {
    end: &'a mut End<T>,
    wait: TaskWait,
    /// The value, if the stage is `New` or `Hangs`. While the waiter is listed, a reader moves the value out.
    slot: UnsafeCell<MaybeUninit<T>>,
    _pinned: PhantomPinned,
}

// SAFETY: as for `ReadFuture`: the fields have one user at a time, and the end and the value are sent with the future.
unsafe impl<T: Send> Send for WriteFuture<'_, T> {}
// SAFETY: a shared reference to this future permits no operation.
unsafe impl<T> Sync for WriteFuture<'_, T> {}

impl<T> WriteFuture<'_, T> {
    /// Moves the value out of the slot.
    ///
    /// # Safety
    ///
    /// The slot has a value, which nothing else uses, now or later.
    unsafe fn value(&self) -> T {
        // SAFETY: the slot has a value, which is read once, by the contract of this function.
        unsafe { (*self.slot.get()).assume_init_read() }
    }
}

impl<T> Future for WriteFuture<'_, T> {
    type Output = Result<(), Unwritten<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Unwritten<T>>> {
        let this = self.as_ref().get_ref();
        let reclaimed = |value| Poll::Ready(Err(Unwritten { value, why: Reclaimed }));
        ready!(this.wait.coop.poll_proceed(cx));
        if this.wait.begin() {
            let channel = &this.end.channel;
            match channel.meet(Dir::Write) {
                Met::Partner(reader) => {
                    // SAFETY: the stage was `New`, so the slot has a value; now the stage is `Over`. `reader` was taken
                    // out of this end's channel here, for a write, and is not used afterwards.
                    unsafe { reader.give_value(this.value()) };
                    return Poll::Ready(Ok(()));
                }
                // SAFETY: the stage was `New`, so the slot has a value; now the stage is `Over`.
                Met::Dead => return reclaimed(unsafe { this.value() }),
                Met::Nobody(locked) => {
                    let slot = this.slot.get().cast();
                    // SAFETY:
                    // - `begin` has returned true. `locked` is the lock of `channel`, from a `meet` for writing.
                    // - The future is pinned, and its drop leaves the list, so the waiter and the slot stay in place.
                    //   The end, which this future borrows, keeps the channel alive.
                    // - The slot has a value, and is used by this future after `Left::Unmet` only.
                    if let Err(others) = unsafe { this.wait.hang(channel, locked, Dir::Write, slot) } {
                        // If a waker of the others panics, the value is dropped.
                        // SAFETY: the slot has a value, and the stage is `Over`.
                        let value = unsafe { this.value() };
                        others.wake(channel);
                        return reclaimed(value);
                    }
                }
            }
        }
        match ready!(this.wait.poll_left(cx.waker())) {
            Left::Met => Poll::Ready(Ok(())),
            // SAFETY: no reader has moved the value out of the slot, and the stage is `Over`.
            Left::Unmet => reclaimed(unsafe { this.value() }),
        }
    }
}

impl<T> Drop for WriteFuture<'_, T> {
    fn drop(&mut self) {
        let has_value = match self.wait.stage.get() {
            Stage::New => true,
            Stage::Hangs => self.wait.leave(&self.end.channel) == Left::Unmet,
            Stage::Over => false,
        };
        if has_value {
            // SAFETY: the slot has a value, which no reader has moved out, and which nothing uses afterwards.
            drop(unsafe { self.value() });
        }
    }
}

impl<T> End<T> {
    /// Returns a future that reads a value, as [`read`](End::read) does: for async tasks. A task that hangs has no
    /// stack: only its future is kept.
    ///
    /// A task that hangs counts as a fibre that never gives up, and is reclaimed when no partner can come. A task that
    /// may drop the future, and use the end afterwards, may be that partner: such a task keeps a
    /// [duplicate](End::dup) of the end, which counts.
    ///
    /// The task belongs to no [`ActiveSet`](crate::ActiveSet).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use sudog::csp::make_channel;
    /// use sudog::{run, spawn_async};
    ///
    /// let squares = run(|| {
    ///     let [mut numbers, mut input] = make_channel::<u64, 2>();
    ///     let [mut output, mut results] = make_channel::<u64, 2>();
    ///     spawn_async(async move {
    ///         for n in 0..5 {
    ///             numbers.write_async(n).await.unwrap();
    ///         }
    ///     });
    ///     spawn_async(async move {
    ///         while let Ok(n) = input.read_async().await {
    ///             output.write_async(n * n).await.unwrap();
    ///         }
    ///     });
    ///     let mut squares = Vec::new();
    ///     while let Ok(n) = results.read() {
    ///         squares.push(n);
    ///     }
    ///     squares
    /// });
    /// assert_eq!(squares, [0, 1, 4, 9, 16]);
    /// # }
    /// ```
    pub fn read_async(&mut self) -> ReadFuture<'_, T> {
        let slot = UnsafeCell::new(MaybeUninit::uninit());
        ReadFuture { end: self, wait: TaskWait::new(), slot, _pinned: PhantomPinned }
    }

    /// Returns a future that writes a value, as [`write`](End::write) does: for async tasks, under the conditions of
    /// [`read_async`](End::read_async). A reader that is a task does not run first: the waker decides when.
    ///
    /// # Examples
    ///
    /// ```
    /// use sudog::block_on;
    /// use sudog::csp::make_channel;
    ///
    /// let [mut ours, theirs] = make_channel::<u32, 2>();
    /// drop(theirs);
    /// assert_eq!(block_on(ours.write_async(7)).unwrap_err().value, 7); // no other end is left
    /// ```
    pub fn write_async(&mut self, value: T) -> WriteFuture<'_, T> {
        let slot = UnsafeCell::new(MaybeUninit::new(value));
        WriteFuture { end: self, wait: TaskWait::new(), slot, _pinned: PhantomPinned }
    }
}

impl<T> fmt::Debug for ReadFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("ReadFuture { .. }")
    }
}

impl<T> fmt::Debug for WriteFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("WriteFuture { .. }")
    }
}
