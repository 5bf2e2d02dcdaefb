//! From the calls of a profile to a program that the kernel runs before each system call.
//!
//! The program looks a call up by halving, so that it is short on every way: the kernel, when it takes a filter,
//! runs it once for each call that there is (`docs/adr/0020-landlock-by-its-crate-seccomp-by-our-own-tree.md`).
//! A call that is made for another kind of processor (32 bits on a machine of 64) ends the process, whatever its
//! number, since numbers mean something else there.

use crate::profile::{Call, Profile, Test};
use crate::report::Why;
use crate::sys;
use libc::sock_filter;
use std::collections::BTreeMap;

/// What the kernel calls this kind of processor.
#[cfg(all(target_arch = "x86_64", target_endian = "little"))]
const PROCESSOR: Option<u32> = Some(0xc000_003e);
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
const PROCESSOR: Option<u32> = Some(0xc000_00b7);
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_endian = "little")))]
const PROCESSOR: Option<u32> = None;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_NOT_BELOW: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Where the number of the call and the kind of processor lie in what the program sees.
const NUMBER: u32 = 0;
const KIND: u32 = 4;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const END: u32 = libc::SECCOMP_RET_KILL_PROCESS;

/// The longest program that the kernel takes.
const LONGEST: usize = 4096;

/// The program of a profile.
#[derive(Debug)]
pub(crate) struct Filter(Vec<sock_filter>);

impl Filter {
    /// Builds it for the process with this number.
    ///
    /// # Errors
    /// [`Why::Unbuilt`] where the processor is not known or the profile makes no program.
    pub(crate) fn build(profile: &Profile, process: u32) -> Result<Self, Why> {
        let kind = PROCESSOR.ok_or(Why::Unbuilt)?;
        let mut program =
            vec![plain(LOAD, KIND), jump(IF_EQUAL, kind, 1, 0), plain(RETURN, END), plain(LOAD, NUMBER)];
        program.extend(tree(&ranges(profile, process)?)?);
        if program.len() > LONGEST { Err(Why::Unbuilt) } else { Ok(Self(program)) }
    }

    /// Puts it on all threads of this process, for ever.
    ///
    /// # Errors
    /// What the kernel said; then it holds for no thread.
    pub(crate) fn install(&self) -> Result<(), Why> {
        Ok(sys::filter_all_threads(&self.0)?)
    }
}

/// What becomes of the calls from a number up to the next range.
#[derive(Clone, Debug)]
struct Range {
    from: u32,
    then: Vec<sock_filter>,
}

/// Every number there is, in order: what is not in the profile is refused.
fn ranges(profile: &Profile, process: u32) -> Result<Vec<Range>, Why> {
    let mut calls = BTreeMap::new();
    for call in profile.calls {
        calls.insert(number(call)?, ways(call, process)?);
    }
    for call in profile.killed {
        calls.insert(number(call)?, vec![plain(RETURN, END)]);
    }
    let others = || vec![plain(RETURN, REFUSE)];
    let mut ranges: Vec<Range> = vec![Range { from: 0, then: others() }];
    for (number, then) in calls {
        let next = number.checked_add(1).ok_or(Why::Unbuilt)?;
        for range in [Range { from: number, then }, Range { from: next, then: others() }] {
            ranges.retain(|this| this.from != range.from);
            ranges.push(range);
        }
    }
    // Neighbours that are treated alike are one.
    ranges.dedup_by(|later, earlier| same(&later.then, &earlier.then));
    Ok(ranges)
}

fn number(call: &Call) -> Result<u32, Why> {
    u32::try_from(call.number).map_err(|_| Why::Unbuilt)
}

fn same(one: &[sock_filter], two: &[sock_filter]) -> bool {
    let parts = |step: &sock_filter| (step.code, step.jt, step.jf, step.k);
    one.iter().map(parts).eq(two.iter().map(parts))
}

/// Finds the range of the number that was loaded, and does what becomes of it.
fn tree(ranges: &[Range]) -> Result<Vec<sock_filter>, Why> {
    if let [only] = ranges {
        return Ok(only.then.clone());
    }
    let (below, above) = ranges.split_at(ranges.len() / 2);
    let first = above.first().ok_or(Why::Unbuilt)?.from;
    let (below, above) = (tree(below)?, tree(above)?);
    let mut program = match u8::try_from(below.len()) {
        Ok(over) => vec![jump(IF_NOT_BELOW, first, over, 0)],
        // Further than a condition jumps.
        Err(_) => {
            let over = u32::try_from(below.len()).map_err(|_| Why::Unbuilt)?;
            vec![jump(IF_NOT_BELOW, first, 0, 1), plain(JUMP, over)]
        }
    };
    program.extend(below);
    program.extend(above);
    Ok(program)
}

/// Allows a call that is made in one of the ways, and refuses it otherwise.
fn ways(call: &Call, process: u32) -> Result<Vec<sock_filter>, Why> {
    let mut program = Vec::new();
    for way in call.ways {
        // From the end to the beginning, since a test that fails jumps to what comes after.
        let mut steps = vec![plain(RETURN, ALLOW)];
        for test in way.iter().rev() {
            let low = |argument: u8| 16 + 8 * u32::from(argument);
            let compared = match *test {
                Test::Is(argument, value) => vec![(low(argument), u32::MAX, value)],
                Test::Masked(argument, mask, value) => vec![(low(argument), mask, value)],
                Test::Null(argument) => vec![(low(argument), u32::MAX, 0), (low(argument) + 4, u32::MAX, 0)],
                Test::OwnProcess(argument) => vec![(low(argument), u32::MAX, process)],
            };
            for (place, mask, value) in compared.into_iter().rev() {
                let past = u8::try_from(steps.len()).map_err(|_| Why::Unbuilt)?;
                let mut these = vec![plain(LOAD, place)];
                if mask != u32::MAX {
                    these.push(plain(AND, mask));
                }
                these.push(jump(IF_EQUAL, value, 0, past));
                these.append(&mut steps);
                steps = these;
            }
        }
        program.append(&mut steps);
    }
    program.push(plain(RETURN, if call.ways.is_empty() { ALLOW } else { REFUSE }));
    Ok(program)
}

fn plain(code: u16, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ENGINE;
    use proptest::prelude::*;

    const OWN: u32 = 4711;

    /// What the kernel does with a program: what it says, and after how many steps.
    fn run(program: &[sock_filter], kind: u32, number: u32, arguments: [u64; 6]) -> (u32, usize) {
        let word = |place: u32| match place {
            NUMBER => number,
            KIND => kind,
            16..64 if place.is_multiple_of(4) => {
                let (index, high) = ((place - 16) / 8, (place - 16) % 8 == 4);
                let argument = arguments[index as usize];
                if high { (argument >> 32) as u32 } else { argument as u32 }
            }
            _ => panic!("no place {place}"),
        };
        let (mut at, mut held) = (0, 0);
        for steps in 1..=program.len() {
            let step = program[at];
            at += 1;
            let forward = |yes| usize::from(if yes { step.jt } else { step.jf });
            match step.code {
                LOAD => held = word(step.k),
                AND => held &= step.k,
                IF_EQUAL => at += forward(held == step.k),
                IF_NOT_BELOW => at += forward(held >= step.k),
                JUMP => at += step.k as usize,
                RETURN => return (step.k, steps),
                code => panic!("no code {code}"),
            }
        }
        panic!("it does not end");
    }

    /// What a profile says of a call, read from its lines.
    fn meant(profile: &Profile, number: u32, arguments: [u64; 6]) -> u32 {
        let of = |calls: &'static [Call]| calls.iter().find(|call| call.number == i64::from(number));
        let low = |argument: u8| arguments[usize::from(argument)] as u32;
        let holds = |test: &Test| match *test {
            Test::Is(argument, value) => low(argument) == value,
            Test::Masked(argument, mask, value) => low(argument) & mask == value,
            Test::Null(argument) => arguments[usize::from(argument)] == 0,
            Test::OwnProcess(argument) => low(argument) == OWN,
        };
        match (of(profile.killed), of(profile.calls)) {
            (Some(_), _) => END,
            (_, Some(call)) if call.ways.is_empty() || call.ways.iter().any(|way| way.iter().all(holds)) => {
                ALLOW
            }
            _ => REFUSE,
        }
    }

    /// Arguments that some test of the profile could be about, or nearly.
    fn arguments() -> impl Strategy<Value = [u64; 6]> {
        let mut values = vec![0, OWN];
        for test in ENGINE.calls.iter().flat_map(|call| call.ways).flat_map(|way| way.iter()) {
            match *test {
                Test::Is(_, value) => values.push(value),
                Test::Masked(_, mask, value) => values.extend([mask, value, value | !mask]),
                Test::Null(_) | Test::OwnProcess(_) => {}
            }
        }
        let low = prop_oneof![4 => proptest::sample::select(values), 1 => any::<u32>()];
        let high = prop_oneof![4 => Just(0u32), 1 => any::<u32>()];
        let one = (low, high).prop_map(|(low, high)| u64::from(high) << 32 | u64::from(low));
        proptest::array::uniform6(one)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn the_program_says_what_the_lines_of_the_profile_say(arguments in arguments()) {
            let filter = Filter::build(&ENGINE, OWN).unwrap();
            // Every number there is, those above them, and those of x32.
            for number in (0..700).chain([0x4000_0000, 0x4000_0001, 0x4000_0029, u32::MAX]) {
                let (said, steps) = run(&filter.0, PROCESSOR.unwrap(), number, arguments);
                prop_assert_eq!(said, meant(&ENGINE, number, arguments), "{} {:?}", number, arguments);
                prop_assert!(steps < 80, "{} takes {} steps", number, steps);
                prop_assert_eq!(run(&filter.0, 0x4000_0003, number, arguments).0, END);
            }
        }
    }

    #[test]
    fn a_program_is_short_on_the_way_to_what_is_done_most() {
        let filter = Filter::build(&ENGINE, OWN).unwrap();
        assert!(filter.0.len() < LONGEST / 4, "{}", filter.0.len());
        for call in ENGINE.calls.iter().filter(|call| call.ways.is_empty()) {
            let (said, steps) = run(&filter.0, PROCESSOR.unwrap(), number(call).unwrap(), [0; 6]);
            assert!(said == ALLOW && steps < 20, "{} takes {steps} steps", call.name());
        }
    }
}
