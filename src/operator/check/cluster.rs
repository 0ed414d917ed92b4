//! Reads the cluster for a check, with the user's permissions: the loop as the API server would store it, and the
//! objects that affect it.

use std::collections::BTreeSet;
use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding, RoleRef};
use kube::api::{ListParams, Patch, PatchParams, ValidationDirective};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::operator::read;
use ganglion_api::closed_loop::metric::Metric;
use ganglion_api::closed_loop::{ClosedLoop, TargetRef};
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::foreign::{ScaledObject, VerticalPodAutoscaler};
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_core::check::CheckReport;
use ganglion_core::facts::{
    DeploymentFact, HpaFact, NodeFact, ReplicaSet, ReplicaSetFact, ScaledObjectFact, StatefulSet, StatefulSetFact,
    VpaFact,
};
use ganglion_core::world::{Fact, Origin};
use ganglion_runtime::error::failure;
use ganglion_runtime::store::Store;

/// Field manager of the dry run.
const MANAGER: &str = "ganglion-check";

/// Name of the role that a namespace grants to the operator, without a prefix of the installation.
const NAMESPACE_ROLE: &str = "ganglion-namespace";

/// A namespaced kind.
trait Listed: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug {}
impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug> Listed for K {}

/// The namespace of a loop, as the user can read it.
pub struct Surroundings<'a> {
    pub client: &'a Client,
    pub store: &'a Store,
    pub namespace: &'a str,
}

impl Surroundings<'_> {
    /// Applies the loop in a dry run. Returns it as the API server would store it; None if the API server rejects it.
    pub async fn accepted(&self, document: &Value, name: &str, report: &mut CheckReport) -> Option<ClosedLoop> {
        let api: Api<ClosedLoop> = Api::namespaced(self.client.clone(), self.namespace);
        let params = PatchParams {
            dry_run: true,
            force: true,
            field_manager: Some(MANAGER.to_owned()),
            field_validation: Some(ValidationDirective::Strict),
        };
        match api.patch(name, &params, &Patch::Apply(document)).await {
            Ok(stored) => {
                report.passed("the API server accepts it (dry run)");
                Some(stored)
            }
            Err(kube::Error::Api(status)) if status.code == 404 && !status.message.contains("namespaces") => {
                report.failed("the API server does not have the kind ClosedLoop: install Ganglion first");
                None
            }
            Err(kube::Error::Api(status)) => {
                report.failed(format!("the API server refuses it: {}", status.message));
                None
            }
            Err(error) => {
                report.failed(format!("the API server did not answer: {}", failure(&error)));
                None
            }
        }
    }

    /// Reads the objects that the assessment of a loop uses: other loops, autoscalers, the target.
    pub async fn read(&self, target: &TargetRef, report: &mut CheckReport) {
        self.list::<ClosedLoop, ClosedLoop>(report).await;
        self.list::<Monitoring, Monitoring>(report).await;
        self.list::<Decision, Decision>(report).await;
        self.list::<Execution, Execution>(report).await;
        self.list::<HorizontalPodAutoscaler, HpaFact>(report).await;
        self.list::<ScaledObject, ScaledObjectFact>(report).await;
        self.list::<VerticalPodAutoscaler, VpaFact>(report).await;
        match (target.api_version.as_str(), target.kind.as_str()) {
            ("apps/v1", "Deployment") => self.get::<Deployment, DeploymentFact>(&target.name, report).await,
            ("apps/v1", "ReplicaSet") => self.get::<ReplicaSet, ReplicaSetFact>(&target.name, report).await,
            ("apps/v1", "StatefulSet") => self.get::<StatefulSet, StatefulSetFact>(&target.name, report).await,
            ("ganglion.dev/v1alpha1", "SwarmPool") => self.get::<SwarmPool, SwarmPool>(&target.name, report).await,
            _ => {}
        }
    }

    /// Reads the nodes and NodeConfigs that sources `nodeConfig` may refer to.
    pub async fn read_nodes(&self, metrics: &[Metric], report: &mut CheckReport) {
        let sources = metrics.iter().filter_map(|metric| metric.source.node_config.as_ref());
        let namespaces: BTreeSet<&str> =
            sources.map(|source| source.namespace.as_deref().unwrap_or(self.namespace)).collect();
        if namespaces.is_empty() {
            return;
        }
        self.load::<Node, NodeFact>(&Api::all(self.client.clone()), report).await;
        for namespace in namespaces {
            self.load::<NodeConfig, NodeConfig>(&Api::namespaced(self.client.clone(), namespace), report).await;
        }
    }

    async fn list<K: Listed, F: Fact + From<K>>(&self, report: &mut CheckReport) {
        self.load::<K, F>(&Api::namespaced(self.client.clone(), self.namespace), report).await;
    }

    async fn load<K, F>(&self, api: &Api<K>, report: &mut CheckReport)
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
        F: Fact + From<K>,
    {
        match api.list(&ListParams::default()).await {
            Ok(list) => list.items.into_iter().for_each(|one| self.store.apply(F::from(one), Origin::Watch)),
            // KEDA or the VerticalPodAutoscaler is not installed.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => report.unsure(format!("{}: not read: {}", K::plural(&()), failure(&error))),
        }
    }

    async fn get<K: Listed, F: Fact + From<K>>(&self, name: &str, report: &mut CheckReport) {
        let api: Api<K> = Api::namespaced(self.client.clone(), self.namespace);
        match api.get_opt(name).await {
            Ok(found) => found.into_iter().for_each(|one| self.store.apply(F::from(one), Origin::Watch)),
            Err(error) => report.unsure(format!("{} {name}: not read: {}", K::kind(&()), failure(&error))),
        }
    }

    /// Checks whether the admission policies for loops are in force, without which the operator does not act.
    pub async fn policies(&self, report: &mut CheckReport) {
        match read::policy_problem(self.client, ClosedLoop::KIND).await {
            Ok(None) => report.passed("the admission policies for loops are in force"),
            Ok(Some(problem)) => report.failed(problem.to_string()),
            Err(error) => report.unsure(format!("admission policies: not read: {}", failure(&error))),
        }
    }

    /// Checks whether a binding grants the operator its role in the namespace. The operator may also have its
    /// permissions in another way.
    pub async fn binding(&self, report: &mut CheckReport) {
        let is_it = |role: &RoleRef| role.name.ends_with(NAMESPACE_ROLE);
        let here: Api<RoleBinding> = Api::namespaced(self.client.clone(), self.namespace);
        let everywhere: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let found = match here.list(&ListParams::default()).await {
            Ok(list) if list.items.iter().any(|one| is_it(&one.role_ref)) => Ok(true),
            Ok(_) => everywhere
                .list(&ListParams::default())
                .await
                .map(|list| list.items.iter().any(|one| is_it(&one.role_ref))),
            Err(error) => Err(error),
        };
        match found {
            Ok(true) => report.passed(format!("a binding to {NAMESPACE_ROLE} lets the operator act here")),
            Ok(false) => report.unsure(format!(
                "no binding to {NAMESPACE_ROLE} is for namespace {0}; the operator needs one to act here, for example: kubectl \
                 create rolebinding ganglion -n {0} --clusterrole={NAMESPACE_ROLE} --serviceaccount=ganglion-system:ganglion",
                self.namespace
            )),
            Err(error) => report.unsure(format!("whether the operator may act here: not read: {}", failure(&error))),
        }
    }
}
