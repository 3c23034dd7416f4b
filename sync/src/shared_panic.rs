//! The panic of a function that was run once for several callers: each of the callers gets the panic.
//!
//! | the function panicked with | each caller panics with |
//! |---|---|
//! | a `&'static str` or a `String`, as `panic!` makes them | the same text, as the same type |
//! | any other value | a [`SharedPanic`], which shares the value |
//!
//! The panic hook runs where the function panics, with the whole stack down to that point. Then the hook runs once for
//! each further caller, with the caller's location.

use std::any::Any;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe, panic_any, resume_unwind};
use std::sync::Arc;

/// The payload with which several callers panic, if the original payload is not a text. The callers share the original
/// payload.
///
/// As in Go, if the function of a [`OnceFunc`](crate::OnceFunc) has panicked, each call panics with the same value. If
/// the function of a [`SingleFlight`](crate::x::SingleFlight) panics, so does each caller that waits for its result. A
/// payload cannot be cloned, so the callers share the payload. (Payloads that are a `&'static str` or a `String` are
/// cloned.)
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

// SAFETY: a `&Payload` gives access only to the type of the payload, which is not stored in the payload, and to a `&T`
// if `T` is `Sync`. A single thread, that of the last owner, drops the payload or moves the payload out, and the
// payload is `Send`.
unsafe impl Sync for Payload {}

// A `SharedPanic` contains a payload that `catch_unwind` has returned. Such a payload gives no access to the state that
// the panic left behind.
impl UnwindSafe for SharedPanic {}
impl RefUnwindSafe for SharedPanic {}

impl SharedPanic {
    /// Returns the original payload if that is a `T`.
    ///
    /// `T` has to be `Sync`, as any number of threads may use the reference at the same time.
    #[must_use]
    pub fn downcast_ref<T: Any + Sync>(&self) -> Option<&T> {
        self.0.0.downcast_ref()
    }

    /// Returns whether the original payload is a `T`.
    #[must_use]
    pub fn is<T: Any>(&self) -> bool {
        self.0.0.is::<T>()
    }

    /// Returns the original payload if no other `SharedPanic` shares that payload.
    ///
    /// # Errors
    ///
    /// Returns `self` if others share the payload. The value whose function panicked, such as a `OnceFunc`, shares the
    /// payload until that value is dropped.
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
        // Do not wrap a payload again that is a `SharedPanic` already.
        match payload.downcast::<SharedPanic>() {
            Ok(shared) => Self::Shared(*shared),
            Err(payload) => Self::Shared(SharedPanic(Arc::new(Payload(payload)))),
        }
    }

    /// Panics in the caller that ran the function. Does not call the panic hook, because the hook has run already.
    pub(crate) fn resume(&self) -> ! {
        resume_unwind(match self {
            Self::Literal(text) => Box::new(*text),
            Self::Text(text) => Box::new(text.to_string()),
            Self::Shared(shared) => Box::new(shared.clone()),
        })
    }

    /// Panics in any other caller. Calls the panic hook.
    #[track_caller]
    pub(crate) fn raise(&self) -> ! {
        match self {
            Self::Literal(text) => panic_any(*text),
            Self::Text(text) => panic_any(text.to_string()),
            Self::Shared(shared) => panic_any(shared.clone()),
        }
    }
}

/// Returns whether `payload` comes not from a panic, but from `goexit`, which ends a goroutine.
#[cfg_attr(not(unix), allow(unused_variables))]
pub(crate) fn is_goexit(payload: &(dyn Any + Send)) -> bool {
    #[cfg(unix)]
    let is = payload.is::<sudog_runtime::goroutine::Goexit>();
    #[cfg(not(unix))]
    let is = false;
    is
}
