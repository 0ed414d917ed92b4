//! The parsed spec of a Decision, and the input types of its stage.
//!
//! The other files of this folder implement the steps of a decision as methods of [`DecisionRules`].

use jiff::Timestamp;

use super::alarm_action::AlarmAction;
use super::ladder::Ladder;
use super::limits::PolicyLimits;
use super::order::{OrderContext, Selection};
use crate::common::{FieldError, action_field, duration};
use crate::schedule;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::policy::Lowering;
use ganglion_api::closed_loop::when::When;
use ganglion_api::closed_loop::{LoopMode, Trace};
use ganglion_api::decision::{Chosen, Counter, DecisionSpec, DecisionStatus};
use ganglion_api::execution::{Execution, ExecutionStatus};
use ganglion_api::monitoring::MonitoringStatus;
use ganglion_core::digest::digest;
use ganglion_core::document;

/// Length of the history if the spec does not set it.
const HISTORY: i32 = 10;

/// Length of the digest of a ladder.
const LADDER_DIGEST: usize = 8;

/// The parsed spec of a Decision.
#[derive(Clone, Debug)]
pub struct DecisionRules {
    pub(super) mode: LoopMode,
    pub(super) trace: Trace,
    pub(super) blocked: Option<String>,
    /// Path of the target's number of replicas, if it is not the usual one.
    pub(super) replicas_path: Option<String>,
    pub(super) rank: Vec<String>,
    pub(super) selection: Selection,
    pub(super) limits: PolicyLimits,
    pub(super) lowering: Lowering,
    pub(super) actions: Vec<AlarmAction>,
    pub(super) history: usize,
}

/// The loop's Execution, as last read.
#[derive(Clone, Copy, Debug)]
pub struct Executor<'a> {
    pub uid: &'a str,
    /// Target of the Execution.
    pub target: &'a TargetRef,
    pub status: &'a ExecutionStatus,
}

impl<'a> Executor<'a> {
    /// The Execution, if its controller has written its status.
    pub fn from_execution(execution: &'a Execution) -> Option<Self> {
        let uid = execution.metadata.uid.as_deref()?;
        Some(Self { uid, target: &execution.spec.target, status: execution.status.as_ref()? })
    }
}

/// Input of the stage, besides its last status.
#[derive(Clone, Copy, Debug)]
pub struct DecisionInput<'a> {
    /// The status of the Monitoring.
    pub monitoring: &'a MonitoringStatus,
    /// The Execution, if it exists and its controller has written its status.
    pub executor: Option<Executor<'a>>,
    /// Status of the Decision as last written.
    pub written: &'a DecisionStatus,
    /// Generation of the Decision.
    pub generation: i64,
    /// Current leader term.
    pub term: &'a str,
    /// Current time.
    pub now: Timestamp,
}

impl DecisionRules {
    /// Parses the spec.
    pub fn parse(spec: &DecisionSpec) -> Result<Self, FieldError> {
        let policy = spec.policy.clone().unwrap_or_default();
        let mut actions = Vec::new();
        for action in &spec.actions {
            let field = action_field(&action.when);
            if action.when.alarms().is_empty() {
                return Err(FieldError::new("actions", "set metric and side, or all, or any in each when"));
            }
            let settle = duration(&format!("{field}.settle"), action.settle.as_ref())?;
            for (index, rung) in action.ladder.iter().enumerate() {
                let path = rung.patch.as_ref().map(|patch| document::path_parts(&patch.path));
                path.transpose()
                    .map_err(|problem| FieldError::new(format!("{field}.ladder[{index}].patch.path"), problem))?;
            }
            // Rungs are plain data: their serialization does not fail, and their fields always have the same order.
            let rungs = serde_json::to_string(&action.ladder).unwrap_or_default();
            actions.push(AlarmAction {
                when: action.when.clone(),
                settle,
                rungs: action.ladder.clone(),
                digest: digest(&[&rungs, &settle.to_string()], LADDER_DIGEST),
                windows: schedule::parse(&format!("{field}.during"), action.during.as_ref())?,
            });
        }
        let history = policy.history_limit.unwrap_or(HISTORY).clamp(10, 64);
        Ok(Self {
            mode: spec.mode,
            trace: spec.trace,
            blocked: spec.blocked.clone(),
            replicas_path: spec.replicas_path.clone(),
            rank: spec.rank.clone(),
            selection: Selection::parse(&policy)?,
            limits: PolicyLimits::parse(&policy)?,
            lowering: policy.lowering.unwrap_or_default(),
            actions,
            history: usize::try_from(history).unwrap_or(10),
        })
    }

    fn action_for(&self, when: &When) -> Option<&AlarmAction> {
        self.actions.iter().find(|action| action.when == *when)
    }

    pub(super) fn ladder(&self, when: &When) -> Option<Ladder<'_>> {
        Some(self.action_for(when)?.ladder())
    }

    pub(super) fn rung(&self, when: &When, rung: usize) -> Option<&Rung> {
        self.action_for(when)?.rungs.get(rung)
    }

    /// Whether the action of this decision is still in the spec, at the same place.
    pub(super) fn has_rung(&self, chosen: &Chosen) -> bool {
        let index = usize::try_from(chosen.rung).unwrap_or(0);
        self.rung(&chosen.served(), index).is_some_and(|rung| *rung == chosen.action)
    }

    pub(super) fn order_context<'a>(&'a self, counters: &'a [Counter], input: DecisionInput<'a>) -> OrderContext<'a> {
        OrderContext { rank: &self.rank, values: &input.monitoring.values, counters }
    }
}
