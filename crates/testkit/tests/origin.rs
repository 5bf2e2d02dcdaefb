//! The Origin does what it says: honest service, endings, phases, counters, pace, network.

#![allow(clippy::unwrap_used, reason = "a failure here is the failure of a test")]

mod common;

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{SOON, connect, drain, fetch, get, get_range, read_one, request};
use tidegate_testkit::exchange::Ending;
use tidegate_testkit::pace::{Pace, Pacer};
use tidegate_testkit::resource::Ranges;
use tidegate_testkit::{Answer, Body, Framing, Origin, Rate, Resource, Site};

const PATH: &str = "/file.bin";

fn noise(len: u64) -> Body {
    Body::random(5, len)
}

fn serve(resource: Resource) -> Origin {
    Origin::serve(resource).unwrap()
}

#[test]
fn an_honest_file_is_served_whole_and_in_ranges() {
    let body = noise(300_000);
    let origin = serve(Resource::new(body.clone()));
    let whole = get(origin.address(), PATH);
    assert_eq!((whole.status(), whole.body), (200, body.to_vec()));
    assert_eq!(whole.head.matches("Content-Length").count(), 1);
    for (asked, span, range) in [
        ("0-", 0..300_000, "bytes 0-299999/300000"),
        ("100-199", 100..200, "bytes 100-199/300000"),
        ("299990-999999", 299_990..300_000, "bytes 299990-299999/300000"),
        ("-5", 299_995..300_000, "bytes 299995-299999/300000"),
    ] {
        let part = get_range(origin.address(), PATH, asked);
        assert_eq!((part.status(), part.field("content-range")), (206, Some(range)));
        assert_eq!(part.body, body.bytes_of(span));
    }
    let beyond = get_range(origin.address(), PATH, "300000-");
    assert_eq!((beyond.status(), beyond.field("content-range")), (416, Some("bytes */300000")));
    assert_eq!(get(origin.address(), "/none").status(), 404);
    assert_eq!(fetch(origin.address(), "POST", PATH, "").status(), 405);
}

#[test]
fn a_head_is_answered_like_a_get_without_the_body() {
    let origin = serve(Resource::new(noise(1000)));
    let answer = fetch(origin.address(), "HEAD", PATH, "");
    assert_eq!((answer.status(), answer.field("content-length"), answer.body.len()), (200, Some("1000"), 0));
}

#[test]
fn if_range_decides_between_the_part_and_the_whole() {
    let origin = serve(Resource::new(noise(1000)));
    let ask = |condition: &str| {
        fetch(origin.address(), "GET", PATH, &format!("Range: bytes=10-\r\nIf-Range: {condition}\r\n"))
            .status()
    };
    assert_eq!(ask("\"v1\""), 206);
    assert_eq!(ask("\"v2\""), 200);
    assert_eq!(ask("W/\"v1\""), 200);
    assert_eq!(ask("Tue, 15 Nov 2022 12:45:26 GMT"), 206);
    assert_eq!(ask("Tue, 15 Nov 2022 12:45:27 GMT"), 200);
}

#[test]
fn conditional_requests_are_answered() {
    let origin = serve(Resource::new(noise(1000)));
    let ask = |fields: &str| fetch(origin.address(), "GET", PATH, fields);
    let unchanged = ask("If-None-Match: \"x\", W/\"v1\"\r\n");
    assert_eq!((unchanged.status(), unchanged.body.len()), (304, 0));
    assert_eq!(ask("If-None-Match: \"v2\"\r\n").status(), 200);
    assert_eq!(ask("If-Modified-Since: Tue, 15 Nov 2022 12:45:26 GMT\r\n").status(), 304);
    assert_eq!(ask("If-Match: \"v2\"\r\n").status(), 412);
    assert_eq!(ask("If-Match: \"v1\"\r\n").status(), 200);
}

#[test]
fn a_connection_carries_many_requests_even_sent_at_once() {
    let origin = serve(Resource::new(Body::bytes("abc")));
    let mut stream = connect(origin.address());
    let one = request("GET", PATH, "");
    stream.write_all(format!("{one}{one}").as_bytes()).unwrap();
    assert_eq!(read_one(&mut stream).body, b"abc");
    assert_eq!(read_one(&mut stream).body, b"abc");
    stream.write_all(one.as_bytes()).unwrap();
    assert_eq!(read_one(&mut stream).body, b"abc");
    let requests = origin.requests();
    assert_eq!(
        requests.iter().map(|seen| (seen.connection, seen.nth_on_connection)).collect::<Vec<_>>(),
        [(0, 1), (0, 2), (0, 3)]
    );
    assert_eq!(origin.counters().connects, 1);
}

#[test]
fn http_1_0_ends_with_the_connection_unless_asked() {
    let origin = serve(Resource::new(Body::bytes("abc")));
    let mut stream = connect(origin.address());
    stream.write_all(b"GET /file.bin HTTP/1.0\r\n\r\n").unwrap();
    assert!(common::read_to_end(&mut stream).body == b"abc");
    let mut stream = connect(origin.address());
    let asked = b"GET /file.bin HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    for _ in 0..2 {
        stream.write_all(asked).unwrap();
        assert_eq!(read_one(&mut stream).body, b"abc");
    }
}

#[test]
fn chunks_and_closes_delimit_a_body() {
    let body = noise(1000);
    let origin = serve(Resource::new(body.clone()).framing(Framing::Chunked(400)));
    let chunked = get(origin.address(), PATH);
    assert_eq!(chunked.field("transfer-encoding"), Some("chunked"));
    let mut expected = Vec::new();
    for (size, span) in [("190", 0..400), ("190", 400..800), ("c8", 800..1000)] {
        expected.extend_from_slice(format!("{size}\r\n").as_bytes());
        expected.extend_from_slice(&body.bytes_of(span));
        expected.extend_from_slice(b"\r\n");
    }
    expected.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(chunked.body, expected);
    origin.set(PATH, Resource::new(body.clone()).framing(Framing::UntilClose));
    let closed = get(origin.address(), PATH);
    assert_eq!((closed.field("content-length"), closed.error), (None, None));
    assert_eq!(closed.body, body.to_vec());
}

#[test]
fn a_reset_comes_after_exactly_the_bytes_before_it() {
    let body = noise(1_000_000);
    let origin = serve(Resource::new(body.clone()).cut_at_share(0.4, Ending::Reset));
    let cut = get(origin.address(), PATH);
    assert!(cut.is_reset(), "{:?}", cut.error);
    assert_eq!(cut.body, body.bytes_of(0..400_000));
    assert!(origin.wait_until(SOON, |counters| counters.resets == 1 && counters.open == 0));
    let log = origin.log();
    assert!(!log[0].whole && log[0].over);
    assert_eq!((log[0].status, log[0].body_bytes), (Some(200), 400_000));
}

#[test]
fn a_fin_is_not_a_reset_even_with_requests_unread() {
    let body = noise(100_000);
    let origin = serve(Resource::new(body.clone()).cut_after(50_000, Ending::Fin));
    let mut stream = connect(origin.address());
    let one = request("GET", PATH, "");
    stream.write_all(format!("{one}{one}{one}").as_bytes()).unwrap();
    let cut = common::read_to_end(&mut stream);
    assert_eq!((cut.error, cut.body.len()), (None, 50_000));
}

#[test]
fn a_stall_stays_silent_until_the_client_leaves() {
    let origin = serve(Resource::new(noise(100_000)).cut_after(10, Ending::Stall));
    let mut stream = connect(origin.address());
    stream.write_all(request("GET", PATH, "").as_bytes()).unwrap();
    assert!(origin.wait_for_log(SOON, |log| log.first().is_some_and(|entry| entry.over)));
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (bytes, error) = drain(&mut stream);
    assert!(bytes.len() > 10 && error == Some(io::ErrorKind::WouldBlock), "{error:?}");
    assert_eq!(origin.counters().open, 1);
    drop(stream);
    assert!(origin.wait_until(SOON, |counters| counters.open == 0));
}

#[test]
fn phases_change_what_new_requests_get_and_nothing_else() {
    let (old, new) = (noise(5_000_000), Body::zeros(10));
    let origin = Origin::builder()
        .site(Site::file(Resource::new(old.clone())))
        .phase(Site::file(Resource::new(new.clone()).etag("\"v2\"")))
        .start()
        .unwrap();
    let mut slow = connect(origin.address());
    slow.write_all(request("GET", PATH, "").as_bytes()).unwrap();
    assert!(origin.wait_until(SOON, |counters| counters.body_bytes > 0));
    origin.enter_phase(2).unwrap();
    assert_eq!(get(origin.address(), PATH).body, new.to_vec());
    assert_eq!(read_one(&mut slow).body, old.to_vec());
    assert_eq!(origin.right()[0].len(), 10, "the last phase is what is right");
    assert!(origin.enter_phase(3).is_err() && origin.enter_phase(0).is_err());
}

#[test]
fn counts_are_raised_before_the_bytes_are_seen() {
    let origin = serve(Resource::new(noise(70_000)));
    let mut stream = connect(origin.address());
    for n in 1..=20 {
        stream.write_all(request("GET", PATH, "").as_bytes()).unwrap();
        let _ = read_one(&mut stream);
        let counters = origin.counters();
        assert_eq!((counters.requests, counters.body_bytes), (n, n * 70_000));
        assert_eq!((counters.method("GET"), counters.status(200), counters.path(PATH)), (n, n, n * 70_000));
    }
}

#[test]
fn the_kernel_says_what_was_acknowledged() {
    let origin = serve(Resource::new(noise(1_000_000)));
    let mut stream = connect(origin.address());
    stream.write_all(request("GET", PATH, "").as_bytes()).unwrap();
    let answer = read_one(&mut stream);
    let sent = (answer.head.len() + answer.body.len()) as u64;
    let acked = origin.bytes_acked();
    assert!((sent..=sent + 2).contains(&acked), "{acked} of {sent}");
    drop(stream);
    assert!(origin.wait_until(SOON, |counters| counters.open == 0));
    let acked = origin.bytes_acked();
    assert!((sent..=sent + 2).contains(&acked), "{acked} of {sent}, after the end");
}

#[test]
fn a_rate_is_a_lower_bound_of_the_time_taken() {
    let shared = Pacer::new(Rate::kib(400));
    for resource in [
        Resource::new(noise(102_400)).rate(Rate::kib(400)),
        Resource::new(noise(102_400)).pace(Pace::Connection(Rate::kib(400))),
        Resource::new(noise(102_400)).pace(Pace::Shared(shared)),
    ] {
        let origin = serve(resource);
        let start = Instant::now();
        assert_eq!(get(origin.address(), PATH).body.len(), 102_400);
        // 100 KiB at 400 KiB/s, but for the first grain, which leaves at once.
        assert!(start.elapsed() > Duration::from_millis(200), "{:?}", start.elapsed());
    }
}

#[test]
fn a_paced_answer_ends_with_its_client_and_with_the_origin() {
    let origin = serve(Resource::new(noise(1_000_000)).rate(Rate::bytes(1)));
    let open = || {
        let mut stream = connect(origin.address());
        stream.write_all(request("GET", PATH, "").as_bytes()).unwrap();
        stream
    };
    let streams: Vec<_> = (0..8).map(|_| open()).collect();
    assert!(origin.wait_until(SOON, |counters| counters.in_flight == 8 && counters.body_bytes >= 8));
    let start = Instant::now();
    drop(origin);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    for mut stream in streams {
        let _ = drain(&mut stream);
    }
}

#[test]
fn a_network_that_drops_resets_everybody_and_comes_back_on_the_same_port() {
    let origin = serve(Resource::new(noise(50_000_000)));
    let mut busy = connect(origin.address());
    busy.write_all(request("GET", PATH, "").as_bytes()).unwrap();
    let mut idle = connect(origin.address());
    assert!(origin.wait_until(SOON, |counters| counters.body_bytes > 0 && counters.open == 2));
    origin.drop_network();
    assert_eq!(origin.counters().open, 0);
    assert_eq!(drain(&mut busy).1, Some(io::ErrorKind::ConnectionReset));
    assert_eq!(drain(&mut idle).1, Some(io::ErrorKind::ConnectionReset));
    let mut refused = connect(origin.address());
    assert_eq!(drain(&mut refused).1, Some(io::ErrorKind::ConnectionReset));
    assert_eq!(origin.counters().refused, 1);
    origin.restore_network();
    assert_eq!(get_range(origin.address(), PATH, "0-9").status(), 206);

    origin.refuse_connects();
    let error = TcpStream::connect(origin.address()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    origin.restore_network();
    assert_eq!(get_range(origin.address(), PATH, "0-9").status(), 206);
}

#[test]
fn limits_refuse_what_is_beyond_them_and_let_in_again() {
    let site = |site: Site| site.with(PATH, Resource::new(noise(1_000_000)).rate(Rate::bytes(1)));
    let refusal = Answer::status(503).with("Retry-After", "1");
    let origin = Origin::builder().site(site(Site::new()).most_in_flight(2, refusal)).start().unwrap();
    let open = || {
        let mut stream = connect(origin.address());
        stream.write_all(request("GET", PATH, "").as_bytes()).unwrap();
        stream
    };
    let (first, _second) = (open(), open());
    assert!(origin.wait_until(SOON, |counters| counters.status(200) == 2));
    let answer = get(origin.address(), PATH);
    assert_eq!((answer.status(), answer.field("retry-after")), (503, Some("1")));
    drop(first);
    assert!(origin.wait_until(SOON, |counters| counters.open == 1));
    let _third = open();
    assert!(origin.wait_until(SOON, |counters| counters.status(200) == 3));

    let origin = Origin::builder().site(site(Site::new()).most_connections(1)).start().unwrap();
    let _first = connect(origin.address());
    assert!(origin.wait_until(SOON, |counters| counters.open == 1));
    let mut second = connect(origin.address());
    assert_eq!(drain(&mut second).1, Some(io::ErrorKind::ConnectionReset));
}

#[test]
fn hooks_gates_and_responders_change_answers() {
    let body = noise(1000);
    let resource = Resource::new(body.clone())
        .gate(|request| (request.hit == 2).then(|| Answer::page(503, 206)))
        .hook_on(206, |_, answer| answer.remove("content-range"));
    let origin = serve(resource);
    assert_eq!(get_range(origin.address(), PATH, "1-").field("content-range"), None);
    let page = get(origin.address(), PATH);
    assert_eq!((page.status(), page.body.len()), (503, 206));
    origin.set(
        PATH,
        Resource::new(body).respond(|resource, exchange| {
            exchange.begin(200);
            exchange.raw(b"HTTP/1.1 200 OK\r\n\r\n")?;
            exchange.body(resource.body())?;
            Ok(Ending::Reset)
        }),
    );
    let raw = get(origin.address(), PATH);
    assert_eq!((raw.body.len(), raw.is_reset()), (1000, true));
}

#[test]
fn ranges_can_be_capped_ignored_denied_and_refused() {
    let origin = serve(Resource::new(noise(1000)));
    let ask = |ranges| {
        origin.set(PATH, Resource::new(noise(1000)).ranges(ranges));
        get_range(origin.address(), PATH, "100-")
    };
    assert_eq!(ask(Ranges::Capped(50)).field("content-range"), Some("bytes 100-149/1000"));
    let ignored = ask(Ranges::Ignored);
    assert_eq!(
        (ignored.status(), ignored.field("accept-ranges"), ignored.body.len()),
        (200, Some("bytes"), 1000)
    );
    let denied = ask(Ranges::Denied);
    assert_eq!((denied.status(), denied.field("accept-ranges")), (200, Some("none")));
    assert_eq!(ask(Ranges::Refused(400)).status(), 400);
}

#[test]
fn a_panicking_hook_is_counted_and_hurts_only_its_connection() {
    let origin = serve(Resource::new(noise(10)).hook(|request, _| assert!(!request.has("x-panic"))));
    let mut stream = connect(origin.address());
    stream.write_all(request("GET", PATH, "X-Panic: yes\r\n").as_bytes()).unwrap();
    let _ = drain(&mut stream);
    assert!(origin.wait_until(SOON, |counters| counters.panics == 1 && counters.open == 0));
    assert_eq!(get(origin.address(), PATH).status(), 200);
}

#[test]
fn it_serves_on_ipv6_and_on_several_ports() {
    let origin =
        Origin::builder().ipv6().also_listen(None).resource(PATH, Resource::new(noise(9))).start().unwrap();
    assert!(origin.url(PATH).starts_with("http://[::1]:"));
    assert_eq!(get(origin.address(), PATH).status(), 200);
    assert_eq!(get(origin.address_of(1), PATH).status(), 200);
    assert_eq!(origin.requests().iter().map(|seen| seen.listener).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(origin.requests()[0].base(1), origin.url_of(1, ""));
}

#[test]
fn hundreds_of_connections_are_served_at_once() {
    let body = noise(200_000);
    let origin = Arc::new(serve(Resource::new(body.clone())));
    let expected = Arc::new(body.to_vec());
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let (origin, expected) = (origin.clone(), expected.clone());
            std::thread::spawn(move || assert!(get(origin.address(), PATH).body == *expected))
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(origin.counters().connects, 200);
    assert!(origin.wait_until(SOON, |counters| counters.open == 0 && counters.in_flight == 0));
}

#[test]
fn an_origin_that_ends_closes_its_port() {
    let origin = serve(Resource::new(noise(10)));
    let address = origin.address();
    let mut idle = connect(address);
    assert!(origin.wait_until(SOON, |counters| counters.open == 1));
    drop(origin);
    let _ = idle.read(&mut [0]);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}
