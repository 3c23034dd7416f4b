//! Stage 1, *subsumption*: coroutines can do all that subroutines do. A frame is a box, and the frames of a call chain are
//! linked by their field `caller`. The driver holds the frame that runs.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A continuation, the source's `con_t`: what is left to do of a procedure, and of its callers.
pub trait Con {
    /// Does a step. Returns the frame that goes on: this frame, that of a callee, or that of the caller.
    fn resume(self: Box<Self>) -> Option<Frame>;
}

pub type Frame = Box<dyn Con>;

/// Runs a continuation until the outermost procedure has returned.
pub fn drive(frame: Frame) {
    let mut current = Some(frame);
    while let Some(frame) = current {
        current = frame.resume();
    }
}

/// A procedure that adds its argument to a sum: the source's `hello`, which prints.
struct Add {
    caller: Frame,
    argument: u64,
    sum: Rc<Cell<u64>>,
}

impl Con for Add {
    fn resume(self: Box<Self>) -> Option<Frame> {
        self.sum.set(self.sum.get() + self.argument);
        Some(self.caller)
    }
}

/// A procedure that calls [`Add`] with 1, 2, .. `last`: the source's `doit`.
pub struct Count {
    /// The place at which the procedure goes on.
    pc: u8,
    counter: u64,
    last: u64,
    sum: Rc<Cell<u64>>,
}

impl Count {
    pub fn frame(last: u64, sum: &Rc<Cell<u64>>) -> Frame {
        Box::new(Self { pc: 0, counter: 0, last, sum: sum.clone() })
    }
}

impl Con for Count {
    fn resume(mut self: Box<Self>) -> Option<Frame> {
        match self.pc {
            0 => {
                self.pc = 1;
                Some(self)
            }
            _ if self.counter == self.last => None,
            _ => {
                self.counter += 1;
                let (argument, sum) = (self.counter, self.sum.clone());
                Some(Box::new(Add { caller: self, argument, sum }))
            }
        }
    }
}

pub fn by_hand(n: u64) -> u64 {
    let sum = Rc::default();
    drive(Count::frame(n, &sum));
    sum.get()
}

/// Returns to the driver once, as each `resume` does.
async fn step() {
    let mut first = true;
    poll_fn(|_| if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }).await;
}

async fn add(argument: u64, sum: &Cell<u64>) {
    step().await;
    sum.set(sum.get() + argument);
}

fn drive_future(future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    while future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
}

/// Does the same with the continuations that the compiler makes of `async` functions: the future is the frame, the state
/// is the `pc`, and `poll` is `resume`. The await of a boxed future is a call that allocates a frame.
pub fn by_compiler(n: u64) -> u64 {
    let sum = Cell::new(0);
    drive_future(async {
        for argument in 1..=n {
            let callee: Pin<Box<dyn Future<Output = ()> + '_>> = Box::pin(add(argument, &sum));
            callee.await;
        }
    });
    sum.get()
}

/// Does the same with a callee's frame that lies in the caller's frame, and so is allocated once.
pub fn frame_kept(n: u64) -> u64 {
    let sum = Cell::new(0);
    drive_future(async {
        for argument in 1..=n {
            add(argument, &sum).await;
        }
    });
    sum.get()
}

/// Does the same with calls on the machine's stack.
pub fn machine_stack(n: u64) -> u64 {
    #[inline(never)]
    fn add(argument: u64, sum: &Cell<u64>) {
        sum.set(sum.get() + argument);
    }
    let sum = Cell::new(0);
    (1..=n).for_each(|argument| add(black_box(argument), &sum));
    sum.get()
}

/// A function returns its result through a pointer to a variable of the caller's frame.
pub fn function(n: u64) -> u64 {
    struct Square {
        caller: Frame,
        argument: u64,
        result: Rc<Cell<u64>>,
    }
    impl Con for Square {
        fn resume(self: Box<Self>) -> Option<Frame> {
            self.result.set(self.argument.wrapping_mul(self.argument));
            Some(self.caller)
        }
    }
    struct SumOfSquares {
        counter: u64,
        last: u64,
        result: Rc<Cell<u64>>,
        sum: Rc<Cell<u64>>,
    }
    impl Con for SumOfSquares {
        fn resume(mut self: Box<Self>) -> Option<Frame> {
            self.sum.set(self.sum.get().wrapping_add(self.result.take()));
            if self.counter == self.last {
                return None;
            }
            self.counter += 1;
            let (argument, result) = (self.counter, self.result.clone());
            Some(Box::new(Square { caller: self, argument, result }))
        }
    }
    let sum = Rc::default();
    drive(Box::new(SumOfSquares { counter: 0, last: n, result: Rc::default(), sum: Rc::clone(&sum) }));
    sum.get()
}

/// A nested procedure is bound to the variables of its parent: the source's display. Here the parent and its children
/// share the ownership of these variables, so no child outlives them: the rule that the source leaves to the programmer
/// ("the call chain covers the display").
pub fn closure(n: u64) -> u64 {
    /// The variables of the parent.
    #[derive(Default)]
    struct Parent {
        counter: Cell<u64>,
        sum: Cell<u64>,
    }
    struct Child {
        caller: Frame,
        display: Rc<Parent>,
    }
    impl Con for Child {
        fn resume(self: Box<Self>) -> Option<Frame> {
            let parent = &self.display;
            parent.sum.set(parent.sum.get() + parent.counter.get());
            Some(self.caller)
        }
    }
    struct Calls {
        last: u64,
        variables: Rc<Parent>,
    }
    impl Con for Calls {
        fn resume(self: Box<Self>) -> Option<Frame> {
            let counter = &self.variables.counter;
            if counter.get() == self.last {
                return None;
            }
            counter.set(counter.get() + 1);
            let display = self.variables.clone();
            Some(Box::new(Child { caller: self, display }))
        }
    }
    let variables = Rc::<Parent>::default();
    drive(Box::new(Calls { last: n, variables: variables.clone() }));
    variables.sum.get()
}
