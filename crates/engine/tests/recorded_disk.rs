//! What may be believed after a crash, tried on a disk that remembers.
//!
//! The real `PartFile` runs over a disk that records each operation. Then the record is replayed on a
//! simulated kernel (page cache, dirty pages, writeback at any time) with a simulated disk beneath it, and
//! after every operation the machine is crashed in several ways:
//!
//! - *kill*: the page cache stays; the operation under way may have been done in part;
//! - *power loss*: each dirty page may have reached the disk or not, whole or by sectors.
//!
//! From what is left the part file is opened again by the real code, and what it believes is compared with
//! the truth: **no byte believed of a version may differ from that version**, and nothing may be lost that
//! was promised. Then it lives on from one of the crashes, and everything is tried again.
//!
//! The last tests break one rule each in a disk that lies, and the same check must find it.
//! `TIDEGATE_DISK_SEEDS` says how many lives are tried.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says by panicking what is wrong"
)]

#[path = "recorded_disk/sim.rs"]
mod sim;

use sim::{Dice, Lie, Op, Pages, Record, RecordingDisk, Sim, SimFile, Truth};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use tidegate_core::checkpoint::{Belief, Checkpoint, Promise, RequestKey, Surroundings};
use tidegate_core::{EntityTag, Identity, Span, SpanSet};
use tidegate_engine::disk::Target;
use tidegate_engine::part_file::{Basis, PartFile, SAVE_EVERY, Version, WriteError};
use tidegate_engine::syncs::SharedSyncs;

const LONGEST_WRITE: u64 = 200_000;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

// The remote file: each version has its own length and bytes. None is zero, so a hole is never right.

fn length_of(version: u64) -> u64 {
    1_400_000 + version % 3 * 50_000
}

fn identity_of(version: u64) -> Identity {
    Identity {
        length: Some(length_of(version)),
        etag: EntityTag::parse(&format!("\"v{version}\"")),
        ..Identity::default()
    }
}

/// Writes by way of a pipe, as plain bodies are.
fn splice(
    part: &PartFile<RecordingDisk>,
    version: Version,
    offset: u64,
    bytes: &[u8],
) -> Result<(), WriteError> {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&writer, 1 << 18).unwrap();
    writer.write_all(bytes).unwrap();
    part.splice_at(version, offset, reader.as_fd(), bytes.len())
}

fn version_of(identity: &Identity) -> u64 {
    identity.etag.as_ref().unwrap().value[1..].parse().unwrap()
}

fn bytes_of(version: u64) -> Arc<Vec<u8>> {
    static MADE: Mutex<BTreeMap<u64, Arc<Vec<u8>>>> = Mutex::new(BTreeMap::new());
    let make = || {
        let mut dice = Dice(version.wrapping_mul(77));
        Arc::new((0..length_of(version)).map(|_| dice.throw() as u8 | 1).collect())
    };
    MADE.lock().unwrap().entry(version).or_insert_with(make).clone()
}

fn here(sim: &Sim) -> Surroundings {
    Surroundings { boot: Some(sim.boot), mount: Some(1), inode: 1, birth: Some(1) }
}

fn key() -> RequestKey {
    RequestKey::of(&"https://h/a".parse().unwrap())
}

fn map_of(sim: &Sim) -> Option<Vec<u8>> {
    sim.checkpoint.as_ref().map(|file| file.cache.to_vec())
}

/// What the reopened part file believes, by way of the real code, and what it did.
fn reopen(
    part_len: u64,
    checkpoint: Option<&[u8]>,
    now: Surroundings,
    sync_fails: bool,
) -> (Option<Belief>, Vec<Op>) {
    let Some(Ok(decoded)) = checkpoint.map(Checkpoint::decode) else { return (None, Vec::new()) };
    let fail_next_sync = sync_fails.then_some(Target::Part);
    let disk =
        RecordingDisk::new(Record { part_len, has_checkpoint: true, fail_next_sync, ..Record::default() });
    let (part, belief) = PartFile::resume(disk.clone(), key(), now, &decoded).unwrap();
    assert_eq!((part.have(), part.have_total()), (belief.spans.clone(), belief.spans.total()));
    (Some(belief), disk.take())
}

/// No byte that is believed may differ from the version that it is believed to be of.
fn check_truth(truth: &Truth, part: &Pages, belief: &Belief) -> Result<(), String> {
    let version = version_of(&belief.identity);
    let right = bytes_of(version);
    let mut believed = belief.spans.clone();
    if believed.iter().any(|span| span.end() > part.len()) {
        return Err(format!("more is believed than {} bytes ({belief:?})", part.len()));
    }
    if truth.version == version {
        truth.spoiled.iter().for_each(|span| believed.remove(span));
    }
    for span in believed.iter() {
        let (start, end) = (span.start() as usize, span.end() as usize);
        if part.has(start, &right[start..end]) {
            continue;
        }
        if let Some(at) = (start..end).find(|at| part.byte(*at) != right[*at]) {
            let what = match part.byte(at) {
                0 => "missing",
                byte if byte == !right[at] => "spoiled",
                _ => "another's",
            };
            return Err(format!("byte {at} of version {version} is {what} ({truth:?}, {belief:?})"));
        }
    }
    if belief.done.is_some() && belief.spans.total() != length_of(version) {
        return Err(format!("done without being whole ({belief:?})"));
    }
    Ok(())
}

/// What was promised must be there, but for `may_lack` bytes.
fn check_promise(
    truth: &Truth,
    promised: &SpanSet,
    belief: Option<&Belief>,
    may_lack: u64,
) -> Result<(), String> {
    if truth.restarting || promised.total() <= may_lack {
        return Ok(());
    }
    let belief = belief.ok_or("nothing is believed")?;
    if version_of(&belief.identity) != truth.version {
        return Err(format!("another version than {} is believed ({belief:?})", truth.version));
    }
    let mut missing = promised.clone();
    belief.spans.iter().for_each(|span| missing.remove(span));
    if missing.total() > may_lack {
        return Err(format!("{} bytes are lost ({missing:?}, {belief:?})", missing.total()));
    }
    Ok(())
}

/// What is there after `kill -9`: the page cache stays, the operation under way may be done in part.
fn kill(sim: &Sim, next: Option<&Op>, dice: &mut Dice) -> Sim {
    let mut killed = sim.clone();
    if let Some(Op::Write(target, offset, bytes)) = next {
        let count = dice.below(bytes.len() as u64 + 1) as usize;
        killed.file(*target).write(*offset, &bytes[..count]);
    }
    killed
}

/// What another boot finds.
fn lose_power(killed: Sim, dice: &mut Dice) -> Sim {
    let names_survive = killed.names_are_durable || dice.one_in(2);
    Sim {
        boot: killed.boot + 1,
        part: SimFile::found(killed.part.lose_power(dice)),
        checkpoint: killed
            .checkpoint
            .filter(|_| names_survive)
            .map(|file| SimFile::found(file.lose_power(dice))),
        names_are_durable: true,
        truth: killed.truth,
        failed: false,
        untold: false,
    }
}

/// Crashes in every way after (or amid) one operation, and checks what is believed then.
fn crash_here(sim: &Sim, next: Option<&Op>, dice: &mut Dice) -> Result<(), String> {
    let truth = &sim.truth;
    let killed = kill(sim, next, dice);
    let part = &killed.part.cache;
    let map = map_of(&killed);
    let map = map.as_deref();
    let length = part.len();
    let (belief, _) = reopen(length, map, here(sim), sim.untold);
    let context = |e| format!("after a kill: {e}");
    belief.iter().try_for_each(|belief| check_truth(truth, part, belief)).map_err(context)?;
    let (promised, may_lack) =
        if sim.failed { (&truth.durable, 0) } else { (&truth.written, SAVE_EVERY + LONGEST_WRITE) };
    check_promise(truth, promised, belief.as_ref(), may_lack).map_err(context)?;

    let there = here(sim);
    for (case, now, sync_fails) in [
        ("from another mount", Surroundings { mount: Some(2), ..there }, false),
        ("as a copy", Surroundings { inode: 2, ..there }, false),
        ("with a failing sync", there, true),
    ] {
        let (belief, ops) = reopen(length, map, now, sync_fails);
        let Some(belief) = belief else { continue };
        let context = |e| format!("killed and opened {case}: {e}");
        check_truth(truth, part, &belief).map_err(context)?;
        check_promise(truth, &truth.durable, Some(&belief), 0).map_err(context)?;
        assert_eq!((belief.promise, belief.moved), (Promise::Durable, now.inode == 2));
        if ops.iter().any(|op| matches!(op, Op::Fail(_))) {
            // What was not believed now must not be believed later, when the failure is forgotten.
            let mut after = killed.clone();
            ops.iter().for_each(|op| after.apply(op, dice));
            let map = map_of(&after);
            let again = reopen(length, map.as_deref(), there, false)
                .0
                .ok_or("nothing is believed the second time")?;
            if again.spans.iter().any(|span| !belief.spans.covers(span)) {
                return Err(format!("killed and opened {case}: more is believed the second time"));
            }
        }
    }

    let after = lose_power(killed, dice);
    let (part, map) = (&after.part.cache, map_of(&after));
    let (belief, _) = reopen(part.len(), map.as_deref(), here(&after), false);
    let context = |e| format!("after a power loss: {e}");
    belief.iter().try_for_each(|belief| check_truth(truth, part, belief)).map_err(context)?;
    check_promise(truth, &truth.durable, belief.as_ref(), 0).map_err(context)
}

/// One process that works on what the machine has: random operations of the part file's own interface.
fn live(from: &Sim, seed: u64, steps: u64, lie: Option<Lie>) -> Vec<Op> {
    let dice = &mut Dice(seed);
    let disk = RecordingDisk::new(Record {
        lie,
        dice: seed,
        part_len: from.part.cache.len(),
        has_checkpoint: from.checkpoint.is_some(),
        ..Record::default()
    });
    let decoded = map_of(from).and_then(|map| Checkpoint::decode(&map).ok());
    let (part, mut truth, mut version);
    match decoded {
        Some(decoded) => {
            let expected = decoded.trusted(&here(from));
            let same = version_of(&expected.identity) == from.truth.version;
            truth = Truth {
                version: version_of(&expected.identity),
                written: expected.spans,
                durable: if same && !from.truth.restarting {
                    from.truth.durable.clone()
                } else {
                    SpanSet::new()
                },
                spoiled: if same { from.truth.spoiled.clone() } else { SpanSet::new() },
                restarting: false,
            };
            disk.note(&truth);
            let belief;
            let resumed;
            (resumed, belief) = PartFile::resume(disk.clone(), key(), here(from), &decoded).unwrap();
            part = Arc::new(resumed);
            truth.written = belief.spans;
            disk.note(&truth);
            version = part.begin(&identity_of(truth.version), Basis::Recorded).unwrap();
        }
        None => {
            truth = Truth { version: from.truth.version + 1, ..Truth::default() };
            disk.note(&truth);
            part = Arc::new(PartFile::blank(disk.clone(), key(), here(from)));
            version = part.begin(&identity_of(truth.version), Basis::Nothing).unwrap();
        }
    }
    for step in 0..steps {
        let length = length_of(truth.version);
        let bytes = bytes_of(truth.version);
        let good = |span: Span| &bytes[span.start() as usize..span.end() as usize];
        let start = dice.below(length);
        let span = Span::new(start, (start + 1 + dice.below(LONGEST_WRITE)).min(length)).unwrap();
        let result = match dice.below(20) {
            // (Bad bytes that were durable may come back until they are forgotten.)
            0..=8 => part.write_at(version, start, good(span)).map(|()| truth.written.insert(span)),
            9..=11 => splice(&part, version, start, good(span)).map(|()| truth.written.insert(span)),
            12 => {
                // A mirror sends bad bytes.
                let bad: Vec<u8> = good(span).iter().map(|byte| !byte).collect();
                truth.spoiled.insert(span);
                disk.note(&truth);
                part.write_at(version, start, &bad).map(|()| truth.written.insert(span))
            }
            13 => {
                let spoiled: Vec<Span> = truth.spoiled.iter().collect();
                for span in &spoiled {
                    truth.written.remove(*span);
                    truth.durable.remove(*span);
                }
                disk.note(&truth);
                part.forget(&spoiled).map_err(WriteError::from).map(|()| truth.spoiled = SpanSet::new())
            }
            14 => {
                part.start_writeback();
                Ok(())
            }
            15 if dice.one_in(2) => {
                let more = Identity { last_modified: Some(step as i64), ..identity_of(truth.version) };
                part.set_identity(&more, part.doubts()).map_err(WriteError::from)
            }
            16 if dice.one_in(4) => {
                truth.restarting = true;
                disk.note(&truth);
                truth = Truth { version: truth.version + 1, ..Truth::default() };
                part.restart(&identity_of(truth.version)).map_err(WriteError::from).map(|new| {
                    let late = part.write_at(version, 0, b"bytes of the old version that come late");
                    assert!(matches!(late, Err(WriteError::Superseded)));
                    version = new;
                })
            }
            17 if dice.one_in(12) => {
                // All the rest arrives, and the file is about to be published.
                let all = Span::new(0, length).unwrap();
                let gaps: Vec<Span> = part.have().gaps(all).collect();
                gaps.iter()
                    .try_for_each(|gap| part.write_at(version, gap.start(), good(*gap)))
                    .and_then(|()| part.mark_done(Some("a")).map_err(WriteError::from))
                    .map(|()| {
                        truth.written.insert(all);
                        truth.durable.insert(all);
                    })
            }
            18 if dice.one_in(10) => {
                let target = if dice.one_in(2) { Target::Part } else { Target::Checkpoint };
                disk.with(|r| r.fail_next_sync = Some(target));
                Ok(())
            }
            19 if dice.one_in(6) => {
                let errno = if dice.one_in(2) { EIO } else { ENOSPC };
                disk.with(|r| r.fail_next_write = Some(errno));
                Ok(())
            }
            _ if dice.one_in(3) && !part.have().covers(span) => {
                // The data thread goes on while the part is synced. (No fault that was planned may hit it.)
                disk.with(|r| (r.fail_next_sync, r.fail_next_write) = (None, None));
                let (writer, piece) = (part.clone(), good(span).to_vec());
                disk.with(|r| {
                    r.during_next_sync =
                        Some(Box::new(move || writer.write_at(version, start, &piece).unwrap()));
                });
                let before = part.have();
                let durable = part.make_durable().map_err(WriteError::from);
                let met = disk.with(|r| r.during_next_sync.take()).is_none();
                durable.map(|total| {
                    assert_eq!(total, before.total(), "step {step} of seed {seed}");
                    truth.durable = before;
                    if met {
                        truth.written.insert(span);
                    }
                })
            }
            _ => part.make_durable().map_err(WriteError::from).map(|total| {
                assert_eq!(total, truth.written.total(), "step {step} of seed {seed}");
                truth.durable = truth.written.clone();
            }),
        };
        match result {
            Ok(()) => disk.note(&truth),
            // A full disk: what was written stays good.
            Err(WriteError::Disk(error)) if error.raw_os_error() == Some(ENOSPC) => {}
            Err(WriteError::Disk(_)) => {
                // It lives on for a while, so the failure has been told.
                disk.note(&truth);
                assert!(part.make_durable().is_err(), "a part file that failed stays failed");
                assert!(part.write_at(version, 0, b"x").is_err());
                break;
            }
            Err(WriteError::Superseded) => panic!("the version is the newest"),
        }
    }
    disk.take()
}

/// Replays a life, crashing after each operation. Returns what one of the crashes leaves.
fn crash_everywhere(from: &Sim, ops: &[Op], dice: &mut Dice) -> Result<Sim, String> {
    let mut sim = from.clone();
    let last = dice.below(ops.len() as u64) as usize;
    let mut left = None;
    for (index, op) in ops.iter().enumerate() {
        sim.apply(op, dice);
        let next = ops.get(index + 1);
        crash_here(&sim, next, dice).map_err(|e| format!("after operation {index}: {e}"))?;
        if index == last {
            // Not while a failure is untold: the next process would be told, which `live` does not play.
            let mut killed = kill(&sim, next.filter(|_| !sim.untold), dice);
            killed.failed = false;
            left = Some(if sim.untold || dice.one_in(2) { lose_power(killed, dice) } else { killed });
        }
    }
    left.ok_or_else(|| "a life without operations".to_owned())
}

/// Several lives, one after the other.
fn lives(seed: u64, steps: u64, lie: Option<Lie>) -> Result<(), String> {
    let dice = &mut Dice(seed ^ 0x5eed);
    let mut sim = Sim { boot: 1, ..Sim::default() };
    for life in 0..3 {
        let ops = live(&sim, dice.throw(), steps, lie);
        sim = crash_everywhere(&sim, &ops, dice).map_err(|e| format!("seed {seed}, life {life}, {e}"))?;
    }
    Ok(())
}

#[test]
fn no_crash_makes_a_wrong_byte_believed_or_loses_what_was_promised() {
    let seeds = std::env::var("TIDEGATE_DISK_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        lives(seed, 50, None).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Some life shows what this lie does.
fn is_found(lie: Lie) -> bool {
    (0..200).any(|seed| {
        let mut dice = Dice(seed);
        let sim = Sim { boot: 1, ..Sim::default() };
        crash_everywhere(&sim, &live(&sim, seed, 40, Some(lie)), &mut dice).is_err()
    })
}

#[test]
fn a_part_that_is_not_synced_before_its_map_is_found_out() {
    assert!(is_found(Lie::NoSync(Target::Part)));
}

#[test]
fn a_map_that_is_not_synced_is_found_out() {
    assert!(is_found(Lie::NoSync(Target::Checkpoint)));
}

#[test]
fn a_map_that_runs_ahead_of_the_bytes_is_found_out() {
    assert!(is_found(Lie::LateBytes));
}

#[test]
fn a_failed_sync_that_is_not_noted_is_found_out() {
    assert!(is_found(Lie::NoNote));
}

/// What one file of several that end together did, and what was told of it.
struct Ending {
    ops: Vec<Op>,
    told: std::io::Result<()>,
}

/// Several files of one directory arrive whole, are made durable and then share the syncs of their directory.
/// The first of these runs until all the others wait. The sync of the bytes of every fourth file fails.
fn end_together(count: usize, names: impl Fn(usize) -> std::io::Result<()> + Sync) -> Vec<Ending> {
    const DIRECTORY: (u64, u64) = (1, 1);
    let syncs = SharedSyncs::default();
    let good = count - count.div_ceil(4);
    let all_wait = || {
        while syncs.present(DIRECTORY) < good {
            std::thread::yield_now();
        }
    };
    let first = std::sync::atomic::AtomicBool::new(true);
    let one = |index: usize| {
        let version = index as u64 + 1;
        let disk = RecordingDisk::new(Record { dice: version, ..Record::default() });
        let mut truth = Truth { version, ..Truth::default() };
        disk.note(&truth);
        let part = PartFile::blank(disk.clone(), key(), here(&Sim { boot: 1, ..Sim::default() }));
        let taken = part.begin(&identity_of(version), Basis::Nothing).unwrap();
        part.write_at(taken, 0, &bytes_of(version)).unwrap();
        truth.written.insert(Span::new(0, length_of(version)).unwrap());
        disk.note(&truth);
        if index.is_multiple_of(4) {
            disk.with(|r| r.fail_next_sync = Some(Target::Part));
        }
        let told = part.mark_done(Some("a"));
        if told.is_ok() {
            truth.durable = truth.written.clone();
        }
        disk.note(&truth);
        let told = told.and_then(|()| {
            // It has its name from now on.
            syncs.sync(DIRECTORY, || {
                if first.swap(false, std::sync::atomic::Ordering::Relaxed) {
                    all_wait();
                }
                names(index)
            })
        });
        Ending { ops: disk.take(), told }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..count).map(|index| scope.spawn(move || one(index))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn files_that_end_together_share_syncs_of_their_directory_and_each_fails_alone() {
    const COUNT: usize = 12;
    let syncs = std::sync::atomic::AtomicUsize::new(0);
    let endings = end_together(COUNT, |_| {
        syncs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    });
    assert_eq!(syncs.into_inner(), 2, "one for whoever was first, one for all others");
    for (index, Ending { ops, told }) in endings.iter().enumerate() {
        assert_eq!(told.is_ok(), !index.is_multiple_of(4), "file {index}: {told:?}");
        // And at no moment is more believed of any of them than is true, nor less than was promised.
        let sim = Sim { boot: 1, ..Sim::default() };
        crash_everywhere(&sim, ops, &mut Dice(index as u64))
            .unwrap_or_else(|error| panic!("file {index}: {error}"));
    }
}

#[test]
fn a_failed_sync_of_a_directory_is_told_to_each_file_that_it_was_to_save() {
    let failed = |_| Err(std::io::Error::from_raw_os_error(EIO));
    for (index, Ending { told, .. }) in end_together(8, failed).iter().enumerate() {
        let error = told.as_ref().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EIO), "file {index}");
    }
}
