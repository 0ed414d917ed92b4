//! Swaps: replicas of different workloads swap their nodes. With room on both nodes, no old pod is removed before all
//! new pods are Ready. With room on one node, that node is first. Without room, one old pod is removed first. Killed at
//! each write, the end is the same.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::action::deployment;
use testkit::eye::Happening;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, stories, story};

use crate::crash::{kill_at, reached};
use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Writes of a swap of two replicas: twice those of a move, without a second receipt and a second admission.
const LEAST_WRITES: usize = 14;

/// Workloads `x` and `y` with one replica each, on two nodes with room for the given number of pods, and a third node.
pub struct Places {
    pub nodes: TestNodes,
    pub x: Scene,
    pub y: Scene,
}

impl Places {
    async fn prepare(testbed: &Testbed, x: u32, y: u32) -> Result<Self> {
        Self::of(testbed, [x, y], |_, workload| workload).await
    }

    async fn of(testbed: &Testbed, pods: [u32; 2], change: impl Fn(&str, Workload) -> Workload) -> Result<Self> {
        let mut nodes = testbed.nodes(0, Size::default()).await?;
        let mut scenes = Vec::new();
        for (app, pods) in [("x", pods[0]), ("y", pods[1])] {
            let node = nodes.join(None, Size { pods, ..Size::default() }).await?;
            nodes.open_only(&[&node]).await?;
            scenes.push(
                Scene::set(testbed, app, 1, change(app, Workload::deployment(app, 1).spec(nodes.terms()))).await?,
            );
        }
        nodes.join(None, Size::default()).await?;
        nodes.open_all().await?;
        let y = scenes.remove(1);
        let x = scenes.remove(0).again(testbed);
        Ok(Self { nodes, x, y })
    }

    /// With room for more pods on each node, and budgets that allow no disruption.
    pub async fn roomy(testbed: &Testbed) -> Result<Self> {
        Self::of(testbed, [20, 20], |_, workload| workload.guarded()).await
    }

    pub fn swap(&self) -> Value {
        let on =
            |at: usize, name: &str| json!({"workload": deployment(name), "from": {"nodeName": self.nodes.names[at]}});
        json!({"swap": {"replica": on(0, "x"), "with": [on(1, "y")]}})
    }

    /// Checks that each replica is on the other's node, nothing is left, and no replica was missing at any time.
    pub async fn swapped(&self, testbed: &Testbed) -> Result<()> {
        for (scene, to) in [(&self.x, 1), (&self.y, 0)] {
            let old = scene.pod(0).0;
            scene.moved(testbed, &[&old], &[&self.nodes.names[to]]).await?;
        }
        Ok(())
    }

    /// Checks that the original replicas still exist, and that none was missing at any time.
    pub async fn untouched(&self, testbed: &Testbed) -> Result<()> {
        self.x.untouched(testbed).await?;
        self.y.untouched(testbed).await.map(drop)
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Positions in the history at which a new pod of the app first became Ready, and at which an original pod first
/// terminated.
fn turning_points(testbed: &Testbed, scene: &Scene) -> Result<(usize, usize)> {
    let seen = testbed.eye.now();
    let old = scene.pod(0).0;
    let of_app = |pod: &Pod| pod.labels().get("app").is_some_and(|app| *app == scene.app);
    let marked = |pod: &Pod| pod.annotations().get("ganglion.dev/role").is_some_and(|role| role == "replacement");
    let find = |test: &dyn Fn(&Pod) -> bool| {
        seen.history.iter().position(|happening| matches!(happening, Happening::Pod(pod) if of_app(pod) && test(pod)))
    };
    let came = find(&|pod| pod.name_any() != old && marked(pod) && is_ready(pod));
    let went = find(&|pod| pod.name_any() == old && pod.metadata.deletion_timestamp.is_some());
    came.zip(went).ok_or_else(|| anyhow::anyhow!("{} did not move: {came:?} {went:?}", scene.app))
}

#[test]
fn with_room_on_both_sides_all_are_ready_before_anybody_goes() {
    story("swap-room", async |testbed| {
        // The second new pod becomes Ready only after the first old pod could have been removed.
        let change = |app: &str, workload: Workload| {
            let workload = workload.guarded();
            if app == "y" { workload.replacements("slow-start") } else { workload }
        };
        let places = Places::of(testbed, [20, 20], change).await?;
        testbed.act("go", places.swap()).await?;
        let action = testbed.ends("go", DONE).await?;
        places.swapped(testbed).await?;
        let (x, y) = (turning_points(testbed, &places.x)?, turning_points(testbed, &places.y)?);
        ensure!(x.0.max(y.0) < x.1.min(y.1), "one went before both were Ready: {x:?} {y:?}");
        let summary = action.status.as_ref().and_then(|status| status.summary.clone()).unwrap_or_default();
        ensure!(summary.action == "Swap" && summary.done == "2/2", "{summary:?}");
        ensure!(summary.workload.as_deref() == Some("Deployment/x, Deployment/y"), "{summary:?}");
        Ok(())
    });
}

#[test]
fn with_room_on_one_side_that_side_is_first() {
    let cases = [("x", (1, 20)), ("y", (20, 1))].map(|(first, pods)| (format!("swap-one-{first}"), (first, pods)));
    stories(cases.into(), async |testbed, (first, (x, y))| {
        let places = Places::prepare(testbed, *x, *y).await?;
        testbed.act("go", places.swap()).await?;
        testbed.ends("go", DONE).await?;
        places.swapped(testbed).await?;
        let (x, y) = (turning_points(testbed, &places.x)?, turning_points(testbed, &places.y)?);
        // The full node is the one that the first replica leaves.
        let (first, then) = if *first == "x" { (x, y) } else { (y, x) };
        ensure!(first.1 < then.0, "the second was Ready before the first had left: {first:?} {then:?}");
        Ok(())
    });
}

#[test]
fn without_room_it_is_refused_and_with_leave_one_goes_before() {
    story("swap-full", async |testbed| {
        let places = Places::prepare(testbed, 1, 1).await?;
        testbed.act("never", places.swap()).await?;
        testbed.ends("never", ("False", "NodeFull")).await?;
        let mut spec = places.swap();
        spec["disruption"] = json!("Allowed");
        // The third node would accept the substitute of the first, which would then not be a disruption.
        places.nodes.cordon(&places.nodes.names[2]).await?;
        testbed.act("allowed", spec).await?;
        testbed.ends("allowed", DONE).await?;
        for (scene, to) in [(&places.x, 1), (&places.y, 0)] {
            let verdict = scene.at_rest(testbed, 1).await?;
            ensure!(verdict.came.len() == 1 && verdict.came[0].1 == places.nodes.names[to], "{verdict:?}");
            ensure!(verdict.replicas == [1], "{verdict:?}");
        }
        let verdict = places.y.at_rest(testbed, 1).await?;
        ensure!(verdict.lowest_ready == 1, "the second was disrupted, too: {verdict:?}");
        Ok(())
    });
}

/// If one new pod never becomes Ready, both replicas stay.
#[test]
fn one_that_never_gets_ready_takes_the_other_back() {
    story("swap-never", async |testbed| {
        let change = |app: &str, workload: Workload| {
            let workload = workload.guarded();
            if app == "y" { workload.replacements("never-ready") } else { workload }
        };
        let places = Places::of(testbed, [20, 20], change).await?;
        let mut spec = places.swap();
        spec["timeouts"] = json!({"readySeconds": 8});
        testbed.act("go", spec).await?;
        testbed.ends("go", ("False", "ReplacementNotReady")).await?;
        places.untouched(testbed).await
    });
}

#[test]
fn killed_at_each_write_it_ends_the_same() {
    let mut writes = 0;
    story("swap-clean", async |testbed| {
        let places = Places::roomy(testbed).await?;
        testbed.act("go", places.swap()).await?;
        testbed.ends("go", DONE).await?;
        writes = testbed.proxy.writes().len();
        places.swapped(testbed).await
    });
    assert!(writes >= LEAST_WRITES, "a swap of {writes} writes");
    let both = [HoldPoint::Before, HoldPoint::After];
    let cases =
        (1..=writes).flat_map(|nth| both.map(|when| (format!("swap-{nth}-{when:?}").to_lowercase(), (nth, when))));
    stories(cases.collect(), async |testbed, (nth, when)| {
        let places = Places::roomy(testbed).await?;
        let mut held = testbed.proxy.hold(*nth, *when, |_| true);
        testbed.act("go", places.swap()).await?;
        match reached(testbed, &mut held, "go", std::time::Duration::from_secs(1)).await? {
            Some(_) => kill_at(testbed, held).await?,
            None => ensure!(*nth > LEAST_WRITES, "the action was over before write {nth}"),
        }
        testbed.ends("go", DONE).await?;
        places.swapped(testbed).await
    });
}
