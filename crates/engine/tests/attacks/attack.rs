//! The attacks, as the process makes them when it is told to.

use super::sys::{call, end_at_once, file_of, take_orders};
use super::{alone, sys};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

/// What the process knew before it was locked down.
struct Target {
    /// A file of its user.
    secret: CString,
    /// A service's socket, as its address.
    service: libc::sockaddr_un,
    /// The name of a file that is not there.
    new: CString,
    /// The file that was finished.
    finished: CString,
}

static TARGET: OnceLock<Target> = OnceLock::new();

/// Is the process.
pub(crate) fn be() -> ExitCode {
    let folder = alone::folder();
    let path = |name: &str| CString::new(folder.join(name).as_os_str().as_bytes()).unwrap();
    let target = Target {
        secret: path("secret"),
        service: address(&folder.join("service")),
        new: path("new"),
        finished: path("files/f"),
    };
    assert!(TARGET.set(target).is_ok());
    let line = UnixStream::connect(folder.join("orders")).unwrap();
    take_orders(&line);
    drop(line);
    tidegate_engine::run_if_child().unwrap()
}

fn address(path: &Path) -> libc::sockaddr_un {
    let mut address = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
        *to = from.cast_signed();
    }
    address
}

/// An order, in bytes.
pub(crate) const ORDER: usize = 48;

/// What the process is told to do, and what it must know for that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// Which of [`ATTACKS`].
    pub(crate) attack: usize,
    /// The part, as device and inode.
    pub(crate) part: (u64, u64),
    /// Its parent, and eight bytes in that.
    pub(crate) parent: usize,
    pub(crate) address: usize,
    /// A number.
    pub(crate) number: usize,
}

impl Order {
    pub(crate) fn encode(&self) -> [u8; ORDER] {
        let words = [
            self.attack as u64,
            self.part.0,
            self.part.1,
            self.parent as u64,
            self.address as u64,
            self.number as u64,
        ];
        let mut bytes = [0; ORDER];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, from)| to.copy_from_slice(&from.to_ne_bytes()));
        bytes
    }

    fn decode(bytes: &[u8; ORDER]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * at..8 * at + 8]);
            u64::from_ne_bytes(word)
        };
        Self {
            attack: word(0) as usize,
            part: (word(1), word(2)),
            parent: word(3) as usize,
            address: word(4) as usize,
            number: word(5) as usize,
        }
    }
}

/// It has no such part at the moment.
pub(crate) const NO_PART: i64 = -1_000_000;

/// Does as an order says. By bare system calls alone.
pub(crate) fn answer(order: &[u8; ORDER]) -> i64 {
    let order = Order::decode(order);
    let (Some(target), Some(attack)) = (TARGET.get(), ATTACKS.get(order.attack)) else { return NO_PART };
    (attack.act)(target, &order)
}

/// Who can do it without the lock-down.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Who {
    Anyone,
    Root,
    /// Whoever the machine lets: how it traces processes, which attributes its files have.
    Some,
}

/// Something that whoever takes the process over might try.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    pub(crate) who: Who,
    act: fn(&Target, &Order) -> i64,
}

/// The number of the part, or the answer that there is none.
macro_rules! part {
    ($order:expr) => {
        match part_of($order) {
            Some(number) => number,
            None => return NO_PART,
        }
    };
}

pub(crate) const KEEP: &str = "keep a copy of the part's descriptor";
pub(crate) const WRITE_BY_NUMBER: &str = "write by a number that it remembers";
pub(crate) const WRITE_BY_NAME: &str = "write to the finished file by its name";
pub(crate) const NUMBER: &str = "learn the part's number";
pub(crate) const SEND: &str = "send its parent descriptors";

use Who::{Anyone, Root, Some as Somebody};

/// All of them.
pub(crate) static ATTACKS: &[Attack] = &[
    // What it was handed.
    Attack {
        name: "make the part a program of its owner (chmod 04777)",
        who: Anyone,
        act: |_, order| call(libc::SYS_fchmod, &[part!(order), 0o4777]),
    },
    Attack {
        name: "give the part to somebody else",
        who: Root,
        act: |_, order| call(libc::SYS_fchown, &[part!(order), 1, 1]),
    },
    Attack {
        name: "give the part to its own group",
        who: Anyone,
        act: |_, order| call(libc::SYS_fchown, &[part!(order), usize::MAX, order.number]),
    },
    Attack {
        name: "put an attribute on the part",
        who: Somebody,
        act: |_, order| {
            let (name, value) = (c"user.tidegate.origin".as_ptr() as usize, c"lie".as_ptr() as usize);
            call(libc::SYS_fsetxattr, &[part!(order), name, value, 3, 0])
        },
    },
    Attack {
        name: "change the times of the part",
        who: Anyone,
        act: |_, order| call(libc::SYS_utimensat, &[part!(order), 0, 0, 0]),
    },
    Attack {
        name: "lock the part",
        who: Anyone,
        act: |_, order| call(libc::SYS_flock, &[part!(order), libc::LOCK_UN as usize]),
    },
    Attack {
        name: "lock bytes of the part",
        who: Anyone,
        act: |_, order| {
            // Type, from where, start, length, owner.
            let lock: [u64; 4] = [libc::F_WRLCK as u64, 0, 0, 0];
            call(libc::SYS_fcntl, &[part!(order), libc::F_OFD_SETLK as usize, lock.as_ptr() as usize])
        },
    },
    Attack {
        name: "be told by signals who opens the part",
        who: Anyone,
        act: |_, order| call(libc::SYS_fcntl, &[part!(order), libc::F_SETOWN as usize, order.parent]),
    },
    Attack {
        name: "open the part once more",
        who: Anyone,
        act: |_, order| {
            let mut path = *b"/proc/self/fd/\0\0\0\0\0";
            let number = part!(order);
            let digits = [number / 100, number / 10 % 10, number % 10].map(|digit| b'0' + digit as u8);
            let from = digits.iter().position(|digit| *digit != b'0').unwrap_or(2);
            path[14..14 + 3 - from].copy_from_slice(&digits[from..]);
            let at = libc::AT_FDCWD as isize as usize;
            call(libc::SYS_openat, &[at, path.as_ptr() as usize, libc::O_RDWR as usize])
        },
    },
    Attack { name: SEND, who: Anyone, act: |_, order| send_descriptors(part!(order)) },
    // Files by their names.
    Attack {
        name: "read a file of its user",
        who: Anyone,
        act: |target, _| open(target.secret.as_ptr() as usize, libc::O_RDONLY),
    },
    Attack {
        name: "read /etc/shadow",
        who: Root,
        act: |_, _| open(c"/etc/shadow".as_ptr() as usize, libc::O_RDONLY),
    },
    Attack {
        name: "make a file",
        who: Anyone,
        act: |target, _| open(target.new.as_ptr() as usize, libc::O_CREAT | libc::O_WRONLY),
    },
    // Its parent, and others.
    Attack {
        name: "send its parent a signal",
        who: Anyone,
        act: |_, order| call(libc::SYS_kill, &[order.parent, libc::SIGURG as usize]),
    },
    Attack {
        name: "outlive its parent",
        who: Anyone,
        act: |_, _| call(libc::SYS_prctl, &[libc::PR_SET_PDEATHSIG as usize, 0, 0, 0, 0]),
    },
    Attack {
        name: "reach a service by its Unix socket",
        who: Anyone,
        act: |target, _| {
            let family = [libc::AF_UNIX as usize, libc::SOCK_STREAM as usize, 0];
            match call(libc::SYS_socket, &family) {
                socket @ 0.. => {
                    let address = &raw const target.service as usize;
                    call(libc::SYS_connect, &[socket as usize, address, size_of::<libc::sockaddr_un>()])
                }
                error => error,
            }
        },
    },
    Attack {
        name: "make a process",
        who: Anyone,
        act: |_, _| match call(libc::SYS_clone, &[libc::SIGCHLD as usize, 0, 0, 0, 0]) {
            0 => end_at_once(),
            made => made,
        },
    },
    Attack {
        name: "read its parent's memory",
        who: Somebody,
        act: |_, order| {
            let mut here = [0_u8; 8];
            let into = [here.as_mut_ptr() as usize, here.len()];
            let from = [order.address, here.len()];
            let (into, from) = (into.as_ptr() as usize, from.as_ptr() as usize);
            call(libc::SYS_process_vm_readv, &[order.parent, into, 1, from, 1, 0])
        },
    },
    Attack {
        name: "trace its parent",
        who: Somebody,
        act: |_, order| call(libc::SYS_ptrace, &[libc::PTRACE_SEIZE as usize, order.parent, 0, 0]),
    },
    Attack {
        name: "become another program",
        who: Anyone,
        act: |_, _| {
            // Whoever sees its socket end would end it.
            let kept = call(libc::SYS_fcntl, &[3, libc::F_SETFD as usize, 0]);
            if kept < 0 {
                return kept;
            }
            let words = [c"attacks".as_ptr() as usize, c"says".as_ptr() as usize, 0];
            let (path, words) = (c"/proc/self/exe".as_ptr() as usize, words.as_ptr());
            call(libc::SYS_execve, &[path, words as usize, words.wrapping_add(2) as usize])
        },
    },
    // Steps of what follows, which are no attacks by themselves.
    Attack {
        name: KEEP,
        who: Anyone,
        act: |_, order| call(libc::SYS_fcntl, &[part!(order), libc::F_DUPFD_CLOEXEC as usize, 4]),
    },
    Attack { name: NUMBER, who: Anyone, act: |_, order| part!(order) as i64 },
    Attack {
        name: WRITE_BY_NUMBER,
        who: Anyone,
        act: |_, order| call(libc::SYS_pwrite64, &[order.number, c"evil".as_ptr() as usize, 4, 0]),
    },
    Attack {
        name: WRITE_BY_NAME,
        who: Anyone,
        act: |target, _| match open(target.finished.as_ptr() as usize, libc::O_WRONLY) {
            file @ 0.. => call(libc::SYS_pwrite64, &[file as usize, c"evil".as_ptr() as usize, 4, 0]),
            error => error,
        },
    },
];

fn open(path: usize, how: i32) -> i64 {
    call(libc::SYS_openat, &[libc::AT_FDCWD as isize as usize, path, how as usize, 0o600])
}

/// The number of the part among the descriptors of this process.
fn part_of(order: &Order) -> Option<usize> {
    (4..200).find(|number| file_of(*number) == Some(order.part)).map(|number| number as usize)
}

/// Sends its parent a descriptor with a message that is in order (an answer that nobody waits for).
fn send_descriptors(part: usize) -> i64 {
    const MESSAGE: &[u8] = b"\0\0\0\x0b\x03{\"call\":0}";
    let parts = [MESSAGE.as_ptr() as usize, MESSAGE.len()];
    // A control message: its length, its level and kind, one descriptor.
    let control = [20_u64, libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32, part as u64];
    let head = [0, 0, parts.as_ptr() as usize, 1, control.as_ptr() as usize, 24, 0];
    call(libc::SYS_sendmsg, &[3, head.as_ptr() as usize, 0])
}

/// The signal that orders come with.
pub(crate) const SIGNAL: i32 = sys::SIGNAL;
