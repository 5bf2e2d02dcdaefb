//! Proxies and TLS on the way.

use crate::common::{Ended, N, Place, Running, USUAL, b, played};
use tidegate_testkit::proxy::AskedBy;
use tidegate_testkit::resource::Ranges;
use tidegate_testkit::tls::Tls;
use tidegate_testkit::{Ending, Origin, Proxy, Resource};

/// A name that resolves only by the proxy, or for which the proxy is a must.
const HOST: &str = "origin.test";

fn with_password(proxy: &Proxy) -> String {
    // With `socks5` the name would be looked up here, as with other programs.
    proxy.url().replace("socks5:", "socks5h:").replace("://", "://tide:p%40ss%3Aword@")
}

#[test]
fn an_http_proxy_is_asked_for_plain_urls_and_for_tunnels() {
    let plain = Origin::serve(Resource::new(b())).unwrap();
    let secure = Origin::builder().resource("/file.bin", Resource::new(b())).tls(Tls::new()).start().unwrap();
    for (origin, by) in [(&plain, AskedBy::AbsoluteTarget), (&secure, AskedBy::Connect)] {
        let proxy =
            Proxy::http().credentials("tide", "p@ss:word").map(HOST, origin.address()).start().unwrap();
        let place = Place::new();
        let url = origin.entry_url().replace("127.0.0.1", HOST);
        let mut words = vec!["--proxy".to_owned(), with_password(&proxy), url];
        if let Some(authority) = origin.authority() {
            words.extend(["--ca-file".to_owned(), place.write_aside("ca.pem", authority.pem())]);
        }
        place.get(&words.iter().map(String::as_str).collect::<Vec<_>>()).done();
        place.holds_only("file.bin", &b());
        let asked = proxy.counters().asked;
        assert!(
            asked.iter().any(|one| one.by == by && one.host == HOST && one.user.as_deref() == Some("tide"))
        );
        let requests = origin.requests();
        assert!(!requests.is_empty() && requests.iter().all(|request| !request.has("proxy-authorization")));
    }
}

#[test]
fn a_kept_connection_to_a_proxy_carries_the_login_in_each_request() {
    // The whole breaks off, and ranges of at most 256 KiB bring the rest: one connection, again and again.
    let file = Resource::new(b())
        .ranges(Ranges::Capped(256 << 10))
        .hook_on(200, |_, answer| answer.cut_after(256 << 10, Ending::Reset));
    let origin = Origin::serve(file).unwrap();
    let proxy = Proxy::http()
        .credentials("tide", "p@ss:word")
        .map(HOST, origin.address())
        .keeps_connections()
        .start()
        .unwrap();
    let place = Place::new();
    let url = origin.entry_url().replace("127.0.0.1", HOST);
    let words = ["--connections", "1", "--retry-wait", "100ms", "--proxy", &with_password(&proxy), &url];
    place.get(&words).done();
    place.holds_only("file.bin", &b());
    let counters = proxy.counters();
    let asked = counters.asked.len() as u64;
    assert_eq!(counters.unauthorised, 0, "{counters:?}");
    assert!(asked >= 16 && counters.connects <= asked / 4, "the probe is blind: {counters:?}");
    assert!(counters.asked.iter().all(|one| one.user.as_deref() == Some("tide") && one.answer == 200));
    assert!(origin.requests().iter().all(|request| !request.has("proxy-authorization")));
}

#[test]
fn a_socks_proxy_resolves_the_name_and_wants_its_password() {
    let origin = Origin::serve(Resource::new(b())).unwrap();
    let proxy = Proxy::socks5().credentials("tide", "p@ss:word").map(HOST, origin.address()).start().unwrap();
    let url = origin.entry_url().replace("127.0.0.1", HOST);
    let place = Place::new();
    place.get(&["--proxy", &with_password(&proxy), &url]).done();
    place.holds_only("file.bin", &b());
    assert!(proxy.counters().asked.iter().all(|one| one.by == AskedBy::SocksName && one.host == HOST));

    // With an address there is nothing to look up.
    let proxy = Proxy::socks5().start().unwrap();
    let place = Place::new();
    place.get(&["--proxy", &proxy.url(), &origin.entry_url()]).done();
    place.holds_only("file.bin", &b());
    assert!(!proxy.counters().asked.is_empty());
}

#[test]
fn a_proxy_that_refuses_is_a_reason_of_its_own_and_no_password_is_said() {
    let origin = Origin::serve(Resource::new(b())).unwrap();
    let url = origin.entry_url().replace("127.0.0.1", HOST);
    for proxy in [Proxy::http().credentials("tide", "other"), Proxy::socks5().credentials("tide", "other")] {
        let proxy = proxy.map(HOST, origin.address()).start().unwrap();
        let place = Place::new();
        let ended =
            place.get(&["--retries", "1", "--retry-wait", "100ms", "--proxy", &with_password(&proxy), &url]);
        assert!(
            ended.code == 1 && (ended.says("[proxy-failed]") || ended.says("[auth-required]")),
            "{ended:?}"
        );
        assert!(!ended.says("p@ss") && !ended.says("p%40ss"), "{ended:?}");
        place.holds_nothing_whole();
    }
    assert_eq!(origin.counters().requests, 0);
}

/// Runs with variables of the environment.
fn with_variables(place: &Place, url: &str, variables: &[(&str, &str)]) -> Ended {
    let mut command = place.command(&[&["get"], &USUAL[..], &[url]].concat());
    command.envs(variables.iter().copied());
    Running::new(command).end()
}

#[test]
fn variables_name_the_proxy_and_who_is_asked_without_it() {
    let origin = Origin::serve(Resource::new(b())).unwrap();
    let proxy = Proxy::http().start().unwrap();
    for (exempt, through) in [
        ("", true),
        ("10.0.0.0/8,example.org", true),
        ("127.0.0.0/8", false),
        ("192.168.0.0/16, 127.0.0.1", false),
        ("*", false),
        ("127.0.0.0/33", true),
    ] {
        let before = proxy.counters().asked.len();
        let place = Place::new();
        let url = proxy.url();
        with_variables(&place, &origin.entry_url(), &[("http_proxy", &url), ("no_proxy", exempt)]).done();
        place.holds_only("file.bin", &b());
        let asked = proxy.counters().asked.len() - before;
        assert_eq!(asked > 0, through, "no_proxy={exempt:?}: the proxy was asked {asked} times");
    }
}

/// Fetches over TLS with these words, the Origin's authority at the place of `CA`.
fn over_tls(origin: &Origin, place: &Place, words: &[&str]) -> Ended {
    let ca = place.write_aside("ca.pem", origin.authority().unwrap().pem());
    let url = origin.entry_url();
    let words: Vec<&str> = words.iter().map(|word| if *word == "CA" { ca.as_str() } else { word }).collect();
    place.get(&[&words[..], &["--retries", "1", "--retry-wait", "100ms", &url]].concat())
}

#[test]
fn an_authority_of_ones_own_is_trusted_when_named_and_not_before() {
    for name in ["tls", "tls-1.2"] {
        let origin = played(name);
        let place = Place::new();
        over_tls(&origin, &place, &[]).failed(1, "[certificate-refused]");
        place.holds_nothing_whole();
        assert_eq!(origin.counters().requests, 0, "something was told to a stranger");
        over_tls(&origin, &place, &["--ca-file", "CA"]).done();
        place.holds_only("file.bin", &b());
    }
}

#[test]
fn a_bad_certificate_is_refused_for_what_it_is() {
    for name in
        ["tls-expired", "tls-wrong-name", "tls-not-yet-valid", "tls-self-signed", "tls-unknown-authority"]
    {
        let origin = played(name);
        let place = Place::new();
        over_tls(&origin, &place, &["--ca-file", "CA"]).failed(1, "[certificate-refused]");
        place.holds_nothing_whole();
        assert_eq!(origin.counters().requests, 0, "{name}");
        assert!(origin.counters().connects <= 2, "{name}: tried again: {:?}", origin.counters());
    }
    let origin = played("tls-expired");
    let place = Place::new();
    over_tls(&origin, &place, &["--insecure"]).done();
    place.holds_only("file.bin", &b());
}

#[test]
fn a_certificate_is_shown_to_who_asks() {
    let origin = played("tls-client-certificate");
    let identity = origin.authority().unwrap().client_identity().unwrap();
    let place = Place::new();
    let path = place.write_aside("me.pem", identity.certificate + &identity.key);
    let ended = over_tls(&origin, &place, &["--ca-file", "CA"]);
    assert!(ended.code == 1 && !ended.words().is_empty(), "{ended:?}");
    place.holds_nothing_whole();
    over_tls(&origin, &place, &["--ca-file", "CA", "--client-cert", &path]).done();
    place.holds_only("file.bin", &b());
    assert!(
        origin
            .requests()
            .iter()
            .all(|request| request.tls.as_ref().is_some_and(|tls| tls.client_certificate))
    );
}

#[test]
fn without_close_notify_nothing_is_complete_by_its_end() {
    let origin = played("tls-until-close-no-notice");
    let place = Place::new();
    let ended = over_tls(&origin, &place, &["--ca-file", "CA"]);
    assert!(ended.code == 1 && !ended.words().is_empty(), "{ended:?}");
    place.holds_nothing_whole();

    // Where lengths are told the rest is asked for.
    let file = Resource::new(b()).cut_after(2 << 20, Ending::FinWithoutNotice);
    let origin = Origin::builder().resource("/file.bin", file).tls(Tls::new()).start().unwrap();
    let place = Place::new();
    over_tls(&origin, &place, &["--ca-file", "CA"]).done();
    place.holds_only("file.bin", &b());
    assert!(origin.counters().body_bytes <= 2 * N, "{:?}", origin.counters());
}
