//! Each layer, shown at work on this machine: what it refuses is first done without it, then tried with it.
//!
//! That takes processes which are thrown away. They are this program, started under a name that
//! [`run_if_asked`] knows.

use crate::level::{Level, Namespaces};
use crate::lock::begin;
use crate::profile::ENGINE;
use crate::report::{Layer, Layers, Report};
use crate::spawn::{Program, Start, ended_within};
use crate::sys;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Uid};
use std::ffi::{CStr, CString};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// The name under which this program is a probe.
const NAME: &CStr = c"tidegate-probe";
/// Where the descriptor is that was left open by mistake.
const LEFT_OPEN: i32 = 9;
/// The longest answer of a probe, in bytes.
const ANSWER: u64 = 1024;
/// How long a probe may take. They take a few milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// What is asked of a probe beside the names of layers.
const WHOLE: &str = "whole";
const NAMESPACES: &str = "namespaces";

/// What was shown of a layer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Proof {
    /// What it refuses works without it and is refused with it.
    Shown,
    /// What it refuses cannot be done here anyway, with this error.
    Moot(i32),
    /// What it should refuse works all the same.
    Open,
    /// The probe did not answer.
    Silent,
}

/// What this machine gives to a process that is locked down.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Examination {
    /// How each layer stands in a process with the profile of the engine.
    pub report: Report,
    /// Each layer with what was shown of it alone.
    pub proofs: Vec<(Layer, Proof)>,
    /// Which namespaces can be made.
    pub namespaces: Namespaces,
}

impl Examination {
    /// Finds it out, by some dozen processes that are thrown away. `program` is one whose main function begins
    /// with [`run_if_asked`].
    ///
    /// # Errors
    /// When a process cannot be started, or the one that is locked down does not say how it stands.
    pub fn of(program: &Program) -> io::Result<Self> {
        let whole = ask(program, WHOLE)?;
        let report = Report::decode(whole.trim()).filter(|_| !whole.is_empty());
        let report =
            report.ok_or_else(|| io::Error::other("the process that is locked down says nothing"))?;
        let proofs = Layer::ALL
            .into_iter()
            .map(|layer| Ok((layer, proof(&ask(program, layer.word())?))))
            .collect::<io::Result<_>>()?;
        let namespaces = match ask(program, NAMESPACES)?.trim() {
            "users" => Namespaces::Users,
            "rootless" => Namespaces::Rootless,
            _ => Namespaces::None,
        };
        Ok(Self { report, proofs, namespaces })
    }

    /// What it amounts to.
    pub fn level(&self) -> Level {
        Level::of(&self.report, self.namespaces)
    }

    /// The layers that say they hold, but do not refuse what they should. There should be none.
    pub fn broken(&self) -> impl Iterator<Item = Layer> {
        let took = |layer: &Layer| self.report.state(*layer) == crate::State::Took;
        self.proofs.iter().filter(|(_, proof)| *proof == Proof::Open).map(|(layer, _)| *layer).filter(took)
    }
}

/// What a probe answered, or nothing if it failed.
fn ask(program: &Program, what: &str) -> io::Result<String> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let what = CString::new(what).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // Dropping the process kills it, should it still be there.
    let process = Start::new(NAME)
        .argument(&what)
        .descriptor(1, writer.as_fd())
        .descriptor(LEFT_OPEN, null.as_fd())
        .spawn(program)?;
    drop(writer);
    let mut answer = String::new();
    // It answers once, in fewer bytes than a pipe takes at once, and ends.
    if ended_within(process.pidfd(), PATIENCE) {
        std::fs::File::from(reader).take(ANSWER).read_to_string(&mut answer)?;
    }
    Ok(answer)
}

fn proof(answer: &str) -> Proof {
    let mut words = answer.split_ascii_whitespace().map(str::parse::<i32>);
    match (words.next(), words.next()) {
        (Some(Ok(0)), Some(Ok(0))) => Proof::Open,
        (Some(Ok(0)), Some(Ok(_))) => Proof::Shown,
        (Some(Ok(error)), Some(Ok(_))) => Proof::Moot(error),
        _ => Proof::Silent,
    }
}

/// Is a probe, if this process was started as one, and tells so; then main has nothing more to do. It must be the
/// first thing of main, since a probe gives up what others might have opened.
pub fn run_if_asked() -> bool {
    let mut words = std::env::args_os();
    if words.next().is_none_or(|name| name.as_encoded_bytes() != NAME.to_bytes()) {
        return false;
    }
    let what = words.next().unwrap_or_default();
    let answer = match what.to_str() {
        Some(WHOLE) => begin(&ENGINE, Layers::ALL).map(|half| half.finish().encode()).ok(),
        Some(NAMESPACES) => Some(namespaces()),
        Some(word) => Layer::named(word).and_then(before_and_after),
        None => None,
    };
    if let Some(answer) = answer {
        // Nobody reads: then nobody asked.
        let _ = writeln!(io::stdout(), "{answer}");
    }
    true
}

/// The error of doing what a layer refuses, without and with it; 0 for none.
fn before_and_after(layer: Layer) -> Option<String> {
    let stage = Stage::set().ok()?;
    let without = number(stage.attempt(layer));
    // Landlock and seccomp want the one; whoever may do everything may raise limits again.
    let layers = Layers::NONE.with(Layer::NoNewPrivileges).with(layer);
    let layers = if layer == Layer::Limits { layers.with(Layer::Capabilities) } else { layers };
    begin(&ENGINE, layers).ok()?.finish();
    Some(format!("{without} {}", number(stage.attempt(layer))))
}

fn number(result: io::Result<()>) -> i32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0)
}

/// What the attempts need and can only be made before.
struct Stage {
    name: SocketAddr,
    /// Listens under the name.
    _listener: UnixListener,
}

impl Stage {
    fn set() -> io::Result<Self> {
        let name = format!("{}-{}", NAME.to_string_lossy(), std::process::id());
        let name = SocketAddr::from_abstract_name(name)?;
        let listener = UnixListener::bind_addr(&name)?;
        Ok(Self { name, _listener: listener })
    }

    /// Does what this layer refuses, with no harm to anybody. Of two layers nothing can be tried that would not
    /// need a second program or user: the kernel is asked.
    fn attempt(&self, layer: Layer) -> io::Result<()> {
        let refused_if = |yes: bool| if yes { Err(Errno::PERM) } else { Ok(()) };
        match layer {
            Layer::Descriptors => {
                rustix::fs::readlink(format!("/proc/self/fd/{LEFT_OPEN}"), Vec::new())?;
            }
            Layer::NoNewPrivileges => refused_if(rustix::thread::no_new_privs()?)?,
            Layer::NotDumpable => {
                refused_if(rustix::process::dumpable_behavior()? == DumpableBehavior::NotDumpable)?;
            }
            Layer::Limits => {
                let most = rustix::process::getrlimit(Resource::Msgqueue).maximum;
                let one = Rlimit { current: Some(1), maximum: most.map(|most| most.max(1)) };
                rustix::process::setrlimit(Resource::Msgqueue, one)?;
            }
            Layer::Capabilities => rustix::process::chroot("/")?,
            Layer::Files => {
                rustix::fs::open("/", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            }
            Layer::Ports => drop(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?),
            Layer::Sockets => drop(UnixStream::connect_addr(&self.name)?),
            Layer::Signals => {
                let parent = rustix::process::getppid().ok_or(Errno::SRCH)?;
                rustix::process::test_kill_process(parent)?;
            }
            Layer::Processes => {
                let thread = std::thread::Builder::new().spawn(|| ())?;
                // It does nothing that could fail.
                let _ = thread.join();
            }
            Layer::Calls => drop(rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?),
        }
        Ok(())
    }
}

/// Which namespaces this process can make. They count only if something can be done in them: where a policy takes
/// away all rights inside, making them still works.
fn namespaces() -> String {
    let kinds =
        libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    let works = || rustix::system::sethostname(b"probe").is_ok();
    let other = Uid::from_raw(65534);
    if rustix::process::geteuid().is_root() && sys::unshare(kinds).is_ok() && works() {
        let becomes = rustix::thread::set_thread_res_uid(other, other, other);
        return if becomes.is_ok() { "users" } else { "rootless" }.to_owned();
    }
    if sys::unshare(libc::CLONE_NEWUSER | kinds).is_ok() && works() { "rootless" } else { "none" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_needs_that_it_works_without_the_layer() {
        let table = [
            ("0 13\n", Proof::Shown),
            ("0 0\n", Proof::Open),
            ("1 1\n", Proof::Moot(1)),
            ("1 0\n", Proof::Moot(1)),
            ("", Proof::Silent),
            ("0", Proof::Silent),
            ("x y", Proof::Silent),
        ];
        for (answer, expected) in table {
            assert_eq!(proof(answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn a_program_of_another_name_is_no_probe() {
        assert!(!run_if_asked());
    }
}
