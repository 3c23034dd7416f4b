//! What every lock, readers-writer lock and semaphore must do: the laboratory's suite for each trait, on real threads,
//! compiled for every backend in its registries, ours and others.
#![cfg(all(feature = "locks", not(sudog_loom)))]

mod locks;
mod rw_locks;
mod semaphores;

/// A module for each backend of a registry, and a `#[test]` in it for each check: a failure names both. A backend that
/// is missing here is an error at compile time.
macro_rules! over_every_backend {
    (
        $with:ident of $Name:ident, $Job:ident over $Backend:path;
        backends { $($(#[$cfg:meta])* $module:ident = $Variant:ident;)+ }
        checks $checks:tt
    ) => {
        $($(#[$cfg])* mod $module {
            $crate::conformance::over_every_backend!(@checks $with, $Name::$Variant, $Job, $Backend, $checks);
        })+

        const _: fn($Name) = |name| match name { $($(#[$cfg])* $Name::$Variant => (),)+ };
    };
    (@checks $with:ident, $name:expr, $Job:ident, $Backend:path, { $($(#[$attribute:meta])* $check:ident)+ }) => {
        $(#[test] $(#[$attribute])* fn $check() {
            use super::*;
            struct Check;
            impl $Job for Check {
                type Out = ();
                fn run<B: $Backend + 'static>(self) {
                    let _watchdog = support::Watchdog::new();
                    checks::$check::<B>(support::pat);
                }
            }
            $with($name, Check)
        })+
    };
}
use over_every_backend;
