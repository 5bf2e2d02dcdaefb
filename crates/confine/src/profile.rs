//! Profiles as data: what a kind of process may do, each line with its reason.
//!
//! What is not in a profile cannot be done. A new kind of process is a new list and no new code.

use crate::report::Layer;
use landlock::{AccessFs, AccessNet, Scope};
use rustix::process::Resource;

mod engine;

pub use engine::ENGINE;

/// What a kind of process may do.
#[derive(Debug)]
pub struct Profile {
    /// What it is called.
    pub(crate) name: &'static str,
    /// Descriptors from this number up are closed at the beginning.
    pub(crate) descriptors: u32,
    /// Limits that hold from the beginning.
    pub(crate) limits: &'static [Limit],
    /// Limits that hold once the threads are there.
    pub(crate) last_limits: &'static [Limit],
    /// What may not be done with files, by path.
    pub(crate) files: &'static [Right<AccessFs>],
    /// What may not be done with ports.
    pub(crate) ports: &'static [Right<AccessNet>],
    /// Which sockets of others may not be reached.
    pub(crate) sockets: &'static [Right<Scope>],
    /// Which processes may not be sent signals.
    pub(crate) signals: &'static [Right<Scope>],
    /// The system calls that may be made. Any other fails with `EPERM`.
    pub(crate) calls: &'static [Call],
    /// The system calls that end the process: nothing makes them but code that was not ours.
    pub(crate) killed: &'static [Call],
}

impl Profile {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The system calls that may be made, with the reason of each.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.calls.iter().map(|call| (call.name(), call.why))
    }

    /// Every rule: the layer that holds it, what it is about, and why it is so. Of seccomp these are the calls
    /// that are allowed (`+`) and those that end the process (`!`); some are allowed only with certain arguments
    /// (`~`).
    pub fn rules(&self) -> Vec<(Layer, String, &'static str)> {
        let mut rules = Vec::new();
        let mut add = |layer, what: String, why| rules.push((layer, what, why));
        self.limits.iter().for_each(|l| add(Layer::Limits, format!("{:?} {}", l.resource, l.most), l.why));
        self.files.iter().for_each(|right| add(Layer::Files, format!("{:?}", right.right), right.why));
        self.ports.iter().for_each(|right| add(Layer::Ports, format!("{:?}", right.right), right.why));
        self.sockets.iter().for_each(|right| add(Layer::Sockets, format!("{:?}", right.right), right.why));
        self.signals.iter().for_each(|right| add(Layer::Signals, format!("{:?}", right.right), right.why));
        self.last_limits
            .iter()
            .for_each(|l| add(Layer::Processes, format!("{:?} {}", l.resource, l.most), l.why));
        for call in self.calls {
            let sign = if call.ways.is_empty() { '+' } else { '~' };
            add(Layer::Calls, format!("{sign} {}", call.name()), call.why);
        }
        self.killed.iter().for_each(|call| add(Layer::Calls, format!("! {}", call.name()), call.why));
        rules
    }
}

/// A resource is limited to this, and the limit cannot be raised again.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) resource: Resource,
    pub(crate) most: u64,
    pub(crate) why: &'static str,
}

/// Something that Landlock can take away, and which is given back for no path and no port.
#[derive(Debug)]
pub(crate) struct Right<T> {
    pub(crate) right: T,
    /// The layer holds only in part where the kernel does not know this right. Others are taken away where they
    /// are known, and refused by other layers as well.
    pub(crate) needed: bool,
    pub(crate) why: &'static str,
}

/// A system call, and when it may be made.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) number: i64,
    /// With the prefix of the constant.
    pub(crate) constant: &'static str,
    /// The ways to make it: of one of them every test holds. None means any way.
    pub(crate) ways: &'static [&'static [Test]],
    pub(crate) why: &'static str,
}

impl Call {
    /// The name of the call.
    pub(crate) fn name(&self) -> &'static str {
        self.constant.strip_prefix("SYS_").unwrap_or(self.constant)
    }
}

/// Something that must hold of one argument, from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    /// Its lower 32 bits, which are all the kernel looks at, are this.
    Is(u8, u32),
    /// Of its lower 32 bits those of the mask are these.
    Masked(u8, u32, u32),
    /// It is a null pointer.
    Null(u8),
    /// It is the number of this process.
    OwnProcess(u8),
}

/// A line of a profile: a call by the name of its constant in `libc`, and why; between them, if not all ways to
/// make it are meant, those that are.
macro_rules! call {
    ($number:ident, $why:literal) => {
        $crate::profile::Call { number: libc::$number, constant: stringify!($number), ways: &[], why: $why }
    };
    ($number:ident, $ways:expr, $why:literal) => {
        $crate::profile::Call { number: libc::$number, constant: stringify!($number), ways: $ways, why: $why }
    };
}
use call;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_call_stands_in_a_profile_twice_and_each_has_a_reason() {
        for profile in [&ENGINE] {
            let mut seen = BTreeSet::new();
            for call in profile.calls.iter().chain(profile.killed) {
                assert!(seen.insert(call.number), "{}: {} twice", profile.name, call.name());
                assert!(call.why.len() > 5 && call.name() != call.constant, "{}", call.name());
            }
            assert!(profile.limits.iter().chain(profile.last_limits).all(|limit| limit.why.len() > 10));
            assert!(profile.files.iter().all(|right| right.why.len() > 10));
            assert!(profile.ports.iter().all(|right| right.why.len() > 10));
            assert!(profile.sockets.iter().chain(profile.signals).all(|right| right.why.len() > 10));
        }
    }

    #[test]
    fn nothing_that_takes_a_path_or_makes_a_process_is_allowed() {
        let never = [
            "open",
            "openat",
            "openat2",
            "creat",
            "stat",
            "statx",
            "newfstatat",
            "access",
            "readlink",
            "unlink",
            "rename",
            "chmod",
            "fchmod",
            "fchown",
            "fsetxattr",
            "utimensat",
            "execve",
            "execveat",
            "fork",
            "vfork",
            "clone",
            "clone3",
            "ptrace",
            "kill",
            "prctl",
            "bind",
            "listen",
            "accept4",
            "sendmsg",
            "flock",
            "memfd_create",
            "chdir",
            "inotify_add_watch",
            "seccomp",
        ];
        let allowed: BTreeSet<&str> = ENGINE.calls().map(|(name, _)| name).collect();
        let wrong: Vec<&&str> = never.iter().filter(|name| allowed.contains(**name)).collect();
        assert_eq!(wrong, Vec::<&&str>::new());
    }
}
