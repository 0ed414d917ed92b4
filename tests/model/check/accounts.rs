//! The accounts of one workload: the number of serving replicas, of desired replicas, and of replicas that are missing
//! for reasons other than the operator.
//!
//! The rule: the operator never brings the serving replicas below the desired number, minus those that others removed.
//! An excuse is recorded when others remove a serving pod or raise the number; excuses end when the workload has
//! settled.

use super::{Violation, violation};

#[derive(Clone, Debug, Default)]
pub struct Account {
    pub serving: i32,
    pub asked: i32,
    /// Number of replicas that may be missing because others removed them or raised the desired number.
    pub excuse: i32,
    /// Number of desired replicas that come from create actions that have not ended.
    pub raised: i32,
    /// Whether others changed the workload, and it has not settled since.
    pub disturbed: bool,
    /// Whether others changed it at any time of the run.
    pub ever_disturbed: bool,
    /// Version at which the first slot on it was opened since it last settled.
    pub opened: Option<u64>,
    /// Whether it exists.
    pub exists: bool,
}

impl Account {
    pub fn disturb(&mut self) {
        self.disturbed = true;
        self.ever_disturbed = true;
    }

    /// Records that others changed the desired number.
    pub fn ask(&mut self, asked: i32) {
        self.disturb();
        self.excuse += (asked - self.asked).max(0);
        self.asked = asked;
    }

    /// Records that others, or the operator with permission, removed a serving replica.
    pub fn excuse_one(&mut self) {
        self.excuse += 1;
    }

    /// Records that nothing is missing or in progress any more.
    pub fn settle(&mut self) {
        self.disturbed = false;
        self.opened = None;
        self.excuse = self.excuse.min((self.asked - self.serving).max(0));
    }

    /// Checks the rule after an effect of the operator, direct or indirect.
    pub fn check(&self, app: &str, what: &str) -> Result<(), Violation> {
        if self.serving >= self.asked - self.raised.max(0) - self.excuse {
            return Ok(());
        }
        violation(
            "ServingBelowAsked",
            format!(
                "{what}: {app} has {} serving replicas, {} desired, {} missing for other reasons",
                self.serving, self.asked, self.excuse
            ),
        )
    }
}
