//! Tests of a pool with shards that another caller keeps locked. In use, a shard is locked for nanoseconds, so no other
//! test meets a locked shard for certain.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use super::*;

/// A pool with two shards.
fn two<T, F>(pool: Pool<T, F>) -> Pool<T, F> {
    pool.shards.get_or_init(|| (0..2).map(|_| Shard::new()).collect());
    pool
}

fn shards<T, F>(pool: &Pool<T, F>) -> [&Shard<T>; 2] {
    let (own, shards) = (thread_index() & 1, pool.shards.get().unwrap());
    [&shards[own], &shards[1 - own]]
}

#[test]
fn a_shard_has_one_owner_at_a_time() {
    let pool = two(Pool::<u32, NoNew>::empty());
    let [own, other] = shards(&pool);
    let locked = own.try_lock();
    assert!(locked.is_some() && own.try_lock().is_none() && other.try_lock().is_some());
    drop(locked);
    assert!(own.try_lock().is_some());
}

#[test]
fn a_caller_that_finds_the_shard_taken_goes_to_the_next() {
    let pool = two(Pool::empty());
    let [own, other] = shards(&pool);
    let locked = own.try_lock();
    pool.put(1);
    assert_eq!(pool.get(), Some(1), "put to the other's, and stolen");
    pool.put(2);
    drop(locked);
    let locked = other.try_lock();
    assert_eq!(pool.get(), None, "it is the other's");
    drop(locked);
    assert_eq!(pool.get(), Some(2));
}

#[test]
fn a_caller_that_finds_all_shards_taken_has_no_pool() {
    let pool = two(Pool::new(|| Arc::new(())));
    let locked = shards(&pool).map(Shard::try_lock);
    let item = pool.get();
    pool.put(item.clone());
    assert_eq!(Arc::strong_count(&item), 1, "dropped");
    drop(locked);
    assert!(!Arc::ptr_eq(&pool.get(), &item));
}

#[test]
fn an_owner_takes_the_head_and_a_thief_the_tail() {
    let pool = two(Pool::empty());
    (0..10).for_each(|n| pool.put(n));
    assert_eq!([pool.get(), pool.get(), pool.get()], [Some(0), Some(9), Some(8)], "private, then the head");
    let locked = shards(&pool)[0].try_lock();
    assert_eq!(pool.get(), None);
    drop(locked);
    let stolen = loop {
        // The other threads with the same shard as this thread are owners.
        let thread = || (thread_index() & 1, pool.get());
        let (shard, stolen) = thread::scope(|s| s.spawn(thread).join().unwrap());
        if shard != thread_index() & 1 {
            break stolen;
        }
        pool.put(stolen.unwrap());
    };
    assert_eq!(stolen, Some(1));
}

#[test]
fn age_waits_for_the_owner_of_the_shard() {
    let pool = two(Pool::empty());
    pool.put(1);
    let aged = AtomicUsize::new(0);
    thread::scope(|s| {
        let locked = shards(&pool)[0].try_lock();
        s.spawn(|| {
            pool.age();
            aged.store(1, SeqCst);
        });
        for _ in 0..100 {
            thread::yield_now();
        }
        assert_eq!(aged.load(SeqCst), 0);
        drop(locked);
    });
    pool.age();
    assert_eq!(pool.get(), None);
}

#[test]
fn victims() {
    let pool = two(Pool::empty());
    (0..3).for_each(|n| pool.put(n));
    pool.age();
    pool.put(3);
    assert_eq!(
        [pool.get(), pool.get(), pool.get(), pool.get(), pool.get()],
        [Some(3), Some(0), Some(1), Some(2), None]
    );
}
