//! What this crate asks of Linux beyond safe wrappers, and the only unsafe code in it: an allocator that
//! counts, what a child used, what a socket has got across, and a program whose writes somebody else lets go on.

#![allow(unsafe_code, reason = "wait4, TCP_INFO, seccomp and the allocator's trait have no safe form")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Threads that are told apart by the allocator; all later ones share the last place.
const THREADS: usize = 256;
/// Stacks that are kept, at most.
const STACKS: usize = 32;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static TRACES: AtomicBool = AtomicBool::new(false);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static TALLY: [(AtomicI32, AtomicU64); THREADS] = [const { (AtomicI32::new(0), AtomicU64::new(0)) }; THREADS];
static STACK: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    /// This thread's place in the tally, from 1; 0 until it has one.
    static PLACE: Cell<usize> = const { Cell::new(0) };
    /// This thread is noting an allocation, and what that allocates is not noted.
    static NOTING: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator, with every allocation counted while a window is open.
struct Counting;

/// Notes an allocation. Allocates nothing itself, unless stacks were asked for.
fn note() {
    if !COUNTS.load(Ordering::Relaxed) {
        return;
    }
    // A thread that is ending has no places any more; it counts in the last.
    let place = PLACE.try_with(|place| {
        if place.get() == 0 {
            let next = NEXT.fetch_add(1, Ordering::Relaxed).min(THREADS - 2);
            TALLY[next].0.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
            place.set(next + 1);
        }
        place.get() - 1
    });
    TALLY[place.unwrap_or(THREADS - 1)].1.fetch_add(1, Ordering::Relaxed);
    if TRACES.load(Ordering::Relaxed) && !NOTING.try_with(|noting| noting.replace(true)).unwrap_or(true) {
        COUNTS.store(false, Ordering::Relaxed);
        let text = Backtrace::force_capture().to_string();
        let mut stacks = STACK.lock().unwrap_or_else(PoisonError::into_inner);
        if stacks.len() < STACKS {
            stacks.push(text);
        }
        drop(stacks);
        COUNTS.store(true, Ordering::Relaxed);
        let _ = NOTING.try_with(|noting| noting.set(false));
    }
}

// SAFETY: every call is handed to the system's allocator as it came, and its answer handed back. What is done
// beside it touches atomics and a const-initialised thread-local without a destructor, so it neither unwinds
// nor allocates; taking stacks does allocate, and then the window is shut so that it does not come back here.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promises are those of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Counts the allocations of all threads of this process during `window`; each thread that made any with its
/// kernel id. With `stacks`, some of their stacks are kept for [`stacks`], and those made meanwhile are missed.
pub(crate) fn allocations_during(stacks: bool, window: impl FnOnce()) -> Vec<(i32, u64)> {
    for (_, count) in &TALLY {
        count.store(0, Ordering::Relaxed);
    }
    TRACES.store(stacks, Ordering::Relaxed);
    COUNTS.store(true, Ordering::SeqCst);
    window();
    COUNTS.store(false, Ordering::SeqCst);
    TALLY
        .iter()
        .map(|(thread, count)| (thread.load(Ordering::Relaxed), count.load(Ordering::Relaxed)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Stacks that were kept since they were last taken.
pub(crate) fn stacks() -> Vec<String> {
    std::mem::take(&mut *STACK.lock().unwrap_or_else(PoisonError::into_inner))
}

/// What a child used by the time it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Processor time in user and kernel mode, of all its threads.
    pub(crate) cpu: Duration,
}

/// Takes away a child that has ended; `None` while it runs.
///
/// # Errors
/// Those of `wait4`: `ECHILD` for a process that is no child, or was taken away before.
pub(crate) fn reap(pid: u32) -> io::Result<Option<Usage>> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both places are writable for their types, for the duration of the call.
    let result = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    match result {
        0 => Ok(None),
        -1 => Err(io::Error::last_os_error()),
        _ => {
            // SAFETY: zeros are a value of this type, and the kernel has written over them.
            let usage = unsafe { usage.assume_init() };
            let time = |t: libc::timeval| {
                Duration::from_secs(t.tv_sec.try_into().unwrap_or(0))
                    + Duration::from_micros(t.tv_usec.try_into().unwrap_or(0))
            };
            let cpu = time(usage.ru_utime) + time(usage.ru_stime);
            Ok(Some(Usage { status: ExitStatus::from_raw(status), cpu }))
        }
    }
}

/// Processor time of all threads of a process, those that have ended included, from the kernel's own clock of it.
///
/// # Errors
/// `ESRCH` and `EINVAL` for a process that is gone.
pub(crate) fn cpu_of(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut clock = 0;
    // SAFETY: the place is writable for its type, for the duration of the call.
    match unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) } {
        0 => {}
        error => return Err(io::Error::from_raw_os_error(error)),
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (seconds, nanos) = (time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0));
    Ok(Duration::new(seconds, nanos))
}

/// Where `tcpi_bytes_acked` lies in Linux's `struct tcp_info` (since 4.1; the layout only ever grows).
const BYTES_ACKED: std::ops::Range<usize> = 120..128;

/// How many bytes the other side of a TCP connection has acknowledged in all.
///
/// # Errors
/// Those of `getsockopt`; `Unsupported` on a kernel without the field.
pub(crate) fn bytes_acked(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = [0u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: `info` is writable for `length` bytes, any bytes are valid in it, and the socket is borrowed, so
    // it is open during the call.
    let result = unsafe {
        let into = info.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if (length as usize) < BYTES_ACKED.end {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut word = [0; 8];
    word.copy_from_slice(&info[BYTES_ACKED]);
    Ok(u64::from_ne_bytes(word))
}

/// A system call that waits to be let go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// By which it is let go on.
    pub(crate) id: u64,
    /// The process, or thread, that made it.
    pub(crate) pid: u32,
    /// Its arguments.
    pub(crate) args: [u64; 6],
    /// Which argument is the file that is written to, and which is the length.
    pub(crate) places: (usize, usize),
    /// It is `splice`.
    pub(crate) is_splice: bool,
}

/// The calls that write, with the places of their file and their length among the arguments.
const WRITES: [(libc::c_long, (usize, usize)); 3] =
    [(libc::SYS_write, (0, 2)), (libc::SYS_pwrite64, (0, 2)), (libc::SYS_splice, (2, 4))];

/// From now on the calls by which *this thread*, and the programs that it starts, write are held until the
/// holder of the result lets each go on. It cannot be undone; a thread made for it is the place to do it.
/// If the result is closed, held calls fail with `ENOSYS`.
///
/// # Errors
/// Those of `seccomp`: `ENOSYS` or `EINVAL` before Linux 5.0 (letting calls go on needs 5.5), `EBUSY` if this thread has such a holder already.
pub(crate) fn hold_writes() -> io::Result<OwnedFd> {
    let jump = |count: usize| u8::try_from(count).unwrap_or(u8::MAX);
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    // The number of the call is the first word of what a filter sees.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for (index, (number, _)) in WRITES.iter().enumerate() {
        let number = u32::try_from(*number).map_err(|_| io::Error::from(io::ErrorKind::Unsupported))?;
        let to_hold = jump(WRITES.len() - index);
        program.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, to_hold, 0));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF, 0, 0));
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let filter = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: integers only. It only takes away what a set-user-id program could gain, and an ordinary user
    // may not install a filter without it.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `filter` and the program it points to live until the call returns; the kernel copies them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const filter,
        )
    };
    match i32::try_from(result) {
        // SAFETY: the kernel has just made this descriptor for us, so nobody else owns it.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The next call that is held; waits for one. `None` if its caller has gone meanwhile.
///
/// # Errors
/// Those of `ioctl`.
pub(crate) fn next_held(listener: BorrowedFd<'_>) -> io::Result<Option<Held>> {
    // The kernel refuses anything but zeros here.
    let mut held = MaybeUninit::<libc::seccomp_notif>::zeroed();
    // SAFETY: the place is writable for the type that this request writes.
    let result =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, held.as_mut_ptr()) };
    if result != 0 {
        return match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
            error => Err(error),
        };
    }
    // SAFETY: zeros are a value of this type, and the kernel has written over them.
    let held = unsafe { held.assume_init() };
    let places = WRITES.iter().find(|(number, _)| *number == libc::c_long::from(held.data.nr));
    let places = places.map_or((0, 2), |(_, places)| *places);
    let is_splice = libc::c_long::from(held.data.nr) == libc::SYS_splice;
    Ok(Some(Held { id: held.id, pid: held.pid, args: held.data.args, places, is_splice }))
}

/// Lets a held call go on as if nothing had been. A caller that has gone meanwhile is no failure.
///
/// # Errors
/// Those of `ioctl`.
pub(crate) fn let_go_on(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
    // SAFETY: the place is readable and writable for the type of this request.
    let result =
        unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
    match (result, io::Error::last_os_error()) {
        (0, _) => Ok(()),
        (_, error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        (_, error) => Err(error),
    }
}
