//! How the program ends: outcomes in, one exit code out.

use tidegate_core::{Code, Failure};

/// How the program ends, gravest last: of several outcomes the gravest decides.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Exit {
    /// All done: 0.
    Done,
    /// Not done yet; the same command goes on: 3.
    Incomplete,
    /// Given up: 1.
    GaveUp,
    /// The command or the configuration makes no sense: 2.
    Usage,
    /// A file was not the one that it should be: 4.
    Integrity,
    /// Stopped by this signal, everything saved: 128 and its number (130 for Ctrl-C).
    Signal(u8),
}

impl Exit {
    /// The number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::GaveUp => 1,
            Self::Usage => 2,
            Self::Incomplete => 3,
            Self::Integrity => 4,
            Self::Signal(number) => 128u8.saturating_add(number),
        }
    }

    /// How a download ends that was given up for this.
    pub(crate) fn of_failure(failure: &Failure) -> Self {
        match failure.code {
            Code::DigestMismatch | Code::PieceMismatch | Code::LengthMismatch => Self::Integrity,
            Code::BadUrl | Code::BadMetalink => Self::Usage,
            _ => Self::GaveUp,
        }
    }

    /// The gravest of several; `Done` of none.
    pub(crate) fn gravest(exits: impl IntoIterator<Item = Self>) -> Self {
        exits.into_iter().max().unwrap_or(Self::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_end_has_its_number() {
        let table = [
            (Exit::Done, 0),
            (Exit::GaveUp, 1),
            (Exit::Usage, 2),
            (Exit::Incomplete, 3),
            (Exit::Integrity, 4),
            (Exit::Signal(1), 129),
            (Exit::Signal(2), 130),
            (Exit::Signal(13), 141),
            (Exit::Signal(15), 143),
        ];
        for (exit, code) in table {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }

    #[test]
    fn the_gravest_outcome_decides() {
        let table = [
            (vec![], 0),
            (vec![Exit::Done, Exit::Incomplete], 3),
            (vec![Exit::Incomplete, Exit::GaveUp, Exit::Done], 1),
            (vec![Exit::Usage, Exit::GaveUp], 2),
            (vec![Exit::Integrity, Exit::Usage, Exit::GaveUp], 4),
            (vec![Exit::Signal(2), Exit::Integrity], 130),
        ];
        for (exits, code) in table {
            assert_eq!(Exit::gravest(exits.clone()).code(), code, "{exits:?}");
        }
    }

    #[test]
    fn only_wrong_bytes_are_an_integrity_failure() {
        let wrong: Vec<&str> = Code::ALL
            .iter()
            .filter(|c| Exit::of_failure(&Failure::new(**c, "")) == Exit::Integrity)
            .map(|c| c.word())
            .collect();
        assert_eq!(wrong, ["digest-mismatch", "piece-mismatch", "length-mismatch"]);
    }
}
