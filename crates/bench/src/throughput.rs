//! `throughput` and `peers`: speed, processor time and memory of one large file.

use crate::args::{Common, ThroughputArgs};
use crate::clients::{self, Client, Peer};
use crate::contest::{Arm, Contest, Good};
use crate::files;
use crate::floor::Floor;
use crate::link::Link;
use crate::report::{Bar, Report};
use crate::server::Rules;
use crate::site::{ServerKind, Site};
use crate::tls;
use crate::trouble::Trouble;
use std::path::PathBuf;
use std::time::Duration;

const GIB: f64 = (1u64 << 30) as f64;

/// Measures.
///
/// # Errors
/// When something beside what is measured fails.
pub(crate) fn run(
    command: &'static str,
    peers: &[Peer],
    args: &ThroughputArgs,
    common: &Common,
) -> Result<Report, Trouble> {
    let tidegate = clients::find_tidegate(common.tidegate.as_deref())?;
    let size = args.size.unwrap_or(if common.quick { 16 << 20 } else { 1 << 30 });
    let runs = common.runs(5);
    let counts = match &args.connections[..] {
        [] if common.quick => vec![8],
        [] => vec![4, 8],
        given => given.to_vec(),
    };
    let dirs = folders(&args.dir)?;
    if args.link.is_some() && args.server == ServerKind::Nginx {
        return Err(Trouble::usage("behind a link only our own server serves"));
    }

    let failed = |e| Trouble::failed("make what is served", &e);
    let work = tempfile::tempdir().map_err(failed)?;
    let source = work.path().join("source.bin");
    files::make(&source, size, 1).map_err(failed)?;
    let link = args.link.map(Link::make).transpose()?;
    let address = link.as_ref().map(|_| Link::SERVER);
    let identity = if args.tls {
        let folder = work.path().join(".identity");
        std::fs::create_dir(&folder).map_err(failed)?;
        let mut names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        names.extend(address.map(|a| a.to_string()));
        tls::make_identity(&folder, &names).map_err(failed)?;
        Some(folder)
    } else {
        None
    };
    let mut site = match args.server {
        ServerKind::Nginx => Site::nginx(work.path(), identity.as_deref())?,
        ServerKind::Own => {
            let rules = Rules { root: work.path().to_owned(), address, identity, ..Rules::default() };
            Site::start(&rules, link.as_ref().map(Link::namespace))?
        }
    };

    let how = format!(
        "{:.0} MiB by {}, {} runs of each arm in turns, {}{}",
        size as f64 / f64::from(1 << 20),
        if args.tls { "https" } else { "http" },
        runs,
        match args.server {
            ServerKind::Own => "our own server",
            ServerKind::Nginx => "nginx",
        },
        if link.is_some() { ", behind a queue of 1 Gbit/s" } else { "" },
    );
    let mut report = Report::new(command, how);
    common.versions(&mut report, &tidegate, peers);

    let mut arms: Vec<Arm> = Vec::new();
    let mut add = |client: Client, wanted: u32, dir: &PathBuf| {
        let connections = client.connections(wanted);
        let place = match client {
            Client::Floor(Floor::Discard) => "nowhere".to_owned(),
            _ => files::kind(dir),
        };
        let label = match client {
            Client::Floor(Floor::Write) => format!("{}/{place}", client.word()),
            _ => format!("{}/x{connections}/{place}", client.word()),
        };
        if !arms.iter().any(|arm| arm.label == label) {
            arms.push(Arm { label, client, connections, dir: dir.clone() });
        }
    };
    for dir in &dirs {
        for count in &counts {
            add(Client::Ours, *count, dir);
            add(Client::OursSynced, *count, dir);
            // A bare loop speaks no TLS.
            for floor in Floor::ALL.into_iter().filter(|_| !args.no_floors && !args.tls) {
                add(Client::Floor(floor), *count, dir);
            }
            for peer in peers.iter().filter(|peer| peer.version().is_some()) {
                add(Client::Peer(*peer), *count, dir);
            }
        }
    }
    let patience = Duration::from_secs(60 + size / (4 << 20));
    let contest = Contest { tidegate: &tidegate, source: &source, size, runs, patience, disk: None };
    contest.hold(&mut site, &arms, &mut report, |report, good| note(report, &good, size))?;

    ratios(&mut report, &arms);
    let ours = |arm: &str| arm.starts_with("ours/");
    report.hold("throughput_mbps", args.require_mbps.map(Bar::Min), ours);
    report.hold("cpu_pct", args.max_cpu_pct.map(Bar::Max), ours);
    for (arm, bar) in &args.max_cpu_ratio {
        report.hold(&format!("ratio_to_{arm}"), Some(Bar::Max(*bar)), ours);
    }
    for (arm, bar) in &args.require_speed_ratio {
        report.hold(&format!("speed_ratio_to_{arm}"), Some(Bar::Min(*bar)), ours);
    }
    Ok(report)
}

/// The folders to fetch into: those given, else one on a disk and one in memory.
fn folders(given: &[PathBuf]) -> Result<Vec<PathBuf>, Trouble> {
    let mut dirs = given.to_vec();
    if dirs.is_empty() {
        dirs.push(std::env::temp_dir());
        let memory = PathBuf::from("/dev/shm");
        if files::kind(&memory) == "tmpfs" && files::kind(&dirs[0]) != "tmpfs" {
            dirs.push(memory);
        }
    }
    let found = dirs.into_iter().map(|dir| {
        dir.canonicalize().map_err(|e| Trouble::usage(format!("{} is no folder: {e}", dir.display())))
    });
    found.collect()
}

fn note(report: &mut Report, good: &Good<'_>, size: u64) {
    let (arm, ran) = (good.arm.label.as_str(), &good.ran);
    let (wall, cpu, size) = (ran.wall.as_secs_f64(), ran.cpu.as_secs_f64(), size as f64);
    report.add(arm, "throughput_mbps", "Mbit/s", size * 8.0 / 1e6 / wall);
    report.add(arm, "seconds", "s", wall);
    report.add(arm, "cpu_s_per_gib", "s/GiB", cpu * GIB / size);
    report.add(arm, "cpu_pct", "% of a core", cpu / wall * 100.0);
    report.add(arm, "peak_pss_kib", "KiB", ran.peak_pss_kib as f64);
    report.add(arm, "vm_hwm_kib", "KiB", ran.vm_hwm_kib as f64);
    if let (true, Some(counts)) = (good.arm.client.is_ours(), &good.counts) {
        report.add(arm, "connects", "", counts.of("connects") as f64);
        report.add(arm, "requests", "", counts.of("requests") as f64);
        // Heads and, with TLS, its records are in it.
        report.add(arm, "received_beyond_kib", "KiB", (counts.of("acked") as f64 - size) / 1024.0);
    }
}

/// What ours costs and how fast it is beside each other arm of the same folder, and as many connections.
fn ratios(report: &mut Report, arms: &[Arm]) {
    for ours in arms.iter().filter(|arm| arm.client.is_ours()) {
        for other in arms.iter().filter(|arm| !arm.client.is_ours()) {
            let bound_to_dir = !matches!(other.client, Client::Floor(Floor::Discard));
            let same_dir = other.dir == ours.dir || !bound_to_dir;
            let alike = matches!(other.client, Client::Floor(Floor::Write))
                || other.connections == other.client.connections(ours.connections);
            if !same_dir || !alike {
                continue;
            }
            let of = |arm: &Arm, metric| report.median_of(&arm.label, metric);
            let cpu = of(ours, "cpu_s_per_gib").zip(of(other, "cpu_s_per_gib"));
            let speed = of(ours, "throughput_mbps").zip(of(other, "throughput_mbps"));
            let word = other.client.word();
            for (prefix, pair) in [("ratio_to_", cpu), ("speed_ratio_to_", speed)] {
                if let Some((ours_value, other_value)) = pair.filter(|(_, other)| *other > 0.0) {
                    report.add(&ours.label, &format!("{prefix}{word}"), "", ours_value / other_value);
                }
            }
        }
    }
}
