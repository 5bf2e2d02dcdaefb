//! The files that are served, what came of them, and a machine that is warm.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

const STEP: usize = 1 << 20;

/// Makes a file of `size` bytes that look random and are the same for the same `seed`.
///
/// # Errors
/// Those of the disk.
pub(crate) fn make(path: &Path, size: u64, seed: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(STEP, File::create(path)?);
    // xorshift64: any pattern does that no file system or wire makes smaller.
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut block = vec![0u8; STEP];
    let mut left = size;
    while left > 0 {
        for eight in block.chunks_exact_mut(8) {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            eight.copy_from_slice(&word.to_le_bytes());
        }
        let count = usize::try_from(left).unwrap_or(STEP).min(STEP);
        out.write_all(&block[..count])?;
        left -= count as u64;
    }
    out.flush()
}

/// Whether two files have the same bytes.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn same(one: &Path, other: &Path) -> io::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut here, mut there) = (Vec::with_capacity(STEP), Vec::with_capacity(STEP));
    loop {
        here.clear();
        there.clear();
        (&mut one).take(STEP as u64).read_to_end(&mut here)?;
        (&mut other).take(STEP as u64).read_to_end(&mut there)?;
        if here != there {
            return Ok(false);
        }
        if here.is_empty() {
            return Ok(true);
        }
    }
}

/// Has the machine use as much memory as a run will: the source into the page cache, and as much again for
/// what is fetched. On a virtual machine the first use of a page can cost many times what later ones do.
///
/// # Errors
/// When the source cannot be read, or the folder has no room.
pub(crate) fn warm(source: &Path, folder: &Path) -> io::Result<()> {
    let path = folder.join(".tidegate-bench-warm");
    let copied = io::copy(&mut File::open(source)?, &mut File::create(&path)?);
    fs::remove_file(&path)?;
    copied.map(drop)
}

/// What kind of file system a folder is on, in a word.
pub(crate) fn kind(folder: &Path) -> String {
    let magic = File::open(folder).and_then(|f| Ok(rustix::fs::fstatfs(f.as_fd())?.f_type as u32));
    match magic {
        Ok(0xef53) => "ext4".to_owned(),
        Ok(0x0102_1994) => "tmpfs".to_owned(),
        Ok(0x5846_5342) => "xfs".to_owned(),
        Ok(0x9123_683e) => "btrfs".to_owned(),
        Ok(0x794c_7630) => "overlay".to_owned(),
        Ok(other) => format!("fs-{other:x}"),
        Err(_) => "unknown".to_owned(),
    }
}

/// Bytes that an ordinary user may still write to the file system of a folder.
///
/// # Errors
/// Those of `statvfs`.
pub(crate) fn room(folder: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_same_only_if_every_byte_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        make(&path("a"), 3_000_001, 7).unwrap();
        make(&path("b"), 3_000_001, 7).unwrap();
        make(&path("c"), 3_000_001, 8).unwrap();
        make(&path("d"), 3_000_000, 7).unwrap();
        assert!(same(&path("a"), &path("b")).unwrap());
        assert!(!same(&path("a"), &path("c")).unwrap());
        assert!(!same(&path("a"), &path("d")).unwrap());
        let mut bytes = fs::read(path("b")).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path("b"), bytes).unwrap();
        assert!(!same(&path("a"), &path("b")).unwrap());
    }
}
