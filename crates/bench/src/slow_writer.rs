//! `slow-writer`: peak memory when the disk is slower than the line.

use crate::args::{Common, SlowArgs};
use crate::clients::{self, Client};
use crate::contest::{Arm, Contest, Good};
use crate::files;
use crate::report::{Bar, Report};
use crate::server::Rules;
use crate::site::Site;
use crate::trouble::Trouble;
use std::time::Duration;

/// Measures.
///
/// # Errors
/// When something beside what is measured fails.
pub(crate) fn run(args: &SlowArgs, common: &Common) -> Result<Report, Trouble> {
    let tidegate = clients::find_tidegate(common.tidegate.as_deref())?;
    let size = args.size.unwrap_or(if common.quick { 8 << 20 } else { 512 << 20 });
    let rate = args.rate.unwrap_or(4 << 20).max(1);
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let failed = |e| Trouble::failed("make what is served", &e);
    let work = tempfile::tempdir().map_err(failed)?;
    let source = work.path().join("source.bin");
    files::make(&source, size, 4).map_err(failed)?;
    let rules = Rules { root: work.path().to_owned(), ..Rules::default() };
    let mut site = Site::start(&rules, None)?;

    let title =
        format!("{} MiB to a disk of {} KiB/s, and to the same folder unhindered", size >> 20, rate >> 10);
    let mut report = Report::new("slow-writer", title);
    common.versions(&mut report, &tidegate, &[]);
    report.note(
        "the slow disk: the kernel holds each write, pwrite and splice of the program into its folder for as \
         long as it would take (seccomp user notification); no page cache stands in between",
    );
    let arm = |label: &str| Arm {
        label: label.to_owned(),
        client: Client::OursSynced,
        connections: args.connections,
        dir: dir.clone(),
    };
    let arms =
        [("slow", Some(rate)), ("fast", None)].map(|(label, disk)| ([arm(&format!("ours/{label}"))], disk));
    for round in 0..common.runs(1) {
        for turn in 0..arms.len() {
            let (arms, disk) = &arms[(turn + round) % arms.len()];
            let patience = Duration::from_secs(60 + 2 * size / disk.unwrap_or(8 << 20));
            let contest =
                Contest { tidegate: &tidegate, source: &source, size, runs: 1, patience, disk: *disk };
            contest.hold(&mut site, arms, &mut report, |report, good| note(report, &good))?;
        }
    }
    let ideal = size as f64 / rate as f64;
    if let Some(seconds) = report.median_of("ours/slow", "seconds") {
        report.add("ours/slow", "ratio_to_ideal", "", seconds / ideal);
    }
    for (metric, ratio) in
        [("vm_hwm_kib", "vm_hwm_ratio_to_fast"), ("peak_pss_kib", "peak_pss_ratio_to_fast")]
    {
        let pair = report.median_of("ours/slow", metric).zip(report.median_of("ours/fast", metric));
        if let Some((slow, fast)) = pair {
            report.add("ours/slow", ratio, "", slow / fast);
        }
        report.hold(ratio, args.max_memory_ratio.map(Bar::Max), |_| true);
    }
    Ok(report)
}

fn note(report: &mut Report, good: &Good<'_>) {
    let (arm, ran) = (good.arm.label.as_str(), &good.ran);
    report.add(arm, "seconds", "s", ran.wall.as_secs_f64());
    report.add(arm, "cpu_s", "s", ran.cpu.as_secs_f64());
    report.add(arm, "peak_pss_kib", "KiB", ran.peak_pss_kib as f64);
    report.add(arm, "vm_hwm_kib", "KiB", ran.vm_hwm_kib as f64);
    if let Some(counts) = &good.counts {
        report.add(arm, "connects", "", counts.of("connects") as f64);
        report.add(arm, "requests", "", counts.of("requests") as f64);
    }
}
