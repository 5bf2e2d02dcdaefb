//! What the engine's tests share: an engine, a folder, and a download followed to its outcome.

#![allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidegate_core::message::EventKind;
use tidegate_core::request::{Destination, Mirror, Request};
use tidegate_core::{Code, DownloadId};
use tidegate_engine::{Config, Engine, EngineHandle, Mode};

/// A download that takes longer than this hangs.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// With this variable every engine of these tests runs in a process of its own: `test.sh` has both.
const IN_A_CHILD: &str = "TIDEGATE_TEST_CHILD";

/// The program of the example, which can be an engine's process.
pub(crate) fn embed() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    here.parent().and_then(Path::parent).unwrap().join("examples/embed")
}

/// An engine, which is where this run of the tests has its engines. (The test that asks for a child has one.)
pub(crate) fn start(mut config: Config) -> EngineHandle {
    if std::env::var_os(IN_A_CHILD).is_some() && config.mode == Mode::InProcess {
        config.mode = Mode::Child { program: Some(embed()), whole: false };
    }
    Engine::start(config).unwrap()
}

/// An engine and a folder of its own.
pub(crate) struct Bench {
    pub(crate) engine: EngineHandle,
    pub(crate) folder: TempDir,
}

/// How a download went.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) last: EventKind,
    pub(crate) events: Vec<EventKind>,
}

impl Outcome {
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.last {
            EventKind::Completed { path, .. } => path.as_deref(),
            _ => None,
        }
    }

    pub(crate) fn code(&self) -> Option<Code> {
        match &self.last {
            EventKind::Failed { failure, .. } => Some(failure.code),
            _ => None,
        }
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Config { seed: Some(1), ..Config::default() })
    }

    pub(crate) fn with(config: Config) -> Self {
        Self { engine: start(config), folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn destination(&self) -> Destination {
        Destination::File { dir: self.folder.path().to_owned(), name: None, adopt: None }
    }

    /// A request with the settings that the public cases are run with.
    pub(crate) fn request(&self, urls: &[&str]) -> Request {
        let mirrors = urls.iter().map(|url| Mirror::parse(url).unwrap()).collect();
        let mut request = Request::new(mirrors, self.destination()).unwrap();
        request.options.retries = 5;
        request.options.retry_wait = Duration::from_secs(1);
        request.options.stall = Duration::from_secs(6);
        request.options.connect_timeout = Duration::from_secs(4);
        request
    }

    pub(crate) fn start(&self, request: Request) -> DownloadId {
        self.engine.start(request).unwrap()
    }

    pub(crate) fn get(&self, request: Request) -> Outcome {
        let id = self.start(request);
        self.follow(id)
    }

    /// Follows one download to its end.
    pub(crate) fn follow(&self, id: DownloadId) -> Outcome {
        let until = Instant::now() + LONGEST;
        let mut events = Vec::new();
        while Instant::now() < until {
            let Some(event) = self.engine.next_event(Duration::from_secs(1)).unwrap() else { continue };
            if event.id != id {
                continue;
            }
            events.push(event.kind.clone());
            if event.kind.is_final() {
                return Outcome { last: event.kind, events };
            }
        }
        panic!("the download hangs: {events:?}, {:?}", self.engine.snapshot());
    }

    /// The names in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
