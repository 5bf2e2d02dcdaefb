//! A process that does nothing but answer: what whatever is in a process of its own must cost at the least.
//!
//! It is this same program, started in the same way as the engine's process, with as many threads that wait and as
//! much memory in use as it is told. It answers each question with the time at which it heard it.

use rustix::process::pidfd_send_signal;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use tidegate_confine::spawn::{Process, Program, Signal, Start, inherited};
use tidegate_engine::sys::monotonic_ns;

/// The argument that makes this program one; not a command, since reading a command line takes its time.
const WORD: &str = "bare";
/// The number of its socket.
const SOCKET: i32 = 3;
/// A question or an answer.
const LENGTH: usize = 8;
/// A thread that is to wait for something does so by then.
const BLOCKED: Duration = Duration::from_millis(2);

/// If this process was started to be a bare one, is that until its end.
pub(crate) fn run_if_bare() -> Option<ExitCode> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [word, threads, ballast] = words.as_slice() else { return None };
    if word != WORD || std::env::vars_os().next().is_some() {
        return None;
    }
    let number = |word: &std::ffi::OsStr| word.to_str().and_then(|word| word.parse::<usize>().ok());
    let (threads, ballast) = (number(threads)?.min(64), number(ballast)?.min(64 << 10));
    let socket = inherited(SOCKET).ok()?;
    Some(match answer(File::from(socket), threads, ballast) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

fn answer(mut socket: File, threads: usize, ballast_kib: usize) -> io::Result<()> {
    for _ in 0..threads {
        thread::Builder::new().spawn(|| {
            loop {
                thread::park();
            }
        })?;
    }
    // Written to, so that it is there.
    let ballast = vec![1u8; ballast_kib << 10];
    std::hint::black_box(&ballast);
    socket.write_all(&monotonic_ns().to_ne_bytes())?;
    let mut question = [0; LENGTH];
    loop {
        match socket.read_exact(&mut question) {
            Ok(()) => socket.write_all(&monotonic_ns().to_ne_bytes())?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// How large a bare process is to be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    /// Threads beside its first.
    pub(crate) threads: usize,
    /// Memory of its own that it uses, in KiB.
    pub(crate) ballast_kib: usize,
}

/// A bare process that runs.
#[derive(Debug)]
pub(crate) struct Bare {
    process: Process,
    socket: File,
}

impl Bare {
    /// Starts one, and waits until it has said that it is there.
    ///
    /// # Errors
    /// Those of the system; when it ends instead.
    pub(crate) fn start(program: &Program, size: Size) -> io::Result<Self> {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )?;
        let word = |text: String| CString::new(text).map_err(io::Error::other);
        let process = Start::new(c"tidegate")
            .argument(&word(WORD.to_owned())?)
            .argument(&word(size.threads.to_string())?)
            .argument(&word(size.ballast_kib.to_string())?)
            .descriptor(SOCKET, theirs.as_fd())
            .dying_with_us(Signal::KILL)
            .spawn(program)?;
        drop(theirs);
        let mut bare = Self { process, socket: File::from(ours) };
        bare.hear()?;
        Ok(bare)
    }

    fn hear(&mut self) -> io::Result<u64> {
        let mut answer = [0; LENGTH];
        self.socket.read_exact(&mut answer)?;
        Ok(u64::from_ne_bytes(answer))
    }

    /// Asks it something: how long the answer took in all, and how long from its being said to its being heard.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn ping(&mut self) -> io::Result<(Duration, Duration)> {
        let begun = Instant::now();
        self.socket.write_all(&[0; LENGTH])?;
        let said = self.hear()?;
        let whole = begun.elapsed();
        Ok((whole, Duration::from_nanos(monotonic_ns().saturating_sub(said))))
    }

    /// Kills it: how long from then on until a thread that waits for its next word knew that it is gone, and how it
    /// ended.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn kill(self) -> io::Result<Duration> {
        let Self { mut process, mut socket } = self;
        let handle = process.pidfd().try_clone_to_owned()?;
        thread::scope(|scope| {
            let waits = thread::Builder::new().spawn_scoped(scope, move || {
                let _ = socket.read(&mut [0; LENGTH]);
                process.wait().map(|_| monotonic_ns())
            })?;
            thread::sleep(BLOCKED);
            pidfd_send_signal(&handle, Signal::KILL)?;
            let killed = monotonic_ns();
            let noticed = waits.join().map_err(|_| io::Error::other("a thread broke"))??;
            Ok(Duration::from_nanos(noticed.saturating_sub(killed)))
        })
    }

    /// Lets it end by itself: how long that took, until it was gone.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn end(self) -> io::Result<Duration> {
        let Self { mut process, socket } = self;
        let begun = Instant::now();
        drop(socket);
        process.wait()?;
        Ok(begun.elapsed())
    }
}
