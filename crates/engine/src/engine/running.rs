//! A download as the control thread knows it: what it asked of the cold side, and what moves its bytes.

use super::messages::{Disk, ToCold};
use crate::fetch::{Cell, Verdict};
use crate::target::Target;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Instant;
use tidegate_core::message::{Phase, Progress};
use tidegate_core::transfer::{Order, Transfer};
use tidegate_core::{DownloadId, SegmentId};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// Messages for a cold thread that waits for its disk, at most; beyond, those that only tell are left out.
const MOST_BACKLOG: usize = 64;

/// A download as the control thread knows it.
pub(super) struct Running {
    pub(super) cold: SyncSender<ToCold>,
    pub(super) backlog: VecDeque<ToCold>,
    pub(super) paused: bool,
    /// The number of the newest question to the cold side.
    pub(super) turn: u64,
    pub(super) hot: Option<Hot>,
}

/// A download that moves bytes.
pub(super) struct Hot {
    pub(super) transfer: Transfer,
    pub(super) target: Target,
    pub(super) disk: Disk,
    pub(super) allowed: usize,
    pub(super) fetches: BTreeMap<SegmentId, Live>,
}

/// One fetch that runs.
pub(super) struct Live {
    /// Reports of another launch are not of this fetch.
    pub(super) launch: u64,
    pub(super) cell: Arc<Cell>,
    pub(super) abort: AbortHandle,
    pub(super) order: Order,
    pub(super) accepted: bool,
    /// The head was told and waits.
    pub(super) verdict: Option<oneshot::Sender<Verdict>>,
    /// It was sent again with credentials.
    pub(super) authorized: bool,
}

impl Running {
    /// Never waits: what does not fit is kept, and what only tells is left out when too much is kept.
    pub(super) fn send(&mut self, message: ToCold) {
        if self.backlog.len() >= MOST_BACKLOG && matches!(message, ToCold::Tell(_)) {
            return;
        }
        self.backlog.push_back(message);
        self.flush();
    }

    /// Ends its fetches, and lets the cold side let go of the file.
    pub(super) fn cool(&mut self) {
        if let Some(hot) = self.hot.take() {
            let target = hot.target.clone();
            drop(hot);
            self.send(ToCold::Release(target));
        }
    }

    pub(super) fn flush(&mut self) {
        while let Some(message) = self.backlog.pop_front() {
            match self.cold.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Full(message)) => {
                    self.backlog.push_front(message);
                    return;
                }
                Err(TrySendError::Disconnected(_)) => self.backlog.clear(),
            }
        }
    }

    pub(super) fn progress(&self, id: DownloadId, now: Instant) -> Progress {
        match &self.hot {
            Some(hot) => hot.transfer.progress(now),
            None => Progress {
                id,
                phase: if self.paused { Phase::Paused } else { Phase::Queued },
                have: 0,
                received: 0,
                length: None,
                speed: 0,
                left: None,
                connections: 0,
                segments: Vec::new(),
                map: Vec::new(),
                requests: 0,
            },
        }
    }
}

impl Live {
    /// Ends the fetch. Where only the head was read, the connection may still be of use.
    pub(super) fn end(self) {
        match self.verdict {
            Some(verdict) => {
                let _ = verdict.send(Verdict::Drop);
            }
            None => self.abort.abort(),
        }
    }
}

impl Drop for Hot {
    fn drop(&mut self) {
        for (_, live) in std::mem::take(&mut self.fetches) {
            live.end();
        }
    }
}
