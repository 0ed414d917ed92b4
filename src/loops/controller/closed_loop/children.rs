//! The children of a loop: their specs, owner references and finalizers.
//!
//! Restores what others change. Leaves an object alone if it has the name of a child and belongs to somebody else.
//! Never writes `Monitoring.spec.sample` or the loop's spec.

use std::collections::HashSet;
use std::sync::Arc;

use kube::ResourceExt;
use kube::core::object::HasSpec;
use serde::Serialize;

use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::{Decision, DecisionSpec};
use ganglion_api::execution::{Execution, ExecutionSpec};
use ganglion_api::marks;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec};
use ganglion_core::facts::Uid;
use ganglion_core::world::Fact;
use ganglion_loops_plan::children::{ChildStanding, is_said, standing};
use ganglion_loops_plan::validate::assessment::Assessment;
use ganglion_loops_plan::world::Family;
use ganglion_runtime::children::{ChildWriter, OwnerDeletion, has_foreign_finalizers, owned_by};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::writer::Kube;

/// The children of one loop as this process knows them.
#[derive(Default)]
pub struct KnownChildren {
    /// uids of objects that the loop has owned. Others can remove its owner reference.
    owned: HashSet<Uid>,
}

/// Result of a reconcile of the children.
#[derive(Default)]
pub struct ReconciledChildren {
    /// Names an object that has the name of a child and belongs to somebody else, if there is one.
    pub not_owned: Option<String>,
    /// Children that were written, and what differed, such as `Monitoring web (spec, finalizers)`.
    pub written: Vec<String>,
}

/// Creates or updates the children.
pub async fn reconcile(
    ctx: &Context,
    family: &Family,
    assessment: &Assessment,
    known: &mut KnownChildren,
) -> Result<ReconciledChildren, Error> {
    let mut done = ReconciledChildren::default();
    let name = family.parent.name_any();
    if !assessment.can_have_children(&name) || (family.is_childless() && !assessment.creates_children()) {
        return Ok(done);
    }
    let (parent, children) = (&*family.parent, &assessment.children);
    let mut owned = HashSet::new();
    let mut writer = ChildrenWriter { ctx, parent, known: &known.owned, owned: &mut owned, done: &mut done };
    writer.reconcile(family.monitoring.as_ref(), &children.monitoring).await?;
    writer.reconcile(family.decision.as_ref(), &children.decision).await?;
    writer.reconcile(family.execution.as_ref(), &children.execution).await?;
    known.owned = owned;
    Ok(done)
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
        is_said(&self.spec, spec)
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

/// Writes the children of one loop.
struct ChildrenWriter<'a> {
    ctx: &'a Context,
    parent: &'a ClosedLoop,
    known: &'a HashSet<Uid>,
    owned: &'a mut HashSet<Uid>,
    done: &'a mut ReconciledChildren,
}

impl ChildrenWriter<'_> {
    /// Creates or updates one child.
    async fn reconcile<K: Child>(&mut self, stored: Option<&Arc<K>>, spec: &K::Spec) -> Result<(), Error> {
        let (ctx, parent, name) = (self.ctx, self.parent, self.parent.name_any());
        let labels = [(marks::LOOP.to_owned(), name.clone())].into();
        let desired = owned_by(parent, OwnerDeletion::DoesNotWait, labels, <K as Child>::new(&name, spec.clone()));
        let writer = ChildWriter {
            manager: marks::LOOP_MANAGER,
            create: K::EFFECT,
            update: K::EFFECT,
            others: K::OTHERS,
            restores_metadata: true,
        };
        let Some(stored) = stored else { return writer.create::<ClosedLoop, K>(ctx, &desired).await };
        let uid = Uid::of(stored.meta());
        let standing = standing(stored.meta(), &parent.metadata, self.known.contains(&uid));
        let is_terminating = stored.meta().deletion_timestamp.is_some();
        match standing {
            ChildStanding::Owned | ChildStanding::Damaged => {
                self.owned.insert(uid);
            }
            ChildStanding::Orphan => return writer.drop_finalizers::<ClosedLoop, K>(ctx, stored).await,
            ChildStanding::Foreign => {
                let kind = K::KIND;
                let message =
                    format!("{kind} {name} exists and does not belong to this loop: delete it, or rename the loop");
                self.done.not_owned.get_or_insert(message);
                return Ok(());
            }
        }
        if is_terminating {
            return writer.drop_finalizers::<ClosedLoop, K>(ctx, stored).await;
        }
        let differs = [
            ("spec", !stored.has(spec)),
            ("labels", stored.labels().get(marks::LOOP) != Some(&name)),
            ("owner references", stored.owner_references() != desired.owner_references()),
            ("finalizers", has_foreign_finalizers(&**stored)),
        ];
        let differs: Vec<&str> = differs.into_iter().filter_map(|(what, is)| is.then_some(what)).collect();
        if !differs.is_empty() {
            writer.update::<ClosedLoop, K>(ctx, stored, &desired).await?;
            self.done.written.push(format!("{} {name} ({})", K::KIND, differs.join(", ")));
        }
        Ok(())
    }
}
