//! Preflights: check in advance whether the target, the account's permissions and the Secrets of webhooks allow the
//! loop's actions.
//!
//! One background task per loop runs the check as the loop's account: when the loop changes, at each heartbeat, after a
//! failed action, and more often while the check fails. A verdict may be lost in a crash; the loop's status contains
//! the last one.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::ClosedLoopController;
use crate::target::{Actor, Trials};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::status::SeenOwner;
use ganglion_api::execution::{ExecutionState, ExecutionStatus};
use ganglion_core::facts::{Key, Uid};
use ganglion_core::world::Fact;
use ganglion_loops_plan::common::{HEARTBEAT, later};
use ganglion_loops_plan::execution::Trial;
use ganglion_loops_plan::rung;
use ganglion_loops_plan::validate::preflight::{FIRST_PAUSE, Preflight, PreflightQuestion};
use ganglion_loops_plan::world::Family;
use ganglion_runtime::background::BackgroundWork;
use ganglion_runtime::error::Error;
use ganglion_runtime::fairness::FairLimit;
use ganglion_runtime::metrics::{LimitLabel, Metrics};
use ganglion_runtime::refusals::Refusals;

/// Maximum number of concurrent checks. One namespace gets at most a quarter of it.
const AT_ONCE: usize = 32;

/// Delay before a refusal is checked again. An API server that has just started refuses requests until it has loaded
/// its roles, and a new role takes effect with a short delay.
const DOUBT_PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// The background tasks of preflights.
pub struct Preflights {
    checks: BackgroundWork<ClosedLoop, PreflightQuestion, CheckedLoop>,
    limit: FairLimit,
}

/// Result of a check.
struct CheckedLoop {
    verdict: Result<Preflight, Error>,
    /// Requests that were forbidden.
    refusals: Refusals,
    /// Owners of fields to remember.
    owners: Vec<SeenOwner>,
    /// Path of the number of replicas in the target, if it is known.
    replicas_path: Option<String>,
}

/// State of the preflight of one loop.
pub struct PreflightState {
    question: Arc<PreflightQuestion>,
    pub verdict: Preflight,
    /// Start of the last check.
    asked: Timestamp,
    /// Start of the next check.
    pub due: Timestamp,
    /// Number of consecutive checks that did not pass.
    failures: u32,
    refusals: Refusals,
    /// Owners of fields that the loop would change.
    pub owners: Vec<SeenOwner>,
    /// Path of the number of replicas in the target, if a check has found it.
    pub replicas_path: Option<String>,
}

impl PreflightState {
    /// Creates the state of a loop that is new to this process or whose question has changed. A verdict that an earlier
    /// process stored in the loop's status stays valid until its next check. A new leader spreads these checks over a
    /// heartbeat.
    fn new(question: PreflightQuestion, parent: &ClosedLoop, now: Timestamp) -> Self {
        let status = parent.status.clone().unwrap_or_default();
        let verdict = Preflight::stored(&status.conditions, parent.metadata.generation.unwrap_or(0));
        let (due, failures) = match &verdict {
            Preflight::Pending(_) => (now, 0),
            Preflight::Passed => (random_time(now, HEARTBEAT), 0),
            Preflight::Failed(..) => (random_time(now, verdict.pause(1)), 1),
        };
        let path = status.replicas_path;
        let has_field = |seen: &SeenOwner| {
            let mut rungs = question.rungs.iter();
            rungs.any(|placed| rung::dimension_on(&placed.rung, path.as_deref()) == seen.dimension)
        };
        let owners = status.owners.into_iter().filter(has_field).collect();
        let (question, refusals) = (Arc::new(question), Refusals::default());
        Self { question, verdict, asked: now, due, failures, refusals, owners, replicas_path: None }
    }

    /// Records the result of a check.
    fn record(&mut self, checked: &CheckedLoop, now: Timestamp) {
        self.owners.clone_from(&checked.owners);
        self.replicas_path = checked.replicas_path.clone().or(self.replicas_path.take());
        self.refusals = match &checked.verdict {
            Ok(Preflight::Failed(LoopReason::Forbidden, _)) | Err(_) => checked.refusals,
            Ok(Preflight::Failed(..) | Preflight::Passed | Preflight::Pending(_)) => Refusals::default(),
        };
        match &checked.verdict {
            Ok(Preflight::Passed) => (self.verdict, self.failures) = (Preflight::Passed, 0),
            Ok(Preflight::Pending(why)) => self.record_no_verdict(why.clone()),
            Ok(verdict) => (self.verdict, self.failures) = (verdict.clone(), self.failures.saturating_add(1)),
            Err(Error::Doubtful(_)) => {
                self.due = later(now, DOUBT_PAUSE);
                return;
            }
            Err(error) => self.record_no_verdict(Some(error.to_string())),
        }
        let pause = self.verdict.pause(self.failures);
        self.due = random_time(later(now, pause * 9 / 10), pause / 5);
    }

    /// Records a check that returned no verdict: a temporary problem does not change the last verdict.
    fn record_no_verdict(&mut self, why: Option<String>) {
        self.failures = self.failures.saturating_add(1);
        if let Preflight::Pending(last) = &mut self.verdict {
            *last = why;
        }
    }
}

/// Returns a random time within `span` from now.
fn random_time(now: Timestamp, span: SignedDuration) -> Timestamp {
    later(now, SignedDuration::from_secs_f64(span.as_secs_f64() * fastrand::f64()))
}

impl Preflights {
    pub fn new(metrics: &Metrics) -> Self {
        let full = metrics.outbound_full.get_or_create(&LimitLabel { limit: "preflights" }).clone();
        Self { checks: BackgroundWork::default(), limit: FairLimit::new(AT_ONCE, full) }
    }

    /// Stops the check of a loop that was deleted or may not act.
    pub fn cancel(&self, key: &Key) {
        self.checks.cancel(key);
    }
}

impl ClosedLoopController {
    /// Records the result of a finished check, and starts the check if it is due. None for a loop that may not act.
    pub(super) fn next_preflight(
        self: &Arc<Self>,
        family: &Family,
        may_act: bool,
        last: Option<PreflightState>,
    ) -> Option<PreflightState> {
        let (parent, now) = (&family.parent, self.ctx.now());
        let key = parent.id().key;
        if !may_act {
            self.preflights.cancel(&key);
            return None;
        }
        let question = PreflightQuestion::new(Uid::of(&parent.metadata), &parent.spec);
        let mut state = match last {
            Some(last) if *last.question == question => last,
            Some(_) | None => PreflightState::new(question, parent, now),
        };
        if let Some(task) = self.preflights.checks.state(&key, |question| *question == *state.question) {
            if let Some(checked) = &task.answer {
                state.record(checked, now);
                self.preflights.cancel(&key);
            } else if !task.has_ended {
                return Some(state);
            }
        }
        let executed = family.execution.as_ref().and_then(|execution| execution.status.as_ref());
        if executed.is_some_and(|executed| contradicts(executed, &state)) {
            state.due = state.due.min(later(state.asked, FIRST_PAUSE));
        }
        if state.due <= now {
            // The result sets the actual time.
            (state.asked, state.due) = (now, later(now, HEARTBEAT));
            self.start_preflight(key, &state);
        }
        Some(state)
    }

    fn start_preflight(self: &Arc<Self>, key: Key, state: &PreflightState) {
        let PreflightQuestion { target, account, .. } = &*state.question;
        let actor = Actor::new(&self.targets, &key, target, account.as_deref());
        let mut actor = actor.after(state.refusals).remembering(&state.owners);
        let (controller, question) = (Arc::clone(self), Arc::clone(&state.question));
        self.preflights.checks.start(&self.ctx, key, Arc::clone(&state.question), |answers| async move {
            let _permit = controller.preflights.limit.acquire(&actor.loop_key.namespace, 1).await;
            let mut trials = Trials::new(&controller.targets, &controller.outbound, &mut actor);
            let verdict = verdict(&mut trials, &question).await;
            let (owners, replicas_path) = (trials.owners(), trials.replicas_path.take());
            answers.publish(CheckedLoop { verdict, refusals: actor.refusals, owners, replicas_path });
        });
    }
}

/// Whether the last action has ended since the last check, and otherwise than the verdict says: it was carried out
/// although the check has failed, or failed although the check has passed.
fn contradicts(executed: &ExecutionStatus, state: &PreflightState) -> bool {
    let end = match state.verdict {
        Preflight::Pending(_) => return false,
        Preflight::Passed => ExecutionState::Failed,
        Preflight::Failed(..) => ExecutionState::Done,
    };
    executed.state == Some(end) && executed.since.as_ref().is_some_and(|at| at.0 > state.asked)
}

/// Tries the rungs in order, then the metrics of adapters, and stops at the first that could not be carried out or
/// read.
async fn verdict(trials: &mut Trials<'_>, question: &PreflightQuestion) -> Result<Preflight, Error> {
    for placed in &question.rungs {
        match trials.try_rung(&placed.rung).await? {
            Trial::Possible { .. } | Trial::Limited(_) => {}
            Trial::Impossible(reason, problem) => return Ok(placed.fails(reason, &problem)),
            Trial::Unknown(why) => return Ok(Preflight::Pending(Some(why))),
        }
    }
    for (metric, source) in &question.metrics {
        if let Some(problem) = trials.source_problem(source).await? {
            return Ok(Preflight::Failed(LoopReason::Forbidden, format!("metric {metric}: {problem}")));
        }
    }
    Ok(Preflight::Passed)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn checked(verdict: Result<Preflight, Error>) -> CheckedLoop {
        CheckedLoop { verdict, refusals: Refusals::default(), owners: Vec::new(), replicas_path: None }
    }

    /// Asserts that the next check is due in `least` to `most` seconds.
    fn waits(check: &PreflightState, now: i64, least: i64, most: i64) {
        let seconds = check.due.duration_since(at(now)).as_secs_f64();
        assert!((least as f64..=most as f64).contains(&seconds), "{seconds} s is not {least} to {most} s");
    }

    #[test]
    fn only_a_verdict_changes_a_verdict() {
        let question = PreflightQuestion::new("u".into(), &ClosedLoop::new("web", Default::default()).spec);
        let mut check = PreflightState::new(question, &ClosedLoop::new("web", Default::default()), at(0));
        assert_eq!((check.verdict.clone(), check.due), (Preflight::Pending(None), at(0)));
        check.record(&checked(Err(Error::Broken)), at(0));
        assert_eq!(check.verdict, Preflight::Pending(Some("a bug in this program".into())));
        waits(&check, 0, 4, 6);
        check.record(&checked(Ok(Preflight::Passed)), at(10));
        assert_eq!(check.verdict, Preflight::Passed);
        waits(&check, 10, 270, 330);
        // An error or an unconfirmed refusal does not change the verdict.
        check.record(&checked(Err(Error::Broken)), at(400));
        assert_eq!(check.verdict, Preflight::Passed);
        waits(&check, 400, 4, 6);
        let refusals = Refusals::believed(at(405));
        check.record(&CheckedLoop { refusals, ..checked(Err(Error::Doubtful("no".into()))) }, at(405));
        assert_eq!((check.verdict.clone(), check.refusals), (Preflight::Passed, refusals));
        waits(&check, 405, 1, 1);
        let failed = Preflight::Failed(LoopReason::Forbidden, "no".into());
        check.record(&CheckedLoop { refusals, ..checked(Ok(failed.clone())) }, at(411));
        assert_eq!(check.verdict, failed);
        waits(&check, 411, 9, 11);
    }

    #[test]
    fn an_action_that_ended_otherwise_contradicts_the_verdict() {
        let parent = ClosedLoop::new("web", Default::default());
        let question = || PreflightQuestion::new("u".into(), &parent.spec);
        let failed = Preflight::Failed(LoopReason::Forbidden, "no".into());
        for (verdict, state, second, expected) in [
            (Preflight::Passed, ExecutionState::Failed, 11, true),
            (Preflight::Passed, ExecutionState::Failed, 10, false),
            (Preflight::Passed, ExecutionState::Done, 11, false),
            (failed.clone(), ExecutionState::Done, 11, true),
            (failed, ExecutionState::Failed, 11, false),
            (Preflight::Pending(None), ExecutionState::Failed, 11, false),
        ] {
            let check = PreflightState { verdict, ..PreflightState::new(question(), &parent, at(10)) };
            let since = Some(MicroTime(at(second)));
            let executed = ExecutionStatus { state: Some(state), since, ..ExecutionStatus::default() };
            assert_eq!(contradicts(&executed, &check), expected, "{:?} {state:?} {second}", check.verdict);
        }
    }

    #[test]
    fn the_verdict_of_an_earlier_process_stands_until_its_time() {
        let mut parent = ClosedLoop::new("web", Default::default());
        parent.metadata.generation = Some(2);
        let stamp = ganglion_core::conditions::Stamp { generation: 2, now: at(0) };
        let failed = Preflight::Failed(LoopReason::TargetNotFound, "gone".into());
        for (verdict, most) in [(Preflight::Passed, 300), (failed, 5)] {
            let conditions = verdict.condition(&[], stamp).into_iter().collect();
            parent.status = Some(ganglion_api::closed_loop::ClosedLoopStatus { conditions, ..Default::default() });
            let check = PreflightState::new(PreflightQuestion::new("u".into(), &parent.spec), &parent, at(0));
            assert_eq!(check.verdict, verdict);
            waits(&check, 0, 0, most);
        }
    }
}
