//! Where the bytes of a body go: a part file, or standard output in order.

use crate::download::Output;
use crate::part_file::{PartFile, Version, WriteError};
use crate::room::{self, Room};
use crate::verify::Hasher;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tidegate_core::{Algorithm, Digest, Failure};

/// How much of what went out is kept, to compare a later answer with: 64 KiB.
const TAIL: usize = 64 << 10;

/// What is at an offset, and how far that holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Here {
    /// These bytes are here and can be read: up to the offset given.
    Known(u64),
    /// These bytes went out and cannot be compared any more.
    Gone(u64),
    /// These are not here.
    Missing(u64),
}

/// Where bytes go.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// At their offsets into a part file.
    Part {
        /// The file.
        part: Arc<PartFile>,
        /// Where it is, for messages.
        path: Arc<PathBuf>,
        /// It is another link's, and nothing is written into it until that is known to be of the same file.
        only_to_read: bool,
    },
    /// In order to a stream.
    Stream(Arc<StreamTarget>),
    /// The end of a pipe for another process, which makes a stream of it.
    Pipe {
        /// Where to write.
        pipe: Arc<OwnedFd>,
        /// What the stream is called, for messages.
        called: &'static str,
    },
    /// Nowhere: the answer's head is all that is wanted.
    Nowhere,
}

impl Target {
    /// What is at `offset`.
    pub(crate) fn here(&self, offset: u64) -> Here {
        match self {
            Self::Part { part, .. } => part.here(offset),
            Self::Stream(stream) => stream.here(offset),
            Self::Pipe { .. } | Self::Nowhere => Here::Missing(u64::MAX),
        }
    }

    /// Writes bytes that are missing.
    ///
    /// # Errors
    /// As the disk has it, in words.
    pub(crate) fn write_at(
        &self,
        version: Option<Version>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        match (self, version) {
            (Self::Part { part, path, .. }, Some(version)) => {
                part.write_at(version, offset, bytes).map_err(|error| write_failure(path, error))
            }
            (Self::Stream(stream), _) => stream.write_at(offset, bytes).map_err(|error| {
                crate::landing::disk_failure("write to", Path::new(&*stream.called), &error)
            }),
            (Self::Part { .. } | Self::Pipe { .. } | Self::Nowhere, _) => Err(not_open()),
        }
    }

    /// Writes `count` bytes that are missing and lie in a pipe. Only into a part file.
    ///
    /// # Errors
    /// As the disk has it, in words; some of the bytes may then still be in the pipe.
    pub(crate) fn splice_at(
        &self,
        version: Option<Version>,
        offset: u64,
        pipe: BorrowedFd<'_>,
        count: usize,
    ) -> Result<(), Failure> {
        match (self, version) {
            (Self::Part { part, path, .. }, Some(version)) => {
                part.splice_at(version, offset, pipe, count).map_err(|error| write_failure(path, error))
            }
            _ => Err(not_open()),
        }
    }

    /// What is written from now on is not vouched for by the validator on record: it is not recorded any more.
    pub(crate) fn doubt(&self, version: Option<Version>) {
        if let (Self::Part { part, .. }, Some(version)) = (self, version) {
            part.doubt(version);
        }
    }

    /// The disk that the bytes go to; `None` where there is none, or it does not tell.
    pub(crate) fn room(&self) -> Option<Room> {
        match self {
            Self::Part { part, .. } => Room::of(part.disk().as_fd()).ok().flatten(),
            Self::Stream(_) | Self::Pipe { .. } | Self::Nowhere => None,
        }
    }

    /// How many bytes of unknown length may be written before the disk is looked at for the first time: all that
    /// its connections bring counts, wherever it goes in the file.
    pub(crate) fn unlooked(&self) -> u64 {
        match self {
            Self::Part { part, .. } => room::UNCHECKED.saturating_sub(part.have_total()),
            Self::Stream(_) | Self::Pipe { .. } | Self::Nowhere => 0,
        }
    }

    /// Where the bytes go, for messages.
    pub(crate) fn place(&self) -> &Path {
        match self {
            Self::Part { path, .. } => path,
            Self::Stream(stream) => Path::new(&*stream.called),
            Self::Pipe { called, .. } => Path::new(called),
            Self::Nowhere => Path::new("nowhere"),
        }
    }

    /// Reads bytes that are known.
    ///
    /// # Errors
    /// Those of `pread`.
    pub(crate) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Part { part, .. } => part.read_at(offset, into),
            Self::Stream(stream) => stream.read_at(offset, into),
            Self::Pipe { .. } | Self::Nowhere => Ok(0),
        }
    }

    /// The version that writes must name, for a part file.
    pub(crate) fn version(&self) -> Option<Version> {
        match self {
            Self::Part { part, .. } => Some(part.version()),
            Self::Stream(_) | Self::Pipe { .. } | Self::Nowhere => None,
        }
    }
}

fn write_failure(path: &Path, error: WriteError) -> Failure {
    match error {
        WriteError::Disk(error) => crate::landing::disk_failure("write", path, &error),
        // Nobody waits for the outcome of a fetch whose version was given up.
        WriteError::Superseded => Failure::new(tidegate_core::Code::Changed, error.to_string()),
    }
}

fn not_open() -> Failure {
    Failure::new(tidegate_core::Code::Internal, "bytes came for a file that is not open")
}

/// Standard output (or another stream): bytes leave in order and cannot be taken back. The last of
/// them are kept, so that an answer after an interruption can be compared with what went before.
pub(crate) struct StreamTarget {
    called: Box<str>,
    state: Mutex<StreamState>,
    /// Bytes that went out, to be read while a write waits for whoever reads the stream.
    written: AtomicU64,
}

struct StreamState {
    out: Output,
    at: u64,
    tail: VecDeque<u8>,
    hashers: Vec<Hasher>,
    failure: Option<Failure>,
}

impl std::fmt::Debug for StreamTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StreamTarget")
    }
}

impl StreamTarget {
    /// A stream, with its name for messages.
    pub(crate) fn new(out: Output, called: &str) -> Self {
        let hashers = Vec::new();
        let state = Mutex::new(StreamState { out, at: 0, tail: VecDeque::new(), hashers, failure: None });
        Self { called: called.into(), state, written: AtomicU64::new(0) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes these digests too. Without effect once bytes went out.
    pub(crate) fn compute(&self, algorithms: impl IntoIterator<Item = Algorithm>) {
        let mut state = self.lock();
        if state.at > 0 {
            return;
        }
        for algorithm in algorithms {
            if state.hashers.iter().all(|hasher| hasher.algorithm() != algorithm) {
                state.hashers.push(Hasher::new(algorithm));
            }
        }
    }

    /// Lets out what comes next.
    ///
    /// # Errors
    /// As the stream has it, in words; [`StreamTarget::failure`] remembers it.
    pub(crate) fn write_next(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.write_at(self.written(), bytes).map_err(|error| {
            let failure = crate::landing::disk_failure("write to", Path::new(&*self.called), &error);
            self.lock().failure = Some(failure.clone());
            failure
        })
    }

    /// Why what came did not go out.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    /// How many bytes went out.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// The digests of what went out.
    pub(crate) fn digests(&self) -> Vec<Digest> {
        std::mem::take(&mut self.lock().hashers).into_iter().map(Hasher::finish).collect()
    }

    fn here(&self, offset: u64) -> Here {
        let state = self.lock();
        let first = state.at - state.tail.len() as u64;
        if offset >= state.at {
            Here::Missing(u64::MAX)
        } else if offset >= first {
            Here::Known(state.at)
        } else {
            Here::Gone(first)
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        if offset != state.at {
            return Err(io::Error::other("bytes came out of order for a stream"));
        }
        state.out.write_all(bytes)?;
        state.out.flush()?;
        state.at += bytes.len() as u64;
        self.written.store(state.at, Ordering::Release);
        state.hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
        let last = &bytes[bytes.len().saturating_sub(TAIL)..];
        let excess = (state.tail.len() + last.len()).saturating_sub(TAIL);
        let excess = excess.min(state.tail.len());
        state.tail.drain(..excess);
        state.tail.extend(last);
        Ok(())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let state = self.lock();
        let first = state.at - state.tail.len() as u64;
        let Some(skip) = offset.checked_sub(first).and_then(|skip| usize::try_from(skip).ok()) else {
            return Ok(0);
        };
        let mut count = 0;
        for (place, byte) in into.iter_mut().zip(state.tail.iter().skip(skip)) {
            *place = *byte;
            count += 1;
        }
        Ok(count)
    }
}
