//! `tidegate doctor`: how far this system lets the process that talks to the network be locked down, shown by
//! doing, and what it would take to have what is missing.

use crate::args::DoctorArgs;
use crate::exit::Exit;
use crate::json;
use crate::style::{Style, Tone, harmless};
use crate::trouble::{Trouble, in_words};
use std::fmt::Write;
use tidegate_confine::probe::{Examination, Proof};
use tidegate_confine::spawn::Program;
use tidegate_confine::{ENGINE, Layer, Level, Namespaces, State, Why};
use tidegate_core::{Code, Failure};

/// Settings of the kernel that keep namespaces away, the value with which they do, and what to do.
const SETTINGS: [(&str, &str, &str); 3] = [
    ("user.max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000 allows them"),
    ("kernel.unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1 allows them"),
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        "1",
        "an AppArmor profile for this program allows them, and sysctl \
         kernel.apparmor_restrict_unprivileged_userns=0 allows them to all",
    ),
];

/// What else can be read of this system.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct System {
    /// The version of the kernel.
    kernel: String,
    /// A filter of system calls lies over this program, as in a container.
    filtered: bool,
    /// Those of [`SETTINGS`] that keep namespaces away.
    against: Vec<(&'static str, &'static str, &'static str)>,
}

impl System {
    fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let against = SETTINGS.into_iter().filter(|(name, value, _)| {
            let path = format!("/proc/sys/{}", name.replacen('.', "/", 1));
            read(&path).trim() == *value
        });
        let filtered = |line: &str| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() != "0");
        Self {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            filtered: read("/proc/self/status").lines().any(filtered),
            against: against.collect(),
        }
    }
}

/// Finds it out, and says it in words or as JSON: text for standard output.
///
/// # Errors
/// When no process can be started to find it out.
pub(crate) fn doctor(args: &DoctorArgs, style: Style) -> Result<(String, Exit), Trouble> {
    if args.rules {
        return Ok((rules(), Exit::Done));
    }
    let found = Program::this().and_then(|program| Examination::of(&program)).map_err(|error| {
        let why = format!("no process can be locked down here: {}", in_words(&error));
        Trouble::from(Failure::new(Code::EngineUnavailable, why))
    })?;
    let system = System::here();
    let text = if args.json {
        format!("{}\n", json::examined(&harmless(&system.kernel), &found))
    } else {
        in_sentences(&found, &system, style)
    };
    let good = found.report.is_whole() && found.broken().next().is_none();
    Ok((text, if good { Exit::Done } else { Exit::GaveUp }))
}

/// Every rule of the profile, one a line.
fn rules() -> String {
    let line = |(layer, what, why): (Layer, String, &str)| format!("{:<17} {what:<24} {why}\n", layer.word());
    ENGINE.rules().into_iter().map(line).collect()
}

/// The word for how a layer stands, for people and for programs.
pub(crate) fn word(state: State) -> &'static str {
    match state {
        State::Took => "in-force",
        State::Partly(_) => "in-part",
        State::Missing(_) => "missing",
        State::Off => "off",
    }
}

fn in_sentences(found: &Examination, system: &System, style: Style) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let mut say = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    let kernel = harmless(&system.kernel);
    say(format!("How far the process that talks to the network can be locked down here (Linux {kernel}):\n"));
    for (layer, state) in found.report.layers() {
        let proof = found.proofs.iter().find(|(this, _)| *this == layer).map(|(_, proof)| *proof);
        let broken = found.broken().any(|this| this == layer);
        let (tone, how) = match state {
            _ if broken => (Tone::Bad, "broken".to_owned()),
            State::Took => (Tone::Good, word(state).replace('-', " ")),
            State::Partly(_) => (Tone::Note, word(state).replace('-', " ")),
            State::Missing(_) | State::Off => (Tone::Bad, word(state).to_owned()),
        };
        let how = style.paint(tone, &format!("{how:<8}"));
        say(format!("  {how}  {:<17}  {}", layer.word(), layer.meaning()));
        for line in remarks(layer, state, proof, broken) {
            say(format!("{:31}{}", "", style.paint(Tone::Dim, &line)));
        }
    }
    let level = found.level();
    say(format!("\nNamespaces: {}.", found.namespaces.meaning()));
    for line in ways_to_namespaces(found.namespaces, system) {
        say(format!("  {line}"));
    }
    say(format!("\nLevel {level} of 3: {}.", level.meaning()));
    say(match level {
        Level::Zero => "The process that talks to the network needs level 1.".to_owned(),
        _ => {
            "The process that talks to the network needs level 1; more than that is for opening files apart, \
              which is not built yet."
                .to_owned()
        }
    });
    text
}

/// What there is to say about a layer beyond what it means.
fn remarks(layer: Layer, state: State, proof: Option<Proof>, broken: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    match state {
        State::Took | State::Off => {}
        State::Partly(Why::Exempt) => {
            remarks.push("root is exempt from it; seccomp refuses the same".to_owned());
        }
        State::Partly(why) | State::Missing(why) => {
            // What is in the kernel and was refused all the same is kept away by somebody.
            let container =
                if matches!(why, Why::Refused(_)) { ", and a container that lets it through" } else { "" };
            remarks.push(format!("{why}; it takes {}{container}", layer.needs()));
        }
    }
    match proof {
        _ if broken => remarks.push(
            "it says that it holds, but what it should refuse works: please report this as a vulnerability"
                .to_owned(),
        ),
        Some(Proof::Silent) => remarks.push("the probe that was to show it did not answer".to_owned()),
        Some(Proof::Moot(_)) if state == State::Took => {
            remarks.push("not shown: what it refuses cannot be done here without it either".to_owned());
        }
        _ => {}
    }
    remarks
}

/// What it would take to have more namespaces.
fn ways_to_namespaces(namespaces: Namespaces, system: &System) -> Vec<String> {
    match namespaces {
        Namespaces::Users => Vec::new(),
        Namespaces::Rootless => vec!["As root they could have a user each.".to_owned()],
        Namespaces::None => {
            let settings = system.against.iter();
            let mut ways: Vec<String> =
                settings.map(|(name, value, way)| format!("{name} is {value}: {way}.")).collect();
            if system.filtered {
                ways.push(
                    "A filter of system calls lies over this program already, as in a container. Docker's stock \
                     profile refuses namespaces: --security-opt seccomp=FILE takes another."
                        .to_owned(),
                );
            }
            if ways.is_empty() {
                ways.push(
                    "No setting that is known here says why: it takes a kernel with CONFIG_USER_NS, and a \
                     policy that allows them."
                        .to_owned(),
                );
            }
            ways
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_confine::Report;

    /// An examination in which these layers stand otherwise than well.
    fn examination(otherwise: &str, namespaces: Namespaces) -> Examination {
        let line = |layer: &Layer| {
            let word = format!("{layer}=");
            let other = otherwise.split_whitespace().find(|this| this.starts_with(&word));
            other.map_or_else(|| format!("{word}took"), str::to_owned)
        };
        let lines: Vec<String> = Layer::ALL.iter().map(line).collect();
        let report = Report::decode(&lines.join(" ")).unwrap();
        Examination { report, proofs: Layer::ALL.map(|layer| (layer, Proof::Shown)).to_vec(), namespaces }
    }

    fn text(found: &Examination, system: &System) -> String {
        in_sentences(found, system, Style::PLAIN)
    }

    #[test]
    fn every_layer_is_told_with_what_it_means_and_nothing_more_where_all_is_well() {
        let said = text(&examination("", Namespaces::Users), &System::default());
        for layer in Layer::ALL {
            assert!(
                said.contains(&format!("  in force  {:<17}  {}\n", layer.word(), layer.meaning())),
                "{said}"
            );
        }
        assert!(said.contains("\nLevel 3 of 3: ") && !said.contains("it takes"), "{said}");
        assert_eq!(said.lines().count(), 2 + Layer::ALL.len() + 5, "{said}");
    }

    #[test]
    fn what_is_missing_is_told_with_the_reason_and_what_it_takes() {
        let table = [
            ("landlock-signals=missing:lacking", "does not have it; it takes Landlock of Linux 6.12"),
            (
                "landlock-files=missing:disabled",
                "left out when this machine was started; it takes Linux 5.13 with Landlock",
            ),
            (
                "seccomp=missing:1",
                "Operation not permitted (os error 1); it takes Linux 3.17 with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64, and a container",
            ),
            ("landlock-files=partly:older", "older form without some of its rights; it takes"),
            ("processes=partly:exempt", "root is exempt from it; seccomp refuses the same"),
        ];
        for (otherwise, expected) in table {
            let said = text(&examination(otherwise, Namespaces::Users), &System::default());
            assert!(said.contains(expected), "{said}");
        }
        let said = text(&examination("seccomp=missing:38", Namespaces::Users), &System::default());
        assert!(
            said.contains("\nLevel 0 of 3: not locked down") && said.contains("needs level 1.\n"),
            "{said}"
        );
    }

    #[test]
    fn a_layer_that_does_not_do_what_it_says_is_called_broken() {
        let mut found = examination("", Namespaces::Users);
        found.proofs[5].1 = Proof::Open;
        let said = text(&found, &System::default());
        assert!(said.contains("  broken    landlock-files") && said.contains("vulnerability"), "{said}");
        found.proofs[5].1 = Proof::Moot(1);
        assert!(text(&found, &System::default()).contains("not shown: "));
    }

    #[test]
    fn each_setting_that_keeps_namespaces_away_is_told_with_the_way_out() {
        let none = examination("", Namespaces::None);
        for setting in SETTINGS {
            let system = System { against: vec![setting], ..System::default() };
            let said = text(&none, &system);
            assert!(said.contains(&format!("  {} is {}: {}.", setting.0, setting.1, setting.2)), "{said}");
            assert!(said.contains("\nLevel 1 of 3: "), "{said}");
        }
        let said = text(&none, &System { filtered: true, ..System::default() });
        assert!(said.contains("--security-opt seccomp=FILE"), "{said}");
        assert!(text(&none, &System::default()).contains("CONFIG_USER_NS"));
        assert!(
            text(&examination("", Namespaces::Rootless), &System::default()).contains("\nLevel 2 of 3: ")
        );
    }

    #[test]
    fn the_rules_are_listed_with_their_reasons() {
        let rules = rules();
        assert!(rules.lines().count() > 100, "{rules}");
        assert!(rules.contains("seccomp           ~ socket") && rules.contains("seccomp           ! execve"));
    }
}
