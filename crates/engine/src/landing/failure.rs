//! What the disk said, as a sentence for a person.

use rustix::io::Errno;
use std::fmt::Display;
use std::io;
use std::path::Path;
use tidegate_core::{Code, Failure, Remedy};

/// The failure of doing something (`"write"`, `"create"`) to a file or directory.
pub fn disk_failure(doing: &str, path: &Path, error: &io::Error) -> Failure {
    let shown = path.display();
    let because = |code: Code, advice: &str| {
        Failure::new(code, format!("cannot {doing} {shown}: {}; {advice}", reason(error)))
    };
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC) => because(Code::DiskFull, "make room there, then resume: everything is kept"),
        Some(Errno::DQUOT) => {
            because(Code::DiskFull, "your quota is used up: make room, then resume: everything is kept")
        }
        Some(Errno::FBIG) => because(
            Code::DiskFull,
            "this file system or your limits hold no file so large: choose another folder with --dir",
        )
        .with_remedy(Remedy::GiveUp),
        Some(Errno::ACCESS | Errno::PERM) => {
            because(Code::PermissionDenied, "check who may write there, or choose another folder with --dir")
        }
        Some(Errno::ROFS) => because(
            Code::PermissionDenied,
            "it is mounted for reading only: choose another folder with --dir",
        ),
        Some(Errno::NOTDIR | Errno::LOOP) => because(
            Code::UnsafePart,
            "a file or a link stands where a folder is needed: name the real folder with --dir",
        ),
        Some(Errno::NAMETOOLONG) => {
            because(Code::DiskError, "choose a shorter name with -o").with_remedy(Remedy::GiveUp)
        }
        _ => because(Code::DiskError, "check the disk, then resume: what was safely written is kept"),
    }
}

/// The words of the error without the number that the standard library puts after them.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(at) => text[..at].to_lowercase(),
        None => text,
    }
}

/// A number of bytes as people read it, rounded down: `1.9 GiB`.
pub(super) fn human_bytes(bytes: u64) -> impl Display {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let unit = (bytes.ilog2() / 10) as usize;
    let tenths = (u128::from(bytes) * 10) >> (10 * unit);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::failure::Need;

    #[test]
    fn a_full_disk_waits_for_room_and_a_forbidden_folder_for_permission() {
        let failure = |errno: Errno| disk_failure("write", Path::new("/d/a.part"), &errno.into());
        assert_eq!(failure(Errno::NOSPC).remedy, Remedy::Wait { on: Need::Space });
        assert_eq!(failure(Errno::DQUOT).code, Code::DiskFull);
        assert_eq!(failure(Errno::ROFS).remedy, Remedy::Wait { on: Need::Permission });
        assert_eq!(failure(Errno::IO).code, Code::DiskError);
        let message = failure(Errno::NOSPC).message;
        assert!(
            message.starts_with("cannot write /d/a.part: no space left on device; make room"),
            "{message}"
        );
    }

    #[test]
    fn sizes_are_told_in_words() {
        let told = |bytes| human_bytes(bytes).to_string();
        assert_eq!(told(1023), "1023 bytes");
        assert_eq!(told(1024), "1.0 KiB");
        assert_eq!(told((2 << 30) - 1), "1.9 GiB");
        assert_eq!(told(u64::MAX), "15.9 EiB");
    }
}
