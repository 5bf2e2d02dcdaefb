//! The command line.

use crate::clients::{self, Peer};
use crate::floor::FloorArgs;
use crate::link::Speed;
use crate::probe::ProbeArgs;
use crate::report::Report;
use crate::server::Rules;
use crate::site::ServerKind;
use clap::{Args, Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::Command;
use tidegate_core::units::parse_size;

const ABOUT: &str = "Measures what Tidegate costs, beside other programs and bare loops";

const AFTER: &str = "\
What is measured is the tidegate beside this program (or --tidegate PATH), a fresh process for each run. The
server is a process of its own. Arms take turns; figures are medians, with the least and the most.

Examples:
  tidegate-bench throughput --size 5G --require-mbps 940 --max-cpu-pct 8 --link 1gbit
  tidegate-bench peers --size 1G --runs 11 --max-cpu-ratio curl=0.36
  tidegate-bench load --tasks 20 --segments 8 --task-size 4M --require-rss-kb 8192
  tidegate-bench load --tasks 1000 --task-size 10K --segments 1 --parallel 32 --rate 0 --peers curl,aria2c
  tidegate-bench alloc-check --size 512M --window-s 2
  tidegate-bench line --scenario crawl --json
  tidegate-bench mode-cost --mib 256 --runs 11 --bars

Exit codes: 0 measured, and every bar holds · 1 a bar was missed or a run failed · 2 wrong usage";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate-bench",
    version,
    about = ABOUT,
    after_help = AFTER,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    /// What to measure.
    #[command(subcommand)]
    pub(crate) task: Task,
    /// What holds for all.
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What holds for every command.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Common {
    /// Print one object instead of a table
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The tidegate to measure [default: the one beside this program]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) tidegate: Option<PathBuf>,
    /// So little that it only shows that everything works; the figures mean nothing
    #[arg(long, global = true)]
    pub(crate) quick: bool,
    /// How often each arm runs
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) runs: Option<u16>,
}

impl Common {
    /// How often each arm runs, if `usual` is what makes sense for a command.
    pub(crate) fn runs(&self, usual: u16) -> usize {
        usize::from(self.runs.unwrap_or(if self.quick { 1 } else { usual }))
    }

    /// Puts the versions into a report, and says who is missing.
    pub(crate) fn versions(&self, report: &mut Report, tidegate: &Path, peers: &[Peer]) {
        let ours = clients::version(&mut Command::new(tidegate)).unwrap_or_else(|| "unknown".to_owned());
        report.version("tidegate", ours);
        for peer in peers {
            match peer.version() {
                Some(version) => report.version(peer.word(), version),
                None => report.note(format!("{} is missing: it is not installed", peer.word())),
            }
        }
        if self.quick {
            report.note("quick: these figures only show that the command works");
        }
        if cfg!(debug_assertions) {
            report.note("this tidegate-bench is a debug build");
        }
    }
}

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Speed, processor time and memory of one large file
    Throughput {
        /// Other programs in the comparison
        #[command(flatten)]
        peers: PeerArgs,
        /// The rest.
        #[command(flatten)]
        args: ThroughputArgs,
    },
    /// The same work by curl, aria2c, axel and wget2, side by side
    Peers {
        /// Other programs in the comparison
        #[command(flatten)]
        peers: PeerArgs,
        /// The rest.
        #[command(flatten)]
        args: ThroughputArgs,
    },
    /// Many files at once: failures, time, and peak memory
    Load(LoadArgs),
    /// Allocations while a transfer is steady
    AllocCheck(AllocArgs),
    /// Peak memory with a disk that is slower than the line
    SlowWriter(SlowArgs),
    /// How evenly a limit is shared, and what leaves the server's sockets
    Fairness(FairArgs),
    /// Time over ideal time, on lines that misbehave
    Line(LineArgs),
    /// What it costs to have the engine in a process of its own
    ModeCost(ModeArgs),
    /// What the boundary around the engine costs, in one table
    Boundary(ModeArgs),
    /// Serves files (started by the other commands)
    #[command(hide = true)]
    Serve(Rules),
    /// A bare loop (started by the other commands)
    #[command(hide = true)]
    Floor(FloorArgs),
    /// Downloads by the engine as a library, and looks at itself (started by the other commands)
    #[command(hide = true)]
    Probe(ProbeArgs),
}

impl Task {
    /// Whether another command of this program starts it, and ends it.
    pub(crate) fn is_a_part(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::Floor(_) | Self::Probe(_))
    }
}

/// Which other programs take part.
#[derive(Args, Debug)]
pub(crate) struct PeerArgs {
    /// Other programs to compare with [default: depends on the command; those that are missing are named]
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with = "no_peers")]
    peers: Vec<Peer>,
    /// Compare with no other program
    #[arg(long)]
    no_peers: bool,
}

impl PeerArgs {
    /// Those asked for, else `usual`.
    pub(crate) fn or(&self, usual: &[Peer]) -> Vec<Peer> {
        match (self.no_peers, self.peers.is_empty()) {
            (true, _) => Vec::new(),
            (false, true) => usual.to_vec(),
            (false, false) => self.peers.clone(),
        }
    }
}

/// What `throughput` and `peers` are told.
#[derive(Args, Debug)]
pub(crate) struct ThroughputArgs {
    /// Size of the file [default: 1G]
    #[arg(long, value_parser = size)]
    pub(crate) size: Option<u64>,
    /// Connections, at most; more than one number for more than one arm [default: 4,8]
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) connections: Vec<u32>,
    /// Over TLS
    #[arg(long)]
    pub(crate) tls: bool,
    /// Folder to fetch into; may be given more than once [default: the one for temporary files, and /dev/shm]
    #[arg(long)]
    pub(crate) dir: Vec<PathBuf>,
    /// Behind a real queue: network namespaces, a pair of virtual cards, tbf. Needs root
    #[arg(long, value_enum)]
    pub(crate) link: Option<Speed>,
    /// Which server serves
    #[arg(long, value_enum, default_value_t)]
    pub(crate) server: ServerKind,
    /// Leave out the bare loops
    #[arg(long)]
    pub(crate) no_floors: bool,
    /// What ours must reach, in 10^6 bits a second
    #[arg(long, value_name = "MBPS", value_parser = number)]
    pub(crate) require_mbps: Option<f64>,
    /// What ours may use, in per cent of one core
    #[arg(long, value_name = "PCT", value_parser = number)]
    pub(crate) max_cpu_pct: Option<f64>,
    /// What ours may use of the processor time of another arm: curl=0.36, floor_copy=1.25
    #[arg(long, value_name = "ARM=RATIO", value_parser = named_number)]
    pub(crate) max_cpu_ratio: Vec<(String, f64)>,
    /// What ours must reach of the speed of another arm: floor_discard=0.98
    #[arg(long, value_name = "ARM=RATIO", value_parser = named_number)]
    pub(crate) require_speed_ratio: Vec<(String, f64)>,
}

/// What `load` is told.
#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    /// Files
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) tasks: u32,
    /// Files at a time [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) parallel: Option<u32>,
    /// Connections for each file
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) segments: u32,
    /// Size of each file [default: 4M]
    #[arg(long, value_parser = size)]
    pub(crate) task_size: Option<u64>,
    /// What the server gives each connection, so that all of them stand at once; 0 for all it can
    #[arg(long, default_value = "128k", value_parser = size)]
    pub(crate) rate: u64,
    /// Over TLS
    #[arg(long)]
    pub(crate) tls: bool,
    /// Folder to fetch into [default: the one for temporary files]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Other programs in the comparison
    #[command(flatten)]
    pub(crate) peers: PeerArgs,
    /// The most memory that ours may have at its peak (sum of Pss; the resident marks are told beside), in KiB
    #[arg(long, value_name = "KIB", value_parser = number)]
    pub(crate) require_rss_kb: Option<f64>,
    /// The most seconds that ours may take
    #[arg(long, value_name = "S", value_parser = number)]
    pub(crate) max_seconds: Option<f64>,
    /// The most connections that ours may open for all files together
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) max_connects: Option<f64>,
    /// Ours must be faster than each other program
    #[arg(long)]
    pub(crate) require_ahead: bool,
}

impl LoadArgs {
    /// Files at a time.
    pub(crate) fn parallel(&self) -> u32 {
        self.parallel.unwrap_or(self.tasks).min(self.tasks).min(1000)
    }
}

/// What `alloc-check` is told.
#[derive(Args, Debug)]
pub(crate) struct AllocArgs {
    /// Size of the file [default: 512M]
    #[arg(long, value_parser = size)]
    pub(crate) size: Option<u64>,
    /// How long allocations are counted, in seconds [default: 2]
    #[arg(long, value_name = "S", value_parser = number)]
    pub(crate) window_s: Option<f64>,
    /// Connections, at most
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) connections: u32,
    /// Over TLS
    #[arg(long)]
    pub(crate) tls: bool,
    /// Folder to fetch into [default: the one for temporary files]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Show the stacks of some allocations on standard error
    #[arg(long)]
    pub(crate) stacks: bool,
    /// The most allocations that there may be, in every arm
    #[arg(long, value_name = "N", value_parser = number)]
    pub(crate) max_allocations: Option<f64>,
}

/// What `slow-writer` is told.
#[derive(Args, Debug)]
pub(crate) struct SlowArgs {
    /// Size of the file [default: 512M]
    #[arg(long, value_parser = size)]
    pub(crate) size: Option<u64>,
    /// What the disk takes a second [default: 4M]
    #[arg(long, value_parser = size)]
    pub(crate) rate: Option<u64>,
    /// Connections, at most
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) connections: u32,
    /// Folder to fetch into [default: the one for temporary files]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// How many times the peak memory with a fast disk it may be
    #[arg(long, value_name = "RATIO", value_parser = number)]
    pub(crate) max_memory_ratio: Option<f64>,
}

/// What `fairness` is told.
#[derive(Args, Debug)]
pub(crate) struct FairArgs {
    /// Downloads at a time
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) tasks: u32,
    /// The limit for everything, in bytes a second
    #[arg(long, default_value = "4M", value_parser = size)]
    pub(crate) limit: u64,
    /// Connections for each download
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) connections: u32,
    /// How long it is watched, in seconds, after three to begin [default: 10]
    #[arg(long, value_name = "S", value_parser = number)]
    pub(crate) window_s: Option<f64>,
    /// Which demands; may be given more than once [default: all]
    #[arg(long, value_enum)]
    pub(crate) scenario: Vec<crate::fairness::Demands>,
    /// Folder to fetch into [default: the one for temporary files]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// The least that Jain's index may be, over downloads with equal demands
    #[arg(long, value_name = "INDEX", value_parser = number)]
    pub(crate) require_jain: Option<f64>,
    /// The most that may leave the server in any second, as a part of what engine and limit allow
    #[arg(long, value_name = "RATIO", value_parser = number)]
    pub(crate) max_second: Option<f64>,
}

/// What `line` is told.
#[derive(Args, Debug)]
pub(crate) struct LineArgs {
    /// Which line; may be given more than once [default: all]
    #[arg(long, value_enum)]
    pub(crate) scenario: Vec<crate::line::Scenario>,
    /// How long an ideal client would take, in seconds [default: 10]
    #[arg(long, value_name = "S", value_parser = number)]
    pub(crate) ideal_s: Option<f64>,
    /// Connections, at most
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=16))]
    pub(crate) connections: u32,
    /// What an honest connection gets, in bytes a second
    #[arg(long, default_value = "1M", value_parser = size)]
    pub(crate) rate: u64,
    /// Folder to fetch into [default: the one for temporary files]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Other programs in the comparison
    #[command(flatten)]
    pub(crate) peers: PeerArgs,
    /// How many times the ideal time ours may take, in each scenario
    #[arg(long, value_name = "RATIO", value_parser = number)]
    pub(crate) max_ratio: Option<f64>,
    /// Ours must be faster than each other program, in each scenario
    #[arg(long)]
    pub(crate) require_ahead: bool,
}

/// What `mode-cost` and `boundary` are told.
#[derive(Args, Debug)]
pub(crate) struct ModeArgs {
    /// Size of each file, in MiB [default: 256; boundary: 64]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) mib: Option<u64>,
    /// How often the engine's process is killed in all, idle and in the middle of a download [default: 100;
    /// boundary: 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) kills: Option<u32>,
    /// Over TLS
    #[arg(long)]
    pub(crate) tls: bool,
    /// Folder to fetch into [default: /dev/shm, where that is in memory, else the one for temporary files]
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Before each run wait until others leave the processors alone, for a minute at most
    #[arg(long)]
    pub(crate) calm: bool,
    /// Hold the child to every bar that docs/performance.md has for it
    #[arg(long)]
    pub(crate) bars: bool,
    /// The most that a figure of the child may be: start_us=2500
    #[arg(long, value_name = "METRIC=NUMBER", value_parser = named_number)]
    pub(crate) max: Vec<(String, f64)>,
    /// The least that a figure of the child may be: throughput_ratio=0.98
    #[arg(long, value_name = "METRIC=NUMBER", value_parser = named_number)]
    pub(crate) require: Vec<(String, f64)>,
}

/// A size, as tidegate reads them.
fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

fn number(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "this is no number".to_owned())?;
    if number.is_finite() && number >= 0.0 { Ok(number) } else { Err("0 or more is needed".to_owned()) }
}

fn named_number(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("a name and a number are divided by =")?;
    Ok((name.to_owned(), number(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for text in ["-1", "nan", "inf", "x", ""] {
            assert!(number(text).is_err(), "{text}");
        }
        assert_eq!(named_number("curl=0.36"), Ok(("curl".to_owned(), 0.36)));
        assert!(named_number("curl").is_err() && named_number("curl=-1").is_err());
        assert_eq!((size("4M"), size("0")), (Ok(4 << 20), Ok(0)));
        assert!(size("4X").is_err());
    }
}
