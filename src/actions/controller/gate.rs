//! The gate keeper: removes the operator's scheduling gate from pods that no action wants, including pods that were
//! gated before the operator started.
//!
//! Owns the reconciles of these pods. [`ganglion_actions_plan::stateful::gate`] decides. A pod that an action wants is
//! released by the controller of that action.

use std::sync::Arc;
use std::time::Duration;

use tracing::info;

use super::act;
use super::error::ActError;
use ganglion_actions_plan::effect::Effect;
use ganglion_actions_plan::stateful::gate::{GateVerdict, hold};
use ganglion_core::facts::{Identity, Key, PodFact};
use ganglion_core::world::World;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::run::{Action, Controller, ReconcileResult};

pub struct GateController {
    pub ctx: Context,
}

impl GateController {
    /// Pods to enqueue at the start.
    pub fn gated(world: &World) -> Vec<Key> {
        world.table::<PodFact>().values().filter(|pod| pod.gated).map(|pod| pod.id.key.clone()).collect()
    }
}

impl GateController {
    async fn release(&self, key: &Key, pod: Identity) -> ReconcileResult {
        let effect = Effect::ReleasePod { pod, node: None };
        match act::act(&self.ctx, &effect).await {
            Ok(_) => {
                info!(effect = act::name(&effect), on = %key, "done");
                Ok(Action::AwaitChange)
            }
            // Another pod has this name now, or the gate was removed meanwhile: read the pod again.
            Err(ActError::Request(Error::Conflict(_))) => {
                let _ = act::look_again(&self.ctx, &effect).await?;
                Ok(Action::RequeueAfter(Duration::from_millis(100)))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Controller for GateController {
    type Kind = PodFact;
    const NAME: &'static str = "placement-gate";

    async fn reconcile(self: Arc<Self>, key: Key) -> ReconcileResult {
        let now = self.ctx.now();
        match self.ctx.store.read(|world| hold(world, &key, now)) {
            GateVerdict::None => Ok(Action::AwaitChange),
            GateVerdict::Until(until) => {
                Ok(Action::RequeueAfter(Duration::try_from(until.duration_since(now)).unwrap_or(Duration::ZERO)))
            }
            GateVerdict::Release(pod) => self.release(&key, pod).await,
        }
    }
}
