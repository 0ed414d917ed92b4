//! The controller of PlacementPolicies: reports whether a policy can be asked, and what its agents know. Schedulers and actions ask
//! the policy itself, on every replica, by `caches::placement`.
//!
//! | beat | what |
//! |---|---|
//! | observe | the policy, and the nodes as agents know them |
//! | plan | `logic::placement::state`: of how many nodes each agent has what it needs |
//! | act | `memory`: saves what the agents have learned |
//! | report | the status, where it says something new; also after a save that failed |
//!
//! The usage of nodes is published beside the passes (`usage`). Everything in memory may be lost in a crash.

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
use ganglion_runtime::run::{Controller, PassResult};
use memory::{MEMORY_SAVED, MemoryReport, Save};
pub use usage::{UsagePublisher, run_usage};

/// How often a policy is looked at whose spec does not change: values get old without an event.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// How often a status is written of which only numbers change.
const COUNT_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// The controller and its dependencies.
pub struct PlacementPolicyController {
    pub ctx: Context,
    pub placement: PlacementCache,
    /// The operator's namespace.
    pub namespace: String,
    pub memory: PolicyMemory,
    pub usage: Arc<UsagePublisher>,
}

/// By policy.
#[derive(Default)]
pub struct PolicyMemory {
    /// What was last counted for the status, and when.
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

    async fn reconcile(self: Arc<Self>, key: Key) -> PassResult {
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
    /// Saves what the agents have learned, and reports that and what they know; when the next look is due.
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

    /// The coverage to report: that of the last report, where only numbers have changed since a moment ago.
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

/// The conditions whose changes are events.
const TOLD: [&str; 3] = ["Ready", USAGE_PUBLISHED, MEMORY_SAVED];

/// The events for a policy of which one of these conditions has another reason. What is not known yet is no news.
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
