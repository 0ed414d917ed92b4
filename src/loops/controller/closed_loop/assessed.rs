//! The assessment of a loop, cached until one of its inputs changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;

use ganglion_api::closed_loop::{ClosedLoop, ClosedLoopStatus};
use ganglion_api::marks;
use ganglion_core::facts::Key;
use ganglion_loops_plan::validate::assessment::{Assessment, AssessmentInput, NamespaceAccess, assess};
use ganglion_loops_plan::validate::chain::LoopLink;
use ganglion_loops_plan::validate::conflict::{Claimant, ClaimantKind, dimensions};
use ganglion_runtime::context::Context;

/// Assessment with its inputs.
#[derive(Debug)]
pub struct Assessed {
    neighbours: Neighbours,
    pub relations: LoopRelations,
    pub assessment: Assessment,
}

/// Inputs of an assessment: the loop, related loops and autoscalers, and whether the operator may act in the namespace.
#[derive(Debug)]
struct Neighbours {
    parent: Arc<ClosedLoop>,
    loops: Vec<Arc<ClosedLoop>>,
    autoscalers: Vec<Claimant>,
    access: NamespaceAccess,
}

impl Neighbours {
    fn of(ctx: &Context, key: &Key, parent: &Arc<ClosedLoop>, access: NamespaceAccess) -> Self {
        let target = &parent.spec.target;
        let acts_on = dimensions(&parent.spec);
        let (loops, autoscalers) = ctx.store.read(|world| {
            let autoscalers = world.autoscalers_on(&key.namespace, &target.name);
            let autoscalers = autoscalers.map(|fact| Claimant::autoscaler(fact, &acts_on)).collect();
            (world.loops_around(key, &target.name), autoscalers)
        });
        Self { parent: Arc::clone(parent), loops, autoscalers, access }
    }

    fn is(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<ClosedLoop>, &Arc<ClosedLoop>)| Arc::ptr_eq(one, other);
        Arc::ptr_eq(&self.parent, &other.parent)
            && self.loops.len() == other.loops.len()
            && self.loops.iter().zip(&other.loops).all(same)
            && (&self.autoscalers, &self.access) == (&other.autoscalers, &other.access)
    }
}

impl Assessed {
    /// Returns the cached assessment if its inputs are unchanged and no tuning has expired; otherwise assesses the loop
    /// again. Most reconciles are caused by a sample, which is not an input.
    pub fn of(
        ctx: &Context,
        key: &Key,
        parent: &Arc<ClosedLoop>,
        access: NamespaceAccess,
        known: Option<&Arc<Self>>,
    ) -> Arc<Self> {
        let neighbours = Neighbours::of(ctx, key, parent, access);
        let now = ctx.now();
        let stands = |known: &Self| {
            let expired = known.assessment.effective.until.as_ref().is_some_and(|until| until.0 <= now);
            !expired && !known.assessment.is_passing() && known.neighbours.is(&neighbours)
        };
        match known {
            Some(known) if stands(known) => Arc::clone(known),
            Some(_) | None => Arc::new(Self::anew(neighbours, now)),
        }
    }

    fn anew(neighbours: Neighbours, now: Timestamp) -> Self {
        let relations = LoopRelations::of(&neighbours);
        let status = neighbours.parent.status.clone().unwrap_or_default();
        let assessment = assess(&relations.case(&neighbours.parent, &status, now));
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
    fn of(neighbours: &Neighbours) -> Self {
        let loops = || neighbours.loops.iter();
        Self {
            links: loops().filter_map(|one| Some((one.name_any(), LoopLink::of(&one.spec).ok()?))).collect(),
            me: claimant(&neighbours.parent),
            others: loops().map(|one| claimant(one)).chain(neighbours.autoscalers.iter().cloned()).collect(),
            access: neighbours.access.clone(),
        }
    }

    pub fn case<'a>(
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
        uid: one.uid().unwrap_or_default(),
        created: one.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |created| created.0),
        target: one.spec.target.clone(),
        dimensions: dimensions(&one.spec),
    }
}
