//! Locking this process down: [`begin`], then the caller starts its threads, then [`Half::finish`].
//!
//! The order is not free. Landlock, capabilities and no-new-privileges belong to a thread and are inherited by
//! those that it starts, so they come first; starting a thread needs calls that the filter refuses and counts
//! against the limit of processes, so these come last, and the filter is put on all threads at once.

use crate::filter::Filter;
use crate::profile::{Limit, Profile, Right};
use crate::report::{Layer, Layers, Report, State, Why};
use crate::sys;
use landlock::{
    Access, BitFlags, CompatLevel, Compatible, LandlockStatus, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Rlimit};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

/// The number of capabilities that there can be.
const CAPABILITIES: u32 = 64;

/// Why a process was not locked down.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Threads that are there already would keep rights that this one gives up.
    #[error("this process has {0} threads, but must have one to be locked down")]
    Threads(u64),
}

/// A process that has given up what does not stand in the way of starting threads.
#[derive(Debug)]
#[must_use = "the filter of system calls is not on yet"]
pub struct Half {
    profile: &'static Profile,
    layers: Layers,
    filter: Result<Filter, Why>,
    report: Report,
}

/// Gives up everything that can be given up before threads are started: what was left open, what a program that
/// it starts could gain, being looked into, capabilities, resources, files by path, ports, abstract sockets,
/// signals. A layer that this kernel does not have is told by the report and stops nothing.
///
/// Call it as the first thing of a program that was started for this: descriptors from the profile's first free
/// number up are *closed*, whoever in this process thinks to own them.
///
/// # Errors
/// [`LockError::Threads`] if there is more than one thread, before anything is given up.
pub fn begin(profile: &'static Profile, layers: Layers) -> Result<Half, LockError> {
    // A folder has two links and one for each folder in it. Where there is no /proc nobody can tell.
    match rustix::fs::stat("/proc/self/task").map_or(3, |stat| stat.st_nlink) {
        0..=3 => {}
        #[allow(clippy::useless_conversion, reason = "its width depends on the processor")]
        links => return Err(LockError::Threads(u64::from(links) - 2)),
    }
    let mut report = Report::new();
    for layer in Layer::ALL.into_iter().filter(|layer| layers.has(*layer)) {
        let state = match layer {
            Layer::Descriptors => state(sys::close_from(profile.descriptors)),
            Layer::NoNewPrivileges => state(rustix::thread::set_no_new_privs(true)),
            Layer::NotDumpable => {
                state(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable))
            }
            Layer::Limits => state(limit(profile.limits)),
            Layer::Capabilities => state(drop_capabilities()),
            Layer::Files => landlock(profile.files, Ruleset::handle_access),
            Layer::Ports => landlock(profile.ports, Ruleset::handle_access),
            Layer::Sockets => landlock(profile.sockets, Ruleset::scope),
            Layer::Signals => landlock(profile.signals, Ruleset::scope),
            Layer::Processes | Layer::Calls => State::Off,
        };
        report.set(layer, state);
    }
    let process = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    Ok(Half { profile, layers, filter: Filter::build(profile, process), report })
}

impl Half {
    /// Gives up the rest: further processes and threads, and every system call that is not in the profile, for all
    /// threads of this process. Those that were started must have got as far as their own code, since a thread
    /// that is still being set up needs more calls than it will have.
    pub fn finish(mut self) -> Report {
        if self.layers.has(Layer::Processes) {
            let root = rustix::process::getuid().is_root();
            let state = match limit(self.profile.last_limits) {
                // The kernel never counts what root has.
                Ok(()) if root => State::Partly(Why::Exempt),
                result => state(result),
            };
            self.report.set(Layer::Processes, state);
        }
        if self.layers.has(Layer::Calls) {
            let installed = self.filter.and_then(|filter| filter.install());
            self.report.set(Layer::Calls, installed.map_or_else(State::Missing, |()| State::Took));
        }
        self.report
    }
}

fn state<E: Into<Why>>(result: Result<(), E>) -> State {
    result.map_or_else(|error| State::Missing(error.into()), |()| State::Took)
}

fn limit(limits: &[Limit]) -> Result<(), Errno> {
    limits.iter().try_for_each(|limit| {
        let most = Rlimit { current: Some(limit.most), maximum: Some(limit.most) };
        rustix::process::setrlimit(limit.resource, most)
    })
}

/// Leaves no capability in any set, and no way to get one back.
fn drop_capabilities() -> Result<(), Errno> {
    // Without the capability for it these two are refused, and then there is hardly anything to drop.
    for number in 0..CAPABILITIES {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if rustix::thread::remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    let _ = rustix::thread::set_capabilities_secure_bits(
        CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
    );
    // Ambient ones go with those that are permitted.
    let empty = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: empty, permitted: empty, inheritable: empty },
    )
}

/// Takes rights away for everything, with no exception. Each kind has a domain of its own, so that a kernel
/// without the one still takes the other and says so.
fn landlock<T: Access>(
    rights: &[Right<T>],
    handle: fn(Ruleset, BitFlags<T>) -> Result<Ruleset, RulesetError>,
) -> State {
    let these = |needed| {
        let these = rights.iter().filter(|right| right.needed == needed);
        these.fold(BitFlags::EMPTY, |all, right| all | right.right)
    };
    let (needed, others): (BitFlags<T>, BitFlags<T>) = (these(true), these(false));
    let whole = || {
        let ruleset = handle(Ruleset::default().set_compatibility(CompatLevel::HardRequirement), needed)?;
        match others.is_empty() {
            true => Ok(ruleset),
            false => handle(ruleset.set_compatibility(CompatLevel::BestEffort), others),
        }
    };
    if whole().and_then(enforce).is_ok() {
        return State::Took;
    }
    let part = handle(Ruleset::default().set_compatibility(CompatLevel::BestEffort), needed);
    match part.and_then(enforce) {
        Ok(status) => match (status.ruleset, status.landlock) {
            (RulesetStatus::FullyEnforced, _) => State::Took,
            (RulesetStatus::PartiallyEnforced, _) => State::Partly(Why::Older),
            (RulesetStatus::NotEnforced, LandlockStatus::NotEnabled) => State::Missing(Why::Disabled),
            (RulesetStatus::NotEnforced, _) => State::Missing(Why::Lacking),
        },
        Err(error) => State::Missing(errno_of(&error)),
    }
}

fn enforce(ruleset: Ruleset) -> Result<RestrictionStatus, RulesetError> {
    // No-new-privileges is a layer of its own, and is told of.
    ruleset.create()?.no_new_privs(false).restrict_self()
}

/// The error of the kernel that is at the bottom of this.
fn errno_of(error: &(dyn std::error::Error + 'static)) -> Why {
    let mut below = Some(error);
    while let Some(error) = below {
        if let Some(number) = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error) {
            return Errno::from_raw_os_error(number).into();
        }
        below = error.source();
    }
    Why::Lacking
}
