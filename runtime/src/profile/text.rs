//! The lookup of the functions at addresses, and the output of profiles for flame graphs.

use std::collections::HashMap;
use std::ffi::c_void;
use std::io::{self, Write};

use super::{Frame, Profile};
use crate::goroutine::{is_ours, of_the_user};

/// A cache of the functions at return addresses, because each lookup takes microseconds.
#[derive(Default)]
pub(super) struct Symbols(HashMap<usize, Vec<Frame>>);

/// Returns the functions on a stack, innermost first: from the outermost call into this project to the first function
/// of the goroutine.
pub(super) fn frames_of_the_user(addresses: &[usize], symbols: &mut Symbols) -> Vec<Frame> {
    let at = |address| symbols.0.entry(address).or_insert_with(|| resolve(address)).clone();
    let frames: Vec<Frame> = addresses.iter().copied().flat_map(at).collect();
    let range = of_the_user(&frames, |frame| &frame.function);
    // The function of this project that the user called.
    let calls = frames[..range.start].iter().rposition(|frame| is_ours(&frame.function));
    frames[calls.unwrap_or(range.start)..range.end].to_vec()
}

/// Returns the functions at a return address, with the functions that are inlined there first.
fn resolve(address: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    // The call is before the address to which it returns.
    backtrace::resolve(std::ptr::without_provenance_mut::<c_void>(address - 1), |symbol| {
        let function = symbol.name().map_or_else(|| format!("{address:#x}"), |name| format!("{name:#}"));
        let file = symbol.filename().map(|file| file.display().to_string()).unwrap_or_default();
        frames.push(Frame { function, file, line: symbol.lineno().unwrap_or(0) });
    });
    if frames.is_empty() {
        frames.push(Frame { function: format!("{address:#x}"), file: String::new(), line: 0 });
    }
    frames
}

impl Profile {
    /// Writes a line for each stack, `outermost;..;innermost nanoseconds`: the input of flame graph tools such as `inferno`.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    ///
    /// # Examples
    ///
    /// ```
    /// let mut text = Vec::new();
    /// sudog::runtime::profile::mutex().write_folded(&mut text)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_folded(&self, mut out: impl Write) -> io::Result<()> {
        for record in &self.records {
            let stack: Vec<_> = record.frames.iter().rev().map(|frame| frame.function.replace(';', ":")).collect();
            writeln!(out, "{} {}", stack.join(";"), record.delay.as_nanos())?;
        }
        out.flush()
    }
}
