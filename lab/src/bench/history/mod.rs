//! Two stories of the Go mutex, told again with the policies that it had then.
//!
//! | story | what happened | what it changed |
//! |---|---|---|
//! | [`hog`]: Go issue 13086 | who holds the mutex for long and locks it again at once keeps others out for seconds | 1.9: starvation mode |
//! | [`collapse`]: Go issue 33747 | with starvation mode, many contenders can bring the mutex to a crawl that feeds itself | 1.14: who hands it over gives way |

mod collapse;
mod hog;

use crate::cli::{HistoryArgs, StoryName};
use crate::contenders::Contenders;
use crate::failure::Failure;
use crate::output::Output;
use crate::usage::Counts;

/// Tells the stories that were asked for.
pub fn run(args: &HistoryArgs, output: Output) -> Result<(), Failure> {
    let on = args.on.contenders()?;
    let tells = |story| args.story.is_none_or(|only| only == story);
    if tells(StoryName::Collapse) && args.on.workers == Some(1) {
        return Err(Failure::Usage(
            "on one worker goroutines that only work do not meet: nothing interrupts them".into(),
        ));
    }
    let counts = Counts::now();
    if tells(StoryName::Hog) {
        hog::tell(args, on, output)?;
    }
    if tells(StoryName::Collapse) {
        collapse::tell(args, on, output)?;
    }
    counts.warning().map_or(Ok(()), |warning| output.text(warning))
}

/// Goroutines on as many workers as were asked for, or else on as many as the story needs.
fn on_workers(args: &HistoryArgs, on: Contenders, workers: usize) -> Result<Contenders, Failure> {
    match on {
        Contenders::Threads => Ok(on),
        #[cfg(unix)]
        Contenders::Goroutines { .. } => {
            Contenders::goroutines(Some(args.on.workers.unwrap_or(workers))).map_err(Failure::Usage)
        }
    }
}
