//! Which kinds are watched, and how an object of each becomes a fact.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::DeserializeGuard;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::watch::Watch;
use super::{Options, State};
use crate::api::receipt::WorkloadActionReceipt;
use crate::api::workload_action::WorkloadAction;
use crate::logic::world::{Kind, Object};

/// The kind's name in metrics and logs.
pub fn label(kind: Kind) -> &'static str {
    match kind {
        Kind::Pod => "Pod",
        Kind::Node => "Node",
        Kind::Set => "ReplicaSet",
        Kind::Deployment => "Deployment",
        Kind::Budget => "PodDisruptionBudget",
        Kind::Service => "Service",
        Kind::Scaler => "HorizontalPodAutoscaler",
        Kind::Receipt => "WorkloadActionReceipt",
        Kind::Action => "WorkloadAction",
    }
}

/// An object that is watched, and what becomes of it here.
pub trait Watched: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static {
    const KIND: Kind;
    /// The fact, or why the object does not parse.
    fn object(self) -> Result<Object, String>;
}

macro_rules! watched {
    ($($type:ty => $kind:ident,)*) => {
        $(impl Watched for $type {
            const KIND: Kind = Kind::$kind;
            fn object(self) -> Result<Object, String> {
                Ok(Object::$kind((&self).into()))
            }
        })*
    };
}
watched! {
    Pod => Pod,
    Node => Node,
    ReplicaSet => Set,
    Deployment => Deployment,
    PodDisruptionBudget => Budget,
    Service => Service,
    HorizontalPodAutoscaler => Scaler,
}

// Our own kinds are guarded: an object that an older or newer version left behind must not stop the watch of all others.
impl Watched for DeserializeGuard<WorkloadAction> {
    const KIND: Kind = Kind::Action;
    fn object(self) -> Result<Object, String> {
        let mut action = self.0.map_err(|invalid| invalid.error)?;
        action.metadata.managed_fields = None;
        Ok(Object::Action(Box::new(action)))
    }
}

impl Watched for DeserializeGuard<WorkloadActionReceipt> {
    const KIND: Kind = Kind::Receipt;
    fn object(self) -> Result<Object, String> {
        Ok(Object::Receipt((&self.0.map_err(|invalid| invalid.error)?).into()))
    }
}

/// Starts the watches of every kind.
pub fn spawn_all(
    client: &Client,
    options: &Options,
    state: &Arc<State>,
    tasks: &mut JoinSet<()>,
    stop: &CancellationToken,
) {
    let mut spawner = Spawner { client, options, state, tasks, stop };
    spawner.cluster::<Node>();
    spawner.namespaced::<Pod>();
    spawner.namespaced::<ReplicaSet>();
    spawner.namespaced::<Deployment>();
    spawner.namespaced::<PodDisruptionBudget>();
    spawner.namespaced::<Service>();
    spawner.namespaced::<HorizontalPodAutoscaler>();
    spawner.namespaced::<DeserializeGuard<WorkloadAction>>();
    spawner.namespaced::<DeserializeGuard<WorkloadActionReceipt>>();
}

struct Spawner<'a> {
    client: &'a Client,
    options: &'a Options,
    state: &'a Arc<State>,
    tasks: &'a mut JoinSet<()>,
    stop: &'a CancellationToken,
}

impl Spawner<'_> {
    fn cluster<K: Watched + Resource<Scope = ClusterResourceScope>>(&mut self) {
        self.spawn::<K>(Api::all(self.client.clone()), None);
    }

    fn namespaced<K: Watched + Resource<Scope = NamespaceResourceScope>>(&mut self) {
        if self.options.namespaces.is_empty() {
            self.spawn::<K>(Api::all(self.client.clone()), None);
        }
        for namespace in &self.options.namespaces {
            let api = Api::namespaced(self.client.clone(), namespace);
            self.spawn::<K>(api, Some(namespace.clone()));
        }
    }

    fn spawn<K: Watched>(&mut self, api: Api<K>, namespace: Option<String>) {
        self.state.expect_one_more();
        let watch = Watch::new(api, namespace, self.options.timeout, Arc::clone(self.state));
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = watch.run() => {}
            }
        });
    }
}
