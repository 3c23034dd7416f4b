//! Goroutines that stay on one worker because they talk to each other.
//!
//! A fibre has a mark, `together`, which [`together`] sets, and which a goroutine that is started under the mark
//! inherits. When a goroutine ends, the mark of its fibre is cleared.

use crate::goroutine::native::fibre::current;

/// Runs `f`. The goroutines that `f` starts, and the goroutines that these start in turn, stay on the caller's worker.
///
/// For goroutines that mostly talk to each other: the publisher and the subscribers of a topic, actors in a ring,
/// clients of a server. Without `together`, such a family of goroutines is spread over idle workers when the goroutines
/// begin (see [`Placement`](crate::goroutine::Placement)), because the runtime cannot tell the family from a pool of
/// goroutines that compute; and goroutines that have started do not move. Four publishers and eight subscribers take
/// 0.90 us for each value when they are spread over two workers, and 0.26 us together.
///
/// Not for goroutines that compute: all of them share a processor, for as long as they live. Nor for very many
/// goroutines that are started at once: each gets a stack in the call that starts it, while a goroutine that any worker
/// may take gets a stack only when the goroutine begins.
///
/// | goroutines started | stay on the caller's worker |
/// |---|---|
/// | by [`go`](fn@crate::goroutine::go), [`spawn`](crate::goroutine::spawn), [`scope`](fn@crate::goroutine::scope), wait groups, error groups | yes |
/// | with a [`Placement::Worker`](crate::goroutine::Placement::Worker) | on that worker; the goroutines that such a goroutine starts go anywhere |
/// | by a goroutine that cancels a context: the context's callbacks | as if that goroutine had started them |
/// | by a timer, or inside of [`blocking`](fn@crate::goroutine::blocking) and `compute` | no |
/// | async tasks | no: they move between workers |
///
/// If the caller is no goroutine, `together` only calls `f`.
///
/// Go has no such call: there, goroutines move.
///
/// # Panics
///
/// If `f` panics.
///
/// # Examples
///
/// ```
/// use std::thread::current;
/// use sudog::chan::Chan;
/// use sudog::runtime::together;
/// use sudog::{go, run};
///
/// run(|| {
///     let (jobs, answers) = (Chan::new(0), Chan::new(0));
///     together(|| {
///         for _ in 0..8 {
///             go!(clone jobs, answers; {
///                 for n in jobs.iter() {
///                     answers.send((n, current().id()));
///                 }
///             });
///         }
///     });
///     for n in 0..100 {
///         jobs.send(n);
///         assert_eq!(answers.recv(), Some((n, current().id())));
///     }
///     jobs.close();
/// });
/// ```
pub fn together<T>(f: impl FnOnce() -> T) -> T {
    let Some(fibre) = current::fibre() else { return f() };
    let _restore = Restore(fibre.together.replace(true));
    f()
}

/// Restores the mark of the calling goroutine to the state before `together`, also when `f` panics.
struct Restore(bool);

impl Drop for Restore {
    fn drop(&mut self) {
        if let Some(fibre) = current::fibre() {
            fibre.together.set(self.0);
        }
    }
}

/// Returns whether goroutines that the caller starts stay on the caller's worker.
#[inline]
pub(crate) fn is_here() -> bool {
    current::fibre().is_some_and(|fibre| fibre.together.get())
}
