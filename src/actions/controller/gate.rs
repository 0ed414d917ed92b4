//! The gate controller: removes the operator's scheduling gate from pods that no action wants, including pods that were
//! gated before the operator started. A pod that an action wants is released by the controller of that action.
//!
//! | step | content |
//! |---|---|
//! | observe | a gated pod, and whether a slot wants it |
//! | plan | `ganglion_actions_plan::stateful::gate` |
//! | act | removes the gate |
//! | report | nothing: the pod itself shows the result |

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tracing::info;

use super::act;
use super::error::ActError;
use ganglion_actions_plan::effect::Effect;
use ganglion_actions_plan::stateful::gate::{GateVerdict, GatedPod};
use ganglion_core::facts::{Key, PodFact};
use ganglion_core::world::World;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::frame::{Memories, Next, Reconciler};

/// Delay before a pod is observed again whose release met a conflict.
const AFTER_CONFLICT: SignedDuration = SignedDuration::from_millis(100);

pub struct GateController {
    pub ctx: Context,
    pub memories: Memories<()>,
}

impl GateController {
    /// Pods to enqueue at the start.
    pub fn gated(world: &World) -> Vec<Key> {
        world.table::<PodFact>().values().filter(|pod| pod.gated).map(|pod| pod.id.key.clone()).collect()
    }
}

/// Result of the release of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseResult {
    /// The pod stays gated for now.
    Held,
    Released,
    /// Another pod has this name now, or the gate was removed meanwhile.
    Conflict,
}

impl Reconciler for GateController {
    type Kind = PodFact;
    type Memory = ();
    type Observed = GatedPod;
    type Plan = GateVerdict;
    type Done = ReleaseResult;
    const NAME: &'static str = "placement-gate";
    /// One round releases the pod, and the next one finds that it is not gated any more.
    const MAX_ROUNDS: usize = 2;
    const PAUSE: Duration = Duration::from_millis(100);

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn memories(&self) -> &Memories<()> {
        &self.memories
    }

    fn observe(self: &Arc<Self>, key: &Key, (): &mut ()) -> Option<GatedPod> {
        self.ctx.store.read(|world| GatedPod::observe(world, key))
    }

    fn plan(&self, pod: &GatedPod, (): &mut ()) -> GateVerdict {
        pod.decide(self.ctx.now())
    }

    async fn act(self: &Arc<Self>, pod: &GatedPod, plan: &GateVerdict, (): &mut ()) -> Result<ReleaseResult, Error> {
        match plan {
            GateVerdict::HoldUntil(_) => return Ok(ReleaseResult::Held),
            GateVerdict::Release => {}
        }
        let effect = Effect::ReleasePod { pod: pod.id.clone(), node: None };
        match act::act(&self.ctx, &effect).await {
            Ok(_) => {
                info!(effect = effect.name(), on = %pod.id.key, "done");
                Ok(ReleaseResult::Released)
            }
            Err(ActError::Request(Error::Conflict(_))) => {
                act::read_target(&self.ctx, &effect).await?;
                Ok(ReleaseResult::Conflict)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn report(
        self: &Arc<Self>,
        _: &GatedPod,
        plan: &GateVerdict,
        done: Result<&ReleaseResult, &Error>,
        (): &mut (),
    ) -> Result<Next, Error> {
        Ok(match (plan, done) {
            (GateVerdict::HoldUntil(until), _) => Next::At(*until),
            (GateVerdict::Release, Ok(ReleaseResult::Conflict)) => Next::At(self.ctx.now() + AFTER_CONFLICT),
            (GateVerdict::Release, Ok(ReleaseResult::Released | ReleaseResult::Held)) => Next::Again,
            (GateVerdict::Release, Err(_)) => Next::AwaitChange,
        })
    }
}
