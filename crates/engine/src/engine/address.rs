//! The way to a control thread, wherever it is.

use super::messages::Inbox;
use crate::protocol::Saved;
use crate::supervisor::Supervisor;
use crate::sync::mpsc::SyncSender;
use crate::threads::Threads;
use std::sync::Arc;
use tidegate_core::DownloadId;
use tokio::sync::OwnedSemaphorePermit;

/// The way to a control thread.
#[derive(Clone)]
pub(crate) enum ToControl {
    /// It is in this process.
    Here(SyncSender<Inbox>, Arc<Threads>),
    /// It is in a process of its own.
    Across(Arc<Supervisor>),
}

/// There is no control thread any more, and there will be none.
#[derive(Debug)]
pub(crate) struct Ended;

impl ToControl {
    pub(crate) fn send(&self, message: Inbox) -> Result<(), Ended> {
        match self {
            Self::Here(sender, _) => sender.send(message).map_err(|_| Ended),
            Self::Across(supervisor) => supervisor.send(message),
        }
    }

    /// Whether it is in another process, to which parts are lent.
    pub(crate) fn is_across(&self) -> bool {
        matches!(self, Self::Across(_))
    }

    /// The threads of this engine in this process.
    pub(crate) fn threads(&self) -> &Arc<Threads> {
        match self {
            Self::Here(_, threads) => threads,
            Self::Across(supervisor) => supervisor.threads(),
        }
    }

    /// Has the other process bring the record of a part up to date; [`Saved::Gone`] if it has no part of it.
    pub(crate) async fn save(&self, id: DownloadId, durable: bool) -> Saved {
        match self {
            Self::Here(..) => Saved::Gone,
            Self::Across(supervisor) => supervisor.save(id, durable).await,
        }
    }

    /// Ends the other process that had the part of this download, and waits until it is gone. Tells whether it is.
    pub(crate) fn end_child(&self, id: DownloadId, why: &'static str) -> bool {
        match self {
            Self::Here(..) => true,
            Self::Across(supervisor) => supervisor.end_child(id, why),
        }
    }

    /// Waits until no other download runs that may be what ends the other process.
    pub(crate) async fn suspect(&self) -> Option<OwnedSemaphorePermit> {
        match self {
            Self::Here(..) => None,
            Self::Across(supervisor) => supervisor.suspect().await,
        }
    }
}
