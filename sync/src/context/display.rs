//! The text that represents a context.

use std::fmt;

use super::{Context, Kind, Repr};
use crate::now;

/// Formats the context as Go does: `context.Background.WithCancel`.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line: Vec<_> = self.line().collect();
        for context in line.into_iter().rev() {
            match &context.0 {
                Repr::Background => f.write_str("context.Background")?,
                Repr::Todo => f.write_str("context.TODO")?,
                Repr::Own(handle) if !handle.is_deadline_own() => f.write_str(".WithCancel")?,
                Repr::Own(handle) => {
                    let (now, deadline) = (now(), handle.deadline().unwrap_or_else(now));
                    let sign = if deadline < now { "-" } else { "" };
                    let left = deadline.max(now) - deadline.min(now);
                    write!(f, ".WithDeadline([{sign}{left:?}])")?;
                }
                Repr::Node(node) => match &node.kind {
                    Kind::Value(value) => write!(f, ".WithValue({value})")?,
                    Kind::WithoutCancel => f.write_str(".WithoutCancel")?,
                },
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
