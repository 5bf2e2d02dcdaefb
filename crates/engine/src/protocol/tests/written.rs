//! What is read is valid, whatever was written.

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value, json, to_value};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;
use tidegate_core::cookies::CookieJar;
use tidegate_core::message::{EventKind, SegmentProgress};
use tidegate_core::netrc::Netrc;
use tidegate_core::request::{Destination, Mirror, Options, Request};
use tidegate_core::transfer::Preparation;
use tidegate_core::{Digest, EntityTag, Failure, Span, SpanSet, written};
use url::Url;

fn again<T: Serialize + DeserializeOwned>(value: &T) -> T {
    from_value(to_value(value).unwrap()).unwrap()
}

fn is_refused<T: DeserializeOwned>(written: Value) -> bool {
    from_value::<T>(written).is_err()
}

fn request() -> Request {
    let dir = Destination::File { dir: "d".into(), name: None, adopt: None };
    Request::new(vec![Mirror::parse("https://example.org/a").unwrap()], dir).unwrap()
}

proptest! {
    #[test]
    fn any_path_survives(bytes in prop::collection::vec(any::<u8>(), 0..40), has_name: bool) {
        let path = PathBuf::from(OsStr::from_bytes(&bytes));
        let (name, adopt) = (has_name.then(|| path.clone()), None);
        let mut before = request();
        before.destination = Destination::File { dir: path.clone(), name, adopt };
        prop_assert_eq!(again(&before), before);
        let event = EventKind::Named { path };
        prop_assert_eq!(again(&event), event);
    }

    #[test]
    fn spans_in_any_order_become_a_set(list in prop::collection::vec((0u64..200, 1u64..40), 0..30)) {
        let spans: Vec<Span> = list.iter().map(|(at, len)| Span::new(*at, at + len).unwrap()).collect();
        let flat: Vec<u64> = spans.iter().flat_map(|span| [span.start(), span.end()]).collect();
        let set: SpanSet = from_value(json!(flat)).unwrap();
        let mut expected = SpanSet::new();
        spans.into_iter().for_each(|span| expected.insert(span));
        prop_assert_eq!(&set, &expected);
        prop_assert_eq!(again(&set), set);
    }

    #[test]
    fn cookies_go_where_they_went(
        cookies in prop::collection::vec(("[a-c]{1,2}", "[ -:<-~]{0,8}", 0usize..4, 0usize..5), 0..12),
    ) {
        let urls = ["https://a.example.org/x/y", "http://a.example.org:81/", "https://b.example.org/", "http://[::1]/"];
        let attributes = ["", "; Secure", "; Domain=example.org", "; Path=/x; Max-Age=9", "; Max-Age=0"];
        let mut jar = CookieJar::new();
        for (name, value, url, attribute) in cookies {
            let url = Url::parse(urls[url]).unwrap();
            let _ = jar.set(&url, format!("{name}={value}{}", attributes[attribute]).as_bytes(), 1000);
        }
        let other: CookieJar = again(&jar);
        prop_assert_eq!(format!("{other:?}"), format!("{jar:?}"));
        for url in urls {
            let url = Url::parse(url).unwrap();
            for now in [1000, 2000] {
                prop_assert_eq!(other.cookie_header(&url, now), jar.cookie_header(&url, now));
            }
        }
    }
}

#[test]
fn what_is_no_span_is_refused() {
    for bad in [json!([1]), json!([3, 3]), json!([4, 3]), json!([-1, 3]), json!([0.5, 3]), json!(["0", "1"])]
    {
        assert!(is_refused::<SpanSet>(bad.clone()), "{bad}");
    }
    assert!(is_refused::<Span>(json!([2, 2])));
    assert!(is_refused::<SegmentProgress>(json!([0, 9, 10, 0])));
    let spans = |count: u64| json!((0..count).flat_map(|n| [2 * n, 2 * n + 1]).collect::<Vec<_>>());
    let most = written::MAX_SPANS as u64;
    assert_eq!(from_value::<SpanSet>(spans(most)).unwrap().count(), written::MAX_SPANS);
    assert!(is_refused::<SpanSet>(spans(most + 1)));
}

#[test]
fn of_too_many_spans_the_largest_are_written() {
    let most = written::MAX_SPANS as u64;
    let set: SpanSet = (0..most + 10).map(|n| Span::new(10 * n, 10 * n + 1 + n % 2).unwrap()).collect();
    let less = again(&set);
    assert_eq!(less.count(), written::MAX_SPANS);
    assert_eq!(set.total() - less.total(), 10, "the ten smallest are left out");
    assert!(less.iter().all(|span| set.covers(span)));
}

#[test]
fn a_request_that_is_read_is_one_that_could_be_made() {
    let change = |field: &str, value: Value| {
        let mut whole = to_value(request()).unwrap();
        whole[field] = value;
        whole
    };
    assert!(is_refused::<Request>(change("mirrors", json!([]))));
    for url in ["ftp://h/a", "http://", "file:///etc/passwd"] {
        assert!(is_refused::<Request>(change("mirrors", json!([{ "url": url }]))), "{url}");
    }
    let digest = |text: &str| is_refused::<Digest>(json!(text));
    assert!(!digest("adler32=00000001") && digest("md5=00") && digest("md6=00000001") && digest(""));
    let ok = "adler32=00000001";
    let pieces =
        |length: u64, digests: &[&str]| change("pieces", json!({ "length": length, "digests": digests }));
    assert!(!is_refused::<Request>(pieces(1, &[ok])));
    assert!(is_refused::<Request>(pieces(0, &[ok])));
    assert!(is_refused::<Request>(pieces(1, &[ok, "md5=00000000000000000000000000000000"])));
    let options: Options = from_value(json!({
        "connections": 0, "stall": Duration::MAX, "retry_wait": Duration::MAX, "connect_timeout": Duration::MAX,
    }))
    .unwrap();
    assert_eq!(options.connections, 1);
    assert_eq!([options.stall, options.retry_wait, options.connect_timeout], [written::LONGEST; 3]);
    assert_eq!(from_value::<Options>(json!({ "connections": 1_000_000 })).unwrap().connections, 64);
}

#[test]
fn no_time_is_too_long_to_be_added_to_a_clock() {
    let long = json!({ "secs": u64::MAX, "nanos": 0 });
    let failure = json!({ "code": "busy", "remedy": { "kind": "retry", "after": long }, "message": "" });
    let event: EventKind =
        from_value(json!({ "event": "waiting", "failure": failure, "retry_in": long })).unwrap();
    let EventKind::Waiting { failure: Failure { remedy, .. }, retry_in } = event else { panic!("{event:?}") };
    assert_eq!(retry_in, written::LONGEST);
    assert_eq!(remedy, tidegate_core::Remedy::Retry { after: Some(written::LONGEST) });
}

#[test]
fn what_goes_into_a_head_later_cannot_end_its_line() {
    let tag = |value: &str| is_refused::<EntityTag>(json!({ "weak": false, "value": value }));
    assert!(!tag("abc") && !tag("é") && !tag(""));
    for bad in ["a\r\nHost: evil", "a\"", "a b", "\u{7f}", "\0"] {
        assert!(tag(bad), "{bad:?}");
    }
    let good = json!({
        "name": "a", "value": "b", "domain": "example.org", "host_only": true, "path": "/", "secure": false,
        "http_only": false, "expires": null, "home": "http://example.org",
    });
    let taken = |field: &str, value: Value| {
        let mut cookie = good.clone();
        cookie[field] = value;
        from_value::<CookieJar>(json!([cookie])).unwrap().len() == 1
    };
    assert!(taken("name", json!("a")));
    for (field, bad) in [
        ("name", json!("")),
        ("name", json!("a=b")),
        ("value", json!("a; b")),
        ("value", json!("a\nb")),
        ("value", json!("a\tb")),
        ("value", json!("b".repeat(5000))),
        ("path", json!("x")),
        ("path", json!("/\r\n")),
        ("path", json!(format!("/{}", "x".repeat(5000)))),
        ("domain", json!("EXAMPLE.org")),
        ("domain", json!("")),
        ("domain", json!("a\tb")),
        ("home", json!("ftp://example.org")),
        ("home", json!("nothing")),
        ("name", json!("__Secure-a")),
    ] {
        assert!(!taken(field, bad.clone()), "{field}: {bad}");
    }
    let mut suffix = good.clone();
    (suffix["domain"], suffix["host_only"]) = (json!("co.uk"), json!(false));
    assert!(from_value::<CookieJar>(json!([suffix])).unwrap().is_empty());
    assert!(is_refused::<CookieJar>(json!(vec![good; 3001])));
}

#[test]
fn passwords_survive_as_they_are() {
    let netrc =
        Netrc::parse("machine h login \"\" password \"a b\\n\" machine .d account x default").unwrap();
    assert_eq!(again(&netrc), netrc);
    assert!(is_refused::<Netrc>(json!({ "entries": vec![json!({}); 10_001] })));
}

#[test]
fn an_answer_came_from_somewhere_that_can_be_fetched() {
    let preparation = |url: &str| {
        json!({
            "identity": { "length": null, "etag": null, "last_modified": null }, "restart": null,
            "disposition": null, "content_type": null, "url": url, "resumable": true, "decoded": false,
            "unproved": false, "digests": [],
        })
    };
    assert!(!is_refused::<Preparation>(preparation("https://example.org/a?b")));
    for bad in ["ftp://h/", "file:///etc/passwd", "javascript:1", "http://", "a", ""] {
        assert!(is_refused::<Preparation>(preparation(bad)), "{bad}");
    }
    assert!(is_refused::<Preparation>(preparation(&format!("http://h/{}", "a".repeat(written::MAX_URL)))));
}
