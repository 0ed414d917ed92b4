//! NodeConfigTemplate controller: creates, updates and deletes the NodeConfigs of a template, and reports their state.
//!
//! | step | content |
//! |---|---|
//! | observe | nodes and NodeConfigs from the store; skipped if none of them changed since the last plan |
//! | plan | `ganglion_nodes_plan::template`: renders for the nodes that changed |
//! | act | writes some hundred NodeConfigs per reconcile, several at once (`act`) |
//! | report | status of the template, at most once a second (`report`) |
//!
//! The garbage collector deletes the NodeConfigs of a deleted template through their owner references. All state in
//! memory may be lost.

use ganglion_core::definitions::GuardProblem;
use ganglion_nodes_plan::world::{Edition, NodesWorld};
mod act;
mod report;

use std::sync::Arc;

use jiff::Timestamp;

use ganglion_api::marks;
use ganglion_api::node_config::NodeConfigTemplate;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_core::facts::{Key, Uid};
use ganglion_core::namespaces::Namespaces;
use ganglion_nodes_plan::template::parsed::{ParsedTemplate, Rejection};
use ganglion_nodes_plan::template::plan::{Observed, Renders, TemplatePlan, observe, plan};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::frame::{Memories, Next, Reconciler};
use ganglion_runtime::status::{StatusMethod, StatusWriter};

const STATUS: StatusWriter = StatusWriter {
    manager: marks::TEMPLATE_STATUS_MANAGER,
    effect: "RecordTemplate",
    invalid: NodeReason::InvalidObject.as_str(),
    method: StatusMethod::Update,
    observes_generation: true,
};

/// Controller and its dependencies.
pub struct NodeConfigTemplateController {
    pub ctx: Context,
    pub namespaces: Namespaces,
    /// Maximum number of concurrent writes per template.
    pub concurrency: usize,
    pub memories: Memories<TemplateMemory>,
}

/// In-memory state of one template.
#[derive(Default)]
pub struct TemplateMemory {
    /// Generation that the state belongs to.
    generation: Option<i64>,
    parsed: Option<Arc<Result<ParsedTemplate, Rejection>>>,
    renders: Renders,
    /// Last plan if it needed no write, and the edition of the store that it is based on.
    settled: Option<(Edition, Arc<TemplatePlan>)>,
    /// Time at which the NodeConfigs were last counted for the status.
    counted_at: Option<Timestamp>,
    /// Time since which writes are pending.
    busy_since: Option<Timestamp>,
}

/// Input of a plan.
pub struct ObservedTemplate {
    template: Arc<NodeConfigTemplate>,
    parsed: Arc<Result<ParsedTemplate, Rejection>>,
    edition: Edition,
    /// Nodes and NodeConfigs; None if nothing changed that the last plan depends on.
    nodes: Option<Observed>,
}

/// Decision about a template.
pub enum TemplateDecision {
    /// The template is rejected as a whole: nothing is written but the status.
    Reject(Rejection),
    Apply(Arc<TemplatePlan>),
}

impl Reconciler for NodeConfigTemplateController {
    type Kind = NodeConfigTemplate;
    type Memory = TemplateMemory;
    type Observed = ObservedTemplate;
    type Plan = TemplateDecision;
    type Done = ();
    const NAME: &'static str = "node-config-template";

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn memories(&self) -> &Memories<TemplateMemory> {
        &self.memories
    }

    async fn unreadable(&self, key: &Key) -> Option<Result<(), Error>> {
        STATUS.report_unreadable::<NodeConfigTemplate>(&self.ctx, key).await
    }

    async fn unguarded(&self, key: &Key, problem: &GuardProblem) -> Result<(), Error> {
        STATUS.report_unguarded::<NodeConfigTemplate>(&self.ctx, key, problem).await
    }

    fn observe(self: &Arc<Self>, key: &Key, memory: &mut TemplateMemory) -> Option<ObservedTemplate> {
        let template = self.ctx.store.read(|world| world.table::<NodeConfigTemplate>().get(key).cloned())?;
        if template.metadata.deletion_timestamp.is_some() {
            return None;
        }
        if memory.generation != template.metadata.generation {
            *memory = TemplateMemory { generation: template.metadata.generation, ..TemplateMemory::default() };
        }
        let parse = || Arc::new(ParsedTemplate::parse(&template, self.namespaces));
        let parsed = Arc::clone(memory.parsed.get_or_insert_with(parse));
        let uid = Uid::of(&template.metadata);
        // Read before the facts: a change in between causes another reconcile.
        let edition = self.ctx.store.read(|world| world.edition(&uid));
        let is_current = memory.settled.as_ref().is_some_and(|(planned, plan)| !is_outdated(*planned, edition, plan));
        let nodes = match &*parsed {
            Ok(parsed) if !is_current => Some(self.ctx.store.read(|world| observe(world, &template, &parsed.selector))),
            Ok(_) | Err(_) => None,
        };
        Some(ObservedTemplate { template, parsed, edition, nodes })
    }

    fn plan(&self, observed: &ObservedTemplate, memory: &mut TemplateMemory) -> TemplateDecision {
        let parsed = match &*observed.parsed {
            Ok(parsed) => parsed,
            Err(rejection) => return TemplateDecision::Reject(rejection.clone()),
        };
        let nodes = match (&observed.nodes, &memory.settled) {
            (None, Some((_, settled))) => return TemplateDecision::Apply(Arc::clone(settled)),
            (nodes, _) => nodes.clone().unwrap_or_default(),
        };
        let planned = Arc::new(plan(&observed.template, &nodes, &parsed.compiled, &mut memory.renders));
        memory.settled = planned.is_settled().then(|| (observed.edition, Arc::clone(&planned)));
        TemplateDecision::Apply(planned)
    }

    async fn act(
        self: &Arc<Self>,
        observed: &ObservedTemplate,
        plan: &TemplateDecision,
        memory: &mut TemplateMemory,
    ) -> Result<(), Error> {
        match plan {
            TemplateDecision::Reject(_) => Ok(()),
            TemplateDecision::Apply(plan) if plan.is_settled() => {
                memory.busy_since = None;
                Ok(())
            }
            TemplateDecision::Apply(plan) => {
                let written = act::write_all(&self.ctx, &observed.template, &plan.writes, self.concurrency).await;
                memory.busy_since.get_or_insert(self.ctx.now());
                written
            }
        }
    }

    async fn report(
        self: &Arc<Self>,
        observed: &ObservedTemplate,
        plan: &TemplateDecision,
        done: Result<&(), &Error>,
        memory: &mut TemplateMemory,
    ) -> Result<Next, Error> {
        match plan {
            TemplateDecision::Reject(rejection) => {
                report::report_rejected(&self.ctx, &observed.template, rejection).await
            }
            TemplateDecision::Apply(plan) => {
                let failure = done.err().map(report::why);
                report::report_plan(&self.ctx, &observed.template, plan, failure.as_deref(), memory).await
            }
        }
    }
}

/// Whether a plan of the current edition may differ from `plan`, which needed no write.
fn is_outdated(planned: Edition, now: Edition, plan: &TemplatePlan) -> bool {
    (planned.nodes, planned.configs) != (now.nodes, now.configs)
        // A taken name may be free now, and a NodeConfig of a deleted template of the same name may be deleted.
        || (planned.names != now.names && plan.current < plan.nodes)
}
