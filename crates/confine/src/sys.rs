//! What this crate asks of Linux beyond safe wrappers, and the only unsafe code in it.

#![allow(
    unsafe_code,
    reason = "filters, starting a process from a descriptor, and closing what was inherited have no safe form"
)]

use rustix::io::Errno;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Descriptors can be given to a new process at numbers below this.
pub(crate) const NUMBERS: RawFd = 32;
/// The highest number of a signal.
const SIGNALS: c_int = 64;
/// What a started process has as its stack before it becomes its program: `STACK` times 16 bytes. It makes some
/// hundred system calls there and nothing else.
const STACK: usize = 4096;

/// Closes every descriptor from `first` up.
///
/// # Errors
/// `ENOSYS` before Linux 5.9.
pub(crate) fn close_from(first: u32) -> Result<(), Errno> {
    // SAFETY: three integers, no pointers. It closes descriptors whoever owns them; the one caller is the first
    // thing that its process does, when these can only have been inherited, and no part of it knows of them.
    match unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// The descriptor that this process was started with at this number, made to be closed in programs that it starts.
/// Each is given once.
///
/// # Errors
/// `EBADF` if nothing is open there, the number is not below [`NUMBERS`], or it was given before.
pub(crate) fn inherited(number: RawFd) -> Result<OwnedFd, Errno> {
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    if !(3..NUMBERS).contains(&number) || GIVEN.fetch_or(1 << number, Ordering::Relaxed) & (1 << number) != 0
    {
        return Err(Errno::BADF);
    }
    // SAFETY: integers only.
    match unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } {
        // SAFETY: it is open, as was just shown, and was given to nobody else, since each number is given once.
        // Whoever calls this says that the process was started with it (see `spawn::inherited`).
        0 => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
        _ => Err(last_error()),
    }
}

/// Takes this process into new namespaces of these kinds (`CLONE_NEW…`).
///
/// # Errors
/// Those of `unshare`.
pub(crate) fn unshare(kinds: c_int) -> Result<(), Errno> {
    // SAFETY: one integer. Of the flags that are passed here none parts memory or descriptors between threads.
    match unsafe { libc::unshare(kinds) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Puts a filter of system calls on all threads of this process, for ever.
///
/// # Errors
/// `EACCES` without no-new-privileges, `EBUSY` if another thread has a filter that this one has not, `EINVAL` where
/// the kernel knows no filters, and `ENOMEM`. Then it holds for no thread.
pub(crate) fn filter_all_threads(program: &[libc::sock_filter]) -> Result<(), Errno> {
    let length = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `filter` and the program that it points to live until the call returns; the kernel copies the program
    // and writes to neither. That calls of this process will fail which did not before breaks no memory: each that
    // this program makes can fail anyway.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const filter,
        )
    };
    match result {
        0 => Ok(()),
        -1 => Err(last_error()),
        // The number of the thread.
        _ => Err(Errno::BUSY),
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Everything that a process needs between its birth and its program. It is made before, because in between
/// nothing may be allocated.
pub(crate) struct Plan<'a> {
    /// The program.
    pub(crate) program: BorrowedFd<'a>,
    /// Its arguments, the name that it goes by first.
    pub(crate) arguments: &'a [CString],
    /// Its environment.
    pub(crate) environment: &'a [CString],
    /// Its descriptors and their numbers, each below [`NUMBERS`].
    pub(crate) descriptors: &'a [(RawFd, BorrowedFd<'a>)],
    /// The signals that it ignores from the beginning.
    pub(crate) ignored: &'a [c_int],
    /// What it gets when the thread that starts it ends; 0 for nothing.
    pub(crate) death: c_int,
}

/// What the new process sees of a plan.
struct Orders {
    program: RawFd,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    /// From, to, and room for the number in between.
    moves: *mut [(RawFd, RawFd, RawFd)],
    ignored: *const [c_int],
    death: c_int,
    parent: libc::pid_t,
    /// The error that kept it from becoming its program; 0 for none.
    error: AtomicI32,
}

/// Starts a process: its number and a descriptor that stands for it.
///
/// It borrows the memory of this process until it has become its program, and this thread stands still for as
/// long. So there is nothing to be copied, however large this process is.
///
/// # Errors
/// `EAGAIN` and `ENOMEM` where there can be no more processes, and whatever kept it from becoming its program.
pub(crate) fn start(plan: &Plan<'_>) -> io::Result<(libc::pid_t, OwnedFd)> {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(plan.arguments), pointers(plan.environment));
    let mut moves: Vec<_> = plan.descriptors.iter().map(|(to, from)| (from.as_raw_fd(), *to, -1)).collect();
    let orders = Orders {
        program: plan.program.as_raw_fd(),
        arguments: arguments.as_ptr(),
        environment: environment.as_ptr(),
        moves: &raw mut moves[..],
        ignored: plan.ignored,
        death: plan.death,
        // SAFETY: no arguments, and it cannot fail.
        parent: unsafe { libc::getpid() },
        error: AtomicI32::new(0),
    };
    let mut stack: Vec<u128> = Vec::with_capacity(STACK);
    // The stack grows downwards from here, where 16 bytes are aligned as calls want it.
    let top = stack.as_mut_ptr().wrapping_add(STACK);
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;

    // A handler of ours that ran in the new process would run in the memory of this one.
    let blocked = Blocked::all()?;
    // SAFETY: the new process runs `child` on a stack of its own, of which nothing else knows, and reads `orders`
    // and what it points to. All of that outlives the call, and the call outlives the new process's use of it:
    // with CLONE_VFORK this thread goes on only when it has become its program or ended. Other threads go on
    // meanwhile, but none of them has a reference to any of it. `child` keeps to what is allowed there.
    let number = unsafe {
        libc::clone(child, top.cast(), flags, (&raw const orders).cast_mut().cast::<c_void>(), &raw mut pidfd)
    };
    let failed = io::Error::last_os_error();
    drop(blocked);
    if number < 0 {
        return Err(failed);
    }
    // SAFETY: the kernel has just made this descriptor for us, so nobody else owns it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    match orders.error.load(Ordering::Acquire) {
        0 => Ok((number, pidfd)),
        error => {
            // It has ended already, so this waits for nothing, and nobody else knows of it.
            let _ = rustix::process::waitid(
                rustix::process::WaitId::PidFd(std::os::fd::AsFd::as_fd(&pidfd)),
                rustix::process::WaitIdOptions::EXITED,
            );
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// All signals of this thread are held back until this is dropped.
struct Blocked(libc::sigset_t);

impl Blocked {
    fn all() -> io::Result<Self> {
        // SAFETY: both sets are places of their type for the whole call; sigfillset writes all of the one, and
        // zeros are a value of the other, which the call writes.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) {
                0 => Ok(Self(before)),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is what the kernel gave before, and no old one is asked for.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// The first that a new process does: becomes its program, or tells why not and ends.
extern "C" fn child(orders: *mut c_void) -> c_int {
    // SAFETY: `start` passes a pointer to its orders, which live until this process has become its program or
    // ended, and which nobody writes to meanwhile but this process.
    let orders = unsafe { &*orders.cast::<Orders>() };
    let error = become_program(orders);
    orders.error.store(error, Ordering::Release);
    // SAFETY: it ends this process and nothing else; no handler and no destructor runs, which would be the
    // parent's.
    unsafe { libc::_exit(127) }
}

/// Returns only if it fails, with the error.
///
/// It runs in the memory of the parent: no allocation, no lock, no panic, nothing but system calls.
fn become_program(orders: &Orders) -> c_int {
    // SAFETY: these are system calls with integers, or with pointers into `orders` and to places on this stack,
    // each valid for its call. The descriptors are a copy of the parent's, so closing or replacing them takes
    // nothing from the parent. The slices are those of `start`, and only this process uses them meanwhile.
    unsafe {
        if orders.death != 0 {
            if libc::prctl(libc::PR_SET_PDEATHSIG, orders.death, 0, 0, 0) != 0 {
                return errno();
            }
            // It may have ended before that.
            if libc::getppid() != orders.parent {
                return libc::ESRCH;
            }
        }
        for signal in 1..=SIGNALS {
            let ignored = (*orders.ignored).contains(&signal);
            // What the kernel takes: the disposition, then flags, a way back that is not needed, and a mask, all
            // nothing. The C library keeps two signals from its own call, and these may be ignored as well.
            let action = [if ignored { libc::SIG_IGN } else { libc::SIG_DFL }, 0, 0, 0];
            let nowhere = std::ptr::null_mut::<c_void>();
            // Fails for KILL and STOP.
            libc::syscall(libc::SYS_rt_sigaction, signal, action.as_ptr(), nowhere, SIGNALS / 8);
        }

        // First out of the way of each other, then to their places.
        let program = libc::fcntl(orders.program, libc::F_DUPFD_CLOEXEC, NUMBERS);
        if program < 0 {
            return errno();
        }
        for (from, _, between) in &mut *orders.moves {
            *between = libc::fcntl(*from, libc::F_DUPFD_CLOEXEC, NUMBERS);
            if *between < 0 {
                return errno();
            }
        }
        for number in 0..NUMBERS {
            match (*orders.moves).iter().find(|(_, to, _)| *to == number) {
                Some((_, to, between)) => {
                    if libc::dup3(*between, *to, 0) < 0 {
                        return errno();
                    }
                }
                None => {
                    libc::close(number);
                }
            }
        }
        // Nothing of ours is left open without this flag; it is for what a library opened without. A kernel that
        // does not know the call has the same done by the lock-down, which tells of it.
        libc::syscall(libc::SYS_close_range, NUMBERS, c_int::MAX, libc::CLOSE_RANGE_CLOEXEC);

        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        let empty: &CStr = c"";
        libc::syscall(
            libc::SYS_execveat,
            program,
            empty.as_ptr(),
            orders.arguments,
            orders.environment,
            libc::AT_EMPTY_PATH,
        );
        errno()
    }
}

fn errno() -> c_int {
    // SAFETY: the place of this thread's error is always there. In the new process it is that of the parent's
    // thread, which stands still and does not look at it.
    unsafe { *libc::__errno_location() }
}
