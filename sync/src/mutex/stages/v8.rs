//! Version 8: version 7 with fast paths split from the slow paths, and with checks.
//!
//! | version 7 | version 8 |
//! |---|---|
//! | `lock` and `unlock` are a function each, which is called | a single compare-exchange or subtraction is inlined; the rest is cold, and elsewhere |
//! | an unlock of an unlocked mutex leaves a false word | such an unlock ends the process: `fatal error: sync: unlock of unlocked mutex` |
//! | an impossible word is not noticed | an impossible word ends the process: `fatal error: sync: inconsistent mutex state` |
//!
//! Source: Version #8; Go commits ca922b6d36 (2016: misuse), 41cb0aedff and 4c3f26076b (2019: inlining), Go 1.13.

use crate::GoMutex;
use crate::mutex::policy;
use crate::semaphore::RuntimeSema;

/// Today's Go mutex: [`GoMutex`] under [`policy::Go`].
///
/// `V8` is the `GoMutex` itself, not a simpler copy. So `V8` has the additions of `GoMutex`: deadlines in the queue,
/// async tasks, a bound to the count, waiters that can leave.
///
/// # Examples
///
/// ```
/// use sudog::study::stages::V8;
///
/// static MU: V8 = V8::const_new();
/// MU.lock();
/// MU.unlock();
/// ```
pub type V8<S = RuntimeSema> = GoMutex<S, policy::Go>;
