//! `--json`: what happens as one JSON object a line. `docs/json.md` describes every line; a golden test
//! holds it to that.

use crate::doctor::word;
use crate::exit::Exit;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;
use tidegate_confine::probe::{Examination, Proof};
use tidegate_confine::{Layer, Namespaces, State};
use tidegate_core::message::{EventKind, Phase, Progress};
use tidegate_core::request::redact;
use tidegate_core::{Failure, Remedy, Request};

/// A download was added: `job` is the number that its other lines carry.
pub(crate) fn added(job: u64, request: &Request) -> Value {
    let urls: Vec<String> = request.mirrors().iter().map(|m| redact(m.url())).collect();
    json!({ "event": "added", "job": job, "urls": urls })
}

/// Something happened to a download.
pub(crate) fn event(job: u64, event: &EventKind) -> Value {
    let (name, fields) = match event {
        EventKind::Started { resumed_from } => ("started", json!({ "resumed_from": resumed_from })),
        EventKind::Identified { url, length, resumable, content_type } => (
            "identified",
            json!({ "url": url, "length": length, "resumable": resumable, "content_type": content_type }),
        ),
        EventKind::Named { path } => ("named", json!({ "path": path.to_string_lossy() })),
        EventKind::Checkpointed { durable } => ("checkpointed", json!({ "durable": durable })),
        EventKind::Waiting { failure: why, retry_in } => {
            ("waiting", json!({ "failure": failure(why), "retry_in": seconds(*retry_in) }))
        }
        EventKind::Restarted { failure: why } => ("restarted", json!({ "failure": failure(why) })),
        EventKind::Notice { message } => ("notice", json!({ "message": message })),
        EventKind::Paused { have } | EventKind::Stopped { kept: have } => ("paused", json!({ "have": have })),
        EventKind::Completed { path, length, proof, already, received } => (
            "completed",
            json!({
                "path": path.as_ref().map(|p| p.to_string_lossy()),
                "length": length,
                "proof": proof,
                "already": already,
                "received": received,
            }),
        ),
        EventKind::Failed { failure: why, kept } => {
            ("failed", json!({ "failure": failure(why), "kept": kept }))
        }
    };
    line(name, job, fields)
}

/// How far a download is.
pub(crate) fn progress(job: u64, progress: &Progress) -> Value {
    let mut fields = json!({
        "phase": phase(&progress.phase),
        "have": progress.have,
        "length": progress.length,
        "received": progress.received,
        "speed": progress.speed,
        "left": progress.left.map(seconds),
        "connections": progress.connections,
    });
    if let (Phase::Waiting { failure: why, retry_in }, Some(fields)) =
        (&progress.phase, fields.as_object_mut())
    {
        fields.insert("failure".to_owned(), failure(why));
        fields.insert("retry_in".to_owned(), json!(seconds(*retry_in)));
    }
    line("progress", job, fields)
}

/// The last line.
pub(crate) fn finished(done: usize, failed: usize, incomplete: usize, exit: Exit) -> Value {
    json!({
        "event": "finished",
        "completed": done,
        "failed": failed,
        "incomplete": incomplete,
        "exit": exit.code(),
    })
}

/// What `tidegate verify` found of one file.
#[derive(Debug)]
pub(crate) struct Found {
    /// `right`, `wrong` or `unreadable`.
    pub(crate) result: &'static str,
    /// Each digest that it should have, and the one that it has.
    pub(crate) digests: Vec<(String, String)>,
    /// What else is wrong, as sentences.
    pub(crate) faults: Vec<String>,
}

/// A file was compared with what it should be.
pub(crate) fn verified(path: &Path, found: &Found) -> Value {
    let digests: Vec<Value> = found
        .digests
        .iter()
        .map(|(expected, found)| json!({ "expected": expected, "found": found }))
        .collect();
    json!({
        "event": "verified",
        "path": path.to_string_lossy(),
        "result": found.result,
        "digests": digests,
        "faults": found.faults,
    })
}

/// What `tidegate doctor` found on a kernel of this version.
pub(crate) fn examined(kernel: &str, found: &Examination) -> Value {
    let layer = |(layer, state): (Layer, State)| {
        let why = match state {
            State::Partly(why) | State::Missing(why) => Some(why.to_string()),
            State::Took | State::Off => None,
        };
        let proof = found.proofs.iter().find(|(this, _)| *this == layer).map(|(_, proof)| match proof {
            Proof::Shown => "shown",
            Proof::Moot(_) => "moot",
            Proof::Open => "open",
            Proof::Silent => "silent",
        });
        json!({ "layer": layer.word(), "state": word(state), "why": why, "proof": proof })
    };
    json!({
        "event": "examined",
        "kernel": kernel,
        "level": found.level().number(),
        "namespaces": match found.namespaces {
            Namespaces::Users => "users",
            Namespaces::Rootless => "rootless",
            Namespaces::None => "none",
        },
        "layers": found.report.layers().map(layer).collect::<Vec<_>>(),
    })
}

fn line(name: &str, job: u64, fields: Value) -> Value {
    let mut object = Map::new();
    object.insert("event".to_owned(), json!(name));
    object.insert("job".to_owned(), json!(job));
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    Value::Object(object)
}

fn failure(failure: &Failure) -> Value {
    let remedy = match failure.remedy {
        Remedy::Retry { .. } => "retry",
        Remedy::Elsewhere => "elsewhere",
        Remedy::Restart => "restart",
        Remedy::Wait { .. } => "wait",
        Remedy::GiveUp => "give-up",
    };
    json!({ "code": failure.code, "remedy": remedy, "message": failure.message })
}

fn phase(phase: &Phase) -> &'static str {
    match phase {
        Phase::Queued => "queued",
        Phase::Probing => "probing",
        Phase::Proving => "proving",
        Phase::Fetching => "fetching",
        Phase::Waiting { .. } => "waiting",
        Phase::WaitingForDisk => "waiting-for-disk",
        Phase::Verifying => "verifying",
        Phase::Paused => "paused",
        Phase::Completed => "completed",
        Phase::Failed => "failed",
    }
}

/// Seconds to the millisecond, as a number.
fn seconds(time: Duration) -> f64 {
    // Exact up to 2^53 ms, far beyond any wait.
    time.as_millis() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_confine::Report;
    use tidegate_core::message::Proof as Believed;
    use tidegate_core::request::Destination;
    use tidegate_core::{Code, DownloadId, Mirror};

    /// One line of each kind, in the order of `docs/json.md`.
    fn all() -> Vec<Value> {
        let busy = || Failure::new(Code::Busy, "the server is busy (503 Service Unavailable)");
        let mirrors = vec![Mirror::parse("https://me:hunter2@example.org/a.iso?sig=secret").unwrap()];
        let request = Request::new(mirrors, Destination::Stdout).unwrap();
        let with_phase = |phase| Progress {
            id: DownloadId(7),
            phase,
            have: 524_288,
            received: 262_144,
            length: Some(1_048_576),
            speed: 131_072,
            left: Some(Duration::from_millis(4000)),
            connections: 4,
            segments: Vec::new(),
            map: Vec::new(),
            requests: 5,
        };
        let waiting = Phase::Waiting { failure: busy(), retry_in: Duration::from_millis(2500) };
        let events = [
            EventKind::Started { resumed_from: 262_144 },
            EventKind::Identified {
                url: "https://cdn.example.org/a.iso?…".into(),
                length: Some(1_048_576),
                resumable: true,
                content_type: Some("application/octet-stream".into()),
            },
            EventKind::Named { path: "./a.iso".into() },
            EventKind::Checkpointed { durable: 524_288 },
            EventKind::Waiting { failure: busy(), retry_in: Duration::from_millis(2500) },
            EventKind::Restarted { failure: Failure::new(Code::Changed, "the remote file changed") },
            EventKind::Notice { message: "the server does not serve ranges".into() },
            EventKind::Paused { have: 524_288 },
            EventKind::Completed {
                path: Some("./a.iso".into()),
                length: 1_048_576,
                proof: Believed::Validator,
                already: false,
                received: 786_432,
            },
            EventKind::Failed { failure: Failure::new(Code::NotFound, "404 Not Found"), kept: 0 },
        ];
        let mut lines = vec![added(1, &request)];
        lines.extend(events.iter().map(|e| event(1, e)));
        lines.push(progress(1, &with_phase(Phase::Fetching)));
        lines.push(progress(1, &Progress { left: None, speed: 0, ..with_phase(waiting) }));
        lines.push(finished(1, 1, 0, Exit::GaveUp));
        let wrong = Found {
            result: "wrong",
            digests: vec![(
                "md5=0cc175b9c0f1b6a831c399e269772661".into(),
                "md5=92eb5ffee6ae2fec3ad71c777531578f".into(),
            )],
            faults: vec!["it has 3 bytes, but should have 4".into()],
        };
        lines.push(verified(Path::new("a.iso"), &wrong));
        let report = Layer::ALL.map(|layer| match layer {
            Layer::Processes => format!("{layer}=partly:exempt"),
            Layer::Signals => format!("{layer}=missing:lacking"),
            layer => format!("{layer}=took"),
        });
        let found = Examination {
            report: Report::decode(&report.join(" ")).unwrap(),
            proofs: Layer::ALL
                .map(|layer| match layer {
                    Layer::Processes | Layer::Signals => (layer, Proof::Open),
                    layer => (layer, Proof::Shown),
                })
                .to_vec(),
            namespaces: Namespaces::Users,
        };
        lines.push(examined("6.8.0", &found));
        lines
    }

    #[test]
    fn the_lines_are_those_of_the_golden_file() {
        let golden = include_str!("../tests/golden/events.jsonl");
        let lines: String = all().iter().map(|line| format!("{line}\n")).collect();
        assert_eq!(lines, golden, "\n{lines}");
    }

    #[test]
    fn the_document_shows_every_line_of_the_golden_file() {
        let document = include_str!("../../../docs/json.md");
        for line in include_str!("../tests/golden/events.jsonl").lines() {
            assert!(document.contains(line), "docs/json.md lacks {line}");
        }
    }

    #[test]
    fn no_secret_of_a_url_is_told() {
        let text: String = all().iter().map(Value::to_string).collect();
        assert!(!text.contains("hunter2") && !text.contains("secret"), "{text}");
    }
}
