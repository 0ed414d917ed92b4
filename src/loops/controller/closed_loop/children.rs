//! Creates the children of a loop and keeps their specs up to date.
//!
//! Leaves an object alone if it has the name of a child and another owner. Never writes `Monitoring.spec.sample` or the
//! loop's spec.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::Patch;
use kube::core::object::HasSpec;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Map, Value, json};

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::{Decision, DecisionSpec};
use ganglion_api::execution::{Execution, ExecutionSpec};
use ganglion_api::marks;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec};
use ganglion_core::world::Fact;
use ganglion_loops_plan::validate::assessment::Assessment;
use ganglion_loops_plan::world::{Family, is_owned};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::writer::Kube;

/// Creates or updates the children. If the loop does not own an object with the name of a child, returns a message that
/// names the object.
pub async fn reconcile(ctx: &Context, family: &Family, assessment: &Assessment) -> Result<Option<String>, Error> {
    let name = family.parent.name_any();
    if !assessment.can_have_children(&name) || (family.is_childless() && !assessment.creates_children()) {
        return Ok(None);
    }
    let (parent, children) = (&*family.parent, &assessment.children);
    let monitoring = child(ctx, parent, family.monitoring.as_ref(), &children.monitoring).await?;
    let decision = child(ctx, parent, family.decision.as_ref(), &children.decision).await?;
    let execution = child(ctx, parent, family.execution.as_ref(), &children.execution).await?;
    Ok(monitoring.or(decision).or(execution))
}

/// A child of a loop.
trait Child: Kube + Fact + Serialize + HasSpec<Spec: Serialize + Clone + PartialEq> {
    /// Name of its writes in metrics and logs.
    const EFFECT: &'static str;
    fn make(name: &str, spec: Self::Spec) -> Self;
    /// Fields of the spec that the loop owns.
    fn ours(&self) -> Self::Spec {
        self.spec().clone()
    }
    /// Whether the stored spec has these values.
    fn is(&self, spec: &Self::Spec) -> bool {
        self.spec() == spec
    }
}

impl Child for Monitoring {
    const EFFECT: &'static str = "KeepMonitoring";

    fn make(name: &str, spec: MonitoringSpec) -> Self {
        Self::new(name, spec)
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
    const EFFECT: &'static str = "KeepDecision";

    fn make(name: &str, spec: DecisionSpec) -> Self {
        Self::new(name, spec)
    }
}

impl Child for Execution {
    const EFFECT: &'static str = "KeepExecution";

    fn make(name: &str, spec: ExecutionSpec) -> Self {
        Self::new(name, spec)
    }
}

/// Creates or updates one child. If the loop does not own the object, returns a message that names it.
async fn child<K: Child>(
    ctx: &Context,
    parent: &ClosedLoop,
    found: Option<&Arc<K>>,
    spec: &K::Spec,
) -> Result<Option<String>, Error> {
    let wanted = wanted::<K>(parent, spec);
    let name = wanted.name_any();
    let Some(found) = found else {
        let namespace = parent.namespace().unwrap_or_default();
        let made = ctx.writer.create(marks::LOOP_MANAGER, &namespace, &wanted);
        ctx.write_own::<ClosedLoop, K>(K::EFFECT, &wanted, made).await?;
        return Ok(None);
    };
    if !is_owned(found.meta().owner_references.as_ref(), &parent.uid().unwrap_or_default()) {
        let words =
            || format!("{} {name} exists and does not belong to this loop: delete it, or rename the loop", K::KIND);
        return Ok((!is_orphan(found.owner_references(), &name)).then(words));
    }
    let marked = found.labels().get(marks::LOOP) == Some(&name);
    if found.meta().deletion_timestamp.is_some() || (marked && found.is(spec)) {
        return Ok(None);
    }
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {
            "namespace": wanted.namespace(), "name": name, "uid": found.uid(),
            "labels": wanted.labels(), "ownerReferences": wanted.owner_references(),
        },
        "spec": spec,
    });
    patch(ctx, &**found, &Patch::Apply(body)).await?;
    // Server-side apply does not remove fields that other managers added, so a merge patch removes them.
    let Some(applied) = ctx.store.read(|world| world.table::<K>().get(&found.id().key).cloned()) else {
        return Ok(None);
    };
    if let Some(change) = difference(&json!(applied.ours()), &json!(spec)) {
        patch(ctx, &*applied, &Patch::Merge(json!({"spec": change}))).await?;
    }
    Ok(None)
}

fn wanted<K: Child>(parent: &ClosedLoop, spec: &K::Spec) -> K {
    let name = parent.name_any();
    let mut wanted = K::make(&name, spec.clone());
    wanted.meta_mut().namespace = parent.namespace();
    wanted.meta_mut().labels = Some([(marks::LOOP.to_owned(), name)].into());
    wanted.meta_mut().owner_references = parent.controller_owner_ref(&()).map(|owner| vec![owner]);
    wanted
}

async fn patch<K: Child>(ctx: &Context, child: &K, patch: &Patch<Value>) -> Result<(), Error> {
    let key = child.id().key;
    let write = ctx.writer.patch::<K>(marks::LOOP_MANAGER, &key, patch);
    ctx.write_own::<ClosedLoop, K>(K::EFFECT, child, write).await
}

/// Whether the owner is a deleted loop of the same name. The garbage collector deletes such an object.
fn is_orphan(owners: &[OwnerReference], name: &str) -> bool {
    owners.iter().any(|owner| owner.kind == ClosedLoop::kind(&()) && owner.name == name)
}

/// Returns the JSON merge patch that turns `from` into `to`; None if they are equal.
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
