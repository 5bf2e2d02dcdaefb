use super::*;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;
use std::io::Write;

/// What `lines()` is in brotli (quality 11), made by the reference encoder.
const BROTLI: &str = "1be505681c09368e72ab1a3b8f50e92a1e920e30afcf70f1d6200a667389260740878fd2b234a3c4ab0eb10b9ed1\
    49e9c09bef83f6622f981c93c5e67071f3f0f2fd099c2eb7c7cbdbc7972f179c2eb7c7cbdbc7972f379c2eb7c7cbdbc7570e";
/// The same in zstd (level 19, with checksum), made by the reference encoder.
const ZSTD: &str = "28b52ffd64e604550300e2c40f11a03d80e05b61c90000ec366586829f5330a690219a57039b4286685e0d6b0a19\
    a279554d214334af02b41cbe4af8c79dbffc933e3ffae749d432a433b50228a811c0b7ff67e035ab01113404ffff0c41e9074092c\
    59040d18000a54dbb5f226f7e0c45abac02dd1918d3";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn lines() -> Vec<u8> {
    (0..40).map(|i| format!("line {i} of a text that repeats itself\n")).collect::<String>().into_bytes()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zlib(content: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn bare(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(content, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Decodes `wire`, given in pieces of these sizes (cycled).
fn decode(codings: &[Coding], wire: &[u8], pieces: &[usize]) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = Decoder::new(codings, None);
    let mut content = Vec::new();
    let mut rest = wire;
    for size in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*size).clamp(1, rest.len()));
        rest = after;
        decoder.feed(piece, &mut |bytes| {
            assert!(!bytes.is_empty());
            content.extend_from_slice(bytes);
            Ok(())
        })?;
    }
    assert_eq!(decoder.finish()?, content.len() as u64);
    Ok(content)
}

const WHOLE: &[usize] = &[usize::MAX];

fn samples() -> Vec<(Coding, Vec<u8>)> {
    vec![
        (Coding::Gzip, gzip(&lines())),
        (Coding::Deflate, zlib(&lines())),
        (Coding::Deflate, bare(&lines())),
        (Coding::Brotli, hex(BROTLI)),
        (Coding::Zstd, hex(ZSTD)),
        (Coding::Zstd, zstd(&lines())),
    ]
}

#[test]
fn each_coding_is_undone_whatever_the_pieces() {
    for (coding, wire) in samples() {
        for pieces in [WHOLE, &[1], &[2, 3, 7], &[100]] {
            assert_eq!(decode(&[coding], &wire, pieces).unwrap(), lines(), "{coding} by {pieces:?}");
        }
    }
}

#[test]
fn a_cut_body_is_never_taken_for_a_whole_one() {
    for (coding, wire) in samples() {
        for end in 1..wire.len() {
            let result = decode(&[coding], &wire[..end], WHOLE);
            assert!(matches!(result, Err(DecodeError::Damaged { .. })), "{coding} cut at {end}");
        }
    }
}

#[test]
fn a_flipped_bit_is_noticed_where_the_coding_has_a_checksum() {
    for (coding, wire) in samples() {
        for at in 0..wire.len() {
            let mut wire = wire.clone();
            wire[at] ^= 0x10;
            let result = decode(&[coding], &wire, WHOLE);
            // Neither brotli nor bare deflate has a checksum; gzip's header says things that are not
            // content (time, system).
            let unchecked = coding == Coding::Brotli || coding == Coding::Deflate && wire[..2] != [0x78, 1];
            let harmless = result.as_ref().is_ok_and(|content| *content == lines());
            assert!(unchecked || harmless || result.is_err(), "{coding}, byte {at}");
        }
    }
}

#[test]
fn bytes_after_the_end_are_refused() {
    for (coding, mut wire) in samples() {
        wire.extend_from_slice(b"more");
        assert!(decode(&[coding], &wire, WHOLE).is_err(), "{coding}");
        assert!(decode(&[coding], &wire, &[wire.len() - 4]).is_err(), "{coding}");
    }
}

#[test]
fn an_empty_body_is_an_empty_file() {
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
        assert_eq!(decode(&[coding], b"", WHOLE).unwrap(), b"");
    }
    assert_eq!(decode(&[Coding::Gzip], &gzip(b""), WHOLE).unwrap(), b"");
    assert_eq!(decode(&[Coding::Zstd], &zstd(b""), &[1]).unwrap(), b"");
}

#[test]
fn gzip_may_have_members_and_zeros_after_the_last() {
    let mut wire = [gzip(b"one "), gzip(b""), gzip(b"two")].concat();
    assert_eq!(decode(&[Coding::Gzip], &wire, &[1]).unwrap(), b"one two");
    wire.extend_from_slice(&[0; 1000]);
    assert_eq!(decode(&[Coding::Gzip], &wire, &[3]).unwrap(), b"one two");
    wire.push(0x1f);
    assert!(decode(&[Coding::Gzip], &wire, WHOLE).is_err());
}

#[test]
fn every_part_of_a_gzip_header_is_skipped_and_its_checksum_compared() {
    let plain = gzip(b"content");
    let mut header = plain[..10].to_vec();
    header[3] = 2 | 4 | 8 | 16;
    header.extend_from_slice(&[3, 0, 1, 2, 3]);
    header.extend_from_slice(b"name\0comment\0");
    let mut crc = flate2::Crc::new();
    crc.update(&header);
    header.extend_from_slice(&(crc.sum() as u16).to_le_bytes());
    let mut wire = [header.as_slice(), &plain[10..]].concat();
    assert_eq!(decode(&[Coding::Gzip], &wire, &[1]).unwrap(), b"content");
    wire[16] ^= 1;
    assert!(decode(&[Coding::Gzip], &wire, WHOLE).is_err());

    let endless = [&[0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0][..], &vec![b'n'; 1 << 20]].concat();
    assert!(decode(&[Coding::Gzip], &endless, &[4096]).is_err());
}

#[test]
fn zstd_frames_may_follow_each_other_and_be_skippable() {
    let skippable = [&[0x53, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"hello"].concat();
    let wire = [hex(ZSTD), skippable.clone(), zstd(b"end"), skippable].concat();
    let content = [lines(), b"end".to_vec()].concat();
    assert_eq!(decode(&[Coding::Zstd], &wire, WHOLE).unwrap(), content);
    assert_eq!(decode(&[Coding::Zstd], &wire, &[1]).unwrap(), content);
}

#[test]
fn a_zstd_window_beyond_8_mib_is_refused_before_it_is_allocated() {
    // "hello" by the reference encoder with a window of 16 MiB.
    let wire = hex("28b52ffd007029000068656c6c6f");
    let error = decode(&[Coding::Zstd], &wire, WHOLE).unwrap_err().to_string();
    assert!(error.contains("window"), "{error}");
}

#[test]
fn codings_are_undone_in_the_reverse_order() {
    let wire = zlib(&zstd(&gzip(&lines())));
    let codings = [Coding::Gzip, Coding::Zstd, Coding::Deflate];
    assert_eq!(decode(&codings, &wire, &[5]).unwrap(), lines());
    assert!(decode(&[Coding::Deflate, Coding::Gzip], &wire, WHOLE).is_err());
    assert_eq!(decode(&[], b"as it is", &[2]).unwrap(), b"as it is");
}

/// Feeds a body and tells how much came out before it was stopped.
fn bomb(codings: &[Coding], wire: &[u8], most: Option<u64>) -> (u64, DecodeError) {
    let mut decoder = Decoder::new(codings, most);
    let mut came = 0;
    let mut out = |bytes: &[u8]| {
        came += bytes.len() as u64;
        Ok(())
    };
    let error = decoder.feed(wire, &mut out).unwrap_err();
    assert!(decoder.feed(b"x", &mut |_| Ok(())).is_err() && decoder.finish().is_err());
    (came, error)
}

#[test]
fn what_grows_beyond_any_honest_ratio_is_stopped() {
    // 40 MiB of zeros in 39 bytes, by the reference encoder.
    let brotli = hex("cfffff7f002400e2b14072effff9ffff0f8004401c1680eefd7ffeffff01900088c302d0bdff03");
    let zeros = vec![0; 18 << 20];
    let twice = gzip(&gzip(&zeros));
    for (codings, wire) in [
        (&[Coding::Brotli][..], brotli),
        (&[Coding::Zstd], zstd(&zeros)),
        (&[Coding::Gzip, Coding::Gzip], twice),
    ] {
        let (came, error) = bomb(codings, &wire, None);
        assert!(matches!(error, DecodeError::Bomb { .. }), "{error}");
        assert!(came <= FREE, "{came}");
    }
    // The most that deflate can honestly do is not a bomb.
    assert_eq!(decode(&[Coding::Gzip], &gzip(&zeros), WHOLE).unwrap().len(), zeros.len());
}

#[test]
fn a_limit_on_the_output_holds() {
    let (came, error) = bomb(&[Coding::Gzip], &gzip(&vec![0; 1 << 20]), Some(100_000));
    assert!(matches!(error, DecodeError::Bomb { .. }), "{error}");
    assert!(came <= 100_000);
}

#[test]
fn an_error_of_the_writer_is_told_as_such() {
    let mut decoder = Decoder::new(&[Coding::Gzip], None);
    let result = decoder.feed(&gzip(b"x"), &mut |_| Err(io::ErrorKind::StorageFull.into()));
    assert!(matches!(result, Err(DecodeError::Sink(e)) if e.kind() == io::ErrorKind::StorageFull));
    assert!(decoder.finish().is_err());
}

#[test]
fn only_codings_known_here_are_read_from_a_head() {
    let of = |values: &[&str]| {
        let mut headers = Headers::new();
        for value in values {
            headers.push("Content-Encoding", value.as_bytes());
        }
        Coding::of(&headers)
    };
    assert_eq!(of(&[]).unwrap(), []);
    assert_eq!(of(&["identity"]).unwrap(), []);
    assert_eq!(of(&["GZip, br", "x-gzip"]).unwrap(), [Coding::Gzip, Coding::Brotli, Coding::Gzip]);
    for unknown in ["bzip2", "gzip, aes128gcm", "gzip, gzip, gzip, gzip", "\u{e9}"] {
        assert!(matches!(of(&[unknown]), Err(FetchError::EncodingUnknown { .. })), "{unknown}");
    }
}

proptest! {
    // The encoder of zstd takes its time.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_was_encoded_comes_out_again(
        content in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..3000),
        pieces in prop::collection::vec(1usize..700, 1..8),
    ) {
        prop_assert_eq!(&decode(&[Coding::Gzip], &gzip(&content), &pieces).unwrap(), &content);
        prop_assert_eq!(&decode(&[Coding::Deflate], &zlib(&content), &pieces).unwrap(), &content);
        prop_assert_eq!(&decode(&[Coding::Zstd], &zstd(&content), &pieces).unwrap(), &content);
    }

}

proptest! {
    #[test]
    fn no_input_makes_a_decoder_panic(
        mut wire in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0usize..6,
        keep in 0usize..60,
    ) {
        // Noise after an honest beginning goes deeper.
        let (coding, honest) = samples().swap_remove(kind);
        let mut noisy = honest[..keep.min(honest.len())].to_vec();
        noisy.append(&mut wire);
        let whole = decode(&[coding], &noisy, WHOLE).ok();
        let split = decode(&[coding], &noisy, &[7]).ok();
        prop_assert_eq!(whole, split);
    }
}
