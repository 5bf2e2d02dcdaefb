//! Text out of bytes whose encoding nobody told.

use encoding_rs::{GBK, WINDOWS_1252};

/// Reads bytes as UTF-8 if they are that, as GBK if they look like Chinese text in it, else as
/// Windows-1252 (ISO 8859-1 with printable characters for its unused controls), which reads anything.
pub(crate) fn decode(bytes: &[u8]) -> String {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.to_owned();
    }
    if looks_like_gbk(bytes)
        && let Some(text) = GBK.decode_without_bom_handling_and_without_replacement(bytes)
    {
        return text.into_owned();
    }
    WINDOWS_1252.decode_without_bom_handling(bytes).0.into_owned()
}

/// Whether most of the two-byte characters are of the 3755 that Chinese is mostly written with (both
/// bytes high, the first one from B0 to D7).
///
/// Western text in ISO 8859-1 decodes as GBK surprisingly often (`fünf` has the valid pair FC 6E),
/// but its accented letters mostly stand alone between ASCII, and its lower-case ones begin at E0.
fn looks_like_gbk(bytes: &[u8]) -> bool {
    let (mut common, mut pairs) = (0_usize, 0_usize);
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        if first < 0x80 {
            rest = after;
            continue;
        }
        let Some((&second, after)) = after.split_first() else { return false };
        pairs += 1;
        common += usize::from((0xb0..=0xd7).contains(&first) && second >= 0xa1);
        rest = after;
    }
    common * 2 > pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_told_from_the_bytes() {
        let gbk = |text: &str| GBK.encode(text).0.into_owned();
        let western = |text: &str| WINDOWS_1252.encode(text).0.into_owned();
        for (bytes, expected) in [
            (b"plain.bin".to_vec(), "plain.bin"),
            ("中文文件名.rar".as_bytes().to_vec(), "中文文件名.rar"),
            (gbk("中文文件名.rar"), "中文文件名.rar"),
            (gbk("第01集 说明 v2.txt"), "第01集 说明 v2.txt"),
            (western("foo-ä.html"), "foo-ä.html"),
            (western("fünf.bin"), "fünf.bin"),
            (western("créée.bin"), "créée.bin"),
            (western("ÄÖÜ.bin"), "ÄÖÜ.bin"),
            (western("10 €.bin"), "10 €.bin"),
        ] {
            assert_eq!(decode(&bytes), expected, "{bytes:x?}");
        }
    }
}
