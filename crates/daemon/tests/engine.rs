//! A manager with an engine, parts on a disk and a server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use tempfile::TempDir;
use tidegate_core::request::{Destination, Mirror, Request};
use tidegate_daemon::{Manager, MemoryStore, Notice, Outcome, Settings, Summary};
use tidegate_engine::{Config, Engine};
use tidegate_queue::{JobId, Store};
use tidegate_testkit::{Body, Origin, Rate, Resource};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 12 * MIB;

struct House {
    origin: Origin,
    folder: TempDir,
    store: Arc<MemoryStore>,
    manager: Manager,
    jobs: Vec<JobId>,
    bodies: Vec<Body>,
}

/// A manager with so many jobs, each of a file of its own that takes a while.
fn house(jobs: u64) -> House {
    let bodies: Vec<Body> = (0..jobs).map(|n| Body::random(n, SIZE)).collect();
    let origin = bodies.iter().enumerate().fold(Origin::builder(), |origin, (n, body)| {
        origin.resource(&format!("/{n}"), Resource::new(body.clone()).rate(Rate::mib(4)))
    });
    let origin = origin.start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::new());
    let engine = Engine::start(Config::default()).unwrap();
    let manager = Manager::new(engine, Arc::clone(&store) as Arc<dyn Store>, Settings::default());
    let add = |n| {
        let mirror = Mirror::parse(&origin.url(&format!("/{n}"))).unwrap();
        let dir = folder.path().to_owned();
        let place = Destination::File { dir, name: None, adopt: None };
        let mut request = Request::new(vec![mirror], place).unwrap();
        request.options.connections = 2;
        manager.add(request).unwrap()
    };
    let jobs = (0..jobs).map(add).collect();
    House { origin, folder, store, manager, jobs, bodies }
}

impl House {
    /// Runs, and calls `then` once when the server has sent so much of each file.
    fn run_and(&self, sent: u64, then: impl Fn()) -> Summary {
        let mut then = Some(then);
        self.manager.run(&mut |notice| {
            let counters = self.origin.counters();
            let enough = (0..self.jobs.len()).all(|n| counters.path(&format!("/{n}")) > sent);
            if notice == Notice::Tick
                && enough
                && let Some(then) = then.take()
            {
                then();
            }
        })
    }

    fn names(&self) -> Vec<String> {
        let entries = self.folder.path().read_dir().unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// All files are right, nothing else is there, and not much was sent twice.
    fn is_well(&self) {
        let wanted: Vec<String> = (0..self.jobs.len()).map(|n| n.to_string()).collect();
        assert_eq!(self.names(), wanted);
        for (name, body) in wanted.iter().zip(&self.bodies) {
            assert_eq!(body.first_difference_in(self.folder.path().join(name)).unwrap(), None);
        }
        let sent = self.origin.counters().body_bytes;
        let most = self.jobs.len() as u64 * (SIZE + 4 * MIB);
        assert!(sent < most, "{sent} of at most {most}");
    }
}

#[test]
fn a_stop_keeps_what_is_here_and_another_run_goes_on_with_it() {
    let house = house(3);
    let stopper = house.manager.stopper();
    let summary = house.run_and(6 * MIB, || stopper.stop());
    assert!(summary.interrupted, "{summary:?}");
    assert_eq!(summary.outcomes.len(), 3);
    for (_, outcome) in &summary.outcomes {
        let Outcome::Incomplete { failure: None, kept } = outcome else { panic!("{summary:?}") };
        assert!(*kept > 2 * MIB, "{summary:?}");
    }
    assert_eq!(house.names(), ["0.part", "0.part.tide", "1.part", "1.part.tide", "2.part", "2.part.tide"]);
    let summary = house.manager.run(&mut |_| {});
    assert_eq!(summary.outcomes.len(), 3);
    assert!(summary.outcomes.iter().all(|(_, o)| matches!(o, Outcome::Completed { .. })), "{summary:?}");
    house.is_well();
}

#[test]
fn a_job_that_is_lost_and_won_again_goes_on_with_its_own_part() {
    let house = house(2);
    let summary = house.run_and(6 * MIB, || {
        for job in &house.jobs {
            house.store.pause(*job).unwrap();
            house.store.resume(*job).unwrap();
        }
    });
    let (lost, won): (Vec<_>, Vec<_>) =
        summary.outcomes.iter().partition(|(_, o)| matches!(o, Outcome::Incomplete { failure: None, .. }));
    assert_eq!((lost.len(), won.len()), (2, 2), "{summary:?}");
    assert!(won.iter().all(|(_, o)| matches!(o, Outcome::Completed { .. })), "{summary:?}");
    house.is_well();
}
