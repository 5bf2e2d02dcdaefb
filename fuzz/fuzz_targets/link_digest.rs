//! `Link`, the digest fields, dates and redirect targets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::headers::{
    Headers, LOWEST_PRIORITY, Links, MAX_LINKS, agreed_digests, format_http_date, location_text,
    parse_content_md5, parse_digest, parse_http_date, parse_retry_after, parse_structured_digest,
    resolve_location,
};
use url::Url;

fuzz_target!(|data: &[u8]| {
    let mut headers = Headers::new();
    headers.push("x", data);
    let links = Links::parse(headers.list("x"));
    assert!(links.duplicates.len() <= MAX_LINKS && links.described_by.len() <= MAX_LINKS);
    assert!(links.duplicates.iter().all(|d| (1..=LOWEST_PRIORITY).contains(&d.priority)));

    let mut digests = parse_digest(headers.list("x"));
    digests.extend(parse_structured_digest(headers.list("x")));
    digests.extend(parse_content_md5(data));
    let agreed = agreed_digests(digests);
    assert!(agreed.windows(2).all(|pair| pair[0].algorithm() > pair[1].algorithm()));

    if let Some(text) = parse_http_date(data).and_then(format_http_date) {
        assert_eq!(parse_http_date(text.as_bytes()), parse_http_date(data));
    }
    let _ = parse_retry_after(data, i64::MIN);

    if let (Some(text), Ok(base)) = (location_text(data), Url::parse("https://h/a/b"))
        && let Ok(url) = resolve_location(&base, &text)
    {
        assert!(url.has_host() && matches!(url.scheme(), "http" | "https") && url.fragment().is_none());
    }
});
