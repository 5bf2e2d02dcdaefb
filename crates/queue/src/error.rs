//! What can go wrong with a queue.

use crate::job::JobId;
use tidegate_core::{Code, Failure};

/// Why a queue did not do what it was asked. Then nothing has changed in it.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// There is no such job (any more).
    #[error("there is no job {job} in the queue")]
    NotFound {
        /// Which.
        job: JobId,
    },
    /// The job is done; this can only be done to jobs that are not.
    #[error("job {job} has ended already")]
    Ended {
        /// Which.
        job: JobId,
    },
    /// The lease is not the job's last one: it was given to another worker, or paused.
    #[error("the lease of job {job} is lost: its fence is {fence}, the job's is {current}")]
    Fenced {
        /// Which.
        job: JobId,
        /// The fence of the lease.
        fence: u64,
        /// The job's fence.
        current: u64,
    },
    /// There are as many jobs as there may be.
    #[error("the queue is full: it holds {limit} jobs; remove some that have ended")]
    Full {
        /// How many there may be.
        limit: usize,
    },
    /// Reading or writing the queue failed.
    #[error("the queue's storage failed while it was to {action}")]
    Storage {
        /// What was to be done, as `claim a job`.
        action: &'static str,
        /// Why it failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl QueueError {
    /// Whether the worker that had a lease has it no more, and must stop.
    pub fn is_lease_lost(&self) -> bool {
        matches!(self, Self::NotFound { .. } | Self::Ended { .. } | Self::Fenced { .. })
    }
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        let code = match &error {
            QueueError::NotFound { .. } | QueueError::Ended { .. } => Code::NoSuchJob,
            QueueError::Fenced { .. } => Code::LeaseLost,
            QueueError::Full { .. } => Code::QueueFull,
            QueueError::Storage { source, .. } => {
                return Self::new(Code::QueueFailed, format!("{error}: {source}"));
            }
        };
        Self::new(code, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_store_says_why_and_may_be_tried_again() {
        let source = Box::new(std::io::Error::other("database is locked"));
        let failure = Failure::from(QueueError::Storage { action: "claim a job", source });
        assert_eq!(failure.code, Code::QueueFailed);
        assert!(failure.message.ends_with("claim a job: database is locked"), "{}", failure.message);
        assert!(matches!(failure.remedy, tidegate_core::Remedy::Retry { .. }));
    }
}
