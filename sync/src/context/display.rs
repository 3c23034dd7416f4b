//! A context in words.

use std::fmt;

use super::{Context, Kind, Repr};
use crate::now;

/// As in Go: `context.Background.WithCancel`.
impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.nodes().collect();
        let root = nodes.last().map_or(self, |last| &last.parent);
        f.write_str(if matches!(root.0, Repr::Todo) { "context.TODO" } else { "context.Background" })?;
        for node in nodes.into_iter().rev() {
            match &node.kind {
                Kind::Cancel => f.write_str(".WithCancel")?,
                Kind::Value(value) => write!(f, ".WithValue({value})")?,
                Kind::WithoutCancel => f.write_str(".WithoutCancel")?,
                Kind::Deadline => {
                    let (now, deadline) = (now(), node.deadline.unwrap_or_else(now));
                    let sign = if deadline < now { "-" } else { "" };
                    let left = deadline.max(now) - deadline.min(now);
                    write!(f, ".WithDeadline([{sign}{left:?}])")?;
                }
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
