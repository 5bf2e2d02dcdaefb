//! `mode-cost`: what it costs to have the engine in a process of its own instead of on threads of the program.
//!
//! Both ways take turns, each run a fresh process that embeds the engine as a library, and beside them bare processes
//! that do nothing but answer, start and end: nobody's boundary costs less than theirs.

use crate::args::{Common, ModeArgs};
use crate::clients::{bare, this_program};
use crate::files;
use crate::interrupt;
use crate::machine;
use crate::mode_probe::CONNECTIONS;
use crate::process::{Manner, Ran, run as run_program};
use crate::report::{Bar, Report};
use crate::server::Rules;
use crate::site::Site;
use crate::tls;
use crate::trouble::Trouble;
use serde_json::Value;
use std::fs;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const IN_PROCESS: &str = "in_process";
pub(crate) const CHILD: &str = "child";
pub(crate) const FLOOR: &str = "floor";

const SOURCE: &str = "source.bin";
/// Each connection's bytes a second where a download must be under way and is small.
const SLOW: u64 = 4 << 20;
/// How long others are waited for before each run, if that is asked for.
const CALM: Duration = Duration::from_secs(60);
/// How long one run may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the child is held to by `--bars`, as docs/performance.md has it.
const BARS: [(&str, Bar); 16] = [
    ("throughput_ratio", Bar::Min(0.98)),
    ("cpu_ratio", Bar::Max(1.03)),
    ("added_pss_kib", Bar::Max(3072.0)),
    ("engine_pss_kib", Bar::Max(8192.0)),
    ("start_us", Bar::Max(2500.0)),
    ("handover_us", Bar::Max(300.0)),
    ("round_trip_spaced_us", Bar::Max(50.0)),
    ("round_trip_busy_us", Bar::Max(70.0)),
    ("round_trip_busy_p99_ratio_to_floor", Bar::Max(1.5)),
    ("event_busy_us", Bar::Max(150.0)),
    ("event_busy_p99_us", Bar::Max(2000.0)),
    ("shutdown_cancel_us", Bar::Max(5000.0)),
    ("crash_idle_us", Bar::Max(400.0)),
    ("crash_busy_us", Bar::Max(1000.0)),
    ("resume_us", Bar::Max(10_000.0)),
    ("fetched_again_each_kib", Bar::Max(1024.0)),
];

/// Metrics of which there are many values in each run, and how the probe calls them.
const MANY: [&str; 5] =
    ["round_trip_row_us", "round_trip_spaced_us", "round_trip_busy_us", "event_idle_us", "event_busy_us"];

/// Metrics of which a bare process's stands beside the child's.
const WITH_FLOOR: [&str; 10] = [
    "start_us",
    "round_trip_row_us",
    "round_trip_spaced_us",
    "round_trip_busy_us",
    "event_idle_us",
    "event_busy_us",
    "shutdown_idle_us",
    "shutdown_cancel_us",
    "crash_idle_us",
    "crash_busy_us",
];

/// Measures.
///
/// # Errors
/// When something beside what is measured fails.
pub(crate) fn run(args: &ModeArgs, common: &Common) -> Result<Report, Trouble> {
    let plan = Plan::new("mode-cost", args, common, if common.quick { 8 } else { 256 }, common.runs(11), 100);
    let mut report = measure(&plan, common)?;
    hold(&mut report, args, CHILD, Some);
    Ok(report)
}

/// Holds an arm to what was asked for. A bar for every figure here may be one for none there, or by another name.
pub(crate) fn hold(
    report: &mut Report,
    args: &ModeArgs,
    arm: &str,
    name_of: impl Fn(&'static str) -> Option<&'static str>,
) {
    let bars = BARS.iter().filter(|_| args.bars);
    let bars = bars.filter_map(|(metric, bar)| Some((name_of(metric)?, *bar)));
    let asked = args.max.iter().map(|(metric, most)| (metric.as_str(), Bar::Max(*most)));
    let asked = asked.chain(args.require.iter().map(|(metric, least)| (metric.as_str(), Bar::Min(*least))));
    for (metric, bar) in bars.chain(asked) {
        report.hold(metric, Some(bar), |this| this == arm);
    }
}

/// What is to be measured.
#[derive(Debug)]
pub(crate) struct Plan {
    command: &'static str,
    mib: u64,
    runs: usize,
    kills: usize,
    tls: bool,
    dir: PathBuf,
    calm: bool,
    quick: bool,
}

impl Plan {
    pub(crate) fn new(
        command: &'static str,
        args: &ModeArgs,
        common: &Common,
        mib: u64,
        runs: usize,
        kills: u32,
    ) -> Self {
        let kills = args.kills.unwrap_or(if common.quick { 1 } else { kills });
        let memory = Path::new("/dev/shm");
        let usual = || if files::kind(memory) == "tmpfs" { memory.to_owned() } else { std::env::temp_dir() };
        Self {
            command,
            mib: args.mib.unwrap_or(mib),
            runs,
            kills: usize::try_from(kills).unwrap_or(1),
            tls: args.tls,
            // What is measured is not the disk.
            dir: args.dir.clone().unwrap_or_else(usual),
            calm: args.calm,
            quick: common.quick,
        }
    }

    /// How often the process is killed in this run of all.
    fn kills_of(&self, run: usize) -> usize {
        (run + 1) * self.kills / self.runs - run * self.kills / self.runs
    }
}

/// Measures everything, and holds it to nothing.
///
/// # Errors
/// When something beside what is measured fails.
pub(crate) fn measure(plan: &Plan, common: &Common) -> Result<Report, Trouble> {
    let failed = |e| Trouble::failed("make what is served", &e);
    let work = tempfile::tempdir().map_err(failed)?;
    let source = work.path().join(SOURCE);
    files::make(&source, plan.mib << 20, 38).map_err(failed)?;
    let identity = if plan.tls {
        let folder = work.path().join(".identity");
        fs::create_dir(&folder).map_err(failed)?;
        tls::make_identity(&folder, &["127.0.0.1".to_owned()]).map_err(failed)?;
        Some(folder)
    } else {
        None
    };
    let rules = Rules { root: work.path().to_owned(), identity, ..Rules::default() };
    // A file that is small enough to be quick is over before anything can happen in the middle of it.
    let slow = Rules { rate: plan.quick.then_some(SLOW), ..rules.clone() };
    let title = format!(
        "{} MiB by {} over {CONNECTIONS} connections to {}, {} runs of each way in turns, {} kills",
        plan.mib,
        if plan.tls { "https" } else { "http" },
        files::kind(&plan.dir),
        plan.runs,
        2 * plan.kills,
    );
    let mut report = Report::new(plan.command, title);
    if common.quick {
        report.note("quick: these figures only show that the command works");
    }
    if cfg!(debug_assertions) {
        report.note("this tidegate-bench is a debug build");
    }
    files::warm(&source, &plan.dir).map_err(|e| Trouble::failed("warm the machine", &e))?;
    let mut bench = Bench {
        plan,
        program: of_its_own(work.path())?,
        source: &source,
        site: Site::start(&rules, None)?,
        slow: Site::start(&slow, None)?,
        report,
    };
    for round in 0..plan.runs {
        let ways = [IN_PROCESS, CHILD];
        for turn in 0..ways.len() {
            interrupt::check()?;
            bench.round(ways[(turn + round) % ways.len()], round)?;
        }
    }
    let mut report = bench.report;
    derive(&mut report);
    for note in NOTES {
        report.note(note);
    }
    slowest(&mut report);
    Ok(report)
}

const NOTES: [&str; 6] = [
    "floor: a process that does nothing but answer, as large as the engine's, in the same run; to start, the same \
     program until its first word. Many values of all runs are one row",
    "alone, asked: one download to itself, with progress asked for ten times a second; peak memory is of other runs, \
     in which somebody looks, with the spare there from the beginning",
    "round trip: snapshot(), 1,000 in a row, then with pauses of 2 ms, then each 10 ms during downloads. Event: from \
     the control thread's saying it, by its own stamp, until next_event() gives it",
    "crash: from kill() returning until next_event() gives the notice of the download, which is paused (idle) or \
     fetching (busy). Resume: until the part file is written to again. Handover, with no download: from the end of \
     the process, as the kernel tells it, until process() is another",
    "shutdown: cancel is until the process is gone and the part file removed, which takes the kernel as long as the \
     file is large; floor/removal_us is a file of as many bytes, removed and closed. Stop keeps the part",
    "fetched again: what clients' kernels acknowledged in downloads with a kill beyond those without, for each of the \
     connections: what waited in its sockets is in it",
];

/// A copy of this program, so that what is measured shares none of its pages with the server and with this process;
/// where programs may not be run there, this one.
fn of_its_own(folder: &Path) -> Result<PathBuf, Trouble> {
    let (this, copy) = (this_program()?, folder.join("app"));
    fs::copy(&this, &copy).map_err(|e| Trouble::failed("copy this program", &e))?;
    let runs = std::process::Command::new(&copy).arg("--version").output();
    Ok(if runs.is_ok_and(|output| output.status.success()) { copy } else { this })
}

struct Bench<'a> {
    plan: &'a Plan,
    program: PathBuf,
    source: &'a Path,
    site: Site,
    slow: Site,
    report: Report,
}

impl Bench<'_> {
    /// All runs of one way in one round.
    fn round(&mut self, way: &'static str, round: usize) -> Result<(), Trouble> {
        self.site.counts()?;
        if let Some((told, _)) = self.probe(way, &["asked"], true, false)? {
            self.asked(way, &told);
        }
        self.site.counts()?;
        if let Some((told, ran)) = self.probe(way, &["alone"], false, false)? {
            self.memory(way, &told, &ran);
        }
        self.beyond(way, "received_beyond_kib", false)?;
        for (metric, floor, word) in [
            ("shutdown_cancel_us", "shutdown_cancel_us", "cancel"),
            ("shutdown_stop_us", "shutdown_cancel_us", "stop"),
        ] {
            if let Some((told, _)) = self.probe(way, &[word], true, true)? {
                self.add(way, metric, &told["shutdown_us"]);
                self.add(FLOOR, floor, &told["floor_shutdown_us"]);
                self.add(FLOOR, "removal_us", &told["floor_removal_us"]);
            }
        }
        let kills = if way == CHILD { self.plan.kills_of(round) } else { 0 };
        for _ in 0..kills {
            self.slow.counts()?;
            if let Some((told, _)) = self.probe(way, &["crash"], true, true)? {
                self.crash(&told)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, arm: &str, metric: &str, value: &Value) {
        let unit = match metric {
            metric if metric.ends_with("_us") => "us",
            metric if metric.ends_with("_kib") => "KiB",
            metric if metric.ends_with("_s") => "s",
            _ => "",
        };
        match value {
            Value::Array(values) => values.iter().for_each(|value| self.add(arm, metric, value)),
            value => value.as_f64().into_iter().for_each(|value| self.report.add(arm, metric, unit, value)),
        }
    }

    /// A run without anybody who looks.
    fn asked(&mut self, way: &str, told: &Value) {
        if let Some(seconds) = told["seconds"].as_f64() {
            self.report.add(way, "throughput_mibps", "MiB/s", self.plan.mib as f64 / seconds);
        }
        for metric in ["cpu_s", "faults", "start_us", "start_cpu_us", "start_faults"].into_iter().chain(MANY)
        {
            self.add(way, metric, &told[metric]);
        }
        self.add(way, "shutdown_idle_us", &told["shutdown_idle_us"]);
        for metric in ["start_us", "shutdown_idle_us"].into_iter().chain(MANY) {
            self.add(FLOOR, metric, &told[format!("floor_{metric}")]);
        }
    }

    /// A run in which memory was looked at.
    fn memory(&mut self, way: &str, told: &Value, ran: &Ran) {
        self.report.add(way, "peak_pss_kib", "KiB", ran.peak_pss_kib as f64);
        for (metric, who) in [("engine_pss_kib", "engine"), ("spare_pss_kib", "spare")] {
            let number = told[who].as_u64().and_then(|pid| u32::try_from(pid).ok());
            let memory = number.and_then(|pid| ran.peaks_kib.get(&pid));
            memory.into_iter().for_each(|kib| self.report.add(way, metric, "KiB", *kib as f64));
        }
        if way == IN_PROCESS {
            // There the engine and the program are one.
            self.report.add(way, "engine_pss_kib", "KiB", ran.peak_pss_kib as f64);
        }
    }

    fn crash(&mut self, told: &Value) -> Result<(), Trouble> {
        let (idle, busy) = (&told["idle"], &told["busy"]);
        self.add(CHILD, "crash_idle_us", &idle["told_us"]);
        self.add(CHILD, "crash_idle_until_gone_us", &idle["gone_us"]);
        self.add(CHILD, "handover_us", &told["handover_us"]);
        self.add(FLOOR, "crash_idle_us", &idle["floor_us"]);
        self.add(CHILD, "crash_busy_us", &busy["told_us"]);
        self.add(CHILD, "crash_busy_until_gone_us", &busy["gone_us"]);
        self.add(CHILD, "resume_us", &busy["resumed_us"]);
        self.add(FLOOR, "crash_busy_us", &busy["floor_us"]);
        if busy.is_object() {
            // The download that was paused has come to a few KiB.
            self.beyond(CHILD, "received_beyond_killed_kib", true)?;
        }
        Ok(())
    }

    /// What came over the line beyond the length of the one file that was fetched.
    fn beyond(&mut self, way: &str, metric: &str, in_the_middle: bool) -> Result<(), Trouble> {
        let site = if in_the_middle { &mut self.slow } else { &mut self.site };
        if let Some(counts) = site.counts()? {
            let beyond = counts.of("acked") as f64 - (self.plan.mib << 20) as f64;
            self.report.add(way, metric, "KiB", beyond / 1024.0);
        }
        Ok(())
    }

    /// Runs the program that embeds the engine; `None` when it failed, which was noted.
    fn probe(
        &mut self,
        way: &str,
        words: &[&str],
        unwatched: bool,
        in_the_middle: bool,
    ) -> Result<Option<(Value, Ran)>, Trouble> {
        let out = tempfile::tempdir_in(&self.plan.dir).map_err(|e| Trouble::failed("make a folder", &e))?;
        let home = tempfile::tempdir().map_err(|e| Trouble::failed("make a folder", &e))?;
        let site = if in_the_middle { &self.slow } else { &self.site };
        let mut command = bare(&self.program, home.path());
        command.args(["probe", "mode"]).args(words).args(["--url", &site.url(SOURCE)]);
        command.arg("--source").arg(self.source).arg("--dir").arg(out.path());
        if let Some(authority) = &site.authority {
            command.arg("--authority").arg(authority);
        }
        if way == IN_PROCESS {
            command.arg("--in-process");
        }
        let mut output = tempfile::tempfile().map_err(|e| Trouble::failed("make a file", &e))?;
        let manner = Manner { output: Some(&output), unwatched, ..Manner::default() };
        if self.plan.calm && !machine::wait_until_calm(CALM) {
            self.report.note("the machine did not become calm for some of the runs");
        }
        let ran = run_program(&mut command, PATIENCE, &manner);
        let ran = ran.map_err(|e| Trouble::failed("run the engine", &e))?;
        if let Some(trouble) = ran.trouble() {
            self.report.fail(format!("{way} {}: {trouble}", words[0]));
            return Ok(None);
        }
        let mut text = String::new();
        let read = output.rewind().and_then(|()| output.read_to_string(&mut text));
        read.map_err(|e| Trouble::failed("hear from the engine", &e))?;
        let told = serde_json::from_str(&text).map_err(|_| Trouble::new("the engine told nothing"))?;
        Ok(Some((told, ran)))
    }
}

/// What follows from the figures.
fn derive(report: &mut Report) {
    let ratio = |report: &mut Report, name: &str, metric: &str| {
        let pair = report.median_of(CHILD, metric).zip(report.median_of(IN_PROCESS, metric));
        if let Some((child, here)) = pair.filter(|(_, here)| *here > 0.0) {
            report.add(CHILD, name, "", child / here);
        }
    };
    ratio(report, "throughput_ratio", "throughput_mibps");
    ratio(report, "cpu_ratio", "cpu_s");
    let pair = report.median_of(CHILD, "peak_pss_kib").zip(report.median_of(IN_PROCESS, "peak_pss_kib"));
    if let Some((child, here)) = pair {
        report.add(CHILD, "added_pss_kib", "KiB", child - here);
    }
    let pair = report
        .median_of(CHILD, "received_beyond_killed_kib")
        .zip(report.median_of(CHILD, "received_beyond_kib"));
    if let Some((killed, not)) = pair {
        report.add(CHILD, "fetched_again_each_kib", "KiB", (killed - not).max(0.0) / CONNECTIONS as f64);
    }
    for metric in MANY.into_iter().chain(["crash_idle_us", "crash_busy_us", "resume_us", "handover_us"]) {
        let name = format!("{}_p99_us", metric.trim_end_matches("_us"));
        for arm in [IN_PROCESS, CHILD, FLOOR] {
            if let Some(value) = report.percentile_of(arm, metric, 99.0) {
                report.add(arm, &name, "us", value);
            }
        }
    }
    for metric in WITH_FLOOR {
        let name = metric.trim_end_matches("_us");
        for (of, ratio) in [(metric.to_owned(), ""), (format!("{name}_p99_us"), "_p99")] {
            let pair = report.median_of(CHILD, &of).zip(report.median_of(FLOOR, &of));
            if let Some((child, floor)) = pair.filter(|(_, floor)| *floor > 0.0) {
                report.add(CHILD, &format!("{name}{ratio}_ratio_to_floor"), "", child / floor);
            }
        }
    }
}

/// Says of the slowest kill where its time went.
fn slowest(report: &mut Report) {
    let told = report.values_of(CHILD, "crash_busy_us");
    let gone = report.values_of(CHILD, "crash_busy_until_gone_us");
    let worst = told.iter().zip(gone).max_by(|(one, _), (other, _)| one.total_cmp(other));
    if let Some((told, gone)) = worst {
        let note = format!(
            "the slowest of {} kills in the middle of a download was told after {:.0} us; the kernel had ended the \
             process after {:.0} us",
            report.values_of(CHILD, "crash_busy_us").len(),
            told,
            gone.min(*told),
        );
        report.note(note);
    }
}
