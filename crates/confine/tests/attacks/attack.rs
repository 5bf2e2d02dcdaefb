//! The attacks: what each does, who could do it without the lock-down, and which layers refuse it.

use crate::program;
use crate::sys::{call, child_by, descriptor, run_a_page};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType};
use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use tidegate_confine::{ENGINE, Layer, Layers, begin};

/// The name under which this program attacks.
pub(crate) const ATTACKER: &CStr = c"attacker";
/// The name of the program that an attacker starts: this one again, which says that it runs.
const STARTED: &CStr = c"started";
/// Where an attacker finds the part file that it was handed, open for reading and writing.
pub(crate) const PART: i32 = 0;
/// Where it finds a folder that it was handed.
pub(crate) const FOLDER: i32 = 3;
/// Where it finds what was left open by mistake.
pub(crate) const LEFT_OPEN: i32 = 9;

/// Who can do it on this machine without the lock-down.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Who {
    /// Everybody.
    Anyone,
    /// Root alone.
    Root,
    /// Whoever a setting of the machine lets; this is the setting.
    Where(&'static str),
}

/// What an attacker knows of its surroundings.
#[derive(Debug)]
pub(crate) struct Target {
    /// A folder of its user with files in it.
    pub(crate) home: PathBuf,
    /// Another process of its user.
    pub(crate) victim: usize,
    /// The process that started it.
    pub(crate) parent: usize,
}

impl Target {
    fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    fn c_path(&self, name: &str) -> CString {
        c_path(&self.path(name))
    }
}

/// What is done once the layers are on.
type Act = Box<dyn FnOnce() -> io::Result<()>>;

/// Something that a hijacked engine might try.
pub(crate) struct Attack {
    /// Its name.
    pub(crate) name: &'static str,
    /// Who can do it otherwise.
    pub(crate) who: Who,
    /// The layers that refuse it, each by itself.
    pub(crate) refused_by: &'static [Layer],
    /// Further layers that refuse it in some cases, and in which.
    pub(crate) also: Option<(&'static [Layer], &'static str)>,
    /// Prepares it without any layer.
    pub(crate) prepare: fn(Target) -> io::Result<Act>,
}

use Layer::{Calls, Capabilities, Descriptors, Files, Limits, Ports, Processes, Signals, Sockets};
use Who::{Anyone, Root, Where};

/// Whoever is refused to trace may be so by this module.
/// Whoever is in a domain of Landlock, whatever for, looks into no process outside.
const DOMAIN: &[Layer] = &[Files, Ports, Sockets, Signals, Calls];
const YAMA: Who = Where("kernel.yama.ptrace_scope");
const USERS: Who = Where("user.max_user_namespaces and policies of user namespaces");

const fn by(
    name: &'static str,
    who: Who,
    refused_by: &'static [Layer],
    prepare: fn(Target) -> io::Result<Act>,
) -> Attack {
    Attack { name, who, refused_by, also: None, prepare }
}

impl Attack {
    const fn and(mut self, also: &'static [Layer], when: &'static str) -> Self {
        self.also = Some((also, when));
        self
    }
}

/// All of them, in the order of the table.
pub(crate) static ATTACKS: &[Attack] = &[
    // Files by their paths.
    by("read a file of the user", Anyone, &[Files, Calls], |t| {
        act(move || open(&t.path("secret"), OFlags::RDONLY))
    }),
    by("read /etc/shadow", Root, &[Files, Calls], |_| act(|| open(Path::new("/etc/shadow"), OFlags::RDONLY))),
    by("list a folder", Anyone, &[Files, Calls], |t| act(move || std::fs::read_dir(t.home).map(drop))),
    by("learn how long a file is, by its path", Anyone, &[Calls], |t| {
        act(move || Ok(rustix::fs::stat(t.path("secret")).map(drop)?))
    }),
    by("make a file", Anyone, &[Files, Calls], |t| {
        act(move || open(&t.path("new"), OFlags::CREATE | OFlags::WRONLY))
    }),
    by("make a folder", Anyone, &[Files, Calls], |t| act(move || std::fs::create_dir(t.path("folder")))),
    by("make a link", Anyone, &[Files, Calls], |t| {
        act(move || std::os::unix::fs::symlink("/etc/passwd", t.path("link")))
    }),
    by("remove a file", Anyone, &[Files, Calls], |t| act(move || std::fs::remove_file(t.path("secret")))),
    by("rename a file", Anyone, &[Files, Calls], |t| {
        act(move || std::fs::rename(t.path("secret"), t.path("other")))
    }),
    by("cut a file, by its path", Anyone, &[Files, Calls], |t| {
        act(move || call(libc::SYS_truncate, &[address(&t.c_path("secret")), 0]).map(drop))
    }),
    by("change the rights of a file, by its path", Anyone, &[Calls], |t| {
        act(move || Ok(rustix::fs::chmod(t.path("secret"), Mode::from_raw_mode(0o4777))?))
    }),
    by("watch what happens in a folder", Anyone, &[Calls], |t| {
        let watch = keep(call(libc::SYS_inotify_init1, &[0])?)?;
        act(move || {
            let all = libc::IN_ALL_EVENTS as usize;
            call(libc::SYS_inotify_add_watch, &[watch, address(&c_path(&t.home)), all]).map(drop)
        })
    }),
    by("go to another folder", Anyone, &[Calls], |t| act(move || std::env::set_current_dir(t.home))),
    by("open a file past the folders above it", Root, &[Capabilities, Files, Calls], |t| {
        let file = std::fs::File::open(t.path("secret"))?;
        let mut handle = [0u32; 34];
        handle[0] = 128;
        let (place, mut mount) = (handle.as_mut_ptr(), 0i32);
        let by_handle = [
            file.as_raw_fd() as usize,
            c"".as_ptr() as usize,
            place as usize,
            &raw mut mount as usize,
            libc::AT_EMPTY_PATH as usize,
        ];
        call(libc::SYS_name_to_handle_at, &by_handle)?;
        act(move || {
            let arguments = [FOLDER as usize, handle.as_ptr() as usize, libc::O_RDONLY as usize];
            call(libc::SYS_open_by_handle_at, &arguments).map(drop)
        })
    }),
    // What it was handed.
    by("open a file in a folder that it was handed", Anyone, &[Files, Calls], |_| {
        act(|| Ok(rustix::fs::openat(descriptor(FOLDER), "secret", OFlags::RDONLY, Mode::empty()).map(drop)?))
    }),
    by("remove a file in a folder that it was handed", Anyone, &[Files, Calls], |_| {
        act(|| Ok(rustix::fs::unlinkat(descriptor(FOLDER), "secret", AtFlags::empty())?))
    }),
    by("open the part file once more", Anyone, &[Files, Calls], |_| {
        act(|| open(Path::new(&format!("/proc/self/fd/{PART}")), OFlags::RDWR))
    }),
    by("make the part file a program of its owner (chmod 04777)", Anyone, &[Calls], |_| {
        act(|| Ok(rustix::fs::fchmod(descriptor(PART), Mode::from_raw_mode(0o4777))?))
    }),
    by("give the part file to somebody else", Root, &[Capabilities, Calls], |_| {
        act(|| call(libc::SYS_fchown, &[PART as usize, 1, 1]).map(drop))
    }),
    by("give the part file to its own group", Anyone, &[Calls], |_| {
        let group = rustix::process::getegid().as_raw() as usize;
        act(move || call(libc::SYS_fchown, &[PART as usize, usize::MAX, group]).map(drop))
    }),
    by("put an attribute on the part file", Where("a file system with attributes"), &[Calls], |_| {
        act(|| {
            let flags = rustix::fs::XattrFlags::empty();
            Ok(rustix::fs::fsetxattr(descriptor(PART), "user.tidegate.origin", b"lie", flags)?)
        })
    }),
    by("change the times of the part file", Anyone, &[Calls], |_| {
        act(|| call(libc::SYS_utimensat, &[PART as usize, 0, 0, 0]).map(drop))
    }),
    by("let go of the lock on the part file", Anyone, &[Calls], |_| {
        act(|| Ok(rustix::fs::flock(descriptor(PART), rustix::fs::FlockOperation::Unlock)?))
    }),
    by("have signals sent about a descriptor", Anyone, &[Calls], |t| {
        // SIGIO to another process. Landlock asks only when one is sent.
        act(move || call(libc::SYS_fcntl, &[PART as usize, libc::F_SETOWN as usize, t.victim]).map(drop))
    }),
    by("hand a descriptor to whoever holds its socket", Anyone, &[Calls], |_| {
        let (one, other) = UnixStream::pair()?;
        let one = keep(one.as_raw_fd() as usize)?;
        // It stays open where the part file was.
        call(libc::SYS_dup3, &[other.as_raw_fd() as usize, PART as usize, 0])?;
        act(move || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let files = [descriptor(FOLDER)];
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
            let socket = descriptor(i32::try_from(one).unwrap());
            Ok(rustix::net::sendmsg(socket, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty())
                .map(drop)?)
        })
    }),
    by("use what was left open by mistake", Anyone, &[Descriptors], |_| {
        act(|| call(libc::SYS_pread64, &[LEFT_OPEN as usize, 0, 0, 0]).map(drop))
    }),
    // Other processes.
    by("read its parent's environment", YAMA, &[Files, Calls], |t| {
        act(move || open(Path::new(&format!("/proc/{}/environ", t.parent)), OFlags::RDONLY))
    })
    .and(&[Ports, Sockets, Signals, Capabilities], "by the kernel's version and who it is"),
    by("write to its parent's memory by /proc", YAMA, DOMAIN, |t| {
        act(move || open(Path::new(&format!("/proc/{}/mem", t.parent)), OFlags::RDWR))
    })
    .and(&[Capabilities], "if its parent has any"),
    by("open its parent's descriptors by /proc", YAMA, DOMAIN, |t| {
        act(move || open(Path::new(&format!("/proc/{}/fd/0", t.parent)), OFlags::RDONLY))
    })
    .and(&[Capabilities], "if its parent has any"),
    by("trace its parent", YAMA, DOMAIN, |t| {
        act(move || call(libc::SYS_ptrace, &[libc::PTRACE_SEIZE as usize, t.parent, 0, 0]).map(drop))
    })
    .and(&[Capabilities], "if its parent has any"),
    by("read its parent's memory", YAMA, DOMAIN, |t| {
        act(move || parent_memory(&t, libc::SYS_process_vm_readv))
    })
    .and(&[Capabilities], "if its parent has any"),
    by("write to its parent's memory", YAMA, DOMAIN, |t| {
        act(move || parent_memory(&t, libc::SYS_process_vm_writev))
    })
    .and(&[Capabilities], "if its parent has any"),
    by("take a descriptor from its parent", YAMA, DOMAIN, |t| {
        let parent = keep(call(libc::SYS_pidfd_open, &[t.parent, 0])?)?;
        act(move || call(libc::SYS_pidfd_getfd, &[parent, 0, 0]).map(drop))
    })
    .and(&[Capabilities], "if its parent has any"),
    by("change its parent's limits", Anyone, &[Calls], |t| {
        act(move || {
            let mut now = [0u64; 2];
            let resource = libc::RLIMIT_NOFILE as usize;
            call(libc::SYS_prlimit64, &[t.parent, resource, 0, now.as_mut_ptr() as usize])?;
            call(libc::SYS_prlimit64, &[t.parent, resource, now.as_ptr() as usize, 0]).map(drop)
        })
    }),
    by("send its parent a signal", Anyone, &[Signals, Calls], |t| {
        act(move || call(libc::SYS_kill, &[t.parent, libc::SIGCONT as usize]).map(drop))
    }),
    by("send another process a signal", Anyone, &[Signals, Calls], |t| {
        act(move || call(libc::SYS_kill, &[t.victim, libc::SIGCONT as usize]).map(drop))
    }),
    by("send a signal by a descriptor of a process", Anyone, &[Signals, Calls], |t| {
        let victim = keep(call(libc::SYS_pidfd_open, &[t.victim, 0])?)?;
        act(move || call(libc::SYS_pidfd_send_signal, &[victim, libc::SIGCONT as usize]).map(drop))
    }),
    by("slow another process down", Anyone, &[Capabilities, Calls], |t| {
        act(move || call(libc::SYS_setpriority, &[libc::PRIO_PROCESS as usize, t.victim, 5]).map(drop))
    }),
    // Programs and processes.
    by("start a program", Anyone, &[Files, Calls], |_| {
        act(|| {
            let arguments = [STARTED.as_ptr(), std::ptr::null()];
            let path = c"/proc/self/exe".as_ptr() as usize;
            call(libc::SYS_execve, &[path, arguments.as_ptr() as usize, arguments[1..].as_ptr() as usize])
                .map(drop)
        })
    }),
    by("make a file in memory", Anyone, &[Calls], |_| {
        act(|| call(libc::SYS_memfd_create, &[c"x".as_ptr() as usize, 0]).map(drop))
    }),
    by("start a program from memory", Where("vm.memfd_noexec"), &[Calls], |_| {
        let mut memory =
            std::fs::File::from(rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::CLOEXEC)?);
        memory.write_all(&program::says_zero())?;
        // A file that is open for writing is not run.
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let program = rustix::fs::open(path, OFlags::RDONLY, Mode::empty())?;
        drop(memory);
        let file = keep(program.as_raw_fd() as usize)?;
        act(move || {
            let arguments = [STARTED.as_ptr(), std::ptr::null()];
            let (words, none) = (arguments.as_ptr() as usize, arguments[1..].as_ptr() as usize);
            let empty = c"".as_ptr() as usize;
            call(libc::SYS_execveat, &[file, empty, words, none, libc::AT_EMPTY_PATH as usize]).map(drop)
        })
    }),
    by("make memory that can be written and run", Anyone, &[Calls], |_| act(|| run_a_page(true))),
    by("make memory that was written run", Anyone, &[Calls], |_| act(|| run_a_page(false))),
    by("make all memory run (personality)", Where("policies of containers"), &[Calls], |_| {
        act(|| call(libc::SYS_personality, &[libc::READ_IMPLIES_EXEC as usize]).map(drop))
    }),
    by("make a process", Anyone, &[Processes, Calls], |_| {
        act(|| child_by(libc::SYS_clone, &[libc::SIGCHLD as usize, 0, 0, 0, 0]))
    }),
    by("make a process (clone3)", Anyone, &[Processes, Calls], |_| {
        act(|| {
            let mut arguments = [0u64; 8];
            arguments[4] = libc::SIGCHLD as u64;
            child_by(libc::SYS_clone3, &[arguments.as_ptr() as usize, size_of_val(&arguments)])
        })
    }),
    by("make a hundred processes", Anyone, &[Processes, Calls], |_| {
        act(|| (0..100).try_for_each(|_| child_by(libc::SYS_clone, &[libc::SIGCHLD as usize, 0, 0, 0, 0])))
    }),
    by("start a thread", Anyone, &[Processes, Calls], |_| {
        act(|| std::thread::Builder::new().spawn(|| ()).map(|thread| drop(thread.join())))
    }),
    by("leave its session and outlive whoever started it", Anyone, &[Calls], |_| {
        // What it was sent at its parent's end is called off.
        act(|| call(libc::SYS_prctl, &[libc::PR_SET_PDEATHSIG as usize, 0, 0, 0, 0]).map(drop))
    }),
    // Sockets.
    by("reach a service by its Unix socket", Anyone, &[Calls], |t| {
        act(move || UnixStream::connect(t.path("service")).map(drop))
    })
    .and(&[Files], "from Landlock 9 on"),
    by("reach a service by its abstract Unix socket", Anyone, &[Sockets, Calls], |t| {
        let name = SocketAddr::from_abstract_name(t.home.as_os_str().as_bytes())?;
        act(move || UnixStream::connect_addr(&name).map(drop))
    }),
    by("listen on a port", Anyone, &[Ports, Calls], |_| {
        act(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop))
    }),
    by("listen on a port without choosing one", Anyone, &[Calls], |_| {
        act(|| {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
            Ok(rustix::net::listen(socket, 1)?)
        })
    }),
    by("send a datagram (a question to a name server)", Anyone, &[Calls], |_| {
        act(|| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            let here = socket.local_addr()?;
            socket.send_to(b"x", here).map(drop)
        })
    })
    .and(&[Ports], "from Landlock 10 on"),
    by("open a raw socket", Root, &[Capabilities, Calls], |_| {
        act(|| socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP))
    }),
    by("see all packets", Root, &[Capabilities, Calls], |_| {
        act(|| socket(libc::AF_PACKET, libc::SOCK_RAW, 0x0300))
    }),
    by("speak to the kernel's network (netlink)", Anyone, &[Calls], |_| {
        act(|| socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE))
    }),
    by("use the kernel's ciphers (AF_ALG)", Where("AF_ALG"), &[Calls], |_| {
        act(|| socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0))
    }),
    by("speak another protocol over IP (MPTCP)", Where("net.mptcp.enabled"), &[Calls], |_| {
        act(|| socket(libc::AF_INET, libc::SOCK_STREAM, 262))
    }),
    by("put a filter on a socket", Where("policies of bpf"), &[Capabilities, Calls], |_| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        let socket = keep(socket.as_raw_fd() as usize)?;
        act(move || {
            let accept = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 1 };
            let program = libc::sock_fprog { len: 1, filter: (&raw const accept).cast_mut() };
            let arguments = [
                socket,
                libc::SOL_SOCKET as usize,
                libc::SO_ATTACH_FILTER as usize,
                &raw const program as usize,
                size_of::<libc::sock_fprog>(),
            ];
            call(libc::SYS_setsockopt, &arguments).map(drop)
        })
    }),
    // Corners of the kernel.
    by("use the kernel's keys", Where("CONFIG_KEYS"), &[Calls], |_| {
        // Of the user's own keyring.
        act(|| call(libc::SYS_keyctl, &[0, -4isize as usize, 1]).map(drop))
    }),
    by(
        "load code into the kernel (bpf)",
        Where("kernel.unprivileged_bpf_disabled"),
        &[Capabilities, Calls],
        |_| {
            act(|| {
                // A map: an array of one value.
                let mut arguments = [0u32; 32];
                arguments[..4].copy_from_slice(&[2, 4, 4, 1]);
                call(libc::SYS_bpf, &[0, arguments.as_ptr() as usize, size_of_val(&arguments)]).map(drop)
            })
        },
    ),
    by("handle page faults (userfaultfd)", Where("CONFIG_USERFAULTFD"), &[Calls], |_| {
        // For faults of its own program alone, which needs no right.
        act(|| call(libc::SYS_userfaultfd, &[1]).map(drop))
    }),
    by("set up io_uring", Where("kernel.io_uring_disabled"), &[Calls], |_| {
        act(|| {
            let mut parameters = [0u32; 30];
            call(libc::SYS_io_uring_setup, &[1, parameters.as_mut_ptr() as usize]).map(drop)
        })
    })
    .and(&[Limits], "with `capabilities`"),
    by("count what the processor does (perf)", Where("kernel.perf_event_paranoid"), &[Calls], |_| {
        act(|| {
            // Page faults of this process outside the kernel.
            let mut event = [0u32; 32];
            event[..4].copy_from_slice(&[1, 128, 2, 0]);
            event[10] = 1 << 5 | 1 << 6;
            let arguments = [event.as_ptr() as usize, 0, usize::MAX, usize::MAX, 0];
            call(libc::SYS_perf_event_open, &arguments).map(drop)
        })
    }),
    by("make a namespace of its own", USERS, &[Calls], |_| {
        act(|| call(libc::SYS_unshare, &[libc::CLONE_NEWUSER as usize]).map(drop))
    }),
    by("mount something", USERS, &[Files, Calls], |t| {
        own_mounts()?;
        act(move || {
            let (kind, place) = (c"tmpfs".as_ptr() as usize, c_path(&t.home));
            call(libc::SYS_mount, &[kind, address(&place), kind, 0, 0]).map(drop)
        })
    })
    .and(&[Capabilities], "where it has any"),
    by("enter another namespace", Root, &[Capabilities, Calls], |_| {
        let here = std::fs::File::open("/proc/self/ns/uts")?;
        let here = keep(here.as_raw_fd() as usize)?;
        act(move || call(libc::SYS_setns, &[here, 0]).map(drop))
    }),
    by("take another root", Root, &[Capabilities, Calls], |_| act(|| Ok(rustix::process::chroot("/")?))),
    by("become another user", Root, &[Capabilities, Calls], |_| {
        act(|| call(libc::SYS_setresuid, &[1, 1, 1]).map(drop))
    }),
    by("read the kernel's log", Where("kernel.dmesg_restrict"), &[Capabilities, Calls], |_| {
        // How much there is to read.
        act(|| call(libc::SYS_syslog, &[9, 0, 0]).map(drop))
    }),
    by("lock memory", Where("RLIMIT_MEMLOCK"), &[Calls], |_| {
        act(|| {
            let page = [0u8; 64];
            call(libc::SYS_mlock, &[page.as_ptr() as usize, page.len()]).map(drop)
        })
    })
    .and(&[Limits], "with `capabilities`"),
    by("leave memory behind that outlives it (shmget)", Where("CONFIG_SYSVIPC"), &[Calls], |_| {
        act(|| {
            let made = call(libc::SYS_shmget, &[libc::IPC_PRIVATE as usize, 4096, 0o600])?;
            call(libc::SYS_shmctl, &[made, libc::IPC_RMID as usize, 0]).map(drop)
        })
    }),
    by(
        "leave a message queue behind that outlives it",
        Where("CONFIG_POSIX_MQUEUE"),
        &[Limits, Calls],
        |_| {
            act(|| {
                // Landlock refuses to open what was made by the same call, but it was made: whether it can be removed
                // tells.
                let name = CString::new(format!("tidegate-attack-{}", std::process::id()))?;
                let flags = (libc::O_CREAT | libc::O_RDWR) as usize;
                let made = call(libc::SYS_mq_open, &[address(&name), flags, 0o600, 0]);
                call(libc::SYS_mq_unlink, &[address(&name)]).or(made).map(drop)
            })
        },
    ),
];

fn act(act: impl FnOnce() -> io::Result<()> + 'static) -> io::Result<Act> {
    Ok(Box::new(act))
}

/// Puts a descriptor where one is kept by the lock-down, so that what refuses the attack is not that it is closed.
fn keep(number: usize) -> io::Result<usize> {
    const KEPT: usize = 2;
    call(libc::SYS_dup3, &[number, KEPT, 0])
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn address(string: &CStr) -> usize {
    string.as_ptr() as usize
}

fn open(path: &Path, flags: OFlags) -> io::Result<()> {
    Ok(rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o600)).map(drop)?)
}

fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<()> {
    call(libc::SYS_socket, &[family as usize, kind as usize, protocol as usize]).map(drop)
}

/// Both are the same program at the same addresses only by chance: that the kernel got as far as looking there is
/// what counts.
fn parent_memory(target: &Target, number: i64) -> io::Result<()> {
    let mut here = [0u8; 8];
    let local = [here.as_mut_ptr() as usize, here.len()];
    let remote = [8usize, 8];
    match call(number, &[target.parent, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0]) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::FAULT) => Ok(()),
        result => result.map(drop),
    }
}

/// So that mounting something harms nobody.
fn own_mounts() -> io::Result<()> {
    let root = rustix::process::geteuid().is_root();
    let kinds = if root { libc::CLONE_NEWNS } else { libc::CLONE_NEWNS | libc::CLONE_NEWUSER };
    call(libc::SYS_unshare, &[kinds as usize])?;
    let (private, root) = (libc::MS_PRIVATE | libc::MS_REC, c"/".as_ptr() as usize);
    call(libc::SYS_mount, &[0, root, 0, private as usize, 0]).map(drop)
}

/// Attacks, if this process was started for it: name, layers as 0 and 1, home, victim. Says with which error the
/// attack failed, 0 for none, or that it could not even be prepared.
pub(crate) fn run_if_asked() -> bool {
    let words: Vec<String> = std::env::args().collect();
    match words.first().map(String::as_bytes) {
        Some(name) if name == STARTED.to_bytes() => println!("0"),
        Some(name) if name == ATTACKER.to_bytes() => {
            let attack = ATTACKS.iter().find(|attack| attack.name == words[1]).unwrap();
            let layers = Layer::ALL.into_iter().zip(words[2].bytes()).filter(|(_, on)| *on == b'1');
            let layers = layers.fold(Layers::NONE, |all, (layer, _)| all.with(layer));
            let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get().unsigned_abs() as usize;
            let target = Target { home: words[3].clone().into(), victim: words[4].parse().unwrap(), parent };
            let act = match (attack.prepare)(target) {
                Ok(act) => act,
                Err(error) => {
                    println!("unprepared {}", error.raw_os_error().unwrap_or(-1));
                    return true;
                }
            };
            let report = begin(&ENGINE, layers).unwrap().finish();
            let result = act();
            let number = result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0);
            println!("{number} {}", report.encode());
        }
        _ => return false,
    }
    true
}
