//! Every attack against every layer.

use crate::attack::{ATTACKER, ATTACKS, Attack, FOLDER, LEFT_OPEN, PART, Who};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::pipe::PipeFlags;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use tidegate_confine::spawn::{Exit, Process, Program, Signal, Start};
use tidegate_confine::{Layer, Layers, Report, State, Why};

/// How an attack went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
    /// It was done.
    Done,
    /// The kernel refused it with this error.
    Refused(i32),
    /// The kernel ended the attacker.
    Ended,
    /// It could not be prepared, without any layer.
    Unprepared,
}

/// What attacks are started from.
struct Field {
    program: Program,
    victim: Process,
    root: bool,
    /// As root may be: in a container it has only some of its capabilities.
    powerful: bool,
    /// What holds here of the layers.
    report: Report,
}

impl Field {
    fn new() -> Self {
        let program = Program::this().unwrap();
        let victim = Start::new(c"waits").spawn(&program).unwrap();
        let root = rustix::process::geteuid().is_root();
        let capabilities = rustix::thread::capabilities(None).unwrap().effective;
        let powerful = capabilities.contains(rustix::thread::CapabilitySet::SYS_ADMIN);
        let mut field = Self { program, victim, root, powerful, report: Report::decode("").unwrap() };
        // Any attack will do.
        field.report = field.attack(&ATTACKS[0], Layers::ALL).1.unwrap();
        for (layer, state) in field.report.shortcomings() {
            println!("    here {layer} is {state}");
        }
        field
    }

    /// Lets a new attacker try it with these layers, in a home made for it.
    fn attack(&self, attack: &Attack, layers: Layers) -> (Outcome, Option<Report>) {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        std::fs::write(path("secret"), "mine").unwrap();
        std::fs::write(path("part"), "bytes").unwrap();
        let part = File::options().read(true).write(true).open(path("part")).unwrap();
        rustix::fs::flock(&part, FlockOperation::NonBlockingLockExclusive).unwrap();
        let folder = open(home.path().as_os_str().as_bytes(), OFlags::DIRECTORY);
        let left_open = open(path("secret").as_os_str().as_bytes(), OFlags::empty());
        let _service = UnixListener::bind(path("service")).unwrap();
        let name = SocketAddr::from_abstract_name(home.path().as_os_str().as_bytes()).unwrap();
        let _abstract = UnixListener::bind_addr(&name).unwrap();

        let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let text = |bytes: &[u8]| CString::new(bytes).unwrap();
        let switches: String =
            Layer::ALL.iter().map(|layer| if layers.has(*layer) { '1' } else { '0' }).collect();
        let mut attacker = Start::new(ATTACKER)
            .argument(&text(attack.name.as_bytes()))
            .argument(&text(switches.as_bytes()))
            .argument(&text(home.path().as_os_str().as_bytes()))
            .argument(&text(self.victim.id().to_string().as_bytes()))
            .descriptor(PART, part.as_fd())
            .descriptor(1, writer.as_fd())
            .descriptor(2, std::io::stderr().as_fd())
            .descriptor(FOLDER, folder.as_fd())
            .descriptor(LEFT_OPEN, left_open.as_fd())
            .dying_with_us(Signal::KILL)
            .spawn(&self.program)
            .unwrap();
        drop(writer);
        let mut answer = String::new();
        File::from(reader).read_to_string(&mut answer).unwrap();
        let exit = attacker.wait().unwrap();
        let (word, rest) = answer.trim_end().split_once(' ').unwrap_or((answer.trim_end(), ""));
        let outcome = match (word, exit) {
            ("", Exit::Signal(libc::SIGSYS)) => Outcome::Ended,
            ("unprepared", Exit::Code(0)) => Outcome::Unprepared,
            ("0", Exit::Code(0)) => Outcome::Done,
            (word, Exit::Code(0)) => Outcome::Refused(word.parse().unwrap()),
            (_, exit) => panic!("{}: {answer:?}, and {exit}", attack.name),
        };
        (outcome, Report::decode(rest))
    }

    /// Whether it can be done here at all. Tells if not, and fails if it should be.
    fn works(&self, attack: &Attack) -> bool {
        let outcome = self.attack(attack, Layers::NONE).0;
        match (outcome, attack.who) {
            (Outcome::Done, Who::Root) => assert!(self.root, "{}: only root should", attack.name),
            (Outcome::Done, _) => {}
            (_, Who::Root) if !self.root => {}
            (_, Who::Root) if !self.powerful => {
                println!("    {}: root of this container cannot do it anyway ({outcome:?})", attack.name);
            }
            (_, Who::Where(setting)) => {
                println!("    {}: cannot be done here anyway ({setting}: {outcome:?})", attack.name);
            }
            (outcome, who) => {
                panic!("{}: {who:?} should do it without the lock-down: {outcome:?}", attack.name)
            }
        }
        outcome == Outcome::Done
    }

    /// The layers of which each by itself refuses it here.
    fn refusing(&self, attack: &Attack) -> BTreeSet<Layer> {
        let counts = |layer: &Layer| match layer {
            Layer::Capabilities => self.root,
            Layer::Processes if self.root => false,
            layer => matches!(self.report.state(*layer), State::Took | State::Partly(_)),
        };
        attack.refused_by.iter().copied().filter(counts).collect()
    }
}

fn open(path: &[u8], flags: OFlags) -> OwnedFd {
    rustix::fs::open(path, flags | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap()
}

fn is_refused(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Refused(_) | Outcome::Ended)
}

pub(crate) fn every_attack_works_without_the_lock_down_and_is_refused_with_it() {
    let field = Field::new();
    for attack in ATTACKS.iter().filter(|attack| field.works(attack)) {
        let outcome = field.attack(attack, Layers::ALL).0;
        let layers: Vec<String> = field.refusing(attack).iter().map(Layer::to_string).collect();
        let how = match outcome {
            Outcome::Refused(number) => std::io::Error::from_raw_os_error(number).to_string(),
            Outcome::Ended => "ended by the kernel".to_owned(),
            outcome => panic!("{}: {outcome:?} though it is locked down", attack.name),
        };
        println!("    {}: done without, refused with it by {}: {how}", attack.name, layers.join(", "));
    }
}

pub(crate) fn each_attack_is_refused_by_the_layers_that_the_design_names() {
    let field = Field::new();
    let mut wrong = Vec::new();
    for attack in ATTACKS.iter().filter(|attack| field.works(attack)) {
        let expected = field.refusing(attack);
        // Landlock and seccomp want no-new-privileges; by itself it refuses none of these.
        let alone = |layer| Layers::NONE.with(Layer::NoNewPrivileges).with(layer);
        let refusing: BTreeSet<Layer> = Layer::ALL
            .into_iter()
            .filter(|layer| is_refused(field.attack(attack, alone(*layer)).0))
            .collect();
        let also = attack.also.map_or(&[] as &[Layer], |(layers, _)| layers);
        let surely: BTreeSet<Layer> =
            refusing.iter().copied().filter(|layer| !also.contains(layer)).collect();
        if surely != expected {
            wrong.push(format!("{}: alone {refusing:?}, not {expected:?}", attack.name));
        }
        // Without no-new-privileges the kernel takes neither Landlock nor seccomp: see the next test.
        for layer in Layer::ALL.into_iter().filter(|layer| *layer != Layer::NoNewPrivileges) {
            let refused = is_refused(field.attack(attack, Layers::ALL.without(layer)).0);
            let others = expected.iter().any(|other| *other != layer);
            if refused != others && (!refused || also.is_empty()) {
                let how = if refused { "refused" } else { "done" };
                wrong.push(format!("{}: {how} without {layer}", attack.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

pub(crate) fn what_is_missing_without_no_new_privileges_is_told() {
    if rustix::thread::no_new_privs().unwrap() {
        println!("    it holds already for whatever is started here");
        return;
    }
    let field = Field::new();
    let report = field.attack(&ATTACKS[0], Layers::ALL.without(Layer::NoNewPrivileges)).1.unwrap();
    assert!(!report.is_whole());
    for layer in [Layer::Files, Layer::Ports, Layer::Sockets, Layer::Signals, Layer::Calls] {
        let missing = matches!(report.state(layer), State::Missing(Why::Refused(libc::EPERM | libc::EACCES)));
        assert!(missing || field.report.state(layer) != State::Took, "{layer}: {}", report.state(layer));
    }
}

pub(crate) fn the_table_of_the_design_is_what_was_measured() {
    let mut table =
        String::from("| attempt | who could otherwise | refused by, each alone |\n|---|---|---|\n");
    for attack in ATTACKS {
        let who = match attack.who {
            Who::Anyone => "anyone".to_owned(),
            Who::Root => "root".to_owned(),
            Who::Where(setting) => format!("depends ({setting})"),
        };
        let mut layers: Vec<String> = attack.refused_by.iter().map(|layer| format!("`{layer}`")).collect();
        if let Some((also, when)) = attack.also {
            let also: Vec<String> = also.iter().map(|layer| format!("`{layer}`")).collect();
            layers.push(format!("{} {when}", also.join(", ")));
        }
        writeln!(table, "| {} | {who} | {} |", attack.name, layers.join(", ")).unwrap();
    }
    let design = include_str!("../../../../docs/design.md");
    assert!(design.contains(&table), "docs/design.md should have this table:\n{table}");
}
