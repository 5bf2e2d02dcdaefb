//! `load`: many files at once, each over many connections; or very many small ones, some at a time.

use crate::args::{Common, LoadArgs};
use crate::clients::{self, Peer, bare};
use crate::files;
use crate::interrupt;
use crate::process::{Manner, run as run_program};
use crate::report::{Bar, Report};
use crate::server::Rules;
use crate::site::Site;
use crate::tls;
use crate::trouble::Trouble;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Files of a run stay until all have run, if they are no more than so many bytes: where many were removed a
/// moment ago, ext4 takes its time to find room for others, and whoever comes next would pay for it.
const MOST_KEPT: u64 = 1 << 30;

/// What fetches all the files in one arm.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Crowd {
    Ours,
    OursSynced,
    Peer(Peer),
}

impl Crowd {
    fn word(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursSynced => "ours_synced",
            Self::Peer(peer) => peer.word(),
        }
    }
}

/// Measures.
///
/// # Errors
/// When something beside what is measured fails.
pub(crate) fn run(args: &LoadArgs, common: &Common) -> Result<Report, Trouble> {
    let tidegate = clients::find_tidegate(common.tidegate.as_deref())?;
    let size = args.task_size.unwrap_or(if common.quick { 1 << 20 } else { 4 << 20 });
    let runs = common.runs(3);
    let peers = args.peers.or(&[Peer::Aria2c]);
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let failed = |e| Trouble::failed("make what is served", &e);
    let work = tempfile::tempdir().map_err(failed)?;
    let names: Vec<String> = (0..args.tasks).map(|number| format!("task-{number}")).collect();
    let source = work.path().join("source.bin");
    files::make(&source, size, 2).map_err(failed)?;
    for name in &names {
        fs::hard_link(&source, work.path().join(name)).map_err(failed)?;
    }
    let identity = if args.tls {
        let folder = work.path().join(".identity");
        fs::create_dir(&folder).map_err(failed)?;
        tls::make_identity(&folder, &["127.0.0.1".to_owned()]).map_err(failed)?;
        Some(folder)
    } else {
        None
    };
    let rate = (args.rate > 0).then_some(args.rate);
    let rules = Rules { root: work.path().to_owned(), identity, rate, ..Rules::default() };
    let mut site = Site::start(&rules, None)?;

    let title = format!(
        "{} files of {} KiB, {} at a time, over {} connections each by {}, {runs} runs of each arm in turns{}",
        args.tasks,
        size >> 10,
        args.parallel(),
        args.segments,
        if args.tls { "https" } else { "http" },
        rate.map_or(String::new(), |rate| format!(", each connection gets {} KiB/s", rate >> 10)),
    );
    let mut report = Report::new("load", title);
    common.versions(&mut report, &tidegate, &peers);
    let mut arms = vec![Crowd::Ours, Crowd::OursSynced];
    for peer in peers.into_iter().filter(|peer| peer.version().is_some()) {
        match peer {
            Peer::Curl | Peer::Aria2c => arms.push(Crowd::Peer(peer)),
            Peer::Axel | Peer::Wget2 => {
                report.note(format!("{} takes no list of names to give to files", peer.word()));
            }
        }
    }
    let all = u64::from(args.tasks) * size;
    let removed_at_the_end = all * (runs * arms.len()) as u64 <= MOST_KEPT;
    let mut kept = Vec::new();
    let patience = Duration::from_secs(60 + rate.map_or(0, |rate| all / rate) + all / (1 << 20));
    for round in 0..runs {
        for turn in 0..arms.len() {
            let arm = arms[(turn + round) % arms.len()];
            interrupt::check()?;
            let out = tempfile::tempdir_in(&dir).map_err(|e| Trouble::failed("make a folder", &e))?;
            let home = tempfile::tempdir().map_err(|e| Trouble::failed("make a folder", &e))?;
            let mut command = command(arm, args, size, &tidegate, &site, &names, out.path(), home.path())
                .map_err(|e| Trouble::failed("write a list", &e))?;
            site.counts()?;
            let ran = run_program(&mut command, patience, &Manner::default());
            let ran = ran.map_err(|e| Trouble::failed(&format!("run {}", arm.word()), &e))?;
            let counts = site.counts()?;
            let is_good = |name: &&String| files::same(&source, &out.path().join(name)).unwrap_or(false);
            let bad = names.iter().filter(|name| !is_good(name)).count();
            let left_over = left_over(out.path(), &names);
            let left_over = left_over.map_err(|e| Trouble::failed("look at what was fetched", &e))?;
            let name = arm.word();
            report.add(name, "failed", "files", bad as f64);
            report.add(name, "left_over", "files", left_over as f64);
            report.add(name, "seconds", "s", ran.wall.as_secs_f64());
            report.add(name, "cpu_s", "s", ran.cpu.as_secs_f64());
            report.add(name, "peak_pss_kib", "KiB", ran.peak_pss_kib as f64);
            report.add(name, "vm_hwm_kib", "KiB", ran.vm_hwm_kib as f64);
            if let Some(counts) = counts {
                report.add(name, "most_connections", "", counts.of("most_open") as f64);
                report.add(name, "connects", "", counts.of("connects") as f64);
                report.add(name, "requests", "", counts.of("requests") as f64);
            }
            if let Some(trouble) = ran.trouble() {
                let text = format!("{name}: {trouble}");
                if matches!(arm, Crowd::Peer(_)) { report.note(text) } else { report.fail(text) }
            }
            kept.extend(removed_at_the_end.then_some(out));
        }
    }
    let ours = |arm: &str| arm.starts_with("ours");
    report.hold("failed", Some(Bar::Max(0.0)), ours);
    report.hold("left_over", Some(Bar::Max(0.0)), ours);
    report.hold("peak_pss_kib", args.require_rss_kb.map(Bar::Max), ours);
    report.hold("seconds", args.max_seconds.map(Bar::Max), |arm| arm == "ours");
    report.hold("connects", args.max_connects.map(Bar::Max), ours);
    if args.require_ahead {
        report.require_ahead("ours", arms.iter().map(|arm| arm.word()).filter(|arm| !ours(arm)));
    }
    Ok(report)
}

/// How many files are there that nobody asked for: parts, checkpoints.
fn left_over(dir: &Path, names: &[String]) -> std::io::Result<usize> {
    let wanted: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        count += usize::from(!name.to_str().is_some_and(|name| wanted.contains(name)));
    }
    Ok(count)
}

#[expect(clippy::too_many_arguments, reason = "each is one thing that the command line needs")]
fn command(
    arm: Crowd,
    args: &LoadArgs,
    size: u64,
    tidegate: &Path,
    site: &Site,
    names: &[String],
    dir: &Path,
    home: &Path,
) -> std::io::Result<Command> {
    let (parallel, segments) = (args.parallel().to_string(), args.segments.to_string());
    let list = home.join("list.txt");
    let mut text = String::new();
    for name in names {
        let _ = match arm {
            Crowd::Peer(Peer::Curl) => {
                writeln!(text, "url = \"{}\"\noutput = \"{}\"", site.url(name), dir.join(name).display())
            }
            _ => writeln!(text, "{}\n  out={name}", site.url(name)),
        };
    }
    fs::write(&list, text)?;
    let authority = site.authority.as_deref();
    let mut command;
    match arm {
        Crowd::Ours | Crowd::OursSynced => {
            command = bare(tidegate, home);
            let all = u64::from(args.parallel()) * u64::from(args.segments);
            // What is divided has to be twice as long as the smallest part, and a part of it is here by then.
            let split = (size / u64::from(args.segments) / 4).max(1);
            command.args(["get", "--proxy", "none", "-j", &parallel, "-x", &segments]);
            command.args(["--max-host", &all.to_string(), "--max-connections", &all.to_string()]);
            command.args(["--min-split", &split.to_string(), "-i"]).arg(list).arg("-d").arg(dir);
            if arm == Crowd::Ours {
                command.args(["--sync", "none"]);
            }
            if let Some(authority) = authority {
                command.arg("--ca-file").arg(authority);
            }
        }
        Crowd::Peer(Peer::Curl) => {
            command = bare(Path::new("curl"), home);
            command.args(["-sS", "-f", "-Z", "--parallel-max", &parallel, "-K"]).arg(list);
            if let Some(authority) = authority {
                command.arg("--cacert").arg(authority);
            }
        }
        Crowd::Peer(peer) => {
            command = bare(Path::new(peer.word()), home);
            let count = args.segments.min(16);
            command.args(["-q", "--no-conf", "--file-allocation=none", "-k1M"]);
            command.args([
                format!("-j{parallel}"),
                format!("-x{count}"),
                format!("-s{count}"),
                "-i".to_owned(),
            ]);
            command.arg(list).arg("-d").arg(dir);
            if let Some(authority) = authority {
                command.arg(format!("--ca-certificate={}", authority.display()));
            }
        }
    }
    Ok(command)
}
