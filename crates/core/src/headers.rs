//! Header fields of an answer: bytes in, types out.

/// Header fields in the order received. Names are kept in lower case, values as the bytes they are
/// (no encoding is promised), without surrounding blanks.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Headers {
    fields: Vec<(String, Vec<u8>)>,
}

impl Headers {
    /// No fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field at the end.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        self.fields.push((name.to_ascii_lowercase(), value.trim_ascii().to_vec()));
    }

    /// The first value of a field (`name` in any case).
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice())
    }

    /// The first value of a field, if it is UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|v| std::str::from_utf8(v).ok())
    }

    /// Every value of a field, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.fields.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice())
    }

    /// Every field, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|(n, v)| (n.as_str(), v.as_slice()))
    }
}
