//! The process ends, or stands still, while a download is in one state or another.

use super::processes::signal;
use super::{MIB, PRICE, bench, goes_on, process};
use crate::common::{Bench, LONGEST};
use crate::mounts;
use rustix::process::Signal;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_core::message::{EventKind, Phase, Proof};
use tidegate_core::request::{Destination, Request};
use tidegate_core::{Algorithm, Code, Digest, DownloadId};
use tidegate_testkit::{Answer, Body, Ending, Origin, Rate, RequestSeen, Resource};

/// Waits until a download is in this phase.
fn wait_for_phase(bench: &Bench, id: DownloadId, is: impl Fn(&Phase) -> bool) {
    let until = Instant::now() + LONGEST;
    while !bench.engine.progress(id).unwrap().is_some_and(|progress| is(&progress.phase)) {
        assert!(Instant::now() < until, "{:?}", bench.engine.progress(id));
        std::thread::yield_now();
    }
}

fn kill(bench: &Bench) {
    assert!(signal(process(bench), Signal::KILL));
}

fn is_right(body: &Body, kind: &EventKind) {
    let EventKind::Completed { path: Some(path), .. } = kind else { panic!("{kind:?}") };
    assert_eq!(body.first_difference_in(path).unwrap(), None);
}

/// A request for this name, whatever the link says.
fn named(bench: &Bench, url: &str, name: &str) -> Request {
    let mut request = bench.request(&[url]);
    let dir = bench.folder.path().to_owned();
    request.destination = Destination::File { dir, name: Some(PathBuf::from(name)), adopt: None };
    request
}

#[test]
fn a_process_that_stands_still_is_ended_and_the_download_goes_on() {
    let body = Body::random(1, 24 * MIB);
    let resource = Resource::new(body.clone()).rate(Rate::mib(2));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = bench();
    let id = bench.start(bench.request(&[&origin.url("/f")]));
    assert!(origin.wait_until(LONGEST, |c| c.body_bytes > 4 * MIB));
    let still = process(&bench);
    assert!(signal(still, Signal::STOP));
    let told = goes_on(&bench, id).unwrap();
    assert!(told.contains("did not answer"), "{told}");
    assert_ne!(process(&bench), still);
    is_right(&body, &bench.follow(id).last);
    // What the kernel had taken for the one that stood still is lost with it.
    let sent = origin.counters().body_bytes;
    println!("{} KiB were sent beyond the size", (sent - body.len()) >> 10);
}

#[test]
fn a_download_that_ends_the_process_again_and_again_is_set_aside_and_another_goes_on() {
    let (good, stuck) = (Body::random(1, 24 * MIB), Body::random(2, 8 * MIB));
    let begins = |_: &RequestSeen, answer: &mut Answer| {
        answer.cut_after(1000, Ending::Stall);
    };
    let origin = Origin::builder()
        .resource("/good", Resource::new(good.clone()).rate(Rate::mib(8)))
        .resource("/stuck", Resource::new(stuck).hook(begins))
        .start()
        .unwrap();
    let bench = bench();
    let mut request = bench.request(&[&origin.url("/stuck")]);
    request.options.stall = Duration::from_secs(3600);
    let poison = bench.start(request);
    let mut request = bench.request(&[&origin.url("/good")]);
    request.options.connections = 1;
    let other = bench.start(request);
    let (mut going, mut ended, mut kills) = ([0, 0], None, 0);
    let until = Instant::now() + LONGEST;
    let mut kill_at = 3 * MIB;
    while ended.is_none() || going[1] < kills {
        assert!(Instant::now() < until, "{going:?}, {ended:?}, {:?}", bench.engine.snapshot());
        if kills < 3
            && going.iter().all(|going| *going >= kills)
            && origin.counters().path("/good") >= kill_at
        {
            kill(&bench);
            kills += 1;
            // Progress enough that something of it is on record.
            kill_at = origin.counters().path("/good") + 3 * MIB;
        }
        let Some(event) = bench.engine.next_event(Duration::from_millis(5)).unwrap() else { continue };
        match event.kind {
            EventKind::Notice { message } if message.contains("going on") => {
                going[usize::from(event.id == other)] += 1;
            }
            kind if kind.is_final() => {
                assert_eq!(event.id, poison, "{kind:?}");
                ended = Some(kind);
            }
            _ => {}
        }
    }
    let Some(EventKind::Failed { failure, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(failure.code, Code::EngineCrash);
    assert!(failure.message.contains("3 times"), "{failure}");
    is_right(&good, &bench.follow(other).last);
}

#[test]
fn a_paused_download_stays_paused_when_the_process_ends_and_loses_nothing() {
    let body = Body::random(1, 16 * MIB);
    let resource = Resource::new(body.clone()).rate(Rate::mib(4));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = bench();
    let id = bench.start(bench.request(&[&origin.url("/f")]));
    assert!(origin.wait_until(LONGEST, |c| c.body_bytes > 4 * MIB));
    bench.engine.pause(id).unwrap();
    let EventKind::Paused { have } = bench.follow(id).last else { panic!("it is not paused") };
    let requests = origin.counters().requests;
    for _ in 0..2 {
        kill(&bench);
        goes_on(&bench, id).unwrap();
        wait_for_phase(&bench, id, |phase| *phase == Phase::Paused);
    }
    assert_eq!(origin.counters().requests, requests, "it is paused");
    let before = origin.counters().body_bytes;
    bench.engine.resume(id).unwrap();
    is_right(&body, &bench.follow(id).last);
    let sent = origin.counters().body_bytes - before;
    assert!(sent <= body.len() - have + MIB, "{sent} bytes after a pause at {have}");
}

#[test]
fn the_end_of_the_process_during_the_verification_costs_nothing() {
    let body = Body::random(1, 96 * MIB);
    let origin = Origin::builder().resource("/f", Resource::new(body.clone())).start().unwrap();
    let digest = Digest::from_hex(Algorithm::Sha256, &body.sha256_hex()).unwrap();
    let bench = bench();
    let mut request = bench.request(&[&origin.url("/f")]);
    request.digests = vec![digest];
    // Of parts that are given away some bytes come twice.
    request.options.connections = 1;
    let id = bench.start(request);
    wait_for_phase(&bench, id, |phase| *phase == Phase::Verifying);
    kill(&bench);
    let outcome = bench.follow(id);
    is_right(&body, &outcome.last);
    let EventKind::Completed { proof, .. } = outcome.last else { unreachable!() };
    assert_eq!(proof, Proof::Digest);
    let sent = origin.counters().body_bytes;
    assert!(sent <= body.len() + 8 * MIB, "{sent} bytes for {}", body.len());
    assert_eq!(bench.names(), ["f"]);
}

#[test]
fn another_links_part_is_as_it_was_when_the_process_ends_while_it_is_compared() {
    let (one, two) = (Body::random(1, 8 * MIB), Body::random(2, 8 * MIB));
    let slow = |body: &Body| Resource::new(body.clone()).rate(Rate::kib(512));
    let origin = Origin::builder()
        .resource("/one", Resource::new(one.clone()).rate(Rate::mib(4)))
        .resource("/two", slow(&two))
        .resource("/same", slow(&one))
        .start()
        .unwrap();
    let bench = bench();
    let first = bench.start(named(&bench, &origin.url("/one"), "f"));
    assert!(origin.wait_until(LONGEST, |c| c.body_bytes > 5 * MIB));
    bench.engine.stop(first).unwrap();
    let EventKind::Stopped { kept } = bench.follow(first).last else { panic!("it has not stopped") };
    assert!(kept > 2 * MIB, "{kept}");

    // Not the same file: the bytes that are here are left to whom they belong.
    let second = bench.start(named(&bench, &origin.url("/two"), "f"));
    assert!(origin.wait_until(LONGEST, |c| c.path("/two") > 0));
    kill(&bench);
    goes_on(&bench, second).unwrap();
    bench.engine.cancel(second).unwrap();
    assert!(matches!(bench.follow(second).last, EventKind::Failed { .. }));
    // The same file: it goes on with them, whenever the process ends.
    let third = bench.start(named(&bench, &origin.url("/same"), "f"));
    for kill_at in [1, 300 << 10] {
        let at = origin.counters().path("/same") + kill_at;
        assert!(origin.wait_until(LONGEST, |c| c.path("/same") >= at));
        kill(&bench);
        goes_on(&bench, third).unwrap();
    }
    is_right(&one, &bench.follow(third).last);
    let sent = origin.counters().path("/same");
    println!("{} KiB of another link were here, {} KiB were sent by the second", kept >> 10, sent >> 10);
    assert!(sent <= one.len() - kept + 8 * MIB, "{sent}");
}

#[test]
fn what_waits_for_room_goes_on_waiting_when_the_process_ends() {
    let name = "moments::what_waits_for_room_goes_on_waiting_when_the_process_ends";
    if !mounts::may_mount(name) {
        return;
    }
    let body = Body::random(1, 16 * MIB);
    let resource = Resource::new(body.clone()).rate(Rate::mib(4));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = bench();
    let disk = bench.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let _memory = mounts::Memory::mount(&disk, body.len() + 4 * MIB);
    let mut request = bench.request(&[&origin.url("/f")]);
    request.destination = Destination::File { dir: disk.clone(), name: None, adopt: None };
    let id = bench.start(request);
    assert!(origin.wait_until(LONGEST, |c| c.body_bytes > 4 * MIB));
    fill(&disk.join("filler"));
    wait_for_full(&bench, id);
    for _ in 0..2 {
        kill(&bench);
        goes_on(&bench, id).unwrap();
        wait_for_full(&bench, id);
    }
    std::fs::remove_file(disk.join("filler")).unwrap();
    is_right(&body, &bench.follow(id).last);
    let sent = origin.counters().body_bytes;
    println!("{} KiB were sent beyond the size", (sent - body.len()) >> 10);
    assert!(sent <= body.len() + 2 * MIB + 8 * PRICE * 2, "{sent}");
}

/// Writes until there is no room left.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    let block = vec![7; 64 << 10];
    while file.write_all(&block).is_ok() {}
}

/// Takes events until this download waits for room.
fn wait_for_full(bench: &Bench, id: DownloadId) {
    let until = Instant::now() + LONGEST;
    while Instant::now() < until {
        match bench.engine.next_event(Duration::from_secs(1)).unwrap().map(|event| (event.id, event.kind)) {
            Some((of, EventKind::Waiting { failure, .. })) if of == id && failure.code == Code::DiskFull => {
                return;
            }
            Some((of, kind)) => assert!(of != id || !kind.is_final(), "{kind:?}"),
            None => {}
        }
    }
    panic!("the disk is never seen to be full: {:?}", bench.engine.snapshot());
}

/// Takes bytes for a stream, and tells when some have come.
struct Sink {
    bytes: Arc<Mutex<Vec<u8>>>,
    came: SyncSender<()>,
}

impl Sink {
    fn new() -> (Self, Arc<Mutex<Vec<u8>>>, Receiver<()>) {
        let (came, has_come) = sync_channel(1);
        let bytes = Arc::<Mutex<Vec<u8>>>::default();
        (Self { bytes: Arc::clone(&bytes), came }, bytes, has_come)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.lock().unwrap().extend_from_slice(bytes);
        let _ = self.came.try_send(());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stream_of_which_bytes_have_gone_out_fails_with_the_process_and_says_why() {
    let body = Body::random(1, 8 * MIB);
    let resource = Resource::new(body.clone()).rate(Rate::mib(1));
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = bench();
    let (sink, bytes, has_come) = Sink::new();
    let id = bench.engine.start_into(bench.request(&[&origin.url("/f")]), sink).unwrap();
    has_come.recv_timeout(LONGEST).unwrap();
    kill(&bench);
    let EventKind::Failed { failure, .. } = bench.follow(id).last else { panic!("bytes went out twice") };
    assert_eq!(failure.code, Code::EngineCrash, "{failure}");
    assert!(failure.message.contains("cannot be taken back"), "{failure}");
    let bytes = bytes.lock().unwrap();
    assert!(!bytes.is_empty());
    assert_eq!(*bytes, body.bytes_of(0..bytes.len() as u64), "what went out is right as far as it goes");
}

#[test]
fn a_stream_of_which_nothing_has_gone_out_begins_again() {
    let body = Body::random(1, MIB);
    // The first request is answered by silence.
    let first = Mutex::new(true);
    let silent = move |_: &RequestSeen| {
        let mut answer = Answer::status(200);
        answer.delay = Duration::from_secs(3600);
        std::mem::take(&mut *first.lock().unwrap()).then_some(answer)
    };
    let resource = Resource::new(body.clone()).gate(silent);
    let origin = Origin::builder().resource("/f", resource).start().unwrap();
    let bench = bench();
    let (sink, bytes, _has_come) = Sink::new();
    let mut request = bench.request(&[&origin.url("/f")]);
    request.options.stall = Duration::from_secs(3600);
    let id = bench.engine.start_into(request, sink).unwrap();
    assert!(origin.wait_until(LONGEST, |c| c.requests == 1));
    kill(&bench);
    let outcome = bench.follow(id);
    assert!(matches!(outcome.last, EventKind::Completed { path: None, .. }), "{outcome:?}");
    assert_eq!(*bytes.lock().unwrap(), body.to_vec());
}
