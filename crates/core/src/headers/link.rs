//! `Link`: other places that have the file (RFC 6249) and documents that describe it.

use super::fields::parse_media_type;
use super::scan::{self, Scanner};
use super::text;

/// The priority of a link that does not tell one.
pub const LOWEST_PRIORITY: u32 = 999_999;

/// Links that are read from one answer, at most.
pub const MAX_LINKS: usize = 64;

/// Longest target that is kept, in bytes.
const MAX_TARGET: usize = 8 * 1024;

/// Parameters that are read of one link, at most.
const MAX_PARAMETERS: usize = 64;

/// The links of an answer that matter to a download.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Links {
    /// Other places that have the same file, the best first.
    pub duplicates: Vec<Duplicate>,
    /// Documents that describe the file, in the order told.
    pub described_by: Vec<DescribedBy>,
}

/// A place said to have the same file (`rel=duplicate`). Only said: its bytes need proof.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Duplicate {
    /// Where, as written; may be relative to the answer's URL.
    pub target: String,
    /// 1 to [`LOWEST_PRIORITY`], the least first.
    pub priority: u32,
    /// Whether the server prefers it to those without this mark.
    pub preferred: bool,
    /// Country, in lower case, if told.
    pub geo: Option<String>,
}

/// A document that describes the file (`rel=describedby`).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DescribedBy {
    /// Where, as written; may be relative to the answer's URL.
    pub target: String,
    /// Its media type in lower case, if told.
    pub media_type: Option<String>,
}

impl DescribedBy {
    /// Whether it is a Metalink document.
    pub fn is_metalink(&self) -> bool {
        matches!(
            self.media_type.as_deref(),
            Some("application/metalink4+xml" | "application/metalink+xml" | "application/metalink3+xml")
        )
    }
}

impl Links {
    /// Reads the elements of every `Link` field. Elements that are not links are passed over, and so
    /// are links with an `anchor`, which speak of something other than this file.
    pub fn parse<'a>(elements: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut links = Self::default();
        for link in elements.filter_map(parse_link).take(MAX_LINKS) {
            if link.is_duplicate {
                links.duplicates.push(Duplicate {
                    target: link.target.clone(),
                    priority: link.priority,
                    preferred: link.preferred,
                    geo: link.geo,
                });
            }
            if link.is_description {
                links.described_by.push(DescribedBy { target: link.target, media_type: link.media_type });
            }
        }
        // Stable: equal ones stay in the server's order.
        links.duplicates.sort_by_key(|d| (!d.preferred, d.priority));
        links
    }
}

struct Link {
    target: String,
    is_duplicate: bool,
    is_description: bool,
    priority: u32,
    preferred: bool,
    geo: Option<String>,
    media_type: Option<String>,
}

fn parse_link(element: &[u8]) -> Option<Link> {
    let mut scanner = Scanner::new(element);
    if !scanner.eat(b'<') {
        return None;
    }
    let target = scanner.take_while(|b| b != b'>');
    if !scanner.eat(b'>') || target.len() > MAX_TARGET {
        return None;
    }
    let target = text::decode(scan::trim(target));
    if target.is_empty() {
        return None;
    }
    let mut link = Link {
        target,
        is_duplicate: false,
        is_description: false,
        priority: LOWEST_PRIORITY,
        preferred: false,
        geo: None,
        media_type: None,
    };
    let mut has_relation = false;
    for _ in 0..MAX_PARAMETERS {
        // To the next parameter, over whatever does not belong to one.
        scanner.take_while(|b| b != b';');
        if !scanner.eat(b';') {
            break;
        }
        scanner.skip_blanks();
        let Some(name) = scanner.token() else { continue };
        scanner.skip_blanks();
        let value = if scanner.eat(b'=') {
            scanner.skip_blanks();
            scanner.token_or_quoted().unwrap_or_default()
        } else {
            Vec::new()
        };
        match name.to_ascii_lowercase().as_slice() {
            // The first `rel` counts (RFC 8288 section 3.3); it may name several relations.
            b"rel" if !has_relation => {
                has_relation = true;
                let has = |relation: &[u8]| {
                    value.split(|&b| scan::is_blank(b)).any(|r| r.eq_ignore_ascii_case(relation))
                };
                link.is_duplicate = has(b"duplicate");
                link.is_description = has(b"describedby");
            }
            b"pri" => {
                link.priority = scan::number(&value)
                    .and_then(|n| u32::try_from(n).ok())
                    .filter(|n| (1..=LOWEST_PRIORITY).contains(n))
                    .unwrap_or(LOWEST_PRIORITY);
            }
            b"pref" => link.preferred = true,
            b"geo" => {
                link.geo = Some(text::decode(&value).to_ascii_lowercase()).filter(|g| g.len() <= 16);
            }
            b"type" => link.media_type = parse_media_type(&value),
            b"anchor" => return None,
            _ => {}
        }
    }
    Some(link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn links(values: &[&str]) -> Links {
        Links::parse(values.iter().flat_map(|v| scan::list(v.as_bytes())))
    }

    #[test]
    fn duplicates_are_sorted_by_preference_then_priority() {
        let found = links(&[
            "<http://uri1/>; rel=duplicate; pri=1; pref; geo=JP",
            "<http://uri2/>; rel=duplicate",
            "<http://uri3/>;;;;;;;;rel=duplicate;;;;;pri=2;;;;;, <http://uri4/>;;;;rel=duplicate;;;=pri=1;pref",
            "<http://describedby>; rel=describedby",
            "<http://norel/>",
            "<baduri>; rel=duplicate; pri=-1;",
            "nothing, <, <>; rel=duplicate, <unended; rel=duplicate",
        ]);
        let row = |d: &Duplicate| (d.target.clone(), d.priority, d.preferred, d.geo.clone());
        let found: Vec<_> = found.duplicates.iter().map(row).collect();
        let expected = [
            ("http://uri1/", 1, true, Some("jp")),
            ("http://uri4/", 999_999, true, None),
            ("http://uri3/", 2, false, None),
            ("http://uri2/", 999_999, false, None),
            ("baduri", 999_999, false, None),
        ]
        .map(|(t, p, f, g)| (t.to_owned(), p, f, g.map(str::to_owned)));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_comma_or_semicolon_in_a_title_ends_nothing() {
        let found = links(&[r#"<http://a/>; title="x, <http://b/>; rel=duplicate"; rel="next Duplicate""#]);
        assert_eq!(found.duplicates.len(), 1);
        assert_eq!(found.duplicates[0].target, "http://a/");
    }

    #[test]
    fn a_link_about_something_else_is_not_ours() {
        assert_eq!(links(&[r#"<http://a/>; rel=duplicate; anchor="/other""#]), Links::default());
        assert_eq!(links(&["<http://a/>; rel=next; rel=duplicate"]), Links::default());
    }

    #[test]
    fn a_metalink_is_told_from_other_descriptions() {
        let found = links(&[
            r#"<a.meta4>; rel=describedby; type="application/metalink4+xml""#,
            r#"<a.asc>; rel=describedby; type="application/pgp-signature""#,
        ]);
        let kinds: Vec<_> = found.described_by.iter().map(|d| (d.target.as_str(), d.is_metalink())).collect();
        assert_eq!(kinds, [("a.meta4", true), ("a.asc", false)]);
    }

    #[test]
    fn links_are_counted_out() {
        let value = "<http://a/>; rel=duplicate,".repeat(10_000);
        assert_eq!(links(&[&value]).duplicates.len(), MAX_LINKS);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..80), text in "(<[a-z]{0,3}>?(; ?[a-z]{0,9}=?[\"a-z0-9-]{0,9}){0,4},?){0,4}") {
            for value in [bytes.as_slice(), text.as_bytes()] {
                for d in Links::parse(scan::list(value)).duplicates {
                    prop_assert!((1..=LOWEST_PRIORITY).contains(&d.priority));
                }
            }
        }
    }
}
