//! NodeConfig controller: polls the sources of nodes, and reports the values in the status.
//!
//! | step | content |
//! |---|---|
//! | observe | the NodeConfig, its node, other NodeConfigs of that node |
//! | plan | [`ganglion_nodes_plan`]: parsed spec, and whether it may be measured |
//! | act | registers the polls (`polls`); a pass itself sends no request |
//! | background | polls, which put their results into the memory (`memory`) |
//! | report | the status, if it is worth a write (`report`) |
//!
//! The memory may be lost: the values of an earlier process are in the status, and are not fresh until they are
//! measured again.

mod events;
mod keys;
mod memory;
mod polls;
mod report;

use std::sync::Arc;

use jiff::Timestamp;

use ganglion_api::marks;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::node_config::status::NodeValue;
use ganglion_core::facts::Key;
use ganglion_core::namespaces::Namespaces;
use ganglion_nodes_plan::asked::Asked;
use ganglion_nodes_plan::news::WriteRule;
use ganglion_nodes_plan::standing::Standing;
use ganglion_outbound::client::OutboundClient;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::invalid::{self, StatusWrite};
use ganglion_runtime::polls::{PollLimits, PollSet, run};
use ganglion_runtime::run::{Controller, ReconcileResult};
pub use keys::PollKey;
pub use memory::NodeConfigMemory;
use memory::SeenConfig;

/// Controller and its dependencies.
pub struct NodeConfigController {
    pub ctx: Context,
    pub namespaces: Namespaces,
    pub outbound: Arc<OutboundClient>,
    pub rule: WriteRule,
    pub polls: Arc<PollSet<PollKey>>,
    pub memory: NodeConfigMemory,
}

impl Controller for NodeConfigController {
    type Kind = NodeConfig;
    const NAME: &'static str = "node-config";

    async fn reconcile(self: Arc<Self>, key: Key) -> ReconcileResult {
        let (reason, by) =
            (NodeReason::InvalidObject.as_str(), (marks::NODE_CONFIG_STATUS_MANAGER, StatusWrite::Update));
        if let Some(done) = invalid::pass::<NodeConfig>(&self.ctx, &key, reason, by).await {
            self.forget(&key);
            return done;
        }
        let Some(observed) = self.observe(&key) else {
            self.forget(&key);
            return self.ctx.finish(Ok(None));
        };
        let done = self.pass(&key, &observed).await;
        self.ctx.finish(done)
    }
}

/// Input of a pass.
struct Observed {
    object: Arc<NodeConfig>,
    standing: Standing,
}

impl NodeConfigController {
    fn observe(&self, key: &Key) -> Option<Observed> {
        let alive = |object: &&Arc<NodeConfig>| object.metadata.deletion_timestamp.is_none();
        self.ctx.store.read(|world| {
            let object = world.node_config(key).filter(alive)?;
            let node = &object.spec.node_name;
            let others = world.node_configs_of(node).map(|other| &**other);
            let standing = Standing::of(object, self.namespaces, world.node(node).is_some(), others);
            Some(Observed { object: Arc::clone(object), standing })
        })
    }

    /// Updates the polls to match the spec, and reports. Returns the time of the next pass.
    async fn pass(&self, key: &Key, observed: &Observed) -> Result<Option<Timestamp>, Error> {
        let asked = Asked::parse(&observed.object.spec);
        let (node, shown) = shown(asked.as_ref().ok(), &observed.standing);
        self.ctx.metrics.node_values.keep(&key.to_string(), node, &shown);
        let watched = SeenConfig { asked: asked.clone(), standing: observed.standing.clone() };
        self.memory.watch(key, &observed.object, watched, self.ctx.now());
        self.keep_polls(key);
        self.report(key, &observed.object).await
    }

    /// Discards the state of an object that is deleted or invalid.
    fn forget(&self, key: &Key) {
        self.drop_polls(key);
        self.memory.forget(key);
        self.ctx.metrics.node_values.remove(&key.to_string());
    }
}

/// Node and values whose metric series are kept. If the NodeConfig is suspended or its node is missing, the series
/// become stale.
fn shown<'a>(asked: Option<&'a Asked>, standing: &Standing) -> (&'a str, Vec<&'static str>) {
    let asked = asked.filter(|_| !matches!(standing, Standing::Conflict(_) | Standing::NamespaceRefused(_)));
    asked.map_or(("", Vec::new()), |asked| (asked.node.as_str(), asked.values().map(NodeValue::as_str).collect()))
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
