//! moveApplication: the replicas of several workloads leave some nodes, by one move of each workload at a time.
//!
//! Each move is a WorkloadAction of its own, which belongs to the moveApplication and treats its replicas like any
//! other move. This module decides which moves are created, and what follows from their results. Everything is derived
//! from the moves and from the nodes of pods, so a crash needs no recovery. The name of a move is unique to it, so a
//! move is created only once.

use crate::world::ActionsWorld;
use ganglion_core::facts::Uid;
mod begin;
mod part;
mod progress;
mod survey;

use ganglion_api::reasons::Reason;
use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::{MoveApplication, OnFailure, WorkloadAction, WorkloadActionStatus};
use ganglion_core::conditions::Health;
use ganglion_core::world::World;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::context::PlanContext;
use super::effect::{Effect, NextStep, Refusal};
use super::refusal::REFUSED_PACE;
use super::report::{self, ActionHealth};
use super::{QUEUE_PACE, ending, missing_receipt, wait};
use part::ApplicationPart;
use progress::Progress;
pub use progress::share;
use survey::Survey;

/// Maximum number of moves that are created at the same time.
const MADE_AT_ONCE: usize = 8;

/// A moveApplication with its moves.
#[derive(Clone, Copy)]
pub struct Application<'a> {
    world: &'a World,
    action: &'a WorkloadAction,
    spec: &'a MoveApplication,
}

impl<'a> Application<'a> {
    /// The action as a moveApplication, if it is one.
    pub fn of(world: &'a World, action: &'a WorkloadAction) -> Option<Self> {
        Some(Self { world, action, spec: action.spec.move_application.as_ref()? })
    }

    fn parts(&self) -> impl Iterator<Item = ApplicationPart<'a>> + use<'a> {
        self.world.parts_of(&Uid::of(&self.action.metadata)).filter_map(|part| ApplicationPart::of(part))
    }

    /// The move that failed first. A move that ended because others failed is returned only if there is no other.
    fn failure(&self) -> Option<ApplicationPart<'a>> {
        let failed = self.parts().filter(|part| !part.is_back() && part.failed());
        failed.min_by_key(|part| (part.reason() == Reason::Aborted, part.finished_at()))
    }

    fn on_failure(&self) -> OnFailure {
        self.spec.on_failure.unwrap_or_default()
    }

    /// Whether further replicas start although others could not move.
    pub fn goes_on(&self) -> bool {
        self.on_failure() == OnFailure::Continue
    }

    /// Whether the replicas of this move that have not started stay on their nodes.
    pub fn stops(&self, part: &WorkloadAction) -> bool {
        let has_ended = self.action.status.as_ref().is_some_and(|status| status.finished_at.is_some());
        let is_back = ApplicationPart::of(part).is_some_and(|part| part.is_back());
        has_ended || (!is_back && !self.goes_on() && self.failure().is_some())
    }

    /// Whether the replicas of this move that are in motion are undone because another move failed.
    pub fn undoes(&self, part: &WorkloadAction) -> bool {
        self.turns_back() && ApplicationPart::of(part).is_some_and(|part| !part.is_back())
    }

    /// Whether the replicas that have moved are moved back.
    fn turns_back(&self) -> bool {
        self.on_failure() == OnFailure::Rollback && self.failure().is_some()
    }

    /// Maximum number of replicas in motion: in total, and of one workload.
    pub fn limits(&self) -> (usize, usize) {
        let number =
            |asked: Option<i32>, default| asked.and_then(|asked| usize::try_from(asked).ok()).unwrap_or(default);
        let all = number(self.spec.max_parallel, 1);
        (all, number(self.spec.max_parallel_per_workload, all).min(all))
    }
}

/// The next step of a moveApplication that has not ended.
pub fn next(ctx: &PlanContext, application: Application) -> NextStep {
    let survey = match Survey::of(ctx, application.spec) {
        Ok(survey) => survey,
        Err(stop) => {
            return ending::finish(ctx, ctx.status.clone(), Health::Stalled(stop.reason, stop.message));
        }
    };
    if ctx.status.started_at.is_none() {
        return begin::begin(ctx, application, &survey);
    }
    // Without moves, an aborted action ends, even if its receipt is refused.
    if application.parts().next().is_none()
        && !ctx.aborted()
        && let Some(receipt) = missing_receipt(ctx)
    {
        return NextStep::Do(Effect::WriteReceipt(receipt));
    }
    if let Some((reason, message)) = survey.unknown(ctx).filter(|_| !ctx.aborted()) {
        let health = Health::working(reason, message);
        return wait(ctx, report::status(ctx, ctx.status.clone(), &health), Some(ctx.now + QUEUE_PACE));
    }
    let progress = Progress::of(application, &survey);
    let older = older(ctx);
    let held = held(ctx, application, &progress, &older);
    if !ctx.suspended() {
        let due = if ctx.aborted() { Vec::new() } else { due(ctx, application, &progress, &older) };
        if !due.is_empty() {
            return NextStep::DoAll(due);
        }
        if held.is_none() && application.parts().all(|part| part.has_ended()) {
            return conclude(ctx, application, &progress);
        }
    }
    let until = held.as_ref().map(|_| ctx.now + QUEUE_PACE);
    wait(ctx, with_progress(ctx, &progress, &health(ctx, application, &progress, held)), until)
}

/// Older moveApplications of the namespace that are at work. Two that move replicas of one workload in opposite
/// directions would move each of them again and again, so a workload is left to the older one until that has ended.
fn older<'a>(ctx: &PlanContext<'a>) -> Vec<Application<'a>> {
    let age = |action: &WorkloadAction| {
        let created = action.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, Uid::of(&action.metadata))
    };
    let is_at_work = |action: &WorkloadAction| {
        let status = action.status.as_ref();
        status.is_some_and(|status| status.started_at.is_some() && status.finished_at.is_none())
    };
    let all = ctx.world.within::<WorkloadAction>(ctx.namespace()).filter_map(|one| Application::of(ctx.world, one));
    all.filter(|one| is_at_work(one.action) && !one.action.spec.suspend && age(one.action) < age(ctx.action)).collect()
}

/// The older moveApplication that moves replicas of this workload, too.
fn holder_of<'a>(older: &[Application<'a>], workload: &WorkloadRef) -> Option<&'a WorkloadAction> {
    older.iter().find(|one| one.parts().any(|part| part.is_of(workload))).map(|one| one.action)
}

/// Why a workload whose replicas may move is not begun; None if there is no such workload.
fn held(
    ctx: &PlanContext,
    application: Application,
    progress: &Progress,
    older: &[Application],
) -> Option<ActionHealth> {
    let ends = ctx.aborted() || application.turns_back() || (application.failure().is_some() && !application.goes_on());
    let mut open = progress.open().filter(|_| !ends);
    open.find_map(|member| {
        let name = holder_of(older, &member.workload)?.metadata.name.as_deref().unwrap_or_default();
        let WorkloadRef { kind, name: workload, .. } = &member.workload;
        let words = progress.words();
        let message = format!("{words}; {kind} {workload} is left to WorkloadAction {name} until that has ended");
        Some(Health::Working { reason: Reason::Queued, cause: Reason::WorkloadBusy, message })
    })
}

/// The moves to create now: the workloads in order, as many as the limits admit.
fn due(ctx: &PlanContext, application: Application, progress: &Progress, older: &[Application]) -> Vec<Effect> {
    let (most, of_one) = application.limits();
    let wanted = if application.turns_back() {
        part::back(ctx, application)
    } else if application.failure().is_some() && !application.goes_on() {
        Vec::new()
    } else {
        let open = progress.open().filter(|member| holder_of(older, &member.workload).is_none());
        open.map(|member| (member.leaving.len().min(of_one), part::forward(ctx, application, member))).collect()
    };
    let mut free = most.saturating_sub(progress.taken(of_one));
    let mut made = Vec::new();
    for (replicas, part) in wanted.into_iter().take(MADE_AT_ONCE) {
        if free == 0 {
            break;
        }
        free = free.saturating_sub(replicas);
        made.push(Effect::CreatePart { application: ctx.id(), part: Box::new(part) });
    }
    made
}

fn with_progress(ctx: &PlanContext, progress: &Progress, health: &ActionHealth) -> WorkloadActionStatus {
    // No creation of a move is refused any more.
    let queued_at = ctx.status.queued_at.clone().filter(|_| ctx.suspended());
    let status = WorkloadActionStatus { application: Some(progress.shown()), queued_at, ..ctx.status.clone() };
    report::status(ctx, status, health)
}

/// Health of a running moveApplication. If no replica is in motion, it shows the obstacle of the first move that waits.
fn health(
    ctx: &PlanContext,
    application: Application,
    progress: &Progress,
    held: Option<ActionHealth>,
) -> ActionHealth {
    let failure = application.failure().map(|part| format!("; {}", part.failure_words())).unwrap_or_default();
    let words = format!("{}{failure}", progress.words());
    if ctx.suspended() {
        return Health::Suspended(Reason::Suspended, format!("{words}; set spec.suspend to false to resume"));
    }
    if ctx.aborted() || application.turns_back() {
        return Health::working(Reason::RollingBack, words);
    }
    let waiting = application.parts().filter(|part| part.waits() && progress.in_motion() == 0);
    match waiting.filter_map(|part| part.cause()).next() {
        Some((cause, message)) => {
            Health::Working { reason: Reason::Queued, cause, message: format!("{words}; {message}") }
        }
        None => held.filter(|_| progress.in_motion() == 0).unwrap_or_else(|| Health::working(Reason::Moving, words)),
    }
}

/// Ends the moveApplication after all moves have ended and no other move is needed.
fn conclude(ctx: &PlanContext, application: Application, progress: &Progress) -> NextStep {
    let words = progress.words();
    let health = match (application.failure(), progress.refilled()) {
        _ if ctx.aborted() => {
            let rest = "the others were undone or had not begun; apply a new action if it is still wanted";
            Health::Stalled(Reason::Aborted, format!("{words}; {rest}"))
        }
        (Some(part), _) => Health::Stalled(part.reason(), format!("{words}; {}", part.failure_words())),
        (None, Some(workload)) => {
            let message = format!("{words}; new replicas of {workload} keep appearing on the nodes that they leave");
            Health::Stalled(Reason::SourceRefilled, message)
        }
        (None, None) => Health::Good(Reason::Succeeded, words),
    };
    let status = WorkloadActionStatus { application: Some(progress.shown()), ..ctx.status.clone() };
    ending::finish(ctx, status, health)
}

/// The next step if the API server refuses to create `object`, which is a move or the receipt. The creation is retried
/// for `queueSeconds`. Then the moveApplication ends as soon as the moves that exist have ended: moves that take
/// replicas back could not be created either.
pub fn refused(ctx: &PlanContext, application: Application, object: &str, refusal: &Refusal) -> NextStep {
    let (reason, words) = (refusal.kind.reason(), &refusal.message);
    let since = ctx.status.queued_at.as_ref().map_or(ctx.now, |time| time.0);
    let deadline = since + ctx.queue_time();
    let is_over = ctx.clock >= deadline;
    if is_over && application.parts().all(|part| part.has_ended()) {
        let progress = ctx.status.application.as_ref().map(share).unwrap_or_default();
        let message = format!("{progress} replicas moved; {object} could not be created for queueSeconds: {words}");
        return ending::finish(ctx, ctx.status.clone(), Health::Stalled(reason, message));
    }
    let then = if is_over { "the action ends when its other moves have ended" } else { "it is tried again" };
    let message = format!("{object} cannot be created, and {then}: {words}");
    let health = Health::Working { reason: Reason::Queued, cause: reason, message };
    let status = WorkloadActionStatus { queued_at: Some(Time(since)), ..ctx.status.clone() };
    wait(ctx, report::status(ctx, status, &health), Some(ctx.now + REFUSED_PACE))
}
