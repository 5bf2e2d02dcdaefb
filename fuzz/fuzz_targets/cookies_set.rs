//! `Set-Cookie` fields, one a line: no bytes are too strange, what is sent stays in its line and with who set
//! it, and the jar survives being written to a file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::cookies::{CookieJar, MAX_HEADER};
use url::Url;

const NOW: i64 = 1_700_000_000;

fuzz_target!(|data: &[u8]| {
    let parse = |text: &str| Url::parse(text).expect("a constant");
    let (tls, plain) = (parse("https://a.example.org/x/y"), parse("http://a.example.org/x/y"));
    let (mut jar, mut of_tls) = (CookieJar::new(), CookieJar::new());
    for (index, field) in data.split(|&b| b == b'\n').enumerate() {
        let from = if index % 2 == 0 { &tls } else { &plain };
        let _ = jar.set(from, field, NOW);
        let _ = of_tls.set(&tls, field, NOW);
    }
    for cookie in jar.iter() {
        let domain = cookie.domain();
        assert!("a.example.org" == domain || "a.example.org".ends_with(&format!(".{domain}")));
    }
    for target in [&tls, &plain, &parse("https://example.org/")] {
        let header = jar.cookie_header(target, NOW).unwrap_or_default();
        assert!(header.len() <= MAX_HEADER && !header.contains(char::is_control));
    }
    let back = CookieJar::from_netscape(&of_tls.to_netscape(NOW), NOW);
    assert!(back.skipped.is_empty());
    assert_eq!(back.jar.cookie_header(&tls, NOW), of_tls.cookie_header(&tls, NOW));
    // Of several origins the newest of a name is what a file keeps.
    let back = CookieJar::from_netscape(&jar.to_netscape(NOW), NOW);
    assert!(back.skipped.is_empty());
    let again = CookieJar::from_netscape(&back.jar.to_netscape(NOW), NOW);
    assert_eq!(again.jar.to_netscape(NOW), back.jar.to_netscape(NOW));
    for elsewhere in [&plain, &parse("https://a.example.org:8443/x/y"), &parse("http://example.org/")] {
        assert_eq!(of_tls.cookie_header(elsewhere, NOW), None);
    }
    assert_eq!(jar.cookie_header(&parse("https://example.com/"), NOW), None);
});
