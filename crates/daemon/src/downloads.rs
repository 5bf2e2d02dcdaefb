//! What the manager needs of an engine.

use std::time::Duration;
use tidegate_core::message::{Event, Snapshot};
use tidegate_core::{DownloadId, Failure, Request};
use tidegate_engine::EngineHandle;

/// An engine, as far as the manager uses it.
///
/// # Errors
/// Each ends with `engine-unavailable` when the engine has ended; [`Downloads::start`] also with
/// `engine-full` when it runs as many downloads as it may.
pub trait Downloads: Send + Sync {
    /// Starts a download. Everything that follows is told by events.
    fn start(&self, request: Request) -> Result<DownloadId, Failure>;

    /// Ends a download, keeping its bytes. Answered by an event after which nothing of it is in use any
    /// more, so that it can be started again at once.
    fn stop(&self, id: DownloadId) -> Result<(), Failure>;

    /// Ends a download and removes its part file; answered by an event that is final.
    fn cancel(&self, id: DownloadId) -> Result<(), Failure>;

    /// The next event, waiting at most `patience` for it.
    fn next_event(&self, patience: Duration) -> Result<Option<Event>, Failure>;

    /// Brings a snapshot of what every running download is doing up to date.
    fn refresh(&self, snapshot: &mut Snapshot) -> Result<(), Failure>;
}

impl Downloads for EngineHandle {
    fn start(&self, request: Request) -> Result<DownloadId, Failure> {
        self.start(request)
    }

    fn stop(&self, id: DownloadId) -> Result<(), Failure> {
        self.stop(id)
    }

    fn cancel(&self, id: DownloadId) -> Result<(), Failure> {
        self.cancel(id)
    }

    fn next_event(&self, patience: Duration) -> Result<Option<Event>, Failure> {
        self.next_event(patience)
    }

    fn refresh(&self, snapshot: &mut Snapshot) -> Result<(), Failure> {
        self.refresh(snapshot)
    }
}
