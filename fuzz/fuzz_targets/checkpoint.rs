//! A checkpoint file, which others can write: never a panic, and what is believed can be written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::checkpoint::{Checkpoint, FILE_SIZE, SLOT_SIZE, Slot, encode};

/// The first two bytes choose a slot and make its checksum right, so that what lies behind it is reached.
fn file_of(data: &[u8]) -> Vec<u8> {
    let Some((&[slot, seal], body)) = data.split_first_chunk::<2>() else { return Vec::new() };
    let slot = Slot::ALL[usize::from(slot % 4)];
    let mut bytes = body[..body.len().min(SLOT_SIZE as usize - 8)].to_vec();
    if seal % 2 == 0 && bytes.len() >= 32 {
        let length = (bytes.len() - 32) as u32;
        bytes[..8].copy_from_slice(b"tidegate");
        bytes[8..10].copy_from_slice(&1_u16.to_le_bytes());
        bytes[10..12].copy_from_slice(&[if slot.is_durable() { b'D' } else { b'W' }, 0]);
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        let checksum = xxhash_rust::xxh3::xxh3_64(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
    }
    let mut file = vec![0; FILE_SIZE as usize];
    let start = slot.offset() as usize;
    file[start..start + bytes.len()].copy_from_slice(&bytes);
    file
}

fuzz_target!(|data: &[u8]| {
    let _ = Checkpoint::decode(data);
    let Ok(checkpoint) = Checkpoint::decode(&file_of(data)) else { return };
    let record = &checkpoint.durable;
    let belief = checkpoint.trusted(&record.about.surroundings);
    let end = belief.spans.iter().next_back().map_or(0, |span| span.end());
    assert!(belief.identity.length.is_none_or(|length| end <= length));
    let mut again = Vec::new();
    encode(&mut again, Slot::D0, record.sequence, record.generation, &record.about, &record.spans);
    assert_eq!(Checkpoint::decode(&again).map(|c| c.durable).as_ref(), Ok(record));
});
