//! A policy is delivered as labels of nodes, which the stock kube-scheduler reads: by terms that the API server adds to
//! new pods, or by the configuration of a second scheduler.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::marks::{DEFAULT_POLICY, POD_POLICY};
use ganglion_api::placement_policy::PlacementPolicy;
use ganglion_api::placement_policy::status::PlacementPolicyStatus;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::plane::Plane;
use testkit::plane::install::{self, NAMESPACE};
use testkit::plane::scheduler::SecondScheduler;
use testkit::testbed::loops::{condition, until};
use testkit::testbed::{Road, Testbed, story_on};
use testkit::{TIMEOUT, block_on, root};

const POLICY: &str = "ranked";
const KEY: &str = "ganglion.node-restriction.kubernetes.io/ranked";

/// Name of the component's scheduler, its account and its lease.
const SECOND: &str = "ganglion-scheduler";

/// Pod that is explained.
const EXPLAINED: &str = "explained";

/// Label of a node in these stories: its score.
const RANK: &str = "rank";

struct Scene<'a> {
    testbed: &'a Testbed,
    nodes: Vec<String>,
}

impl Scene<'_> {
    fn policies(&self) -> Api<PlacementPolicy> {
        Api::all(self.testbed.client.clone())
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.testbed.client.clone())
    }

    fn pods(&self) -> Api<Pod> {
        self.testbed.api()
    }

    async fn component(&self, file: &str) -> Result<()> {
        let path = root().join("kustomize/components").join(file).display().to_string();
        self.testbed.plane.cluster.kubectl(&["apply", "--server-side", "-f", &path], None).await.map(drop)
    }

    /// Applies the policy: the score of a node is its label.
    async fn policy(&self, name: &str, changes: &Value) -> Result<()> {
        let mut policy = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy",
            "metadata": {"name": name, "labels": {DEFAULT_POLICY: (name == POLICY).to_string()}},
            "spec": {
                "delivery": ["Labels"],
                "agents": [{"name": "rank", "expression": {
                    "score": format!("double(node.labels[\"{RANK}\"])"),
                }}],
            },
        });
        for (member, value) in changes.as_object().into_iter().flatten() {
            policy["spec"][member] = value.clone();
        }
        self.policies().patch(name, &PatchParams::apply("test").force(), &Patch::Apply(policy)).await?;
        Ok(())
    }

    /// Status of the policy, once this condition has this status and reason.
    async fn says(&self, policy: &str, kind: &str, expected: (&str, &str)) -> Result<PlacementPolicyStatus> {
        let mut last = None;
        let told = async {
            loop {
                let found = self.policies().get(policy).await?;
                let status = found.status.unwrap_or_default();
                last = condition(&status.conditions, kind);
                if last.as_ref().is_some_and(|one| (one.status.as_str(), one.reason.as_str()) == expected)
                    && status.observed_generation == found.metadata.generation
                {
                    return anyhow::Ok(status);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let ended = tokio::time::timeout(TIMEOUT, told).await;
        ended.unwrap_or_else(|_| anyhow::bail!("{kind} of {policy} is not {expected:?}, but {last:?}"))
    }

    /// Sets the score of a node.
    async fn rank(&self, node: &str, rank: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"labels": {RANK: rank}}}));
        self.nodes().patch(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until the labels of the nodes are these.
    async fn labeled(&self, expected: &BTreeMap<String, Option<&str>>) -> Result<()> {
        let mut last = BTreeMap::new();
        let look = async {
            loop {
                let nodes = self.nodes().list(&ListParams::default()).await?;
                last = nodes.iter().map(|node| (node.name_any(), node.labels().get(KEY).cloned())).collect();
                if expected.iter().all(|(node, label)| last.get(node).is_some_and(|one| one.as_deref() == *label)) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let ended = tokio::time::timeout(TIMEOUT, look).await;
        ended.unwrap_or_else(|_| anyhow::bail!("the labels are not {expected:?}, but {last:?}"))
    }

    /// Deletes all pods.
    async fn clear(&self) -> Result<()> {
        self.testbed.kubectl(&["delete", "pods", "--all", "--grace-period=0", "--force"], None).await.map(drop)
    }

    /// Creates pods of this scheduler one after the other. Fails unless each is placed on this node.
    async fn places(&self, scheduler: &str, expected: &str) -> Result<()> {
        for at in 0..3 {
            let name = format!("placed-{at}");
            let pod = json!({
                "metadata": {"name": name},
                "spec": {
                    "schedulerName": scheduler, "containers": [{"name": "main", "image": "registry.example/app:1"}],
                },
            });
            self.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
            let node = until::<Pod, _>(self.testbed, &name, "a node", |pod| pod.spec?.node_name).await?;
            ensure!(node == expected, "{name} is on {node}, and {expected} is the best node");
        }
        self.clear().await
    }

    /// Creates a pod of this scheduler that stays, and checks its node. Returns when it was scheduled.
    async fn placed(&self, scheduler: &str, expected: &str) -> Result<Timestamp> {
        let pod = json!({
            "metadata": {"name": EXPLAINED},
            "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "registry.example/app:1"}]},
        });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        let scheduled = |pod: Pod| {
            let conditions = pod.status?.conditions.unwrap_or_default();
            let mut scheduled = conditions.into_iter().filter(|one| one.type_ == "PodScheduled");
            Some((pod.spec?.node_name?, scheduled.next()?.last_transition_time?.0))
        };
        let (node, at) = until::<Pod, _>(self.testbed, EXPLAINED, "a node", scheduled).await?;
        ensure!(node == expected, "{EXPLAINED} is on {node}, and {expected} is the best node");
        Ok(at)
    }

    /// Explanation of that pod, as data and as text.
    async fn explain(&self, policy: &str) -> Result<(Value, String)> {
        let asked = ["explain", "placement", "--policy", policy, "--pod", EXPLAINED];
        let (done, text) = self.testbed.ganglion(&asked).await?;
        ensure!(done, "{text}");
        let (_, json) = self.testbed.ganglion(&[&asked[..], &["-o", "json"]].concat()).await?;
        Ok((serde_json::from_str(&json).with_context(|| json.clone())?, text))
    }

    /// The pod as the API server would create it.
    async fn created(&self, changes: &Value) -> Result<Value> {
        let mut pod = json!({
            "metadata": {"generateName": "probe-"},
            "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
        });
        merge(&mut pod, changes);
        let params = PostParams { dry_run: true, ..PostParams::default() };
        Ok(serde_json::to_value(self.pods().create(&params, &serde_json::from_value(pod)?).await?)?)
    }

    /// Waits until the API server adds terms to such pods, or no longer does. It looks for new CRDs every 30 s.
    async fn until_terms(&self, changes: &Value, expected: usize) -> Result<Value> {
        let look = async {
            loop {
                let pod = self.created(changes).await?;
                if preferred(&pod).len() == expected {
                    return anyhow::Ok(pod);
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, look).await.with_context(|| format!("never {expected} terms"))?
    }
}

/// Waits until the next second, since a label that is written in the second of a pod may be that before or after it.
async fn until_after(at: Timestamp) {
    while Timestamp::now().as_second() <= at.as_second() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A text in one line.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The label of a node in an explanation.
fn then_and_now(found: &Value, node: &str) -> (Value, Value) {
    let nodes = found["labels"]["labels"][0]["nodes"].as_array();
    let node = nodes.into_iter().flatten().find(|one| one["name"] == node);
    node.map(|node| (node["then"].clone(), node["now"].clone())).unwrap_or_default()
}

/// Installs the configuration of the component `scheduler`, as Kustomize names it, without pods.
async fn configured(scene: &Scene<'_>, configuration: &Path) -> Result<()> {
    let name = "ganglion-scheduler-5k2t9h7c";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {"scheduler.yaml": std::fs::read_to_string(configuration)?},
    });
    let component = std::fs::read_to_string(root().join("kustomize/components/scheduler/deployment.yaml"))?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&component)?;
    let mut deployment = objects.into_iter().find(|object| object["kind"] == "Deployment").context("no Deployment")?;
    deployment["spec"]["replicas"] = json!(0);
    deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = json!(name);
    for object in [map, deployment] {
        let cluster = &scene.testbed.plane.cluster;
        cluster.kubectl(&["apply", "--server-side", "-f", "-"], Some(&object.to_string())).await?;
    }
    Ok(())
}

/// Merges objects; other values replace.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (member, value) in from {
                merge(into.entry(member.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Preferred terms of a pod that read the label of the policy.
fn preferred(pod: &Value) -> Vec<Value> {
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let reads = |term: &&Value| term["preference"]["matchExpressions"][0]["key"] == KEY;
    terms.as_array().into_iter().flatten().filter(reads).cloned().collect()
}

#[test]
fn labels_of_nodes_decide_where_the_stock_scheduler_places_pods() {
    let plane = block_on(Plane::own("labels", 4)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "labels", async |testbed| {
        let nodes = Api::<Node>::all(testbed.client.clone()).list(&ListParams::default()).await?;
        let scene = Scene { testbed, nodes: nodes.iter().map(Node::name_any).collect() };
        kept(&scene).await?;
        applied(&scene).await?;
        explained(&scene).await?;
        user_terms(&scene).await?;
        required(&scene).await?;
        expired(&scene).await?;
        deleted(&scene).await
    });
}

#[test]
fn a_second_stock_scheduler_reads_the_labels() {
    let plane = block_on(Plane::own("second", 4)).expect("a plane of its own");
    story_on(&plane.0, Road::Direct, "second", async |testbed| {
        let nodes = Api::<Node>::all(testbed.client.clone()).list(&ListParams::default()).await?;
        let scene = Scene { testbed, nodes: nodes.iter().map(Node::name_any).collect() };
        for (node, rank) in scene.nodes.iter().zip(["2", "9", "3", "0"]) {
            scene.rank(node, rank).await?;
        }
        scene.component("placement-labels/rights.yaml").await?;
        // The configuration of the component reads the labels of this policy.
        scene.policy("default", &json!({})).await?;
        scene.says("default", "LabelsCurrent", ("True", "Labeled")).await?;
        scene.component("scheduler/rights.yaml").await?;
        let configuration = root().join("kustomize/components/scheduler/scheduler.yaml");
        let token = install::token_of(&testbed.client, NAMESPACE, SECOND).await?;
        let scheduler = SecondScheduler::start(&testbed.plane.cluster, &configuration, &token).await?;
        scene.places(SECOND, &scene.nodes[1]).await?;
        let leases: Api<Lease> = Api::namespaced(testbed.client.clone(), NAMESPACE);
        ensure!(leases.get_opt(SECOND).await?.is_some(), "no lease of its own");
        let at = scene.placed(SECOND, &scene.nodes[1]).await?;
        let (_, text) = scene.explain("default").await?;
        let unknown = "may add terms, which is not known: there is no Deployment ganglion-system/ganglion-scheduler";
        ensure!(words(&text).contains(unknown), "{text}");
        configured(&scene, &configuration).await?;
        // The labels are read again for each pod.
        until_after(at).await;
        for (node, rank, label) in [(2, "10", 15), (1, "2", 3)] {
            let node = &scene.nodes[node];
            scene.rank(node, rank).await?;
            let path = "jsonpath={.metadata.labels.ganglion\\.node-restriction\\.kubernetes\\.io/default}";
            let (holds, node) = (format!("--for={path}={label}"), format!("node/{node}"));
            testbed.kubectl(&["wait", &holds, &node, "--timeout=60s"], None).await?;
        }
        let (found, text) = scene.explain("default").await?;
        ensure!(text.contains("  pod        no terms in its spec: the pod names no policy"), "{text}");
        let added = "the profile of ganglion-scheduler adds terms: 4 preferred terms (weights 6, 12, 24, 48) read \
                     ganglion.node-restriction.kubernetes.io/default";
        ensure!(words(&text).contains(added), "{text}");
        ensure!(then_and_now(&found, &scene.nodes[1]).0 == "15", "{text}");
        ensure!(then_and_now(&found, &scene.nodes[2]) == (json!("6"), json!("15")), "{text}");
        scene.clear().await?;
        scene.places(SECOND, &scene.nodes[2]).await?;
        drop(scheduler);
        scene.policies().delete("default", &DeleteParams::default()).await?;
        Ok(())
    });
}

/// Each node has a label that follows its score, also a new one, and one whose label somebody has changed.
async fn kept(scene: &Scene<'_>) -> Result<()> {
    for (node, rank) in scene.nodes.iter().zip(["10", "8", "5", "0"]) {
        scene.rank(node, rank).await?;
    }
    scene.policy(POLICY, &json!({})).await?;
    let refused = scene.says(POLICY, "LabelsCurrent", ("False", "LabelsNotWritten")).await?;
    let said = condition(&refused.conditions, "LabelsCurrent").map(|one| one.message).unwrap_or_default();
    ensure!(said.contains("install kustomize/components/placement-labels"), "{said}");
    ensure!(refused.valid_until.is_none(), "labels that are missing are valid until {:?}", refused.valid_until);
    scene.component("placement-labels/rights.yaml").await?;
    let expected: BTreeMap<_, _> = scene.nodes.iter().cloned().zip(["15", "12", "8", "0"].map(Some)).collect();
    scene.labeled(&expected).await?;
    let status = scene.says(POLICY, "LabelsCurrent", ("True", "Labeled")).await?;
    let labels = status.labels.context("no labels in the status")?;
    ensure!(labels.key == KEY && labels.nodes == 4 && labels.oldest.is_some(), "{labels:?}");
    ensure!(status.valid_until.is_some(), "the labels are valid until no time");
    // A score that moves a little changes no label, a large step does.
    scene.rank(&scene.nodes[1], "8.3").await?;
    scene.rank(&scene.nodes[2], "1").await?;
    let mut expected = expected;
    expected.insert(scene.nodes[2].clone(), Some("2"));
    scene.labeled(&expected).await?;
    // Labels that others change or remove are restored.
    for label in [json!("15"), Value::Null] {
        let patch = Patch::Merge(json!({"metadata": {"labels": {KEY: label}}}));
        scene.nodes().patch(&scene.nodes[3], &PatchParams::default(), &patch).await?;
        scene.labeled(&expected).await?;
    }
    // Nothing waits for the kubelet of a new node. Its rank is unknown to the expression, so it scores 0 once it is Ready.
    let new: Node = serde_json::from_value(json!({"metadata": {"name": "new"}}))?;
    scene.nodes().create(&PostParams::default(), &new).await?;
    scene.labeled(&BTreeMap::from([("new".to_owned(), Some("12"))])).await?;
    scene.nodes().delete("new", &DeleteParams::default()).await?;
    // The labels of a deleted policy are removed, and those of another one stay.
    scene.policy("another", &json!({})).await?;
    let another = "ganglion.node-restriction.kubernetes.io/another";
    let has = |expected: bool| async move {
        loop {
            let nodes = scene.nodes().list(&ListParams::default()).await?;
            let has_both = |node: &Node| [node.labels(), node.annotations()].map(|all| all.contains_key(another));
            if nodes.iter().all(|node| has_both(node) == [expected; 2]) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, has(true)).await.context("the labels of the second policy")??;
    scene.policies().delete("another", &DeleteParams::default()).await?;
    tokio::time::timeout(TIMEOUT, has(false)).await.context("the labels of a deleted policy stay")??;
    scene.labeled(&expected).await
}

/// New pods in the namespaces that take part have the terms, and the scheduler places them on the best node.
async fn applied(scene: &Scene<'_>) -> Result<()> {
    let told = scene.says(POLICY, "LabelsApplied", ("False", "NotInstalled")).await?;
    let said = condition(&told.conditions, "LabelsApplied").map(|one| one.message).unwrap_or_default();
    ensure!(said.contains("kustomize/components/placement-labels"), "{said}");
    scene.component("placement-labels/policy.yaml").await?;
    scene.says(POLICY, "LabelsApplied", ("True", "AppliedByAdmission")).await?;
    let opt_in = Patch::Merge(json!({"metadata": {"labels": {"ganglion.dev/placement": "labels"}}}));
    let namespaces: Api<Namespace> = Api::all(scene.testbed.client.clone());
    namespaces.patch(&scene.testbed.ns, &PatchParams::default(), &opt_in).await?;
    let pod = scene.until_terms(&json!({}), 4).await?;
    let weights: i64 = preferred(&pod).iter().filter_map(|term| term["weight"].as_i64()).sum();
    ensure!(weights == 90, "{pod}");
    // Twice the same.
    let again = scene.created(&json!({"spec": {"affinity": pod["spec"]["affinity"]}})).await?;
    ensure!(again["spec"]["affinity"] == pod["spec"]["affinity"], "{again}");
    for (what, other) in [
        ("a pod with a node", json!({"spec": {"nodeName": scene.nodes[0]}})),
        ("a pod of another scheduler", json!({"spec": {"schedulerName": "other"}})),
        ("a pod of another policy", json!({"metadata": {"labels": {POD_POLICY: "other"}}})),
        (
            "a pod of a DaemonSet",
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d"},
            ]}}),
        ),
    ] {
        let pod = scene.created(&other).await?;
        ensure!(preferred(&pod).is_empty(), "{what}: {pod}");
    }
    let named = scene.created(&json!({"metadata": {"labels": {POD_POLICY: POLICY}}})).await?;
    ensure!(preferred(&named).len() == 4, "{named}");
    scene.places("default-scheduler", &scene.nodes[0]).await
}

/// The command shows the terms of a pod, and the labels when it was scheduled and now.
async fn explained(scene: &Scene<'_>) -> Result<()> {
    let at = scene.placed("default-scheduler", &scene.nodes[0]).await?;
    until_after(at).await;
    scene.rank(&scene.nodes[0], "1").await?;
    let [best, second] = [scene.nodes[0].clone(), scene.nodes[1].clone()];
    scene.labeled(&[(best.clone(), Some("4")), (second.clone(), Some("15"))].into()).await?;
    let (found, text) = scene.explain(POLICY).await?;
    ensure!(then_and_now(&found, &best) == (json!("15"), json!("4")), "{text}");
    ensure!(then_and_now(&found, &second) == (json!("12"), json!("15")), "{text}");
    let terms =
        format!("pod 4 preferred terms (weights 6, 12, 24, 48) read {KEY} scheduler the profile of default-scheduler");
    for said in [terms, format!("on {best} {KEY}: NODE THEN WRITTEN NOW WRITTEN NOTE {best} 15 20")] {
        ensure!(words(&text).contains(&said), "no {said:?} in {text}");
    }
    ensure!(text.contains("  the pod is here\n"), "{text}");
    // The newest entry of the history is the label.
    let node = scene.nodes().get(&best).await?;
    let history = node.annotations().get(KEY).context("no history")?;
    ensure!(history.starts_with("4@") && history.contains(",15@"), "{history}");
    scene.rank(&best, "10").await?;
    scene.labeled(&[(best, Some("15")), (second, Some("12"))].into()).await?;
    scene.clear().await
}

/// Terms of users stay.
async fn user_terms(scene: &Scene<'_>) -> Result<()> {
    let term = json!({"weight": 7, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}});
    let required = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
    ]});
    let zone = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}},
    }]}});
    let preferred_terms = "preferredDuringSchedulingIgnoredDuringExecution";
    let required_terms = "requiredDuringSchedulingIgnoredDuringExecution";
    for affinity in [
        json!({"nodeAffinity": {preferred_terms: [term]}}),
        json!({"nodeAffinity": {required_terms: required}}),
        json!({"nodeAffinity": {preferred_terms: [term, term], required_terms: required}}),
        zone,
    ] {
        let pod = scene.created(&json!({"spec": {"affinity": affinity, "nodeSelector": {"x": "y"}}})).await?;
        ensure!(preferred(&pod).len() == 4, "{pod}");
        let mut left = pod["spec"]["affinity"].clone();
        let terms = left["nodeAffinity"][preferred_terms].as_array_mut().context("no terms")?;
        terms.retain(|term| term["preference"]["matchExpressions"][0]["key"] != KEY);
        let is_empty = terms.is_empty();
        let node_affinity = left["nodeAffinity"].as_object_mut().context("no node affinity")?;
        if is_empty {
            node_affinity.remove(preferred_terms);
        }
        if node_affinity.is_empty() {
            left.as_object_mut().context("no affinity")?.remove("nodeAffinity");
        }
        ensure!(left == affinity, "{affinity} became {}", pod["spec"]["affinity"]);
    }
    Ok(())
}

/// With `rejections: Required`, a rejected node repels pods, whatever their own terms say.
async fn required(scene: &Scene<'_>) -> Result<()> {
    let rejecting = json!([{"name": "rank", "expression": {
        "score": format!("double(node.labels[\"{RANK}\"])"), "filter": format!("node.labels[\"{RANK}\"] != \"0\""),
    }}]);
    scene.policy(POLICY, &json!({"agents": rejecting})).await?;
    scene.says(POLICY, "LabelsCurrent", ("True", "Labeled")).await?;
    scene.labeled(&BTreeMap::from([(scene.nodes[3].clone(), Some("0"))])).await?;
    scene.policy(POLICY, &json!({"agents": rejecting, "labels": {"rejections": "Required"}})).await?;
    scene.labeled(&BTreeMap::from([(scene.nodes[3].clone(), Some("rejected"))])).await?;
    let repels = |pod: &Value| -> Vec<usize> {
        let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let terms = terms["nodeSelectorTerms"].as_array().cloned().unwrap_or_default();
        let count = |term: &Value| {
            let all = term["matchExpressions"].as_array().cloned().unwrap_or_default();
            all.iter().filter(|one| one["key"] == KEY && one["operator"] == "NotIn").count()
        };
        terms.iter().map(count).collect()
    };
    let look = async {
        loop {
            let pod = scene.created(&json!({})).await?;
            if repels(&pod) == [1] {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.context("no pod is repelled")??;
    let terms = json!([
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]},
    ]);
    let required = json!({"nodeSelectorTerms": terms});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    let pod = scene.created(&json!({"spec": {"affinity": affinity}})).await?;
    ensure!(repels(&pod) == [1, 1], "{pod}");
    scene.policy(POLICY, &json!({})).await?;
    scene.labeled(&BTreeMap::from([(scene.nodes[3].clone(), Some("0"))])).await
}

/// Pods that are created after the labels have expired get no terms; the labels stay for schedulers.
async fn expired(scene: &Scene<'_>) -> Result<()> {
    scene.policy(POLICY, &json!({"maxAge": "10s"})).await?;
    scene.says(POLICY, "LabelsCurrent", ("True", "Labeled")).await?;
    scene.until_terms(&json!({}), 4).await?;
    scene.testbed.operator.lock().await.kill();
    scene.until_terms(&json!({}), 0).await?;
    let late = json!({"metadata": {"name": EXPLAINED}, "spec": {"containers": [{"name": "main", "image": "none"}]}});
    scene.pods().create(&PostParams::default(), &serde_json::from_value(late)?).await?;
    let (_, text) = scene.explain(POLICY).await?;
    let said = words(&text);
    ensure!(said.contains("pod no terms in its spec: created 20") && said.contains(", after validUntil 20"), "{text}");
    scene.clear().await?;
    let labels: BTreeMap<_, _> = [(scene.nodes[0].clone(), Some("15"))].into();
    scene.labeled(&labels).await?;
    scene.testbed.kill_and_restart().await?;
    scene.until_terms(&json!({}), 4).await.map(drop)
}

/// The labels of a deleted policy are removed with their histories, and a pod with terms that read them is explained.
async fn deleted(scene: &Scene<'_>) -> Result<()> {
    scene.placed("default-scheduler", &scene.nodes[0]).await?;
    scene.policies().delete(POLICY, &DeleteParams::default()).await?;
    scene.labeled(&scene.nodes.iter().map(|node| (node.clone(), None)).collect()).await?;
    let nodes = scene.nodes().list(&ListParams::default()).await?;
    ensure!(nodes.iter().all(|node| !node.annotations().contains_key(KEY)), "a history stays");
    let (found, text) = scene.explain(POLICY).await?;
    ensure!(
        words(&text).contains("policy there is no PlacementPolicy ranked: it was deleted or has another name"),
        "{text}"
    );
    ensure!(words(&text).contains("then is not known, the label has no history"), "{text}");
    ensure!(
        found["nodes"] == json!([]) && then_and_now(&found, &scene.nodes[0]) == (Value::Null, Value::Null),
        "{text}"
    );
    Ok(())
}
