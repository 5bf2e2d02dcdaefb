//! A disk that is too small.

use crate::common::{Place, USUAL, b, played};
use std::process::{Command, Stdio};
use tidegate_testkit::{Body, Origin, Resource};

/// Whether a file system can be mounted here, in name spaces of the test's own.
fn can_mount() -> bool {
    let tried = Command::new("unshare")
        .args(["-rm", "sh", "-c", "mount -t tmpfs -o size=1m tide /tmp"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// Fetches to `disk`, which has 3 MiB free; then, when it has 32 MiB, once more. Prints both exit codes.
/// (What fills it is removed, since an ordinary user may not make a mounted disk larger.)
const SCRIPT: &str = r#"
mkdir disk kept && mount -t tmpfs -o size=32m tide disk || exit 99
dd if=/dev/zero of=disk/.filler bs=1M count=29 2>/dev/null || exit 98
"$@"
echo "first: $?"
ls disk > kept/names
cp disk/* kept/
rm disk/.filler
"$@"
echo "second: $?"
cp disk/* kept/
"#;

/// Both runs of the script.
fn on_a_small_disk(place: &Place, words: &[&str]) -> crate::common::Ended {
    let mut command = place.command(&[]);
    let program = command.get_program().to_owned();
    command = {
        let mut outer = Command::new("unshare");
        outer.args(["-rm", "sh", "-c", SCRIPT, "sh"]).arg(program).args(["get"]).args(USUAL).args(words);
        outer.current_dir(place.folder()).env("HOME", place.aside(""));
        outer
    };
    crate::common::Running::new(command).end()
}

#[test]
fn tc_37_a_full_disk_stops_at_once_keeps_all_and_goes_on_when_there_is_room() {
    if !can_mount() {
        println!("tc-37 is not played: this user may not mount a tmpfs, not even in a name space of its own");
        return;
    }
    for resource in [
        Resource::new(b()),
        // Of unknown length, so that nothing can be said before.
        Resource::new(b()).framing(tidegate_testkit::Framing::Chunked(16 << 10)),
    ] {
        let origin = Origin::serve(resource).unwrap();
        let place = Place::new();
        let ended = on_a_small_disk(&place, &["-d", "disk", &origin.entry_url()]);
        println!("{ended:?} {:?}", origin.counters());
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.says("first: 3") || ended.says("first: 1"), "{ended:?}");
        assert!(ended.says("[disk-full]") && ended.says("second: 0"), "{ended:?}");
        // It does not wait, and says what to do.
        assert!(!ended.says("waiting") && ended.says("Make room, then run the same command"), "{ended:?}");
        let first = std::fs::read_to_string(place.path("kept/names")).unwrap();
        assert!(first.lines().all(|name| name.ends_with(".part") || name.ends_with(".part.tide")), "{first}");
        assert!(place.holds("kept/file.bin", &b()));
        // One that found the disk full, and at most one beside it; then those of an ordinary fetch.
        assert!(origin.counters().requests <= 2 + 9, "{:?}", origin.counters());
    }
}

#[test]
fn tc_37_other_disks_go_on() {
    if !can_mount() {
        println!("tc-37 is not played: this user may not mount a tmpfs, not even in a name space of its own");
        return;
    }
    let (big, other) = (played("tc-37"), Origin::serve(Resource::new(Body::random(9, 5 << 20))).unwrap());
    let place = Place::new();
    let list =
        format!("{}\n  dir=disk\n{}\n  dir=roomy\n  out=other.bin\n", big.entry_url(), other.entry_url());
    let list = place.write_aside("list", list);
    let ended = on_a_small_disk(&place, &["-i", &list]);
    assert!(ended.says("[disk-full]") && ended.says("second: 0"), "{ended:?}");
    assert!(place.holds("roomy/other.bin", &other.right()[0]), "{ended:?}");
    assert!(place.holds("kept/file.bin", &b()));
}
