//! Reads and changes the cluster for a removal, with the user's permissions.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::core::TypeMeta;
use kube::discovery::pinned_kind;
use kube::{Api, Client};

use super::Error;
use super::kinds::NamedKind;
use super::report::CleanedObject;
use super::sweep::{self, SweepStep, SweptKind};
use crate::operator::drain::MANAGER;
use crate::operator::read;
use ganglion_api::foreign::ScaledObject;
use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{Identity, Key, Uid};
use ganglion_core::json_patch::JsonPatch;
use ganglion_runtime::certificate::secret;
use ganglion_runtime::writer::only;

/// Number of concurrent requests.
const AT_ONCE: usize = 8;

/// Number of objects in one page of a list of ConfigMaps. Only their metadata are read.
const PAGE: u32 = 500;

/// Maximum number of attempts to patch an object that others change, too.
const MOST_ATTEMPTS: u32 = 5;

/// Client of a removal.
pub struct RemovalClient {
    pub client: Client,
    /// Namespaces whose objects go; None: all, and those of the cluster.
    pub scope: Option<Vec<String>>,
}

/// An object with marks.
pub struct MarkedObject {
    kind: NamedKind,
    swept: SweptKind,
    id: Identity,
    pub step: SweepStep,
}

impl MarkedObject {
    pub fn cleaned(&self) -> CleanedObject {
        let object = display(&self.kind, &self.id.key);
        CleanedObject { kind: self.swept, object, removed: self.step.removed.clone() }
    }
}

/// Marks in the cluster.
#[derive(Default)]
pub struct FoundMarks {
    pub marked: Vec<MarkedObject>,
    /// Workloads whose template has the operator's scheduling gate.
    pub gated: Vec<String>,
}

/// Kind and name of an object, with its namespace if there is one.
pub fn display(kind: &NamedKind, key: &Key) -> String {
    let name = if key.namespace.is_empty() { key.name.clone() } else { format!("{}/{}", key.namespace, key.name) };
    format!("{} {name}", kind.resource.kind)
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

/// Whether the API server does not know the object or its kind.
fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

impl RemovalClient {
    fn api(&self, kind: &NamedKind, namespace: &str) -> Api<DynamicObject> {
        if kind.is_namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource)
        } else {
            Api::all_with(self.client.clone(), &kind.resource)
        }
    }

    /// The APIs that list the objects of a kind in the scope.
    fn lists(&self, kind: &NamedKind) -> Vec<Api<DynamicObject>> {
        match &self.scope {
            None => vec![Api::all_with(self.client.clone(), &kind.resource)],
            Some(_) if !kind.is_namespaced => Vec::new(),
            Some(names) => names.iter().map(|name| self.api(kind, name)).collect(),
        }
    }

    /// Visits all objects of a kind. A kind that the API server does not serve has none.
    async fn each(&self, kind: &NamedKind, mut take: impl FnMut(DynamicObject)) -> Result<(), Error> {
        for api in self.lists(kind) {
            match read::pages(&api, &mut take).await {
                Err(error) if is_absent(&error) => {}
                done => done.map_err(|error| Error::of(&kind.resource.kind, error))?,
            }
        }
        Ok(())
    }

    /// All objects of a kind.
    pub async fn objects(&self, kind: &NamedKind) -> Result<Vec<DynamicObject>, Error> {
        let mut all = Vec::new();
        self.each(kind, |object| all.push(object)).await?;
        Ok(all)
    }

    /// Deletes these objects, each if it still has its uid.
    pub async fn delete(&self, kind: &NamedKind, objects: &[Identity]) -> Result<(), Error> {
        let one = async |id: &Identity| match self.api(kind, &id.key.namespace).delete(&id.key.name, &only(id)).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            answer => answer.map(drop).map_err(|error| Error::of(&display(kind, &id.key), error)),
        };
        stream::iter(objects).map(one).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Removes the operator's finalizer from an action.
    pub async fn let_go(&self, kind: &NamedKind, action: &DynamicObject) -> Result<(), Error> {
        let meta = &action.metadata;
        let (id, version) = (Identity::from(meta), meta.resource_version.as_deref().unwrap_or_default());
        let finalizers = meta.finalizers.iter().flatten();
        let Some(index) = finalizers.into_iter().position(|name| name == marks::FINALIZER) else { return Ok(()) };
        let mut patch = JsonPatch::at_version(&Uid::of(meta), version);
        patch.remove(&["metadata", "finalizers", &index.to_string()]);
        let patch = Patch::Json::<()>(patch.into());
        match self.api(kind, &id.key.namespace).patch(&id.key.name, &params(), &patch).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(()),
            answer => answer.map(drop).map_err(|error| Error::of(&display(kind, &id.key), error)),
        }
    }

    /// All marks in the scope.
    pub async fn marks(&self) -> Result<FoundMarks, Error> {
        let mut found = FoundMarks::default();
        let mut owners: BTreeSet<(String, String, Key)> = BTreeSet::new();
        let pods = NamedKind::of::<Pod>();
        self.each(&pods, |pod| found.note(&pods, SweptKind::Pod, &pod)).await?;
        let deployments = NamedKind::of::<Deployment>();
        self.each(&deployments, |one| found.note(&deployments, SweptKind::Workload, &one)).await?;
        let sets = NamedKind::of::<ReplicaSet>();
        self.each(&sets, |set| {
            owners.extend(other_owner(&set.metadata));
            found.note(&sets, SweptKind::Workload, &set);
        })
        .await?;
        let stateful = NamedKind::of::<StatefulSet>();
        self.each(&stateful, |set| found.note(&stateful, SweptKind::Workload, &set)).await?;
        let nodes = NamedKind::of_cluster::<Node>();
        self.each(&nodes, |node| found.note(&nodes, SweptKind::Node, &node)).await?;
        self.note_owners(&mut found, owners).await?;
        let autoscalers = NamedKind::of::<HorizontalPodAutoscaler>();
        self.each(&autoscalers, |one| found.note(&autoscalers, SweptKind::HorizontalPodAutoscaler, &one)).await?;
        let scaled = NamedKind::of::<ScaledObject>();
        self.each(&scaled, |one| found.note(&scaled, SweptKind::ScaledObject, &one)).await?;
        for map in self.config_maps().await?.into_iter().filter(|map| !sweep::is_own_map(&map.metadata)) {
            found.note(&NamedKind::of::<ConfigMap>(), SweptKind::ConfigMap, &map);
        }
        Ok(found)
    }

    /// Notes the marks on owners of ReplicaSets that are no Deployments, such as Rollouts.
    async fn note_owners(&self, found: &mut FoundMarks, owners: BTreeSet<(String, String, Key)>) -> Result<(), Error> {
        let mut kinds: BTreeMap<(String, String), Option<NamedKind>> = BTreeMap::new();
        for (api_version, kind, key) in owners {
            let name = (api_version, kind);
            if !kinds.contains_key(&name) {
                kinds.insert(name.clone(), self.served(&name).await?);
            }
            let Some(Some(kind)) = kinds.get(&name) else { continue };
            match self.api(kind, &key.namespace).get_opt(&key.name).await {
                Ok(Some(owner)) => found.note(kind, SweptKind::Workload, &owner),
                Ok(None) => {}
                Err(error) => return Err(Error::of(&display(kind, &key), error)),
            }
        }
        Ok(())
    }

    /// The namespaced kind with this API version and name; None if the API server does not serve it.
    async fn served(&self, (api_version, kind): &(String, String)) -> Result<Option<NamedKind>, Error> {
        let types = TypeMeta { api_version: api_version.clone(), kind: kind.clone() };
        let Ok(kind) = GroupVersionKind::try_from(types) else { return Ok(None) };
        match pinned_kind(&self.client, &kind).await {
            Ok((resource, _)) => Ok(Some(NamedKind { resource, is_namespaced: true })),
            Err(kube::Error::Discovery(_)) => Ok(None),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(Error::of(&kind.kind, error)),
        }
    }

    /// Metadata of all ConfigMaps in the scope.
    async fn config_maps(&self) -> Result<Vec<DynamicObject>, Error> {
        let kind = NamedKind::of::<ConfigMap>();
        let mut all = Vec::new();
        for api in self.lists(&kind) {
            let mut params = ListParams::default().limit(PAGE);
            loop {
                let page = api.list_metadata(&params).await.map_err(|error| Error::of("ConfigMaps", error))?;
                let maps = page.items.into_iter();
                all.extend(maps.map(|map| DynamicObject {
                    types: None,
                    metadata: map.metadata,
                    data: serde_json::Value::Null,
                }));
                match page.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => params = params.continue_token(&token),
                    None => break,
                }
            }
        }
        Ok(all)
    }

    /// ConfigMaps that go: job lists and learned values, those in the operator's namespace included.
    pub async fn own_maps(&self, namespace: &str) -> Result<Vec<Identity>, Error> {
        let mut own: BTreeMap<Uid, Identity> = BTreeMap::new();
        let here = Self { client: self.client.clone(), scope: Some(vec![namespace.to_owned()]) };
        for map in self.config_maps().await?.into_iter().chain(here.config_maps().await?) {
            if sweep::is_own_map(&map.metadata) {
                own.insert(Uid::of(&map.metadata), Identity::from(&map.metadata));
            }
        }
        Ok(own.into_values().collect())
    }

    /// Removes the marks of an object. None if it has lost them by itself.
    pub async fn clean(&self, marked: MarkedObject) -> Result<Option<CleanedObject>, Error> {
        let MarkedObject { kind, swept, id, step } = marked;
        let (api, failed) = (self.api(&kind, &id.key.namespace), |error| Error::of(&display(&kind, &id.key), error));
        let mut next = Some(step);
        for _ in 0..MOST_ATTEMPTS {
            let Some(step) = next else { return Ok(None) };
            let patch = Patch::Json::<()>(step.patch.into());
            match api.patch(&id.key.name, &params(), &patch).await {
                Ok(_) => {
                    let object = display(&kind, &id.key);
                    return Ok(Some(CleanedObject { kind: swept, object, removed: step.removed }));
                }
                Err(error) if is_absent(&error) => return Ok(None),
                // Changed since it was read.
                Err(kube::Error::Api(status)) if matches!(status.code, 409 | 422) => {}
                Err(error) => return Err(failed(error)),
            }
            let found = api.get_opt(&id.key.name).await.map_err(failed)?;
            next = found.and_then(|object| sweep::step(swept, &object));
        }
        // Others change it all the time; a later pass tries again.
        Ok(None)
    }

    /// Deletes the Secrets of the extender that the operator wrote, and its lease. Returns how many of each.
    pub async fn delete_own(&self, namespace: &str, tls: &str, lease: &str) -> Result<BTreeMap<String, usize>, Error> {
        let mut deleted = BTreeMap::new();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        for name in [tls.to_owned(), secret::ca_name(tls)] {
            let found = secrets.get_opt(&name).await.map_err(|error| Error::of("Secrets", error))?;
            if let Some(found) = found.filter(secret::is_ours) {
                let kind = NamedKind::of::<Secret>();
                self.delete(&kind, &[Identity::from(&found.metadata)]).await?;
                *deleted.entry(kind.resource.kind).or_default() += 1;
            }
        }
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        if let Some(found) = leases.get_opt(lease).await.map_err(|error| Error::of("Leases", error))? {
            let kind = NamedKind::of::<Lease>();
            self.delete(&kind, &[Identity::from(&found.metadata)]).await?;
            deleted.insert(kind.resource.kind, 1);
        }
        Ok(deleted)
    }
}

impl FoundMarks {
    fn note(&mut self, kind: &NamedKind, swept: SweptKind, object: &DynamicObject) {
        let id = Identity::from(&object.metadata);
        let is_going = object.metadata.deletion_timestamp.is_some();
        if swept == SweptKind::Workload && sweep::has_gated_template(object) && !is_going {
            self.gated.push(display(kind, &id.key));
        }
        if let Some(step) = sweep::step(swept, object).filter(|_| !is_going) {
            self.marked.push(MarkedObject { kind: kind.clone(), swept, id, step });
        }
    }
}

/// The controller of a ReplicaSet, if it is no Deployment: its API version, kind and key.
fn other_owner(set: &ObjectMeta) -> Option<(String, String, Key)> {
    let owner = set.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let key = Key::new(set.namespace.as_deref().unwrap_or_default(), &owner.name);
    (owner.kind != "Deployment").then(|| (owner.api_version.clone(), owner.kind.clone(), key))
}

/// Whether the operator can read the action.
pub fn is_readable(action: &DynamicObject) -> bool {
    serde_json::to_value(action).is_ok_and(|value| serde_json::from_value::<WorkloadAction>(value).is_ok())
}
