//! The program that embeds the engine, for `mode-cost`: it has the engine on its own threads or in a process of its
//! own, and tells what it saw. A process for each run.

mod crash;

use crate::bare::{Bare, Size};
use crate::files;
use crate::probe::{config, refused, request};
use crate::process::{family, field};
use crate::sys;
use crate::trouble::Trouble;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_confine::spawn::Program;
use tidegate_core::message::{EventKind, Limits, Snapshot};
use tidegate_core::{Code, DownloadId, Failure};
use tidegate_engine::sys::monotonic_ns;
use tidegate_engine::{Config, Engine, EngineHandle, Mode};

/// Connections of a download.
pub(crate) const CONNECTIONS: usize = 4;
/// Questions in a row to an idle engine, and questions to it with pauses in between.
const IN_A_ROW: usize = 1000;
const SPACED: usize = 100;
/// The pauses.
const PAUSE: Duration = Duration::from_millis(2);
/// How often a busy engine is asked.
const BUSY_EVERY: Duration = Duration::from_millis(10);
/// So many answers of a busy engine are wanted in each run, from so many downloads at most.
const BUSY_WANTED: usize = 50;
const BUSY_DOWNLOADS: usize = 8;
/// The limit of a download that is only to be there, in bytes a second.
const SLOW: u64 = 64 << 10;
/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is to be looked at.
#[derive(Args, Debug)]
pub(crate) struct ModeProbe {
    #[arg(value_enum)]
    task: Look,
    /// The engine runs on threads of this process.
    #[arg(long)]
    in_process: bool,
    /// The file to fetch, as often as it takes.
    #[arg(long)]
    url: String,
    /// The same file here.
    #[arg(long)]
    source: PathBuf,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    authority: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Look {
    /// One download, and nothing else while it runs.
    Alone,
    /// One download, then downloads during which questions are asked, then questions.
    Asked,
    /// An end in the middle of a download, which is cancelled.
    Cancel,
    /// The same, and the download is stopped.
    Stop,
    /// An end of the engine's process while nothing is fetched, and one in the middle of a download.
    Crash,
}

/// Looks, and tells what it saw.
///
/// # Errors
/// When the engine does not do what it is asked.
pub(crate) fn run(args: &ModeProbe) -> Result<Value, Trouble> {
    let app = App::start(args)?;
    match args.task {
        Look::Alone => app.alone(),
        Look::Asked => app.asked(),
        Look::Cancel => app.end(true),
        Look::Stop => app.end(false),
        Look::Crash => app.crash(),
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Trouble {
    move |error| Trouble::failed(what, &error)
}

fn us(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    cpu: Duration,
    faults: u64,
}

impl Used {
    /// All that some processes have used.
    fn by(processes: &[u32]) -> Self {
        let mut sum = Self::default();
        for pid in processes {
            sum.cpu += sys::cpu_of(*pid).unwrap_or_default();
            sum.faults += faults(*pid);
        }
        sum
    }

    fn since(self, before: Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(before.cpu), faults: self.faults.saturating_sub(before.faults) }
    }
}

/// Page faults of a process so far, of both kinds.
fn faults(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have spaces in it.
    let words: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    [7, 9].iter().filter_map(|at| words.get(*at)?.parse::<u64>().ok()).sum()
}

/// Waits for something, looking every millisecond.
fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>, Trouble>) -> Result<T, Trouble> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if Instant::now() >= end {
            return Err(Trouble::new(format!("{what}: this did not come about")));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The program, with its engine.
struct App<'a> {
    args: &'a ModeProbe,
    engine: EngineHandle,
    program: Program,
    size: u64,
    started: Duration,
    /// What its processes used to start.
    to_start: Used,
}

impl<'a> App<'a> {
    fn start(args: &'a ModeProbe) -> Result<Self, Trouble> {
        let program = Program::this().map_err(failed("open this program"))?;
        let size = fs::metadata(&args.source).map_err(failed("look at the source"))?.len();
        let mode = match args.in_process {
            true => Mode::InProcess,
            false => Mode::Child { program: None, whole: false },
        };
        let config = Config { mode, ..config(Limits::default(), args.authority.as_ref())? };
        let own = [std::process::id()];
        let (before, begun) = (Used::by(&own), Instant::now());
        let engine = Engine::start(config).map_err(refused)?;
        let started = begun.elapsed();
        let mut to_start = Used::by(&own).since(before);
        if let Some(child) = engine.process() {
            let of_child = Used::by(&[child]);
            to_start.cpu += of_child.cpu;
            to_start.faults += of_child.faults;
        }
        Ok(Self { args, engine, program, size, started, to_start })
    }

    /// Starts a download.
    fn fetch(&self, name: &str) -> Result<DownloadId, Trouble> {
        let request = request(&self.args.url, &self.args.dir, name.to_owned(), CONNECTIONS)?;
        self.engine.start(request).map_err(refused)
    }

    /// Its file is whole: compares it with its source, and removes it.
    fn check(&self, name: &str) -> Result<(), Trouble> {
        let path = self.args.dir.join(name);
        if !files::same(&self.args.source, &path).map_err(failed("compare with the source"))? {
            return Err(Trouble::new(format!("{name} differs from its source")));
        }
        fs::remove_file(path).map_err(failed("remove what was fetched"))
    }

    /// Waits for the spare, if there is to be one: locked down as the engine's process is.
    fn spare(&self) -> Result<Option<u32>, Trouble> {
        if self.args.in_process {
            return Ok(None);
        }
        let spare = until("a spare", || {
            let Some(engine) = self.engine.process() else { return Ok(None) };
            let alike = |name| field(engine, "status", name);
            let mut children = family(std::process::id()).into_iter().skip(1).filter(|pid| *pid != engine);
            let is_ready = |pid: &u32| {
                let same = |name| field(*pid, "status", name) == alike(name);
                same("Threads:") && same("Seccomp:")
            };
            Ok(children.find(is_ready))
        })?;
        // What it is asked next it is asked when it waits for it.
        thread::sleep(PAUSE);
        Ok(Some(spare))
    }

    /// This process, the engine's, and the spare, as far as there are any.
    fn processes(&self, spare: Option<u32>) -> Vec<u32> {
        [Some(std::process::id()), self.engine.process(), spare].into_iter().flatten().collect()
    }

    /// A bare process that is as large as the engine's.
    fn bare(&self) -> Result<Option<Bare>, Trouble> {
        let Some(engine) = self.engine.process() else { return Ok(None) };
        let threads = usize::try_from(field(engine, "status", "Threads:")).unwrap_or(1).max(1) - 1;
        let ballast_kib = usize::try_from(field(engine, "status", "RssAnon:")).unwrap_or(0);
        Bare::start(&self.program, Size { threads, ballast_kib })
            .map(Some)
            .map_err(failed("start a bare process"))
    }

    /// Waits for the outcome of the one download that runs, asking for progress ten times a second.
    fn follow(&self) -> Result<(), Trouble> {
        let mut seen = Snapshot::default();
        loop {
            match self.engine.next_event(Duration::from_millis(100)).map_err(refused)? {
                Some(event) if matches!(event.kind, EventKind::Completed { .. }) => return Ok(()),
                Some(event) if event.kind.is_final() => return Err(ended(&event.kind)),
                Some(_) => {}
                None => self.engine.refresh(&mut seen).map_err(refused)?,
            }
        }
    }

    /// Waits until so much of a download is here, and says how much is.
    fn until_has(&self, id: DownloadId, bytes: u64) -> Result<u64, Trouble> {
        until("progress", || match self.engine.progress(id).map_err(refused)? {
            Some(progress) => Ok((progress.have >= bytes).then_some(progress.have)),
            None => Err(Trouble::new("the download was over before its time: it needs a larger --mib")),
        })
    }

    fn alone(&self) -> Result<Value, Trouble> {
        let spare = self.spare()?;
        let told = self.measured_download(spare)?;
        self.engine.shutdown(PATIENCE).map_err(refused)?;
        Ok(told)
    }

    fn measured_download(&self, spare: Option<u32>) -> Result<Value, Trouble> {
        let processes = self.processes(spare);
        let (before, begun) = (Used::by(&processes), Instant::now());
        self.fetch("alone")?;
        self.follow()?;
        let (seconds, used) = (begun.elapsed(), Used::by(&processes).since(before));
        self.check("alone")?;
        Ok(json!({
            "start_us": us(self.started),
            "start_cpu_us": us(self.to_start.cpu),
            "start_faults": self.to_start.faults,
            "seconds": seconds.as_secs_f64(),
            "cpu_s": used.cpu.as_secs_f64(),
            "faults": used.faults,
            "engine": self.engine.process(),
            "spare": spare,
        }))
    }

    fn asked(&self) -> Result<Value, Trouble> {
        let mut told = self.measured_download(self.spare()?)?;
        let bare_start = self.bare_start()?;
        let mut bare = self.bare()?;
        let mut busy = Answers::default();
        for number in 0..BUSY_DOWNLOADS {
            if busy.round_trips.len() >= BUSY_WANTED {
                break;
            }
            let name = format!("busy-{number}");
            self.ask_during(&name, bare.as_mut(), &mut busy)?;
            self.check(&name)?;
        }
        let mut row = Vec::with_capacity(IN_A_ROW);
        for _ in 0..IN_A_ROW {
            row.push(self.round_trip()?);
        }
        let mut bare_row = Vec::with_capacity(IN_A_ROW);
        for bare in bare.iter_mut() {
            for _ in 0..IN_A_ROW {
                bare_row.push(us(bare.ping().map_err(failed("ask a bare process"))?.0));
            }
        }
        let spaced = self.ask_spaced(bare.as_mut())?;
        let bare_end = bare.map(Bare::end).transpose().map_err(failed("end a bare process"))?.map(us);
        let begun = Instant::now();
        self.engine.shutdown(PATIENCE).map_err(refused)?;
        let shutdown = us(begun.elapsed());
        for (name, value) in [
            ("round_trip_row_us", json!(row)),
            ("round_trip_spaced_us", json!(spaced.round_trips)),
            ("round_trip_busy_us", json!(busy.round_trips)),
            ("event_idle_us", json!(spaced.events)),
            ("event_busy_us", json!(busy.events)),
            ("shutdown_idle_us", json!(shutdown)),
            ("floor_start_us", json!(bare_start)),
            ("floor_round_trip_row_us", json!(bare_row)),
            ("floor_round_trip_spaced_us", json!(spaced.bare_round_trips)),
            ("floor_round_trip_busy_us", json!(busy.bare_round_trips)),
            ("floor_event_idle_us", json!(spaced.bare_events)),
            ("floor_event_busy_us", json!(busy.bare_events)),
            ("floor_shutdown_idle_us", json!(bare_end)),
        ] {
            told[name] = value;
        }
        Ok(told)
    }

    /// How long it takes from nothing to the first word of a process that only says it.
    fn bare_start(&self) -> Result<Option<f64>, Trouble> {
        if self.args.in_process {
            return Ok(None);
        }
        let begun = Instant::now();
        let bare = Bare::start(&self.program, Size::default()).map_err(failed("start a bare process"))?;
        let took = us(begun.elapsed());
        bare.end().map_err(failed("end a bare process"))?;
        Ok(Some(took))
    }

    fn round_trip(&self) -> Result<f64, Trouble> {
        let begun = Instant::now();
        self.engine.snapshot().map_err(refused)?;
        Ok(us(begun.elapsed()))
    }

    /// One download, during which questions are asked, a bare process too, in turns.
    fn ask_during(
        &self,
        name: &str,
        mut bare: Option<&mut Bare>,
        answers: &mut Answers,
    ) -> Result<(), Trouble> {
        let id = self.fetch(name)?;
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let events = thread::Builder::new().name("events".to_owned()).spawn_scoped(scope, || {
                let heard = self.hear_events();
                over.store(true, Ordering::Release);
                heard
            });
            let events = events.map_err(failed("start a thread"))?;
            let mut next = Instant::now();
            let asked: Result<(), Trouble> = loop {
                if over.load(Ordering::Acquire) {
                    break Ok(());
                }
                let mut one_round = || -> Result<(), Trouble> {
                    answers.round_trips.push(self.round_trip()?);
                    thread::sleep(BUSY_EVERY / 3);
                    if let Some(bare) = bare.as_mut() {
                        answers.note(bare.ping().map_err(failed("ask a bare process"))?);
                    }
                    thread::sleep(BUSY_EVERY / 3);
                    self.engine.tell_time(id).map_err(refused)
                };
                if let Err(trouble) = one_round() {
                    break Err(trouble);
                }
                next += BUSY_EVERY;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            };
            let heard = events.join().map_err(|_| Trouble::new("a thread of ours broke"))??;
            answers.events.extend(heard);
            asked
        })
    }

    /// Takes events until the download is whole: how old each was that told of the time.
    fn hear_events(&self) -> Result<Vec<f64>, Trouble> {
        let mut ages = Vec::new();
        loop {
            let event = self.engine.next_event(PATIENCE).map_err(refused)?;
            let event = event.ok_or_else(|| Trouble::new("nothing was told for a long time"))?;
            let now = monotonic_ns();
            match event.kind {
                EventKind::Completed { .. } => return Ok(ages),
                EventKind::Notice { message } => ages.extend(age(&message, now)),
                kind if kind.is_final() => return Err(ended(&kind)),
                _ => {}
            }
        }
    }

    /// Starts a download that does not come far, and pauses it.
    fn paused(&self, name: &str) -> Result<DownloadId, Trouble> {
        let mut request = request(&self.args.url, &self.args.dir, name.to_owned(), CONNECTIONS)?;
        request.options.limit = Some(SLOW);
        let id = self.engine.start(request).map_err(refused)?;
        self.until_has(id, 1)?;
        self.engine.pause(id).map_err(refused)?;
        match self.until_final()? {
            EventKind::Paused { .. } => Ok(id),
            kind => Err(ended(&kind)),
        }
    }

    /// Questions with pauses in between, while a download is there that is paused.
    fn ask_spaced(&self, mut bare: Option<&mut Bare>) -> Result<Answers, Trouble> {
        let id = self.paused("paused")?;
        let mut answers = Answers::default();
        for _ in 0..SPACED {
            thread::sleep(PAUSE);
            answers.round_trips.push(self.round_trip()?);
            thread::sleep(PAUSE);
            if let Some(bare) = bare.as_mut() {
                answers.note(bare.ping().map_err(failed("ask a bare process"))?);
                thread::sleep(PAUSE);
            }
            self.engine.tell_time(id).map_err(refused)?;
            let event = self.engine.next_event(PATIENCE).map_err(refused)?;
            let now = monotonic_ns();
            if let Some(EventKind::Notice { message }) = event.map(|event| event.kind) {
                answers.events.extend(age(&message, now));
            }
        }
        self.cancel(id)?;
        Ok(answers)
    }

    /// Cancels a download, and waits until it is gone.
    fn cancel(&self, id: DownloadId) -> Result<(), Trouble> {
        self.engine.cancel(id).map_err(refused)?;
        loop {
            match self.until_final()? {
                EventKind::Failed { failure, .. } if failure.code == Code::Cancelled => return Ok(()),
                EventKind::Paused { .. } => {}
                kind => return Err(ended(&kind)),
            }
        }
    }

    /// Takes events until one after which nothing follows.
    fn until_final(&self) -> Result<EventKind, Trouble> {
        loop {
            match self.engine.next_event(PATIENCE).map_err(refused)? {
                Some(event) if event.kind.is_final() => return Ok(event.kind),
                Some(_) => {}
                None => return Err(Trouble::new("nothing was told for a long time")),
            }
        }
    }

    fn end(&self, cancel: bool) -> Result<Value, Trouble> {
        let spare = self.spare()?;
        let bare = self.bare()?;
        let id = self.fetch("ended")?;
        self.until_has(id, self.size / 8)?;
        let bare_end = bare.map(Bare::end).transpose().map_err(failed("end a bare process"))?.map(us);
        let have = self.until_has(id, self.size / 4)?;
        let processes = self.processes(spare);
        let begun = Instant::now();
        if cancel {
            self.engine.cancel(id).map_err(refused)?;
        }
        self.engine.shutdown(PATIENCE).map_err(refused)?;
        let left = |what: io::Error| Trouble::failed("look at what is left", &what);
        let took = until("an end", || {
            let gone = |pid: &u32| !Path::new(&format!("/proc/{pid}")).exists();
            let is_over = processes[1..].iter().all(gone)
                && (!cancel || fs::read_dir(&self.args.dir).map_err(left)?.next().is_none());
            Ok(is_over.then(|| us(begun.elapsed())))
        })?;
        let is_kept = |kept: u64| kept > 0 && fs::read_dir(&self.args.dir).is_ok_and(|dir| dir.count() > 0);
        match self.until_final()? {
            EventKind::Failed { failure, .. } if cancel && failure.code == Code::Cancelled => {}
            EventKind::Stopped { kept } if !cancel && is_kept(kept) => {}
            kind => return Err(ended(&kind)),
        }
        let removal = if cancel { Some(us(self.bare_removal(have)?)) } else { None };
        Ok(json!({ "shutdown_us": took, "floor_shutdown_us": bare_end, "floor_removal_us": removal }))
    }

    /// How long it takes to remove a file of so many bytes and to close it, whoever had it.
    fn bare_removal(&self, bytes: u64) -> Result<Duration, Trouble> {
        let path = self.args.dir.join("bare");
        let source = fs::File::open(&self.args.source).map_err(failed("read the source"))?;
        let mut file = fs::File::create(&path).map_err(failed("write a file"))?;
        io::copy(&mut source.take(bytes), &mut file).map_err(failed("write a file"))?;
        let begun = Instant::now();
        fs::remove_file(path).map_err(failed("remove a file"))?;
        drop(file);
        Ok(begun.elapsed())
    }
}

/// What was heard.
#[derive(Debug, Default)]
struct Answers {
    round_trips: Vec<f64>,
    events: Vec<f64>,
    bare_round_trips: Vec<f64>,
    bare_events: Vec<f64>,
}

impl Answers {
    fn note(&mut self, (round_trip, one_way): (Duration, Duration)) {
        self.bare_round_trips.push(us(round_trip));
        self.bare_events.push(us(one_way));
    }
}

/// How old a notice is that tells when it was told, in microseconds.
fn age(message: &str, now: u64) -> Option<f64> {
    Some(micros(now, message.parse().ok()?))
}

/// From one time to another, both in nanoseconds.
fn micros(to: u64, from: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1000.0
}

fn ended(kind: &EventKind) -> Trouble {
    match kind {
        EventKind::Failed { failure, .. } => refused(Failure::clone(failure)),
        kind => Trouble::new(format!("the download ended as it should not: {kind:?}")),
    }
}
