//! The janitor: periodically cleans up after actions that vanished before they ended.
//!
//! Owns the schedule. [`ganglion_actions_plan::janitor`] decides.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tracing::info;

use super::WorkloadActionController;
use ganglion_actions_plan::effect::Effect;
use ganglion_actions_plan::janitor::{Leftovers, Sweep};
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::Identity;
use ganglion_core::world::Fact;
use ganglion_runtime::events::{EventText, reference};
use ganglion_runtime::metrics::ReasonLabel;

/// Usual maximum time between two rounds.
pub const ROUND: Duration = Duration::from_secs(60);

/// Runs rounds until the controller stops, with at most this time between two rounds.
pub async fn run(controller: Arc<WorkloadActionController>, longest: Duration) {
    let mut janitor = Janitor::default();
    while !controller.ctx.stop.is_cancelled() {
        let pause = janitor.round(&controller).await.min(longest);
        tokio::select! {
            () = controller.ctx.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// State that the janitor keeps between rounds. A crash may lose it.
#[derive(Debug, Default)]
pub struct Janitor(Leftovers);

impl Janitor {
    /// Runs one round and returns the time until the next.
    pub async fn round(&mut self, controller: &WorkloadActionController) -> Duration {
        let now = controller.ctx.now();
        // Without its policies, anybody may have written the marks. With an older CRD, records of slots may be gone.
        if controller.ctx.store.read(|world| world.guard_problem(WorkloadAction::KIND, now)).is_some() {
            return ROUND;
        }
        let Sweep { effects, unproven, again } = controller.ctx.store.read(|world| self.0.sweep(world, now));
        for pod in &unproven {
            controller.ctx.events.publish(reference::<Pod>(pod), left_alone(pod));
        }
        for effect in effects {
            if controller.ctx.stop.is_cancelled() {
                break;
            }
            clean(controller, &effect).await;
        }
        let until = again.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO));
        until.map_or(ROUND, |until| until.clamp(Duration::from_millis(100), ROUND))
    }
}

/// Event on a pod with marks that nothing confirms; once for each pod, also after a restart.
fn left_alone(pod: &Identity) -> EventText {
    let note = "the pod has the marks of a WorkloadAction that does not record it, so nothing is done with it; remove \
                the annotations ganglion.dev/slot and ganglion.dev/role, or delete the pod if it is not needed";
    EventText::warning("MarksNotConfirmed", note).in_occurrence(pod.uid.as_str())
}

async fn clean(controller: &WorkloadActionController, effect: &Effect) {
    let outcome = match controller.perform(effect).await {
        Ok(()) => "ok",
        // The object has changed, or a budget protects the pod; the next round decides again.
        Err(error) => {
            info!(effect = effect.name(), %error, "leftover not cleaned up");
            "failed"
        }
    };
    controller.ctx.metrics.janitor.get_or_create(&ReasonLabel { reason: outcome }).inc();
}
