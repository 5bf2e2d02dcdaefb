//! What a process that is locked down can still do, and a few things that no single attack shows.

use crate::sys::call;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
};
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::sync_channel;
use tidegate_confine::probe::{Examination, Proof};
use tidegate_confine::spawn::{Exit, Process, Program, Start, inherited};
use tidegate_confine::{ENGINE, Layer, Layers, Level, LockError, State, begin};

/// What the server at the other end says to whoever connects, after having heard as much.
const ANSWER: &[u8] = b"sixteen bytes...";

pub(crate) fn what_the_engine_does_still_goes() {
    let program = Program::this().unwrap();
    let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // Where there is no IPv6 this is one more of IPv4.
    let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0))
        .unwrap_or_else(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let addresses = [v4.local_addr().unwrap(), v6.local_addr().unwrap()];
    for listener in [v4, v6] {
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut heard) = (stream.unwrap(), [0; ANSWER.len()]);
                stream.read_exact(&mut heard).unwrap();
                stream.write_all(ANSWER).unwrap();
            }
        });
    }
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let words = addresses.map(|address| CString::new(address.to_string()).unwrap());
    let mut process = Start::new(c"at-work")
        .argument(&words[0])
        .argument(&words[1])
        .descriptor(1, writer.as_fd())
        .descriptor(2, io::stderr().as_fd())
        .descriptor(3, theirs.as_fd())
        .spawn(&program)
        .unwrap();
    drop((writer, theirs));
    // The file that it is handed when it is locked down already.
    let file = tempfile::tempfile().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&files)));
    let flags = rustix::net::SendFlags::empty();
    rustix::net::sendmsg(&ours, &[IoSlice::new(b"file")], &mut ancillary, flags).unwrap();

    let mut answer = String::new();
    File::from(reader).read_to_string(&mut answer).unwrap();
    assert_eq!(process.wait().unwrap(), Exit::Code(0), "{answer}");
    let failed: Vec<&str> = answer.lines().filter(|line| !line.ends_with(": done")).collect();
    assert!(failed.is_empty() && answer.lines().count() > 25, "{answer}");
    let mut bytes = vec![0; 64 + ANSWER.len()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [&[7; 64], ANSWER].concat(), "what was written is there");
}

/// What an engine does, in a process that was started for it.
fn work(addresses: &[SocketAddr]) {
    let say = |what: &str, result: io::Result<()>| match result {
        Ok(()) => println!("{what}: done"),
        Err(error) => println!("{what}: {error}"),
    };
    let half = begin(&ENGINE, Layers::ALL).unwrap();
    let frames = inherited(3).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A thread that was there before, and is at its work when the filter comes.
    let (ask, asked) = sync_channel::<SocketAddr>(0);
    let (tell, told) = sync_channel(0);
    let (ready, arrived) = sync_channel(0);
    let thread = std::thread::spawn(move || {
        ready.send(()).unwrap();
        for address in asked {
            tell.send(exchange(TcpStream::connect(address))).unwrap();
        }
    });
    arrived.recv().unwrap();
    let report = half.finish();
    // Of what this kernel has nothing is left out; without seccomp there would be little to hinder it.
    let locked = report.state(Layer::Calls) == State::Took;
    say("be locked down", if locked { Ok(()) } else { Err(io::Error::other(report.encode())) });

    let file = received(&frames).unwrap();
    for address in addresses {
        say("connect", exchange(TcpStream::connect(address)));
        ask.send(*address).unwrap();
        say("connect on a thread that was there before", told.recv().unwrap());
    }
    drop(ask);
    say("end a thread", thread.join().map_err(|_| io::ErrorKind::Other.into()));
    say("speak by the runtime", runtime.block_on(by_the_runtime(addresses[0])));

    say("pwrite", file.write_all_at(&[7; 64], 0));
    let mut back = [0; 64];
    say("pread", file.read_exact_at(&mut back, 0).and_then(|()| same(&back, &[7; 64])));
    say("splice from a socket to the file", splice(addresses[0], &file));
    say("fallocate", file_call(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20)));
    say(
        "fallocate beyond the end",
        file_call(rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 2 << 20)),
    );
    say("ftruncate", file.set_len(1 << 16));
    say("fdatasync", file.sync_data());
    say("fsync", file.sync_all());
    let early = [file.as_raw_fd() as usize, 0, 0, libc::SYNC_FILE_RANGE_WRITE as usize];
    say("sync_file_range", call(libc::SYS_sync_file_range, &early).map(drop));
    say("fstat", file_call(rustix::fs::fstat(&file).map(|stat| assert_eq!(stat.st_size, 1 << 16))));
    say("fstatfs", file_call(rustix::fs::fstatfs(&file).map(drop)));
    say("lseek", file_call(rustix::fs::seek(&file, SeekFrom::Start(0)).map(drop)));
    say("dup", file.try_clone().map(drop));

    let mut time = [0u64; 2];
    say("read the clock", call(libc::SYS_clock_gettime, &[1, time.as_mut_ptr() as usize]).map(drop));
    let mut dice = [0u8; 8];
    say("throw dice", call(libc::SYS_getrandom, &[dice.as_mut_ptr() as usize, 8, 0]).map(drop));
    say("rest", call(libc::SYS_nanosleep, &[[0u64; 2].as_ptr() as usize, 0]).map(drop));
    say("let others run", call(libc::SYS_sched_yield, &[]).map(drop));
    say("make an eventfd", call(libc::SYS_eventfd2, &[0, 0]).map(drop));
    say("make a timerfd", call(libc::SYS_timerfd_create, &[1, 0]).map(drop));
    say("make an epoll", call(libc::SYS_epoll_create1, &[0]).map(drop));
    say("grow and shrink the heap", {
        let mut large = vec![1u8; 64 << 20];
        large.resize(96 << 20, 2);
        large.shrink_to_fit();
        same(&large[..1], &[1])
    });
    say(
        "find a refusal an error, not an end",
        match std::fs::read("/etc/hostname") {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            other => Err(io::Error::other(format!("{other:?}"))),
        },
    );
    say("go on after a panic", {
        std::panic::set_hook(Box::new(|_| ()));
        std::panic::catch_unwind(|| panic!("on purpose"))
            .map_or(Ok(()), |()| Err(io::ErrorKind::Other.into()))
    });
}

fn file_call(result: rustix::io::Result<()>) -> io::Result<()> {
    Ok(result?)
}

fn same(one: &[u8], two: &[u8]) -> io::Result<()> {
    if one == two { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Says something over a connection and hears the answer.
fn exchange(stream: io::Result<TcpStream>) -> io::Result<()> {
    let mut stream = stream?;
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 1 << 16)?;
    stream.take_error()?;
    stream.peer_addr()?;
    stream.write_all(ANSWER)?;
    let mut heard = [0; ANSWER.len()];
    stream.read_exact(&mut heard)?;
    stream.shutdown(std::net::Shutdown::Both).or_else(|error| match error.kind() {
        // The other side has gone already.
        io::ErrorKind::NotConnected => Ok(()),
        _ => Err(error),
    })?;
    same(&heard, ANSWER)
}

async fn by_the_runtime(address: SocketAddr) -> io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let long = std::time::Duration::from_secs(60);
    let exchange = async {
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        stream.write_all(ANSWER).await?;
        let mut heard = [0; ANSWER.len()];
        stream.read_exact(&mut heard).await?;
        same(&heard, ANSWER)
    };
    tokio::time::timeout(long, exchange).await?
}

/// Moves an answer into the file behind the first 64 bytes.
fn splice(address: SocketAddr, file: &File) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(ANSWER)?;
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    rustix::pipe::fcntl_setpipe_size(&writer, 1 << 16)?;
    let (mut left, mut at) = (ANSWER.len(), 64);
    while left > 0 {
        let moved = rustix::pipe::splice(&stream, None, &writer, None, left, SpliceFlags::MOVE)?;
        assert!(moved > 0, "the answer is whole");
        let mut within = moved;
        while within > 0 {
            within -= rustix::pipe::splice(&reader, None, file, Some(&mut at), within, SpliceFlags::MOVE)?;
        }
        left -= moved;
    }
    Ok(())
}

/// The file that comes with a frame.
fn received(frames: &OwnedFd) -> io::Result<File> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut frame = [0; 4];
    rustix::net::recvmsg(
        frames,
        &mut [IoSliceMut::new(&mut frame)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let files = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    files.map(File::from).ok_or_else(|| io::Error::other("no file came"))
}

/// Starts this program under a name, with its standard output to be read.
fn started(name: &std::ffi::CStr) -> (Process, File) {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let errors = io::stderr();
    let start = Start::new(name).descriptor(1, writer.as_fd()).descriptor(2, errors.as_fd());
    (start.spawn(&Program::this().unwrap()).unwrap(), reader.into())
}

fn told_by(name: &std::ffi::CStr) -> String {
    let (mut process, mut reader) = started(name);
    let mut answer = String::new();
    reader.read_to_string(&mut answer).unwrap();
    assert_eq!(process.wait().unwrap(), Exit::Code(0), "{answer}");
    answer.trim().to_owned()
}

fn opens(path: &str) -> i32 {
    File::open(path).map_or_else(|error| error.raw_os_error().unwrap(), |_| 0)
}

pub(crate) fn threads_that_are_there_before_are_locked_down_too() {
    assert_eq!(told_by(c"thread-before"), format!("0 {} {}", libc::EPERM, libc::EPERM));
}

fn thread_before() {
    // By seccomp alone, so that nothing else can be what refuses it.
    let half = begin(&ENGINE, Layers::NONE.with(Layer::NoNewPrivileges).with(Layer::Calls)).unwrap();
    let (ask, asked) = sync_channel::<()>(0);
    let (tell, told) = sync_channel(0);
    std::thread::spawn(move || asked.into_iter().for_each(|()| tell.send(opens("/")).unwrap()));
    let try_there = || {
        ask.send(()).unwrap();
        told.recv().unwrap()
    };
    let before = try_there();
    half.finish();
    println!("{before} {} {}", try_there(), opens("/"));
}

pub(crate) fn a_process_with_other_threads_is_not_locked_down_in_part() {
    assert_eq!(told_by(c"not-alone"), "true 0");
}

fn not_alone() {
    let (end, wait) = sync_channel::<()>(0);
    let thread = std::thread::spawn(move || wait.recv());
    let refused = matches!(begin(&ENGINE, Layers::ALL), Err(LockError::Threads(2)));
    println!("{refused} {}", opens("/"));
    drop(end);
    let _ = thread.join().unwrap();
}

pub(crate) fn a_locked_down_process_cannot_be_looked_into_by_its_own_user() {
    for (name, expected) in [(c"open-book", 0), (c"closed-book", libc::EACCES)] {
        let (process, mut reader) = started(name);
        reader.read_exact(&mut [0]).unwrap();
        let error = opens(&format!("/proc/{}/environ", process.id()));
        // Root looks into everything.
        let expected = if rustix::process::geteuid().is_root() { 0 } else { expected };
        assert_eq!(error, expected, "{name:?}");
    }
}

pub(crate) fn each_layer_is_shown_at_work_by_the_probes() {
    let examination = Examination::of(&Program::this().unwrap()).unwrap();
    println!("    level {}, {:?}", examination.level(), examination.namespaces);
    assert_eq!(examination.broken().collect::<Vec<_>>(), []);
    let root = rustix::process::geteuid().is_root();
    for (layer, proof) in &examination.proofs {
        println!("    {layer}: {proof:?}, {}", examination.report.state(*layer));
        let holds = examination.report.state(*layer) == State::Took;
        match (layer, proof) {
            // What holds for this process already, or what it has not got, cannot be shown to go.
            (Layer::NoNewPrivileges, Proof::Moot(_)) => assert!(rustix::thread::no_new_privs().unwrap()),
            (Layer::Capabilities, Proof::Moot(_)) => {
                use rustix::thread::CapabilitySet;
                let has = rustix::thread::capabilities(None).unwrap().effective;
                assert!(!has.contains(CapabilitySet::SYS_CHROOT));
            }
            (Layer::Limits, Proof::Moot(_)) => {
                let most = rustix::process::getrlimit(rustix::process::Resource::Msgqueue).maximum;
                assert_eq!(most, Some(0));
            }
            // Root is exempt.
            (Layer::Processes, Proof::Open) => assert!(root),
            (_, proof) => assert_eq!(*proof == Proof::Shown, holds, "{layer}: {proof:?}"),
        }
    }
    if examination.report.is_whole() {
        assert!(examination.level() >= Level::One);
    }
}

/// Does what this process was started for, if it was for one of these tests.
pub(crate) fn run_if_asked() -> bool {
    let mut words = std::env::args();
    match words.next().unwrap_or_default().as_str() {
        "at-work" => work(&words.map(|word| word.parse().unwrap()).collect::<Vec<_>>()),
        "thread-before" => thread_before(),
        "not-alone" => not_alone(),
        name @ ("open-book" | "closed-book") => {
            let layers = Layers::ALL.without(Layer::Calls);
            let layers = if name == "open-book" { layers.without(Layer::NotDumpable) } else { layers };
            begin(&ENGINE, layers).unwrap().finish();
            println!(".");
            wait_for_ever();
        }
        "waits" => wait_for_ever(),
        _ => return false,
    }
    true
}

/// Until it is killed: nobody wakes it.
pub(crate) fn wait_for_ever() {
    let _ = rustix::event::poll(&mut [], None);
}
