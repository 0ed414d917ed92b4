//! A hostile tenant: a user with Kubernetes' own ClusterRole edit in one namespace, and what it sends; and a client
//! without credentials at the extender. Shared by the story, which checks what must not happen, and the bench, which
//! measures another tenant in the meantime.

use std::fmt::Debug;
use std::future::{Future, pending, ready};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, stream};
use ganglion_api::placement_policy::PlacementPolicy;
use http::header::CONTENT_LENGTH;
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::TIMEOUT;
use crate::plane::cluster::Cluster;
use crate::plane::install::bind_loops;
use crate::testbed::loops::condition;
use crate::testbed::pools::WORKERS;

/// The user, who may edit the hostile namespace.
const USER: &str = "mallory";

/// Address of the client without credentials. Schedulers have another one.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Number of connections of that client whose bodies never end.
const SLOW: usize = 64;

/// Bytes of a text that no object may contain.
const LARGE: usize = 1_400_000;

/// Number of jobs in a ConfigMap of almost a megabyte, each with a name of one letter.
const JOBS: usize = 450_000;

/// Name of the workload that the user owns.
const WEB: &str = "mine";

/// The hostile namespace, as its user sees it.
pub struct HostileTenant {
    client: Client,
    pub ns: String,
}

impl HostileTenant {
    /// Creates the namespace, with loops enabled, and the user's rights.
    pub async fn open(cluster: &Cluster, ns: &str) -> Result<Self> {
        cluster.kubectl(&["create", "namespace", ns], None).await?;
        bind_loops(&cluster.client, ns).await?;
        let binding = json!({
            "metadata": {"name": USER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
        });
        let bindings: Api<RoleBinding> = Api::namespaced(cluster.client.clone(), ns);
        bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
        let mut config = cluster.config.clone();
        config.auth_info.impersonate = Some(USER.to_owned());
        Ok(Self { client: Client::try_from(config)?, ns: ns.to_owned() })
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.ns)
    }

    /// Creates an object of this name; `body` is the rest of it.
    pub async fn create<K>(&self, name: &str, body: Value) -> kube::Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
    {
        let mut object = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}});
        if let (Some(object), Value::Object(body)) = (object.as_object_mut(), body) {
            object.extend(body);
        }
        let object: K = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        self.api().create(&PostParams::default(), &object).await
    }

    /// Creates a Deployment, so that actions of the user have a workload.
    pub async fn workload(&self) -> Result<()> {
        let deployment = json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"app": WEB}}, "template": {
            "metadata": {"labels": {"app": WEB}}, "spec": containers()}}});
        self.create::<Deployment>(WEB, deployment).await?;
        Ok(())
    }

    /// Creates a pool that reads its jobs from these ConfigMaps, and its workload.
    pub async fn pool(&self, name: &str, maps: &[String]) -> Result<()> {
        let set = json!({"spec": {
            "replicas": 1, "serviceName": WORKERS, "selector": {"matchLabels": {"app": WORKERS}},
            "template": {"metadata": {"labels": {"app": WORKERS}}, "spec": containers()}}});
        self.create::<StatefulSet>(WORKERS, set).await?;
        let pool = json!({"spec": {
            "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": WORKERS},
            "output": {"configMap": "out"}, "jobs": {"configMaps": {"names": maps}},
        }});
        self.create::<ganglion_api::swarm_pool::SwarmPool>(name, pool).await?;
        Ok(())
    }

    /// Creates pods with forged marks of an action, under a budget that allows no disruption.
    pub async fn forged_pods(&self, count: usize) -> Result<Vec<Pod>> {
        let budget = json!({"spec": {"minAvailable": "100%", "selector": {"matchLabels": {"app": "marked"}}}});
        self.create::<PodDisruptionBudget>("marked", budget).await?;
        let mut pods = Vec::new();
        for number in 0..count {
            let name = marked_pod(number);
            let metadata = json!({"name": name, "labels": {"app": "marked"}, "annotations": forged_marks(number)});
            pods.push(self.create::<Pod>(&name, json!({"metadata": metadata, "spec": containers()})).await?);
        }
        Ok(pods)
    }
}

fn containers() -> Value {
    json!({"containers": [{"name": "main", "image": "registry.example/app:1"}]})
}

/// Name of a pod with forged marks.
pub fn marked_pod(number: usize) -> String {
    format!("marked-{number}")
}

/// Annotations as on the replacement of an action that does not exist.
pub fn forged_marks(number: usize) -> Value {
    json!({"ganglion.dev/slot": format!("{number:016x}"), "ganglion.dev/role": "replacement"})
}

/// An action that is far too large; the API server must refuse it.
pub fn large_action() -> Value {
    json!({"spec": {"mode": "Plan", "create": {
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": WEB},
        "to": {"nodeSelector": {"a": "x".repeat(LARGE)}},
    }}})
}

/// A loop with a path in place of an API version; the API server must refuse it.
pub fn loop_on_a_path() -> Value {
    looped(json!({"object": {
        "apiVersion": "apps/v1/replicasets", "kind": "ReplicaSet", "name": "a", "path": "spec.replicas"}}))
}

/// A loop that queries a private address.
pub fn private_loop(number: usize) -> Value {
    looped(json!({"http": {"url": format!("http://10.255.255.{}:9/_all", number % 256), "path": "m"}}))
}

fn looped(source: Value) -> Value {
    json!({"spec": {
        "serviceAccountName": "default",
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": WEB},
        "metrics": [{"name": "m", "low": {"raise": "5"}, "source": source}],
    }})
}

/// An action that waits for a node that does not exist.
pub fn waiting_action() -> Value {
    json!({"spec": {"create": {
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": WEB},
        "to": {"nodeSelector": {"there": "is-none"}},
    }}})
}

/// A ConfigMap with almost a megabyte of jobs. `last` is the name of the last job.
pub fn many_jobs(last: &str) -> Value {
    json!({"data": {"jobs": "a\n".repeat(JOBS) + last}})
}

/// Asks again until the answer is what it should be.
pub async fn becomes<T>(what: &str, ask: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    let asked = async {
        loop {
            if let Some(answer) = ask().await? {
                return anyhow::Ok(answer);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, asked).await.with_context(|| format!("not seen: {what}"))?
}

/// A policy of the operator's extender that rejects every node, so that an answer without an opinion is noticed.
pub struct RefusingPolicy {
    url: String,
    authority: Vec<u8>,
    name: String,
}

impl RefusingPolicy {
    /// Creates the policy, and waits until the extender at this port serves it. `namespace` has its certificate.
    pub async fn create(client: &Client, name: &str, port: u16, namespace: &str) -> Result<Self> {
        let policy = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy", "metadata": {"name": name},
            "spec": {"agents": [{"name": "none", "expression": {"filter": "node.pods < 0"}}]},
        });
        let policies: Api<PlacementPolicy> = Api::all(client.clone());
        policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
        becomes("a policy that serves", async || {
            let status = policies.get(name).await?.status.unwrap_or_default();
            Ok(condition(&status.conditions, "Ready").filter(|ready| ready.status == "True").map(drop))
        })
        .await?;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let authority = becomes("the certificate of the extender", async || {
            let secret = secrets.get_opt("ganglion-extender-tls").await?;
            Ok(secret.and_then(|secret| secret.data?.remove("ca.crt")))
        })
        .await?;
        Ok(Self { url: format!("https://127.0.0.1:{port}"), authority: authority.0, name: name.to_owned() })
    }

    /// The same policy, asked at another replica.
    pub fn at(&self, port: u16) -> Self {
        let (authority, name) = (self.authority.clone(), self.name.clone());
        Self { url: format!("https://127.0.0.1:{port}"), authority, name }
    }

    fn client(&self, from: IpAddr) -> Result<reqwest::ClientBuilder> {
        let authority = reqwest::Certificate::from_pem(&self.authority)?;
        let builder = reqwest::Client::builder().tls_certs_only([authority]).local_address(from);
        Ok(builder.timeout(Duration::from_secs(20)))
    }

    /// Client of a scheduler, which keeps its connections.
    pub fn scheduler(&self) -> Result<reqwest::Client> {
        Ok(self.client(IpAddr::V4(Ipv4Addr::LOCALHOST))?.build()?)
    }

    /// A request of a scheduler, which must be answered with the decision of the policy.
    pub async fn filters(&self, scheduler: &reqwest::Client, node: &str) -> Result<()> {
        let body = json!({"Pod": {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"containers": []}},
            "NodeNames": [node]});
        let url = format!("{}/policies/{}/filter", self.url, self.name);
        let answer = scheduler.post(url).body(body.to_string()).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success() && text.contains("is false"), "{status}: {text}");
        Ok(())
    }

    /// Client without credentials, with a connection for each request.
    pub fn stranger(&self) -> Result<reqwest::Client> {
        Ok(self.client(STRANGER)?.pool_max_idle_per_host(0).build()?)
    }

    fn unknown(&self) -> String {
        format!("{}/policies/x/filter", self.url)
    }

    /// Bodies that never end, until `over`.
    pub async fn slow_bodies(&self, stranger: &reqwest::Client, over: impl Future<Output = ()>) {
        let slow = (0..SLOW).map(|_| async {
            let first = stream::once(ready(Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(b"{")))));
            let body = BoxBody::new(StreamBody::new(first.chain(stream::once(pending()))));
            let request = stranger.post(self.unknown()).header(CONTENT_LENGTH, 1 << 20);
            let _ = request.body(reqwest::Body::wrap(body)).send().await;
        });
        tokio::select! {
            () = async { join_all(slow).await; pending().await } => {}
            () = over => {}
        }
    }

    /// A body with hundreds of thousands of containers, for a policy that does not exist. Any answer will do.
    pub async fn large_body(&self, stranger: &reqwest::Client) {
        let containers = "{},".repeat(345_000);
        let text = format!(r#"{{"Pod":{{"spec":{{"containers":[{containers}{{}}]}}}},"NodeNames":["a"]}}"#);
        let _ = stranger.post(self.unknown()).body(text).send().await;
    }
}
