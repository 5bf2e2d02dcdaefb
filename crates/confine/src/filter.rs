//! From the calls of a profile to programs that the kernel runs before each system call.
//!
//! There are two: one ends the process at calls that only foreign code makes, the other refuses whatever the
//! profile does not list. The kernel runs both and does what the stricter says. A call that is made for another
//! kind of processor (32 bits on a machine of 64) ends the process too.

use crate::profile::{Call, Profile, Test};
use crate::report::Why;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;

/// The programs of a profile.
#[derive(Debug)]
pub(crate) struct Filters {
    kills: BpfProgram,
    refuses: BpfProgram,
}

impl Filters {
    /// Builds them for the process with this number.
    ///
    /// # Errors
    /// [`Why::Unbuilt`] where the processor is not known or the profile makes no program.
    pub(crate) fn build(profile: &Profile, process: u32) -> Result<Self, Why> {
        let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|_| Why::Unbuilt)?;
        let program = |calls: &[Call], others, these| {
            let rules = calls
                .iter()
                .map(|call| Ok((call.number, rules(call, process)?)))
                .collect::<Result<BTreeMap<_, _>, seccompiler::BackendError>>()?;
            BpfProgram::try_from(SeccompFilter::new(rules, others, these, arch)?)
        };
        let refusal = SeccompAction::Errno(libc::EPERM as u32);
        Ok(Self {
            kills: program(profile.killed, SeccompAction::Allow, SeccompAction::KillProcess)
                .map_err(|_| Why::Unbuilt)?,
            refuses: program(profile.calls, refusal, SeccompAction::Allow).map_err(|_| Why::Unbuilt)?,
        })
    }

    /// Puts them on all threads of this process, for ever.
    ///
    /// # Errors
    /// What the kernel said. Then none, or only the one that ends the process, holds.
    pub(crate) fn install(&self) -> Result<(), Why> {
        // In this order: the second does not let a filter be installed.
        seccompiler::apply_filter_all_threads(&self.kills).map_err(why)?;
        seccompiler::apply_filter_all_threads(&self.refuses).map_err(why)
    }
}

fn why(error: seccompiler::Error) -> Why {
    match error {
        seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error.into(),
        // A thread has a filter that is not one of ours below it.
        seccompiler::Error::ThreadSync(_) => Why::Refused(libc::EBUSY),
        seccompiler::Error::Backend(_) | seccompiler::Error::EmptyFilter => Why::Unbuilt,
    }
}

fn rules(call: &Call, process: u32) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let condition = |test: &Test| {
        use SeccompCmpArgLen::{Dword, Qword};
        use SeccompCmpOp::{Eq, MaskedEq};
        let (argument, length, operator, value) = match *test {
            Test::Is(argument, value) => (argument, Dword, Eq, value.into()),
            Test::Masked(argument, mask, value) => (argument, Dword, MaskedEq(mask.into()), value.into()),
            Test::Null(argument) => (argument, Qword, Eq, 0),
            Test::OwnProcess(argument) => (argument, Dword, Eq, process.into()),
        };
        SeccompCondition::new(argument, length, operator, value)
    };
    let way = |way: &&[Test]| SeccompRule::new(way.iter().map(condition).collect::<Result<_, _>>()?);
    call.ways.iter().map(way).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ENGINE;

    #[test]
    fn a_profile_makes_programs_that_the_kernel_could_take() {
        let filters = Filters::build(&ENGINE, 7).unwrap();
        for program in [&filters.kills, &filters.refuses] {
            assert!(program.len() > 50 && program.len() < 4096, "{}", program.len());
        }
        assert_ne!(filters.refuses, Filters::build(&ENGINE, 8).unwrap().refuses, "it knows its own number");
    }
}
