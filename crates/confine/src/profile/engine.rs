//! What the engine's process may do once it is locked down: talk to the network by TCP, and write to files that
//! it was handed. It knows no path.
//!
//! Its threads, its pipe, its runtime and its buffers are made before; its descriptors come over the socket at 3.
//! What the standard library does beyond this list fails with `EPERM` and is lived with: opening `/proc` for a
//! backtrace, asking whether standard error is a terminal, and `File::metadata`, for which the kernel is asked by
//! path even where the path is empty (`rustix::fs::fstat` asks without one).

use super::{Call, Limit, Profile, Right, Test, call};
use Test::{Is, Masked, Null, OwnProcess};
use landlock::{AccessFs, AccessNet, Scope};
use rustix::process::Resource;

/// A process that talks to the network by TCP and writes to the files whose descriptors it is handed.
///
/// It keeps the descriptors 0 to 3; 3 is its socket to the process that started it. No thread can be started once
/// the profile holds.
pub static ENGINE: Profile = Profile {
    name: "engine",
    descriptors: 4,
    limits: LIMITS,
    last_limits: LAST_LIMITS,
    files: FILES,
    ports: PORTS,
    sockets: SOCKETS,
    signals: SIGNALS,
    calls: CALLS,
    killed: KILLED,
};

static LIMITS: &[Limit] = &[
    Limit { resource: Resource::Core, most: 0, why: "a core holds logins and cookies" },
    Limit {
        resource: Resource::Memlock,
        most: 0,
        why: "nothing is locked in memory; rings and maps count here",
    },
    Limit { resource: Resource::Msgqueue, most: 0, why: "a message queue outlives who made it" },
];

static LAST_LIMITS: &[Limit] =
    &[Limit { resource: Resource::Nproc, most: 0, why: "no process and no thread; root is exempt" }];

static FILES: &[Right<AccessFs>] = &[
    Right { right: AccessFs::Execute, needed: true, why: "it starts no program" },
    Right { right: AccessFs::ReadFile, needed: true, why: "it reads no file but those it was handed" },
    Right { right: AccessFs::WriteFile, needed: true, why: "it writes to no file but those it was handed" },
    Right { right: AccessFs::Truncate, needed: true, why: "it cuts no file but those it was handed" },
    Right { right: AccessFs::ReadDir, needed: true, why: "it does not know what files there are" },
    Right { right: AccessFs::RemoveFile, needed: true, why: "it removes nothing" },
    Right { right: AccessFs::RemoveDir, needed: true, why: "it removes nothing" },
    Right { right: AccessFs::MakeReg, needed: true, why: "it makes no file" },
    Right { right: AccessFs::MakeDir, needed: true, why: "it makes no folder" },
    Right { right: AccessFs::MakeSym, needed: true, why: "it makes no link" },
    Right { right: AccessFs::MakeSock, needed: true, why: "it makes no socket with a name" },
    Right { right: AccessFs::MakeFifo, needed: true, why: "it makes no pipe with a name" },
    Right { right: AccessFs::MakeChar, needed: true, why: "it makes no device" },
    Right { right: AccessFs::MakeBlock, needed: true, why: "it makes no device" },
    Right { right: AccessFs::Refer, needed: true, why: "it moves nothing to another folder" },
    Right { right: AccessFs::IoctlDev, needed: true, why: "it speaks to no device" },
    Right {
        right: AccessFs::ResolveUnix,
        needed: false,
        why: "it speaks to no service of this machine over a socket with a name",
    },
];

static PORTS: &[Right<AccessNet>] = &[
    Right { right: AccessNet::BindTcp, needed: true, why: "nobody connects to it" },
    Right {
        right: AccessNet::BindUdp,
        needed: false,
        why: "it knows no UDP: names are resolved by who started it",
    },
    Right {
        right: AccessNet::ConnectSendUdp,
        needed: false,
        why: "it knows no UDP: names are resolved by who started it",
    },
];

static SOCKETS: &[Right<Scope>] = &[Right {
    right: Scope::AbstractUnixSocket,
    needed: true,
    why: "it speaks to no service of this machine",
}];

static SIGNALS: &[Right<Scope>] =
    &[Right { right: Scope::Signal, needed: true, why: "it ends no other process" }];

/// Pages that are code were there when it began.
const NO_CODE: &[&[Test]] = &[&[Masked(2, libc::PROT_EXEC as u32, 0)]];

static CALLS: &[Call] = &[
    // Bytes through descriptors that are there.
    call!(SYS_read, "frames, wake-ups, streams"),
    call!(SYS_readv, "TLS reads into two buffers"),
    call!(SYS_pread64, "bytes on the disk are compared with those of an answer"),
    call!(SYS_write, "frames, wake-ups, standard error"),
    call!(SYS_writev, "requests of several pieces; TLS"),
    call!(SYS_pwrite64, "bytes into the part file, the checkpoint"),
    call!(SYS_splice, "bytes from socket to file past our memory"),
    call!(SYS_close, "connections and files that are done"),
    call!(SYS_lseek, "a stream's place; holes of a file"),
    // The files that it was handed.
    call!(SYS_fstat, "how long a file is; names no path"),
    call!(SYS_fstatfs, "free room, the kind of file system"),
    call!(SYS_ftruncate, "the part file gets its length"),
    call!(
        SYS_fallocate,
        &[&[Masked(1, !(libc::FALLOC_FL_KEEP_SIZE as u32), 0)]],
        "room is reserved; nothing is cut out"
    ),
    call!(SYS_fdatasync, "bytes are made durable before their map"),
    call!(SYS_fsync, "bytes and length are made durable"),
    call!(SYS_sync_file_range, "writing to the disk begins early"),
    call!(
        SYS_fcntl,
        &[
            &[Is(1, libc::F_GETFL as u32)],
            &[Is(1, libc::F_SETFL as u32), Masked(2, libc::O_DIRECT as u32, 0)],
            &[Is(1, libc::F_GETFD as u32)],
            &[Is(1, libc::F_SETFD as u32)],
            &[Is(1, libc::F_DUPFD_CLOEXEC as u32)],
            &[Is(1, libc::F_GETPIPE_SZ as u32)],
            &[Is(1, libc::F_SETPIPE_SZ as u32)],
        ],
        "flags, copies and the size of pipes; not locks, leases or owners, which reach other processes"
    ),
    call!(
        SYS_ioctl,
        &[&[Is(1, libc::FIONREAD as u32)], &[Is(1, libc::FIONBIO as u32)]],
        "how much a socket holds, and whether it waits; no device is spoken to"
    ),
    // The network: TCP, outwards.
    call!(
        SYS_socket,
        &[
            &[Is(0, libc::AF_INET as u32), STREAM, Is(2, 0)],
            &[Is(0, libc::AF_INET as u32), STREAM, Is(2, libc::IPPROTO_TCP as u32)],
            &[Is(0, libc::AF_INET6 as u32), STREAM, Is(2, 0)],
            &[Is(0, libc::AF_INET6 as u32), STREAM, Is(2, libc::IPPROTO_TCP as u32)],
        ],
        "TCP over IPv4 and IPv6; no other family reaches the network, and many reach the kernel"
    ),
    call!(SYS_connect, "to servers and proxies"),
    call!(
        SYS_setsockopt,
        &[
            &[Is(1, libc::SOL_SOCKET as u32), Is(2, libc::SO_RCVBUF as u32)],
            &[Is(1, libc::SOL_SOCKET as u32), Is(2, libc::SO_RCVLOWAT as u32)],
            &[Is(1, libc::IPPROTO_TCP as u32), Is(2, libc::TCP_NODELAY as u32)],
        ],
        "sizes, delays and patience; no filters, no other protocols on top of a connection"
    ),
    call!(
        SYS_getsockopt,
        &[
            &[Is(1, libc::SOL_SOCKET as u32), Is(2, libc::SO_ERROR as u32)],
            &[Is(1, libc::SOL_SOCKET as u32), Is(2, libc::SO_RCVBUF as u32)],
            &[Is(1, libc::IPPROTO_TCP as u32), Is(2, libc::TCP_INFO as u32)],
        ],
        "whether a connection came about, its round trip, its buffers"
    ),
    call!(SYS_getsockname, "which address a connection has here"),
    call!(SYS_getpeername, "which address was connected to"),
    call!(SYS_shutdown, "an orderly end of a connection"),
    call!(SYS_recvfrom, "answers of servers"),
    call!(SYS_recvmsg, "frames with the descriptors that it is handed"),
    call!(SYS_sendto, &[&[Null(4)]], "requests; never to an address, which would connect without connect"),
    // Waiting.
    call!(SYS_epoll_create1, "a runtime waits for sockets"),
    call!(SYS_epoll_ctl, "a runtime waits for sockets"),
    call!(SYS_epoll_pwait, "a runtime waits for sockets"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_epoll_wait, "a runtime waits for sockets"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_poll, "the control thread waits for a frame"),
    call!(SYS_ppoll, "the control thread waits for a frame"),
    call!(SYS_eventfd2, "one thread wakes another"),
    call!(SYS_timerfd_create, "a wait with an end"),
    call!(SYS_timerfd_settime, "a wait with an end"),
    call!(SYS_futex, "locks and channels between threads"),
    call!(SYS_nanosleep, "a wait with an end"),
    call!(SYS_clock_nanosleep, "a wait with an end"),
    call!(SYS_restart_syscall, "the kernel goes on with a wait after a stop"),
    call!(SYS_sched_yield, "the control thread lets others run first"),
    call!(SYS_pipe2, "the pipe that splice goes through; made anew after an error"),
    // Time, dice, and who it is.
    call!(SYS_clock_gettime, "where the clock is not mapped into the process"),
    call!(SYS_clock_getres, "where the clock is not mapped into the process"),
    call!(SYS_gettimeofday, "where the clock is not mapped into the process"),
    call!(SYS_getrandom, "keys of TLS, seeds of tables, delays of retries"),
    call!(SYS_getpid, "who aborts names itself"),
    call!(SYS_gettid, "who aborts names itself"),
    call!(SYS_geteuid, "how much of the free room is for it"),
    call!(SYS_getrusage, "its own processor time and peak of memory"),
    call!(SYS_sched_getaffinity, "on how many processors it runs"),
    // Memory: never code.
    call!(SYS_brk, "the heap grows and shrinks"),
    call!(
        SYS_mmap,
        &[&[
            Masked(2, libc::PROT_EXEC as u32, 0),
            Masked(3, (libc::MAP_ANONYMOUS | libc::MAP_SHARED) as u32, libc::MAP_ANONYMOUS as u32),
        ]],
        "the heap grows; nothing that is written is ever run, and no file is written by way of memory"
    ),
    call!(SYS_mprotect, NO_CODE, "the heap grows; nothing that was written is ever run"),
    call!(SYS_munmap, "the heap shrinks, threads end"),
    call!(SYS_mremap, "large buffers grow; what they may do stays"),
    call!(SYS_madvise, "memory is given back"),
    // Signals to itself, and ends.
    call!(SYS_rt_sigaction, "an abort puts its signal back to normal"),
    call!(SYS_rt_sigprocmask, "threads end, an abort is not held up"),
    call!(SYS_rt_sigreturn, "the way back from a handler"),
    call!(SYS_sigaltstack, "threads that end give their spare stack back"),
    call!(SYS_tgkill, &[&[OwnProcess(0)]], "an abort is a signal to itself, and tells of itself by it"),
    call!(SYS_exit, "a thread ends"),
    call!(SYS_exit_group, "the process ends"),
];

/// Whatever its flags, the kind of socket is a stream.
const STREAM: Test = Masked(1, 0xf, libc::SOCK_STREAM as u32);

static KILLED: &[Call] = &[
    call!(SYS_execve, "another program"),
    call!(SYS_execveat, "another program"),
    call!(SYS_ptrace, "control of another process"),
    call!(SYS_process_vm_readv, "another process's memory"),
    call!(SYS_process_vm_writev, "another process's memory"),
    call!(SYS_process_madvise, "another process's memory"),
    call!(SYS_pidfd_getfd, "another process's descriptors"),
    call!(SYS_kcmp, "another process's secrets"),
    call!(SYS_bpf, "code in the kernel"),
    call!(SYS_perf_event_open, "other processes' doings, a large part of the kernel"),
    call!(SYS_userfaultfd, "holds the kernel still in the middle of a copy"),
    call!(SYS_io_uring_setup, "does what other calls are refused for"),
    call!(SYS_io_uring_enter, "does what other calls are refused for"),
    call!(SYS_io_uring_register, "does what other calls are refused for"),
    call!(SYS_add_key, "the kernel's keys"),
    call!(SYS_request_key, "the kernel's keys; starts a program as root"),
    call!(SYS_keyctl, "the kernel's keys"),
    call!(SYS_unshare, "all rights in a namespace of its own"),
    call!(SYS_setns, "another namespace"),
    call!(SYS_chroot, "another root"),
    call!(SYS_pivot_root, "another root"),
    call!(SYS_mount, "what files there are"),
    call!(SYS_umount2, "what files there are"),
    call!(SYS_open_tree, "what files there are"),
    call!(SYS_move_mount, "what files there are"),
    call!(SYS_fsopen, "what files there are"),
    call!(SYS_fsconfig, "what files there are"),
    call!(SYS_fsmount, "what files there are"),
    call!(SYS_fspick, "what files there are"),
    call!(SYS_mount_setattr, "what files there are"),
    call!(SYS_open_by_handle_at, "a file past every folder above it"),
    call!(SYS_name_to_handle_at, "a file past every folder above it"),
    call!(SYS_init_module, "code in the kernel"),
    call!(SYS_finit_module, "code in the kernel"),
    call!(SYS_delete_module, "code in the kernel"),
    call!(SYS_kexec_load, "another kernel"),
    call!(SYS_kexec_file_load, "another kernel"),
    call!(SYS_reboot, "the whole machine"),
    call!(SYS_swapon, "the whole machine"),
    call!(SYS_swapoff, "the whole machine"),
    call!(SYS_settimeofday, "the whole machine"),
    call!(SYS_clock_settime, "the whole machine"),
    call!(SYS_acct, "the whole machine"),
    call!(SYS_quotactl, "the whole machine"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_iopl, "the hardware"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_ioperm, "the hardware"),
    #[cfg(target_arch = "x86_64")]
    call!(SYS_modify_ldt, "a corner of the kernel with a history of holes"),
    call!(SYS_personality, "turns every readable page into code"),
];
