//! What messages may hold: what is told of them here cannot make a sum overflow, a list grow, or a name mean more than
//! it may.
//!
//! The bounds are beyond all that an honest process says, whatever servers say to it: a server must not be able to
//! have the child ended by a strange answer.

use super::{Cold, FromChild, Place, Resolution, Saved, ToChild};
use crate::part_file::State;
use tidegate_core::message::{EventKind, Phase, Progress, Proof};
use tidegate_core::request::Destination;
use tidegate_core::transfer::{Found, Preparation, Verified};
use tidegate_core::written::{MAX_LISTED, MAX_URL};
use tidegate_core::{Failure, Identity, Span};

/// The most that a count of bytes or an offset may be: files are not larger, and two of these can be added.
const MOST_BYTES: u64 = i64::MAX as u64;

/// The most that a number may be that goes up one by one.
const MOST_STEPS: u64 = 1 << 62;

/// The longest text that is shown to people, in bytes.
const MOST_TEXT: usize = 64 << 10;

/// The longest text from a head of an answer, in bytes: a head is not longer than half of this, and each byte of it
/// may have become two.
const MOST_HEADER: usize = 128 << 10;

/// The most digests of one file.
const MOST_DIGESTS: usize = 1024;

/// The most downloads of a snapshot.
const MOST_DOWNLOADS: usize = 4096;

/// The most segments of a download.
const MOST_SEGMENTS: usize = 1024;

/// The most layers of a lock-down, and the longest name of one.
const MOST_LAYERS: (usize, usize) = (64, 256);

type Check = Result<(), &'static str>;

/// Checks what the child said.
pub(super) fn of_child(message: &FromChild) -> Check {
    match message {
        FromChild::Ready { version: _, layers, missing } => {
            let (most, longest) = MOST_LAYERS;
            let fit =
                |names: &Vec<String>| names.len() <= most && names.iter().all(|name| name.len() <= longest);
            hold(fit(layers) && fit(missing), "too many layers, or one with too long a name")
        }
        FromChild::Cold { id: _, message } => cold(message),
        FromChild::Saved { call: _, result: Saved::Durable(bytes) } => is_size(*bytes),
        FromChild::Saved { call: _, result: Saved::Failed(failure) } => is_failure(failure),
        FromChild::Saved { call: _, result: Saved::Gone } => Ok(()),
        FromChild::Snapshot { call: _, snapshot } => {
            hold(snapshot.downloads.len() <= MOST_DOWNLOADS, "too many downloads")?;
            is_size(snapshot.speed)?;
            snapshot.downloads.iter().try_for_each(is_progress)
        }
        FromChild::Progress { call: _, progress } => progress.iter().try_for_each(is_progress),
        FromChild::Resolve { call: _, host, port: _ } | FromChild::Introduce { host } => {
            let strange = |b: u8| b <= b' ' || b == 0x7f || b >= 0x80;
            hold(host.len() <= MAX_URL && !host.is_empty() && !host.bytes().any(strange), "no name of a host")
        }
        FromChild::Done { .. }
        | FromChild::Cookies { .. }
        | FromChild::Pong { .. }
        | FromChild::WantRoots { .. } => Ok(()),
    }
}

fn cold(message: &Cold) -> Check {
    match message {
        Cold::Tell(kind) => is_told_by_a_child(kind),
        Cold::Turn(turn) => is_step(*turn),
        Cold::Prepare { preparation, doubts } => {
            is_step(*doubts)?;
            is_preparation(preparation)
        }
        Cold::Learned { identity, doubts } => {
            is_step(*doubts)?;
            is_identity(identity)
        }
        Cold::Verify { identity, digests, proof, received } => {
            // That is for the cold side to find.
            hold(
                !matches!(proof, Proof::Digest | Proof::Untouched),
                "a proof that only a cold side can have",
            )?;
            is_identity(identity)?;
            is_size(*received)?;
            hold(digests.len() <= MOST_DIGESTS, "too many digests")
        }
        Cold::AwaitMachine(failure) | Cold::GiveUp(failure) => is_failure(failure),
        Cold::Returned { doubts, have } => {
            is_step(*doubts)?;
            have.iter().try_for_each(is_span)
        }
        Cold::Paused | Cold::Cancel | Cold::End | Cold::Freed => Ok(()),
    }
}

/// What became of a file, and where it is, is for the cold side to tell.
fn is_told_by_a_child(kind: &EventKind) -> Check {
    match kind {
        EventKind::Started { resumed_from } => is_size(*resumed_from),
        EventKind::Waiting { failure, retry_in: _ } | EventKind::Restarted { failure } => is_failure(failure),
        EventKind::Notice { message } => is_text(message),
        EventKind::Paused { have } => is_size(*have),
        EventKind::Identified { .. }
        | EventKind::Named { .. }
        | EventKind::Checkpointed { .. }
        | EventKind::Stopped { .. }
        | EventKind::Completed { .. }
        | EventKind::Failed { .. } => Err("an event that only a cold side can tell"),
    }
}

fn is_preparation(preparation: &Preparation) -> Check {
    let Preparation { identity, restart, disposition, content_type, url: _, digests, .. } = preparation;
    is_identity(identity)?;
    restart.iter().try_for_each(is_failure)?;
    let from_head = [disposition, content_type].into_iter().flatten();
    hold(from_head.into_iter().all(|text| text.len() <= MOST_HEADER), "a text that no head has room for")?;
    hold(digests.len() <= MOST_DIGESTS, "too many digests")
}

fn is_progress(progress: &Progress) -> Check {
    let Progress {
        id: _,
        phase,
        have,
        received,
        length,
        speed,
        left: _,
        connections,
        segments,
        map,
        requests,
    } = progress;
    if let Phase::Waiting { failure, retry_in: _ } = phase {
        is_failure(failure)?;
    }
    [*have, *received, *speed, length.unwrap_or(0)].into_iter().try_for_each(is_size)?;
    is_step(*requests)?;
    hold(*connections <= MOST_SEGMENTS && segments.len() <= MOST_SEGMENTS, "too many connections")?;
    segments.iter().try_for_each(|segment| {
        is_size(segment.speed)?;
        is_span(segment.span)
    })?;
    map.iter().copied().try_for_each(is_span)
}

/// Checks what the parent said.
pub(super) fn of_parent(message: &ToChild) -> Check {
    match message {
        ToChild::Start { id: _, request, found, borrowed: _, place } => {
            if let Destination::File { .. } = request.destination {
                is_size(request.length.unwrap_or(0))?;
            }
            match found {
                Found::Nothing => {}
                Found::Recorded { identity, spans } => {
                    is_identity(identity)?;
                    spans.iter().try_for_each(is_span)?;
                }
                Found::Adopted { spans } => spans.iter().try_for_each(is_span)?,
            }
            is_place(place)
        }
        ToChild::Prepared { id: _, turn, place } => {
            is_step(*turn)?;
            place.iter().try_for_each(is_place)
        }
        ToChild::Verified { id: _, turn, verified, place } => {
            is_step(*turn)?;
            match verified {
                Verified::Right => {}
                Verified::BadPieces(spans) => {
                    hold(spans.len() <= MAX_LISTED, "too many spans")?;
                    spans.iter().copied().try_for_each(is_span)?;
                }
                Verified::Wrong(failure) | Verified::Failed(failure) => is_failure(failure)?,
            }
            place.iter().try_for_each(is_place)
        }
        ToChild::MachineReady { id: _, turn } => is_step(*turn),
        ToChild::Resolved { call: _, answer: Resolution::Found(addresses) } => {
            hold(addresses.len() <= Resolution::MOST, "too many addresses")
        }
        ToChild::Resolved { call: _, answer: Resolution::Failed(why) } => is_text(why),
        ToChild::Hello { .. }
        | ToChild::Register { .. }
        | ToChild::Over { .. }
        | ToChild::Gone { .. }
        | ToChild::Save { .. }
        | ToChild::Pause { .. }
        | ToChild::Resume { .. }
        | ToChild::Stop { .. }
        | ToChild::Cancel { .. }
        | ToChild::SetLimits { .. }
        | ToChild::SetDownloadLimit { .. }
        | ToChild::Snapshot { .. }
        | ToChild::Progress { .. }
        | ToChild::Cookies { .. }
        | ToChild::Resolved { call: _, answer: Resolution::Unknown }
        | ToChild::Ping { .. }
        | ToChild::TellTime { .. }
        | ToChild::Shutdown {}
        | ToChild::Introduced { .. }
        | ToChild::Roots { .. } => Ok(()),
    }
}

fn is_place(place: &Place) -> Check {
    match place {
        Place::Nowhere => Ok(()),
        Place::Later { file_system: _, doubts } => is_step(*doubts),
        Place::Stream { called } => is_text(called),
        Place::Part { called, file_system: _, part } => {
            is_text(called)?;
            is_part(part)
        }
    }
}

fn is_part(part: &State) -> Check {
    let State { version, about, have, synced, generation, sequence, doubts, inherited, .. } = part;
    is_identity(&about.identity)?;
    [*version, *generation, *sequence, *doubts].into_iter().try_for_each(is_step)?;
    have.iter().chain(synced.iter()).try_for_each(is_span)?;
    inherited.iter().try_for_each(|(slot, record)| {
        is_identity(&record.about.identity)?;
        [record.sequence, record.generation].into_iter().try_for_each(is_step)?;
        record.spans.iter().try_for_each(is_span)?;
        hold(slot.is_durable(), "a slot of the other kind")
    })?;
    hold(part.next_durable.is_durable() && !part.next_written.is_durable(), "a slot of the other kind")
}

fn is_identity(identity: &Identity) -> Check {
    is_size(identity.length.unwrap_or(0))?;
    let tag = identity.etag.as_ref().map_or(0, |tag| tag.value.len());
    hold(tag <= MOST_HEADER, "a tag that no head has room for")
}

fn is_failure(failure: &Failure) -> Check {
    is_text(&failure.message)
}

fn is_text(text: &str) -> Check {
    hold(text.len() <= MOST_TEXT, "a text for people that is too long")
}

fn is_size(bytes: u64) -> Check {
    hold(bytes <= MOST_BYTES, "a number of bytes that no file has")
}

fn is_span(span: Span) -> Check {
    hold(span.end() <= MOST_BYTES, "a span that no file has")
}

fn is_step(number: u64) -> Check {
    hold(number <= MOST_STEPS, "a number that nobody counts to")
}

fn hold(condition: bool, otherwise: &'static str) -> Check {
    if condition { Ok(()) } else { Err(otherwise) }
}
