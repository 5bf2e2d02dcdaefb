//! gzip, and what is called deflate.

use super::{Coding, DecodeError, Emit, ROOM, Stage, call};
use flate2::{Crc, Decompress, FlushDecompress, Status};

/// Most bytes of a gzip header; its file name and comment have no bound of their own.
const MOST_HEADER: u32 = 192 * 1024;

/// Bare deflate, with the bytes it decodes into.
struct Inflate {
    coding: Coding,
    state: Decompress,
    room: Box<[u8]>,
}

impl Inflate {
    fn new(coding: Coding) -> Self {
        Self { coding, state: Decompress::new(false), room: vec![0; ROOM].into_boxed_slice() }
    }

    /// Decodes up to the end of the stream or of the input, and tells how much of the input that took
    /// and whether the stream has ended.
    fn run(&mut self, input: &[u8], emit: &mut Emit<'_>) -> Result<(usize, bool), DecodeError> {
        let Self { coding, state, room } = self;
        let mut used = 0;
        loop {
            let (in_before, out_before) = (state.total_in(), state.total_out());
            let status = call(*coding, || state.decompress(&input[used..], room, FlushDecompress::None))?
                .map_err(|e| DecodeError::Damaged { coding: *coding, why: e.to_string() })?;
            let took = (state.total_in() - in_before) as usize;
            let made = (state.total_out() - out_before) as usize;
            used += took;
            if made > 0 {
                emit(&room[..made])?;
            }
            match status {
                Status::StreamEnd => return Ok((used, true)),
                // A full buffer may hide more output, without any more input.
                Status::Ok | Status::BufError if made == room.len() => {}
                Status::Ok | Status::BufError if took == 0 && made == 0 || used == input.len() => {
                    return Ok((used, false));
                }
                Status::Ok | Status::BufError => {}
            }
        }
    }
}

/// `Content-Encoding: deflate` should be zlib's format; some servers send bare deflate. The first two
/// bytes tell.
pub(super) struct Deflate {
    inflate: Inflate,
    first: Option<u8>,
    begun: bool,
    ended: bool,
}

impl Deflate {
    pub(super) fn new() -> Self {
        Self { inflate: Inflate::new(Coding::Deflate), first: None, begun: false, ended: false }
    }

    fn run(&mut self, input: &[u8], emit: &mut Emit<'_>) -> Result<(), DecodeError> {
        if self.ended && !input.is_empty() {
            return Err(damaged(Coding::Deflate, "bytes follow its end"));
        }
        let (used, ended) = self.inflate.run(input, emit)?;
        self.ended = ended;
        match used < input.len() {
            false => Ok(()),
            true if ended => Err(damaged(Coding::Deflate, "bytes follow its end")),
            true => Err(damaged(Coding::Deflate, "it cannot be read any further")),
        }
    }
}

impl Stage for Deflate {
    fn feed(&mut self, input: &[u8], emit: &mut Emit<'_>) -> Result<(), DecodeError> {
        if !self.begun {
            let mut both = self.first.into_iter().chain(input.iter().copied());
            let (Some(first), Some(second)) = (both.next(), both.next()) else {
                self.first = self.first.or(input.first().copied());
                return Ok(());
            };
            let zlib = first & 0x0f == 8
                && first >> 4 <= 7
                && u16::from_be_bytes([first, second]).is_multiple_of(31);
            self.inflate.state.reset(zlib);
            self.begun = true;
            if self.first.is_some() {
                self.run(&[first], emit)?;
            }
        }
        self.run(input, emit)
    }

    fn may_end(&self) -> Result<(), String> {
        if self.ended { Ok(()) } else { Err("it was cut".to_owned()) }
    }
}

/// gzip, with any number of members one after another, and zeros after the last as tapes have them.
pub(super) struct Gzip {
    inflate: Inflate,
    state: Member,
    /// Of the content; of the header while that is read.
    crc: Crc,
    header: u32,
}

/// Where in a member we are.
#[derive(Clone, Copy)]
enum Member {
    /// In the first ten bytes.
    Start {
        at: u8,
        flags: u8,
    },
    ExtraLength {
        flags: u8,
        low: Option<u8>,
    },
    Extra {
        flags: u8,
        left: u16,
    },
    Name {
        flags: u8,
    },
    Comment {
        flags: u8,
    },
    HeaderCrc {
        low: Option<u8>,
    },
    Content,
    /// In the checksum and the length of the content, which are these.
    Trailer {
        at: u8,
        expected: [u8; 8],
    },
    /// After a whole member.
    Between,
    /// Zeros to the end.
    Padding,
}

const HAS_CRC: u8 = 2;
const HAS_EXTRA: u8 = 4;
const HAS_NAME: u8 = 8;
const HAS_COMMENT: u8 = 16;
const UNKNOWN: u8 = 0xe0;

impl Gzip {
    pub(super) fn new() -> Self {
        let state = Member::Start { at: 0, flags: 0 };
        Self { inflate: Inflate::new(Coding::Gzip), state, crc: Crc::new(), header: 0 }
    }

    /// The next part of the header that these flags announce; each part clears its flag.
    fn next_part(&mut self, flags: u8) -> Member {
        match flags {
            f if f & HAS_EXTRA != 0 => Member::ExtraLength { flags: f & !HAS_EXTRA, low: None },
            f if f & HAS_NAME != 0 => Member::Name { flags: f & !HAS_NAME },
            f if f & HAS_COMMENT != 0 => Member::Comment { flags: f & !HAS_COMMENT },
            f if f & HAS_CRC != 0 => Member::HeaderCrc { low: None },
            _ => self.begin_content(),
        }
    }

    fn begin_content(&mut self) -> Member {
        self.crc.reset();
        self.header = 0;
        self.inflate.state.reset(false);
        Member::Content
    }

    fn trailer(&self) -> Member {
        let mut expected = [0; 8];
        expected[..4].copy_from_slice(&self.crc.sum().to_le_bytes());
        expected[4..].copy_from_slice(&self.crc.amount().to_le_bytes());
        Member::Trailer { at: 0, expected }
    }

    /// One byte outside the content.
    fn byte(&mut self, byte: u8) -> Result<Member, DecodeError> {
        let bad = |why| Err(damaged(Coding::Gzip, why));
        if !matches!(self.state, Member::Trailer { .. } | Member::Between | Member::Padding) {
            self.header += 1;
            if self.header > MOST_HEADER {
                return bad("its header does not end");
            }
        }
        if !matches!(self.state, Member::HeaderCrc { .. }) {
            self.crc.update(&[byte]);
        }
        Ok(match self.state {
            Member::Start { at, flags } => {
                match (at, byte) {
                    (0, 0x1f) | (1, 0x8b) | (2, 8) | (3..=9, _) => {}
                    _ => return bad("it does not begin as gzip does"),
                }
                match at {
                    3 if byte & UNKNOWN != 0 => return bad("its header has unknown flags"),
                    3 => Member::Start { at: 4, flags: byte },
                    9 => self.next_part(flags),
                    _ => Member::Start { at: at + 1, flags },
                }
            }
            Member::ExtraLength { flags, low: None } => Member::ExtraLength { flags, low: Some(byte) },
            Member::ExtraLength { flags, low: Some(low) } => match u16::from_le_bytes([low, byte]) {
                0 => self.next_part(flags),
                left => Member::Extra { flags, left },
            },
            Member::Extra { flags, left: 1 } => self.next_part(flags),
            Member::Extra { flags, left } => Member::Extra { flags, left: left - 1 },
            Member::Name { flags } | Member::Comment { flags } if byte == 0 => self.next_part(flags),
            same @ (Member::Name { .. } | Member::Comment { .. }) => same,
            Member::HeaderCrc { low: None } => Member::HeaderCrc { low: Some(byte) },
            Member::HeaderCrc { low: Some(low) } => {
                if u32::from(u16::from_le_bytes([low, byte])) != self.crc.sum() & 0xffff {
                    return bad("its header has another checksum than it should");
                }
                self.begin_content()
            }
            Member::Trailer { at, expected } => match expected.get(usize::from(at)) {
                Some(right) if *right == byte && at == 7 => Member::Between,
                Some(right) if *right == byte => Member::Trailer { at: at + 1, expected },
                _ => return bad("its content has another checksum or length than it should"),
            },
            Member::Between if byte == 0x1f => {
                self.crc.reset();
                self.crc.update(&[byte]);
                self.header = 1;
                Member::Start { at: 1, flags: 0 }
            }
            Member::Between | Member::Padding if byte == 0 => Member::Padding,
            Member::Between | Member::Padding => return bad("bytes follow its end"),
            Member::Content => Member::Content,
        })
    }
}

impl Stage for Gzip {
    fn feed(&mut self, mut input: &[u8], emit: &mut Emit<'_>) -> Result<(), DecodeError> {
        while let Some((&byte, rest)) = input.split_first() {
            match self.state {
                Member::Content => {
                    let crc = &mut self.crc;
                    let (used, ended) = self.inflate.run(input, &mut |bytes| {
                        crc.update(bytes);
                        emit(bytes)
                    })?;
                    input = &input[used..];
                    match ended {
                        true => self.state = self.trailer(),
                        false if used == 0 => {
                            return Err(damaged(Coding::Gzip, "it cannot be read any further"));
                        }
                        false => {}
                    }
                }
                _ => {
                    self.state = self.byte(byte)?;
                    input = rest;
                }
            }
        }
        Ok(())
    }

    fn may_end(&self) -> Result<(), String> {
        match self.state {
            Member::Between | Member::Padding => Ok(()),
            _ => Err("it was cut".to_owned()),
        }
    }
}

fn damaged(coding: Coding, why: &str) -> DecodeError {
    DecodeError::Damaged { coding, why: why.to_owned() }
}
