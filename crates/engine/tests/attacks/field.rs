//! The tests: an engine whose process takes orders, and a download that it is at.

use super::alone;
use super::attack::{ATTACKS, KEEP, NO_PART, NUMBER, Order, SEND, WRITE_BY_NAME, WRITE_BY_NUMBER, Who};
use super::old_kernel::{self, Unknown};
use super::processes::{holds, signal};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tidegate_core::DownloadId;
use tidegate_core::message::EventKind;
use tidegate_core::request::{Destination, Mirror, Request};
use tidegate_engine::{Config, Engine, EngineHandle, Mode};
use tidegate_testkit::{Body, Origin, Rate, Resource};

const MIB: u64 = 1 << 20;

/// What takes longer than this hangs.
const LONGEST: Duration = Duration::from_secs(60);

/// How an attack went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Went {
    Done(i64),
    Refused(i64),
    /// The kernel ended the process.
    Ended,
}

/// On which kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kernel {
    /// On this one.
    Here,
    /// On one that has nothing of what the lock-down needs.
    Old,
}

/// What an old kernel does not know of what the lock-down needs.
const OLD: &[Unknown] = &[
    (libc::SYS_landlock_create_ruleset, None),
    (libc::SYS_seccomp, None),
    (libc::SYS_capset, None),
    (libc::SYS_prctl, Some((0, libc::PR_SET_SECCOMP as u32))),
    (libc::SYS_prctl, Some((0, libc::PR_SET_DUMPABLE as u32))),
    (libc::SYS_prctl, Some((0, libc::PR_CAPBSET_DROP as u32))),
    (libc::SYS_prctl, Some((0, libc::PR_SET_SECUREBITS as u32))),
    (libc::SYS_prlimit64, Some((1, libc::RLIMIT_NPROC))),
];

/// An engine, its download, and the way to its processes.
struct Field {
    engine: EngineHandle,
    listener: UnixListener,
    lines: BTreeMap<u32, UnixStream>,
    folder: PathBuf,
    origin: Origin,
    body: Body,
    id: DownloadId,
    /// Somewhere in this process.
    place: Box<[u8; 8]>,
}

impl Field {
    /// A download at this pace.
    fn new(pace: Rate) -> Self {
        let folder = alone::folder();
        for name in ["orders", "service"] {
            let _ = fs::remove_file(folder.join(name));
        }
        let listener = UnixListener::bind(folder.join("orders")).unwrap();
        // Nobody has to take what arrives there.
        std::mem::forget(UnixListener::bind(folder.join("service")).unwrap());
        fs::write(folder.join("secret"), "secret").unwrap();
        let files = folder.join("files");
        let _ = fs::remove_dir_all(&files);
        fs::create_dir(&files).unwrap();

        let body = Body::random(3, 8 * MIB);
        let resource = Resource::new(body.clone()).rate(pace);
        let origin = Origin::builder().resource("/f", resource).start().unwrap();
        let mode = Mode::Child { program: None, whole: false };
        let engine = Engine::start(Config { mode, ..Config::default() }).unwrap();
        let mirror = Mirror::parse(&origin.url("/f")).unwrap();
        let place = Destination::File { dir: files, name: None, adopt: None };
        let mut request = Request::new(vec![mirror], place).unwrap();
        request.options.connections = 1;
        let id = engine.start(request).unwrap();
        assert!(origin.wait_until(LONGEST, |c| c.body_bytes > 0));
        let place = Box::new(*b"a secret");
        Self { engine, listener, lines: BTreeMap::new(), folder, origin, body, id, place }
    }

    fn process(&self) -> u32 {
        let until = Instant::now() + LONGEST;
        loop {
            match self.engine.process() {
                Some(number) => return number,
                None => std::thread::yield_now(),
            }
            assert!(Instant::now() < until, "there is no process");
        }
    }

    /// The way to a process, which connects before it does anything else.
    fn line(&mut self, process: u32) -> &mut UnixStream {
        while !self.lines.contains_key(&process) {
            let (line, _) = self.listener.accept().unwrap();
            line.set_read_timeout(Some(LONGEST)).unwrap();
            let who = rustix::net::sockopt::socket_peercred(&line).unwrap().pid;
            self.lines.insert(who.as_raw_nonzero().get().unsigned_abs(), line);
        }
        self.lines.get_mut(&process).unwrap()
    }

    fn part(&self) -> (u64, u64) {
        let part = ["f.part", "f"].into_iter().find_map(|name| fs::metadata(self.files().join(name)).ok());
        part.map_or((0, 0), |part| (part.dev(), part.ino()))
    }

    fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Has the process attack.
    fn attack(&mut self, name: &str, number: usize) -> Went {
        let attack = ATTACKS.iter().position(|attack| attack.name == name).unwrap();
        let until = Instant::now() + LONGEST;
        loop {
            let order = Order {
                attack,
                part: self.part(),
                parent: std::process::id() as usize,
                address: self.place.as_ptr() as usize,
                number,
            };
            let process = self.process();
            let line = self.line(process);
            let sent = line.write_all(&order.encode()).is_ok();
            if sent && signal(process, Signal::from_named_raw(super::attack::SIGNAL).unwrap()) {
                let mut answer = [0; 8];
                match line.read_exact(&mut answer).map(|()| i64::from_ne_bytes(answer)) {
                    // It has not got it yet.
                    Ok(NO_PART) => {}
                    Ok(done @ 0..) => return Went::Done(done),
                    Ok(error) => return Went::Refused(-error),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        panic!("{name}: no answer")
                    }
                    Err(_) => return Went::Ended,
                }
            }
            assert!(Instant::now() < until, "{name}: there is no part");
            std::thread::yield_now();
        }
    }

    /// Follows the download to its end.
    fn finish(&self) -> EventKind {
        let until = Instant::now() + LONGEST;
        while Instant::now() < until {
            match self.engine.next_event(Duration::from_secs(1)).unwrap() {
                Some(event) if event.id == self.id && event.kind.is_final() => return event.kind,
                _ => {}
            }
        }
        panic!("the download hangs: {:?}", self.engine.snapshot());
    }

    fn is_right(&self, kind: &EventKind) {
        let EventKind::Completed { path: Some(path), .. } = kind else { panic!("{kind:?}") };
        assert_eq!(self.body.first_difference_in(path).unwrap(), None);
    }
}

/// Does something on a thread of its own, on this kernel.
fn on<R: Send + 'static>(kernel: Kernel, work: impl FnOnce() -> R + Send + 'static) -> R {
    let begin = move || {
        if kernel == Kernel::Old {
            old_kernel::become_one(OLD);
        }
        work()
    };
    std::thread::spawn(begin).join().unwrap()
}

pub(crate) fn each_attack() {
    // Each by a process of its own, where it ends it.
    let steps = [KEEP, NUMBER, WRITE_BY_NUMBER, WRITE_BY_NAME];
    let names = move || ATTACKS.iter().filter(move |attack| !steps.contains(&attack.name));
    let all = move || {
        let mut field = Field::new(Rate::kib(64));
        let group = rustix::process::getegid().as_raw() as usize;
        let isolation = field.engine.isolation().clone();
        let went: Vec<Went> = names()
            .map(|attack| {
                let before = holds().descriptors;
                let went = field.attack(attack.name, group);
                if attack.name == SEND {
                    // The connection of a new process, and that of a spare.
                    assert!(holds().descriptors <= before + 8, "a descriptor was taken");
                }
                went
            })
            .collect();
        field.engine.shutdown(LONGEST).unwrap();
        (isolation, went)
    };
    let (old, without) = on(Kernel::Old, all);
    let (here, with) = on(Kernel::Here, all);
    for layer in ["landlock-files", "landlock-signals", "seccomp"] {
        assert!(old.missing.iter().any(|this| this == layer), "{old:?}");
    }
    println!("here {:?} is missing", here.missing);
    let root = rustix::process::geteuid().is_root();
    for ((attack, without), with) in names().zip(without).zip(with) {
        println!("{}: without the lock-down {without:?}, with it {with:?}", attack.name);
        let can = attack.who == Who::Anyone || (attack.who == Who::Root && root);
        assert!(!can || matches!(without, Went::Done(_)), "{}: it is no attack", attack.name);
        assert!(!matches!(with, Went::Done(_)), "{}", attack.name);
        let refused = matches!(with, Went::Ended)
            || with == Went::Refused(i64::from(libc::EPERM))
            || with == Went::Refused(i64::from(libc::EACCES));
        assert!(refused, "{}: {with:?} is no refusal", attack.name);
    }
}

pub(crate) fn comes_right() {
    on(Kernel::Here, || {
        let mut field = Field::new(Rate::mib(6));
        let group = rustix::process::getegid().as_raw() as usize;
        // Those that do not end the process: three in a row would be the end of the download.
        for attack in &ATTACKS[..16] {
            let went = field.attack(attack.name, group);
            assert!(matches!(went, Went::Refused(_)), "{}: {went:?}", attack.name);
        }
        let process = field.process();
        let last = field.finish();
        field.is_right(&last);
        assert_eq!(field.process(), process);
        let file = fs::metadata(field.files().join("f")).unwrap();
        assert_eq!(file.mode() & 0o7111, 0, "it is no program");
        assert_eq!(file.uid(), rustix::process::geteuid().as_raw());
        field.engine.shutdown(LONGEST).unwrap();
    });
}

pub(crate) fn keeps_a_copy() {
    for kernel in [Kernel::Old, Kernel::Here] {
        on(kernel, || {
            let mut field = Field::new(Rate::mib(6));
            let process = field.process();
            let Went::Done(kept) = field.attack(KEEP, 0) else { panic!("it could keep none") };
            let Went::Done(4) = field.attack(WRITE_BY_NUMBER, kept as usize) else { panic!("it can write") };
            let last = field.finish();
            // It was ended, and another has fetched what was not believed. (What it wrote into the part at its first
            // bytes may stay, since nobody said what the file must be.)
            let EventKind::Completed { path: Some(path), .. } = &last else { panic!("{last:?}") };
            assert_ne!(field.process(), process, "{last:?}");
            let difference = field.body.first_difference_in(path).unwrap();
            println!("the first difference is at {difference:?}");
            assert!(!signal(process, Signal::KILL), "whoever kept it is gone");
            assert_eq!(field.body.bytes_of(4..field.body.len()), fs::read(path).unwrap()[4..]);
            field.engine.shutdown(LONGEST).unwrap();
        });
    }
}

pub(crate) fn after_the_end() {
    for kernel in [Kernel::Old, Kernel::Here] {
        on(kernel, move || {
            let mut field = Field::new(Rate::mib(6));
            let Went::Done(number) = field.attack(NUMBER, 0) else { panic!("it has no number") };
            let last = field.finish();
            field.is_right(&last);
            let by_number = field.attack(WRITE_BY_NUMBER, number as usize);
            assert_eq!(by_number, Went::Refused(i64::from(libc::EBADF)), "{kernel:?}");
            let by_name = field.attack(WRITE_BY_NAME, 0);
            match kernel {
                Kernel::Old => assert_eq!(by_name, Went::Done(4), "it is no attack"),
                Kernel::Here => {
                    assert!(matches!(by_name, Went::Refused(_)), "{by_name:?}");
                    field.is_right(&last);
                }
            }
            drop(field.origin);
            field.engine.shutdown(LONGEST).unwrap();
        });
    }
}
