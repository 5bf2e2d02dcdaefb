//! What a queue can do, wherever it is kept.

use crate::error::QueueError;
use crate::job::{Claimed, Counts, Job, JobId, Kind, Lease, NewJob, Outcome, Page};
use std::time::{Duration, SystemTime};

/// A queue. Each operation is done whole or not at all, and may be called from any thread.
///
/// What it must do is said by the suite in [`crate::contract`], which every store passes.
///
/// # Errors
/// Every operation may end with [`QueueError::Storage`]; those that name a job with
/// [`QueueError::NotFound`]; those that carry a lease with [`QueueError::Fenced`] when it is not the
/// job's last. Others are named where they occur.
pub trait Store: Send + Sync {
    /// Adds jobs at the end, all or none, and tells their names in the same order.
    ///
    /// # Errors
    /// [`QueueError::Full`].
    fn add_all(&self, jobs: Vec<NewJob>, now: SystemTime) -> Result<Vec<JobId>, QueueError>;

    /// Gives the first job that waits (and may be worked on by now), or whose lease has run out, to
    /// `worker` until `now + lease_for`; `None` when there is none.
    fn claim(
        &self,
        worker: &str,
        now: SystemTime,
        lease_for: Duration,
    ) -> Result<Option<Claimed>, QueueError>;

    /// Prolongs a lease until `now + lease_for`, even one that has run out if nobody has claimed the job
    /// since.
    fn renew(&self, lease: &Lease, now: SystemTime, lease_for: Duration) -> Result<Lease, QueueError>;

    /// Ends the job and the lease.
    fn record(&self, lease: &Lease, outcome: Outcome) -> Result<(), QueueError>;

    /// Ends the lease; the job waits again in its place, if given not before a time.
    fn release(&self, lease: &Lease, not_before: Option<SystemTime>) -> Result<(), QueueError>;

    /// Keeps a job from being claimed. If a worker has it, its lease ends here: it learns so when it
    /// renews.
    ///
    /// # Errors
    /// [`QueueError::Ended`].
    fn pause(&self, job: JobId) -> Result<(), QueueError>;

    /// Lets a paused job be claimed again, and a waiting one at once. An ended job that was not completed
    /// waits again, at the end. A leased one is left as it is.
    ///
    /// # Errors
    /// [`QueueError::Ended`] if it was completed.
    fn resume(&self, job: JobId) -> Result<(), QueueError>;

    /// Removes a job in any state. If a worker has it, its lease ends here.
    fn remove(&self, job: JobId) -> Result<(), QueueError>;

    /// Moves a job to a place among those that are not done, 0 for the first; beyond the end is the end.
    ///
    /// # Errors
    /// [`QueueError::Ended`].
    fn move_to(&self, job: JobId, position: usize) -> Result<(), QueueError>;

    /// A job.
    fn get(&self, job: JobId) -> Result<Job, QueueError>;

    /// A part of the list of all jobs, or of those of one kind: first those that are not done in their
    /// order, then those that are in the order in which they ended.
    fn list(&self, kind: Option<Kind>, page: Page) -> Result<Vec<Job>, QueueError>;

    /// How many jobs there are.
    fn counts(&self) -> Result<Counts, QueueError>;

    /// Adds one job at the end.
    ///
    /// # Errors
    /// [`QueueError::Full`].
    fn add(&self, job: NewJob, now: SystemTime) -> Result<JobId, QueueError> {
        let added = self.add_all(vec![job], now)?.pop();
        added.ok_or_else(|| QueueError::Storage {
            action: "add a job",
            source: "one job was added, none was named".into(),
        })
    }
}
