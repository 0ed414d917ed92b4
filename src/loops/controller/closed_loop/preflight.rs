//! Preflights: check in advance whether the target, the account's permissions and the Secrets of webhooks allow the
//! loop's actions.
//!
//! One background task per loop runs the check as the loop's account: when the loop changes, at each heartbeat, and
//! more often while the check fails. The task stores its verdict here and enqueues the loop, so that a slow API server
//! delays no other loop. A verdict may be lost in a crash; the loop's status contains the last one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::ClosedLoopController;
use crate::target::{Actor, Trials};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::ExecutionState;
use ganglion_core::facts::Key;
use ganglion_core::world::Fact;
use ganglion_loops_plan::common::{HEARTBEAT, later};
use ganglion_loops_plan::execution::Trial;
use ganglion_loops_plan::validate::preflight::{Preflight, PreflightQuestion};
use ganglion_loops_plan::world::Family;
use ganglion_runtime::error::Error;

/// Maximum number of concurrent checks.
const AT_ONCE: usize = 8;

/// Delay before a refusal is checked again. An API server that has just started refuses requests until it has loaded
/// its roles, and a new role takes effect with a short delay.
const DOUBT_PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// The preflights of all loops.
pub struct Preflights {
    all: Mutex<HashMap<Key, Check>>,
    slots: Semaphore,
}

impl Default for Preflights {
    fn default() -> Self {
        Self { all: Mutex::default(), slots: Semaphore::new(AT_ONCE) }
    }
}

/// The preflight of one loop.
struct Check {
    question: Arc<PreflightQuestion>,
    verdict: Preflight,
    /// Start of the last check.
    asked: Timestamp,
    /// Start of the next check.
    due: Timestamp,
    /// Number of consecutive checks that did not pass.
    failures: u32,
    /// Time when a permission was first found missing.
    doubt: Option<Timestamp>,
    task: Option<JoinHandle<()>>,
}

impl Drop for Check {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Check {
    /// Creates the check of a loop that is new to this process or whose question has changed. A verdict that an earlier
    /// process stored in the loop's status stays valid until its next check. A new leader spreads these checks over a
    /// heartbeat.
    fn of(question: PreflightQuestion, parent: &ClosedLoop, now: Timestamp) -> Self {
        let conditions = parent.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let verdict = Preflight::stored(conditions, parent.metadata.generation.unwrap_or(0));
        let (due, failures) = match &verdict {
            Preflight::Pending(_) => (now, 0),
            Preflight::Passed => (part_of(now, HEARTBEAT), 0),
            Preflight::Failed(..) => (part_of(now, verdict.pause(1)), 1),
        };
        Self { question: Arc::new(question), verdict, asked: now, due, failures, doubt: None, task: None }
    }

    fn is_under_way(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Records the result of a task.
    fn end(&mut self, result: Result<Preflight, Error>, doubt: Option<Timestamp>, now: Timestamp) {
        (self.task, self.doubt) = (None, doubt);
        match result {
            Ok(Preflight::Passed) => (self.verdict, self.failures) = (Preflight::Passed, 0),
            Ok(Preflight::Pending(why)) => self.learn_nothing(why),
            Ok(verdict) => (self.verdict, self.failures) = (verdict, self.failures.saturating_add(1)),
            Err(Error::Doubtful(_)) => {
                self.due = later(now, DOUBT_PAUSE);
                return;
            }
            Err(error) => self.learn_nothing(Some(error.to_string())),
        }
        let pause = self.verdict.pause(self.failures);
        self.due = part_of(later(now, pause * 9 / 10), pause / 5);
    }

    /// Records a check that returned no verdict: a temporary problem does not change the last verdict.
    fn learn_nothing(&mut self, why: Option<String>) {
        self.failures = self.failures.saturating_add(1);
        if let Preflight::Pending(known) = &mut self.verdict {
            *known = why;
        }
    }
}

/// Returns a random time within `span` from now.
fn part_of(now: Timestamp, span: SignedDuration) -> Timestamp {
    later(now, SignedDuration::from_secs_f64(span.as_secs_f64() * fastrand::f64()))
}

impl Preflights {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Check>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the preflight of a deleted loop.
    pub fn forget(&self, key: &Key) {
        self.all().remove(key);
    }

    /// Returns the verdict on this loop and the time of the next check. Starts the check if it is due. Returns None for
    /// a loop that may not act.
    pub fn poll(
        &self,
        controller: &Arc<ClosedLoopController>,
        family: &Family,
        may_act: bool,
    ) -> (Option<Preflight>, Option<Timestamp>) {
        let (parent, now) = (&family.parent, controller.ctx.now());
        let key = parent.id().key;
        if !may_act {
            self.forget(&key);
            return (None, None);
        }
        let question = PreflightQuestion::of(&parent.uid().unwrap_or_default(), &parent.spec);
        let mut all = self.all();
        if all.get(&key).is_none_or(|known| *known.question != question) {
            all.insert(key.clone(), Check::of(question, parent, now));
        }
        let Some(check) = all.get_mut(&key) else { return (None, None) };
        if check.is_under_way() {
            return (Some(check.verdict.clone()), None);
        }
        if check.due <= now || (matches!(check.verdict, Preflight::Failed(..)) && has_acted(family, check.asked)) {
            // The task sets the actual time when it ends.
            (check.asked, check.due) = (now, later(now, HEARTBEAT));
            let (question, doubt) = (Arc::clone(&check.question), check.doubt);
            check.task = Some(tokio::spawn(run(Arc::clone(controller), key, question, doubt)));
        }
        (Some(check.verdict.clone()), Some(check.due))
    }
}

/// Whether the loop has carried out an action since then. If so, a failed verdict may be out of date.
fn has_acted(family: &Family, since: Timestamp) -> bool {
    let executed = family.execution.as_ref().and_then(|execution| execution.status.as_ref());
    executed.is_some_and(|executed| {
        executed.state == Some(ExecutionState::Done) && executed.since.as_ref().is_some_and(|at| at.0 > since)
    })
}

/// Checks a loop, stores the verdict, and enqueues the loop.
async fn run(
    controller: Arc<ClosedLoopController>,
    key: Key,
    question: Arc<PreflightQuestion>,
    doubt: Option<Timestamp>,
) {
    let PreflightQuestion { target, account, .. } = &*question;
    let mut actor = Actor::of(&controller.targets, &key, target, account.as_deref());
    actor.doubt = doubt;
    let preflights = &controller.preflights;
    let checking = async {
        let _slot = preflights.slots.acquire().await;
        check(&controller, &mut actor, &question).await
    };
    let result = tokio::select! {
        biased;
        () = controller.ctx.writer.fenced() => return,
        () = controller.ctx.stop.cancelled() => return,
        result = checking => result,
    };
    let doubt = match &result {
        Ok(Preflight::Failed(LoopReason::Forbidden, _)) | Err(_) => actor.doubt,
        Ok(_) => None,
    };
    let mut all = preflights.all();
    let mine = |check: &&mut Check| Arc::ptr_eq(&check.question, &question);
    if let Some(check) = all.get_mut(&key).filter(mine) {
        check.end(result, doubt, controller.ctx.now());
        drop(all);
        controller.ctx.store.queue::<ClosedLoop>().add([key]);
    }
}

/// Tries the rungs in order and stops at the first that could not be carried out.
async fn check(
    controller: &ClosedLoopController,
    actor: &mut Actor,
    question: &PreflightQuestion,
) -> Result<Preflight, Error> {
    let mut trials = Trials::new(&controller.targets, &controller.outbound, actor);
    for placed in &question.rungs {
        match trials.of(&placed.rung).await? {
            Trial::Possible { .. } | Trial::Limited(_) => {}
            Trial::Impossible(reason, problem) => return Ok(placed.fails(reason, &problem)),
            Trial::Unknown(why) => return Ok(Preflight::Pending(Some(why))),
        }
    }
    Ok(Preflight::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Asserts that the next check is due in `least` to `most` seconds.
    fn waits(check: &Check, now: i64, least: i64, most: i64) {
        let seconds = check.due.duration_since(at(now)).as_secs_f64();
        assert!((least as f64..=most as f64).contains(&seconds), "{seconds} s is not {least} to {most} s");
    }

    #[test]
    fn only_a_verdict_changes_a_verdict() {
        let question = PreflightQuestion::of("u", &ClosedLoop::new("web", Default::default()).spec);
        let mut check = Check::of(question, &ClosedLoop::new("web", Default::default()), at(0));
        assert_eq!((check.verdict.clone(), check.due), (Preflight::Pending(None), at(0)));
        check.end(Err(Error::Broken), None, at(0));
        assert_eq!(check.verdict, Preflight::Pending(Some("a bug in this program".into())));
        waits(&check, 0, 4, 6);
        check.end(Ok(Preflight::Passed), None, at(10));
        assert_eq!(check.verdict, Preflight::Passed);
        waits(&check, 10, 270, 330);
        // An error or an unconfirmed refusal does not change the verdict.
        check.end(Err(Error::Broken), None, at(400));
        assert_eq!(check.verdict, Preflight::Passed);
        waits(&check, 400, 4, 6);
        check.end(Err(Error::Doubtful("no".into())), Some(at(405)), at(405));
        assert_eq!((check.verdict.clone(), check.doubt), (Preflight::Passed, Some(at(405))));
        waits(&check, 405, 1, 1);
        let failed = Preflight::Failed(LoopReason::Forbidden, "no".into());
        check.end(Ok(failed.clone()), Some(at(405)), at(411));
        assert_eq!(check.verdict, failed);
        waits(&check, 411, 9, 11);
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
            let check = Check::of(PreflightQuestion::of("u", &parent.spec), &parent, at(0));
            assert_eq!(check.verdict, verdict);
            waits(&check, 0, 0, most);
        }
    }
}
