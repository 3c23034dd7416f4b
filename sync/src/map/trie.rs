//! A hash trie that many change at once, without locks.
//!
//! ```text
//!   root                 Node                     Node
//!  ┌───────┐   ┌──────────────────────┐   ┌──────────────────────┐
//!  │ slot 0│   │ taken │ parent       │   │ taken │ parent       │        Entry
//!  │  ...  ├──>│ slot 0 │ ... │ slot f├──>│ slot 0 │ ... │ slot f├──> ┌───────────────────┐
//!  │ slot f│   └──────────────────────┘   └──────────────────────┘    │ hash │ key │ value│
//!  └───────┘   four bits of the hash choose a slot of each node, the  └───────────────────┘
//!              upper ones first
//! ```
//!
//! A slot is one word. All changes of a map are these, each one compare-exchange of one slot, but the last:
//!
//! | | slot before | slot after | who owns what was there |
//! |---|---|---|---|
//! | insert | empty | entry | |
//! | replace | entry | entry of the same key | the caller retires the entry |
//! | collide | entry, or list, of this hash | list with the new entry | the list has the entries; the old list is retired |
//! | branch | entry, or list, of another hash | node with both below it | the new node |
//! | replace, remove in a list | list | list, or the one entry that is left | the caller retires list and entry |
//! | remove | entry | empty | the caller retires the entry |
//! | prune | dead node | empty | the caller retires the node |
//! | clear | (the root) | new root | the caller retires the old root, with all that is below it then |
//!
//! Entries and lists are never changed. So what a caller has found out about one, by the user's `==`, without a lock,
//! still holds if its compare-exchange finds it in the slot: the same address is the same entry, as its guard keeps the
//! memory from being used again. If the slot has changed, the caller looks again.
//!
//! # Empty nodes
//!
//! `taken` of a node that is not the root counts its slots that are not empty, and callers that are about to fill one:
//!
//! | | `taken` | |
//! |---|---|---|
//! | before the insertion into an empty slot | + 1 | if the node was dead: prune it, and begin anew |
//! | after a removal, a prune below, an insertion that failed | - 1 | if that makes 0: 0 to `DEAD`, and prune |
//!
//! `taken` is never less than the number of slots that are not empty. So the slots of a dead node are empty, and stay
//! so. Of those that prune it one succeeds, and gives back the slot of the parent.
//!
//! # Atomicity
//!
//! All accesses of slots and of the root are SeqCst: they have one order, which is that of the methods.
//! * A key has one path. A method on it takes effect with its compare-exchange, or its last load.
//! * A load in a node that has been pruned since the caller came to it finds nothing. The key was absent when the node
//!   was pruned, which was during the call.
//! * Methods that still work on an old root have begun before the `clear` that has taken it away. They come before that
//!   `clear`, in the order that they have among themselves.
//!
//! A walk goes up the slots of each node. A key is below one slot of each node for ever, so no walk meets a key twice,
//! wherever it moves; and a node with a key that stays does not die, so none is missed.
//!
//! Orderings: `taken` needs AcqRel only. It decides by its modification order: `DEAD` follows a 0, so it follows all that
//! had taken a slot and given it back; later ones find it. Acquire makes the slots that they emptied visible to a caller
//! that prunes. The Release of a SeqCst compare-exchange that shows an entry, and the Acquire of the load that finds it,
//! are what Go's contract asks for, and what makes the contents visible.

use std::marker::PhantomData;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use sudog_runtime::shim::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use sudog_runtime::shim::{AtomicPtr, AtomicU32, AtomicUsize, fence, mark};

use super::reclaim::{Collector, Free, Shield};

/// How many bits of the hash choose a slot.
const BITS: u32 = 4;
const SLOTS: usize = 1 << BITS;
/// Where the root's bits are.
const TOP: u32 = u32::BITS - BITS;

/// From here on a list is as costly to copy as it is to have old ones freed at once.
const LONG: usize = 256;

/// In `taken`. No count gets there.
const DEAD: usize = 1 << (usize::BITS - 1);

/// Far from where it would overflow, as is `Arc`'s.
const MAX_SHARES: u32 = i32::MAX as u32;

/// In the address that is in a slot: what there is.
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
    root: AtomicPtr<Node<K, V>>,
    collector: Collector,
    owns: PhantomData<Arc<Entry<K, V>>>,
}

#[repr(align(8))]
struct Node<K, V> {
    taken: AtomicUsize,
    /// Null for a root.
    parent: *const Node<K, V>,
    slots: [AtomicPtr<()>; SLOTS],
    owns: PhantomData<Entry<K, V>>,
}

/// A key and its value. Never changed.
#[repr(align(8))]
pub(super) struct Entry<K, V> {
    hash: u32,
    /// The map's, and one for each [`Share`].
    shares: AtomicU32,
    pub key: K,
    pub value: V,
}

/// The entries of one hash, two or more.
#[repr(align(8))]
struct List<K, V> {
    hash: u32,
    entries: Box<[*mut Entry<K, V>]>,
}

/// What is in a slot.
enum Child<'g, K, V> {
    Empty,
    Entry(&'g Entry<K, V>),
    List(&'g List<K, V>),
    Node(&'g Node<K, V>),
}

/// Ok: what is stored, and what was there; else only that.
pub(super) type Stored<'g, K, V> = Result<(&'g Entry<K, V>, Option<&'g Entry<K, V>>), Option<&'g Entry<K, V>>>;

/// Where the keys of a hash are, or would be.
struct Place<'g, K, V> {
    node: &'g Node<K, V>,
    hash: u32,
    shift: u32,
    /// What was in the slot.
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
        // SAFETY: the guard keeps it.
        unsafe { &*self.memory }
    }
}

/// A key and a value that are to be stored.
pub(super) enum New<K, V> {
    /// No place for them has been found.
    Parts(K, V),
    /// In memory of their own, which no other caller has seen.
    Entry(Unseen<K, V>),
    /// In the map.
    Stored,
}

pub(super) struct Unseen<K, V>(NonNull<Entry<K, V>>);

/// A share in an entry, which outlives guards.
pub(super) struct Share<K, V>(NonNull<Entry<K, V>>);

impl<'g, K, V> Child<'g, K, V> {
    /// # Safety
    /// The word was loaded from a slot of a map of these types, under a guard that lasts for `'g`.
    #[inline(always)]
    unsafe fn of(word: Word) -> Self {
        let tag = word.addr() & TAG;
        // Bits are tested, and the address of an entry, whose tag is 0, is taken as it is: this is the path of a load.
        // SAFETY: the tag was set with the address, and says what is there. It is there: the guard keeps it.
        unsafe {
            if tag & NODE != 0 {
                Self::Node(&*untagged(word))
            } else if tag & LIST != 0 {
                Self::List(&*untagged(word))
            } else if word.is_null() {
                Self::Empty
            } else {
                Self::Entry(&*word.cast())
            }
        }
    }
}

fn tagged<T>(memory: *const T, tag: usize) -> Word {
    memory.cast_mut().cast::<()>().map_addr(|address| address | tag)
}

/// The address as it was given to `tagged`.
#[inline(always)]
fn untagged<T>(word: Word) -> *mut T {
    word.map_addr(|address| address & !TAG).cast()
}

fn nibble(hash: u32, shift: u32) -> usize {
    (hash >> shift) as usize % SLOTS
}

impl<K, V> Trie<K, V> {
    pub fn new() -> Self {
        let root = Node::boxed(ptr::null(), 0);
        Self { root: AtomicPtr::new(root), collector: Collector::new(), owns: PhantomData }
    }

    #[inline]
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    #[inline]
    fn seek<'g>(&self, hash: u32, _guard: &'g impl Shield) -> Place<'g, K, V> {
        // SAFETY: it is this map's root until it is swapped, and the guard keeps it after that.
        let mut node: &'g Node<K, V> = unsafe { &*self.root.load(SeqCst) };
        let mut shift = TOP;
        loop {
            let word = node.slots[nibble(hash, shift)].load(SeqCst);
            // SAFETY: loaded under the guard.
            match unsafe { Child::of(word) } {
                Child::Node(below) => node = below,
                _ => return Place { node, hash, shift, word },
            }
            // Not less than 0: in a node of the last four bits each slot has one hash, and no slot gets a node.
            shift -= BITS;
        }
    }

    /// The entry of this hash that `is` knows. It is called for entries of this hash, without a lock.
    #[inline]
    pub fn find<'g>(
        &self,
        hash: u32,
        guard: &'g impl Shield,
        mut is: impl FnMut(&K) -> bool,
    ) -> Option<&'g Entry<K, V>> {
        Some(self.seek(hash, guard).find(&mut is)?.entry())
    }

    /// A share in what `find` finds.
    #[inline]
    pub fn share(&self, hash: u32, guard: &impl Shield, mut is: impl FnMut(&K) -> bool) -> Option<Share<K, V>> {
        let found = self.seek(hash, guard).find(&mut is)?;
        // Relaxed: the guard keeps it meanwhile.
        let shares = found.entry().shares.fetch_add(1, Relaxed);
        if shares > MAX_SHARES {
            process::abort(); // as `Arc` does: a count that overflows would free what has owners
        }
        NonNull::new(found.memory).map(Share)
    }

    /// Stores what is `new`, if `wants` says so of what its key has; else `new` is as it was. `wants` is asked again if another caller has come first.
    #[inline]
    pub fn put<'g>(
        &self,
        hash: u32,
        guard: &'g impl Shield,
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
                // SAFETY: it is in the map, or was retired after this guard was there.
                return Ok((unsafe { &*entry }, there.map(Found::entry)));
            }
            mark(LOST);
        }
    }

    /// Removes the entry that `is` knows, if `wants` says so. As in `put`.
    #[inline]
    pub fn remove<'g>(
        &self,
        hash: u32,
        guard: &'g impl Shield,
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

    /// Removes all there is, at one instant.
    pub fn clear(&self, guard: &impl Shield) {
        let old = self.root.swap(Node::boxed(ptr::null(), 0), SeqCst);
        // SAFETY: the guard keeps it.
        let is_big = unsafe { &*old }.slots.iter().any(|slot| slot.load(Relaxed).addr() & TAG != 0);
        // SAFETY: later operations find the new root. Each swap gets another old one.
        unsafe { guard.retire(old) };
        if is_big {
            guard.hasten();
        }
    }

    /// Until `f` returns false, all entries, the keys in the order of their hashes.
    pub fn walk(&self, _guard: &impl Shield, f: &mut impl FnMut(&Entry<K, V>) -> bool) {
        // SAFETY: as in `seek`.
        unsafe { &*self.root.load(SeqCst) }.walk(f);
    }
}

impl<K, V> Drop for Trie<K, V> {
    fn drop(&mut self) {
        // SAFETY: no operation runs any more, and this root has not been retired.
        unsafe { Node::free(self.root.load(Relaxed)) };
    }
}

impl<'g, K, V> Place<'g, K, V> {
    #[inline(always)]
    fn child(&self) -> Child<'g, K, V> {
        // SAFETY: `seek` goes on from a node to what is below it, so the word of a place is no node.
        unsafe { std::hint::assert_unchecked(self.word.addr() & NODE == 0) };
        // SAFETY: `seek` has loaded the word, under a guard that lasts for `'g`.
        unsafe { Child::of(self.word) }
    }

    #[inline(always)]
    fn find(&self, is: &mut impl FnMut(&K) -> bool) -> Option<Found<'g, K, V>> {
        let memory = match self.child() {
            Child::Entry(entry) if entry.hash == self.hash && is(&entry.key) => self.word.cast(),
            Child::List(list) if list.hash == self.hash => {
                // SAFETY: what keeps the list keeps its entries.
                let mut found = list.entries.iter().filter(|&&entry| is(unsafe { &(*entry).key }));
                *found.next()?
            }
            _ => return None,
        };
        Some(Found { memory, kept: PhantomData })
    }

    #[inline(always)]
    fn exchange(&self, new: Word) -> bool {
        self.node.slots[nibble(self.hash, self.shift)].compare_exchange(self.word, new, SeqCst, SeqCst).is_ok()
    }

    /// False if another caller has changed the slot.
    #[inline]
    fn put(&self, there: Option<Found<'g, K, V>>, new: *mut Entry<K, V>, guard: &impl Shield) -> bool {
        let word = tagged(new, 0);
        match self.child() {
            Child::Empty => self.node.take(self, guard) && (self.exchange(word) || self.give_back(guard)),
            Child::Entry(_) if let Some(there) = there => {
                let replaced = self.exchange(word);
                if replaced {
                    // SAFETY: the caller whose exchange has taken it out of its slot is the only one to retire it.
                    unsafe { guard.retire(there.memory) };
                }
                replaced
            }
            _ => self.put_beside(there, new, guard),
        }
    }

    /// A reservation that was of no use.
    #[cold]
    fn give_back(&self, guard: &impl Shield) -> bool {
        self.node.release(self.hash, self.shift, guard);
        false
    }

    /// To a list, or beside what has another key.
    #[inline(never)]
    fn put_beside(&self, there: Option<Found<'g, K, V>>, new: *mut Entry<K, V>, guard: &impl Shield) -> bool {
        let (hash, word) = match self.child() {
            Child::Entry(entry) if entry.hash == self.hash => {
                mark(COLLIDED);
                let list = List::word(self.hash, Box::new([self.word.cast(), new]));
                if !self.exchange(list) {
                    // SAFETY: no other caller has seen it.
                    unsafe { List::<K, V>::unmake(list) };
                    return false;
                }
                return true;
            }
            Child::List(list) if list.hash == self.hash => return self.exchange_list(list, there, Some(new), guard),
            Child::Entry(entry) => (entry.hash, self.word),
            Child::List(list) => (list.hash, self.word),
            Child::Empty | Child::Node(_) => unreachable!("`put` and `seek` have seen to these"),
        };
        mark(BRANCHED);
        let branch = Branch::new(self, hash, word, tagged(new, 0));
        if !self.exchange(tagged(branch.top, NODE)) {
            // SAFETY: no other caller has seen it.
            unsafe { branch.undo() };
            return false;
        }
        true
    }

    /// A list without what is `gone`, and with what is `new`.
    fn exchange_list(
        &self,
        list: &'g List<K, V>,
        gone: Option<Found<'g, K, V>>,
        new: Option<*mut Entry<K, V>>,
        guard: &impl Shield,
    ) -> bool {
        let mut entries = Vec::with_capacity(list.entries.len() + 1);
        let stay = |entry: &*mut Entry<K, V>| gone.is_none_or(|gone| gone.memory != *entry);
        entries.extend(list.entries.iter().copied().filter(stay).chain(new));
        let word = List::word(self.hash, entries.into_boxed_slice());
        if !self.exchange(word) {
            // SAFETY: no other caller has seen it.
            unsafe { List::<K, V>::unmake(word) };
            return false;
        }
        // SAFETY: the caller whose exchange has taken these out of the map is the only one to retire them.
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

    /// False if another caller has changed the slot.
    #[inline]
    fn remove(&self, there: Found<'g, K, V>, guard: &impl Shield) -> bool {
        if let Child::List(list) = self.child() {
            return self.exchange_list(list, Some(there), None, guard);
        }
        let removed = self.exchange(ptr::null_mut());
        if removed {
            // SAFETY: as in `put`.
            unsafe { guard.retire(there.memory) };
            self.node.release(self.hash, self.shift, guard);
        }
        removed
    }
}

/// The new nodes above two words of different hashes.
struct Branch<K, V> {
    top: *mut Node<K, V>,
    /// The node that has the two.
    last: *mut Node<K, V>,
    slots: [usize; 2],
}

impl<K, V> Branch<K, V> {
    fn new(place: &Place<'_, K, V>, hash: u32, word: Word, new: Word) -> Self {
        let mut shift = place.shift;
        let mut parent = ptr::from_ref(place.node);
        let (mut top, mut above) = (ptr::null_mut(), None);
        loop {
            shift -= BITS;
            let slots = [nibble(hash, shift), nibble(place.hash, shift)];
            let apart = slots[0] != slots[1];
            let node = Node::boxed(parent, if apart { 2 } else { 1 });
            match above {
                None => top = node,
                // Relaxed here and below: the exchange that shows the branch is a Release.
                // SAFETY: both are new, and this caller's.
                Some((above, slot)) => unsafe { Node::slot(above, slot).store(tagged(node, NODE), Relaxed) },
            }
            if apart {
                for (slot, word) in slots.into_iter().zip([word, new]) {
                    // SAFETY: as above.
                    unsafe { Node::slot(node, slot).store(word, Relaxed) };
                }
                return Self { top, last: node, slots };
            }
            parent = node;
            above = Some((node, slots[0]));
        }
    }

    /// Frees the nodes, not what they are above.
    ///
    /// # Safety
    /// No other caller has seen them.
    #[cold]
    unsafe fn undo(self) {
        for slot in self.slots {
            // SAFETY: they are this caller's.
            unsafe { Node::slot(self.last, slot).store(ptr::null_mut(), Relaxed) };
        }
        // SAFETY: no other caller has seen them, and they have nothing else below them.
        unsafe { Node::free(self.top) };
    }
}

impl<K, V> Node<K, V> {
    fn boxed(parent: *const Self, taken: usize) -> *mut Self {
        let slots = std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()));
        Box::into_raw(Box::new(Self { taken: AtomicUsize::new(taken), parent, slots, owns: PhantomData }))
    }

    /// # Safety
    /// The node is there for `'a`.
    unsafe fn slot<'a>(this: *mut Self, slot: usize) -> &'a AtomicPtr<()> {
        // SAFETY: the caller's promise.
        unsafe { &(&(*this).slots)[slot] }
    }

    /// Counts a slot as taken. If the node is dead, prunes it, and returns false.
    #[inline]
    fn take(&self, place: &Place<'_, K, V>, guard: &impl Shield) -> bool {
        if self.parent.is_null() {
            return true;
        }
        match self.taken.fetch_add(1, AcqRel) {
            0 => mark(REVIVED),
            was if was & DEAD != 0 => {
                mark(HELPED);
                self.prune(place.hash, place.shift, guard);
                return false;
            }
            _ => {}
        }
        true
    }

    /// A slot is empty again. A node without any is pruned, and so on upwards.
    #[inline]
    fn release(&self, hash: u32, shift: u32, guard: &impl Shield) {
        if !self.parent.is_null()
            && self.taken.fetch_sub(1, AcqRel) == 1
            && self.taken.compare_exchange(0, DEAD, AcqRel, Relaxed).is_ok()
        {
            self.prune(hash, shift, guard);
        }
    }

    /// Takes this node, which is dead, out of its parent, unless another caller has. `shift` is this node's.
    #[inline(never)]
    fn prune(&self, hash: u32, shift: u32, guard: &impl Shield) {
        // SAFETY: a node is taken out before its parent. This one was in it under the caller's guard, which keeps both.
        let parent = unsafe { &*self.parent };
        let above = shift + BITS;
        let slot = &parent.slots[nibble(hash, above)];
        if let Ok(word) = slot.compare_exchange(tagged(self, NODE), ptr::null_mut(), SeqCst, Relaxed) {
            mark(PRUNED);
            // SAFETY: one caller takes it out of its only slot.
            unsafe { guard.retire(untagged::<Self>(word)) };
            parent.release(hash, above, guard);
        }
    }

    /// The slots are looked at before what is in them: which of them are empty is hard to predict, how many is less so.
    fn walk(&self, f: &mut impl FnMut(&Entry<K, V>) -> bool) -> bool {
        // Which slots are empty is hard to predict: so first all are looked at without a branch. A key in one that is filled
        // later was not in the map all the while. The others are looked at again, in their turn.
        let (mut full, mut len) = ([0; SLOTS], 0);
        for (n, slot) in self.slots.iter().enumerate() {
            full[len] = n;
            len += usize::from(!slot.load(SeqCst).is_null());
        }
        full[..len].iter().all(|&n| {
            // SAFETY: loaded under the guard of the caller of `Trie::walk`.
            match unsafe { Child::of(self.slots[n].load(SeqCst)) } {
                Child::Empty => true,
                Child::Entry(entry) => f(entry),
                Child::List(list) => list.iter().all(&mut *f),
                Child::Node(node) => node.walk(f),
            }
        })
    }
}

/// With all that is below it.
impl<K, V> Free for Node<K, V> {
    unsafe fn free(this: *mut Self) {
        // SAFETY: the caller's promise.
        let node = unsafe { Box::from_raw(this) };
        for slot in &node.slots {
            let word = slot.load(Relaxed);
            // SAFETY: what is in a slot now is reached by it only.
            unsafe {
                match Child::<K, V>::of(word) {
                    Child::Empty => {}
                    Child::Entry(_) => Entry::free(untagged::<Entry<K, V>>(word)),
                    Child::Node(_) => Self::free(untagged(word)),
                    Child::List(list) => {
                        list.entries.iter().for_each(|&entry| Entry::free(entry));
                        List::free(untagged::<List<K, V>>(word));
                    }
                }
            }
        }
    }
}

impl<K, V> List<K, V> {
    /// These entries, two or more, or the one that there is; as a word for a slot.
    fn word(hash: u32, entries: Box<[*mut Entry<K, V>]>) -> Word {
        match *entries {
            [one] => tagged(one, 0),
            _ => tagged(Box::into_raw(Box::new(Self { hash, entries })), LIST),
        }
    }

    /// # Safety
    /// The word is one of `word`'s, and no other caller has seen it.
    #[cold]
    unsafe fn unmake(word: Word) {
        if word.addr() & TAG == LIST {
            // SAFETY: the caller's promise.
            unsafe { Self::free(untagged(word)) };
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Entry<K, V>> {
        // SAFETY: what keeps the list keeps its entries: those that leave it are retired no earlier.
        self.entries.iter().map(|&entry| unsafe { &*entry })
    }
}

/// Not its entries.
impl<K, V> Free for List<K, V> {
    unsafe fn free(this: *mut Self) {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(this) });
    }
}

/// The user's destructors: a panic has been reported, and goes no further, as it would unwind what frees memory.
impl<K, V> Free for Entry<K, V> {
    #[inline]
    unsafe fn free(this: *mut Self) {
        // SAFETY: it is there as long as there are shares, and the caller has one.
        let shares = unsafe { &(*this).shares };
        // Acquire: what others did with it comes before its end. If this is the last share there will be no others, as
        // these are made under guards.
        if shares.load(Acquire) != 1 {
            if shares.fetch_sub(1, Release) != 1 {
                return;
            }
            fence(Acquire);
        }
        // SAFETY: this was the last share.
        let entry = *unsafe { Box::from_raw(this) };
        quietly(entry.key);
        quietly(entry.value);
    }
}

fn quietly<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value)))
        && let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        mem::forget(another); // it may go on like this
    }
}

impl<K, V> Share<K, V> {
    pub fn value(&self) -> &V {
        // SAFETY: this share keeps it.
        unsafe { &self.0.as_ref().value }
    }
}

impl<K, V> Drop for Share<K, V> {
    fn drop(&mut self) {
        // SAFETY: gives up this share, once.
        unsafe { Entry::free(self.0.as_ptr()) };
    }
}

impl<K, V> New<K, V> {
    #[inline(always)]
    fn key(&self) -> &K {
        match self {
            Self::Parts(key, _) => key,
            // SAFETY: it is this caller's.
            Self::Entry(entry) => unsafe { &entry.0.as_ref().key },
            Self::Stored => unreachable!("the loop has ended"),
        }
    }

    /// In memory of its own.
    #[inline(always)]
    fn entry(&mut self, hash: u32) -> *mut Entry<K, V> {
        if let Self::Parts(..) = self
            && let Self::Parts(key, value) = mem::replace(self, Self::Stored)
        {
            let entry = Box::new(Entry { hash, shares: AtomicU32::new(1), key, value });
            *self = Self::Entry(Unseen(NonNull::from(Box::leak(entry))));
        }
        match self {
            Self::Entry(entry) => entry.0.as_ptr(),
            _ => unreachable!("it has just been made"),
        }
    }

    /// It is the map's now.
    #[inline(always)]
    fn stored(&mut self) {
        mem::forget(mem::replace(self, Self::Stored));
    }
}

impl<K, V> Drop for Unseen<K, V> {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and no other caller has seen it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Models: every interleaving, on loom's memory model, up to a bound of preemptions. What is retired is freed with the
/// trie, so a method that looks at what it should not is seen by its result; retiring twice is a panic.
///
/// `RUSTFLAGS="--cfg sudog_loom" cargo test --profile loom -p sudog-sync --lib map::`
#[cfg(all(test, sudog_loom))]
mod model {
    use std::panic::panic_any;

    use loom::sync::Arc;
    use loom::thread::{self, JoinHandle};
    use sudog_runtime::model::under_both;
    use sudog_runtime::reached::must_reach;

    use super::*;

    /// A key that counts how many of them there are. Its hash is given by the caller.
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

    /// Keys 1, 2, 4 and 5 have different hashes whose first eight bits are the same, and 4 and 5 the next four bits, too.
    /// Key 3 is elsewhere, and 11 has the hash of 1.
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
            let guard = self.trie.collector().enter();
            let mut new = New::Parts(Key(key, self.alive.clone()), value);
            let stored = self.trie.put(hash(key), &guard, &mut new, |_| true);
            stored.unwrap_or_else(|_| unreachable!()).1.map(|old| old.value)
        }

        fn insert(&self, key: u32, value: u32) -> bool {
            let guard = self.trie.collector().enter();
            let mut new = New::Parts(Key(key, self.alive.clone()), value);
            self.trie.put(hash(key), &guard, &mut new, |there| there.is_none()).is_ok()
        }

        fn load(&self, key: u32) -> Option<u32> {
            let guard = self.trie.collector().enter();
            Some(self.trie.find(hash(key), &guard, |there| there.0 == key)?.value)
        }

        fn delete(&self, key: u32) -> Option<u32> {
            let guard = self.trie.collector().enter();
            Some(self.trie.remove(hash(key), &guard, |there| there.0 == key, |_| true)?.value)
        }

        fn assert_is_without_nodes(&self) {
            // SAFETY: only one thread is left, and the root is there.
            let root = unsafe { &*self.trie.root.load(SeqCst) };
            assert!(root.slots.iter().all(|slot| slot.load(SeqCst).is_null()), "an empty node is left");
        }

        fn clear(&self) {
            self.trie.clear(&self.trie.collector().enter());
        }

        fn keys(&self) -> Vec<u32> {
            let mut keys = Vec::new();
            self.trie.walk(&self.trie.collector().enter_owned(), &mut |entry| {
                keys.push(entry.key.0);
                true
            });
            keys
        }
    }

    fn explore(states: &[&'static str], model: impl Fn(&Arc<World>) + Sync + Send + Copy + 'static) {
        must_reach(states, || {
            under_both(|| {
                let mut builder = loom::model::Builder::new();
                builder.preemption_bound = Some(3);
                builder.max_branches = 20_000;
                builder.check(move || {
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

    /// The last key of a node goes while another one comes: it is never in a node that is not in the map.
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

    /// Two removals empty a node, so both try to prune it and the one above.
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

    /// Two insertions want one place. The one that fails keeps nothing of it: the nodes go with their last keys.
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

    /// Two insertions that branch, one of them for the same slot.
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

    /// Of two that exchange and one that removes, each gets what another has put, and nothing is got twice.
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

    /// The same in a list.
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

    /// Of two that store and then look for each other's key, one finds it.
    #[test]
    fn of_two_that_insert_one_finds_the_other() {
        explore(&[], |world| {
            let other = spawn(world, |world| (world.store(1, 1), world.load(3)).1);
            let found = (world.store(3, 3), world.load(1)).1;
            let others = other.join().unwrap();
            assert!(found.is_some() || others.is_some());
        });
    }

    /// A clear takes all or none of what was stored in turn: the first key is not there without the second.
    #[test]
    fn a_clear_is_one_instant() {
        const ALL: &str = "the walk after a clear finds nothing";
        const SECOND: &str = "the clear comes between the two";
        explore(&[ALL, SECOND], |world| {
            let other = spawn(world, |world| {
                world.store(1, 1);
                world.store(3, 3);
            });
            world.clear();
            other.join().unwrap();
            match *world.keys() {
                [] => mark(ALL),
                [3] => mark(SECOND),
                [1, 3] => {}
                _ => panic_any("the first without the second"),
            }
        });
    }

    /// A key that moves, as its node dies, is not met twice; one that stays is met.
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
