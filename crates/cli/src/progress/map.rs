//! A file as a row of signs: which parts are here and where the connections are.

use crate::style::Style;
use tidegate_core::message::Progress;
use tidegate_core::{Span, SpanSet};

/// The map in `width` signs: full, begun, empty, and where a connection writes now. Empty when the
/// length is not known or there is no room.
pub(super) fn map(progress: &Progress, width: usize, style: Style) -> String {
    let Some(length) = progress.length.filter(|length| *length > 0) else { return String::new() };
    if width == 0 {
        return String::new();
    }
    let (full, begun, empty, here) =
        if style.unicode { ('█', '▒', '·', '▶') } else { ('#', '+', '.', '>') };
    let have: SpanSet = progress.map.iter().copied().collect();
    let cells = width as u128;
    let edge = |cell: usize| u64::try_from(u128::from(length) * cell as u128 / cells).unwrap_or(length);
    let mut signs: Vec<char> = (0..width)
        .map(|cell| match Span::new(edge(cell), edge(cell + 1)) {
            // A file with fewer bytes than there are signs.
            None => {
                if have.run_end(edge(cell)) > edge(cell) {
                    full
                } else {
                    empty
                }
            }
            Some(span) => match have.total_within(span) {
                0 => empty,
                bytes if bytes == span.len() => full,
                _ => begun,
            },
        })
        .collect();
    for segment in &progress.segments {
        let at = segment.span.start().saturating_add(segment.done);
        if at < length && at < segment.span.end() {
            let cell = usize::try_from(u128::from(at) * cells / u128::from(length)).unwrap_or(0);
            if let Some(sign) = signs.get_mut(cell) {
                *sign = here;
            }
        }
    }
    signs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::DownloadId;
    use tidegate_core::message::{Phase, SegmentProgress};

    fn progress(length: u64, have: &[(u64, u64)], segments: &[(u64, u64, u64)]) -> Progress {
        let span = |start, end| Span::new(start, end).unwrap();
        Progress {
            id: DownloadId(1),
            phase: Phase::Fetching,
            have: have.iter().map(|(a, b)| b - a).sum(),
            received: 0,
            length: Some(length),
            speed: 0,
            left: None,
            connections: segments.len(),
            segments: segments
                .iter()
                .map(|(start, end, done)| SegmentProgress { span: span(*start, *end), done: *done, speed: 0 })
                .collect(),
            map: have.iter().map(|(a, b)| span(*a, *b)).collect(),
            requests: 0,
        }
    }

    #[test]
    fn a_map_shows_what_is_here_and_where_it_comes() {
        let half = progress(100, &[(0, 25), (50, 60)], &[(25, 50, 5), (60, 100, 0)]);
        assert_eq!(map(&half, 10, Style::PLAIN), "##+>.#>...");
        assert_eq!(map(&progress(100, &[(0, 100)], &[]), 10, Style::PLAIN), "##########");
        assert_eq!(map(&progress(100, &[(0, 99)], &[]), 10, Style::PLAIN), "#########+");
    }

    #[test]
    fn a_map_of_a_tiny_or_a_huge_file_has_its_width() {
        assert_eq!(map(&progress(3, &[(0, 1)], &[]), 6, Style::PLAIN), "##....");
        let huge = progress(u64::MAX, &[(0, u64::MAX / 2)], &[(u64::MAX / 2, u64::MAX, 0)]);
        assert_eq!(map(&huge, 10, Style::PLAIN).chars().count(), 10);
        assert_eq!(map(&progress(0, &[], &[]), 10, Style::PLAIN), "");
    }
}
