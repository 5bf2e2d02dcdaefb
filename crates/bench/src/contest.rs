//! Arms that fetch one file, in turns, each run a fresh process.

use crate::clients::{Client, Fetch};
use crate::files;
use crate::interrupt;
use crate::process::{Manner, Ran, run};
use crate::report::Report;
use crate::site::{Counts, Site};
use crate::slow_disk::Pacing;
use crate::trouble::Trouble;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One arm.
#[derive(Clone, Debug)]
pub(crate) struct Arm {
    /// What it is called in the results.
    pub(crate) label: String,
    /// What fetches.
    pub(crate) client: Client,
    /// With how many connections, at most.
    pub(crate) connections: u32,
    /// Into which folder.
    pub(crate) dir: PathBuf,
}

/// What all arms share.
#[derive(Debug)]
pub(crate) struct Contest<'a> {
    /// The `tidegate` to run.
    pub(crate) tidegate: &'a Path,
    /// The file that is served.
    pub(crate) source: &'a Path,
    /// Its length.
    pub(crate) size: u64,
    /// How often each arm runs.
    pub(crate) runs: usize,
    /// How long one run may take.
    pub(crate) patience: Duration,
    /// The disk is so slow, in bytes a second.
    pub(crate) disk: Option<u64>,
}

/// One run that fetched the file, and fetched it right.
#[derive(Debug)]
pub(crate) struct Good<'a> {
    /// Of which arm.
    pub(crate) arm: &'a Arm,
    /// What it used.
    pub(crate) ran: Ran,
    /// What the server counted meanwhile, if it tells.
    pub(crate) counts: Option<Counts>,
}

impl Contest<'_> {
    /// Runs every arm as often as asked, one after the other, beginning with another one in each round, and
    /// hands each good run to `took`. Runs that failed are told in the report: those of ours as failures.
    ///
    /// # Errors
    /// When the server, the folders or this program fail, and not what is measured.
    pub(crate) fn hold<'a>(
        &self,
        site: &mut Site,
        arms: &'a [Arm],
        report: &mut Report,
        mut took: impl FnMut(&mut Report, Good<'a>),
    ) -> Result<(), Trouble> {
        let home = tempfile::tempdir().map_err(|e| Trouble::failed("make a folder", &e))?;
        let name = self.source.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Trouble::new("the source has no name"))?;
        let mut warmed: Vec<&Path> = Vec::new();
        for arm in arms {
            if !warmed.contains(&arm.dir.as_path()) {
                let room = files::room(&arm.dir).map_err(|e| Trouble::failed("look at the folder", &e))?;
                if room < self.size + (64 << 20) {
                    let dir = arm.dir.display();
                    return Err(Trouble::usage(format!("{dir} has no room for {} bytes", self.size)));
                }
                files::warm(self.source, &arm.dir).map_err(|e| Trouble::failed("warm the machine", &e))?;
                warmed.push(&arm.dir);
            }
        }
        for round in 0..self.runs {
            for turn in 0..arms.len() {
                let arm = &arms[(turn + round) % arms.len()];
                interrupt::check()?;
                let out = tempfile::tempdir_in(&arm.dir).map_err(|e| Trouble::failed("make a folder", &e))?;
                let pacing = self.disk.map(|rate| Pacing::new(out.path(), rate)).transpose();
                let pacing = pacing.map_err(|e| Trouble::failed("find the folder", &e))?;
                let fetch = Fetch {
                    tidegate: self.tidegate,
                    site,
                    name,
                    size: self.size,
                    dir: out.path(),
                    out: "fetched",
                    connections: arm.connections,
                    home: home.path(),
                };
                let mut command = arm.client.command(&fetch)?;
                site.counts()?;
                let manner = Manner { pacing: pacing.as_ref(), ..Manner::default() };
                let ran = run(&mut command, self.patience, &manner);
                let ran = ran.map_err(|e| Trouble::failed(&format!("run {}", arm.label), &e))?;
                let counts = site.counts()?;
                if let Some(pacing) = &pacing {
                    let (spliced, written) = pacing.bytes_by_way();
                    report.add(&arm.label, "spliced_kib", "KiB", spliced as f64 / 1024.0);
                    report.add(&arm.label, "written_kib", "KiB", written as f64 / 1024.0);
                }
                match self.verdict(arm, &ran, &out.path().join("fetched")) {
                    None => took(report, Good { arm, ran, counts }),
                    Some(trouble) => {
                        report.add(&arm.label, "failed_runs", "runs", 1.0);
                        let text = format!("{} in round {}: {trouble}", arm.label, round + 1);
                        if arm.client.is_ours() { report.fail(text) } else { report.note(text) }
                    }
                }
                drop(out);
            }
        }
        Ok(())
    }

    /// Why a run does not count, if it does not.
    fn verdict(&self, arm: &Arm, ran: &Ran, fetched: &Path) -> Option<String> {
        if let Some(trouble) = ran.trouble() {
            return Some(trouble);
        }
        match arm.client {
            Client::Floor(floor) if !floor.fetches() => None,
            _ => match files::same(self.source, fetched) {
                Ok(true) => None,
                Ok(false) => Some(format!(
                    "the file is not the one that was served ({} of {} bytes)",
                    fs::metadata(fetched).map_or(0, |data| data.len()),
                    self.size
                )),
                Err(error) => Some(format!("there is no file to compare: {error}")),
            },
        }
    }
}
