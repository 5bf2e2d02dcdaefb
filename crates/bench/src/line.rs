//! `line`: how much longer than necessary a file takes, on lines that misbehave in one way each.
//!
//! The ideal is what a client would need that knows everything: the bytes divided by the sum of what all its
//! connections would get if each were an honest one.

use crate::args::{Common, LineArgs};
use crate::clients::{self, Client, Peer};
use crate::contest::{Arm, Contest, Good};
use crate::files;
use crate::report::{Bar, Report};
use crate::server::Rules;
use crate::site::Site;
use crate::trouble::Trouble;
use std::time::Duration;

/// A line. With N connections, each of which gets a rate R if it is honest:
#[derive(clap::ValueEnum, Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scenario {
    /// One connection in three gets R / 64
    Crawl,
    /// Every connection gets R, and no more
    Capped,
    /// The server takes two connections, of N / 2 x R each, and answers others with 503
    Two,
    /// Every second connection is cut off after a second's worth of bytes
    Cut,
    /// The first connection that comes to the last sixteenth of the file goes silent
    Silent,
    /// Each answer comes 150 ms late, and each connection begins as slowly as TCP does over that distance
    Delay,
    /// The line is fast, and the disk takes N x R
    Disk,
}

impl Scenario {
    const ALL: [Self; 7] =
        [Self::Crawl, Self::Capped, Self::Two, Self::Cut, Self::Silent, Self::Delay, Self::Disk];

    fn word(self) -> &'static str {
        match self {
            Self::Crawl => "crawl",
            Self::Capped => "capped",
            Self::Two => "two",
            Self::Cut => "cut",
            Self::Silent => "silent",
            Self::Delay => "delay",
            Self::Disk => "disk",
        }
    }

    /// How the server behaves, where an honest connection gets `rate` and `all` is what all get together.
    fn rules(self, rate: u64, all: u64, size: u64) -> Rules {
        let capped = Rules { rate: Some(rate), ..Rules::default() };
        match self {
            Self::Crawl => Rules { crawl_every: Some(3), crawl_rate: (rate / 64).max(1), ..capped },
            Self::Capped => capped,
            Self::Two => Rules { rate: Some(all / 2), most: Some(2), ..capped },
            Self::Cut => Rules { cut_after: Some(rate), ..capped },
            Self::Silent => Rules { silent_tail: Some(size / 16), ..capped },
            Self::Delay => Rules { round_trip_ms: Some(150), ..capped },
            Self::Disk => Rules::default(),
        }
    }
}

/// Measures.
///
/// # Errors
/// When something beside what is measured fails.
pub(crate) fn run(args: &LineArgs, common: &Common) -> Result<Report, Trouble> {
    let tidegate = clients::find_tidegate(common.tidegate.as_deref())?;
    let ideal = args.ideal_s.unwrap_or(if common.quick { 3.0 } else { 10.0 }).clamp(0.1, 3600.0);
    let peers = args.peers.or(&Peer::ALL);
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let rate = args.rate.max(1024);
    let all = rate.saturating_mul(u64::from(args.connections));
    let size = (all as f64 * ideal) as u64;
    let failed = |e| Trouble::failed("make what is served", &e);
    let work = tempfile::tempdir().map_err(failed)?;
    let source = work.path().join("source.bin");
    files::make(&source, size, 5).map_err(failed)?;

    let runs = common.runs(3);
    let title = format!(
        "{} KiB over at most {} connections, {} KiB/s for an honest one: ideal {ideal} s; {runs} runs of each arm in turns",
        size >> 10,
        args.connections,
        rate >> 10,
    );
    let mut report = Report::new("line", title);
    common.versions(&mut report, &tidegate, &peers);
    let scenarios = if args.scenario.is_empty() { &Scenario::ALL[..] } else { &args.scenario };
    // Enough for an honest client with one connection.
    let patience = Duration::from_secs_f64(15.0 + 1.25 * f64::from(args.connections) * ideal);
    report.note(format!(
        "whoever is not done after {:.0} s is stopped, and has failed",
        patience.as_secs_f64()
    ));
    for scenario in scenarios {
        let rules = Rules { root: work.path().to_owned(), ..scenario.rules(rate, all, size) };
        let mut site = Site::start(&rules, None)?;
        let there = peers.iter().filter(|peer| peer.version().is_some()).map(|peer| Client::Peer(*peer));
        let arms: Vec<Arm> = std::iter::once(Client::Ours)
            .chain(there)
            .map(|client| Arm {
                label: format!("{}/{}", client.word(), scenario.word()),
                client,
                connections: args.connections,
                dir: dir.clone(),
            })
            .collect();
        let disk = (*scenario == Scenario::Disk).then_some(all);
        let contest = Contest { tidegate: &tidegate, source: &source, size, runs, patience, disk };
        contest.hold(&mut site, &arms, &mut report, |report, good| note(report, &good, ideal))?;
        if args.require_ahead
            && let Some((ours, others)) = arms.split_first()
        {
            report.require_ahead(&ours.label, others.iter().map(|arm| arm.label.as_str()));
        }
    }
    report.hold("ratio_to_ideal", args.max_ratio.map(Bar::Max), |arm| arm.starts_with("ours/"));
    Ok(report)
}

fn note(report: &mut Report, good: &Good<'_>, ideal: f64) {
    let (arm, seconds) = (good.arm.label.as_str(), good.ran.wall.as_secs_f64());
    report.add(arm, "ratio_to_ideal", "", seconds / ideal);
    report.add(arm, "seconds", "s", seconds);
    if let Some(counts) = &good.counts {
        for name in ["connects", "requests", "refused", "most_open"] {
            report.add(arm, name, "", counts.of(name) as f64);
        }
    }
}
