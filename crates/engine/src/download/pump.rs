//! What another process writes into a pipe goes out here, where it is counted and its digests are computed.

use crate::loan::{Returned, lend};
use crate::target::StreamTarget;
use crate::threads::Threads;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes that go out at a time, at most.
const STEP: usize = 64 << 10;

/// Starts a thread that lets out what is written into the pipe whose end this returns. It ends when that end is
/// closed everywhere, or nothing can go out; then what is returned with it is returned.
///
/// # Errors
/// When there can be no pipe or no thread.
pub(super) fn start(stream: &Arc<StreamTarget>, threads: &Arc<Threads>) -> io::Result<(OwnedFd, Returned)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (loan, returned) = lend();
    let stream = Arc::clone(stream);
    threads.spawn("stream".to_owned(), move || {
        let _loan = loan;
        let (mut reader, mut buffer) = (File::from(reader), vec![0; STEP]);
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    if stream.write_next(&buffer[..count]).is_err() {
                        // The pipe breaks for the other side, and the failure is known here.
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    })?;
    Ok((writer, returned))
}
