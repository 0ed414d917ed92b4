//! How a loop decides, read from its spec, and what a decision is made of.
//!
//! Each file of this folder that is one step of a decision adds its methods to [`DecisionRules`].

use jiff::{SignedDuration, Timestamp};

use super::ladder::Ladder;
use super::limits::PolicyLimits;
use super::order::{OrderContext, Selection};
use super::schedule::{self, Calendar};
use crate::api::closed_loop::action::{Alarm, Rung};
use crate::api::closed_loop::metric::Side;
use crate::api::closed_loop::{LoopMode, Trace};
use crate::api::decision::{Counter, DecisionSpec, DecisionStatus};
use crate::api::execution::{Execution, ExecutionStatus};
use crate::api::monitoring::MonitoringStatus;
use crate::logic::closed_loop::common::{FieldError, duration};

/// How many decisions are kept where the spec does not say.
const HISTORY: i32 = 10;

/// How a loop decides, read.
#[derive(Clone, Debug)]
pub struct DecisionRules {
    pub(super) mode: LoopMode,
    pub(super) trace: Trace,
    pub(super) blocked: Option<String>,
    pub(super) rank: Vec<String>,
    pub(super) selection: Selection,
    pub(super) limits: PolicyLimits,
    actions: Vec<AlarmAction>,
    pub(super) history: usize,
}

/// What is done about one alarm, read.
#[derive(Clone, Debug)]
pub(super) struct AlarmAction {
    pub(super) when: Alarm,
    pub(super) settle: SignedDuration,
    pub(super) rungs: Vec<Rung>,
    pub(super) windows: Vec<Calendar>,
}

/// The loop's Execution, as it was last seen.
#[derive(Clone, Copy, Debug)]
pub struct Executor<'a> {
    pub uid: &'a str,
    pub status: &'a ExecutionStatus,
}

impl<'a> Executor<'a> {
    /// The Execution, where its controller has seen it.
    #[must_use]
    pub fn of(execution: &'a Execution) -> Option<Self> {
        Some(Self { uid: execution.metadata.uid.as_deref()?, status: execution.status.as_ref()? })
    }
}

/// What a decision is made of.
#[derive(Clone, Copy, Debug)]
pub struct DecisionInput<'a> {
    /// What monitoring saw.
    pub monitoring: &'a MonitoringStatus,
    /// The next hop, where it is there and has been seen by its controller.
    pub executor: Option<Executor<'a>>,
    /// The Decision's status as it was last written.
    pub written: &'a DecisionStatus,
    /// Generation of the Decision.
    pub generation: i64,
    /// This leader term.
    pub term: &'a str,
    /// The time.
    pub now: Timestamp,
}

impl DecisionRules {
    /// Reads the spec.
    ///
    /// # Errors
    ///
    /// A number, duration, window or expression cannot be read.
    pub fn parse(spec: &DecisionSpec) -> Result<Self, FieldError> {
        let policy = spec.policy.clone().unwrap_or_default();
        let mut actions = Vec::new();
        for action in &spec.actions {
            let field = format!("actions[{} {}]", action.when.side, action.when.metric);
            actions.push(AlarmAction {
                when: action.when.clone(),
                settle: duration(&format!("{field}.settle"), action.settle.as_ref())?,
                rungs: action.ladder.clone(),
                windows: schedule::parse(&format!("{field}.during"), action.during.as_ref())?,
            });
        }
        let history = policy.history_limit.unwrap_or(HISTORY).clamp(10, 64);
        Ok(Self {
            mode: spec.mode,
            trace: spec.trace,
            blocked: spec.blocked.clone(),
            rank: spec.rank.clone(),
            selection: Selection::parse(&policy)?,
            limits: PolicyLimits::parse(&policy)?,
            actions,
            history: usize::try_from(history).unwrap_or(10),
        })
    }

    pub(super) fn action_for(&self, metric: &str, side: Side) -> Option<&AlarmAction> {
        self.actions.iter().find(|action| action.when.metric == metric && action.when.side == side)
    }

    pub(super) fn ladder(&self, metric: &str, side: Side) -> Option<Ladder> {
        let action = self.action_for(metric, side)?;
        Some(Ladder { rungs: action.rungs.len(), settle: action.settle, side })
    }

    pub(super) fn rung(&self, metric: &str, side: Side, rung: usize) -> Option<&Rung> {
        self.action_for(metric, side)?.rungs.get(rung)
    }

    pub(super) fn known<'a>(&'a self, counters: &'a [Counter], input: DecisionInput<'a>) -> OrderContext<'a> {
        OrderContext { rank: &self.rank, values: &input.monitoring.values, counters }
    }
}
