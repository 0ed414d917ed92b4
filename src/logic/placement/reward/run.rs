//! What a pod's containers are worth.

use jiff::Timestamp;

use super::{FAILURE, RARE_FAILURE, RewardRules};

/// The end of a container's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    pub exit_code: i32,
    pub started: Option<Timestamp>,
    pub finished: Option<Timestamp>,
}

/// A container's present run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRun {
    pub name: String,
    pub restarts: i32,
    /// It runs now.
    pub running: bool,
    /// How it ended, if it is terminated now.
    pub ended: Option<RunEnd>,
    /// How the run before ended.
    pub before: Option<RunEnd>,
}

/// A pod's phase, as far as rewards go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodRun {
    /// Pending or Succeeded.
    Neutral,
    /// Failed or Unknown.
    Failed,
    Running(Vec<ContainerRun>),
}

/// What a container says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Judgement {
    /// It runs, and never failed.
    Runs,
    /// It has done its work.
    Done,
    /// It failed, with this reward.
    Fails(f64),
    /// It waits, or runs again after a failure.
    Unsettled,
}

impl RunEnd {
    fn is_failure(&self) -> bool {
        self.exit_code != 0
    }
}

impl ContainerRun {
    /// Times are those of the kubelet. An end without a time is judged as one that came soon.
    pub(super) fn judge(&self, rules: &RewardRules) -> Judgement {
        match (self.ended, self.before) {
            (Some(end), _) if !end.is_failure() => Judgement::Done,
            (Some(end), before) => {
                // The time since the failure before; without one, since the start.
                let since = before.filter(RunEnd::is_failure).and_then(|before| before.finished).or(end.started);
                let lasted = since.zip(end.finished).map(|(since, end)| end.duration_since(since).as_secs_f64());
                let rare = lasted.is_some_and(|lasted| lasted > rules.lasting);
                Judgement::Fails(if rare { RARE_FAILURE } else { FAILURE })
            }
            (None, None) if self.running => Judgement::Runs,
            (None, _) => Judgement::Unsettled,
        }
    }
}
