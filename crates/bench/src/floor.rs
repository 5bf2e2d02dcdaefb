//! What moving the bytes costs at the least: bare loops, one thread, nothing checked or remembered.

use clap::{Args, ValueEnum};
use rustix::event::epoll;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// What is read from a socket or written to a file at once.
const BUFFER: usize = 512 << 10;
const PIPE: usize = 1 << 20;

/// Which loop.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Floor {
    /// Receive and throw away
    Discard,
    /// Write only; nothing is received
    Write,
    /// Receive 512 KiB at a time and write them at their place
    Copy,
    /// Socket, pipe of 1 MiB, file: within the kernel
    Splice,
}

impl Floor {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Discard, Self::Write, Self::Copy, Self::Splice];

    /// Its word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Discard => "discard",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Splice => "splice",
        }
    }

    /// Whether there is a file afterwards that has the bytes of the source.
    pub(crate) fn fetches(self) -> bool {
        matches!(self, Self::Copy | Self::Splice)
    }
}

/// What a loop is told.
#[derive(Args, Debug)]
pub(crate) struct FloorArgs {
    /// Which loop
    #[arg(value_enum)]
    pub(crate) floor: Floor,
    /// The server
    #[arg(long)]
    pub(crate) server: SocketAddr,
    /// The path of the file there
    #[arg(long)]
    pub(crate) path: String,
    /// How long it is
    #[arg(long)]
    pub(crate) size: u64,
    /// How many connections to divide it between
    #[arg(long, default_value_t = 1)]
    pub(crate) connections: u64,
    /// The file to write
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

/// One connection, and the place of its next byte.
struct Part {
    socket: TcpStream,
    at: u64,
    end: u64,
}

/// Runs a loop to its end.
///
/// # Errors
/// Those of the network and the disk.
pub(crate) fn run(args: &FloorArgs) -> io::Result<()> {
    let file = match &args.out {
        Some(path) if args.floor != Floor::Discard => {
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
            // As a download does where that takes no time; tmpfs would fill its memory at once.
            if path.parent().is_some_and(|folder| crate::files::kind(folder) != "tmpfs") {
                let _ = fallocate(&file, FallocateFlags::empty(), 0, args.size.max(1));
            }
            Some(file)
        }
        _ => None,
    };
    let mut buffer = vec![0; BUFFER];
    if args.floor == Floor::Write {
        let mut at = 0;
        while let (Some(file), true) = (&file, at < args.size) {
            let count = usize::try_from(args.size - at).unwrap_or(BUFFER).min(BUFFER);
            file.write_all_at(&buffer[..count], at)?;
            at += count as u64;
        }
        return Ok(());
    }
    let mut parts = open(args)?;
    let queue = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, part) in parts.iter().enumerate() {
        epoll::add(&queue, &part.socket, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
    }
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    if args.floor == Floor::Splice {
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe.1, PIPE);
    }
    let mut open = parts.len();
    let mut ready =
        [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 64];
    while open > 0 {
        let count = match epoll::wait(&queue, &mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        for event in &ready[..count] {
            let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let Some(part) = parts.get_mut(index).filter(|part| part.at < part.end) else { continue };
            let moved = match args.floor {
                Floor::Splice => splice(part, &pipe, file.as_ref()),
                _ => copy(part, &mut buffer, file.as_ref()),
            };
            match moved {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(moved) => part.at += moved,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if part.at == part.end {
                epoll::delete(&queue, &part.socket)?;
                open -= 1;
            }
        }
    }
    Ok(())
}

fn copy(part: &mut Part, buffer: &mut [u8], file: Option<&File>) -> io::Result<u64> {
    let most = usize::try_from(part.end - part.at).unwrap_or(BUFFER).min(buffer.len());
    let count = part.socket.read(&mut buffer[..most])?;
    if let Some(file) = file {
        file.write_all_at(&buffer[..count], part.at)?;
    }
    Ok(count as u64)
}

fn splice(part: &mut Part, pipe: &(OwnedFd, OwnedFd), file: Option<&File>) -> io::Result<u64> {
    let Some(file) = file else { return Err(io::ErrorKind::InvalidInput.into()) };
    let most = usize::try_from(part.end - part.at).unwrap_or(PIPE).min(PIPE);
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    let filled = rustix::pipe::splice(&part.socket, None, &pipe.1, None, most, flags)?;
    let (mut at, mut left) = (part.at, filled);
    while left > 0 {
        let moved = rustix::pipe::splice(&pipe.0, None, file, Some(&mut at), left, SpliceFlags::MOVE)?;
        if moved == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        left -= moved;
    }
    Ok(filled as u64)
}

/// Asks for the parts, and reads up to the bodies.
fn open(args: &FloorArgs) -> io::Result<Vec<Part>> {
    let count = args.connections.clamp(1, args.size.max(1));
    let each = args.size.div_ceil(count);
    let mut parts = Vec::new();
    let mut at = 0;
    while at < args.size {
        let end = (at + each).min(args.size);
        let mut socket = TcpStream::connect(args.server)?;
        let head = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nRange: bytes={at}-{}\r\n\r\n",
            args.path,
            args.server,
            end - 1
        );
        socket.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        // A byte at a time, so that none of the body is taken.
        while !answer.ends_with(b"\r\n\r\n") && answer.len() < 8192 {
            let mut byte = [0];
            socket.read_exact(&mut byte)?;
            answer.push(byte[0]);
        }
        if !answer.starts_with(b"HTTP/1.1 206 ") {
            return Err(io::Error::other("the server did not answer with the part asked for"));
        }
        socket.set_nonblocking(true)?;
        parts.push(Part { socket, at, end });
        at = end;
    }
    Ok(parts)
}
