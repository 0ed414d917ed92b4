//! The controller of PlacementPolicies: reports whether the spec of a policy is valid, and for how many nodes its
//! agents have data. Schedulers and actions evaluate the policy through [`crate::cache`], on every replica.
//!
//! | step | what |
//! |---|---|
//! | observe | reads the policy and the node records |
//! | plan | [`ganglion_placement_plan::state`]: counts the nodes for which each agent has data |
//! | act | `memory`: saves the learned values of the agents |
//! | report | writes the status if it changed, even after a failed save |
//!
//! The usage of nodes is published outside of reconciles (`usage`). All state in memory may be lost in a crash.

mod memory;
mod usage;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::cache::PlacementCache;
use ganglion_api::marks;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::placement_policy::PlacementPolicyStatus;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_core::conditions::Stamp;
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_placement_plan::publish::report::USAGE_PUBLISHED;
use ganglion_placement_plan::state::{self, Coverage};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{EventText, reference};
use ganglion_runtime::invalid::{self, StatusWrite};
use ganglion_runtime::run::{Controller, ReconcileResult};
use memory::{MEMORY_SAVED, MemoryReport, Save};
pub use usage::{UsagePublisher, run_usage};

/// Interval between reconciles of an unchanged policy, since values expire without an event.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// Minimum time between status writes that change only counts.
const COUNT_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// The controller and its dependencies.
pub struct PlacementPolicyController {
    pub ctx: Context,
    pub placement: PlacementCache,
    /// Namespace of the operator.
    pub namespace: String,
    pub memory: PolicyMemory,
    pub usage: Arc<UsagePublisher>,
}

/// State that the controller stores per policy.
#[derive(Default)]
pub struct PolicyMemory {
    /// Coverage in the last status, and the time at which it was counted.
    counted: Mutex<HashMap<Key, (Coverage, Timestamp)>>,
    saves: Mutex<HashMap<Key, Save>>,
}

impl PolicyMemory {
    fn counts(&self) -> MutexGuard<'_, HashMap<Key, (Coverage, Timestamp)>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saves(&self) -> MutexGuard<'_, HashMap<Key, Save>> {
        self.saves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, key: &Key) {
        self.counts().remove(key);
        self.saves().remove(key);
    }
}

impl Controller for PlacementPolicyController {
    type Kind = PlacementPolicy;
    const NAME: &'static str = "placement-policy";

    async fn reconcile(self: Arc<Self>, key: Key) -> ReconcileResult {
        self.usage.elect();
        let (reason, by) = (PolicyReason::InvalidObject.as_str(), (marks::POLICY_STATUS_MANAGER, StatusWrite::Update));
        if let Some(done) = invalid::pass::<PlacementPolicy>(&self.ctx, &key, reason, by).await {
            return done;
        }
        let found = self.ctx.store.read(|world| world.policy(&key.name).cloned());
        let Some(object) = found.filter(|object| object.metadata.deletion_timestamp.is_none()) else {
            self.memory.forget(&key);
            return self.ctx.finish(Ok(None));
        };
        let done = match self.placement.policy(&key.name) {
            Some(Ok(policy)) => self.keep(&key, &object, &policy).await,
            Some(Err(error)) => {
                let old = object.status.clone().unwrap_or_default();
                let status = state::refused(&old.conditions, &error, self.stamp(&object));
                self.record(&object, &old, status).await.map(|()| None)
            }
            None => Ok(None),
        };
        self.ctx.finish(done)
    }
}

impl PlacementPolicyController {
    /// Saves the learned values, writes the status, and returns when to reconcile again.
    async fn keep(
        &self,
        key: &Key,
        object: &Arc<PlacementPolicy>,
        policy: &CompiledPolicy,
    ) -> Result<Option<Timestamp>, Error> {
        let now = self.ctx.now();
        let coverage = self.coverage(key, self.placement.inventory(|nodes| Coverage::of(policy, nodes, now)), now);
        let health = state::health(policy, &coverage);
        let old = object.status.clone().unwrap_or_default();
        let saved = self.save(key, object, policy, now).await;
        let stamp = self.stamp(object);
        let report = || MemoryReport::of(&saved, &self.map_key(object), &old, stamp);
        let MemoryReport { condition, map } = policy.learns().then(report).unwrap_or_default();
        let mut status = state::status(&old.conditions, &object.spec, &health, &coverage, map, stamp);
        status.conditions.extend(condition);
        let told = self.record(object, &old, status).await;
        saved.and(told)?;
        Ok(now.checked_add(PAUSE).ok())
    }

    /// Coverage to report: the previous one if only counts changed within [`COUNT_PAUSE`].
    fn coverage(&self, key: &Key, new: Coverage, now: Timestamp) -> Coverage {
        let mut counts = self.memory.counts();
        if let Some((known, at)) = counts.get(key)
            && known.is_like(&new)
            && now.duration_since(*at) < COUNT_PAUSE
        {
            return known.clone();
        }
        counts.insert(key.clone(), (new.clone(), now));
        new
    }

    fn stamp(&self, object: &PlacementPolicy) -> Stamp {
        Stamp { generation: object.metadata.generation.unwrap_or(0), now: self.ctx.now() }
    }

    async fn record(
        &self,
        object: &Arc<PlacementPolicy>,
        old: &PlacementPolicyStatus,
        mut status: PlacementPolicyStatus,
    ) -> Result<(), Error> {
        let usage = self.usage.report(object);
        status.conditions.extend(usage.map(|usage| usage.condition(&old.conditions, self.stamp(object))));
        if *old == status {
            return Ok(());
        }
        let id = object.id();
        let write = self.ctx.writer.replace_status::<PlacementPolicy>(marks::POLICY_STATUS_MANAGER, &id, &status);
        self.ctx.write_own::<PlacementPolicy, PlacementPolicy>("RecordPolicy", object, write).await?;
        for event in news(old, &status) {
            self.ctx.events.publish(reference::<PlacementPolicy>(&id), event);
        }
        Ok(())
    }
}

/// Types of conditions whose changes are published as events.
const TOLD: [&str; 3] = ["Ready", USAGE_PUBLISHED, MEMORY_SAVED];

/// Events for conditions whose status or reason changed. Conditions with status Unknown have no event.
fn news<'a>(
    before: &'a PlacementPolicyStatus,
    after: &'a PlacementPolicyStatus,
) -> impl Iterator<Item = EventText> + 'a {
    let told = after.conditions.iter().filter(|one| TOLD.contains(&one.type_.as_str()) && one.status != "Unknown");
    let is_new = |after: &&Condition| {
        let before = before.conditions.iter().find(|before| before.type_ == after.type_);
        before.is_none_or(|before| (&before.status, &before.reason) != (&after.status, &after.reason))
    };
    told.filter(is_new).map(|after| EventText {
        warning: after.status != "True",
        reason: after.reason.clone(),
        note: after.message.clone(),
        about: None,
    })
}
