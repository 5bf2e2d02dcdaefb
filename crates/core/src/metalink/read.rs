//! From the tree of a document to its files.

use super::{
    LAST_PRIORITY, MAX_FILES, MAX_MIRRORS, Metalink, MetalinkError, MetalinkFile, MetalinkMirror, Skipped,
    guard, name_problem, shorten,
};
use crate::digest::{Algorithm, Digest, Pieces};
use crate::request::{Mirror, redact};
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::BTreeSet;
use url::Url;

const V4: &str = "urn:ietf:params:xml:ns:metalink";
const V3: &str = "http://www.metalinker.org/";

pub(super) fn document(text: &str, base: Option<&Url>) -> Result<Metalink, MetalinkError> {
    let options =
        ParsingOptions { allow_dtd: false, nodes_limit: guard::MAX_NODES, ..ParsingOptions::default() };
    let tree = Document::parse_with_options(text, options).map_err(|error| match error {
        roxmltree::Error::DtdDetected => MetalinkError::Doctype,
        roxmltree::Error::NodesLimitReached => MetalinkError::TooComplex { what: "elements" },
        other => MetalinkError::Damaged { why: shorten(&other.to_string()) },
    })?;
    let root = tree.root_element();
    if root.tag_name().name() != "metalink" {
        return Err(MetalinkError::NotMetalink);
    }
    let metalink = match root.tag_name().namespace() {
        Some(V4) => version_4(root, base)?,
        Some(V3) => version_3(root, base)?,
        _ => return Err(MetalinkError::NotMetalink),
    };
    if metalink.files.is_empty() {
        let why = metalink.skipped.first().map(|s| format!("{:?} {}", s.what, s.why));
        return Err(MetalinkError::NoFile { why });
    }
    Ok(metalink)
}

fn version_4(root: Node<'_, '_>, base: Option<&Url>) -> Result<Metalink, MetalinkError> {
    let mut metalink = Metalink::default();
    for node in children(root, V4, "file") {
        room_for_a_file(&metalink)?;
        let name = node.attribute("name").unwrap_or_default();
        if let Some(why) = name_problem(name) {
            return Err(MetalinkError::Name { name: shorten(name), why });
        }
        metalink.files.push(file_4(node, name, base)?);
    }
    Ok(metalink)
}

fn file_4(node: Node<'_, '_>, name: &str, base: Option<&Url>) -> Result<MetalinkFile, MetalinkError> {
    let mut file = described(node, V4, name);
    if let Some(size) = children(node, V4, "size").next() {
        file.size = Some(number("the size of a file", &text(size))?);
    }
    for hash in children(node, V4, "hash") {
        let kind = required(hash, "type", "the type of a hash")?;
        digest(&mut file, kind, &text(hash));
    }
    let mut all_pieces = Vec::new();
    for pieces in children(node, V4, "pieces") {
        let length = number("the length of pieces", required(pieces, "length", "the length of pieces")?)?;
        let kind = required(pieces, "type", "the type of pieces")?;
        let hashes = children(pieces, V4, "hash").map(text).collect();
        all_pieces.push((length, kind.to_owned(), Ok(hashes)));
    }
    choose_pieces(&mut file, all_pieces);
    let mut links = Vec::new();
    for url in children(node, V4, "url") {
        links.push((text(url), priority_4(url)?, url.attribute("location")));
    }
    mirrors(&mut file, base, links.into_iter());
    for metaurl in children(node, V4, "metaurl") {
        priority_4(metaurl)?;
        let kind = required(metaurl, "mediatype", "the mediatype of a metaurl")?;
        file.skipped.push(Skipped {
            what: "metaurl".to_owned(),
            why: format!("leads to {:?}, which is not read", shorten(kind)),
        });
    }
    Ok(file)
}

fn version_3(root: Node<'_, '_>, base: Option<&Url>) -> Result<Metalink, MetalinkError> {
    let mut metalink = Metalink::default();
    for node in children(root, V3, "files").flat_map(|files| children(files, V3, "file")) {
        room_for_a_file(&metalink)?;
        let name = node.attribute("name").unwrap_or_default();
        match name_problem(name) {
            Some(why) => {
                metalink.skipped.push(Skipped { what: shorten(name), why: format!("is no name: {why}") });
            }
            None => metalink.files.push(file_3(node, name, base)),
        }
    }
    Ok(metalink)
}

fn file_3(node: Node<'_, '_>, name: &str, base: Option<&Url>) -> MetalinkFile {
    let mut file = described(node, V3, name);
    file.size = children(node, V3, "size").next().and_then(|size| number("a size", &text(size)).ok());
    let mut all_pieces = Vec::new();
    for verification in children(node, V3, "verification") {
        for hash in children(verification, V3, "hash") {
            digest(&mut file, hash.attribute("type").unwrap_or_default(), &text(hash));
        }
        for pieces in children(verification, V3, "pieces") {
            let length = pieces.attribute("length").and_then(|l| l.trim().parse().ok()).unwrap_or(0);
            let kind = pieces.attribute("type").unwrap_or_default().to_owned();
            all_pieces.push((length, kind, numbered_pieces(pieces)));
        }
    }
    choose_pieces(&mut file, all_pieces);
    let urls = children(node, V3, "resources").flat_map(|resources| children(resources, V3, "url"));
    let (torrents, urls): (Vec<_>, Vec<_>) = urls
        .partition(|url| url.attribute("type").is_some_and(|kind| kind.eq_ignore_ascii_case("bittorrent")));
    for _ in torrents {
        skip(&mut file, "url", "leads to a torrent, which is not read".to_owned());
    }
    let links = urls.into_iter().map(|url| {
        let preference = url.attribute("preference").and_then(|p| p.trim().parse::<i32>().ok());
        let priority = preference.filter(|p| (0..=100).contains(p)).map_or(LAST_PRIORITY, |p| 101 - p);
        (text(url), priority, url.attribute("location"))
    });
    mirrors(&mut file, base, links);
    file
}

fn room_for_a_file(metalink: &Metalink) -> Result<(), MetalinkError> {
    if metalink.files.len() + metalink.skipped.len() < MAX_FILES {
        Ok(())
    } else {
        Err(MetalinkError::TooComplex { what: "files" })
    }
}

/// A file with what both versions say in the same way.
fn described(node: Node<'_, '_>, namespace: &'static str, name: &str) -> MetalinkFile {
    let texts = |tag: &'static str| {
        children(node, namespace, tag).map(text).filter(|t| !t.is_empty()).collect::<Vec<_>>()
    };
    MetalinkFile {
        name: name.to_owned(),
        version: texts("version").into_iter().next(),
        languages: texts("language"),
        os: texts("os"),
        ..MetalinkFile::default()
    }
}

/// Adds a digest of the whole file. The strongest comes first; of an algorithm the first is kept.
fn digest(file: &mut MetalinkFile, kind: &str, hex: &str) {
    let read = kind.trim().parse::<Algorithm>().and_then(|algorithm| Digest::from_hex(algorithm, hex));
    match read {
        Ok(digest) if file.digests.iter().all(|d| d.algorithm() != digest.algorithm()) => {
            file.digests.push(digest);
            file.digests.sort_by_key(|d| std::cmp::Reverse(d.algorithm()));
        }
        Ok(_) => skip(file, "hash", "is of a type that was there before".to_owned()),
        Err(error) => skip(file, "hash", format!("cannot be used: {error}")),
    }
}

/// The digests of pieces, in the order of their numbers, which must be 0, 1, 2 and so on.
fn numbered_pieces(pieces: Node<'_, '_>) -> Result<Vec<String>, String> {
    let mut numbered = Vec::new();
    for hash in children(pieces, V3, "hash") {
        let index: usize =
            hash.attribute("piece").and_then(|p| p.trim().parse().ok()).ok_or("have one without a number")?;
        numbered.push((index, text(hash)));
    }
    numbered.sort_by_key(|(index, _)| *index);
    if numbered.iter().enumerate().any(|(at, (index, _))| at != *index) {
        return Err("are not numbered 0, 1, 2 and so on, each once".to_owned());
    }
    Ok(numbered.into_iter().map(|(_, hex)| hex).collect())
}

/// Keeps the pieces of the strongest algorithm, of those that can be used.
fn choose_pieces(file: &mut MetalinkFile, all: Vec<(u64, String, Result<Vec<String>, String>)>) {
    for (length, kind, hashes) in all {
        match hashes.and_then(|hashes| read_pieces(file.size, length, &kind, &hashes)) {
            Ok(pieces) => {
                let strength = |p: &Pieces| p.digests.first().map(Digest::algorithm);
                if file.pieces.as_ref().is_none_or(|best| strength(best) < strength(&pieces)) {
                    file.pieces = Some(pieces);
                }
            }
            Err(why) => skip(file, "pieces", why),
        }
    }
}

fn read_pieces(size: Option<u64>, length: u64, kind: &str, hashes: &[String]) -> Result<Pieces, String> {
    if length == 0 {
        return Err("have no length".to_owned());
    }
    let algorithm: Algorithm = kind.trim().parse().map_err(|e| format!("cannot be used: {e}"))?;
    let expected = size.map(|size| size.div_ceil(length));
    match expected {
        Some(expected) if expected != hashes.len() as u64 => {
            return Err(format!(
                "do not fit the size of the file: {} of them, where {expected} are needed",
                hashes.len()
            ));
        }
        None if hashes.is_empty() => return Err("are none".to_owned()),
        _ => {}
    }
    let digests = hashes
        .iter()
        .enumerate()
        .map(|(at, hex)| {
            Digest::from_hex(algorithm, hex).map_err(|e| format!("are damaged at number {at}: {e}"))
        })
        .collect::<Result<_, _>>()?;
    Ok(Pieces { length, digests })
}

/// Adds the mirrors of a file: for each its link, priority and location.
fn mirrors<'a>(
    file: &mut MetalinkFile,
    base: Option<&Url>,
    links: impl Iterator<Item = (String, i32, Option<&'a str>)>,
) {
    let mut seen = BTreeSet::new();
    for (link, priority, location) in links {
        match mirror(&link, base) {
            Ok(_) if file.mirrors.len() >= MAX_MIRRORS => {
                skip(file, "url", format!("is beyond the {MAX_MIRRORS} that are kept for a file"));
            }
            Ok(mirror) if !seen.insert(mirror.url().clone()) => {
                skip(file, &redact(mirror.url()), "was there before".to_owned());
            }
            Ok(mirror) => {
                let location = location.map(|l| shorten(l.trim()).to_lowercase());
                file.mirrors.push(MetalinkMirror { mirror, priority, location });
            }
            Err((what, why)) => skip(file, &what, why),
        }
    }
    file.sort_mirrors();
}

fn mirror(link: &str, base: Option<&Url>) -> Result<Mirror, (String, String)> {
    if link.is_empty() {
        return Err(("url".to_owned(), "is empty".to_owned()));
    }
    // The link itself is not shown when it cannot be read: what is secret in it is not known then.
    let url = Url::options()
        .base_url(base)
        .parse(link)
        .map_err(|e| ("url".to_owned(), format!("cannot be read: {e}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        let why = format!("is {}, and only http and https are spoken", shorten(url.scheme()));
        return Err((redact(&url), why));
    }
    Mirror::parse(url.as_str())
        .map(Mirror::named_by_document)
        .map_err(|failure| (redact(&url), failure.message))
}

fn skip(file: &mut MetalinkFile, what: &str, why: String) {
    file.skipped.push(Skipped { what: shorten(what), why });
}

fn priority_4(node: Node<'_, '_>) -> Result<i32, MetalinkError> {
    let Some(priority) = node.attribute("priority") else { return Ok(LAST_PRIORITY) };
    priority.trim().parse().ok().filter(|p| (1..=LAST_PRIORITY).contains(p)).ok_or_else(|| {
        MetalinkError::Invalid {
            what: "a priority",
            why: format!("must be 1 to {LAST_PRIORITY}, and is {:?}", shorten(priority)),
        }
    })
}

fn required<'a>(node: Node<'a, '_>, name: &str, what: &'static str) -> Result<&'a str, MetalinkError> {
    match node.attribute(name).map(str::trim) {
        Some(value) if !value.is_empty() => Ok(value),
        _ => Err(MetalinkError::Invalid { what, why: "is missing".to_owned() }),
    }
}

fn number(what: &'static str, text: &str) -> Result<u64, MetalinkError> {
    // `parse` alone would take a plus sign. Files have no lengths beyond `i64`.
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|&n| digits && i64::try_from(n).is_ok()).ok_or_else(|| MetalinkError::Invalid {
        what,
        why: format!("must be a number of bytes, and is {:?}", shorten(text)),
    })
}

fn children<'a, 'i: 'a>(
    node: Node<'a, 'i>,
    namespace: &'static str,
    tag: &'static str,
) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(move |child| child.has_tag_name((namespace, tag)))
}

/// All of an element's own text: a comment in the middle does not cut it off.
fn text(node: Node<'_, '_>) -> String {
    let whole: String = node.children().filter(Node::is_text).filter_map(|t| t.text()).collect();
    whole.trim().to_owned()
}
