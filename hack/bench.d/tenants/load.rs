//! Requests of the hostile tenant, and those of the control run in their place.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join;
use futures::{StreamExt, TryStreamExt, stream};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Resource;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::hostile::{self, HostileTenant, RefusingPolicy, becomes, marked_pod};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Number of requests of a round, and the interval between two of them.
const REQUESTS: usize = 200;
const EVERY: Duration = Duration::from_millis(100);

/// Number of the ConfigMaps with jobs, and of the pods with forged marks.
const COUNT: usize = 12;

/// Number of kinds of requests.
const KINDS: usize = 7;

/// ConfigMaps that are created again: by the cluster, and by the pool.
const KEPT: [&str; 2] = ["kube-root-ca.crt", "out"];

/// Time for the work that is left after a round.
const SETTLING: Duration = Duration::from_secs(2);

/// Which objects the requests of a round are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadKind {
    Hostile,
    /// ConfigMaps of the same size, and the same writes of ConfigMaps and pods without what the operator reads there.
    Control,
}

impl LoadKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Hostile => "hostile",
            Self::Control => "control",
        }
    }
}

/// The hostile tenant, and the client without credentials. Cheap to clone: the load runs as a task of its own, so that
/// its large bodies do not delay the second tenant within the bench.
#[derive(Clone)]
pub struct HostileLoad {
    tenant: Arc<HostileTenant>,
    policy: Arc<RefusingPolicy>,
    stranger: reqwest::Client,
}

impl HostileLoad {
    /// Creates the objects that stay for all rounds: a workload, a pool of jobs, and pods.
    pub async fn open(tenant: HostileTenant, policy: Arc<RefusingPolicy>) -> Result<Self> {
        tenant.workload().await?;
        let maps: Vec<String> = (0..COUNT).map(|number| jobs(LoadKind::Hostile, number)).collect();
        tenant.pool("many", &maps).await?;
        tenant.forged_pods(COUNT).await?;
        Ok(Self { tenant: Arc::new(tenant), stranger: policy.stranger()?, policy })
    }

    /// Sends the requests of a round, each at its time, whether the earlier ones are answered or not. `round` is part
    /// of the names of objects.
    pub async fn send(self, kind: LoadKind, round: String) -> Result<()> {
        let begun = Instant::now();
        let over = CancellationToken::new();
        let (this, prefix) = (&self, round.as_str());
        let requests = async {
            stream::iter(0..REQUESTS)
                .map(|number| async move {
                    sleep_until(begun + EVERY * u32::try_from(number)?).await;
                    this.request(kind, &format!("{prefix}-{number}"), number).await
                })
                .buffer_unordered(REQUESTS)
                .try_collect::<Vec<()>>()
                .await?;
            over.cancel();
            anyhow::Ok(())
        };
        let slow = async {
            if kind == LoadKind::Hostile {
                self.policy.slow_bodies(&self.stranger, over.cancelled()).await;
            }
            Ok(())
        };
        try_join(requests, slow).await.map(drop)
    }

    /// Sends the request with this number; the kinds of requests take turns.
    async fn request(&self, kind: LoadKind, name: &str, number: usize) -> Result<()> {
        match number % KINDS {
            0 => self.create::<WorkloadAction>(kind, name, hostile::large_action(), 422).await,
            1 => self.create::<ClosedLoop>(kind, name, hostile::private_loop(number), 0).await,
            2 => self.create::<WorkloadAction>(kind, name, hostile::waiting_action(), 0).await,
            3 => self.create::<ClosedLoop>(kind, name, hostile::loop_on_a_path(), 422).await,
            4 => self.jobs(kind, name, number / KINDS % COUNT).await,
            5 => self.marks(kind, name, number / KINDS % COUNT).await,
            _ => {
                if kind == LoadKind::Hostile {
                    self.policy.large_body(&self.stranger).await;
                }
                Ok(())
            }
        }
    }

    /// Creates the object, or a ConfigMap of its size. The API server must refuse the object with the status `refused`,
    /// unless that is 0.
    async fn create<K>(&self, kind: LoadKind, name: &str, body: Value, refused: u16) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
    {
        let answer = match kind {
            LoadKind::Hostile => self.tenant.create::<K>(name, body).await.map(drop),
            LoadKind::Control => {
                let text = "x".repeat(body.to_string().len());
                self.tenant.create::<ConfigMap>(name, json!({"data": {"text": text}})).await.map(drop)
            }
        };
        let status = match answer {
            Ok(()) => 0,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => return Err(error.into()),
        };
        // A ConfigMap may be larger than an object of the operator.
        ensure!(kind == LoadKind::Control || status == refused, "{name}: status {status} instead of {refused}");
        Ok(())
    }

    /// Changes a ConfigMap with jobs: of the pool, or of none.
    async fn jobs(&self, kind: LoadKind, last: &str, number: usize) -> Result<()> {
        let name = jobs(kind, number);
        let mut map = hostile::many_jobs(last);
        map["metadata"] = json!({"name": name});
        (map["apiVersion"], map["kind"]) = (json!("v1"), json!("ConfigMap"));
        let params = PatchParams::apply("mallory").force();
        self.tenant.api::<ConfigMap>().patch(&name, &params, &Patch::Apply(map)).await?;
        Ok(())
    }

    /// Changes the annotations of a pod: forged marks, or others of the same size.
    async fn marks(&self, kind: LoadKind, change: &str, number: usize) -> Result<()> {
        let mut marks = hostile::forged_marks(number);
        if kind == LoadKind::Control {
            marks = serde_json::from_str(&marks.to_string().replace("ganglion.dev", "somebody.dev"))?;
        }
        marks["change"] = json!(change);
        let patch = Patch::Merge(json!({"metadata": {"annotations": marks}}));
        self.tenant.api::<Pod>().patch(&marked_pod(number), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Deletes what a round has created, and waits until it is gone.
    pub async fn clear(&self) -> Result<()> {
        self.clear_all::<WorkloadAction>().await?;
        self.clear_all::<ClosedLoop>().await?;
        self.clear_all::<ConfigMap>().await?;
        sleep(SETTLING).await;
        Ok(())
    }

    async fn clear_all<K>(&self) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + DeserializeOwned + Clone + Debug,
    {
        let (api, all) = (self.tenant.api::<K>(), ListParams::default());
        api.delete_collection(&DeleteParams::default(), &all).await?;
        becomes("the end of a round's objects", async || {
            let left = api.list_metadata(&all).await?.items;
            let is_kept = |name: Option<&str>| name.is_some_and(|name| KEPT.contains(&name));
            Ok(left.iter().all(|one| is_kept(one.metadata.name.as_deref())).then_some(()))
        })
        .await
    }
}

/// Name of a ConfigMap with jobs.
fn jobs(kind: LoadKind, number: usize) -> String {
    format!("jobs-{}-{number}", kind.name())
}
