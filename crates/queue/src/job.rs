//! What a queue is made of.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;
use tidegate_core::message::Proof;
use tidegate_core::{Failure, Request};

/// A job, for as long as its queue exists. Never reused.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
pub struct JobId(pub u64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What is put into a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct NewJob {
    /// What to download.
    pub request: Request,
    /// Adding a second job of the same key adds nothing and gives the first, until that is removed. So
    /// whoever is not sure whether an addition went through may repeat it.
    pub key: Option<String>,
}

impl From<Request> for NewJob {
    fn from(request: Request) -> Self {
        Self { request, key: None }
    }
}

/// A request in the queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Its name.
    pub id: JobId,
    /// What to download.
    pub request: Request,
    /// Where it stands.
    pub state: State,
    /// How often it was claimed.
    pub attempts: u32,
    /// Its place among the jobs that are not done, 0 for the first; `None` when it is done.
    pub position: Option<usize>,
    /// When it was added.
    pub added: SystemTime,
}

/// Where a job stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum State {
    /// To be claimed.
    Waiting {
        /// Not before then.
        not_before: Option<SystemTime>,
    },
    /// A worker has it.
    Leased {
        /// Which.
        worker: String,
        /// When the lease runs out; then another may claim it.
        until: SystemTime,
    },
    /// Not to be claimed until it is resumed.
    Paused,
    /// Ended.
    Done(Outcome),
}

impl State {
    /// Which of the four it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Waiting { .. } => Kind::Waiting,
            Self::Leased { .. } => Kind::Leased,
            Self::Paused => Kind::Paused,
            Self::Done(_) => Kind::Done,
        }
    }
}

/// The kinds of [`State`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// To be claimed.
    Waiting,
    /// A worker has it, or had it when its lease ran out.
    Leased,
    /// Not to be claimed until it is resumed.
    Paused,
    /// Ended.
    Done,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// The file is whole and has its final name.
    Completed {
        /// Where it is; `None` if it went to standard output, or with `dry_run`.
        path: Option<PathBuf>,
        /// Its length in bytes.
        length: u64,
        /// Why it is believed to be right.
        proof: Proof,
        /// It was already there: nothing was fetched.
        already: bool,
        /// Bytes received from the network.
        received: u64,
    },
    /// It will not be completed.
    Failed {
        /// Why.
        failure: Failure,
        /// Bytes that are kept.
        kept: u64,
    },
    /// It was left off and can be gone on with.
    Incomplete {
        /// Why; `None` if it was asked to stop.
        failure: Option<Failure>,
        /// Bytes that are kept.
        kept: u64,
    },
}

/// The right to work on a job until a time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease {
    /// Which job.
    pub job: JobId,
    /// Higher than that of every earlier lease of this job.
    pub fence: u64,
    /// When it runs out, unless renewed.
    pub until: SystemTime,
}

/// A job to work on, and the right to.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// What to do.
    pub job: Job,
    /// Needed to renew, record or release it.
    pub lease: Lease,
}

/// A part of a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Page {
    /// How many to leave out at the beginning.
    pub first: usize,
    /// How many at most.
    pub limit: usize,
}

/// How many jobs are in each state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// To be claimed, now or later.
    pub waiting: usize,
    /// In the hands of a worker, or left there when a lease ran out.
    pub leased: usize,
    /// Paused.
    pub paused: usize,
    /// Ended.
    pub done: usize,
}

impl Counts {
    /// Jobs in all.
    pub fn total(&self) -> usize {
        self.waiting + self.leased + self.paused + self.done
    }
}
