//! What a process says, and what becomes of it.

use super::watcher::{Reader, Violation};
use super::{Asking, Call, Leaving, MOST_BACKLOG_BYTES, Supervisor, comparable};
use crate::config::Isolation;
use crate::engine::ToCold;
use crate::protocol::{Cold, FromChild, KindOf, Resolution, ToChild, VERSION};
use std::sync::Arc;
use tidegate_core::cookies::CookieJar;
use tidegate_core::message::Snapshot;
use tidegate_core::request::NamedBy;
use tidegate_core::{Code, DownloadId};

impl Supervisor {
    /// Whether the process has answered since this was asked last.
    pub(super) fn has_answered(&self) -> bool {
        std::mem::take(&mut self.lock().alive)
    }

    /// What the process says, in so many bytes.
    pub(super) fn hear(
        self: &Arc<Self>,
        reader: &mut Reader,
        message: FromChild,
        size: usize,
    ) -> Result<(), Violation> {
        let name = message.kind().name;
        if reader.ready.is_none() != matches!(message, FromChild::Ready { .. }) {
            return Err(Violation(format!("{name} at the wrong time")));
        }
        match message {
            FromChild::Ready { version, .. } if version != VERSION => {
                return Err(Violation(format!("it speaks version {version}")));
            }
            FromChild::Ready { layers, missing, .. } => reader.ready = Some(Isolation { layers, missing }),
            FromChild::Cold { id, message } => self.pass_on(id, message, size)?,
            FromChild::Done { call } => self.answered(call, name, |call| match call {
                Call::Done(done) => {
                    done.give(());
                    Ok(())
                }
                other => Err(other),
            })?,
            FromChild::Saved { call, result } => self.answered(call, name, |call| match call {
                Call::Saved(saved) => {
                    // Nobody may wait any more.
                    let _ = saved.send(result);
                    Ok(())
                }
                other => Err(other),
            })?,
            FromChild::Snapshot { call, snapshot } => self.answered(call, name, |call| match call {
                Call::Snapshot(mut asked) => {
                    self.remember(&snapshot);
                    asked.snapshot = snapshot;
                    asked.give();
                    Ok(())
                }
                other => Err(other),
            })?,
            FromChild::Progress { call, progress } => self.answered(call, name, |call| match call {
                Call::Progress(_, reply) => {
                    reply.give(progress);
                    Ok(())
                }
                other => Err(other),
            })?,
            FromChild::Cookies { call, cookies } => self.answered(call, name, |call| match call {
                Call::Cookies(reply) => {
                    let state = &mut *self.lock();
                    // Of hosts that it has nothing to do with it has nothing to say.
                    let met: Vec<&str> = state.met.iter().map(String::as_str).collect();
                    state.cookies.replace(met, cookies, crate::engine::unix_now());
                    reply.give(state.cookies.clone());
                    Ok(())
                }
                other => Err(other),
            })?,
            FromChild::Pong { call, .. } => {
                let state = &mut *self.lock();
                // One that takes nothing in cannot know what it was asked.
                if state.ping == Some(call) {
                    (state.ping, state.alive) = (None, true);
                }
            }
            FromChild::Resolve { call, host, port } => self.look_up(reader, call, host, port),
            FromChild::WantRoots { call } => {
                let link = Arc::clone(&reader.link);
                self.lookups.roots(move |roots| link.send(&ToChild::Roots { call, roots }, &[]));
            }
            FromChild::Introduce { host } => {
                let mut state = self.lock();
                let known = state.met.contains(&comparable(&host));
                let message = if known || state.strangers_left > 0 {
                    state.strangers_left -= usize::from(!known);
                    self.introduction(&mut state, &host, NamedBy::Document)
                } else {
                    // It may ask there without anything of the user's, if it needs no name for that.
                    ToChild::Introduced { host, cookies: CookieJar::new(), netrc: None }
                };
                drop(state);
                reader.link.send(&message, &[]);
            }
        }
        Ok(())
    }

    /// A name is looked up if the process was introduced to it, or it is a proxy's.
    fn look_up(&self, reader: &Reader, call: u64, host: String, port: u16) {
        let link = Arc::clone(&reader.link);
        let tell = move |answer| link.send(&ToChild::Resolved { call, answer }, &[]);
        let host_is = comparable(&host);
        let known = self.lock().met.contains(&host_is) || self.proxies.contains(&host_is);
        match known {
            true => self.lookups.resolve(host, port, tell),
            false => tell(Resolution::Failed("this download has led to too many hosts".to_owned())),
        }
    }

    /// Keeps how far each download is, for when there is no process to ask.
    fn remember(&self, snapshot: &Snapshot) {
        let mut state = self.lock();
        for progress in &snapshot.downloads {
            if let Some(entry) = state.downloads.get_mut(&progress.id) {
                entry.last = Some(progress.clone());
            }
        }
    }

    fn pass_on(&self, id: DownloadId, message: Cold, size: usize) -> Result<(), Violation> {
        let mut state = self.lock();
        let (newest, ending) = (state.newest, state.ending);
        let Some(entry) = state.downloads.get_mut(&id) else {
            // It has ended meanwhile; or never was.
            return if id <= newest { Ok(()) } else { Err(Violation(format!("there is no download {id}"))) };
        };
        entry.was_asked |= matches!(message, Cold::Turn(_));
        // How a download is to go is said here and nowhere else; the process only hands that on.
        let told = match &message {
            Cold::Cancel => matches!(entry.leaving, Some(Leaving::Cancel)),
            Cold::End => ending || entry.leaving.is_some(),
            Cold::GiveUp(failure) => failure.code != Code::Cancelled,
            Cold::Paused => entry.was_paused,
            _ => true,
        };
        if !told {
            return Err(Violation(format!("it ends or pauses download {id}, which nobody asked for")));
        }
        match &message {
            Cold::Cancel | Cold::End => entry.debt.says_goodbye(),
            Cold::Returned { .. } => entry.debt.returned(),
            Cold::Freed => entry.debt.freed(),
            _ => {}
        }
        let message = match message {
            Cold::Tell(kind) => ToCold::Tell(kind),
            Cold::Turn(turn) => ToCold::Turn(turn),
            Cold::Prepare { preparation, doubts } => ToCold::Prepare { preparation, doubts },
            Cold::Learned { identity, doubts } => ToCold::Learned { identity, doubts },
            Cold::Verify { identity, digests, proof, received } => {
                ToCold::Verify { identity, digests, proof, received }
            }
            Cold::AwaitMachine(failure) => ToCold::AwaitMachine(failure),
            Cold::GiveUp(failure) => ToCold::GiveUp(failure),
            Cold::Paused => ToCold::Paused,
            Cold::Cancel => ToCold::Cancel,
            Cold::End => ToCold::End,
            Cold::Returned { doubts, have } => ToCold::Returned { doubts, have },
            Cold::Freed => ToCold::Freed,
        };
        let fits = entry.push(message, size)
            && (entry.backlog.is_empty() || state.backlog_bytes() <= MOST_BACKLOG_BYTES);
        if fits { Ok(()) } else { Err(Violation(format!("it says too much of download {id}"))) }
    }

    /// An answer came: hands it to whoever asked. One to a question of another kind is a violation; one that nobody
    /// waits for any more is nothing.
    fn answered(
        &self,
        number: u64,
        name: &str,
        give: impl FnOnce(Call) -> Result<(), Call>,
    ) -> Result<(), Violation> {
        let asking = {
            let mut state = self.lock();
            if number > state.next_call {
                return Err(Violation(format!("{name} answers nothing")));
            }
            state.calls.remove(&number)
        };
        let Some(Asking { call, looks }) = asking else { return Ok(()) };
        give(call).map_err(|call| {
            // Whoever asked is answered when this process is ended for it.
            self.lock().calls.insert(number, Asking { call, looks });
            Violation(format!("{name} answers another question"))
        })
    }
}
