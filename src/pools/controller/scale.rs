//! Sets `spec.replicas` of the workload, or of a pool that follows its workload.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::refusals::cause_of;
use super::{PoolDone, SwarmPoolController, key_of, namespace};
use ganglion_api::marks;
use ganglion_api::swarm_pool::{PoolWorkloadKind, SwarmPool, SwarmPoolStatus};
use ganglion_core::facts::{DeploymentFact, StatefulSet, StatefulSetFact};
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::world::{Fact, Origin};
use ganglion_pools_plan::refusals::RefusalCause;
use ganglion_pools_plan::replicas::{FollowStep, ObservedWorkload, RefusedWrite, ScaleWrite};
use ganglion_pools_plan::step::{ObservedPool, PoolMemory};
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{EventText, reference, reference_to};
use ganglion_runtime::frame::Next;

/// Event of a pool that has scaled its workload, and of the workload.
const SCALED: &str = "Scaled";

impl SwarmPoolController {
    /// Sets the replicas if the workload still has the version that was observed. A refusal is noted, and does not stop
    /// the pool.
    pub(super) async fn scale(
        &self,
        observed: &ObservedPool,
        replicas: i32,
        memory: &mut PoolMemory,
    ) -> Result<PoolDone, Error> {
        let Some(workload) = &observed.workload else { return Ok(PoolDone::Changed) };
        match self.ctx.writer.counted("ScaleWorkload", self.write_replicas(workload, replicas)).await {
            Ok(()) => {
                memory.scaled.push(ScaleWrite { workload: workload.id.uid.clone(), at: observed.now, replicas });
                memory.scale_refused = None;
                self.publish_scaled(&observed.pool, workload, replicas);
            }
            Err(error @ (Error::Forbidden(_) | Error::Denied(_))) => {
                note_refusal(&mut memory.scale_refused, error, replicas, observed.now)?;
            }
            Err(error) => return Err(error),
        }
        Ok(PoolDone::Changed)
    }

    /// Publishes that the pool has scaled its workload, as an event of each of them.
    fn publish_scaled(&self, pool: &SwarmPool, workload: &ObservedWorkload, replicas: i32) {
        let (pool, kind) = (pool.id(), workload.fact.kind.as_str());
        let (regarding, related) =
            (reference_to("apps/v1", kind, &workload.id.key, Some(&workload.id.uid)), reference::<SwarmPool>(&pool));
        let change = format!("replicas {} → {replicas}", workload.fact.replicas);
        let event = |note: String| EventText::normal(SCALED, note).in_occurrence(&workload.id.version);
        let (of_workload, of_pool) = (
            event(format!("SwarmPool {}: {change}", pool.key.name)),
            event(format!("{kind}/{}: {change}", workload.id.key.name)),
        );
        self.ctx.events.publish(regarding.clone(), of_workload.with_related(related.clone()));
        self.ctx.events.publish(related, of_pool.with_related(regarding));
    }

    /// Makes the pool show the replicas of its workload. A pool that somebody changed meanwhile stays as it is. A
    /// refusal is noted, and does not stop the pool.
    pub(super) async fn follow(
        &self,
        observed: &ObservedPool,
        step: &FollowStep,
        memory: &mut PoolMemory,
    ) -> Result<PoolDone, Error> {
        let (pool, refused) = (&*observed.pool, &mut memory.follow_refused);
        match step {
            FollowStep::Record(followed) => {
                let old = pool.status.clone().unwrap_or_default();
                let status = SwarmPoolStatus { followed: followed.clone(), ..old.clone() };
                self.write_status(pool, &old, &status).await?;
                if let Some(replicas) = followed.last().filter(|_| !self.has_kept_record(pool)) {
                    let message = "unknown field \"status.followed\"";
                    *refused = Some(RefusedWrite::new(None, RefusalCause::OldCrd, *replicas, message, observed.now));
                }
                Ok(PoolDone::Changed)
            }
            FollowStep::Write(replicas) => {
                let body = json!({
                    "metadata": {"resourceVersion": pool.metadata.resource_version}, "spec": {"replicas": replicas},
                });
                let params = PatchParams { field_manager: Some(marks::SWARM_MANAGER.to_owned()), ..Default::default() };
                let api = self.ctx.writer.api::<SwarmPool>(&namespace(pool));
                let (name, patch) = (pool.name_any(), Patch::Merge(body));
                let write = self.ctx.writer.call(api.patch_scale(&name, &params, &patch));
                match self.ctx.writer.counted("FollowWorkload", write).await {
                    Ok(_) => {
                        *refused = None;
                        // The watch delivers the changed pool.
                        Ok(PoolDone::Waits(Next::AwaitChange))
                    }
                    Err(error) => {
                        note_refusal(refused, error, *replicas, observed.now)?;
                        Ok(PoolDone::Changed)
                    }
                }
            }
        }
    }

    /// Whether the stored pool has a record. The API server drops fields that an older CRD lacks.
    fn has_kept_record(&self, pool: &SwarmPool) -> bool {
        let stored = self.ctx.store.read(|world| world.table::<SwarmPool>().get(&key_of(pool)).cloned());
        stored.and_then(|stored| stored.status.as_ref().map(|status| !status.followed.is_empty())).unwrap_or(true)
    }

    async fn write_replicas(&self, workload: &ObservedWorkload, replicas: i32) -> Result<(), Error> {
        let mut patch = JsonPatch::at_version(&workload.id.uid, &workload.id.version);
        patch.add(&["spec", "replicas"], replicas);
        let (key, writer) = (&workload.id.key, &self.ctx.writer);
        match workload.fact.kind {
            PoolWorkloadKind::StatefulSet => {
                let set = writer.patch_json::<StatefulSet>(marks::SWARM_MANAGER, key, patch).await?;
                self.ctx.store.apply(StatefulSetFact::from(set), Origin::Own);
            }
            PoolWorkloadKind::Deployment => {
                let deployment = writer.patch_json::<Deployment>(marks::SWARM_MANAGER, key, patch).await?;
                self.ctx.store.apply(DeploymentFact::from(deployment), Origin::Own);
            }
        }
        Ok(())
    }
}

/// Notes that a write was refused until somebody changes something. Returns any other error.
fn note_refusal(refused: &mut Option<RefusedWrite>, error: Error, replicas: i32, now: Timestamp) -> Result<(), Error> {
    let (cause, message) = match error {
        // The next status write finds out whether the pool is gone.
        Error::NotFound(message) => (RefusalCause::OldCrd, message),
        error => cause_of(error)?,
    };
    *refused = Some(RefusedWrite::new(refused.as_ref(), cause, replicas, message, now));
    Ok(())
}
