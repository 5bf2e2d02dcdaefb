//! How a program speaks to an engine.

use crate::config::Config;
use std::time::Duration;
use tidegate_core::message::{Event, Limits, Progress, Snapshot};
use tidegate_core::{Code, DownloadId, Failure, Request};

/// Speaks to a running engine. Usable from any thread and from any async runtime or none.
///
/// When the last handle is dropped the engine pauses what is running and ends.
#[derive(Clone, Debug)]
pub struct EngineHandle {}

/// Starts engines.
#[derive(Debug)]
pub struct Engine {}

impl Engine {
    /// Starts an engine in this process.
    ///
    /// # Errors
    /// When a thread cannot be started or a certificate cannot be used.
    pub fn start(config: Config) -> Result<EngineHandle, Failure> {
        let _ = config;
        Ok(EngineHandle {})
    }
}

impl EngineHandle {
    /// Starts a download. Everything that follows is told by events.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn start(&self, request: Request) -> Result<DownloadId, Failure> {
        let _ = request;
        Err(Failure::new(Code::EngineUnavailable, "the engine has ended"))
    }

    /// Stops a download, keeping its bytes. Answered by `Paused`, or by the outcome if that came first.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn pause(&self, id: DownloadId) -> Result<(), Failure> {
        let _ = id;
        Ok(())
    }

    /// Goes on with a paused download.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn resume(&self, id: DownloadId) -> Result<(), Failure> {
        let _ = id;
        Ok(())
    }

    /// Ends a download and removes its part file. Answered by `Failed` with code `cancelled`.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn cancel(&self, id: DownloadId) -> Result<(), Failure> {
        let _ = id;
        Ok(())
    }

    /// Changes the limits of the whole engine.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn set_limits(&self, limits: Limits) -> Result<(), Failure> {
        let _ = limits;
        Ok(())
    }

    /// Changes the limit of one download, in bytes a second.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn set_download_limit(&self, id: DownloadId, limit: Option<u64>) -> Result<(), Failure> {
        let _ = (id, limit);
        Ok(())
    }

    /// What every running download is doing right now.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn snapshot(&self) -> Result<Snapshot, Failure> {
        Ok(Snapshot::default())
    }

    /// How far one download is.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended.
    pub fn progress(&self, id: DownloadId) -> Result<Option<Progress>, Failure> {
        let _ = id;
        Ok(None)
    }

    /// The next event, waiting at most `patience` for it. `Ok(None)` when there was none.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine has ended and all its events were taken.
    pub fn next_event(&self, patience: Duration) -> Result<Option<Event>, Failure> {
        let _ = patience;
        Err(Failure::new(Code::EngineUnavailable, "the engine has ended"))
    }

    /// Pauses every download, waits until each has saved what it has (at most `patience`), and ends.
    ///
    /// # Errors
    /// `engine-unavailable` when the engine had ended already.
    pub fn shutdown(&self, patience: Duration) -> Result<(), Failure> {
        let _ = patience;
        Ok(())
    }
}
