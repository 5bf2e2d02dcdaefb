//! Each named behaviour starts, answers, and ends; the important ones answer as their description says.
#![allow(clippy::unwrap_used, reason = "a failure here is the failure of a test")]

mod common;

use std::io::{self, Read as _, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Response, connect, fetch, get, get_range, request};
use tidegate_testkit::recipes::{self, Given};
use tidegate_testkit::{Body, Origin};

const SIZE: u64 = 1 << 20;
const PATH: &str = "/file.bin";

fn given() -> Given {
    Given { size: SIZE, seed: 1 }
}

fn body() -> Body {
    given().body()
}

fn start(name: &str) -> Origin {
    recipes::find(name).expect(name).builder(&given()).start().unwrap()
}

fn whole(name: &str) -> Response {
    get(start(name).address(), PATH)
}

/// `bytes=` of a part in the middle.
fn part(name: &str) -> Response {
    get_range(start(name).address(), PATH, "524288-655359")
}

fn is_body(response: &Response, body: &Body) -> bool {
    body.first_difference(&response.body[..]).unwrap().is_none()
}

#[test]
fn every_behaviour_starts_answers_something_and_ends() {
    let names: Vec<_> = recipes::all().map(|recipe| recipe.name).collect();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(what) = try_out(name) {
                        failures.lock().unwrap().push(format!("{name}: {what}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{failures:#?}");
}

fn try_out(name: &str) -> Result<(), String> {
    let origin = recipes::find(name).unwrap().builder(&given()).start().map_err(|error| error.to_string())?;
    for phase in 1..=origin.phases() {
        origin.enter_phase(phase).unwrap();
        for method in ["GET", "HEAD"] {
            let mut stream = connect(origin.address());
            stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let path = origin.entry_url().splitn(4, '/').nth(3).map(|path| format!("/{path}")).unwrap();
            let text = request(method, &path, "Range: bytes=1000-\r\nConnection: close\r\n");
            if stream.write_all(text.as_bytes()).is_err() {
                // Reset as it came: that is an answer, too.
                continue;
            }
            let mut read = 0;
            let mut piece = [0; 65_536];
            // Enough to have seen it, of those that have no end or no haste.
            let deadline = Instant::now() + Duration::from_millis(500);
            while read < 2 << 20 && Instant::now() < deadline {
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => read += n,
                }
            }
        }
    }
    let counters = origin.counters();
    if counters.requests + counters.tls_failures + counters.refused < origin.phases() as u64 {
        return Err(format!("nothing was seen: {counters:?}"));
    }
    if counters.panics > 0 || counters.malformed > 0 {
        return Err(format!("{counters:?}"));
    }
    let start = Instant::now();
    drop(origin);
    match start.elapsed() < Duration::from_secs(5) {
        true => Ok(()),
        false => Err(format!("it took {:?} to end", start.elapsed())),
    }
}

#[test]
fn an_unknown_name_is_no_behaviour() {
    assert_eq!(Origin::named("tc-99").unwrap_err().kind(), io::ErrorKind::NotFound);
    let origin = Origin::named("honest").unwrap();
    assert_eq!(origin.right()[0].len(), 8 << 20);
}

#[test]
fn plain_gets_that_are_honest_give_the_whole_file() {
    let names = "honest tc-01 tc-04 tc-07 tc-08 tc-25 tc-31 tc-32 tc-42 tc-44 range-ignored range-multipart 416-always \
                 no-ranges until-close etag-rotates weak-etag length-twice redirect-of-ranges";
    for name in names.split_whitespace() {
        let answer = whole(name);
        assert!(answer.status() == 200 && is_body(&answer, &body()), "{name}: {}", answer.head);
    }
}

#[test]
fn reports_about_ranges_are_played_as_told() {
    let answer = part("tc-01");
    assert_eq!((answer.status(), answer.field("content-range")), (200, None));
    assert!(is_body(&answer, &body()));
    let answer = part("tc-04");
    assert_eq!((answer.status(), answer.field("content-range")), (206, Some("bytes 0-131071/1048576")));
    assert!(is_body(&answer, &body().slice(0..131_072)));
    let answer = part("tc-07");
    assert_eq!((answer.status(), answer.field("content-range")), (200, Some("bytes=0-1048575/1048576")));
    assert_eq!(part("tc-08").field("content-range"), Some("bytes 524288-655359/*"));
    let answer = part("tc-09");
    assert_eq!((answer.status(), answer.field("content-length")), (206, None));
    assert_eq!(answer.field("content-range"), Some("bytes 524288-655359/1048576"));
    assert_eq!(part("tc-32").status(), 400);
    let origin = start("tc-17");
    let answer = get_range(origin.address(), PATH, "1048576-");
    assert_eq!((answer.status(), answer.field("content-range")), (416, Some("bytes */1048576")));
    assert_eq!((answer.body.len(), answer.field("content-type")), (206, Some("text/html; charset=utf-8")));
    let origin = start("tc-41");
    assert_eq!(get_range(origin.address(), PATH, "0-").field("content-range"), Some("bytes */0"));
    assert_eq!(get(origin.address(), PATH).field("content-length"), Some("0"));
}

#[test]
fn range_lies_are_lies() {
    let (from, to) = (524_288, 655_360);
    let answer = part("range-shifted");
    assert_eq!(answer.field("content-range"), Some("bytes 524288-655359/1048576"));
    assert!(is_body(&answer, &body().slice(from + 4096..to + 4096)));
    assert_eq!(part("range-starts-later").field("content-range"), Some("bytes 524289-655359/1048576"));
    let answer = part("range-starts-earlier");
    assert_eq!(answer.field("content-range"), Some("bytes 520192-655359/1048576"));
    assert!(is_body(&answer, &body().slice(from - 4096..to)));
    let answer = part("range-wrong-end");
    assert_eq!(answer.field("content-range"), Some("bytes 524288-589823/1048576"));
    assert_eq!(answer.body.len(), 65_536);
    assert_eq!(part("range-wrong-total").field("content-range"), Some("bytes 524288-655359/1048577"));
    assert_eq!(part("range-no-content-range").field("content-range"), None);
    let answer = part("range-length-long");
    assert_eq!((answer.body.len(), answer.field("content-length")), (131_172, Some("131172")));
    assert_eq!(part("range-two-content-ranges").head.matches("Content-Range").count(), 2);
    let answer = part("range-multipart");
    assert!(answer.body.starts_with(b"\r\n--tide\r\n") && answer.body.ends_with(b"\r\n--tide--\r\n"));
    assert_eq!(part("range-capped-small").body.len(), 65_536);
    let answer = part("range-part-as-200");
    assert_eq!((answer.status(), answer.body.len()), (200, 131_072));
    let answer = whole("unasked-206-half");
    assert_eq!((answer.status(), answer.field("content-range")), (206, Some("bytes 0-524287/1048576")));
}

#[test]
fn resumes_meet_what_the_reports_met() {
    let cut = |name: &str| {
        let origin = start(name);
        let first = get(origin.address(), PATH);
        assert!(first.is_reset() && first.body == body().bytes_of(0..SIZE * 2 / 5), "{name}");
        origin.enter_phase(2).unwrap();
        origin
    };
    let origin = cut("tc-03");
    let again = get_range(origin.address(), PATH, "419430-");
    assert!(again.status() == 200 && is_body(&again, &body()));
    let origin = cut("tc-12");
    let conditional =
        |tag: &str| fetch(origin.address(), "GET", PATH, &format!("Range: bytes=5-\r\nIf-Range: {tag}\r\n"));
    assert!(is_body(&conditional("\"v1\""), &given().other()));
    assert_eq!(conditional("\"v2\"").status(), 206);
    assert!(is_body(&get(origin.address(), PATH), &origin.right()[0]));
    let origin = cut("tc-14");
    let again = get_range(origin.address(), PATH, "419430-");
    assert_eq!((again.status(), again.field("etag"), again.field("last-modified")), (206, None, None));
    let origin = cut("tc-11");
    let tags: Vec<_> =
        (0..3).map(|_| get(origin.address(), PATH).field("etag").unwrap().to_owned()).collect();
    assert!(tags[0] != tags[1] && tags[1] != tags[2]);
}

#[test]
fn a_growing_file_grows_after_two_gets() {
    let origin = start("tc-06");
    for (range, tag) in [("/1048576", "\"v1\""), ("/1048576", "\"v1\""), ("/1048625", "\"v2\"")] {
        let answer = get_range(origin.address(), PATH, "0-9");
        assert!(answer.field("content-range").unwrap().ends_with(range));
        assert_eq!(answer.field("etag"), Some(tag));
    }
    assert!(get(origin.address(), PATH).body.ends_with(&[b'Z'; 49]));
}

#[test]
fn limits_and_errors_are_as_reported() {
    let origin = start("tc-23");
    let statuses: Vec<_> = (0..6).map(|_| get(origin.address(), PATH).status()).collect();
    assert_eq!(statuses, [200, 200, 503, 200, 200, 503]);
    assert_eq!(origin.log()[2].body_bytes, 65_536);
    let origin = start("tc-29");
    assert_eq!(fetch(origin.address(), "HEAD", PATH, "").status(), 403);
    let first = get_range(origin.address(), PATH, "0-0");
    assert!(first.status() == 200 && is_body(&first, &body()));
    assert_eq!(get(origin.address(), PATH).status(), 403);
    let origin = start("tc-31");
    let head = fetch(origin.address(), "HEAD", PATH, "");
    assert_eq!((head.status(), head.field("allow")), (405, Some("GET")));
    let answer = whole("tc-21");
    assert_eq!((answer.field("content-length"), answer.is_reset()), (Some("1048576"), true));
    assert_eq!(answer.body.len() as u64, SIZE * 2 / 5);
    assert_eq!(whole("tc-42").field("last-modified"), Some("Tue, 15 Nov 2022 12:45:26 +0000"));
    let origin = start("retry-after-huge");
    assert_eq!(get(origin.address(), PATH).field("retry-after"), Some("99999999999999999999"));
}

#[test]
fn framing_lies_are_lies() {
    let answer = whole("tc-10");
    assert!(answer.field("content-length").is_some() && answer.field("transfer-encoding").is_some());
    assert!(answer.body.ends_with(b"\r\n0\r\n\r\n"));
    assert_eq!(whole("length-conflict").head.matches("Content-Length").count(), 2);
    assert_eq!(whole("length-huge").field("content-length"), Some("9223372036854775807"));
    assert_eq!(whole("length-negative").field("content-length"), Some("-1"));
    assert!(!whole("chunked-no-end").body.ends_with(b"0\r\n\r\n"));
    assert!(whole("chunked-no-end").error.is_none());
    assert!(whole("chunked-reset").is_reset());
    let text = whole("chunked-bad-size").body;
    assert!(text.windows(7).any(|window| window == b"\r\nXYZ\r\n"));
    assert!(whole("chunked-trailers").body.ends_with(b"X-Two: 2\r\n\r\n"));
    let origin = start("http-0.9");
    let mut stream = connect(origin.address());
    stream.write_all(request("GET", PATH, "").as_bytes()).unwrap();
    assert_eq!(
        body().first_difference(&common::drain(&mut stream).0[..]).unwrap(),
        None,
        "nothing but the file"
    );
    assert!(whole("interim-103").head.starts_with("HTTP/1.1 102 Processing\r\n"));
    assert!(whole("fields-lower-case").head.contains("\r\ncontent-length: 1048576\r\n"));
    assert_eq!(whole("head-10000-fields").head.matches("X-Field-").count(), 10_000);
}

#[test]
fn redirects_lead_where_they_say() {
    let origin = start("redirect-loop");
    assert_eq!(get(origin.address(), PATH).field("location"), Some("/other.bin"));
    assert_eq!(get(origin.address(), "/other.bin").field("location"), Some(PATH));
    let origin = start("redirect-chain-5");
    let mut path = PATH.to_owned();
    for _ in 0..5 {
        path = get(origin.address(), &path).field("location").unwrap().to_owned();
    }
    assert!(is_body(&get(origin.address(), &path), &body()));
    let origin = start("redirect-other-port");
    let answer = get(origin.address(), PATH);
    assert_eq!(answer.field("location").unwrap(), origin.url_of(1, "/real/file.bin"));
    assert!(answer.field("set-cookie").is_some());
    assert_eq!(get(origin.address_of(1), "/real/file.bin").status(), 200);
    let origin = start("redirect-cookie");
    assert_eq!(get(origin.address(), "/real/file.bin").status(), 403);
    assert_eq!(fetch(origin.address(), "GET", "/real/file.bin", "Cookie: pass=tide\r\n").status(), 200);
}

#[test]
fn a_signed_link_dies_and_the_first_link_gives_a_new_one() {
    let origin = start("signed-403");
    let sign = || get(origin.address(), PATH).field("location").unwrap().to_owned();
    let first = sign();
    let statuses: Vec<_> = (0..5).map(|_| get(origin.address(), &first).status()).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 403]);
    let second = sign();
    assert_ne!(first, second);
    assert_eq!(get(origin.address(), &second).status(), 200);
    assert_eq!(get(origin.address(), "/signed/file.bin").status(), 403, "no signature, no file");
    let origin = start("signed-after-bytes");
    let first = get(origin.address(), PATH).field("location").unwrap().to_owned();
    let statuses: Vec<_> = (0..4).map(|_| get(origin.address(), &first).status()).collect();
    assert_eq!(statuses, [200, 200, 403, 403]);
    let second = get(origin.address(), PATH).field("location").unwrap().to_owned();
    assert_eq!(get(origin.address(), &second).status(), 200);
}

#[test]
fn credentials_are_checked() {
    let origin = start("auth-basic");
    let ask = |authorization: &str| fetch(origin.address(), "GET", PATH, authorization);
    let refused = ask("");
    assert_eq!(refused.status(), 401);
    assert!(refused.field("www-authenticate").unwrap().starts_with("Basic realm="));
    assert_eq!(ask("Authorization: Basic dGlkZTpnYXRlOnBhc3Mgd29yZA==\r\n").status(), 200);
    assert_eq!(ask("Authorization: Basic AAAA\r\n").status(), 401);
    let origin = start("auth-bearer");
    let ask =
        |token: &str| fetch(origin.address(), "GET", PATH, &format!("Authorization: Bearer {token}\r\n"));
    assert_eq!(ask(recipes::TOKEN).status(), 200);
    assert_eq!(ask("other").status(), 401);
    let origin = start("auth-digest-sha-256");
    let challenge = get(origin.address(), PATH).field("www-authenticate").unwrap().to_owned();
    assert!(challenge.contains("algorithm=SHA-256"));
    let wrong = format!(
        "Authorization: Digest username=\"tide\", realm=\"testkit\", nonce=\"{}\", uri=\"{PATH}\", \
         qop=auth, nc=00000001, cnonce=\"x\", response=\"{}\", algorithm=SHA-256\r\n",
        challenge.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap(),
        "0".repeat(64)
    );
    assert_eq!(fetch(origin.address(), "GET", PATH, &wrong).status(), 401);
}

#[test]
fn names_are_sent_byte_by_byte() {
    let origin = start("tc-34");
    let mut stream = connect(origin.address());
    stream.write_all(request("HEAD", "/f/f.bin", "Connection: close\r\n").as_bytes()).unwrap();
    let (bytes, _) = common::drain(&mut stream);
    let gbk = recipes::DISPOSITIONS[5].1;
    assert!(bytes.windows(gbk.len()).any(|window| window == gbk));
    let origin = start("tc-35");
    for path in ["/%2e%2e%2fevil-d.bin", "/..%2f..%2fevil-e.bin", "/header/a"] {
        assert_eq!(fetch(origin.address(), "HEAD", path, "").status(), 200, "{path}");
    }
    let origin = start("tc-43");
    let (one, two) = (get(origin.address(), "/one"), get(origin.address(), "/two"));
    assert_eq!(one.field("content-disposition"), two.field("content-disposition"));
    assert_ne!(one.body, two.body);
}

#[test]
fn metalinks_tell_true_hashes_and_reachable_mirrors() {
    let origin = start("tc-45");
    let text = String::from_utf8(get(origin.address(), "/file.meta4").body).unwrap();
    assert!(text.contains(&format!("<hash type=\"sha-256\">{}</hash>", body().sha256_hex())));
    assert!(text.contains(&origin.url_of(1, "/mirror-2/file.bin")));
    assert!(is_body(&get(origin.address(), "/mirror-1/file.bin"), &body()));
    assert!(is_body(&get(origin.address_of(1), "/mirror-2/file.bin"), &given().other()));
    let text = String::from_utf8(get(origin.address(), "/file-without-pieces.meta4").body).unwrap();
    assert!(!text.contains("<pieces"));
}

#[test]
fn codings_decode_to_what_is_right() {
    let origin = start("tc-19");
    let answer = get(origin.address(), PATH);
    assert_eq!(answer.field("content-encoding"), Some("gzip"));
    let decoder = flate2::read::GzDecoder::new(&answer.body[..]);
    assert_eq!(origin.right()[0].first_difference(decoder).unwrap(), None);
    let half = get_range(origin.address(), PATH, "100-");
    assert_eq!(half.body, answer.body[100..]);
}

#[test]
fn the_last_byte_is_held_back_once() {
    let origin = start("stall-last-byte");
    let mut stream = connect(origin.address());
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    stream.write_all(request("GET", PATH, "").as_bytes()).unwrap();
    let stalled = common::read_to_end(&mut stream);
    assert_eq!((stalled.body.len() as u64, stalled.error), (SIZE - 1, Some(io::ErrorKind::WouldBlock)));
    assert!(is_body(&get(origin.address(), PATH), &body()));
}
