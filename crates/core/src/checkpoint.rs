//! The map that lies beside a part file: which bytes of which version of which file are in it.
//!
//! The file has four slots at fixed places. **D0 and D1** say what is *durable*: they are written in
//! turn, each only after the bytes that it names were synced, and synced before the other may be
//! touched. **W0 and W1** say what was *written*: they are overwritten in turn without any sync, and
//! hold only while the page cache that took those writes is known to be still there.
//!
//! Three rules make "the new version of the file with the old version's map" impossible, under any
//! order in which a disk may keep or lose writes:
//!
//! 1. A slot is whole in itself. Request, identity, surroundings and spans stand under one checksum,
//!    so a torn slot is no slot, and no identity can be paired with the spans of another. (There is no
//!    header apart from the slots, which would have to be in step with them.)
//! 2. Every time bytes are taken back (a restart, a piece that failed its digest) the *generation*
//!    goes up, and both D slots carry the new one durably before a byte of the part is overwritten. So
//!    the loss of any one slot, at any time, still leaves a D slot of the newest generation.
//! 3. A W slot of an older generation than the newest D slot is not believed.
//!
//! The size does not grow with the file: beyond [`MAX_SPANS`] spans the smallest are left out. A map may
//! say less than the truth, never more.

use crate::span::{Span, SpanSet};
use crate::validator::{EntityTag, Identity};
use crate::written;
use serde::{Deserialize, Serialize};
use url::Url;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// The bytes set aside for each slot. A whole number of pages, and more than any slot can need.
pub const SLOT_SIZE: u64 = 72 << 10;

/// The length of a checkpoint file in bytes. It is sparse: a usual slot fills one page.
pub const FILE_SIZE: u64 = 4 * SLOT_SIZE;

/// The most spans that one slot holds.
pub const MAX_SPANS: usize = 4096;

/// How many bytes at the start of a slot must be overwritten with zeros to make it no slot at all.
pub const VOID_LEN: usize = HEAD;

/// No counter comes as far as this by counting, and whoever goes on from here can go on counting.
const MOST_COUNTED: u64 = 1 << 62;

const MAGIC: &[u8; 8] = b"tidegate";
const VERSION: u16 = 1;
const HEAD: usize = 32;
const MAX_LINK: usize = 2048;
const MAX_ETAG: usize = 1024;
const MAX_NAME: usize = 255;

/// One of the four places in the file.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slot {
    /// The first durable slot.
    D0,
    /// The second durable slot.
    D1,
    /// The first written slot.
    W0,
    /// The second written slot.
    W1,
}

impl Slot {
    /// Every slot in the order of the file.
    pub const ALL: [Self; 4] = [Self::D0, Self::D1, Self::W0, Self::W1];

    /// Where the slot begins in the file, in bytes.
    pub fn offset(self) -> u64 {
        SLOT_SIZE
            * match self {
                Self::D0 => 0,
                Self::D1 => 1,
                Self::W0 => 2,
                Self::W1 => 3,
            }
    }

    /// The other slot of its kind.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::D0 => Self::D1,
            Self::D1 => Self::D0,
            Self::W0 => Self::W1,
            Self::W1 => Self::W0,
        }
    }

    /// Whether this is D0 or D1.
    pub fn is_durable(self) -> bool {
        matches!(self, Self::D0 | Self::D1)
    }

    fn kind(self) -> u8 {
        if self.is_durable() { b'D' } else { b'W' }
    }
}

/// What is remembered of the URL that a part belongs to. Holds no credentials, and of the query, where
/// signed links carry their secret, only a hash.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenKey")]
pub struct RequestKey {
    link: String,
    #[serde(with = "written::hex")]
    link_hash: u128,
    #[serde(with = "written::hex")]
    url_hash: u128,
}

/// A key as it is written down.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    link: String,
    #[serde(with = "written::hex")]
    link_hash: u128,
    #[serde(with = "written::hex")]
    url_hash: u128,
}

impl TryFrom<WrittenKey> for RequestKey {
    type Error = &'static str;
    fn try_from(WrittenKey { link, link_hash, url_hash }: WrittenKey) -> Result<Self, &'static str> {
        if link.len() > MAX_LINK {
            return Err("the link of a key is too long");
        }
        Ok(Self { link, link_hash, url_hash })
    }
}

/// How two requests compare.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Link {
    /// The same URL.
    Same,
    /// The same URL but for its query: a refreshed signed link, or `get?id=2` after `get?id=1`. The
    /// identity must decide.
    OtherQuery,
    /// Another URL.
    Other,
}

impl RequestKey {
    /// The key of a URL.
    pub fn of(url: &Url) -> Self {
        let mut bare = url.clone();
        // These fail only for URLs that can have no credentials.
        let _ = bare.set_username("");
        let _ = bare.set_password(None);
        bare.set_fragment(None);
        let url_hash = xxh3_128(bare.as_str().as_bytes());
        bare.set_query(None);
        let mut link = String::from(bare);
        let link_hash = xxh3_128(link.as_bytes());
        // A URL is written in ASCII, so any place is a boundary.
        link.truncate(MAX_LINK);
        Self { link, link_hash, url_hash }
    }

    /// The URL without credentials and query, cut after 2 KiB. It may be shown; it is never requested,
    /// because whoever can write the checkpoint could have put it there.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// How the recorded request compares with another.
    pub fn compare(&self, other: &Self) -> Link {
        if self.link != other.link || self.link_hash != other.link_hash {
            Link::Other
        } else if self.url_hash != other.url_hash {
            Link::OtherQuery
        } else {
            Link::Same
        }
    }
}

/// Where and when a part file is, as far as it tells whether the page cache that took the writes is the
/// one that answers reads now.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Surroundings {
    /// The kernel's boot id, if it tells.
    #[serde(with = "written::optional_hex")]
    pub boot: Option<u128>,
    /// The unique id of the mount (never reused, Linux 6.8), if it tells.
    pub mount: Option<u64>,
    /// The part's inode number.
    pub inode: u64,
    /// When the part's inode was made, in nanoseconds since 1970, if the file system tells.
    pub birth: Option<i128>,
}

impl Surroundings {
    /// Whether a page cache that took writes `then` still has them `now`. What is not known is no.
    fn page_cache_is_the_same(&self, now: &Self) -> bool {
        let known = |a: Option<u128>, b: Option<u128>| a.is_some() && a == b;
        known(self.boot, now.boot)
            && known(self.mount.map(u128::from), now.mount.map(u128::from))
            && self.inode == now.inode
            && self.birth.is_some()
            && self.birth == now.birth
    }

    /// Whether this is the very same file, not a copy of it.
    fn file_is_the_same(&self, now: &Self) -> bool {
        self.inode == now.inode && self.birth == now.birth
    }
}

/// Everything in a slot but its spans and counters.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// The request that the part belongs to.
    pub key: RequestKey,
    /// The version of the remote file that the spans are bytes of. Tags over 1 KiB are not recorded.
    pub identity: Identity,
    /// Where and when the slot was written.
    pub surroundings: Surroundings,
    /// The *done* mark: the whole file is in the part, verified and durable, and is about to get this
    /// name (one component) in the part's own directory.
    pub done: Option<String>,
}

/// One slot, decoded.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Goes up with every slot written, over all four.
    pub sequence: u64,
    /// Goes up whenever bytes are taken back.
    pub generation: u64,
    /// What the spans are spans of.
    pub about: About,
    /// The bytes that the slot vouches for.
    pub spans: SpanSet,
}

/// Writes a slot into `out`, which is emptied first; nothing is allocated once it has grown enough.
/// The result is never longer than [`SLOT_SIZE`].
///
/// Of more than [`MAX_SPANS`] spans the largest are kept (to within a factor of two).
pub fn encode(out: &mut Vec<u8>, slot: Slot, sequence: u64, generation: u64, about: &About, spans: &SpanSet) {
    out.clear();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[slot.kind(), 0]);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&generation.to_le_bytes());
    put_about(out, about);
    put_spans(out, spans);
    // At most 66 KiB of spans and 4 KiB of the rest, by the bounds above: it fits 32 bits.
    let body = u32::try_from(out.len() - HEAD).unwrap_or(u32::MAX);
    out[12..16].copy_from_slice(&body.to_le_bytes());
    let checksum = xxh3_64(out);
    out.extend_from_slice(&checksum.to_le_bytes());
    debug_assert!(out.len() as u64 <= SLOT_SIZE, "a slot of {} bytes", out.len());
}

/// Why a file is not a checkpoint to be believed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CheckpointError {
    /// It does not look like one at all, or nothing durable in it is whole.
    #[error("the checkpoint is damaged")]
    Damaged,
    /// It was written by a later version of this program.
    #[error("the checkpoint has format {0}, which this version does not know")]
    Newer(u16),
}

/// A checkpoint file, decoded: the newest of each kind of slot that may be believed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checkpoint {
    /// What survives a power loss.
    pub durable: Record,
    /// What the page cache has, if the surroundings are still the same.
    pub written: Option<Record>,
    /// The place of `durable`: the slot that must be overwritten last.
    pub durable_slot: Slot,
    /// The highest sequence number in any whole slot.
    pub sequence: u64,
}

/// What a checkpoint promises here and now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Belief {
    /// The request that the part belongs to.
    pub key: RequestKey,
    /// The version of the remote file.
    pub identity: Identity,
    /// Bytes of that version that are in the part.
    pub spans: SpanSet,
    /// Why they are believed.
    pub promise: Promise,
    /// The part is not the inode that was recorded but, it seems, a copy. A copy that was taken while a
    /// download ran may be older than its map: have the bytes proved before they are relied on.
    pub moved: bool,
    /// The done mark: only for the very same file, and only if all of it is believed to be there.
    pub done: Option<String>,
}

/// What stands behind a [`Belief`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Promise {
    /// The page cache took them, and has kept them if no sync of the part fails now.
    Written,
    /// They were synced before they were recorded.
    Durable,
}

impl Checkpoint {
    /// Reads a checkpoint file, whatever is in it.
    ///
    /// # Errors
    /// [`CheckpointError::Damaged`] if no durable slot is whole, so that nothing is promised;
    /// [`CheckpointError::Newer`] if it is for a later version, which should be left alone.
    pub fn decode(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let mut newest: [Option<(Slot, Record)>; 2] = [None, None];
        let mut sequence = 0;
        for slot in Slot::ALL {
            let start = usize::try_from(slot.offset()).unwrap_or(usize::MAX);
            let Some(rest) = bytes.get(start..) else { continue };
            let limit = usize::try_from(SLOT_SIZE).unwrap_or(usize::MAX).min(rest.len());
            let Some(record) = decode_slot(&rest[..limit], slot)? else { continue };
            sequence = sequence.max(record.sequence);
            let best = &mut newest[usize::from(!slot.is_durable())];
            let order = |r: &Record| (r.generation, r.sequence);
            if best.as_ref().is_none_or(|(_, b)| order(b) < order(&record)) {
                *best = Some((slot, record));
            }
        }
        let [durable, written] = newest;
        let (durable_slot, durable) = durable.ok_or(CheckpointError::Damaged)?;
        let written = written.map(|(_, record)| record).filter(|w| w.generation >= durable.generation);
        Ok(Self { durable, written, durable_slot, sequence })
    }

    /// What may be believed in these surroundings.
    ///
    /// A belief by [`Promise::Written`] holds only if a sync of the part succeeds first; if that fails,
    /// use [`Checkpoint::durably_trusted`].
    pub fn trusted(&self, now: &Surroundings) -> Belief {
        match &self.written {
            Some(w) if w.about.surroundings.page_cache_is_the_same(now) => {
                let mut spans = w.spans.clone();
                let mut newest = w;
                // Durable bytes of the same generation are there too, and may be more: the durability
                // cycle copies the set between two saves of W.
                if self.durable.generation == w.generation {
                    for span in self.durable.spans.iter() {
                        spans.insert(span);
                    }
                    if self.durable.sequence > w.sequence {
                        newest = &self.durable;
                    }
                }
                let length = newest.about.identity.length;
                if let Some(length) = length
                    && let Some(beyond) = Span::new(length, u64::MAX)
                {
                    spans.remove(beyond);
                }
                Belief {
                    key: newest.about.key.clone(),
                    identity: newest.about.identity.clone(),
                    spans,
                    promise: Promise::Written,
                    moved: false,
                    done: None,
                }
                .with_done(&newest.about)
            }
            _ => self.durably_trusted(now),
        }
    }

    /// What may be believed if the page cache may not.
    pub fn durably_trusted(&self, now: &Surroundings) -> Belief {
        let Record { about, spans, .. } = &self.durable;
        let moved = !about.surroundings.file_is_the_same(now);
        Belief {
            key: about.key.clone(),
            identity: about.identity.clone(),
            spans: spans.clone(),
            promise: Promise::Durable,
            moved,
            done: None,
        }
        .with_done(about)
    }
}

impl Belief {
    /// Takes over the done mark if what is believed bears it out.
    fn with_done(mut self, about: &About) -> Self {
        let whole = |length| Span::new(0, length).is_none_or(|all| self.spans.covers(all));
        if !self.moved && self.identity.length.is_some_and(whole) {
            self.done.clone_from(&about.done);
        }
        self
    }
}

/// `Ok(None)` for anything that is not a whole slot of this kind.
fn decode_slot(bytes: &[u8], slot: Slot) -> Result<Option<Record>, CheckpointError> {
    let Some((head, rest)) = bytes.split_at_checked(HEAD) else { return Ok(None) };
    if !head.starts_with(MAGIC) {
        return Ok(None);
    }
    let mut fields = Reader { bytes: &head[MAGIC.len()..] };
    let version = fields.array().map(u16::from_le_bytes);
    match version {
        Some(VERSION) => {}
        Some(newer) if newer > VERSION => return Err(CheckpointError::Newer(newer)),
        _ => return Ok(None),
    }
    let whole = || -> Option<Record> {
        let [kind, zero] = fields.array()?;
        let body_len = usize::try_from(u32::from_le_bytes(fields.array()?)).ok()?;
        let sequence = u64::from_le_bytes(fields.array()?);
        let generation = u64::from_le_bytes(fields.array()?);
        if kind != slot.kind() || zero != 0 || body_len > rest.len() {
            return None;
        }
        if sequence.max(generation) > MOST_COUNTED {
            return None;
        }
        let (body, after) = rest.split_at(body_len);
        let checksum = u64::from_le_bytes(Reader { bytes: after }.array()?);
        if xxh3_64(&bytes[..HEAD + body_len]) != checksum {
            return None;
        }
        let mut body = Reader { bytes: body };
        let about = body.about()?;
        let spans = body.spans(about.identity.length.unwrap_or(u64::MAX))?;
        body.bytes.is_empty().then_some(Record { sequence, generation, about, spans })
    };
    Ok({ whole }())
}

const HAS_LENGTH: u8 = 1;
const HAS_ETAG: u8 = 1 << 1;
const ETAG_IS_WEAK: u8 = 1 << 2;
const HAS_MODIFIED: u8 = 1 << 3;
const DATE_IS_STRONG: u8 = 1 << 4;
const HAS_BOOT: u8 = 1 << 5;
const HAS_MOUNT: u8 = 1 << 6;
const HAS_BIRTH: u8 = 1 << 7;

fn put_about(out: &mut Vec<u8>, about: &About) {
    let About { key, identity, surroundings, done } = about;
    let etag = identity.etag.as_ref().filter(|tag| tag.value.len() <= MAX_ETAG);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.push(
        flag(identity.length.is_some(), HAS_LENGTH)
            | flag(etag.is_some(), HAS_ETAG)
            | flag(etag.is_some_and(|tag| tag.weak), ETAG_IS_WEAK)
            | flag(identity.last_modified.is_some(), HAS_MODIFIED)
            | flag(identity.date_is_strong, DATE_IS_STRONG)
            | flag(surroundings.boot.is_some(), HAS_BOOT)
            | flag(surroundings.mount.is_some(), HAS_MOUNT)
            | flag(surroundings.birth.is_some(), HAS_BIRTH),
    );
    put_text(out, &key.link);
    out.extend_from_slice(&key.link_hash.to_le_bytes());
    out.extend_from_slice(&key.url_hash.to_le_bytes());
    if let Some(length) = identity.length {
        put_varint(out, length);
    }
    if let Some(tag) = etag {
        put_text(out, &tag.value);
    }
    if let Some(seconds) = identity.last_modified {
        out.extend_from_slice(&seconds.to_le_bytes());
    }
    // 0 is nobody: that a hash is 0 only makes a tag say less.
    out.extend_from_slice(&identity.said_by.unwrap_or(0).to_le_bytes());
    if let Some(boot) = surroundings.boot {
        out.extend_from_slice(&boot.to_le_bytes());
    }
    if let Some(mount) = surroundings.mount {
        out.extend_from_slice(&mount.to_le_bytes());
    }
    out.extend_from_slice(&surroundings.inode.to_le_bytes());
    if let Some(birth) = surroundings.birth {
        out.extend_from_slice(&birth.to_le_bytes());
    }
    // An empty text is no name, so it can stand for "not done"; so does a name that cannot be recorded.
    put_text(out, done.as_deref().filter(|name| is_one_component(name)).unwrap_or(""));
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Each span as the gap before it and its length.
fn put_spans(out: &mut Vec<u8>, spans: &SpanSet) {
    // How many spans of each order of magnitude there are tells which to leave out without sorting.
    let magnitude = |span: Span| 63 - span.len().leading_zeros() as usize;
    let mut least = 0;
    let mut of_least = usize::MAX;
    if spans.count() > MAX_SPANS {
        let mut counts = [0; 64];
        for span in spans.iter() {
            counts[magnitude(span)] += 1;
        }
        let mut room = MAX_SPANS;
        least = 63;
        while counts[least] <= room {
            // It ends above zero: all together are more than there is room for.
            room -= counts[least];
            least -= 1;
        }
        of_least = room;
    }
    put_varint(out, spans.count().min(MAX_SPANS) as u64);
    let mut at = 0;
    for span in spans.iter() {
        match magnitude(span).cmp(&least) {
            std::cmp::Ordering::Less => continue,
            std::cmp::Ordering::Equal if of_least == 0 => continue,
            std::cmp::Ordering::Equal => of_least -= 1,
            std::cmp::Ordering::Greater => {}
        }
        put_varint(out, span.start() - at);
        put_varint(out, span.len());
        at = span.end();
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes fields from the front; `None` when there is not what should be there.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*array)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn text(&mut self, most: usize) -> Option<&'a str> {
        let length = usize::try_from(self.varint()?).ok().filter(|length| *length <= most)?;
        let (text, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        std::str::from_utf8(text).ok()
    }

    fn about(&mut self) -> Option<About> {
        let [flags] = self.array()?;
        let has = |flag: u8| flags & flag != 0;
        let link = self.text(MAX_LINK)?.to_owned();
        if !link.bytes().all(|b| b.is_ascii_graphic()) {
            return None;
        }
        let link_hash = u128::from_le_bytes(self.array()?);
        let url_hash = u128::from_le_bytes(self.array()?);
        let length = if has(HAS_LENGTH) { Some(self.varint()?) } else { None };
        let etag = if has(HAS_ETAG) {
            let tag = EntityTag { weak: has(ETAG_IS_WEAK), value: self.text(MAX_ETAG)?.to_owned() };
            // It will be sent in a header, so it must be one that could have come in a header.
            EntityTag::parse(&tag.to_string()).filter(|parsed| *parsed == tag)?;
            Some(tag)
        } else if has(ETAG_IS_WEAK) {
            return None;
        } else {
            None
        };
        let last_modified = if has(HAS_MODIFIED) { Some(i64::from_le_bytes(self.array()?)) } else { None };
        let said_by = Some(u64::from_le_bytes(self.array()?)).filter(|hash| *hash != 0);
        let boot = if has(HAS_BOOT) { Some(u128::from_le_bytes(self.array()?)) } else { None };
        let mount = if has(HAS_MOUNT) { Some(u64::from_le_bytes(self.array()?)) } else { None };
        let inode = u64::from_le_bytes(self.array()?);
        let birth = if has(HAS_BIRTH) { Some(i128::from_le_bytes(self.array()?)) } else { None };
        let done = match self.text(MAX_NAME)? {
            "" => None,
            name if is_one_component(name) => Some(name.to_owned()),
            _ => return None,
        };
        Some(About {
            key: RequestKey { link, link_hash, url_hash },
            identity: Identity { length, etag, last_modified, date_is_strong: has(DATE_IS_STRONG), said_by },
            surroundings: Surroundings { boot, mount, inode, birth },
            done,
        })
    }

    fn spans(&mut self, end_of_file: u64) -> Option<SpanSet> {
        let count = usize::try_from(self.varint()?).ok().filter(|count| *count <= MAX_SPANS)?;
        let mut set = SpanSet::new();
        let mut at: u64 = 0;
        for index in 0..count {
            let gap = self.varint()?;
            if gap == 0 && index > 0 {
                return None;
            }
            let start = at.checked_add(gap)?;
            let end = start.checked_add(self.varint()?)?;
            if end > end_of_file {
                return None;
            }
            set.insert(Span::new(start, end)?);
            at = end;
        }
        Some(set)
    }
}

fn is_one_component(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() <= MAX_NAME && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(file: &mut Vec<u8>, slot: Slot, sequence: u64, generation: u64, about: &About, spans: &SpanSet) {
        let mut bytes = Vec::new();
        encode(&mut bytes, slot, sequence, generation, about, spans);
        assert!(bytes.len() as u64 <= SLOT_SIZE);
        file.resize(FILE_SIZE as usize, 0);
        let start = slot.offset() as usize;
        file[start..start + bytes.len()].copy_from_slice(&bytes);
    }

    fn key(url: &str) -> RequestKey {
        RequestKey::of(&Url::parse(url).unwrap())
    }

    fn here() -> Surroundings {
        Surroundings { boot: Some(1), mount: Some(2), inode: 3, birth: Some(4) }
    }

    fn about(length: Option<u64>) -> About {
        About {
            key: key("https://h/a?b"),
            identity: Identity { length, ..Identity::default() },
            surroundings: here(),
            done: None,
        }
    }

    fn set(spans: &[(u64, u64)]) -> SpanSet {
        spans.iter().map(|(start, end)| Span::new(*start, *end).unwrap()).collect()
    }

    fn any_spans() -> impl Strategy<Value = SpanSet> {
        prop::collection::vec((any::<u64>(), 1..u64::MAX), 0..50).prop_map(|spans| {
            spans
                .into_iter()
                .filter_map(|(start, len)| Span::new(start, start.saturating_add(len >> (start % 64))))
                .collect()
        })
    }

    fn any_about() -> impl Strategy<Value = About> {
        let identity = (
            proptest::option::of(Just(u64::MAX)),
            proptest::option::of((any::<bool>(), "[!#-~]{0,40}")),
            proptest::option::of(any::<i64>()),
            any::<bool>(),
            proptest::option::of(1..u64::MAX),
        )
            .prop_map(|(length, etag, last_modified, date_is_strong, said_by)| Identity {
                length,
                etag: etag.map(|(weak, value)| EntityTag { weak, value }),
                last_modified,
                date_is_strong,
                said_by,
            });
        let surroundings = (
            proptest::option::of(any::<u128>()),
            proptest::option::of(any::<u64>()),
            any::<u64>(),
            proptest::option::of(any::<i128>()),
        )
            .prop_map(|(boot, mount, inode, birth)| Surroundings { boot, mount, inode, birth });
        ("[a-z/]{0,30}", "[a-z]{0,9}", identity, surroundings, proptest::option::of("[a-z][a-z.]{0,20}"))
            .prop_map(|(path, query, identity, surroundings, done)| About {
                key: key(&format!("http://h/{path}?{query}")),
                identity,
                surroundings,
                done,
            })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            about in any_about(),
            spans in any_spans(),
            sequence in 0..=MOST_COUNTED,
            generation in 0..=MOST_COUNTED,
        ) {
            let mut file = Vec::new();
            put(&mut file, Slot::D1, sequence, generation, &about, &spans);
            let checkpoint = Checkpoint::decode(&file).unwrap();
            prop_assert_eq!(checkpoint.durable_slot, Slot::D1);
            prop_assert_eq!(checkpoint.sequence, sequence);
            prop_assert_eq!(checkpoint.durable, Record { sequence, generation, about, spans });
        }

        #[test]
        fn a_map_says_less_than_the_truth_but_never_more(
            gaps in prop::collection::vec((1_u64..1 << 40, 1_u64..1 << 40), MAX_SPANS - 50..MAX_SPANS + 200),
        ) {
            let mut at = 0;
            let mut spans = SpanSet::new();
            for (gap, len) in gaps {
                // Lengths of all magnitudes.
                let start = at + gap;
                at = start + (len >> (gap % 40)).max(1);
                spans.insert(Span::new(start, at).unwrap());
            }
            let mut file = Vec::new();
            put(&mut file, Slot::D0, 1, 1, &about(None), &spans);
            let recorded = Checkpoint::decode(&file).unwrap().durable.spans;
            prop_assert_eq!(recorded.count(), spans.count().min(MAX_SPANS));
            prop_assert!(recorded.iter().all(|span| spans.covers(span)));
            let mut missing = spans.clone();
            recorded.iter().for_each(|span| missing.remove(span));
            let smallest_kept = recorded.iter().map(Span::len).min().unwrap_or(0);
            prop_assert!(missing.iter().all(|span| span.len() / 2 <= smallest_kept));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), at in 0..FILE_SIZE as usize) {
            let mut file = Vec::new();
            put(&mut file, Slot::D0, 1, 1, &about(None), &set(&[(1, 9)]));
            let end = (at + bytes.len()).min(file.len());
            file[at..end].copy_from_slice(&bytes[..end - at]);
            let _ = Checkpoint::decode(&file);
            let _ = Checkpoint::decode(&bytes);
        }

        #[test]
        fn one_damaged_slot_never_makes_a_map_say_more(
            damage in (0..4_usize, 0..200_usize, 1..=255_u8),
            lost in prop::option::of(0..4_usize),
        ) {
            // After a restart: old spans in generation 1 are gone, both D slots are of generation 2.
            let mut file = Vec::new();
            put(&mut file, Slot::W0, 3, 1, &about(Some(100)), &set(&[(0, 90)]));
            put(&mut file, Slot::D0, 4, 2, &about(Some(50)), &set(&[]));
            put(&mut file, Slot::D1, 5, 2, &about(Some(50)), &set(&[(0, 5)]));
            put(&mut file, Slot::W1, 6, 2, &about(Some(50)), &set(&[(0, 10)]));
            let (slot, byte, bits) = damage;
            file[Slot::ALL[slot].offset() as usize + byte] ^= bits;
            if let Some(lost) = lost.filter(|l| *l != slot && !(*l < 2 && slot < 2)) {
                let start = Slot::ALL[lost].offset() as usize;
                file[start..start + VOID_LEN].fill(0);
            }
            if let Ok(checkpoint) = Checkpoint::decode(&file) {
                let belief = checkpoint.trusted(&here());
                prop_assert_eq!(belief.identity.length, Some(50));
                prop_assert!(belief.spans.iter().all(|s| s.end() <= 10));
            }
        }
    }

    #[test]
    fn a_slot_from_which_nobody_could_count_on_is_no_slot() {
        for (sequence, generation) in [(MOST_COUNTED + 1, 1), (1, MOST_COUNTED + 1), (u64::MAX, u64::MAX)] {
            let mut file = Vec::new();
            put(&mut file, Slot::D0, sequence, generation, &about(None), &SpanSet::new());
            assert_eq!(Checkpoint::decode(&file), Err(CheckpointError::Damaged));
        }
    }

    #[test]
    fn the_largest_possible_slot_fits() {
        // Every varint as long as 2^64 allows: 8,192 gaps and lengths of 2^51 and more.
        let step = 1 << 51;
        let mut spans = SpanSet::new();
        for index in 0..MAX_SPANS as u64 - 1 {
            spans.insert(Span::new((2 * index + 1) * step, (2 * index + 2) * step).unwrap());
        }
        let mut about = about(None);
        about.key = key(&format!("http://h/{}?{}", "a".repeat(5000), "b".repeat(5000)));
        about.identity.etag = Some(EntityTag { weak: false, value: "e".repeat(MAX_ETAG) });
        about.identity.last_modified = Some(i64::MIN);
        about.done = Some("n".repeat(MAX_NAME));
        let mut file = Vec::new();
        put(&mut file, Slot::D0, MOST_COUNTED, MOST_COUNTED, &about, &spans);
        let record = Checkpoint::decode(&file).unwrap().durable;
        assert_eq!((&record.about, &record.spans), (&about, &spans));
    }

    #[test]
    fn written_counts_only_where_the_page_cache_is_the_same() {
        let mut file = Vec::new();
        put(&mut file, Slot::D0, 1, 1, &about(None), &set(&[(0, 10), (50, 60)]));
        put(&mut file, Slot::W0, 2, 1, &about(None), &set(&[(0, 20)]));
        put(&mut file, Slot::W1, 3, 1, &about(None), &set(&[(0, 30)]));
        let checkpoint = Checkpoint::decode(&file).unwrap();
        let same = checkpoint.trusted(&here());
        assert_eq!((same.promise, same.moved), (Promise::Written, false));
        assert_eq!(same.spans, set(&[(0, 30), (50, 60)]));
        for (elsewhere, moved) in [
            (Surroundings { boot: Some(9), ..here() }, false),
            (Surroundings { boot: None, ..here() }, false),
            (Surroundings { mount: Some(9), ..here() }, false),
            (Surroundings { mount: None, ..here() }, false),
            (Surroundings { inode: 9, ..here() }, true),
            (Surroundings { birth: Some(9), ..here() }, true),
        ] {
            let belief = checkpoint.trusted(&elsewhere);
            assert_eq!((belief.promise, belief.moved), (Promise::Durable, moved), "{elsewhere:?}");
            assert_eq!(belief.spans, set(&[(0, 10), (50, 60)]));
        }
    }

    #[test]
    fn unknown_surroundings_are_not_the_same_as_unknown_surroundings() {
        let unknown = Surroundings { boot: None, mount: None, inode: 3, birth: None };
        let about = About { surroundings: unknown, ..about(None) };
        let mut file = Vec::new();
        put(&mut file, Slot::D0, 1, 1, &about, &set(&[]));
        put(&mut file, Slot::W0, 2, 1, &about, &set(&[(0, 20)]));
        assert!(Checkpoint::decode(&file).unwrap().trusted(&unknown).spans.is_empty());
    }

    #[test]
    fn a_slot_from_before_a_restart_is_not_believed_after_it() {
        let mut file = Vec::new();
        put(&mut file, Slot::W0, 9, 1, &about(None), &set(&[(0, 20)]));
        put(&mut file, Slot::D0, 8, 1, &about(None), &set(&[(0, 20)]));
        put(&mut file, Slot::D1, 10, 2, &about(None), &set(&[]));
        assert!(Checkpoint::decode(&file).unwrap().trusted(&here()).spans.is_empty());
    }

    #[test]
    fn without_a_durable_slot_nothing_is_promised() {
        let mut file = Vec::new();
        put(&mut file, Slot::W0, 9, 1, &about(None), &set(&[(0, 20)]));
        assert_eq!(Checkpoint::decode(&file), Err(CheckpointError::Damaged));
        assert_eq!(Checkpoint::decode(&[]), Err(CheckpointError::Damaged));
        // Nor does a slot count in another kind's place.
        let slot = file[Slot::W0.offset() as usize..].to_vec();
        assert_eq!(Checkpoint::decode(&slot), Err(CheckpointError::Damaged));
    }

    #[test]
    fn a_later_format_is_told_from_damage() {
        let mut file = Vec::new();
        put(&mut file, Slot::D0, 9, 1, &about(None), &set(&[]));
        file[8] = 2;
        assert_eq!(Checkpoint::decode(&file), Err(CheckpointError::Newer(2)));
    }

    #[test]
    fn a_slot_that_names_bytes_beyond_the_end_of_the_file_is_no_slot() {
        let mut file = Vec::new();
        put(&mut file, Slot::D0, 9, 1, &about(Some(10)), &set(&[(0, 11)]));
        assert_eq!(Checkpoint::decode(&file), Err(CheckpointError::Damaged));
    }

    #[test]
    fn a_tag_that_could_not_have_come_in_a_header_is_refused() {
        for value in ["a\r\nCookie: x", "a\"b"] {
            let mut about = about(None);
            about.identity.etag = Some(EntityTag { weak: false, value: value.to_owned() });
            let mut file = Vec::new();
            put(&mut file, Slot::D0, 9, 1, &about, &set(&[]));
            assert_eq!(Checkpoint::decode(&file), Err(CheckpointError::Damaged));
        }
    }

    #[test]
    fn a_done_mark_that_leaves_its_directory_is_refused() {
        for name in ["../x", "..", "a/b"] {
            let mut about = about(None);
            about.done = Some(name.to_owned());
            let mut file = Vec::new();
            put(&mut file, Slot::D0, 9, 1, &about, &set(&[]));
            assert_eq!(Checkpoint::decode(&file).unwrap().durable.about.done, None);
        }
    }

    #[test]
    fn a_key_holds_no_secret_and_tells_requests_apart() {
        let one = key("https://me:hunter2@h/a?token=s3cret");
        assert_eq!(one.link(), "https://h/a");
        assert!(!format!("{one:?}").contains("hunter2"));
        assert_eq!(one.compare(&key("https://h/a?token=s3cret")), Link::Same);
        assert_eq!(one.compare(&key("https://h/a?token=other")), Link::OtherQuery);
        assert_eq!(one.compare(&key("https://h/b?token=s3cret")), Link::Other);
        let long = |end: &str| key(&format!("https://h/{}{end}", "a".repeat(4000)));
        assert_eq!(long("x").compare(&long("y")), Link::Other);
    }
}
