//! Reads the cluster for a plan, with the user's permissions: the objects that the planner uses, and notes about
//! objects that the user cannot read.

use std::collections::BTreeSet;
use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::super::read;
use super::Error;
use crate::operator::settings::Settings;
use ganglion_actions::{owners, usage};
use ganglion_actions_plan::needed_owner;
use ganglion_actions_plan::world::ActionsWorld;
use ganglion_api::foreign::{MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding};
use ganglion_api::marks;
use ganglion_api::node_config::NodeConfig;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{
    BudgetFact, ClaimFact, DeploymentFact, HpaFact, Identity, Key, NodeFact, PinBindingFact, PinPolicyFact, PodFact,
    ReceiptFact, ReplicaSet, ReplicaSetFact, ServiceFact, SlimPod, StatefulSet, StatefulSetFact, Uid, VolumeFact,
};
use ganglion_core::world::{Fact, Origin};
use ganglion_placement::cache::PlacementCache;
use ganglion_placement_plan::world::PlacementWorld;
use ganglion_runtime as runtime;
use ganglion_runtime::discovery::Discovery;
use ganglion_runtime::guard::Guard;
use ganglion_runtime::store::Store;

/// A kind that can be read.
trait Readable: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug {}
impl<K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug> Readable for K {}

/// Reads the cluster into the store.
#[derive(Clone, Copy)]
pub struct ClusterReader<'a> {
    pub client: &'a Client,
    pub store: &'a Store,
}

/// The API server's message if it refuses a list.
type ListRefusal = Option<String>;

/// Namespaces in which a kind was read.
enum Extent {
    Everywhere,
    /// Only in the namespaces of the actions; with the API server's message about the others.
    Here(String),
    Nowhere(String),
}

impl ClusterReader<'_> {
    /// Reads the objects that the planner needs for actions in these namespaces. Returns notes about objects that are
    /// not counted. Fails if objects are refused without which there can be no plan.
    pub async fn read(self, namespaces: &BTreeSet<&str>, by_policy: bool) -> Result<Vec<String>, Error> {
        let own = async {
            let mut notes = Vec::new();
            for namespace in namespaces {
                notes.extend(self.namespace(namespace).await?);
            }
            Ok(notes)
        };
        let (nodes, pods, actions, configs, policies, mut notes) = tokio::try_join!(
            self.all::<Node, NodeFact>(),
            self.wide::<SlimPod, PodFact>(namespaces),
            self.wide::<WorkloadAction, WorkloadAction>(namespaces),
            self.wide::<NodeConfig, NodeConfig>(namespaces),
            self.all::<PlacementPolicy, PlacementPolicy>(),
            own,
        )?;
        needed(nodes)?;
        if by_policy {
            needed(policies)?;
        }
        match pods {
            Extent::Everywhere => {}
            Extent::Here(words) => {
                notes.push(format!("Pods of other namespaces are not counted, so nodes may have less room: {words}."))
            }
            Extent::Nowhere(words) => return Err(Error::NotAllowed(words)),
        }
        notes.extend(uncounted("Actions at work", actions));
        notes.extend(self.pins().await?);
        notes.extend(uncounted("NodeConfigs, which contain measured values of nodes,", configs));
        Ok(notes)
    }

    /// Reads whether the cluster can bind pods of StatefulSets to a given node. Users rarely have the permission to
    /// read that; then the component is assumed to be installed.
    async fn pins(self) -> Result<Option<String>, Error> {
        if self.store.read(|world| world.all::<StatefulSetFact>().next().is_none()) {
            return Ok(None);
        }
        let (policies, bindings) = tokio::try_join!(
            self.all::<MutatingAdmissionPolicy, PinPolicyFact>(),
            self.all::<MutatingAdmissionPolicyBinding, PinBindingFact>(),
        )?;
        let Some(words) = policies.or(bindings) else { return Ok(None) };
        let id = Identity { key: Key::new("", marks::PIN_POLICY), ..Identity::default() };
        self.store.write(|world| {
            world.apply(PinPolicyFact { id: id.clone() }, Origin::Watch);
            world.apply(PinBindingFact { id, policy: marks::PIN_POLICY.to_owned() }, Origin::Watch);
        });
        Ok(Some(format!("The component pin-statefulsets is assumed to be installed: {words}.")))
    }

    /// Reads the objects of the workloads in one namespace.
    async fn namespace(self, namespace: &str) -> Result<Vec<String>, Error> {
        let (deployments, sets, stateful, budgets, services, autoscalers, receipts) = tokio::try_join!(
            self.within::<Deployment, DeploymentFact>(namespace),
            self.within::<ReplicaSet, ReplicaSetFact>(namespace),
            self.within::<StatefulSet, StatefulSetFact>(namespace),
            self.within::<PodDisruptionBudget, BudgetFact>(namespace),
            self.within::<Service, ServiceFact>(namespace),
            self.within::<HorizontalPodAutoscaler, HpaFact>(namespace),
            self.within::<WorkloadActionReceipt, ReceiptFact>(namespace),
        )?;
        needed(deployments)?;
        needed(sets)?;
        let (claims, volumes) = tokio::try_join!(
            self.within::<PersistentVolumeClaim, ClaimFact>(namespace),
            self.all::<PersistentVolume, VolumeFact>(),
        )?;
        // Volumes matter only for StatefulSets.
        let volumes = volumes.filter(|_| self.store.read(|world| world.all::<StatefulSetFact>().next().is_some()));
        let kinds = [
            ("StatefulSets", stateful),
            ("PersistentVolumeClaims", claims),
            ("The nodes of bound volumes", volumes),
            ("PodDisruptionBudgets", budgets),
            ("Services", services),
            ("HorizontalPodAutoscalers", autoscalers),
            ("WorkloadActionReceipts", receipts),
        ];
        Ok(kinds.into_iter().filter_map(|(kinds, refusal)| Some(not_counted(kinds, &refusal?))).collect())
    }

    /// Reads a kind in all namespaces or, if that is refused, in these namespaces.
    async fn wide<K, F>(self, namespaces: &BTreeSet<&str>) -> Result<Extent, Error>
    where
        K: Readable + Resource<Scope = NamespaceResourceScope>,
        F: Fact + From<K>,
    {
        let Some(words) = self.all::<K, F>().await? else { return Ok(Extent::Everywhere) };
        for namespace in namespaces {
            if let Some(words) = self.within::<K, F>(namespace).await? {
                return Ok(Extent::Nowhere(words));
            }
        }
        Ok(Extent::Here(words))
    }

    async fn all<K: Readable, F: Fact + From<K>>(self) -> Result<ListRefusal, Error> {
        self.list::<K, F>(Api::all(self.client.clone())).await
    }

    async fn within<K, F>(self, namespace: &str) -> Result<ListRefusal, Error>
    where
        K: Readable + Resource<Scope = NamespaceResourceScope>,
        F: Fact + From<K>,
    {
        self.list::<K, F>(Api::namespaced(self.client.clone(), namespace)).await
    }

    async fn list<K: Readable, F: Fact + From<K>>(self, api: Api<Guard<K>>) -> Result<ListRefusal, Error> {
        let take = |Guard(object): Guard<K>| {
            // An object that cannot be parsed is skipped: the planner does not see it either.
            if let Ok(object) = object {
                self.store.write(|world| drop(world.apply(F::from(object), Origin::Watch)));
            }
        };
        match read::pages(&api, take).await {
            Ok(()) => Ok(None),
            // The kind is not installed.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Some(status.message.clone())),
            Err(error) => Err(Error::Api(Box::new(error))),
        }
    }

    /// Reads the objects of other kinds whose replicas the actions would change.
    pub async fn read_owners(
        self,
        settings: &Settings,
        actions: impl Iterator<Item = &WorkloadAction>,
    ) -> Result<(), Error> {
        let ctx = read::context(self.client, self.store.clone(), settings, "plan");
        let discovery = Discovery::default();
        for action in actions {
            let Some(needed) = self.store.read(|world| needed_owner(world, action)) else { continue };
            match owners::read(&ctx, &discovery, &needed).await {
                Ok(()) => {}
                Err(runtime::error::Error::Forbidden(words)) => return Err(Error::NotAllowed(words)),
                Err(error) => return Err(Error::Owner(error)),
            }
        }
        Ok(())
    }

    /// Reads the usage of nodes if an expression of these actions uses it. If it cannot be read, the plan says why.
    pub async fn read_usage(self, mut actions: impl Iterator<Item = &WorkloadAction>) {
        let now = Timestamp::now();
        if !self.store.read(|world| actions.any(|action| world.unknown_usage(action, now).is_some())) {
            return;
        }
        let answer = match http::Request::get(usage::NODES).body(Vec::new()) {
            Ok(request) => self.client.request_text(request).await.map_err(|error| usage::refused(&error.into())),
            Err(error) => Err(error.to_string()),
        };
        let read =
            |text: String| self.store.write(|world| usage::store_usage(world, text.as_bytes(), Timestamp::now()));
        if let Err(problem) = answer.and_then(read) {
            self.store.write(|world| world.usage_failed(problem));
        }
    }

    /// Restores the learned values of these policies, if the user can read them.
    pub async fn restore(self, placement: &PlacementCache, names: &BTreeSet<&str>) {
        let is_named = |policy: &PlacementPolicy| names.contains(policy.name_any().as_str());
        let all = |world: &ganglion_core::world::World| world.policies().filter(|one| is_named(one)).cloned().collect();
        let policies: Vec<_> = self.store.read(all);
        let mut saved = Vec::new();
        for policy in policies {
            let values = read::saved_values(self.client, &policy).await;
            saved.extend(values.map(|values| (Uid::of(&policy.metadata), values)));
        }
        placement.restore(saved);
        placement.learn(Timestamp::now());
    }
}

fn needed(refusal: ListRefusal) -> Result<(), Error> {
    refusal.map_or(Ok(()), |words| Err(Error::NotAllowed(words)))
}

fn uncounted(what: &str, extent: Extent) -> Option<String> {
    match extent {
        Extent::Everywhere => None,
        Extent::Here(words) => Some(not_counted(&format!("{what} of other namespaces"), &words)),
        Extent::Nowhere(words) => Some(not_counted(what, &words)),
    }
}

fn not_counted(what: &str, words: &str) -> String {
    format!("{what} are not counted: {words}.")
}
