//! Starting a process with nothing but what it is given: a written environment, these descriptors at these
//! numbers, signals as they are by default.

use crate::sys;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions};
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

pub use rustix::process::Signal;

/// How long a handle that is dropped waits for its process to be gone after killing it.
const PATIENCE: Duration = Duration::from_secs(1);

/// A program, held open: what it is cannot change any more, whatever becomes of its file.
#[derive(Debug)]
pub struct Program {
    file: OwnedFd,
    null: OwnedFd,
}

impl Program {
    /// The program that runs here. Open it early: an upgrade may replace its file at any time.
    ///
    /// # Errors
    /// Where there is no `/proc` or no `/dev/null`.
    pub fn this() -> io::Result<Self> {
        Self::open(Path::new("/proc/self/exe"))
    }

    /// The program in this file, which must be no script.
    ///
    /// # Errors
    /// When it, or `/dev/null`, cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?,
            null: rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?,
        })
    }
}

/// What a process is started with.
#[derive(Debug)]
pub struct Start<'a> {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    descriptors: Vec<(RawFd, BorrowedFd<'a>)>,
    ignored: Vec<Signal>,
    death: Option<Signal>,
}

impl<'a> Start<'a> {
    /// A process that finds this as its name, whatever its file is called. It has no other argument, an empty
    /// environment, and no descriptors but 0, 1 and 2, which lead nowhere.
    pub fn new(name: &CStr) -> Self {
        Self {
            arguments: vec![name.to_owned()],
            environment: Vec::new(),
            descriptors: Vec::new(),
            ignored: Vec::new(),
            death: None,
        }
    }

    /// With one more argument.
    #[must_use]
    pub fn argument(mut self, word: &CStr) -> Self {
        self.arguments.push(word.to_owned());
        self
    }

    /// With this in its environment, as `NAME=value`.
    #[must_use]
    pub fn variable(mut self, word: &CStr) -> Self {
        self.environment.push(word.to_owned());
        self
    }

    /// With a copy of this descriptor, at this number (below 32). Of two for one number the later holds.
    #[must_use]
    pub fn descriptor(mut self, number: RawFd, from: BorrowedFd<'a>) -> Self {
        self.descriptors.retain(|(this, _)| *this != number);
        self.descriptors.push((number, from));
        self
    }

    /// Ignoring this signal, until it says otherwise itself. All others do what they do by default.
    #[must_use]
    pub fn ignoring(mut self, signal: Signal) -> Self {
        self.ignored.push(signal);
        self
    }

    /// With this signal sent to it when the *thread* that starts it ends. So start it from one that lives for as
    /// long as it shall: the main thread, or one that does nothing else.
    #[must_use]
    pub fn dying_with_us(mut self, signal: Signal) -> Self {
        self.death = Some(signal);
        self
    }

    /// Starts it. The thread stands still for the fraction of a millisecond until the program runs.
    ///
    /// # Errors
    /// `EBADF` for a number that a descriptor cannot have; `EAGAIN` and `ENOMEM` where there can be no more
    /// processes; `EMFILE` where there is no room to move descriptors; and those of `execveat`.
    pub fn spawn(self, program: &Program) -> io::Result<Process> {
        let mut descriptors = self.descriptors;
        if descriptors.iter().any(|(number, _)| !(0..sys::NUMBERS).contains(number)) {
            return Err(Errno::BADF.into());
        }
        for number in 0..3 {
            if descriptors.iter().all(|(this, _)| *this != number) {
                descriptors.push((number, program.null.as_fd()));
            }
        }
        let ignored: Vec<_> = self.ignored.iter().map(|signal| signal.as_raw()).collect();
        let (number, pidfd) = sys::start(&sys::Plan {
            program: program.file.as_fd(),
            arguments: &self.arguments,
            environment: &self.environment,
            descriptors: &descriptors,
            ignored: &ignored,
            death: self.death.map_or(0, Signal::as_raw),
        })?;
        Ok(Process { number: number.unsigned_abs(), pidfd, exit: None })
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal. `SIGSYS` (31) means that it tried something for which its profile ends it.
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "ended with code {code}"),
            Self::Signal(libc::SIGSYS) => {
                f.write_str("ended by the kernel for a system call it may not make")
            }
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
        }
    }
}

/// A process that was started here.
///
/// Dropping it kills the process and takes it away. If it is not gone within a second, which happens when it
/// hangs in a disk, it is left behind as a zombie until this process ends.
#[derive(Debug)]
pub struct Process {
    number: u32,
    pidfd: OwnedFd,
    exit: Option<Exit>,
}

impl Process {
    /// Its number, for messages and `/proc`. After it was waited for, another process may have it.
    pub fn id(&self) -> u32 {
        self.number
    }

    /// Becomes readable when it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Sends it a signal. It never reaches another process, and one that has ended is no failure.
    ///
    /// # Errors
    /// Those of `pidfd_send_signal`.
    pub fn kill(&self, signal: Signal) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.pidfd, signal) {
            Err(Errno::SRCH) => Ok(()),
            result => Ok(result?),
        }
    }

    /// How it ended; waits until it has.
    ///
    /// # Errors
    /// `ECHILD` if another part of this program waits for all children and was first, or ignores `SIGCHLD`.
    pub fn wait(&mut self) -> io::Result<Exit> {
        loop {
            if let Some(exit) = self.look(WaitIdOptions::EXITED)? {
                return Ok(exit);
            }
        }
    }

    /// How it ended; `None` if it has not.
    ///
    /// # Errors
    /// As [`Process::wait`].
    pub fn try_wait(&mut self) -> io::Result<Option<Exit>> {
        self.look(WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
    }

    fn look(&mut self, how: WaitIdOptions) -> io::Result<Option<Exit>> {
        if self.exit.is_none() {
            let id = || WaitId::PidFd(self.pidfd.as_fd());
            let status = match rustix::process::waitid(id(), how) {
                Err(Errno::INTR) => None,
                status => status?,
            };
            self.exit = status.and_then(|status| {
                let code = status.exit_status().map(Exit::Code);
                code.or_else(|| status.terminating_signal().map(Exit::Signal))
            });
        }
        Ok(self.exit)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exit.is_some() || self.kill(Signal::KILL).is_err() {
            return;
        }
        ended_within(self.pidfd.as_fd(), PATIENCE);
        let _ = self.try_wait();
    }
}

/// Waits until what a descriptor stands for is there, or until the time is over. Whether it is there.
pub(crate) fn ended_within(descriptor: BorrowedFd<'_>, time: Duration) -> bool {
    let until = std::time::Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        let left = rustix::event::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(descriptor, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&left)) {
            Err(Errno::INTR) => {}
            result => return result.is_ok_and(|count| count > 0),
        }
    }
}

/// A descriptor that this process was started with, by its number (3 to 31). Each is given once, and is closed in
/// programs that this process starts in turn.
///
/// For the main function of a program that is started by [`Start`]: call it for the numbers that it is started
/// with and for no others, before anything else is opened, since what is opened later may have such a number too.
///
/// # Errors
/// `EBADF` if nothing is open there or it was given before.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    Ok(sys::inherited(number)?)
}
