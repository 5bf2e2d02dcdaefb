//! Downloads that are started, cancelled, paused and left behind at random moments, thousands of them,
//! while other files of the process open and close.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says figures"
)]

mod common;
mod threads;

use common::LONGEST;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidegate_core::dice::Dice;
use tidegate_core::message::EventKind;
use tidegate_core::request::{Destination, Mirror, Request, Sync};
use tidegate_core::{Code, DownloadId};
use tidegate_engine::{Config, EngineHandle};
use tidegate_testkit::{Body, Origin, Rate, Resource};

/// Downloads in all, unless `TIDEGATE_CHURN` says another number.
const DOWNLOADS: u64 = 1_000;

/// Downloads of one engine, and at a time.
const OF_ONE_ENGINE: u64 = 250;
const AT_A_TIME: usize = 12;

/// Files on the server, each of other bytes. Some are small, some have a checkpoint, some take a while.
const FILES: u64 = 16;

fn body(file: u64) -> Body {
    Body::random(
        1000 + file,
        [0, 1, 5_000, 70_000, 300_000, 900_000, 1_300_000, 2_200_000][(file % 8) as usize],
    )
}

fn origin() -> Origin {
    (0..FILES)
        .fold(Origin::builder(), |builder, file| {
            let resource = Resource::new(body(file));
            let slow = file >= FILES / 2;
            let resource = if slow { resource.rate(Rate::mib(4)) } else { resource };
            builder.resource(&format!("/{file}"), resource)
        })
        .start()
        .unwrap()
}

/// Everything that the churn knows.
struct Churn<'a> {
    origin: &'a Origin,
    folder: &'a Path,
    dice: Dice,
    /// How many there were, and which of them are under way: the file and whether it was cancelled.
    started: u64,
    running: BTreeMap<DownloadId, Running>,
    /// Names and files of those that an engine left behind.
    left: Vec<(String, u64)>,
    completed: u64,
    cancelled: u64,
}

struct Running {
    name: String,
    file: u64,
    cancelled: bool,
}

impl Churn<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn start(&mut self, engine: &EngineHandle, name: String, file: u64) {
        let mirror = Mirror::parse(&self.origin.url(&format!("/{file}"))).unwrap();
        let dir = self.folder.to_owned();
        let place = Destination::File { dir, name: Some(PathBuf::from(&name)), adopt: None };
        let mut request = Request::new(vec![mirror], place).unwrap();
        request.options.sync = if self.dice.below(16) == 0 { Sync::File } else { Sync::None };
        request.options.min_split = 64 << 10;
        let id = engine.start(request).unwrap();
        self.running.insert(id, Running { name, file, cancelled: false });
    }

    fn start_new(&mut self, engine: &EngineHandle) {
        let name = format!("n{}", self.started);
        self.started += 1;
        let file = self.dice.below(FILES);
        self.start(engine, name, file);
    }

    /// Takes the events that are there, and those of the next moment.
    fn listen(&mut self, engine: &EngineHandle, patience: Duration) {
        let mut patience = patience;
        while let Some(event) = engine.next_event(patience).unwrap() {
            patience = Duration::ZERO;
            self.note(event.id, &event.kind);
        }
    }

    fn note(&mut self, id: DownloadId, kind: &EventKind) {
        match kind {
            EventKind::Completed { path, .. } => {
                let running = self.running.remove(&id).unwrap();
                // Also when the order to cancel it came too late.
                let path = path.as_ref().unwrap();
                assert_eq!(*path, self.path(&running.name));
                assert_eq!(body(running.file).first_difference_in(path).unwrap(), None, "{path:?}");
                fs::remove_file(path).unwrap();
                self.gone(&running.name);
                self.completed += 1;
            }
            EventKind::Failed { failure, .. } => {
                let running = self.running.remove(&id).unwrap();
                assert!(failure.code == Code::Cancelled && running.cancelled, "{failure:?}");
                self.gone(&running.name);
                self.cancelled += 1;
            }
            _ => {}
        }
    }

    /// Nothing of this name is left.
    fn gone(&self, name: &str) {
        for end in ["", ".part", ".part.tide", ".1.part"] {
            let path = self.path(&format!("{name}{end}"));
            assert!(!path.exists(), "{path:?} is left");
        }
    }

    fn any_running(&mut self) -> Option<DownloadId> {
        let count = self.running.len() as u64;
        let at = usize::try_from(self.dice.below(count.max(1))).unwrap();
        self.running.keys().nth(at).copied()
    }

    /// The life of one engine: random orders, and then dropped with whatever is under way.
    fn one_engine(&mut self, downloads: u64) {
        let engine = common::start(Config { seed: Some(self.dice.next_u64()), ..Config::default() });
        let until = self.started + downloads;
        while self.started < until {
            if self.running.len() < AT_A_TIME {
                self.start_new(&engine);
            }
            let full = self.running.len() >= AT_A_TIME;
            match (self.dice.below(10), self.any_running()) {
                (0..=3, Some(id)) => {
                    self.running.get_mut(&id).unwrap().cancelled = true;
                    engine.cancel(id).unwrap();
                }
                (4, Some(id)) => {
                    engine.pause(id).unwrap();
                    engine.resume(id).unwrap();
                }
                _ => {}
            }
            let patience = self.dice.below(if full { 12 } else { 4 });
            self.listen(&engine, Duration::from_millis(patience));
        }
        let running = std::mem::take(&mut self.running);
        drop(engine);
        threads::wait_for_none(LONGEST);
        for Running { name, file, cancelled } in running.into_values() {
            if cancelled {
                // It may have been whole before; if it was not, nothing of it is left.
                let path = self.path(&name);
                if path.exists() {
                    assert_eq!(body(file).first_difference_in(&path).unwrap(), None, "{path:?}");
                    fs::remove_file(&path).unwrap();
                }
                self.gone(&name);
            } else {
                self.left.push((name, file));
            }
        }
    }

    /// What engines left behind is brought to its end by another.
    fn finish(&mut self) {
        let engine = common::start(Config::default());
        let until = Instant::now() + LONGEST;
        for (name, file) in std::mem::take(&mut self.left) {
            self.start(&engine, name, file);
        }
        while !self.running.is_empty() {
            assert!(Instant::now() < until, "they hang: {:?}", engine.snapshot());
            self.listen(&engine, Duration::from_secs(1));
        }
        engine.shutdown(LONGEST).unwrap();
    }
}

/// Opens, fills, reads and closes files until told to stop, so that a descriptor that is used after it
/// was closed meets a file of somebody else. Says how many files it was.
fn other_files(folder: &Path, stop: &AtomicBool) -> u64 {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let content = Body::random(count, 1000 + count % 5000);
        let path = folder.join(format!("{}", count % 64));
        fs::write(&path, content.to_vec()).unwrap();
        let kept: Vec<fs::File> = (0..4).map(|_| fs::File::open(&path).unwrap()).collect();
        for file in kept {
            assert_eq!(content.first_difference(file).unwrap(), None, "another's bytes are in {path:?}");
        }
        count += 1;
        std::thread::park_timeout(Duration::from_micros(500));
    }
    count
}

/// Set when the churn ends, also by a failure.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn no_byte_lands_in_another_file_and_nothing_is_left_however_downloads_come_and_go() {
    let wanted = std::env::var("TIDEGATE_CHURN").ok().and_then(|n| n.parse().ok()).unwrap_or(DOWNLOADS);
    assert_eq!(threads::of_engines(), Vec::<String>::new());
    let folder = tempfile::tempdir().unwrap();
    let others = tempfile::tempdir().unwrap();
    let before = descriptors();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| other_files(others.path(), &stop));
        let stopper = Stop(&stop);
        let origin = origin();
        let mut churn = Churn {
            origin: &origin,
            folder: folder.path(),
            dice: Dice::new(1),
            started: 0,
            running: BTreeMap::new(),
            left: Vec::new(),
            completed: 0,
            cancelled: 0,
        };
        while churn.started < wanted {
            churn.one_engine(OF_ONE_ENGINE.min(wanted - churn.started));
            if churn.left.len() > 64 {
                churn.finish();
            }
        }
        churn.finish();
        drop(stopper);
        println!(
            "{} downloads: {} completed, {} cancelled; {} other files",
            churn.started,
            churn.completed,
            churn.cancelled,
            others.join().unwrap()
        );
    });
    threads::wait_for_none(LONGEST);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{:?}", fs::read_dir(folder.path()));
    let until = Instant::now() + LONGEST;
    while descriptors() > before {
        assert!(Instant::now() < until, "{before} descriptors became {}", descriptors());
        std::thread::park_timeout(Duration::from_millis(1));
    }
}
