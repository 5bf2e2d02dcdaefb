//! What this crate asks of Linux beyond the standard library, and the only unsafe code in it.

#![allow(unsafe_code, reason = "calls that have no safe wrapper; each says why it is sound")]

use rustix::fs::{AtFlags, StatxFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;
use tidegate_core::checkpoint::Surroundings;

/// Where and when a file is: see [`Surroundings`]. What this kernel or file system cannot tell is `None`.
///
/// # Errors
/// When the file cannot be examined at all.
pub fn surroundings(file: &File) -> io::Result<Surroundings> {
    // STATX_MNT_ID_UNIQUE: an id that is never reused, since Linux 6.8. Older kernels leave the bit unset
    // in the answer. (STATX_MNT_ID is reused, so it could call a new mount the old one.)
    let unique_mount = StatxFlags::from_bits_retain(0x4000);
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | unique_mount;
    let stat = match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted) {
        Ok(stat) => stat,
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            let inode = rustix::fs::fstat(file)?.st_ino;
            return Ok(Surroundings { boot: boot_id(), mount: None, inode, birth: None });
        }
        Err(error) => return Err(error.into()),
    };
    let told = |flag: StatxFlags| stat.stx_mask & flag.bits() != 0;
    let birth = i128::from(stat.stx_btime.tv_sec) * 1_000_000_000 + i128::from(stat.stx_btime.tv_nsec);
    Ok(Surroundings {
        boot: boot_id(),
        mount: told(unique_mount).then_some(stat.stx_mnt_id),
        inode: stat.stx_ino,
        birth: told(StatxFlags::BTIME).then_some(birth),
    })
}

/// The kernel's random id of this boot.
fn boot_id() -> Option<u128> {
    static BOOT: OnceLock<Option<u128>> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
        u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)
    })
}

/// Asks the kernel to begin writing a file's dirty pages to the disk, and does not wait for it.
/// Promises nothing: it only leaves less to do for the next sync. Where it is not possible, nothing happens.
pub fn start_writeback(file: BorrowedFd<'_>) {
    // SAFETY: four integers, no pointers; the descriptor is borrowed, so it is open for the whole call.
    // An error (ESPIPE, ENOSYS) leaves the pages to the kernel's own time, and a failure of the disk is
    // reported by the next sync, which looks for one.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which is the same in every process.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// What the kernel knows of a TCP connection: its round trip, as smoothed so far, and by how many bits the
/// windows that we announce are shifted. `None` for what is no TCP connection.
pub fn round_trip(socket: impl AsFd) -> Option<(Duration, u8)> {
    // SAFETY: `tcp_info` is integers only, so all zeros are a value of it. The kernel writes at most `length`
    // bytes, the size of `info`, which outlives the call, and says in `length` how many; a kernel that knows
    // fewer fields leaves the rest zero. The descriptor is borrowed, so it is open for the whole call.
    let (info, length) = unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        let result = libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        );
        (result == 0).then_some((info, length))?
    };
    let told = length as usize >= std::mem::offset_of!(libc::tcp_info, tcpi_rttvar);
    told.then(|| (Duration::from_micros(info.tcpi_rtt.into()), info.tcpi_snd_rcv_wscale >> 4))
}

/// Lets the kernel call a socket readable only when so many bytes have come, or when no more can.
///
/// # Errors
/// Those of `setsockopt`.
pub fn wake_at(socket: impl AsFd, bytes: u64) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the kernel reads the size of one integer from `value`, which outlives the call. The descriptor
    // is borrowed, so it is open for the whole call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Which signal a lease that is broken sends: `fcntl` of Linux, which `libc` does not name.
const F_SETSIG: libc::c_int = 10;

/// Which others are to have a file open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Others {
    /// None at all, in any process; for a file that is open for writing here.
    Nobody,
    /// None for writing; for a file that is open for reading alone here.
    NoWriters,
}

/// Whether it is so that these others have no part in an open file: only then the kernel gives a lease for it, which
/// is given back at once. `None` where there are no leases, or not for us.
pub fn is_open_without(others: Others, file: impl AsFd) -> Option<bool> {
    let kind = match others {
        Others::Nobody => libc::F_WRLCK,
        Others::NoWriters => libc::F_RDLCK,
    };
    let control = |command: libc::c_int, argument: libc::c_int| {
        // SAFETY: three integers, no pointers; the descriptor is borrowed, so it is open for the whole call.
        match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, argument) } {
            -1 => Err(io::Error::last_os_error().raw_os_error()),
            _ => Ok(()),
        }
    };
    // Somebody who opens the file just then breaks the lease, and this process is sent a signal. The usual one
    // (SIGIO) would end it; this one does nothing unless somebody wants it.
    control(F_SETSIG, libc::SIGURG).ok()?;
    match control(libc::F_SETLEASE, kind) {
        Ok(()) => {
            // It cannot fail: there is one.
            let _ = control(libc::F_SETLEASE, libc::F_UNLCK);
            Some(true)
        }
        Err(Some(libc::EAGAIN | libc::EBUSY)) => Some(false),
        Err(_) => None,
    }
}

/// Makes an open file be another opening of its file: `of` is closed and its number means `by`, in one step.
///
/// # Errors
/// Those of `dup3`; then nothing is changed.
pub fn reopen_as(of: BorrowedFd<'_>, by: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: three integers, no pointers. Both are borrowed, so they are open for the whole call; and whoever owns
    // the number of `of` owns, after it, a descriptor of that number as before.
    match unsafe { libc::dup3(by.as_raw_fd(), of.as_raw_fd(), libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Lets all threads of this process take memory from one heap: a process whose threads hardly allocate at the same time
/// needs no more, and to know how many it may have glibc would look into `/sys`. Elsewhere nothing happens.
pub fn have_one_heap() {
    // SAFETY: two integers; it sets a number in the allocator, which its own lock guards.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Lets this process have as many open files as the system allows it: each connection is one, and the usual limit is
/// meant for programs that look at no more than 1,024. Programs that are started later inherit it, and one that was not
/// written for it would have to be given the old limit.
///
/// Where that is refused, the limit stays.
pub fn raise_open_file_limit() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
}

/// What kind of file system a file is on, as far as it matters here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FileSystem {
    magic: u32,
}

impl FileSystem {
    const BCACHEFS: u32 = 0xca45_1a4e;
    const BTRFS: u32 = 0x9123_683e;
    const CIFS: u32 = 0xff53_4d42;
    const EXFAT: u32 = 0x2011_bab0;
    const EXT: u32 = 0xef53;
    const F2FS: u32 = 0xf2f5_2010;
    const FUSE: u32 = 0x6573_5546;
    const NTFS3: u32 = 0x7366_746e;
    const OVERLAY: u32 = 0x794c_7630;
    const PLAN9: u32 = 0x0102_1997;
    const SMB2: u32 = 0xfe53_4d42;
    const TMPFS: u32 = 0x0102_1994;
    const VFAT: u32 = 0x4d44;
    const XFS: u32 = 0x5846_5342;
    const ZFS: u32 = 0x2fc1_2fc1;

    /// The file system that a file is on; an unknown one if it does not tell.
    pub fn of(file: impl AsFd) -> Self {
        // The kernel's word has 32 bits of meaning, whatever its width and sign are here.
        Self { magic: rustix::fs::fstatfs(file).map_or(0, |stat| stat.f_type as u32) }
    }

    /// Whether `fallocate` only marks room as taken, and is done at once.
    pub fn reserves_at_once(self) -> bool {
        matches!(self.magic, Self::EXT | Self::XFS | Self::BTRFS)
    }

    /// Whether it is held in memory, where reserved room would be used up at once.
    pub fn is_memory(self) -> bool {
        self.magic == Self::TMPFS
    }

    /// Whether a write that is refused for lack of room says nothing of the writes before it. On network
    /// file systems it may be the late news that an earlier write was lost.
    pub fn refuses_at_once(self) -> bool {
        matches!(
            self.magic,
            Self::EXT
                | Self::XFS
                | Self::BTRFS
                | Self::TMPFS
                | Self::F2FS
                | Self::BCACHEFS
                | Self::ZFS
                | Self::OVERLAY
        )
    }

    /// Whether a file's owner is who made it. Some have one owner for all files.
    pub fn keeps_owners(self) -> bool {
        !matches!(
            self.magic,
            Self::VFAT | Self::EXFAT | Self::NTFS3 | Self::FUSE | Self::CIFS | Self::SMB2 | Self::PLAN9
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_anybody_else_has_open_is_not_here_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("one");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        assert_eq!(is_open_without(Others::Nobody, &file), Some(true));
        let other = File::options().write(true).open(&path).unwrap();
        assert_eq!(is_open_without(Others::Nobody, &file), Some(false));
        drop(other);
        let copy = file.try_clone().unwrap();
        drop(file);
        assert_eq!(is_open_without(Others::Nobody, &copy), Some(true));
    }

    #[test]
    fn a_file_has_the_same_surroundings_until_it_is_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let one = File::create(dir.path().join("one")).unwrap();
        let again = File::open(dir.path().join("one")).unwrap();
        let two = File::create(dir.path().join("two")).unwrap();
        assert_eq!(surroundings(&one).unwrap(), surroundings(&again).unwrap());
        assert_ne!(surroundings(&one).unwrap().inode, surroundings(&two).unwrap().inode);
        assert!(surroundings(&one).unwrap().boot.is_some());
    }
}
