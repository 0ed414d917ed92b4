//! The parsed action for an alarm or a combination of alarms.

use jiff::SignedDuration;

use super::ladder::Ladder;
use crate::schedule::Calendar;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::when::When;

/// The parsed action for an alarm or a combination of alarms.
#[derive(Clone, Debug)]
pub(super) struct AlarmAction {
    pub(super) when: When,
    pub(super) settle: SignedDuration,
    pub(super) rungs: Vec<Rung>,
    /// Digest of the rungs and the settle time.
    pub(super) digest: String,
    pub(super) windows: Vec<Calendar>,
}

impl AlarmAction {
    pub(super) fn ladder(&self) -> Ladder<'_> {
        Ladder { rungs: self.rungs.len(), settle: self.settle, when: &self.when, digest: &self.digest }
    }
}
