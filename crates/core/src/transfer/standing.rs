//! What the bytes that are here rest on: what says that they are all of one version of the file.
//!
//! The record of a download names a strong validator only while that validator speaks for every byte,
//! because a later run takes it for a proof. So whatever joins bytes in a weaker way says so before the
//! first of them is written ([`super::BodyPlan::doubtful`]), and not when the download is done.

use super::*;
use crate::validator::Likeness;

/// Why the bytes here are taken for one version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Standing {
    /// One answer brought them, or was compared with them, all; it said nothing strong of its version.
    OneAnswer,
    /// Every answer carried the same strong validator.
    Validated,
    /// Some were joined with others because samples agree, or a digest is to tell in the end.
    Samples,
}

impl Standing {
    /// Of bytes that one answer of this identity is the only source of.
    pub(super) fn of(identity: &Identity) -> Self {
        if identity.if_range().is_some() { Self::Validated } else { Self::OneAnswer }
    }

    pub(super) fn proof(self) -> Proof {
        match self {
            Self::OneAnswer => Proof::Answers,
            Self::Validated => Proof::Validator,
            Self::Samples => Proof::Sampled,
        }
    }
}

impl Transfer {
    /// Whether bytes of answers that nothing proves alike may never be joined.
    pub(super) fn is_strict(&self) -> bool {
        self.request.options.resume == Resume::Strict && !self.has_digests()
    }

    /// Whether this answer may not lie beside the bytes here: in strict mode, when neither a validator nor
    /// a comparison of every byte vouches for both.
    pub(super) fn may_not_join(&self, mirror: usize, likeness: Likeness, whole: bool) -> bool {
        let something_here = !self.have.is_empty() || self.fetches.values().any(|f| f.accepted);
        self.is_strict()
            && self.identity.is_some()
            && !self.unconfirmed
            && something_here
            && !(likeness == Likeness::Same && self.voice == Some(mirror))
            && (!whole || self.goes_out)
    }

    /// A later answer is about to bring bytes: what do all of them rest on then?
    pub(super) fn join(&mut self, mirror: usize, identity: &Identity, likeness: Likeness, whole: bool) {
        let alone = self.fetches.values().all(|f| !f.accepted);
        let proving = matches!(self.state, State::Proving);
        if alone && self.have.is_empty() && !self.wrote {
            // Those before it brought nothing: it is the file.
            self.unrecorded |= self.identity.as_ref() != Some(identity);
            self.adopt(mirror, identity);
            self.standing = Standing::of(identity);
        } else if likeness == Likeness::Same && self.voice == Some(mirror) && !proving {
            // The validator that speaks for the rest speaks for this too, or the rest has a weaker standing.
        } else if whole && alone && !self.has_digests() && !self.goes_out {
            // It passes over everything, and is the whole file once it has.
            self.adopt(mirror, identity);
            self.standing = Standing::of(identity);
            self.unproved = Span::new(0, self.length().unwrap_or(u64::MAX)).into_iter().collect();
            self.unrecorded = true;
        } else {
            self.standing = Standing::Samples;
        }
    }

    /// From now on the file is what this answer says; its length does not change by that.
    pub(super) fn adopt(&mut self, mirror: usize, identity: &Identity) {
        let length = self.identity.as_ref().and_then(|known| known.length).or(identity.length);
        let adopted = Identity { length, ..identity.clone() };
        self.voice = Some(mirror);
        self.remotes[mirror].identity = Some(adopted.clone());
        self.identity = Some(adopted);
    }

    /// What was comparing bytes from before is gone, and some were not reached: all that is here must be
    /// proved anew, since bytes of different answers may lie in it now.
    pub(super) fn doubt(&mut self) {
        self.unproved = self.have.clone();
        for remote in &mut self.remotes {
            if matches!(remote.admission, Admission::Sampling(_)) {
                remote.admission = Admission::Unknown;
            }
        }
        self.unconfirmed = true;
        self.unrecorded = true;
        self.proving = None;
        // No validator speaks for them, and the next answer must not seem to agree with one.
        for identity in self.remotes.iter_mut().filter_map(|r| r.identity.as_mut()).chain(&mut self.identity)
        {
            *identity = identity.weakened();
        }
        self.found =
            Found::Recorded { identity: self.identity.clone().unwrap_or_default(), spans: self.have.clone() };
        self.state = State::Probing;
    }

    /// Whether bytes are here that must be proved, and nobody is at it.
    pub(super) fn owes_proof(&self) -> bool {
        self.fetches.is_empty() && !self.unconfirmed && !self.unproved.is_empty()
    }

    /// What may be recorded of the version of this run. While bytes from before are unproved it is
    /// nothing; of bytes that rest on samples it is nothing that a later run would take for a proof.
    pub(super) fn record(&self) -> Identity {
        let identity = self.identity.clone().unwrap_or_default();
        if self.unrecorded {
            return Identity { length: identity.length, ..Identity::default() };
        }
        // A later run hears the first link before all others, and the tag of one host is no word of another.
        if self.standing == Standing::Samples || self.voice != Some(0) {
            return identity.weakened();
        }
        identity
    }

    /// Whether the record may name no strong validator while the next body is written.
    pub(super) fn is_doubtful(&self) -> bool {
        self.unrecorded || self.standing == Standing::Samples || self.voice != Some(0)
    }

    /// Every byte from before was compared: the record may name the version.
    pub(super) fn record_if_proved(&mut self, out: &mut Vec<Action>) {
        if self.unrecorded && self.unproved.is_empty() && !self.has_digests() && !self.unconfirmed {
            self.unrecorded = false;
            out.push(Action::Learned(self.record()));
        }
    }
}
