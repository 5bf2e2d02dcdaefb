//! `fairness`: how evenly a limit is shared, and what leaves the server's sockets.
//!
//! Nothing that the client says of itself is used: the server asks its sockets ten times a second how much was
//! acknowledged (`tcpi_bytes_acked`).

use crate::args::{Common, FairArgs};
use crate::clients::{self, bare, this_program};
use crate::interrupt;
use crate::process::{Manner, run as run_program};
use crate::report::{Bar, Report};
use crate::server::Rules;
use crate::site::{Counts, Site};
use crate::trouble::Trouble;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long it may take until shares are even, in samples of a tenth of a second.
const BEGIN: usize = 30;
/// Samples in a second.
const SECOND: usize = 10;

/// What the downloads want.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Demands {
    /// All they can get
    Equal,
    /// Every second one can have a quarter of an even share, the others all they can get
    Unequal,
    /// All they can get, but one in four with 16 connections, the others with 2
    Connections,
    /// One is read slowly by what it goes to (an eighth of an even share), the others want all they can get.
    /// By the engine as a library, since the command line has no such reader beside files
    SlowReader,
}

impl Demands {
    const ALL: [Self; 4] = [Self::Equal, Self::Unequal, Self::Connections, Self::SlowReader];

    fn word(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Unequal => "unequal",
            Self::Connections => "connections",
            Self::SlowReader => "slow_reader",
        }
    }

    /// The name of a download's file, and its connections.
    fn download(self, number: u32, connections: u32) -> (String, u32) {
        match self {
            Self::Unequal if number % 2 == 1 => (format!("slow-{number}"), connections),
            Self::Connections if number % 4 == 1 => (format!("file-{number}"), 16),
            Self::Connections => (format!("file-{number}"), 2),
            Self::SlowReader if number == 0 => ("reader".to_owned(), 1),
            _ => (format!("file-{number}"), connections),
        }
    }
}

/// Measures.
///
/// # Errors
/// When something beside what is measured fails.
pub(crate) fn run(args: &FairArgs, common: &Common) -> Result<Report, Trouble> {
    let tidegate = clients::find_tidegate(common.tidegate.as_deref())?;
    let window = args.window_s.unwrap_or(if common.quick { 3.0 } else { 10.0 }).clamp(1.0, 300.0);
    let time = Duration::from_secs_f64(window + BEGIN as f64 / SECOND as f64 + 1.5);
    let share = (args.limit / u64::from(args.tasks)).max(1);
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let failed = |e| Trouble::failed("make what is served", &e);
    let work = tempfile::tempdir().map_err(failed)?;
    // No file may be whole before the window closes, even if its download got four times its share. Nothing is
    // compared here, so the files are holes.
    let size = (share as f64 * time.as_secs_f64() * 4.0) as u64 + (4 << 20);
    let source = work.path().join("source.bin");
    File::create(&source).and_then(|file| file.set_len(size)).map_err(failed)?;

    let title = format!(
        "{} downloads under a limit of {} KiB/s, watched for {window} s after {} s",
        args.tasks,
        args.limit >> 10,
        BEGIN / SECOND,
    );
    let mut report = Report::new("fairness", title);
    common.versions(&mut report, &tidegate, &[]);
    let scenarios = if args.scenario.is_empty() { &Demands::ALL[..] } else { &args.scenario };
    for _ in 0..common.runs(1) {
        for demands in scenarios {
            interrupt::check()?;
            let downloads: Vec<(String, u32)> =
                (0..args.tasks).map(|number| demands.download(number, args.connections)).collect();
            for (name, _) in &downloads {
                let path = work.path().join(name);
                if !path.exists() {
                    fs::hard_link(&source, path).map_err(failed)?;
                }
            }
            let slow = (share / 4 / u64::from(args.connections)).max(1);
            let rules = Rules {
                root: work.path().to_owned(),
                path_rate: vec![("/slow-".to_owned(), slow)],
                watch: true,
                ..Rules::default()
            };
            let mut site = Site::start(&rules, None)?;
            let out = tempfile::tempdir_in(&dir).map_err(|e| Trouble::failed("make a folder", &e))?;
            let mut command = match demands {
                Demands::SlowReader => library(args, &site, &downloads, share / 8, time, out.path())?,
                _ => program(args, &tidegate, &site, &downloads, out.path())
                    .map_err(|e| Trouble::failed("write a list", &e))?,
            };
            let interrupt_after = (*demands != Demands::SlowReader).then_some(time);
            let manner = Manner { interrupt_after, ..Manner::default() };
            let ran = run_program(&mut command, time + Duration::from_secs(40), &manner);
            let ran = ran.map_err(|e| Trouble::failed("run it", &e))?;
            let code = ran.status.code();
            if ran.timed_out || !(code == Some(130) || (interrupt_after.is_none() && code == Some(0))) {
                let word = demands.word();
                report.fail(format!(
                    "{word}: did not run until it was stopped: {} {}",
                    ran.status, ran.last_words
                ));
                continue;
            }
            let counts = site.counts()?.ok_or_else(|| Trouble::new("the server tells nothing"))?;
            let seen = Seen::read(&counts);
            judge(&mut report, *demands, &seen, args, &downloads, (window * SECOND as f64) as usize);
        }
    }
    let jain = args.require_jain.map(Bar::Min);
    report.hold("jain_downloads", jain, |_| true);
    report.hold("max_of_allowed", args.max_second.map(Bar::Max), |_| true);
    Ok(report)
}

/// The program, with a list of all downloads.
fn program(
    args: &FairArgs,
    tidegate: &Path,
    site: &Site,
    downloads: &[(String, u32)],
    dir: &Path,
) -> std::io::Result<Command> {
    let mut list = String::new();
    for (name, connections) in downloads {
        let _ = write!(list, "{}\n  out={name}\n  connections={connections}\n", site.url(name));
    }
    let path = dir.join("list.txt");
    fs::write(&path, list)?;
    let all: u32 = downloads.iter().map(|(_, connections)| connections).sum();
    let (all, tasks) = (all.to_string(), args.tasks.to_string());
    let mut command = bare(tidegate, dir);
    command.args(["get", "--proxy", "none", "--sync", "none", "-j", &tasks, "--min-split", "64k"]);
    command.args(["--limit", &args.limit.to_string(), "--max-host", &all, "--max-connections", &all]);
    command.arg("-i").arg(path).arg("-d").arg(dir);
    Ok(command)
}

/// The engine in a process of ours.
fn library(
    args: &FairArgs,
    site: &Site,
    downloads: &[(String, u32)],
    reader: u64,
    time: Duration,
    dir: &Path,
) -> Result<Command, Trouble> {
    let mut command = bare(&this_program()?, dir);
    command.args(["probe", "share", "--limit", &args.limit.to_string(), "--dir"]).arg(dir);
    command.args(["--run-ms", &time.as_millis().to_string()]);
    for (name, connections) in downloads {
        let url = site.url(name);
        match name.as_str() {
            "reader" => command.args(["--slow", &format!("{url} {}", reader.max(1))]),
            _ => command.args(["--download", &format!("{url} {connections}")]),
        };
    }
    Ok(command)
}

/// What the server saw.
#[derive(Debug, Default)]
struct Seen {
    /// When each sample was taken, in milliseconds.
    times: Vec<u64>,
    /// When each sample was complete.
    complete: Vec<u64>,
    sockets: Vec<Socket>,
}

/// One connection: what it had got across at each sample, from the sample `since` on.
#[derive(Debug)]
struct Socket {
    path: String,
    since: usize,
    acked: Vec<u64>,
    /// The samples at which it was at no answer.
    idle: Vec<usize>,
}

impl Socket {
    /// What it had got across by a sample.
    fn at(&self, sample: usize) -> u64 {
        let index = sample.checked_sub(self.since).map(|index| index.min(self.acked.len().saturating_sub(1)));
        index.and_then(|index| self.acked.get(index)).copied().unwrap_or(0)
    }

    fn between(&self, from: usize, to: usize) -> u64 {
        self.at(to).saturating_sub(self.at(from))
    }

    /// Whether it was at an answer all the time.
    fn stood(&self, from: usize, to: usize) -> bool {
        let was_there = self.since <= from && self.since + self.acked.len() > to;
        was_there && !self.idle.iter().any(|sample| (from..=to).contains(sample))
    }

    fn touches(&self, from: usize, to: usize) -> bool {
        self.since <= to && self.since + self.acked.len() > from
    }
}

impl Seen {
    fn read(counts: &Counts) -> Self {
        let numbers = |value: &Value| -> Vec<u64> {
            value.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
        };
        let sockets = counts.0["watched"].as_array().into_iter().flatten().map(|socket| Socket {
            path: socket["path"].as_str().unwrap_or_default().trim_start_matches('/').to_owned(),
            since: usize::try_from(socket["since"].as_u64().unwrap_or(0)).unwrap_or(0),
            acked: numbers(&socket["acked"]),
            idle: numbers(&socket["idle"]).into_iter().filter_map(|n| usize::try_from(n).ok()).collect(),
        });
        Self {
            times: numbers(&counts.0["samples"]),
            complete: numbers(&counts.0["sampled"]),
            sockets: sockets.collect(),
        }
    }

    /// The highest share of what was allowed that left in one second that began at `first` or later, and at
    /// which sample that second began.
    fn worst_second(&self, limit: u64, first: usize) -> (f64, usize) {
        let seconds = (first..self.times.len().saturating_sub(SECOND)).map(|from| {
            let to = from + SECOND;
            let left: u64 = self.sockets.iter().map(|socket| socket.between(from, to)).sum();
            let count = self.sockets.iter().filter(|socket| socket.touches(from, to)).count();
            // A busy machine samples late, and then it was more than a second.
            let end = self.complete.get(to).copied().unwrap_or(self.times[to]);
            let long = end.saturating_sub(self.times[from]) as f64 / 1000.0;
            let allowed = limit as f64 * long.max(1.0) * 1.05 + 65_536.0 + 4096.0 * count as f64;
            (left as f64 / allowed, from)
        });
        seconds.fold((0.0, first), |worst, one| if one.0 > worst.0 { one } else { worst })
    }
}

/// Jain's index: 1 when all are equal, 1/n when one has everything; 1 of none.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(s, q), x| (s + x, q + x * x));
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

fn judge(
    report: &mut Report,
    demands: Demands,
    seen: &Seen,
    args: &FairArgs,
    downloads: &[(String, u32)],
    window: usize,
) {
    let arm = demands.word();
    let first =
        (0..seen.times.len()).find(|sample| seen.sockets.iter().any(|socket| socket.at(*sample) > 1024));
    let from = first.unwrap_or(0) + BEGIN;
    let to = from + window;
    if first.is_none() || to >= seen.times.len() {
        report.fail(format!("{arm}: the transfer was over before the window closed"));
        return;
    }
    let seconds = (seen.times[to] - seen.times[from]) as f64 / 1000.0;
    let mut shares: BTreeMap<&str, f64> = downloads.iter().map(|(name, _)| (name.as_str(), 0.0)).collect();
    let mut inside: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for socket in &seen.sockets {
        let bytes = socket.between(from, to) as f64;
        if let Some(share) = shares.get_mut(socket.path.as_str()) {
            *share += bytes / seconds;
        }
        if socket.stood(from, to) {
            inside.entry(&socket.path).or_default().push(bytes);
        }
    }
    let group = |is: &dyn Fn(&str) -> bool| -> Vec<f64> {
        shares.iter().filter(|(name, _)| is(name)).map(|(_, share)| *share).collect()
    };
    let eager = group(&|name| name.starts_with("file-"));
    let modest = group(&|name| !name.starts_with("file-"));
    let total: f64 = shares.values().sum();
    let mean = |shares: &[f64]| shares.iter().sum::<f64>() / shares.len().max(1) as f64 / 1024.0;
    report.add(arm, "jain_downloads", "", jain(&eager));
    report.add(arm, "mean_share_kib", "KiB/s", mean(&eager));
    report.add(arm, "least_share_kib", "KiB/s", eager.iter().copied().fold(f64::INFINITY, f64::min) / 1024.0);
    report.add(arm, "most_share_kib", "KiB/s", eager.iter().copied().fold(0.0, f64::max) / 1024.0);
    if !modest.is_empty() {
        let share = args.limit as f64 / f64::from(args.tasks);
        let (name, wanted) = match demands {
            Demands::SlowReader => ("slow_reader_of_demand", share / 8.0),
            _ => ("modest_of_demand", share / 4.0),
        };
        report.add(arm, name, "", mean(&modest) * 1024.0 / wanted);
    }
    let inner = inside.values().filter(|all| all.len() > 1).map(|all| jain(all));
    let inner: Vec<f64> = inner.collect();
    if !inner.is_empty() {
        report.add(arm, "least_jain_connections", "", inner.iter().copied().fold(1.0, f64::min));
    }
    report.add(arm, "connections_that_stood", "", inside.values().map(Vec::len).sum::<usize>() as f64);
    report.add(arm, "used_of_limit", "", total / args.limit as f64);
    let begin = first.unwrap_or(0);
    let (worst, at) = seen.worst_second(args.limit, 0);
    report.add(arm, "max_of_allowed", "", worst);
    report.add(arm, "max_of_allowed_began", "s", at as f64 / SECOND as f64 - begin as f64 / SECOND as f64);
    report.add(arm, "max_of_allowed_later", "", seen.worst_second(args.limit, from).0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_one_when_all_are_equal_and_falls_with_every_difference() {
        assert_eq!(jain(&[3.0; 20]), 1.0);
        assert_eq!(jain(&[4.0, 0.0, 0.0, 0.0]), 0.25);
        assert!(jain(&[1.0, 1.0, 1.2]) < 1.0 && jain(&[]) == 1.0);
    }

    /// A server that sent `rate` a second over one connection, but `burst` more in its second second.
    fn seen(rate: u64, burst: u64) -> Seen {
        let acked = (0..50).map(|n| rate * n / 10 + if n > 12 { burst } else { 0 }).collect();
        let socket = Socket { path: "file-0".to_owned(), since: 0, acked, idle: Vec::new() };
        let times: Vec<u64> = (0..50).map(|n| n * 100).collect();
        Seen { complete: times.clone(), times, sockets: vec![socket] }
    }

    #[test]
    fn a_burst_in_any_second_is_seen() {
        let limit = 1 << 20;
        assert!(seen(limit, 0).worst_second(limit, 0).0 < 1.0);
        assert!(seen(limit, 200_000).worst_second(limit, 0).0 > 1.0);
        assert!(seen(limit, 100_000).worst_second(limit, 0).0 < 1.0, "5 % and 68 KiB are allowed");
    }

    #[test]
    fn a_connection_that_came_later_had_got_nothing_across_before() {
        let socket = Socket { path: String::new(), since: 3, acked: vec![10, 20], idle: Vec::new() };
        assert_eq!((socket.at(0), socket.at(3), socket.at(4), socket.at(99)), (0, 10, 20, 20));
        assert!(socket.stood(3, 4) && !socket.stood(2, 4) && !socket.stood(3, 5));
    }
}
