//! What a process owes and has owed for too long: an answer, or a part that it is to give back.
//!
//! A process that says that it is alive could otherwise hold up whoever waits, for ever. One whose disk is frozen owes
//! too, and is not to be ended for that: while any of its threads waits for a disk, only what needs none counts. Time
//! is counted in looks, one each second, so that time in which this process itself did not run does not count.

use super::{Call, State};
use std::fs;
use std::time::Duration;

/// How often is looked.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// After how many looks something is overdue.
const MOST_LOOKS: u32 = 10;

/// What a process owes of one download.
#[derive(Debug, Default)]
pub(super) struct Debt {
    /// How often the part was lent and not returned.
    lent: u32,
    /// It was told that the download has its outcome.
    over: bool,
    /// It has let go of everything.
    freed: bool,
    /// It has passed on that the download is to go.
    says_goodbye: bool,
    /// How often it was seen to owe something though the download is to go.
    looks: u32,
}

impl Debt {
    /// The part was lent.
    pub(super) fn lent(&mut self) {
        self.lent += 1;
    }

    /// The part was returned.
    pub(super) fn returned(&mut self) {
        self.lent = self.lent.saturating_sub(1);
    }

    /// It was told that the download has its outcome.
    pub(super) fn over(&mut self) {
        self.over = true;
    }

    /// It has let go of everything.
    pub(super) fn freed(&mut self) {
        self.freed = true;
    }

    /// It has passed on that the download is to go.
    pub(super) fn says_goodbye(&mut self) {
        self.says_goodbye = true;
    }

    /// Whether it owes anything of a download that is to go.
    fn is_open(&self) -> bool {
        self.lent > 0 || if self.over { !self.freed } else { !self.says_goodbye }
    }
}

/// What is found overdue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Overdue {
    Nothing,
    /// What a disk may hold up.
    ForADisk,
    /// What no disk can hold up.
    ForNothing,
}

impl State {
    /// Looks once more at everything that is owed. `has_frozen` tells whether the process waits for a disk.
    pub(super) fn look_for_overdue(&mut self, has_frozen: impl Fn() -> bool) -> Overdue {
        let frozen = std::cell::LazyCell::new(has_frozen);
        let mut found = Overdue::Nothing;
        let mut late = |looks: &mut u32, for_a_disk: bool| {
            if for_a_disk && *frozen {
                return;
            }
            *looks += 1;
            if *looks >= MOST_LOOKS {
                found = match (found, for_a_disk) {
                    (Overdue::ForNothing, _) | (_, false) => Overdue::ForNothing,
                    _ => Overdue::ForADisk,
                };
            }
        };
        for asking in self.calls.values_mut() {
            late(&mut asking.looks, matches!(asking.call, Call::Saved(_)));
        }
        let leaving = self.downloads.values_mut().filter(|entry| entry.leaving.is_some());
        for entry in leaving.filter(|entry| entry.debt.is_open()) {
            late(&mut entry.debt.looks, true);
        }
        found
    }

    /// Whether anything is owed.
    pub(super) fn is_owed_anything(&self) -> bool {
        !self.calls.is_empty()
            || self.downloads.values().any(|entry| entry.leaving.is_some() && entry.debt.is_open())
    }
}

/// Whether any thread of a process waits for a disk, or for anything else in the kernel that cannot be interrupted;
/// or whether that cannot be found out here.
pub(super) fn waits_for_disk(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    threads.flatten().any(|thread| {
        // One that has ended meanwhile waits for nothing.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before it may hold anything.
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
    })
}
