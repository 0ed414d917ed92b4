//! Sets `spec.replicas` of the workload.

use k8s_openapi::api::apps::v1::Deployment;

use super::SwarmPoolController;
use ganglion_api::marks;
use ganglion_api::swarm_pool::PoolWorkloadKind;
use ganglion_core::facts::{DeploymentFact, StatefulSet, StatefulSetFact};
use ganglion_core::json_patch::JsonPatch;
use ganglion_core::world::Origin;
use ganglion_pools_plan::replicas::{ObservedWorkload, ScaleWrite};
use ganglion_pools_plan::step::ObservedPool;
use ganglion_runtime::error::Error;

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
