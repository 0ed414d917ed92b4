//! NodeConfigTemplate controller: creates, updates and deletes the NodeConfigs of a template, and reports their state.
//!
//! | step | content |
//! |---|---|
//! | observe | nodes and NodeConfigs from the store; skipped if none of them changed since the last pass |
//! | plan | [`ganglion_nodes_plan::template`]: renders for the nodes that changed |
//! | act | writes some hundred NodeConfigs per pass, several at once (`act`) |
//! | report | status of the template, at most once a second (`report`) |
//!
//! The garbage collector deletes the NodeConfigs of a deleted template through their owner references. All state in
//! memory may be lost.

mod act;
mod report;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use ganglion_api::marks;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::template::NodeConfigTemplate;
use ganglion_core::facts::{Key, Selector};
use ganglion_core::namespaces::Namespaces;
use ganglion_core::world::nodes::Edition;
use ganglion_nodes_plan::template::plan::{Renders, TemplatePlan, observe, plan};
use ganglion_nodes_plan::template::{Compiled, compile, selector};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::invalid::{self, StatusWrite};
use ganglion_runtime::run::{Controller, ReconcileResult};

/// Controller and its dependencies.
pub struct NodeConfigTemplateController {
    pub ctx: Context,
    pub namespaces: Namespaces,
    /// Maximum number of concurrent writes per template.
    pub concurrency: usize,
    pub memory: TemplateMemory,
}

/// State between two passes, by template.
#[derive(Default)]
pub struct TemplateMemory(Mutex<HashMap<Key, Memory>>);

/// State of one template.
struct Memory {
    /// uid and generation of the template that the state belongs to.
    of: (Option<String>, Option<i64>),
    parsed: Result<Parsed, Refusal>,
    renders: Renders,
    /// Last plan, and the edition of the store that it is based on.
    plan: Option<(Edition, TemplatePlan)>,
    /// Time at which the NodeConfigs were last counted for the status.
    counted_at: Option<Timestamp>,
    /// Time since which writes are pending.
    busy_since: Option<Timestamp>,
}

/// Parsed template.
struct Parsed {
    selector: Selector,
    compiled: Compiled,
}

/// Why a template is rejected as a whole.
#[derive(Clone)]
struct Refusal {
    reason: NodeReason,
    message: String,
}

impl TemplateMemory {
    fn templates(&self) -> MutexGuard<'_, HashMap<Key, Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for NodeConfigTemplateController {
    type Kind = NodeConfigTemplate;
    const NAME: &'static str = "node-config-template";

    async fn reconcile(self: Arc<Self>, key: Key) -> ReconcileResult {
        let (reason, by) = (NodeReason::InvalidObject.as_str(), (marks::TEMPLATE_STATUS_MANAGER, StatusWrite::Update));
        if let Some(done) = invalid::pass::<NodeConfigTemplate>(&self.ctx, &key, reason, by).await {
            return done;
        }
        let known = self.memory.templates().remove(&key);
        let found = self.ctx.store.read(|world| world.table::<NodeConfigTemplate>().get(&key).cloned());
        let Some(template) = found.filter(|one| one.metadata.deletion_timestamp.is_none()) else {
            return self.ctx.finish(Ok(None));
        };
        let of = (template.metadata.uid.clone(), template.metadata.generation);
        let mut memory = known.filter(|known| known.of == of).unwrap_or_else(|| self.begin(&template));
        let done = self.keep(&template, &mut memory).await;
        self.memory.templates().insert(key, memory);
        self.ctx.finish(done)
    }
}

impl NodeConfigTemplateController {
    /// Parses a new or changed template.
    fn begin(&self, template: &NodeConfigTemplate) -> Memory {
        let namespace = template.metadata.namespace.as_deref().unwrap_or_default();
        let refused = |reason| move |message| Refusal { reason, message };
        let parsed = self
            .namespaces
            .refusal(namespace)
            .map_or(Ok(()), |message| Err(Refusal { reason: NodeReason::NamespaceRefused, message }));
        let parsed = parsed.and_then(|()| {
            let selector = selector::parse(&template.spec.node_selector).map_err(refused(NodeReason::SpecInvalid))?;
            let compiled = compile(&template.spec.template)
                .map_err(|error| refused(NodeReason::TemplateInvalid)(error.to_string()))?;
            Ok(Parsed { selector, compiled })
        });
        Memory {
            of: (template.metadata.uid.clone(), template.metadata.generation),
            parsed,
            renders: Renders::default(),
            plan: None,
            counted_at: None,
            busy_since: None,
        }
    }

    /// Runs one pass. Returns the time of the next.
    async fn keep(&self, template: &Arc<NodeConfigTemplate>, memory: &mut Memory) -> Result<Option<Timestamp>, Error> {
        let parsed = match &memory.parsed {
            Ok(parsed) => parsed,
            Err(refusal) => {
                let refusal = refusal.clone();
                return report::refuse(&self.ctx, template, refusal.reason, refusal.message).await;
            }
        };
        let uid = template.metadata.uid.as_deref().unwrap_or_default();
        // Read before the facts: a change in between causes another pass.
        let edition = self.ctx.store.read(|world| world.edition(uid));
        let is_news = |(planned, plan): &(Edition, TemplatePlan)| is_news(*planned, edition, plan);
        if memory.plan.as_ref().is_none_or(is_news) {
            let observed = self.ctx.store.read(|world| observe(world, template, &parsed.selector));
            let planned = plan(template, &observed, &parsed.compiled, &mut memory.renders);
            memory.plan = Some((edition, planned));
        }
        let Some((_, planned)) = &memory.plan else { return Ok(None) };
        if planned.is_settled() {
            memory.busy_since = None;
            return report::write(&self.ctx, template, memory, None).await;
        }
        let acted = act::write_all(&self.ctx, template, &planned.writes, self.concurrency).await;
        let now = self.ctx.now();
        memory.busy_since.get_or_insert(now);
        let failure = acted.as_ref().err().map(Error::reason);
        let reported = report::write(&self.ctx, template, memory, failure).await;
        // Plan again even if the only changes are the answers to the writes.
        memory.plan = None;
        acted?;
        reported.map(|_| Some(now))
    }
}

/// Whether a plan of the current edition may differ from `plan`.
fn is_news(planned: Edition, now: Edition, plan: &TemplatePlan) -> bool {
    !plan.is_settled()
        || (planned.nodes, planned.configs) != (now.nodes, now.configs)
        // A taken name may be free now, and a NodeConfig of a deleted template of the same name may be deleted.
        || (planned.names != now.names && plan.current < plan.nodes)
}
