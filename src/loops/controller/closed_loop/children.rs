//! The children of a loop and their specs.
//!
//! Leaves an object alone if it has the name of a child and another owner. Never writes `Monitoring.spec.sample` or the
//! loop's spec.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::object::HasSpec;
use kube::{Resource, ResourceExt};
use serde::Serialize;

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::{Decision, DecisionSpec};
use ganglion_api::execution::{Execution, ExecutionSpec};
use ganglion_api::marks;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec};
use ganglion_core::facts::Uid;
use ganglion_core::owners::is_owned;
use ganglion_core::world::Fact;
use ganglion_loops_plan::validate::assessment::Assessment;
use ganglion_loops_plan::world::Family;
use ganglion_runtime::children::{ChildWriter, OwnerDeletion, owned_by};
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
    let monitoring = reconcile_child(ctx, parent, family.monitoring.as_ref(), &children.monitoring).await?;
    let decision = reconcile_child(ctx, parent, family.decision.as_ref(), &children.decision).await?;
    let execution = reconcile_child(ctx, parent, family.execution.as_ref(), &children.execution).await?;
    Ok(monitoring.or(decision).or(execution))
}

/// A child of a loop.
trait Child: Kube + Fact + Serialize + HasSpec<Spec: Serialize + Clone + PartialEq> {
    /// Name of its writes in metrics and logs.
    const EFFECT: &'static str;
    /// Fields of its spec that the loop does not own.
    const OTHERS: &'static [&'static str] = &[];
    fn new(name: &str, spec: Self::Spec) -> Self;
    /// Whether the stored spec has these values.
    fn has(&self, spec: &Self::Spec) -> bool {
        self.spec() == spec
    }
}

impl Child for Monitoring {
    const EFFECT: &'static str = "KeepMonitoring";
    const OTHERS: &'static [&'static str] = &["sample"];

    fn new(name: &str, spec: MonitoringSpec) -> Self {
        Self::new(name, spec)
    }
    fn has(&self, spec: &MonitoringSpec) -> bool {
        let MonitoringSpec { metrics, interval, trace, service_account_name, target, paused, sample: _ } = &self.spec;
        (metrics, interval, trace, paused) == (&spec.metrics, &spec.interval, &spec.trace, &spec.paused)
            && (service_account_name, target) == (&spec.service_account_name, &spec.target)
    }
}

impl Child for Decision {
    const EFFECT: &'static str = "KeepDecision";

    fn new(name: &str, spec: DecisionSpec) -> Self {
        Self::new(name, spec)
    }
}

impl Child for Execution {
    const EFFECT: &'static str = "KeepExecution";

    fn new(name: &str, spec: ExecutionSpec) -> Self {
        Self::new(name, spec)
    }
}

/// Creates or updates one child. If the loop does not own the object, returns a message that names it.
async fn reconcile_child<K: Child>(
    ctx: &Context,
    parent: &ClosedLoop,
    stored: Option<&Arc<K>>,
    spec: &K::Spec,
) -> Result<Option<String>, Error> {
    let name = parent.name_any();
    let labels = [(marks::LOOP.to_owned(), name.clone())].into();
    let desired = owned_by(parent, OwnerDeletion::DoesNotWait, labels, <K as Child>::new(&name, spec.clone()));
    let writer = ChildWriter { manager: marks::LOOP_MANAGER, create: K::EFFECT, update: K::EFFECT, others: K::OTHERS };
    let Some(stored) = stored else {
        writer.create::<ClosedLoop, K>(ctx, &desired).await?;
        return Ok(None);
    };
    if !is_owned(stored.meta().owner_references.as_ref(), &Uid::of(&parent.metadata)) {
        if is_orphan(stored.owner_references(), &name) {
            return Ok(None);
        }
        let kind = K::KIND;
        return Ok(Some(format!(
            "{kind} {name} exists and does not belong to this loop: delete it, or rename the loop"
        )));
    }
    let is_current = stored.labels().get(marks::LOOP) == Some(&name) && stored.has(spec);
    if stored.meta().deletion_timestamp.is_none() && !is_current {
        writer.update::<ClosedLoop, K>(ctx, stored, &desired).await?;
    }
    Ok(None)
}

/// Whether the owner is a deleted loop of the same name. The garbage collector deletes such an object.
fn is_orphan(owners: &[OwnerReference], name: &str) -> bool {
    owners.iter().any(|owner| owner.kind == ClosedLoop::kind(&()) && owner.name == name)
}
