//! Obstacles that a slot waits for before an effect: other pods of the set, budgets, and controllers that are behind.

use jiff::{SignedDuration, Timestamp};

use crate::world::ActionsWorld;
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::Step;
use ganglion_core::facts::{BudgetFact, PodFact};

use super::eviction::GRANT_LASTS;
use super::scope::Scope;
use super::set::Pods;
use super::slot::View;

/// Time after our watches broke in which the ReplicaSet controller may act on a stale list of pods. It watches pods and
/// ReplicaSets separately, and client-go waits up to 13 s between two attempts in an outage of 10 s. In a longer
/// outage, kube-controller-manager loses its lease and lists everything again.
const CATCH_UP: SignedDuration = SignedDuration::from_secs(15);

/// Time after which the ReplicaSet controller has seen the mark on a surplus, in a cluster whose watches work.
const MARK_ARRIVES: SignedDuration = SignedDuration::from_secs(2);

/// Why no pods of the set may be exchanged now: a rollout, or another pod that is not available.
pub fn unrest(view: &View, scope: &Scope, pods: &Pods) -> Option<(Reason, String)> {
    if let Some(message) = scope.rollout(view.ctx.world) {
        return Some((Reason::RolloutInProgress, message));
    }
    unavailable(view, pods)
}

/// Another pod of the set that is not available. The set would delete a pod that is not Ready before the marked pod,
/// and one that became Ready a moment ago may fail again.
pub fn unavailable(view: &View, pods: &Pods) -> Option<(Reason, String)> {
    let own = view.victim.map(|victim| &victim.id.uid);
    let (pod, from) = pods.unavailable(view.ctx.now).find(|(pod, _)| Some(&pod.id.uid) != own)?;
    Some((Reason::ReplicasNotReady, unavailable_words(&pod.id.key.name, from)))
}

/// Describes a sibling that is not available: not Ready, or Ready for less than `minReadySeconds`.
pub fn unavailable_words(pod: &str, from: Option<Timestamp>) -> String {
    match from {
        None => format!("pod {pod} of the same set is not Ready; the action continues when it is"),
        Some(from) => format!(
            "pod {pod} of the same set is Ready, and available from {from} on (minReadySeconds); the action continues \
             then"
        ),
    }
}

/// The budget that would refuse the eviction.
pub fn budget(view: &View, victim: &PodFact) -> Option<(Reason, String)> {
    let labels = view.scope?.labels();
    let mut budgets = view.ctx.world.budgets_for(view.ctx.namespace(), &labels);
    let budget = budgets.find(|budget| budget.allowed < 1 && victim.is_ready())?;
    let name = &budget.id.key.name;
    let message = unused_grant(view, budget).unwrap_or_else(|| {
        let BudgetFact { allowed, healthy, required, .. } = budget;
        format!("PodDisruptionBudget {name}: {allowed} disruptions allowed ({healthy} healthy, {required} required)")
    });
    Some((Reason::BudgetBlocked, message))
}

/// The obstacle if the budget granted an eviction that was not carried out: the budget counts that pod as disrupted
/// until the grant expires.
fn unused_grant(view: &View, budget: &BudgetFact) -> Option<String> {
    let runs = |pod: &String| view.ctx.world.pod(&view.ctx.key(pod)).is_some_and(PodFact::is_active);
    let (pod, at) = budget.granted.iter().filter(|(pod, _)| runs(pod)).max_by_key(|(_, at)| **at)?;
    let until = at.saturating_add(GRANT_LASTS).ok()?;
    let name = &budget.id.key.name;
    (view.ctx.now < until).then(|| {
        format!(
            "PodDisruptionBudget {name} allows no eviction now: the eviction of pod {pod} was granted at {at} and \
             not carried out, and counts until {until}"
        )
    })
}

/// Until this time, the ReplicaSet controller may see a lower `spec.replicas` before it sees the mark on the
/// surplus, and so delete another pod. An adoption needs no such wait, since it arrives by the same watch as the
/// mark.
pub fn catching_up(view: &View, step: Step) -> Option<Timestamp> {
    let until = view.ctx.world.broken_off()? + CATCH_UP;
    let in_time = !view.overdue(step, view.ctx.drain_time()).unwrap_or(false);
    (view.ctx.now < until && in_time).then_some(until)
}

/// Until this time, the ReplicaSet controller may not have seen the mark on the surplus, which arrives by another watch
/// than a lower `spec.replicas`. A surplus that is not Ready needs no wait: the controller sees it not Ready, or it
/// sees a later change of the pod and so the mark, and deletes it first either way.
pub fn mark_arrives(view: &View, step: Step) -> Option<Timestamp> {
    view.surplus().filter(|(surplus, _)| surplus.is_ready())?;
    let until = view.deadline(step, MARK_ARRIVES).unwrap_or(view.ctx.clock + MARK_ARRIVES);
    (view.ctx.clock < until).then_some(until)
}

/// Why the set does not have its full number of Ready pods; None if it has.
pub fn lacking(view: &View, pods: &Pods) -> Option<(Reason, String)> {
    if pods.is_short() {
        let failure = view.scope.and_then(|scope| scope.set.create_failure.clone());
        let slow = || (Reason::SetStuck, "the ReplicaSet controller has not made the new pod yet".to_owned());
        return Some(failure.map_or_else(slow, |message| (Reason::PodRefused, message)));
    }
    let pod = pods.unready()?;
    let name = &pod.id.key.name;
    Some(match (&pod.trouble, &pod.node, &pod.unschedulable) {
        (Some(trouble), _, _) => (trouble.reason, trouble.message.clone()),
        (None, Some(node), _) => (Reason::ReplacementNotReady, format!("pod {name} on node {node} is not Ready yet")),
        (None, None, Some(why)) => (Reason::Unschedulable, format!("pod {name}: {why}")),
        (None, None, None) => (Reason::Unschedulable, format!("pod {name} waits for the scheduler")),
    })
}
