//! Replicas of StatefulSets: moved one by one, by the admission policy or by the scheduling gate; created and deleted
//! at the highest ordinal; rejected if a pod needs a pin and nothing can pin it, or if a bound volume cannot follow.
//! The end is the same if the operator is killed at each write.
//!
//! The policy applies to the whole cluster. Stories that need it share one plane with it; the shared plane of the other
//! tests has none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::marks;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::action::{move_pod, with};
use testkit::eye::{Happening, Seen};
use testkit::kstatus::{message, ready};
use testkit::plane::{OwnPlane, Plane};
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::{Road, Testbed, stories_on, story};
use testkit::verdict::{node_of, serves};
use testkit::{block_on, root};

use crate::crash::in_many_lives;
use crate::samples::apply;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Mechanism that pins a pod to its node.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Policy,
    Gate,
}

/// A StatefulSet `db` on nodes of this testbed, each of which has room for one of its replicas and one more pod.
struct Db {
    nodes: TestNodes,
    replicas: usize,
}

impl Db {
    async fn new(testbed: &Testbed, replicas: usize, way: Way) -> Result<Self> {
        Self::with(testbed, replicas, way, json!({})).await
    }

    /// With additional members of the StatefulSet's spec.
    async fn with(testbed: &Testbed, replicas: usize, way: Way, members: Value) -> Result<Self> {
        let nodes = testbed.nodes(replicas + 2, Size { pods: 2, ..Size::default() }).await?;
        let db = Self { nodes, replicas };
        db.nodes.open_only(&db.homes()).await?;
        db.make(testbed, way, members).await?;
        db.settle(testbed).await?;
        db.nodes.open_all().await?;
        Ok(db)
    }

    /// Nodes of the replicas at the beginning.
    fn homes(&self) -> Vec<&str> {
        self.nodes.names.iter().take(self.replicas).map(String::as_str).collect()
    }

    /// A node without a replica at the beginning.
    fn free(&self, at: usize) -> &str {
        &self.nodes.names[self.replicas + at]
    }

    async fn make(&self, testbed: &Testbed, way: Way, members: Value) -> Result<()> {
        let mut pod = self.nodes.terms();
        pod["terminationGracePeriodSeconds"] = json!(1);
        pod["containers"] = json!([{"name": "main", "image": "registry.example/app:1"}]);
        pod["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}]}});
        if way == Way::Gate {
            pod["schedulingGates"] = json!([{"name": marks::GATE}]);
        }
        let labels = json!({"app": "db"});
        let spec = json!({
            "serviceName": "db", "replicas": self.replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        });
        let meta = json!({"name": "db", "labels": {"part-of": "shop"}});
        let mut set = json!({"metadata": meta, "spec": spec});
        json_patch::merge(&mut set["spec"], &members);
        testbed.create::<StatefulSet>(set).await.map(drop)
    }

    /// Waits until it has exactly its replicas, all Ready.
    async fn settle(&self, testbed: &Testbed) -> Result<()> {
        self.has(testbed, self.replicas).await
    }

    async fn has(&self, testbed: &Testbed, replicas: usize) -> Result<()> {
        let what = format!("{replicas} Ready replicas of db, and no other pod of it");
        let whole =
            |seen: &Seen| (seen.pods.len() == replicas && seen.pods.values().all(|pod| serves(pod))).then_some(());
        testbed.eye.until(&what, whole).await
    }

    /// Checks after the end of the action that no ledger is left, and that the StatefulSet has this number of replicas.
    async fn rests(&self, testbed: &Testbed, replicas: usize) -> Result<()> {
        self.has(testbed, replicas).await?;
        let sets: Api<StatefulSet> = testbed.api();
        let clean = |set: Option<&StatefulSet>| {
            set.is_some_and(|set| {
                let count = set.spec.as_ref().and_then(|spec| spec.replicas);
                count == i32::try_from(replicas).ok() && !set.annotations().contains_key(marks::LEDGER)
            })
        };
        let wait = kube::runtime::wait::await_condition(sets, "db", clean);
        tokio::time::timeout(testkit::TIMEOUT, wait).await.context("a ledger is left, or other replicas")??;
        Ok(())
    }
}

fn pod(testbed: &Testbed, name: &str) -> Result<Arc<Pod>> {
    testbed.eye.look(|seen| seen.pods.get(name).cloned()).with_context(|| format!("no pod {name}"))
}

fn on(testbed: &Testbed, name: &str) -> Result<String> {
    Ok(node_of(&*pod(testbed, name)?))
}

fn moving(pod: &str, node: &str) -> Value {
    with(move_pod(pod, node), json!({"disruption": "Allowed"}))
}

fn stateful_set() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"})
}

fn creating(node: &str) -> Value {
    json!({"create": {"workload": stateful_set(), "to": {"nodeName": node}}})
}

/// A plane whose API server pins pods, with the policy in effect.
fn with_policy(name: &str) -> OwnPlane {
    block_on(async {
        let plane = Plane::own(name, 0).await?;
        let component = root().join("kustomize/components/pin-statefulsets/policy.yaml").display().to_string();
        plane.0.cluster.kubectl(&["apply", "--server-side", "-f", &component], None).await?;
        tokio::time::timeout(testkit::TIMEOUT, until_it_pins(&plane.0)).await.context("no pod is pinned")??;
        Ok::<_, anyhow::Error>(plane)
    })
    .unwrap_or_else(|error| panic!("{error:#}"))
}

/// Waits until the API server applies the policy. It looks for new CRDs every 30 s, and the operator creates a pod
/// without a pin again.
async fn until_it_pins(plane: &Plane) -> Result<()> {
    const NAME: &str = "probe-0";
    let reference = json!({"apiVersion": "v1", "kind": "Pod", "name": NAME, "uid": "probe"});
    let action = json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction", "metadata": {"name": NAME},
        "spec": move_pod(NAME, "nowhere"),
    });
    let slot = json!({
        "id": "0123456789abcdef", "index": 0, "attempt": 0, "step": "Evicting", "since": "2026-01-01T00:00:00Z",
        "workload": stateful_set(), "replicaSet": {"name": "db", "uid": "probe"}, "label": "",
        "replacement": {"name": NAME, "node": "nowhere"},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": NAME, "labels": {"statefulset.kubernetes.io/pod-name": NAME}, "ownerReferences": [reference],
        },
        "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]},
    });
    let status = json!({"status": {"slots": [slot]}}).to_string();
    plane.cluster.kubectl(&["create", "-f", "-"], Some(&action.to_string())).await?;
    let patch = ["patch", "workloadaction", NAME, "--subresource=status", "--type=merge", "-p", &status];
    plane.cluster.kubectl(&patch, None).await?;
    while !plane
        .cluster
        .kubectl(&["create", "--dry-run=server", "-o", "json", "-f", "-"], Some(&pod.to_string()))
        .await?
        .contains("nowhere")
    {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    plane.cluster.kubectl(&["delete", "workloadaction", NAME], None).await?;
    Ok(())
}

/// Number of times a pod of this name was created.
fn lives(testbed: &Testbed, name: &str) -> usize {
    testbed.eye.look(|seen| lives_seen(seen, name))
}

fn lives_seen(seen: &Seen, name: &str) -> usize {
    let made = seen.history.iter().filter_map(|happening| match happening {
        Happening::Pod(pod) if pod.name_any() == name => pod.uid(),
        _ => None,
    });
    made.collect::<BTreeSet<_>>().len()
}

/// Number of evictions of pods with this name. Simulated kubelets delete by name alone, so on a busy machine a new pod
/// may end together with its predecessor. Therefore this counts the operator's requests, not their effect.
fn evictions(testbed: &Testbed, name: &str) -> usize {
    let is_evicted = |pod: &Pod| {
        let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        conditions.into_iter().any(|one| one.reason.as_deref() == Some("EvictionByEvictionAPI"))
    };
    testbed.eye.look(|seen| {
        let found = seen.history.iter().filter_map(|happening| match happening {
            Happening::Pod(pod) | Happening::PodGone(pod) if pod.name_any() == name && is_evicted(pod) => pod.uid(),
            _ => None,
        });
        found.collect::<BTreeSet<_>>().len()
    })
}

/// Waits until a pod of this name was created this number of times.
async fn comes(testbed: &Testbed, name: &str, times: usize) -> Result<()> {
    let what = format!("life {times} of {name}");
    testbed.eye.until(&what, |seen| (lives_seen(seen, name) == times).then_some(())).await
}

async fn any_ordinal(testbed: &Testbed, way: Way) -> Result<()> {
    let db = Db::new(testbed, 3, way).await?;
    for (name, at) in [("db-1", 0), ("db-0", 1)] {
        testbed.act(name, moving(name, db.free(at))).await?;
        testbed.ends(name, DONE).await?;
        ensure!(on(testbed, name)? == db.free(at), "{name} is on {}", on(testbed, name)?);
        ensure!(evictions(testbed, name) == 1, "{name} was evicted {} times", evictions(testbed, name));
    }
    ensure!(lives(testbed, "db-2") == 1, "another replica was touched");
    db.rests(testbed, 3).await
}

/// All stories of the policy, including kills, on one plane.
#[test]
fn by_the_policy() {
    let plane = with_policy("pins");
    type Body = fn(&Testbed) -> futures::future::LocalBoxFuture<'_, Result<()>>;
    let cases: Vec<(&str, Body)> = vec![
        ("any-ordinal", |testbed| Box::pin(any_ordinal(testbed, Way::Policy))),
        ("count", |testbed| Box::pin(the_highest_first(testbed))),
        ("terms", |testbed| Box::pin(every_term_is_narrowed(testbed))),
        ("foreign", |testbed| Box::pin(other_pods_are_left(testbed))),
        ("full", |testbed| Box::pin(a_target_that_is_full(testbed))),
        ("no-break", |testbed| Box::pin(without_leave(testbed))),
        ("ends", |testbed| Box::pin(at_the_highest(testbed))),
        ("volume", |testbed| Box::pin(a_bound_volume(testbed))),
    ];
    let cases = cases.into_iter().map(|(name, body)| (format!("pin-{name}"), body)).collect();
    stories_on(&plane.0, Road::Proxy, cases, async |testbed: &Testbed, body: &Body| body(testbed).await);
    let kills = [Deed::Move, Deed::Create, Deed::Delete];
    let kills = kills.map(|deed| (format!("pin-kill-{deed:?}").to_lowercase(), (deed, Way::Policy)));
    stories_on(&plane.0, Road::Proxy, kills.into(), killed_at_each_write);
}

async fn the_highest_first(testbed: &Testbed) -> Result<()> {
    let db = Db::new(testbed, 3, Way::Policy).await?;
    let target = json!({"nodeSelector": {"place": "new"}});
    for at in [0, 1] {
        db.nodes.label(db.free(at), "place", "new").await?;
    }
    let spec = json!({"move": {"workload": stateful_set(), "to": target, "count": 2}, "disruption": "Allowed"});
    testbed.act("go", spec).await?;
    testbed.ends("go", DONE).await?;
    ensure!(lives(testbed, "db-0") == 1, "the lowest was moved");
    for name in ["db-1", "db-2"] {
        let node = on(testbed, name)?;
        ensure!([db.free(0), db.free(1)].contains(&node.as_str()), "{name} is on {node}");
    }
    db.rests(testbed, 3).await
}

/// A template with two terms: both must be pinned, or the scheduler could use the other one.
async fn every_term_is_narrowed(testbed: &Testbed) -> Result<()> {
    let on_delete = json!({"updateStrategy": {"type": "OnDelete"}});
    let db = Db::with(testbed, 1, Way::Policy, on_delete).await?;
    let term = |value: &str| json!({"matchExpressions": [{"key": "place", "operator": "In", "values": [value]}]});
    for name in &db.nodes.names {
        db.nodes.label(name, "place", "one").await?;
    }
    let terms = json!({"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term("one"), term("two"),
            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["nowhere"]}]}]}}}}}}});
    let patch = ["patch", "statefulset", "db", "--type=merge", "-p", &terms.to_string()];
    testbed.kubectl(&patch, None).await?;
    testbed.act("go", moving("db-0", db.free(1))).await?;
    testbed.ends("go", DONE).await?;
    let pod = serde_json::to_value(&*pod(testbed, "db-0")?)?;
    let path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = pod.pointer(path).and_then(Value::as_array).context("no terms")?;
    let pinned = |term: &&Value| term["matchFields"].to_string().contains(db.free(1));
    ensure!(terms.len() == 3 && terms.iter().filter(pinned).count() == 3, "{terms:?}");
    ensure!(pod.pointer("/spec/affinity/podAntiAffinity").is_some(), "an affinity is lost: {pod}");
    db.rests(testbed, 1).await
}

/// Pods of the same name in another namespace, and pods deleted by hand after the end of the action, are not pinned.
async fn other_pods_are_left(testbed: &Testbed) -> Result<()> {
    let db = Db::new(testbed, 2, Way::Policy).await?;
    testbed.act("go", moving("db-1", db.free(0))).await?;
    testbed.ends("go", DONE).await?;
    testbed.kubectl(&["delete", "pod", "db-1", "--wait=false"], None).await?;
    comes(testbed, "db-1", 3).await?;
    let pin = serde_json::to_value(&*pod(testbed, "db-1")?)?.to_string();
    ensure!(!pin.contains("matchFields"), "pinned after the end: {pin}");
    db.rests(testbed, 2).await
}

/// The scheduler rejects a node for a reason that the plan could not foresee: the pod runs on another node, and the
/// StatefulSet is complete.
async fn a_target_that_is_full(testbed: &Testbed) -> Result<()> {
    let db = Db::new(testbed, 2, Way::Policy).await?;
    let guest = |name: &str| {
        let mut spec = db.nodes.terms();
        spec["nodeName"] = json!(db.free(0));
        spec["containers"] = json!([{"name": "main", "image": "registry.example/app:1"}]);
        json!({"metadata": {"name": name, "labels": {testkit::testbed::rest::BARE: "yes"}}, "spec": spec})
    };
    let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| write.is_on("pods/eviction"));
    let spec = with(moving("db-1", db.free(0)), json!({"timeouts": {"scheduleSeconds": 3}}));
    testbed.act("go", spec).await?;
    held.reached().await.context("no eviction")?;
    for name in ["guest-0", "guest-1"] {
        testbed.create::<Pod>(guest(name)).await?;
    }
    held.release();
    testbed.ends("go", ("False", "Unschedulable")).await?;
    for name in ["guest-0", "guest-1"] {
        testbed.kubectl(&["delete", "pod", name, "--wait=true"], None).await?;
    }
    ensure!(on(testbed, "db-1")? != db.free(0), "it is on the target");
    db.rests(testbed, 2).await
}

async fn without_leave(testbed: &Testbed) -> Result<()> {
    let db = Db::new(testbed, 2, Way::Policy).await?;
    testbed.act("go", move_pod("db-1", db.free(0))).await?;
    let action = testbed.ends("go", ("False", "DisruptionNeeded")).await?;
    ensure!(message(&action).contains("disruption: Allowed"), "{}", message(&action));
    ensure!(lives(testbed, "db-1") == 1, "it was moved");
    db.rests(testbed, 2).await
}

/// Create and delete work at the highest ordinal only.
async fn at_the_highest(testbed: &Testbed) -> Result<()> {
    let db = Db::with(testbed, 2, Way::Policy, json!({"ordinals": {"start": 3}})).await?;
    testbed.act("lower", json!({"delete": {"pod": {"name": "db-3"}}})).await?;
    let action = testbed.ends("lower", ("False", "NotHighestOrdinal")).await?;
    ensure!(message(&action).contains("loses db-4 first"), "{}", message(&action));
    testbed.act("more", creating(db.free(0))).await?;
    testbed.ends("more", DONE).await?;
    ensure!(on(testbed, "db-5")? == db.free(0), "db-5 is on {}", on(testbed, "db-5")?);
    db.rests(testbed, 3).await?;
    testbed.act("fewer", json!({"delete": {"workload": stateful_set(), "count": 2}})).await?;
    testbed.ends("fewer", DONE).await?;
    ensure!(lives(testbed, "db-3") == 1 && pod(testbed, "db-3").is_ok(), "the lowest was touched");
    db.rests(testbed, 1).await
}

/// Members of a template whose pods request this much CPU.
fn requesting(cpu: &str) -> Value {
    let container = json!({"name": "main", "image": "registry.example/app:1", "resources": {"requests": {"cpu": cpu}}});
    json!({"template": {"spec": {"containers": [container]}}})
}

/// Anti-affinity keeps the replicas apart, and the nodes without one are too small: no replica is evicted for a target
/// that cannot run it, with a named node or without.
#[test]
fn a_target_is_checked_before_the_eviction() {
    story("gate-too-small", async |testbed| {
        let mut db = Db::with(testbed, 3, Way::Gate, requesting("2")).await?;
        let others = db.nodes.names[3..].to_vec();
        for name in &others {
            db.nodes.cordon(name).await?;
        }
        let small = db.nodes.join(None, Size { cpu: "1", ..Size::default() }).await?;
        let home = on(testbed, "db-0")?;
        let short = json!({"timeouts": {"queueSeconds": 3, "scheduleSeconds": 3}});
        testbed.act("named", with(moving("db-0", &small), short.clone())).await?;
        testbed.act("held", with(moving("db-0", &on(testbed, "db-1")?), short.clone())).await?;
        let labels = json!({"nodeSelector": {testkit::NODE_OWNER: testbed.ns}});
        let any = json!({"move": {"pod": {"name": "db-0"}, "to": labels}, "disruption": "Allowed"});
        testbed.act("any", with(any, short)).await?;
        for (name, words) in [("named", "cpu"), ("held", "anti-affinity"), ("any", "")] {
            let action = testbed.over(name).await?;
            ensure!(ready(&action).is_some_and(|(is, _)| is == "False"), "{name}: {}", message(&action));
            ensure!(message(&action).contains(words), "{name}: {}", message(&action));
        }
        ensure!(lives(testbed, "db-0") == 1 && evictions(testbed, "db-0") == 0, "db-0 was evicted for nothing");
        ensure!(on(testbed, "db-0")? == home);
        // The way out: a node that is large enough.
        let large = others[0].as_str();
        db.nodes.open_all().await?;
        testbed.act("again", moving("db-0", large)).await?;
        testbed.ends("again", DONE).await?;
        ensure!(on(testbed, "db-0")? == large && evictions(testbed, "db-0") == 1, "db-0 did not move once");
        db.rests(testbed, 3).await
    });
}

/// The claims of a replica go with it: the plan says so, and nothing is deleted until that is accepted.
#[test]
fn data_is_deleted_only_if_that_is_accepted() {
    story("stateful-claims", async |testbed| {
        let claim = json!({"metadata": {"name": "data"}, "spec": {
            "storageClassName": "", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        let volumes: Vec<String> = (0..2).map(|at| format!("{}-data-{at}", testbed.ns)).collect();
        for (at, name) in volumes.iter().enumerate() {
            let volume: PersistentVolume = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                "claimRef": {"namespace": testbed.ns, "name": format!("data-db-{at}")},
                "nfs": {"server": "nfs.example", "path": "/"}}}))?;
            Api::<PersistentVolume>::all(testbed.client.clone()).create(&PostParams::default(), &volume).await?;
        }
        let members = json!({"volumeClaimTemplates": [claim],
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete", "whenDeleted": "Retain"}});
        let db = Db::with(testbed, 2, Way::Policy, members).await?;
        let claims: Api<PersistentVolumeClaim> = testbed.api();
        let fewer = json!({"delete": {"pod": {"name": "db-1"}}});
        for (name, more) in [("plan", json!({"mode": "Plan"})), ("careful", json!({}))] {
            testbed.act(name, with(fewer.clone(), more)).await?;
            let action = testbed.ends(name, ("False", "DataWouldBeLost")).await?;
            let words = message(&action);
            ensure!(words.contains("claim data-db-1") && words.contains("dataLoss: Accept"), "{words}");
            let plan = action.status.as_ref().and_then(|status| status.plan.as_ref()).context("no plan")?;
            let told = plan.pods.iter().any(|pod| pod.message.contains("deleted with its data: claim data-db-1"));
            ensure!(told, "the plan does not name the claim: {:?}", plan.pods);
        }
        let kept = claims.get("data-db-1").await?.metadata;
        ensure!(kept.deletion_timestamp.is_none() && lives(testbed, "db-1") == 1, "something was deleted");
        db.rests(testbed, 2).await?;
        testbed.act("go", with(fewer, json!({"dataLoss": "Accept"}))).await?;
        testbed.ends("go", DONE).await?;
        db.rests(testbed, 1).await?;
        let wait = kube::runtime::wait::await_condition(claims.clone(), "data-db-1", |one: Option<&_>| one.is_none());
        tokio::time::timeout(testkit::TIMEOUT, wait).await.context("the claim stays")??;
        ensure!(claims.get("data-db-0").await?.metadata.deletion_timestamp.is_none(), "another claim was deleted");
        let delete =
            [&["delete", "pv", "--wait=false"], &*volumes.iter().map(String::as_str).collect::<Vec<_>>()].concat();
        testbed.kubectl(&delete, None).await.map(drop)
    });
}

/// A replica with a bound volume stays on its node.
async fn a_bound_volume(testbed: &Testbed) -> Result<()> {
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "storageClassName": "", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let nodes = testbed.ns.clone();
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": format!("{nodes}-data")},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "claimRef": {"namespace": testbed.ns, "name": "data-db-0"}, "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [format!("{nodes}-0"), format!("{nodes}-1")]}]}]}},
        },
    }))?;
    Api::<PersistentVolume>::all(testbed.client.clone()).create(&PostParams::default(), &volume).await?;
    let db = Db::with(testbed, 1, Way::Policy, json!({"volumeClaimTemplates": [claim]})).await?;
    let claims: Api<PersistentVolumeClaim> = testbed.api();
    let is_bound = |claim: Option<&PersistentVolumeClaim>| {
        claim.and_then(|claim| claim.status.as_ref()?.phase.clone()).is_some_and(|phase| phase == "Bound")
    };
    let wait = kube::runtime::wait::await_condition(claims, "data-db-0", is_bound);
    tokio::time::timeout(testkit::TIMEOUT, wait).await.context("the claim is not bound")??;
    testbed.act("away", moving("db-0", db.free(1))).await?;
    let action = testbed.ends("away", ("False", "VolumeOnOtherNode")).await?;
    ensure!(message(&action).contains(&format!("{nodes}-data")), "{}", message(&action));
    ensure!(lives(testbed, "db-0") == 1, "it was moved");
    testbed.act("along", moving("db-0", db.free(0))).await?;
    testbed.ends("along", DONE).await?;
    ensure!(on(testbed, "db-0")? == db.free(0), "db-0 is on {}", on(testbed, "db-0")?);
    db.rests(testbed, 1).await
}

#[test]
fn with_neither_way_it_is_refused_where_it_needs_one() {
    story("stateful-neither", async |testbed| {
        let db = Db::new(testbed, 2, Way::Policy).await?;
        for (name, spec) in [("move", moving("db-1", db.free(0))), ("create", creating(db.free(0)))] {
            testbed.act(name, spec).await?;
            let action = testbed.ends(name, ("False", "PinNotInstalled")).await?;
            let words = message(&action);
            ensure!(words.contains("pin-statefulsets") && words.contains(marks::GATE), "{words}");
        }
        let leave = json!({"move": {"pod": {"name": "db-1"}}, "disruption": "Allowed"});
        testbed.act("open", leave.clone()).await?;
        let action = testbed.ends("open", ("False", "NodeNotCordoned")).await?;
        ensure!(message(&action).contains("kubectl cordon"), "{}", message(&action));
        ensure!(lives(testbed, "db-1") == 1, "it was moved");
        // Off a cordoned node, the scheduler alone keeps the pod away.
        let home = on(testbed, "db-1")?;
        testbed.kubectl(&["cordon", &home], None).await?;
        testbed.act("leave", leave).await?;
        testbed.ends("leave", DONE).await?;
        comes(testbed, "db-1", 2).await?;
        db.settle(testbed).await?;
        ensure!(on(testbed, "db-1")? != home, "it is still on {home}");
        ensure!(evictions(testbed, "db-1") == 1, "it was evicted {} times", evictions(testbed, "db-1"));
        testbed.kubectl(&["uncordon", &home], None).await?;
        // A delete needs no node.
        testbed.act("delete", json!({"delete": {"pod": {"name": "db-1"}}})).await?;
        testbed.ends("delete", DONE).await?;
        db.rests(testbed, 1).await
    });
}

#[test]
fn by_the_gate() {
    story("gate-any-ordinal", async |testbed| any_ordinal(testbed, Way::Gate).await);
}

fn is_gated(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty())
}

#[test]
fn a_gated_pod_that_nobody_wants_is_released() {
    story("gate-unwanted", async |testbed| {
        // The pods are created gated, one after the other.
        let db = Db::new(testbed, 2, Way::Gate).await?;
        testbed.kubectl(&["delete", "pod", "db-0", "--wait=false"], None).await?;
        comes(testbed, "db-0", 2).await?;
        db.settle(testbed).await?;
        // The same while no operator runs; one starts afterwards.
        testbed.operator.lock().await.kill();
        testbed.kubectl(&["delete", "pod", "db-0", "--wait=false"], None).await?;
        comes(testbed, "db-0", 3).await?;
        testbed
            .eye
            .never(Duration::from_secs(1), "a gated pod was scheduled without an operator", |seen| {
                seen.pods.get("db-0").filter(|pod| !is_gated(pod)).cloned()
            })
            .await?;
        testbed.operator.lock().await.start()?;
        db.rests(testbed, 2).await
    });
}

#[test]
fn a_set_that_is_scaled_while_its_pod_is_gated_rests() {
    story("gate-scaled", async |testbed| {
        let db = Db::new(testbed, 2, Way::Gate).await?;
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| {
            write.is_on("pods") && write.body.to_string().contains("schedulingGates")
        });
        testbed.act("go", moving("db-1", db.free(0))).await?;
        held.reached().await.context("no release")?;
        ensure!(is_gated(&*pod(testbed, "db-1")?), "released already");
        testbed.kubectl(&["scale", "statefulset", "db", "--replicas=1"], None).await?;
        db.has(testbed, 1).await?;
        held.release();
        let action = testbed.over("go").await?;
        ensure!(ready(&action) == Some(("False", "WorkloadScaled")), "{:?} {}", ready(&action), message(&action));
        db.rests(testbed, 1).await
    });
}

/// One replica after the other, each at most once; none if the application does not allow a missing replica.
#[test]
fn an_application_leaves_its_nodes() {
    story("gate-application", async |testbed| {
        let db = Db::new(testbed, 2, Way::Gate).await?;
        for at in [0, 1] {
            db.nodes.label(db.homes()[at], "side", "old").await?;
        }
        let leave =
            json!({"selector": {"part-of": "shop"}, "from": {"nodeSelector": {"side": "old"}}, "maxParallel": 2});
        testbed.act("careful", json!({"moveApplication": leave})).await?;
        let action = testbed.ends("careful", ("False", "DisruptionNeeded")).await?;
        ensure!(message(&action).contains("disruption: Allowed"), "{}", message(&action));
        ensure!(lives(testbed, "db-0") == 1 && lives(testbed, "db-1") == 1, "a replica was touched");

        let before = testbed.eye.now().history.len();
        testbed.act("go", json!({"moveApplication": leave, "disruption": "Allowed"})).await?;
        let action = testbed.ends("go", DONE).await?;
        ensure!(message(&action) == "2 of 2 replicas of 1 workload moved", "{}", message(&action));
        for name in ["db-0", "db-1"] {
            let node = on(testbed, name)?;
            ensure!([db.free(0), db.free(1)].contains(&node.as_str()), "{name} is on {node}");
            ensure!(evictions(testbed, name) == 1, "{name} was evicted {} times", evictions(testbed, name));
        }
        let mut missing = BTreeSet::new();
        for happening in &testbed.eye.now().history[before..] {
            match happening {
                Happening::Pod(pod) if serves(pod) => missing.remove(&pod.name_any()),
                Happening::Pod(pod) | Happening::PodGone(pod) => missing.insert(pod.name_any()),
                _ => continue,
            };
            ensure!(missing.len() < 2, "both were missing at once");
        }
        db.rests(testbed, 2).await
    });
}

/// Action of a story with kills.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Move,
    Create,
    Delete,
}

impl Deed {
    fn spec(self, db: &Db) -> Value {
        match self {
            Self::Move => moving("db-0", db.free(0)),
            Self::Create => creating(db.free(0)),
            Self::Delete => json!({"delete": {"pod": {"name": "db-1"}}}),
        }
    }

    async fn is_done(self, testbed: &Testbed, db: &Db) -> Result<()> {
        testbed.ends("go", DONE).await?;
        let (replicas, moved) = match self {
            Self::Move => (2, Some("db-0")),
            Self::Create => (3, Some("db-2")),
            Self::Delete => (1, None),
        };
        db.rests(testbed, replicas).await?;
        if let Some(name) = moved {
            ensure!(on(testbed, name)? == db.free(0), "{name} is on {}", on(testbed, name)?);
        }
        let once = if matches!(self, Self::Move) { [1, 0] } else { [0, 0] };
        let found = [evictions(testbed, "db-0"), evictions(testbed, "db-1")];
        ensure!(found == once, "{self:?}: evictions {found:?}, not {once:?}");
        Ok(())
    }
}

async fn killed_at_each_write(testbed: &Testbed, (deed, way): &(Deed, Way)) -> Result<()> {
    let db = Db::new(testbed, 2, *way).await?;
    in_many_lives(testbed, "go", deed.spec(&db)).await?;
    deed.is_done(testbed, &db).await
}

#[test]
fn by_the_gate_killed_at_each_write() {
    let plane = Arc::clone(&block_on(Plane::shared()).unwrap_or_else(|error| panic!("{error:#}")));
    let cases = [Deed::Move, Deed::Create];
    let cases = cases.map(|deed| (format!("gate-kill-{deed:?}").to_lowercase(), (deed, Way::Gate)));
    stories_on(&plane, Road::Proxy, cases.into(), killed_at_each_write);
}

/// As a user would do it, on the plane's own nodes.
#[test]
fn samples_of_stateful_sets_run() {
    story("gate-samples", async |testbed| {
        apply(testbed, &root().join("samples/statefulset.yaml"), &[]).await?;
        testbed.kubectl(&["scale", "statefulset", "db", "--replicas=3"], None).await?;
        let three = |seen: &Seen| (seen.pods.len() == 3 && seen.pods.values().all(|pod| serves(pod))).then_some(());
        testbed.eye.until("three replicas", three).await?;
        // The sample moves db-1; this uses a pod that the scheduler has not placed on the target.
        let seen = testbed.eye.now();
        let elsewhere =
            seen.pods.values().find(|pod| node_of(pod) != "node-5").context("all are on node-5")?.name_any();
        for (name, pod, node) in [("move-statefulset", &*elsewhere, "node-5"), ("create-statefulset", "db-3", "node-4")]
        {
            let sample = root().join("samples/workloadaction").join(format!("{name}.yaml"));
            let text = std::fs::read_to_string(sample)?.replace("db-1", &elsewhere);
            testbed.kubectl(&["apply", "-f", "-"], Some(&text)).await?;
            let action = testbed.over(name).await?;
            ensure!(ready(&action) == Some(DONE), "{:?} {}", ready(&action), message(&action));
            ensure!(on(testbed, pod)? == node, "{pod} is on {}", on(testbed, pod)?);
        }
        Ok(())
    });
}
