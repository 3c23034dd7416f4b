//! Spans of `tracing` that belong to goroutines.
//!
//! A subscriber keeps the entered spans in a `thread_local!`. Goroutines of one worker interleave, so the log lines of
//! one goroutine would be in the spans of the others. [`PerGoroutine`] exits a goroutine's spans when the goroutine
//! leaves the worker, and enters them again when the goroutine goes on.
//!
//! | place | content |
//! |---|---|
//! | [`ENTERED`], of the thread | the spans that the running flow of control has entered: the goroutine, or the thread itself |
//! | [`WAITING`], of a goroutine that waits | the goroutine's spans, and the dispatcher of these spans |
//! | [`OUTER`], of a worker's thread | the spans that the thread itself has entered, not a goroutine |

use crate::shim::system;
use crate::shim::system::OnceLock;
use std::any::TypeId;
use std::cell::{Cell, RefCell};

use tracing_core::dispatcher::{Dispatch, get_default};
use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::{Event, Interest, LevelFilter, Metadata, Subscriber};

use super::switch_hooks::{Entering, Leaving, SwitchHooks, add_switch_hooks};

system::thread_local! {
    static ENTERED: RefCell<Vec<Id>> = const { RefCell::new(Vec::new()) };
    static OUTER: RefCell<Vec<Id>> = const { RefCell::new(Vec::new()) };
    /// True while a switch hook enters or exits spans. False if the program itself enters or exits a span.
    static SWITCHING: Cell<bool> = const { Cell::new(false) };
}

crate::goroutine_local! {
    static WAITING: RefCell<Option<(Dispatch, Vec<Id>)>> = RefCell::new(None);
}

/// A subscriber whose spans belong to goroutines, not to the threads on which they take turns.
///
/// Wraps another subscriber. Install this subscriber for the process, before goroutines start. `PerGoroutine` changes
/// nothing for spans of threads, nor for spans of async tasks, which use `Instrument`. A subscriber that is only set
/// for a scope (`set_default`, `with_default`) stays the thread's, as `tracing` keeps that subscriber in a
/// thread-local.
///
/// The wrapped subscriber is called at switches as a [hook](add_switch_hooks): the subscriber must not wait.
///
/// # Examples
///
/// ```standalone_crate
/// use sudog::runtime::PerGoroutine;
/// use sudog::{run, spawn};
/// use sudog::runtime::gosched;
/// # use tracing_core::{span::{Attributes, Id, Record}, Event, Metadata, Subscriber};
/// # struct Registry;
/// # impl Subscriber for Registry {
/// #     fn enabled(&self, _: &Metadata<'_>) -> bool { true }
/// #     fn new_span(&self, _: &Attributes<'_>) -> Id { Id::from_u64(1) }
/// #     fn record(&self, _: &Id, _: &Record<'_>) {}
/// #     fn record_follows_from(&self, _: &Id, _: &Id) {}
/// #     fn event(&self, _: &Event<'_>) {}
/// #     fn enter(&self, _: &Id) {}
/// #     fn exit(&self, _: &Id) {}
/// # }
/// # fn registry() -> Registry { Registry }
///
/// // With the crate tracing: tracing::subscriber::set_global_default(PerGoroutine::new(registry())).
/// tracing_core::dispatcher::set_global_default(PerGoroutine::new(registry()).into()).unwrap();
/// run(|| {
///     let request = spawn(|| {
///         // let _span = tracing::info_span!("request").entered();
///         gosched(); // other goroutines run meanwhile, outside of the span
///     });
///     request.join().unwrap();
/// });
/// ```
#[derive(Debug)]
pub struct PerGoroutine<S> {
    inner: S,
}

impl<S: Subscriber> PerGoroutine<S> {
    /// Wraps `inner`.
    ///
    /// # Panics
    ///
    /// If there is [no room](super::TooManySwitchHooks) for the switch hooks of this type.
    pub fn new(inner: S) -> Self {
        static HOOKED: OnceLock<()> = OnceLock::new();
        HOOKED.get_or_init(|| {
            let added = add_switch_hooks(SwitchHooks { enter, leave });
            added.expect("the spans of goroutines need switch hooks");
        });
        Self { inner }
    }

    /// Returns the wrapped subscriber.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

fn enter(why: Entering) {
    let outer = ENTERED.take();
    if !outer.is_empty() {
        OUTER.with_borrow_mut(|spans| spans.extend(outer));
    }
    if why == Entering::Begins {
        return;
    }
    if let Some((dispatch, spans)) = WAITING.with(RefCell::take) {
        switching(|| spans.iter().for_each(|span| dispatch.enter(span)));
        ENTERED.set(spans);
    }
}

fn leave(why: Leaving) {
    let spans = ENTERED.take();
    if spans.is_empty() {
        return;
    }
    let dispatch = get_default(Dispatch::clone);
    switching(|| spans.iter().rev().for_each(|span| dispatch.exit(span)));
    // Keep the spans of a goroutine that waits. If a goroutine has ended and spans are left, their guards were leaked:
    // forget these spans.
    if why == Leaving::Waits {
        WAITING.with(|waiting| waiting.replace(Some((dispatch, spans))));
    }
}

fn switching(f: impl FnOnce()) {
    SWITCHING.set(true);
    f();
    SWITCHING.set(false);
}

impl<S: Subscriber> Subscriber for PerGoroutine<S> {
    fn enter(&self, span: &Id) {
        if !SWITCHING.get() {
            ENTERED.with_borrow_mut(|entered| entered.push(span.clone()));
        }
        self.inner.enter(span);
    }

    fn exit(&self, span: &Id) {
        if !SWITCHING.get() {
            let remove = |spans: &mut Vec<Id>| {
                let place = spans.iter().rposition(|entered| entered == span);
                place.map(|place| spans.remove(place)).is_some()
            };
            if !ENTERED.with_borrow_mut(remove) {
                OUTER.with_borrow_mut(remove);
            }
        }
        self.inner.exit(span);
    }

    fn on_register_dispatch(&self, dispatch: &Dispatch) {
        self.inner.on_register_dispatch(dispatch);
    }

    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        self.inner.register_callsite(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.inner.enabled(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        self.inner.max_level_hint()
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.inner.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.inner.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.inner.record_follows_from(span, follows);
    }

    fn event_enabled(&self, event: &Event<'_>) -> bool {
        self.inner.event_enabled(event)
    }

    fn event(&self, event: &Event<'_>) {
        self.inner.event(event);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.inner.clone_span(id)
    }

    fn try_close(&self, id: Id) -> bool {
        self.inner.try_close(id)
    }

    fn current_span(&self) -> Current {
        self.inner.current_span()
    }

    // The trait's default of `drop_span`, which is deprecated, calls `try_close`.

    unsafe fn downcast_raw(&self, id: TypeId) -> Option<*const ()> {
        if id == TypeId::of::<Self>() {
            return Some(std::ptr::from_ref(self).cast());
        }
        // SAFETY: the caller keeps the contract of `downcast_raw` for `self.inner` too: the pointer is to a value of
        // the type `id`, and lives as long as `self`.
        unsafe { self.inner.downcast_raw(id) }
    }
}
