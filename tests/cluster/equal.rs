//! A moved pod equals a pod that its ReplicaSet creates, apart from the constraint on nodes that the action names.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::action::{move_pod, with};
use testkit::eye::Seen;
use testkit::plane::Plane;
use testkit::servers::admission::PodWebhook;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story, story_on};
use testkit::verdict::{APP, node_of, pods_of};
use testkit::{block_on, root};

use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// A scheduling gate that the story removes from each pod.
const GATE: &str = "example.com/wait";

/// The condition of a readiness gate that the story sets.
const CONDITION: &str = "example.com/ready";

/// A device of the story's nodes.
const DEVICE: &str = "example.com/device";

/// App whose pods the webhook changes, as long as they have a controller.
const BY_OWNER: &str = "by-owner";

/// Apps whose pods the webhook sees.
const HOOKED: [&str; 1] = [BY_OWNER];

/// Members of templates that the API server, the scheduler or the operator could treat differently in a pod that is not
/// created by its ReplicaSet.
fn members(hash: &Value, space: &str) -> Vec<(&'static str, Value)> {
    let selector = json!({"matchLabels": {APP: "other"}});
    let term = |keys: &Value, mismatched: &Value| {
        json!({"labelSelector": selector, "topologyKey": "kubernetes.io/hostname", "matchLabelKeys": keys,
            "mismatchLabelKeys": mismatched})
    };
    let spread = |keys: &Value| {
        json!({"labelSelector": selector, "topologyKey": "kubernetes.io/hostname", "maxSkew": 2,
            "whenUnsatisfiable": "ScheduleAnyway", "matchLabelKeys": keys})
    };
    let none = json!([]);
    let container = json!({"name": "main", "image": "registry.example/app:1"});
    let apart = |term: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    let prefers = |term: Value| json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": term}]});
    vec![
        ("plain", json!({})),
        ("spread", json!({"topologySpreadConstraints": [spread(&none)]})),
        ("spread-keys", json!({"topologySpreadConstraints": [spread(hash)]})),
        ("apart", json!({"affinity": {"podAntiAffinity": apart(term(&none, &none))}})),
        ("apart-keys", json!({"affinity": {"podAntiAffinity": apart(term(hash, &none))}})),
        ("apart-mismatch", json!({"affinity": {"podAntiAffinity": apart(term(&none, hash))}})),
        ("prefers-keys", json!({"affinity": {"podAffinity": prefers(term(hash, &none))}})),
        (
            "ports",
            json!({"containers": [with(container.clone(), json!({"ports": [{"containerPort": 80, "hostPort": 8080}]}))]}),
        ),
        (
            "volumes",
            json!({
                "volumes": [{"name": "dir", "emptyDir": {}}, {"name": "map", "configMap": {"name": "none", "optional": true}}],
                "containers": [with(container.clone(), json!({"volumeMounts": [{"name": "dir", "mountPath": "/dir"}]}))],
            }),
        ),
        (
            "sidecar",
            json!({"initContainers": [with(container.clone(), json!({"name": "side", "restartPolicy": "Always"}))]}),
        ),
        (
            "tolerations",
            json!({"tolerations": [
            {"operator": "Exists"}, {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}]}),
        ),
        (
            "limits",
            json!({"containers": [with(container.clone(), json!({"resources": {"limits": {"cpu": "10m", "memory": "1Mi"}}}))]}),
        ),
        ("scheduling-gates", json!({"schedulingGates": [{"name": GATE}]})),
        ("readiness-gates", json!({"readinessGates": [{"conditionType": CONDITION}]})),
        ("priority", json!({"priorityClassName": space})),
        ("overhead", json!({"runtimeClassName": space})),
        ("account", json!({"serviceAccountName": "equal", "imagePullSecrets": [{"name": "registry"}]})),
        (
            "host-network",
            json!({"hostNetwork": true, "hostPID": true, "containers": [
            with(container.clone(), json!({"ports": [{"containerPort": 7070}]}))]}),
        ),
        ("device", json!({"containers": [with(container.clone(), json!({"resources": {"limits": {DEVICE: "1"}}}))]})),
        (
            "nodes",
            json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]},
                {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["other"]}]}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": {
                "matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]}}]}}}),
        ),
        (
            "probes",
            json!({"containers": [with(container.clone(), json!({
            "readinessProbe": {"httpGet": {"path": "/", "port": 80}}, "startupProbe": {"exec": {"command": ["true"]}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}, "envFrom": [{"secretRef": {"name": "s", "optional": true}}],
            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}))]}),
        ),
        (
            "more-volumes",
            json!({"volumes": [
            {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "secret", "secret": {"secretName": "none", "optional": true}},
            {"name": "path", "hostPath": {"path": "/tmp"}},
            {"name": "share", "nfs": {"server": "nfs.example", "path": "/"}},
            {"name": "driver", "csi": {"driver": "csi.example.com"}},
            {"name": "labels", "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"name": "all", "projected": {"sources": [
                {"configMap": {"name": "none", "optional": true}},
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 700, "audience": "vault"}}]}}]}),
        ),
        (BY_OWNER, json!({})),
        (
            "others",
            json!({"dnsPolicy": "Default", "enableServiceLinks": false, "hostname": "same",
            "terminationGracePeriodSeconds": 3, "securityContext": {"runAsUser": 7}}),
        ),
    ]
}

/// A pod without what belongs to it alone: name, times, node, the requirement that the action adds.
fn common(pod: &Pod) -> Result<Value> {
    let mut pod = serde_json::to_value(pod)?;
    let labels = pod["metadata"]["labels"].take();
    let annotations = pod["metadata"]["annotations"].take();
    let mut spec = pod["spec"].take();
    spec.as_object_mut().context("no spec")?.remove("nodeName");
    let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    for term in spec.pointer_mut(required).and_then(Value::as_array_mut).into_iter().flatten() {
        let fields = term.get_mut("matchFields").and_then(Value::as_array_mut);
        fields.into_iter().for_each(|fields| fields.retain(|field| field["operator"] != "In"));
    }
    let spec = without_empty(spec);
    // The name of the token's volume is random.
    let text = spec.to_string();
    let token = text.find("kube-api-access-").map(|at| text[at..].chars().take(21).collect::<String>());
    let text = token.map_or(text.clone(), |token| text.replace(&token, "token"));
    Ok(json!({"labels": labels, "annotations": annotations, "spec": serde_json::from_str::<Value>(&text)?}))
}

/// Some of the pods have access to their host, which an administrator has to allow for the whole cluster.
#[test]
fn a_moved_pod_equals_its_siblings() {
    let own = block_on(Plane::own("equal", 1)).expect("a plane of its own");
    story_on(&own.0, Road::Proxy, "equal", async |testbed| {
        let rights = root().join("kustomize/components/system-workloads/rights.yaml");
        testbed.kubectl(&["apply", "-f", rights.to_str().context("no text")?], None).await?;
        let hash = json!(["pod-template-hash"]);
        // In older versions, the scheduler evaluates the keys of spread constraints, and the selectors stay.
        let merges_keys = testbed.client.apiserver_version().await?.minor.parse::<u32>()? >= 34;
        // All pods may be on one node for a moment.
        let nodes = testbed.nodes(3, Size { cpu: "32", pods: 110, ..Size::default() }).await?;
        surround(testbed, &nodes).await?;
        let webhook = PodWebhook::start(testbed, &HOOKED, by_owner).await?;
        let all = members(&hash, &testbed.ns).into_iter().map(async |(name, members)| {
            let pods = moved_and_sibling(testbed, &nodes, name, members).await.with_context(|| name.to_owned())?;
            let [mut one, mut other] = [common(&pods[0])?, common(&pods[1])?];
            if !merges_keys {
                [&mut one, &mut other].into_iter().for_each(merge_spread_keys);
            }
            ensure!(one == other, "{name}: {one:#}\nis not {other:#}");
            Ok(())
        });
        let open_all = async {
            loop {
                open_gates(testbed).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            done = try_join_all(all) => drop(done?),
            () = open_all => {}
        }
        webhook.stop(testbed).await
    });
}

/// Creates what the templates refer to.
async fn surround(testbed: &Testbed, nodes: &TestNodes) -> Result<()> {
    let own = json!({"name": testbed.ns});
    let claim = json!({"accessModes": ["ReadWriteMany"], "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}}});
    let volume = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "storageClassName": "",
        "claimRef": {"namespace": testbed.ns, "name": "data"}, "nfs": {"server": "nfs.example", "path": "/"}});
    let objects = json!([
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": own, "value": 7,
            "preemptionPolicy": "Never"},
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": own, "handler": "equal",
            "overhead": {"podFixed": {"cpu": "5m"}}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "equal"}},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": own, "spec": volume},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": claim},
    ]);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    testbed.kubectl(&["create", "-f", "-"], Some(&list.to_string())).await?;
    for node in &nodes.names {
        let resources = json!({"status": {"capacity": {DEVICE: "2"}, "allocatable": {DEVICE: "2"}}}).to_string();
        testbed.kubectl(&["patch", "node", node, "--subresource=status", "-p", &resources], None).await?;
    }
    Ok(())
}

/// As VerticalPodAutoscaler and Istio do: what is set depends on the controller of the pod, without one nothing is.
fn by_owner(pod: &Value) -> Value {
    let owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let mut controllers = owners.filter(|owner| owner["controller"] == true);
    let Some(owner) = controllers.next() else { return json!([]) };
    json!([
        {"op": "add", "path": "/spec/containers/0/resources/requests", "value": {"cpu": "3m"}},
        {"op": "add", "path": "/spec/containers/0/env", "value": [{"name": "WORKLOAD", "value": owner["name"]}]},
        {"op": "add", "path": "/spec/initContainers", "value": [{
            "name": "mesh", "image": "registry.example/mesh:1",
            "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]}}}]},
        {"op": "add", "path": "/metadata/annotations", "value": {"changed-for": owner["name"]}},
    ])
}

/// Removes the scheduling gate of all pods, and sets the condition of their readiness gate.
async fn open_gates(testbed: &Testbed) {
    let is_gated = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.is_some());
    let is_unmet = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_named = pod.spec.as_ref().is_some_and(|spec| spec.readiness_gates.is_some());
        is_named && !conditions.into_iter().any(|one| one.type_ == CONDITION)
    };
    let pods: Vec<Arc<Pod>> = testbed.eye.look(|seen: &Seen| seen.pods.values().cloned().collect());
    for pod in pods {
        let name = pod.name_any();
        // The eye may not have seen yet that a gate is open.
        if is_gated(&pod) {
            let open = r#"[{"op": "remove", "path": "/spec/schedulingGates"}]"#;
            let _ = testbed.kubectl(&["patch", "pod", &name, "--type=json", "-p", open], None).await;
        } else if is_unmet(&pod) {
            let met = json!({"status": {"conditions": [{"type": CONDITION, "status": "True"}]}}).to_string();
            let _ = testbed.kubectl(&["patch", "pod", &name, "--subresource=status", "-p", &met], None).await;
        }
    }
}

/// Creates two replicas, moves one of them, and returns the new pod and its sibling.
async fn moved_and_sibling(testbed: &Testbed, nodes: &TestNodes, name: &str, members: Value) -> Result<Vec<Arc<Pod>>> {
    let spec = with(nodes.terms(), members);
    let scene = Scene::set(testbed, name, 2, Workload::deployment(name, 2).spec(spec)).await?;
    let (pod, _) = scene.pod(0);
    let taken = [scene.pod(0).1, scene.pod(1).1];
    let node = nodes.names.iter().find(|node| !taken.contains(node));
    testbed.act(name, move_pod(&pod, node.context("no free node")?)).await?;
    testbed.ends(name, DONE).await?;
    let two = |seen: &Seen| {
        let pods: Vec<_> =
            seen.pods.values().filter(|pod| pod.labels().get(APP).is_some_and(|app| app == name)).cloned().collect();
        (pods.len() == 2).then_some(pods)
    };
    testbed.eye.until("two pods", two).await
}

/// The value without members that are empty.
fn without_empty(value: Value) -> Value {
    let is_empty = |value: &Value| *value == json!({}) || *value == json!([]) || value.is_null();
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| (name, without_empty(value)));
            Value::Object(members.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => {
            let items: Vec<Value> = items.into_iter().map(without_empty).filter(|one| !is_empty(one)).collect();
            Value::Array(items)
        }
        other => other,
    }
}

/// Moves the hash from the keys of spread constraints into their selectors, where the replacement has it.
fn merge_spread_keys(pod: &mut Value) {
    let hash = pod["labels"]["pod-template-hash"].clone();
    for constraint in pod["spec"]["topologySpreadConstraints"].as_array_mut().into_iter().flatten() {
        let is_key = constraint["matchLabelKeys"] == json!(["pod-template-hash"]);
        constraint.as_object_mut().into_iter().for_each(|fields| drop(fields.remove("matchLabelKeys")));
        if is_key {
            constraint["labelSelector"]["matchExpressions"] =
                json!([{"key": "pod-template-hash", "operator": "In", "values": [hash]}]);
        }
    }
}

/// Moved pods have the label keys of their revision in their terms, so they keep no pod of a later revision away.
#[test]
fn a_rollout_after_moves_ends() {
    story("equal-rollout", async |testbed| {
        let nodes = testbed.nodes(4, Default::default()).await?;
        let apart = json!({"labelSelector": {"matchLabels": {APP: "web"}}, "topologyKey": "kubernetes.io/hostname",
            "matchLabelKeys": ["pod-template-hash"]});
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}});
        let workload = Workload::deployment("web", 3).spec(with(nodes.terms(), json!({"affinity": affinity})));
        let scene = Scene::set(testbed, "web", 3, workload).await?;
        // A moved pod keeps its node until its kubelet has ended it.
        let free = || {
            testbed.eye.until("a node without a replica", |seen: &Seen| {
                let taken: Vec<_> = pods_of(seen, "web").map(|pod| node_of(pod)).collect();
                nodes.names.iter().find(|node| !taken.contains(node))
            })
        };
        for at in 0..3 {
            let name = format!("go-{at}");
            testbed.act(&name, move_pod(&scene.pod(at).0, free().await?)).await?;
            testbed.ends(&name, DONE).await?;
        }
        // New pods have to share nodes with the old ones.
        nodes.cordon(free().await?).await?;
        testbed.kubectl(&["rollout", "restart", "deployment/web"], None).await?;
        testbed.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"], None).await?;
        let verdict = scene.at_rest(testbed, 3).await?;
        ensure!(verdict.lowest_ready >= 3, "only {} Ready at some time: {verdict:?}", verdict.lowest_ready);
        Ok(())
    });
}
