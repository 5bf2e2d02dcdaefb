//! A web page where a file was meant: what a media type and a name say of each other.

/// Endings of names under which nobody looks for a web page: archives, images of disks, programs, media,
/// documents with a format of their own, data.
const OTHER_KINDS: &[&str] = &[
    "7z",
    "aac",
    "apk",
    "appimage",
    "avi",
    "avif",
    "bin",
    "br",
    "bz2",
    "cab",
    "crate",
    "csv",
    "deb",
    "dll",
    "dmg",
    "docx",
    "ear",
    "epub",
    "exe",
    "flac",
    "flatpak",
    "gem",
    "gguf",
    "gif",
    "gpkg",
    "gz",
    "h5",
    "hdf",
    "hdf5",
    "img",
    "iso",
    "jar",
    "jpeg",
    "jpg",
    "lz",
    "lz4",
    "lzma",
    "m4a",
    "m4v",
    "mkv",
    "mov",
    "mp3",
    "mp4",
    "msi",
    "msix",
    "nc",
    "npy",
    "npz",
    "odp",
    "ods",
    "odt",
    "ogg",
    "onnx",
    "opus",
    "ova",
    "parquet",
    "pdf",
    "pkg",
    "png",
    "pptx",
    "pt",
    "qcow2",
    "rar",
    "raw",
    "rpm",
    "run",
    "safetensors",
    "snap",
    "so",
    "sqlite",
    "tar",
    "tbz",
    "tbz2",
    "tgz",
    "tif",
    "tiff",
    "txz",
    "tzst",
    "vdi",
    "vhd",
    "vhdx",
    "vmdk",
    "war",
    "wav",
    "webm",
    "webp",
    "whl",
    "wim",
    "xlsx",
    "xpi",
    "xz",
    "zip",
    "zst",
];

/// Whether a media type is that of a web page. Parameters after it mean nothing here.
pub fn is_web_page(media_type: &str) -> bool {
    let plain = media_type.split(';').next().unwrap_or_default().trim();
    ["text/html", "application/xhtml+xml"].iter().any(|page| plain.eq_ignore_ascii_case(page))
}

/// The ending of a name, in lower case, if nobody looks for a web page under it: `iso` of `a/Debian.ISO`.
pub fn ending_of_another_kind(name: &str) -> Option<&'static str> {
    let (before, ending) = name.rsplit_once('.')?;
    let has_a_stem = !before.is_empty() && !before.ends_with('/');
    OTHER_KINDS.iter().find(|kind| has_a_stem && kind.eq_ignore_ascii_case(ending)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_told_by_its_media_type() {
        for page in ["text/html", "TEXT/HTML; charset=utf-8", " text/html ;x", "application/xhtml+xml"] {
            assert!(is_web_page(page), "{page}");
        }
        for other in ["", "text/plain", "text/html5", "application/octet-stream; x=text/html"] {
            assert!(!is_web_page(other), "{other}");
        }
    }

    #[test]
    fn a_name_tells_when_no_page_is_meant() {
        for (name, ending) in [
            ("debian.iso", Some("iso")),
            ("a/b.tar.GZ", Some("gz")),
            ("v1.2.zip", Some("zip")),
            ("index.html", None),
            ("page", None),
            ("zip", None),
            (".zip", None),
            ("a/.zip", None),
            ("release-1.2", None),
            ("a.zip.html", None),
            ("a.iso/", None),
            ("", None),
        ] {
            assert_eq!(ending_of_another_kind(name), ending, "{name}");
        }
    }

    #[test]
    fn the_list_is_in_order_and_in_lower_case() {
        assert!(OTHER_KINDS.is_sorted());
        assert!(
            OTHER_KINDS.iter().all(|kind| kind.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()))
        );
    }
}
