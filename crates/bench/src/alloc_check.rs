//! `alloc-check`: allocations while a transfer is steady, over all threads.

use crate::args::{AllocArgs, Common};
use crate::clients::{bare, this_program};
use crate::files;
use crate::interrupt;
use crate::process::{Manner, run as run_program};
use crate::report::{Bar, Report};
use crate::server::Rules;
use crate::site::Site;
use crate::tls;
use crate::trouble::Trouble;
use serde_json::Value;
use std::io::{self, Read, Seek, Write};
use std::time::Duration;

/// The ways in which a transfer is steady.
const ARMS: [(&str, Held, bool); 4] = [
    ("limited", Held::ByUs, true),
    ("paced", Held::ByServer, true),
    ("limited_quiet", Held::ByUs, false),
    ("paced_quiet", Held::ByServer, false),
];

/// What keeps a transfer from being over at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Held {
    /// The engine's own limit.
    ByUs,
    /// The server, and nothing is limited here.
    ByServer,
}

/// Measures.
///
/// # Errors
/// When something beside what is measured fails.
pub(crate) fn run(args: &AllocArgs, common: &Common) -> Result<Report, Trouble> {
    let size = args.size.unwrap_or(512 << 20);
    let window = args.window_s.unwrap_or(if common.quick { 0.5 } else { 2.0 }).clamp(0.1, 600.0);
    // So that it is still under way when the window closes, with as much time again to become steady.
    let rate = ((size as f64 / (window + 6.0)) as u64).max(1);
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let failed = |e| Trouble::failed("make what is served", &e);
    let work = tempfile::tempdir().map_err(failed)?;
    files::make(&work.path().join("source.bin"), size, 3).map_err(failed)?;
    let identity = if args.tls {
        let folder = work.path().join(".identity");
        std::fs::create_dir(&folder).map_err(failed)?;
        tls::make_identity(&folder, &["127.0.0.1".to_owned()]).map_err(failed)?;
        Some(folder)
    } else {
        None
    };
    let title = format!(
        "{} MiB over {} connections by {} at {} KiB/s, counted for {window} s once it is steady",
        size >> 20,
        args.connections,
        if args.tls { "https" } else { "http" },
        rate >> 10,
    );
    let mut report = Report::new("alloc-check", title);
    report.note("the engine as a library in this program, set up as tidegate get does it");
    report.note("quiet: nobody asks for progress; else it is asked for ten times a second");
    if common.quick {
        report.note("quick: the window is short");
    }
    let runs = common.runs(1);
    for round in 0..runs {
        for turn in 0..ARMS.len() {
            let (arm, held, progress) = ARMS[(turn + round) % ARMS.len()];
            interrupt::check()?;
            let each = (rate / u64::from(args.connections)).max(1);
            let rules = Rules {
                root: work.path().to_owned(),
                identity: identity.clone(),
                rate: (held == Held::ByServer).then_some(each),
                ..Rules::default()
            };
            let site = Site::start(&rules, None)?;
            let out = tempfile::tempdir_in(&dir).map_err(|e| Trouble::failed("make a folder", &e))?;
            let mut command = bare(&this_program()?, out.path());
            command.args(["probe", "alloc", "--url", &site.url("source.bin"), "--dir"]).arg(out.path());
            command.args(["--connections", &args.connections.to_string()]);
            command.args(["--window-ms", &((window * 1000.0) as u64).to_string()]);
            if let Some(authority) = &site.authority {
                command.arg("--authority").arg(authority);
            }
            if held == Held::ByUs {
                command.args(["--limit", &rate.to_string()]);
            }
            if progress {
                command.arg("--progress");
            }
            if args.stacks {
                command.arg("--stacks");
            }
            let mut output = tempfile::tempfile().map_err(|e| Trouble::failed("make a file", &e))?;
            let manner = Manner { output: Some(&output), ..Manner::default() };
            let patience = Duration::from_secs_f64(60.0 + window);
            let ran = run_program(&mut command, patience, &manner);
            let ran = ran.map_err(|e| Trouble::failed("run the engine", &e))?;
            if let Some(trouble) = ran.trouble() {
                report.fail(format!("{arm}: {trouble}"));
                continue;
            }
            let mut text = String::new();
            let read = output.rewind().and_then(|()| output.read_to_string(&mut text));
            read.map_err(|e| Trouble::failed("hear from the engine", &e))?;
            let told: Value = serde_json::from_str(&text).unwrap_or_default();
            for stack in told["stacks"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let _ = writeln!(io::stderr(), "{arm}, an allocation:\n{stack}");
            }
            let count = |name: &str| told[name].as_f64().unwrap_or(f64::NAN);
            report.add(arm, "allocations", "", count("allocations"));
            for (thread, number) in told["threads"].as_object().into_iter().flatten() {
                let metric = format!("allocations_{}", thread.replace('-', "_"));
                report.add(arm, &metric, "", number.as_f64().unwrap_or(f64::NAN));
            }
            report.add(arm, "connections", "", count("connections"));
            report.add(arm, "bytes_in_window", "B", count("bytes"));
        }
    }
    report.hold("allocations", args.max_allocations.map(Bar::Max), |_| true);
    Ok(report)
}
