//! A panic that several callers get: that of a function which was run once, for all of them.
//!
//! | what the function panicked with | what each caller panics with |
//! |---|---|
//! | a `&'static str` or a `String`, as `panic!` makes them | the same text, as the same type |
//! | anything else | a [`SharedPanic`], which names it |
//!
//! The panic hook has its say where the function panics, with the whole stack down to there; then once for each further
//! caller, with the caller's place.

use std::any::Any;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe, panic_any, resume_unwind};
use std::sync::Arc;

/// What a panic carries that more than one caller gets, if it is no text: the original payload, shared.
///
/// A [`OnceFunc`](crate::OnceFunc) whose function panicked panics in each call, and a flight of a
/// [`SingleFlight`](crate::x::SingleFlight) in each of its callers, with the same value, as in Go. A payload cannot be
/// cloned; so it is shared. (Payloads that are a `&'static str` or a `String` are cloned.)
///
/// # Examples
///
/// ```
/// use std::panic::{catch_unwind, panic_any};
/// use sudog::sync::{OnceFunc, SharedPanic};
///
/// static FAILS: OnceFunc = OnceFunc::new(|| panic_any(42));
///
/// for _ in 0..2 {
///     let payload = catch_unwind(|| FAILS.call()).unwrap_err();
///     let payload = payload.downcast_ref::<SharedPanic>().unwrap();
///     assert_eq!(payload.downcast_ref::<i32>(), Some(&42));
/// }
/// ```
#[derive(Clone)]
pub struct SharedPanic(Arc<Payload>);

struct Payload(Box<dyn Any + Send>);

// SAFETY: a shared reference gives out nothing but the type of the value, which is not in the value; and `&T` for a `T`
// that is `Sync`. The value is dropped by one thread, the last owner's, or moved out by it: and it is `Send`.
unsafe impl Sync for Payload {}

// As the payload that `catch_unwind` returns, it is the end of what has panicked, and not a way to look into that.
impl UnwindSafe for SharedPanic {}
impl RefUnwindSafe for SharedPanic {}

impl SharedPanic {
    /// The original payload, if it is a `T`.
    ///
    /// `T` has to be `Sync`, as any number of threads may look at the same time.
    #[must_use]
    pub fn downcast_ref<T: Any + Sync>(&self) -> Option<&T> {
        self.0.0.downcast_ref()
    }

    /// Whether the original payload is a `T`.
    #[must_use]
    pub fn is<T: Any>(&self) -> bool {
        self.0.0.is::<T>()
    }

    /// The original payload, if this is the last share in it.
    ///
    /// # Errors
    ///
    /// `self`, if it is not: the value that panicked keeps its share until it is dropped.
    pub fn into_inner(self) -> Result<Box<dyn Any + Send>, Self> {
        Arc::try_unwrap(self.0).map(|payload| payload.0).map_err(Self)
    }
}

impl fmt::Debug for SharedPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPanic").finish_non_exhaustive()
    }
}

impl fmt::Display for SharedPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a panic with a value that is no text")
    }
}

impl std::error::Error for SharedPanic {}

/// A panic that was caught, to be raised any number of times.
pub(crate) enum Caught {
    Literal(&'static str),
    Text(Box<str>),
    Shared(SharedPanic),
}

impl Caught {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Self {
        let payload = match payload.downcast::<&'static str>() {
            Ok(text) => return Self::Literal(*text),
            Err(payload) => payload,
        };
        let payload = match payload.downcast::<String>() {
            Ok(text) => return Self::Text(text.into_boxed_str()),
            Err(payload) => payload,
        };
        // One that came through another of these is not wrapped twice.
        match payload.downcast::<SharedPanic>() {
            Ok(shared) => Self::Shared(*shared),
            Err(payload) => Self::Shared(SharedPanic(Arc::new(Payload(payload)))),
        }
    }

    /// For the one whose function panicked: the hook has spoken.
    pub(crate) fn resume(&self) -> ! {
        resume_unwind(match self {
            Self::Literal(text) => Box::new(*text),
            Self::Text(text) => Box::new(text.to_string()),
            Self::Shared(shared) => Box::new(shared.clone()),
        })
    }

    /// For the others.
    #[track_caller]
    pub(crate) fn raise(&self) -> ! {
        match self {
            Self::Literal(text) => panic_any(*text),
            Self::Text(text) => panic_any(text.to_string()),
            Self::Shared(shared) => panic_any(shared.clone()),
        }
    }
}

/// Whether this is no panic, but the end of a goroutine by `goexit`.
#[cfg_attr(not(unix), allow(unused_variables))]
pub(crate) fn is_goexit(payload: &(dyn Any + Send)) -> bool {
    #[cfg(unix)]
    let is = payload.is::<sudog_runtime::goroutine::Goexit>();
    #[cfg(not(unix))]
    let is = false;
    is
}
