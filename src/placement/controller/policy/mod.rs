//! The controller of PlacementPolicies: reports whether the spec of a policy is valid, and for how many nodes its
//! agents have data. Schedulers and actions evaluate the policy through [`crate::cache`], on every replica.
//!
//! | step | content |
//! |---|---|
//! | observe | the policy, the coverage of nodes by its agents, and its learned values |
//! | plan | [`ganglion_placement_plan::state`] |
//! | act | elects the policy that publishes usage (`usage`); saves the learned values ([`crate::learned`]) |
//! | report | the status, if it changed, even after a failed save |
//!
//! The usage of nodes is published outside of reconciles (`usage`), and nodes are labeled there (`labeler`). All state
//! in memory may be lost in a crash.

mod labeler;
mod usage;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tracing::warn;

use crate::cache::PlacementCache;
use crate::learned::save::{self, MEMORY_SAVED, SaveReport, Saved};
use ganglion_api::marks;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::placement_policy::{PlacementPolicyStatus, PolicyDelivery, PolicyMode};
use ganglion_core::conditions::{DATA_AVAILABLE, Stamp};
use ganglion_core::definitions::GuardProblem;
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_placement_plan::agents::AgentError;
use ganglion_placement_plan::labels;
use ganglion_placement_plan::labels::application::{LABELS_APPLIED, LabelApplication, is_default};
use ganglion_placement_plan::labels::report::{LABELS_CURRENT, not_comparable, not_compared};
use ganglion_placement_plan::learned::{LastSave, LearnedValues, SavePlan, SaveResult, map_name};
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_placement_plan::publish::report::USAGE_PUBLISHED;
use ganglion_placement_plan::state::{self, Coverage, PolicyPlan, ReportedCoverage};
use ganglion_placement_plan::world::PlacementWorld;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{ConditionChange, ConditionEvent, condition_events, reference};
use ganglion_runtime::frame::{Memories, Next, Reconciler};
use ganglion_runtime::status::{StatusMethod, StatusWriter};
pub use labeler::{Labeler, run_labels};
pub use usage::{UsagePublisher, run_usage};

/// Interval between reconciles of an unchanged policy, since values expire without an event.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);

const STATUS: StatusWriter = StatusWriter {
    manager: marks::POLICY_STATUS_MANAGER,
    effect: "RecordPolicy",
    invalid: PolicyReason::InvalidObject.as_str(),
    method: StatusMethod::Update,
    observes_generation: true,
};

/// Conditions of a policy that have events.
const EVENTS: [ConditionEvent; 12] = [
    ConditionEvent::normal("Ready", "True", ConditionChange::Reason),
    ConditionEvent::warning("Ready", "False", ConditionChange::Reason),
    ConditionEvent::normal(DATA_AVAILABLE, "True", ConditionChange::Reason),
    ConditionEvent::warning(DATA_AVAILABLE, "False", ConditionChange::Reason),
    ConditionEvent::normal(USAGE_PUBLISHED, "True", ConditionChange::Reason),
    ConditionEvent::warning(USAGE_PUBLISHED, "False", ConditionChange::Reason),
    ConditionEvent::normal(LABELS_CURRENT, "True", ConditionChange::Reason),
    ConditionEvent::warning(LABELS_CURRENT, "False", ConditionChange::Reason),
    ConditionEvent::normal(LABELS_APPLIED, "True", ConditionChange::Reason),
    ConditionEvent::warning(LABELS_APPLIED, "False", ConditionChange::Reason),
    ConditionEvent::normal(MEMORY_SAVED, "True", ConditionChange::Reason),
    ConditionEvent::warning(MEMORY_SAVED, "False", ConditionChange::Reason),
];

/// The controller and its dependencies.
pub struct PlacementPolicyController {
    pub ctx: Context,
    pub placement: PlacementCache,
    /// Namespace of the operator.
    pub namespace: String,
    pub usage: Arc<UsagePublisher>,
    pub labeler: Arc<Labeler>,
    pub memories: Memories<PolicyMemory>,
}

/// In-memory state of one policy.
#[derive(Default)]
pub struct PolicyMemory {
    coverage: Option<ReportedCoverage>,
    last_save: Option<LastSave>,
}

/// A policy, and what its agents see and have learned.
pub struct ObservedPolicy {
    object: Arc<PlacementPolicy>,
    /// An error if the spec is invalid.
    valid: Result<ValidPolicy, AgentError>,
    /// Whether the API server adds terms that read labels to new pods.
    application: LabelApplication,
    now: Timestamp,
}

struct ValidPolicy {
    policy: Arc<CompiledPolicy>,
    coverage: Coverage,
    /// None if the policy has not begun to learn.
    learned: Option<Arc<LearnedValues>>,
}

impl Reconciler for PlacementPolicyController {
    type Kind = PlacementPolicy;
    type Memory = PolicyMemory;
    type Observed = ObservedPolicy;
    type Plan = PolicyPlan;
    type Done = Saved;
    const NAME: &'static str = "placement-policy";

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn memories(&self) -> &Memories<PolicyMemory> {
        &self.memories
    }

    async fn unreadable(&self, key: &Key) -> Option<Result<(), Error>> {
        STATUS.report_unreadable::<PlacementPolicy>(&self.ctx, key).await
    }

    async fn unguarded(&self, key: &Key, problem: &GuardProblem) -> Result<(), Error> {
        STATUS.report_unguarded::<PlacementPolicy>(&self.ctx, key, problem).await
    }

    fn observe(self: &Arc<Self>, key: &Key, _: &mut PolicyMemory) -> Option<ObservedPolicy> {
        let (object, application) =
            self.ctx.store.read(|world| Some((world.policy(&key.name).cloned()?, LabelApplication::of(world))))?;
        if object.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let now = self.ctx.now();
        let valid = self.placement.compile(&object).map(|policy| ValidPolicy {
            coverage: self.placement.inventory(|nodes| Coverage::count(&policy, nodes, now)),
            learned: self.placement.learned_values(&policy, &object.id().uid, now).map(Arc::new),
            policy,
        });
        Some(ObservedPolicy { object, valid, application, now })
    }

    fn plan(&self, observed: &ObservedPolicy, memory: &mut PolicyMemory) -> PolicyPlan {
        let now = observed.now;
        let ValidPolicy { policy, coverage, learned } = match &observed.valid {
            Ok(valid) => valid,
            Err(error) => return PolicyPlan::Invalid(error.clone()),
        };
        let reported = ReportedCoverage::next(memory.coverage.take(), coverage.clone(), now);
        let coverage_to_report = reported.coverage.clone();
        memory.coverage = Some(reported);
        PolicyPlan::Valid {
            health: state::health(policy, &coverage_to_report),
            coverage: coverage_to_report,
            save: if policy.learns() {
                SavePlan::new(learned.as_ref(), memory.last_save.as_ref(), now)
            } else {
                SavePlan::Skip(SaveResult::NothingLearned)
            },
        }
    }

    /// Elects the policy that publishes usage, since this policy may have changed, and saves the learned values.
    async fn act(
        self: &Arc<Self>,
        observed: &ObservedPolicy,
        plan: &PolicyPlan,
        memory: &mut PolicyMemory,
    ) -> Result<Saved, Error> {
        self.usage.elect();
        let learned = match plan {
            PolicyPlan::Invalid(_) => return Ok(Saved { result: SaveResult::NothingLearned, lost: None }),
            PolicyPlan::Valid { save: SavePlan::Skip(result), .. } => return Ok(Saved { result: *result, lost: None }),
            PolicyPlan::Valid { save: SavePlan::Save(learned), .. } => learned,
        };
        let saved =
            save::save(&self.ctx.writer, &self.map_key(&observed.object), &observed.object, learned, observed.now)
                .await?;
        let written_at = (saved.result == SaveResult::Written).then_some(observed.now);
        memory.last_save = Some(LastSave { learned: Arc::clone(learned), result: saved.result, written_at });
        Ok(saved)
    }

    async fn report(
        self: &Arc<Self>,
        observed: &ObservedPolicy,
        plan: &PolicyPlan,
        done: Result<&Saved, &Error>,
        _: &mut PolicyMemory,
    ) -> Result<Next, Error> {
        let object = &observed.object;
        if let Ok(Saved { lost: Some(error), .. }) = done {
            let map = self.map_key(object);
            warn!(policy = object.id().key.name, %map, %error, "learned values are lost");
            self.ctx.events.publish(reference::<PlacementPolicy>(&object.id()), save::lost_event(&map, error));
        }
        let old = object.status.clone().unwrap_or_default();
        let status = self.status(observed, plan, done, &old);
        if old != status {
            STATUS
                .write(&self.ctx, &**object, &status, condition_events(&EVENTS, &old.conditions, &status.conditions))
                .await?;
        }
        Ok(match plan {
            PolicyPlan::Invalid(_) => Next::AwaitChange,
            PolicyPlan::Valid { .. } => observed.now.checked_add(PAUSE).ok().into(),
        })
    }

    /// The election may have been won by the policy that is gone or does not parse.
    fn forget(&self, _: &Key) {
        self.usage.elect();
    }
}

impl PlacementPolicyController {
    /// Namespace and name of the ConfigMap with the learned values of the policy.
    fn map_key(&self, object: &PlacementPolicy) -> Key {
        Key::new(self.namespace.clone(), map_name(&object.id().uid))
    }

    /// Builds the status after a pass.
    fn status(
        &self,
        observed: &ObservedPolicy,
        plan: &PolicyPlan,
        done: Result<&Saved, &Error>,
        old: &PlacementPolicyStatus,
    ) -> PlacementPolicyStatus {
        let ObservedPolicy { object, now, .. } = observed;
        let stamp = Stamp { generation: object.metadata.generation.unwrap_or(0), now: *now };
        let mut status = match plan {
            PolicyPlan::Invalid(error) => state::invalid_status(&old.conditions, error, stamp),
            PolicyPlan::Valid { health, coverage, .. } => {
                let saved = done.map(|saved| saved.result);
                let SaveReport { condition, map } = SaveReport::new(saved, &self.map_key(object), old, stamp);
                let mut valid = state::valid_status(&old.conditions, &object.spec, health, coverage, map, stamp);
                valid.conditions.extend(condition);
                valid
            }
        };
        if let PolicyPlan::Valid { .. } = plan
            && let Ok(ValidPolicy { policy, .. }) = &observed.valid
        {
            self.add_labels(observed, policy, old, &mut status, stamp);
        }
        if let PolicyPlan::Invalid(_) = plan {
            keep_labels(observed, old, &mut status, stamp);
        }
        if let Some(usage) = self.usage.report(object) {
            status.conditions.push(usage.condition(&old.conditions, stamp));
        }
        status
    }

    /// Adds the state of the labels to the status; after a start, that of the process before.
    fn add_labels(
        &self,
        ObservedPolicy { object, application, .. }: &ObservedPolicy,
        policy: &CompiledPolicy,
        old: &PlacementPolicyStatus,
        status: &mut PlacementPolicyStatus,
        stamp: Stamp,
    ) {
        if policy.labels.is_none() || policy.mode != PolicyMode::Active {
            return;
        }
        let key = labels::key(&policy.name);
        match self.labeler.report(&policy.name).filter(|report| report.generation == stamp.generation) {
            Some(report) => {
                let condition = report.condition(&old.conditions, &key, policy.aside().as_deref(), stamp);
                status.conditions.push(condition);
                status.valid_until = report.valid_until(old.valid_until.as_ref(), policy.rules.max_age);
                status.labels = Some(report.status(key));
            }
            None => {
                status.conditions.push(not_compared(&old.conditions, stamp));
                (status.labels, status.valid_until) = (old.labels.clone(), old.valid_until.clone());
            }
        }
        let is_default = is_default(object.metadata.labels.as_ref());
        status.conditions.push(application.condition(&old.conditions, &policy.name, is_default, stamp));
    }
}

/// Keeps the state of the labels in the status of a policy that has become invalid: its labels stay on the nodes, and
/// are valid as long as before.
fn keep_labels(
    ObservedPolicy { object, application, .. }: &ObservedPolicy,
    old: &PlacementPolicyStatus,
    status: &mut PlacementPolicyStatus,
    stamp: Stamp,
) {
    if object.spec.mode != PolicyMode::Active || !object.spec.is_delivered_by(PolicyDelivery::Labels) {
        return;
    }
    (status.labels, status.valid_until) = (old.labels.clone(), old.valid_until.clone());
    let is_default = is_default(object.metadata.labels.as_ref());
    let applied = application.condition(&old.conditions, &object.id().key.name, is_default, stamp);
    status.conditions.extend([not_comparable(&old.conditions, stamp), applied]);
}
