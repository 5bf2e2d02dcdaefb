//! Digests of whole files and of pieces.

use std::fmt;
use std::str::FromStr;

/// A digest algorithm, weakest first, so that the greatest of several is the one to trust.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Adler-32: finds accidents, not attacks.
    Adler32,
    /// MD5: finds accidents, not attacks.
    Md5,
    /// SHA-1: finds accidents, not attacks.
    Sha1,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// Every algorithm, weakest first.
    pub const ALL: [Self; 7] =
        [Self::Adler32, Self::Md5, Self::Sha1, Self::Sha224, Self::Sha256, Self::Sha384, Self::Sha512];

    /// The name by which people and Metalink know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "adler32",
            Self::Md5 => "md5",
            Self::Sha1 => "sha-1",
            Self::Sha224 => "sha-224",
            Self::Sha256 => "sha-256",
            Self::Sha384 => "sha-384",
            Self::Sha512 => "sha-512",
        }
    }

    /// Length of a digest in bytes.
    pub fn digest_len(self) -> usize {
        match self {
            Self::Adler32 => 4,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = DigestError;

    /// Reads a name in any case, with or without the dash (`sha-256`, `SHA256`).
    fn from_str(text: &str) -> Result<Self, DigestError> {
        let plain = |s: &str| s.to_ascii_lowercase().replace('-', "");
        Self::ALL
            .into_iter()
            .find(|a| plain(a.name()) == plain(text))
            .ok_or_else(|| DigestError::UnknownAlgorithm(text.to_owned()))
    }
}

/// A digest of known algorithm and right length.
#[derive(Clone, Eq, Hash, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    algorithm: Algorithm,
    bytes: Vec<u8>,
}

impl Digest {
    /// A digest from raw bytes; the length must be the algorithm's.
    pub fn new(algorithm: Algorithm, bytes: Vec<u8>) -> Result<Self, DigestError> {
        if bytes.len() == algorithm.digest_len() {
            Ok(Self { algorithm, bytes })
        } else {
            Err(DigestError::Length { algorithm, expected: algorithm.digest_len(), found: bytes.len() })
        }
    }

    /// A digest written in hexadecimal.
    pub fn from_hex(algorithm: Algorithm, hex: &str) -> Result<Self, DigestError> {
        let nibble = |b: u8| char::from(b).to_digit(16).and_then(|n| u8::try_from(n).ok());
        let bytes = hex.as_bytes();
        if !bytes.len().is_multiple_of(2) {
            return Err(DigestError::NotHex);
        }
        let decoded: Option<Vec<u8>> =
            bytes.chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect();
        Self::new(algorithm, decoded.ok_or(DigestError::NotHex)?)
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The raw bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=", self.algorithm)?;
        self.bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;
    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    /// Reads `ALGORITHM=HEX`, as `--checksum` takes it.
    fn from_str(text: &str) -> Result<Self, DigestError> {
        let (algorithm, hex) = text.split_once('=').ok_or(DigestError::NoEquals)?;
        Self::from_hex(algorithm.trim().parse()?, hex.trim())
    }
}

/// Why a text is not a digest.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DigestError {
    /// The algorithm is not one of [`Algorithm::ALL`].
    #[error(
        "unknown digest algorithm {0:?}; known are adler32, md5, sha-1, sha-224, sha-256, sha-384, sha-512"
    )]
    UnknownAlgorithm(String),
    /// The digest has another length than its algorithm makes.
    #[error("a {algorithm} digest has {expected} bytes ({} hexadecimal digits), this one has {found}", expected * 2)]
    Length {
        /// The algorithm named.
        algorithm: Algorithm,
        /// Its digest's length in bytes.
        expected: usize,
        /// The length in bytes found.
        found: usize,
    },
    /// Something other than hexadecimal digits.
    #[error("the digest is not written in hexadecimal")]
    NotHex,
    /// No `=` between algorithm and digest.
    #[error("write a digest as ALGORITHM=HEX, for example sha-256=2c26b4…")]
    NoEquals,
}

/// Digests of equal pieces of a file, in order; the last piece may be shorter.
#[derive(Clone, Debug, Eq, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "WrittenPieces")]
pub struct Pieces {
    /// Length of each piece in bytes, at least 1.
    pub length: u64,
    /// One digest for each piece, all of the same algorithm.
    pub digests: Vec<Digest>,
}

/// Pieces as they are written down.
#[derive(serde::Deserialize)]
struct WrittenPieces {
    length: u64,
    digests: Vec<Digest>,
}

impl TryFrom<WrittenPieces> for Pieces {
    type Error = &'static str;
    fn try_from(WrittenPieces { length, digests }: WrittenPieces) -> Result<Self, &'static str> {
        if length == 0 {
            return Err("pieces have no length");
        }
        if digests.windows(2).any(|two| two[0].algorithm() != two[1].algorithm()) {
            return Err("pieces have digests of different algorithms");
        }
        Ok(Self { length, digests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_people_write_it() {
        let text = "SHA-1=f36003f22b462ffa184390533c500d8989e9f681";
        let digest: Digest = text.parse().unwrap();
        assert_eq!(digest.algorithm(), Algorithm::Sha1);
        assert_eq!(digest.to_string(), "sha-1=f36003f22b462ffa184390533c500d8989e9f681");
        assert_eq!("sha1=f36003f22b462ffa184390533c500d8989e9f681".parse(), Ok(digest));
    }

    #[test]
    fn a_digest_of_the_wrong_length_or_alphabet_is_refused() {
        assert!(matches!(
            "md5=abcd".parse::<Digest>(),
            Err(DigestError::Length { expected: 16, found: 2, .. })
        ));
        assert_eq!("md5=zz".parse::<Digest>(), Err(DigestError::NotHex));
        assert_eq!("md5=abc".parse::<Digest>(), Err(DigestError::NotHex));
        assert!(matches!("md6=ab".parse::<Digest>(), Err(DigestError::UnknownAlgorithm(_))));
        assert_eq!("ab".parse::<Digest>(), Err(DigestError::NoEquals));
    }
}
