//! zstd.

use super::{Coding, DecodeError, Emit, ROOM, Stage, call};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::Read;

/// Largest window, in bytes. RFC 9659 forbids servers more in this coding.
const MOST_WINDOW: u64 = 8 << 20;
/// Largest block on the wire (RFC 8878, section 3.1.1.2.4).
const MOST_BLOCK: usize = 128 * 1024;
const MAGIC: u32 = 0xfd2f_b528;
/// A skippable frame has any of sixteen magic numbers.
const SKIPPABLE: u32 = 0x184d_2a50;

/// zstd: any number of frames one after another. The decoder takes whole blocks, so that much input is
/// kept until a block is complete.
pub(super) struct Zstd {
    decoder: FrameDecoder,
    state: State,
    /// Input not yet used: less than a block and its surroundings, between two calls.
    pending: Vec<u8>,
    room: Box<[u8]>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before a frame.
    Between,
    /// In a frame that is skipped.
    Skipping { left: u32 },
    /// Before a block.
    Block { checked: bool, length: Option<u64>, made: u64 },
}

impl Zstd {
    pub(super) fn new() -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MOST_WINDOW);
        let room = vec![0; ROOM].into_boxed_slice();
        Self { decoder, state: State::Between, pending: Vec::new(), room }
    }

    /// Does what can be done with the input from `at` on; how much of it that took, or `None` if it is
    /// not enough.
    fn advance(&mut self, at: usize, emit: &mut Emit<'_>) -> Result<Option<usize>, DecodeError> {
        let input = self.pending.get(at..).unwrap_or_default();
        match self.state {
            State::Between => {
                let Some(magic) = le32(input) else { return Ok(None) };
                if magic & !0xf == SKIPPABLE {
                    let Some(left) = le32(&input[4..]) else { return Ok(None) };
                    self.state = State::Skipping { left };
                    return Ok(Some(8));
                }
                if magic != MAGIC {
                    return damaged("it does not begin as zstd does");
                }
                let Some(header) = Header::read(input) else { return Ok(None) };
                let Self { decoder, .. } = self;
                call(Coding::Zstd, || decoder.reset(&input[..header.size]))?.or_else(damaged)?;
                self.state = State::Block { checked: header.checked, length: header.length, made: 0 };
                Ok(Some(header.size))
            }
            State::Skipping { left: 0 } => {
                self.state = State::Between;
                Ok(Some(0))
            }
            State::Skipping { .. } if input.is_empty() => Ok(None),
            State::Skipping { left } => {
                let n = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                self.state = State::Skipping { left: left - n as u32 };
                Ok(Some(n))
            }
            State::Block { checked, length, mut made } => {
                let [a, b, c, ..] = *input else { return Ok(None) };
                let header = u32::from_le_bytes([a, b, c, 0]);
                let (last, kind, size) = (header & 1 != 0, header >> 1 & 3, (header >> 3) as usize);
                // A run is one byte, however long it becomes.
                let on_wire = if kind == 1 { 1 } else { size };
                if size > MOST_BLOCK || kind == 3 {
                    return damaged("it has a block of a kind or size that does not exist");
                }
                let whole = 3 + on_wire + if last && checked { 4 } else { 0 };
                let Some(block) = input.get(..whole) else { return Ok(None) };
                let Self { decoder, room, .. } = self;
                let ended = call(Coding::Zstd, || {
                    decoder.decode_blocks(block, BlockDecodingStrategy::UptoBlocks(1))
                })?
                .or_else(damaged)?;
                loop {
                    let n = call(Coding::Zstd, || decoder.read(room))?.or_else(damaged)?;
                    if n == 0 {
                        break;
                    }
                    made += n as u64;
                    emit(room.get(..n).unwrap_or_default())?;
                }
                if !ended {
                    self.state = State::Block { checked, length, made };
                    return Ok(Some(whole));
                }
                if length.is_some_and(|length| length != made) {
                    return damaged("it has another length than it says");
                }
                if checked && decoder.get_checksum_from_data() != decoder.get_calculated_checksum() {
                    return damaged("its content has another checksum than it should");
                }
                self.state = State::Between;
                Ok(Some(whole))
            }
        }
    }
}

impl Stage for Zstd {
    fn feed(&mut self, input: &[u8], emit: &mut Emit<'_>) -> Result<(), DecodeError> {
        for input in input.chunks(MOST_BLOCK) {
            self.pending.extend_from_slice(input);
            let mut at = 0;
            while let Some(used) = self.advance(at, emit)? {
                at += used;
            }
            self.pending.drain(..at);
        }
        Ok(())
    }

    fn may_end(&self) -> Result<(), String> {
        match self.state {
            State::Between if self.pending.is_empty() => Ok(()),
            State::Skipping { left: 0 } => Ok(()),
            _ => Err("it was cut".to_owned()),
        }
    }
}

/// What of a frame's header is needed here.
struct Header {
    /// Its bytes, the magic number included.
    size: usize,
    /// A checksum follows the last block.
    checked: bool,
    /// Bytes of content, if told.
    length: Option<u64>,
}

impl Header {
    /// `None` if it is not complete.
    fn read(input: &[u8]) -> Option<Self> {
        let descriptor = *input.get(4)?;
        let single = descriptor & 0x20 != 0;
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let length_size = match descriptor >> 6 {
            0 => usize::from(single),
            n => 1 << n,
        };
        let before = 5 + usize::from(!single) + dictionary;
        let size = before + length_size;
        let mut length = [0; 8];
        length.get_mut(..length_size)?.copy_from_slice(input.get(before..size)?);
        let length = match length_size {
            0 => None,
            2 => Some(u64::from_le_bytes(length) + 256),
            _ => Some(u64::from_le_bytes(length)),
        };
        Some(Self { size, checked: descriptor & 4 != 0, length })
    }
}

fn le32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|b| u32::from_le_bytes(*b))
}

fn damaged<T>(why: impl ToString) -> Result<T, DecodeError> {
    Err(DecodeError::Damaged { coding: Coding::Zstd, why: why.to_string() })
}
