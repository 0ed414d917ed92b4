//! Which kinds are watched, and how an object of each becomes a fact.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::guard::Guard;
use super::watch::Watch;
use super::{Options, State, optional};
use crate::api::closed_loop::ClosedLoop;
use crate::api::decision::Decision;
use crate::api::execution::Execution;
use crate::api::foreign::{ScaledObject, VerticalPodAutoscaler};
use crate::api::monitoring::Monitoring;
use crate::api::receipt::WorkloadActionReceipt;
use crate::api::workload_action::WorkloadAction;
use crate::logic::closed_loop::validate::conflict::ClaimantKind;
use crate::logic::facts::{RivalFact, ScalerFact};
use crate::logic::world::loops::{LoopKind, LoopObject};
use crate::logic::world::{Kind, Object};

/// Which kind, and so which of the two stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sort {
    World(Kind),
    Loops(LoopKind),
    Rivals(ClaimantKind),
}

/// An object, as its store takes it.
#[derive(Debug)]
pub enum Known {
    World(Object),
    Loops(LoopObject),
    Rival(RivalFact),
    /// A HorizontalPodAutoscaler, for actions and for loops.
    Scaler(ScalerFact, RivalFact),
}

/// The kind's name in metrics and logs.
pub fn label(sort: Sort) -> &'static str {
    match sort {
        Sort::World(Kind::Pod) => "Pod",
        Sort::World(Kind::Node) => "Node",
        Sort::World(Kind::Set) => "ReplicaSet",
        Sort::World(Kind::Deployment) => "Deployment",
        Sort::World(Kind::Budget) => "PodDisruptionBudget",
        Sort::World(Kind::Service) => "Service",
        Sort::World(Kind::Scaler) => "HorizontalPodAutoscaler",
        Sort::World(Kind::Receipt) => "WorkloadActionReceipt",
        Sort::World(Kind::Action) => "WorkloadAction",
        Sort::Rivals(kind) => kind.as_str(),
        Sort::Loops(LoopKind::Loop) => "ClosedLoop",
        Sort::Loops(LoopKind::Monitoring) => "Monitoring",
        Sort::Loops(LoopKind::Decision) => "Decision",
        Sort::Loops(LoopKind::Execution) => "Execution",
    }
}

/// An object that is watched, and what becomes of it here.
pub trait Watched: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static {
    const SORT: Sort;
    /// The fact, or why the object does not parse.
    fn object(self) -> Result<Known, String>;
}

macro_rules! watched {
    ($($type:ty => $kind:ident,)*) => {
        $(impl Watched for $type {
            const SORT: Sort = Sort::World(Kind::$kind);
            fn object(self) -> Result<Known, String> {
                Ok(Known::World(Object::$kind((&self).into())))
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
}

impl Watched for HorizontalPodAutoscaler {
    const SORT: Sort = Sort::World(Kind::Scaler);
    fn object(self) -> Result<Known, String> {
        Ok(Known::Scaler((&self).into(), (&self).into()))
    }
}

macro_rules! watched_rivals {
    ($($type:ident,)*) => {
        $(impl Watched for Guard<$type> {
            const SORT: Sort = Sort::Rivals(ClaimantKind::$type);
            fn object(self) -> Result<Known, String> {
                Ok(Known::Rival((&self.0.map_err(|invalid| invalid.error)?).into()))
            }
        })*
    };
}
watched_rivals! {
    ScaledObject,
    VerticalPodAutoscaler,
}

// Our own kinds are guarded: an object that an older or newer version left behind must not stop the watch of all others.
impl Watched for Guard<WorkloadAction> {
    const SORT: Sort = Sort::World(Kind::Action);
    fn object(self) -> Result<Known, String> {
        Ok(Known::World(Object::Action(Box::new(self.0.map_err(|invalid| invalid.error)?))))
    }
}

impl Watched for Guard<WorkloadActionReceipt> {
    const SORT: Sort = Sort::World(Kind::Receipt);
    fn object(self) -> Result<Known, String> {
        Ok(Known::World(Object::Receipt((&self.0.map_err(|invalid| invalid.error)?).into())))
    }
}

macro_rules! watched_loops {
    ($($type:ident => $kind:ident,)*) => {
        $(impl Watched for Guard<$type> {
            const SORT: Sort = Sort::Loops(LoopKind::$kind);
            fn object(self) -> Result<Known, String> {
                Ok(Known::Loops(LoopObject::$kind(Box::new(self.0.map_err(|invalid| invalid.error)?))))
            }
        })*
    };
}
watched_loops! {
    ClosedLoop => Loop,
    Monitoring => Monitoring,
    Decision => Decision,
    Execution => Execution,
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
    spawner.namespaced::<Guard<WorkloadAction>>();
    spawner.namespaced::<Guard<WorkloadActionReceipt>>();
    spawner.namespaced::<Guard<ClosedLoop>>();
    spawner.namespaced::<Guard<Monitoring>>();
    spawner.namespaced::<Guard<Decision>>();
    spawner.namespaced::<Guard<Execution>>();
    spawner.optional::<Guard<ScaledObject>>();
    spawner.optional::<Guard<VerticalPodAutoscaler>>();
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
        for (api, namespace) in self.places() {
            self.spawn::<K>(api, namespace);
        }
    }

    /// A kind that may not be installed.
    fn optional<K: Watched + Resource<Scope = NamespaceResourceScope>>(&mut self) {
        for (api, namespace) in self.places() {
            self.state.expect_one_more();
            let watch = Watch::new(api, namespace, self.options.timeout, Arc::clone(self.state));
            let stop = self.stop.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = optional::run::<K>(watch) => {}
                }
            });
        }
    }

    fn places<K: Watched + Resource<Scope = NamespaceResourceScope>>(&self) -> Vec<(Api<K>, Option<String>)> {
        if self.options.namespaces.is_empty() {
            return vec![(Api::all(self.client.clone()), None)];
        }
        let one = |namespace: &String| (Api::namespaced(self.client.clone(), namespace), Some(namespace.clone()));
        self.options.namespaces.iter().map(one).collect()
    }

    fn spawn<K: Watched>(&mut self, api: Api<K>, namespace: Option<String>) {
        self.state.expect_one_more();
        let mut watch = Watch::new(api, namespace, self.options.timeout, Arc::clone(self.state));
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = watch.run() => {}
            }
        });
    }
}
