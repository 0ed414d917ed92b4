//! The progress of a drain: which actions are created next, whether the drain is over, and what stays.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::action::{is_open, key_of};
use super::evictions::{LastEviction, Terminations};
use super::plan::{DrainPlan, WorkloadMove};
use super::{DrainWishes, MoveKey};
use ganglion_api::reasons::Reason;
use ganglion_api::workload_action::status::{Slot, Step};
use ganglion_api::workload_action::{MOST_REPLICAS, WorkloadAction};
use ganglion_core::facts::{NodeName, Uid};

/// The current state of a drain.
#[derive(Clone, Copy, Debug)]
pub struct DrainProgress<'a> {
    pub nodes: &'a [NodeName],
    pub wishes: &'a DrainWishes,
    pub plan: &'a DrainPlan,
    /// The actions of this run, and the actions of an interrupted run that this run continues. They are read before the
    /// pods.
    pub actions: &'a [WorkloadAction],
    /// Actions that cannot help, with the reason: the API server refused them, or no operator works in their namespace.
    pub refused: &'a BTreeMap<MoveKey, String>,
    /// Answers to the evictions by the drain itself.
    pub evictions: &'a BTreeMap<Uid, LastEviction>,
    pub terminations: &'a Terminations,
    /// Why no operator has seen an action.
    pub operator: Option<&'a str>,
    pub now: Timestamp,
}

/// An action to create.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewMove<'a> {
    pub of: &'a WorkloadMove,
    /// Maximum number of replicas that it may move; None for all.
    pub up_to: Option<i32>,
    /// Grace period of the pods that it evicts. None: their own.
    pub grace_seconds: Option<u32>,
}

/// State of the replicas of a workload on a node.
pub(super) enum MoveState<'a> {
    /// An action is running.
    Open(&'a WorkloadAction),
    /// The last action ended, and another one would not move the replicas that are left.
    Ended(&'a WorkloadAction),
    Refused(&'a str),
    NeedsDisruption,
    /// Some of the replicas are not selected.
    NotSelected,
    ToDo,
}

/// The slots of an action.
pub(super) fn slots(action: &WorkloadAction) -> &[Slot] {
    action.status.as_ref().map(|status| status.slots.as_slice()).unwrap_or_default()
}

pub(super) fn done(action: &WorkloadAction) -> usize {
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
        match asked.unselected {
            0 if asked.hindrances.is_empty() || self.wishes.disruption => MoveState::ToDo,
            0 => MoveState::NeedsDisruption,
            _ => MoveState::NotSelected,
        }
    }

    /// Number of replicas that the actions have in motion, or will have.
    pub(super) fn moving(&self) -> usize {
        let there = |action: &WorkloadAction| {
            let key = key_of(action);
            let of = self.plan.moves.iter().find(|asked| Some(asked.key()) == key);
            of.map_or(0, |asked| asked.pods.len())
        };
        let open = self.actions.iter().filter(|action| is_open(action));
        open.map(|action| in_motion(action, there(action))).sum()
    }

    /// The workloads for which an action is to be created.
    pub fn due(&self) -> impl Iterator<Item = &'a WorkloadMove> {
        self.plan.moves.iter().filter(|asked| matches!(self.state(asked), MoveState::ToDo))
    }

    /// The actions to create now.
    pub fn next_moves(&self) -> Vec<NewMove<'a>> {
        let mut moving = self.moving();
        let mut new = Vec::new();
        for asked in self.due() {
            let all = asked.pods.len();
            let room = self.wishes.parallel.map_or(usize::MAX, |most| most.saturating_sub(moving));
            let count = all.min(room).min(usize::try_from(MOST_REPLICAS).unwrap_or(1));
            if count == 0 {
                break;
            }
            moving += count;
            let up_to = i32::try_from(count).ok().filter(|_| count < all);
            new.push(NewMove { of: asked, up_to, grace_seconds: self.wishes.grace_seconds });
        }
        new
    }

    /// Whether there is nothing left to do and nothing left to wait for.
    pub fn is_over(&self) -> bool {
        let moves_on = |asked: &WorkloadMove| matches!(self.state(asked), MoveState::Open(_) | MoveState::ToDo);
        let is_open = self.actions.iter().any(is_open) || self.plan.moves.iter().any(moves_on);
        let is_evicting = self.evictable().any(|pod| self.refusal(pod).is_none());
        let waits = self.plan.evictions.iter().any(|one| one.is_waited_for(self.wishes));
        let leaving = self.plan.leaving.iter().any(|one| !self.is_stuck(one));
        !(is_open || is_evicting || waits || leaving)
    }

    /// Whether the old pod of a slot has left its node by an eviction, and the slot has not succeeded.
    pub(super) fn is_evicted(&self, slot: &Slot) -> bool {
        let Some(victim) = &slot.victim else { return false };
        let here = self.plan.moves.iter().flat_map(|of| &of.pods).chain(self.plan.leaving.iter().map(|one| &one.pod));
        let is_past = matches!(slot.step, Step::Verifying | Step::Failed) && slot.reason != Some(Reason::VictimStuck);
        is_past && !here.map(|pod| pod.key.name.as_str()).any(|name| name == victim.name)
    }
}

pub(super) fn is_failed(action: &WorkloadAction) -> bool {
    let mut conditions = action.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|one| one.type_ == "Ready" && one.status == "False")
}
