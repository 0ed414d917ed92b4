//! Sources that are read from the store: statuses of NodeConfigs (`nodeConfig`), decisions of other loops (`loop`), and
//! the target's number of replicas, which formulas read. A change of a NodeConfig enqueues the loops that read it; the
//! replicas are read when something else has a new value.
//!
//! The loop's account must be allowed to list NodeConfigs of another namespace there, and to get the target whose
//! replicas a formula reads. The answer of the API server is cached for some minutes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::ResourceAttributes;

use super::sources::PolledValues;
use ganglion_api::GROUP;
use ganglion_api::closed_loop::TargetRef;
use ganglion_api::closed_loop::metric::{LoopHistory, NodeConfigField};
use ganglion_api::decision::DecisionStatus;
use ganglion_api::execution::ExecutionStatus;
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

const NOT_CHECKED: &str = "it is not known yet whether the loop may read it";

/// Cached permissions of accounts to read objects that the operator has in its caches.
pub type SourceAccess = PermissionCache<RightHolder>;

/// Account, and what it reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RightHolder {
    account: AccountId,
    right: ReadRight,
}

/// Right to list the objects of a namespace, or to get one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReadRight {
    group: &'static str,
    resource: &'static str,
    namespace: String,
    /// Object to get. None: the right to list all.
    name: Option<String>,
}

impl ReadRight {
    fn verb(&self) -> &'static str {
        if self.name.is_some() { "get" } else { "list" }
    }
}

impl OfTenant for RightHolder {
    fn tenant(&self) -> &str {
        self.account.tenant()
    }
}

/// Checks whether the account has this right.
async fn permission(ctx: &Context, access: &SourceAccess, account: &Account, right: ReadRight) -> Permission {
    let reader = RightHolder { account: account.id(), right: right.clone() };
    let checked = access.check(ctx.clock, reader, may_read(account, right)).await;
    checked.unwrap_or_else(|error| Permission {
        refusal: Some(format!("{NOT_CHECKED}: {error}")),
        expires: ctx.now() + RECHECKED_AFTER,
    })
}

/// Requests the permission from the API server.
async fn may_read(account: &Account, right: ReadRight) -> Result<(), Error> {
    let verb = right.verb();
    let ReadRight { group, resource, namespace, name } = right;
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        namespace: Some(namespace.clone()),
        name,
        ..ResourceAttributes::default()
    };
    match account.may(attributes).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Forbidden(format!(
            "service account {} of namespace {} may not {verb} {resource} in namespace {namespace}: \
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

/// Rights of the account of one loop to read.
#[derive(Default)]
pub struct SourcePermissions {
    /// NodeConfigs of other namespaces, by namespace.
    node_configs: BTreeMap<String, Permission>,
    /// The target. None: no formula reads its replicas.
    target: Option<Permission>,
}

impl SourcePermissions {
    /// Time at which the permissions are checked again. No change of an object triggers that.
    pub fn expire_at(&self) -> Option<Timestamp> {
        self.node_configs.values().chain(&self.target).map(|permission| permission.expires).min()
    }
}

/// Returns the permissions that the sources of this Monitoring need.
pub async fn source_permissions(
    ctx: &Context,
    access: &SourceAccess,
    object: &Monitoring,
    reads_replicas: bool,
) -> SourcePermissions {
    let own_namespace = object.id().key.namespace;
    let account = Account {
        writer: ctx.writer.clone(),
        namespace: own_namespace.clone(),
        name: object.spec.service_account_name.clone().unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned()),
        manager: marks::MONITORING_STATUS_MANAGER,
    };
    let mut permissions = SourcePermissions::default();
    for (_, source) in node_sources(&object.spec) {
        let Some(namespace) = source.namespace.as_ref().filter(|namespace| **namespace != own_namespace) else {
            continue;
        };
        let right = ReadRight { group: GROUP, resource: "nodeconfigs", namespace: namespace.clone(), name: None };
        permissions.node_configs.insert(namespace.clone(), permission(ctx, access, &account, right).await);
    }
    let target = object.spec.target.as_ref().filter(|_| reads_replicas && !object.spec.paused);
    if let Some(target) = target
        && let Some(resource) = formula::replica_resource(target)
    {
        let name = Some(target.name.clone());
        let right = ReadRight { group: resource.group, resource: resource.plural, namespace: own_namespace, name };
        permissions.target = Some(permission(ctx, access, &account, right).await);
    }
    permissions
}

/// Reads all sources `nodeConfig`: values by metric. Empty if no metric has such a source.
pub fn node_values(ctx: &Context, permissions: &SourcePermissions, object: &Monitoring) -> PolledValues {
    let own_namespace = object.id().key.namespace;
    let mut values = BTreeMap::new();
    for (metric, source) in node_sources(&object.spec) {
        let namespace = source.namespace.as_deref().unwrap_or(&own_namespace);
        let value = match permissions.node_configs.get(namespace) {
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

/// Reads the number of replicas of the loop's target, or why it is not known.
pub fn target_replicas(
    ctx: &Context,
    permissions: &SourcePermissions,
    object: &Monitoring,
    execution: Option<&ExecutionStatus>,
) -> Result<i32, String> {
    match &permissions.target {
        Some(Permission { refusal: None, .. }) => {}
        Some(Permission { refusal: Some(refusal), .. }) => return Err(refusal.clone()),
        // The spec has changed since the permissions were read; the change enqueues the loop.
        None => return Err(NOT_CHECKED.to_owned()),
    }
    let cached = object.spec.target.as_ref().and_then(|target| {
        let key = Key::new(object.id().key.namespace, target.name.as_str());
        ctx.store.read(|world| replicas_of(world, &key, target))
    });
    formula::current_replicas(cached, execution, ctx.now()).map_err(str::to_owned)
}

/// Reads the number of replicas of a target from the store. Kinds: see [`formula::replica_resource`].
pub fn replicas_of(world: &World, key: &Key, target: &TargetRef) -> Option<i32> {
    formula::replica_resource(target)?;
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
