//! The three stages of a replayed loop, each called with the inputs that its controller has.
//!
//! As in the cluster, a stage reads the statuses that the others have written, and a status that is not worth a write
//! stays with its stage. Requests take no time.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;

use super::rules::{ReplayError, ReplayRules};
use super::target::LoopTarget;
use crate::decision::{Decided, DecisionInput, Executor, settlement};
use crate::execution::{ExecutionContext, ExecutionStep, Sent, TargetState, after_effect, next_step, rung_to_read};
use crate::forecast::ForecastMemory;
use crate::monitoring::tracking::{OwnScaling, PassMemory, TargetNews, TargetReading};
use crate::monitoring::windows::MetricWindows;
use crate::monitoring::{Measurement, Observation, ObserveContext, ObserveTrigger, SourceResult, formula, tag};
use crate::track::TrackMemory;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::decision::DecisionStatus;
use ganglion_api::execution::{ExecutionSpec, ExecutionStatus};
use ganglion_api::monitoring::{MonitoringStatus, Tag};
use ganglion_core::facts::Uid;

/// Leader term of a replay.
const TERM: &str = "replay";

/// uid of the Execution.
static EXECUTOR: LazyLock<Uid> = LazyLock::new(|| "replay".into());

/// Generation of the children: their specs do not change.
const GENERATION: i64 = 1;

/// Maximum number of rounds of an Execution at one time. A controller has fewer in one reconcile.
const MAX_ROUNDS: usize = 64;

/// Status of a stage: as last written, and the current one, which may not be worth a write.
#[derive(Clone, Debug, Default)]
pub struct StageStatus<T> {
    pub written: T,
    pub current: T,
}

impl<T: Clone> StageStatus<T> {
    fn set(&mut self, status: T, write: bool) {
        if write {
            self.written.clone_from(&status);
        }
        self.current = status;
    }
}

/// Values that arrive at one time.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// Answers of the sources that are polled. None: it is not the time of a poll.
    pub polled: Option<BTreeMap<String, SourceResult>>,
    /// A sample that was pushed.
    pub pushed: Option<Measurement>,
    /// Time alone may change something.
    pub due: bool,
}

/// The stages of one loop.
pub struct ReplayedStages<T> {
    rules: Arc<ReplayRules>,
    pub monitoring: StageStatus<MonitoringStatus>,
    pub decision: StageStatus<DecisionStatus>,
    pub execution: ExecutionStatus,
    execution_spec: ExecutionSpec,
    pub target: T,
    windows: MetricWindows,
    track: TrackMemory,
    forecast: Option<ForecastMemory>,
    /// Time since which the values are watched.
    watched_since: Timestamp,
    /// Time of the last evaluation of the levels.
    pub evaluated_at: Option<Timestamp>,
    /// Time at which a limit of the last decision ends.
    pub again: Option<Timestamp>,
    /// Time at which the Execution goes on.
    pub execution_due: Option<Timestamp>,
}

impl<T: LoopTarget> ReplayedStages<T> {
    /// Stages that have not seen a value. The loop begins now.
    pub fn new(rules: Arc<ReplayRules>, target: T, now: Timestamp) -> Self {
        let forecast = rules.watches.tracking.as_ref().and_then(|tracking| tracking.forecast.as_ref());
        Self {
            monitoring: StageStatus::default(),
            decision: StageStatus::default(),
            execution: ExecutionStatus::default(),
            execution_spec: rules.children.execution.clone(),
            target,
            windows: MetricWindows::default(),
            track: TrackMemory::default(),
            forecast: forecast.and_then(|rules| ForecastMemory::new(rules, now).ok()),
            watched_since: now,
            evaluated_at: None,
            again: None,
            execution_due: None,
            rules,
        }
    }

    fn executor(&self) -> Option<Executor<'_>> {
        let target = &self.execution_spec.target;
        Some(Executor { uid: EXECUTOR.as_str(), target, status: &self.execution })
    }

    /// The status of the Decision with the outcome of its last decision.
    pub fn decided(&self, now: Timestamp) -> DecisionStatus {
        settlement::with_outcome(&self.decision.current, self.executor(), now)
    }

    /// Newest tag that a later stage has recorded.
    fn last_tag(&self) -> Option<Tag> {
        tag::latest([self.decision.written.tag.as_ref(), self.execution.tag.as_ref()]).cloned()
    }

    /// Time at which the levels must be evaluated although nothing arrives.
    pub fn next_evaluation(&self, after: Timestamp) -> Option<Timestamp> {
        let (current, written) = (&self.monitoring.current, &self.monitoring.written);
        self.rules.watches.next_evaluation(current, written, self.evaluated_at.unwrap_or(after))
    }

    /// Evaluates the levels. Returns whether the status was written.
    pub fn observe(&mut self, arrivals: Arrivals, now: Timestamp) -> bool {
        let rules = Arc::clone(&self.rules);
        let watches = &rules.watches;
        let last = self.last_tag();
        let mut replicas = Err("no formula reads it");
        if watches.reads_replicas() {
            replicas = formula::current_replicas(self.target.replicas(), Some(&self.execution), now);
        }
        let executor = self.executor();
        let awaited = settlement::awaits_execution(&self.decision.written, executor);
        let before = self.monitoring.current.clone();
        let written = self.monitoring.written.clone();
        let context = ObserveContext {
            last: last.as_ref(),
            written: &written,
            unanswered: &[],
            watched_since: self.watched_since,
            replicas,
            target: None,
            awaited,
            term: TERM,
            now,
        };
        let is_poll = arrivals.polled.is_some();
        let results = arrivals.polled.unwrap_or_default();
        let polled = Measurement { values: results.clone(), ..Measurement::default() };
        let measurements = Some(polled).filter(|polled| !polled.values.is_empty()).into_iter().chain(arrivals.pushed);
        let measurements: Vec<Measurement> =
            measurements.map(|measured| watches.windowed(&mut self.windows, &before, measured, context)).collect();
        let mut triggers: Vec<ObserveTrigger> = measurements.iter().map(ObserveTrigger::Measured).collect();
        if triggers.is_empty() && (is_poll || arrivals.due) {
            triggers.push(ObserveTrigger::Time);
        }
        if triggers.is_empty() {
            return false;
        }
        let ready_pods = u32::try_from(self.target.serving(now)).ok();
        let reading = TargetReading { replicas: self.target.replicas(), ready_pods };
        let (track, forecast) = (self.track.clone(), self.forecast.clone());
        let news = (is_poll && watches.tracking.is_some()).then(|| TargetNews {
            reading: Ok(&reading),
            results: &results,
            memory: &track,
            forecast: forecast.as_ref(),
            own_change: OwnScaling::last_of(&self.execution),
            is_changing: formula::is_changing(&self.execution, now),
        });
        let context = ObserveContext { target: news, ..context };
        let Some(Observation { status, write, memory, .. }) = watches.observe_all(&before, &triggers, context) else {
            return false;
        };
        self.monitoring.set(status, write);
        self.evaluated_at = Some(now);
        if let Some(PassMemory { track, forecast }) = memory {
            (self.track, self.forecast) = (track, forecast);
        }
        write
    }

    /// Decides on the alarms, and records the outcome of the last decision. Returns whether the status was written.
    pub fn decide(&mut self, now: Timestamp) -> bool {
        let input = DecisionInput {
            monitoring: &self.monitoring.written,
            executor: self.executor(),
            written: &self.decision.written,
            generation: GENERATION,
            term: TERM,
            now,
        };
        let Decided { status, write, again } = self.rules.decides.decide(&self.decision.current, input);
        self.decision.set(status, write);
        self.again = again.filter(|again| *again > now);
        if write && self.rules.approves {
            let open = self.decision.written.chosen.as_ref().filter(|chosen| chosen.outcome.is_none());
            self.execution_spec.approve = open.and_then(|chosen| chosen.digest.clone());
        }
        write
    }

    /// Carries out the last decision. Returns whether the status was written.
    pub fn execute(&mut self, now: Timestamp) -> Result<bool, ReplayError> {
        let (mut written, mut sent) = (false, Sent::Maybe);
        let mut seen: Option<(Rung, TargetState)> = None;
        for _ in 0..MAX_ROUNDS {
            let status = self.execution.clone();
            match self.execution_step(&status, seen.as_ref(), &mut sent, now) {
                ExecutionStep::Nothing => {
                    self.execution_due = None;
                    return Ok(written);
                }
                ExecutionStep::Wait(at) => {
                    self.execution_due = Some(at).filter(|at| *at > now);
                    return Ok(written);
                }
                ExecutionStep::ReadTarget | ExecutionStep::Act(_) => seen = self.read_target(&status, sent, now),
                ExecutionStep::Record(next) => {
                    written = true;
                    if next.claim.is_some() && next.claim != status.claim {
                        sent = Sent::NotYet;
                    } else {
                        (seen, sent) = (None, Sent::Maybe);
                    }
                    self.execution = *next;
                }
            }
        }
        Err(ReplayError::Restless(self.rules.name.clone()))
    }

    /// The next step; if it is an effect, its effect on the target, and the step after it.
    fn execution_step(
        &mut self,
        status: &ExecutionStatus,
        seen: Option<&(Rung, TargetState)>,
        sent: &mut Sent,
        now: Timestamp,
    ) -> ExecutionStep {
        let context = self.execution_context(status, *sent, now);
        let rung = rung_to_read(&context);
        let known = seen.filter(|(read_for, _)| rung.as_ref() == Some(read_for)).map(|(_, state)| state);
        let context = ExecutionContext { seen: known, ..context };
        let effect = match next_step(&context) {
            ExecutionStep::Act(effect) => effect,
            step => return step,
        };
        let Some(rung) = rung else { return ExecutionStep::Nothing };
        let mut target = self.target.clone();
        let result = target.apply(&rung, status.claim.as_ref(), &effect, now);
        *sent = Sent::Maybe;
        let step = after_effect(&context, &effect, &result);
        self.target = target;
        step
    }

    fn read_target(&self, status: &ExecutionStatus, sent: Sent, now: Timestamp) -> Option<(Rung, TargetState)> {
        let rung = rung_to_read(&self.execution_context(status, sent, now))?;
        let state = self.target.read(&rung, status.claim.as_ref());
        Some((rung, state))
    }

    fn execution_context<'b>(
        &'b self,
        status: &'b ExecutionStatus,
        sent: Sent,
        now: Timestamp,
    ) -> ExecutionContext<'b> {
        let says = &self.rules.children.decision;
        ExecutionContext {
            spec: &self.execution_spec,
            actions: &says.actions,
            status,
            uid: &EXECUTOR,
            generation: GENERATION,
            loop_name: &self.rules.name,
            mode: says.mode,
            chosen: self.decision.written.chosen.as_ref(),
            is_confirmed: true,
            tag: self.decision.written.tag.as_ref(),
            seen: None,
            sent,
            now,
        }
    }
}
