//! Stage 4, *channels*: a fibre ends a step by a request to its scheduler. A channel is a stack of fibres, all of which
//! wait to read, or all to write. After an exchange the reader runs, and the writer is active. A fibre that is spawned
//! runs at once. The fibres of one scheduler share its thread, so no lock is needed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A request of a fibre.
enum Request {
    Read(Rc<Channel>),
    Write(Rc<Channel>, u64),
    Spawn(Box<dyn Coroutine>),
    Return,
}

/// A frame that reads and writes. The source's frames hold the request, and the word that is transferred.
trait Coroutine {
    /// Does a step. `word` is the word that the last request has read.
    fn resume(&mut self, word: u64) -> Request;
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

#[derive(Default)]
struct Channel {
    top: RefCell<Stack>,
    /// True if the fibres wait to write: the lowest bit of the source's pointer `top`.
    writers: Cell<bool>,
}

impl Channel {
    fn pop(&self, writers: bool) -> Stack {
        if self.writers.get() == writers { pop(&mut self.top.borrow_mut()) } else { None }
    }

    /// Adds a fibre to a channel that is empty, or whose fibres wait for the same.
    fn push(&self, writers: bool, fibre: Box<Fibre>) {
        self.writers.set(writers);
        push(&mut self.top.borrow_mut(), fibre);
    }
}

/// Runs until there is no work to do. The fibres that then hang on channels end with their channels.
fn sync_run(first: Box<dyn Coroutine>) {
    let new = |coroutine| Box::new(Fibre { coroutine, word: 0, next: None });
    let mut active = Some(new(first));
    let mut current = pop(&mut active);
    while let Some(mut fibre) = current {
        current = match fibre.coroutine.resume(fibre.word) {
            Request::Read(channel) => match channel.pop(true) {
                Some(writer) => {
                    fibre.word = writer.word;
                    push(&mut active, writer);
                    Some(fibre)
                }
                None => {
                    channel.push(false, fibre);
                    pop(&mut active)
                }
            },
            Request::Write(channel, word) => match channel.pop(false) {
                Some(mut reader) => {
                    reader.word = word;
                    push(&mut active, fibre);
                    Some(reader)
                }
                None => {
                    fibre.word = word;
                    channel.push(true, fibre);
                    pop(&mut active)
                }
            },
            Request::Spawn(coroutine) => {
                push(&mut active, fibre);
                Some(new(coroutine))
            }
            Request::Return => pop(&mut active),
        };
    }
}

struct Producer {
    next: u64,
    last: u64,
    out: Rc<Channel>,
}

impl Coroutine for Producer {
    fn resume(&mut self, _: u64) -> Request {
        self.next += 1;
        if self.next > self.last { Request::Return } else { Request::Write(self.out.clone(), self.next) }
    }
}

/// A coroutine that never returns: it fails to resume when its producer has returned.
struct Transducer {
    has_read: bool,
    input: Rc<Channel>,
    out: Rc<Channel>,
}

impl Coroutine for Transducer {
    fn resume(&mut self, word: u64) -> Request {
        self.has_read = !self.has_read;
        match self.has_read {
            true => Request::Read(self.input.clone()),
            false => Request::Write(self.out.clone(), word.wrapping_mul(word)),
        }
    }
}

struct Consumer {
    sum: Rc<Cell<u64>>,
    input: Rc<Channel>,
}

impl Coroutine for Consumer {
    fn resume(&mut self, word: u64) -> Request {
        self.sum.set(self.sum.get().wrapping_add(word));
        Request::Read(self.input.clone())
    }
}

/// Spawns the fibres of a pipeline, in this order.
struct Main(Vec<Box<dyn Coroutine>>);

impl Coroutine for Main {
    fn resume(&mut self, _: u64) -> Request {
        self.0.pop().map_or(Request::Return, Request::Spawn)
    }
}

pub fn squares(n: u64) -> u64 {
    let (numbers, results) = (Rc::<Channel>::default(), Rc::<Channel>::default());
    let sum = Rc::default();
    let consumer = Consumer { sum: Rc::clone(&sum), input: results.clone() };
    let transducer = Transducer { has_read: false, input: numbers.clone(), out: results.clone() };
    let producer = Producer { next: 0, last: n, out: numbers.clone() };
    sync_run(Box::new(Main(vec![Box::new(producer), Box::new(transducer), Box::new(consumer)])));
    // Each of the two fibres that hang owns its channel, which owns the fibre: the circle of the source's last chapter.
    drop((numbers.pop(false), results.pop(false)));
    sum.get()
}
