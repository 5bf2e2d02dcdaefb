//! Names that a server suggests: odd ones, and ones that would lead out of the folder.

use super::{Recipe, recipe};
use crate::body::Body;
use crate::origin::{Builder, ENTRY, Origin};
use crate::recipes::Given;
use crate::resource::Resource;

/// Content-Disposition values, each with the path of its recipe ([`find`](super::find) `tc-34`) and the name
/// that is meant.
pub const DISPOSITIONS: &[(&str, &[u8], &str)] = &[
    ("/a/f.bin", b"attachment; filename=\"opensmile-2.3.0.tar.gz\";", "opensmile-2.3.0.tar.gz"),
    ("/b/f.bin", b"attachment; filename*=UTF-8''%e2%82%ac%20rates.bin", "\u{20ac} rates.bin"),
    (
        "/c/f.bin",
        b"attachment; filename=\"EURO rates.bin\"; filename*=UTF-8''%e2%82%ac%20rates.bin",
        "\u{20ac} rates.bin",
    ),
    ("/d/f.bin", b"inline; filename=\"%EC%82%AC%EB%B3%B8.jpg\"", "\u{c0ac}\u{bcf8}.jpg"),
    (
        "/e/f.bin",
        b"attachment; filename=\"\xe4\xb8\xad\xe6\x96\x87\xe6\x96\x87\xe4\xbb\xb6\xe5\x90\x8d.rar\"",
        "\u{4e2d}\u{6587}\u{6587}\u{4ef6}\u{540d}.rar",
    ),
    (
        "/f/f.bin",
        b"attachment; filename=\"\xd6\xd0\xce\xc4\xce\xc4\xbc\xfe\xc3\xfb.rar\"",
        "\u{4e2d}\u{6587}\u{6587}\u{4ef6}\u{540d}.rar",
    ),
    ("/g/f.bin", b"attachment; filename=a&amp;b.bin", "a&amp;b.bin"),
];

/// Content-Disposition values that would lead out of the folder, each with its path (`tc-35`). None of them
/// may put a file elsewhere.
pub const TRAVERSALS: &[(&str, &[u8])] = &[
    ("/header/a", b"attachment; filename=\"../../evil-a.bin\""),
    ("/header/b", b"attachment; filename=\"/abs/evil-b.bin\""),
    ("/header/c", b"attachment; filename=\"..\\\\..\\\\evil-c.bin\""),
    ("/header/d", b"attachment; filename=\"..\""),
    ("/header/e", b"attachment; filename=\"a%00b.bin\""),
    ("/header/f", b"attachment; filename*=UTF-8''..%2f..%2fevil-f.bin"),
    ("/header/g", b"attachment; filename*=UTF-8''%2e%2e%5c%2e%2e%5cevil-g.bin"),
    ("/header/h", b"attachment; filename=\"a\0b.bin\""),
    ("/header/i", b"attachment; filename=\".\""),
    ("/header/j", b"attachment; filename=\"evil/\""),
    ("/header/k", b"attachment; filename*=UTF-8''evil%00.bin"),
    ("/header/l", b"attachment; filename*=UTF-8''%ef%bc%8f..%ef%bc%8fevil-l.bin"),
    ("/header/m", b"attachment; filename=\"~/.bashrc\""),
    ("/header/n", b"attachment; filename=\".ssh/authorized_keys\""),
];

/// URL paths that would lead out of the folder (`tc-35`).
const PATHS: [&str; 7] = [
    "/%2e%2e%2fevil-d.bin",
    "/..%2f..%2fevil-e.bin",
    "/%2e%2e%5cevil.bin",
    "/%2e%2e",
    "/a%00b.bin",
    "/%2fetc%2fpasswd",
    "/evil%2f",
];

/// Names that are too long, reserved or dotted, each with its path (`tc-36`).
fn awkward() -> Vec<(&'static str, String)> {
    vec![
        ("/long", format!("{}.zip", "x".repeat(300))),
        ("/long-cjk", format!("{}.zip", "\u{4e2d}".repeat(100))),
        ("/long-extension", format!("x.{}", "y".repeat(300))),
        ("/reserved", "CON.txt".to_owned()),
        ("/reserved-2", "aux".to_owned()),
        ("/forbidden", "a:b?.txt".to_owned()),
        ("/blank-end", "name. ".to_owned()),
        ("/dot", ".hidden".to_owned()),
        ("/dash", "-rf".to_owned()),
        ("/newline", "a%0Ab.txt".to_owned()),
        ("/escape", "a%1B[31mb.txt".to_owned()),
        ("/right-to-left", "photo_\u{202e}gpj.exe".to_owned()),
        ("/our-own", "file.bin.part".to_owned()),
        ("/our-own-2", "file.bin.part.tide".to_owned()),
    ]
}

/// One name at the entry.
fn named(given: &Given, disposition: &[u8]) -> Builder {
    super::one(given.file().field("Content-Disposition", disposition))
}

/// As `filename*` needs it.
fn percent(name: &str) -> String {
    name.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'%' => text.push(byte.into()),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

fn all_at(given: &Given, entries: impl Iterator<Item = (String, Vec<u8>)>) -> Builder {
    let mut builder = Origin::builder().resource(ENTRY, given.file());
    let mut first = None;
    for (path, disposition) in entries {
        first.get_or_insert_with(|| path.clone());
        builder = builder.resource(&path, given.file().field("Content-Disposition", disposition));
    }
    builder.entry(&first.unwrap_or_else(|| ENTRY.to_owned())).right([given.body()])
}

pub(super) static RECIPES: &[Recipe] = &[
    recipe("name", "`Content-Disposition: attachment; filename=\"a name.bin\"`", |given| {
        named(given, b"attachment; filename=\"a name.bin\"")
    }),
    recipe("tc-34", "seven names in Content-Disposition, at /a/f.bin to /g/f.bin", |given| {
        all_at(given, DISPOSITIONS.iter().map(|(path, value, _)| ((*path).to_owned(), value.to_vec())))
    }),
    recipe("tc-35", "names that lead out of the folder, by header (/header/a …) and by URL", |given| {
        let builder =
            all_at(given, TRAVERSALS.iter().map(|(path, value)| ((*path).to_owned(), value.to_vec())));
        PATHS.iter().fold(builder, |builder, path| builder.resource(path, given.file()))
    }),
    recipe("tc-36", "names too long, reserved or dotted, each at a path of its own", |given| {
        all_at(
            given,
            awkward().into_iter().map(|(path, name)| {
                (path.to_owned(), format!("attachment; filename*=UTF-8''{}", percent(&name)).into_bytes())
            }),
        )
    }),
    recipe("name-traversal", "`filename=\"../../evil.bin\"` at the entry", |given| {
        named(given, b"attachment; filename=\"../../evil.bin\"")
    }),
    recipe("name-long", "a name of 304 bytes at the entry", |given| {
        named(given, format!("attachment; filename=\"{}.zip\"", "x".repeat(300)).as_bytes())
    }),
    recipe("name-bad", "a Content-Disposition that cannot be read at the entry", |given| {
        named(given, b"attachment; filename=foo bar;; =;")
    }),
    recipe("name-huge", "a Content-Disposition of 32 KiB", |given| {
        named(given, format!("attachment; filename=\"{}.zip\"", "x".repeat(32 << 10)).as_bytes())
    }),
    recipe("tc-43", "two files, /one and /two, with the same name in Content-Disposition", |given| {
        let disposition = "attachment; filename=\"videoplayback\"";
        Origin::builder()
            .resource("/one", given.file().field("Content-Disposition", disposition))
            .resource("/two", Resource::new(given.other()).field("Content-Disposition", disposition))
            .entry("/one")
            .right([given.body(), given.other()])
    }),
    recipe("name-from-url", "the file at a URL with blanks, letters of elsewhere and a query", |given| {
        let path = "/dir/sp%20ace%20%E3%81%82.bin";
        Origin::builder()
            .resource(path, given.file())
            .entry(&format!("{path}?token=a/b"))
            .right([given.body()])
    }),
    recipe("name-none", "the file at `/`", |given| {
        Origin::builder().resource("/", Resource::new(Body::random(given.seed, given.size))).entry("/")
    }),
];
