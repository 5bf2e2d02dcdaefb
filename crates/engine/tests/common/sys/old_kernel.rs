//! A kernel that knows nothing of some calls: a filter that a thread puts on itself, and that holds for whatever it
//! starts. So what an old system does is seen on a new one, and no switch for it is in the program itself.

#![allow(dead_code, unsafe_code, clippy::unwrap_used, reason = "a filter is put on by a bare system call")]

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};

/// A call that is not known: by its number, and by the value of one argument where others of it are known.
pub(crate) type Unknown = (i64, Option<(u32, u32)>);

/// From now on this thread, and whatever it starts, is on a kernel that does not know these.
pub(crate) fn become_one(unknown: &[Unknown]) {
    let step = |code: u32, yes: u8, no: u8, k: u32| sock_filter {
        code: u16::try_from(code).unwrap(),
        jt: yes,
        jf: no,
        k,
    };
    let load = |at: u32| step(BPF_LD | BPF_W | BPF_ABS, 0, 0, at);
    let refuse = step(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs());
    let mut steps = Vec::new();
    for (call, argument) in unknown {
        let call = u32::try_from(*call).unwrap();
        // The call's number is at the beginning, the arguments follow from 16 on, their lower halves first.
        steps.push(load(0));
        match argument {
            None => steps.push(step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call)),
            Some((number, value)) => {
                steps.push(step(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, call));
                steps.push(load(16 + 8 * number));
                steps.push(step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, *value));
            }
        }
        steps.push(refuse);
    }
    steps.push(step(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let program = sock_fprog { len: u16::try_from(steps.len()).unwrap(), filter: steps.as_mut_ptr() };
    // SAFETY: integers, and the address of a program that outlives the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let filter = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program), 0);
    }
}
