//! Sources that are read from the store: statuses of NodeConfigs (`nodeConfig`), decisions of other loops (`loop`), and
//! the target's number of replicas, which formulas read. A change of a NodeConfig enqueues the loops that read it; the
//! replicas are read when something else has a new value.
//!
//! For NodeConfigs of another namespace, the loop's account must be allowed to list them there. The answer of the API
//! server is cached for some minutes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::ResourceAttributes;

use super::sources::PolledValues;
use ganglion_api::GROUP;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::metric::{LoopHistory, NodeConfigField};
use ganglion_api::decision::DecisionStatus;
use ganglion_api::marks;
use ganglion_api::monitoring::{LastServed, Monitoring, MonitoringSpec, MonitoringStatus};
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_core::facts::{DeploymentFact, Key, ReplicaSetFact, StatefulSetFact};
use ganglion_core::names::DEFAULT_ACCOUNT;
use ganglion_core::world::{Fact, World};
use ganglion_loops_plan::decision::{Executor, settlement};
use ganglion_loops_plan::monitoring::{Measurement, SourceResult, formula};
use ganglion_loops_plan::sources::{self, SelectableNode};
use ganglion_loops_plan::tuning::{effective_policy, last_served};
use ganglion_loops_plan::world::{Family, LoopsWorld};
use ganglion_runtime::account::{Account, AccountId};
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::permissions::{OfTenant, Permission, PermissionCache, RECHECKED_AFTER};

const NOT_CHECKED: &str = "it is not known yet whether the loop may read NodeConfigs of that namespace";

/// Cached permissions of accounts to list the NodeConfigs of other namespaces.
pub type NodeAccess = PermissionCache<NodeConfigReader>;

/// Account, and the namespace whose NodeConfigs it reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeConfigReader {
    account: AccountId,
    namespace: String,
}

impl OfTenant for NodeConfigReader {
    fn tenant(&self) -> &str {
        self.account.tenant()
    }
}

/// Checks whether the account may list the NodeConfigs of this namespace.
async fn permission(ctx: &Context, access: &NodeAccess, account: &Account, namespace: &str) -> Permission {
    let reader = NodeConfigReader { account: account.id(), namespace: namespace.to_owned() };
    let checked = access.check(ctx.clock, reader, may_list(account, namespace)).await;
    checked.unwrap_or_else(|error| Permission {
        refusal: Some(format!("{NOT_CHECKED}: {error}")),
        expires: ctx.now() + RECHECKED_AFTER,
    })
}

/// Requests the permission from the API server.
async fn may_list(account: &Account, namespace: &str) -> Result<(), Error> {
    let attributes = ResourceAttributes {
        verb: Some("list".to_owned()),
        group: Some(GROUP.to_owned()),
        resource: Some("nodeconfigs".to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    match account.may(attributes).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Forbidden(format!(
            "service account {} of namespace {} may not list nodeconfigs in namespace {namespace}: \
             grant it the role view there",
            account.name, account.namespace
        ))),
        Err(Error::Forbidden(refused)) => Err(Error::Forbidden(account.refusal_message(&refused))),
        Err(error) => Err(error),
    }
}

/// Metrics with a source `nodeConfig`.
fn node_sources(spec: &MonitoringSpec) -> impl Iterator<Item = (&String, &NodeConfigField)> {
    let metrics = spec.metrics.iter().filter(|_| !spec.paused);
    metrics.filter_map(|metric| Some((&metric.name, metric.source.node_config.as_ref()?)))
}

/// Whether the account of one loop may read the NodeConfigs of other namespaces, by namespace.
#[derive(Default)]
pub struct NodePermissions(BTreeMap<String, Permission>);

impl NodePermissions {
    /// Time at which the permissions are checked again. No change of a NodeConfig triggers that.
    pub fn expire_at(&self) -> Option<Timestamp> {
        self.0.values().map(|permission| permission.expires).min()
    }
}

/// Returns the permissions that the sources `nodeConfig` of this Monitoring need.
pub async fn node_permissions(ctx: &Context, access: &NodeAccess, object: &Monitoring) -> NodePermissions {
    let own_namespace = object.id().key.namespace;
    let account = Account {
        writer: ctx.writer.clone(),
        namespace: own_namespace.clone(),
        name: object.spec.service_account_name.clone().unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned()),
        manager: marks::MONITORING_STATUS_MANAGER,
    };
    let mut permissions = BTreeMap::new();
    for (_, source) in node_sources(&object.spec) {
        let Some(namespace) = source.namespace.as_ref().filter(|namespace| **namespace != own_namespace) else {
            continue;
        };
        permissions.insert(namespace.clone(), permission(ctx, access, &account, namespace).await);
    }
    NodePermissions(permissions)
}

/// Reads all sources `nodeConfig`: values by metric. Empty if no metric has such a source.
pub fn node_values(ctx: &Context, permissions: &NodePermissions, object: &Monitoring) -> PolledValues {
    let own_namespace = object.id().key.namespace;
    let mut values = BTreeMap::new();
    for (metric, source) in node_sources(&object.spec) {
        let namespace = source.namespace.as_deref().unwrap_or(&own_namespace);
        let value = match permissions.0.get(namespace) {
            Some(Permission { refusal: Some(refusal), .. }) => Err(refusal.clone()),
            Some(Permission { refusal: None, .. }) => {
                ctx.store.read(|world| node_value(world, source, namespace, ctx.now()))
            }
            None if namespace == own_namespace => {
                ctx.store.read(|world| node_value(world, source, namespace, ctx.now()))
            }
            // The spec has changed since the permissions were read; the change enqueues the loop.
            None => Err(NOT_CHECKED.to_owned()),
        };
        values.insert(metric.clone(), value);
    }
    values
}

fn node_value(world: &World, source: &NodeConfigField, namespace: &str, now: Timestamp) -> SourceResult {
    let named = source.node_name.iter().filter_map(|name| world.node(name));
    let all = world.nodes().filter(|_| source.node_name.is_none());
    let nodes = named.chain(all).map(|node| {
        let name = node.name();
        let here =
            world.node_configs_of(&name).filter(|config| config.metadata.namespace.as_deref() == Some(namespace));
        // If two NodeConfigs are for one node, only the older one has values.
        let status = here.filter_map(|config| config.status.as_ref()).max_by_key(|status| status.sampled_at.as_ref());
        SelectableNode { name, labels: &node.labels, status }
    });
    sources::node_value(source, nodes, now)
}

/// Reads the number of replicas of the loop's target; None if the target does not exist.
pub fn target_replicas(ctx: &Context, object: &Monitoring) -> Option<i32> {
    let target = object.spec.target.as_ref()?;
    let key = Key::new(object.id().key.namespace, target.name.as_str());
    ctx.store.read(|world| replicas_of(world, &key, target))
}

/// Reads the number of replicas of a target from the store. Kinds: see [`formula::has_replicas`].
pub fn replicas_of(world: &World, key: &Key, target: &TargetRef) -> Option<i32> {
    if !formula::has_replicas(target) {
        return None;
    }
    match target.kind.as_str() {
        "Deployment" => world.get::<DeploymentFact>(key).map(|fact| fact.scale.replicas),
        "ReplicaSet" => world.get::<ReplicaSetFact>(key).map(|fact| fact.scale.replicas),
        "StatefulSet" => world.get::<StatefulSetFact>(key).map(|fact| fact.set.scale.replicas),
        "SwarmPool" => world.get::<SwarmPool>(key).and_then(|pool| pool.spec.replicas),
        _ => None,
    }
}

/// Evaluates the sources `loop` of the metrics; None if no metric has one.
pub fn loop_values(ctx: &Context, object: &Monitoring, before: &MonitoringStatus) -> Option<Measurement> {
    let target = object.spec.target.as_ref().map(|target| target.name.as_str()).unwrap_or_default();
    let mut measurement = Measurement::default();
    for metric in &object.spec.metrics {
        let Some(source) = &metric.source.loop_ else { continue };
        let name = source.name.as_deref().unwrap_or(target);
        let key = Key::new(object.id().key.namespace, name);
        let family = ctx.store.read(|world| world.family(&key));
        let Some(decisions) = family.and_then(|family| LoopDecisions::of_loop(family, ctx.now())) else {
            measurement.values.insert(metric.name.clone(), Err(format!("there is no loop {name} with a Decision")));
            continue;
        };
        let previous = before.last_served.iter().find(|last| last.metric == metric.name);
        let least_served = decisions.least_served(&metric.name, source, previous);
        measurement.values.insert(metric.name.clone(), Ok(last_served::imbalance(&least_served).to_string().into()));
        measurement.last_served.push((metric.name.clone(), least_served));
    }
    (!measurement.values.is_empty()).then_some(measurement)
}

/// Decisions of a loop.
struct LoopDecisions {
    /// Effective rank of its metrics. Includes tuning that the loop may not have applied yet.
    rank: Vec<String>,
    /// Status of its Decision.
    status: DecisionStatus,
}

impl LoopDecisions {
    /// None if the loop has no Decision.
    fn of_loop(family: Family, now: Timestamp) -> Option<Self> {
        let family = family.own();
        let decision = family.decision?;
        let executor = family.execution.as_deref().and_then(Executor::from_execution);
        let status = family.parent.status.clone().unwrap_or_default();
        let policy = effective_policy::effective(&family.parent.spec, &status.tuning, status.effective.as_ref(), now);
        let rank = policy.map_or_else(|_| decision.spec.rank.clone(), |policy| policy.rank);
        Some(Self { rank, status: settlement::with_outcome(decision.status.as_ref()?, executor, now) })
    }

    fn least_served(&self, metric: &str, source: &LoopHistory, previous: Option<&LastServed>) -> LastServed {
        let window = source.window.map_or(last_served::DEFAULT_WINDOW, i64::from);
        last_served::find_least_served(metric, previous, &self.rank, &self.status, window)
    }
}
