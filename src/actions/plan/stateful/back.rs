//! One slot, backward: nothing has happened yet, or the new pod is released without a pin, or the replicas are
//! restored.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::choose::{older_claims, refuse_data_loss};
use super::{MOST_ATTEMPTS, can_go_back, is_kept, pod_name, stateful, target};
use crate::context::Verb;
use crate::effect::Effect;
use crate::rollback::{self, CONTROLLERS};
use crate::slot::{SlotNext, View};
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{PodOnNode, Slot, Step};
use ganglion_core::facts::{PodFact, pin_of};

/// The next step of a slot that rolls back. The record of the rollback has dropped the pin.
pub fn next(view: &View) -> SlotNext {
    match view.ctx.work.verb {
        Verb::Move if can_go_back(view) => undone(view),
        Verb::Move => let_go(view),
        Verb::Create => shrink_again(view),
        // The replicas were lowered after all.
        Verb::Delete if view.scaled() => SlotNext::Record(onwards(view, Step::Scaled)),
        Verb::Delete => undone(view),
    }
}

/// Ends a slot that has done nothing.
fn undone(view: &View) -> SlotNext {
    let step = if view.slot.reason == Some(Reason::Aborted) { Step::Aborted } else { Step::RolledBack };
    SlotNext::Record(Slot { step, since: Time(view.ctx.now), scaled: false, ..view.slot.clone() })
}

fn onwards(view: &View, step: Step) -> Slot {
    Slot { step, since: Time(view.ctx.now), reason: None, message: None, scaled: view.scaled(), ..view.slot.clone() }
}

fn failed(view: &View, then: &str) -> SlotNext {
    let why = view.slot.message.as_deref().unwrap_or("no reason known");
    view.end(Step::Failed, view.slot.reason.unwrap_or(Reason::Failed), &format!("{why}; {then}"))
}

/// Waits at most `scheduleSeconds`, and says for what if the wait lasts.
fn wait(view: &View, obstacle: Reason, words: String) -> SlotNext {
    rollback::wait(view, obstacle, words, view.deadline(Step::RollingBack, view.ctx.schedule_time()))
}

/// The old pod is gone and no node took the new one. The set has its full number of replicas again when the pod may run
/// on any node.
fn let_go(view: &View) -> SlotNext {
    let name = pod_name(view);
    if view.scope.is_none() || !is_kept(view) {
        return failed(view, "its StatefulSet does not keep the replica");
    }
    let over = view.overdue(Step::RollingBack, view.ctx.schedule_time()).unwrap_or(false);
    let pod = view.ctx.world.pod(&view.ctx.key(name)).filter(|pod| pod.is_of(&view.slot.replica_set.uid));
    match pod.filter(|pod| pod.is_active()) {
        None if over => failed(view, &format!("the StatefulSet has not created pod {name} yet")),
        None => {
            let words = format!("the StatefulSet has not created pod {name} yet; {CONTROLLERS}");
            wait(view, Reason::SetStuck, words)
        }
        Some(pod) if pod.node == Some(target(view)) && !view.ctx.aborted() => {
            SlotNext::Record(onwards(view, Step::Readying))
        }
        Some(PodFact { node: Some(node), .. }) => failed(view, &format!("pod {name} runs on {node}")),
        Some(pod) if pod.gated => SlotNext::Do(Effect::ReleasePod { pod: pod.id.clone(), node: None }),
        Some(pod) if is_pinned(view, pod) => come_unpinned(view, pod),
        Some(pod) if over || pod.unschedulable.is_some() => {
            let why = pod.unschedulable.as_deref().unwrap_or("the scheduler has not processed it yet");
            failed(view, &format!("pod {name} may run on any node, and none has taken it: {why}"))
        }
        Some(_) => wait(view, Reason::Unschedulable, format!("pod {name} waits for the scheduler; is it running?")),
    }
}

/// Whether the pod is pinned to a node, and not by its template.
fn is_pinned(view: &View, pod: &PodFact) -> bool {
    let template = stateful(view).and_then(|set| pin_of(set.set.template.as_ref()?.node_affinity.as_ref()?));
    pod.pin.is_some() && pod.pin != template
}

/// Evicts a pinned pod that no node takes, which no budget refuses, after it is recorded, within the limit.
fn come_unpinned(view: &View, pod: &PodFact) -> SlotNext {
    let recorded = view.slot.victim.as_ref().is_some_and(|victim| victim.uid.as_ref() == Some(&pod.id.uid));
    if recorded {
        return SlotNext::Do(view.eviction(pod));
    }
    if view.slot.attempt > MOST_ATTEMPTS {
        return failed(
            view,
            &format!("pod {} is still bound to a node that does not take it; delete it", pod.id.key.name),
        );
    }
    let mut slot = view.slot.clone();
    slot.attempt += 1;
    let node = slot.victim.as_ref().map(|victim| victim.node.clone()).unwrap_or_default();
    slot.victim = Some(PodOnNode { name: pod.id.key.name.clone(), uid: Some(pod.id.uid.clone()), node });
    SlotNext::Record(slot)
}

/// Removes the replica of a create. It has the highest ordinal, unless somebody has scaled the set since.
fn shrink_again(view: &View) -> SlotNext {
    let (Some(scope), true) = (&view.scope, view.scaled()) else { return undone(view) };
    let Some(ledger) = scope.ledger().filter(|ledger| ledger.slot == view.slot.id) else {
        return failed(view, "another action has changed spec.replicas since, so the replica stays");
    };
    if scope.replicas() != ledger.to {
        return failed(view, "somebody has scaled the workload since, so spec.replicas stays as it is");
    }
    // The policy may have changed since the replica was created.
    let older = stateful(view).map(|set| (set, older_claims(view.ctx, set, pod_name(view))));
    if let Some((set, claims)) = older
        && let Err(refusal) = refuse_data_loss(view.ctx, set, &claims)
    {
        return failed(view, &format!("pod {} stays: {}", pod_name(view), refusal.message));
    }
    if rollback::ledger_is_taken(view, scope) {
        let words = "another replica is changing spec.replicas of the workload".to_owned();
        return rollback::wait(view, Reason::WorkloadBusy, words, None);
    }
    rollback::scale(view, scope, -1, true, Vec::new())
}
