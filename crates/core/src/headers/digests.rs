//! Digests in header fields, and what each of them covers.
//!
//! | field | form | covers |
//! |---|---|---|
//! | `Repr-Digest` (RFC 9530) | `sha-256=:BASE64:` | the whole representation, also in a 206 |
//! | `Content-Digest` (RFC 9530) | the same | the body of this answer only: of a 206, the range |
//! | `Digest` (RFC 3230, obsolete) | `SHA-256=BASE64` | by its RFC the whole; servers differ on a 206, so it is only believed on a 200 |
//! | `Content-MD5` (RFC 2616, obsolete) | `BASE64` | the body of this answer; servers differ on a 206, so the same |
//!
//! All are taken over the *encoded* bytes if there is a `Content-Encoding`.

use super::scan;
use crate::digest::{Algorithm, Digest};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Base64 with or without its padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Digests that are read of one field, at most.
const MAX_DIGESTS: usize = 32;

/// Reads the elements of `Digest` (`SHA-256=BASE64`). Unknown algorithms and digests of the wrong
/// length are left out.
pub fn parse_digest<'a>(elements: impl Iterator<Item = &'a [u8]>) -> Vec<Digest> {
    elements.filter_map(|e| named(e, Some)).take(MAX_DIGESTS).collect()
}

/// Reads the elements of `Repr-Digest` or `Content-Digest` (`sha-256=:BASE64:`). Unknown algorithms
/// and digests of the wrong length are left out.
pub fn parse_structured_digest<'a>(elements: impl Iterator<Item = &'a [u8]>) -> Vec<Digest> {
    let between_colons = |value: &'a [u8]| {
        // Parameters may follow; they mean nothing yet.
        let (value, rest) =
            value.strip_prefix(b":").and_then(|v| Some(v.split_at(v.iter().position(|b| *b == b':')?)))?;
        let rest = scan::trim(&rest[1..]);
        (rest.is_empty() || rest.starts_with(b";")).then_some(value)
    };
    elements.filter_map(|e| named(e, between_colons)).take(MAX_DIGESTS).collect()
}

/// Reads `Content-MD5`.
pub fn parse_content_md5(value: &[u8]) -> Option<Digest> {
    decode(Algorithm::Md5, scan::trim(value))
}

/// The digests that nothing contradicts, the strongest first: equal ones once, and where two of one
/// algorithm differ, none of that algorithm.
pub fn agreed_digests(mut digests: Vec<Digest>) -> Vec<Digest> {
    digests.sort_by(|a, b| b.algorithm().cmp(&a.algorithm()).then_with(|| a.bytes().cmp(b.bytes())));
    digests.dedup();
    let all = digests.clone();
    digests.retain(|d| all.iter().filter(|other| other.algorithm() == d.algorithm()).count() == 1);
    digests
}

fn named<'a>(element: &'a [u8], value: impl Fn(&'a [u8]) -> Option<&'a [u8]>) -> Option<Digest> {
    let equals = element.iter().position(|&b| b == b'=')?;
    let name = std::str::from_utf8(scan::trim(&element[..equals])).ok()?;
    let algorithm = match name.to_ascii_lowercase().as_str() {
        // RFC 3230 and RFC 9530 call it so.
        "sha" => Algorithm::Sha1,
        name => name.parse().ok()?,
    };
    decode(algorithm, value(scan::trim(&element[equals + 1..]))?)
}

fn decode(algorithm: Algorithm, value: &[u8]) -> Option<Digest> {
    // Adler-32 is written in several ways, and proves nothing that the length does not.
    if algorithm == Algorithm::Adler32 || value.len() > 128 {
        return None;
    }
    Digest::new(algorithm, BASE64.decode(value).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHA_1: &str = "SHA-1=82AD8itGL/oYQ5BTPFANiYnp9oE=";
    const SHA_224_A: &str = "SHA-224=rQdowoLHQJTMVZR3rF7vmYOIxUXlu7F+FcMbPnA6";
    const SHA_224_B: &str = "SHA-224=6Ik6LNZ1iPy6cbmlKO4NHfvxzaiurmHilMyhGA==";
    const SHA_256: &str = "SHA-256=+D8nGudz3G/kpkVKQeDrI3xD57v0UeQmzGCZOk03nsU=";
    const MD5: &str = "MD5=LJDK2+9ClF8Nz/K5WZd/+A==";

    fn digest(value: &str) -> Vec<String> {
        agreed_digests(parse_digest(scan::list(value.as_bytes()))).iter().map(Digest::to_string).collect()
    }

    #[test]
    fn digests_are_read_and_the_strongest_comes_first() {
        assert_eq!(digest(SHA_1), ["sha-1=f36003f22b462ffa184390533c500d8989e9f681"]);
        assert_eq!(digest(&SHA_1.replace("SHA-1", "sha")), digest(SHA_1));
        let all =
            digest(&format!("{MD5}, {SHA_1},{SHA_256} ,UNIXsum=30637, foo=82AD8itGL/oYQ5BTPFANiYnp9oE="));
        let names: Vec<_> = all.iter().filter_map(|d| d.split_once('=')).map(|(name, _)| name).collect();
        assert_eq!(names, ["sha-256", "sha-1", "md5"]);
    }

    #[test]
    fn two_digests_of_one_algorithm_that_differ_are_both_dropped() {
        assert_eq!(digest(SHA_224_B).len(), 1);
        assert_eq!(digest(&format!("{SHA_224_B},{SHA_224_B}")).len(), 1);
        let other = SHA_224_B.replace("6Ik6", "7Ik6");
        assert_eq!(digest(&format!("{SHA_224_B},{other},{SHA_256}")), digest(SHA_256));
    }

    #[test]
    fn digests_of_the_wrong_length_or_form_are_left_out() {
        // 30 bytes under the name of a 28-byte digest.
        assert_eq!(digest(SHA_224_A), [""; 0]);
        for value in ["SHA-256=", "SHA-256=////", "SHA-256=*", "SHA-256", "=abcd", "ADLER32=03da0195"] {
            assert_eq!(digest(value), [""; 0], "{value}");
        }
    }

    #[test]
    fn structured_digests_are_read() {
        let read = |value: &str| parse_structured_digest(scan::list(value.as_bytes()));
        let hex = "sha-256=d435qo+nKZ+gLcUHn7GQtQ72hiBVAgqoLsZnZPiTGPk=";
        let expected = parse_digest(scan::list(hex.as_bytes()));
        assert_eq!(expected.len(), 1);
        let ok = "sha-256=:d435qo+nKZ+gLcUHn7GQtQ72hiBVAgqoLsZnZPiTGPk=:";
        assert_eq!(read(ok), expected);
        assert_eq!(read(&format!("crc32c=:AAAAAA==:, {ok};x=1 , unixsum=:AA==:")), expected);
        assert_eq!(read(hex), []);
        assert_eq!(read(&ok[..ok.len() - 1]), []);
        assert_eq!(read(&format!("{ok}x")), []);
    }

    #[test]
    fn content_md5_is_read() {
        assert_eq!(
            parse_content_md5(b"LJDK2+9ClF8Nz/K5WZd/+A=="),
            parse_digest([MD5.as_bytes()].into_iter()).pop()
        );
        assert!(parse_content_md5(b"LJDK2+9ClF8Nz/K5WZd/+A").is_some());
        assert_eq!(parse_content_md5(b"LJDK2"), None);
    }

    proptest! {
        #[test]
        fn a_digest_that_is_written_is_read_again(bytes in prop::collection::vec(any::<u8>(), 64), which in 1..7_usize) {
            let algorithm = Algorithm::ALL[which];
            let digest = Digest::new(algorithm, bytes[..algorithm.digest_len()].to_vec()).unwrap();
            let encoded = BASE64.encode(digest.bytes());
            prop_assert_eq!(parse_digest(scan::list(format!("{algorithm}={encoded}").as_bytes())), vec![digest.clone()]);
            prop_assert_eq!(parse_structured_digest(scan::list(format!("{algorithm}=:{encoded}:").as_bytes())), vec![digest]);
        }

        #[test]
        fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse_content_md5(&bytes);
            prop_assert!(parse_digest(scan::list(&bytes)).len() <= MAX_DIGESTS);
            prop_assert!(parse_structured_digest(scan::list(&bytes)).len() <= MAX_DIGESTS);
        }
    }
}
