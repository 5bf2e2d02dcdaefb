//! How far processes can be kept apart on this machine, in one number.

use crate::report::{Layer, Report, State};
use std::fmt;

/// Which namespaces a user can make here, as far as it was tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Namespaces {
    /// All, and a user for each process: who asked is root.
    Users,
    /// All, with one user for all processes.
    Rootless,
    /// None.
    None,
}

impl Namespaces {
    /// What it means, as a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Users => "processes can have namespaces of their own, and a user each",
            Self::Rootless => "processes can have namespaces of their own, but share one user",
            Self::None => "processes cannot have namespaces of their own",
        }
    }
}

/// What the layers of this machine amount to, for a process that is locked down. The engine's process needs level
/// 1 and gains nothing from a higher one: it has to see the network, and sees no files without a namespace.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// Landlock's files, seccomp or the limits are missing: something that must not be done can be.
    Zero,
    /// Landlock, seccomp and limits.
    One,
    /// And namespaces, with one user for all processes.
    Two,
    /// And namespaces, with a user for each process.
    Three,
}

impl Level {
    /// What a report and the namespaces amount to.
    pub fn of(report: &Report, namespaces: Namespaces) -> Self {
        let holds = |layer| matches!(report.state(layer), State::Took | State::Partly(_));
        let needed = [Layer::NoNewPrivileges, Layer::Limits, Layer::Capabilities, Layer::Files, Layer::Calls];
        match namespaces {
            _ if !needed.into_iter().all(holds) => Self::Zero,
            Namespaces::None => Self::One,
            Namespaces::Rootless => Self::Two,
            Namespaces::Users => Self::Three,
        }
    }

    /// The number.
    pub fn number(self) -> u8 {
        match self {
            Self::Zero => 0,
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
        }
    }

    /// What it means, as a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Zero => "not locked down: a layer that must hold is missing",
            Self::One => "locked down by Landlock, seccomp and limits",
            Self::Two => {
                "locked down by Landlock, seccomp and limits, and apart in namespaces that share one user"
            }
            Self::Three => {
                "locked down by Landlock, seccomp and limits, and apart in namespaces with a user each"
            }
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Why;

    #[test]
    fn a_level_needs_every_layer_below_it() {
        let mut report = Report::new();
        assert_eq!(Level::of(&report, Namespaces::Users), Level::Zero);
        Layer::ALL.into_iter().for_each(|layer| report.set(layer, State::Took));
        let table = [
            (Namespaces::None, Level::One),
            (Namespaces::Rootless, Level::Two),
            (Namespaces::Users, Level::Three),
        ];
        for (namespaces, level) in table {
            assert_eq!(Level::of(&report, namespaces), level);
        }
        // What seccomp refuses as well lowers nothing.
        for layer in [Layer::Ports, Layer::Sockets, Layer::Signals, Layer::Processes, Layer::Descriptors] {
            report.set(layer, State::Missing(Why::Lacking));
        }
        report.set(Layer::Files, State::Partly(Why::Older));
        assert_eq!(Level::of(&report, Namespaces::None), Level::One);
        for layer in [Layer::Files, Layer::Calls, Layer::Limits] {
            let mut without = report.clone();
            without.set(layer, State::Missing(Why::Lacking));
            assert_eq!(Level::of(&without, Namespaces::Users), Level::Zero, "{layer}");
        }
    }
}
