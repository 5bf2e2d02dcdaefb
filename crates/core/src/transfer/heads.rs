//! What the head of an answer means: checked before the first byte of its body is accepted.

use super::remote::Admission;
use super::standing::Standing;
use super::{
    Action, BodyPlan, Fetch, Found, Kind, MOST_CRUMBS, MOST_HOPS, MOST_STRIKES, Preparation, SEAM, State,
    Transfer,
};
use crate::answer::Answer;
use crate::failure::{Code, Failure, Remedy};
use crate::headers::Coding;
use crate::id::SegmentId;
use crate::message::EventKind;
use crate::proof::Sampling;
use crate::request::redact;
use crate::span::Span;
use crate::validator::{Identity, Likeness};
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

/// Where the body of an answer lies in the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    /// The server answered a range with the whole.
    range_ignored: bool,
}

impl Transfer {
    pub(super) fn on_head(
        &mut self,
        segment: SegmentId,
        answer: Answer,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let Some(fetch) = self.fetches.get_mut(&segment) else {
            out.push(Action::Drop { segment });
            return;
        };
        fetch.last_heard = now;
        let fetch = fetch.clone();
        if answer.status < 300 {
            let wait = now.saturating_duration_since(fetch.asked_at);
            self.wait = if self.wait.is_zero() { wait } else { (self.wait * 3 + wait) / 4 };
        }
        let outcome = match answer.status {
            200 | 206 => self.on_content(segment, &fetch, answer, now, out),
            300 | 301 | 302 | 303 | 307 | 308 if answer.location.is_some() => {
                self.on_redirect(segment, fetch, &answer, now, out)
            }
            416 => self.on_unsatisfiable(segment, &fetch, &answer, now, out),
            _ => Err(refusal(&fetch, &answer)),
        };
        if let Err(failure) = outcome {
            out.push(Action::Drop { segment });
            self.failed(segment, failure, now, out);
        }
        self.settle(out);
        self.replenish(now, out);
    }

    fn on_redirect(
        &mut self,
        segment: SegmentId,
        fetch: Fetch,
        answer: &Answer,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<(), Failure> {
        if fetch.hops >= MOST_HOPS {
            let message = format!("more than {MOST_HOPS} redirects from {}", redact(&fetch.url));
            return Err(Failure::new(Code::RedirectLoop, message));
        }
        let location = answer.location.as_deref().unwrap_or_default();
        let target = crate::headers::resolve_location(&fetch.url, location).map_err(|why| {
            Failure::new(
                Code::RedirectInvalid,
                format!("{} redirects to what cannot be fetched: {why}", redact(&fetch.url)),
            )
        })?;
        if fetch.url.scheme() == "https" && target.scheme() == "http" {
            let message = format!("{} redirects to plain http", redact(&fetch.url));
            out.push(Action::Tell(EventKind::Notice { message }));
        }
        out.push(Action::Drop { segment });
        self.remove(segment);
        self.send(Fetch { url: target, hops: fetch.hops + 1, received: 0, asked_at: now, ..fetch }, out);
        Ok(())
    }

    /// 416: nothing of the range exists, or so the server says.
    fn on_unsatisfiable(
        &mut self,
        segment: SegmentId,
        fetch: &Fetch,
        answer: &Answer,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<(), Failure> {
        let _ = now;
        let total = answer.identity.length;
        match (total, self.length()) {
            // A length in answer to a range beyond the end. Of what file, it seldom says; and the body that
            // is on its way tells its own end.
            (Some(_), None) if self.identity.is_some() && fetch.range.is_some() => {
                out.push(Action::Drop { segment });
                self.remove(segment);
                Ok(())
            }
            (Some(total), Some(length)) if total != length => {
                out.push(Action::Drop { segment });
                self.remove(segment);
                self.changed(
                    Failure::new(
                        Code::Changed,
                        format!("the remote file changed: {length} bytes were, {total} are"),
                    ),
                    None,
                    out,
                );
                Ok(())
            }
            _ if fetch.range.is_some() => Err(Failure::new(
                Code::RangesRefused,
                "the server refuses a range of a file that has it (416)",
            )),
            _ => Err(Failure::new(
                Code::UnexpectedStatus,
                "the server answered 416 to a request without a range",
            )),
        }
    }

    fn on_content(
        &mut self,
        segment: SegmentId,
        fetch: &Fetch,
        answer: Answer,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<(), Failure> {
        let codings = self.codings_of(fetch, &answer)?;
        let place = place_of(fetch, &answer)?;
        let mut identity = answer.identity.clone();
        identity.said_by = Some(xxh3_64(fetch.url.origin().ascii_serialization().as_bytes()));
        if !codings.is_empty() {
            identity.length = None;
        }
        if let (Some(expected), Some(length)) = (self.request.length, identity.length)
            && expected != length
        {
            return Err(Failure::new(
                Code::LengthMismatch,
                format!("{expected} bytes were promised, the server has {length}"),
            ));
        }
        if self.fetches.len() > 1 && place.range_ignored {
            return Err(Failure::new(Code::RangesRefused, "the server answers a range with the whole file"));
        }
        let whole = place.range_ignored || fetch.range.is_none();
        if whole && matches!(fetch.kind, Kind::Window(_)) && !matches!(self.state, State::Proving) {
            out.push(Action::Drop { segment });
            self.remove(segment);
            self.set_aside(fetch.mirror, now, out);
            return Ok(());
        }
        let likeness = match self.likeness(fetch, &identity) {
            // A body that is coded in another way is not to be joined with this one, whatever it decodes to.
            _ if self.identity.is_some() && codings != self.codings => Likeness::Different,
            // There is more of it already than this one says that there is at all.
            _ if self.length().is_none() && identity.length.is_some_and(|total| total < self.reach()) => {
                Likeness::Different
            }
            likeness => likeness,
        };
        match likeness {
            Likeness::Different if fetch.mirror != self.primary() => {
                let message = format!("{} holds another file ({identity})", redact(&fetch.url));
                Err(Failure::new(Code::NotTheFile, message).with_remedy(Remedy::Elsewhere))
            }
            Likeness::Different if self.is_a_page(&answer) => {
                let message = format!("{} answers with a web page, not the file", redact(&fetch.url));
                Err(Failure::new(Code::NotTheFile, message))
            }
            Likeness::Different => {
                let was = self.identity.clone().unwrap_or_default();
                let failure = Failure::new(
                    Code::Changed,
                    format!("the remote file changed: it was {was}, it is {identity}"),
                );
                self.changed_with(segment, fetch, answer, identity, codings, place, failure, now, out);
                Ok(())
            }
            likeness if self.may_not_join(fetch.mirror, likeness, whole) => {
                let message = "nothing proves that this answer is of the same file as the bytes here, and \
                               --resume strict asks for proof";
                if self.fetches.len() > 1 {
                    return Err(Failure::new(Code::RangesRefused, message));
                }
                let failure = Failure::new(Code::Changed, message);
                self.changed_with(segment, fetch, answer, identity, codings, place, failure, now, out);
                Ok(())
            }
            likeness => self.accept_content(segment, answer, identity, codings, place, likeness, now, out),
        }
    }

    /// Where the bytes end that came so far.
    fn reach(&self) -> u64 {
        let here = self.have.iter().next_back().map_or(0, Span::end);
        let coming = self.fetches.values().filter(|f| f.accepted && f.kind == Kind::Segment).map(|f| f.pos);
        coming.max().unwrap_or(0).max(here)
    }

    /// The codings to undo; none if the name says that the coded file is what is wanted.
    fn codings_of(&self, fetch: &Fetch, answer: &Answer) -> Result<Vec<Coding>, Failure> {
        let path = fetch.url.path().to_ascii_lowercase();
        let is_archive = |coding: &Coding| match coding {
            Coding::Gzip => path.ends_with(".gz") || path.ends_with(".tgz"),
            Coding::Brotli => path.ends_with(".br"),
            Coding::Zstd => path.ends_with(".zst"),
            _ => false,
        };
        let mut codings: Vec<Coding> = answer.codings.clone();
        if codings.len() == 1 && is_archive(&codings[0]) {
            codings.clear();
        }
        if let Some(Coding::Unknown(name)) = codings.iter().find(|c| matches!(c, Coding::Unknown(_))) {
            return Err(Failure::new(
                Code::EncodingUnknown,
                format!("the body is encoded as {name:?}, which is not known here"),
            ));
        }
        if !codings.is_empty() && fetch.range.is_some() {
            return Err(Failure::new(Code::RangesRefused, "the server answers ranges of an encoded body"));
        }
        Ok(codings)
    }

    /// Which mirror gave the identity: the first that was admitted.
    fn primary(&self) -> usize {
        self.remotes
            .iter()
            .position(|r| r.is_admitted())
            .unwrap_or_else(|| self.remotes.iter().position(|r| r.identity.is_some()).unwrap_or(usize::MAX))
    }

    fn likeness(&self, fetch: &Fetch, now: &Identity) -> Likeness {
        match (&self.remotes[fetch.mirror].identity, &self.identity) {
            (Some(was), _) => was.compare(now),
            // Another mirror: tags and dates of different hosts say nothing, lengths do.
            (None, Some(known))
                if known.length.is_some() && now.length.is_some() && known.length != now.length =>
            {
                Likeness::Different
            }
            (None, _) => Likeness::Unproved,
        }
    }

    fn is_a_page(&self, answer: &Answer) -> bool {
        let html =
            |t: &str| t.eq_ignore_ascii_case("text/html") || t.eq_ignore_ascii_case("application/xhtml+xml");
        answer.content_type.as_deref().is_some_and(html) && !self.content_type.as_deref().is_some_and(html)
    }

    #[allow(clippy::too_many_arguments, reason = "the facts of one answer")]
    fn accept_content(
        &mut self,
        segment: SegmentId,
        answer: Answer,
        identity: Identity,
        codings: Vec<Coding>,
        place: Place,
        likeness: Likeness,
        now: Instant,
        out: &mut Vec<Action>,
    ) -> Result<(), Failure> {
        let Some(fetch) = self.fetches.get(&segment).cloned() else { return Ok(()) };
        let first = self.identity.is_none();
        let resumed = self.unconfirmed && !self.have.is_empty();
        let sent_validator = fetch.if_range.is_some();
        let remote = &mut self.remotes[fetch.mirror];
        if likeness == Likeness::Unproved && place.range_ignored && sent_validator {
            // The whole because of our If-Range, from a node that has another tag for the same
            // date: asked again without, and the bytes decide.
            remote.if_range = false;
            out.push(Action::Drop { segment });
            self.remove(segment);
            self.go_on(now, out);
            return Ok(());
        }
        if fetch.url != *remote.original() {
            remote.current = Some(fetch.url.clone());
        }
        if place.range_ignored {
            remote.ranges = Some(false);
        } else if fetch.range.is_some() && remote.strikes < MOST_STRIKES && remote.crumbs < MOST_CRUMBS {
            remote.ranges = Some(true);
        } else if answer.accept_ranges == Some(false) {
            remote.ranges = Some(false);
        }
        let window = matches!(fetch.kind, Kind::Window(_));
        let whole = place.range_ignored || fetch.range.is_none();
        if !window && (self.have.is_empty() || !matches!(remote.admission, Admission::Sampling(_))) {
            remote.admission = Admission::Admitted;
        }
        if remote.identity.is_none() || likeness == Likeness::Same {
            remote.identity = Some(identity.clone());
        }
        if self.content_type.is_none() {
            self.content_type = answer.content_type.clone();
        }
        if codings.is_empty() && fetch.mirror == self.primary() {
            for digest in &answer.digests {
                if !self.server_digests.contains(digest) && self.server_digests.len() < 8 {
                    self.server_digests.push(digest.clone());
                }
            }
        }
        for duplicate in answer.links.duplicates.iter().take(8) {
            self.add_mirror(&duplicate.target, &fetch.url, now);
        }
        match &mut self.identity {
            None => self.identity = Some(identity.clone()),
            Some(known) if known.length.is_none() && identity.length.is_some() && codings.is_empty() => {
                let total = identity.length.unwrap_or_default();
                self.learn_length(total, out);
            }
            Some(_) => {}
        }

        let proving = matches!(self.state, State::Proving);
        if (self.unconfirmed && !proving) || first {
            let confirmed = self.confirm(fetch.mirror, &identity, likeness, resumed, whole, out);
            if let Err(why) = confirmed {
                // Nothing vouches for the bytes from before, and that is not enough here.
                let failure = Failure::new(Code::Changed, why);
                self.changed_with(segment, &fetch, answer, identity, codings, place, failure, now, out);
                return Ok(());
            }
            self.codings = codings;
            self.prepare_with(segment, &fetch, &answer, place, out);
            return Ok(());
        }
        if !window || whole {
            self.join(fetch.mirror, &identity, likeness, whole);
        }
        self.accept(segment, place, now, out);
        Ok(())
    }

    /// The first good answer of this run: what becomes of the bytes from before?
    fn confirm(
        &mut self,
        mirror: usize,
        identity: &Identity,
        likeness: Likeness,
        resumed: bool,
        whole: bool,
        out: &mut Vec<Action>,
    ) -> Result<(), &'static str> {
        if !resumed {
            self.unconfirmed = false;
            self.adopt(mirror, identity);
            self.standing = Standing::of(identity);
            return Ok(());
        }
        if likeness == Likeness::Same && self.voice == Some(mirror) {
            // The validator vouches for them.
            self.unconfirmed = false;
            self.unrecorded = false;
            self.unproved = Default::default();
            self.from_before = Default::default();
            self.standing = Standing::Validated;
            return Ok(());
        }
        self.unrecorded = true;
        self.adopt(mirror, identity);
        // If the answer is the whole, it will have passed over everything.
        self.standing = Standing::of(identity);
        if self.has_digests() && !self.borrowed {
            // In the end the digest does. (Not where it would be told too late: another link's part must be
            // proved before it is written to.)
            self.unconfirmed = false;
            self.unproved = Default::default();
            self.from_before = Default::default();
            self.standing = Standing::Samples;
            return Ok(());
        }
        if self.is_strict() {
            return Err(
                "nothing proves that the bytes here are of this file, and --resume strict asks for proof",
            );
        }
        if whole && self.borrowed {
            return Err("the server serves no ranges by which to prove the bytes of another link");
        }
        let message =
            "the server gives no proof that this is the file from before: comparing samples of the bytes";
        out.push(Action::Tell(EventKind::Notice { message: message.to_owned() }));
        Ok(())
    }

    /// Lets the cold side prepare while the answer waits.
    fn prepare_with(
        &mut self,
        segment: SegmentId,
        fetch: &Fetch,
        answer: &Answer,
        place: Place,
        out: &mut Vec<Action>,
    ) {
        let proving = self.unconfirmed && !self.unproved.is_empty();
        let whole = place.range_ignored || fetch.range.is_none();
        self.measured = self.length().is_some();
        let window = match fetch.range {
            Some((start, Some(end))) if proving && !whole => {
                Span::new(start, end).filter(|w| self.unproved.covers(*w))
            }
            _ => None,
        };
        let held = if proving && !whole && window.is_none() {
            out.push(Action::Drop { segment });
            self.remove(segment);
            None
        } else {
            let open = self.codings.is_empty().then_some(self.length()).flatten();
            let seam = if self.has_digests() { 0 } else { SEAM };
            let (end, write) = match (window, whole) {
                (Some(window), _) => (window.end(), false),
                (None, true) => (open.unwrap_or(u64::MAX), true),
                (None, false) => (fetch.end, true),
            };
            if let Some(fetch) = self.fetches.get_mut(&segment) {
                fetch.kind = window.map_or(Kind::Segment, Kind::Window);
                fetch.end = end;
                if window.is_none() && whole {
                    // The whole from its first byte: what is here is compared as it passes.
                    fetch.range = None;
                    fetch.start = place.offset;
                    fetch.pos = place.offset;
                }
            }
            if window.is_none() {
                self.unconfirmed = false;
            }
            let codings = self.codings.clone();
            let doubtful = self.is_doubtful();
            let measured = open.is_some();
            Some((segment, BodyPlan { offset: place.offset, end, seam, write, doubtful, measured, codings }))
        };
        self.state = State::Preparing { held, lost: None };
        let ranges = self.remotes[fetch.mirror].ranges;
        let resumable =
            self.codings.is_empty() && (ranges == Some(true) || answer.accept_ranges == Some(true));
        let preparation = Preparation {
            identity: self.record(),
            restart: self.must_restart.clone(),
            disposition: answer.suggested_name.clone(),
            content_type: answer.content_type.clone(),
            url: fetch.url.clone(),
            resumable,
            decoded: !self.codings.is_empty(),
            unproved: self.unrecorded,
            digests: self.server_digests.clone(),
        };
        // Asked once more when they are proved.
        self.preparation = proving.then(|| Box::new(preparation.clone()));
        out.push(Action::Prepare(Box::new(preparation)));
    }

    /// The bytes from before are proved, in samples: lets the cold side take them for this version.
    pub(super) fn prepare_proved(&mut self, out: &mut Vec<Action>) {
        let Some(preparation) = self.preparation.take() else { return };
        self.state = State::Preparing { held: None, lost: None };
        let identity = self.record();
        out.push(Action::Prepare(Box::new(Preparation { identity, unproved: false, ..*preparation })));
    }

    pub(super) fn on_prepared(&mut self, now: Instant, out: &mut Vec<Action>) {
        let State::Preparing { held, lost } = &mut self.state else { return };
        let (held, lost) = (held.take(), lost.take());
        self.must_restart = None;
        let proving = self.unconfirmed && !self.unproved.is_empty();
        if !proving {
            self.found = Found::Nothing;
            self.borrowed = false;
        }
        self.state = State::Fetching;
        if proving {
            let length = self.length().unwrap_or(u64::MAX);
            let seed = self.dice.next_u64();
            self.proving = Some(Sampling::new(&self.unproved, length, crate::dice::Dice::new(seed)));
            self.state = State::Proving;
        }
        if let Some((segment, body)) = held
            && let Some(fetch) = self.fetches.get_mut(&segment)
        {
            fetch.accepted = true;
            fetch.accepted_at = Some(now);
            fetch.last_heard = now;
            fetch.heard = self.flowing;
            self.wrote |= body.write;
            out.push(Action::Accept { segment, body });
        }
        self.widen(now);
        if let Some((fetch, failure)) = lost.map(|lost| *lost) {
            self.after_failure(&fetch, failure, now, out);
        }
        self.settle(out);
        self.replenish(now, out);
    }

    /// More connections may be worth trying, as soon as the file is known to be large enough.
    pub(super) fn widen(&mut self, now: Instant) {
        let options = &self.request.options;
        if self.length().is_none_or(|length| length >= options.min_split.saturating_mul(2)) {
            self.ramp.widen(self.received(), self.wait, options.connections, now);
        }
    }

    /// A later answer, already checked: its body may flow.
    fn accept(&mut self, segment: SegmentId, place: Place, now: Instant, out: &mut Vec<Action>) {
        let seam = if self.has_digests() { 0 } else { SEAM };
        let length = self.length();
        let doubtful = self.is_doubtful();
        let Some(fetch) = self.fetches.get_mut(&segment) else { return };
        if place.range_ignored || fetch.range.is_none() {
            // Only ever with nothing else running: the whole from its first byte.
            if matches!(self.state, State::Proving) {
                self.state = State::Fetching;
                self.unconfirmed = false;
                self.proving = None;
            }
            fetch.kind = Kind::Segment;
            fetch.range = None;
            fetch.start = place.offset;
            fetch.pos = place.offset;
            fetch.end = length.unwrap_or(u64::MAX);
        }
        if fetch.kind == Kind::Probe {
            fetch.kind = Kind::Segment;
        }
        if let Some(length) = length {
            fetch.end = fetch.end.min(length);
        }
        fetch.accepted = true;
        fetch.accepted_at = Some(now);
        fetch.heard = self.flowing;
        let fetch = fetch.clone();
        let window = matches!(fetch.kind, Kind::Window(_));
        if !window && !fetch.hedge {
            let overtaken = self.fetches.iter().any(|(other, f)| {
                *other != segment
                    && f.kind == Kind::Segment
                    && f.start < fetch.start
                    && f.pos > fetch.start
                    && f.end >= fetch.end
            });
            if overtaken {
                out.push(Action::Drop { segment });
                self.remove(segment);
                return;
            }
            for (other, f) in &mut self.fetches {
                let loses = *other != segment
                    && f.kind == Kind::Segment
                    && f.pos <= fetch.start
                    && f.start < fetch.start;
                if loses && f.end > fetch.start {
                    f.end = fetch.start;
                    if f.accepted {
                        out.push(Action::End { segment: *other, at: fetch.start });
                    }
                }
            }
        }
        let codings = self.codings.clone();
        self.wrote |= !window;
        let body = BodyPlan {
            offset: place.offset,
            end: fetch.end,
            seam: if window { 0 } else { seam },
            write: !window,
            doubtful,
            measured: self.measured,
            codings,
        };
        out.push(Action::Accept { segment, body });
        if !window {
            self.widen(now);
        }
    }

    fn learn_length(&mut self, total: u64, out: &mut Vec<Action>) {
        let Some(identity) = &mut self.identity else { return };
        identity.length = Some(total);
        Span::new(total, u64::MAX).into_iter().for_each(|beyond| self.unproved.remove(beyond));
        let identity = identity.clone();
        out.push(Action::Learned(self.record()));
        for remote in &mut self.remotes {
            if let Some(known) = &mut remote.identity {
                known.length = known.length.or(identity.length);
            }
        }
        for (segment, fetch) in &mut self.fetches {
            if fetch.end == u64::MAX {
                fetch.end = total;
                if fetch.accepted {
                    out.push(Action::End { segment: *segment, at: total });
                }
            }
        }
    }

    /// The file is another now, and this answer is about the new one.
    #[allow(clippy::too_many_arguments, reason = "the facts of one answer")]
    fn changed_with(
        &mut self,
        segment: SegmentId,
        fetch: &Fetch,
        answer: Answer,
        identity: Identity,
        codings: Vec<Coding>,
        place: Place,
        failure: Failure,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let _ = now;
        let usable = place.offset == 0 && (place.range_ignored || fetch.range.is_none());
        if !self.changed(failure, usable.then_some(segment), out) || !usable {
            return;
        }
        // The answer in hand is the new file from its first byte.
        let remote = &mut self.remotes[fetch.mirror];
        remote.admission = Admission::Admitted;
        if place.range_ignored && fetch.if_range.is_none() {
            remote.ranges = Some(false);
        }
        self.adopt(fetch.mirror, &identity);
        self.standing = Standing::of(&identity);
        self.content_type = answer.content_type.clone();
        self.server_digests = answer.digests.clone();
        self.codings = codings;
        self.prepare_with(segment, fetch, &answer, Place { range_ignored: true, ..place }, out);
    }

    fn add_mirror(&mut self, link: &str, base: &url::Url, now: Instant) {
        let Ok(url) = crate::headers::resolve_location(base, link) else { return };
        if self.remotes.len() < 16 && self.remotes.iter().all(|r| *r.original() != url) {
            self.remotes.push(super::Remote::new(url, now));
        }
    }
}

/// Where the body lies, or why that cannot be believed.
fn place_of(fetch: &Fetch, answer: &Answer) -> Result<Place, Failure> {
    let mismatch = |what: String| Failure::new(Code::RangeMismatch, what);
    if answer.status == 200 {
        return Ok(Place { offset: 0, range_ignored: fetch.range.is_some() });
    }
    if answer.content_type.as_deref().is_some_and(|t| t.eq_ignore_ascii_case("multipart/byteranges")) {
        return Err(mismatch("the server answered one range with several parts".to_owned()));
    }
    let range = match &answer.content_range {
        None => {
            return Err(mismatch(
                "the server sent a part without saying which (206 without Content-Range)".to_owned(),
            ));
        }
        Some(Err(why)) => {
            return Err(mismatch(format!(
                "the server sent a part with a Content-Range that makes no sense: {why}"
            )));
        }
        Some(Ok(range)) => range,
    };
    let Some(span) = range.span() else {
        return Err(mismatch("the server sent a part without saying which".to_owned()));
    };
    let (asked, asked_end) = fetch.range.unwrap_or((0, None));
    if span.start() != asked {
        return Err(mismatch(format!(
            "bytes from {asked} were asked, the server sent bytes from {}",
            span.start()
        )));
    }
    if fetch.range.is_none() && range.total().is_none() {
        // Nothing would tell its end from the end of the file.
        return Err(mismatch("the server sent a part of a file of unknown length unasked".to_owned()));
    }
    if let Some(body) = answer.body_length()
        && body != span.len()
    {
        return Err(mismatch(format!("the server announces {} bytes and sends {body}", span.len())));
    }
    if asked_end.is_some_and(|end| span.end() > end.saturating_add(1)) {
        return Err(mismatch(format!(
            "bytes up to {} were asked, the server sends up to {}",
            asked_end.unwrap_or_default(),
            span.end()
        )));
    }
    Ok(Place { offset: asked, range_ignored: false })
}

/// What a status other than success means.
fn refusal(fetch: &Fetch, answer: &Answer) -> Failure {
    let shown = redact(&fetch.url);
    let status = answer.status;
    let after = answer.retry_after;
    let ranged = fetch.range.is_some();
    match status {
        400 | 405 | 412 | 501 if ranged => {
            Failure::new(Code::RangesRefused, format!("{shown} refuses a range ({status})"))
        }
        401 => Failure::new(
            Code::AuthRequired,
            format!("{shown} asks for a user and password (401); give them by --user or --netrc"),
        ),
        403 => Failure::new(Code::Forbidden, format!("{shown} is forbidden (403)")),
        404 | 410 => Failure::new(Code::NotFound, format!("{shown} does not exist ({status})")),
        407 => Failure::new(
            Code::ProxyFailed,
            "the proxy asks for a user and password (407); put them into its URL",
        ),
        408 | 425 => Failure::new(Code::ServerError, format!("{shown} asks to try again ({status})"))
            .with_remedy(Remedy::Retry { after }),
        429 | 503 => Failure::new(Code::Busy, format!("{shown} is busy ({status})"))
            .with_remedy(Remedy::Retry { after }),
        500..=599 => Failure::new(Code::ServerError, format!("{shown} failed ({status})"))
            .with_remedy(Remedy::Retry { after }),
        _ => Failure::new(Code::UnexpectedStatus, format!("{shown} answered with status {status}")),
    }
}
