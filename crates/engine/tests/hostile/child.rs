//! The process. Which test it is for it learns from its parent's environment, and how hostile it is to be in it from
//! the user agent of its hello.

use super::{alone, lies, says, silences};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use tidegate_core::frame::Decoder;
use tidegate_core::message::Proof;
use tidegate_core::transfer::Preparation;
use tidegate_core::{Code, DownloadId, Failure, Identity, SpanSet};
use tidegate_engine::disk::OsDisk;
use tidegate_engine::part_file::PartFile;
use tidegate_engine::protocol::{Cold, FromChild, PartState, Place, Saved, Setup, ToChild, VERSION};

/// Is the process of a test, until its end.
pub(crate) fn be() -> ExitCode {
    let generation = generation();
    match alone::name().as_str() {
        "a_spare_that_speaks_is_ended_and_nobody_notices" => says::be_a_spare(generation),
        "one_that_is_never_ready_is_given_up_with_a_reason" => silences::be_never_ready(),
        "one_that_speaks_another_version_is_given_up_with_a_reason" => silences::be_of_another_version(),
        "one_that_does_not_listen_holds_up_nobody_and_is_ended" => silences::be_deaf(generation),
        "one_that_says_that_it_is_alive_without_having_listened_is_ended" => {
            silences::be_a_parrot(generation)
        }
        "one_that_gives_nothing_back_is_ended_when_its_download_is_to_go" => silences::be_a_miser(generation),
        "one_that_listens_late_is_left_alone" => silences::be_late(),
        "where_there_will_be_no_other_each_download_is_told" => silences::be_the_last(generation),
        name => {
            let (line, setup) = Line::after_hello();
            match name {
                name if name.contains("flood") || name.contains("descriptors") => says::be(line, &setup),
                "whatever_no_process_says_ends_it_and_fails_its_download" => says::violate(line, &setup),
                _ => lies::be(line, &setup),
            }
        }
    }
    ExitCode::SUCCESS
}

/// Is an honest one.
pub(crate) fn be_honest() {
    let _ = tidegate_engine::run_if_child();
}

/// Which process of this test it is, from 1.
fn generation() -> u64 {
    let path = alone::folder().join("generations");
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(b"+").unwrap();
    file.metadata().unwrap().len()
}

/// The way to the parent.
pub(crate) struct Line {
    socket: UnixStream,
    decoder: Decoder,
    descriptors: VecDeque<OwnedFd>,
}

/// A part that was lent.
pub(crate) struct Lent {
    pub(crate) file: File,
    pub(crate) checkpoint: Option<File>,
    pub(crate) state: PartState,
}

impl Line {
    pub(crate) fn open() -> Self {
        let socket = tidegate_confine::spawn::inherited(3).unwrap().into();
        Self { socket, decoder: ToChild::decoder(), descriptors: VecDeque::new() }
    }

    pub(crate) fn say_ready(&mut self, version: u32) {
        self.say(&FromChild::Ready { version, layers: Vec::new(), missing: Vec::new() });
    }

    /// One that is ready and has heard how to be.
    pub(crate) fn after_hello() -> (Self, Setup) {
        let mut line = Self::open();
        line.say_ready(VERSION);
        let Some((ToChild::Hello { setup, .. }, _)) = line.hear() else { panic!("no hello") };
        (line, setup)
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Says something, as long as anybody listens.
    pub(crate) fn say(&mut self, message: &FromChild) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.say_bytes(&bytes);
    }

    pub(crate) fn say_bytes(&mut self, bytes: &[u8]) {
        if self.socket.write_all(bytes).is_err() {
            // Whoever breaks off has heard enough.
            std::process::abort();
        }
    }

    pub(crate) fn tell(&mut self, id: DownloadId, message: Cold) {
        self.say(&FromChild::Cold { id, message });
    }

    /// The next message, and the descriptors that came so far; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<(ToChild, Vec<OwnedFd>)> {
        loop {
            if let Some(message) = self.decoder.message().unwrap() {
                let message = ToChild::decode(message.kind, message.body).unwrap();
                return Some((message, self.descriptors.drain(..).collect()));
            }
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let (mut ancillary, mut buffer) = (RecvAncillaryBuffer::new(&mut space), [0; 4096]);
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let count = recvmsg(self.socket.as_fd(), &mut parts, &mut ancillary, flags).ok()?.bytes;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    self.descriptors.extend(descriptors);
                }
            }
            if count == 0 {
                return None;
            }
            self.decoder.feed(&buffer[..count]);
        }
    }

    /// The next message that is not only a question whether it is alive and well, which is answered.
    pub(crate) fn hear(&mut self) -> Option<(ToChild, Vec<OwnedFd>)> {
        loop {
            match self.next()? {
                (ToChild::Ping { call }, _) => self.say(&FromChild::Pong { call, at_ns: 0 }),
                (ToChild::Save { call, .. }, _) => self.say(&FromChild::Saved { call, result: Saved::Gone }),
                (ToChild::Snapshot { call }, _) => {
                    let snapshot = tidegate_core::message::Snapshot::default();
                    self.say(&FromChild::Snapshot { call, snapshot });
                }
                (ToChild::Progress { call, .. }, _) => {
                    self.say(&FromChild::Progress { call, progress: None })
                }
                heard => return Some(heard),
            }
        }
    }

    /// Answers what it is asked until nothing has come for as long as its socket waits.
    pub(crate) fn answer_for_a_moment(&mut self) {
        while let Some((message, _)) = self.hear() {
            drop(message);
        }
    }

    /// Waits for a download, or for the end.
    pub(crate) fn start(&mut self) -> DownloadId {
        loop {
            match self.hear() {
                Some((ToChild::Start { id, .. }, _)) => return id,
                Some(_) => {}
                None => std::process::abort(),
            }
        }
    }

    /// Says what file it is, and takes its part.
    pub(crate) fn prepare(&mut self, id: DownloadId, preparation: Preparation) -> Lent {
        self.tell(id, Cold::Turn(1));
        self.tell(id, Cold::Prepare { preparation: Box::new(preparation), doubts: 0 });
        loop {
            match self.hear() {
                Some((ToChild::Prepared { place: Some(Place::Part { part, .. }), .. }, descriptors)) => {
                    let mut files = descriptors.into_iter().map(File::from);
                    let file = files.next().unwrap();
                    return Lent { file, checkpoint: files.next(), state: part };
                }
                Some(_) => {}
                None => std::process::abort(),
            }
        }
    }

    /// Says that all is there.
    pub(crate) fn verify(&mut self, id: DownloadId, identity: Identity, have: SpanSet) {
        self.tell(id, Cold::Returned { doubts: 0, have });
        self.tell(id, Cold::Turn(2));
        let received = identity.length.unwrap();
        let proof = Proof::Answers;
        self.tell(id, Cold::Verify { identity, digests: Vec::new(), proof, received });
    }

    /// Gives the download up with these words.
    pub(crate) fn give_up(&mut self, id: DownloadId, why: &str) {
        self.tell(id, Cold::GiveUp(Failure::new(Code::Internal, why)));
    }

    /// Lets the download go when it is to go, and waits for the end.
    pub(crate) fn wind_up(&mut self) {
        while let Some((message, _)) = self.hear() {
            match message {
                ToChild::Over { id } => self.tell(id, Cold::Freed),
                // It has its part again, and nothing better to do with it.
                ToChild::Verified { id, place: Some(_), .. } => {
                    self.tell(id, Cold::Returned { doubts: 0, have: SpanSet::new() });
                    self.give_up(id, "found out");
                }
                _ => {}
            }
        }
    }
}

impl Lent {
    /// As the engine has it.
    pub(crate) fn open(self) -> PartFile<OsDisk> {
        PartFile::from_state(OsDisk::received(self.file, self.checkpoint), self.state)
    }
}

/// A file of so many bytes.
pub(crate) fn identity(length: u64) -> Identity {
    Identity { length: Some(length), ..Identity::default() }
}

/// A new file of so many bytes.
pub(crate) fn preparation(length: u64) -> Preparation {
    Preparation {
        identity: identity(length),
        restart: None,
        disposition: None,
        content_type: None,
        url: "http://127.0.0.1:9/f".parse().unwrap(),
        resumable: true,
        decoded: false,
        unproved: false,
        digests: Vec::new(),
    }
}
