//! Version 8: version 7 with its fast paths split from its slow ones, and with checks.
//!
//! | version 7 | version 8 |
//! |---|---|
//! | `lock` and `unlock` are a function each, which is called | one compare-exchange, or one subtraction, is inlined; the rest is cold, and elsewhere |
//! | an unlock of an unlocked mutex makes the word a lie | it ends the process: `fatal error: sync: unlock of unlocked mutex` |
//! | a word that cannot be is not noticed | it ends the process: `fatal error: sync: inconsistent mutex state` |
//!
//! Source: Version #8; Go commits ca922b6d36 (2016: misuse), 41cb0aedff and 4c3f26076b (2019: inlining), Go 1.13.

use crate::GoMutex;
use crate::mutex::policy;
use crate::semaphore::RuntimeSema;

/// The Go mutex as it is today: [`GoMutex`] under [`policy::Go`].
///
/// It is no copy, so it has what `GoMutex` adds: deadlines in the line, async tasks, a bound to its count, waiters that
/// can leave.
///
/// # Examples
///
/// ```
/// use sudog::sync::mutex::stages::V8;
///
/// static MU: V8 = V8::const_new();
/// MU.lock();
/// MU.unlock();
/// ```
pub type V8<S = RuntimeSema> = GoMutex<S, policy::Go>;
