//! System calls that no safe code makes, and the only unsafe code of these tests.

#![allow(unsafe_code, reason = "attackers do what nobody should")]

use super::attack::{ORDER, answer};
use std::process::ExitCode;

/// The socket to the test.
const LINE: i32 = 1;

/// The signal that an order comes with.
pub(crate) const SIGNAL: i32 = libc::SIGUSR1;

/// Makes a system call: what it returns, or its error as a negative number.
///
/// What it is given are numbers, and addresses of places that outlive the call. That is for the callers to see to:
/// they are attackers in processes that are thrown away.
pub(crate) fn call(number: i64, arguments: &[usize]) -> i64 {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: see above. A process that breaks itself here fails the test that started it, and nothing else.
    unsafe {
        let result = libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5));
        if result < 0 { -i64::from(*libc::__errno_location()) } else { result }
    }
}

/// From now on orders are taken over this socket.
pub(crate) fn take_orders(socket: &impl std::os::fd::AsRawFd) {
    // SAFETY: descriptor 1 belongs to nobody here, it leads nowhere; the handler is installed before any other thread
    // is there, and the action is a place of its type that outlives the call.
    unsafe {
        assert_eq!(libc::dup2(socket.as_raw_fd(), LINE), LINE);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Does as it is told. Everything in here is a bare system call: any thread may be in the middle of anything.
extern "C" fn handle(_: libc::c_int) {
    // SAFETY: the places are on this stack. The thread finds its last error as it was.
    unsafe {
        let error = *libc::__errno_location();
        let mut order = [0_u8; ORDER];
        if libc::read(LINE, order.as_mut_ptr().cast(), ORDER) == ORDER as isize {
            let answer = answer(&order).to_ne_bytes();
            libc::write(LINE, answer.as_ptr().cast(), answer.len());
        }
        *libc::__errno_location() = error;
    }
}

/// What another program says that has the socket.
pub(crate) fn say(answer: i64) -> ExitCode {
    let answer = answer.to_ne_bytes();
    // SAFETY: the place outlives the call.
    unsafe { libc::write(LINE, answer.as_ptr().cast(), answer.len()) };
    ExitCode::SUCCESS
}

/// Which file an open descriptor stands for.
pub(crate) fn file_of(number: i32) -> Option<(u64, u64)> {
    // SAFETY: the place is on this stack and outlives the call, which fills it if it succeeds.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        let stands = libc::syscall(libc::SYS_fstat, number, &raw mut stat) == 0;
        stands.then_some((stat.st_dev, stat.st_ino))
    }
}

/// Ends a process that was made by a bare call.
pub(crate) fn end_at_once() -> ! {
    // SAFETY: it ends this process.
    unsafe { libc::_exit(0) }
}
