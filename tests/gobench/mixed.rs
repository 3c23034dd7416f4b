//! Mixed deadlocks: a lock is held across a wait for a channel, a wait group or a Cond; or a Cond's signal comes too
//! early, or never.

use sudog::chan::select;
use sudog::sync::{Cond, GoMutex, GoRwMutex, Mutex, WaitGroup};

use crate::kernel::{chan, go, new, until};

/// Stop waits for the tasks under the lock that a task needs to start another.
pub fn cockroach_1055() {
    let (mu, tasks) = (new::<GoMutex>(), new::<WaitGroup>());
    tasks.add(1);
    go("task", move || {
        until(|| mu.is_locked());
        mu.lock(); //~ task: sync.Mutex.Lock, held by test
        tasks.done();
    });
    mu.lock();
    tasks.wait(); //~ test: sync.WaitGroup.Wait
}

/// Stop waits for a worker, which sends an event that is not received once all stops.
pub fn cockroach_1462() {
    let (workers, events) = (new::<WaitGroup>(), chan(0));
    workers.add(1);
    go("worker", move || {
        events.send("event"); //~ worker: chan send
        workers.done();
    });
    workers.wait(); //~ test: sync.WaitGroup.Wait
}

/// Stop holds the lock while it waits for a loop that needs the lock.
pub fn etcd_6873() {
    let (mu, updates, done) = (new::<GoMutex>(), chan(1), chan::<()>(0));
    go("broadcasts", move || {
        for _update in updates {
            until(|| mu.is_locked());
            mu.lock(); //~ broadcasts: sync.Mutex.Lock, held by test
            mu.unlock();
        }
        done.close();
    });
    updates.send("update");
    mu.lock();
    updates.close();
    done.recv(); //~ test: chan receive
}

/// A balancer sends addresses under its lock to a watcher, which tears a connection down, which locks.
pub fn etcd_7443() {
    let (balancer, connection, notify) = (new::<GoMutex>(), new::<GoMutex>(), chan(0));
    go("reset transport", move || {
        connection.lock();
        balancer.lock();
        notify.send("address"); //~ reset transport: chan send
    });
    go("watcher", move || {
        until(|| balancer.is_locked());
        connection.lock(); //~ watcher: sync.Mutex.Lock, held by reset transport
        notify.recv();
    });
}

/// A new token is sent under the lock to the keeper, which takes the lock to delete a token.
pub fn etcd_7492() {
    let (tokens, add, delete) = (new::<GoMutex>(), chan(0), chan::<()>(1));
    delete.send(());
    go("keeper", move || {
        loop {
            select! {
                recv(delete) => {
                    until(|| tokens.is_locked());
                    tokens.lock(); //~ keeper: sync.Mutex.Lock, held by authenticate
                    tokens.unlock();
                }
                recv(if delete.is_empty() { add } else { chan(0) }) => {}
            }
        }
    });
    go("authenticate", move || {
        tokens.lock();
        add.send("token"); //~ authenticate: chan send
    });
}

/// A member of an election waits under the lock for the next round, which other members can begin only with the lock.
pub fn etcd_7902() {
    let (mu, next) = (new::<GoMutex>(), chan::<()>(0));
    go("leader", move || {
        mu.lock();
        next.recv(); //~ leader: chan receive
        mu.unlock();
    });
    until(|| next.waiting_receivers() > 0);
    for _follower in 0..2 {
        go("follower", move || {
            mu.lock(); //~ follower: sync.Mutex.Lock, held by leader
            next.close();
        });
    }
    until(|| mu.waiters() == 2);
}

/// A round robin opens an address under its lock, for a watcher that takes the lock to close another address.
pub fn grpc_1353() {
    let (robin, addresses) = (new::<Mutex<u32>>(), chan(0));
    go("updates", move || {
        let mut next = robin.lock();
        *next += 1;
        addresses.send(*next); //~ updates: chan send
    });
    until(|| addresses.waiting_senders() > 0);
    *robin.lock() = 0; //~ test: sync.Mutex.Lock, held by updates
    addresses.recv();
}

/// A transport without streams holds its lock while it sleeps, until a new stream wakes it; the stream needs the lock.
pub fn grpc_1460() {
    let (transport, awaken) = (new::<GoMutex>(), chan::<()>(0));
    go("keepalive", move || {
        transport.lock();
        awaken.recv(); //~ keepalive: chan receive
        transport.unlock();
    });
    until(|| awaken.waiting_receivers() > 0);
    transport.lock(); //~ test: sync.Mutex.Lock, held by keepalive
    awaken.send(());
}

/// A test holds a lock while it waits for an event whose handler takes the lock.
pub fn istio_16224() {
    let (mu, events) = (new::<GoMutex>(), chan(0));
    go("handler", move || {
        until(|| mu.is_locked());
        mu.lock(); //~ handler: sync.Mutex.Lock, held by test
        events.send("event");
    });
    mu.lock();
    events.recv(); //~ test: chan receive
}

/// Events are distributed under the lock, and a watcher that stops takes the lock instead of receiving the event.
pub fn kubernetes_1321() {
    let (mux, result) = (new::<GoMutex>(), chan(0));
    go("distribute", move || {
        mux.lock();
        result.send("event"); //~ distribute: chan send
    });
    until(|| result.waiting_senders() > 0);
    mux.lock(); //~ test: sync.Mutex.Lock, held by distribute
    result.close();
}

/// A frame is written under the lock, and resets a timer whose goroutine waits for that lock to end the connection.
pub fn kubernetes_6632() {
    let (write, reset) = (new::<GoMutex>(), chan(0));
    go("monitor", move || {
        until(|| write.is_locked());
        write.lock(); //~ monitor: sync.Mutex.Lock, held by test
        reset.close();
    });
    write.lock();
    reset.send(true); //~ test: chan send
}

/// The status of a pod is sent under the lock that the receiver takes to forget a pod.
pub fn kubernetes_10182() {
    let (statuses, channel) = (new::<Mutex<Vec<u32>>>(), chan(0));
    let set = |pod| {
        let mut all = statuses.lock(); //~ second: sync.Mutex.Lock, held by first
        all.push(pod);
        channel.send(pod); //~ first: chan send
    };
    go("first", move || set(1));
    until(|| channel.waiting_senders() > 0);
    go("second", move || set(2));
    until(|| statuses.is_locked());
    let forget = || statuses.lock().clear(); //~ test: sync.Mutex.Lock, held by first
    forget();
    channel.recv();
}

/// A signal comes before the wait, and nothing is checked in between.
pub fn kubernetes_11298() {
    let (mu, ended, watching) = (new::<GoMutex>(), new::<Cond>(), chan::<()>(0));
    go("node", move || {
        mu.lock();
        watching.recv();
        ended.wait_locker(mu); //~ node: sync.Cond.Wait
    });
    ended.signal();
    watching.close();
}

/// Notifications are passed on under the lock, to a receiver that first takes the lock to add another notification.
pub fn kubernetes_26980() {
    let (pending, next) = (new::<Mutex<Vec<u32>>>(), chan(0));
    pending.lock().push(1);
    go("pop", move || {
        let mut pending = pending.lock();
        pending.drain(..).for_each(|notification| next.send(notification)); //~ pop: chan send
    });
    until(|| next.waiting_senders() > 0);
    pending.lock().push(2); //~ test: sync.Mutex.Lock, held by pop
    next.recv();
}

/// A worker reads while it waits for the queue, sync wants to write, and a second worker can read no more.
pub fn kubernetes_58107() {
    let (workers, mu, added) = (new::<GoRwMutex>(), new::<GoMutex>(), new::<Cond>());
    let work = || {
        workers.rlock(); //~ second: sync.RWMutex.RLock, held by sync
        mu.lock();
        added.wait_locker(mu); //~ first: sync.Cond.Wait
    };
    go("first", work);
    until(|| added.waiters() == 1);
    go("sync", move || workers.lock()); //~ sync: sync.RWMutex.Lock, held by first
    until(|| workers.has_writer());
    go("second", work);
}

/// A group is awaited in the loop that starts its members.
pub fn moby_25384() {
    let (plugins, group) = (["a", "b"], new::<WaitGroup>());
    group.add(plugins.len() as i32);
    for plugin in plugins {
        go(plugin, move || group.done());
        group.wait(); //~ test: sync.WaitGroup.Wait
    }
}

/// A reader of events waits for a Cond under the lock with which the events are sent to it.
pub fn moby_27782() {
    let (mu, closed, events) = (new::<GoMutex>(), new::<Cond>(), chan(0));
    go("close", move || {
        mu.lock();
        closed.wait_locker(mu); //~ close: sync.Cond.Wait
        mu.unlock();
    });
    until(|| closed.waiters() == 1);
    go("read events", move || {
        events.send("event"); //~ read events: chan send
        closed.broadcast();
    });
}

/// A change of state, under the container's lock, stops a monitor that needs this lock before it can stop.
pub fn moby_28462() {
    let (container, stop) = (new::<GoMutex>(), chan(0));
    go("monitor", move || {
        until(|| container.is_locked());
        container.lock(); //~ monitor: sync.Mutex.Lock, held by test
        container.unlock();
        stop.recv();
    });
    container.lock();
    stop.send(()); //~ test: chan send
}

/// A plugin that fails to start does not tell those that wait for it.
pub fn moby_29733() {
    let (active, changed) = (new::<Mutex<bool>>(), new::<Cond>());
    go("get", move || {
        let mut active = active.lock();
        while !*active {
            changed.wait(&mut active); //~ get: sync.Cond.Wait
        }
    });
    until(|| changed.waiters() == 1);
    let activate = || Err::<(), _>("handshake failed");
    if activate().is_ok() {
        *active.lock() = true;
        changed.broadcast();
    }
}

/// A plugin becomes active without a broadcast to those that wait for it.
pub fn moby_30408() {
    let (active, changed) = (new::<Mutex<bool>>(), new::<Cond>());
    for _waiter in 0..2 {
        go("waiter", move || {
            let mut active = active.lock();
            while !*active {
                changed.wait(&mut active); //~ waiter: sync.Cond.Wait
            }
        });
    }
    until(|| changed.waiters() == 2);
    *active.lock() = true;
}

/// Requests take a slot and then a lock of their own. The test unlocks the first, but the second has the slot.
pub fn serving_2137() {
    let (slots, first, second, accepted) = (chan(1), new::<GoMutex>(), new::<GoMutex>(), chan::<()>(0));
    first.lock();
    second.lock();
    go("second", move || {
        slots.send(());
        second.lock(); //~ second: sync.Mutex.Lock, held by test
        slots.recv();
    });
    until(|| slots.is_full());
    go("first", move || {
        slots.send(()); //~ first: chan send
        first.lock();
        accepted.close();
    });
    first.unlock();
    accepted.recv(); //~ test: chan receive
    second.unlock();
}
