//! The picture of the progress, as lines. Pure: the same board makes the same lines.

use super::board::{Board, Row, reason, state, waiting_for};
use super::line::{Field, line};
use super::map::map;
use crate::style::{Style, columns, cut, wrap};
use std::time::Duration;
use tidegate_core::message::{Phase, Progress};
use tidegate_core::units::{show_duration, show_rate, show_size};

/// From so many columns on there is room for everything.
const WIDE: usize = 100;

/// The picture in at most `width` columns and `height` lines. What has no room is counted in the last
/// line, so nothing is hidden in silence. With `maps` a map of its parts is below each file.
pub(crate) fn render(board: &Board, width: usize, height: usize, maps: bool, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    let many = board.total > 1;
    // The total needs a line, and so does the count of what has no room.
    let height = height.max(1);
    let room = height.saturating_sub(usize::from(many) + 1).max(1);
    let mut hidden = 0usize;
    let blocks: Vec<(&Row, Vec<String>)> = board
        .active()
        .map(|(_, row)| {
            let map = row.progress.as_ref().filter(|_| maps).map(|progress| map(progress, width, style));
            (
                row,
                [Some(row_line(row, width, style)), map.filter(|map| !map.is_empty())]
                    .into_iter()
                    .flatten()
                    .collect(),
            )
        })
        .collect();
    // Lines that no download needs say why one waits, which is never cut off there.
    let mut spare = room.saturating_sub(blocks.iter().map(|(_, block)| block.len()).sum());
    for (row, mut block) in blocks {
        let (line, cause) = row_with_cause(row, width, style);
        if cause.len() <= spare {
            spare -= cause.len();
            block.splice(0..1, [line]);
            block.extend(cause);
        }
        if hidden > 0 || lines.len() + block.len() > room {
            hidden += 1;
        } else {
            lines.extend(block);
        }
    }
    if hidden > 0 {
        lines.push(cut(&format!("and {hidden} more"), width, style));
    }
    if many && lines.len() < height {
        lines.push(cut(&total_within(board, width), width, style));
    }
    lines
}

/// How far all downloads together are, as a sentence.
pub(crate) fn total(board: &Board) -> String {
    total_within(board, usize::MAX)
}

/// The same without its last parts where there is no room for them: a figure is told whole or not at all.
fn total_within(board: &Board, width: usize) -> String {
    let active = board.active().count();
    let done = if board.dry_run { "could be fetched" } else { "done" };
    let mut parts = vec![format!("{} of {} {done}", board.done, board.total)];
    for (count, what) in [(board.failed, "failed"), (active, "active"), (board.queued(), "waiting")] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let speed: u64 = board.active().filter_map(|(_, r)| r.progress.as_ref()).map(|p| p.speed).sum();
    parts.push(show_rate(speed));
    // For files that have not begun, nobody knows.
    if board.queued() == 0
        && let Some(left) = left_of_all(board, speed)
    {
        parts.push(format!("{} left", show_left(left)));
    }
    while parts.len() > 1 && columns(&parts.join(", ")) > width {
        parts.pop();
    }
    parts.join(", ")
}

/// How far one download is, as a sentence; `None` when it does not fetch.
pub(super) fn sentence(row: &Row) -> Option<String> {
    let progress = row.progress.as_ref().filter(|p| p.phase == Phase::Fetching)?;
    let mut parts = vec![amount(progress), show_rate(progress.speed)];
    if let Some(done) = thousandths(progress) {
        parts.insert(0, percent(done));
    }
    if let Some(left) = progress.left {
        parts.push(format!("{} left", show_left(left)));
    }
    Some(parts.join(", "))
}

fn left_of_all(board: &Board, speed: u64) -> Option<Duration> {
    let mut bytes = 0u64;
    for (_, row) in board.active() {
        let progress = row.progress.as_ref()?;
        // One that waits or cannot tell makes the sum a lie.
        progress.left?;
        bytes = bytes.checked_add(progress.length?.saturating_sub(progress.have))?;
    }
    (bytes > 0).then(|| bytes.div_ceil(speed.max(1))).filter(|_| speed > 0).map(Duration::from_secs)
}

fn row_line(row: &Row, width: usize, style: Style) -> String {
    let state = row.progress.as_ref().and_then(|p| Some(shorten(&p.phase, state(&p.phase)?, width, style)));
    row_saying(row, state, width, style)
}

/// The line of a download, and lines below it with the reason for its wait if that does not fit beside it.
fn row_with_cause(row: &Row, width: usize, style: Style) -> (String, Vec<String>) {
    let line = row_line(row, width, style);
    let Some(Phase::Waiting { failure, retry_in }) = row.progress.as_ref().map(|p| &p.phase) else {
        return (line, Vec::new());
    };
    let reason = reason(failure);
    if line.contains(&reason) {
        return (line, Vec::new());
    }
    let cause = wrap(&format!("  {reason}"), width, 0);
    // What is one word and wider than the terminal would break the picture.
    if cause.iter().any(|line| columns(line) > width) {
        return (line, Vec::new());
    }
    (row_saying(row, Some(waiting_for(*retry_in)), width, style), cause)
}

fn row_saying(row: &Row, state: Option<String>, width: usize, style: Style) -> String {
    let Some(progress) = &row.progress else {
        return line(&row.name, None, &[Field::elastic(0, "begins".to_owned())], width, style);
    };
    let done = thousandths(progress);
    let mut fields = Vec::new();
    if let Some(done) = done {
        fields.push(Field::rigid(0, format!("{:>6}", percent(done))));
    }
    fields.push(Field::rigid(4, amount(progress)));
    match state {
        Some(state) => fields.push(Field::elastic(1, state)),
        None => {
            fields.push(Field::rigid(1, format!("{:>12}", show_rate(progress.speed))));
            if let Some(left) = progress.left {
                fields.push(Field::rigid(2, format!("{} left", show_left(left))));
            }
            // Where it is narrow, a bar tells more.
            if progress.connections > 1 && width >= WIDE {
                fields.push(Field::rigid(5, format!("{} conn.", progress.connections)));
            }
        }
    }
    line(&row.name, done, &fields, width, style)
}

/// A wait as a sentence if there is room for it, else with its code alone.
fn shorten(phase: &Phase, state: String, width: usize, style: Style) -> String {
    let Phase::Waiting { failure, retry_in } = phase else { return state };
    let room = width * 5 / 8;
    if columns(&state) <= room {
        return state;
    }
    let ends = (waiting_for(*retry_in), format!(" [{}]", failure.code));
    let message = crate::style::harmless(failure.message.trim_end_matches('.'));
    match room.checked_sub(columns(&ends.0) + columns(&ends.1) + 2).filter(|left| *left >= 8) {
        Some(left) => format!("{}: {}{}", ends.0, cut(&message, left, style), ends.1),
        None => format!("{}{}", ends.0, ends.1),
    }
}

/// How much is here, in thousandths, cut off; less than all until the file is complete.
fn thousandths(progress: &Progress) -> Option<u64> {
    let length = progress.length.filter(|length| *length > 0)?;
    let done = u128::from(progress.have) * 1000 / u128::from(length);
    let most = if progress.phase == Phase::Completed { 1000 } else { 999 };
    Some(u64::try_from(done).unwrap_or(most).min(most))
}

fn percent(thousandths: u64) -> String {
    format!("{}.{}%", thousandths / 10, thousandths % 10)
}

fn amount(progress: &Progress) -> String {
    let have = show_size(progress.have);
    match progress.length {
        Some(length) => format!("{have} of {}", show_size(length)),
        None => have,
    }
}

/// Whole seconds: more would only flicker.
fn show_left(left: Duration) -> String {
    show_duration(Duration::from_secs(left.as_secs().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidegate_core::message::EventKind;
    use tidegate_core::{Code, DownloadId, Failure, Span};

    fn progress(phase: Phase, have: u64, length: Option<u64>, speed: u64, left: Option<u64>) -> Progress {
        Progress {
            id: DownloadId(1),
            phase,
            have,
            received: have,
            length,
            speed,
            left: left.map(Duration::from_secs),
            connections: 8,
            segments: Vec::new(),
            map: Span::new(0, have).into_iter().collect(),
            requests: 0,
        }
    }

    fn board(rows: &[(&str, Progress)], queued: usize) -> Board {
        let mut board = Board::default();
        for (job, (name, progress)) in rows.iter().enumerate() {
            board.add(job as u64, name);
            board.event(job as u64, &EventKind::Started { resumed_from: 0 }, Duration::ZERO);
            board.progress(job as u64, progress.clone());
        }
        for job in 0..queued {
            board.add(1000 + job as u64, "later");
        }
        board
    }

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    fn fetching(have: u64, length: u64) -> Progress {
        progress(Phase::Fetching, have, Some(length), 18 * MIB, Some(92))
    }

    fn waiting() -> Progress {
        let failure = Failure::new(Code::Busy, "the server is busy (503 Service Unavailable)");
        progress(
            Phase::Waiting { failure, retry_in: Duration::from_millis(2100) },
            GIB,
            Some(2 * GIB),
            0,
            None,
        )
    }

    #[test]
    fn one_file_at_80_and_40_columns() {
        let board = board(&[("ubuntu-24.04.1-desktop-amd64.iso", fetching(GIB, 2 * GIB))], 0);
        assert_eq!(
            render(&board, 80, 24, false, Style::PLAIN),
            ["ubuntu-24.04...p-amd64.iso   50.0%  1.0 GiB of 2.0 GiB    18.0 MiB/s  1m32s left"]
        );
        assert_eq!(render(&board, 40, 24, false, Style::PLAIN), ["ubuntu-2...d64.iso   50.0%    18.0 MiB/s"]);
    }

    #[test]
    fn a_short_name_leaves_room_for_a_bar() {
        let board = board(&[("a.iso", fetching(GIB, 2 * GIB))], 0);
        assert_eq!(
            render(&board, 80, 24, false, Style::PLAIN),
            ["a.iso  [########---------]   50.0%  1.0 GiB of 2.0 GiB    18.0 MiB/s  1m32s left"]
        );
    }

    #[test]
    fn a_wait_says_why_and_how_long() {
        let board = board(&[("a.iso", waiting())], 0);
        assert_eq!(
            render(&board, 80, 24, false, Style::PLAIN),
            [
                "a.iso    [##############--------------]   50.0%  1.0 GiB of 2.0 GiB  waiting 2 s",
                "  the server is busy (503 Service Unavailable) [busy]"
            ]
        );
        assert_eq!(
            render(&board, 40, 24, false, Style::PLAIN),
            [
                "a.iso  [#####-----]   50.0%  waiting 2 s",
                "  the server is busy (503 Service",
                "  Unavailable) [busy]"
            ]
        );
        // With no line to spare a part of it is better than nothing.
        let cut = "a.iso  [#####------]   50.0%  waiting 2 s: the server is busy (503 Ser... [busy]";
        assert_eq!(render(&board, 80, 2, false, Style::PLAIN), [cut]);
    }

    #[test]
    fn a_wait_for_room_is_not_shown_as_asking_the_server() {
        let mut board = board(&[("a.iso", progress(Phase::Probing, 0, None, 0, None))], 0);
        let failure = Failure::new(Code::DiskFull, "there is no room on /data");
        board.waits_for_machine = true;
        board.event(0, &EventKind::Waiting { failure, retry_in: Duration::from_secs(1) }, Duration::ZERO);
        board.progress(0, progress(Phase::Probing, 0, None, 0, None));
        let lines = render(&board, 80, 24, false, Style::PLAIN);
        assert!(lines[0].contains("waiting: there is no room on /data [disk-full]"), "{lines:?}");
        board.progress(0, progress(Phase::Fetching, 1, Some(2), 0, None));
        board.progress(0, progress(Phase::Probing, 1, Some(2), 0, None));
        assert!(render(&board, 80, 24, false, Style::PLAIN)[0].contains("asking the server"));
    }

    #[test]
    fn a_disk_that_does_not_take_bytes_is_not_blamed_on_the_network() {
        let stuck = progress(Phase::WaitingForDisk, GIB, Some(2 * GIB), 0, None);
        let lines = render(&board(&[("a.iso", stuck)], 0), 80, 24, false, Style::PLAIN);
        assert!(lines[0].contains("waiting for disk") && !lines[0].contains("/s"), "{lines:?}");
    }

    #[test]
    fn no_percentage_says_all_before_all_is_done() {
        for phase in [Phase::Fetching, Phase::Verifying] {
            let all = progress(phase, GIB, Some(GIB), 0, None);
            let text = render(&board(&[("a", all)], 0), 80, 24, false, Style::PLAIN).join("\n");
            assert!(text.contains("99.9%") && !text.contains("100"), "{text}");
        }
        // A server that sends more than it promised makes no 110 % either.
        let more = fetching(2 * GIB, GIB);
        assert!(render(&board(&[("a", more)], 0), 80, 24, false, Style::PLAIN)[0].contains("99.9%"));
    }

    #[test]
    fn an_unknown_length_makes_no_percentage_and_no_end() {
        let some = progress(Phase::Fetching, GIB, None, MIB, None);
        let text = render(&board(&[("a", some)], 0), 80, 24, true, Style::PLAIN).join("\n");
        assert!(!text.contains('%') && !text.contains("left") && text.contains("1.0 GiB"), "{text}");
    }

    #[test]
    fn many_files_have_a_line_each_and_one_for_all() {
        let rows = [("a.iso", fetching(GIB, 2 * GIB)), ("b.iso", fetching(0, GIB)), ("c.iso", waiting())];
        let mut board = board(&rows, 5);
        board.add(9, "d");
        board.event(
            9,
            &EventKind::Failed { failure: Failure::new(Code::NotFound, "no"), kept: 0 },
            Duration::ZERO,
        );
        let lines = render(&board, 80, 24, false, Style::PLAIN);
        assert_eq!(lines.len(), 5, "{lines:#?}");
        assert_eq!(lines[3], "  the server is busy (503 Service Unavailable) [busy]");
        assert_eq!(lines[4], "0 of 9 done, 1 failed, 3 active, 5 waiting, 36.0 MiB/s");
        let narrow = render(&board, 40, 24, false, Style::PLAIN);
        assert_eq!(narrow.last().map(String::as_str), Some("0 of 9 done, 1 failed, 3 active"));
        // No reason pushes a file out of sight.
        let lines = render(&board, 80, 5, false, Style::PLAIN);
        assert!(lines.len() == 4 && lines[2].starts_with("c.iso"), "{lines:#?}");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let rows: Vec<(String, Progress)> = (0..9).map(|n| (format!("{n}.iso"), fetching(n, GIB))).collect();
        let rows: Vec<(&str, Progress)> = rows.iter().map(|(n, p)| (n.as_str(), p.clone())).collect();
        let lines = render(&board(&rows, 0), 80, 5, false, Style::PLAIN);
        assert_eq!(lines.len(), 5, "{lines:#?}");
        assert_eq!(lines[3], "and 6 more");
        assert!(lines[4].starts_with("0 of 9 done, 9 active"), "{lines:#?}");
    }

    #[test]
    fn the_time_left_of_all_is_told_only_when_it_is_known() {
        let known = board(&[("a", fetching(GIB, 2 * GIB)), ("b", fetching(GIB, 2 * GIB))], 0);
        assert!(total(&known).ends_with("36.0 MiB/s, 57s left"), "{}", total(&known));
        let queued = board(&[("a", fetching(GIB, 2 * GIB))], 1);
        assert!(!total(&queued).contains("left"));
        let one_waits = board(&[("a", fetching(GIB, 2 * GIB)), ("b", waiting())], 0);
        assert!(!total(&one_waits).contains("left"));
    }

    #[test]
    fn a_map_is_below_its_file() {
        let lines = render(&board(&[("a.iso", fetching(GIB, 2 * GIB))], 0), 40, 24, true, Style::PLAIN);
        assert_eq!(lines[1], format!("{}{}", "#".repeat(20), ".".repeat(20)));
    }

    proptest! {
        #[test]
        fn no_line_is_wider_and_no_picture_higher_than_the_terminal(
            names in prop::collection::vec("\\PC{0,40}", 0..6), have: u64, length: Option<u64>, speed: u64,
            left in prop::option::of(0u64..10_000_000), width in 0usize..130, height in 0usize..12,
            maps: bool, unicode: bool, phase in 0usize..4,
        ) {
            let phase = [Phase::Fetching, Phase::Proving, Phase::WaitingForDisk, waiting().phase][phase].clone();
            let rows: Vec<(&str, Progress)> = names
                .iter()
                .map(|n| (n.as_str(), progress(phase.clone(), have, length, speed / 8, left)))
                .collect();
            let lines = render(&board(&rows, 1), width, height, maps, Style { color: false, unicode });
            prop_assert!(lines.len() <= height.max(1) + 1, "{lines:?}");
            prop_assert!(lines.iter().all(|l| columns(l) <= width), "{lines:?}");
        }
    }
}
