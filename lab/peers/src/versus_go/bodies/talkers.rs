//! Goroutines that talk to all others of their family in turn: nothing is gained where they run apart.

use sudog_runtime::goroutine::{go, together};
use sudog_sync::{RwMutex, WaitGroup};

use super::chan::chan;
use super::round::Round;
use super::shared;
use crate::rounds::{WORK, steps};

const SUBSCRIBERS: usize = 8;
const PUBLISHERS: usize = 4;
const CLIENTS: usize = 8;

/// Measures a value that four publishers send to all of eight subscribers, under a read lock.
pub fn pub_sub(round: &mut Round) {
    let subscribers = shared(RwMutex::new([(); SUBSCRIBERS].map(|()| chan(16))));
    let (sent, received) = (shared(WaitGroup::new()), shared(WaitGroup::new()));
    received.add(SUBSCRIBERS as _);
    for &subscriber in subscribers.read().iter() {
        go(move || {
            subscriber.iter().for_each(drop);
            received.done();
        });
    }
    sent.add(PUBLISHERS as _);
    for publisher in 0..PUBLISHERS {
        let n = (round.n + publisher) / PUBLISHERS;
        go(move || {
            for value in 0..n {
                subscribers.read().iter().for_each(|subscriber| subscriber.send(value as u64));
            }
            sent.done();
        });
    }
    sent.wait();
    subscribers.read().iter().for_each(|subscriber| subscriber.close());
    received.wait();
}

/// Measures [`pub_sub`] on a single worker.
pub fn pub_sub_together(round: &mut Round) {
    together(|| pub_sub(round));
}

/// Measures a value that a sender sends to all of eight receivers.
pub fn broadcast(round: &mut Round) {
    let receivers = [(); SUBSCRIBERS].map(|()| chan(0));
    let done = shared(WaitGroup::new());
    done.add(SUBSCRIBERS as _);
    for receiver in receivers {
        go(move || {
            receiver.iter().for_each(drop);
            done.done();
        });
    }
    for value in 0..round.n {
        receivers.iter().for_each(|receiver| receiver.send(value as u64));
    }
    receivers.iter().for_each(|receiver| receiver.close());
    done.wait();
}

/// Measures [`broadcast`] on a single worker.
pub fn broadcast_together(round: &mut Round) {
    together(|| broadcast(round));
}

/// Measures a way once around a ring of eight actors.
pub fn actor_ring(round: &mut Round) {
    let first = chan(1);
    let mut last = first;
    for _ in 0..CLIENTS {
        let (from, to) = (last, chan(1));
        go(move || {
            from.iter().for_each(|value| to.send(steps(WORK, value)));
            to.close();
        });
        last = to;
    }
    for value in 0..round.n {
        first.send(value as u64);
        last.recv();
    }
    first.close();
    last.recv();
}

/// Measures [`actor_ring`] on a single worker.
pub fn actor_ring_together(round: &mut Round) {
    together(|| actor_ring(round));
}

/// Measures a request of eight clients to a server, with the answer.
pub fn one_server(round: &mut Round) {
    let (requests, done) = (chan(0), shared(WaitGroup::new()));
    let answers: &[_; CLIENTS] = shared([(); CLIENTS].map(|()| chan(0)));
    go(move || requests.iter().for_each(|client| answers[client as usize].send(steps(WORK, client))));
    done.add(CLIENTS as _);
    for (client, answer) in answers.iter().enumerate() {
        let n = (round.n + client) / CLIENTS;
        go(move || {
            for _ in 0..n {
                requests.send(client as u64);
                answer.recv();
            }
            done.done();
        });
    }
    done.wait();
    requests.close();
}

/// Measures [`one_server`] on a single worker.
pub fn one_server_together(round: &mut Round) {
    together(|| one_server(round));
}
