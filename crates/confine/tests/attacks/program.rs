//! The smallest program there is: it needs no loader and no library, so nothing but itself is opened to run it.

/// Writes `0` and the end of a line to its standard output and ends.
#[cfg(target_arch = "x86_64")]
const CODE: &[u8] = &[
    0xb8, 1, 0, 0, 0, // mov eax, write
    0xbf, 1, 0, 0, 0, // mov edi, 1
    0x48, 0x8d, 0x35, 16, 0, 0, 0, // lea rsi, the text
    0xba, 2, 0, 0, 0, // mov edx, 2
    0x0f, 0x05, // syscall
    0xb8, 60, 0, 0, 0, // mov eax, exit
    0x31, 0xff, // xor edi, edi
    0x0f, 0x05, // syscall
    b'0', b'\n',
];
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;

/// Writes `0` and the end of a line to its standard output and ends.
#[cfg(target_arch = "aarch64")]
const CODE: &[u8] = &[
    0x08, 0x08, 0x80, 0xd2, // mov x8, write
    0x20, 0x00, 0x80, 0xd2, // mov x0, 1
    0xc1, 0x00, 0x00, 0x10, // adr x1, the text
    0x42, 0x00, 0x80, 0xd2, // mov x2, 2
    0x01, 0x00, 0x00, 0xd4, // svc 0
    0xa8, 0x0b, 0x80, 0xd2, // mov x8, exit
    0x00, 0x00, 0x80, 0xd2, // mov x0, 0
    0x01, 0x00, 0x00, 0xd4, // svc 0
    b'0', b'\n',
];
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// Where it lies in memory.
const BASE: u64 = 0x40_0000;
/// How long what stands before the code is: the head of the file and that of its one segment.
const HEADS: u64 = 64 + 56;

/// An ELF file with this code.
pub(crate) fn says_zero() -> Vec<u8> {
    let length = HEADS + CODE.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let put = |file: &mut Vec<u8>, words: &[u64], width: usize| {
        words.iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()[..width]));
    };
    // A program, for this machine, version 1; where it begins, and where the head of its segment stands.
    put(&mut file, &[2, MACHINE.into()], 2);
    put(&mut file, &[1], 4);
    put(&mut file, &[BASE + HEADS, 64, 0], 8);
    put(&mut file, &[0], 4);
    put(&mut file, &[64, 56, 1, 0, 0, 0], 2);
    // A segment to be loaded, read and run: all of the file.
    put(&mut file, &[1, 5], 4);
    put(&mut file, &[0, BASE, BASE, length, length, 4096], 8);
    file.extend_from_slice(CODE);
    file
}
