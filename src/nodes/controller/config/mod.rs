//! NodeConfig controller: polls the sources of nodes, and reports the values in the status.
//!
//! | step | content |
//! |---|---|
//! | observe | the NodeConfig, its node, other NodeConfigs of that node |
//! | plan | `ganglion_nodes_plan::node_plan`: parsed spec, and whether it may be measured |
//! | act | registers the polls (`polls`); a reconcile itself sends no request |
//! | background | polls, which record their results (`polled`) and enqueue the object if its status is worth a write |
//! | report | the status, if it is worth a write (`report`) |
//!
//! All state may be lost: the values of an earlier process are in the status, and their age counts from the restart at
//! the latest.

mod polled;
mod polls;
mod report;

use std::sync::Arc;

use ganglion_api::marks;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_core::definitions::GuardProblem;
use ganglion_core::facts::Key;
use ganglion_core::namespaces::Namespaces;
use ganglion_core::world::Fact;
use ganglion_nodes_plan::news::WriteRule;
use ganglion_nodes_plan::node_plan::NodePlan;
use ganglion_outbound::client::OutboundClient;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::frame::{Memories, Next, Reconciler};
use ganglion_runtime::polls::{PollLimits, PollSet, run};
use ganglion_runtime::status::{StatusMethod, StatusWriter};
pub use polled::PollKey;
pub use polled::PolledNodes;

const STATUS: StatusWriter = StatusWriter {
    manager: marks::NODE_CONFIG_STATUS_MANAGER,
    effect: "RecordNodeConfig",
    invalid: NodeReason::InvalidObject.as_str(),
    method: StatusMethod::Update,
    observes_generation: true,
};

/// Controller and its dependencies.
pub struct NodeConfigController {
    pub ctx: Context,
    pub namespaces: Namespaces,
    pub outbound: Arc<OutboundClient>,
    pub rule: WriteRule,
    pub polls: Arc<PollSet<PollKey>>,
    /// Plans and results of polls. Polls change them while objects are reconciled, so they are not in `memories`.
    pub polled: PolledNodes,
    pub memories: Memories<()>,
}

/// Input of a plan.
pub struct ObservedNode {
    object: Arc<NodeConfig>,
    node_exists: bool,
    /// Other NodeConfigs of the node.
    others: Vec<Arc<NodeConfig>>,
}

impl Reconciler for NodeConfigController {
    type Kind = NodeConfig;
    type Memory = ();
    type Observed = ObservedNode;
    type Plan = NodePlan;
    type Done = ();
    const NAME: &'static str = "node-config";

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn memories(&self) -> &Memories<()> {
        &self.memories
    }

    async fn unreadable(&self, key: &Key) -> Option<Result<(), Error>> {
        STATUS.report_unreadable::<NodeConfig>(&self.ctx, key).await
    }

    async fn unguarded(&self, key: &Key, problem: &GuardProblem) -> Result<(), Error> {
        STATUS.report_unguarded::<NodeConfig>(&self.ctx, key, problem).await
    }

    fn observe(self: &Arc<Self>, key: &Key, (): &mut ()) -> Option<ObservedNode> {
        self.ctx.store.read(|world| {
            let object = world.table::<NodeConfig>().get(key)?;
            if object.metadata.deletion_timestamp.is_some() {
                return None;
            }
            let node = &object.spec.node_name;
            Some(ObservedNode {
                object: Arc::clone(object),
                node_exists: world.node(node).is_some(),
                others: world.node_configs_of(node).cloned().collect(),
            })
        })
    }

    fn plan(&self, observed: &ObservedNode, (): &mut ()) -> NodePlan {
        let others = observed.others.iter().map(|other| &**other);
        NodePlan::new(&observed.object, self.namespaces, observed.node_exists, others)
    }

    /// Updates the metric series and the polls to match the plan. Sends no request.
    async fn act(self: &Arc<Self>, observed: &ObservedNode, plan: &NodePlan, (): &mut ()) -> Result<(), Error> {
        let key = observed.object.id().key;
        let series = plan.metric_series();
        self.ctx.metrics.node_values.keep(&key.to_string(), series.node, &series.values);
        self.polled.update_plan(&key, &observed.object, plan, self.rule.heartbeat, self.ctx.now());
        self.sync_polls(&key);
        Ok(())
    }

    async fn report(
        self: &Arc<Self>,
        observed: &ObservedNode,
        _: &NodePlan,
        _: Result<&(), &Error>,
        (): &mut (),
    ) -> Result<Next, Error> {
        self.report_status(&observed.object).await
    }

    fn forget(&self, key: &Key) {
        self.remove_polls(key);
        self.polled.forget(key);
        self.ctx.metrics.node_values.remove(&key.to_string());
    }
}

/// Runs the polls until the leader term ends.
pub async fn run_polls(controller: Arc<NodeConfigController>, limits: PollLimits) {
    let (polls, ctx) = (Arc::clone(&controller.polls), controller.ctx.clone());
    let until = async {
        tokio::select! {
            () = ctx.writer.fenced() => {}
            () = ctx.stop.cancelled() => {}
        }
    };
    run(controller, polls, limits, until).await;
}
