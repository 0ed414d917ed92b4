//! The progress of a drain: which actions are created next, whether the drain is over, and what stays.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::super::explain::{cause, reason_of};
use super::action::{is_open, key_of};
use super::plan::{DrainPlan, WorkloadMove};
use super::{DrainOutcome, DrainReport, DrainWishes, MoveKey, Stay, StayCause};
use ganglion_api::workload_action::status::{Slot, Step};
use ganglion_api::workload_action::{MOST_REPLICAS, WorkloadAction};
use ganglion_core::duration;
use ganglion_core::facts::{Identity, NodeName};

/// The current state of a drain.
#[derive(Clone, Copy, Debug)]
pub struct DrainProgress<'a> {
    pub nodes: &'a [NodeName],
    pub wishes: &'a DrainWishes,
    pub plan: &'a DrainPlan,
    /// The actions of this run, and the actions of an interrupted run that this run continues. They are read before the
    /// pods.
    pub actions: &'a [WorkloadAction],
    /// Messages of the API server for the actions that it refused.
    pub refused: &'a BTreeMap<MoveKey, String>,
}

/// An action to create.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewMove<'a> {
    pub of: &'a WorkloadMove,
    /// Maximum number of replicas that it may move; None for all.
    pub up_to: Option<i32>,
}

/// State of the replicas of a workload on a node.
pub(super) enum MoveState<'a> {
    /// An action is running.
    Open(&'a WorkloadAction),
    /// The last action ended, and another one would not move the replicas that are left.
    Ended(&'a WorkloadAction),
    Refused(&'a str),
    NeedsDisruption,
    ToDo,
}

/// The slots of an action.
pub(super) fn slots(action: &WorkloadAction) -> &[Slot] {
    action.status.as_ref().map(|status| status.slots.as_slice()).unwrap_or_default()
}

fn done(action: &WorkloadAction) -> usize {
    slots(action).iter().filter(|slot| slot.step == Step::Succeeded).count()
}

/// Number of replicas that an open action has in motion, or will have.
fn in_motion(action: &WorkloadAction, there: usize) -> usize {
    let found = action.status.as_ref().and_then(|status| status.replicas);
    let asked = action.spec.move_.as_ref().and_then(|change| change.up_to);
    let all = found.or(asked).and_then(|count| usize::try_from(count).ok()).unwrap_or(there);
    all.saturating_sub(done(action))
}

impl<'a> DrainProgress<'a> {
    pub(super) fn state(&self, asked: &WorkloadMove) -> MoveState<'a> {
        let key = asked.key();
        let own = || self.actions.iter().filter(|action| key_of(action).as_ref() == Some(&key));
        if let Some(action) = own().find(|action| is_open(action)) {
            return MoveState::Open(action);
        }
        if let Some(words) = self.refused.get(&key) {
            return MoveState::Refused(words);
        }
        let age = |action: &&WorkloadAction| action.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let last = own().max_by_key(age);
        if let Some(action) = last.filter(|action| is_failed(action) || done(action) == 0) {
            return MoveState::Ended(action);
        }
        let may = asked.hindrances.is_empty() || self.wishes.disruption;
        if may { MoveState::ToDo } else { MoveState::NeedsDisruption }
    }

    /// The actions to create now.
    pub fn next_moves(&self) -> Vec<NewMove<'a>> {
        let there = |action: &WorkloadAction| {
            let key = key_of(action);
            let of = self.plan.moves.iter().find(|asked| Some(asked.key()) == key);
            of.map_or(0, |asked| asked.pods.len())
        };
        let open = self.actions.iter().filter(|action| is_open(action));
        let mut moving: usize = open.map(|action| in_motion(action, there(action))).sum();
        let mut new = Vec::new();
        for asked in self.plan.moves.iter().filter(|asked| matches!(self.state(asked), MoveState::ToDo)) {
            let all = asked.pods.len();
            let room = self.wishes.parallel.map_or(usize::MAX, |most| most.saturating_sub(moving));
            let count = all.min(room).min(usize::try_from(MOST_REPLICAS).unwrap_or(1));
            if count == 0 {
                break;
            }
            moving += count;
            new.push(NewMove { of: asked, up_to: i32::try_from(count).ok().filter(|_| count < all) });
        }
        new
    }

    /// Whether there is nothing left to do and nothing left to wait for.
    pub fn is_over(&self) -> bool {
        let waits = |asked: &WorkloadMove| matches!(self.state(asked), MoveState::Open(_) | MoveState::ToDo);
        let jobs_left = !self.plan.jobs.is_empty() && !self.wishes.leave_jobs;
        !(self.actions.iter().any(is_open)
            || self.plan.moves.iter().any(waits)
            || !self.plan.leaving.is_empty()
            || jobs_left)
    }

    /// Pods on the nodes that will not leave; at the end of a drain, the pods that are still there.
    pub fn stays(&self) -> Vec<Stay> {
        let moves = self.plan.moves.iter().filter_map(|asked| self.stay(asked));
        let jobs = self.plan.jobs.iter().filter(|_| self.wishes.leave_jobs).cloned();
        moves.chain(jobs).chain(self.plan.stays.iter().cloned()).collect()
    }

    fn stay(&self, asked: &WorkloadMove) -> Option<Stay> {
        let (cause_, reason, message, advice) = match self.state(asked) {
            MoveState::Open(_) | MoveState::ToDo => return None,
            MoveState::NeedsDisruption => {
                (StayCause::NeedsDisruption, None, asked.why(), Some(self.disrupt_words(asked)))
            }
            MoveState::Refused(words) => {
                let advice = "Ask for the right that the message names, or change the rule.".to_owned();
                (StayCause::Refused, None, words.to_owned(), Some(advice))
            }
            MoveState::Ended(action) => {
                let condition = action.status.as_ref().and_then(cause);
                let reason = condition.map(|condition| reason_of(&condition.reason));
                let message = condition.map(|condition| condition.message.clone()).unwrap_or_default();
                let Identity { key, .. } = (&action.metadata).into();
                let advice = match reason.filter(|_| is_failed(action)) {
                    Some(reason) => reason.advice().replace("apply a new action", "drain again"),
                    None => format!("See kubectl ganglion explain wa {} -n {}", key.name, key.namespace),
                };
                (StayCause::NotMoved, reason.map(|reason| reason.to_string()), message, Some(advice))
            }
        };
        Some(Stay { reason, message, advice, ..stay_of(asked, cause_) })
    }

    fn disrupt_words(&self, asked: &WorkloadMove) -> String {
        let how =
            if asked.disrupts() { "the old pod then goes before the new one comes" } else { "its data are then lost" };
        format!("To move it, too ({how}): kubectl ganglion drain {} --disruption", self.nodes.join(" "))
    }

    /// Report at the end of the drain. If `timed_out`, pods that are not gone yet count as staying, too.
    pub fn report(&self, timed_out: bool, took: SignedDuration) -> DrainReport {
        let mut stays = self.stays();
        if timed_out {
            let is_late = |asked: &&WorkloadMove| matches!(self.state(asked), MoveState::Open(_) | MoveState::ToDo);
            stays.extend(self.plan.moves.iter().filter(is_late).map(|asked| self.late(asked)));
            let jobs = self.plan.jobs.iter().filter(|_| !self.wishes.leave_jobs);
            stays.extend(jobs.chain(&self.plan.leaving).cloned());
        }
        stays.sort_by_key(Stay::is_expected);
        let name = |action: &WorkloadAction| Identity::from(&action.metadata).key.to_string();
        DrainReport {
            nodes: self.nodes.to_vec(),
            outcome: match stays.iter().all(Stay::is_expected) {
                _ if timed_out => DrainOutcome::TimedOut,
                true => DrainOutcome::Empty,
                false => DrainOutcome::Stays,
            },
            moved: self.actions.iter().map(done).sum(),
            actions: self.actions.iter().map(name).collect(),
            stays,
            took: duration::show(took),
        }
    }

    fn late(&self, asked: &WorkloadMove) -> Stay {
        let (reason, message) = match self.state(asked) {
            MoveState::Open(action) => {
                let condition = action.status.as_ref().and_then(cause);
                let words = |of: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
                    (of.reason.clone(), of.message.clone())
                };
                condition.map(words).unzip()
            }
            _ => (None, None),
        };
        let message = message.unwrap_or_else(|| "its turn has not come".to_owned());
        let advice = format!("Its action goes on. To wait for it: kubectl ganglion drain {}", self.nodes.join(" "));
        Stay { reason, message, advice: Some(advice), ..stay_of(asked, StayCause::NotYet) }
    }
}

fn is_failed(action: &WorkloadAction) -> bool {
    let mut conditions = action.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|one| one.type_ == "Ready" && one.status == "False")
}

fn stay_of(asked: &WorkloadMove, cause: StayCause) -> Stay {
    Stay {
        namespace: asked.namespace.clone(),
        what: asked.words(),
        node: asked.node.clone(),
        pods: asked.pods.len(),
        cause,
        reason: None,
        message: String::new(),
        advice: None,
    }
}
