//! The accounts of one workload: how many replicas serve, how many are asked for, and how many are missing for reasons
//! that are not the operator's.
//!
//! The rule: the operator never brings the serving replicas below the desired number, minus those that others took. An
//! excuse is recorded when others take a serving pod or raise the number; excuses end when the workload has settled.

use super::{Violation, violation};

#[derive(Clone, Debug, Default)]
pub struct Account {
    pub serving: i32,
    pub asked: i32,
    /// How many replicas may be missing, since others took them or raised the number.
    pub excuse: i32,
    /// How many of the desired replicas come from creates that have not ended.
    pub raised: i32,
    /// Whether others changed it, and it has not settled since.
    pub disturbed: bool,
    /// Whether others changed it at any time of the run.
    pub ever_disturbed: bool,
    /// When the first slot was opened on it since it last was settled.
    pub opened: Option<u64>,
    /// Whether it exists.
    pub exists: bool,
}

impl Account {
    pub fn disturb(&mut self) {
        self.disturbed = true;
        self.ever_disturbed = true;
    }

    /// Others ask for another number.
    pub fn ask(&mut self, asked: i32) {
        self.disturb();
        self.excuse += (asked - self.asked).max(0);
        self.asked = asked;
    }

    /// Others, or the operator with permission, took a serving replica.
    pub fn excuse_one(&mut self) {
        self.excuse += 1;
    }

    /// Nothing is missing or in progress any more.
    pub fn settle(&mut self) {
        self.disturbed = false;
        self.opened = None;
        self.excuse = self.excuse.min((self.asked - self.serving).max(0));
    }

    /// Checks after an effect of the operator, direct or indirect.
    pub fn check(&self, app: &str, what: &str) -> Result<(), Violation> {
        if self.serving >= self.asked - self.raised.max(0) - self.excuse {
            return Ok(());
        }
        violation(
            "ServingBelowAsked",
            format!(
                "{what}: {app} has {} serving replicas, {} asked for, {} missing for other reasons",
                self.serving, self.asked, self.excuse
            ),
        )
    }
}
