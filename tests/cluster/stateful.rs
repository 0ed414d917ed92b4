//! Replicas of StatefulSets: moved one by one, by the admission policy or by the scheduling gate; created and deleted
//! at the highest ordinal; rejected if nothing can pin a pod to its node, or if a bound volume cannot follow. Killed at
//! each write, the end is the same.
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
use testkit::proxy::gate::When;
use testkit::verdict::{node_of, serves};
use testkit::world::nodes::{Nodes, Size};
use testkit::world::{Road, World, stories_on, story};
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

/// A StatefulSet `db` on nodes of this world, each of which has room for one of its replicas and one more pod.
struct Db {
    nodes: Nodes,
    replicas: usize,
}

impl Db {
    async fn new(world: &World, replicas: usize, way: Way) -> Result<Self> {
        Self::with(world, replicas, way, json!({})).await
    }

    /// With additional members of the StatefulSet's spec.
    async fn with(world: &World, replicas: usize, way: Way, members: Value) -> Result<Self> {
        let nodes = world.nodes(replicas + 2, Size { pods: 2, ..Size::default() }).await?;
        let db = Self { nodes, replicas };
        db.nodes.open_only(&db.homes()).await?;
        db.make(world, way, members).await?;
        db.settle(world).await?;
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

    async fn make(&self, world: &World, way: Way, members: Value) -> Result<()> {
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
        world.create::<StatefulSet>(json!({"metadata": meta, "spec": with(spec, members)})).await.map(drop)
    }

    /// Waits until it has exactly its replicas, all Ready.
    async fn settle(&self, world: &World) -> Result<()> {
        self.has(world, self.replicas).await
    }

    async fn has(&self, world: &World, replicas: usize) -> Result<()> {
        let what = format!("{replicas} Ready replicas of db, and no other pod of it");
        let whole =
            |seen: &Seen| (seen.pods.len() == replicas && seen.pods.values().all(|pod| serves(pod))).then_some(());
        world.eye.until(&what, whole).await
    }

    /// Checks after the end of the action that no ledger is left, and that the StatefulSet has this number of replicas.
    async fn rests(&self, world: &World, replicas: usize) -> Result<()> {
        self.has(world, replicas).await?;
        let sets: Api<StatefulSet> = world.api();
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

fn pod(world: &World, name: &str) -> Result<Arc<Pod>> {
    world.eye.look(|seen| seen.pods.get(name).cloned()).with_context(|| format!("no pod {name}"))
}

fn on(world: &World, name: &str) -> Result<String> {
    Ok(node_of(&*pod(world, name)?))
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
        Ok::<_, anyhow::Error>(plane)
    })
    .unwrap_or_else(|error| panic!("{error:#}"))
}

/// Number of times a pod of this name was created.
fn lives(world: &World, name: &str) -> usize {
    world.eye.look(|seen| lives_seen(seen, name))
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
fn evictions(world: &World, name: &str) -> usize {
    let is_evicted = |pod: &Pod| {
        let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        conditions.into_iter().any(|one| one.reason.as_deref() == Some("EvictionByEvictionAPI"))
    };
    world.eye.look(|seen| {
        let found = seen.history.iter().filter_map(|happening| match happening {
            Happening::Pod(pod) | Happening::PodGone(pod) if pod.name_any() == name && is_evicted(pod) => pod.uid(),
            _ => None,
        });
        found.collect::<BTreeSet<_>>().len()
    })
}

/// Waits until a pod of this name was created this number of times.
async fn comes(world: &World, name: &str, times: usize) -> Result<()> {
    let what = format!("life {times} of {name}");
    world.eye.until(&what, |seen| (lives_seen(seen, name) == times).then_some(())).await
}

async fn any_ordinal(world: &World, way: Way) -> Result<()> {
    let db = Db::new(world, 3, way).await?;
    for (name, at) in [("db-1", 0), ("db-0", 1)] {
        world.act(name, moving(name, db.free(at))).await?;
        world.ends(name, DONE).await?;
        ensure!(on(world, name)? == db.free(at), "{name} is on {}", on(world, name)?);
        ensure!(evictions(world, name) == 1, "{name} was evicted {} times", evictions(world, name));
    }
    ensure!(lives(world, "db-2") == 1, "another replica was touched");
    db.rests(world, 3).await
}

/// All stories of the policy, including kills, on one plane.
#[test]
fn by_the_policy() {
    let plane = with_policy("pins");
    type Body = fn(&World) -> futures::future::LocalBoxFuture<'_, Result<()>>;
    let cases: Vec<(&str, Body)> = vec![
        ("any-ordinal", |world| Box::pin(any_ordinal(world, Way::Policy))),
        ("count", |world| Box::pin(the_highest_first(world))),
        ("terms", |world| Box::pin(every_term_is_narrowed(world))),
        ("foreign", |world| Box::pin(other_pods_are_left(world))),
        ("full", |world| Box::pin(a_target_that_is_full(world))),
        ("no-break", |world| Box::pin(without_leave(world))),
        ("ends", |world| Box::pin(at_the_highest(world))),
        ("volume", |world| Box::pin(a_bound_volume(world))),
    ];
    let cases = cases.into_iter().map(|(name, body)| (format!("pin-{name}"), body)).collect();
    stories_on(&plane.0, Road::Proxy, cases, async |world: &World, body: &Body| body(world).await);
    let kills = [Deed::Move, Deed::Create, Deed::Delete];
    let kills = kills.map(|deed| (format!("pin-kill-{deed:?}").to_lowercase(), (deed, Way::Policy)));
    stories_on(&plane.0, Road::Proxy, kills.into(), killed_at_each_write);
}

async fn the_highest_first(world: &World) -> Result<()> {
    let db = Db::new(world, 3, Way::Policy).await?;
    let target = json!({"nodeSelector": {"place": "new"}});
    for at in [0, 1] {
        db.nodes.label(db.free(at), "place", "new").await?;
    }
    let spec = json!({"move": {"workload": stateful_set(), "to": target, "count": 2}, "disruption": "Allowed"});
    world.act("go", spec).await?;
    world.ends("go", DONE).await?;
    ensure!(lives(world, "db-0") == 1, "the lowest was moved");
    for name in ["db-1", "db-2"] {
        let node = on(world, name)?;
        ensure!([db.free(0), db.free(1)].contains(&node.as_str()), "{name} is on {node}");
    }
    db.rests(world, 3).await
}

/// A template with two terms: both must be pinned, or the scheduler could use the other one.
async fn every_term_is_narrowed(world: &World) -> Result<()> {
    let on_delete = json!({"updateStrategy": {"type": "OnDelete"}});
    let db = Db::with(world, 1, Way::Policy, on_delete).await?;
    let term = |value: &str| json!({"matchExpressions": [{"key": "place", "operator": "In", "values": [value]}]});
    for name in &db.nodes.names {
        db.nodes.label(name, "place", "one").await?;
    }
    let terms = json!({"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term("one"), term("two"),
            {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["nowhere"]}]}]}}}}}}});
    let patch = ["patch", "statefulset", "db", "--type=merge", "-p", &terms.to_string()];
    world.kubectl(&patch, None).await?;
    world.act("go", moving("db-0", db.free(1))).await?;
    world.ends("go", DONE).await?;
    let pod = serde_json::to_value(&*pod(world, "db-0")?)?;
    let path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = pod.pointer(path).and_then(Value::as_array).context("no terms")?;
    let pinned = |term: &&Value| term["matchFields"].to_string().contains(db.free(1));
    ensure!(terms.len() == 3 && terms.iter().filter(pinned).count() == 3, "{terms:?}");
    ensure!(pod.pointer("/spec/affinity/podAntiAffinity").is_some(), "an affinity is lost: {pod}");
    db.rests(world, 1).await
}

/// Pods of the same name in another namespace, and pods deleted by hand after the end of the action, are not pinned.
async fn other_pods_are_left(world: &World) -> Result<()> {
    let db = Db::new(world, 2, Way::Policy).await?;
    world.act("go", moving("db-1", db.free(0))).await?;
    world.ends("go", DONE).await?;
    world.kubectl(&["delete", "pod", "db-1"], None).await?;
    comes(world, "db-1", 3).await?;
    let pin = serde_json::to_value(&*pod(world, "db-1")?)?.to_string();
    ensure!(!pin.contains("matchFields"), "pinned after the end: {pin}");
    db.rests(world, 2).await
}

/// The scheduler rejects a node for a reason that the plan could not foresee: the pod runs on another node, and the
/// StatefulSet is complete.
async fn a_target_that_is_full(world: &World) -> Result<()> {
    let db = Db::new(world, 2, Way::Policy).await?;
    let guest = |name: &str| {
        let mut spec = db.nodes.terms();
        spec["nodeName"] = json!(db.free(0));
        spec["containers"] = json!([{"name": "main", "image": "registry.example/app:1"}]);
        json!({"metadata": {"name": name, "labels": {testkit::world::rest::BARE: "yes"}}, "spec": spec})
    };
    let mut held = world.proxy.hold(1, When::Before, |write| write.is_on("pods/eviction"));
    let spec = with(moving("db-1", db.free(0)), json!({"timeouts": {"scheduleSeconds": 3}}));
    world.act("go", spec).await?;
    held.reached().await.context("no eviction")?;
    for name in ["guest-0", "guest-1"] {
        world.create::<Pod>(guest(name)).await?;
    }
    held.release();
    world.ends("go", ("False", "Unschedulable")).await?;
    for name in ["guest-0", "guest-1"] {
        world.kubectl(&["delete", "pod", name, "--wait=true"], None).await?;
    }
    ensure!(on(world, "db-1")? != db.free(0), "it is on the target");
    db.rests(world, 2).await
}

async fn without_leave(world: &World) -> Result<()> {
    let db = Db::new(world, 2, Way::Policy).await?;
    world.act("go", move_pod("db-1", db.free(0))).await?;
    let action = world.ends("go", ("False", "DisruptionNeeded")).await?;
    ensure!(message(&action).contains("disruption: Allowed"), "{}", message(&action));
    ensure!(lives(world, "db-1") == 1, "it was moved");
    db.rests(world, 2).await
}

/// Create and delete work at the highest ordinal only.
async fn at_the_highest(world: &World) -> Result<()> {
    let db = Db::with(world, 2, Way::Policy, json!({"ordinals": {"start": 3}})).await?;
    world.act("lower", json!({"delete": {"pod": {"name": "db-3"}}})).await?;
    let action = world.ends("lower", ("False", "NotHighestOrdinal")).await?;
    ensure!(message(&action).contains("loses db-4 first"), "{}", message(&action));
    world.act("more", creating(db.free(0))).await?;
    world.ends("more", DONE).await?;
    ensure!(on(world, "db-5")? == db.free(0), "db-5 is on {}", on(world, "db-5")?);
    db.rests(world, 3).await?;
    world.act("fewer", json!({"delete": {"workload": stateful_set(), "count": 2}})).await?;
    world.ends("fewer", DONE).await?;
    ensure!(lives(world, "db-3") == 1 && pod(world, "db-3").is_ok(), "the lowest was touched");
    db.rests(world, 1).await
}

/// A replica with a bound volume stays on its node.
async fn a_bound_volume(world: &World) -> Result<()> {
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "storageClassName": "", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let nodes = world.ns.clone();
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": format!("{nodes}-data")},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "claimRef": {"namespace": world.ns, "name": "data-db-0"}, "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [format!("{nodes}-0"), format!("{nodes}-1")]}]}]}},
        },
    }))?;
    Api::<PersistentVolume>::all(world.client.clone()).create(&PostParams::default(), &volume).await?;
    let db = Db::with(world, 1, Way::Policy, json!({"volumeClaimTemplates": [claim]})).await?;
    let claims: Api<PersistentVolumeClaim> = world.api();
    let is_bound = |claim: Option<&PersistentVolumeClaim>| {
        claim.and_then(|claim| claim.status.as_ref()?.phase.clone()).is_some_and(|phase| phase == "Bound")
    };
    let wait = kube::runtime::wait::await_condition(claims, "data-db-0", is_bound);
    tokio::time::timeout(testkit::TIMEOUT, wait).await.context("the claim is not bound")??;
    world.act("away", moving("db-0", db.free(1))).await?;
    let action = world.ends("away", ("False", "VolumeOnOtherNode")).await?;
    ensure!(message(&action).contains(&format!("{nodes}-data")), "{}", message(&action));
    ensure!(lives(world, "db-0") == 1, "it was moved");
    world.act("along", moving("db-0", db.free(0))).await?;
    world.ends("along", DONE).await?;
    ensure!(on(world, "db-0")? == db.free(0), "db-0 is on {}", on(world, "db-0")?);
    db.rests(world, 1).await
}

#[test]
fn with_neither_way_it_is_refused() {
    story("stateful-neither", async |world| {
        let db = Db::new(world, 2, Way::Policy).await?;
        for (name, spec) in [("move", moving("db-1", db.free(0))), ("create", creating(db.free(0)))] {
            world.act(name, spec).await?;
            let action = world.ends(name, ("False", "PinNotInstalled")).await?;
            let words = message(&action);
            ensure!(words.contains("pin-statefulsets") && words.contains(marks::GATE), "{words}");
        }
        ensure!(lives(world, "db-1") == 1, "it was moved");
        // A delete needs no node.
        world.act("delete", json!({"delete": {"pod": {"name": "db-1"}}})).await?;
        world.ends("delete", DONE).await?;
        db.rests(world, 1).await
    });
}

#[test]
fn by_the_gate() {
    story("gate-any-ordinal", async |world| any_ordinal(world, Way::Gate).await);
}

fn is_gated(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty())
}

#[test]
fn a_gated_pod_that_nobody_wants_is_released() {
    story("gate-unwanted", async |world| {
        // The pods are created gated, one after the other.
        let db = Db::new(world, 2, Way::Gate).await?;
        world.kubectl(&["delete", "pod", "db-0"], None).await?;
        comes(world, "db-0", 2).await?;
        db.settle(world).await?;
        // The same while no operator runs; one starts afterwards.
        world.operator.lock().await.kill();
        world.kubectl(&["delete", "pod", "db-0"], None).await?;
        comes(world, "db-0", 3).await?;
        world
            .eye
            .never(Duration::from_secs(1), "a gated pod was scheduled without an operator", |seen| {
                seen.pods.get("db-0").filter(|pod| !is_gated(pod)).cloned()
            })
            .await?;
        world.operator.lock().await.start()?;
        db.rests(world, 2).await
    });
}

#[test]
fn a_set_that_is_scaled_while_its_pod_is_gated_rests() {
    story("gate-scaled", async |world| {
        let db = Db::new(world, 2, Way::Gate).await?;
        let mut held = world
            .proxy
            .hold(1, When::Before, |write| write.is_on("pods") && write.body.to_string().contains("schedulingGates"));
        world.act("go", moving("db-1", db.free(0))).await?;
        held.reached().await.context("no release")?;
        ensure!(is_gated(&*pod(world, "db-1")?), "released already");
        world.kubectl(&["scale", "statefulset", "db", "--replicas=1"], None).await?;
        db.has(world, 1).await?;
        held.release();
        let action = world.over("go").await?;
        ensure!(ready(&action) == Some(("False", "WorkloadScaled")), "{:?} {}", ready(&action), message(&action));
        db.rests(world, 1).await
    });
}

/// One replica after the other, each at most once; none if the application does not allow a missing replica.
#[test]
fn an_application_leaves_its_nodes() {
    story("gate-application", async |world| {
        let db = Db::new(world, 2, Way::Gate).await?;
        for at in [0, 1] {
            db.nodes.label(db.homes()[at], "side", "old").await?;
        }
        let leave =
            json!({"selector": {"part-of": "shop"}, "from": {"nodeSelector": {"side": "old"}}, "maxParallel": 2});
        world.act("careful", json!({"moveApplication": leave})).await?;
        let action = world.ends("careful", ("False", "DisruptionNeeded")).await?;
        ensure!(message(&action).contains("disruption: Allowed"), "{}", message(&action));
        ensure!(lives(world, "db-0") == 1 && lives(world, "db-1") == 1, "a replica was touched");

        let before = world.eye.now().history.len();
        world.act("go", json!({"moveApplication": leave, "disruption": "Allowed"})).await?;
        let action = world.ends("go", DONE).await?;
        ensure!(message(&action) == "2 of 2 replicas of 1 workload moved", "{}", message(&action));
        for name in ["db-0", "db-1"] {
            let node = on(world, name)?;
            ensure!([db.free(0), db.free(1)].contains(&node.as_str()), "{name} is on {node}");
            ensure!(evictions(world, name) == 1, "{name} was evicted {} times", evictions(world, name));
        }
        let mut missing = BTreeSet::new();
        for happening in &world.eye.now().history[before..] {
            match happening {
                Happening::Pod(pod) if serves(pod) => missing.remove(&pod.name_any()),
                Happening::Pod(pod) | Happening::PodGone(pod) => missing.insert(pod.name_any()),
                _ => continue,
            };
            ensure!(missing.len() < 2, "both were missing at once");
        }
        db.rests(world, 2).await
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

    async fn is_done(self, world: &World, db: &Db) -> Result<()> {
        world.ends("go", DONE).await?;
        let (replicas, moved) = match self {
            Self::Move => (2, Some("db-0")),
            Self::Create => (3, Some("db-2")),
            Self::Delete => (1, None),
        };
        db.rests(world, replicas).await?;
        if let Some(name) = moved {
            ensure!(on(world, name)? == db.free(0), "{name} is on {}", on(world, name)?);
        }
        let once = if matches!(self, Self::Move) { [1, 0] } else { [0, 0] };
        let found = [evictions(world, "db-0"), evictions(world, "db-1")];
        ensure!(found == once, "{self:?}: evictions {found:?}, not {once:?}");
        Ok(())
    }
}

async fn killed_at_each_write(world: &World, (deed, way): &(Deed, Way)) -> Result<()> {
    let db = Db::new(world, 2, *way).await?;
    in_many_lives(world, "go", deed.spec(&db)).await?;
    deed.is_done(world, &db).await
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
    story("gate-samples", async |world| {
        apply(world, &root().join("samples/statefulset.yaml"), &[]).await?;
        world.kubectl(&["scale", "statefulset", "db", "--replicas=3"], None).await?;
        let three = |seen: &Seen| (seen.pods.len() == 3 && seen.pods.values().all(|pod| serves(pod))).then_some(());
        world.eye.until("three replicas", three).await?;
        // The sample moves db-1; this uses a pod that the scheduler has not placed on the target.
        let seen = world.eye.now();
        let elsewhere =
            seen.pods.values().find(|pod| node_of(pod) != "node-5").context("all are on node-5")?.name_any();
        for (name, pod, node) in [("move-statefulset", &*elsewhere, "node-5"), ("create-statefulset", "db-3", "node-4")]
        {
            let sample = root().join("samples/workloadaction").join(format!("{name}.yaml"));
            let text = std::fs::read_to_string(sample)?.replace("db-1", &elsewhere);
            world.kubectl(&["apply", "-f", "-"], Some(&text)).await?;
            let action = world.over(name).await?;
            ensure!(ready(&action) == Some(DONE), "{:?} {}", ready(&action), message(&action));
            ensure!(on(world, pod)? == node, "{pod} is on {}", on(world, pod)?);
        }
        Ok(())
    });
}
