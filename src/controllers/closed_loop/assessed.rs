//! What a loop is found to be, kept as long as nothing has changed that it was judged by.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;

use crate::api::closed_loop::{ClosedLoop, ClosedLoopStatus};
use crate::logic::closed_loop::validate::assessment::{Assessment, AssessmentInput, assess};
use crate::logic::closed_loop::validate::chain::LoopLink;
use crate::logic::closed_loop::validate::conflict::{Claimant, ClaimantKind, dimensions};
use crate::logic::closed_loop::validate::support;
use crate::logic::facts::Key;
use crate::runtime::context::Context;

/// What a loop was found to be, beside all that it was judged by.
#[derive(Debug)]
pub struct Assessed {
    neighbours: Neighbours,
    pub relations: LoopRelations,
    pub assessment: Assessment,
}

/// What there is around a loop, itself included.
#[derive(Debug)]
struct Neighbours {
    parent: Arc<ClosedLoop>,
    loops: Vec<Arc<ClosedLoop>>,
    autoscalers: Vec<Claimant>,
}

impl Neighbours {
    fn of(ctx: &Context, key: &Key, parent: &Arc<ClosedLoop>) -> Self {
        let target = &parent.spec.target;
        let acts_on = dimensions(&parent.spec);
        let (loops, autoscalers) = ctx.store.read(|world| {
            let autoscalers = world.autoscalers_on(&key.namespace, &target.name);
            let autoscalers = autoscalers.map(|fact| Claimant::autoscaler(fact, &acts_on)).collect();
            (world.loops_around(key, &target.name), autoscalers)
        });
        Self { parent: Arc::clone(parent), loops, autoscalers }
    }

    fn is(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<ClosedLoop>, &Arc<ClosedLoop>)| Arc::ptr_eq(one, other);
        Arc::ptr_eq(&self.parent, &other.parent)
            && self.loops.len() == other.loops.len()
            && self.loops.iter().zip(&other.loops).all(same)
            && self.autoscalers == other.autoscalers
    }
}

impl Assessed {
    /// As it was found before, where nothing has changed that it was judged by: most passes are about a sample. What others
    /// have tuned ends with time.
    pub fn of(ctx: &Context, key: &Key, parent: &Arc<ClosedLoop>, known: Option<&Arc<Self>>) -> Arc<Self> {
        let neighbours = Neighbours::of(ctx, key, parent);
        let tuned = neighbours.parent.status.as_ref().is_some_and(|status| !status.tuning.is_empty());
        match known {
            Some(known) if !tuned && known.neighbours.is(&neighbours) => Arc::clone(known),
            _ => Arc::new(Self::anew(neighbours, ctx.now())),
        }
    }

    fn anew(neighbours: Neighbours, now: Timestamp) -> Self {
        let relations = LoopRelations::of(&neighbours);
        let status = neighbours.parent.status.clone().unwrap_or_default();
        let assessment = assess(&relations.case(&neighbours.parent, &status, now));
        Self { neighbours, relations, assessment }
    }
}

/// The same, as the assessment takes it.
#[derive(Debug)]
pub struct LoopRelations {
    links: BTreeMap<String, LoopLink>,
    me: Claimant,
    others: Vec<Claimant>,
}

impl LoopRelations {
    fn of(neighbours: &Neighbours) -> Self {
        let loops = || neighbours.loops.iter();
        Self {
            links: loops().filter_map(|one| Some((one.name_any(), LoopLink::of(&one.spec).ok()?))).collect(),
            me: claimant(&neighbours.parent),
            others: loops().map(|one| claimant(one)).chain(neighbours.autoscalers.iter().cloned()).collect(),
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
            status,
            links: &self.links,
            me: &self.me,
            others: &self.others,
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
        // One that cannot act is in nobody's way.
        dimensions: if support::check(&one.spec).is_ok() { dimensions(&one.spec) } else { Vec::new() },
    }
}
