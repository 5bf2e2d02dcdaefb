//! `boundary`: what a boundary of ours costs beside the least that any costs, in one table.
//!
//! A column for each boundary and one for the floor, all of one run.

use crate::args::{Common, ModeArgs};
use crate::mode_cost::{self, CHILD, FLOOR, Plan};
use crate::report::Report;
use crate::trouble::Trouble;

/// The engine in a process of its own.
const ENGINE: &str = "engine";

/// The lines: a metric, and where it is found among the figures of `mode-cost`.
const LINES: [(&str, &str, &str); 11] = [
    ("start_us", "start_us", "us"),
    ("start_cpu_us", "start_cpu_us", "us"),
    ("start_faults", "start_faults", ""),
    ("handover_us", "handover_us", "us"),
    ("round_trip_us", "round_trip_spaced_us", "us"),
    ("round_trip_busy_us", "round_trip_busy_us", "us"),
    ("cpu_ratio", "cpu_ratio", ""),
    ("added_pss_kib", "added_pss_kib", "KiB"),
    ("crash_us", "crash_idle_us", "us"),
    ("crash_busy_us", "crash_busy_us", "us"),
    ("resume_us", "resume_us", "us"),
];

/// Measures.
///
/// # Errors
/// When something beside what is measured fails.
pub(crate) fn run(args: &ModeArgs, common: &Common) -> Result<Report, Trouble> {
    let mib = if common.quick { 8 } else { 64 };
    let found = mode_cost::measure(&Plan::new("boundary", args, common, mib, common.runs(5), 20), common)?;
    let title = "what it costs to have something in a process of its own, beside a process that does nothing";
    let mut report = Report::new("boundary", title);
    report.in_columns();
    for (metric, source, unit) in LINES {
        for (arm, of) in [(ENGINE, CHILD), (FLOOR, FLOOR)] {
            found.values_of(of, source).iter().for_each(|value| report.add(arm, metric, unit, *value));
        }
    }
    report.take_words_of(found);
    let here = |metric| LINES.iter().find(|(_, source, _)| *source == metric).map(|(name, ..)| *name);
    mode_cost::hold(&mut report, args, ENGINE, here);
    Ok(report)
}
