//! The status for users: conditions, summary and messages, derived from the slots.

use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::WorkloadActionStatus;
use ganglion_api::workload_action::status::{PlannedReplica, PodOnNode, Slot, Step, Summary};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use ganglion_core::conditions::{self, Health, Stamp};
use ganglion_core::duration;

use super::application;
use super::context::{PlanContext, Verb};
use super::notify;
use super::place::{labels_words, source_words, target_words};
use super::swap::sides_words;
use super::verb;

/// Health of an action.
pub type ActionHealth = Health<Reason>;

/// The status with these conditions and the summary of its slots.
pub fn status(ctx: &PlanContext, mut status: WorkloadActionStatus, health: &ActionHealth) -> WorkloadActionStatus {
    status.observed_generation = Some(ctx.generation());
    status.summary = Some(summary(ctx, &status));
    let (old, stamp) = (&ctx.status.conditions, Stamp { generation: ctx.generation(), now: ctx.now });
    status.conditions = conditions::summary(old, health, stamp);
    if status.finished_at.is_some() {
        let finished = finished(ctx, &status.conditions);
        status.conditions.extend(finished);
    }
    if status.finished_at.is_some() && status.notifications.is_empty() {
        status.notifications = notify::begun(ctx.action.spec.notify.as_deref());
    }
    if let Some(unkept) = ttl_not_honored(ctx) {
        status.conditions.push(conditions::condition(
            old,
            "TTLHonored",
            "False",
            Reason::NotSupported.as_str(),
            &unkept,
            stamp,
        ));
    }
    status.conditions.extend(notify::condition(old, &status.notifications, stamp));
    status
}

/// The condition that is True once the action has ended, so that one wait is enough. Its reason and message are those
/// of Ready, which says whether the action succeeded.
fn finished(ctx: &PlanContext, summary: &[Condition]) -> Option<Condition> {
    let ready = summary.iter().find(|condition| condition.type_ == "Ready")?;
    let (old, stamp) = (&ctx.status.conditions, Stamp { generation: ctx.generation(), now: ctx.now });
    Some(conditions::condition(old, conditions::FINISHED, "True", &ready.reason, &ready.message, stamp))
}

/// Why `ttlSecondsAfterFinished` is ignored: the object's manager would create the object again. None if it is not
/// ignored.
fn ttl_not_honored(ctx: &PlanContext) -> Option<String> {
    ctx.action.spec.ttl_seconds_after_finished?;
    let manager = super::origin::gitops_manager(&ctx.action.metadata)?;
    Some(format!("{manager} manages this object and would create it again; remove it from its repository instead"))
}

/// The summary of the action.
pub fn summary(ctx: &PlanContext, status: &WorkloadActionStatus) -> Summary {
    let (work, slots, finished_at) = (ctx.work, &status.slots[..], status.finished_at.as_ref());
    let named = match (work.workload, work.pod) {
        _ if work.application.is_some() => work.application.map(|asked| labels_words(&asked.selector)),
        _ if work.swap.is_some() => work.swap.map(sides_words),
        (_, Some(pod)) => Some(format!("Pod/{}", pod.name)),
        (Some(workload), None) => Some(format!("{}/{}", workload.kind, workload.name)),
        (None, None) => None,
    };
    let nodes = |pod: fn(&Slot) -> Option<&PodOnNode>, asked: Option<String>| {
        // A swap has two directions. It is shown as the move of its first replica.
        let shown = if work.swap.is_some() { slots.get(..1).unwrap_or_default() } else { slots };
        let mut names: Vec<&str> = shown.iter().filter_map(pod).map(|pod| pod.node.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        match names.as_slice() {
            [] => asked,
            [one] => Some((*one).to_owned()),
            many => Some(format!("{} nodes", many.len())),
        }
    };
    let done = slots.iter().filter(|slot| slot.step == Step::Succeeded).count();
    let is_unknown = work.all || work.application.is_some();
    let wanted =
        if is_unknown && slots.is_empty() && finished_at.is_none() { "All".to_owned() } else { work.count.to_string() };
    Summary {
        action: verb(ctx.action).to_owned(),
        workload: named,
        from: nodes(|slot| slot.victim.as_ref(), work.from.map(source_words)),
        to: nodes(|slot| slot.replacement.as_ref(), work.to.map(target_words)),
        done: status.application.as_ref().map_or_else(|| format!("{done}/{wanted}"), application::share),
        took: took(ctx.status.started_at.as_ref(), finished_at),
    }
}

fn took(started: Option<&Time>, finished: Option<&Time>) -> Option<String> {
    started.zip(finished).map(|(started, finished)| duration::show(finished.0.duration_since(started.0)))
}

/// A slot as text: what it does, its step and its message.
pub fn slot_words(verb: Verb, slot: &Slot) -> String {
    if slot.step == Step::Succeeded {
        return work_words(verb, slot, true);
    }
    let how = step_words(slot.step);
    let what = work_words(verb, slot, false);
    match &slot.message {
        Some(message) => format!("{what}: {how}: {message}"),
        None => format!("{what}: {how}"),
    }
}

/// A step as text: what the slot does, or how it ended.
pub fn step_words(step: Step) -> &'static str {
    match step {
        Step::Queued => "waiting for a retry",
        Step::Planned => "chosen",
        Step::Creating => "creating the new pod",
        Step::Scheduling => "waiting for the scheduler",
        Step::Readying => "waiting until the new pod is Ready",
        Step::Detached => "the old pod is detached from its ReplicaSet and still serves",
        Step::Marked => "the ReplicaSet's substitute is marked for deletion",
        Step::Scaled => "the workload's replicas are changed",
        Step::Adopted => "the new pod belongs to the ReplicaSet",
        Step::Evicting => "the old pod is being evicted",
        Step::Verifying => "verifying",
        Step::RollingBack => "rolling back",
        Step::Succeeded => "done",
        Step::RolledBack => "undone",
        Step::Failed => "failed",
        Step::Aborted => "aborted",
        Step::Expired => "expired",
    }
}

/// The planned work of a slot that has not started.
pub fn planned_replica(slot: &Slot) -> PlannedReplica {
    PlannedReplica {
        pod: slot.victim.as_ref().map(|pod| pod.name.clone()),
        from: slot.victim.as_ref().map(|pod| pod.node.clone()),
        to: slot.replacement.as_ref().map(|pod| pod.node.clone()),
    }
}

/// The work of a slot as text; if `done`, in the past tense.
fn work_words(verb: Verb, slot: &Slot, done: bool) -> String {
    let place = |pod: &Option<PodOnNode>| pod.as_ref().map_or("?", |pod| pod.node.as_str()).to_owned();
    let name = |pod: &Option<PodOnNode>| pod.as_ref().map_or("?", |pod| pod.name.as_str()).to_owned();
    let (victim, from, to) = (name(&slot.victim), place(&slot.victim), place(&slot.replacement));
    let is_open = slot.replacement.is_none() || (!done && slot.scheduled && slot.step < Step::Readying);
    match verb {
        Verb::Move if is_open => format!("move{} {victim} off {from}", if done { "d" } else { "" }),
        Verb::Create if is_open => "create a replica on a node that the scheduler chooses".to_owned(),
        Verb::Move => format!("move{} {victim} from {from} to {to}", if done { "d" } else { "" }),
        Verb::Create => format!("create{} a replica on {to}", if done { "d" } else { "" }),
        Verb::Delete => format!("delete{} {victim} on {from}", if done { "d" } else { "" }),
    }
}

/// The state of an action with these slots: that of the open slot that is furthest behind.
pub fn working(ctx: &PlanContext, slots: &[Slot]) -> ActionHealth {
    let open = slots.iter().filter(|slot| !slot.step.is_end());
    let Some(slot) = open.min_by_key(|slot| (slot.reason.is_none(), slot.step)) else {
        return Health::working(Reason::Verifying, "every slot that was started has ended".into());
    };
    let message = slot_words(ctx.work.verb, slot);
    let step = Reason::from(slot.step);
    if slot.reason == Some(Reason::Suspended) {
        return Health::Suspended(Reason::Suspended, message);
    }
    // For a slot that rolls back or waits for a retry, the step says more than the reason.
    let shown = match slot.step {
        Step::RollingBack | Step::Queued => step,
        _ => slot.reason.unwrap_or(step),
    };
    Health::Working { reason: shown, cause: slot.obstacle.or(slot.reason).unwrap_or(step), message }
}

/// The result of an action with `count: All` that found no replica.
fn nothing_words(ctx: &PlanContext) -> String {
    let workload = ctx.work.workload.map(|workload| format!("{} {}", workload.kind, workload.name)).unwrap_or_default();
    let place = match (ctx.work.from, ctx.work.to) {
        (Some(from), _) => format!(" on {}", source_words(from)),
        (None, Some(to)) => format!(" on a node that does not match `to` ({})", target_words(to)),
        (None, None) => String::new(),
    };
    format!("nothing to do: no replica of {workload}{place}")
}

/// The final state of an action whose slots have all ended.
pub fn ended(ctx: &PlanContext, slots: &[Slot]) -> ActionHealth {
    let verb = ctx.work.verb;
    let wanted = usize::try_from(ctx.work.count).unwrap_or(0);
    let done = slots.iter().filter(|slot| slot.step == Step::Succeeded).count();
    let failed = slots.iter().filter(|slot| slot.step != Step::Succeeded);
    let Some(worst) = failed.max_by_key(|slot| slot.step == Step::Failed) else {
        if done < wanted {
            let advice = "apply another action for them";
            let message = format!("{done} of {wanted} replicas done, the others were not started; {advice}");
            return Health::Stalled(Reason::Aborted, message);
        }
        let message = match slots {
            [] => nothing_words(ctx),
            [first, .., _] => format!("{}, and {} more", slot_words(verb, first), slots.len() - 1),
            [only] => slot_words(verb, only),
        };
        return Health::Good(Reason::Succeeded, message);
    };
    let reason = worst.reason.unwrap_or(Reason::Failed);
    let outcome = match worst.step {
        Step::Failed => "failed",
        _ => "rolled back",
    };
    let why = worst.message.as_deref().unwrap_or("no reason known");
    let what = work_words(verb, worst, false);
    let share = if wanted > 1 { format!("{done} of {wanted} replicas done; ") } else { String::new() };
    let advice = if worst.step == Step::Failed {
        ""
    } else {
        "; all changes were undone: delete this action and apply it again to retry"
    };
    let advice = if done > 0 { "" } else { advice };
    Health::Stalled(reason, format!("{share}{outcome}: {why} ({what}){advice}"))
}
