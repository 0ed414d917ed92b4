//! Sets `spec.replicas` of the workload, or of a pool that follows its workload.

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{PoolDone, SwarmPoolController, namespace};
use ganglion_api::marks;
use ganglion_api::swarm_pool::{PoolWorkloadKind, SwarmPool, SwarmPoolStatus};
use ganglion_core::facts::{DeploymentFact, StatefulSet, StatefulSetFact};
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::world::Origin;
use ganglion_pools_plan::replicas::{FollowStep, ObservedWorkload, ScaleWrite};
use ganglion_pools_plan::step::ObservedPool;
use ganglion_runtime::error::Error;
use ganglion_runtime::frame::Next;

impl SwarmPoolController {
    /// Sets the replicas if the workload still has the version that was observed.
    pub(super) async fn scale(
        &self,
        observed: &ObservedPool,
        replicas: i32,
        writes: &mut Vec<ScaleWrite>,
    ) -> Result<(), Error> {
        let Some(workload) = &observed.workload else { return Ok(()) };
        self.ctx.writer.counted("ScaleWorkload", self.write_replicas(workload, replicas)).await?;
        writes.push(ScaleWrite { at: observed.now, replicas });
        Ok(())
    }

    /// Makes the pool show the replicas of its workload. A pool that somebody changed meanwhile stays as it is.
    pub(super) async fn follow(&self, observed: &ObservedPool, step: &FollowStep) -> Result<PoolDone, Error> {
        let pool = &*observed.pool;
        match step {
            FollowStep::Record(followed) => {
                let old = pool.status.clone().unwrap_or_default();
                let status = SwarmPoolStatus { followed: followed.clone(), ..old.clone() };
                self.write_status(pool, &old, &status).await?;
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
                self.ctx.writer.counted("FollowWorkload", write).await?;
                // The watch delivers the changed pool.
                Ok(PoolDone::Waits(Next::AwaitChange))
            }
        }
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
