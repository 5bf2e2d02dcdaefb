//! What holds of a process that was locked down, layer by layer. A layer that is missing has a name, here and
//! wherever it is told.

use rustix::io::Errno;
use std::fmt;

/// One thing by which a process is made unable. Several of them refuse most things twice.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Layer {
    /// What whoever started it left open by mistake is closed.
    Descriptors,
    /// No program that it might start gains rights by who owns the program.
    NoNewPrivileges,
    /// Other processes of its user cannot look into it, and it leaves no core.
    NotDumpable,
    /// Root in name only: every capability is dropped and cannot come back.
    Capabilities,
    /// Resource limits: no core, no locked memory, no message queues.
    Limits,
    /// Landlock: no file by its path.
    Files,
    /// Landlock: no port of its own.
    Ports,
    /// Landlock: no abstract Unix socket of others.
    Sockets,
    /// Landlock: no signal to others.
    Signals,
    /// A resource limit: no further process or thread.
    Processes,
    /// Seccomp: no system call but those of its profile.
    Calls,
}

impl Layer {
    /// All, in the order in which they are put on.
    pub const ALL: [Self; 11] = [
        Self::Descriptors,
        Self::NoNewPrivileges,
        Self::NotDumpable,
        Self::Limits,
        Self::Capabilities,
        Self::Files,
        Self::Ports,
        Self::Sockets,
        Self::Signals,
        Self::Processes,
        Self::Calls,
    ];

    /// Its name, which never changes.
    pub fn word(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::NoNewPrivileges => "no-new-privileges",
            Self::NotDumpable => "not-dumpable",
            Self::Capabilities => "capabilities",
            Self::Limits => "limits",
            Self::Files => "landlock-files",
            Self::Ports => "landlock-ports",
            Self::Sockets => "landlock-sockets",
            Self::Signals => "landlock-signals",
            Self::Processes => "processes",
            Self::Calls => "seccomp",
        }
    }

    /// The layer of this name.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layer| layer.word() == word)
    }

    /// What it means for the process, as the end of a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Descriptors => "nothing that was left open by mistake can be used",
            Self::NoNewPrivileges => "no program that it starts gains rights",
            Self::NotDumpable => {
                "other processes of the same user cannot look into it, and it leaves no core"
            }
            Self::Capabilities => "root in name only: no capability is left, and none can come back",
            Self::Limits => "no core, no locked memory, no message queues",
            Self::Files => "no file can be opened, made, renamed or removed by its path",
            Self::Ports => "no port can be listened on",
            Self::Sockets => "no abstract Unix socket of another process can be reached",
            Self::Signals => "no other process can be sent a signal",
            Self::Processes => "no further process or thread",
            Self::Calls => "no system call but those that the work needs",
        }
    }

    /// What it takes to have it.
    pub fn needs(self) -> &'static str {
        match self {
            Self::Descriptors => "Linux 5.9",
            Self::NoNewPrivileges | Self::NotDumpable | Self::Limits | Self::Processes => "any Linux",
            Self::Capabilities => "any Linux; CAP_SETPCAP for root",
            Self::Files => {
                "Linux 5.13 with Landlock (CONFIG_SECURITY_LANDLOCK, and `landlock` among lsm= at boot)"
            }
            Self::Ports => "Landlock of Linux 6.7",
            Self::Sockets | Self::Signals => "Landlock of Linux 6.12",
            Self::Calls => "Linux 3.17 with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
        }
    }

    fn place(self) -> usize {
        // Each layer is in the list, which the tests show.
        Self::ALL.iter().position(|layer| *layer == self).unwrap_or(0)
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Which layers to put on. Anything but [`Layers::ALL`] is for showing what a layer is good for: it is never
/// taken from the environment or a setting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Layers([bool; Layer::ALL.len()]);

impl Layers {
    /// Every layer.
    pub const ALL: Self = Self([true; Layer::ALL.len()]);
    /// No layer.
    pub const NONE: Self = Self([false; Layer::ALL.len()]);

    /// The same and this one.
    #[must_use]
    pub fn with(mut self, layer: Layer) -> Self {
        self.0[layer.place()] = true;
        self
    }

    /// The same but this one.
    #[must_use]
    pub fn without(mut self, layer: Layer) -> Self {
        self.0[layer.place()] = false;
        self
    }

    /// Whether it is among them.
    pub fn has(self, layer: Layer) -> bool {
        self.0[layer.place()]
    }
}

/// Why a layer does not hold, or not in full.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Why {
    /// The kernel said so, with this error.
    Refused(i32),
    /// This kernel does not have it.
    Lacking,
    /// This kernel has it, but it was left out when the machine was started.
    Disabled,
    /// This kernel has an older form, without some of its rights.
    Older,
    /// Root is exempt from it.
    Exempt,
    /// The filter could not be built for this processor.
    Unbuilt,
}

impl Why {
    const WORDS: [(Self, &'static str); 5] = [
        (Self::Lacking, "lacking"),
        (Self::Disabled, "disabled"),
        (Self::Older, "older"),
        (Self::Exempt, "exempt"),
        (Self::Unbuilt, "unbuilt"),
    ];
}

impl From<Errno> for Why {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOSYS => Self::Lacking,
            Errno::OPNOTSUPP => Self::Disabled,
            other => Self::Refused(other.raw_os_error()),
        }
    }
}

impl From<std::io::Error> for Why {
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(Self::Lacking, |number| Errno::from_raw_os_error(number).into())
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(number) => {
                write!(f, "the kernel refuses it: {}", std::io::Error::from_raw_os_error(*number))
            }
            Self::Lacking => f.write_str("this kernel does not have it"),
            Self::Disabled => f.write_str("it was left out when this machine was started"),
            Self::Older => f.write_str("this kernel has an older form without some of its rights"),
            Self::Exempt => f.write_str("root is exempt from it"),
            Self::Unbuilt => f.write_str("there is no filter for this processor"),
        }
    }
}

/// How a layer stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// It holds.
    Took,
    /// It holds for less than it should.
    Partly(Why),
    /// It does not hold.
    Missing(Why),
    /// It was not asked for.
    Off,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Took => f.write_str("in force"),
            Self::Partly(why) => write!(f, "in force in part: {why}"),
            Self::Missing(why) => write!(f, "missing: {why}"),
            Self::Off => f.write_str("not asked for"),
        }
    }
}

/// How each layer stands in one process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report([State; Layer::ALL.len()]);

impl Report {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self([State::Off; Layer::ALL.len()])
    }

    pub(crate) fn set(&mut self, layer: Layer, state: State) {
        self.0[layer.place()] = state;
    }

    /// How a layer stands.
    pub fn state(&self, layer: Layer) -> State {
        self.0[layer.place()]
    }

    /// Every layer with how it stands, in the order in which they are put on.
    pub fn layers(&self) -> impl Iterator<Item = (Layer, State)> {
        Layer::ALL.into_iter().zip(self.0)
    }

    /// The layers that do not hold in full.
    pub fn shortcomings(&self) -> impl Iterator<Item = (Layer, State)> {
        self.layers().filter(|(_, state)| *state != State::Took)
    }

    /// Whether no layer is missing. One that holds in part is none that is missing: what it leaves open, another
    /// refuses (the table in `docs/design.md`).
    pub fn is_whole(&self) -> bool {
        self.0.iter().all(|state| matches!(state, State::Took | State::Partly(_)))
    }

    /// In one line of words, for another process of ours to read: at most 400 bytes of ASCII.
    pub fn encode(&self) -> String {
        let state = |state| match state {
            State::Took => "took".to_owned(),
            State::Partly(why) => format!("partly:{}", encode_why(why)),
            State::Missing(why) => format!("missing:{}", encode_why(why)),
            State::Off => "off".to_owned(),
        };
        let words: Vec<String> =
            self.layers().map(|(layer, how)| format!("{layer}={}", state(how))).collect();
        words.join(" ")
    }

    /// Reads what [`Report::encode`] wrote. `None` if it is anything else; a layer that is not told is off.
    pub fn decode(line: &str) -> Option<Self> {
        let mut report = Self::new();
        for word in line.split_ascii_whitespace() {
            let (layer, how) = word.split_once('=')?;
            let (kind, why) = how.split_once(':').unwrap_or((how, ""));
            let state = match kind {
                "took" => State::Took,
                "off" => State::Off,
                "partly" => State::Partly(decode_why(why)?),
                "missing" => State::Missing(decode_why(why)?),
                _ => return None,
            };
            report.set(Layer::named(layer)?, state);
        }
        Some(report)
    }
}

fn encode_why(why: Why) -> String {
    match (why, Why::WORDS.iter().find(|(this, _)| *this == why)) {
        (Why::Refused(number), _) => number.to_string(),
        (_, word) => word.map_or("lacking", |(_, word)| word).to_owned(),
    }
}

fn decode_why(word: &str) -> Option<Why> {
    let known = Why::WORDS.iter().find(|(_, this)| *this == word).map(|(why, _)| *why);
    known.or_else(|| word.parse().ok().map(Why::Refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_has_its_place_and_its_name() {
        for (index, layer) in Layer::ALL.into_iter().enumerate() {
            assert_eq!(layer.place(), index);
            assert_eq!(Layer::named(layer.word()), Some(layer));
        }
        assert_eq!(Layer::named("nothing"), None);
    }

    #[test]
    fn layers_are_switched_one_by_one() {
        let but_one = Layers::ALL.without(Layer::Files);
        assert!(Layer::ALL.into_iter().all(|layer| but_one.has(layer) == (layer != Layer::Files)));
        assert_eq!(but_one.with(Layer::Files), Layers::ALL);
        assert!(Layer::ALL.into_iter().all(|layer| !Layers::NONE.has(layer)));
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let mut report = Report::new();
        let states = [
            State::Took,
            State::Off,
            State::Partly(Why::Older),
            State::Partly(Why::Exempt),
            State::Missing(Why::Refused(1)),
            State::Missing(Why::Lacking),
            State::Missing(Why::Disabled),
            State::Missing(Why::Unbuilt),
        ];
        for (layer, state) in Layer::ALL.into_iter().zip(states.into_iter().cycle()) {
            report.set(layer, state);
        }
        let line = report.encode();
        assert!(line.len() <= 400 && line.is_ascii(), "{line}");
        assert_eq!(Report::decode(&line), Some(report));
    }

    #[test]
    fn anything_else_is_no_report() {
        for line in
            ["seccomp", "seccomp=", "seccomp=maybe", "seccomp=missing:", "nothing=took", "seccomp=partly:x"]
        {
            assert_eq!(Report::decode(line), None, "{line}");
        }
        assert_eq!(Report::decode(""), Some(Report::new()));
    }

    #[test]
    fn a_layer_in_part_is_a_shortcoming_but_not_missing() {
        let mut report = Report::new();
        Layer::ALL.into_iter().for_each(|layer| report.set(layer, State::Took));
        assert!(report.is_whole() && report.shortcomings().next().is_none());
        report.set(Layer::Processes, State::Partly(Why::Exempt));
        assert!(report.is_whole());
        assert_eq!(
            report.shortcomings().collect::<Vec<_>>(),
            [(Layer::Processes, State::Partly(Why::Exempt))]
        );
        for bad in [State::Off, State::Missing(Why::Lacking)] {
            report.set(Layer::Files, bad);
            assert!(!report.is_whole());
        }
    }
}
