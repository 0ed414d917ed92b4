//! The planner of WorkloadActions: returns the next step of an action for the observed world.
//!
//! [`next`] is pure and total. The controller calls it again after every effect and every change. The planner has no
//! state of its own, so a crash between any two effects changes nothing. State that must survive a crash is stored in
//! the action's status (the intent, before the first effect of its kind), on the pods (marks) and on the workload
//! (ledger).

pub mod drain;
pub mod effect;
pub mod explain;
pub mod figures;
pub mod hindrance;
pub mod identity;
pub mod janitor;

mod admission;
mod apart;
mod application;
mod candidates;
mod choose;
mod context;
mod deletion;
mod ending;
mod eviction;
mod exchange;
mod fitting;
mod holder;
mod neighbors;
pub mod nodes;
pub mod notify;
mod obstacles;
mod origin;
mod place;
mod plan_text;
mod preemption;
mod preferences;
pub mod preview;
mod protocol;
pub mod rank;
mod refusal;
mod replacement;
mod report;
mod rollback;
mod scope;
mod set;
mod slot;
mod spread;
pub mod stateful;
mod successor;
mod swap;
#[cfg(test)]
mod tests;
mod victims;
mod volumes;
pub mod world;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use application::Application;
use choose::Choice;
use context::{PlanContext, Verb, Work};
use effect::{Effect, NewReceipt, NextStep};
use ending::{after, conclude, finish, give_up};
use ganglion_api::marks;
use ganglion_api::reasons::Reason;
use ganglion_api::receipt::WorkloadActionReceiptSpec;
use ganglion_api::workload_action::status::{LIST_LIMIT, Plan, Slot, Step};
use ganglion_api::workload_action::{Mode, WorkloadAction, WorkloadActionStatus};
use ganglion_core::conditions::Health;
use ganglion_core::facts::{Key, ReceiptFact, Uid};
use ganglion_core::namespaces::Namespaces;
use ganglion_core::world::World;
pub use holder::{NeededOwner, needed_owner};
pub use origin::gitops_manager;
use rank::NodeRanker;
pub use refusal::refused;
use scope::{Outlook, StartRefusal};
use slot::SlotNext;
use world::ActionsWorld;

/// Time after an action is first noticed in which it may name an object that is not known yet. Both may have been
/// created together, and watches of different kinds are not ordered.
const GRACE: SignedDuration = SignedDuration::from_secs(3);

/// Requeue interval of an action that waits for admission, unless its line is long; see [`admission::pace`].
const QUEUE_PACE: SignedDuration = SignedDuration::from_secs(1);

/// Limits from the settings: the maximum numbers of replicas in motion (None: no limit), and the allowed namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub in_all: Option<usize>,
    pub per_namespace: Option<usize>,
    pub per_workload: Option<usize>,
    pub per_source_node: Option<usize>,
    pub per_target_node: Option<usize>,
    /// After this time in one step, a replica counts only for the limits of its namespace and workload.
    pub idle_after: Option<SignedDuration>,
    pub namespaces: Namespaces,
}

impl Limits {
    fn is_unlimited(&self) -> bool {
        let Self {
            in_all,
            per_namespace,
            per_workload,
            per_source_node,
            per_target_node,
            idle_after: _,
            namespaces: _,
        } = self;
        [in_all, per_namespace, per_workload, per_source_node, per_target_node].iter().all(|limit| limit.is_none())
    }
}

const NOTHING: NextStep = NextStep::Wait { until: None, report: None };

/// Returns the next step of this action.
pub fn next(key: &Key, world: &World, now: Timestamp, limits: &Limits, ranker: &dyn NodeRanker) -> NextStep {
    let Some(action) = world.action(key) else { return NOTHING };
    let fresh = WorkloadActionStatus::default();
    let status = action.status.as_ref().unwrap_or(&fresh);
    let work = Work::with_found(&action.spec, status.replicas);
    let clock = status.suspended_at.as_ref().map_or(now, |time| time.0);
    let shown = work.clone().unwrap_or(Work::NONE);
    let ctx = PlanContext { world, now, clock, limits, action, status, work: shown, ranker };
    if status.finished_at.is_some() {
        return after(&ctx);
    }
    if ctx.deleting() && status.slots.is_empty() && status.application.is_none() {
        return give_up(&ctx);
    }
    if let Err(stop) = work {
        return finish(&ctx, status.clone(), Health::Stalled(stop.reason, stop.message));
    }
    if let Some(next) = suspension(&ctx) {
        return next;
    }
    if let Some(application) = Application::of(world, action) {
        return application::next(&ctx, application);
    }
    if status.slots.is_empty()
        && let Some(next) = before(&ctx)
    {
        return next;
    }
    at_work(&ctx)
}

/// Records when `spec.suspend` stops the clocks. When they run again, shifts the recorded times by the pause.
fn suspension(ctx: &PlanContext) -> Option<NextStep> {
    let mut status = ctx.status.clone();
    let suspended = |status| {
        let message = "stops at the next safe point; set spec.suspend to false to resume".into();
        report::status(ctx, status, &Health::Suspended(Reason::Suspended, message))
    };
    match (ctx.suspended(), &ctx.status.suspended_at) {
        (true, None) => {
            status.suspended_at = Some(Time(ctx.now));
            Some(record(ctx, suspended(status)))
        }
        (false, Some(since)) => {
            let pause = ctx.now.duration_since(since.0);
            for time in status.slots.iter_mut().map(|slot| &mut slot.since).chain(status.queued_at.as_mut()) {
                time.0 += pause;
            }
            status.suspended_at = None;
            let health = report::working(ctx, &status.slots);
            Some(record(ctx, report::status(ctx, status, &health)))
        }
        (true, Some(_)) if ctx.working().next().is_none() && ctx.work.application.is_none() => {
            // The conditions may still say that policies were missing, or that the object could not be read.
            Some(wait(ctx, suspended(status), None))
        }
        _ => None,
    }
}

/// Ends an action that was not admitted and may not be admitted any more.
fn before(ctx: &PlanContext) -> Option<NextStep> {
    let fail = |reason, message: String| Some(finish(ctx, ctx.status.clone(), Health::Stalled(reason, message)));
    if let Some(message) = ctx.limits.namespaces.refusal(ctx.namespace()) {
        return fail(Reason::NamespaceRefused, message);
    }
    if ctx.aborted() {
        return fail(Reason::Aborted, format!("{} before anything was done", ctx.why_aborted()));
    }
    if ctx.action.spec.mode == Mode::Execute
        && let Some(next) = already_executed(ctx)
    {
        return Some(next);
    }
    if ctx.action.spec.not_after.as_ref().is_some_and(|limit| ctx.now > limit.0) {
        return fail(
            Reason::Expired,
            "notAfter passed before the action was admitted; create a new action if it is still wanted".into(),
        );
    }
    None
}

/// Ends an action whose receipt proves that it already ran, as another object of this name.
fn already_executed(ctx: &PlanContext) -> Option<NextStep> {
    let name = identity::receipt_name(ctx.action);
    let receipt = ctx.world.get::<ReceiptFact>(&ctx.key(&name)).filter(|receipt| receipt.action_uid != ctx.id().uid)?;
    let mut status = ctx.status.clone();
    status.slots.clear();
    status.receipt = Some(name.clone());
    let when = receipt.executed_at.strftime("%-d %b %Y %H:%M UTC");
    let before =
        format!("nothing was done now: it ran on {when} as another object of this name (uid {})", receipt.action_uid);
    let again = format!("to run it again, delete WorkloadActionReceipt {name} and apply the action again");
    let health = match &receipt.outcome {
        None => Health::Good(Reason::AlreadyExecuted, format!("{before}; {again}")),
        Some(outcome) => Health::Stalled(Reason::AlreadyExecuted, format!("{before} and ended as {outcome}; {again}")),
    };
    Some(finish(ctx, status, health))
}

/// Returns the next effects, record or wait of the running slots. If there are none, starts the slots that have not
/// started.
fn at_work(ctx: &PlanContext) -> NextStep {
    let mut planned: Vec<(&Slot, SlotNext)> = ctx.working().map(|slot| (slot, protocol::next(ctx, slot))).collect();
    // Only one slot changes its target node at a time. The others choose theirs after that choice is recorded.
    let mut gone = false;
    planned.retain(|(old, next_of_slot)| match next_of_slot {
        SlotNext::Record(new) if goes_elsewhere(old, new) => !std::mem::replace(&mut gone, true),
        SlotNext::Record(_) | SlotNext::Do(_) | SlotNext::Wait(_) => true,
    });
    let shown = shown_slots(ctx, &planned);
    if planned.iter().any(|(_, next_of_slot)| matches!(next_of_slot, SlotNext::Record(_))) {
        return record_slots(ctx, shown);
    }
    let (mut until, mut effects) = (None, Vec::new());
    for (slot, next_of_slot) in planned {
        match next_of_slot {
            SlotNext::Do(effect) => effects.push((slot, effect)),
            SlotNext::Wait(hold) => until = earlier(until, hold.until),
            SlotNext::Record(_) => {}
        }
    }
    if !effects.is_empty() {
        return first_receipt(ctx).unwrap_or_else(|| together(effects));
    }
    match unfilled(ctx) {
        Some(open) if !ctx.suspended() => begin(ctx, &open, shown, until),
        None if ctx.working().next().is_none() => conclude(ctx),
        _ => wait(ctx, with_slots(ctx, shown), until),
    }
}

/// Returns the first effect together with the effects of slots on other ReplicaSets. On one ReplicaSet, an effect
/// changes the facts that the next effect depends on.
fn together(effects: Vec<(&Slot, Effect)>) -> NextStep {
    let mut sets: Vec<&Uid> = Vec::new();
    let mut all: Vec<Effect> = Vec::new();
    for (slot, effect) in effects {
        if !sets.contains(&&slot.replica_set.uid) {
            sets.push(&slot.replica_set.uid);
            all.push(effect);
        }
    }
    if all.len() > 1 { NextStep::DoAll(all) } else { all.pop().map_or(NOTHING, NextStep::Do) }
}

/// Records the slots. If all have succeeded, the same write ends the action.
fn record_slots(ctx: &PlanContext, slots: Vec<Slot>) -> NextStep {
    let all = i32::try_from(slots.len()) == Ok(ctx.work.count);
    if all && slots.iter().all(|slot| slot.step == Step::Succeeded) {
        let health = report::ended(ctx, &slots);
        return finish(ctx, WorkloadActionStatus { slots, ..ctx.status.clone() }, health);
    }
    let moves_on = slots.iter().zip(&ctx.status.slots).any(|(new, old)| goes_elsewhere(old, new));
    let status = with_slots(ctx, slots);
    if moves_on {
        return NextStep::Do(Effect::Admit { action: ctx.id(), status: Box::new(status), receipt: None });
    }
    record(ctx, status)
}

/// Whether the new pod has another target node than before.
fn goes_elsewhere(old: &Slot, new: &Slot) -> bool {
    let node = |slot: &Slot| slot.replacement.as_ref().map(|replacement| replacement.node.clone());
    !new.step.is_end() && node(old) != node(new)
}

fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    a.into_iter().chain(b).min()
}

/// The slots as the status shows them, given the next step of each.
fn shown_slots(ctx: &PlanContext, planned: &[(&Slot, SlotNext)]) -> Vec<Slot> {
    let mut slots = ctx.status.slots.clone();
    for (old, next_of_slot) in planned {
        let Some(slot) = slots.iter_mut().find(|slot| slot.id == old.id) else { continue };
        match next_of_slot {
            SlotNext::Record(new) => *slot = new.clone(),
            SlotNext::Do(_) => {}
            SlotNext::Wait(hold) => {
                let view = slot::View::new(ctx, old);
                *slot = view.noted();
                slot.scaled = view.scaled();
                if slot.step == Step::RollingBack {
                    rollback::show_obstacle(slot, hold);
                    continue;
                }
                if slot.step != hold.step {
                    (slot.step, slot.since) = (hold.step, Time(ctx.now));
                }
                (slot.reason, slot.message) = (hold.reason, hold.message.clone());
            }
        }
        if slot.step != Step::RollingBack {
            slot.obstacle = None;
        }
    }
    slots
}

fn with_slots(ctx: &PlanContext, slots: Vec<Slot>) -> WorkloadActionStatus {
    let health = report::working(ctx, &slots);
    report::status(ctx, WorkloadActionStatus { slots, ..ctx.status.clone() }, &health)
}

/// Index and attempt of each slot that has not started. None if all have started, if the action is aborted or stopped,
/// or if a slot has failed (unless its moveApplication continues on failures).
fn unfilled(ctx: &PlanContext) -> Option<Vec<(i32, i32)>> {
    let slots = &ctx.status.slots;
    let (goes_on, stops) = ctx.application().map_or((false, false), |owner| (owner.goes_on(), owner.stops(ctx.action)));
    let has_failed = slots.iter().any(|slot| slot.step.is_end() && slot.step != Step::Succeeded);
    if ctx.aborted() || stops || (has_failed && !goes_on) {
        return None;
    }
    let again = slots.iter().filter(|slot| slot.step == Step::Queued).map(|slot| (slot.index, slot.attempt));
    let new = (0..ctx.work.count).filter(|index| slots.iter().all(|slot| slot.index != *index)).map(|index| (index, 0));
    let mut open: Vec<(i32, i32)> = again.chain(new).collect();
    open.sort_unstable();
    (!open.is_empty()).then_some(open)
}

/// Starts slots if they are admitted. `shown` are the running slots, `until` is their earliest deadline.
fn begin(ctx: &PlanContext, open: &[(i32, i32)], shown: Vec<Slot>, until: Option<Timestamp>) -> NextStep {
    match choose::choose(ctx, open) {
        Choice::Begin { slots, plan, .. } if ctx.action.spec.mode == Mode::Plan => planned(ctx, slots, plan),
        Choice::Begin { slots, plan, found } => admit(ctx, slots, plan, found),
        // Running slots have their own deadlines; the others wait for them.
        Choice::Nothing { .. } | Choice::Wait { .. } | Choice::Refuse(..) if ctx.working().next().is_some() => {
            wait(ctx, with_slots(ctx, shown), earlier(until, Some(ctx.now + QUEUE_PACE)))
        }
        Choice::Nothing { plan } => ending::nothing_left(ctx, plan),
        Choice::Wait { reason, message } => queue(ctx, reason, message),
        Choice::Refuse(stop, plan) => refuse(ctx, stop, plan),
    }
}

/// Ends an action with `mode: Plan`.
fn planned(ctx: &PlanContext, slots: Vec<Slot>, plan: Plan) -> NextStep {
    let words: Vec<String> = slots.iter().map(|slot| report::slot_words(ctx.work.verb, slot)).collect();
    let message = format!("would do: {}", words.join("; "));
    let replicas = slots.iter().take(LIST_LIMIT).map(report::planned_replica).collect();
    let mut status = report::status(
        ctx,
        WorkloadActionStatus { slots, finished_at: Some(Time(ctx.now)), ..ctx.status.clone() },
        &Health::Good(Reason::Planned, message),
    );
    status.slots.clear();
    status.plan = Some(Plan { replicas, ..plan });
    record(ctx, status)
}

fn admit(ctx: &PlanContext, slots: Vec<Slot>, plan: Plan, found: Option<i32>) -> NextStep {
    let finalizers = ctx.action.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|name| name == marks::FINALIZER) {
        let finalizers = finalizers.into_iter().chain([marks::FINALIZER.to_owned()]).collect();
        return NextStep::Do(Effect::AddFinalizer { action: ctx.id(), finalizers });
    }
    let mut status = ctx.status.clone();
    for slot in slots {
        status.slots.retain(|old| old.index != slot.index);
        status.slots.push(slot);
    }
    status.slots.sort_by_key(|slot| slot.index);
    status.plan = Some(plan);
    status.replicas = found;
    status.queued_at = None;
    status.started_at = status.started_at.or(Some(Time(ctx.now)));
    status.receipt = (!ctx.is_part()).then(|| identity::receipt_name(ctx.action));
    let health = report::working(ctx, &status.slots);
    let status = Box::new(report::status(&ctx.counting(found), status, &health));
    NextStep::Do(Effect::Admit { action: ctx.id(), status, receipt: missing_receipt(ctx) })
}

/// Waits for admission, at most `queueSeconds`.
fn queue(ctx: &PlanContext, reason: Reason, message: String) -> NextStep {
    let since = ctx.status.queued_at.as_ref().map_or(ctx.now, |time| time.0);
    let deadline = since + ctx.queue_time();
    if ctx.clock >= deadline {
        let stop = StartRefusal::now(
            Reason::QueueTimedOut,
            format!("the action was not admitted within queueSeconds: {message}"),
        );
        return refuse(ctx, stop, ctx.status.plan.clone().unwrap_or_default());
    }
    let status = WorkloadActionStatus { queued_at: Some(Time(since)), ..ctx.status.clone() };
    let health = Health::Working { reason: Reason::Queued, cause: reason, message: format!("waiting: {message}") };
    wait(ctx, report::status(ctx, status, &health), Some(deadline.min(ctx.now + admission::pace(ctx))))
}

/// Ends an action that cannot start and has no running slot. If a late watch may be the cause, the action first waits
/// for [`GRACE`]. If the cause may pass, the action waits in the queue.
fn refuse(ctx: &PlanContext, stop: StartRefusal, plan: Plan) -> NextStep {
    let until = ctx.known_since() + GRACE;
    match stop.outlook {
        Outlook::Load if ctx.action.spec.mode == Mode::Execute && admission::others_move(ctx) => {
            let message = format!("{}; replicas of other actions are on their way", stop.message);
            return queue(ctx, stop.reason, message);
        }
        // As for a pod without a node: another one may join or get room.
        _ if ctx.action.spec.mode == Mode::Execute
            && matches!(stop.reason, Reason::NoCandidateNode | Reason::NodeFull)
            && is_open_to_nodes(ctx) =>
        {
            let message = format!("{}; the action goes on when a node can take it", stop.message);
            return queue(ctx, stop.reason, message);
        }
        Outlook::Late | Outlook::Load if ctx.now < until && until <= ctx.now + GRACE => {
            return NextStep::Wait { until: Some(until), report: None };
        }
        Outlook::Passing => return queue(ctx, stop.reason, stop.message),
        Outlook::Late | Outlook::Load | Outlook::Final => {}
    }
    // A slot was started on the workload, so the workload existed and was deleted since.
    let begun = !ctx.status.slots.is_empty() && stop.reason == Reason::WorkloadNotFound;
    let mut stop = if begun { StartRefusal { reason: Reason::WorkloadGone, ..stop } } else { stop };
    if stop.reason == Reason::NoCandidateNode && !plan.nodes.is_empty() {
        stop.message.push_str("; see `status.plan.nodes` for each");
    }
    let mut status = WorkloadActionStatus { plan: Some(plan), ..ctx.status.clone() };
    for slot in status.slots.iter_mut().filter(|slot| slot.step == Step::Queued) {
        (slot.step, slot.reason, slot.message) = (Step::RolledBack, Some(stop.reason), Some(stop.message.clone()));
    }
    if status.slots.iter().any(|slot| slot.step != Step::Succeeded) {
        let health = report::ended(ctx, &status.slots);
        return finish(ctx, status, health);
    }
    let done = status.slots.len();
    let share = if done > 0 { format!("{done} of {} replicas done; ", ctx.work.count) } else { String::new() };
    finish(ctx, status, Health::Stalled(stop.reason, format!("{share}{}", stop.message)))
}

/// Whether a node that joins, or gets room, may take the replicas: they move, and no target is named.
fn is_open_to_nodes(ctx: &PlanContext) -> bool {
    ctx.work.verb == Verb::Move && ctx.work.swap.is_none() && ctx.work.to.is_none()
}

/// Writes the receipt before the first effect.
fn first_receipt(ctx: &PlanContext) -> Option<NextStep> {
    if let Some(receipt) = missing_receipt(ctx) {
        return Some(NextStep::Do(Effect::WriteReceipt(receipt)));
    }
    // If somebody replaces the receipt while slots are running, the slots are completed.
    let is_begun = ctx.working().any(|slot| slot.step != Step::Planned || slot.attempt != 0);
    if is_begun { None } else { already_executed(ctx) }
}

/// The action's receipt, if no receipt of its name exists. A move of a moveApplication has none: the receipt of the
/// application proves that it ran, and without the application the move does nothing.
fn missing_receipt(ctx: &PlanContext) -> Option<NewReceipt> {
    // The garbage collector may delete a receipt together with its action while the action is still undone. Where
    // receipts are not served, the CRDs were deleted: nobody can apply the action again.
    let is_pointless = identity::owns_receipt(ctx.action) || ctx.world.table::<ReceiptFact>().is_unavailable();
    if ctx.is_part() || (ctx.deleting() && is_pointless) {
        return None;
    }
    let key = ctx.key(&identity::receipt_name(ctx.action));
    if ctx.world.get::<ReceiptFact>(&key).is_some() {
        return None;
    }
    let id = ctx.id();
    let spec = WorkloadActionReceiptSpec {
        action_name: id.key.name.clone(),
        spec_hash: identity::spec_hash(ctx.action),
        action_uid: id.uid,
        executed_at: Time(ctx.now),
        outcome: None,
    };
    Some(NewReceipt { key, spec, is_owned: identity::owns_receipt(ctx.action) })
}

fn record(ctx: &PlanContext, status: WorkloadActionStatus) -> NextStep {
    NextStep::Do(Effect::Record { action: ctx.id(), status: Box::new(status) })
}

/// Waits. If the recorded status differs, also reports the new status.
fn wait(ctx: &PlanContext, status: WorkloadActionStatus, until: Option<Timestamp>) -> NextStep {
    let report = (status != *ctx.status).then(|| Box::new(status));
    // A deadline that has passed is evaluated at the next change. An immediate requeue would only spin.
    NextStep::Wait { until: until.filter(|time| *time > ctx.now), report }
}

/// Name of the spec's action for the column Action, logs and metrics.
pub fn verb(action: &WorkloadAction) -> &'static str {
    let spec = &action.spec;
    let members = [
        ("Create", spec.create.is_some()),
        ("Delete", spec.delete.is_some()),
        ("Move", spec.move_.is_some()),
        ("Swap", spec.swap.is_some()),
        ("MoveApplication", spec.move_application.is_some()),
    ];
    members.into_iter().find(|(_, is)| *is).map_or("None", |(name, _)| name)
}
