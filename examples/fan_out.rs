//! An error group: ask several servers at once; the first error cancels the others.
//!
//! `cargo run --example fan_out`

use std::time::Duration;

use sudog::context::{self, Context};
use sudog::x::ErrGroup;

/// Takes the given time, unless the context ends earlier.
fn ask(ctx: &Context, server: &str, takes: Duration) -> Result<(), String> {
    ctx.sleep(takes).map_err(|error| format!("{server}: {error}"))?;
    if server == "broken" { Err("broken: connection refused".to_owned()) } else { Ok(()) }
}

fn main() {
    sudog::run(|| {
        let (group, ctx) = ErrGroup::with_context(&context::background());
        for (server, ms) in [("near", 1), ("broken", 5), ("far", 3_600_000)] {
            let ctx = ctx.clone();
            group.go(move || ask(&ctx, server, Duration::from_millis(ms)));
        }
        // `far` would take an hour: the error of `broken` ends its wait.
        let error = group.wait().unwrap_err();
        println!("{error}");
        assert_eq!(error.to_string(), "broken: connection refused");
    });
}
