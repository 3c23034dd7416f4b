//! Pages that show what a program waits for. Go's `net/http/pprof`.
//!
//! | path | page | feature |
//! |---|---|---|
//! | `/debug/pprof/` | the list of these pages | |
//! | `/debug/pprof/goroutine` | each goroutine and what it waits for; with `?debug=1` in groups | |
//! | `/debug/pprof/goroutineleak` | the goroutines that have waited for a minute without a deadline, or for `?seconds=5`; for `go tool pprof`, with `debug=1` (or without the feature) as text, in groups, and those that nothing can wake apart | `profile` |
//! | `/debug/pprof/mutex`, `/debug/pprof/block` | the profile, for `go tool pprof`; with `?debug=1` as text | `profile` |
//! | `/metrics` | the counters of the scheduler, for Prometheus | `metrics` |
//!
//! A profile is empty unless the program asks for it: `runtime::profile::set_mutex_profile_fraction`,
//! `set_block_profile_rate`.

use std::fmt::Write as _;
use std::time::Duration;

use sudog_runtime::goroutine::{Dump, compute, dump};

use crate::{IntoResponse, Request, Response, StatusCode};

/// Returns the page for which the request asks. None: the path is not the path of such a page.
///
/// The pages tell a lot about the program: serve them at an address that only its operators reach.
///
/// # Examples
///
/// ```
/// use sudog::http::{IntoResponse, Request, Response, StatusCode, debug};
///
/// fn handler(request: Request) -> Response {
///     if let Some(page) = debug::handle(&request) {
///         return page;
///     }
///     StatusCode::NOT_FOUND.into_response()
/// }
///
/// sudog::run(|| assert_eq!(handler(Request::new("/debug/pprof/goroutine", "")).status(), StatusCode::OK));
/// ```
#[must_use]
pub fn handle(request: &Request) -> Option<Response> {
    let options = || request.uri().query().unwrap_or_default().split('&');
    let as_text = options().any(|option| option == "debug=1");
    // To look up the names of functions takes long: do it on another thread, so that the goroutines of this worker go on.
    Some(match request.uri().path() {
        "/debug/pprof/" => INDEX.into_response(),
        "/debug/pprof/goroutine" => compute(|| goroutines(as_text)).into_response(),
        "/debug/pprof/goroutineleak" => {
            let seconds = options().find_map(|option| option.strip_prefix("seconds=")).map_or(Ok(60), str::parse);
            let Ok(seconds) = seconds else { return Some(StatusCode::BAD_REQUEST.into_response()) };
            compute(|| leaks(Duration::from_secs(seconds), as_text))
        }
        #[cfg(feature = "profile")]
        "/debug/pprof/mutex" => compute(|| profile(sudog_runtime::profile::mutex(), as_text)),
        #[cfg(feature = "profile")]
        "/debug/pprof/block" => compute(|| profile(sudog_runtime::profile::block(), as_text)),
        #[cfg(feature = "metrics")]
        "/metrics" => metrics().into_response(),
        _ => return None,
    })
}

const INDEX: &str = concat!(
    "/debug/pprof/goroutine\n/debug/pprof/goroutine?debug=1\n/debug/pprof/goroutineleak?debug=1\n",
    cfg_select! { feature = "profile" => { "/debug/pprof/mutex?debug=1\n/debug/pprof/block?debug=1\n" } _ => { "" } },
    cfg_select! { feature = "metrics" => { "/metrics\n" } _ => { "" } },
);

fn goroutines(in_groups: bool) -> String {
    let dump = dump();
    if !in_groups {
        return dump.to_string();
    }
    groups(&dump)
}

fn groups(dump: &Dump) -> String {
    dump.groups().iter().fold(String::new(), |mut text, group| {
        writeln!(text, "{group}").expect("a string takes all text");
        text
    })
}

fn leaks(longer_than: Duration, as_text: bool) -> Response {
    let leaks = dump().leaks(longer_than);
    #[cfg(feature = "profile")]
    if !as_text {
        return profile(leaks.profile(), false);
    }
    let _ = as_text; // read with the feature only
    groups(&leaks).into_response()
}

#[cfg(feature = "profile")]
fn profile(profile: sudog_runtime::profile::Profile, as_text: bool) -> Response {
    if as_text {
        return profile.to_string().into_response();
    }
    let mut file = Vec::new();
    profile.write_pprof(&mut file).expect("a vector takes all bytes");
    file.into_response()
}

/// Returns all counters in the text format of Prometheus: `/sched/threads/total:threads` is
/// `go_sched_threads_total_threads` there, as Go's own collector names it.
#[cfg(feature = "metrics")]
fn metrics() -> String {
    let now = sudog_runtime::goroutine::metrics();
    let mut text = String::new();
    for (name, value) in now.values() {
        writeln!(text, "go{} {value}", name.replace(['/', ':', '-'], "_")).expect("a string takes all text");
    }
    for part in [0.5, 0.99, 0.999] {
        let seconds = now.latencies.quantile(part).as_secs_f64();
        writeln!(text, "go_sched_latencies_seconds{{quantile=\"{part}\"}} {seconds}").expect("a string takes all text");
    }
    text
}
