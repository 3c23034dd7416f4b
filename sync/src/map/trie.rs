//! A hash trie that many threads change at once, without locks.
//!
//! ```text
//!   root               top Node                    Node
//!  ┌──────┐    ┌──────────────────────┐   ┌──────────────────────┐
//!  │ slot ├──> │                      │   │ taken │ parent       │        Entry
//!  └──────┘    │ slot 0 │ ... │ slot f├──>│ slot 0 │ ... │ slot f├──> ┌───────────────────┐
//!              └──────────────────────┘   └──────────────────────┘    │ hash │ key │ value│
//!              four bits of the hash choose a slot of each node, the  └───────────────────┘
//!              upper ones first
//! ```
//!
//! A slot is a single word. A map of one key has the key's entry in the root, and no node. The table has all changes of a
//! map. Each is one compare-exchange of one slot, except for the last:
//!
//! | change | slot before | slot after | owner of the old content |
//! |---|---|---|---|
//! | insert | empty | entry | |
//! | replace | entry | entry of the same key | the caller retires the entry |
//! | collide | entry, or list, of this hash | list with the new entry | the list has the entries; the old list is retired |
//! | branch | entry, or list, of another hash | node with both below it | the new node |
//! | replace, remove in a list | list | list, or the only entry that is left | the caller retires list and entry |
//! | remove | entry | empty | the caller retires the entry |
//! | prune | dead node | empty | the caller retires the node |
//! | clear | anything, in the root | empty | the caller retires what was in the root, with everything that is below it then |
//!
//! Entries and lists are never changed. So a fact that a caller has found out about an entry, by the user's `==`,
//! without a lock, still holds if the caller's compare-exchange finds the entry in the slot. The same address is the
//! same entry, because the caller's guard prevents reuse of the memory. If the slot has changed, the caller looks
//! again.
//!
//! # Empty nodes
//!
//! The top node stays until the map is cleared. In any other node, `taken` counts the slots that are not empty, and the callers
//! that are about to fill a slot:
//!
//! | when | `taken` | then |
//! |---|---|---|
//! | before the insertion into an empty slot | + 1 | if the node was dead: prune the node, and begin anew |
//! | after a removal, a prune below, an insertion that failed | - 1 | if the result is 0: change 0 to `DEAD`, and prune |
//!
//! `taken` is never less than the number of slots that are not empty. So the slots of a dead node are empty, and stay
//! empty. Of the callers that prune a dead node exactly one succeeds, and gives back the slot of the parent.
//!
//! # Atomicity
//!
//! All accesses of slots and of the root are SeqCst: the accesses have a single order, which is the order of the
//! methods.
//! * A key has a single path. A method on the key takes effect with its compare-exchange, or its last load.
//! * A load in a node that has been pruned since the caller reached the node finds nothing. The key was absent when
//!   the node was pruned, which was during the call.
//! * Methods that still work below an old top node have begun before the `clear` that took the node away. They come
//!   before that `clear`, in the order that they have among themselves.
//!
//! A walk visits the slots of each node in ascending order. A key always is below the same slot of each node, so no
//! walk meets a key twice, wherever the key moves; and a node with a key that stays does not die, so no such key is
//! missed.
//!
//! Orderings: `taken` needs AcqRel only. The modification order of `taken` decides: `DEAD` follows a 0, so `DEAD`
//! follows all callers that had taken a slot and given the slot back; later callers find `DEAD`. Acquire makes the
//! slots that those callers emptied visible to a caller that prunes. Go's contract demands the Release of the SeqCst
//! compare-exchange that publishes an entry, and the Acquire of the load that finds the entry. The two also make the
//! contents visible.

use std::marker::PhantomData;
use std::mem;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use sudog_runtime::shim::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use sudog_runtime::shim::{AtomicPtr, AtomicU32, AtomicUsize, fence, mark};

use super::reclaim::{Collector, Free, Guard};

/// The number of bits of the hash that choose a slot.
const BITS: u32 = 4;
const SLOTS: usize = 1 << BITS;
/// The position of the root, above the bits of the hash that choose a slot of the top node.
const ROOT: u32 = u32::BITS;

/// The least length of a list for which a copy of the list costs at least as much as having the old list freed at once.
const LONG: usize = 256;

/// The value of a node's word `taken`: see the table "Empty nodes".
#[derive(Clone, Copy)]
struct Taken(usize);

/// The flag of a dead node. No count reaches this bit.
const DEAD: usize = 1 << (usize::BITS - 1);

impl Taken {
    /// Returns whether no slot is taken, and the node is not dead.
    #[inline]
    const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns whether a single slot is taken.
    #[inline]
    const fn is_one(self) -> bool {
        self.0 == 1
    }

    #[inline]
    const fn is_dead(self) -> bool {
        self.0 & DEAD != 0
    }
}

/// The word `taken` of a node. Each method is a change of the table.
struct AtomicTaken(AtomicUsize);

impl AtomicTaken {
    fn new(slots: usize) -> Self {
        Self(AtomicUsize::new(slots))
    }

    /// Counts a slot as taken. Returns the state before.
    #[inline(always)]
    #[track_caller]
    fn take(&self) -> Taken {
        Taken(self.0.fetch_add(1, AcqRel))
    }

    /// Counts a slot as empty. Returns the state before.
    #[inline(always)]
    #[track_caller]
    fn release(&self) -> Taken {
        Taken(self.0.fetch_sub(1, AcqRel))
    }

    /// Makes the node dead, if no slot is taken. Returns whether this call has made the node dead.
    #[inline(always)]
    #[track_caller]
    fn die(&self) -> bool {
        self.0.compare_exchange(0, DEAD, AcqRel, Relaxed).is_ok()
    }
}

/// The largest number of shares of an entry. Far below overflow, as the limit of `Arc` is.
const MAX_SHARES: u32 = i32::MAX as u32;

/// The bits of a slot's word that say what is in the slot.
const TAG: usize = 3;
const NODE: usize = 1;
const LIST: usize = 2;

/// An address with its tag, or null.
type Word = *mut ();

/// States that models must reach.
pub const PRUNED: &str = "a node is pruned";
pub const HELPED: &str = "a caller finds a dead node, and prunes it";
pub const REVIVED: &str = "a node that was empty is taken before it is dead";
pub const LOST: &str = "a compare-exchange fails";
pub const BRANCHED: &str = "an entry gets a node above it";
pub const COLLIDED: &str = "a hash gets a list";

pub(super) struct Trie<K, V> {
    root: AtomicPtr<()>,
    collector: Collector,
    owns: PhantomData<Arc<Entry<K, V>>>,
}

#[repr(align(8))]
struct Node<K, V> {
    taken: AtomicTaken,
    /// The node above; null for the top node.
    parent: *const Node<K, V>,
    slots: [AtomicPtr<()>; SLOTS],
    owns: PhantomData<Entry<K, V>>,
}

/// A key and its value. Never changed.
#[repr(align(8))]
pub(super) struct Entry<K, V> {
    hash: u32,
    /// The number of owners: the map, and each [`Share`].
    shares: AtomicU32,
    pub key: K,
    pub value: V,
}

/// A list of the entries with the same hash. Has at least two entries.
#[repr(align(8))]
struct List<K, V> {
    hash: u32,
    entries: Box<[*mut Entry<K, V>]>,
}

/// The content of a slot.
enum Child<'g, K, V> {
    Empty,
    Entry(&'g Entry<K, V>),
    List(&'g List<K, V>),
    Node(&'g Node<K, V>),
}

/// The result of `put`. `Ok` has the stored entry, and the entry that the key had before. `Err` has the entry that the
/// key has.
pub(super) type Stored<'g, K, V> = Result<(&'g Entry<K, V>, Option<&'g Entry<K, V>>), Option<&'g Entry<K, V>>>;

/// The place in the trie where the keys with a certain hash are, or would be.
struct Place<'g, K, V> {
    slot: &'g AtomicPtr<()>,
    /// The node of the slot; none for the root.
    node: Option<&'g Node<K, V>>,
    hash: u32,
    /// The position, in the hash, of the bits that choose the slot.
    shift: u32,
    /// The word that the caller has found in the slot.
    word: Word,
}

/// An entry that a guard keeps for `'g`.
struct Found<'g, K, V> {
    memory: *mut Entry<K, V>,
    kept: PhantomData<&'g Entry<K, V>>,
}

impl<K, V> Clone for Found<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Found<'_, K, V> {}

impl<'g, K, V> Found<'g, K, V> {
    #[inline(always)]
    fn entry(self) -> &'g Entry<K, V> {
        // SAFETY: the guard under which the entry was found keeps the entry for `'g`.
        unsafe { &*self.memory }
    }
}

/// A key and a value that are to be stored.
pub(super) enum New<K, V> {
    /// The key and the value. No entry has been allocated yet.
    Parts(K, V),
    /// The entry has been allocated, and no other caller has seen it.
    Entry(Unseen<Entry<K, V>>),
    /// The entry is in the map.
    Stored,
}

/// A value in a box whose address no other caller has seen. The drop frees the box.
pub(super) struct Unseen<T>(NonNull<T>);

/// A share in an entry. A share keeps the entry alive, even without a guard.
pub(super) struct Share<K, V>(NonNull<Entry<K, V>>);

impl<'g, K, V> Child<'g, K, V> {
    /// Returns the child that a slot's word means: by its tag a node, a list or an entry.
    ///
    /// # Safety
    /// The word was loaded from a slot of a map of these types, under a guard that lasts for `'g`.
    #[inline(always)]
    unsafe fn of(word: Word) -> Self {
        // Test bits, and use the address of an entry, whose tag is 0, unchanged: this is the path of a load.
        // SAFETY: the tag was set together with the address, and says which type is at the address. By the contract of
        // this function, the guard keeps the memory for `'g`.
        unsafe {
            if let Some(node) = Node::of(word) {
                Self::Node(node)
            } else if word.addr() & LIST != 0 {
                Self::List(&*word.byte_sub(LIST).cast())
            } else if word.is_null() {
                Self::Empty
            } else {
                Self::Entry(&*word.cast())
            }
        }
    }
}

impl<K, V> Child<'_, K, V> {
    /// Calls `f` for each entry of the child until `f` returns false, and returns whether all calls returned true.
    fn walk(&self, f: &mut impl FnMut(&Entry<K, V>) -> bool) -> bool {
        match self {
            Self::Empty => true,
            Self::Entry(entry) => f(entry),
            Self::List(list) => list.iter().all(|found| f(found.entry())),
            Self::Node(node) => node.walk(f),
        }
    }
}

fn tagged<T>(memory: *const T, tag: usize) -> Word {
    memory.cast_mut().cast::<()>().map_addr(|address| address | tag)
}

/// Returns the address that `tagged` was given.
#[inline(always)]
fn untagged<T>(word: Word) -> *mut T {
    word.map_addr(|address| address & !TAG).cast()
}

fn nibble(hash: u32, shift: u32) -> usize {
    (hash >> shift) as usize % SLOTS
}

impl<K, V> Trie<K, V> {
    pub fn new() -> Self {
        Self { root: AtomicPtr::new(ptr::null_mut()), collector: Collector::new(), owns: PhantomData }
    }

    #[inline]
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    #[inline]
    fn seek<'g>(&'g self, hash: u32, _guard: &'g Guard<'_>) -> Place<'g, K, V> {
        let mut place = Place { slot: &self.root, node: None, hash, shift: ROOT, word: self.root.load(SeqCst) };
        let mut rest = hash; // the bits that have not chosen a slot yet, from the top
        // SAFETY: the word of the place was loaded from a slot of this map under the guard, which lasts for `'g`.
        while let Some(node) = unsafe { Node::of(place.word) } {
            // `shift` does not get less than 0: in a node of the last four bits each slot has one hash, and no slot
            // gets a node.
            place.shift -= BITS;
            place.slot = &node.slots[(rest >> (u32::BITS - BITS)) as usize];
            rest <<= BITS;
            place.node = Some(node);
            place.word = place.slot.load(SeqCst);
        }
        place
    }

    /// Returns the entry with this hash whose key satisfies `is`. Calls `is` without a lock, and only with keys of this
    /// hash.
    #[inline]
    pub fn find<'g>(
        &'g self,
        hash: u32,
        guard: &'g Guard<'_>,
        mut is: impl FnMut(&K) -> bool,
    ) -> Option<&'g Entry<K, V>> {
        Some(self.seek(hash, guard).find(&mut is)?.entry())
    }

    /// Returns a share in the entry that `find` would return.
    #[inline]
    pub fn share(&self, hash: u32, guard: &Guard<'_>, mut is: impl FnMut(&K) -> bool) -> Option<Share<K, V>> {
        let found = self.seek(hash, guard).find(&mut is)?;
        // Relaxed: the guard keeps the entry meanwhile.
        let shares = found.entry().shares.fetch_add(1, Relaxed);
        if shares > MAX_SHARES {
            process::abort(); // as `Arc` does: a count that overflows would free an entry that has owners
        }
        NonNull::new(found.memory).map(Share)
    }

    /// Stores `new`, if `wants` returns true for the entry that the key has now; otherwise leaves `new` unchanged. If
    /// another caller changes the slot first, calls `wants` again.
    #[inline]
    pub fn put<'g>(
        &'g self,
        hash: u32,
        guard: &'g Guard<'_>,
        new: &mut New<K, V>,
        mut wants: impl FnMut(Option<&'g Entry<K, V>>) -> bool,
    ) -> Stored<'g, K, V>
    where
        K: Eq,
    {
        loop {
            let place = self.seek(hash, guard);
            let there = place.find(&mut |key| new.key() == key);
            if !wants(there.map(Found::entry)) {
                return Err(there.map(Found::entry));
            }
            let entry = new.entry(hash);
            if place.put(there, entry, guard) {
                new.stored();
                // SAFETY: `entry` is in the map, or was retired after `guard` was created. So `guard` keeps the entry.
                return Ok((unsafe { &*entry }, there.map(Found::entry)));
            }
            mark(LOST);
        }
    }

    /// Removes the entry with this hash whose key satisfies `is`, if `wants` returns true for that entry. If another
    /// caller changes the slot first, calls `wants` again.
    #[inline]
    pub fn remove<'g>(
        &'g self,
        hash: u32,
        guard: &'g Guard<'_>,
        mut is: impl FnMut(&K) -> bool,
        mut wants: impl FnMut(&'g Entry<K, V>) -> bool,
    ) -> Option<&'g Entry<K, V>> {
        loop {
            let place = self.seek(hash, guard);
            let there = place.find(&mut is)?;
            if !wants(there.entry()) {
                return None;
            }
            if place.remove(there, guard) {
                return Some(there.entry());
            }
            mark(LOST);
        }
    }

    /// Removes all entries, at one instant.
    pub fn clear(&self, guard: &Guard<'_>) {
        let old = self.root.swap(ptr::null_mut(), SeqCst);
        // SAFETY: `old` was in the root until this swap, so the guard keeps the memory. No later operation reaches it, and only
        // this caller retires it.
        unsafe {
            match Child::<K, V>::of(old) {
                Child::Empty => {}
                Child::Entry(_) => guard.retire(untagged::<Entry<K, V>>(old)),
                Child::List(list) => {
                    list.entries.iter().for_each(|&entry| guard.retire(entry));
                    guard.retire(untagged::<List<K, V>>(old));
                    if list.entries.len() > LONG {
                        guard.hasten();
                    }
                }
                Child::Node(top) => {
                    guard.retire(untagged::<Node<K, V>>(old));
                    if top.slots.iter().any(|slot| slot.load(Relaxed).addr() & TAG != 0) {
                        guard.hasten();
                    }
                }
            }
        }
    }

    /// Calls `f` for all entries, in the order of their hashes, until `f` returns false.
    pub fn walk(&self, _guard: &Guard<'_>, f: &mut impl FnMut(&Entry<K, V>) -> bool) {
        // SAFETY: the root is loaded under the guard, which lasts longer than the child.
        unsafe { Child::of(self.root.load(SeqCst)) }.walk(f);
    }
}

impl<K, V> Drop for Trie<K, V> {
    fn drop(&mut self) {
        // SAFETY: no operation runs any more, and what is in the root has not been retired.
        unsafe { free::<K, V>(self.root.load(Relaxed)) };
    }
}

impl<'g, K, V> Place<'g, K, V> {
    #[inline(always)]
    fn child(&self) -> Child<'g, K, V> {
        // SAFETY: `seek` continues below each node that it finds, so the word of a place is not a node. `seek` has loaded the word
        // under a guard that lasts for `'g`.
        unsafe {
            std::hint::assert_unchecked(self.word.addr() & NODE == 0);
            Child::of(self.word)
        }
    }

    #[inline(always)]
    fn find(&self, is: &mut impl FnMut(&K) -> bool) -> Option<Found<'g, K, V>> {
        match self.child() {
            Child::Entry(entry) if entry.hash == self.hash && is(&entry.key) => {
                Some(Found { memory: self.word.cast(), kept: PhantomData })
            }
            Child::List(list) if list.hash == self.hash => list.iter().find(|found| is(&found.entry().key)),
            _ => None,
        }
    }

    #[inline(always)]
    fn exchange(&self, new: Word) -> bool {
        self.slot.compare_exchange(self.word, new, SeqCst, SeqCst).is_ok()
    }

    /// Replaces the entry `there` with `new`, and retires it. Returns false if another caller has changed the slot.
    #[inline(always)]
    fn exchange_entry(&self, there: Found<'g, K, V>, new: Word, guard: &Guard<'_>) -> bool {
        let replaced = self.exchange(new);
        if replaced {
            // SAFETY: this caller's exchange has taken the entry out of its slot, so no later operation reaches the
            // entry, and no other caller retires the entry.
            unsafe { guard.retire(there.memory) };
        }
        replaced
    }

    /// Counts the slot as taken. Returns false if the node is dead.
    #[inline(always)]
    fn take(&self, guard: &Guard<'_>) -> bool {
        self.node.is_none_or(|node| node.take(self, guard))
    }

    /// Counts the slot as empty.
    #[inline(always)]
    fn release(&self, guard: &Guard<'_>) {
        if let Some(node) = self.node {
            node.release(self.hash, self.shift, guard);
        }
    }

    /// Stores `new` in this place. Returns false if another caller has changed the slot.
    #[inline]
    fn put(&self, there: Option<Found<'g, K, V>>, new: *mut Entry<K, V>, guard: &Guard<'_>) -> bool {
        let word = tagged(new, 0);
        match self.child() {
            Child::Empty => self.take(guard) && (self.exchange(word) || self.give_back(guard)),
            Child::Entry(_) if let Some(there) = there => self.exchange_entry(there, word, guard),
            _ => self.put_beside(there, new, guard),
        }
    }

    /// Gives back a slot that was counted as taken, but not filled. Returns false, as the result of `put`.
    #[cold]
    fn give_back(&self, guard: &Guard<'_>) -> bool {
        self.release(guard);
        false
    }

    /// Adds `new` to a list, or beside an entry or a list of another key.
    #[inline(never)]
    fn put_beside(&self, there: Option<Found<'g, K, V>>, new: *mut Entry<K, V>, guard: &Guard<'_>) -> bool {
        let (hash, word) = match self.child() {
            Child::Entry(entry) if entry.hash == self.hash => {
                mark(COLLIDED);
                return self.exchange_for(List::new(self.hash, Box::new([self.word.cast(), new])));
            }
            Child::List(list) if list.hash == self.hash => return self.exchange_list(list, there, Some(new), guard),
            Child::Entry(entry) => (entry.hash, self.word),
            Child::List(list) => (list.hash, self.word),
            Child::Empty | Child::Node(_) => unreachable!("`put` and `seek` have seen to these"),
        };
        mark(BRANCHED);
        let branch = Branch::new(self, hash, word, tagged(new, 0));
        if !self.exchange(tagged(branch.top, NODE)) {
            // SAFETY: no other caller has seen the nodes of `branch`, as the exchange failed.
            unsafe { branch.undo() };
            return false;
        }
        true
    }

    /// Replaces the content of the slot by entries. Returns false, and frees the list, if another caller has changed the
    /// slot.
    fn exchange_for(&self, new: Result<Unseen<List<K, V>>, *mut Entry<K, V>>) -> bool {
        match new {
            Ok(list) => self.exchange(tagged(list.address(), LIST)).then(|| list.publish()).is_some(),
            Err(entry) => self.exchange(tagged(entry, 0)),
        }
    }

    /// Replaces a list with a list without `gone`, and with `new`. Returns false if another caller has changed the
    /// slot.
    fn exchange_list(
        &self,
        list: &'g List<K, V>,
        gone: Option<Found<'g, K, V>>,
        new: Option<*mut Entry<K, V>>,
        guard: &Guard<'_>,
    ) -> bool {
        let mut entries = Vec::with_capacity(list.entries.len() + 1);
        let stay = |entry: &*mut Entry<K, V>| gone.is_none_or(|gone| gone.memory != *entry);
        entries.extend(list.entries.iter().copied().filter(stay).chain(new));
        if !self.exchange_for(List::new(self.hash, entries.into_boxed_slice())) {
            return false;
        }
        // SAFETY: this caller's exchange has taken the list and `gone` out of the map, so no later operation reaches
        // them, and no other caller retires them.
        unsafe {
            guard.retire(untagged::<List<K, V>>(self.word));
            if let Some(gone) = gone {
                guard.retire(gone.memory);
            }
        }
        if list.entries.len() > LONG {
            guard.hasten();
        }
        true
    }

    /// Removes `there` from this place. Returns false if another caller has changed the slot.
    #[inline]
    fn remove(&self, there: Found<'g, K, V>, guard: &Guard<'_>) -> bool {
        if let Child::List(list) = self.child() {
            return self.exchange_list(list, Some(there), None, guard);
        }
        let removed = self.exchange_entry(there, ptr::null_mut(), guard);
        if removed {
            self.release(guard);
        }
        removed
    }
}

/// The new nodes above two words that have different hashes.
struct Branch<K, V> {
    top: *mut Node<K, V>,
    /// The node whose slots contain the two words.
    last: *mut Node<K, V>,
    slots: [usize; 2],
}

impl<K, V> Branch<K, V> {
    fn new(place: &Place<'_, K, V>, hash: u32, word: Word, new: Word) -> Self {
        let mut shift = place.shift;
        let mut parent = place.node.map_or(ptr::null(), ptr::from_ref);
        let mut top = ptr::null_mut();
        let mut above: Option<&AtomicPtr<()>> = None;
        loop {
            shift -= BITS;
            let slots = [nibble(hash, shift), nibble(place.hash, shift)];
            let apart = slots[0] != slots[1];
            let memory = Node::boxed(parent, if apart { 2 } else { 1 });
            // SAFETY: the node is new. Only this caller has seen the node, and frees it after this function at the earliest.
            let node: &Node<K, V> = unsafe { &*memory };
            match above {
                None => top = memory,
                // Relaxed here and below: the exchange that publishes the branch is a Release.
                Some(slot) => slot.store(tagged(memory, NODE), Relaxed),
            }
            if apart {
                for (slot, word) in slots.into_iter().zip([word, new]) {
                    node.slots[slot].store(word, Relaxed);
                }
                return Self { top, last: memory, slots };
            }
            parent = memory;
            above = Some(&node.slots[slots[0]]);
        }
    }

    /// Frees the nodes, but not the two words below them.
    ///
    /// # Safety
    /// No other caller has seen the nodes.
    #[cold]
    unsafe fn undo(self) {
        // SAFETY: by the contract of `undo`, only this caller has seen the nodes, so `last` exists. The two words are taken
        // out first, so only the nodes are freed.
        unsafe {
            let last = &*self.last;
            for slot in self.slots {
                last.slots[slot].store(ptr::null_mut(), Relaxed);
            }
            Node::free(self.top);
        }
    }
}

impl<K, V> Node<K, V> {
    /// Returns the node that a slot's word means, if it means a node.
    ///
    /// # Safety
    /// As of [`Child::of`].
    #[inline(always)]
    unsafe fn of<'g>(word: Word) -> Option<&'g Self> {
        // SAFETY: by the contract of this function, the tag says that there is a node, which the guard keeps for `'g`.
        (word.addr() & NODE != 0).then(|| unsafe { &*word.byte_sub(NODE).cast() })
    }

    fn boxed(parent: *const Self, taken: usize) -> *mut Self {
        let slots = std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Box::into_raw(Box::new(Self { taken: AtomicTaken::new(taken), parent, slots, owns: PhantomData }))
    }

    /// Counts a slot as taken. If the node is dead, prunes it, and returns false.
    #[inline]
    fn take(&self, place: &Place<'_, K, V>, guard: &Guard<'_>) -> bool {
        if self.parent.is_null() {
            return true;
        }
        let before = self.taken.take();
        if before.is_zero() {
            mark(REVIVED);
        } else if before.is_dead() {
            mark(HELPED);
            self.prune(place.hash, place.shift, guard);
            return false;
        }
        true
    }

    /// Counts a slot as empty. If no slot is taken any more, prunes the node, and then does the same for the parent.
    #[inline]
    fn release(&self, hash: u32, shift: u32, guard: &Guard<'_>) {
        if !self.parent.is_null() && self.taken.release().is_one() && self.taken.die() {
            self.prune(hash, shift, guard);
        }
    }

    /// Takes this node, which is dead, out of its parent, unless another caller has done so. `shift` is the position of
    /// this node's bits in the hash.
    #[inline(never)]
    fn prune(&self, hash: u32, shift: u32, guard: &Guard<'_>) {
        // SAFETY: this node was in its parent under the caller's guard. A parent is taken out of the map after its
        // children, or together with them by a `clear` that came after the guard began, so that guard keeps both nodes.
        let parent = unsafe { &*self.parent };
        let above = shift + BITS;
        let slot = &parent.slots[nibble(hash, above)];
        if let Ok(word) = slot.compare_exchange(tagged(self, NODE), ptr::null_mut(), SeqCst, Relaxed) {
            mark(PRUNED);
            // SAFETY: only one caller takes the node out of its only slot, so the node is retired once, and no later
            // operation reaches the node.
            unsafe { guard.retire(untagged::<Self>(word)) };
            parent.release(hash, above, guard);
        }
    }

    /// Calls `f` for each entry below this node until `f` returns false, and returns whether all calls returned true.
    fn walk(&self, f: &mut impl FnMut(&Entry<K, V>) -> bool) -> bool {
        // Look at all slots first, without a branch: a processor predicts the number of full slots better than which
        // slots are empty. If a slot is filled later, its key was not in the map during the whole walk. Each full slot
        // is loaded again, in its turn.
        let (mut full, mut len) = ([0; SLOTS], 0);
        for (n, slot) in self.slots.iter().enumerate() {
            full[len] = n;
            len += usize::from(!slot.load(SeqCst).is_null());
        }
        // SAFETY: the slot is loaded under the guard of the caller of `Trie::walk`.
        full[..len].iter().all(|&n| unsafe { Child::of(self.slots[n].load(SeqCst)) }.walk(f))
    }
}

/// Frees the node, and everything that is below it.
impl<K, V> Free for Node<K, V> {
    unsafe fn free(this: *mut Self) {
        // SAFETY: by the contract of `free`, `this` came from a box, and is freed once.
        let node = unsafe { Box::from_raw(this) };
        for slot in &node.slots {
            // SAFETY: by the contract of `free`, only this call reaches the node, so the memory in a slot is reached through that
            // slot only.
            unsafe { free::<K, V>(slot.load(Relaxed)) };
        }
    }
}

/// Frees what the word of a slot means, and everything that is below it.
///
/// # Safety
/// No operation can reach this memory, and no other code frees it.
unsafe fn free<K, V>(word: Word) {
    // SAFETY: by the contract of this function, only this call reaches the memory, so each part is freed once. Each part came
    // from a box.
    unsafe {
        match Child::<K, V>::of(word) {
            Child::Empty => {}
            Child::Entry(_) => Entry::free(untagged::<Entry<K, V>>(word)),
            Child::Node(_) => Node::free(untagged::<Node<K, V>>(word)),
            Child::List(list) => {
                list.entries.iter().for_each(|&entry| Entry::free(entry));
                List::free(untagged::<List<K, V>>(word));
            }
        }
    }
}

impl<K, V> List<K, V> {
    /// Makes a list of these entries, of which there are at least two. A single entry makes no list: `Err` has that entry.
    fn new(hash: u32, entries: Box<[*mut Entry<K, V>]>) -> Result<Unseen<Self>, *mut Entry<K, V>> {
        match *entries {
            [one] => Err(one),
            _ => Ok(Unseen::new(Self { hash, entries })),
        }
    }

    /// Iterates over the entries. The guard that keeps the list for `'g` keeps them: an entry that leaves the list is
    /// retired no earlier than the list.
    fn iter<'g>(&'g self) -> impl Iterator<Item = Found<'g, K, V>> {
        self.entries.iter().map(|&memory| Found { memory, kept: PhantomData })
    }
}

/// Frees the list, but not the entries.
impl<K, V> Free for List<K, V> {
    unsafe fn free(this: *mut Self) {
        // SAFETY: by the contract of `free`, `this` came from a box, and is freed once.
        drop(unsafe { Box::from_raw(this) });
    }
}

/// Runs the user's destructors. A panic has been reported, and goes no further, because the panic would unwind the
/// code that frees memory.
impl<K, V> Free for Entry<K, V> {
    #[inline]
    unsafe fn free(this: *mut Self) {
        // SAFETY: an entry exists as long as it has shares, and the caller has a share.
        let shares = unsafe { &(*this).shares };
        // Acquire: accesses by other owners come before the entry is freed. If this is the last share, no further
        // share is made, because shares are made under guards.
        if shares.load(Acquire) != 1 {
            if shares.fetch_sub(1, Release) != 1 {
                return;
            }
            fence(Acquire);
        }
        // SAFETY: this was the last share, so no other owner reaches the entry, and the entry came from a box.
        let entry = *unsafe { Box::from_raw(this) };
        quietly(entry.key);
        quietly(entry.value);
    }
}

fn quietly<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value)))
        && let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        mem::forget(another); // the next payload may panic, too
    }
}

impl<K, V> Share<K, V> {
    pub fn value(&self) -> &V {
        // SAFETY: this share keeps the entry.
        unsafe { &self.0.as_ref().value }
    }
}

impl<K, V> Drop for Share<K, V> {
    fn drop(&mut self) {
        // SAFETY: this call gives up this share, once. The share keeps the entry until then.
        unsafe { Entry::free(self.0.as_ptr()) };
    }
}

impl<K, V> New<K, V> {
    #[inline(always)]
    fn key(&self) -> &K {
        match self {
            Self::Parts(key, _) => key,
            Self::Entry(entry) => &entry.key,
            Self::Stored => unreachable!("the loop has ended"),
        }
    }

    /// Returns the entry, which is allocated at the first call.
    #[inline(always)]
    pub(super) fn entry(&mut self, hash: u32) -> *mut Entry<K, V> {
        if let Self::Parts(..) = self
            && let Self::Parts(key, value) = mem::replace(self, Self::Stored)
        {
            *self = Self::Entry(Unseen::new(Entry { hash, shares: AtomicU32::new(1), key, value }));
        }
        match self {
            Self::Entry(entry) => entry.address(),
            _ => unreachable!("it has just been made"),
        }
    }

    /// Notes that the map owns the entry, so that the drop of `self` does not free the entry.
    #[inline(always)]
    fn stored(&mut self) {
        mem::forget(mem::replace(self, Self::Stored));
    }
}

impl<T> Unseen<T> {
    #[inline(always)]
    fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(value))))
    }

    /// Returns the address, which the caller is about to publish.
    #[inline(always)]
    fn address(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// Gives the value up, as the address has been published.
    fn publish(self) {
        mem::forget(self);
    }
}

impl<T> Deref for Unseen<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the value is in a box that `self` owns, and is never changed.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Unseen<T> {
    fn drop(&mut self) {
        // SAFETY: the value is in a box that `self` owns, as no other caller has seen the address.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Models: every interleaving, on loom's memory model, up to a bound of preemptions. In a model, retired memory is
/// freed only with the trie. So if a method uses retired memory, the memory is still there, and the method's wrong
/// result reveals the use. Retiring the same memory twice is a panic.
///
/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --lib map::`
#[cfg(all(test, sudog_loom))]
mod model {
    use std::panic::panic_any;

    use loom::sync::Arc;
    use sudog_runtime::model::thread::{self, JoinHandle};
    use sudog_runtime::model::under_both;
    use sudog_runtime::reached::must_reach;

    use super::*;

    /// A key with a given hash. The `Arc` counts how many keys exist.
    struct Key(u32, #[expect(dead_code, reason = "it counts")] std::sync::Arc<()>);

    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    impl Eq for Key {}

    struct World {
        trie: Trie<Key, u32>,
        alive: std::sync::Arc<()>,
    }

    /// Keys 1, 2, 4 and 5 have different hashes whose first eight bits are the same; 4 and 5 also share the next four
    /// bits. Key 3 is in another slot of the root, and 11 has the hash of 1.
    fn hash(key: u32) -> u32 {
        match key {
            1 | 11 => 0x1110 << 16,
            2 => 0x1120 << 16,
            4 => 0x1140 << 16,
            5 => 0x1145 << 16,
            3 => 0x2000 << 16,
            _ => panic_any("an unknown key"),
        }
    }

    impl World {
        fn store(&self, key: u32, value: u32) -> Option<u32> {
            self.trie.collector().with_guard(|guard| {
                let mut new = New::Parts(Key(key, self.alive.clone()), value);
                let stored = self.trie.put(hash(key), guard, &mut new, |_| true);
                stored.unwrap_or_else(|_| unreachable!()).1.map(|old| old.value)
            })
        }

        fn insert(&self, key: u32, value: u32) -> bool {
            self.trie.collector().with_guard(|guard| {
                let mut new = New::Parts(Key(key, self.alive.clone()), value);
                self.trie.put(hash(key), guard, &mut new, |there| there.is_none()).is_ok()
            })
        }

        fn load(&self, key: u32) -> Option<u32> {
            let find = |guard: &Guard<'_>| Some(self.trie.find(hash(key), guard, |there| there.0 == key)?.value);
            self.trie.collector().with_guard(find)
        }

        fn delete(&self, key: u32) -> Option<u32> {
            let remove =
                |guard: &Guard<'_>| Some(self.trie.remove(hash(key), guard, |there| there.0 == key, |_| true)?.value);
            self.trie.collector().with_guard(remove)
        }

        fn assert_is_without_nodes(&self) {
            self.trie.collector().with_guard(|guard| {
                for key in 1..=5 {
                    let place = self.trie.seek(hash(key), guard);
                    let is_at_the_top = place.node.is_none_or(|node| node.parent.is_null());
                    assert!(place.word.is_null() && is_at_the_top, "an empty node is left");
                }
            });
        }

        fn clear(&self) {
            self.trie.collector().with_guard(|guard| self.trie.clear(guard));
        }

        fn keys(&self) -> Vec<u32> {
            let mut keys = Vec::new();
            let mut visit = |entry: &Entry<Key, u32>| {
                keys.push(entry.key.0);
                true
            };
            self.trie.collector().with_own_guard(|guard| self.trie.walk(guard, &mut visit));
            keys
        }
    }

    fn explore(states: &[&'static str], model: impl Fn(&Arc<World>) + Sync + Send + Copy + 'static) {
        must_reach(states, || {
            under_both(|| {
                sudog_runtime::model::explore(3, move || {
                    let alive = std::sync::Arc::new(());
                    let world = Arc::new(World { trie: Trie::new(), alive: alive.clone() });
                    model(&world);
                    drop(world);
                    assert_eq!(std::sync::Arc::strong_count(&alive), 1, "a key is leaked");
                });
            });
        });
    }

    fn spawn<T: 'static>(world: &Arc<World>, f: impl FnOnce(&World) -> T + 'static) -> JoinHandle<T> {
        let world = world.clone();
        thread::spawn(move || f(&world))
    }

    /// Removes the last key of a node while another key is inserted: the new key is never in a node that is not in the
    /// map.
    #[test]
    fn an_insertion_meets_a_node_that_dies() {
        explore(&[PRUNED, HELPED, REVIVED, BRANCHED], |world| {
            world.store(1, 10);
            world.store(2, 20);
            world.delete(1);
            let other = spawn(world, |world| world.delete(2));
            assert!(world.insert(1, 11));
            assert_eq!(world.load(1), Some(11), "lost with its node");
            assert_eq!(other.join().unwrap(), Some(20));
            assert_eq!((world.load(1), world.load(2), world.keys()), (Some(11), None, vec![1]));
        });
    }

    /// Two removals empty a node, so both try to prune the node and the node above.
    #[test]
    fn the_last_two_keys_of_a_node_go() {
        explore(&[PRUNED], |world| {
            world.store(1, 10);
            world.store(2, 20);
            let other = spawn(world, |world| world.delete(2));
            assert_eq!(world.delete(1), Some(10));
            assert_eq!(other.join().unwrap(), Some(20));
            assert!(world.keys().is_empty());
            world.assert_is_without_nodes();
        });
    }

    /// Two insertions compete for a slot. The insertion that fails keeps no count of the slot: the nodes are pruned
    /// with their last keys.
    #[test]
    fn an_insertion_that_fails_gives_back_its_slot() {
        explore(&[LOST, BRANCHED], |world| {
            world.store(1, 10);
            world.store(2, 20);
            let other = spawn(world, |world| world.insert(4, 40));
            assert!(world.insert(5, 50));
            assert!(other.join().unwrap());
            for key in [1, 2, 4, 5] {
                assert_eq!(world.delete(key), Some(10 * key));
            }
            world.assert_is_without_nodes();
        });
    }

    /// Two insertions branch, and one of them is for the same slot.
    #[test]
    fn two_insertions_meet() {
        explore(&[BRANCHED, COLLIDED, LOST], |world| {
            world.store(1, 10);
            let other = spawn(world, |world| world.insert(2, 20));
            assert!(world.insert(11, 110));
            assert!(other.join().unwrap());
            let mut keys = world.keys();
            keys.sort_unstable();
            assert_eq!((keys, world.load(1), world.load(2)), (vec![1, 2, 11], Some(10), Some(20)));
        });
    }

    /// Two callers exchange and a third removes: each gets the value that another has put, and no value is got twice.
    #[test]
    fn each_value_is_got_once() {
        explore(&[LOST], |world| {
            world.store(1, 1);
            let others = [spawn(world, |world| world.store(1, 2)), spawn(world, |world| world.delete(1))];
            let mut got = vec![world.store(1, 3)];
            got.extend(others.map(|other| other.join().unwrap()));
            got.push(world.load(1));
            let mut got: Vec<_> = got.into_iter().flatten().collect();
            got.sort_unstable();
            assert_eq!(got, [1, 2, 3]);
        });
    }

    /// The same property in a list.
    #[test]
    fn keys_of_one_hash_come_and_go() {
        explore(&[COLLIDED, LOST], |world| {
            world.store(1, 1);
            let other = spawn(world, |world| (world.insert(11, 2), world.delete(11)));
            assert_eq!(world.delete(1), Some(1));
            assert_eq!(other.join().unwrap(), (true, Some(2)));
            assert!(world.keys().is_empty());
        });
    }

    /// Two callers store and then look for each other's key: at least one caller finds the other's key.
    #[test]
    fn of_two_that_insert_one_finds_the_other() {
        explore(&[], |world| {
            // With a top node, the two keys have slots of their own.
            for key in [1, 3] {
                world.store(key, 0);
            }
            assert_eq!([1, 3].map(|key| world.delete(key)), [Some(0); 2]);
            let other = spawn(world, |world| (world.store(1, 1), world.load(3)).1);
            let found = (world.store(3, 3), world.load(1)).1;
            let others = other.join().unwrap();
            assert!(found.is_some() || others.is_some());
        });
    }

    /// A clear removes all or none of the keys that were stored in turn: the first key is not there without the
    /// second. The keys are in a node, or in a list.
    #[test]
    fn a_clear_is_one_instant() {
        const ALL: &str = "the walk after a clear finds nothing";
        const SECOND: &str = "the clear comes between the two";
        fn model(world: &Arc<World>, second: u32) {
            let other = spawn(world, move |world| {
                world.store(1, 1);
                world.store(second, second);
            });
            world.clear();
            other.join().unwrap();
            match *world.keys() {
                [] => mark(ALL),
                [key] if key == second => mark(SECOND),
                ref keys => assert_eq!(keys, [1, second], "the first without the second"),
            }
        }
        explore(&[ALL, SECOND, BRANCHED], |world| model(world, 3));
        explore(&[ALL, SECOND, COLLIDED], |world| model(world, 11));
    }

    /// A walk does not meet a key twice if the key moves because its node dies; the walk meets a key that stays.
    #[test]
    fn a_walk_meets_a_key_once() {
        const TWO: &str = "a walk meets both";
        explore(&[PRUNED, TWO], |world| {
            world.store(1, 10);
            world.store(2, 20);
            world.store(3, 30);
            let other = spawn(world, |world| {
                world.delete(1);
                world.delete(2);
                world.insert(1, 11);
            });
            let keys = world.keys();
            assert_eq!(keys.iter().filter(|key| **key == 3).count(), 1, "{keys:?}");
            assert!(keys.iter().filter(|key| **key == 1).count() <= 1, "{keys:?}");
            if keys.len() > 2 {
                mark(TWO);
            }
            other.join().unwrap();
        });
    }
}
