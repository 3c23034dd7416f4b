//! Two stories of the Go mutex, told again with the policies that it had then.
//!
//! | story | what happened | what it changed |
//! |---|---|---|
//! | [`hog`]: Go issue 13086 | who holds the mutex for long and locks it again at once keeps others out for seconds | 1.9: starvation mode |
//! | [`collapse`]: Go issue 33747 | with starvation mode, many contenders can bring the mutex to a crawl that feeds itself | 1.14: who hands it over gives way |

mod collapse;
mod hog;

use crate::cli::{HistoryArgs, StoryName};
use crate::failure::Failure;
use crate::output::Output;
use crate::usage::Counts;

/// Tells the stories that were asked for.
pub fn run(args: &HistoryArgs, output: Output) -> Result<(), Failure> {
    let on = args.on.contenders()?;
    if on.have_one_worker() {
        return Err(Failure::Usage("on one worker goroutines do not meet: nothing interrupts them".into()));
    }
    let counts = Counts::now();
    if args.story.is_none_or(|story| story == StoryName::Hog) {
        hog::tell(args, on, output)?;
    }
    if args.story.is_none_or(|story| story == StoryName::Collapse) {
        collapse::tell(args, on, output)?;
    }
    counts.warning().map_or(Ok(()), |warning| output.text(warning))
}

/// Sleeps, as a thread or as a goroutine.
fn pause(time: std::time::Duration) {
    #[cfg(unix)]
    sudog_runtime::goroutine::sleep(time);
    #[cfg(not(unix))]
    std::thread::sleep(time);
}
