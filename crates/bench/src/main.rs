//! `tidegate-bench`: what Tidegate costs, measured by commands that anyone can run.
//!
//! Each command starts a server (a process of its own), has the program that users get fetch from it, and tells
//! speed, processor time, memory or counts, as a table or as JSON, held to the bars that were asked for.

mod alloc_check;
mod args;
mod bare;
mod boundary;
mod clients;
mod contest;
mod fairness;
mod files;
mod floor;
mod interrupt;
mod line;
mod link;
mod load;
mod machine;
mod mode_cost;
mod mode_probe;
mod probe;
mod process;
mod report;
mod server;
mod site;
mod slow_disk;
mod slow_writer;
mod sys;
mod throughput;
mod tls;
mod trouble;

use args::{Cli, Task};
use clap::Parser;
use clients::Peer;
use std::io::{self, Write};
use std::process::ExitCode;
use trouble::Trouble;

/// Measured, and every bar holds.
const WELL: u8 = 0;
/// A bar was missed, or something failed.
const FAILED: u8 = 1;
/// The command makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // The engine's process, and what it is compared with, are this same program.
    if let Some(code) = tidegate_engine::run_if_child().or_else(bare::run_if_bare) {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody is left to be told that nobody is left.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE));
        }
    };
    let code = run(cli).unwrap_or_else(|trouble| {
        let _ = writeln!(io::stderr(), "tidegate-bench: {trouble}");
        if trouble.is_usage { USAGE } else { FAILED }
    });
    ExitCode::from(code)
}

fn run(cli: Cli) -> Result<u8, Trouble> {
    let common = cli.common;
    let failed = |what: &'static str| move |error: io::Error| Trouble::failed(what, &error);
    if !cli.task.is_a_part() {
        interrupt::watch().map_err(failed("watch for signals"))?;
    }
    let report = match cli.task {
        Task::Serve(rules) => return server::serve(rules).map(|()| WELL).map_err(failed("serve")),
        Task::Floor(args) => return floor::run(&args).map(|()| WELL).map_err(failed("run the loop")),
        Task::Probe(args) => return probe::run(&args).map(|()| WELL),
        Task::Throughput { peers, args } => {
            throughput::run("throughput", &peers.or(&[Peer::Curl, Peer::Aria2c]), &args, &common)?
        }
        Task::Peers { peers, args } => throughput::run("peers", &peers.or(&Peer::ALL), &args, &common)?,
        Task::Load(args) => load::run(&args, &common)?,
        Task::AllocCheck(args) => alloc_check::run(&args, &common)?,
        Task::SlowWriter(args) => slow_writer::run(&args, &common)?,
        Task::Fairness(args) => fairness::run(&args, &common)?,
        Task::Line(args) => line::run(&args, &common)?,
        Task::ModeCost(args) => mode_cost::run(&args, &common)?,
        Task::Boundary(args) => boundary::run(&args, &common)?,
    };
    let well = report.print(common.json).map_err(failed("print"))?;
    Ok(if well { WELL } else { FAILED })
}
