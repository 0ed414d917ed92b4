//! The stock kube-scheduler queries policies, with the configuration in config/.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::node_config::NodeConfig;
use ganglion_api::placement_policy::PlacementPolicy;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Event, Node, Pod, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::plane::Plane;
use testkit::plane::install::{self, NAMESPACE};
use testkit::plane::scheduler::{self, Asked, SecondScheduler};
use testkit::process::free_port;
use testkit::servers::inference::{Linear, MODEL, ModelServer};
use testkit::testbed::loops::{condition, until};
use testkit::testbed::{Road, Testbed, story_on};
use testkit::{TIMEOUT, block_on, root};

use super::node_configs::{fake, ready};
use super::placement_certificates;

/// Policy that the configuration names.
pub const POLICY: &str = "default";

/// A scheduler that does not query the policy.
const OTHER: &str = "plain";

/// Usage of a node, as others publish it: this share of its cores.
pub fn usage(share: f64) -> Value {
    json!({"mean-used-cpu": format!("{}", share * CORES * 1000.0), "std-used-cpu": format!("{}", 0.05 * CORES * 1000.0)})
}

/// Cores of each node of a plane.
const CORES: f64 = 32.0;

/// A cluster whose scheduler queries the operator of the testbed.
pub struct Scene<'a> {
    pub testbed: &'a Testbed,
    pub nodes: Vec<String>,
    port: u16,
    pods: std::cell::Cell<usize>,
}

impl<'a> Scene<'a> {
    pub async fn open(testbed: &'a Testbed) -> Result<Self> {
        let scene = Self::start(testbed, "").await?;
        scene.ask(None).await?;
        Ok(scene)
    }

    /// Starts the operator with these further settings of placement. The scheduler does not query it yet.
    pub async fn start(testbed: &'a Testbed, settings: &str) -> Result<Self> {
        let port = free_port()?;
        testbed.settings(&format!("placement:\n  serverNames: [127.0.0.1]\n{settings}"))?;
        testbed.operator.lock().await.add_options(&["--extender-bind", &format!("127.0.0.1:{port}")]);
        testbed.kill_and_restart().await?;
        let nodes: Vec<String> = Api::<Node>::all(testbed.client.clone())
            .list(&ListParams::default())
            .await?
            .iter()
            .map(Node::name_any)
            .collect();
        Ok(Self { testbed, nodes, port, pods: Default::default() })
    }

    /// Configures the scheduler to query the operator, with the certificate authority that is in the Secret now.
    /// `identity` names the files with its own certificate and key.
    pub async fn ask(&self, identity: Option<(&Path, &Path)>) -> Result<()> {
        let authority = self.authority().await?;
        let asked = Asked { port: self.port, policy: POLICY, authority: &authority, more: &[OTHER], identity };
        scheduler::restart(&self.testbed.plane.cluster, &asked).await
    }

    /// Certificate authority of the extender.
    async fn authority(&self) -> Result<ByteString> {
        let found = |secret: Secret| secret.data?.remove("ca.crt");
        until::<Secret, _>(self.testbed, "ganglion-extender-tls", "the certificate", found).await
    }

    pub fn policies(&self) -> Api<PlacementPolicy> {
        Api::all(self.testbed.client.clone())
    }

    /// Writes this policy, and waits until its Ready condition has this reason and DataAvailable this status. Returns
    /// the message of DataAvailable.
    async fn policy(&self, spec: Value, reason: &str, data: &str) -> Result<String> {
        let policy = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy", "metadata": {"name": POLICY}, "spec": spec,
        });
        let params = PatchParams::apply("test").force();
        self.policies().patch(POLICY, &params, &Patch::Apply(policy)).await?;
        let told = async {
            loop {
                let found = self.policies().get(POLICY).await?;
                let status = found.status.unwrap_or_default();
                let of = |kind| condition(&status.conditions, kind);
                if status.observed_generation == found.metadata.generation
                    && of("Ready").is_some_and(|ready| ready.status == "True" && ready.reason == reason)
                    && let Some(available) = of("DataAvailable").filter(|available| available.status == data)
                {
                    return Ok(available.message);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, told).await.with_context(|| format!("the policy is not {reason}"))?
    }

    pub async fn agent(&self, agent: Value) -> Result<String> {
        self.policy(json!({"agents": [agent]}), "Serving", "True").await
    }

    /// Sets annotations or labels of a node; null removes one.
    pub async fn node(&self, at: usize, metadata: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        Api::<Node>::all(self.testbed.client.clone()).patch(&self.nodes[at], &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Annotates all nodes, each by its index.
    pub async fn annotate(&self, annotations: impl Fn(usize) -> Value) -> Result<()> {
        for at in 0..self.nodes.len() {
            self.node(at, json!({"annotations": annotations(at)})).await?;
        }
        // Lets the operator's watch catch up.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    pub async fn pod(&self, spec: Value) -> Result<String> {
        self.pod_of("", spec).await
    }

    /// Creates a pod of this type; without a type, it gets a unique one.
    pub async fn pod_of(&self, app: &str, spec: Value) -> Result<String> {
        let name = format!("pod-{}", self.pods.replace(self.pods.get() + 1));
        let mut whole = json!({
            "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}],
        });
        whole.as_object_mut().context("an object")?.extend(spec.as_object().cloned().unwrap_or_default());
        self.testbed.create::<Pod>(json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": whole})).await?;
        Ok(name)
    }

    /// Index of the node on which a new pod is scheduled.
    async fn lands(&self, spec: Value) -> Result<usize> {
        let name = self.pod(spec).await?;
        self.node_of(&name).await
    }

    async fn node_of(&self, name: &str) -> Result<usize> {
        let node = until::<Pod, _>(self.testbed, name, "the pod to be bound", |pod| pod.spec?.node_name).await?;
        self.nodes.iter().position(|one| *one == node).context("a node of the cluster")
    }

    /// Message of the pod's scheduling event: why no node fits.
    pub async fn unschedulable(&self, name: &str) -> Result<String> {
        let events: Api<Event> = self.testbed.api();
        let told = async {
            loop {
                let found = events.list(&ListParams::default()).await?.into_iter().find(|event| {
                    event.involved_object.name.as_deref() == Some(name)
                        && event.reason.as_deref() == Some("FailedScheduling")
                });
                if let Some(event) = found {
                    return anyhow::Ok(event.message.unwrap_or_default());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, told).await.context("no event says that the pod does not fit")?
    }

    /// Nodes of the pods with this label, once this number of pods is bound.
    pub async fn bound(&self, label: &str, count: usize) -> Result<Vec<String>> {
        let bound = async {
            loop {
                let pods = self.testbed.api::<Pod>().list(&ListParams::default().labels(label)).await?;
                let nodes: Vec<String> = pods.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
                if nodes.len() == count {
                    return anyhow::Ok(nodes);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, bound).await.with_context(|| format!("{count} pods {label} are not placed"))?
    }

    pub async fn clear(&self) -> Result<()> {
        let now = DeleteParams::default().grace_period(0);
        self.testbed.api::<Pod>().delete_collection(&now, &ListParams::default()).await?;
        let gone = async {
            while !self.testbed.api::<Pod>().list(&ListParams::default()).await?.items.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(TIMEOUT, gone).await.context("pods stay")?
    }
}

#[test]
fn the_stock_scheduler_places_by_each_agent() {
    let plane = block_on(Plane::own("placement", 4)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "placement", async |testbed| {
        let scene = Scene::open(testbed).await?;
        safe(&scene).await?;
        others(&scene).await?;
        congestion(&scene).await?;
        pigeon(&scene).await?;
        expression(&scene).await?;
        power(&scene).await?;
        reward(&scene).await?;
        spread(&scene).await?;
        action(&scene).await?;
        placement_certificates::made(&scene).await?;
        placement_certificates::given(&scene).await
    });
}

#[test]
fn only_schedulers_with_a_certificate_are_answered() {
    let plane = block_on(Plane::own("identity", 2)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "identity", placement_certificates::required);
}

/// It trusts the authority in the Secret. The scheduler of the cluster stays as it is.
#[test]
fn a_second_stock_scheduler_asks_the_extender() {
    const SECOND: &str = "ganglion-scheduler";
    let plane = block_on(Plane::own("asking", 4)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "asking", async |testbed| {
        let scene = Scene::start(testbed, "").await?;
        let components = root().join("kustomize/components");
        let rights = components.join("scheduler/rights.yaml").display().to_string();
        testbed.plane.cluster.kubectl(&["apply", "--server-side", "-f", &rights], None).await?;
        let token = install::token_of(&testbed.client, NAMESPACE, SECOND).await?;
        let only = json!({"name": "only", "expression": {"filter": format!("node.name == {:?}", scene.nodes[2])}});
        scene.policy(json!({"agents": [only], "schedulerNames": [SECOND]}), "Serving", "True").await?;
        let authority = scene.authority().await?;
        let asked = Asked { port: scene.port, policy: POLICY, authority: &authority, more: &[], identity: None };
        let configuration = components.join("scheduler-extender/scheduler.yaml");
        let _second = SecondScheduler::asking(&testbed.plane.cluster, &configuration, &asked, &token)?;
        let of = |scheduler: &str| json!({"schedulerName": scheduler});
        for _ in 0..4 {
            ensure!(scene.lands(of(SECOND)).await? == 2, "a pod is not on the only node that passes");
        }
        let mut nodes = std::collections::BTreeSet::new();
        for _ in 0..4 {
            nodes.insert(scene.lands(of("default-scheduler")).await?);
        }
        ensure!(nodes.iter().any(|node| *node != 2), "the cluster's own scheduler uses the policy");
        scene.clear().await
    });
}

/// Risky nodes are rejected, with a reason; without usage, the agent abstains.
async fn safe(scene: &Scene<'_>) -> Result<()> {
    let said = scene.policy(json!({"agents": [{"name": "safe", "safe": {}}]}), "Serving", "False").await?;
    ensure!(said.contains("agent safe") && said.contains("no fresh usage"), "{said}");
    scene.lands(json!({})).await?;
    scene.annotate(|at| usage(if at == 2 { 0.1 } else { 0.95 })).await?;
    scene.agent(json!({"name": "safe", "safe": {}})).await?;
    for _ in 0..6 {
        let at = scene.lands(json!({})).await?;
        ensure!(at == 2, "a pod went to the risky node {at}");
    }
    explanation(scene, 2).await?;
    scene.annotate(|_| usage(0.95)).await?;
    let name = scene.pod(json!({})).await?;
    let said = scene.unschedulable(&name).await?;
    ensure!(said.contains("safe: cpu risk") && said.contains("mu 0.95"), "{said}");
    scene.clear().await
}

/// The command reports what the scheduler received, for an existing pod and for one in a file.
async fn explanation(scene: &Scene<'_>, safe: usize) -> Result<()> {
    let asked = ["explain", "placement", "--policy", POLICY, "--pod", "pod-0"];
    let (done, said) = scene.testbed.ganglion(&asked).await?;
    let best = format!("{}, in detail:\n  safe: cpu risk 0.000 (mu 0.1", scene.nodes[safe]);
    ensure!(done && said.contains("1 of 4 nodes pass") && said.contains(&best), "{said}");
    let home = tempfile::tempdir()?;
    let file = home.path().join("pod.yaml");
    std::fs::write(&file, "metadata: {name: new}\nspec: {containers: [{name: c}], schedulerName: plain}\n")?;
    let file = file.display().to_string();
    let (done, said) =
        scene.testbed.ganglion(&["explain", "placement", "--policy", POLICY, "-f", &file, "-o", "json"]).await?;
    ensure!(done, "{said}");
    let said: Value = serde_json::from_str(&said)?;
    ensure!(said["noOpinion"].as_str().is_some_and(|why| why.contains("\"plain\"")), "{said}");
    ensure!(said["nodes"][0]["name"] == json!(scene.nodes[safe]) && said["nodes"][0]["score"] == 10, "{said}");
    let rejected = said["nodes"][3]["rejected"].as_str().unwrap_or_default();
    ensure!(rejected.contains("safe: cpu risk"), "{said}");
    Ok(())
}

/// While the policy rejects all nodes, pods of another scheduler and of a DaemonSet are scheduled as usual. In shadow
/// mode and without the policy, all pods are.
async fn others(scene: &Scene<'_>) -> Result<()> {
    scene.lands(json!({"schedulerName": OTHER})).await?;
    let daemon = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "each"},
        "spec": {"selector": {"matchLabels": {"app": "each"}}, "template": {
            "metadata": {"labels": {"app": "each"}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}},
    });
    scene.testbed.kubectl(&["apply", "-f", "-"], Some(&daemon.to_string())).await?;
    scene.bound("app=each", scene.nodes.len()).await?;
    scene.testbed.kubectl(&["delete", "daemonset", "each"], None).await?;
    let safe = json!([{"name": "safe", "safe": {}}]);
    scene.policy(json!({"agents": safe, "mode": "Shadow"}), "Shadowing", "True").await?;
    scene.lands(json!({})).await?;
    scene.policies().delete(POLICY, &DeleteParams::default()).await?;
    scene.lands(json!({})).await?;
    let said = std::fs::read_to_string(scene.testbed.operator.lock().await.log())?;
    ensure!(said.contains("shadow filter"), "no record of what the policy would have said");
    ensure!(said.contains("a scheduler asks for a policy without an opinion"), "no word about the missing policy");
    scene.annotate(|_| json!({"mean-used-cpu": null, "std-used-cpu": null})).await?;
    scene.clear().await
}

async fn congestion(scene: &Scene<'_>) -> Result<()> {
    let agent = || json!({"name": "congestion", "congestion": {}});
    scene.agent(agent()).await?;
    scene.lands(json!({})).await?;
    scene.annotate(|at| json!({"congestion-factor": if at == 1 { "3.5" } else { "97" }})).await?;
    for _ in 0..6 {
        let at = scene.lands(json!({})).await?;
        ensure!(at == 1, "a pod went to the congested node {at}");
    }
    scene.annotate(|_| json!({"congestion-factor": null})).await?;
    scene.clear().await
}

/// The agent packs pods, while the scheduler alone would spread them.
async fn pigeon(scene: &Scene<'_>) -> Result<()> {
    scene.agent(json!({"name": "pack", "pigeon": {"objective": "Consolidate"}})).await?;
    let first = scene.nodes[3].clone();
    let big = json!([{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}]);
    scene.lands(json!({"nodeName": first, "containers": big})).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..6 {
        let at = scene.lands(json!({})).await?;
        ensure!(at == 3, "a pod went to node {at}, not to the full one");
    }
    // A pod that fits nowhere still fits nowhere with scores.
    let huge = json!([{"name": "c", "image": "none", "resources": {"requests": {"cpu": "1000"}}}]);
    let name = scene.pod(json!({ "containers": huge })).await?;
    let said = scene.unschedulable(&name).await?;
    ensure!(said.contains("Insufficient cpu"), "{said}");
    scene.clear().await
}

async fn expression(scene: &Scene<'_>) -> Result<()> {
    scene.node(0, json!({"labels": {"rank": "best"}})).await?;
    // The operator's own Deployment has pods, too.
    let there = ListParams::default().fields(&format!("spec.nodeName={}", scene.nodes[0]));
    let there = Api::<Pod>::all(scene.testbed.client.clone()).list(&there).await?.items.len();
    let (filter, score) = (format!("node.pods < {}", there + 3), "\"rank\" in node.labels ? 10 : 0");
    scene.agent(json!({"name": "mine", "expression": {"filter": filter, "score": score}})).await?;
    let mut landed = Vec::new();
    for _ in 0..4 {
        landed.push(scene.lands(json!({})).await?);
    }
    ensure!(landed[..3] == [0, 0, 0] && landed[3] != 0, "{landed:?}");
    scene.agent(json!({"name": "mine", "expression": {"filter": "node.pods < 0"}})).await?;
    let name = scene.pod(json!({})).await?;
    let said = scene.unschedulable(&name).await?;
    ensure!(said.contains("mine: node.pods < 0 is false"), "{said}");
    // The agent abstains if no node has the data that it needs.
    scene.clear().await?;
    scene.agent(json!({"name": "mine", "expression": {"score": "10.0 - node.power / 100.0"}})).await?;
    scene.lands(json!({})).await?;
    scene.clear().await
}

/// All nodes are half used, and the power of one rises least with usage, as predicted by a real model server.
async fn power(scene: &Scene<'_>) -> Result<()> {
    let agent = || json!({"name": "power", "power": {}});
    let said = scene.policy(json!({"agents": [agent()]}), "Serving", "False").await?;
    ensure!(said.contains("no NodeConfig has current predicted power"), "{said}");
    scene.lands(json!({})).await?;
    let linear = |cpu| Linear { base: 100.0, cpu, inlet: 3.0, pressure: 5.0, ..Linear::ZERO };
    let models = ModelServer::start(&[("thirsty", linear(4.0)), ("green", linear(1.5))]).await?;
    let green = 1;
    for (at, node) in scene.nodes.iter().enumerate() {
        let version = if at == green { "green" } else { "thirsty" };
        let endpoint = models.url(&format!("/v2/models/{MODEL}/versions/{version}/infer"));
        let config = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": {"name": node},
            "spec": {
                "nodeName": node,
                "metricsCollector": {"inletTemp": fake(), "deltaP": fake(), "usage": fake()},
                "predictor": {"powerConsumption": {"type": "V2InferenceProtocol", "endpoint": endpoint, "fetchInterval": "1s"}},
            },
        });
        scene.testbed.create::<NodeConfig>(config).await?;
    }
    for node in &scene.nodes {
        ready(scene.testbed, node, "True", "Sampled").await?;
    }
    scene.agent(agent()).await?;
    for _ in 0..6 {
        let at = scene.lands(json!({})).await?;
        ensure!(at == green, "a pod went to node {at}, whose power rises more");
    }
    let last = format!("pod-{}", scene.pods.get() - 1);
    let (done, said) = scene.testbed.ganglion(&["explain", "placement", "--policy", POLICY, "--pod", &last]).await?;
    ensure!(done && said.contains("W ("), "{said}");
    // The agent abstains for a pod without CPU requests.
    scene.lands(json!({"containers": [{"name": "c", "image": "none"}]})).await?;
    for node in &scene.nodes {
        scene.testbed.kubectl(&["delete", "nodeconfig", node], None).await?;
    }
    scene.clear().await
}

/// Pods of one type have failed on all nodes but one.
async fn reward(scene: &Scene<'_>) -> Result<()> {
    scene.agent(json!({"name": "learn", "reward": {"learningRate": "1"}})).await?;
    // There is no record about this type.
    scene.lands(json!({})).await?;
    let good = 3;
    for at in 0..good {
        let name = scene.pod_of("db", json!({"nodeName": scene.nodes[at]})).await?;
        until::<Pod, _>(scene.testbed, &name, "the pod to run", |pod| {
            (pod.status?.phase.as_deref() == Some("Running")).then_some(())
        })
        .await?;
        let now = Timestamp::now();
        let ended = json!({"terminated": {"exitCode": 1, "startedAt": now, "finishedAt": now}});
        let container =
            json!({"name": "c", "image": "none", "imageID": "", "ready": false, "restartCount": 0, "state": ended});
        let patch = Patch::Merge(json!({"status": {"containerStatuses": [container]}}));
        scene.testbed.api::<Pod>().patch_status(&name, &PatchParams::default(), &patch).await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    for _ in 0..6 {
        let name = scene.pod_of("db", json!({})).await?;
        let at = scene.node_of(&name).await?;
        ensure!(at == good, "a pod went to node {at}, on which pods of its type failed");
    }
    scene.clear().await
}

/// Two zones get the same number of pods, although one has three nodes and the other has one.
async fn spread(scene: &Scene<'_>) -> Result<()> {
    for at in 0..scene.nodes.len() {
        let zone = if at == 0 { "a" } else { "b" };
        let labels = json!({"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": null});
        scene.node(at, json!({ "labels": labels })).await?;
    }
    scene.agent(json!({"name": "spread", "podSpread": {"rate": "1"}})).await?;
    let resources = json!({"requests": {"cpu": "100m"}});
    let template = json!({
        "metadata": {"labels": {"app": "spread"}},
        "spec": {"containers": [{"name": "c", "image": "none", "resources": resources}]},
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "spread"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "spread"}}, "template": template},
    });
    scene.testbed.kubectl(&["apply", "-f", "-"], Some(&deployment.to_string())).await?;
    // One pod at a time: the agent counts the pods in the operator's cache, and the first pod may arrive there before
    // its ReplicaSet.
    for count in 2..=8 {
        scene.bound("app=spread", count - 1).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        scene.testbed.kubectl(&["scale", "deployment", "spread", &format!("--replicas={count}")], None).await?;
    }
    let nodes = scene.bound("app=spread", 8).await?;
    let in_a = nodes.iter().filter(|node| **node == scene.nodes[0]).count();
    ensure!(in_a == 4, "{in_a} of 8 pods are in the zone with one of four nodes");
    scene.testbed.kubectl(&["delete", "deployment", "spread"], None).await?;
    scene.clear().await
}

/// An action moves a replica to the node that the policy prefers, although the scheduler of its pods does not query the
/// policy.
async fn action(scene: &Scene<'_>) -> Result<()> {
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"schedulerName": OTHER, "containers": [{"name": "c", "image": "none"}]},
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    scene.testbed.kubectl(&["apply", "-f", "-"], Some(&deployment.to_string())).await?;
    let before = scene.bound("app=web", 2).await?;
    let free = scene.nodes.iter().position(|node| !before.contains(node)).context("a node without a replica")?;
    for at in 0..scene.nodes.len() {
        scene.node(at, json!({"labels": {"rank": if at == free { json!("best") } else { json!(null) }}})).await?;
    }
    let score = "\"rank\" in node.labels ? 10 : 0";
    scene.agent(json!({"name": "mine", "expression": {"score": score}})).await?;
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"move": {"workload": workload, "to": {"policy": POLICY}}});
    let manifest = testkit::action::action("go", spec.clone()).to_string();
    let plan = ["plan", "-f", "-", "-o", "json"];
    let (good, said) = scene.testbed.ganglion_as(&scene.testbed.administrator().await?, &plan, &manifest).await?;
    ensure!(good, "{said}");
    let said: Value = serde_json::from_str(&said)?;
    ensure!(said[0]["plan"]["replicas"][0]["to"] == json!(scene.nodes[free]), "{said}");
    scene.testbed.act("go", spec).await?;
    let done = scene.testbed.ends("go", ("True", "Succeeded")).await?;
    let plan = done.status.as_ref().and_then(|status| status.plan.clone()).context("a plan")?;
    let first = plan.nodes.first().context("a node")?;
    ensure!(first.name == scene.nodes[free] && first.message.starts_with("mine: the expression gives 10"), "{plan:?}");
    let after = scene.bound("app=web", 2).await?;
    ensure!(after.contains(&scene.nodes[free]), "{before:?} {after:?}");
    scene.testbed.kubectl(&["delete", "deployment", "web"], None).await?;
    scene.clear().await
}
