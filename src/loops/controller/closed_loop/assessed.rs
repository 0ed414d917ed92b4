//! The assessment of a loop, cached until one of its inputs changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;

use ganglion_api::closed_loop::{ClosedLoop, ClosedLoopStatus};
use ganglion_api::marks;
use ganglion_core::facts::{Key, Uid};
use ganglion_loops_plan::validate::assessment::{Assessment, AssessmentInput, NamespaceAccess, assess};
use ganglion_loops_plan::validate::chain::LoopLink;
use ganglion_loops_plan::validate::conflict::{Claimant, ClaimantKind, ReplicaRange, dimensions};
use ganglion_loops_plan::world::LoopsWorld;
use ganglion_runtime::context::Context;

/// Assessment with its inputs.
#[derive(Debug)]
pub struct Assessed {
    neighbours: Neighbours,
    pub relations: LoopRelations,
    pub assessment: Assessment,
}

/// Inputs of an assessment: the loop, related loops and autoscalers, and whether the operator may act in the namespace.
#[derive(Clone, Debug)]
pub struct Neighbours {
    parent: Arc<ClosedLoop>,
    loops: Vec<Arc<ClosedLoop>>,
    autoscalers: Vec<Claimant>,
    access: NamespaceAccess,
}

impl Neighbours {
    /// Reads the neighbours of a loop from the caches.
    pub fn read(ctx: &Context, key: &Key, parent: &Arc<ClosedLoop>, access: NamespaceAccess) -> Self {
        let target = &parent.spec.target;
        let acts_on = changed_dimensions(parent);
        let range = ReplicaRange::of(&parent.spec, replicas_path(parent));
        let (loops, autoscalers) = ctx.store.read(|world| {
            let autoscalers = world.autoscalers_on(&key.namespace, &target.name);
            let autoscalers = autoscalers.map(|fact| Claimant::autoscaler(fact, &acts_on, range)).collect();
            (world.loops_around(key, &target.name), autoscalers)
        });
        Self { parent: Arc::clone(parent), loops, autoscalers, access }
    }

    fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.parent, &other.parent)
            && self.loops.len() == other.loops.len()
            && self.loops.iter().zip(&other.loops).all(|pair| Arc::ptr_eq(pair.0, pair.1))
            && (&self.autoscalers, &self.access) == (&other.autoscalers, &other.access)
    }
}

impl Assessed {
    /// Returns the cached assessment if its inputs are unchanged and no tuning has expired; otherwise assesses the loop
    /// again. Most reconciles are caused by a sample, which is not an input.
    pub fn cached_or_new(cached: Option<&Arc<Self>>, neighbours: &Neighbours, now: Timestamp) -> Arc<Self> {
        match cached {
            Some(cached) if cached.is_valid(neighbours, now) => Arc::clone(cached),
            Some(_) | None => Arc::new(Self::new(neighbours.clone(), now)),
        }
    }

    fn is_valid(&self, neighbours: &Neighbours, now: Timestamp) -> bool {
        let expired = self.assessment.effective.until.as_ref().is_some_and(|until| until.0 <= now);
        !expired && !self.assessment.is_passing() && self.neighbours.same_as(neighbours)
    }

    /// Assesses the loop.
    pub fn new(neighbours: Neighbours, now: Timestamp) -> Self {
        let relations = LoopRelations::new(&neighbours);
        let status = neighbours.parent.status.clone().unwrap_or_default();
        let assessment = assess(&relations.input(&neighbours.parent, &status, now));
        Self { neighbours, relations, assessment }
    }
}

/// Inputs, converted to the types that the assessment takes.
#[derive(Debug)]
pub struct LoopRelations {
    links: BTreeMap<String, LoopLink>,
    me: Claimant,
    others: Vec<Claimant>,
    access: NamespaceAccess,
}

impl LoopRelations {
    fn new(neighbours: &Neighbours) -> Self {
        let loops = || neighbours.loops.iter();
        Self {
            links: loops().filter_map(|one| Some((one.name_any(), LoopLink::parse(&one.spec).ok()?))).collect(),
            me: claimant(&neighbours.parent),
            others: loops().map(|one| claimant(one)).chain(neighbours.autoscalers.iter().cloned()).collect(),
            access: neighbours.access.clone(),
        }
    }

    /// Input of the assessment, with this status.
    pub fn input<'a>(
        &'a self,
        parent: &'a ClosedLoop,
        status: &'a ClosedLoopStatus,
        now: Timestamp,
    ) -> AssessmentInput<'a> {
        AssessmentInput {
            name: parent.metadata.name.as_deref().unwrap_or_default(),
            spec: &parent.spec,
            approval: parent.annotations().get(marks::APPROVE).map(String::as_str),
            status,
            links: &self.links,
            me: &self.me,
            others: &self.others,
            access: &self.access,
            now,
        }
    }
}

fn claimant(one: &ClosedLoop) -> Claimant {
    Claimant {
        kind: ClaimantKind::ClosedLoop,
        name: one.name_any(),
        uid: Uid::of(&one.metadata),
        created: one.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |created| created.0),
        target: one.spec.target.clone(),
        dimensions: changed_dimensions(one),
        keeps: None,
    }
}

/// Dimensions that the loop changes on its target.
fn changed_dimensions(one: &ClosedLoop) -> Vec<String> {
    dimensions(&one.spec, replicas_path(one))
}

/// Path of the number of replicas in the target, if it is known.
fn replicas_path(one: &ClosedLoop) -> Option<&str> {
    one.status.as_ref()?.replicas_path.as_deref()
}
