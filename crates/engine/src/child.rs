//! The engine's process: talks to strangers, and can do nothing else.
//!
//! It is started by [`crate::supervisor`] with a socket and an empty environment, locks itself down before it hears
//! anything, and then runs the same control thread and data threads as an engine in the program's own process.
//! What it may touch of the machine's files is what it is handed as open descriptors.
//!
//! Its threads are all there before the lock-down, since there can be none after it: those that are not needed yet
//! wait. The main thread becomes the control thread, reads what the parent says ([`ear`]), and never waits for a disk.

mod downlink;
mod ear;
mod keeper;
mod strangers;
mod uplink;

use crate::config::Config;
use crate::connect::Network;
use crate::disk::OsDisk;
use crate::engine::{Asked, Back, Control, Disk, FromCold, Inbox, Reply, Start};
use crate::part_file::PartFile;
use crate::protocol::{FromChild, KindOf, Place, Setup, ToChild, VERSION};
use crate::target::{StreamTarget, Target};
use crate::threads::Threads;
use downlink::{Broken, Downlink};
use ear::{Bell, Ear, End};
use keeper::Keeper;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use strangers::{AskParent, AskRoots};
use tidegate_confine::{ENGINE, Layers, State, Why};
use tidegate_core::DownloadId;
use tidegate_core::message::Snapshot;
use uplink::Uplink;

/// What such a process is called, whatever its file's name is.
pub(crate) const NAME: &CStr = c"tidegate";

/// The argument that makes a program one.
pub(crate) const ARGUMENT: &CStr = c"engine";

/// The number of its socket.
pub(crate) const SOCKET: RawFd = 3;

/// Threads that wait for work when the process is locked down: the one that writes to the parent, the keeper; and for
/// each disk two, one that writes and one that waits for syncs.
const THREADS: usize = 2 + 2 * 8;

/// If this program was started to be the engine's process, is that until its end, and returns how it ended.
///
/// To be called as the first thing in `main`, while there is one thread and nothing is open: in every program that
/// uses `Engine::start_child` without naming another one. It does nothing in a program that was started
/// by anybody else.
#[must_use = "the program is to end with this"]
pub fn run_if_child() -> Option<ExitCode> {
    if !is_wanted() {
        return None;
    }
    let socket = tidegate_confine::spawn::inherited(SOCKET).ok()?;
    rustix::net::sockopt::socket_type(&socket)
        .ok()
        .filter(|kind| *kind == rustix::net::SocketType::STREAM)?;
    Some(run(socket, Layers::ALL))
}

/// Whether this process was started to be an engine's.
pub(crate) fn is_wanted() -> bool {
    let mut arguments = std::env::args_os().skip(1);
    let asked = arguments.next().is_some_and(|word| word.as_encoded_bytes() == ARGUMENT.to_bytes());
    asked && arguments.next().is_none() && std::env::vars_os().next().is_none()
}

/// Runs on this socket until the parent is gone or has it end.
fn run(socket: OwnedFd, layers: Layers) -> ExitCode {
    crate::sys::have_one_heap();
    crate::sys::raise_open_file_limit();
    // The first time, the kernel's clock is looked for, by way of a file.
    let _ = crate::sys::monotonic_ns();
    let half = match tidegate_confine::begin(&ENGINE, layers) {
        Ok(half) => half,
        Err(error) => return fail(&format!("it could not be locked down: {error}")),
    };
    let threads = match Threads::reserved(THREADS) {
        Ok(threads) => Arc::new(threads),
        Err(error) => return fail(&format!("there are no threads for it: {error}")),
    };
    let socket = Arc::new(socket);
    let uplink = Arc::new(Uplink::new(Arc::clone(&socket)));
    let writer = Arc::clone(&uplink);
    let keeper = threads
        .spawn("uplink".to_owned(), move || writer.write_what_waits())
        .and_then(|()| Keeper::start(&uplink, &threads));
    let keeper = match keeper {
        Ok(keeper) => keeper,
        Err(error) => return fail(&format!("there are no threads for it: {error}")),
    };
    let bell = match Bell::new() {
        Ok(bell) => Arc::new(bell),
        Err(error) => return fail(&format!("its control thread cannot be woken: {error}")),
    };
    let report = half.finish();
    // One that holds in part is named twice. That root is exempt from one takes nothing away: others refuse the same.
    let named = |is: fn(State) -> bool| -> Vec<String> {
        let layers = report.layers().filter(|(_, state)| is(*state));
        layers.map(|(layer, _)| layer.word().to_owned()).collect()
    };
    uplink.send(&FromChild::Ready {
        version: VERSION,
        layers: named(|state| matches!(state, State::Took | State::Partly(_))),
        missing: named(|state| match state {
            State::Partly(why) => why != Why::Exempt,
            State::Missing(_) | State::Off => true,
            State::Took => false,
        }),
    });

    let mut downlink = Downlink::new(socket);
    let first = loop {
        match downlink.wait().and_then(|()| downlink.next()) {
            Ok(Some((message, _))) => break message,
            Ok(None) => {}
            // A spare that was not needed.
            Err(Broken::Ended) => return ExitCode::SUCCESS,
            Err(broken) => return fail(&format!("it did not understand its parent: {broken}")),
        }
    };
    match first {
        ToChild::Hello { version: VERSION, setup } => serve(setup, downlink, bell, uplink, keeper, threads),
        ToChild::Hello { version, .. } => {
            fail(&format!("its parent speaks version {version}, and it speaks {VERSION}"))
        }
        message => fail(&format!("its parent began with {}", message.kind().name)),
    }
}

/// Does what the parent says until it is gone, or there is nothing more to do.
fn serve(
    setup: Setup,
    downlink: Downlink,
    bell: Arc<Bell>,
    uplink: Arc<Uplink>,
    keeper: Arc<Keeper>,
    threads: Arc<Threads>,
) -> ExitCode {
    let Setup { limits, network, user_agent, referer, buffered, seed } = setup;
    let names = Arc::new(AskParent::new(&uplink));
    let roots = Arc::new(AskRoots::new(&uplink));
    let config =
        Config { limits, network: network.clone(), user_agent, referer, buffered, seed, ..Config::default() };
    let network = Network::asking(network, Box::new(Arc::clone(&names)), Box::new(Arc::clone(&roots)));
    let network = match network {
        Ok(network) => network,
        Err(failure) => return fail(&failure.message),
    };
    let (sender, queue) = sync_channel(crate::handle::INBOX);
    let (tells, asks, rings) = (Arc::clone(&uplink), Arc::clone(&uplink), Arc::clone(&bell));
    let snapshots = Arc::new(move |call, snapshot| tells.send(&FromChild::Snapshot { call, snapshot }));
    let child = Child { uplink: Arc::clone(&uplink), keeper: Arc::clone(&keeper), names, roots, snapshots };
    let ear = Ear::new(downlink, child, queue, bell);
    let end = ear.end();
    let tell = move |message| {
        // Fails only when the control thread has ended, and then nobody wants to know.
        let _ = sender.send(message);
        rings.ring();
    };
    Control::new(config, network, Box::new(ear), tell, threads)
        .asking(move |host| asks.send(&FromChild::Introduce { host: host.to_owned() }))
        .run();
    // Nobody asks for it any more. What is here is found by the next run.
    keeper.save_all();
    uplink.break_off();
    match end.get() {
        None | Some(End::Gone) => ExitCode::SUCCESS,
        Some(End::Broken(why)) => fail(why),
    }
}

/// The parent shows what is said here with the failure.
fn fail(why: &str) -> ExitCode {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{why}");
    ExitCode::FAILURE
}

/// What is done with what the parent says.
struct Child {
    uplink: Arc<Uplink>,
    keeper: Arc<Keeper>,
    names: Arc<AskParent>,
    roots: Arc<AskRoots>,
    snapshots: Arc<dyn Fn(u64, Snapshot) + Send + Sync>,
}

impl Child {
    /// What a message of the parent is to the control thread, if it is anything to that.
    fn take(&self, message: ToChild, descriptors: Vec<OwnedFd>) -> Result<Option<Inbox>, &'static str> {
        let mut descriptors = descriptors.into_iter();
        let uplink = Arc::clone(&self.uplink);
        Ok(Some(match message {
            ToChild::Hello { .. } => return Err("its parent said hello twice"),
            ToChild::Register { id } => {
                let Some(cold) = self.keeper.register(id) else { return Err("there are too many downloads") };
                Inbox::Register { id, cold: Box::new(cold) }
            }
            ToChild::Start { id, request, found, borrowed, place } => {
                let (disk, doubts) = match &place {
                    Place::Nowhere => (Disk::Nowhere, 0),
                    Place::Stream { .. } => (Disk::Stream(id), 0),
                    Place::Later { file_system, doubts } => (Disk::FileSystem(*file_system), *doubts),
                    Place::Part { .. } => return Err("a part was lent before it was prepared"),
                };
                let target = self.target(id, place, &mut descriptors)?;
                Inbox::Start(Box::new(Start { id, request, found, borrowed, target, disk, doubts }))
            }
            ToChild::Prepared { id, turn, place } => {
                let target = place.map(|place| self.target(id, place, &mut descriptors)).transpose()?;
                Inbox::Cold { id, turn, input: FromCold::Prepared { target } }
            }
            ToChild::Verified { id, turn, verified, place } => {
                let target = place.map(|place| self.target(id, place, &mut descriptors)).transpose()?;
                Inbox::Cold { id, turn, input: FromCold::Verified { verified, target } }
            }
            ToChild::MachineReady { id, turn } => Inbox::Cold { id, turn, input: FromCold::MachineReady },
            ToChild::Over { id } => Inbox::Cold { id, turn: 0, input: FromCold::Over },
            ToChild::Gone { id } => Inbox::Cold { id, turn: 0, input: FromCold::Gone },
            ToChild::Save { id, call, durable } => {
                self.keeper.save(id, call, durable);
                return Ok(None);
            }
            ToChild::Pause { id, call } => {
                Inbox::Pause { id, done: Reply::by(move |()| uplink.send(&FromChild::Done { call })) }
            }
            ToChild::Resume { id } => Inbox::Resume { id },
            ToChild::Stop { id, call } => {
                Inbox::Stop { id, done: Reply::by(move |()| uplink.send(&FromChild::Done { call })) }
            }
            ToChild::Cancel { id } => Inbox::Cancel { id },
            ToChild::SetLimits { limits } => Inbox::SetLimits(limits),
            ToChild::SetDownloadLimit { id, limit } => Inbox::SetDownloadLimit { id, limit },
            ToChild::Snapshot { call } => {
                let reply = Back::Across(Arc::clone(&self.snapshots), call);
                Inbox::Snapshot(Asked { snapshot: Snapshot::default(), reply })
            }
            ToChild::Progress { call, id } => {
                let tell = move |progress| uplink.send(&FromChild::Progress { call, progress });
                Inbox::Progress { id, reply: Reply::by(tell) }
            }
            ToChild::Cookies { call } => {
                let tell = move |cookies| uplink.send(&FromChild::Cookies { call, cookies });
                Inbox::Cookies { reply: Reply::by(tell) }
            }
            ToChild::Resolved { call, answer } => {
                self.names.answer(call, answer);
                return Ok(None);
            }
            ToChild::Roots { call, roots } => {
                self.roots.answer(call, roots);
                return Ok(None);
            }
            ToChild::Introduced { host, cookies, netrc } => Inbox::Introduced { host, cookies, netrc },
            ToChild::Ping { call } => {
                let tell =
                    move |()| uplink.send(&FromChild::Pong { call, at_ns: crate::sys::monotonic_ns() });
                Inbox::Ping { reply: Reply::by(tell) }
            }
            ToChild::TellTime { id } => Inbox::TellTime { id },
            ToChild::Shutdown {} => Inbox::Shutdown,
        }))
    }

    fn target(
        &self,
        id: DownloadId,
        place: Place,
        descriptors: &mut impl Iterator<Item = OwnedFd>,
    ) -> Result<Target, &'static str> {
        const MISSING: &str = "a descriptor is missing";
        Ok(match place {
            Place::Nowhere | Place::Later { .. } => Target::Nowhere,
            Place::Stream { called } => {
                let pipe = File::from(descriptors.next().ok_or(MISSING)?);
                Target::Stream(Arc::new(StreamTarget::new(Box::new(pipe), &called)))
            }
            Place::Part { called, file_system, part } => {
                let file = File::from(descriptors.next().ok_or(MISSING)?);
                let checkpoint =
                    if part.recorded { Some(File::from(descriptors.next().ok_or(MISSING)?)) } else { None };
                let part = Arc::new(PartFile::from_state(OsDisk::received(file, checkpoint), part));
                let path = Arc::new(PathBuf::from(called));
                self.keeper.lend(id, &part, &path, file_system);
                // If it is only to be read, the descriptors say so.
                Target::Part { part, path, only_to_read: false }
            }
        })
    }
}
