//! Ctrl-C and its relatives: the first asks to stop and save, the second ends the program at once.

use crate::trouble::Trouble;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// What a program is ended with whose reader has gone away.
pub(crate) const SIGPIPE: u8 = 13;

const STOPPING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Whether standard output is a pipe or socket that nobody reads any more.
pub(crate) fn nobody_reads_stdout() -> bool {
    let stdout = io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    let gone = PollFlags::ERR | PollFlags::HUP;
    poll(&mut asked, Some(&Timespec::default())).is_ok() && asked[0].revents().intersects(gone)
}

/// Remembers which signal asked to stop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stopped(Arc<AtomicU8>);

impl Stopped {
    /// The signal's number, if one came.
    pub(crate) fn by(&self) -> Option<u8> {
        Some(self.0.load(Ordering::SeqCst)).filter(|number| *number != 0)
    }

    /// Notes the first reason to stop.
    pub(crate) fn note(&self, number: u8) {
        let _ = self.0.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Calls `stop` when the first of SIGINT, SIGTERM and SIGHUP comes; a second one ends the program at
/// once with 128 and its number.
///
/// # Errors
/// When the system does not let signals be handled.
pub(crate) fn on_stop(stop: impl FnOnce() + Send + 'static) -> Result<Stopped, Trouble> {
    let stopped = Stopped::default();
    watch(stopped.clone(), stop)
        .map_err(|e| Trouble::configuration(format!("signals cannot be handled: {e}")))?;
    Ok(stopped)
}

fn watch(stopped: Stopped, stop: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let armed = Arc::new(AtomicBool::new(false));
    for signal in STOPPING {
        // Handlers run in the order they were registered: the first signal arms, the second ends.
        register_conditional_shutdown(signal, 128 + signal, Arc::clone(&armed))?;
        register(signal, Arc::clone(&armed))?;
    }
    let mut signals = Signals::new(STOPPING)?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            stopped.note(u8::try_from(signal).unwrap_or(0));
            stop();
        }
    })?;
    Ok(())
}
