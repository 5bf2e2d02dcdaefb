//! An example of each message, and of each thing that it can say.

use crate::connect::{Family, NetworkConfig, NoProxy, Proxies, Proxy, TlsConfig};
use crate::protocol::{Cold, FromChild, PartState, Place, Resolution, Roots, Saved, Setup, ToChild, VERSION};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use tidegate_core::checkpoint::{About, Record, RequestKey, Slot, Surroundings};
use tidegate_core::cookies::CookieJar;
use tidegate_core::digest::Pieces;
use tidegate_core::message::{EventKind, Limits, Phase, Progress, Proof, SegmentProgress, Snapshot};
use tidegate_core::netrc::Netrc;
use tidegate_core::request::{Credentials, Destination, Mirror, Options};
use tidegate_core::transfer::{Found, Preparation, Verified};
use tidegate_core::{Code, Digest, DownloadId, EntityTag, Failure, Identity, Request, Span, SpanSet};
use url::Url;

const ID: DownloadId = DownloadId(7);

fn spans(list: &[(u64, u64)]) -> SpanSet {
    list.iter().map(|(start, end)| Span::new(*start, *end).unwrap()).collect()
}

fn digest() -> Digest {
    "sha-256=2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae".parse().unwrap()
}

fn identity() -> Identity {
    Identity {
        length: Some(4_194_304),
        etag: EntityTag::parse("\"33a64df5\""),
        last_modified: Some(784_111_777),
        date_is_strong: true,
        said_by: Some(6_148_914_691_236_517_205),
    }
}

fn full() -> Failure {
    Failure::new(Code::DiskFull, "no room on the disk")
}

fn lost() -> Failure {
    Failure::new(Code::ConnectionLost, "example.org: the connection ended after 1.0 MiB")
}

fn jar() -> CookieJar {
    let mut jar = CookieJar::new();
    let url = Url::parse("https://example.org:8443/files/").unwrap();
    jar.set(&url, b"session=s3cret; Secure; HttpOnly; Max-Age=60", 1_000_000_000).unwrap();
    jar
}

fn setup() -> Setup {
    let proxy = Proxy::parse("socks5h://[::1]:9050").unwrap().with_credentials("me", "hunter2").unwrap();
    let tls = TlsConfig { ca_pem: Some(b"-----BEGIN".to_vec()), client_cert_pem: None, insecure: false };
    Setup {
        limits: Limits { total: Some(1_000_000), ..Limits::default() },
        network: NetworkConfig {
            family: Family::V4,
            proxies: Proxies {
                http: None,
                https: Some(proxy),
                none_for: NoProxy::parse("localhost,.example.org:80,10.0.0.0/8,[::1]:80"),
            },
            tls,
        },
        user_agent: Some("mine/1".to_owned()),
        referer: Some(Url::parse("https://example.org/page").unwrap()),
        buffered: false,
        seed: None,
    }
}

fn request() -> Request {
    let mirrors = vec![
        Mirror::parse("https://example.org/disk.iso").unwrap(),
        Mirror::parse("http://mirror.example/disk.iso").unwrap().named_by_document(),
    ];
    // A name that is no UTF-8.
    let name = OsStr::from_bytes(b"disk\xff.iso");
    let destination = Destination::File { dir: "downloads".into(), name: Some(name.into()), adopt: None };
    let mut request = Request::new(mirrors, destination).unwrap();
    request.digests = vec![digest()];
    request.pieces = Some(Pieces { length: 4_194_304, digests: vec![digest()] });
    request.length = Some(4_194_304);
    request.headers = vec![("Accept-Language".to_owned(), "en".to_owned())];
    request.credentials =
        Some(Credentials::Password { user: "me".to_owned(), password: "hunter2".to_owned() });
    request.options = Options { limit: Some(500_000), ..Options::default() };
    request
}

fn part() -> PartState {
    PartState {
        version: 1,
        about: About {
            key: RequestKey::of(request().mirrors()[0].url()),
            identity: identity(),
            surroundings: Surroundings {
                boot: Some(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
                mount: Some(42),
                inode: 1_234_567,
                birth: Some(1_700_000_000_123_456_789),
            },
            done: None,
        },
        have: spans(&[(0, 1_048_576), (2_097_152, 2_359_296)]),
        synced: spans(&[(0, 1_048_576)]),
        generation: 3,
        sequence: 12,
        next_durable: Slot::D1,
        next_written: Slot::W0,
        recorded: true,
        doubts: 1,
        inherited: None,
    }
}

fn place() -> Place {
    Place::Part { called: "downloads/disk.iso.part".to_owned(), file_system: 2049, part: part() }
}

/// As after a run that was ended by force.
fn inherited() -> Place {
    let PartState { about, synced, generation, sequence, .. } = part();
    let record = Record { sequence, generation, about, spans: synced };
    let part = PartState { inherited: Some((Slot::D0, record)), ..part() };
    Place::Part { called: "downloads/disk.iso.part".to_owned(), file_system: 2049, part }
}

/// With each place, each answer and each thing that may be found.
pub(super) fn to_child() -> Vec<ToChild> {
    let (id, call, turn) = (ID, 3, 2);
    let recorded = Found::Recorded { identity: identity(), spans: spans(&[(0, 1_048_576)]) };
    let verified = |verified, place| ToChild::Verified { id, turn, verified, place };
    let stdout = Request::new(vec![Mirror::parse("http://h/a").unwrap()], Destination::Stdout).unwrap();
    let started = |found, request, place| ToChild::Start { id, request, found, borrowed: false, place };
    let stream = Place::Stream { called: "standard output".to_owned() };
    let bad = vec![Span::new(0, 4096).unwrap(), Span::new(4096, 8192).unwrap()];
    vec![
        ToChild::Hello { version: VERSION, setup: setup() },
        ToChild::Register { id },
        started(recorded, request(), Place::Later { file_system: 2049, doubts: 1 }),
        started(Found::Adopted { spans: spans(&[(0, 9)]) }, stdout.clone(), stream),
        started(Found::Nothing, stdout, Place::Nowhere),
        ToChild::Prepared { id, turn, place: Some(place()) },
        ToChild::Prepared { id, turn, place: Some(inherited()) },
        ToChild::Prepared { id, turn, place: None },
        verified(Verified::BadPieces(bad), Some(place())),
        verified(Verified::Wrong(Failure::new(Code::DigestMismatch, "another digest")), Some(place())),
        verified(Verified::Failed(full()), None),
        verified(Verified::Right, None),
        ToChild::MachineReady { id, turn },
        ToChild::Over { id },
        ToChild::Gone { id },
        ToChild::Save { id, call, durable: true },
        ToChild::Pause { id, call },
        ToChild::Resume { id },
        ToChild::Stop { id, call },
        ToChild::Cancel { id },
        ToChild::SetLimits { limits: Limits::default() },
        ToChild::SetDownloadLimit { id, limit: Some(500_000) },
        ToChild::Snapshot { call },
        ToChild::Progress { call, id },
        ToChild::Cookies { call },
        ToChild::Resolved {
            call,
            answer: Resolution::Found(vec![
                "192.0.2.1:443".parse().unwrap(),
                "[2001:db8::1]:443".parse().unwrap(),
            ]),
        },
        ToChild::Resolved { call, answer: Resolution::Unknown },
        ToChild::Resolved { call, answer: Resolution::Failed("the name servers did not answer".to_owned()) },
        ToChild::Ping { call },
        ToChild::TellTime { id },
        ToChild::Shutdown {},
        ToChild::Introduced {
            host: "example.org".to_owned(),
            cookies: jar(),
            netrc: Some(Netrc::parse("machine example.org login me password hunter2").unwrap()),
        },
        ToChild::Introduced { host: "example.org".to_owned(), cookies: CookieJar::new(), netrc: None },
        ToChild::Roots { call: 9, roots: Roots::Found("MIIB\nMIIC".to_owned()) },
        ToChild::Roots { call: 9, roots: Roots::Failed("install the package ca-certificates".to_owned()) },
    ]
}

fn preparation() -> Preparation {
    Preparation {
        identity: identity(),
        restart: Some(Failure::new(Code::Changed, "the file is another now")),
        disposition: Some("disk.iso".to_owned()),
        content_type: Some("application/octet-stream".to_owned()),
        url: Url::parse("https://cdn.example/disk.iso?token=1").unwrap(),
        resumable: true,
        decoded: false,
        unproved: false,
        digests: vec![digest()],
    }
}

fn progress(phase: Phase) -> Progress {
    let segment =
        SegmentProgress { span: Span::new(1_048_576, 2_097_152).unwrap(), done: 65_536, speed: 900_000 };
    Progress {
        phase,
        have: 1_114_112,
        received: 65_536,
        length: Some(4_194_304),
        speed: 900_000,
        left: Some(Duration::from_millis(3_422)),
        connections: 1,
        segments: vec![segment],
        map: vec![Span::new(0, 1_114_112).unwrap()],
        requests: 2,
        ..Progress::new(ID)
    }
}

/// With each thing that a cold side is told.
pub(super) fn from_child() -> Vec<FromChild> {
    let call = 3;
    let cold = |message| FromChild::Cold { id: ID, message };
    let waiting = Phase::Waiting { failure: lost(), retry_in: Duration::from_secs(1) };
    let snapshot = Snapshot { downloads: vec![progress(Phase::Fetching)], speed: 900_000 };
    vec![
        FromChild::Ready {
            version: VERSION,
            layers: vec!["seccomp".to_owned()],
            missing: vec!["landlock".to_owned()],
        },
        cold(Cold::Tell(EventKind::Started { resumed_from: 1_048_576 })),
        cold(Cold::Tell(EventKind::Waiting { failure: lost(), retry_in: Duration::from_secs(1) })),
        cold(Cold::Tell(EventKind::Restarted { failure: lost() })),
        cold(Cold::Tell(EventKind::Notice { message: "leaving a mirror".to_owned() })),
        cold(Cold::Tell(EventKind::Paused { have: 1_114_112 })),
        cold(Cold::Turn(2)),
        cold(Cold::Prepare { preparation: Box::new(preparation()), doubts: 1 }),
        cold(Cold::Learned { identity: identity(), doubts: 1 }),
        cold(Cold::Verify {
            identity: identity(),
            digests: vec![digest()],
            proof: Proof::Validator,
            received: 3_145_728,
        }),
        cold(Cold::AwaitMachine(full())),
        cold(Cold::GiveUp(lost())),
        cold(Cold::Paused),
        cold(Cold::Cancel),
        cold(Cold::End),
        cold(Cold::Returned { doubts: 1, have: spans(&[(0, 9)]) }),
        cold(Cold::Freed),
        FromChild::Done { call },
        FromChild::Saved { call, result: Saved::Durable(1_048_576) },
        FromChild::Saved { call, result: Saved::Failed(full()) },
        FromChild::Saved { call, result: Saved::Gone },
        FromChild::Snapshot { call, snapshot },
        FromChild::Progress { call, progress: Some(progress(waiting)) },
        FromChild::Progress { call, progress: None },
        FromChild::Cookies { call, cookies: jar() },
        FromChild::Resolve { call: 9, host: "example.org".to_owned(), port: 443 },
        FromChild::Pong { call, at_ns: 123_456_789_012 },
        FromChild::Introduce { host: "cdn.example".to_owned() },
        FromChild::WantRoots { call: 10 },
    ]
}
