//! A hostile tenant. A user with Kubernetes' own ClusterRole edit in one namespace does, all at once, what once hurt
//! others; a client without credentials does the same to the extender. Meanwhile the testbed's own namespace works as
//! ever, and the memory of the operator stays below half of its limit.

use std::future::{Future, pending, ready};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::future::{join_all, try_join};
use futures::{StreamExt, stream};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::workload_action::WorkloadAction;
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config, Resource, ResourceExt};
use reqwest::header::CONTENT_LENGTH;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::TIMEOUT;
use testkit::action::move_pod;
use testkit::plane::install::bind_loops;
use testkit::process::free_port;
use testkit::testbed::Testbed;
use testkit::testbed::loops::{SCALES, account, condition, loop_story, make, on, push, travelled, until};
use testkit::testbed::pools::{self, WORKERS, converged, stateful_set};
use testkit::testbed::workload::Workload;

use crate::scenes::Scene;

/// The user, who may edit the hostile namespace.
const USER: &str = "mallory";

/// Address of the client without credentials. The scheduler has another one.
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Maximum memory of the operator in MiB.
const MEMORY: f64 = 256.0;

/// Number of times that the user repeats each deed.
const TIMES: usize = 12;

/// The hostile namespace, as its user sees it.
struct Tenant {
    client: Client,
    ns: String,
}

impl Tenant {
    async fn open(testbed: &Testbed) -> Result<Self> {
        let ns = format!("{}-hostile", testbed.ns);
        let cluster = &testbed.plane.cluster;
        cluster.kubectl(&["create", "namespace", &ns], None).await?;
        bind_loops(&testbed.client, &ns).await?;
        let binding = json!({
            "metadata": {"name": USER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
        });
        let bindings: Api<RoleBinding> = Api::namespaced(testbed.client.clone(), &ns);
        bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
        let mut config: Config = cluster.config.clone();
        config.auth_info.impersonate = Some(USER.to_owned());
        Ok(Self { client: Client::try_from(config)?, ns })
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.ns)
    }

    async fn create<K>(&self, name: &str, body: Value) -> kube::Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Serialize + DeserializeOwned + Clone,
        K: std::fmt::Debug,
    {
        let mut object = json!({"apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}});
        if let (Some(object), Value::Object(body)) = (object.as_object_mut(), body) {
            object.extend(body);
        }
        let object: K = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        self.api().create(&PostParams::default(), &object).await
    }
}

/// Asks again until the answer is what it should be.
async fn becomes<T>(what: &str, ask: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
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

/// Objects that the API server must refuse: far too large, or a path instead of an API version.
async fn refused_at_apply(tenant: &Tenant) -> Result<()> {
    let large = "x".repeat(1_400_000);
    let plan = json!({"spec": {
        "mode": "Plan", "create": {
            "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "to": {"nodeSelector": {"a": large}},
        },
    }});
    let path = json!({"spec": {
        "serviceAccountName": "default",
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"name": "m", "low": {"raise": "5"}, "source": {"object": {
            "apiVersion": "apps/v1/replicasets", "kind": "ReplicaSet", "name": "a", "path": "spec.replicas"}}}],
    }});
    for time in 0..TIMES {
        for (answer, field) in [
            (tenant.create::<WorkloadAction>(&format!("large-{time}"), plan.clone()).await.map(drop), "nodeSelector"),
            (tenant.create::<ClosedLoop>(&format!("path-{time}"), path.clone()).await.map(drop), "apiVersion"),
        ] {
            match answer {
                Err(kube::Error::Api(status)) if status.code == 422 && status.message.contains(field) => {}
                other => bail!("time {time}: {}", &format!("{other:?}").chars().take(500).collect::<String>()),
            }
        }
    }
    Ok(())
}

/// Megabytes of names of one letter.
async fn many_jobs(tenant: &Tenant) -> Result<()> {
    let text = "a\n".repeat(450_000);
    let names: Vec<String> = (0..TIMES).map(|nth| format!("jobs-{nth}")).collect();
    for name in &names {
        tenant.create::<ConfigMap>(name, json!({"data": {"jobs": text}})).await?;
    }
    let set = json!({"spec": {
        "replicas": 1, "serviceName": WORKERS, "selector": {"matchLabels": {"app": WORKERS}}, "template": {
            "metadata": {"labels": {"app": WORKERS}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]}}}});
    tenant.create::<StatefulSet>(WORKERS, set).await?;
    let spec = json!({"spec": {
        "workload": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": WORKERS},
        "output": {"configMap": "out"}, "jobs": {"configMaps": {"names": names}},
    }});
    tenant.create::<SwarmPool>("many", spec).await?;
    let refused = becomes("a pool that refuses too many jobs", async || {
        let found = tenant.api::<SwarmPool>().get("many").await?;
        let text = serde_json::to_string(&found.status)?;
        Ok(text.contains("at most 131072 jobs").then_some(()))
    });
    match refused.await {
        Ok(()) => Ok(()),
        Err(error) => {
            let found = tenant.api::<SwarmPool>().get("many").await?;
            Err(error.context(serde_json::to_string(&found.status)?))
        }
    }
}

/// Loops that ask private addresses.
async fn private_addresses(tenant: &Tenant) -> Result<()> {
    for time in 0..TIMES {
        let spec = json!({"spec": {
            "serviceAccountName": "default",
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"name": "m", "low": {"raise": "5"}, "source": {"http": {
                "url": format!("http://10.255.255.{time}:9/_all"), "path": "m"}}}],
        }});
        tenant.create::<ClosedLoop>(&format!("private-{time}"), spec).await?;
    }
    let last = format!("private-{}", TIMES - 1);
    becomes("a refused address", async || {
        let found = tenant.api::<ganglion_api::monitoring::Monitoring>().get_opt(&last).await?;
        let text = serde_json::to_string(&found.and_then(|found| found.status))?;
        Ok(text.contains("outbound.privateNetworks").then_some(()))
    })
    .await
}

/// Actions that wait for a node that does not exist.
async fn waiting_actions(tenant: &Tenant) -> Result<()> {
    let spec = json!({"spec": {"create": {
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "mine"},
        "to": {"nodeSelector": {"there": "is-none"}},
    }}});
    for nth in 0..TIMES * 10 {
        tenant.create::<WorkloadAction>(&format!("waits-{nth:03}"), spec.clone()).await?;
    }
    Ok(())
}

/// Pods with forged marks of an action, under a budget that allows no disruption. Returns their uids.
async fn forged_marks(tenant: &Tenant) -> Result<Vec<(String, Option<String>)>> {
    let spec = json!({"minAvailable": "100%", "selector": {"matchLabels": {"app": "marked"}}});
    tenant.create::<PodDisruptionBudget>("marked", json!({ "spec": spec })).await?;
    let mut pods = Vec::new();
    for nth in 0..TIMES {
        let marks = json!({"ganglion.dev/slot": format!("{nth:016x}"), "ganglion.dev/role": "replacement"});
        let body = json!({
            "metadata": {"name": format!("marked-{nth}"), "labels": {"app": "marked"}, "annotations": marks},
            "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
        });
        let pod = tenant.create::<Pod>(&format!("marked-{nth}"), body).await?;
        pods.push((pod.name_any(), pod.uid()));
    }
    Ok(pods)
}

/// Kinds that the user may not write at all.
async fn other_kinds(tenant: &Tenant) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"metrics": []}}));
    let monitorings = tenant.api::<ganglion_api::monitoring::Monitoring>();
    let answer = monitorings.patch("private-0", &PatchParams::default(), &patch).await;
    ensure!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403), "{answer:?}");
    Ok(())
}

/// Requests to the extender.
struct Extender {
    url: String,
    authority: Vec<u8>,
}

impl Extender {
    fn client(&self, from: IpAddr) -> Result<reqwest::Client> {
        let authority = reqwest::Certificate::from_pem(&self.authority)?;
        let builder = reqwest::Client::builder().tls_certs_only([authority]).local_address(from);
        Ok(builder.pool_max_idle_per_host(0).timeout(Duration::from_secs(20)).build()?)
    }

    /// Bodies that never end, and bodies with hundreds of thousands of containers for a policy that does not exist.
    async fn attacked(&self, until: impl Future<Output = ()>) -> Result<()> {
        let client = self.client(STRANGER)?;
        let url = format!("{}/policies/x/filter", self.url);
        let slow = (0..64).map(|_| async {
            let first = stream::once(ready(Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from_static(b"{")))));
            let body = BoxBody::new(StreamBody::new(first.chain(stream::once(pending()))));
            let _ = client.post(&url).header(CONTENT_LENGTH, 1 << 20).body(reqwest::Body::wrap(body)).send().await;
        });
        let containers = "{},".repeat(345_000);
        let text = format!(r#"{{"Pod":{{"spec":{{"containers":[{containers}{{}}]}}}},"NodeNames":["a"]}}"#);
        let large = (0..TIMES).map(|_| async {
            let _ = client.post(&url).body(text.clone()).send().await;
        });
        tokio::select! {
            _ = join_all(slow) => {}
            () = until => {}
            never = async { join_all(large).await; pending::<()>().await } => never,
        }
        Ok(())
    }

    /// A request of a scheduler, which must be answered with the decision of the policy.
    async fn filters(&self, client: &reqwest::Client, policy: &str, node: &str) -> Result<()> {
        let body = json!({"Pod": {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"containers": []}},
            "NodeNames": [node]});
        let url = format!("{}/policies/{policy}/filter", self.url);
        let answer = client.post(url).body(body.to_string()).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success() && text.contains("is false"), "{status}: {text}");
        Ok(())
    }
}

/// A policy that rejects every node, so that an answer without an opinion is noticed.
async fn policy(testbed: &Testbed) -> Result<String> {
    let name = testbed.ns.clone();
    let policy = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy", "metadata": {"name": name},
        "spec": {"agents": [{"name": "none", "expression": {"filter": "node.pods < 0"}}]},
    });
    let policies: Api<PlacementPolicy> = Api::all(testbed.client.clone());
    policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
    becomes("a policy that serves", async || {
        let status = policies.get(&name).await?.status.unwrap_or_default();
        Ok(condition(&status.conditions, "Ready").filter(|ready| ready.status == "True").map(drop))
    })
    .await?;
    Ok(name)
}

/// Work of the other tenant in the meantime: moves, a loop, a pool, and requests of a scheduler.
async fn works(testbed: &Testbed, scene: &Scene, extender: &Extender, policy: &str) -> Result<()> {
    let scheduler = extender.client(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
    for nth in 0..3 {
        let (pod, to) = (scene.pod(nth).0, scene.free(nth));
        let name = format!("go-{nth}");
        testbed.act(&name, move_pod(&pod, &to)).await?;
        testbed.ends(&name, ("True", "Succeeded")).await?;
        extender.filters(&scheduler, policy, "node-0").await?;
    }
    let time = push(testbed, "web", json!({"cpu": "1"})).await?;
    travelled(testbed, "web", time).await?;
    converged(testbed, WORKERS, 2, 30).await?;
    for _ in 0..TIMES {
        extender.filters(&scheduler, policy, "node-0").await?;
    }
    Ok(())
}

#[test]
fn one_tenant_hurts_no_other() {
    loop_story("hostile", async |testbed| {
        let tenant = Tenant::open(testbed).await?;
        testbed.watch_too(&tenant.ns).await;
        let port = free_port()?;
        testbed.settings("placement:\n  serverNames: [127.0.0.1]")?;
        testbed.operator.lock().await.add_options(&["--extender-bind", &format!("127.0.0.1:{port}")]);
        testbed.kill_and_restart().await?;

        let scene = Scene::guarded(testbed, "other", 3).await?;
        Workload::deployment("web", 1).make(testbed).await?;
        account(testbed, SCALES).await?;
        make(testbed, "web", on("Low", json!([{"scale": {"by": 1, "max": 2}}]))).await?;
        let kubelet = pools::kubelet(testbed, true).await?;
        stateful_set(testbed, 2).await?;
        pools::pool(testbed, WORKERS, pools::reloading(json!({}))).await?;
        let policy = policy(testbed).await?;
        let authority = until::<Secret, _>(testbed, "ganglion-extender-tls", "the certificate", |secret| {
            secret.data?.remove("ca.crt")
        })
        .await?;
        let extender = Extender { url: format!("https://127.0.0.1:{port}"), authority: authority.0 };

        let mine = json!({"spec": {"replicas": 1, "selector": {"matchLabels": {"app": "mine"}}, "template": {
            "metadata": {"labels": {"app": "mine"}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]}}}});
        tenant.create::<Deployment>("mine", mine).await?;
        let marked = forged_marks(&tenant).await?;
        let (over, is_over) = tokio::sync::oneshot::channel::<()>();
        let hostile = async {
            let deeds = async { refused_at_apply(&tenant).await.context("at apply") };
            let others = async {
                private_addresses(&tenant).await.context("private addresses")?;
                other_kinds(&tenant).await.context("other kinds")
            };
            let ends = async {
                let _ = is_over.await;
            };
            let (jobs, waiting) = (many_jobs(&tenant), waiting_actions(&tenant));
            try_join(try_join(deeds, others), try_join(try_join(jobs, waiting), extender.attacked(ends))).await
        };
        let working = async {
            works(testbed, &scene, &extender, &policy).await.context("the other tenant")?;
            let _ = over.send(());
            anyhow::Ok(())
        };
        try_join(hostile, working).await?;

        let memory = testbed.operator.lock().await.memory("VmHWM")?;
        ensure!(memory < MEMORY, "the operator has used {memory:.0} MiB");
        // The janitor has had its turn after the start.
        for (name, uid) in &marked {
            let pod = tenant.api::<Pod>().get(name).await?;
            ensure!(pod.uid() == *uid && pod.metadata.deletion_timestamp.is_none(), "{name} was deleted");
        }
        scene
            .moved(
                testbed,
                &[&scene.pod(0).0, &scene.pod(1).0, &scene.pod(2).0],
                &[&scene.free(0), &scene.free(1), &scene.free(2)],
            )
            .await?;
        let (all, none) = (ListParams::default(), DeleteParams::default());
        tenant.api::<WorkloadAction>().delete_collection(&none, &all).await?;
        becomes("the end of the hostile actions", async || {
            Ok(tenant.api::<WorkloadAction>().list(&all).await?.items.is_empty().then_some(()))
        })
        .await?;
        Api::<PlacementPolicy>::all(testbed.client.clone()).delete(&policy, &none).await?;
        Api::<Namespace>::all(testbed.client.clone()).delete(&tenant.ns, &none).await?;
        kubelet.stop().await
    });
}
