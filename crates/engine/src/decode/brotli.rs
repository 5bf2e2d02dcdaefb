//! br.

use super::{Coding, DecodeError, Emit, ROOM, Stage, call};
use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

/// brotli, with windows of at most 16 MiB: "large window" streams are not part of the coding.
pub(super) struct Brotli {
    state: Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>,
    room: Box<[u8]>,
    total: usize,
    ended: bool,
}

impl Brotli {
    pub(super) fn new() -> Self {
        let alloc = StandardAlloc::default;
        Self {
            state: Box::new(BrotliState::new_strict(alloc(), alloc(), alloc())),
            room: vec![0; ROOM].into_boxed_slice(),
            total: 0,
            ended: false,
        }
    }
}

impl Stage for Brotli {
    fn feed(&mut self, input: &[u8], emit: &mut Emit<'_>) -> Result<(), DecodeError> {
        let damaged = |why: &str| Err(DecodeError::Damaged { coding: Coding::Brotli, why: why.to_owned() });
        // The decoder counts input in 32 bits.
        for input in input.chunks(1 << 20) {
            if self.ended {
                return damaged("bytes follow its end");
            }
            let Self { state, room, total, ended } = self;
            let (mut left, mut used) = (input.len(), 0);
            loop {
                let (mut free, mut made) = (room.len(), 0);
                let result = call(Coding::Brotli, || {
                    BrotliDecompressStream(
                        &mut left, &mut used, input, &mut free, &mut made, room, total, state,
                    )
                })?;
                if made > 0 {
                    emit(room.get(..made).unwrap_or_default())?;
                }
                match result {
                    BrotliResult::ResultSuccess if left > 0 => return damaged("bytes follow its end"),
                    BrotliResult::ResultSuccess => *ended = true,
                    BrotliResult::NeedsMoreInput => {}
                    BrotliResult::NeedsMoreOutput if made > 0 => continue,
                    BrotliResult::NeedsMoreOutput => return damaged("it cannot be read any further"),
                    BrotliResult::ResultFailure => return damaged("it is not what brotli makes"),
                }
                break;
            }
        }
        Ok(())
    }

    fn may_end(&self) -> Result<(), String> {
        if self.ended { Ok(()) } else { Err("it was cut".to_owned()) }
    }
}
