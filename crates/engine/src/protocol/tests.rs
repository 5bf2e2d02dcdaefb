//! What is written down of the protocol is what is spoken.

mod examples;
mod written;

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tidegate_core::frame::{self, Message};
use tidegate_core::message::{EventKind, Progress, SegmentProgress, Snapshot};
use tidegate_core::{Code, DownloadId, Failure, Identity, Span};

/// Set to renew what is written down, in `docs/protocol/engine`, after a change that is meant.
const RENEW: &str = "TIDEGATE_RENEW_PROTOCOL";

/// One message as it was sent: its kind, its body, and what it becomes when it is read and sent again.
struct Sent {
    to_child: bool,
    kind: &'static Kind,
    body: Vec<u8>,
}

fn only_message(mut decoder: Decoder, bytes: &[u8]) -> (u8, Vec<u8>) {
    decoder.feed(bytes);
    let Message { kind, body } = decoder.message().unwrap().unwrap();
    let found = (kind, body.to_vec());
    assert_eq!(decoder.message(), Ok(None));
    found
}

fn to_child(message: &ToChild) -> Sent {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let (number, body) = only_message(ToChild::decoder(), &bytes);
    let kind = message.kind();
    assert_eq!(number, kind.number);
    assert!(*message.descriptors().end() <= kind.descriptors, "{message:?}");
    Sent { to_child: true, kind, body }
}

fn from_child(message: &FromChild) -> Sent {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let (number, body) = only_message(FromChild::decoder(), &bytes);
    let kind = message.kind();
    assert_eq!(number, kind.number);
    Sent { to_child: false, kind, body }
}

impl Sent {
    fn read_and_sent_again(&self) -> Result<Sent, ProtocolError> {
        if self.to_child {
            Ok(to_child(&ToChild::decode(self.kind.number, &self.body)?))
        } else {
            Ok(from_child(&FromChild::decode(self.kind.number, &self.body)?))
        }
    }

    fn file_name(&self) -> String {
        format!("{}-{}.json", if self.to_child { "to-child" } else { "from-child" }, self.kind.name)
    }
}

fn all_examples() -> Vec<Sent> {
    let down = examples::to_child().iter().map(to_child).collect::<Vec<_>>();
    down.into_iter().chain(examples::from_child().iter().map(from_child)).collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/engine")
}

/// What is to be in each file.
fn files() -> Vec<(String, Value)> {
    let mut files: Vec<(String, Value)> = Vec::new();
    for sent in all_examples() {
        let (name, kind) = (sent.file_name(), sent.kind);
        let body: Value = serde_json::from_slice(&sent.body).unwrap();
        if let Some((_, file)) = files.iter_mut().find(|(known, _)| *known == name) {
            file["examples"].as_array_mut().unwrap().push(body);
            continue;
        }
        let file = json!({
            "name": kind.name,
            "direction": if sent.to_child { "parent to child" } else { "child to parent" },
            "kind": kind.number,
            "most_descriptors": kind.descriptors,
            "most_bytes": kind.most,
            "examples": [body],
        });
        files.push((name, file));
    }
    files
}

#[test]
fn what_is_written_down_of_the_protocol_is_what_is_spoken() {
    let renew = std::env::var_os(RENEW).is_some();
    let files = files();
    let expected: BTreeSet<String> = files.iter().map(|(name, _)| name.clone()).collect();
    if renew {
        fs::create_dir_all(folder()).unwrap();
        for (name, file) in &files {
            fs::write(folder().join(name), format!("{file:#}\n")).unwrap();
        }
    }
    let how = format!("after a change that is meant, run: {RENEW}=1 cargo test -p tidegate-engine protocol");
    for (name, file) in &files {
        let text = fs::read_to_string(folder().join(name)).unwrap_or_default();
        let written: Value = serde_json::from_str(&text).unwrap_or_default();
        assert_eq!(written, *file, "{name} is not what is spoken; {how}");
        for example in written["examples"].as_array().unwrap() {
            let number = u8::try_from(written["kind"].as_u64().unwrap()).unwrap();
            let body = serde_json::to_vec(example).unwrap();
            if name.starts_with("to-child") {
                ToChild::decode(number, &body).unwrap();
            } else {
                FromChild::decode(number, &body).unwrap();
            }
        }
    }
    let there: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    assert_eq!(there, expected, "files of messages that are not spoken are to be removed");
}

#[test]
fn every_message_has_an_example_and_a_number_of_its_own() {
    let files: BTreeSet<String> = files().into_iter().map(|(name, _)| name).collect();
    assert_eq!(files.len(), ToChild::KINDS.len() + FromChild::KINDS.len());
    for kinds in [ToChild::KINDS, FromChild::KINDS] {
        let numbers: BTreeSet<u8> = kinds.iter().map(|kind| kind.number).collect();
        let names: BTreeSet<&str> = kinds.iter().map(|kind| kind.name).collect();
        assert_eq!((numbers.len(), names.len()), (kinds.len(), kinds.len()));
        assert!(numbers.iter().all(|number| (1..0x80).contains(number)));
    }
    assert!(FromChild::KINDS.iter().all(|kind| kind.descriptors == 0), "the parent takes no descriptors");
}

#[test]
fn the_table_for_people_has_every_message_and_no_other() {
    let readme = fs::read_to_string(folder().join("README.md")).unwrap();
    let rows: Vec<Vec<&str>> = readme
        .lines()
        .filter(|line| line.starts_with("| [`"))
        .map(|line| line.split('|').map(str::trim).skip(1).take(3).collect())
        .collect();
    let row = |way: &str, kind: &Kind| {
        let Kind { name, number, descriptors, .. } = kind;
        vec![format!("[`{name}`]({way}-{name}.json)"), number.to_string(), descriptors.to_string()]
    };
    let down = ToChild::KINDS.iter().map(|kind| row("to-child", kind));
    let expected: Vec<Vec<String>> =
        down.chain(FromChild::KINDS.iter().map(|kind| row("from-child", kind))).collect();
    assert_eq!(rows, expected);
}

#[test]
fn a_message_that_is_read_and_sent_again_is_the_same() {
    for sent in all_examples() {
        let again = sent.read_and_sent_again().unwrap_or_else(|error| panic!("{}: {error}", sent.kind.name));
        assert_eq!(
            String::from_utf8_lossy(&again.body),
            String::from_utf8_lossy(&sent.body),
            "{}",
            sent.kind.name
        );
    }
}

#[test]
fn a_field_too_many_or_too_few_is_refused() {
    for sent in all_examples() {
        let whole: Value = serde_json::from_slice(&sent.body).unwrap();
        let refused = |body: &Value| {
            let body = serde_json::to_vec(body).unwrap();
            let changed = Sent { to_child: sent.to_child, kind: sent.kind, body };
            changed.read_and_sent_again().is_err()
        };
        let mut more = whole.clone();
        more["more"] = json!(1);
        assert!(refused(&more), "{}", sent.kind.name);
        for field in whole.as_object().unwrap().keys() {
            // What may be null may be left out.
            let mut fewer = whole.clone();
            let was = fewer.as_object_mut().unwrap().remove(field);
            let optional = matches!(
                (sent.kind.name, field.as_str()),
                ("prepared" | "verified", "place")
                    | ("set-download-limit", "limit")
                    | ("progress", "progress")
                    | ("introduced", "netrc")
            );
            assert_eq!(refused(&fewer), !optional, "{} without {field} ({was:?})", sent.kind.name);
        }
    }
}

#[test]
fn nothing_that_a_message_holds_is_shown() {
    for message in examples::to_child() {
        assert_eq!(format!("{message:?}"), format!("ToChild({})", message.kind().name));
        if let ToChild::Hello { setup, .. } = &message {
            assert_eq!(format!("{setup:?}"), "Setup(…)");
        }
    }
    for message in examples::from_child() {
        assert_eq!(format!("{message:?}"), format!("FromChild({})", message.kind().name));
    }
}

#[test]
fn an_error_is_a_sentence_and_shows_little_of_what_was_found() {
    let long = format!("{{\"call\": \"\\u001b[31m{}\"}}", "é".repeat(10_000));
    let error = ToChild::decode(21, long.as_bytes()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("a message \"ping\" cannot be read: invalid type: string"), "{text}");
    assert!(text.len() <= 250 && !text.contains('\u{1b}'), "{text}");
    // What stands in for a control character is longer than that.
    let long = format!("{{\"{}\": 1}}", "\\u0081".repeat(190));
    let text = ToChild::decode(21, long.as_bytes()).unwrap_err().to_string();
    assert!(text.len() <= 250 && text.ends_with("\u{fffd}…"), "{text}");
    assert_eq!(
        ToChild::decode(127, b"{}").unwrap_err().to_string(),
        "there is no message of kind 127 in this direction"
    );
    let error = FromChild::decode(8, br#"{"call":1,"host":"a b","port":80}"#).unwrap_err();
    assert_eq!(error.to_string(), "a message \"resolve\" is not in order: no name of a host");
}

/// What the parent says to a message that a child has sent.
fn refusal(message: &FromChild) -> Option<&'static str> {
    let sent = from_child(message);
    match FromChild::decode(sent.kind.number, &sent.body) {
        Ok(_) => None,
        Err(ProtocolError::Beyond { what, .. }) => Some(what),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_child_says_nothing_that_only_a_cold_side_can_know() {
    let failure = || Failure::new(Code::Stalled, "nothing came");
    let path = PathBuf::from("/home/me/.bashrc");
    let tell = |kind| refusal(&FromChild::Cold { id: DownloadId(1), message: Cold::Tell(kind) });
    for own in [
        EventKind::Started { resumed_from: 1 },
        EventKind::Waiting { failure: failure(), retry_in: std::time::Duration::MAX },
        EventKind::Restarted { failure: failure() },
        EventKind::Notice { message: "so it is".to_owned() },
        EventKind::Paused { have: 1 },
    ] {
        assert_eq!(tell(own.clone()), None, "{own:?}");
    }
    for others in [
        EventKind::Identified { url: String::new(), length: None, resumable: true, content_type: None },
        EventKind::Named { path: path.clone() },
        EventKind::Checkpointed { durable: 1 },
        EventKind::Stopped { kept: 1 },
        EventKind::Completed {
            path: Some(path),
            length: 1,
            proof: tidegate_core::message::Proof::Digest,
            already: false,
            received: 1,
        },
        EventKind::Failed { failure: failure(), kept: 1 },
    ] {
        assert_eq!(tell(others.clone()), Some("an event that only a cold side can tell"), "{others:?}");
    }
}

#[test]
fn what_a_child_says_is_bounded() {
    let (size, most_steps) = (i64::MAX as u64, 1 << 62);
    let cold = |message| refusal(&FromChild::Cold { id: DownloadId(u64::MAX), message });
    let text = |length| EventKind::Notice { message: "a".repeat(length) };
    assert_eq!(cold(Cold::Tell(text(64 << 10))), None);
    assert!(cold(Cold::Tell(text((64 << 10) + 1))).is_some());
    assert_eq!(cold(Cold::Turn(most_steps)), None);
    assert!(cold(Cold::Turn(most_steps + 1)).is_some());
    let identity = |length| Identity { length: Some(length), ..Identity::default() };
    assert_eq!(cold(Cold::Learned { identity: identity(size), doubts: most_steps }), None);
    assert!(cold(Cold::Learned { identity: identity(size + 1), doubts: 0 }).is_some());
    assert!(cold(Cold::Learned { identity: identity(1), doubts: most_steps + 1 }).is_some());
    let have = |end| [Span::new(0, end).unwrap()].into_iter().collect();
    assert_eq!(cold(Cold::Returned { doubts: 0, have: have(size) }), None);
    assert!(cold(Cold::Returned { doubts: 0, have: have(size + 1) }).is_some());
    assert!(refusal(&FromChild::Saved { call: 0, result: Saved::Durable(size + 1) }).is_some());

    let one = Progress::new(DownloadId(1));
    let snapshot =
        |downloads| refusal(&FromChild::Snapshot { call: 0, snapshot: Snapshot { downloads, speed: 0 } });
    assert_eq!(snapshot(vec![one.clone(); 4096]), None);
    assert!(snapshot(vec![one.clone(); 4097]).is_some());
    let span = |at: u64| Span::new(2 * at, 2 * at + 1).unwrap();
    // However much an honest child has to tell, it fits.
    let segment =
        SegmentProgress { span: Span::new(1 << 62, (1 << 62) + 1).unwrap(), done: 1, speed: 1 << 62 };
    let far = |at: u64| Span::new((1 << 62) + 2 * at, (1 << 62) + 2 * at + 1).unwrap();
    let broken = Progress { map: (0..5000).map(far).collect(), segments: vec![segment; 64], ..one.clone() };
    let downloads = vec![broken; 16];
    assert_eq!(snapshot(downloads.clone()), None);
    let sixteen = from_child(&FromChild::Snapshot { call: 0, snapshot: Snapshot { downloads, speed: 0 } });
    assert!(sixteen.body.len() * (1024 / 16) < sixteen.kind.most, "{} bytes", sixteen.body.len());
    let segment = SegmentProgress { span: span(0), done: 1, speed: 0 };
    let crowded = |count| Progress { segments: vec![segment; count], ..one.clone() };
    assert_eq!(snapshot(vec![crowded(1024)]), None);
    assert!(snapshot(vec![crowded(1025)]).is_some());

    let host = |host: &str| refusal(&FromChild::Resolve { call: 0, host: host.to_owned(), port: 0 });
    assert_eq!(host(&"a".repeat(64 << 10)), None, "a server may name such a host, and that ends nobody");
    for bad in ["", "a b", "a\0b", "bücher.example", "a\n", &"a".repeat((64 << 10) + 1)] {
        assert!(host(bad).is_some(), "{bad:?}");
    }
    let layers = |count| {
        refusal(&FromChild::Ready { version: 1, layers: vec![String::new(); count], missing: vec![] })
    };
    assert_eq!((layers(64), layers(65).is_some()), (None, true));
}

#[test]
fn only_what_may_be_long_is_taken_when_it_is_long() {
    let mut bytes = Vec::new();
    frame::encode(9, &vec![b' '; 2 << 20], &mut bytes);
    let mut decoder = FromChild::decoder();
    decoder.feed(&bytes);
    assert_eq!(decoder.message(), Err(FrameError::MessageTooLong { kind: 9, most: frame::MAX_FRAME - 1 }));
    let mut decoder = FromChild::decoder();
    decoder.feed(&[0, 0, 0, 2, 100]);
    assert_eq!(decoder.message(), Err(FrameError::UnknownKind(100)));
}

proptest! {
    #[test]
    fn no_body_is_too_strange(kind in 0u8..30, body in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = ToChild::decode(kind, &body);
        let _ = FromChild::decode(kind, &body);
    }

    /// Bodies that are almost right: what is taken of them can be sent again, and is the same then.
    #[test]
    fn a_spoilt_message_is_refused_or_is_another(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        with in prop_oneof![Just(b'0'), Just(b'9'), Just(b'"'), Just(b'}'), Just(b','), any::<u8>()],
    ) {
        let examples = all_examples();
        let Sent { to_child, kind, body } = &examples[which.index(examples.len())];
        let mut body = body.clone();
        let at = at.index(body.len());
        body[at] = with;
        if let Ok(taken) = (Sent { to_child: *to_child, kind, body }).read_and_sent_again() {
            let again = taken.read_and_sent_again().unwrap();
            prop_assert_eq!(again.body, taken.body);
        }
    }
}
