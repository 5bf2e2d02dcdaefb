//! Limits as the server sees them: what has left it, counted by its own kernel.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Bench, LONGEST};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tidegate_core::DownloadId;
use tidegate_core::message::{EventKind, Limits};
use tidegate_engine::Config;
use tidegate_testkit::{Body, Origin, Rate, Resource};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Downloads, of two connections each at most.
const DOWNLOADS: usize = 4;

/// What may have left the server and not been read, beside what the connections' own buffers hold.
const AHEAD: u64 = 64 * KIB;

fn origin() -> Origin {
    // With a send buffer of its own choice the server's kernel would take megabytes that nobody has asked for.
    Origin::builder()
        .resource("/f", Resource::new(Body::random(7, 8 * MIB)).rate(Rate::mib(1)))
        .each_site(|site| site.send_buffer(16 << 10))
        .start()
        .unwrap()
}

fn start(bench: &Bench, origin: &Origin) -> Vec<DownloadId> {
    let begin = |_| {
        let mut request = bench.request(&[&origin.url("/f")]);
        request.options.connections = 2;
        bench.start(request)
    };
    (0..DOWNLOADS).map(begin).collect()
}

/// Waits until so many bytes were read, and meanwhile asks `look` of what has left the server before the bytes
/// were read that are told with it.
fn read(bench: &Bench, origin: &Origin, bytes: u64, mut look: impl FnMut(u64, u64)) {
    let began = Instant::now();
    loop {
        let acked = origin.bytes_acked();
        let read = bench.engine.snapshot().unwrap().downloads.iter().map(|p| p.received).sum();
        look(acked, read);
        if read >= bytes {
            return;
        }
        assert!(began.elapsed() < LONGEST, "{read} of {bytes}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn under_a_limit_the_server_can_send_hardly_more_than_is_read() {
    let origin = origin();
    // What nobody reads leaves the server all the same, if the kernel chooses how much.
    let mut unread = TcpStream::connect(origin.address()).unwrap();
    unread.write_all(b"GET /f HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    unread.read_exact(&mut [0; 1]).unwrap();
    let began = Instant::now();
    while origin.bytes_acked() <= AHEAD {
        assert!(began.elapsed() < LONGEST, "only {} bytes have left", origin.bytes_acked());
        std::thread::park_timeout(Duration::from_millis(1));
    }
    drop(unread);
    assert!(origin.wait_until(LONGEST, |c| c.open == 0));
    let before = origin.bytes_acked();

    // So slow that what was read and is told a little later does not matter.
    let limits = Limits { total: Some(64 * KIB), ..Limits::default() };
    let bench = Bench::with(Config { limits, seed: Some(1), ..Config::default() });
    start(&bench, &origin);
    let mut most = 0;
    let allowed = AHEAD + 2 * DOWNLOADS as u64 * 4 * KIB;
    read(&bench, &origin, 128 * KIB, |acked, read| most = most.max((acked - before).saturating_sub(read)));
    assert!(most <= allowed, "{most} bytes had left the server and were not read; {allowed} may");
}

#[test]
fn when_a_limit_is_lifted_connections_that_were_opened_under_it_are_replaced() {
    let origin = origin();
    let limits = Limits { total: Some(256 * KIB), ..Limits::default() };
    let bench = Bench::with(Config { limits, seed: Some(1), ..Config::default() });
    let ids = start(&bench, &origin);
    read(&bench, &origin, 128 * KIB, |_, _| {});
    assert!(origin.wait_until(LONGEST, |c| c.status(206) >= DOWNLOADS as u64));
    let connects = origin.counters().connects;
    bench.engine.set_limits(Limits::default()).unwrap();
    for _ in ids {
        let right = loop {
            match bench.engine.next_event(LONGEST).unwrap().expect("a download hangs").kind {
                EventKind::Completed { path, .. } => break path.unwrap(),
                kind @ EventKind::Failed { .. } => panic!("{kind:?}"),
                _ => {}
            }
        };
        assert_eq!(origin.body("/f").unwrap().first_difference_in(right).unwrap(), None);
    }
    let more = origin.counters().connects - connects;
    assert!(more >= DOWNLOADS as u64, "{more} connections were replaced");
}
