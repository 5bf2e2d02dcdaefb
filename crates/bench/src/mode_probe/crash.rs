//! What becomes of downloads when the engine's process is killed.

use super::{App, PATIENCE, ended, failed, micros, until, us};
use crate::bare::Bare;
use crate::probe::refused;
use crate::trouble::Trouble;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use tidegate_core::message::EventKind;
use tidegate_engine::sys::monotonic_ns;

/// One end of the engine's process: nanoseconds of the clock.
struct Crash {
    /// When `kill` had returned.
    killed: u64,
    /// When the kernel told that it is gone.
    gone: u64,
    /// When the download told of it; `None` if it was whole before.
    told: Option<u64>,
}

fn refuse(what: &'static str) -> impl Fn(rustix::io::Errno) -> Trouble {
    move |error| Trouble::failed(what, &error.into())
}

impl App<'_> {
    /// Kills it once while there is nothing, once while nothing is fetched, and once in the middle of a download.
    pub(super) fn crash(&self) -> Result<Value, Trouble> {
        let handover = self.kill_unused()?;
        let (idle, busy) = (self.kill_idle("idle")?, self.kill_busy("busy")?);
        self.engine.shutdown(PATIENCE).map_err(refused)?;
        Ok(json!({ "handover_us": handover, "idle": idle, "busy": busy }))
    }

    /// Kills the engine's process while there is no download: from its end until there is another.
    fn kill_unused(&self) -> Result<f64, Trouble> {
        self.spare()?;
        let (number, pidfd) = self.victim()?;
        pidfd_send_signal(&pidfd, Signal::KILL).map_err(refuse("kill"))?;
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).map_err(refuse("wait for an end"))?;
        let (gone, end) = (monotonic_ns(), Instant::now() + PATIENCE);
        // Nobody is woken for this, so it is looked for all the time.
        while self.engine.process().is_none_or(|process| process == number) {
            if Instant::now() > end {
                return Err(Trouble::new("there is no other engine's process"));
            }
            std::hint::spin_loop();
        }
        Ok(micros(monotonic_ns(), gone))
    }

    /// The engine's process: its number, and a handle of it.
    fn victim(&self) -> Result<(u32, OwnedFd), Trouble> {
        let number = self.engine.process().ok_or_else(|| Trouble::new("there is no engine's process"))?;
        let process = i32::try_from(number).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| Trouble::new("there is no such process"))?;
        let pidfd = pidfd_open(process, PidfdFlags::empty()).map_err(refuse("open a process"))?;
        Ok((number, pidfd))
    }

    /// Kills the engine's process while nothing is fetched: there is a download, and it is paused.
    fn kill_idle(&self, name: &str) -> Result<Value, Trouble> {
        self.spare()?;
        let id = self.paused(name)?;
        let floor = self.bare()?.map(Bare::kill).transpose().map_err(failed("kill a bare process"))?.map(us);
        let Crash { killed, gone, told } = self.kill()?;
        let told = told.ok_or_else(|| Trouble::new("a paused download was over"))?;
        self.cancel(id)?;
        Ok(json!({
            "told_us": micros(told, killed),
            "gone_us": micros(gone, killed),
            "floor_us": floor,
        }))
    }

    /// Kills the engine's process in the middle of a download; `None` if that was over too soon.
    fn kill_busy(&self, name: &str) -> Result<Option<Value>, Trouble> {
        self.spare()?;
        let bare = self.bare()?;
        let id = self.fetch(name)?;
        self.until_has(id, self.size / 8)?;
        let floor = bare.map(Bare::kill).transpose().map_err(failed("kill a bare process"))?.map(us);
        self.until_has(id, self.size / 4)?;
        let part = PartWatch::new(&self.args.dir)?;
        let Crash { killed, gone, told } = self.kill()?;
        let Some(told) = told else {
            self.check(name)?;
            return Ok(None);
        };
        let resumed = part.next_write()?;
        self.follow()?;
        self.check(name)?;
        Ok(Some(json!({
            "told_us": micros(told, killed),
            "gone_us": micros(gone, killed),
            "resumed_us": resumed.map(|resumed| micros(resumed, killed)),
            "floor_us": floor,
        })))
    }

    /// Kills the engine's process, and waits until the download tells of it.
    fn kill(&self) -> Result<Crash, Trouble> {
        let (_, pidfd) = self.victim()?;
        let ready = AtomicBool::new(false);
        thread::scope(|scope| {
            let death = thread::Builder::new().name("death".to_owned()).spawn_scoped(scope, || {
                ready.store(true, Ordering::Release);
                poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).map(|_| monotonic_ns())
            });
            let death = death.map_err(failed("start a thread"))?;
            until("a thread", || Ok(ready.load(Ordering::Acquire).then_some(())))?;
            pidfd_send_signal(&pidfd, Signal::KILL).map_err(refuse("kill"))?;
            let killed = monotonic_ns();
            let told = self.until_crash_is_told()?;
            let gone = death.join().map_err(|_| Trouble::new("a thread of ours broke"))?;
            Ok(Crash { killed, gone: gone.map_err(refuse("wait for an end"))?, told })
        })
    }

    /// When the download told that it goes on in another process; `None` if it was whole before.
    fn until_crash_is_told(&self) -> Result<Option<u64>, Trouble> {
        loop {
            let event = self.engine.next_event(PATIENCE).map_err(refused)?;
            let now = monotonic_ns();
            match event.map(|event| event.kind) {
                Some(EventKind::Notice { .. }) => return Ok(Some(now)),
                Some(EventKind::Completed { .. }) => return Ok(None),
                Some(kind) if kind.is_final() => return Err(ended(&kind)),
                Some(_) => {}
                None => return Err(Trouble::new("nothing was told of a crash")),
            }
        }
    }
}

/// Sees writes to the part file.
struct PartWatch(OwnedFd);

impl PartWatch {
    /// Of the only part in a folder.
    fn new(dir: &Path) -> Result<Self, Trouble> {
        let refuse = refuse("watch the part file");
        let watch =
            inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).map_err(&refuse)?;
        let entries = fs::read_dir(dir).map_err(failed("look for the part file"))?;
        let is_part = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "part");
        let part = entries.flatten().map(|entry| entry.path()).find(is_part);
        let part = part.ok_or_else(|| Trouble::new("there is no part file"))?;
        inotify::add_watch(&watch, &part, inotify::WatchFlags::MODIFY).map_err(refuse)?;
        Ok(Self(watch))
    }

    /// When the next write is seen; `None` if there is none for a second: all was here. What was written before this
    /// is called is not meant.
    fn next_write(&self) -> Result<Option<u64>, Trouble> {
        let mut buffer = [0; 4096];
        while rustix::io::read(&self.0, &mut buffer).is_ok_and(|count| count > 0) {}
        let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
        loop {
            match poll(&mut [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)], Some(&patience)) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) => return Ok(None),
                Ok(_) => return Ok(Some(monotonic_ns())),
                Err(error) => return Err(Trouble::failed("wait for a write", &error.into())),
            }
        }
    }
}
