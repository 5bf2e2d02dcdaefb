//! What the kernel says about a TCP socket, for which no safe wrapper exists.
#![allow(unsafe_code, reason = "getsockopt(TCP_INFO) and ioctl(TIOCOUTQ) have no safe wrapper at hand")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Where `tcpi_bytes_acked` lies in Linux's `struct tcp_info` (since 4.1; the layout only ever grows).
const BYTES_ACKED: std::ops::Range<usize> = 120..128;

/// How many bytes the other side has acknowledged in all, its FIN and ours not counted exactly
/// (at most two bytes too many).
///
/// # Errors
/// Those of `getsockopt`; `Unsupported` on a kernel without the field.
pub(crate) fn bytes_acked(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = [0u8; 256];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: `info` is writable for `len` bytes and any bytes are valid in it; `socket` is open for
    // the duration of the call because it is borrowed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if (len as usize) < BYTES_ACKED.end {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel does not count acknowledged bytes",
        ));
    }
    let mut word = [0; 8];
    word.copy_from_slice(&info[BYTES_ACKED]);
    Ok(u64::from_ne_bytes(word))
}

/// How many bytes are written and not yet acknowledged.
///
/// # Errors
/// Those of `ioctl`.
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut waiting: libc::c_int = 0;
    // SAFETY: TIOCOUTQ writes one c_int, for which `waiting` has room; `socket` is open because it is
    // borrowed.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::try_from(waiting).unwrap_or(0))
}
