//! Who is told a secret, and who never is.

use crate::common::{Place, b, played};
use std::sync::Arc;
use tidegate_testkit::auth::basic;
use tidegate_testkit::recipes::{PASSWORD, TOKEN, USER};
use tidegate_testkit::request::RequestSeen;
use tidegate_testkit::tls::Tls;
use tidegate_testkit::{Answer, Body, Origin, Proxy, Resource};

fn user() -> String {
    format!("{USER}:{PASSWORD}")
}

#[test]
fn a_user_and_password_open_what_they_should() {
    for name in ["auth-basic", "auth-digest-md5", "auth-digest-sha-256", "auth-choice", "auth-then-redirect"]
    {
        let origin = played(name);
        let place = Place::new();
        place.get(&["--user", &user(), &origin.entry_url()]).done();
        let file =
            if name == "auth-then-redirect" { place.finals().remove(0) } else { "file.bin".to_owned() };
        place.holds_only(&file, &b());
    }
    let origin = played("auth-bearer");
    let place = Place::new();
    let token = place.write_aside("token", TOKEN);
    place.get(&["--bearer-token-file", &token, &origin.entry_url()]).done();
    place.holds_only("file.bin", &b());
}

#[test]
fn without_or_with_wrong_credentials_there_is_a_reason_and_no_file() {
    for name in ["auth-basic", "auth-digest-md5", "auth-digest-sha-256", "auth-bearer"] {
        let origin = played(name);
        let place = Place::new();
        place.get(&[&origin.entry_url()]).failed(1, "[auth-required]");
        let ended = place.get(&["--user", "tide:hunter2", &origin.entry_url()]);
        assert!(ended.code == 1 && (ended.says("[forbidden]") || ended.says("[auth-required]")), "{ended:?}");
        assert!(!ended.says("hunter2"), "a password was said: {ended:?}");
        place.holds_nothing_whole();
        assert!(origin.counters().requests <= 8, "{name}: {:?}", origin.counters());
    }
}

#[test]
fn netrc_gives_each_host_its_own_and_no_other_any() {
    let origin = played("auth-basic");
    let netrc = format!("machine 127.0.0.1 login {USER} password \"{PASSWORD}\"\n");
    let place = Place::new();
    place.write_aside(".netrc", &netrc);
    place.get(&["--netrc", &origin.entry_url()]).done();
    place.holds_only("file.bin", &b());
    let seen = origin.requests();
    assert!(seen.iter().any(|request| request.has("authorization")));

    let origin = Origin::serve(Resource::new(b())).unwrap();
    let place = Place::new();
    let path = place.write_aside("netrc", netrc.replace("127.0.0.1", "elsewhere.invalid"));
    place.get(&["--netrc-file", &path, &origin.entry_url()]).done();
    assert!(origin.requests().iter().all(|request| !request.has("authorization")));
}

/// Hosts at their usual ports, by way of a proxy: `plain.test` speaks http, `origin.test` https. Below `/to/`
/// each redirects to the URL that follows; `/real/file.bin` is the file, for those with a login.
struct Hosts {
    origin: Origin,
    proxy: Proxy,
    place: Place,
    netrc: String,
}

impl Hosts {
    fn new() -> Self {
        let leads = |url: &'static str| {
            Resource::new(Body::bytes("")).gate(move |_| Some(Answer::redirect(302, url)))
        };
        let origin = Origin::builder()
            .resource("/real/file.bin", Resource::new(b()).gate(basic(USER, PASSWORD)))
            .resource("/to/https", leads("https://origin.test/real/file.bin"))
            .resource("/to/http", leads("http://plain.test/real/file.bin"))
            .also_listen(Some(Tls::new()))
            .start()
            .unwrap();
        let (plain, secure) = (origin.address(), origin.address_of(1));
        let proxy = Proxy::http()
            .map("first.test", plain)
            .map("plain.test", plain)
            .map("origin.test", secure)
            .start()
            .unwrap();
        let place = Place::new();
        let login = format!("login {USER} password \"{PASSWORD}\"\n");
        let netrc = format!("machine origin.test {login}machine plain.test {login}");
        let netrc = place.write_aside("netrc", netrc);
        Self { origin, proxy, place, netrc }
    }

    fn get(&self, words: &[&str]) -> crate::common::Ended {
        let ca = self.place.write_aside("ca.pem", self.origin.authority().unwrap().pem());
        let usual = ["--proxy", &self.proxy.url(), "--ca-file", &ca, "--netrc-file", &self.netrc];
        self.place.get(&[&usual[..], words].concat())
    }

    fn somebody_was_told(&self) -> bool {
        self.origin.requests().iter().any(|request| request.has("authorization"))
    }
}

#[test]
fn a_redirect_to_where_one_logs_in_gets_the_netrc_login_over_https_and_not_over_http() {
    let hosts = Hosts::new();
    hosts.get(&["-o", "file.bin", "http://first.test/to/https"]).done();
    hosts.place.holds_only("file.bin", &b());

    let hosts = Hosts::new();
    hosts.get(&["-o", "file.bin", "http://first.test/to/http"]).failed(1, "[auth-required]");
    hosts.place.holds_nothing_whole();
    assert!(!hosts.somebody_was_told(), "{:?}", hosts.origin.requests());

    // Asked for by name it is the user's own doing.
    let hosts = Hosts::new();
    hosts.get(&["http://plain.test/real/file.bin"]).done();
    hosts.place.holds_only("file.bin", &b());
}

#[test]
fn a_certificate_that_is_not_checked_gets_no_netrc_login_by_a_redirect() {
    let hosts = Hosts::new();
    hosts.get(&["--insecure", "-o", "file.bin", "http://first.test/to/https"]).failed(1, "[auth-required]");
    assert!(!hosts.somebody_was_told(), "{:?}", hosts.origin.requests());
}

#[test]
fn a_mirror_of_a_metalink_file_gets_the_netrc_login_over_https_and_not_over_http() {
    for (url, told) in
        [("http://plain.test/real/file.bin", false), ("https://origin.test/real/file.bin", true)]
    {
        let hosts = Hosts::new();
        let document = format!(
            "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"file.bin\"><url>{url}</url></file></metalink>"
        );
        let document = hosts.place.write_aside("list.meta4", document);
        let ended = hosts.get(&["--metalink", &document]);
        if told {
            ended.done();
            hosts.place.holds_only("file.bin", &b());
        } else {
            ended.failed(1, "[auth-required]");
        }
        assert_eq!(hosts.somebody_was_told(), told, "{url}");
    }
}

#[test]
fn a_cookie_that_an_answer_set_is_not_told_to_another_port_of_the_host() {
    let origin = played("redirect-other-port");
    let place = Place::new();
    place.get(&["-o", "file.bin", &origin.entry_url()]).done();
    place.holds_only("file.bin", &b());
    let requests = origin.requests();
    let told: Vec<_> = requests.iter().filter(|request| request.has("cookie")).collect();
    assert!(requests.len() > 1 && told.is_empty(), "{told:?}");
}

/// The words for all kinds of secrets at once, and whether a request carries any of them.
fn secrets(place: &Place, host: &str) -> Vec<String> {
    let cookies = format!("{host}\tFALSE\t/\tFALSE\t0\tsession\thunter2\n");
    let file = place.write_aside("cookies", cookies);
    ["--user", "me:hunter2", "-H", "X-Api-Key: hunter2", "-H", "Cookie: also=hunter2", "--cookies", &file]
        .map(str::to_owned)
        .to_vec()
}

fn told(request: &RequestSeen) -> Vec<String> {
    // `me:hunter2` in base64.
    let secret = |value: &str| value.contains("hunter2") || value.contains("bWU6aHVudGVyMg");
    request
        .fields
        .iter()
        .filter(|(_, value)| secret(value))
        .map(|(name, _)| name.to_ascii_lowercase())
        .collect()
}

#[test]
fn no_secret_follows_to_another_origin() {
    for name in ["redirect-other-port", "redirect-other-host", "redirect-to-http"] {
        let origin = played(name);
        let place = Place::new();
        let mut words = secrets(&place, "127.0.0.1");
        if let Some(authority) = origin.authority() {
            words.extend(["--ca-file".to_owned(), place.write_aside("ca.pem", authority.pem())]);
        }
        words.push(origin.entry_url());
        place.get(&words.iter().map(String::as_str).collect::<Vec<_>>()).done();
        let requests = origin.requests();
        assert!(!told(&requests[0]).is_empty(), "{name}: the probe is blind: {requests:?}");
        let mut followed = 0;
        for request in requests.iter().filter(|request| request.path() != "/file.bin") {
            followed += 1;
            // A cookie of a file is its host's, whatever the port (RFC 6265 section 8.5); one written into a
            // header by hand is this URL's alone.
            let of_the_file = request.field("cookie").is_some_and(|all| !all.contains("also="));
            let same_host = request.field("host").is_some_and(|host| host.starts_with("127.0.0.1"));
            let told: Vec<String> = told(request)
                .into_iter()
                .filter(|name| !(name == "cookie" && of_the_file && same_host))
                .collect();
            assert_eq!(told, Vec::<String>::new(), "{name}: {request:?}");
            assert!(!request.has("authorization"), "{name}: {request:?}");
        }
        assert!(followed > 0, "{name}: nobody followed");
    }
}

#[test]
fn secrets_do_follow_within_an_origin() {
    let asks = basic("me", "hunter2");
    let origin = Origin::builder()
        .resource("/real/file.bin", Resource::new(b()).gate(asks))
        .resource(
            "/file.bin",
            Resource::new(Body::bytes("")).gate(|_| Some(Answer::redirect(302, "/real/file.bin"))),
        )
        .start()
        .unwrap();
    let place = Place::new();
    place.get(&["--user", "me:hunter2", &origin.entry_url()]).done();
    place.holds_only("file.bin", &b());
}

#[test]
fn credentials_in_a_redirect_are_not_shown() {
    let origin = played("redirect-credentials");
    let place = Place::new();
    let ended = place.get_json(&["-v", &origin.entry_url()]).done();
    place.holds_only("file.bin", &b());
    assert!(!ended.says("secret"), "{ended:?}");
}

#[test]
fn cookies_hold_through_no_redirect_to_three() {
    for hops in 0..=3u64 {
        let place = Place::new();
        let origin = cookie_chain(hops);
        let file = place.write_aside("cookies", "127.0.0.1\tFALSE\t/\tFALSE\t0\tgiven\tyes\n");
        place.get(&["--cookies", &file, &origin.entry_url()]).done();
        assert_eq!(place.finals().len(), 1);
        assert!(place.holds(&place.finals()[0], &b()), "{hops} redirects");
    }
}

/// `hops` redirects, each of which sets a cookie and wants all that were set before, as the file does; and the
/// cookie `given`.
fn cookie_chain(hops: u64) -> Origin {
    let wants = |sets: u64| {
        move |request: &RequestSeen| {
            let have = request.field("cookie").unwrap_or_default();
            let all = (1..=sets).all(|n| have.contains(&format!("hop{n}=set"))) && have.contains("given=yes");
            (!all).then(|| Answer::status(403))
        }
    };
    let path = |hop: u64| if hop == 1 { "/file.bin".to_owned() } else { format!("/hop/{hop}/file.bin") };
    let mut builder = Origin::builder();
    for hop in 1..=hops {
        let (asks, next) = (Arc::new(wants(hop - 1)), path(hop + 1));
        let redirect = Resource::new(Body::bytes("")).gate(move |request| {
            let sent =
                || Answer::redirect(302, next.as_str()).with("Set-Cookie", format!("hop{hop}=set; Path=/"));
            asks(request).or_else(|| Some(sent()))
        });
        builder = builder.resource(&path(hop), redirect);
    }
    builder.resource(&path(hops + 1), Resource::new(b()).gate(wants(hops))).start().unwrap()
}
