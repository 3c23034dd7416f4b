//! The thread pointer: the register `fs` on x86-64. [`call_with`] is the only code that writes the register.

use std::arch::{asm, naked_asm};

/// Returns the thread pointer.
#[inline(always)]
pub(super) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: glibc keeps the thread pointer itself in the word at fs:16, in each block.
    unsafe { asm!("mov {}, fs:[16]", out(reg) pointer, options(nostack, preserves_flags, readonly)) };
    pointer
}

/// A function that runs with another thread pointer than its caller.
pub(super) type Step = extern "C" fn(usize, usize, usize) -> usize;

/// Calls `step` with the given arguments and with the thread pointer `pointer`, then restores the thread pointer.
///
/// Two words, at the distances `shared` from the thread pointer, go along: the call copies the words into the other block
/// before `step`, and back afterwards. The copies are made here, because a compiler may move other loads and stores across
/// calls of the allocator, whose words these are.
///
/// This function is assembly that touches no thread-local, and no compiler inlines the function or sees into the function. So
/// the address of a thread-local is computed either by code that runs before and after with the old thread pointer, or by
/// code of `step` with the new thread pointer.
///
/// # Safety
///
/// - The processor and the system allow `wrfsbase`.
/// - `pointer` is the thread pointer of a block of thread-locals that is alive, and that no other thread uses until the call
///   returns.
/// - `step` may be called with these arguments, and does not unwind.
/// - At the distances `shared` both blocks have words.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn call_with(
    pointer: usize,
    step: Step,
    first: usize,
    second: usize,
    third: usize,
    shared: &[isize; 2],
) -> usize {
    naked_asm!(
        ".cfi_startproc",
        "push rbx",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset rbx, 0",
        "push r12",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r12, 0",
        "push r13",
        ".cfi_adjust_cfa_offset 8",
        ".cfi_rel_offset r13, 0",
        "mov rbx, fs:[16]",
        "mov r12, rdi",
        "mov r13, r9",
        "mov rax, [r13]",
        "mov r10, [rbx + rax]",
        "mov [r12 + rax], r10",
        "mov rax, [r13 + 8]",
        "mov r10, [rbx + rax]",
        "mov [r12 + rax], r10",
        "mov rax, rsi",
        "mov rdi, rdx",
        "mov rsi, rcx",
        "mov rdx, r8",
        "wrfsbase r12",
        "call rax",
        "wrfsbase rbx",
        "mov rcx, [r13]",
        "mov r10, [r12 + rcx]",
        "mov [rbx + rcx], r10",
        "mov rcx, [r13 + 8]",
        "mov r10, [r12 + rcx]",
        "mov [rbx + rcx], r10",
        "pop r13",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r13",
        "pop r12",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore r12",
        "pop rbx",
        ".cfi_adjust_cfa_offset -8",
        ".cfi_restore rbx",
        "ret",
        ".cfi_endproc",
    )
}
