//! Remembers what to download.
//!
//! A [`Job`] is a request in the queue. Whoever wants to work on it claims it and gets a [`Lease`]: the
//! right to work on it until a time. Each lease has a higher *fence* than the one before, and every
//! write carries it: a worker that was away for too long, and whose job was given to another, can
//! change nothing any more. So several workers, on several machines, may share one [`Store`].
//!
//! A store keeps no clock: it is told the time.

pub mod contract;
mod error;
mod job;
mod memory;
mod store;

pub use error::QueueError;
pub use job::{Claimed, Counts, Job, JobId, Kind, Lease, NewJob, Outcome, Page, State};
pub use memory::MemoryStore;
pub use store::Store;
