//! Channels as iterators.

use std::iter::FusedIterator;

use super::core::Core;
use super::limited;
use super::port::RecvPort;
use crate::sema::WaitLimit;

/// An iterator that receives until the channel is closed and has no values left: see [`Chan::iter`](super::Chan::iter).
/// From then on the iterator yields nothing.
#[derive(Debug)]
pub struct Iter<'a, P>(pub(super) &'a P);

/// An iterator that receives values, and ends when a receive would have to wait: see
/// [`Chan::try_iter`](super::Chan::try_iter).
#[derive(Debug)]
pub struct TryIter<'a, P>(pub(super) &'a P);

/// An [`Iter`] that owns its handle.
#[derive(Debug)]
pub struct IntoIter<P>(pub(super) P);

fn next<T>(core: Option<&Core<T>>) -> Option<T> {
    limited::recv(core, &WaitLimit::default()).ok().flatten()
}

impl<P: RecvPort> Iterator for Iter<'_, P> {
    type Item = P::Item;

    #[inline]
    fn next(&mut self) -> Option<P::Item> {
        next(self.0.core())
    }
}

impl<P: RecvPort> Iterator for IntoIter<P> {
    type Item = P::Item;

    #[inline]
    fn next(&mut self) -> Option<P::Item> {
        next(self.0.core())
    }
}

impl<P: RecvPort> Iterator for TryIter<'_, P> {
    type Item = P::Item;

    #[inline]
    fn next(&mut self) -> Option<P::Item> {
        self.0.core()?.try_recv(|_| ()).ok()
    }
}

// A channel that is closed and has no values left stays in this state.
impl<P: RecvPort> FusedIterator for Iter<'_, P> {}
impl<P: RecvPort> FusedIterator for IntoIter<P> {}
