//! The controller of PlacementPolicies: reports whether a policy can be asked, and what its agents know. Schedulers and actions ask
//! the policy itself, on every replica, by `caches::placement`.
//!
//! | beat | what |
//! |---|---|
//! | observe | the policy, and the nodes as agents know them |
//! | plan | `logic::placement::state`: of how many nodes each agent has what it needs |
//! | report | the status, where it says something new |
//!
//! Nothing is done to anything else. Everything in memory may be lost in a crash.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

use crate::api::marks;
use crate::api::placement_policy::PlacementPolicy;
use crate::api::placement_policy::PlacementPolicyStatus;
use crate::api::placement_policy::reasons::PolicyReason;
use crate::caches::placement::PlacementCache;
use crate::controllers::invalid::{self, StatusWrite};
use crate::logic::conditions::Stamp;
use crate::logic::facts::Key;
use crate::logic::placement::policy::CompiledPolicy;
use crate::logic::placement::state::{self, Coverage};
use crate::logic::world::Fact;
use crate::runtime::context::Context;
use crate::runtime::error::Error;
use crate::runtime::events::{EventText, reference};
use crate::runtime::run::{Controller, PassResult};

/// How often a policy is looked at whose spec does not change: values get old without an event.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);

/// How often a status is written of which only numbers change.
const COUNT_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// The controller and its dependencies.
pub struct PlacementPolicyController {
    pub ctx: Context,
    pub placement: PlacementCache,
    pub memory: PolicyMemory,
}

/// What was last counted for the status, and when, by policy.
#[derive(Default)]
pub struct PolicyMemory(Mutex<HashMap<Key, (Coverage, Timestamp)>>);

impl PolicyMemory {
    fn counts(&self) -> MutexGuard<'_, HashMap<Key, (Coverage, Timestamp)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for PlacementPolicyController {
    type Kind = PlacementPolicy;
    const NAME: &'static str = "placement-policy";

    async fn reconcile(self: Arc<Self>, key: Key) -> PassResult {
        let (reason, by) = (PolicyReason::InvalidObject.as_str(), (marks::POLICY_STATUS_MANAGER, StatusWrite::Update));
        if let Some(done) = invalid::pass::<PlacementPolicy>(&self.ctx, &key, reason, by).await {
            return done;
        }
        let found = self.ctx.store.read(|world| world.policy(&key.name).cloned());
        let Some(object) = found.filter(|object| object.metadata.deletion_timestamp.is_none()) else {
            self.memory.counts().remove(&key);
            return self.ctx.finish(Ok(None));
        };
        let done = match self.placement.policy(&key.name) {
            Some(Ok(policy)) => self.keep(&key, &object, &policy).await,
            Some(Err(error)) => {
                let old = object.status.clone().unwrap_or_default();
                let status = state::refused(&old.conditions, &error, self.stamp(&object));
                self.record(&object, &old, &status).await.map(|()| None)
            }
            None => Ok(None),
        };
        self.ctx.finish(done)
    }
}

impl PlacementPolicyController {
    /// Reports what the agents know; when the next look is due.
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
        let status = state::status(&old.conditions, &object.spec, &health, &coverage, self.stamp(object));
        self.record(object, &old, &status).await?;
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
        status: &PlacementPolicyStatus,
    ) -> Result<(), Error> {
        if old == status {
            return Ok(());
        }
        let id = object.id();
        let write = self.ctx.writer.replace_status::<PlacementPolicy>(marks::POLICY_STATUS_MANAGER, &id, status);
        self.ctx.write_own::<PlacementPolicy, PlacementPolicy>("RecordPolicy", object, write).await?;
        if let Some(event) = news(old, status) {
            self.ctx.events.publish(reference::<PlacementPolicy>(&id), event);
        }
        Ok(())
    }
}

/// The event for a policy whose Ready has another reason.
fn news(before: &PlacementPolicyStatus, after: &PlacementPolicyStatus) -> Option<EventText> {
    let ready = |status: &PlacementPolicyStatus| status.conditions.iter().find(|one| one.type_ == "Ready").cloned();
    let (before, after) = (ready(before), ready(after)?);
    let is_new =
        before.is_none_or(|before| (before.status, before.reason) != (after.status.clone(), after.reason.clone()));
    is_new.then(|| EventText {
        warning: after.status != "True",
        reason: after.reason,
        note: after.message,
        about: None,
    })
}
