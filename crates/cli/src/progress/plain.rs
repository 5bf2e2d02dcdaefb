//! Progress as plain lines, for logs and pipes: few, and bounded in their number by time.

use super::board::{Board, state};
use super::render::{sentence, total};
use std::collections::BTreeMap;
use std::mem::Discriminant;
use std::time::Duration;
use tidegate_core::message::Phase;

/// The least time between two lines of progress.
const EVERY: Duration = Duration::from_secs(10);

/// How often it is asked how far everything is.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// What has been said, so that it is not said again.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    asked: Option<Duration>,
    last: Duration,
    phases: BTreeMap<u64, (Discriminant<Phase>, Duration)>,
}

impl Plain {
    /// Whether it is time to ask how far everything is.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.asked.is_none_or(|asked| now >= asked + ASK_EVERY)
    }

    /// The lines that are due at `now` (the time since the start of the run): the state of a download
    /// that has changed, and at most every ten seconds how far it is, for many downloads all together.
    pub(crate) fn due(&mut self, board: &Board, now: Duration) -> Vec<String> {
        self.asked = Some(now);
        let mut lines = Vec::new();
        for (job, row) in board.active() {
            let Some(progress) = &row.progress else { continue };
            let phase = std::mem::discriminant(&progress.phase);
            let known = self.phases.get(&job);
            let changed = known.is_none_or(|(known, at)| *known != phase && now >= *at + EVERY / 10);
            if !changed {
                continue;
            }
            self.phases.insert(job, (phase, now));
            // A wait for the network is told as an event, with its reason.
            let told = matches!(progress.phase, Phase::WaitingForDisk | Phase::Proving | Phase::Verifying);
            if let Some(state) = state(&progress.phase).filter(|_| told) {
                lines.push(format!("{}: {state}", row.name));
            }
        }
        self.phases.retain(|job, _| board.name(*job).is_some());
        if now >= self.last + EVERY {
            self.last = now;
            if board.total > 1 {
                lines.push(total(board));
            } else {
                let of = |(_, row)| {
                    let row: &super::board::Row = row;
                    Some(format!("{}: {}", row.name, sentence(row)?))
                };
                lines.extend(board.active().filter_map(of));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::DownloadId;
    use tidegate_core::message::{EventKind, Progress};

    fn progress(phase: Phase, have: u64) -> Progress {
        Progress {
            id: DownloadId(1),
            phase,
            have,
            received: have,
            length: Some(1000),
            speed: 10,
            left: None,
            connections: 1,
            segments: Vec::new(),
            map: Vec::new(),
            requests: 0,
        }
    }

    fn board(jobs: u64) -> Board {
        let mut board = Board::default();
        for job in 0..jobs {
            board.add(job, &format!("{job}.iso"));
            board.event(job, &EventKind::Started { resumed_from: 0 }, Duration::ZERO);
        }
        board
    }

    #[test]
    fn a_log_gets_one_line_in_ten_seconds_and_no_more() {
        let (mut board, mut plain) = (board(1), Plain::default());
        let mut lines = Vec::new();
        for tenth in 0..600u32 {
            board.progress(0, progress(Phase::Fetching, u64::from(tenth)));
            lines.extend(plain.due(&board, Duration::from_millis(100) * tenth));
        }
        assert_eq!(lines.len(), 5, "{lines:#?}");
        assert_eq!(lines[0], "0.iso: 10.0%, 100 B of 1000 B, 10 B/s");
    }

    #[test]
    fn many_files_get_one_line_together() {
        let (mut board, mut plain) = (board(20), Plain::default());
        for job in 0..20 {
            board.progress(job, progress(Phase::Fetching, 1));
        }
        assert_eq!(plain.due(&board, EVERY), ["0 of 20 done, 20 active, 200 B/s"]);
    }

    #[test]
    fn a_disk_that_stops_is_told_once() {
        let (mut board, mut plain) = (board(1), Plain::default());
        let mut lines = Vec::new();
        for second in 0..5 {
            let phase = if second == 0 { Phase::Fetching } else { Phase::WaitingForDisk };
            board.progress(0, progress(phase, 1));
            lines.extend(plain.due(&board, Duration::from_secs(second)));
        }
        assert_eq!(lines, ["0.iso: waiting for disk"]);
    }
}
