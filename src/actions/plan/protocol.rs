//! The table of the planner: for each protocol and step of a slot, the function that plans the next effect.
//!
//! | protocol | the new pod | steps |
//! |---|---|---|
//! | move | made by us beside the old pod, then exchanged for it | Planned, Creating, Scheduling, Readying, Detached, Marked, Adopted, Evicting, Verifying |
//! | create | made by us, then adopted as one more replica | Creating, Scheduling, Readying, Scaled, Marked, Verifying |
//! | delete | none; the old pod is exchanged for a surplus pod that its set deletes | Planned, Detached, Marked, Scaled, Evicting, Verifying |
//! | successor | made by the ReplicaSet while the detached old pod serves | Planned, Detached, Evicting, Verifying |
//! | eviction | made by the ReplicaSet after the old pod has left | Planned, Evicting, Verifying |
//!
//! Replicas of StatefulSets have their own table, in [`super::stateful`].

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{PodOnNode, Protocol, Slot, Step};

use super::QUEUE_PACE;
use super::apart;
use super::context::{PlanContext, Verb};
use super::deletion;
use super::eviction;
use super::exchange;
use super::replacement;
use super::rollback;
use super::scope::reduced_words;
use super::slot::{SlotNext, View};
use super::stateful;
use super::successor;
use super::swap;

/// How a slot changes its replica, with what the steps need.
#[derive(Clone, Copy, Debug)]
pub enum SlotProtocol<'a> {
    /// `break_first`: the old pod leaves before the new one is Ready.
    Move {
        planned: &'a PodOnNode,
        break_first: bool,
    },
    Create {
        planned: &'a PodOnNode,
    },
    Delete,
    /// `available`: number of available pods when the old pod was detached.
    Successor {
        available: i32,
    },
    Eviction,
}

impl<'a> SlotProtocol<'a> {
    /// The protocol of a slot of a ReplicaSet. None if the slot does not have the pods that its protocol needs.
    pub fn of(slot: &'a Slot, verb: Verb) -> Option<Self> {
        let Slot { victim, replacement, break_first, available, .. } = slot;
        match (verb, slot.protocol, victim, replacement) {
            (Verb::Move, Protocol::Successor, Some(_), _) => Some(Self::Successor { available: *available }),
            (Verb::Move, Protocol::Eviction, Some(_), _) => Some(Self::Eviction),
            (Verb::Move, Protocol::Replacement, Some(_), Some(planned)) => {
                Some(Self::Move { planned, break_first: *break_first })
            }
            (Verb::Create, Protocol::Replacement, None, Some(planned)) => Some(Self::Create { planned }),
            (Verb::Delete, Protocol::Replacement, Some(_), None) => Some(Self::Delete),
            _ => None,
        }
    }
}

/// The next step of this slot.
pub fn next(ctx: &PlanContext, slot: &Slot) -> SlotNext {
    let view = View::new(ctx, slot);
    if let Some(object) = view.reduced_object() {
        // Without the ledger and the peers, a change of the replicas could be made a second time.
        let message = reduced_words(&object);
        return view.hold(slot.step, Some(Reason::NotSupported), Some(message), Some(ctx.now + QUEUE_PACE));
    }
    if slot.is_stateful() {
        return stateful::next(&view);
    }
    if let Some(stop) = view.owner_problem() {
        return view.hold(slot.step, Some(stop.reason), Some(stop.message), Some(ctx.now + QUEUE_PACE));
    }
    if let Some(pod) = view.leftover() {
        return SlotNext::Do(view.removal_of_own(pod));
    }
    if let Some(next) = view.ended_pod() {
        return next;
    }
    if slot.step == Step::RollingBack {
        return swap::on_again(&view).unwrap_or_else(|| rollback::next(&view));
    }
    if let Some(next) = turned_back(&view) {
        return next;
    }
    let Some(protocol) = SlotProtocol::of(slot, ctx.work.verb) else {
        let message = "the slot was changed in status.slots; delete the action and apply it again";
        return view.end(Step::Failed, Reason::NotSupported, message);
    };
    row(&view, protocol, step(&view, protocol))
}

/// The rollback of a slot that cannot or must not be completed, as long as it can go back.
fn turned_back(view: &View) -> Option<SlotNext> {
    if !view.can_go_back() {
        return None;
    }
    if view.ctx.aborted() && !swap::is_committed(view.ctx) {
        return Some(view.roll_back(Reason::Aborted, view.ctx.why_aborted()));
    }
    match &view.scope {
        None => Some(view.roll_back(Reason::WorkloadGone, "the workload was deleted")),
        Some(scope) if scope.superseded(view.ctx.world) => {
            Some(view.roll_back(Reason::RolloutStarted, "a rollout of the workload began"))
        }
        Some(_) => swap::back_with_others(view),
    }
}

/// The table. Steps that a protocol does not have wait for the next change.
fn row(view: &View, protocol: SlotProtocol, step: Step) -> SlotNext {
    use SlotProtocol::{Create, Delete, Eviction, Move, Successor};
    if !matches!(protocol, Successor { .. }) && exchange::victim_lost(view) {
        return view.roll_back(Reason::VictimGone, &deletion::words("the old pod", view.victim));
    }
    match (step, protocol) {
        (Step::Planned, Successor { available }) => successor::detach(view, available),
        (Step::Planned, Eviction) => apart::go_first(view),
        (Step::Planned, _) => exchange::detach(view, step),

        (Step::Creating, Move { planned, .. } | Create { planned }) => replacement::create(view, planned),
        (Step::Scheduling, Move { .. } | Create { .. }) => replacement::await_node(view),
        (Step::Readying, Move { .. } | Create { .. }) => replacement::await_ready(view),

        (Step::Detached, Successor { available }) => successor::await_availability(view, available),
        (Step::Detached, _) | (Step::Scaled, Create { .. }) => exchange::claim(view, step),
        (Step::Marked, Delete) => exchange::scale(view, step, -1),
        (Step::Marked, Move { break_first: true, .. }) => exchange::make_room(view),
        (Step::Marked, _) => exchange::take_in(view, step),
        (Step::Adopted, _) => exchange::adopted(view),
        (Step::Scaled, _) => eviction::commit(view),

        (Step::Evicting, _) => eviction::evict(view),

        (Step::Verifying, Successor { .. }) => successor::verify(view),
        (Step::Verifying, Eviction) => apart::verify(view),
        (Step::Verifying, _) => eviction::verify(view),

        _ => view.hold(step, None, None, None),
    }
}

/// The step, derived from the world. The recorded step is not read, so a crash needs no recovery; of a Successor it
/// shows that the old pod was detached.
pub fn step(view: &View, protocol: SlotProtocol) -> Step {
    match protocol {
        SlotProtocol::Move { break_first, .. } => step_of_move(view, break_first),
        SlotProtocol::Create { .. } => step_of_create(view),
        SlotProtocol::Delete => step_of_delete(view),
        SlotProtocol::Successor { .. } => successor::step(view),
        SlotProtocol::Eviction if view.slot.evicting => sent(view),
        SlotProtocol::Eviction => Step::Planned,
    }
}

fn step_of_move(view: &View, break_first: bool) -> Step {
    // Except in break before make, when the old pod is gone and the new one is not adopted yet.
    let is_under_way = view.slot.evicting && (view.victim.is_some() || view.taken_in() || !break_first);
    // Others deleted the old pod after the set had adopted the new one.
    let is_over = view.taken_in() && !view.victim_runs();
    match (view.is_out(), view.taken_in()) {
        _ if is_under_way || is_over => sent(view),
        (true, true) => Step::Adopted,
        (true, false) if is_claimed(view) => Step::Marked,
        (true, false) => Step::Detached,
        (false, _) => step_of_new_pod(view),
    }
}

fn step_of_create(view: &View) -> Step {
    match (view.taken_in(), view.scaled()) {
        (true, _) => Step::Verifying,
        (false, true) if is_claimed(view) => Step::Marked,
        (false, true) => Step::Scaled,
        (false, false) => step_of_new_pod(view),
    }
}

fn step_of_delete(view: &View) -> Step {
    match (view.slot.evicting, view.scaled(), view.is_out()) {
        (true, _, _) => sent(view),
        (false, true, _) => Step::Scaled,
        (false, false, true) if is_claimed(view) => Step::Marked,
        (false, false, true) => Step::Detached,
        (false, false, false) => Step::Planned,
    }
}

fn step_of_new_pod(view: &View) -> Step {
    match view.replacement {
        Some(pod) if pod.is_active() && pod.node.is_some() => Step::Readying,
        Some(pod) if pod.is_active() => Step::Scheduling,
        Some(_) | None => Step::Creating,
    }
}

/// The step after the eviction was recorded.
fn sent(view: &View) -> Step {
    if view.victim.is_some() { Step::Evicting } else { Step::Verifying }
}

/// Whether the slot has marked its surplus.
fn is_claimed(view: &View) -> bool {
    view.surplus().is_some()
}
