//! May a goroutine be unwound from where it waits?
//!
//! Some frames end the process if a panic reaches them: an `extern "C"` function, a destructor that a panic runs, a C
//! frame without unwind tables. A goroutine of a scheduler that is over must not be unwound through such a frame. The
//! unwinder does not say beforehand what it will find: for it, the abort is a handler like any other. So the stack is
//! walked here, and each frame's table is read as Rust's personality function reads it in the unwinder's first phase.
//!
//! | what the table says of the call | the unwinder would | the walk |
//! |---|---|---|
//! | nothing: no table, no landing pad, or a cleanup | run destructors, and go on | goes on |
//! | a catch | stop here: `catch_unwind`, or the bottom of the goroutine | ends: yes |
//! | a filter, or a call that is not in the table | abort | ends: no |
//! | (no more frames) | abort | ends: no |
//!
//! The table is the language-specific data area of the Itanium C++ ABI ("Exception Handling Tables"), which GCC and
//! LLVM write for every language. Elsewhere (32-bit ARM has an encoding of its own) the answer is always yes.

#[cfg(not(target_arch = "arm"))]
pub(crate) use itanium::reaches_a_catch;

#[cfg(target_arch = "arm")]
pub(crate) fn reaches_a_catch() -> bool {
    true
}

#[cfg(not(target_arch = "arm"))]
mod itanium {
    use std::ffi::{c_int, c_void};
    use std::ptr;

    /// `_Unwind_Context`: the unwinder's own.
    #[repr(C)]
    struct Context {
        _opaque: [u8; 0],
    }

    type Trace = unsafe extern "C" fn(*mut Context, *mut c_void) -> c_int;

    // Of the library that `std` unwinds with, and links to.
    unsafe extern "C" {
        fn _Unwind_Backtrace(trace: Trace, argument: *mut c_void) -> c_int;
        fn _Unwind_GetLanguageSpecificData(context: *mut Context) -> *const u8;
        fn _Unwind_GetRegionStart(context: *mut Context) -> usize;
        fn _Unwind_GetIPInfo(context: *mut Context, before_instruction: *mut c_int) -> usize;
    }

    /// `_URC_NO_REASON`: the walk goes on.
    const GO_ON: c_int = 0;
    /// `_URC_NORMAL_STOP`: it does not.
    const STOP: c_int = 4;

    /// What a panic would do in a frame.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Frame {
        Passes,
        Catches,
        Aborts,
    }

    /// Whether a panic that begins here reaches a `catch_unwind`, and no frame on the way that aborts.
    #[cold]
    pub(crate) fn reaches_a_catch() -> bool {
        let mut last = Frame::Aborts; // should there be no frame that says something
        // SAFETY: `look` is called with the contexts of this walk, and with `last`, which outlives it.
        unsafe { _Unwind_Backtrace(look, (&raw mut last).cast()) };
        last == Frame::Catches
    }

    unsafe extern "C" fn look(context: *mut Context, last: *mut c_void) -> c_int {
        // SAFETY: a context that the unwinder has just made, by the contract of `_Unwind_Backtrace`.
        let frame = unsafe { frame(context) };
        // SAFETY: what `reaches_a_catch` handed over; no other code uses it during the walk.
        unsafe { *last.cast::<Frame>() = if frame == Frame::Catches { frame } else { Frame::Aborts } };
        if frame == Frame::Passes { GO_ON } else { STOP }
    }

    /// # Safety
    ///
    /// The context is of a walk that is under way.
    unsafe fn frame(context: *mut Context) -> Frame {
        // SAFETY: by the contract.
        let table = unsafe { _Unwind_GetLanguageSpecificData(context) };
        if table.is_null() {
            return Frame::Passes;
        }
        let mut before_instruction = 0;
        // SAFETY: by the contract; the place is ours.
        let ip = unsafe { _Unwind_GetIPInfo(context, &raw mut before_instruction) };
        // The address is that of the return, which may be beyond the call's entry in the table.
        let ip = if before_instruction == 0 { ip.wrapping_sub(1) } else { ip };
        // SAFETY: by the contract.
        let function = unsafe { _Unwind_GetRegionStart(context) };
        // SAFETY: the table of this frame's function, which the compiler wrote.
        unsafe { read(table, ip, function) }
    }

    const OMITTED: u8 = 0xff;

    /// # Safety
    ///
    /// `table` is the language-specific data of the function that begins at `function`.
    unsafe fn read(table: *const u8, ip: usize, function: usize) -> Frame {
        let mut at = Reader(table);
        // SAFETY: for all of this function: the reads follow the layout of the table, which is well-formed.
        unsafe {
            let encoding = at.byte();
            if encoding != OMITTED {
                at.encoded(encoding); // where landing pads are counted from
            }
            if at.byte() != OMITTED {
                at.uleb128(); // where the types are
            }
            let encoding = at.byte();
            let len = at.uleb128() as usize;
            let actions = at.0.add(len);
            while at.0 < actions {
                let start = function.wrapping_add(at.encoded(encoding));
                let len = at.encoded(encoding);
                let landing_pad = at.encoded(encoding);
                let action = at.uleb128() as usize;
                // The entries are in the order of their addresses.
                if ip < start {
                    break;
                }
                if ip >= start.wrapping_add(len) {
                    continue;
                }
                if landing_pad == 0 || action == 0 {
                    return Frame::Passes;
                }
                return match Reader(actions.add(action - 1)).sleb128() {
                    0 => Frame::Passes,
                    1.. => Frame::Catches,
                    _ => Frame::Aborts,
                };
            }
        }
        Frame::Aborts // a call that promised not to unwind
    }

    struct Reader(*const u8);

    /// Each read is within the table: the caller says so.
    impl Reader {
        unsafe fn bytes<T: Copy>(&mut self) -> T {
            // SAFETY: by the contract above.
            unsafe {
                let value = ptr::read_unaligned(self.0.cast());
                self.0 = self.0.add(size_of::<T>());
                value
            }
        }

        unsafe fn byte(&mut self) -> u8 {
            // SAFETY: by the contract above.
            unsafe { self.bytes() }
        }

        /// The bits, and how many there are; and whether the highest of them is set.
        unsafe fn leb128(&mut self) -> (u64, u32, bool) {
            let (mut value, mut shift) = (0, 0);
            loop {
                // SAFETY: by the contract above.
                let byte = unsafe { self.byte() };
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    return (value, shift, byte & 0x40 != 0);
                }
            }
        }

        unsafe fn uleb128(&mut self) -> u64 {
            // SAFETY: by the contract above.
            unsafe { self.leb128() }.0
        }

        unsafe fn sleb128(&mut self) -> i64 {
            // SAFETY: by the contract above.
            let (value, bits, negative) = unsafe { self.leb128() };
            (if negative && bits < 64 { value | !0 << bits } else { value }).cast_signed()
        }

        /// A number in one of the DWARF encodings (`DW_EH_PE_...`). What it is relative to does not matter here: the
        /// entries of calls are relative to their function, always.
        unsafe fn encoded(&mut self, encoding: u8) -> usize {
            // SAFETY: by the contract above.
            unsafe {
                match encoding & 0x0f {
                    0x00 => self.bytes::<usize>(),
                    0x01 => self.uleb128() as usize,
                    0x02 => usize::from(self.bytes::<u16>()),
                    0x03 => self.bytes::<u32>() as usize,
                    0x04 => self.bytes::<u64>() as usize,
                    0x09 => self.sleb128() as usize,
                    0x0a => self.bytes::<i16>() as usize,
                    0x0b => self.bytes::<i32>() as usize,
                    0x0c => self.bytes::<i64>() as usize,
                    _ => crate::fatal("sudog: an unknown encoding in an exception table"),
                }
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::panic::{AssertUnwindSafe, catch_unwind};

        #[inline(never)]
        fn caught(f: impl FnOnce() -> bool) -> bool {
            catch_unwind(AssertUnwindSafe(f)).unwrap()
        }

        #[inline(never)]
        #[allow(improper_ctypes_definitions)] // it is Rust on both sides
        extern "C" fn foreign(f: &mut dyn FnMut()) {
            f();
        }

        struct Then<F: FnMut()>(F);

        impl<F: FnMut()> Drop for Then<F> {
            fn drop(&mut self) {
                (self.0)();
            }
        }

        #[test]
        fn plain_frames_and_destructors_to_run_are_passed() {
            let text = String::from("dropped on the way");
            assert!(caught(|| {
                let _then = Then(|| ());
                let result = reaches_a_catch();
                result && !text.is_empty()
            }));
        }

        #[test]
        fn a_frame_of_c_is_not() {
            let mut result = true;
            caught(|| {
                foreign(&mut || result = reaches_a_catch());
                true
            });
            assert!(!result);
        }

        #[test]
        fn a_catch_above_a_frame_of_c_is_reached() {
            let mut result = false;
            foreign(&mut || result = caught(reaches_a_catch));
            assert!(result);
        }

        /// One that is run because its scope ends may panic; one that is run by a panic may not.
        #[test]
        fn a_destructor_may_panic_unless_a_panic_runs_it() {
            let mut result = false;
            caught(|| {
                drop(Then(|| result = reaches_a_catch()));
                true
            });
            assert!(result);
            let unwound = catch_unwind(AssertUnwindSafe(|| {
                let _then = Then(|| result = reaches_a_catch());
                std::panic::resume_unwind(Box::new(()));
            }));
            assert!(unwound.is_err() && !result);
        }

        #[test]
        fn numbers_are_read_as_they_are_written() {
            // SAFETY: each array is long enough for what is read of it.
            unsafe {
                assert_eq!(Reader([0xe5, 0x8e, 0x26].as_ptr()).uleb128(), 624_485);
                assert_eq!(Reader([0x7f].as_ptr()).sleb128(), -1);
                assert_eq!(Reader([0x80, 0x7f].as_ptr()).sleb128(), -128);
                assert_eq!(Reader([0x02].as_ptr()).sleb128(), 2);
                assert_eq!(Reader([0x78, 0x56, 0x34, 0x12].as_ptr()).encoded(0x03), 0x1234_5678);
                assert_eq!(Reader([0xff, 0xff].as_ptr()).encoded(0x0a), usize::MAX);
            }
        }
    }
}
