//! The bare watchers, with which the start of the operator is compared: a process with one `kube::runtime::watcher` for
//! each kind that the operator watches, which drops all events.
//!
//! Client, types and page size are the operator's. `/readyz` succeeds when each watcher has received its first list.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use futures::StreamExt;
use ganglion::operator::{self, ClusterAccess};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::foreign::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ScaledObject, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, VerticalPodAutoscaler,
};
use ganglion_api::marks;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::node_config::{NodeConfig, NodeConfigTemplate};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;

/// Page size, as in `runtime::watch`.
const PAGE: u32 = 250;

/// Pause before a kind that is not installed is retried, as in `runtime::watch`.
const LOOK: Duration = Duration::from_secs(15);

/// Pause after other errors.
const PAUSE: Duration = Duration::from_millis(100);

/// The watchers of one process.
struct Watchers {
    client: Client,
    /// Number of watchers without a complete first list.
    missing: Arc<AtomicUsize>,
}

/// Runs until the process is killed.
pub async fn run(kubeconfig: PathBuf, bind: SocketAddr) -> Result<()> {
    let access = ClusterAccess { kubeconfig: Some(kubeconfig), context: None };
    let client = operator::client(operator::config(&access).await?)?;
    let listener = TcpListener::bind(bind).await?;
    let watchers = Watchers { client, missing: Arc::default() };
    watchers.start_all();
    let missing = Arc::clone(&watchers.missing);
    let ready = move || async move {
        match missing.load(Ordering::Acquire) {
            0 => StatusCode::OK,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    };
    Ok(axum::serve(listener, Router::new().route("/readyz", get(ready))).await?)
}

impl Watchers {
    /// Starts a watcher for each kind in `ganglion::operator::kinds`.
    fn start_all(&self) {
        self.start::<Node>();
        self.start::<Pod>();
        self.start::<ReplicaSet>();
        self.start::<Deployment>();
        self.start::<StatefulSet>();
        self.start::<PersistentVolumeClaim>();
        self.start::<PersistentVolume>();
        self.start::<PodDisruptionBudget>();
        self.start::<Service>();
        self.start::<HorizontalPodAutoscaler>();
        self.start::<ScaledObject>();
        self.start::<VerticalPodAutoscaler>();
        self.start::<ValidatingAdmissionPolicy>();
        self.start::<ValidatingAdmissionPolicyBinding>();
        self.start_named::<MutatingAdmissionPolicy>(marks::PIN_POLICY);
        self.start_named::<MutatingAdmissionPolicyBinding>(marks::PIN_POLICY);
        self.start::<WorkloadAction>();
        self.start::<WorkloadActionReceipt>();
        self.start::<ClosedLoop>();
        self.start::<Monitoring>();
        self.start::<Decision>();
        self.start::<Execution>();
        self.start::<NodeConfig>();
        self.start::<NodeConfigTemplate>();
        self.start::<SwarmPool>();
        self.start::<PlacementPolicy>();
        self.list_policies();
    }

    /// Lists the metadata of all policies once, as the operator does before it restores learned values.
    fn list_policies(&self) {
        self.missing.fetch_add(1, Ordering::AcqRel);
        let (client, missing) = (self.client.clone(), Arc::clone(&self.missing));
        tokio::spawn(async move {
            match Api::<PlacementPolicy>::all(client).list_metadata(&ListParams::default()).await {
                Ok(_) => missing.fetch_sub(1, Ordering::AcqRel),
                Err(error) => {
                    eprintln!("{error}");
                    0
                }
            };
        });
    }

    fn start<K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static>(&self) {
        self.start_with::<K>(Config::default());
    }

    /// Starts a watcher for the object with this name.
    fn start_named<K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static>(
        &self,
        name: &str,
    ) {
        self.start_with::<K>(Config::default().fields(&format!("metadata.name={name}")));
    }

    fn start_with<K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static>(
        &self,
        config: Config,
    ) {
        self.missing.fetch_add(1, Ordering::AcqRel);
        let (api, missing) = (Api::<K>::all(self.client.clone()), Arc::clone(&self.missing));
        tokio::spawn(async move {
            let config = Config { page_size: Some(PAGE), ..config };
            let mut events = pin!(watcher(api, config));
            let mut waits = true;
            while let Some(event) = events.next().await {
                let (listed, pause) = match event {
                    Ok(Event::InitDone) => (true, None),
                    Ok(Event::Init | Event::InitApply(_) | Event::Apply(_) | Event::Delete(_)) => (false, None),
                    Err(error) if is_not_installed(&error) => (true, Some(LOOK)),
                    Err(error) => {
                        eprintln!("{error}");
                        (false, Some(PAUSE))
                    }
                };
                if listed && waits {
                    waits = false;
                    missing.fetch_sub(1, Ordering::AcqRel);
                }
                if let Some(pause) = pause {
                    tokio::time::sleep(pause).await;
                }
            }
        });
    }
}

/// A kind that the API server does not have counts as listed, as for the operator.
fn is_not_installed(error: &Error) -> bool {
    matches!(error, Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}
