//! Starting and ending processes.

use crate::sys::{block, ignore};
use crate::work::wait_for_ever;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tidegate_confine::spawn::{Exit, Process, Program, Signal, Start, inherited};

/// A process whose standard output is read.
fn heard(start: Start<'_>, program: &Program) -> (Process, File) {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    (start.descriptor(1, writer.as_fd()).spawn(program).unwrap(), reader.into())
}

/// All that it says until its end, which is in order.
fn told_by(start: Start<'_>, program: &Program) -> String {
    let (mut process, mut reader) = heard(start, program);
    let mut answer = String::new();
    reader.read_to_string(&mut answer).unwrap();
    assert_eq!(process.wait().unwrap(), Exit::Code(0), "{answer}");
    answer
}

fn this() -> Program {
    Program::this().unwrap()
}

pub(crate) fn a_started_process_has_exactly_what_it_was_given() {
    // What it would inherit otherwise.
    ignore(libc::SIGUSR1);
    block(libc::SIGUSR2);
    let file = tempfile::tempfile().unwrap();
    let open = rustix::io::dup(&file).unwrap();
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
    let start = Start::new(c"tells")
        .argument(c"one")
        .argument(c"")
        .variable(c"LANG=C.UTF-8")
        .descriptor(7, file.as_fd())
        .ignoring(Signal::INT)
        .ignoring(Signal::QUIT)
        .dying_with_us(Signal::TERM);
    let answer = told_by(start, &this());
    let expected = [
        r#"arguments ["tells", "one", ""]"#,
        r#"environment [("LANG", "C.UTF-8")]"#,
        "descriptors [0, 1, 2, 7]",
        "0 is /dev/null, 2 is /dev/null",
        "SigBlk: 0000000000000000",
        // INT, QUIT, and PIPE, which the runtime of Rust ignores.
        "SigIgn: 0000000000001006",
        "death Some(15)",
    ];
    assert_eq!(answer.lines().collect::<Vec<_>>(), expected);
}

pub(crate) fn descriptors_change_places_without_losing_one() {
    let files: Vec<File> = (0..3).map(|_| tempfile::tempfile().unwrap()).collect();
    // Each at a number where another of them, or the program, may be open here.
    let numbers = [5, 4, 3, 6, 8, 9, 10, 11, 12];
    let mut start = Start::new(c"marks");
    for (index, number) in numbers.into_iter().enumerate() {
        start = start.descriptor(number, files[index % 3].as_fd());
    }
    told_by(start, &this());
    let marks = files.into_iter().map(|mut file| {
        use io::Seek;
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!(marks.collect::<Vec<_>>(), ["5 6 10 ", "4 8 11 ", "3 9 12 "]);
}

pub(crate) fn a_program_that_was_opened_runs_after_its_file_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    std::fs::copy("/proc/self/exe", &path).unwrap();
    let program = Program::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "another program").unwrap();
    assert!(told_by(Start::new(c"tells"), &program).starts_with("arguments"));
}

pub(crate) fn what_is_no_program_is_an_error_and_leaves_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    std::fs::write(&path, "no program").unwrap();
    let refused = |rights: u32| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(rights)).unwrap();
        Start::new(c"x").spawn(&Program::open(&path).unwrap()).unwrap_err().raw_os_error()
    };
    assert_eq!(refused(0o600), Some(libc::EACCES));
    assert_eq!(refused(0o700), Some(libc::ENOEXEC));
    let at = |number| Start::new(c"x").descriptor(number, io::stderr().as_fd()).spawn(&this());
    for number in [-1, 32, i32::MAX] {
        assert_eq!(at(number).unwrap_err().raw_os_error(), Some(libc::EBADF), "{number}");
    }
    assert!(Program::open(Path::new("/nothing/here")).is_err());
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    assert_eq!(children, "", "each was taken away");
}

pub(crate) fn how_a_process_ended_is_told() {
    let (mut process, _reader) = heard(Start::new(c"waits"), &this());
    assert_eq!(process.try_wait().unwrap(), None);
    process.kill(Signal::TERM).unwrap();
    assert_eq!(process.wait().unwrap(), Exit::Signal(15));
    assert_eq!(process.wait().unwrap(), Exit::Signal(15), "it is remembered");
    process.kill(Signal::KILL).unwrap();
    let (mut process, _reader) = heard(Start::new(c"fails"), &this());
    assert_eq!(process.wait().unwrap(), Exit::Code(9));
    assert_eq!(process.try_wait().unwrap(), Some(Exit::Code(9)));
}

pub(crate) fn a_process_whose_handle_is_dropped_is_killed_and_taken_away() {
    let (process, mut reader) = heard(Start::new(c"waits"), &this());
    let number = process.id();
    drop(process);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "nobody holds the other end any more");
    assert!(!Path::new(&format!("/proc/{number}")).exists(), "and it is no zombie");
}

pub(crate) fn a_process_does_not_outlive_who_started_it() {
    let (middle, mut reader) = heard(Start::new(c"starts-another"), &this());
    let mut number = [0; 10];
    reader.read_exact(&mut number).unwrap();
    let number = String::from_utf8(number.to_vec()).unwrap().trim().parse().unwrap();
    let other = rustix::process::pidfd_open(Pid::from_raw(number).unwrap(), PidfdFlags::empty()).unwrap();
    middle.kill(Signal::KILL).unwrap();
    // For ever, if it lived on.
    let mut ended = [rustix::event::PollFd::new(&other, rustix::event::PollFlags::IN)];
    assert_eq!(rustix::event::poll(&mut ended, None).unwrap(), 1);
}

pub(crate) fn what_was_inherited_is_given_once() {
    let file = tempfile::tempfile().unwrap();
    let answer = told_by(Start::new(c"takes").descriptor(5, file.as_fd()), &this());
    assert_eq!(answer, "true [false, false, false, false, false]\n");
}

/// Does what this process was started for, if it was for one of these tests.
pub(crate) fn run_if_asked() -> bool {
    match std::env::args().next().unwrap_or_default().as_str() {
        "tells" => tell(),
        "marks" => {
            for number in 3..32 {
                if let Ok(file) = inherited(number) {
                    write!(File::from(file), "{number} ").unwrap();
                }
            }
        }
        "fails" => std::process::exit(9),
        "starts-another" => {
            let another = Start::new(c"waits").dying_with_us(Signal::KILL).spawn(&this()).unwrap();
            print!("{:10}", another.id());
            io::stdout().flush().unwrap();
            wait_for_ever();
        }
        "takes" => {
            let first = inherited(5).is_ok();
            println!("{first} {:?}", [5, 6, 2, 32, -1].map(|number| inherited(number).is_ok()));
        }
        _ => return false,
    }
    true
}

fn tell() {
    println!("arguments {:?}", std::env::args().collect::<Vec<_>>());
    println!("environment {:?}", std::env::vars().collect::<Vec<_>>());
    let folder =
        rustix::fs::open("/proc/self/fd", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    let names = rustix::fs::Dir::read_from(&folder).unwrap();
    // The folder itself is open twice while it is read.
    drop(folder);
    let mut numbers: Vec<i32> =
        names.filter_map(|name| name.unwrap().file_name().to_str().unwrap().parse().ok()).collect();
    numbers.sort_unstable();
    let link = |number: i32| std::fs::read_link(format!("/proc/self/fd/{number}"));
    numbers.retain(|number| link(*number).is_ok_and(|path| !path.ends_with("fd")));
    println!("descriptors {numbers:?}");
    println!("0 is {}, 2 is {}", link(0).unwrap().display(), link(2).unwrap().display());
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    for line in status.lines().filter(|line| line.starts_with("SigBlk") || line.starts_with("SigIgn")) {
        println!("{}", line.replace('\t', " "));
    }
    let death = rustix::process::parent_process_death_signal().unwrap();
    println!("death {:?}", death.map(Signal::as_raw));
}
