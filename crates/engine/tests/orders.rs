//! What an engine does with orders, and with others' code that breaks or does not return.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
mod threads;

use common::{Bench, LONGEST};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tidegate_core::message::{EventKind, Phase};
use tidegate_core::request::{Credentials, Mirror};
use tidegate_core::{Code, Digest, DownloadId, Failure};
use tidegate_engine::connect::{Boxed, Dial, Network, NetworkConfig, Stream, SystemResolver};
use tidegate_engine::{Ask, Config, Engine};
use tidegate_testkit::recipes::{PASSWORD, USER};
use tidegate_testkit::{Body, Ending, Origin, Rate, Resource};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

const MIB: u64 = 1 << 20;

#[test]
fn an_order_for_a_download_that_never_was_is_refused_and_one_for_an_ended_download_does_nothing() {
    let origin = Origin::builder().start().unwrap();
    let bench = Bench::new();
    let ended = bench.start(bench.request(&[&origin.url("/none")]));
    assert_eq!(bench.follow(ended).code(), Some(Code::NotFound));
    let engine = &bench.engine;
    let orders: [&dyn Fn(DownloadId) -> Result<(), Failure>; 4] =
        [&|id| engine.pause(id), &|id| engine.resume(id), &|id| engine.cancel(id), &|id| {
            engine.set_download_limit(id, Some(1))
        }];
    for order in orders {
        for unknown in [DownloadId(0), DownloadId(ended.0 + 1)] {
            assert_eq!(order(unknown).unwrap_err().code, Code::NoSuchDownload);
        }
        order(ended).unwrap();
    }
    engine.snapshot().unwrap();
    assert_eq!(engine.next_event(Duration::ZERO).unwrap(), None, "its outcome was told before");
}

#[test]
fn the_time_that_is_asked_for_comes_as_an_event_of_the_download_and_lies_between_question_and_answer() {
    let silent = Resource::new(Body::random(1, 10)).respond(|_, _| Ok(Ending::Stall));
    let origin = Origin::builder().resource("/f", silent).start().unwrap();
    let bench = Bench::new();
    let id = bench.start(bench.request(&[&origin.url("/f")]));
    let before = tidegate_engine::sys::monotonic_ns();
    bench.engine.tell_time(id).unwrap();
    let told: u64 = loop {
        let event = bench.engine.next_event(LONGEST).unwrap().unwrap();
        if let EventKind::Notice { message } = event.kind {
            assert_eq!(event.id, id);
            break message.parse().unwrap();
        }
    };
    assert!((before..=tidegate_engine::sys::monotonic_ns()).contains(&told));
    bench.engine.stop(id).unwrap();
    assert_eq!(bench.follow(id).last, EventKind::Stopped { kept: 0 });
}

#[test]
fn an_engine_that_runs_as_many_downloads_as_it_may_says_so_and_takes_another_when_one_has_ended() {
    let silent = Resource::new(Body::random(1, 10)).respond(|_, _| Ok(Ending::Stall));
    let origin = Origin::builder().resource("/f", silent).start().unwrap();
    let bench = Bench::new();
    let mut request = bench.request(&[&origin.url("/f")]);
    request.options.dry_run = true;
    request.options.stall = Duration::from_secs(3600);
    let first = bench.start(request.clone());
    let refused = loop {
        match bench.engine.start(request.clone()) {
            Ok(id) => assert!(id.0 < 5000, "there is no bound"),
            Err(failure) => break failure,
        }
    };
    assert_eq!(refused.code, Code::EngineFull, "{refused}");
    bench.engine.stop(first).unwrap();
    assert_eq!(bench.follow(first).last, EventKind::Stopped { kept: 0 });
    bench.start(request);
}

/// Breaks when it is asked.
#[derive(Debug)]
struct Broken;

impl Ask for Broken {
    fn credentials(&self, _: DownloadId, _: &url::Url) -> Option<Credentials> {
        panic!("this test breaks the thread of a download")
    }
}

#[test]
fn a_download_whose_thread_breaks_is_told_as_failed_and_does_not_keep_the_engine_from_ending() {
    let resource = Resource::new(Body::random(2, MIB)).gate(tidegate_testkit::auth::basic(USER, PASSWORD));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = Bench::with(Config { ask: Some(Arc::new(Broken)), ..Config::default() });
    let outcome = bench.get(bench.request(&[&origin.url("/f")]));
    assert_eq!(outcome.code(), Some(Code::Internal), "{outcome:?}");
    bench.engine.shutdown(LONGEST).unwrap();
    assert_eq!(threads::of_engines(), Vec::<String>::new());
}

/// Says when it is asked, and answers when it may.
#[derive(Debug)]
struct Slow {
    asked: Mutex<SyncSender<()>>,
    may: Mutex<Receiver<()>>,
}

impl Ask for Slow {
    fn fresh_link(&self, _: DownloadId, _: &Failure) -> Option<Mirror> {
        self.asked.lock().unwrap().send(()).unwrap();
        self.may.lock().unwrap().recv().ok();
        None
    }
}

#[test]
fn a_download_that_was_given_up_is_not_shown_as_completed() {
    let origin = Origin::builder().start().unwrap();
    let ((asked, was_asked), (may, wait)) = (sync_channel(1), sync_channel(1));
    let ask = Arc::new(Slow { asked: Mutex::new(asked), may: Mutex::new(wait) });
    let bench = Bench::with(Config { ask: Some(ask), ..Config::default() });
    let id = bench.start(bench.request(&[&origin.url("/none")]));
    was_asked.recv_timeout(LONGEST).unwrap();
    assert_eq!(bench.engine.progress(id).unwrap().unwrap().phase, Phase::Failed);
    may.send(()).unwrap();
    assert_eq!(bench.follow(id).code(), Some(Code::NotFound));
}

#[test]
fn the_answer_that_asked_for_a_password_ends_nothing_however_broken_its_body_is() {
    let body = Body::random(3, MIB);
    let gate = tidegate_testkit::auth::basic(USER, PASSWORD);
    let resource = Resource::new(body.clone()).respond(move |resource, exchange| {
        if gate(exchange.request()).is_none() {
            let answer = resource.answer(exchange.request());
            return exchange.send(&answer);
        }
        exchange.begin(401);
        // Head and body in one: the body is here already when the answer turns out to be unwanted.
        exchange.raw(
            b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\n\
              Transfer-Encoding: chunked\r\n\r\nno chunk\r\n",
        )?;
        Ok(Ending::Stall)
    });
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = Bench::new();
    let mut request = bench.request(&[&origin.url("/f")]);
    request.credentials =
        Some(Credentials::Password { user: USER.to_owned(), password: PASSWORD.to_owned() });
    request.options.retries = 0;
    request.options.connections = 1;
    let outcome = bench.get(request);
    let path = outcome.path().unwrap_or_else(|| panic!("{outcome:?}"));
    assert_eq!(body.first_difference_in(path).unwrap(), None, "{outcome:?}");
    let told = |kind: &EventKind| matches!(kind, EventKind::Waiting { .. });
    assert!(!outcome.events.iter().any(told), "{outcome:?}");
    assert_eq!(origin.counters().method("GET"), 2);
}

/// A door that whoever comes to it waits before.
#[derive(Clone, Debug)]
struct Door {
    reached: SyncSender<()>,
    open: Arc<(Mutex<bool>, Condvar)>,
}

impl Door {
    fn shut() -> (Self, Receiver<()>) {
        let (reached, was_reached) = sync_channel(64);
        (Self { reached, open: Arc::default() }, was_reached)
    }

    fn open(&self) {
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }

    fn pass(&self) {
        let _ = self.reached.try_send(());
        let (open, opened) = &*self.open;
        drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
    }
}

/// A writer that takes nothing before it may.
struct Shut(Door);

impl io::Write for Shut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.pass();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_that_takes_nothing_holds_up_no_other_stream() {
    let origin = Origin::builder().resource("/f", Resource::new(Body::random(4, MIB))).start().unwrap();
    let bench = Bench::new();
    let (door, has_entered) = Door::shut();
    let blocked = bench.engine.start_into(bench.request(&[&origin.url("/f")]), Shut(door.clone())).unwrap();
    has_entered.recv_timeout(LONGEST).unwrap();
    let other = bench.engine.start_into(bench.request(&[&origin.url("/f")]), io::sink()).unwrap();
    let outcome = bench.follow(other);
    assert!(matches!(outcome.last, EventKind::Completed { .. }), "{outcome:?}");
    door.open();
    let outcome = bench.follow(blocked);
    assert!(matches!(outcome.last, EventKind::Completed { .. }), "{outcome:?}");
}

#[test]
fn a_stream_whose_writer_takes_nothing_can_be_stopped() {
    let origin = Origin::builder().resource("/f", Resource::new(Body::random(10, MIB))).start().unwrap();
    let bench = Bench::new();
    let (door, has_entered) = Door::shut();
    let id = bench.engine.start_into(bench.request(&[&origin.url("/f")]), Shut(door.clone())).unwrap();
    has_entered.recv_timeout(LONGEST).unwrap();
    bench.engine.pause(id).unwrap();
    assert_eq!(bench.follow(id).last, EventKind::Paused { have: 0 });
    bench.engine.stop(id).unwrap();
    assert_eq!(bench.follow(id).last, EventKind::Stopped { kept: 0 });
    door.open();
}

#[test]
fn a_writer_that_takes_nothing_keeps_nobody_from_an_answer_when_its_download_is_cancelled() {
    let origin = Origin::builder().resource("/f", Resource::new(Body::random(5, MIB))).start().unwrap();
    let bench = Bench::new();
    let (door, has_entered) = Door::shut();
    let id = bench.engine.start_into(bench.request(&[&origin.url("/f")]), Shut(door.clone())).unwrap();
    has_entered.recv_timeout(LONGEST).unwrap();
    bench.engine.cancel(id).unwrap();
    assert_eq!(bench.follow(id).code(), Some(Code::Cancelled));
    // Answered after everything that the end of the download brings.
    while bench.engine.progress(id).unwrap().is_some() {
        std::thread::yield_now();
    }
    bench.engine.snapshot().unwrap();
    // Its thread cannot be waited for.
    bench.engine.shutdown(Duration::ZERO).unwrap();
    door.open();
    threads::wait_for_none(LONGEST);
}

#[test]
fn who_waits_for_events_keeps_nobody_else_waiting_and_hears_of_the_end() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| bench.engine.next_event(Duration::MAX));
        for _ in 0..100 {
            assert_eq!(bench.engine.next_event(Duration::from_millis(1)).unwrap(), None);
        }
        bench.engine.shutdown(Duration::MAX).unwrap();
        assert_eq!(waits.join().unwrap().unwrap_err().code, Code::EngineUnavailable);
    });
}

#[test]
fn a_stopped_download_lets_go_of_its_part_and_the_same_request_goes_on_with_it_at_once() {
    let body = Body::random(6, 16 * MIB);
    let resource = Resource::new(body.clone()).rate(Rate::mib(8));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = Bench::new();
    let mut had = 0;
    for stop in 1..=6 {
        let id = bench.start(bench.request(&[&origin.url("/f")]));
        assert!(origin.wait_until(LONGEST, |c| c.body_bytes > stop * 2 * MIB));
        if stop % 2 == 0 {
            bench.engine.pause(id).unwrap();
        }
        bench.engine.stop(id).unwrap();
        let kept = loop {
            match bench.follow(id).last {
                EventKind::Stopped { kept } => break kept,
                EventKind::Paused { .. } => {}
                last => panic!("{last:?}"),
            }
        };
        assert!(kept >= had, "{kept} after {had}");
        had = kept;
        assert_eq!(bench.names(), ["f.part", "f.part.tide"]);
        bench.engine.stop(id).unwrap();
        bench.engine.resume(id).unwrap();
    }
    assert!(had > 4 * MIB, "{had}");
    let outcome = bench.get(bench.request(&[&origin.url("/f")]));
    let resumed = outcome.events.iter().find_map(|event| match event {
        EventKind::Started { resumed_from } => Some(*resumed_from),
        _ => None,
    });
    assert_eq!(resumed, Some(had));
    assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
    assert_eq!(bench.names(), ["f"]);
}

#[test]
fn a_download_can_be_stopped_at_any_moment_and_leaves_no_second_part() {
    let body = Body::random(7, 300_000);
    let origin = Origin::builder().resource("/f", Resource::new(body.clone())).start().unwrap();
    let bench = Bench::new();
    let mut completed = false;
    for moment in 0..200u32 {
        let id = bench.start(bench.request(&[&origin.url("/f")]));
        // However far it has come by then.
        let told = moment % 7;
        let mut last = None;
        for _ in 0..told {
            let event = bench.engine.next_event(LONGEST).unwrap().unwrap();
            if event.kind.is_final() {
                last = Some(event.kind);
                break;
            }
        }
        bench.engine.stop(id).unwrap();
        match last.unwrap_or_else(|| bench.follow(id).last) {
            EventKind::Stopped { .. } => {}
            EventKind::Completed { path, .. } => {
                completed = true;
                let path = path.unwrap();
                assert_eq!(body.first_difference_in(&path).unwrap(), None);
                std::fs::remove_file(path).unwrap();
            }
            last => panic!("{last:?}"),
        }
        let names = bench.names();
        assert!(names.iter().all(|name| ["f.part", "f.part.tide"].contains(&name.as_str())), "{names:?}");
    }
    assert!(completed);
}

#[test]
fn a_download_that_is_stopped_while_its_digest_is_computed_keeps_every_byte() {
    let body = Body::random(8, 32 * MIB);
    let digest: Digest = format!("sha-256={}", body.sha256_hex()).parse().unwrap();
    let origin = Origin::builder().resource("/f", Resource::new(body.clone())).start().unwrap();
    // Until the order comes in time.
    for _ in 0..50 {
        let bench = Bench::new();
        let mut request = bench.request(&[&origin.url("/f")]);
        request.digests = vec![digest.clone()];
        let id = bench.start(request.clone());
        let phase = || bench.engine.progress(id).unwrap().map(|progress| progress.phase);
        while !matches!(phase(), None | Some(Phase::Verifying | Phase::Completed)) {
            std::thread::yield_now();
        }
        bench.engine.stop(id).unwrap();
        let EventKind::Stopped { kept } = bench.follow(id).last else { continue };
        assert_eq!(kept, body.len());
        let sent = origin.counters().body_bytes;
        let outcome = bench.get(request);
        assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
        assert!(origin.counters().body_bytes < sent + 2 * MIB, "it was fetched again");
        return;
    }
    panic!("a digest is always computed before anybody can stop it");
}

/// Dials as usual; but a door stands in the way of what is read beyond the first MiB.
#[derive(Debug)]
struct Behind(Door);

struct Doored {
    socket: TcpStream,
    read: usize,
    door: Door,
}

impl Dial for Behind {
    fn dial(&self, address: SocketAddr, _: Option<u32>) -> Boxed<'_, io::Result<Stream>> {
        Box::pin(async move {
            let socket = TcpStream::connect(address).await?;
            Ok(Stream::simulated(Doored { socket, read: 0, door: self.0.clone() }))
        })
    }
}

impl AsyncRead for Doored {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = room.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, room))?;
        self.read += room.filled().len() - before;
        if self.read > 1 << 20 {
            // As a thread that hangs in a write: it hears of nothing meanwhile.
            self.door.pass();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Doored {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[test]
fn nobody_hears_that_a_download_was_stopped_while_a_fetch_may_still_write_into_its_part() {
    let body = Body::random(9, 4 * MIB);
    let origin = Origin::builder().resource("/f", Resource::new(body.clone())).start().unwrap();
    let (door, was_reached) = Door::shut();
    let dialer = Box::new(Behind(door.clone()));
    let network =
        Network::simulated(NetworkConfig::default(), Box::new(SystemResolver::default()), dialer).unwrap();
    let engine = Engine::start_with(Config::default(), network).unwrap();
    let bench = Bench { engine, folder: tempfile::tempdir().unwrap() };
    let mut request = bench.request(&[&origin.url("/f")]);
    request.options.connections = 1;
    let id = bench.start(request.clone());
    was_reached.recv_timeout(LONGEST).unwrap();
    bench.engine.stop(id).unwrap();
    while let Some(event) = bench.engine.next_event(Duration::from_millis(200)).unwrap() {
        assert!(!event.kind.is_final(), "{event:?}");
    }
    door.open();
    let last = bench.follow(id).last;
    assert!(matches!(last, EventKind::Stopped { kept } if kept > MIB / 2), "{last:?}");
    let outcome = bench.get(request);
    assert_eq!(body.first_difference_in(outcome.path().unwrap()).unwrap(), None, "{outcome:?}");
    assert_eq!(bench.names(), ["f"]);
}
