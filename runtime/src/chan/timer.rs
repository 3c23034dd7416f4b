//! Timers and tickers in `recv(..)` of a select.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::port::{RecvArm, Sealed};
use super::select::case::{Case, CaseRef};
use super::select::timed::TimerRef;
use crate::Instant;
use crate::goroutine::{Ticker, Timer, TimerFuture, Times};

/// A case of a select that waits for a timer or a ticker. A case without a timer (`None`) is never ready.
pub struct TimerCase<'a> {
    times: Option<&'a Times>,
    /// The future of the timer. The first poll in a task makes this future.
    future: RefCell<Option<TimerFuture<'a>>>,
    received: Cell<Option<Instant>>,
}

impl Case for TimerCase<'_> {
    type Output = Instant;

    const IS_FUTURE: bool = true;
    const HAS_WAKER: bool = false;

    fn describe(&self) -> CaseRef<'_> {
        CaseRef::NONE
    }

    fn timer(&self) -> Option<TimerRef<'_>> {
        Some(TimerRef { times: self.times?, received: &self.received })
    }

    unsafe fn poll_future(&self, cx: &mut Context<'_>) -> bool {
        let Some(times) = self.times else { return false };
        let mut future = self.future.borrow_mut();
        let future = future.get_or_insert_with(|| TimerFuture::new(times));
        match Pin::new(future).poll(cx) {
            Poll::Ready(when) => {
                self.received.set(Some(when));
                true
            }
            Poll::Pending => false,
        }
    }

    fn drop_future(&self) {
        *self.future.borrow_mut() = None;
    }

    fn output(&self, _closed: bool) -> Instant {
        self.received.take().expect("the timer was received from when it was chosen")
    }
}

macro_rules! arms {
    ($Timer:ident) => {
        impl Sealed for $Timer {}

        arms! { $Timer, |timer| Some(timer.times()) }
        arms! { &$Timer, |timer| Some(timer.times()) }
        arms! { Option<$Timer>, |timer| timer.as_ref().map($Timer::times) }
        arms! { Option<&$Timer>, |timer| timer.map($Timer::times) }
    };
    ($Port:ty, |$timer:ident| $times:expr) => {
        impl RecvArm for $Port {
            type Received = Instant;
            type Case<'a>
                = TimerCase<'a>
            where
                Self: 'a;

            fn recv_case(&self) -> TimerCase<'_> {
                let $timer = self;
                TimerCase { times: $times, future: RefCell::new(None), received: Cell::new(None) }
            }
        }
    };
}

arms!(Timer);
arms!(Ticker);
