//! One action, the world and the time: the input of every part of the planner.

use jiff::{SignedDuration, Timestamp};

use crate::api::targets::{NodeSource, PodRef, Target, WorkloadRef};
use crate::api::workload_action::status::{Slot, Step};
use crate::api::workload_action::{Disruption, WorkloadAction, WorkloadActionSpec, WorkloadActionStatus};
use crate::logic::facts::{Identity, Key};
use crate::logic::world::World;

use super::Limits;
use super::rank::NodeRanker;
use super::scope::Stop;
use crate::api::reasons::Reason;

/// The input of one call of the planner.
#[derive(Clone, Copy)]
pub struct PlanContext<'a> {
    pub world: &'a World,
    pub now: Timestamp,
    /// The time that deadlines are compared with. It stands still while the action is suspended.
    pub clock: Timestamp,
    pub limits: &'a Limits,
    pub action: &'a WorkloadAction,
    pub status: &'a WorkloadActionStatus,
    pub work: Work<'a>,
    pub ranker: &'a dyn NodeRanker,
}

/// What an action does, in the members that all verbs share.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    pub verb: Verb,
    pub workload: Option<&'a WorkloadRef>,
    pub pod: Option<&'a PodRef>,
    pub from: Option<&'a NodeSource>,
    pub to: Option<&'a Target>,
    pub count: i32,
}

/// See [`Work`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Create,
    Delete,
    Move,
}

impl Verb {
    /// Whether it changes `spec.replicas` of the workload.
    pub fn scales(self) -> bool {
        match self {
            Self::Create | Self::Delete => true,
            Self::Move => false,
        }
    }
}

impl<'a> Work<'a> {
    /// What the spec asks for, or why this version does not support it.
    pub fn of(spec: &'a WorkloadActionSpec) -> Result<Self, Stop> {
        let unsupported =
            |what: &str| Stop::now(Reason::NotSupported, format!("{what} is not supported by this version"));
        let work = if let Some(create) = &spec.create {
            let (to, count) = (Some(&create.to), create.count);
            Self::new(Verb::Create, Some(&create.workload), None, None, to, count)
        } else if let Some(delete) = &spec.delete {
            let (workload, pod) = (delete.workload.as_ref(), delete.pod.as_ref());
            Self::new(Verb::Delete, workload, pod, delete.from.as_ref(), None, delete.count)
        } else if let Some(change) = &spec.move_ {
            let (workload, pod) = (change.workload.as_ref(), change.pod.as_ref());
            Self::new(Verb::Move, workload, pod, change.from.as_ref(), Some(&change.to), change.count)
        } else if spec.swap.is_some() {
            return Err(unsupported("swap"));
        } else {
            return Err(unsupported("moveApplication"));
        };
        if spec.notify.as_ref().is_some_and(|receivers| !receivers.is_empty()) {
            return Err(unsupported("notify"));
        }
        Ok(work)
    }

    fn new(
        verb: Verb,
        workload: Option<&'a WorkloadRef>,
        pod: Option<&'a PodRef>,
        from: Option<&'a NodeSource>,
        to: Option<&'a Target>,
        count: Option<i32>,
    ) -> Self {
        Self { verb, workload, pod, from, to, count: count.unwrap_or(1) }
    }
}

fn is_aborted(action: &WorkloadAction) -> bool {
    action.spec.abort || action.metadata.deletion_timestamp.is_some()
}

/// Whether the action's clocks stand still. A deletion goes on nevertheless.
pub fn is_suspended(action: &WorkloadAction) -> bool {
    action.spec.suspend && !is_aborted(action)
}

impl<'a> PlanContext<'a> {
    pub fn id(&self) -> Identity {
        (&self.action.metadata).into()
    }

    pub fn namespace(&self) -> &'a str {
        self.action.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn key(&self, name: &str) -> Key {
        Key::new(self.namespace(), name)
    }

    pub fn generation(&self) -> i64 {
        self.action.metadata.generation.unwrap_or(0)
    }

    /// When the API server created the action, by its clock.
    pub fn created(&self) -> Timestamp {
        self.action.metadata.creation_timestamp.as_ref().map_or(self.now, |time| time.0)
    }

    pub fn deleting(&self) -> bool {
        self.action.metadata.deletion_timestamp.is_some()
    }

    /// Whether the user wants the action undone.
    pub fn aborted(&self) -> bool {
        is_aborted(self.action)
    }

    pub fn suspended(&self) -> bool {
        is_suspended(self.action)
    }

    pub fn may_disrupt(&self) -> bool {
        self.action.spec.disruption == Disruption::Allowed
    }

    /// The slots at work: started and not ended.
    pub fn working(&self) -> impl Iterator<Item = &'a Slot> {
        self.status.slots.iter().filter(|slot| !slot.step.is_end() && slot.step != Step::Queued)
    }

    pub fn queue_time(&self) -> SignedDuration {
        self.seconds(self.timeouts().and_then(|timeouts| timeouts.queue_seconds), 600)
    }

    pub fn schedule_time(&self) -> SignedDuration {
        self.seconds(self.timeouts().and_then(|timeouts| timeouts.schedule_seconds), 120)
    }

    pub fn ready_time(&self) -> SignedDuration {
        self.seconds(self.timeouts().and_then(|timeouts| timeouts.ready_seconds), 300)
    }

    pub fn drain_time(&self) -> SignedDuration {
        self.seconds(self.timeouts().and_then(|timeouts| timeouts.drain_seconds), 300)
    }

    pub fn stable_time(&self) -> SignedDuration {
        SignedDuration::from_secs(i64::from(self.action.spec.stable_seconds))
    }

    fn timeouts(&self) -> Option<&'a crate::api::workload_action::Timeouts> {
        self.action.spec.timeouts.as_ref()
    }

    fn seconds(&self, asked: Option<i32>, default: i32) -> SignedDuration {
        SignedDuration::from_secs(i64::from(asked.unwrap_or(default)))
    }
}
