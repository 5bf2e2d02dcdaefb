//! System calls that no safe code makes, and the only unsafe code of these tests.

#![allow(unsafe_code, reason = "attackers do what nobody should")]

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// Makes a system call.
///
/// What it is given are numbers, and addresses of places that outlive the call. That is for the callers to see to:
/// they are attackers in processes that are thrown away.
pub(crate) fn call(number: i64, arguments: &[usize]) -> io::Result<usize> {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: see above. A process that breaks itself here fails the test that started it, and nothing else.
    let result = unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(usize::try_from(result).unwrap_or(0)) }
}

/// Makes a child by this call, which ends at once, and waits for it.
pub(crate) fn child_by(number: i64, arguments: &[usize]) -> io::Result<()> {
    let made = call(number, arguments)?;
    if made == 0 {
        // SAFETY: it ends this process, which is the new one.
        unsafe { libc::_exit(0) }
    }
    let mut status = 0;
    // SAFETY: the place for the status outlives the call.
    unsafe { libc::waitpid(libc::pid_t::try_from(made).unwrap(), &raw mut status, 0) };
    Ok(())
}

/// A page of memory whose bytes are code that returns, made to be run in this way.
pub(crate) fn run_a_page(at_once: bool) -> io::Result<()> {
    let (both, all) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC);
    let first = if at_once { all } else { both };
    // SAFETY: a new mapping of one page, which nobody else knows of and which is left to the end of the process.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), 4096, first, flags, -1, 0);
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if !at_once && libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_EXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The descriptor with this number, which the process was started with and keeps open.
pub(crate) fn descriptor(number: RawFd) -> BorrowedFd<'static> {
    // SAFETY: attackers are started with what they ask for here, and close none of it.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// From now on this process ignores a signal.
pub(crate) fn ignore(signal: i32) {
    // SAFETY: no handler is installed that could run.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// From now on this thread holds back a signal.
pub(crate) fn block(signal: i32) {
    // SAFETY: the set is a place of its type for both calls, the first of which writes it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}
