//! Reads the objects that commands describe.

use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::cluster::{self, ClusterOptions};
use super::output::{self, OutputFormat};
use crate::operator;
use ganglion_actions_plan::identity::receipt_name;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::swarm_pool::{OutputLayout, SwarmPool};
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::world::Fact;
use ganglion_loops_plan::explain::ExplainedLoop;
use ganglion_pools_plan::file::{self, Published};
use ganglion_runtime::error::failure;

/// Options that name an object.
#[derive(Args, Debug, Clone)]
pub struct Named {
    /// Name of the object.
    #[arg(value_name = "NAME")]
    name: String,
    /// Namespace of the object. Default: the namespace of the context.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Options that name a node.
#[derive(Args, Debug, Clone)]
pub struct NamedNode {
    /// Name of the node.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Namespace of its NodeConfigs. Default: all namespaces.
    #[arg(short, long, value_name = "NS")]
    namespace: Option<String>,
    #[command(flatten)]
    cluster: ClusterOptions,
}

/// Options that name a pool.
#[derive(Args, Debug, Clone)]
pub struct NamedPool {
    #[command(flatten)]
    named: Named,
    /// Show only the worker of this job.
    #[arg(long, value_name = "JOB")]
    pub job: Option<String>,
}

/// Options that name an action.
#[derive(Args, Debug, Clone)]
pub struct NamedAction {
    #[command(flatten)]
    named: Named,
    /// Output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: OutputFormat,
}

/// Error: an object cannot be read or written.
#[derive(Debug, Error)]
pub enum Error {
    #[error("there is no ClosedLoop {name} in namespace {namespace}; `kubectl get loop -A` lists all loops")]
    NoLoop { name: String, namespace: String },
    #[error("there is no WorkloadAction {name} in namespace {namespace}; `kubectl get wa -A` lists all actions")]
    NoAction { name: String, namespace: String },
    #[error("there is no SwarmPool {name} in namespace {namespace}; `kubectl get swp -A` lists all pools")]
    NoPool { name: String, namespace: String },
    #[error("there is no PlacementPolicy {name}; `kubectl get plpol` lists all policies")]
    NoPolicy { name: String },
    #[error("the policy cannot be evaluated: {0}")]
    BadPolicy(String),
    #[error("there is no pod {name} in namespace {namespace}")]
    NoPod { name: String, namespace: String },
    #[error("cannot read {path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the file does not contain a pod: {0}")]
    NotAPod(String),
    #[error(transparent)]
    Output(#[from] output::Error),
    #[error("access is denied; you need the verb and the resource that the API server names ({0})")]
    NotAllowed(String),
    #[error("the API server failed: {}", failure(.0))]
    Api(Box<kube::Error>),
    #[error(transparent)]
    App(#[from] operator::Error),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.is_forbidden() => Self::NotAllowed(status.message.clone()),
            error => Self::Api(Box::new(error)),
        }
    }
}

/// A loop and its existing children.
pub struct LoopFamily {
    pub client: Client,
    pub namespace: String,
    pub parent: ClosedLoop,
    monitoring: Option<Monitoring>,
    decision: Option<Decision>,
    execution: Option<Execution>,
}

impl LoopFamily {
    /// Reads the loop that the options name, and its children.
    pub async fn read(Named { name, namespace, cluster }: Named) -> Result<Self, Error> {
        let (client, namespace) = cluster::open(cluster, namespace).await?;
        Self::fetch(client, namespace, name).await
    }

    /// Reads a loop and its children.
    pub async fn fetch(client: Client, namespace: String, name: String) -> Result<Self, Error> {
        let parent: Option<ClosedLoop> = Api::namespaced(client.clone(), &namespace).get_opt(&name).await?;
        let Some(parent) = parent else { return Err(Error::NoLoop { name, namespace }) };
        let monitoring = child(Api::namespaced(client.clone(), &namespace), &parent).await?;
        let decision = child(Api::namespaced(client.clone(), &namespace), &parent).await?;
        let execution = child(Api::namespaced(client.clone(), &namespace), &parent).await?;
        Ok(Self { client, namespace, parent, monitoring, decision, execution })
    }

    /// The loop and its children as input of an explanation.
    pub fn subject(&self) -> ExplainedLoop<'_> {
        ExplainedLoop {
            parent: &self.parent,
            monitoring: self.monitoring.as_ref(),
            decision: self.decision.as_ref(),
            execution: self.execution.as_ref(),
            now: Timestamp::now(),
        }
    }
}

/// An action, and its receipt if there is one. The receipts are None if the user cannot read them.
type ActionAndReceipts = (WorkloadAction, Option<Vec<WorkloadActionReceipt>>);

/// Reads the action that the options name, reduced as in the operator's cache.
pub async fn action(named: &NamedAction) -> Result<ActionAndReceipts, Error> {
    let Named { name, namespace, cluster } = named.named.clone();
    let (client, namespace) = cluster::open(cluster, namespace).await?;
    fetch_action(client, namespace, name).await
}

/// Reads an action, reduced as in the operator's cache.
pub async fn fetch_action(client: Client, namespace: String, name: String) -> Result<ActionAndReceipts, Error> {
    let found: Option<WorkloadAction> = Api::namespaced(client.clone(), &namespace).get_opt(&name).await?;
    let Some(mut action) = found else { return Err(Error::NoAction { name, namespace }) };
    action.slim();
    let receipts: Api<WorkloadActionReceipt> = Api::namespaced(client, &namespace);
    let receipts = match receipts.get_opt(&receipt_name(&action)).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => None,
        found => Some(found?.into_iter().collect()),
    };
    Ok((action, receipts))
}

/// Reads the pool that the options name, and the job lists of its workers.
pub async fn pool(named: &NamedPool) -> Result<(SwarmPool, Published), Error> {
    let Named { name, namespace, cluster } = named.named.clone();
    let (client, namespace) = cluster::open(cluster, namespace).await?;
    fetch_pool(client, namespace, name).await
}

/// Reads a pool and the job lists of its workers.
pub async fn fetch_pool(client: Client, namespace: String, name: String) -> Result<(SwarmPool, Published), Error> {
    let found: Option<SwarmPool> = Api::namespaced(client.clone(), &namespace).get_opt(&name).await?;
    let Some(pool) = found else { return Err(Error::NoPool { name, namespace }) };
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let output = &pool.spec.output;
    let maps = match output.layout {
        OutputLayout::Shared => maps.get_opt(&output.config_map).await?.into_iter().collect(),
        OutputLayout::PerWorker => maps.list(&ListParams::default()).await?.items,
    };
    let owned = maps.into_iter().filter(|map| {
        let mut owners = map.metadata.owner_references.iter().flatten();
        owners.any(|owner| Some(&owner.uid) == pool.metadata.uid.as_ref())
    });
    let texts = owned.map(|map| {
        let data = map.data.unwrap_or_default();
        let text = |key: &str| data.get(key).map(String::as_str);
        file::parse(text(&output.key), text(file::RECORD_KEY))
    });
    let published = file::join(texts);
    Ok((pool, published))
}

/// Reads a child of the loop; None if it does not exist or the loop does not own it.
async fn child<K>(api: Api<K>, parent: &ClosedLoop) -> Result<Option<K>, Error>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let found = api.get_opt(parent.metadata.name.as_deref().unwrap_or_default()).await?;
    let owned = |child: &K| {
        let owners = child.meta().owner_references.iter().flatten();
        owners.into_iter().any(|owner| Some(&owner.uid) == parent.metadata.uid.as_ref())
    };
    Ok(found.filter(owned))
}

/// Reads the NodeConfigs of the node that the options name.
pub async fn node_configs(named: &NamedNode) -> Result<Vec<NodeConfig>, Error> {
    let (client, _) = cluster::open(named.cluster.clone(), None).await?;
    fetch_node_configs(client, named.namespace.as_deref(), &named.name).await
}

/// Reads the NodeConfigs of a node, ordered by namespace and name; of all namespaces, or of one.
pub async fn fetch_node_configs(client: Client, namespace: Option<&str>, node: &str) -> Result<Vec<NodeConfig>, Error> {
    let api: Api<NodeConfig> = match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    };
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let mut found = match api.list(&of_node).await {
        // Kubernetes 1.30 does not support field selectors of custom resources.
        Err(kube::Error::Api(status)) if status.code == 400 => api.list(&ListParams::default()).await?.items,
        found => found?.items,
    };
    found.retain(|config| config.spec.node_name == *node);
    Ok(found)
}
