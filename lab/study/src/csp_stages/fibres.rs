//! Stage 3, *fibration*: a fibre is a link with a continuation, and the scheduler's list of fibres is a stack. A fibre
//! runs to its end, so the turns of stage 2 are gone: from stage 4 on a fibre gives way when it hangs on a channel.

use std::cell::Cell;
use std::rc::Rc;

use super::continuation::{Count, Frame, drive};

struct Fibre {
    con: Frame,
    next: Option<Box<Fibre>>,
}

/// The source's `sync_sched`.
#[derive(Default)]
struct Scheduler {
    active: Option<Box<Fibre>>,
}

impl Scheduler {
    fn push(&mut self, con: Frame) {
        self.active = Some(Box::new(Fibre { con, next: self.active.take() }));
    }

    fn run(&mut self) {
        while let Some(mut current) = self.active.take() {
            self.active = current.next.take();
            drive(current.con);
        }
    }
}

pub fn run(calls: u64) -> u64 {
    let sum = Rc::<Cell<u64>>::default();
    let mut scheduler = Scheduler::default();
    (0..100).for_each(|_| scheduler.push(Count::frame(calls, &sum)));
    scheduler.run();
    sum.get()
}
