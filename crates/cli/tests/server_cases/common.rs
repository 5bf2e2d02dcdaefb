//! The program in a folder of its own: run to its end or stopped in the middle, and what it left there.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidegate_core::Code;
use tidegate_testkit::origin::Builder;
use tidegate_testkit::pace::{Pace, Rate};
use tidegate_testkit::recipes::{self, Given};
use tidegate_testkit::{Body, Origin, Site};

/// The length of B in the reports, in bytes.
pub(crate) const N: u64 = 8 << 20;

/// How long anything may take. Nothing takes so long; a hang is a failure and not a wait.
pub(crate) const LONG: Duration = Duration::from_secs(45);

/// The options with which the reports are played.
pub(crate) const USUAL: [&str; 12] = [
    "--connections",
    "8",
    "--min-split",
    "1M",
    "--retries",
    "5",
    "--retry-wait",
    "1s",
    "--timeout",
    "6s",
    "--connect-timeout",
    "4s",
];

/// The Origin of a recipe, with 8 MiB of content.
pub(crate) fn played(name: &str) -> Origin {
    Origin::named(name).unwrap()
}

/// The Origin of a recipe with so much content.
pub(crate) fn small(name: &str, size: u64) -> Origin {
    recipes::find(name).unwrap().builder(&Given { size, seed: 1 }).start().unwrap()
}

/// With small buffers on the way and no more than this on each connection. Loopback else holds megabytes of an
/// answer that nobody wants any more, and what was served says nothing of what was asked for.
pub(crate) fn measured(builder: Builder) -> Origin {
    let slow = |mut site: Site| {
        let paths: Vec<String> = site.paths().map(str::to_owned).collect();
        for path in paths {
            let resource = site.get(&path).unwrap().clone();
            site.put(&path, resource.pace(Pace::Connection(Rate::mib(4))));
        }
        site.send_buffer(32 << 10)
    };
    builder.each_site(slow).start().unwrap()
}

/// The Origin of a recipe with 8 MiB of content, [`measured`].
pub(crate) fn measured_play(name: &str) -> Origin {
    measured(recipes::find(name).unwrap().builder(&Given::default()))
}

/// B of the reports.
pub(crate) fn b() -> Body {
    Given::default().body()
}

/// B2 of the reports.
pub(crate) fn b2() -> Body {
    Given::default().other()
}

/// A folder two levels below one that must stay as it is.
pub(crate) struct Place {
    root: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("in/ner")).unwrap();
        std::fs::create_dir(root.path().join("aside")).unwrap();
        Self { root }
    }

    /// Where the program runs and saves.
    pub(crate) fn folder(&self) -> PathBuf {
        self.root.path().join("in/ner")
    }

    /// A file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// A file for the test's own use, outside the folder. The program's home is here too.
    pub(crate) fn aside(&self, name: &str) -> PathBuf {
        self.root.path().join("aside").join(name)
    }

    /// Writes such a file, and tells its path.
    pub(crate) fn write_aside(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.aside(name), content).unwrap();
        self.aside(name).to_str().unwrap().to_owned()
    }

    /// What is in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.folder())
    }

    /// The names there that claim to be whole files.
    pub(crate) fn finals(&self) -> Vec<String> {
        let unfinished = |name: &String| name.ends_with(".part") || name.ends_with(".part.tide");
        self.names().into_iter().filter(|name| !unfinished(name)).collect()
    }

    /// What is outside the folder, and was not put there by the test.
    pub(crate) fn strays(&self) -> Vec<String> {
        let root = names(self.root.path()).into_iter().filter(|name| name != "in" && name != "aside");
        let between = names(&self.root.path().join("in")).into_iter().filter(|name| name != "ner");
        root.chain(between).collect()
    }

    /// Whether the file is there with exactly this content.
    pub(crate) fn holds(&self, name: &str, body: &Body) -> bool {
        body.first_difference_in(self.path(name)).is_ok_and(|difference| difference.is_none())
    }

    /// The program with these words, in the folder, with nothing of the environment.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(words)
            .current_dir(self.folder())
            .env_clear()
            // Which way bodies go to the disk, and where the engine runs, may be chosen for a whole run of the tests.
            .envs(
                ["TIDEGATE_BUFFERED", "TIDEGATE_ENGINE"]
                    .into_iter()
                    .filter_map(|name| Some((name, std::env::var_os(name)?))),
            )
            .env("HOME", self.root.path().join("aside"));
        command
    }

    /// Starts it.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        Running::new(self.command(words))
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Ended {
        self.start(words).end()
    }

    /// Runs it with the usual options and these words.
    pub(crate) fn get(&self, words: &[&str]) -> Ended {
        self.run(&[&USUAL[..], words].concat())
    }

    /// The same with events, which are in [`Ended::events`].
    pub(crate) fn get_json(&self, words: &[&str]) -> Ended {
        self.get(&[&["--json"], words].concat())
    }

    /// Begins with the usual options, stops by Ctrl-C at the first event that is as wanted, and tells how
    /// many bytes were here then.
    pub(crate) fn stop_at(&self, words: &[&str], wanted: impl Fn(&Value) -> bool) -> u64 {
        let mut running = self.start(&[&["get", "--json"], &USUAL[..], words].concat());
        running.until(wanted);
        running.interrupt();
        let ended = running.end();
        assert_eq!(ended.code, 130, "{ended:?}");
        let paused = ended.event("paused");
        paused["have"].as_u64().unwrap()
    }

    /// Nothing stands under a final name, and nothing outside the folder.
    #[track_caller]
    pub(crate) fn holds_nothing_whole(&self) {
        assert_eq!(self.finals(), Vec::<String>::new());
        assert_eq!(self.strays(), Vec::<String>::new());
    }

    /// This file, whole and alone, and nothing outside the folder.
    #[track_caller]
    pub(crate) fn holds_only(&self, name: &str, body: &Body) {
        assert_eq!(self.names(), [name]);
        let difference = body.first_difference_in(self.path(name)).unwrap();
        assert_eq!(difference, None, "{name} is wrong from there on");
        assert_eq!(self.strays(), Vec::<String>::new());
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The program while it runs. Dropped, it is ended.
pub(crate) struct Running {
    child: Child,
    out: Receiver<Vec<u8>>,
    err: Receiver<Vec<u8>>,
    heard: Vec<u8>,
    looked_at: usize,
    began: Instant,
}

impl Running {
    pub(crate) fn new(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = pieces(child.stdout.take().unwrap());
        let err = pieces(child.stderr.take().unwrap());
        Self { child, out, err, heard: Vec::new(), looked_at: 0, began: Instant::now() }
    }

    /// Listens until an event is as wanted.
    #[track_caller]
    pub(crate) fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + LONG;
        loop {
            while let Some(length) = self.heard[self.looked_at..].iter().position(|byte| *byte == b'\n') {
                let line = &self.heard[self.looked_at..self.looked_at + length];
                self.looked_at += length + 1;
                let event: Value = serde_json::from_slice(line).unwrap();
                if wanted(&event) {
                    return event;
                }
            }
            match self.out.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.heard.extend(piece),
                Err(_) => panic!("no such event: {}", String::from_utf8_lossy(&self.heard)),
            }
        }
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        // Fails only when it has ended by itself.
        let _ = kill_process(pid, Signal::INT);
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(self) -> Ended {
        match self.end_within(LONG, || {}) {
            Ok(ended) => ended,
            Err(heard) => panic!("it did not end: {heard}"),
        }
    }

    /// Waits so long for its end, and then presses Ctrl-C; what still goes on after that is told.
    pub(crate) fn end_within_or_interrupt(self, time: Duration) -> Result<Ended, String> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        let (ended, still_runs) = sync_channel::<()>(1);
        let watch = std::thread::spawn(move || {
            if still_runs.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::INT);
            }
        });
        // The process is not reaped before the watch has ended, so the number is not another's.
        self.end_within(time + Duration::from_secs(10), move || {
            drop(ended);
            watch.join().unwrap();
        })
    }

    /// Waits so long for its end; else it is stopped by force, and what it said is told.
    fn end_within(mut self, time: Duration, before_reaping: impl FnOnce()) -> Result<Ended, String> {
        let deadline = Instant::now() + time;
        let mut out = std::mem::take(&mut self.heard);
        let mut err = Vec::new();
        let ended = drain(&self.out, &mut out, deadline) && drain(&self.err, &mut err, deadline);
        let err = String::from_utf8_lossy(&err).into_owned();
        if !ended {
            return Err(format!("{}\n{err}", String::from_utf8_lossy(&out)));
        }
        before_reaping();
        let status = self.child.wait().unwrap();
        let took = self.began.elapsed();
        let code = status.code().unwrap_or(-1);
        Ok(Ended { code, out, err, took })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes all that comes until its end; false when the time is up first.
fn drain(from: &Receiver<Vec<u8>>, to: &mut Vec<u8>, deadline: Instant) -> bool {
    loop {
        match from.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(piece) => to.extend(piece),
            Err(ended) => return ended == RecvTimeoutError::Disconnected,
        }
    }
}

/// What is read, as it comes, until its end.
fn pieces(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (send, receive) = sync_channel(1024);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if send.send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    receive
}

/// How it ended.
pub(crate) struct Ended {
    /// The exit code; -1 for an end by a signal.
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
    pub(crate) took: Duration,
}

impl std::fmt::Debug for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let out = String::from_utf8_lossy(&self.out[..self.out.len().min(16 << 10)]);
        write!(f, "exit {} after {:?}\n{out}\n{}", self.code, self.took, self.err)
    }
}

impl Ended {
    /// It did what it was asked for.
    #[track_caller]
    pub(crate) fn done(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// It ended with this exit code, and said this.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, text: &str) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.says(text), "it does not say {text:?}: {self:?}");
        self
    }

    /// Whether this is said anywhere.
    pub(crate) fn says(&self, text: &str) -> bool {
        self.err.contains(text) || String::from_utf8_lossy(&self.out).contains(text)
    }

    /// The events of `--json`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let lines = self.out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }

    /// The last event of this name.
    #[track_caller]
    pub(crate) fn event(&self, name: &str) -> Value {
        let found = self.events().into_iter().rev().find(|event| event["event"] == name);
        found.unwrap_or_else(|| panic!("there is no {name}: {self:?}"))
    }

    /// The stable words of failures that it said.
    pub(crate) fn words(&self) -> Vec<&'static str> {
        Code::ALL.iter().map(|code| code.word()).filter(|word| self.says(&format!("[{word}]"))).collect()
    }
}

/// A word of the command line from a path.
pub(crate) fn word(path: impl Into<OsString>) -> String {
    path.into().into_string().unwrap()
}
