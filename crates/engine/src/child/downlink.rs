//! What the parent says, with the descriptors that ride on it.

use crate::protocol::{KindOf, Place, ProtocolError, ToChild};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_core::frame::Decoder;

/// Bytes that are read at a time, at most.
const STEP: usize = 16 << 10;

/// Descriptors that one message brings, at most.
const MOST: usize = 2;

/// The way from the parent.
pub(super) struct Downlink {
    socket: Arc<OwnedFd>,
    decoder: Decoder,
    descriptors: VecDeque<OwnedFd>,
    buffer: Box<[u8]>,
}

/// Why nothing more comes.
pub(super) enum Broken {
    /// The parent has closed it, or is gone.
    Ended,
    /// What came cannot be understood.
    Protocol(ProtocolError),
    /// Descriptors were lost, or came with what needs none.
    Descriptors,
    Io(io::Error),
}

impl Downlink {
    pub(super) fn new(socket: Arc<OwnedFd>) -> Self {
        let buffer = vec![0; STEP].into_boxed_slice();
        Self { socket, decoder: ToChild::decoder(), descriptors: VecDeque::new(), buffer }
    }

    /// To wait for what comes: with `poll`, since whoever waits in `recvmsg` is also woken by the parent's taking what
    /// was said to it, which holds up the parent for nothing.
    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Waits until there is something to hear.
    pub(super) fn wait(&self) -> Result<(), Broken> {
        match poll(&mut [PollFd::new(&*self.socket, PollFlags::IN)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Broken::Io(error.into())),
        }
    }

    /// The next message that has come, with its descriptors.
    pub(super) fn next(&mut self) -> Result<Option<(ToChild, Vec<OwnedFd>)>, Broken> {
        loop {
            if let Some(message) = self.decoder.message().map_err(|e| Broken::Protocol(e.into()))? {
                let message = ToChild::decode(message.kind, message.body).map_err(Broken::Protocol)?;
                let wanted = wanted(&message);
                if self.descriptors.len() < wanted {
                    return Err(Broken::Descriptors);
                }
                return Ok(Some((message, self.descriptors.drain(..wanted).collect())));
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Takes in what has come. Tells whether that was anything.
    fn read(&mut self) -> Result<bool, Broken> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = match recvmsg(&self.socket, &mut parts, &mut ancillary, flags) {
            Ok(received) => received,
            Err(rustix::io::Errno::AGAIN) => return Ok(false),
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(rustix::io::Errno::CONNRESET) => return Err(Broken::Ended),
            Err(error) => return Err(Broken::Io(error.into())),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if received.flags.contains(rustix::net::ReturnFlags::CTRUNC) {
            return Err(Broken::Descriptors);
        }
        if received.bytes == 0 {
            return Err(Broken::Ended);
        }
        self.decoder.feed(&self.buffer[..received.bytes]);
        Ok(true)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("it is gone"),
            // What could not be read may be a secret, and this is shown to people.
            Self::Protocol(ProtocolError::Body { kind, .. }) => {
                write!(f, "a message \"{kind}\" cannot be read")
            }
            Self::Protocol(error) => write!(f, "{error}"),
            Self::Descriptors => f.write_str("descriptors were lost"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

/// How many descriptors ride on a message.
fn wanted(message: &ToChild) -> usize {
    let place = match message {
        ToChild::Start { place, .. } => Some(place),
        ToChild::Prepared { place, .. } | ToChild::Verified { place, .. } => place.as_ref(),
        _ => None,
    };
    let count = match place {
        None | Some(Place::Nowhere | Place::Later { .. }) => 0,
        Some(Place::Stream { .. }) => 1,
        Some(Place::Part { part, .. }) => 1 + usize::from(part.recorded),
    };
    debug_assert!(message.descriptors().contains(&count), "{message:?}");
    count
}
