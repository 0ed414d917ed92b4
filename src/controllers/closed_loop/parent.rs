//! The loop itself: its children are made and kept as they are to be, and its own status says how it is.
//!
//! A child of its name that is not the loop's is left alone. Never touches `Monitoring.spec.sample`, nor the loop's spec.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Patch;
use kube::core::object::HasSpec;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::assessed::Assessed;
use super::objects::{self, LoopResource, Precondition};
use super::{ClosedLoopController, Pass, events};
use crate::api::closed_loop::{ClosedLoop, ClosedLoopStatus};
use crate::api::decision::{Decision, DecisionSpec};
use crate::api::execution::{Execution, ExecutionSpec};
use crate::api::marks;
use crate::api::monitoring::{Monitoring, MonitoringSpec};
use crate::controllers::error::Error;
use crate::logic::closed_loop::validate::assessment::{self, ChildStatuses, LoopProblem};
use crate::logic::world::loops::{Family, is_owned};

/// The least time between two writes of the loop's status that only tell of another decision: the hops tell of each.
const SUMMARY: SignedDuration = SignedDuration::from_secs(10);

/// Assesses the loop, and makes its children what they are to be.
///
/// # Errors
/// A write did not succeed.
pub async fn keep(ctx: &ClosedLoopController, pass: &mut Pass) -> Result<Arc<Assessed>, Error> {
    let assessed = Assessed::of(ctx, pass);
    pass.memory.assessed = Some(Arc::clone(&assessed));
    let assessment = &assessed.assessment;
    pass.memory.not_owned = None;
    if let Some(until) = &assessment.effective.until {
        pass.again(until.0);
    }
    if assessment.can_have_children(&pass.key.name) {
        child::<Monitoring>(ctx, pass, &assessment.children.monitoring).await?;
        child::<Decision>(ctx, pass, &assessment.children.decision).await?;
        child::<Execution>(ctx, pass, &assessment.children.execution).await?;
    }
    Ok(assessed)
}

/// A child of a loop.
trait Child: LoopResource + HasSpec<Spec: Serialize + Clone + PartialEq> {
    fn make(name: &str, spec: Self::Spec) -> Self;
    fn find(family: &Family) -> Option<Arc<Self>>;
    /// What of the spec is the loop's.
    fn ours(&self) -> Self::Spec {
        self.spec().clone()
    }
    /// Whether that is this.
    fn is(&self, spec: &Self::Spec) -> bool {
        self.spec() == spec
    }
}

impl Child for Monitoring {
    fn make(name: &str, spec: MonitoringSpec) -> Self {
        Self::new(name, spec)
    }
    fn find(family: &Family) -> Option<Arc<Self>> {
        family.monitoring.clone()
    }
    fn ours(&self) -> MonitoringSpec {
        MonitoringSpec { sample: None, ..self.spec.clone() }
    }
    fn is(&self, spec: &MonitoringSpec) -> bool {
        let MonitoringSpec { metrics, interval, trace, service_account_name, target, paused, sample: _ } = &self.spec;
        (metrics, interval, trace, paused) == (&spec.metrics, &spec.interval, &spec.trace, &spec.paused)
            && (service_account_name, target) == (&spec.service_account_name, &spec.target)
    }
}

impl Child for Decision {
    fn make(name: &str, spec: DecisionSpec) -> Self {
        Self::new(name, spec)
    }
    fn find(family: &Family) -> Option<Arc<Self>> {
        family.decision.clone()
    }
}

impl Child for Execution {
    fn make(name: &str, spec: ExecutionSpec) -> Self {
        Self::new(name, spec)
    }
    fn find(family: &Family) -> Option<Arc<Self>> {
        family.execution.clone()
    }
}

/// Makes one child, or makes it again what it is to be.
async fn child<K: Child>(ctx: &ClosedLoopController, pass: &mut Pass, spec: &K::Spec) -> Result<(), Error> {
    let Some(family) = ctx.loops.read(|loops| loops.family(&pass.key)) else { return Ok(()) };
    let parent = family.parent.uid().unwrap_or_default();
    let wanted = || {
        let mut wanted = K::make(&pass.key.name, spec.clone());
        wanted.meta_mut().namespace = Some(pass.key.namespace.clone());
        wanted.meta_mut().labels = Some([(marks::LOOP.to_owned(), pass.key.name.clone())].into());
        wanted.meta_mut().owner_references = family.parent.controller_owner_ref(&()).map(|owner| vec![owner]);
        wanted
    };
    let Some(found) = K::find(&family) else {
        let wanted = wanted();
        return objects::create(ctx, pass, &wanted).await;
    };
    if !is_owned(found.meta().owner_references.as_ref(), &parent) {
        if !is_orphan(found.owner_references(), &pass.key.name) {
            let words = format!(
                "{} {} is there and not this loop's: delete it, or give the loop another name",
                K::kind(&()),
                pass.key.name
            );
            pass.memory.not_owned.get_or_insert(words);
        }
        return Ok(());
    }
    let marked = found.labels().get(marks::LOOP) == Some(&pass.key.name);
    if found.meta().deletion_timestamp.is_some() || (marked && found.is(spec)) {
        return Ok(());
    }
    let wanted = wanted();
    let mut body = objects::apply_body::<K>(found.meta().uid.as_deref(), &pass.key);
    body["metadata"]["labels"] = json!(wanted.labels());
    body["metadata"]["ownerReferences"] = json!(wanted.owner_references());
    body["spec"] = json!(spec);
    objects::keep(ctx, pass, &*found, &Patch::Apply(body)).await?;
    // What others have added is not ours to leave out, by the rules of server-side apply: it has to be taken away.
    let Some(applied) = K::find(&pass.family) else { return Ok(()) };
    match difference(&json!(applied.ours()), &json!(spec)) {
        Some(patch) => objects::keep(ctx, pass, &*applied, &Patch::Merge(json!({"spec": patch}))).await,
        None => Ok(()),
    }
}

/// It belongs to a loop of this name that was there before, and goes by itself.
fn is_orphan(owners: &[OwnerReference], name: &str) -> bool {
    owners.iter().any(|owner| owner.kind == ClosedLoop::kind(&()) && owner.name == name)
}

/// The merge patch that makes one JSON value the other; none where they are the same.
fn difference(from: &Value, to: &Value) -> Option<Value> {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            let mut patch = Map::new();
            for name in from.keys().filter(|name| !to.contains_key(*name)) {
                patch.insert(name.clone(), Value::Null);
            }
            for (name, value) in to {
                if let Some(change) = difference(from.get(name).unwrap_or(&Value::Null), value) {
                    patch.insert(name.clone(), change);
                }
            }
            (!patch.is_empty()).then_some(Value::Object(patch))
        }
        (from, to) => (from != to).then(|| to.clone()),
    }
}

/// Says how the loop is.
///
/// # Errors
/// The write did not succeed.
pub async fn report(ctx: &ClosedLoopController, pass: &mut Pass, assessed: &Assessed) -> Result<(), Error> {
    let assessment = &assessed.assessment;
    let parent = Arc::clone(&pass.family.parent);
    let tuning = parent.status.as_ref().map(|status| status.tuning.clone()).unwrap_or_default();
    let stored = ClosedLoopStatus { tuning: Vec::new(), ..parent.status.clone().unwrap_or_default() };
    let case = assessed.relations.case(ctx, pass, &stored);
    let now = case.now;
    let family = &pass.family;
    let hops = ChildStatuses {
        monitoring: family.monitoring.as_ref().and_then(|object| object.status.as_ref()),
        decision: family.decision.as_ref().and_then(|object| object.status.as_ref()),
        execution: family.execution.as_ref().and_then(|object| object.status.as_ref()),
        not_owned: pass.memory.not_owned.as_deref(),
    };
    let status = assessment::status(&case, assessment, hops, parent.metadata.generation.unwrap_or(0));
    if assessment::same_edges(&stored, &status) {
        if stored.summary == status.summary {
            return Ok(());
        }
        let next = pass.memory.told.and_then(|told| told.checked_add(SUMMARY).ok()).filter(|next| *next > now);
        if let Some(next) = next {
            pass.again(next);
            return Ok(());
        }
    }
    let trouble = assessment.problem.as_ref().map(LoopProblem::message);
    if let Some(words) = trouble.filter(|_| !assessment::same_edges(&stored, &status)) {
        tracing::info!(words, "loop does not act");
    }
    objects::record(ctx, pass, &*parent, &status, Precondition::Uid).await?;
    pass.memory.told = Some(now);
    if let Some(told) = events::of_loop(&stored, &status) {
        ctx.events.tell(events::subject(pass), told);
    }
    // Another loop may have tuned this one between our reading and our writing.
    let tuned = pass.family.parent.status.as_ref().map(|status| status.tuning.as_slice()).unwrap_or_default();
    pass.changed_by_others |= tuned != tuning;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_takes_away_what_was_added() {
        for (from, to, expected) in [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1, "b": 2}), json!({"a": 1}), Some(json!({"b": null}))),
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 3}}), Some(json!({"a": {"b": 3, "c": null}}))),
            (json!({"a": [1, 2]}), json!({"a": [1]}), Some(json!({"a": [1]}))),
        ] {
            assert_eq!(difference(&from, &to), expected);
        }
    }
}
