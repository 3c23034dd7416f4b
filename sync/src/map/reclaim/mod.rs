//! Frees the memory of removed entries, lists and nodes, once each operation that may still look at the memory has
//! ended.
//!
//! An operation has a *guard*, in a hazard pointer of its thread (see [`hazard`](crate::hazard)). A guard names the map, not
//! a value: it keeps all memory that the map had when the guard began.
//!
//! | step | an operation |
//! |---|---|
//! | 1 | begins its guard: names the map; fence |
//! | 2 | looks at the trie; may take memory out of the trie, and *retire* the memory: put the memory into the *bag* that the map has for the thread's record |
//! | 3 | ends its guard |
//! | 4 | if the bag has [`BATCH`](collector) objects: takes them as a *batch*; fence; lists the guards that the map has now; lets the batch wait for the ends of these |
//! | 5 | after step 4, or if memory may wait for this guard: frees the batches whose guards have all ended |
//!
//! A batch that no guard keeps at step 4 is not freed at once: its objects are *ready*, and each later operation of the record's owner that
//! retires memory frees one of them. The rest is freed when the next batch is ready. So a thread frees and allocates in turns, which takes
//! two thirds of the time if another thread has allocated the objects (`docs/journal/map.md`).
//!
//! The batches that wait have a lock, for which a guard does not wait: an operation that frees nothing never waits. Destructors run after
//! the last step. No other user code runs under the lock, or while a bag is in use, but the allocator. So the program's allocator must not use
//! maps: it might wait for itself, or panic.
//!
//! # The bias
//!
//! As in [`hazard`](crate::hazard), fences are locked instructions at first. After many operations the map is *biased*: operations
//! execute light fences, which cost nothing, and the next batch executes a heavy fence, and ends the bias.
//! The [state](collector) of a map is unbiased, biased, or *revoking*, in turns.
//!
//! | state | fence of step 1 | fence of step 4 |
//! |---|---|---|
//! | unbiased | the map is named by a locked instruction | none: memory is taken out by a locked instruction |
//! | biased | light. If the map is not biased after that: as above | changes the state to revoking; then as below |
//! | revoking | as in unbiased | heavy; then changes the state to unbiased, unless another batch has done so |
//!
//! # Why it is correct
//!
//! *Memory that a guard may look at is not freed.* Let an operation load the address of an object from the trie, and let the object
//! be taken out afterwards. All these accesses are SeqCst, and the batch that has the object comes later still.
//! * If the guard was named by a locked instruction, the name is before the load in the single order of SeqCst
//!   accesses, and the batch's look at the hazard pointer after it: the batch sees the name, or a later one.
//! * Else the operation has seen that the map is biased, after the light fence. So in the single order the state changes to
//!   revoking after that, and the heavy fence that follows sees the name. The batch sees the state revoking, and executes a heavy
//!   fence; or a later state, and so what the heavy fence of another batch has seen. The batch cannot see an earlier unbiased state, as
//!   the object is taken out after the map was biased.
//!
//! The state counts its changes, so that a batch which is late does not end the revoking of another batch. An entry that was found in a
//! list leaves the map no earlier than that list.
//!
//! *Memory is freed* when the guards that its batch waits for have ended, and those of the batches before: each of these guards is asked to
//! look at the batches at its end. A guard that ends at this very moment may not see this, in a few of a thousand cases. Then the next
//! batch of the map frees the memory, or the end of the map. If the system refuses the heavy fence of a biased map, only the end of
//! the map frees memory. What a bag has before there is a batch stays, too: less than [`BATCH`](collector) objects, or less than there are
//! records; and so do ready objects, at most one batch, until the owner of the record retires more.
//!
//! *Who owns a bag.* Step 2 takes the record of the thread that executes it, only after the user's code has run: a
//! coroutine may have come from another thread while it compared keys. So a bag has one user at a time.
//!
//! *Guards that wait.* `range` calls the user's function under its guard, and that function may wait. So `range`
//! takes a record of its own, and leaves the thread's hazard pointers to others. A guard in which a goroutine waits for
//! ever keeps all memory that is retired from then on.
//!
//! In a model of the trie the implementation is a list: all memory on the list is freed with the map, and no memory may be put on
//! the list twice. The collector has models of its own.

#[cfg(any(not(sudog_loom), test))]
mod collector;
#[cfg(all(test, sudog_loom))]
mod models;
#[cfg(sudog_loom)]
mod stub;
#[cfg(test)]
mod test_slot;
#[cfg(all(test, not(sudog_loom)))]
mod tests;

#[cfg(not(sudog_loom))]
pub(super) use collector::{Collector, Guard};
#[cfg(sudog_loom)]
pub(super) use stub::{Collector, Guard};

/// An object that can be freed given only its address.
pub trait Free {
    /// Frees the object. Does not panic.
    ///
    /// # Safety
    /// `this` came from a box. No operation can reach the object any more. The object is freed once.
    unsafe fn free(this: *mut Self);
}

/// An object that has been retired. Dropping the `Retired` frees the object: so only [`Guard::retire`] makes one, and the collector drops it
/// once no operation can reach the object.
struct Retired {
    address: *mut (),
    free: unsafe fn(*mut ()),
}

// SAFETY: the object is a part of a map, and a map is `Send` and `Sync` only if its keys and values are.
unsafe impl Send for Retired {}

impl Retired {
    #[inline]
    fn new<T: Free>(gone: *mut T) -> Self {
        /// # Safety
        /// As of [`Free::free`].
        unsafe fn free<T: Free>(address: *mut ()) {
            // SAFETY: the contract of this function is that of `Free::free`, and `new` has stored the address with its type.
            unsafe { T::free(address.cast()) };
        }
        Self { address: gone.cast(), free: free::<T> }
    }
}

impl Drop for Retired {
    fn drop(&mut self) {
        // SAFETY: by the contract of `retire`, the object came from a box, and only this `Retired` frees it. The collector waits until no
        // operation can reach the object.
        unsafe { (self.free)(self.address) };
    }
}
