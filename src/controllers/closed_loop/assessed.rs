//! What a loop is found to be, kept as long as nothing has changed that it was judged by.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;

use super::{ClosedLoops, Pass};
use crate::api::closed_loop::{ClosedLoop, ClosedLoopStatus};
use crate::logic::closed_loop::validate::assessment::{Assessment, Case, assess};
use crate::logic::closed_loop::validate::chain::Link;
use crate::logic::closed_loop::validate::conflict::{Claimant, ClaimantKind, dimensions};
use crate::logic::closed_loop::validate::support;

/// What a loop was found to be, beside all that it was judged by.
#[derive(Debug)]
pub struct Assessed {
    near: Near,
    pub around: Around,
    pub assessment: Assessment,
}

/// What there is around a loop, itself included.
#[derive(Debug)]
struct Near {
    parent: Arc<ClosedLoop>,
    loops: Vec<Arc<ClosedLoop>>,
    autoscalers: Vec<Claimant>,
}

impl Near {
    fn of(ctx: &ClosedLoops, pass: &Pass) -> Self {
        let parent = Arc::clone(&pass.family.parent);
        let target = &parent.spec.target;
        let loops = ctx.ctx.store.read(|world| world.loops_around(&pass.key, &target.name));
        let autoscalers = ctx.ctx.store.read(|world| {
            let on_it = world.autoscalers_on(&pass.key.namespace, &target.name);
            on_it.map(|fact| Claimant::autoscaler(fact, &dimensions(&parent.spec))).collect()
        });
        Self { parent, loops, autoscalers }
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
    pub fn of(ctx: &ClosedLoops, pass: &Pass) -> Arc<Self> {
        let near = Near::of(ctx, pass);
        let tuned = near.parent.status.as_ref().is_some_and(|status| !status.tuning.is_empty());
        match &pass.memory.assessed {
            Some(known) if !tuned && known.near.is(&near) => Arc::clone(known),
            _ => Arc::new(Self::anew(ctx, pass, near)),
        }
    }

    fn anew(ctx: &ClosedLoops, pass: &Pass, near: Near) -> Self {
        let around = Around::of(&near);
        let status = near.parent.status.clone().unwrap_or_default();
        let assessment = assess(&around.case(ctx, pass, &status));
        Self { near, around, assessment }
    }
}

/// The same, as the assessment takes it.
#[derive(Debug)]
pub struct Around {
    links: BTreeMap<String, Link>,
    me: Claimant,
    others: Vec<Claimant>,
}

impl Around {
    fn of(near: &Near) -> Self {
        let loops = || near.loops.iter();
        Self {
            links: loops().filter_map(|one| Some((one.name_any(), Link::of(&one.spec).ok()?))).collect(),
            me: claimant(&near.parent),
            others: loops().map(|one| claimant(one)).chain(near.autoscalers.iter().cloned()).collect(),
        }
    }

    pub fn case<'a>(&'a self, ctx: &ClosedLoops, pass: &'a Pass, status: &'a ClosedLoopStatus) -> Case<'a> {
        Case {
            name: &pass.key.name,
            spec: &pass.family.parent.spec,
            status,
            links: &self.links,
            me: &self.me,
            others: &self.others,
            now: ctx.ctx.now(),
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
