//! Models that must fail. Shared by the models of `sudog-locks`.
#![allow(dead_code)] // compiled into each suite, and none needs all of it

use std::{env, panic, process};

/// Runs a model that must fail with this message. The model runs in a child process, which ends at the failure.
///
/// Unwinding would run the destructors on the model's stack after the model has ended, and these destructors would
/// panic.
pub fn fails(test: &str, message: &str, model: impl FnOnce()) {
    const CHILD: &str = "SUDOG_MODEL_THAT_FAILS";
    if env::var_os(CHILD).is_some() {
        panic::set_hook(Box::new(|failure| {
            eprintln!("{failure}");
            process::exit(1);
        }));
        model();
        process::exit(0);
    }
    let test = test.split_once("::").unwrap().1; // without the crate
    let child = process::Command::new(env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success(), "it passes");
    assert!(output.contains(message), "it fails, but not so: {output}");
}

/// Tests of models that must fail: `name: "with this message", model;`
#[allow(unused_macros)]
macro_rules! must_fail {
    ($($(#[$doc:meta])* $name:ident: $message:expr, $model:expr;)*) => { $(
        $(#[$doc])*
        #[test]
        fn $name() {
            let test = concat!(module_path!(), "::", stringify!($name));
            $crate::must_fail::fails(test, $message, || $model);
        }
    )* };
}
#[allow(unused_imports)]
pub(crate) use must_fail;
