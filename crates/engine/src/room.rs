//! The room that a file of unknown length leaves on its disk.
//!
//! Where the length is told, the free space is compared with it before the first byte. A body that does not
//! tell its length may never end, and would take the last byte of a disk from everything else that lives
//! there. So such a file stops while there is a reserve: a hundredth of the disk, but at least 64 MiB (or a
//! tenth, of a disk smaller than 640 MiB) and at most 1 GiB. Its first 16 MiB are written as long as there is
//! room at all, since most answers without a length are small ones.

use std::io;
use std::os::fd::BorrowedFd;

const MIB: u64 = 1 << 20;

/// So much of a file of unknown length is written as long as there is room at all.
pub(crate) const UNCHECKED: u64 = 16 * MIB;

/// The most bytes that are written between two looks at the free space.
const STEP: u64 = 64 * MIB;

/// What is written in other places takes a page of 4 KiB for each that is begun: of 64 connections at most.
const BEGUN: u64 = 64 * 4096;

/// Less than this is not worth another look.
const LEAST: u64 = MIB;

/// A file system, as large as it is and as empty.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Room {
    /// All bytes of it.
    total: u64,
    /// Those that we may still take.
    free: u64,
}

impl Room {
    /// The file system of an open file; `None` for one that does not tell.
    ///
    /// # Errors
    /// Those of `fstatvfs`.
    pub(crate) fn of(file: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let space = rustix::fs::fstatvfs(file)?;
        let blocks = if rustix::process::geteuid().is_root() { space.f_bfree } else { space.f_bavail };
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok((space.f_blocks > 0).then(|| Self { total: bytes(space.f_blocks), free: bytes(blocks) }))
    }

    /// What a file of unknown length leaves to others.
    fn reserve(self) -> u64 {
        (self.total / 100).clamp((64 * MIB).min(self.total / 10), 1024 * MIB)
    }

    fn spare(self) -> u64 {
        self.free.saturating_sub(self.reserve())
    }

    /// How many bytes may be written before the next look; `None` when the reserve is all that is left.
    pub(crate) fn grant(self) -> Option<u64> {
        Some(self.spare().saturating_sub(BEGUN).min(STEP)).filter(|bytes| *bytes >= LEAST)
    }

    /// Whether there is so much room again that going on is worth it: more than one look's worth, or it
    /// would be stopped and started for every file that somebody else removes.
    pub(crate) fn is_worth_going_on(self) -> bool {
        self.spare() >= STEP.min(self.total / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_a_hundredth_within_bounds_and_never_a_whole_small_disk() {
        const GIB: u64 = 1 << 30;
        for (total, reserve) in [
            (0, 0),
            (40 * MIB, 4 * MIB),
            (639 * MIB, 639 * MIB / 10),
            (GIB, 64 * MIB),
            (100 * GIB, GIB),
            (20 << 40, GIB),
            (u64::MAX, GIB),
        ] {
            assert_eq!(Room { total, free: total }.reserve(), reserve, "{total}");
        }
    }

    #[test]
    fn what_is_granted_never_reaches_into_the_reserve() {
        let total = 40 * MIB;
        for (free, grant, worth) in [
            (40 * MIB, Some(36 * MIB - BEGUN), true),
            (8 * MIB, Some(4 * MIB - BEGUN), true),
            (8 * MIB - 1, Some(4 * MIB - BEGUN - 1), false),
            (5 * MIB + BEGUN, Some(MIB), false),
            (5 * MIB + BEGUN - 1, None, false),
            (0, None, false),
        ] {
            let room = Room { total, free };
            assert_eq!((room.grant(), room.is_worth_going_on()), (grant, worth), "{free}");
        }
        assert_eq!(Room { total: 1 << 40, free: 1 << 40 }.grant(), Some(STEP));
    }
}
