//! What is known of the downloads of this run.

use crate::style::{Tone, harmless};
use crate::trouble::{GOES_ON, advice};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tidegate_core::message::{EventKind, Phase, Progress, Proof};
use tidegate_core::units::{show_duration, show_rate, show_size};
use tidegate_core::{Code, Failure, Remedy};

/// The least time between two sentences about the same wait of one download.
const SAME_WAIT: Duration = Duration::from_secs(10);

/// Every download that is not finished, and how many are.
#[derive(Debug, Default)]
pub(crate) struct Board {
    rows: BTreeMap<u64, Row>,
    /// How many there were at the start.
    pub(crate) total: usize,
    /// How many are whole.
    pub(crate) done: usize,
    /// How many were given up.
    pub(crate) failed: usize,
    /// Nothing is fetched, only asked for.
    pub(crate) dry_run: bool,
    /// The bytes go out and stay nowhere.
    pub(crate) to_stdout: bool,
    /// When this machine lacks something (room on the disk, mostly), that is waited for.
    pub(crate) waits_for_machine: bool,
}

/// One download that is not finished.
#[derive(Debug)]
pub(crate) struct Row {
    /// The name as far as it is known.
    pub(crate) name: String,
    /// How far it is; `None` before its turn.
    pub(crate) progress: Option<Progress>,
    /// Whether it has begun.
    pub(crate) active: bool,
    /// Bytes from before this run.
    pub(crate) resumed: u64,
    began: Duration,
    last_wait: Option<(Code, Duration)>,
    /// How long the file is, once the server has said so.
    length: Option<u64>,
    /// What this machine lacks, while that is waited for: room on the disk, mostly.
    lacks: Option<Failure>,
}

/// A sentence for a person.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Said {
    /// How it is meant.
    pub(crate) tone: Tone,
    /// To whom it matters.
    pub(crate) weight: Weight,
    /// One line.
    pub(crate) text: String,
}

/// To whom a sentence matters, the most first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Weight {
    /// To everybody.
    Always,
    /// To everybody who has not asked for quiet.
    Usual,
    /// Where there is no picture of the progress.
    Log,
    /// To those who want to know everything.
    Verbose,
}

impl Said {
    /// A sentence.
    pub(crate) fn new(tone: Tone, weight: Weight, text: String) -> Self {
        Self { tone, weight, text }
    }
}

impl Board {
    /// Adds a download that has not begun.
    pub(crate) fn add(&mut self, job: u64, name: &str) {
        let row = Row {
            name: harmless(name),
            progress: None,
            active: false,
            resumed: 0,
            began: Duration::ZERO,
            last_wait: None,
            length: None,
            lacks: None,
        };
        self.rows.insert(job, row);
        self.total += 1;
    }

    /// Takes in what an engine tells. `now` is the time since the start of the run.
    pub(crate) fn progress(&mut self, job: u64, mut progress: Progress) {
        let Some(row) = self.rows.get_mut(&job) else { return };
        let goes_on = matches!(progress.phase, Phase::Proving | Phase::Fetching | Phase::Verifying);
        if goes_on && self.waits_for_machine {
            // So what was missing is there now.
            row.lacks = None;
        }
        if row.lacks.is_some() && !self.waits_for_machine {
            progress.phase = Phase::Paused;
        }
        if let (Phase::Probing, Some(failure)) = (&progress.phase, &row.lacks) {
            // The server has answered, and its answer waits: that is no asking.
            progress.phase = Phase::Waiting { failure: failure.clone(), retry_in: Duration::ZERO };
        }
        row.active = true;
        row.progress = Some(progress);
    }

    /// Takes in what happened, and says what a person should know of it.
    pub(crate) fn event(&mut self, job: u64, event: &EventKind, now: Duration) -> Vec<Said> {
        let Some(row) = self.rows.get_mut(&job) else { return Vec::new() };
        let said = match event {
            EventKind::Waiting { failure, .. }
                if matches!(failure.remedy, Remedy::Wait { .. }) && !self.waits_for_machine =>
            {
                // It stops for this, and the reason is told when it has.
                row.lacks = Some(failure.clone());
                Vec::new()
            }
            _ => row.event(event, now, self.dry_run, self.to_stdout),
        };
        match event {
            EventKind::Completed { .. } => {
                self.done += 1;
                self.rows.remove(&job);
            }
            EventKind::Failed { .. } => {
                self.failed += 1;
                self.rows.remove(&job);
            }
            EventKind::Paused { .. } | EventKind::Stopped { .. } => {
                self.rows.remove(&job);
            }
            _ => {}
        }
        said
    }

    /// The one who read standard output has gone, and a download with it. Says so.
    pub(crate) fn reader_left(&mut self, job: u64) -> Option<Said> {
        let row = self.rows.remove(&job)?;
        let text = format!("{}: stopped, since nobody reads standard output any more", row.name);
        Some(Said::new(Tone::Dim, Weight::Usual, text))
    }

    /// The downloads that have begun and are not finished, in the order they were asked for.
    pub(crate) fn active(&self) -> impl Iterator<Item = (u64, &Row)> {
        self.rows.iter().filter(|(_, row)| row.active).map(|(job, row)| (*job, row))
    }

    /// How many have not begun.
    pub(crate) fn queued(&self) -> usize {
        self.rows.values().filter(|row| !row.active).count()
    }

    /// The name of a download that is not finished.
    pub(crate) fn name(&self, job: u64) -> Option<&str> {
        self.rows.get(&job).map(|row| row.name.as_str())
    }
}

impl Row {
    fn event(&mut self, event: &EventKind, now: Duration, dry_run: bool, to_stdout: bool) -> Vec<Said> {
        let name = self.name.clone();
        let dim = |weight, text| vec![Said::new(Tone::Dim, weight, text)];
        match event {
            EventKind::Started { resumed_from } => {
                self.active = true;
                self.lacks = None;
                self.began = now;
                self.resumed = *resumed_from;
                match resumed_from {
                    0 => dim(Weight::Verbose, format!("{name}: begins")),
                    bytes => dim(Weight::Log, format!("{name}: {} are here from before", show_size(*bytes))),
                }
            }
            EventKind::Identified { url, length, resumable, .. } => {
                self.length = *length;
                let length = length.map_or_else(|| "unknown length".to_owned(), show_size);
                let again = !*resumable && self.resumed > 0;
                let cannot = match *resumable {
                    true => "",
                    false if again => {
                        "; it cannot be fetched from its middle: all of it comes again, and what is here is only \
                         compared with it"
                    }
                    false => "; an interruption would begin it again",
                };
                let weight = if dry_run || again { Weight::Usual } else { Weight::Log };
                dim(weight, harmless(&format!("{name}: {length} from {url}{cannot}")))
            }
            EventKind::Named { path } => {
                self.lacks = None;
                self.name = file_name(path);
                if self.name == name && !dry_run {
                    return Vec::new();
                }
                if dry_run {
                    let text = format!("{name}: would be called {}, if that is free", shown_path(path));
                    return dim(Weight::Usual, text);
                }
                dim(Weight::Verbose, format!("{name}: will be {}", shown_path(path)))
            }
            EventKind::Checkpointed { .. } => Vec::new(),
            EventKind::Waiting { failure, retry_in } => {
                if matches!(failure.remedy, Remedy::Wait { .. }) {
                    self.lacks = Some(failure.clone());
                }
                // A server that fails for hours makes no log of hours.
                let same = |(code, at): (Code, Duration)| code == failure.code && now < at + SAME_WAIT;
                if self.last_wait.is_some_and(same) {
                    return Vec::new();
                }
                self.last_wait = Some((failure.code, now));
                dim(Weight::Log, format!("{name}: {}", waiting(failure, *retry_in)))
            }
            EventKind::Restarted { failure } => {
                self.resumed = 0;
                let text = format!("{name}: begins again: {}", reason(failure));
                vec![Said::new(Tone::Note, Weight::Usual, text)]
            }
            EventKind::Notice { message } => {
                vec![Said::new(Tone::Note, Weight::Usual, format!("{name}: {}", harmless(message)))]
            }
            EventKind::Paused { have } | EventKind::Stopped { kept: have } => {
                let kept = if to_stdout { 0 } else { *have };
                if let Some(failure) = &self.lacks {
                    return failed(&name, failure, kept);
                }
                let text = match *have {
                    0 => "stopped, nothing of it is here yet".to_owned(),
                    have if to_stdout => format!("stopped after {}", show_size(have)),
                    have => format!("stopped, {} are kept", show_size(have)),
                };
                dim(Weight::Usual, format!("{name}: {text}"))
            }
            EventKind::Completed { .. } if dry_run => {
                let length = self.length.map_or_else(|| "unknown length".to_owned(), show_size);
                let text = format!("{name}: could be fetched, {length}");
                vec![Said::new(Tone::Good, Weight::Usual, text)]
            }
            EventKind::Completed { path, length, proof, already, received } => {
                let name = path.as_deref().map_or(name, shown_path);
                let took = now.saturating_sub(self.began);
                let text = match (*proof, *already) {
                    (Proof::Untouched, _) => {
                        format!("{name}: left as it is, as asked; nothing was fetched or compared")
                    }
                    (_, true) => format!("{name}: is here already, whole ({})", show_size(*length)),
                    (proof, false) => {
                        let account = account(*length, self.resumed.min(*length), *received, took);
                        format!("{name}: done, {account}{}", believed(proof))
                    }
                };
                vec![Said::new(Tone::Good, Weight::Usual, text)]
            }
            EventKind::Failed { failure, kept }
                if failure.code == Code::DigestMismatch
                    && *kept > 0
                    && self.length.is_none_or(|l| l == *kept) =>
            {
                wrong_whole(&name, failure, *kept)
            }
            EventKind::Failed { failure, kept } => failed(&name, failure, *kept),
        }
    }
}

/// Where the bytes of a whole file are from: what is from before and what was received is the length, and what
/// was received in vain.
fn account(length: u64, before: u64, received: u64, took: Duration) -> String {
    let mut text = show_size(length);
    if received == 0 {
        return if before > 0 { text + ", all of it from before" } else { text };
    }
    // A seam or an overlap of some KiB is not worth a word.
    let in_vain = Some(before.saturating_add(received).saturating_sub(length))
        .filter(|b| *b >= (length / 50).clamp(1, 1 << 20));
    match (before, in_vain) {
        (0, None) => {}
        (0, Some(_)) => text += &format!(": {} received", show_size(received)),
        (_, in_vain) => {
            let before = adding_up(length, before, received, in_vain.unwrap_or_default());
            text += &format!(": {} from before, {} received", show_size(before), show_size(received));
        }
    }
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    if millis > 0 {
        let rate = u64::try_from(u128::from(received) * 1000 / u128::from(millis)).unwrap_or(u64::MAX);
        text += &format!(" in {} ({})", show_duration(Duration::from_millis(millis)), show_rate(rate));
    }
    if let Some(in_vain) = in_vain {
        text += &format!(", {} of that not needed", show_size(in_vain));
    }
    text
}

/// What is from before, moved by less than is shown, so that the figures add up as they are shown: all are cut
/// off after a tenth, and 2.0 and 5.9 are not 8.0 to anybody.
fn adding_up(length: u64, before: u64, received: u64, in_vain: u64) -> u64 {
    let unit = 1u128 << (10 * (length.max(1).ilog2() / 10));
    if unit == 1 || u128::from(before.min(received)) < unit {
        // Shown in other units, which nobody adds to a tenth.
        return before;
    }
    let tenths = |bytes: u64| u128::from(bytes) * 10 / unit;
    let shown = (tenths(length) + tenths(in_vain)).saturating_sub(tenths(received));
    u64::try_from((shown * unit).div_ceil(10)).unwrap_or(before)
}

/// Why the bytes are believed, as the end of a sentence.
fn believed(proof: Proof) -> &'static str {
    match proof {
        Proof::Digest => "; it has the digest that it should",
        Proof::Validator => "; one version all along",
        Proof::Answers | Proof::Untouched => "",
        Proof::Sampled => "; compared in samples only; a digest (--checksum) would prove it",
    }
}

/// The sentences about a file that was given up.
pub(crate) fn failed(name: &str, failure: &Failure, kept: u64) -> Vec<Said> {
    let text = format!("{name}: {}", reason(failure));
    match kept {
        0 => vec![bad(text), next(&advice(failure).replace(GOES_ON, ""))],
        _ => vec![bad(format!("{text}; {} are kept", show_size(kept))), next(advice(failure))],
    }
}

/// The same about one that is whole and has the wrong digest: where it is wrong nobody knows.
fn wrong_whole(name: &str, failure: &Failure, kept: u64) -> Vec<Said> {
    let stay = format!(
        "{} stay in the .part file: with the right checksum the same command goes on from them, with this one it \
         fetches them again.",
        show_size(kept)
    );
    let text = format!("{name}: {}; it did not get its name", reason(failure));
    vec![bad(text), next(advice(failure)), next(&stay)]
}

fn bad(text: String) -> Said {
    Said::new(Tone::Bad, Weight::Always, text)
}

fn next(text: &str) -> Said {
    Said::new(Tone::Dim, Weight::Always, format!("  {text}"))
}

/// `server busy [busy]`.
pub(crate) fn reason(failure: &Failure) -> String {
    format!("{} [{}]", harmless(failure.message.trim_end_matches('.')), failure.code)
}

/// `waiting 3 s: server busy [busy]`.
pub(crate) fn waiting(failure: &Failure, retry_in: Duration) -> String {
    format!("{}: {}", waiting_for(retry_in), reason(failure))
}

/// `waiting 3 s`; for something that nobody knows the end of `waiting`.
pub(crate) fn waiting_for(retry_in: Duration) -> String {
    // To the nearest second: a wait of 1 s and a little for the dice is none of 2 s.
    match retry_in.as_millis() {
        0 => "waiting".to_owned(),
        millis => format!("waiting {} s", ((millis + 500) / 1000).max(1)),
    }
}

/// What a download does when it does not simply fetch.
pub(crate) fn state(phase: &Phase) -> Option<String> {
    Some(match phase {
        Phase::Fetching => return None,
        Phase::Queued => "waits for its turn".to_owned(),
        Phase::Probing => "asking the server".to_owned(),
        Phase::Proving => "comparing what is here".to_owned(),
        Phase::Waiting { failure, retry_in } => waiting(failure, *retry_in),
        Phase::WaitingForDisk => "waiting for disk".to_owned(),
        Phase::Verifying => "checking".to_owned(),
        Phase::Paused => "stopped".to_owned(),
        Phase::Completed => "done".to_owned(),
        Phase::Failed => "failed".to_owned(),
    })
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| shown_path(path), |name| harmless(&name.to_string_lossy()))
}

fn shown_path(path: &Path) -> String {
    let shown = path.to_string_lossy();
    harmless(shown.strip_prefix("./").unwrap_or(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn board() -> Board {
        let mut board = Board::default();
        board.add(1, "a.iso");
        board
    }

    fn progress(phase: Phase) -> Progress {
        Progress {
            id: tidegate_core::DownloadId(1),
            phase,
            have: 512,
            received: 512,
            length: None,
            speed: 0,
            left: None,
            connections: 1,
            segments: Vec::new(),
            map: Vec::new(),
            requests: 1,
        }
    }

    fn texts(said: &[Said]) -> Vec<&str> {
        said.iter().map(|s| s.text.as_str()).collect()
    }

    fn completed(proof: Proof, already: bool, received: u64) -> EventKind {
        EventKind::Completed { path: Some("./a.iso".into()), length: 3 << 20, proof, already, received }
    }

    #[test]
    fn bytes_from_before_are_told_apart() {
        let mut board = board();
        let said = board.event(1, &EventKind::Started { resumed_from: 1 << 20 }, SECOND);
        assert_eq!(texts(&said), ["a.iso: 1.0 MiB are here from before"]);
        let said = board.event(1, &completed(Proof::Validator, false, 2 << 20), 3 * SECOND);
        assert_eq!(
            texts(&said),
            [
                "a.iso: done, 3.0 MiB: 1.0 MiB from before, 2.0 MiB received in 2s (1.0 MiB/s); one version all along"
            ]
        );
        assert_eq!((board.done, board.active().count()), (1, 0));
    }

    #[test]
    fn what_is_from_before_and_what_was_received_add_up_to_the_length_and_what_was_in_vain() {
        let (mib, second) = (1u64 << 20, SECOND);
        for (length, before, received, text) in [
            (3 * mib, 0, 3 * mib, "3.0 MiB in 1s (3.0 MiB/s)"),
            (3 * mib, mib, 2 * mib, "3.0 MiB: 1.0 MiB from before, 2.0 MiB received in 1s (2.0 MiB/s)"),
            // A seam of 4 KiB is no news.
            (3 * mib, 0, 3 * mib + 4096, "3.0 MiB in 1s (3.0 MiB/s)"),
            (
                3 * mib,
                mib,
                4 * mib,
                "3.0 MiB: 1.0 MiB from before, 4.0 MiB received in 1s (4.0 MiB/s), 2.0 MiB of that not needed",
            ),
            (2 * mib, 0, 3 * mib, "2.0 MiB: 3.0 MiB received in 1s (3.0 MiB/s), 1.0 MiB of that not needed"),
            (3 * mib, 3 * mib, 0, "3.0 MiB, all of it from before"),
            // As cut off these would be 2.0 and 5.9 of 8.0.
            (
                8 * mib,
                2 * mib + 60_000,
                6 * mib - 60_000,
                "8.0 MiB: 2.1 MiB from before, 5.9 MiB received in 1s (5.9 MiB/s)",
            ),
            (0, 0, 0, "0 B"),
        ] {
            assert_eq!(account(length, before, received, second), text);
        }
    }

    #[test]
    fn bytes_of_a_version_that_was_given_up_are_not_called_from_before() {
        let mut board = board();
        board.event(1, &EventKind::Started { resumed_from: 1 << 20 }, SECOND);
        let failure = Failure::new(Code::Changed, "the remote file changed");
        board.event(1, &EventKind::Restarted { failure }, SECOND);
        let said = board.event(1, &completed(Proof::Answers, false, 3 << 20), 2 * SECOND);
        assert_eq!(texts(&said), ["a.iso: done, 3.0 MiB in 1s (3.0 MiB/s)"]);
    }

    #[test]
    fn what_becomes_of_bytes_with_a_wrong_digest_is_said() {
        let failure = Failure::new(Code::DigestMismatch, "the file should have md5=00, but it has md5=11");
        let said = board().event(1, &EventKind::Failed { failure: failure.clone(), kept: 3 << 20 }, SECOND);
        let texts = texts(&said);
        assert_eq!(
            texts[0],
            "a.iso: the file should have md5=00, but it has md5=11 [digest-mismatch]; it did not get its name"
        );
        assert!(
            texts[2].contains("3.0 MiB stay in the .part file") && texts[2].contains("fetches them again")
        );
        // What went to standard output stays nowhere.
        let said = board().event(1, &EventKind::Failed { failure: failure.clone(), kept: 0 }, SECOND);
        assert_eq!(said.len(), 2);
        // Of pieces only the wrong ones are fetched again.
        let mut pieces = board();
        let length = Some(3 << 20);
        let url = "http://h/a.iso".to_owned();
        pieces.event(1, &EventKind::Identified { url, length, resumable: true, content_type: None }, SECOND);
        let said = pieces.event(1, &EventKind::Failed { failure, kept: 2 << 20 }, SECOND);
        assert!(said.len() == 2 && said[0].text.ends_with("; 2.0 MiB are kept"), "{said:?}");
    }

    #[test]
    fn nothing_is_called_kept_that_went_to_standard_output_or_never_came() {
        let mut to_stdout = Board { to_stdout: true, ..board() };
        assert_eq!(
            texts(&to_stdout.event(1, &EventKind::Paused { have: 512 }, SECOND)),
            ["a.iso: stopped after 512 B"]
        );
        let said = board().event(1, &EventKind::Paused { have: 0 }, SECOND);
        assert_eq!(texts(&said), ["a.iso: stopped, nothing of it is here yet"]);
        let failure = Failure::new(Code::ConnectionLost, "the connection was lost");
        let said = board().event(1, &EventKind::Failed { failure: failure.clone(), kept: 0 }, SECOND);
        assert_eq!(said[1].text, "  Run the same command again.");
        let said = board().event(1, &EventKind::Failed { failure, kept: 512 }, SECOND);
        assert_eq!(said[1].text, "  Run the same command again: it goes on from what is here.");
    }

    #[test]
    fn why_a_download_was_stopped_by_its_machine_is_said_to_everybody() {
        let mut board = board();
        let failure = Failure::new(Code::DiskFull, "there is no room on /data");
        let waits = EventKind::Waiting { failure, retry_in: SECOND };
        // It does not wait, so that is not said; and what it does until it has stopped changes nothing.
        assert_eq!(texts(&board.event(1, &waits, SECOND)), Vec::<&str>::new());
        for phase in [Phase::Fetching, Phase::Paused] {
            board.progress(1, progress(phase));
            assert_eq!(board.active().next().unwrap().1.progress.as_ref().unwrap().phase, Phase::Paused);
        }
        let said = board.event(1, &EventKind::Paused { have: 512 }, SECOND);
        assert_eq!(said[0].text, "a.iso: there is no room on /data [disk-full]; 512 B are kept");
        assert!(said[1].text.contains("run the same command again"), "{said:?}");
        assert_eq!(said[0].weight, Weight::Always);

        // When it is waited for and there was room again, it is not the reason any more.
        let mut board = Board { waits_for_machine: true, ..self::board() };
        let said = board.event(1, &waits, SECOND);
        assert_eq!(texts(&said), ["a.iso: waiting 1 s: there is no room on /data [disk-full]"]);
        board.event(1, &EventKind::Named { path: "./a.iso".into() }, SECOND);
        let said = board.event(1, &EventKind::Paused { have: 512 }, SECOND);
        assert_eq!(texts(&said), ["a.iso: stopped, 512 B are kept"]);
    }

    #[test]
    fn a_wait_of_which_nobody_knows_the_end_counts_no_seconds() {
        let failure = Failure::new(Code::DiskFull, "there is no room");
        assert_eq!(waiting(&failure, Duration::ZERO), "waiting: there is no room [disk-full]");
        for (millis, text) in [(1, "waiting 1 s"), (1200, "waiting 1 s"), (1500, "waiting 2 s")] {
            assert_eq!(waiting_for(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_proof_by_samples_is_not_passed_over_in_silence() {
        let said = board().event(1, &completed(Proof::Sampled, false, 3 << 20), 3 * SECOND);
        assert!(said[0].text.ends_with("compared in samples only; a digest (--checksum) would prove it"));
        let said = board().event(1, &completed(Proof::Sampled, true, 0), 3 * SECOND);
        assert_eq!(texts(&said), ["a.iso: is here already, whole (3.0 MiB)"]);
    }

    #[test]
    fn a_dry_run_does_not_claim_to_have_fetched() {
        let mut board = Board { dry_run: true, ..board() };
        let path = "./b.iso".into();
        assert_eq!(
            texts(&board.event(1, &EventKind::Named { path }, SECOND)),
            ["a.iso: would be called b.iso, if that is free"]
        );
        let url = "http://h/a.iso".to_owned();
        let length = Some(1 << 20);
        board.event(1, &EventKind::Identified { url, length, resumable: true, content_type: None }, SECOND);
        let event = EventKind::Completed {
            path: None,
            length: 1 << 20,
            proof: Proof::Answers,
            already: false,
            received: 0,
        };
        assert_eq!(texts(&board.event(1, &event, SECOND)), ["b.iso: could be fetched, 1.0 MiB"]);
    }

    #[test]
    fn what_must_be_fetched_again_is_told_once_that_is_known() {
        let mut board = board();
        board.event(1, &EventKind::Started { resumed_from: 1 << 20 }, SECOND);
        let url = "http://h/a.iso".to_owned();
        let length = Some(3 << 20);
        let event = EventKind::Identified { url, length, resumable: false, content_type: None };
        let said = board.event(1, &event, SECOND);
        assert_eq!(
            texts(&said),
            [
                "a.iso: 3.0 MiB from http://h/a.iso; it cannot be fetched from its middle: all of it comes again, and \
                 what is here is only compared with it"
            ]
        );
        assert_eq!(said[0].weight, Weight::Usual);
    }

    #[test]
    fn a_failure_says_its_code_its_reason_and_what_to_do() {
        let failure = Failure::new(Code::DiskFull, "there is no room on /data.");
        let said = board().event(1, &EventKind::Failed { failure, kept: 512 }, SECOND);
        assert_eq!(said[0].text, "a.iso: there is no room on /data [disk-full]; 512 B are kept");
        assert!(said[1].text.contains("run the same command again"), "{}", said[1].text);
    }

    #[test]
    fn a_server_that_fails_for_hours_makes_no_log_of_hours() {
        let mut board = board();
        let wait = |code| EventKind::Waiting { failure: Failure::new(code, "no"), retry_in: SECOND };
        let told: usize =
            (0..100).map(|tenth| board.event(1, &wait(Code::Busy), SECOND * tenth / 10).len()).sum();
        assert_eq!(told, 1);
        assert_eq!(board.event(1, &wait(Code::Stalled), 10 * SECOND).len(), 1);
        assert_eq!(texts(&board.event(1, &wait(Code::Busy), 10 * SECOND)), ["a.iso: waiting 1 s: no [busy]"]);
    }

    #[test]
    fn what_a_server_says_cannot_steer_the_terminal() {
        let mut board = board();
        let failure = Failure::new(Code::ServerError, "500 \x1b[2J\r\u{202e}");
        let said = board.event(1, &EventKind::Restarted { failure }, SECOND);
        assert_eq!(said[0].text, "a.iso: begins again: 500 ?[2J?? [server-error]");
        board.event(1, &EventKind::Named { path: "b\x1bc".into() }, SECOND);
        assert_eq!(board.name(1), Some("b?c"));
    }
}
