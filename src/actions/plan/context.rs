//! One action, the world and the time: the input of every part of the planner.

use jiff::{SignedDuration, Timestamp};

use crate::world::{ActionsWorld, ParentApplication, application_of};
use ganglion_api::refs::{NodeSource, PodRef, Target, WorkloadRef};
use ganglion_api::workload_action::status::{Slot, Step};
use ganglion_api::workload_action::{
    Disruption, MOST_REPLICAS, MoveApplication, ReplicaCount, Swap, WorkloadAction, WorkloadActionSpec,
    WorkloadActionStatus,
};
use ganglion_core::facts::{Identity, Key, PodFact, Uid};
use ganglion_core::world::World;

use super::Limits;
use super::application::Application;
use super::rank::NodeRanker;
use super::scope::StartRefusal;
use ganglion_api::reasons::Reason;

/// Maximum grace period that is waited for, in seconds: one day.
const MOST_GRACE: i64 = 86_400;

/// The input of one call of the planner.
#[derive(Clone, Copy)]
pub struct PlanContext<'a> {
    pub world: &'a World,
    pub now: Timestamp,
    /// The time that deadlines are compared with. It stops while the action is suspended.
    pub clock: Timestamp,
    pub limits: &'a Limits,
    pub action: &'a WorkloadAction,
    pub status: &'a WorkloadActionStatus,
    pub work: Work<'a>,
    pub ranker: &'a dyn NodeRanker,
}

/// The work of an action, in members that all verbs share. A swap is a move of each of its replicas.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    pub verb: Verb,
    pub workload: Option<&'a WorkloadRef>,
    pub pod: Option<&'a PodRef>,
    pub from: Option<&'a NodeSource>,
    pub to: Option<&'a Target>,
    /// Number of replicas. For `count: All`, the maximum number until the number of matching replicas is known.
    pub count: i32,
    /// Whether `count` is All.
    pub all: bool,
    /// Whether `upTo` limits `count: All`.
    pub bounded: bool,
    pub swap: Option<&'a Swap>,
    /// The moveApplication, if the action is one. Its moves are other actions.
    pub application: Option<&'a MoveApplication>,
}

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
    /// A move of one unnamed replica. It is shown for an action that cannot be executed.
    pub const NONE: Self = Self {
        verb: Verb::Move,
        workload: None,
        pod: None,
        from: None,
        to: None,
        count: 1,
        all: false,
        bounded: false,
        swap: None,
        application: None,
    };

    /// The work that the spec requests, given the number of replicas that `count: All` has found.
    pub fn with_found(spec: &'a WorkloadActionSpec, found: Option<i32>) -> Result<Self, StartRefusal> {
        let work = Self::of(spec)?;
        Ok(Self { count: found.filter(|_| work.all).unwrap_or(work.count), ..work })
    }

    /// The work that the spec requests, or why this version does not support it.
    pub fn of(spec: &'a WorkloadActionSpec) -> Result<Self, StartRefusal> {
        let work = if let Some(create) = &spec.create {
            let count = create.count.unwrap_or(1);
            Self { verb: Verb::Create, workload: Some(&create.workload), to: Some(&create.to), count, ..Self::NONE }
        } else if let Some(delete) = &spec.delete {
            let (workload, pod, from) = (delete.workload.as_ref(), delete.pod.as_ref(), delete.from.as_ref());
            Self { verb: Verb::Delete, workload, pod, from, ..Self::NONE }.counted(delete.count, delete.up_to)
        } else if let Some(change) = &spec.move_ {
            let (workload, pod, from) = (change.workload.as_ref(), change.pod.as_ref(), change.from.as_ref());
            Self { workload, pod, from, to: change.to.as_ref(), ..Self::NONE }.counted(change.count, change.up_to)
        } else if let Some(swap) = &spec.swap {
            let count = i32::try_from(swap.with.len()).unwrap_or(0).saturating_add(1);
            Self { count, swap: Some(swap), ..Self::NONE }
        } else if let Some(application) = &spec.move_application {
            let (from, to) = (Some(&application.from), application.to.as_ref());
            Self { from, to, application: Some(application), ..Self::NONE }
        } else {
            return Err(StartRefusal::now(Reason::NotSupported, "the spec has no action that this version supports"));
        };
        Ok(work)
    }

    fn counted(self, count: Option<ReplicaCount>, up_to: Option<i32>) -> Self {
        match count {
            Some(ReplicaCount::All) => {
                Self { count: up_to.unwrap_or(MOST_REPLICAS), all: true, bounded: up_to.is_some(), ..self }
            }
            Some(ReplicaCount::Number(count)) => Self { count, ..self },
            None => self,
        }
    }

    /// Whether its replicas get new pods on chosen nodes.
    pub fn places(&self) -> bool {
        match self.verb {
            Verb::Create | Verb::Move => true,
            Verb::Delete => false,
        }
    }
}

/// Whether the action must be undone because its user requested it. A move of a moveApplication is also undone if the
/// application is aborted, deleted or missing, or if it rolls back after another move failed.
fn is_aborted(world: &World, action: &WorkloadAction) -> bool {
    let is_asked = |action: &WorkloadAction| action.spec.abort || action.metadata.deletion_timestamp.is_some();
    is_asked(action)
        || match world.application_of(action) {
            ParentApplication::Existing(owner) => {
                is_asked(owner) || Application::of(world, owner).is_some_and(|application| application.undoes(action))
            }
            ParentApplication::Deleted => !is_hidden(world, action),
            ParentApplication::None => false,
        }
}

/// Whether the action's clocks are stopped, by the action or by the application that it is a move of. An abort or a
/// deletion proceeds nevertheless.
pub fn is_suspended(world: &World, action: &WorkloadAction) -> bool {
    let is_suspended_by_application = match world.application_of(action) {
        ParentApplication::Existing(application) => application.spec.suspend,
        ParentApplication::Deleted => is_hidden(world, action),
        ParentApplication::None => false,
    };
    (action.spec.suspend || is_suspended_by_application) && !is_aborted(world, action)
}

/// Whether the application that the action is a move of exists and does not parse. It may be in use, so nothing is
/// done.
fn is_hidden(world: &World, part: &WorkloadAction) -> bool {
    let Some(uid) = application_of(part) else { return false };
    world.table::<WorkloadAction>().unreadable().values().any(|known| known.id().uid == uid)
}

impl<'a> PlanContext<'a> {
    /// The same context with this number of replicas. `count: All` finds the number while it plans.
    pub fn counting(&self, replicas: Option<i32>) -> Self {
        Self { work: Work { count: replicas.unwrap_or(self.work.count), ..self.work }, ..*self }
    }

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

    /// When the API server created the action, by the clock of the API server.
    pub fn created(&self) -> Timestamp {
        self.action.metadata.creation_timestamp.as_ref().map_or(self.now, |time| time.0)
    }

    /// When this process first noticed the action, by its own clock: the watch may have delivered the action late, and
    /// the clocks of two machines differ. If the action was not noticed, as in a preview, the creation time.
    pub fn known_since(&self) -> Timestamp {
        self.world.noticed(&Uid::of(&self.action.metadata)).unwrap_or_else(|| self.created())
    }

    pub fn deleting(&self) -> bool {
        self.action.metadata.deletion_timestamp.is_some()
    }

    /// Whether the action must be undone.
    pub fn aborted(&self) -> bool {
        is_aborted(self.world, self.action)
    }

    /// Why the action is undone, as text.
    pub fn why_aborted(&self) -> &'static str {
        match (self.deleting(), self.action.spec.abort) {
            (true, _) => "the action was deleted",
            (false, true) => "spec.abort was set",
            (false, false) => "its moveApplication was aborted, deleted or rolled back",
        }
    }

    pub fn suspended(&self) -> bool {
        is_suspended(self.world, self.action)
    }

    /// Whether the action is a move of a moveApplication.
    pub fn is_part(&self) -> bool {
        application_of(self.action).is_some()
    }

    /// The application that the action is a move of.
    pub fn application(&self) -> Option<Application<'a>> {
        Application::of(self.world, self.world.application_of(self.action).existing()?)
    }

    pub fn may_disrupt(&self) -> bool {
        self.action.spec.disruption == Disruption::Allowed
    }

    /// The running slots: started and not ended.
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

    /// Grace period of the pods that the action evicts. None: their own.
    pub fn grace_seconds(&self) -> Option<u32> {
        self.action.spec.grace_period_seconds.and_then(|seconds| u32::try_from(seconds).ok())
    }

    /// Maximum time that a pod may exist after the action has evicted it.
    pub fn termination_time(&self, pod: &PodFact) -> SignedDuration {
        let grace = self.grace_seconds().map_or(pod.grace_seconds, i64::from);
        self.drain_time() + SignedDuration::from_secs(grace.clamp(0, MOST_GRACE))
    }

    fn timeouts(&self) -> Option<&'a ganglion_api::workload_action::Timeouts> {
        self.action.spec.timeouts.as_ref()
    }

    fn seconds(&self, asked: Option<i32>, default: i32) -> SignedDuration {
        SignedDuration::from_secs(i64::from(asked.unwrap_or(default)))
    }
}
