//! The engine as a library in a process of its own, where the process has to look at itself (allocations), or
//! where the command line cannot say what is asked (a reader that is slow, downloads that differ in connections).
//!
//! It is set up as `tidegate get` does it: one engine, one manager or handle, progress ten times a second.

use crate::mode_probe::{self, ModeProbe};
use crate::sys;
use crate::trouble::Trouble;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidegate_core::message::{Limits, Phase, Snapshot};
use tidegate_core::request::{Destination, Mirror, Sync};
use tidegate_core::{Failure, Request};
use tidegate_daemon::{Manager, MemoryStore, Notice, Settings};
use tidegate_engine::connect::{NetworkConfig, TlsConfig};
use tidegate_engine::{Config, Engine};

/// A transfer is steady when its connections have not changed for so long,
const STEADY: Duration = Duration::from_millis(700);
/// and at the latest so long after its first byte: some never are.
const STEADY_AT_LAST: Duration = Duration::from_secs(4);

/// What the process is for.
#[derive(Args, Debug)]
pub(crate) struct ProbeArgs {
    #[command(subcommand)]
    task: ProbeTask,
}

#[derive(Debug, Subcommand)]
enum ProbeTask {
    /// One download; counts allocations while it is steady
    Alloc(AllocProbe),
    /// Several downloads under one limit, for some time
    Share(ShareProbe),
    /// What the engine costs in this process or in one of its own
    Mode(ModeProbe),
}

#[derive(Args, Debug)]
struct AllocProbe {
    #[arg(long)]
    url: String,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    connections: usize,
    #[arg(long)]
    authority: Option<PathBuf>,
    /// The limit for everything, in bytes a second.
    #[arg(long)]
    limit: Option<u64>,
    /// Ask for progress all the time, as a program does that shows it.
    #[arg(long)]
    progress: bool,
    #[arg(long)]
    window_ms: u64,
    #[arg(long)]
    stacks: bool,
}

#[derive(Args, Debug)]
struct ShareProbe {
    /// Each with its number of connections, divided by a space.
    #[arg(long)]
    download: Vec<String>,
    /// Each is read at so many bytes a second by what it goes to, divided by a space.
    #[arg(long)]
    slow: Vec<String>,
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    limit: u64,
    #[arg(long)]
    run_ms: u64,
}

/// Runs, and tells what it saw as one object on standard output.
///
/// # Errors
/// When the engine cannot do what it is asked.
pub(crate) fn run(args: &ProbeArgs) -> Result<(), Trouble> {
    let told = match &args.task {
        ProbeTask::Alloc(args) => allocations(args)?,
        ProbeTask::Share(args) => share(args)?,
        ProbeTask::Mode(args) => mode_probe::run(args)?,
    };
    writeln!(io::stdout(), "{told}").map_err(|e| Trouble::failed("tell what was seen", &e))
}

pub(crate) fn refused(failure: Failure) -> Trouble {
    Trouble::new(failure.to_string())
}

pub(crate) fn config(limits: Limits, authority: Option<&PathBuf>) -> Result<Config, Trouble> {
    let ca_pem =
        authority.map(fs::read).transpose().map_err(|e| Trouble::failed("read whom to trust", &e))?;
    let tls = TlsConfig { ca_pem, ..TlsConfig::default() };
    let network = NetworkConfig { tls, ..NetworkConfig::default() };
    Ok(Config { limits, network, ..Config::default() })
}

pub(crate) fn request(url: &str, dir: &Path, name: String, connections: usize) -> Result<Request, Trouble> {
    let place = Destination::File { dir: dir.to_owned(), name: Some(name.into()), adopt: None };
    let mirror = Mirror::parse(url).map_err(refused)?;
    let mut request = Request::new(vec![mirror], place).map_err(refused)?;
    request.options.connections = connections;
    request.options.sync = Sync::None;
    Ok(request)
}

/// What the window's thread and the watching one tell each other.
#[derive(Debug, Default)]
struct Shared {
    steady: AtomicBool,
    over: AtomicBool,
    have: AtomicU64,
}

fn allocations(args: &AllocProbe) -> Result<Value, Trouble> {
    let connections = args.connections.max(1);
    let most = connections.max(8);
    let limits =
        Limits { total: args.limit, max_connections: most.max(32), max_host: most, ..Limits::default() };
    let engine = Engine::start(config(limits, args.authority.as_ref())?).map_err(refused)?;
    let manager = Manager::new(engine, Arc::new(MemoryStore::new()), Settings::default());
    manager.add(request(&args.url, &args.dir, "fetched".to_owned(), connections)?).map_err(refused)?;
    let stopper = manager.stopper();
    let shared = Arc::new(Shared::default());
    let window = Duration::from_millis(args.window_ms);
    let (theirs, stacks) = (Arc::clone(&shared), args.stacks);
    let counter = std::thread::Builder::new().name("window".to_owned()).spawn(move || {
        while !theirs.steady.load(Ordering::Acquire) {
            if theirs.over.load(Ordering::Acquire) {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let before = theirs.have.load(Ordering::Relaxed);
        let counts = sys::allocations_during(stacks, || std::thread::sleep(window));
        let was_cut = theirs.over.load(Ordering::Acquire);
        let named: Vec<_> = counts.into_iter().map(|(thread, count)| (name_of(thread), count)).collect();
        theirs.over.store(true, Ordering::Release);
        Some((before, named, was_cut))
    });
    let counter = counter.map_err(|e| Trouble::failed("start a thread", &e))?;

    let (mut first_byte, mut changed, mut before, mut since_window) = (None, Instant::now(), 0, 0);
    let summary = manager.run(&mut |notice| {
        let steady = shared.steady.load(Ordering::Relaxed);
        match notice {
            Notice::Event { event, .. } if event.is_final() => shared.over.store(true, Ordering::Release),
            Notice::Event { .. } => {}
            // A program that shows nothing asks for nothing; but it must be known when it begins.
            Notice::Tick if args.progress || !steady || shared.over.load(Ordering::Acquire) => {
                let mut have = 0;
                let looked = manager.look(&mut |_, progress| {
                    have = progress.have;
                    if progress.connections != before {
                        (before, changed) = (progress.connections, Instant::now());
                    }
                    if progress.phase == Phase::Fetching && progress.have > 0 {
                        let first = *first_byte.get_or_insert_with(Instant::now);
                        let calm = changed.elapsed() >= STEADY && first.elapsed() >= STEADY;
                        if !steady && (calm || first.elapsed() >= STEADY_AT_LAST) {
                            shared.steady.store(true, Ordering::Release);
                        }
                    }
                });
                if looked.is_err() || have == 0 {
                    return;
                }
                shared.have.store(have, Ordering::Relaxed);
                if shared.over.load(Ordering::Acquire) {
                    since_window = have;
                    stopper.stop();
                }
            }
            Notice::Tick => {}
        }
    });
    shared.over.store(true, Ordering::Release);
    if let Some(failure) = summary.failure {
        return Err(refused(failure));
    }
    let counted = counter.join().map_err(|_| Trouble::new("the counting thread ended"))?;
    let Some((have, counts, was_cut)) = counted else {
        return Err(Trouble::new("the transfer was over before it was steady: it needs a larger --size"));
    };
    if was_cut {
        return Err(Trouble::new("the transfer was over before the window: it needs a larger --size"));
    }
    let mut threads: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in counts {
        *threads.entry(name).or_default() += count;
    }
    Ok(json!({
        "allocations": threads.values().sum::<u64>(),
        "threads": threads,
        "connections": before,
        "stacks": sys::stacks(),
        "bytes": since_window.saturating_sub(have),
    }))
}

/// What a thread of this process is called.
fn name_of(thread: i32) -> String {
    let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
    // Numbers at the end tell threads of one kind apart.
    let kind = name.trim().trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
    match kind {
        "" => "ended".to_owned(),
        "tidegate-bench" => "caller".to_owned(),
        kind => kind.to_owned(),
    }
}

/// A reader that takes its time.
struct Slow {
    rate: u64,
    taken: Arc<AtomicU64>,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A tenth of a second's worth at a time, as a pipe with a slow reader would take it.
        let count = bytes.len().min(usize::try_from(self.rate / 10).unwrap_or(1).max(1));
        std::thread::sleep(Duration::from_secs_f64(count as f64 / self.rate.max(1) as f64));
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The URL and the number of one word of the command line.
fn pair(text: &str) -> Result<(&str, u64), Trouble> {
    let pair = text.rsplit_once(' ').and_then(|(url, number)| Some((url, number.parse().ok()?)));
    pair.ok_or_else(|| Trouble::usage("a URL and a number are needed"))
}

fn share(args: &ShareProbe) -> Result<Value, Trouble> {
    let limits =
        Limits { total: Some(args.limit), max_connections: 1024, max_host: 1024, ..Limits::default() };
    let engine = Engine::start(config(limits, None)?).map_err(refused)?;
    for (number, text) in args.download.iter().enumerate() {
        let (url, connections) = pair(text)?;
        let connections = usize::try_from(connections).unwrap_or(1);
        engine.start(request(url, &args.dir, format!("f{number}"), connections)?).map_err(refused)?;
    }
    let taken = Arc::new(AtomicU64::new(0));
    for text in &args.slow {
        let (url, rate) = pair(text)?;
        let slow = Slow { rate, taken: Arc::clone(&taken) };
        engine.start_into(request(url, &args.dir, String::new(), 1)?, slow).map_err(refused)?;
    }
    let until = Instant::now() + Duration::from_millis(args.run_ms);
    let mut seen = Snapshot::default();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        // As a program does that shows progress. What ends early is of no interest here.
        engine.next_event(left.min(Duration::from_millis(100))).map_err(refused)?;
        engine.refresh(&mut seen).map_err(refused)?;
    }
    engine.shutdown(Duration::from_secs(5)).map_err(refused)?;
    Ok(json!({ "slow_reader_took": taken.load(Ordering::Relaxed) }))
}
