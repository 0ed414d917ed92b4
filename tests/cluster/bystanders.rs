//! Pods that an action does not name: none is preempted for a pod that exists for a moment only, and no old pod is
//! evicted for a new one that cannot run anyway.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::action::{action, delete_pod, deployment, move_pod, with};
use testkit::eye::Seen;
use testkit::kstatus::{message, ready};
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, stories, story};

use crate::crash::in_many_lives;
use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Room for two pods of [`HALF`].
const NODE: Size = Size { cpu: "2", memory: "16Gi", pods: 20 };

/// Requests of each pod.
const HALF: &str = "1";

/// Two nodes that are full: each has a pod of high and one of low priority. A third one is empty or has room for one
/// pod, and is closed at first.
struct Priorities {
    nodes: TestNodes,
    high: Scene,
    low: Scene,
    class: String,
}

impl Priorities {
    async fn new(testbed: &Testbed, third: Size) -> Result<Self> {
        let class = format!("{}-high", testbed.ns);
        let manifest = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": class}, "value": 1000});
        testbed.kubectl(&["create", "-f", "-"], Some(&manifest.to_string())).await?;
        let mut nodes = testbed.nodes(2, NODE).await?;
        let third = nodes.join(None, third).await?;
        nodes.cordon(&third).await?;
        let set = async |app: &str, spec: Value| {
            let workload = Workload::replica_set(app, 2).requests(json!({"cpu": HALF})).spec(nodes.terms()).spec(spec);
            Scene::set(testbed, app, 2, workload).await
        };
        let high = set("high", json!({"priorityClassName": class, "affinity": apart("high")})).await?;
        let low = set("low", json!({"affinity": apart("low")})).await?;
        Ok(Self { nodes, high, low, class })
    }

    /// Checks that no pod of low priority was disturbed, and removes what is not in the namespace.
    async fn is_over(&self, testbed: &Testbed) -> Result<()> {
        testbed.kubectl(&["delete", "priorityclass", &self.class], None).await?;
        let verdict = self.low.untouched(testbed).await?;
        ensure!(verdict.passing.is_empty(), "a pod of low priority came and went: {verdict:?}");
        Ok(())
    }

    /// Waits until the action says this.
    async fn waits(&self, testbed: &Testbed, action: &str, words: &str) -> Result<()> {
        let waits = |seen: &Seen| message(seen.actions.get(action)?).contains(words).then_some(());
        testbed.eye.until(&format!("an action that waits: {words}"), waits).await
    }
}

/// Keeps the pods of this app on different nodes, as far as that is possible.
fn apart(app: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"});
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "podAffinityTerm": term}]}})
}

/// Change of one of the two replicas of high priority.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// To a node that is named.
    Move,
    /// Off a cordoned node.
    Leave,
    Delete,
}

impl Deed {
    async fn spec(self, scene: &Priorities) -> Result<Value> {
        let ((pod, home), third) = (scene.high.pod(0), &scene.nodes.names[2]);
        Ok(match self {
            Self::Move => move_pod(&pod, third),
            Self::Leave => {
                scene.nodes.cordon(&home).await?;
                json!({"move": {"pod": {"name": pod}}})
            }
            Self::Delete => delete_pod(&pod),
        })
    }
}

/// The cluster is full for the pod that the ReplicaSet creates in between, or instead: the action waits and is undone.
#[test]
fn nobody_is_preempted_where_the_cluster_is_full() {
    let cases = [Deed::Move, Deed::Leave, Deed::Delete];
    let cases = cases.map(|deed| (format!("full-{deed:?}").to_lowercase(), deed));
    stories(cases.into(), async |testbed, deed| {
        let scene = Priorities::new(testbed, Size { cpu: HALF, ..NODE }).await?;
        // The named node has room for the replacement alone. For the others, there is no room at all.
        if matches!(deed, Deed::Move) {
            scene.nodes.open_all().await?;
        }
        let times = json!({"readySeconds": 2, "scheduleSeconds": 2, "drainSeconds": 5, "queueSeconds": 5});
        testbed.act("go", with(deed.spec(&scene).await?, json!({"timeouts": times}))).await?;
        let (words, reason) = match deed {
            Deed::Leave => ("the action goes on when a node can take it", "QueueTimedOut"),
            Deed::Move | Deed::Delete => ("would preempt other pods by its priority", "NodeFull"),
        };
        scene.waits(testbed, "go", words).await?;
        testbed.ends("go", ("False", reason)).await?;
        scene.high.at_rest(testbed, 2).await?;
        scene.is_over(testbed).await
    });
}

/// With room for one more pod, everything is carried out, and the operator is killed at each write, so that the pods in
/// between exist for seconds.
#[test]
fn nobody_is_preempted_at_any_moment() {
    let cases = [Deed::Move, Deed::Leave, Deed::Delete];
    let cases = cases.map(|deed| (format!("room-{deed:?}").to_lowercase(), deed));
    stories(cases.into(), async |testbed, deed| {
        let scene = Priorities::new(testbed, NODE).await?;
        scene.nodes.open_all().await?;
        let spec = deed.spec(&scene).await?;
        in_many_lives(testbed, "go", spec).await?;
        testbed.ends("go", DONE).await?;
        let left = if matches!(deed, Deed::Delete) { 1 } else { 2 };
        let verdict = scene.high.at_rest(testbed, left).await?;
        ensure!(verdict.died == [scene.high.pod(0).0] && verdict.lowest_ready >= left, "{verdict:?}");
        scene.is_over(testbed).await
    });
}

/// Both replicas at once, with room for one pod in between only.
#[test]
fn nobody_is_preempted_for_two_at_once() {
    let cases = [(true, "3"), (false, HALF)].map(|(moves, cpu)| (format!("two-{moves}"), (moves, cpu)));
    stories(cases.into(), async |testbed, (moves, cpu)| {
        let scene = Priorities::new(testbed, Size { cpu, ..NODE }).await?;
        scene.nodes.open_all().await?;
        for at in 0..2 {
            let (pod, _) = scene.high.pod(at);
            let spec = if *moves { move_pod(&pod, &scene.nodes.names[2]) } else { delete_pod(&pod) };
            testbed.act(&format!("go-{at}"), spec).await?;
        }
        for at in 0..2 {
            testbed.ends(&format!("go-{at}"), DONE).await?;
        }
        let verdict = scene.high.at_rest(testbed, if *moves { 2 } else { 0 }).await?;
        ensure!(verdict.died.len() == 2, "{verdict:?}");
        scene.is_over(testbed).await
    });
}

/// A new pod that waits for something that the old pod does not hold is not helped by the end of the old pod, even
/// where the action may disrupt.
#[test]
fn no_old_pod_goes_for_a_target_that_others_occupy() {
    story("occupied", async |testbed| {
        let nodes = testbed.nodes(2, Size::default()).await?;
        let [home, target] = [0, 1].map(|at| nodes.names[at].as_str());
        let port = |app: &str| {
            let ports = json!([{"containerPort": 80, "hostPort": 8080}]);
            let container = json!({"name": "main", "image": "registry.example/app:1", "ports": ports});
            Workload::deployment(app, 1).spec(nodes.terms()).spec(json!({"containers": [container]}))
        };
        // The operator evaluates this one; terms that select namespaces by label are left to the scheduler.
        let shy = |app: &str, selector: Value| {
            let labels = json!({"matchLabels": {"app": "rock"}});
            let mut term = json!({"labelSelector": labels, "topologyKey": "kubernetes.io/hostname"});
            json_patch::merge(&mut term, &selector);
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
            Workload::deployment(app, 1).spec(nodes.terms()).spec(json!({"affinity": {"podAntiAffinity": required}}))
        };
        let label = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": testbed.ns}}});
        nodes.open_only(&[target]).await?;
        Workload::deployment("rock", 1).spec(nodes.terms()).make(testbed).await?;
        port("holder").make(testbed).await?;
        nodes.open_only(&[home]).await?;
        let mut scenes = Vec::new();
        for (app, workload) in
            [("port", port("port")), ("shy", shy("shy", json!({}))), ("shy-label", shy("shy-label", label))]
        {
            scenes.push(Scene::set(testbed, app, 1, workload).await?);
        }
        nodes.open_all().await?;
        for scene in &scenes {
            let (pod, _) = scene.pod(0);
            let more = json!({"disruption": "Allowed", "timeouts": {"scheduleSeconds": 3, "queueSeconds": 3}});
            testbed.act(&scene.app, with(move_pod(&pod, target), more)).await?;
        }
        // The first two may wait for one another before they are refused.
        for (scene, (reasons, words)) in scenes.iter().zip([
            (["NodeOccupied", "QueueTimedOut"], "host port 8080/TCP is taken by pod"),
            (["NodeOccupied", "QueueTimedOut"], "required anti-affinity keeps the pod away from pod"),
            (["Unschedulable", "Unschedulable"], "anti-affinity"),
        ]) {
            let action = testbed.over(&scene.app).await?;
            let (is, reason) = ready(&action).context("no condition")?;
            ensure!(is == "False" && reasons.contains(&reason), "{}: {reason}: {}", scene.app, message(&action));
            ensure!(message(&action).contains(words), "{}: {}", scene.app, message(&action));
            scene.untouched(testbed).await?;
        }
        // The way out: another node, or the other pod goes.
        testbed.kubectl(&["delete", "deployment", "rock", "holder", "--cascade=foreground", "--wait"], None).await?;
        for scene in &scenes {
            let name = format!("{}-again", scene.app);
            let spec = json!({"move": {"workload": deployment(&scene.app), "to": {"nodeName": target}}});
            testbed.act(&name, with(spec, json!({"disruption": "Allowed"}))).await?;
            testbed.ends(&name, DONE).await?;
            scene.moved(testbed, &[&scene.pod(0).0], &[target]).await?;
        }
        Ok(())
    });
}

/// The deletion of a namespace ends although an action runs there, and concerns no pod elsewhere.
#[test]
fn a_namespace_is_deleted_with_its_running_action() {
    story("namespace-gone", async |testbed| {
        let gone = format!("{}-gone", testbed.ns);
        let there = async |args: &[&str], input: Option<Value>| {
            let input = input.map(|input| input.to_string());
            testbed.plane.cluster.kubectl(&[&["-n", gone.as_str()], args].concat(), input.as_deref()).await
        };
        testbed.kubectl(&["create", "namespace", &gone], None).await?;
        testbed.watch_too(&gone).await;
        testbed.kill_and_restart().await?;
        let scene = Scene::guarded(testbed, "web", 2).await?;
        there(&["create", "-f", "-"], Some(Workload::deployment("api", 2).manifest())).await?;
        there(&["wait", "--for=condition=Available", "deployment/api", "--timeout=60s"], None).await?;
        there(&["create", "pdb", "api", "--selector=app=api", "--min-available=9"], None).await?;
        let spec = json!({"move": {"workload": deployment("api"), "to": {"nodeName": scene.free(0)}}});
        there(&["create", "-f", "-"], Some(action("go", spec))).await?;
        let waits = r#"--for=jsonpath={.status.conditions[?(@.type=="Ready")].reason}=BudgetBlocked"#;
        there(&["wait", waits, "wa/go", "--timeout=60s"], None).await?;
        testbed.kubectl(&["delete", "namespace", &gone, "--timeout=90s"], None).await?;
        scene.untouched(testbed).await.map(drop)
    });
}
