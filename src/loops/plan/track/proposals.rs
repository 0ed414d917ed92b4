//! Memory of raw proposals: what stabilization windows look back at.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// Number of replicas that was proposed before windows, rates and bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawProposal {
    pub replicas: i32,
    /// When it was proposed last.
    pub at: Timestamp,
}

/// Raw proposals of the past. Forgets those that can no longer decide: a smaller one before a larger one never holds
/// back lowering, and the other way round. In a steady state, one proposal remains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposals {
    /// Falling numbers, oldest first: what held back lowering.
    pub(super) peaks: VecDeque<RawProposal>,
    /// Rising numbers, oldest first: what held back raising.
    pub(super) troughs: VecDeque<RawProposal>,
}

/// Whether a proposal at the very start of a window is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowStart {
    In,
    Out,
}

impl WindowStart {
    fn includes(self, age: SignedDuration, window: SignedDuration) -> bool {
        match self {
            Self::In => age <= window,
            Self::Out => age < window,
        }
    }
}

impl Proposals {
    pub fn is_empty(&self) -> bool {
        self.peaks.is_empty()
    }

    /// Number of remembered proposals.
    pub fn len(&self) -> usize {
        self.peaks.len() + self.troughs.len()
    }

    /// Records a proposal that is not older than any other.
    pub(super) fn record(&mut self, proposal: RawProposal) {
        while self.peaks.back().is_some_and(|peak| peak.replicas <= proposal.replicas) {
            self.peaks.pop_back();
        }
        self.peaks.push_back(proposal);
        while self.troughs.back().is_some_and(|trough| trough.replicas >= proposal.replicas) {
            self.troughs.pop_back();
        }
        self.troughs.push_back(proposal);
    }

    /// Forgets proposals that are older than these windows.
    pub(super) fn forget(&mut self, up: SignedDuration, down: SignedDuration, now: Timestamp) {
        let is_old = |proposal: Option<&RawProposal>, window| {
            proposal.is_some_and(|proposal| now.duration_since(proposal.at) > window)
        };
        while self.peaks.len() > 1 && is_old(self.peaks.front(), down) {
            self.peaks.pop_front();
        }
        while self.troughs.len() > 1 && is_old(self.troughs.front(), up) {
            self.troughs.pop_front();
        }
    }

    /// Largest proposal of a window that ends now.
    pub(super) fn peak(&self, window: SignedDuration, start: WindowStart, now: Timestamp) -> Option<&RawProposal> {
        self.peaks.iter().find(|peak| start.includes(now.duration_since(peak.at), window))
    }

    /// Smallest proposal of a window that ends now.
    pub(super) fn trough(&self, window: SignedDuration, start: WindowStart, now: Timestamp) -> Option<&RawProposal> {
        self.troughs.iter().find(|trough| start.includes(now.duration_since(trough.at), window))
    }

    /// Moves proposals of the future to now: the clock was set back. A window then ends at most its length from now.
    pub(super) fn correct(&mut self, now: Timestamp) {
        for proposal in self.peaks.iter_mut().chain(&mut self.troughs) {
            proposal.at = proposal.at.min(now);
        }
    }
}
