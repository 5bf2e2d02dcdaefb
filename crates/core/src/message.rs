//! The whole interface of an engine: what it is told and what it tells.
//!
//! The engine in this process and the engine as a child answer the same commands with the same
//! events, so callers cannot tell which they have.

use crate::failure::Failure;
use crate::id::DownloadId;
use crate::span::Span;
use crate::written;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Why the bytes of a finished file are believed to be one version of the remote file.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// None: a file of that name was left as it is, as asked; nothing was fetched or compared.
    Untouched,
    /// Bytes of different answers were compared in samples only: the server gave nothing better.
    Sampled,
    /// One answer brought all bytes, from the first to its proper end.
    Answers,
    /// Every answer carried the same strong validator.
    Validator,
    /// The bytes have the digest that was asked for.
    Digest,
}

/// What a download is doing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "phase")]
pub enum Phase {
    /// Waits for its turn (connections are used up).
    Queued,
    /// Finding out which file it is.
    Probing,
    /// Comparing the bytes here with those there.
    Proving,
    /// Fetching.
    Fetching,
    /// Waiting before another attempt, or for the machine.
    Waiting {
        /// What went wrong.
        failure: Failure,
        /// How long until the next attempt.
        #[serde(deserialize_with = "written::duration")]
        retry_in: Duration,
    },
    /// The disk does not take bytes at the moment; nothing is wrong with the network.
    WaitingForDisk,
    /// Computing digests.
    Verifying,
    /// Stopped by somebody; goes on when it is resumed.
    Paused,
    /// Whole, and under its final name.
    Completed,
    /// Given up.
    Failed,
}

/// The span that one connection is fetching now.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "(u64, u64, u64, u64)", into = "(u64, u64, u64, u64)")]
pub struct SegmentProgress {
    /// What it was told to fetch.
    pub span: Span,
    /// How many bytes of it are here.
    pub done: u64,
    /// Bytes a second over the last seconds.
    pub speed: u64,
}

/// Written as start, end, done and speed.
impl From<SegmentProgress> for (u64, u64, u64, u64) {
    fn from(SegmentProgress { span, done, speed }: SegmentProgress) -> Self {
        (span.start(), span.end(), done, speed)
    }
}

impl TryFrom<(u64, u64, u64, u64)> for SegmentProgress {
    type Error = String;
    fn try_from((start, end, done, speed): (u64, u64, u64, u64)) -> Result<Self, String> {
        let span = Span::try_from((start, end))?;
        if done > span.len() {
            return Err(format!("{done} bytes of {span} cannot be here"));
        }
        Ok(Self { span, done, speed })
    }
}

/// How far a download is. Newest wins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Which download.
    pub id: DownloadId,
    /// What it is doing.
    pub phase: Phase,
    /// Bytes of the file that are on this side, including those from before.
    pub have: u64,
    /// Bytes received from the network in this run.
    pub received: u64,
    /// Length of the whole, if known.
    pub length: Option<u64>,
    /// Bytes a second over the last seconds.
    pub speed: u64,
    /// Time left at this speed; `None` when it cannot be told honestly.
    #[serde(deserialize_with = "written::optional_duration")]
    pub left: Option<Duration>,
    /// Connections in use.
    pub connections: usize,
    /// What each connection does.
    pub segments: Vec<SegmentProgress>,
    /// The parts of the file that are here, for a map. It is cut short when it is written down.
    #[serde(with = "written::map")]
    pub map: Vec<Span>,
    /// Requests sent so far.
    pub requests: u64,
}

impl Progress {
    /// Of a download of which nothing is known yet.
    pub fn new(id: DownloadId) -> Self {
        Self {
            id,
            phase: Phase::Queued,
            have: 0,
            received: 0,
            length: None,
            speed: 0,
            left: None,
            connections: 0,
            segments: Vec::new(),
            map: Vec::new(),
            requests: 0,
        }
    }
}

/// Something that happened to a download.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum EventKind {
    /// Work has begun.
    Started {
        /// How many bytes are here from before.
        resumed_from: u64,
    },
    /// The server has said which file it is.
    Identified {
        /// Where it comes from after redirects, redacted.
        url: String,
        /// Its length, if told.
        length: Option<u64>,
        /// Whether an interruption costs only what was in flight.
        resumable: bool,
        /// The media type, if told.
        content_type: Option<String>,
    },
    /// The file will have this name, or another of its kind if that is taken by then.
    Named {
        /// The path.
        #[serde(with = "written::path")]
        path: PathBuf,
    },
    /// Everything up to here survives a power loss.
    Checkpointed {
        /// Bytes that are safe.
        durable: u64,
    },
    /// It goes on after a wait.
    Waiting {
        /// What went wrong.
        failure: Failure,
        /// How long until the next attempt.
        #[serde(deserialize_with = "written::duration")]
        retry_in: Duration,
    },
    /// It begins again from the first byte.
    Restarted {
        /// Why.
        failure: Failure,
    },
    /// Something a person should know, and that costs nothing.
    Notice {
        /// A sentence.
        message: String,
    },
    /// It asks for nothing more until it is resumed. Its files stay open, and it keeps its place.
    Paused {
        /// Bytes that are kept.
        have: u64,
    },
    /// It was stopped: what it had is kept, its files are closed, and nothing more follows. The same
    /// request goes on with what is here.
    Stopped {
        /// Bytes that are kept for another run; of a stream, those that went out.
        kept: u64,
    },
    /// The file is whole and has its final name.
    Completed {
        /// Where it is; `None` if it went to standard output, or with `dry_run`.
        #[serde(with = "written::optional_path")]
        path: Option<PathBuf>,
        /// Its length in bytes.
        length: u64,
        /// Why it is believed to be right.
        proof: Proof,
        /// It was already here: nothing was fetched.
        already: bool,
        /// Bytes received from the network in this run.
        received: u64,
    },
    /// It will not be completed.
    Failed {
        /// Why.
        failure: Failure,
        /// Bytes that are kept for another run.
        kept: u64,
    },
}

/// An event and whose it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Which download.
    pub id: DownloadId,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl EventKind {
    /// Whether nothing follows for this download (until it is resumed).
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Completed { .. } | Self::Failed { .. } | Self::Paused { .. } | Self::Stopped { .. }
        )
    }
}

/// Everything an engine knows at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// One for each download that is not finished.
    pub downloads: Vec<Progress>,
    /// Bytes a second, of all together.
    pub speed: u64,
}

/// Limits that can be changed at any time. Rates are bytes a second; `None` is no limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// For everything together.
    pub total: Option<u64>,
    /// For each download.
    pub each: Option<u64>,
    /// For each host.
    pub host: Option<u64>,
    /// Connections in all, at least 1.
    pub max_connections: usize,
    /// Connections to one host, at least 1.
    pub max_host: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { total: None, each: None, host: None, max_connections: 32, max_host: 8 }
    }
}
