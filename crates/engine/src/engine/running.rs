//! A download as the control thread knows it: what it asked of the cold side, and what moves its bytes.

use super::messages::{ColdSide, Disk, ToCold};
use crate::fetch::{Cell, Verdict};
use crate::hosts::Hosts;
use crate::loan::{Loan, Returned, lend};
use crate::target::Target;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tidegate_core::message::{EventKind, Phase, Progress};
use tidegate_core::transfer::{Count, Order, Transfer};
use tidegate_core::{DownloadId, SegmentId};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use url::Url;

/// Messages for a cold side that waits for its disk, at most; beyond, those that only tell are left out.
const MOST_BACKLOG: usize = 64;

/// A download as the control thread knows it.
pub(super) struct Running {
    pub(super) cold: Box<dyn ColdSide>,
    pub(super) backlog: VecDeque<ToCold>,
    pub(super) paused: bool,
    /// It was told to go, or has come to its outcome: no order concerns it any more.
    pub(super) leaving: bool,
    /// The number of the newest question to the cold side.
    pub(super) turn: u64,
    pub(super) hot: Option<Hot>,
    /// Its limit was set, by its request or since.
    pub(super) limit_is_set: bool,
    /// How far it was when it moved its last byte.
    last: Option<Progress>,
}

/// A download that moves bytes.
pub(super) struct Hot {
    pub(super) transfer: Transfer,
    /// A part only between [`Hot::borrow`] and [`Running::release`].
    pub(super) target: Target,
    /// How often the part was doubted, when it was last here.
    pub(super) doubts: u64,
    /// Held by each fetch for as long as it may use the target.
    pub(super) loan: Loan,
    returned: Option<Returned>,
    /// The host by whose limits it goes, and the link that this was read from.
    host: (Url, Arc<str>),
    /// The transfer has given up; what becomes of that is for the cold side to say.
    pub(super) gave_up: bool,
    pub(super) disk: Disk,
    pub(super) allowed: usize,
    /// What its fetches may write before its disk is looked at again.
    pub(super) granted: Arc<AtomicU64>,
    pub(super) fetches: BTreeMap<SegmentId, Live>,
    /// Requests that wait for what the user keeps for their host; with whether they were sent again with
    /// credentials.
    pub(super) parked: Vec<(Order, bool)>,
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

/// Whether this, asked and not yet heard when a pause comes, is not asked any more.
pub(crate) fn is_ended_by_a_pause(message: &ToCold) -> bool {
    match message {
        ToCold::Paused
        | ToCold::Turn(_)
        | ToCold::Prepare { .. }
        | ToCold::Verify { .. }
        | ToCold::AwaitMachine(_)
        | ToCold::Tell(EventKind::Paused { .. }) => true,
        ToCold::Tell(_)
        | ToCold::Learned { .. }
        | ToCold::GiveUp(_)
        | ToCold::Cancel
        | ToCold::End
        | ToCold::Release { .. }
        | ToCold::Returned { .. }
        | ToCold::Crashed { .. }
        | ToCold::Freed => false,
    }
}

impl Running {
    pub(super) fn new(cold: Box<dyn ColdSide>) -> Self {
        let backlog = VecDeque::new();
        Self {
            cold,
            backlog,
            paused: false,
            leaving: false,
            turn: 0,
            hot: None,
            limit_is_set: false,
            last: None,
        }
    }

    /// Never waits: what does not fit is kept. When too much is kept, what nobody acts on is left out.
    pub(super) fn send(&mut self, message: ToCold) {
        let only_tells =
            matches!(message, ToCold::Tell(EventKind::Notice { .. } | EventKind::Waiting { .. }));
        if only_tells && self.backlog.len() >= MOST_BACKLOG {
            return;
        }
        self.backlog.push_back(message);
        self.flush();
    }

    /// Tells that it is paused. What was asked and not yet heard is not asked any more, so that pauses
    /// and their ends do not pile up before a cold side that waits for its disk.
    pub(super) fn send_pause(&mut self) {
        self.backlog.retain(|message| !is_ended_by_a_pause(message));
        self.send(ToCold::Paused);
    }

    /// Tells it to go, unless it is going already: saving what it has, or not.
    pub(super) fn send_away(&mut self, message: ToCold, phase: Phase) {
        if self.leaving {
            return;
        }
        self.leaving = true;
        self.cool();
        if let Some(last) = &mut self.last {
            last.phase = phase;
        }
        self.send(message);
    }

    /// It has come to its outcome: nothing of it is used here any more.
    pub(super) fn free(&mut self) {
        self.leaving = true;
        self.cool();
        self.send(ToCold::Freed);
    }

    /// Ends its fetches, and lets the cold side let go of the file.
    pub(super) fn cool(&mut self) {
        let Some(mut hot) = self.hot.take() else { return };
        let mut last = Progress::new(hot.transfer.id());
        hot.tell_progress(&mut last, Instant::now());
        self.last = Some(Progress { speed: 0, left: None, connections: 0, segments: Vec::new(), ..last });
        let release = hot.let_go();
        drop(hot);
        if let Some(release) = release {
            self.send(release);
        }
    }

    /// Lets the cold side have the part, or the end of the stream.
    pub(super) fn release(&mut self) {
        if let Some(release) = self.hot.as_mut().and_then(Hot::let_go) {
            self.send(release);
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
                Err(TrySendError::Closed(_)) => self.backlog.clear(),
            }
        }
    }

    pub(super) fn tell_progress(&self, id: DownloadId, into: &mut Progress, now: Instant) {
        match (&self.hot, &self.last) {
            (Some(hot), _) => hot.tell_progress(into, now),
            (None, Some(last)) => into.clone_from(last),
            (None, None) => {
                let phase = if self.paused || self.leaving { Phase::Paused } else { Phase::Queued };
                *into = Progress { phase, ..Progress::new(id) };
            }
        }
    }
}

impl Hot {
    pub(super) fn new(transfer: Transfer, target: Target, disk: Disk, doubts: u64) -> Self {
        let (loan, returned) = lend();
        let host = (transfer.url().clone(), Hosts::key(transfer.url()).into());
        let granted = Arc::new(AtomicU64::new(target.unlooked()));
        Self {
            transfer,
            target,
            doubts,
            loan,
            returned: Some(returned),
            host,
            gave_up: false,
            disk,
            allowed: usize::MAX,
            granted,
            fetches: BTreeMap::new(),
            parked: Vec::new(),
        }
    }

    /// Takes what the cold side lends.
    pub(super) fn borrow(&mut self, target: Target) {
        self.granted.store(target.unlooked(), Ordering::Relaxed);
        self.target = target;
        let (loan, returned) = lend();
        (self.loan, self.returned) = (loan, Some(returned));
    }

    /// How often the part was doubted.
    pub(super) fn doubts(&mut self) -> u64 {
        if let Target::Part { part, .. } = &self.target {
            self.doubts = part.doubts();
        }
        self.doubts
    }

    /// What tells the cold side that the target is not used here any more.
    fn let_go(&mut self) -> Option<ToCold> {
        let _ = self.doubts();
        let target = std::mem::replace(&mut self.target, Target::Nowhere);
        // It comes back when the last fetch drops its loan.
        (self.loan, _) = lend();
        let returned = self.returned.take();
        match target {
            Target::Part { .. } => Some(ToCold::Release { target, returned }),
            // Nobody else wants a stream; whoever reads it may keep a fetch in its write for ever.
            Target::Stream(_) | Target::Pipe { .. } => Some(ToCold::Release { target, returned: None }),
            Target::Nowhere => None,
        }
    }

    /// How far its fetches are.
    pub(super) fn counts(&self) -> impl Iterator<Item = Count> + '_ {
        self.fetches.values().filter(|live| live.accepted).map(|live| Count {
            segment: live.order.segment,
            pos: live.cell.pos.load(Ordering::Relaxed),
            received: live.cell.received.load(Ordering::Relaxed),
            limited: live.cell.limited.load(Ordering::Relaxed),
            outgrown: live.cell.outgrown.load(Ordering::Relaxed),
        })
    }

    /// The host by whose limits it goes.
    pub(super) fn host(&mut self) -> Arc<str> {
        let url = self.transfer.url();
        if self.host.0 != *url {
            self.host = (url.clone(), Hosts::key(url).into());
        }
        Arc::clone(&self.host.1)
    }

    fn tell_progress(&self, into: &mut Progress, now: Instant) {
        self.transfer.tell_progress(into, now);
        if self.gave_up {
            into.phase = Phase::Failed;
        }
    }
}

impl Live {
    /// Ends the fetch. Where only the head was read, the connection may still be of use.
    pub(super) fn end(self) {
        self.cell.over.store(true, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{Code, Failure};
    use tokio::sync::mpsc::{Receiver, channel};

    /// A download whose cold side hears nothing at the moment.
    fn deaf() -> (Running, Receiver<ToCold>) {
        let (cold, from_control) = channel(1);
        let mut running = Running::new(Box::new(cold));
        running.send(ToCold::Turn(1));
        (running, from_control)
    }

    #[test]
    fn only_what_nobody_acts_on_is_left_out_when_too_much_waits() {
        let (mut running, mut from_control) = deaf();
        let failure = || Failure::new(Code::Changed, "another file");
        for _ in 0..1000 {
            running.send(ToCold::Tell(EventKind::Notice { message: String::new() }));
            let retry_in = std::time::Duration::ZERO;
            running.send(ToCold::Tell(EventKind::Waiting { failure: failure(), retry_in }));
        }
        running.send(ToCold::Tell(EventKind::Restarted { failure: failure() }));
        let mut heard = Vec::new();
        while let Ok(message) = from_control.try_recv() {
            heard.push(message);
            running.flush();
        }
        assert!(matches!(heard.last(), Some(ToCold::Tell(EventKind::Restarted { .. }))));
        assert!(heard.len() <= MOST_BACKLOG + 2, "{}", heard.len());
    }

    #[test]
    fn pauses_do_not_pile_up_before_a_cold_side_that_hears_nothing() {
        let (mut running, _from_control) = deaf();
        for turn in 0..1000 {
            running.send(ToCold::Turn(turn));
            running.send(ToCold::AwaitMachine(Failure::new(Code::DiskFull, "")));
            running.send(ToCold::Tell(EventKind::Paused { have: 0 }));
            running.send_pause();
        }
        assert_eq!(running.backlog.len(), 1);
    }
}
