//! Replicas of StatefulSets: a pod keeps its name, so the old pod leaves before the new one is created.
//!
//! A move without `to` off a cordoned node needs no pin: the pod is evicted, and the scheduler chooses the node of its
//! successor. In all other cases, the slot is the intent and the pin: while it is running, every new pod of its name is
//! bound to `replacement.node`. There are two ways to bind it, and a StatefulSet with neither is refused:
//!
//! - the MutatingAdmissionPolicy of `kustomize/components/pin-statefulsets`, which reads the slot in the action's
//!   status when the pod is created. An API server may see a status late, so the slot checks the node of the pod, and
//!   repeats within a limit;
//! - the scheduling gate [`marks::GATE`](ganglion_api::marks::GATE) in the template: see [`gate`].
//!
//! A move records the intent and evicts the pod; the StatefulSet creates the pod again on the target, where it becomes
//! Ready. Before the eviction, the end of the slot alone undoes the move. After it, a pod that no candidate node takes
//! is released without a pin. Create and delete change `spec.replicas` with the ledger, at the highest ordinal.
//!
//! | file | content |
//! |---|---|
//! | `choose` | what is refused before anything is done; the order of replicas |
//! | `forward`, `arrival` | the next effect of a slot; from the new pod's creation on |
//! | `back` | a slot that rolls back |
//! | `gate` | the pods with the scheduling gate |

mod arrival;
mod back;
mod choose;
mod forward;
pub mod gate;

use jiff::SignedDuration;

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::{NodeName, PodFact, StatefulSetFact};

use super::context::Verb;
use super::slot::{SlotNext, View, is_old_stateful};
pub use choose::{busy, highest, in_order, is_done, is_pinned, label, name_of, rank_words, refuse_older_claims};

/// Maximum number of times that a slot creates its pod again. After so many misses or nodes without room, it gives up.
const MOST_ATTEMPTS: i32 = 3;

/// Time to wait before a pod without a pin is created again, for each attempt. An API server applies a policy up to
/// 30 s after the installation of the CRD that the policy reads.
const PIN_PAUSES: [SignedDuration; MOST_ATTEMPTS as usize] =
    [SignedDuration::from_secs(5), SignedDuration::from_secs(15), SignedDuration::from_secs(60)];

/// The next step of a slot of a StatefulSet.
pub fn next(view: &View) -> SlotNext {
    if view.slot.step == Step::RollingBack {
        return back::next(view);
    }
    if can_go_back(view) {
        if view.ctx.aborted() {
            return view.roll_back(Reason::Aborted, view.ctx.why_aborted());
        }
        if view.scope.is_none() {
            return view.roll_back(Reason::WorkloadGone, "the workload was deleted");
        }
    }
    forward::row(view)
}

/// Whether everything can still be undone: no pod has left, and the replicas are unchanged or can be restored.
pub fn can_go_back(view: &View) -> bool {
    match view.ctx.work.verb {
        Verb::Move => view.slot.attempt == 0 && view.victim_runs(),
        Verb::Create => true,
        Verb::Delete => !view.scaled(),
    }
}

/// The StatefulSet, if it exists.
pub fn stateful<'a>(view: &View<'a>) -> Option<&'a StatefulSetFact> {
    view.scope?.stateful()
}

/// Name of the replica's pod.
fn pod_name<'a>(view: &View<'a>) -> &'a str {
    let pods = [&view.slot.victim, &view.slot.replacement];
    pods.into_iter().flatten().next().map_or("", |pod| pod.name.as_str())
}

/// Whether the set keeps this replica.
fn is_kept(view: &View) -> bool {
    let Some(set) = stateful(view) else { return false };
    set.ordinal(pod_name(view)).is_some_and(|ordinal| set.keeps(ordinal))
}

/// Whether the new pod is pinned to a node. Otherwise the scheduler chooses its node.
fn has_target(view: &View) -> bool {
    view.slot.replacement.is_some()
}

/// The node to which the new pod is pinned.
fn target(view: &View) -> NodeName {
    view.slot.replacement.as_ref().map(|replacement| replacement.node.clone()).unwrap_or_default()
}

/// The new pod, if it exists and is not about to go.
fn arrived<'a>(view: &View<'a>) -> Option<&'a PodFact> {
    let pod = view.ctx.world.pod(&view.ctx.key(pod_name(view)));
    pod.filter(|pod| pod.is_active() && pod.is_of(&view.slot.replica_set.uid) && !is_old_stateful(view.slot, pod))
}
