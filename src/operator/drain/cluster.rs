//! Reads and writes the cluster for a drain, with the user's permissions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{Request, Status};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::Error;
use ganglion_actions_plan::drain::{LastEviction, NodePod, PendingPod, PodSurroundings, action, is_confined};
use ganglion_api::marks;
use ganglion_api::refs::WorkloadRef;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{ClaimFact, DeploymentFact, Identity, Key, NodeFact, NodeName, Uid};
use ganglion_runtime::eviction::{self, EvictionAnswer};
use ganglion_runtime::writer::strict;

/// Field manager of the writes of commands. It begins like kubectl's field manager: a person creates these actions.
pub const MANAGER: &str = "kubectl-ganglion";

/// Name of the operator's Lease, unless its settings have another one.
pub const LEASE: &str = "ganglion";

/// Maximum number of unbound pods in a report.
const MOST_PENDING: usize = 20;

/// Number of concurrent reads.
const AT_ONCE: usize = 8;

/// Client of a drain.
pub struct DrainClient {
    pub client: Client,
    /// Nodes that are not drained, or why they may not be listed. They are listed once, for the first volume.
    others: OnceCell<Result<Vec<NodeFact>, String>>,
}

/// A namespaced kind.
trait NamespacedKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug
{
}
impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug> NamespacedKind
    for K
{
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// Converts the error of a request without which the drain cannot continue.
fn needed<T>(what: &'static str, answer: Result<T, kube::Error>) -> Result<T, Error> {
    answer.map_err(|error| match error {
        kube::Error::Api(status) if status.is_forbidden() => Error::NotAllowed { what, words: status.message.clone() },
        error => error.into(),
    })
}

impl DrainClient {
    pub fn new(client: Client) -> Self {
        Self { client, others: OnceCell::new() }
    }

    /// Checks that the node exists.
    pub async fn node(&self, name: &NodeName) -> Result<(), Error> {
        let found = Api::<Node>::all(self.client.clone()).get_opt(name.as_str()).await;
        needed("the node cannot be read", found)?.map(drop).ok_or_else(|| Error::NoNode(name.to_string()))
    }

    /// Names of the nodes with these labels.
    pub async fn nodes_with(&self, selector: &str) -> Result<Vec<NodeName>, Error> {
        let with = ListParams::default().labels(selector);
        let found = needed("nodes cannot be listed", Api::<Node>::all(self.client.clone()).list(&with).await)?;
        let names: Vec<NodeName> = found.iter().map(|node| node.name_any().into()).collect();
        if names.is_empty() { Err(Error::NoneSelected(selector.to_owned())) } else { Ok(names) }
    }

    /// Cordons or uncordons the node.
    pub async fn cordon(&self, name: &NodeName, cordoned: bool) -> Result<(), Error> {
        let patch = json!({"spec": {"unschedulable": cordoned}});
        let nodes: Api<Node> = Api::all(self.client.clone());
        let what = if cordoned { "the node cannot be cordoned" } else { "the node cannot be uncordoned" };
        needed(what, nodes.patch(name.as_str(), &params(), &Patch::Strategic(patch)).await).map(drop)
    }

    /// Pods on these nodes. Pods with the labels of the selector are marked as selected; without a selector, all are.
    pub async fn pods(&self, nodes: &[NodeName], selector: Option<&str>) -> Result<Vec<NodePod>, Error> {
        let mut all = Vec::new();
        for node in nodes {
            let on = ListParams::default().fields(&format!("spec.nodeName={node}"));
            let found = self.list_pods(&on).await?;
            let selected: Option<BTreeSet<Uid>> = match selector {
                None => None,
                Some(labels) => {
                    let selected = self.list_pods(&on.labels(labels)).await?;
                    Some(selected.iter().map(|pod| Uid::of(&pod.metadata)).collect())
                }
            };
            all.extend(found.into_iter().map(NodePod::from).map(|pod| {
                let selected = selected.as_ref().is_none_or(|uids| uids.contains(&pod.id.uid));
                NodePod { selected, ..pod }
            }));
        }
        Ok(all)
    }

    async fn list_pods(&self, params: &ListParams) -> Result<Vec<Pod>, Error> {
        let found = Api::<Pod>::all(self.client.clone()).list(params).await;
        needed("a drain requires the permission to list the pods of all namespaces", found).map(|found| found.items)
    }

    /// Pods of these controllers that no node has taken, at most [`MOST_PENDING`].
    pub async fn pending(&self, owners: &BTreeSet<Uid>) -> Result<Vec<PendingPod>, Error> {
        let unbound = ListParams::default().fields("status.phase=Pending,spec.nodeName=");
        let mut pending = Vec::new();
        for pod in self.list_pods(&unbound).await? {
            let controllers = pod.metadata.owner_references.iter().flatten();
            let owner = controllers.into_iter().find(|owner| owner.controller == Some(true));
            let Some(owner) = owner.filter(|owner| owners.contains(owner.uid.as_str())) else { continue };
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let message =
                conditions.into_iter().find(|one| one.type_ == "PodScheduled").and_then(|one| one.message.clone());
            let Key { namespace, name } = Identity::from(&pod.metadata).key;
            pending.push(PendingPod {
                namespace,
                name,
                owner: format!("{}/{}", owner.kind, owner.name),
                message: message.unwrap_or_else(|| "the scheduler has not processed it yet".to_owned()),
            });
        }
        pending.truncate(MOST_PENDING);
        Ok(pending)
    }

    /// Evicts a pod if it still has this uid.
    pub async fn evict(&self, pod: &Identity, grace_seconds: Option<u32>) -> Result<LastEviction, Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.key.namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let body = eviction::eviction(pod, grace_seconds);
        match pods.create_subresource::<_, Status>("eviction", &pod.key.name, &params, &body).await {
            Ok(_) => Ok(LastEviction::Accepted),
            Err(kube::Error::Api(status)) => Ok(match eviction::refusal(&status) {
                Some(Ok(EvictionAnswer::BlockedByBudget(words))) => LastEviction::Blocked(words),
                Some(Ok(EvictionAnswer::TooManyBudgets(words))) => LastEviction::Refused(words),
                // The pod is gone, or another one has its name.
                _ if matches!(status.code, 404 | 409) => LastEviction::Gone,
                // Throttled, or a webhook or the API server fails.
                _ if status.code == 429 || status.code >= 500 => LastEviction::Blocked(status.message.clone()),
                _ => LastEviction::Refused(status.message.clone()),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// The leases of operators, in all namespaces or in this one. None if the user may not read them.
    pub async fn leases(&self, namespace: Option<&str>) -> Result<Option<Vec<Lease>>, Error> {
        let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
        let client = self.client.clone();
        let leases: Api<Lease> =
            namespace.map_or_else(|| Api::all(client.clone()), |name| Api::namespaced(client.clone(), name));
        match leases.list(&named).await {
            Ok(found) => Ok(Some(found.items)),
            Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Actions of drains of these nodes, open and completed.
    pub async fn actions(&self, nodes: &[NodeName]) -> Result<Vec<WorkloadAction>, Error> {
        let labels: Vec<String> = nodes.iter().map(action::label).collect();
        let of = ListParams::default().labels(&format!("{} in ({})", marks::DRAIN, labels.join(",")));
        match Api::<WorkloadAction>::all(self.client.clone()).list(&of).await {
            Ok(found) => Ok(found.items),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(Error::NoKind),
            found => needed("a drain requires the permission to list the WorkloadActions of all namespaces", found)
                .map(|found| found.items),
        }
    }

    /// Creates an action. The inner error is the API server's message if it rejects the action.
    pub async fn create(&self, namespace: &str, document: &Value) -> Result<Result<WorkloadAction, String>, Error> {
        let mut action: WorkloadAction = match serde_json::from_value(document.clone()) {
            Ok(action) => action,
            Err(error) => return Ok(Err(error.to_string())),
        };
        action.metadata.namespace = Some(namespace.to_owned());
        let request = match creation(namespace, &action) {
            Ok(request) => request,
            Err(words) => return Ok(Err(words)),
        };
        match self.client.request::<WorkloadAction>(request).await {
            Ok(made) => Ok(Ok(made)),
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 404 | 409 | 422) => {
                Ok(Err(status.message.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub async fn patch_action(&self, key: &Key, patch: &Value) -> Result<(), Error> {
        let actions: Api<WorkloadAction> = Api::namespaced(self.client.clone(), &key.namespace);
        match actions.patch(&key.name, &params(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            patched => needed("the action cannot be aborted", patched).map(drop),
        }
    }

    /// Reads the workloads and volumes of these pods, which are on the drained nodes.
    pub async fn surroundings(&self, pods: &[NodePod], drained: &[NodeName]) -> Result<PodSurroundings, Error> {
        let mut around = PodSurroundings::default();
        let moves = || pods.iter().filter(|pod| !pod.finished && !pod.mirror);
        let sets = moves().filter_map(|pod| {
            let owner = pod.owner.as_ref().filter(|_| pod.is_of_apps("ReplicaSet"))?;
            Some(Key::new(&pod.id.key.namespace, &owner.name))
        });
        let sets: BTreeMap<Key, ReplicaSet> = self.read(sets.collect(), &mut around.unread).await?;
        for (key, set) in sets {
            let owner = set.owner_references().iter().find(|owner| owner.controller == Some(true));
            if let Some(owner) = owner.filter(|owner| owner.kind == "Deployment") {
                let (api_version, kind, name) = (owner.api_version.clone(), owner.kind.clone(), owner.name.clone());
                around.deployments.insert(key, WorkloadRef { api_version, kind, name });
            }
        }
        let named = around.deployments.iter().map(|(set, owner)| Key::new(&set.namespace, &owner.name));
        let deployments: BTreeMap<Key, Deployment> = self.read(named.collect(), &mut around.unread).await?;
        let recreating = deployments.into_iter().filter(|(_, one)| DeploymentFact::from(one.clone()).recreates);
        around.recreating = recreating.map(|(key, _)| key).collect();
        let claims = moves().flat_map(|pod| {
            pod.volumes.claims.iter().map(|claim| Key::new(&pod.id.key.namespace, claim)).collect::<Vec<_>>()
        });
        let claims: BTreeMap<Key, PersistentVolumeClaim> = self.read(claims.collect(), &mut around.unread).await?;
        around.claims = claims.into_iter().map(|(key, claim)| (key, ClaimFact::from(claim))).collect();
        self.confined_volumes(&mut around, drained).await?;
        Ok(around)
    }

    async fn confined_volumes(&self, around: &mut PodSurroundings, drained: &[NodeName]) -> Result<(), Error> {
        let names: BTreeSet<String> = around.claims.values().filter_map(|claim| claim.volume.clone()).collect();
        for name in names {
            match Api::<PersistentVolume>::all(self.client.clone()).get_opt(&name).await {
                Ok(None) => {}
                Ok(Some(volume)) => {
                    let others = self.others.get_or_try_init(|| self.other_nodes(drained)).await?;
                    around.unread.extend(others.as_ref().err().cloned());
                    if is_confined(&volume, others.as_deref().ok()) {
                        around.confined.insert(name);
                    }
                }
                Err(kube::Error::Api(status)) if status.is_forbidden() => {
                    around.unread.insert(status.message.clone());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Names and labels of all nodes but these. The inner error is the API server's message if they may not be listed.
    async fn other_nodes(&self, drained: &[NodeName]) -> Result<Result<Vec<NodeFact>, String>, Error> {
        match Api::<Node>::all(self.client.clone()).list_metadata(&ListParams::default()).await {
            Ok(found) => {
                let facts = found.items.into_iter().map(|node| NodeFact {
                    id: Identity::from(&node.metadata),
                    labels: node.metadata.labels.unwrap_or_default(),
                    ..NodeFact::default()
                });
                Ok(Ok(facts.filter(|node| !drained.contains(&node.name())).collect()))
            }
            Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Err(status.message.clone())),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the objects with these names; skips objects that do not exist or cannot be read.
    async fn read<K: NamespacedKind>(
        &self,
        keys: BTreeSet<Key>,
        unread: &mut BTreeSet<String>,
    ) -> Result<BTreeMap<Key, K>, Error> {
        let one = async |key: Key| {
            let api: Api<K> = Api::namespaced(self.client.clone(), &key.namespace);
            match api.get_opt(&key.name).await {
                Ok(found) => Ok((key, Ok(found))),
                Err(kube::Error::Api(status)) if status.is_forbidden() => Ok((key, Err(status.message.clone()))),
                Err(error) => Err(Error::from(error)),
            }
        };
        let answers: Vec<(Key, Result<Option<K>, String>)> =
            stream::iter(keys).map(one).buffer_unordered(AT_ONCE).try_collect().await?;
        let mut found = BTreeMap::new();
        for (key, answer) in answers {
            match answer {
                Ok(object) => found.extend(object.map(|object| (key, object))),
                Err(words) => {
                    unread.insert(words);
                }
            }
        }
        Ok(found)
    }
}

/// The request that creates an action. It is refused if the CRD does not have one of the fields: an action without it
/// would do something else.
fn creation(namespace: &str, action: &WorkloadAction) -> Result<http::Request<Vec<u8>>, String> {
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let body = serde_json::to_vec(action).map_err(|error| error.to_string())?;
    let request = Request::new(WorkloadAction::url_path(&(), Some(namespace))).create(&params, body);
    strict(request.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}
