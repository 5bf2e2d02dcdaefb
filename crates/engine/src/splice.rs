//! Bodies that go from a socket into a file by way of a pipe, without passing through our memory.
//!
//! One pipe for each data thread. It is empty between turns: whatever a turn puts in, the same turn takes
//! out. After a turn that cannot, the pipe is thrown away, because what is left in it would land in the
//! next connection's file.

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most bytes of one turn, and the size that is asked for the pipe.
pub(crate) const MOST: usize = 1 << 20;

/// A pipe that is empty.
#[derive(Debug)]
pub(crate) struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Pipe {
    /// A new pipe, as large as may be had.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user who has many pipes is refused more than the usual 64 KiB: that only means more turns.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, MOST);
        Ok(Self { reader, writer })
    }

    /// Moves up to `most` bytes that the socket has received into the pipe, and tells how many; 0 at the
    /// orderly end of the connection. The pipe must be empty.
    ///
    /// # Errors
    /// `WouldBlock` if there are none yet; those of `recv`.
    pub(crate) fn fill(&self, socket: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        loop {
            match rustix::pipe::splice(socket, None, &self.writer, None, most, flags) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// The end from which a file takes the bytes.
    pub(crate) fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// Moves up to `count` bytes out of a pipe into a file at `offset`; at least one unless it fails.
///
/// # Errors
/// Those of `pwrite`.
pub(crate) fn drain(
    pipe: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: u64,
    count: usize,
) -> io::Result<usize> {
    let mut at = offset;
    Ok(rustix::pipe::splice(pipe, None, file, Some(&mut at), count, SpliceFlags::MOVE)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_come_to_their_offset_and_the_pipe_is_empty_again() {
        let (mut here, there) = UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        let pipe = Pipe::new().unwrap();
        let file = tempfile::tempfile().unwrap();
        assert_eq!(pipe.fill(there.as_fd(), MOST).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        for (offset, text) in [(5, "world"), (0, "hello")] {
            here.write_all(text.as_bytes()).unwrap();
            assert_eq!(pipe.fill(there.as_fd(), MOST).unwrap(), 5);
            assert_eq!(drain(pipe.reader(), file.as_fd(), offset, 5).unwrap(), 5);
        }
        let mut all = [0; 10];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut all, 0).unwrap();
        assert_eq!(&all, b"helloworld");
        drop(here);
        assert_eq!(pipe.fill(there.as_fd(), MOST).unwrap(), 0);
    }
}
