use super::*;
use proptest::prelude::*;

const NOW: i64 = 1_700_000_000;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// The only cookie of a jar that took this.
fn taken(from: &str, set_cookie: &str, now: i64) -> Result<Cookie, CookieError> {
    set_cookie::parse(&url(from), set_cookie.as_bytes(), now)
}

fn jar(cookies: &[(&str, &str)]) -> CookieJar {
    let mut jar = CookieJar::new();
    for (from, set_cookie) in cookies {
        jar.set(&url(from), set_cookie.as_bytes(), NOW).unwrap();
    }
    jar
}

/// The same cookies as if they had been read from a file.
fn from_a_file(jar: &CookieJar) -> CookieJar {
    CookieJar::from_netscape(&jar.to_netscape(NOW), NOW).jar
}

#[test]
fn a_cookie_is_read_with_all_its_attributes() {
    // B26. That a host without a dot is host-only is ours.
    let text =
        "ID=123456789; expires=Sun, 10-Jun-2007 11:00:00 GMT;path=/foo; domain=localhost; secure;httpOnly   ";
    let cookie = taken("https://localhost/", text, 141).unwrap();
    assert_eq!((cookie.name(), cookie.value()), ("ID", "123456789"));
    assert_eq!(cookie.expires(), Some(1_181_473_200));
    assert_eq!((cookie.domain(), cookie.path()), ("localhost", "/foo"));
    assert!(cookie.is_secure() && cookie.is_http_only() && cookie.is_host_only());
}

#[test]
fn what_an_attribute_means() {
    // B26: where it came from, the field, then domain (with a dot for all below), path and expiry at 141.
    for (from, set_cookie, domain, path, expires) in [
        ("http://localhost/", "id=; Max-Age=100;", "localhost", "/", Some(241)),
        ("http://localhost/", "id=; Max-Age=9223372036854775807", "localhost", "/", Some(i64::MAX)),
        ("http://localhost/", "id=; Max-Age=99999999999999999999", "localhost", "/", Some(i64::MAX)),
        (
            "http://localhost/",
            "id=; Max-Age=100;expires=Sun, 10-Jun-2007 11:00:00 GMT",
            "localhost",
            "/",
            Some(241),
        ),
        ("http://localhost/", "id=;", "localhost", "/", None),
        ("http://localhost/", "id=; path=abc", "localhost", "/", None),
        ("http://localhost/a/b?c/d", "id=; path=abc", "localhost", "/a", None),
        ("http://localhost/a/b/", "id=", "localhost", "/a/b", None),
        ("http://localhost/a", "id=; PATH=/x ; path", "localhost", "/", None),
        ("http://www.example.org/", "id=; domain=.example.org", ".example.org", "/", None),
        ("http://www.example.org/", "id=; domain=EXAMPLE.org.", ".example.org", "/", None),
        ("http://b.example.org/", "id=;domain=a.example.org;domain=.example.org", ".example.org", "/", None),
        ("http://example.org/", "id=; domain=", "example.org", "/", None),
        ("http://192.168.0.1/", "id=;", "192.168.0.1", "/", None),
        ("http://192.168.0.1/", "id=; domain=192.168.0.1", "192.168.0.1", "/", None),
        ("http://[::1]/", "id=", "[::1]", "/", None),
        ("http://localhost/", "\tid\t=\tx ;\tpath=/p\t", "localhost", "/p", None),
    ] {
        let cookie = taken(from, set_cookie, 141).unwrap();
        let dot = if cookie.is_host_only() { "" } else { "." };
        assert_eq!(format!("{dot}{}", cookie.domain()), domain, "{set_cookie}");
        assert_eq!((cookie.path(), cookie.expires()), (path, expires), "{set_cookie}");
    }
    for gone in ["id=; Max-Age=0", "id=; Max-Age=-100", "id=; Max-Age=-0", "id=; Max-Age=00"] {
        let cookie = taken("http://localhost/", gone, i64::MIN + 1).unwrap();
        assert!(cookie.expires().is_some() && !cookie.is_alive(i64::MIN + 1), "{gone}");
    }
}

#[test]
fn quotes_around_a_value_are_sent_but_not_part_of_it() {
    let jar = jar(&[("http://localhost/", "id=\"foo\"")]);
    assert_eq!(jar.iter().next().unwrap().value(), "foo");
    assert_eq!(jar.cookie_header(&url("http://localhost/"), NOW).as_deref(), Some("id=\"foo\""));
}

#[test]
fn what_is_not_taken_and_why() {
    for (from, set_cookie, why) in [
        // B26.
        ("http://localhost/", &b"id=; Max-Age=X"[..], CookieError::MaxAge),
        ("http://localhost/", b"id=; Max-Age=100garbage", CookieError::MaxAge),
        ("http://localhost/", b"id=; Max-Age=", CookieError::MaxAge),
        ("http://localhost/", b"id=; Max-Age=+1", CookieError::MaxAge),
        ("http://localhost/", b"id=; expires=2007-10-01 11:00:00 GMT;", CookieError::Expires),
        ("http://localhost/", b"id=; domain=.", CookieError::Domain),
        ("http://localhost/", b"", CookieError::NoName),
        ("http://localhost/", b"=", CookieError::NoName),
        ("http://example.org/", b"id=; domain=www.example.org", CookieError::Domain),
        // More.
        ("http://localhost/", b"id", CookieError::NoName),
        ("http://localhost/", b"id; a=b", CookieError::NoName),
        ("http://localhost/", b" =x", CookieError::NoName),
        ("http://localhost/", b"id=\xff", CookieError::NotText),
        ("http://localhost/", b"id=a\r\nX: y", CookieError::NotText),
        ("http://localhost/", b"id=a\0", CookieError::NotText),
        ("http://localhost/", b"id=a; path=/\x01", CookieError::NotText),
        ("http://localhost/", b"i\td=a", CookieError::NotText),
        ("http://localhost/", b"id=a; path=/x\ty", CookieError::NotText),
        ("http://example.org/", b"id=; domain=example.com", CookieError::Domain),
        ("http://badexample.org/", b"id=; domain=example.org", CookieError::Domain),
        ("http://192.168.0.1/", b"id=; domain=0.1", CookieError::Domain),
        ("http://192.168.0.1/", b"id=; domain=168.0.1", CookieError::Domain),
        ("http://example.com/", b"id=; domain=com", CookieError::PublicSuffix),
        ("http://example.co.uk/", b"id=; domain=.co.uk", CookieError::PublicSuffix),
        ("http://me.github.io/", b"id=; domain=github.io", CookieError::PublicSuffix),
        ("http://a.localhost/", b"id=; domain=localhost", CookieError::PublicSuffix),
        ("http://localhost/", b"id=; secure", CookieError::NotSecure),
        ("ftp://example.org/", b"id=", CookieError::NotHttp),
        ("data:x", b"id=", CookieError::NotHttp),
        ("https://example.org/", b"__Secure-id=", CookieError::Prefix),
        ("https://example.org/", b"__secure-id=", CookieError::Prefix),
        ("https://example.org/", b"__Host-id=; secure", CookieError::Prefix),
        ("https://example.org/a/b", b"__Host-id=; secure; path=/a", CookieError::Prefix),
        ("https://example.org/", b"__Host-id=; path=/", CookieError::Prefix),
        ("https://example.org/", b"__Host-id=; secure; path=/; domain=example.org", CookieError::Prefix),
        ("https://localhost/", b"__Host-id=; secure; path=/; domain=localhost", CookieError::Prefix),
    ] {
        let mut jar = CookieJar::new();
        let text = String::from_utf8_lossy(set_cookie);
        // `__Host-` at the root of a site keeps its promise by the path that it has by default.
        if text == "__Host-id=; secure" {
            assert_eq!(jar.set(&url(from), set_cookie, NOW), Ok(()));
            continue;
        }
        assert_eq!(jar.set(&url(from), set_cookie, NOW), Err(why), "{text}");
        assert!(jar.is_empty());
    }
    let long = |length: usize| taken("http://h/", &format!("a={}", "x".repeat(length)), NOW);
    assert!(long(MAX_COOKIE - 1).is_ok());
    assert_eq!(long(MAX_COOKIE), Err(CookieError::TooLong));
    // An attribute of absurd length is as if it were not there.
    let cookie = taken("http://h/", &format!("a=b; path=/{}", "x".repeat(2000)), NOW).unwrap();
    assert_eq!(cookie.path(), "/");
}

#[test]
fn a_cookie_of_a_file_is_sent_where_it_belongs_and_nowhere_else() {
    // B28.
    let domain_wide = ("https://www.aria2.org/downloads/", "a=1; domain=aria2.org; path=/downloads");
    let host_only = ("https://aria2.org/", "a=1");
    let secure = ("https://aria2.org/", "a=1; secure");
    let slash = ("https://aria2.org/", "a=1; path=/foo/");
    let address = ("http://192.168.0.1/", "a=1");
    for (cookie, target, sent) in [
        (domain_wide, "http://www.aria2.org/downloads", true),
        (domain_wide, "http://aria2.org/downloads", true),
        (domain_wide, "http://www.aria2.org/downloads/latest", true),
        (domain_wide, "http://WWW.ARIA2.ORG/downloads/latest?x", true),
        (domain_wide, "http://a.b.aria2.org:8080/downloads", true),
        (domain_wide, "http://www.aria2.org/downloadss", false),
        (domain_wide, "http://www.aria2.org/DOWNLOADS", false),
        (domain_wide, "http://www.aria2.org/", false),
        (domain_wide, "http://www.aria.org/downloads", false),
        (domain_wide, "http://badaria2.org/downloads", false),
        (domain_wide, "ftp://www.aria2.org/downloads", false),
        (host_only, "http://aria2.org/", true),
        (host_only, "http://aria2.org./", true),
        (host_only, "http://www.aria2.org/", false),
        (secure, "https://aria2.org/", true),
        (secure, "http://aria2.org/", false),
        (slash, "http://aria2.org/foo/bar", true),
        (slash, "http://aria2.org/foo", false),
        (address, "http://192.168.0.1/x", true),
        (address, "http://192.168.0.2/", false),
    ] {
        let header = from_a_file(&jar(&[cookie])).cookie_header(&url(target), NOW);
        assert_eq!(header.as_deref(), sent.then_some("a=1"), "{cookie:?} {target}");
    }
}

#[test]
fn a_cookie_that_an_answer_set_goes_to_no_other_origin() {
    let plain = ("http://www.example.org/", "a=1");
    let secure = ("https://www.example.org/", "a=1; secure");
    let not_marked_so = ("https://www.example.org/", "a=1");
    let own_port = ("https://www.example.org:8443/", "a=1");
    let plain_for_all = ("http://www.example.org/", "a=1; domain=example.org");
    let for_all = ("https://login.example.org/", "a=1; domain=example.org");
    let for_all_from_a_port = ("https://login.example.org:8443/", "a=1; domain=example.org");
    for (cookie, target, sent) in [
        (plain, "http://www.example.org/x", true),
        (plain, "http://www.example.org:80/", true),
        (plain, "http://www.example.org:8080/", false),
        (plain, "https://www.example.org/", false),
        (secure, "https://www.example.org/", true),
        (secure, "https://www.example.org:8443/", false),
        (not_marked_so, "https://www.example.org/", true),
        (not_marked_so, "http://www.example.org/", false),
        (not_marked_so, "http://www.example.org:443/", false),
        (own_port, "https://www.example.org:8443/", true),
        (own_port, "https://www.example.org/", false),
        (plain_for_all, "http://www.example.org/", true),
        (plain_for_all, "http://files.example.org/", false),
        (plain_for_all, "https://files.example.org/", false),
        // A login for a whole domain, which is how a site lets another ask for the password.
        (for_all, "https://login.example.org/", true),
        (for_all, "https://files.example.org/", true),
        (for_all, "https://example.org/", true),
        (for_all, "http://login.example.org/", false),
        (for_all, "http://files.example.org/", false),
        (for_all, "https://files.example.org:8443/", false),
        (for_all, "https://example.com/", false),
        (for_all_from_a_port, "https://login.example.org:8443/", true),
        (for_all_from_a_port, "https://files.example.org/", true),
        (for_all_from_a_port, "https://login.example.org:9443/", false),
    ] {
        let header = jar(&[cookie]).cookie_header(&url(target), NOW);
        assert_eq!(header.as_deref(), sent.then_some("a=1"), "{cookie:?} {target}");
    }
}

#[test]
fn one_port_does_not_replace_what_another_set_but_may_renew_what_a_file_holds() {
    let mut jar = jar(&[("http://h/", "a=80"), ("http://h:8080/", "a=8080")]);
    let sent = |jar: &CookieJar, target: &str| jar.cookie_header(&url(target), NOW);
    assert_eq!(sent(&jar, "http://h/").as_deref(), Some("a=80"));
    assert_eq!(sent(&jar, "http://h:8080/").as_deref(), Some("a=8080"));
    jar.set(&url("http://h:8080/"), b"a=; max-age=0", NOW).unwrap();
    assert_eq!((sent(&jar, "http://h/").as_deref(), sent(&jar, "http://h:8080/")), (Some("a=80"), None));

    let mut read = CookieJar::from_netscape("h\tFALSE\t/\tFALSE\t0\ta\told\n", NOW).jar;
    assert_eq!(sent(&read, "http://h:8080/").as_deref(), Some("a=old"));
    read.set(&url("http://h:8080/"), b"a=new", NOW).unwrap();
    assert_eq!(sent(&read, "http://h:8080/").as_deref(), Some("a=new"));
    assert_eq!(sent(&read, "http://h/"), None);
}

#[test]
fn a_cookie_is_sent_up_to_its_last_second() {
    let mut jar = CookieJar::new();
    let here = url("http://h/");
    jar.set(&here, b"a=1; max-age=900", 100).unwrap();
    assert_eq!(jar.cookie_header(&here, 1000).as_deref(), Some("a=1"));
    assert_eq!(jar.cookie_header(&here, 1001), None);
    jar.set(&here, b"a=2; max-age=0", 101).unwrap();
    assert!(jar.is_empty());
}

#[test]
fn longer_paths_are_sent_first_then_older_cookies() {
    // B29.
    let jar = jar(&[
        ("http://h/", "a=1; path=/"),
        ("http://h/", "c=1; path=/foo"),
        ("http://h/", "b=1; path=/foo"),
        ("http://h/", "d=1; path=/foo/bar"),
        // Replacing one leaves it in its place.
        ("http://h/", "c=2; path=/foo"),
    ]);
    let header = jar.cookie_header(&url("http://h/foo/bar"), NOW).unwrap();
    assert_eq!(header, "d=1; c=2; b=1; a=1");
}

#[test]
fn http_cannot_touch_a_secure_cookie() {
    let secure = ("https://www.example.org/", "id=good; secure; domain=example.org; path=/login");
    for bad in
        ["id=evil; path=/login", "id=evil; path=/login/x", "id=; max-age=0; domain=example.org; path=/login"]
    {
        let mut jar = jar(&[secure]);
        let result = jar.set(&url("http://www.example.org/login/"), bad.as_bytes(), NOW);
        assert_eq!(result, Err(CookieError::NotSecure), "{bad}");
        let header = jar.cookie_header(&url("https://www.example.org/login"), NOW);
        assert_eq!(header.as_deref(), Some("id=good"));
    }
    // Another name or another path is another cookie.
    for fine in ["other=x; path=/login", "id=x; path=/"] {
        assert_eq!(jar(&[secure]).set(&url("http://www.example.org/"), fine.as_bytes(), NOW), Ok(()));
    }
    // Nor push it out.
    let mut jar = jar(&[secure]);
    for i in 0..2 * MAX_PER_DOMAIN {
        jar.set(&url("http://www.example.org/"), format!("x{i}=; domain=example.org").as_bytes(), NOW)
            .unwrap();
    }
    assert_eq!(jar.len(), MAX_PER_DOMAIN);
    assert!(jar.iter().any(|c| c.name() == "id"));
}

#[test]
fn a_jar_has_room_for_so_many_and_the_oldest_go() {
    let mut jar = CookieJar::new();
    for i in 0..MAX_PER_DOMAIN + 5 {
        jar.set(&url("http://h/"), format!("n{i}=").as_bytes(), NOW).unwrap();
    }
    assert_eq!(jar.len(), MAX_PER_DOMAIN);
    assert_eq!(jar.iter().next().unwrap().name(), "n5");
    for i in 0..MAX_COOKIES {
        jar.set(&url(&format!("http://h{i}/")), b"a=", NOW).unwrap();
    }
    assert_eq!(jar.len(), MAX_COOKIES);
    assert_eq!(jar.iter().count(), MAX_COOKIES);
    assert_eq!(jar.cookie_header(&url("http://h/"), NOW), None);
    // Expired ones go before any that is alive.
    let mut jar = CookieJar::new();
    jar.set(&url("http://h/"), b"keep=1", NOW).unwrap();
    for i in 0..MAX_PER_DOMAIN {
        jar.set(&url("http://h/"), format!("n{i}=; max-age=1").as_bytes(), NOW + 2 * i as i64).unwrap();
    }
    assert!(jar.cookie_header(&url("http://h/"), NOW + 99).unwrap().starts_with("keep=1"));
}

#[test]
fn a_header_is_no_longer_than_servers_take() {
    let mut jar = CookieJar::new();
    for i in 0..8 {
        jar.set(&url("http://h/"), format!("n{i}={}", "x".repeat(4000)).as_bytes(), NOW).unwrap();
    }
    jar.set(&url("http://h/"), b"small=1", NOW).unwrap();
    let header = jar.cookie_header(&url("http://h/"), NOW).unwrap();
    assert!(header.len() <= MAX_HEADER && header.starts_with("n0=") && header.ends_with("; small=1"));
}

#[test]
fn a_cookie_file_is_read() {
    // B30, and `#HttpOnly_` lines are honoured.
    let file = "# Netscape HTTP Cookie File\n\n\
        localhost\tFALSE\t/\tFALSE\t2147483647\tJSESSIONID\t123456789\n\
        expired\tFALSE\t/\tFALSE\t1181473200\tuser\tme\n\
        192.168.0.1\tTRUE\t/cgi-bin\tTRUE\t0\tpasswd\tsecret\n\
        badformat\n\
        .example.org\tTRUE\t/\tFALSE\t1763304912.5\tf\t1\r\n\
        example.net\tTRUE\t/\tFALSE\t0\tflag\t1\n\
        .localhost\tTRUE\t/\tFALSE\t0\tdot\t1\n\
        #HttpOnly_example.org\tFALSE\t/\tFALSE\t2147483647\thidden\t1\n\
        localhost\tFALSE\t/\tFALSE\t99999999999999999999\tnovalue\t\n\
        localhost\tFALSE\t/\tFALSE\t2147483647\tcut\n\
        .com\tTRUE\t/\tFALSE\t0\tdotless\t1\n\
        .co.uk\tTRUE\t/\tFALSE\t0\tsuffix\t1\n\
        localhost\tFALSE\t/\tFALSE\tX\ta\t1\n\
        localhost\tFALSE\tx\tFALSE\t0\ta\t1\n\
        localhost\tFALSE\t/\tFALSE\t0\t\t1\n\
        localhost\tFALSE\t/\tFALSE\t0\t__Secure-a\t1\n\
        localhost\tFALSE\t/\tFALSE\t-1\tbefore\t1\n\
        localhost\tFALSE\t/\tFALSE\t0\ta\tb\tc\n";
    let read = CookieJar::from_netscape(file, NOW);
    let cookies: Vec<String> = read
        .jar
        .iter()
        .map(|c| format!("{c:?} {:?} {:?} {} {}", c.expires(), c.value(), c.is_secure(), c.is_http_only()))
        .collect();
    assert_eq!(
        cookies,
        [
            "Cookie(JSESSIONID=… for localhost/) Some(2147483647) \"123456789\" false false",
            "Cookie(passwd=… for 192.168.0.1/cgi-bin) None \"secret\" true false",
            "Cookie(f=… for .example.org/) Some(1763304912) \"1\" false false",
            "Cookie(flag=… for .example.net/) None \"1\" false false",
            "Cookie(dot=… for localhost/) None \"1\" false false",
            "Cookie(hidden=… for example.org/) Some(2147483647) \"1\" false true",
            "Cookie(novalue=… for localhost/) Some(9223372036854775807) \"\" false false",
            "Cookie(cut=… for localhost/) Some(2147483647) \"\" false false",
            "Cookie(dotless=… for com/) None \"1\" false false",
        ]
    );
    let lines: Vec<usize> = read.skipped.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [6, 14, 15, 16, 17, 18, 20]);
    assert_eq!(read.pushed_out, 0);
    let many: String = (0..MAX_PER_DOMAIN + 3).map(|i| format!("h\tFALSE\t/\tFALSE\t0\tn{i}\tx\n")).collect();
    let read = CookieJar::from_netscape(&many, NOW);
    assert_eq!((read.jar.len(), read.pushed_out), (MAX_PER_DOMAIN, 3));
}

#[test]
fn no_debug_shows_a_value() {
    let jar = jar(&[("http://h/", "id=hunter2")]);
    assert_eq!(format!("{jar:?}"), "[Cookie(id=… for h/)]");
}

fn set_cookie_text() -> impl Strategy<Value = String> {
    "[a-d]{1,2}=[ -~]{0,6}(; ?(path=/[a-c]{0,2}|domain=\\.?(example\\.org|a\\.example\\.org)|secure|httponly|max-age=[0-9]{1,6}|[ -~]{0,8})){0,3}"
}

proptest! {
    #[test]
    fn no_field_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..60), text in "([;= \t\"é.-]|max-age|expires|domain|path|[0-9a-c/]{1,3}|__Host-){0,20}") {
        let mut jar = CookieJar::new();
        for field in [bytes.as_slice(), text.as_bytes()] {
            let _ = jar.set(&url("https://a.example.org/x/y"), field, NOW);
        }
        let _ = jar.cookie_header(&url("https://a.example.org/x/y"), NOW);
    }

    #[test]
    fn no_cookie_file_is_too_strange(text in "(\\.?example\\.org|TRUE|[\t\n#/.;= é]|#HttpOnly_|[0-9]{1,20}|\\PC){0,40}") {
        let read = CookieJar::from_netscape(&text, NOW);
        let _ = read.jar.to_netscape(NOW);
    }

    #[test]
    fn a_jar_written_to_a_file_is_read_back_as_itself(fields in prop::collection::vec(set_cookie_text(), 0..10), later in 0i64..1_000_000) {
        let mut jar = CookieJar::new();
        for field in &fields {
            let _ = jar.set(&url("https://a.example.org/a/b"), field.as_bytes(), NOW);
        }
        let now = NOW + later;
        let text = jar.to_netscape(now);
        let back = CookieJar::from_netscape(&text, now);
        prop_assert_eq!(&back.skipped, &[]);
        let plain = |jar: &CookieJar| jar.iter().filter(|c| c.is_alive(now)).map(|c| Cookie { created: 0, home: None, ..c.clone() }).collect::<Vec<_>>();
        prop_assert_eq!(plain(&back.jar), plain(&jar));
        prop_assert_eq!(back.jar.to_netscape(now), text);
        let home = url("https://a.example.org/a/b");
        prop_assert_eq!(back.jar.cookie_header(&home, now), jar.cookie_header(&home, now));
    }

    #[test]
    fn a_header_never_breaks_its_line(fields in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..10)) {
        let mut jar = CookieJar::new();
        for field in &fields {
            let _ = jar.set(&url("http://h/"), &[b"a=", field.as_slice()].concat(), NOW);
        }
        let header = jar.cookie_header(&url("http://h/"), NOW).unwrap_or_default();
        prop_assert!(!header.contains(char::is_control));
    }
}

#[test]
fn a_host_is_told_of_its_own_cookies_alone_and_answers_for_no_others() {
    let mut all = jar(&[
        ("https://a.example.org/", "host=1"),
        ("https://a.example.org/", "domain=2; Domain=example.org"),
        ("https://b.example.org/", "sibling=3"),
        ("https://bank.example/", "other=4"),
    ]);
    let names =
        |jar: &CookieJar| jar.iter().map(|c| format!("{}={}", c.name(), c.value())).collect::<Vec<_>>();
    let mut of_a = all.of_host("A.example.org", []);
    assert_eq!(names(&of_a), ["host=1", "domain=2"]);
    assert_eq!(of_a.len(), 2);
    // Who knows those of a sibling already has changed them since, perhaps.
    assert_eq!(names(&all.of_host("a.example.org", ["b.example.org"])), ["host=1"]);
    // What it has changed, and what it has only made up.
    of_a.set(&url("https://a.example.org/"), b"domain=; Domain=example.org; Max-Age=0", NOW).unwrap();
    of_a.set(&url("https://a.example.org/"), b"host=5", NOW).unwrap();
    of_a.set(&url("https://b.example.org/"), b"sibling=6", NOW).unwrap();
    of_a.set(&url("https://bank.example/"), b"other=7", NOW).unwrap();
    all.replace(["a.example.org"], of_a, NOW);
    let mut now = names(&all);
    now.sort();
    assert_eq!(now, ["host=5", "other=4", "sibling=3"]);
    assert_eq!(all.len(), 3);
}
