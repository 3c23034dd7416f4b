//! Stage 5, *concurrency*: the list of active fibres and each channel have a lock, and several threads, each with a
//! scheduler, share the list. A thread returns when the list is empty for a moment. The last fibre is run by the last
//! thread, so the work is done when all threads have returned.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A request of a fibre. Each request has the place at which the fibre goes on.
enum Request {
    Read(Arc<Channel>),
    Write(Arc<Channel>, u64),
    Return,
}

trait Coroutine: Send {
    /// Does a step. `word` is the word that the last request has read.
    fn resume(&mut self, word: u64) -> Request;
}

impl<F: FnMut(u64) -> Request + Send> Coroutine for F {
    fn resume(&mut self, word: u64) -> Request {
        self(word)
    }
}

struct Fibre {
    coroutine: Box<dyn Coroutine>,
    word: u64,
    next: Stack,
}

type Stack = Option<Box<Fibre>>;

fn push(stack: &mut Stack, mut fibre: Box<Fibre>) {
    fibre.next = stack.take();
    *stack = Some(fibre);
}

fn pop(stack: &mut Stack) -> Stack {
    let mut fibre = stack.take()?;
    *stack = fibre.next.take();
    Some(fibre)
}

/// The source's `active_set_t`. The source's lock spins; this lock sleeps.
#[derive(Default)]
struct ActiveSet(Mutex<Stack>);

impl ActiveSet {
    fn push(&self, fibre: Box<Fibre>) {
        push(&mut self.0.lock().unwrap(), fibre);
    }

    fn pop(&self) -> Stack {
        pop(&mut self.0.lock().unwrap())
    }
}

#[derive(Default)]
struct Channel(Mutex<List>);

#[derive(Default)]
struct List {
    top: Stack,
    writers: bool,
}

impl Channel {
    /// Returns a partner and the caller's fibre, or makes the fibre hang. The search for a partner and the push are
    /// under one hold of the lock.
    fn meet(&self, writes: bool, fibre: Box<Fibre>) -> Option<(Box<Fibre>, Box<Fibre>)> {
        let mut list = self.0.lock().unwrap();
        if list.writers != writes
            && let Some(partner) = pop(&mut list.top)
        {
            return Some((partner, fibre));
        }
        list.writers = writes;
        push(&mut list.top, fibre);
        None
    }
}

fn sync_run(set: &ActiveSet) {
    let mut current = set.pop();
    while let Some(mut fibre) = current {
        current = match fibre.coroutine.resume(fibre.word) {
            Request::Read(channel) => match channel.meet(false, fibre) {
                Some((writer, mut reader)) => {
                    reader.word = writer.word;
                    set.push(writer);
                    Some(reader)
                }
                None => set.pop(),
            },
            Request::Write(channel, word) => {
                fibre.word = word;
                match channel.meet(true, fibre) {
                    Some((mut reader, writer)) => {
                        reader.word = word;
                        set.push(writer);
                        Some(reader)
                    }
                    None => set.pop(),
                }
            }
            Request::Return => set.pop(),
        };
    }
}

pub fn squares(n: u64, threads: usize) -> u64 {
    let (numbers, results) = (Arc::<Channel>::default(), Arc::<Channel>::default());
    let sum = Arc::new(AtomicU64::new(0));
    let set = ActiveSet::default();
    let spawn = |coroutine| set.push(Box::new(Fibre { coroutine, word: 0, next: None }));

    let (mut next, out) = (0, numbers.clone());
    spawn(Box::new(move |_| {
        next += 1;
        if next > n { Request::Return } else { Request::Write(out.clone(), next) }
    }));
    let (mut has_read, input, out) = (false, numbers.clone(), results.clone());
    spawn(Box::new(move |word: u64| {
        has_read = !has_read;
        if has_read { Request::Read(input.clone()) } else { Request::Write(out.clone(), word.wrapping_mul(word)) }
    }));
    let (total, input) = (sum.clone(), results.clone());
    spawn(Box::new(move |word| {
        total.fetch_add(word, Relaxed); // wraps
        Request::Read(input.clone())
    }));

    std::thread::scope(|s| (0..threads).for_each(|_| _ = s.spawn(|| sync_run(&set))));
    // Take the fibres that hang out of their channels: a fibre owns its channels, which own the fibre.
    drop([numbers, results].map(|channel| channel.0.lock().unwrap().top.take()));
    sum.load(Relaxed)
}
