//! The trace of a decision: spans from sample to Ready pod, from what statuses record.
//!
//! Every process computes the same spans from the same statuses, so a restart or another leader neither interrupts a
//! trace nor adds a second span for a stage.
//!
//! | span | caused by | from | to |
//! |---|---|---|---|
//! | `sample` | | measured, by the sender's clock | received |
//! | `decision` | `sample` | received | decided; a limit may delay it |
//! | `approval` | `decision` | decided, in mode Approve | claimed |
//! | `execution` | `decision` | decided | the effect, or why there is none, is recorded |
//! | `rollout` | `execution` | recorded, after more replicas were set | as many pods are Ready |
//! | `workloadAction` | `execution` | decided, or begun | ended |
//! | `slot` | `workloadAction` | begun | the replica is changed, or is not |
//!
//! Spans contain neither annotations nor URLs, nor values that an action writes except numbers of replicas.

use jiff::{SignedDuration, Timestamp};

use crate::common::{LAST_ACTION_SUCCEEDED, later};
use crate::execution::action_name;
use crate::world::{Family, LoopsWorld};
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::{ClosedLoop, LoopMode, TargetRef};
use ganglion_api::decision::{Chosen, DecisionStatus};
use ganglion_api::execution::{Execution, ExecutionState, ExecutionStatus};
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::{Slot, Step};
use ganglion_core::conditions;
use ganglion_core::facts::{DeploymentFact, Key, PodFact, ReplicaSetFact, StatefulSetFact, Uid};
use ganglion_core::owners::is_owned;
use ganglion_core::trace::{Span, SpanId, TraceId};
use ganglion_core::world::World;

/// Maximum time before the arrival of a sample at which its span starts. An earlier time shows a wrong clock.
const LONGEST_WAY: SignedDuration = SignedDuration::from_mins(10);

/// Time after which a rollout ends without success: as long as a Deployment waits for progress by default.
pub const ROLLOUT_DEADLINE: SignedDuration = SignedDuration::from_mins(10);

/// Spans of the last decision of a loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecisionTrace {
    /// The stages that have ended, in order.
    pub spans: Vec<Span>,
    /// A rollout or an action runs. Its end is not a write of the Decision or the Execution.
    pub is_open: bool,
}

/// Facts about the last decision of a loop.
struct TracedDecision<'a> {
    parent: &'a ClosedLoop,
    decision: &'a DecisionStatus,
    chosen: &'a Chosen,
    /// Execution that has taken up the decision.
    execution: Option<&'a Execution>,
    /// Action that carries out the decision.
    action: Option<&'a WorkloadAction>,
    trace: TraceId,
    /// Number of the decision, which distinguishes its spans from those of others on the same sample.
    seq: String,
}

/// Returns the spans of the last decision of the loop with this key. A decision that a version without traces made has
/// none.
pub fn last_decision(world: &World, key: &Key, now: Timestamp) -> DecisionTrace {
    let Some(family) = world.family(key).map(Family::own) else { return DecisionTrace::default() };
    let Some(decision) = family.decision.as_ref().and_then(|decision| decision.status.as_ref()) else {
        return DecisionTrace::default();
    };
    let Some(chosen) = &decision.chosen else { return DecisionTrace::default() };
    let Some(tag) = &chosen.tag else { return DecisionTrace::default() };
    let has_taken_up = |execution: &&Execution| {
        let seq = execution.status.as_ref().and_then(|status| status.seq);
        Uid::of(&execution.metadata) == chosen.executor && seq == Some(chosen.seq)
    };
    let traced = TracedDecision {
        parent: &family.parent,
        decision,
        chosen,
        execution: family.execution.as_deref().filter(has_taken_up),
        action: action(world, key, chosen),
        trace: TraceId::new(Uid::of(&family.parent.metadata).as_str(), tag.time.0, tag.sequence),
        seq: chosen.seq.to_string(),
    };
    let mut spans = vec![traced.sample(), traced.decision()];
    spans.extend(traced.approval());
    spans.extend(traced.execution());
    spans.extend(traced.action());
    spans.extend(traced.slots());
    let rollout = traced.rollout(world, now);
    let is_open = matches!(rollout, Rollout::Running) || traced.runs_action();
    if let Rollout::Ended(span) = rollout {
        spans.push(*span);
    }
    DecisionTrace { spans, is_open }
}

/// Returns the WorkloadAction that the decision has created.
fn action<'a>(world: &'a World, key: &Key, chosen: &Chosen) -> Option<&'a WorkloadAction> {
    chosen.action.workload_action.as_ref()?;
    let name = action_name(&key.name, &chosen.executor, chosen.seq);
    let action: &WorkloadAction = world.get(&Key::new(key.namespace.clone(), name))?;
    is_owned(action.metadata.owner_references.as_ref(), &chosen.executor).then_some(action)
}

/// Name of the rung's action in the spec.
fn rung_kind(rung: &Rung) -> &'static str {
    match rung {
        Rung { scale: Some(_), .. } => "scale",
        Rung { resize: Some(_), .. } => "resize",
        Rung { workload_action: Some(_), .. } => "workloadAction",
        Rung { patch: Some(_), .. } => "patch",
        Rung { webhook: Some(_), .. } => "webhook",
        Rung { tune: Some(_), .. } => "tune",
        Rung { .. } => "nothing",
    }
}

/// State of a rollout.
enum Rollout {
    /// The decision set no higher number of replicas, or the pods of its target are not known.
    None,
    Running,
    Ended(Box<Span>),
}

impl TracedDecision<'_> {
    fn span(&self, name: &'static str, attempt: &str, times: (Timestamp, Timestamp)) -> Span {
        let meta = &self.parent.metadata;
        Span::new(self.trace, (name, attempt), times)
            .text("k8s.namespace.name", meta.namespace.as_deref().unwrap_or_default())
            .text("ganglion.loop", meta.name.as_deref().unwrap_or_default())
    }

    /// Id of a span of this decision.
    fn id(&self, name: &'static str) -> SpanId {
        SpanId::new(self.trace, name, &self.seq)
    }

    fn received(&self) -> Timestamp {
        self.chosen.received.as_ref().map_or(self.chosen.at.0, |received| received.0)
    }

    /// The only span without the number of the decision: two decisions may be made on one sample.
    fn sample(&self) -> Span {
        let received = self.received();
        let tag = self.chosen.tag.as_ref();
        let measured = tag.map_or(received, |tag| tag.time.0).min(received);
        let start = if later(measured, LONGEST_WAY) < received { received } else { measured };
        let span = self.span("sample", "", (start, received));
        match tag {
            Some(tag) => span
                .number("ganglion.sample.sequence", tag.sequence)
                .text("ganglion.sample.time", &format!("{:.6}", tag.time.0)),
            None => span,
        }
    }

    fn decision(&self) -> Span {
        let Chosen { seq, action, mode, .. } = self.chosen;
        let span = self
            .span("decision", &self.seq, (self.received(), self.chosen.at.0))
            .after(SpanId::new(self.trace, "sample", ""))
            .number("ganglion.decision", *seq)
            .text("ganglion.mode", mode.as_str())
            .text("ganglion.alarm", &self.chosen.served().to_string())
            .text("ganglion.action", rung_kind(action));
        let entry = self.decision.history.iter().rfind(|entry| entry.seq == *seq);
        match entry.and_then(|entry| entry.value.as_ref()) {
            Some(value) => span.text("ganglion.value", value.as_str()),
            None => span,
        }
    }

    fn approval(&self) -> Option<Span> {
        let claim = self.execution_status()?.claim.as_ref().filter(|claim| claim.seq == self.chosen.seq)?;
        let times = (self.chosen.at.0, claim.at.0);
        let span = self.span("approval", &self.seq, times).after(self.id("decision"));
        (self.chosen.mode == LoopMode::Approve).then_some(span)
    }

    fn execution_status(&self) -> Option<&ExecutionStatus> {
        self.execution?.status.as_ref()
    }

    fn execution(&self) -> Option<Span> {
        let status = self.execution_status().filter(|status| status.claim.is_none())?;
        let state = status.state?;
        let has_failed = match state {
            ExecutionState::Idle | ExecutionState::Claimed | ExecutionState::Executing => return None,
            ExecutionState::Done | ExecutionState::Limited => false,
            ExecutionState::Failed | ExecutionState::Overtaken | ExecutionState::Lost => true,
        };
        let TargetRef { kind, name, .. } = &self.parent.spec.target;
        let times = (self.chosen.at.0, status.since.as_ref()?.0);
        let mut span = self
            .span("execution", &self.seq, times)
            .after(self.id("decision"))
            .text("ganglion.target", &format!("{kind}/{name}"))
            .text("ganglion.state", state.as_str());
        if self.chosen.action.scale.is_some()
            && let (Some(before), Some(after)) = (&status.before, &status.after)
        {
            span = span.text("ganglion.before", before).text("ganglion.after", after);
        }
        // `status.reason` may be that of a block by now.
        let last = conditions::find(&status.conditions, LAST_ACTION_SUCCEEDED);
        let why = last.map_or(state.as_str(), |last| last.reason.as_str());
        Some(span.failed(has_failed.then_some(why)))
    }

    /// Start of the action, which its status records in whole seconds.
    fn action_start(&self, action: &WorkloadAction) -> Timestamp {
        let started = action.status.as_ref().and_then(|status| status.started_at.as_ref());
        started.map_or(self.chosen.at.0, |started| started.0.max(self.chosen.at.0))
    }

    fn runs_action(&self) -> bool {
        self.action.is_some_and(|action| action.status.as_ref().is_none_or(|status| status.finished_at.is_none()))
    }

    fn action(&self) -> Option<Span> {
        let action = self.action?;
        let status = action.status.as_ref()?;
        let times = (self.action_start(action), status.finished_at.as_ref()?.0);
        let ready = conditions::find(&status.conditions, "Ready");
        let failed = ready.filter(|ready| ready.status != "True").map(|ready| ready.reason.as_str());
        let span = self.span("workloadAction", &self.seq, times).after(self.id("execution"));
        Some(span.text("ganglion.workload_action", action.metadata.name.as_deref().unwrap_or_default()).failed(failed))
    }

    fn slots(&self) -> Vec<Span> {
        let Some(action) = self.action else { return Vec::new() };
        let slots = action.status.iter().flat_map(|status| &status.slots).filter(|slot| slot.step.is_end());
        slots.map(|slot| self.slot(action, slot)).collect()
    }

    fn slot(&self, action: &WorkloadAction, slot: &Slot) -> Span {
        let attempt = format!("{}/{}", self.seq, slot.index);
        let mut span = self
            .span("slot", &attempt, (self.action_start(action), slot.since.0))
            .after(self.id("workloadAction"))
            .number("ganglion.slot", slot.index.into());
        if let Some(victim) = &slot.victim {
            span = span.text("k8s.pod.name", &victim.name).text("ganglion.from", victim.node.as_str());
        }
        if let Some(replacement) = &slot.replacement {
            span = span.text("ganglion.to", replacement.node.as_str());
        }
        let end = Reason::from(slot.step);
        span.failed((slot.step != Step::Succeeded).then_some(end.as_str()))
    }

    fn rollout(&self, world: &World, now: Timestamp) -> Rollout {
        let Some(status) = self.execution_status().filter(|status| status.state == Some(ExecutionState::Done)) else {
            return Rollout::None;
        };
        let (Some(replicas), Some(since)) = (added(self.chosen, status), &status.since) else { return Rollout::None };
        let namespace = self.parent.metadata.namespace.as_deref().unwrap_or_default();
        let Some(pods) = TargetPods::of(world, namespace, &self.parent.spec.target) else { return Rollout::None };
        let deadline = later(since.0, ROLLOUT_DEADLINE);
        let (end, failed) = match pods.ready.get(replicas.saturating_sub(1)) {
            // Kubernetes records the time in whole seconds.
            Some(last) => ((*last).max(since.0), None),
            None if now < deadline => return Rollout::Running,
            None if usize::try_from(pods.wanted) == Ok(replicas) => (deadline, Some("NotReady")),
            // Somebody else has set another number since.
            None => return Rollout::None,
        };
        let span = self.span("rollout", &self.seq, (since.0, end)).after(self.id("execution"));
        let replicas = i64::try_from(replicas).unwrap_or(i64::MAX);
        Rollout::Ended(Box::new(span.number("ganglion.replicas", replicas).failed(failed)))
    }
}

/// Returns the number of replicas that the decision has set, if it is higher than before.
fn added(chosen: &Chosen, status: &ExecutionStatus) -> Option<usize> {
    chosen.action.scale.as_ref()?;
    let (before, after): (usize, usize) = (status.before.as_ref()?.parse().ok()?, status.after.as_ref()?.parse().ok()?);
    (after > before).then_some(after)
}

/// Pods of a target.
struct TargetPods {
    /// `spec.replicas`.
    wanted: i32,
    /// Times since which pods are Ready, the earliest first.
    ready: Vec<Timestamp>,
}

impl TargetPods {
    /// Returns the pods of a target; None for kinds whose pods are not known.
    fn of(world: &World, namespace: &str, target: &TargetRef) -> Option<Self> {
        let key = Key::new(namespace, target.name.clone());
        let (wanted, pods): (i32, Vec<&PodFact>) = match (target.api_version.as_str(), target.kind.as_str()) {
            ("apps/v1", "Deployment") => {
                let DeploymentFact { id, scale, .. } = world.get(&key)?;
                (scale.replicas, world.sets_of(&id.uid).flat_map(|set| world.pods_of(&set.id.uid)).collect())
            }
            ("apps/v1", "ReplicaSet") => {
                let ReplicaSetFact { id, scale, .. } = world.get(&key)?;
                (scale.replicas, world.pods_of(&id.uid).collect())
            }
            ("apps/v1", "StatefulSet") => {
                let StatefulSetFact { id, set, .. } = world.get(&key)?;
                (set.scale.replicas, world.pods_of(&id.uid).collect())
            }
            _ => return None,
        };
        let ready = pods.into_iter().filter(|pod| pod.is_ready()).filter_map(PodFact::ready_from);
        let mut ready: Vec<Timestamp> = ready.collect();
        ready.sort_unstable();
        Some(Self { wanted, ready })
    }
}
