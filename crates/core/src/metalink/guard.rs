//! Bounds on the shape of an XML text, checked in one pass before it is read into a tree.
//!
//! The tree's reader compares each attribute of an element with those before it, and copies the
//! namespaces in scope at each element that declares one. Both grow with the square of what a document
//! puts there: some megabytes could keep it busy for hours or use up the memory.

use super::MetalinkError;

const MAX_ELEMENTS: usize = 150_000;
const MAX_DEPTH: usize = 32;
const MAX_ATTRIBUTES_OF_ONE: usize = 64;
const MAX_ATTRIBUTES: usize = 300_000;
const MAX_NAMESPACES: usize = 256;

/// The most nodes (elements, texts, comments) of the tree.
pub(super) const MAX_NODES: u32 = 400_000;

/// Checks the bounds. Says nothing of a text that is not XML: the reader will.
pub(super) fn check(text: &str) -> Result<(), MetalinkError> {
    if text.match_indices("xmlns").count() > MAX_NAMESPACES {
        return Err(MetalinkError::TooComplex { what: "namespaces" });
    }
    let mut elements = 0usize;
    let mut attributes = 0usize;
    let mut depth = 0usize;
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        let after = if let Some(comment) = rest.strip_prefix("<!--") {
            skip_past(comment, "-->")
        } else if let Some(data) = rest.strip_prefix("<![CDATA[") {
            skip_past(data, "]]>")
        } else if let Some(instruction) = rest.strip_prefix("<?") {
            skip_past(instruction, "?>")
        } else if rest.starts_with("<!") {
            return Err(MetalinkError::Doctype);
        } else {
            let tag = tag(rest);
            if rest.starts_with("</") {
                depth = depth.saturating_sub(1);
            } else {
                elements += 1;
                depth += usize::from(!tag.closes_itself);
            }
            if elements > MAX_ELEMENTS {
                return Err(MetalinkError::TooComplex { what: "elements" });
            }
            if depth > MAX_DEPTH {
                return Err(MetalinkError::TooComplex { what: "elements within elements" });
            }
            attributes += tag.attributes;
            if tag.attributes > MAX_ATTRIBUTES_OF_ONE || attributes > MAX_ATTRIBUTES {
                return Err(MetalinkError::TooComplex { what: "attributes" });
            }
            Some(&rest[tag.length..])
        };
        match after {
            Some(after) => rest = after,
            None => break,
        }
    }
    Ok(())
}

fn skip_past<'a>(text: &'a str, end: &str) -> Option<&'a str> {
    text.find(end).map(|at| &text[at + end.len()..])
}

struct Tag {
    /// In bytes, from `<` to `>` or the end of the text.
    length: usize,
    attributes: usize,
    closes_itself: bool,
}

fn tag(text: &str) -> Tag {
    let mut quote = None;
    let mut attributes = 0;
    let mut before = b' ';
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => {
                quote = Some(byte);
                attributes += 1;
            }
            (None, b'>') => return Tag { length: at + 1, attributes, closes_itself: before == b'/' },
            (None, _) => {}
        }
        before = byte;
    }
    Tag { length: text.len(), attributes, closes_itself: false }
}
