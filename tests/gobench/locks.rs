//! Resource deadlocks: a lock that is locked twice, locks taken in two orders, a lock that is not unlocked.

use std::sync::Arc;

use sudog::sync::{GoMutex, GoRwMutex, Mutex, RwMutex};

use crate::kernel::{go, new, until};

/// A branch leaves the loop with the mutex locked.
pub fn cockroach_584() {
    let (mu, closed) = (new::<GoMutex>(), true);
    loop {
        mu.lock();
        if closed {
            break;
        }
        mu.unlock();
    }
    mu.lock(); //~ test: sync.Mutex.Lock, held by test
}

/// A scan reads twice, and a writer comes between the reads.
pub fn cockroach_3710() {
    let mu = new::<GoRwMutex>();
    go("scan", move || {
        mu.rlock();
        until(|| mu.has_writer());
        mu.rlock(); //~ scan: sync.RWMutex.RLock, held by test
    });
    until(|| mu.readers() > 0);
    mu.lock(); //~ test: sync.RWMutex.Lock, held by scan
}

/// A lookup reads the cache, and locks the cache for reading again to print it, while a writer waits.
pub fn cockroach_6181() {
    let cache = new::<RwMutex<Vec<u32>>>();
    let print = || _ = format!("{:?}", *cache.read()); //~ lookup: sync.RWMutex.RLock, held by test
    go("lookup", move || {
        let entries = cache.read();
        until(|| cache.try_read().is_none());
        print();
        drop(entries);
    });
    until(|| cache.is_locked());
    cache.write().push(1); //~ test: sync.RWMutex.Lock, held by lookup
}

/// A lease locks its table's names, and the names lock their leases.
pub fn cockroach_7504() {
    let (lease, names) = (new::<Mutex<()>>(), new::<Mutex<()>>());
    go("release", move || {
        let _lease = lease.lock();
        until(|| names.is_locked());
        let _names = names.lock(); //~ release: sync.Mutex.Lock, held by test
    });
    let _names = names.lock();
    until(|| lease.is_locked());
    let _lease = lease.lock(); //~ test: sync.Mutex.Lock, held by release
}

/// The log ends the process on an error, under its lock, and the end takes that lock.
pub fn cockroach_9935() {
    let log = new::<Mutex<Vec<&str>>>();
    let exit = || log.lock().push("exit"); //~ test: sync.Mutex.Lock, held by test
    let create_file = || Err::<(), _>("disk full");
    let mut lines = log.lock();
    if create_file().is_err() {
        exit();
    }
    lines.push("line");
}

/// Heartbeats lock the raft after their own lock, a tick does the opposite.
pub fn cockroach_10214() {
    let (coalesced, raft) = (new::<GoMutex>(), new::<GoMutex>());
    go("send heartbeats", move || {
        coalesced.lock();
        until(|| raft.is_locked());
        raft.lock(); //~ send heartbeats: sync.Mutex.Lock, held by tick
    });
    go("tick", move || {
        raft.lock();
        until(|| coalesced.is_locked());
        coalesced.lock(); //~ tick: sync.Mutex.Lock, held by send heartbeats
    });
}

/// A session that reads the configuration reads it again to prepare a statement.
pub fn cockroach_16167() {
    let config = new::<GoRwMutex>();
    let database_cache = || config.rlock(); //~ session: sync.RWMutex.RLock, held by test
    go("session", move || {
        config.rlock();
        until(|| config.has_writer());
        database_cache();
    });
    until(|| config.readers() > 0);
    config.lock(); //~ test: sync.RWMutex.Lock, held by session
}

/// A client that is closed returns an error, and does not unlock.
pub fn etcd_5509() {
    let (client, closed) = (new::<GoRwMutex>(), true);
    let acquire = || {
        client.rlock();
        if closed {
            return Err("closed");
        }
        client.runlock();
        Ok(())
    };
    acquire().unwrap_err();
    client.lock(); //~ test: sync.RWMutex.Lock, held by test
}

/// Sync has the lock for writing, and asks for the leader, which reads.
pub fn etcd_6708() {
    let client = new::<RwMutex<Vec<&str>>>();
    let leader = || client.read().first().copied(); //~ test: sync.RWMutex.RLock, held by test
    let mut endpoints = client.write();
    endpoints.extend(leader());
}

/// A checkpoint locks a mutex that the caller of the checkpoint holds.
pub fn etcd_10492() {
    let lessor = new::<Mutex<u32>>();
    let checkpoint = || *lessor.lock() += 1; //~ test: sync.Mutex.Lock, held by test
    let _promoting = lessor.lock();
    checkpoint();
}

/// A server that stops locks its mutex a second time, where it should unlock.
pub fn grpc_795() {
    let server = new::<GoMutex>();
    server.lock();
    server.lock(); //~ test: sync.Mutex.Lock, held by test
}

/// The timer of a connection that is removed twice finds no entry, and keeps the lock.
pub fn grpc_3017() {
    let (cache, deleted) = (new::<GoMutex>(), new::<GoMutex>());
    go("timer", move || {
        cache.lock();
        deleted.lock(); // and no unlock of the cache
    });
    until(|| deleted.is_locked());
    cache.lock(); //~ test: sync.Mutex.Lock, held by a goroutine that has ended
}

/// A goroutine holds the table's lock while it waits for a URL's lock, whose owner needs the table to unlock.
pub fn hugo_3251() {
    let (table, url) = (new::<GoRwMutex>(), new::<GoMutex>());
    go("first", move || {
        table.lock();
        url.lock();
        table.unlock();
        until(|| url.waiters() > 0);
        table.rlock(); //~ first: sync.RWMutex.RLock, held by test
        url.unlock();
    });
    until(|| url.is_locked() && !table.has_writer());
    table.lock();
    url.lock(); //~ test: sync.Mutex.Lock, held by first
}

/// The content of a page is rendered by a template, which asks for the content.
pub fn hugo_5379() {
    fn content(page: &Mutex<String>) -> usize {
        let mut content = page.lock(); //~ test: sync.Mutex.Lock, held by test
        *content = template(page);
        content.len()
    }
    fn template(page: &Mutex<String>) -> String {
        content(page).to_string()
    }
    content(new());
}

/// The cacher calls its cache under the cacher's lock, and the cache calls the cacher under the cache's lock.
pub fn kubernetes_13135() {
    let (cacher, cache) = (new::<GoMutex>(), new::<GoMutex>());
    go("watch", move || {
        cache.lock();
        until(|| cacher.is_locked());
        cacher.lock(); //~ watch: sync.Mutex.Lock, held by start caching
    });
    go("start caching", move || {
        cacher.lock();
        until(|| cache.is_locked());
        cache.lock(); //~ start caching: sync.Mutex.Lock, held by watch
    });
}

/// A federated informer inspects its subinformers, and a subinformer adds a cluster to the federated one: three locks.
pub fn kubernetes_30872() {
    let locks: [_; 3] = [(); 3].map(|()| Arc::new(Mutex::new(())));
    let [federated, sub, store] = locks.clone();
    let all_are_locked = move || locks.iter().all(|lock| lock.is_locked());
    let lock = |first: &Arc<Mutex<()>>, then: &Arc<Mutex<()>>| {
        let (first, then, all_are_locked) = (first.clone(), then.clone(), all_are_locked.clone());
        move || {
            let _first = first.lock();
            until(all_are_locked);
            drop(then.lock()); //~ federated: sync.Mutex.Lock, held by sub //~ sub: sync.Mutex.Lock, held by store //~ store: sync.Mutex.Lock, held by federated
        }
    };
    go("federated", lock(&federated, &sub));
    go("sub", lock(&sub, &store));
    go("store", lock(&store, &federated));
}

/// A getter of a set of processors reads, and calls another getter, which reads, too; a writer comes between the reads.
pub fn kubernetes_62464() {
    let state = new::<RwMutex<u64>>();
    let default_set = || *state.read(); //~ reconcile: sync.RWMutex.RLock, held by test
    go("reconcile", move || {
        let set = state.read();
        until(|| state.try_read().is_none());
        assert!(*set == default_set());
    });
    until(|| state.is_locked());
    *state.write() = 1; //~ test: sync.RWMutex.Lock, held by reconcile
}

/// The locks of a set of devices and of a device are taken in two orders.
pub fn moby_4951() {
    let (set, device) = (new::<GoMutex>(), new::<GoMutex>());
    go("remove", move || {
        device.lock();
        until(|| set.is_locked());
        set.lock(); //~ remove: sync.Mutex.Lock, held by test
    });
    set.lock();
    until(|| device.is_locked());
    device.lock(); //~ test: sync.Mutex.Lock, held by remove
}

/// A proxy that cannot dial goes on with the next packet, and has not unlocked.
pub fn moby_7559() {
    let (connections, dial) = (new::<GoMutex>(), || Err::<(), _>("refused"));
    for _packet in 0..2 {
        connections.lock(); //~ test: sync.Mutex.Lock, held by test
        if dial().is_err() {
            continue;
        }
        connections.unlock();
    }
}

/// For a device that is gone, a function returns early without an error, and without unlocking.
pub fn moby_17176() {
    let devices = new::<GoMutex>();
    go("deactivate", move || {
        devices.lock();
        let is_there = false;
        if !is_there {
            return;
        }
        devices.unlock();
    });
    until(|| devices.is_locked());
    devices.lock(); //~ test: sync.Mutex.Lock, held by a goroutine that has ended
}

/// The clean-up after an error, under a lock, calls a public function that takes the same lock.
pub fn moby_36114() {
    let machine = new::<Mutex<Vec<u32>>>();
    let hot_remove = || machine.lock().clear(); //~ test: sync.Mutex.Lock, held by test
    let _machine = machine.lock();
    hot_remove();
}

/// A mapping that clears its addresses has the lock for writing, and calls its readers.
pub fn syncthing_4829() {
    let addresses = new::<RwMutex<Vec<u32>>>();
    let notify = || addresses.read().len(); //~ test: sync.RWMutex.RLock, held by test
    let mut cleared = addresses.write();
    cleared.clear();
    notify();
}
