//! `kubectl ganglion drain`: pods that leave a node, pods that stay and why, and the state after an interruption.

use std::pin::pin;
use std::process::Output;

use anyhow::{Context, Result, bail, ensure};
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::NODE_OWNER;
use testkit::action::with;
use testkit::eye::Seen;
use testkit::kstatus::ready;
use testkit::plane::kubeconfig;
use testkit::plugin::Plugin;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::rest::BARE;
use testkit::testbed::workload::{Workload, settled};
use testkit::testbed::{Testbed, story};
use testkit::verdict::{node_of, pods_of};
use tokio::process::{Child, Command};

use crate::scenes::Scene;

mod compare;
mod kinds;
mod rows;
mod terminal;

/// Exit codes, as documented in `--help`.
const EMPTY: i32 = 0;
const STAYS: i32 = 3;
const TIMED_OUT: i32 = 4;
const INTERRUPTED: i32 = 130;

/// A user who drains nodes.
struct User(Plugin);

impl User {
    async fn administrator(testbed: &Testbed) -> Result<Self> {
        Ok(Self(Plugin::new(&testbed.administrator().await?).await?))
    }

    fn command(&self, args: &[&str]) -> Command {
        self.0.command(&[&["drain"], args].concat())
    }

    fn begin(&self, args: &[&str]) -> Result<Child> {
        Ok(self.command(args).spawn()?)
    }

    /// Runs a drain. Returns its exit code and output.
    async fn drain(&self, args: &[&str]) -> Result<(i32, String)> {
        said(self.command(args).output().await?)
    }
}

fn said(output: Output) -> Result<(i32, String)> {
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ok((output.status.code().context("it was killed")?, text))
}

/// Interrupts a drain, as Ctrl-C does, once this is reached. Returns what was reached, and the exit code and output of
/// the drain. An error if the drain ends before.
async fn interrupted<T>(child: Child, reached: impl Future<Output = Result<T>>) -> Result<(T, (i32, String))> {
    let pid = child.id().context("it has ended")?.to_string();
    let mut output = pin!(child.wait_with_output());
    let reached = tokio::select! {
        reached = reached => reached?,
        ended = &mut output => bail!("the drain ended: {:?}", said(ended?)?),
    };
    Command::new("kill").args(["-INT", &pid]).status().await?;
    Ok((reached, said(output.await?)?))
}

fn ends(found: &(i32, String), code: i32, words: &[&str]) -> Result<()> {
    let (is, text) = found;
    ensure!(*is == code, "exit code {is} instead of {code}:\n{text}");
    // Removes line breaks, because tables and paragraphs wrap.
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let whole = flat(text);
    for word in words {
        ensure!(whole.contains(&flat(word)), "{word:?} is not in\n{text}");
    }
    Ok(())
}

async fn is_cordoned(testbed: &Testbed, node: &str) -> Result<bool> {
    let node = Api::<Node>::all(testbed.client.clone()).get(node).await?;
    Ok(node.spec.and_then(|spec| spec.unschedulable) == Some(true))
}

fn nodes_of(testbed: &Testbed, app: &str) -> Vec<String> {
    pods_of(&testbed.eye.now(), app).map(|pod| node_of(pod)).collect()
}

/// uids of the actions.
fn actions(testbed: &Testbed) -> Vec<String> {
    testbed.eye.now().actions.values().filter_map(|action| action.uid()).collect()
}

/// Two replicas on the first of three nodes, with a budget that allows no disruption.
async fn on_the_first(testbed: &Testbed) -> Result<(TestNodes, Scene)> {
    let nodes = testbed.nodes(3, Size::default()).await?;
    nodes.open_only(&[&nodes.names[0]]).await?;
    let scene = Scene::set(testbed, "web", 2, Workload::deployment("web", 2).guarded().spec(nodes.terms())).await?;
    nodes.open_all().await?;
    Ok((nodes, scene))
}

/// Waits until an operator holds the lease.
async fn lease_is_held(testbed: &Testbed) -> Result<()> {
    let held = |lease: Option<&Lease>| {
        lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.as_ref()).is_some_and(|holder| !holder.is_empty())
    };
    let wait = kube::runtime::wait::await_condition(testbed.api::<Lease>(), "ganglion", held);
    tokio::time::timeout(testkit::TIMEOUT, wait).await.context("no lease")??;
    Ok(())
}

/// A Deployment with one replica and these members of its spec, on the first node.
pub async fn single(testbed: &Testbed, nodes: &TestNodes, name: &str, members: Value, pod: Value) -> Result<Scene> {
    nodes.open_only(&[&nodes.names[0]]).await?;
    let mut manifest = Workload::deployment(name, 1).spec(nodes.terms()).spec(pod).manifest();
    json_patch::merge(&mut manifest["spec"], &members);
    testbed.kubectl(&["apply", "-f", "-"], Some(&manifest.to_string())).await?;
    settled(testbed, name, 1).await?;
    nodes.open_all().await?;
    Ok(Scene { app: name.to_owned(), replicas: 1, tale: testkit::verdict::Story::begin(&testbed.eye, name) })
}

/// A pod that something keeps ends the drain without any `--timeout`, and is named.
#[test]
fn a_pod_that_something_keeps_is_named() {
    story("drain-kept", async |testbed| {
        let user = User::administrator(testbed).await?;
        let nodes = testbed.nodes(3, Size::default()).await?;
        let home = nodes.names[0].as_str();
        let short = json!({"terminationGracePeriodSeconds": 1});
        let scene = single(testbed, &nodes, "web", json!({}), short).await?;
        let (pod, _) = scene.pod(0);
        let finalizer = "test.ganglion.dev/keep";
        testbed.patch_pod(&pod, json!({"metadata": {"finalizers": [finalizer]}})).await?;
        let found = user.drain(&[home]).await?;
        ends(&found, STAYS, &[&pod, finalizer])?;
        // Its successor serves, and nothing of ours is left once the pod may end.
        testbed.patch_pod(&pod, json!({"metadata": {"finalizers": null}})).await?;
        settled(testbed, "web", 1).await?;
        let verdict = scene.tale.verdict(&testbed.eye);
        ensure!(verdict.lowest_ready == 1 && verdict.died == [pod], "{verdict:?}");
        Ok(())
    });
}

#[test]
fn a_node_is_emptied_again_and_again() {
    story("drain", async |testbed| {
        let user = User::administrator(testbed).await?;
        let (nodes, scene) = on_the_first(testbed).await?;
        let [home, other, third] = [0, 1, 2].map(|at| nodes.names[at].as_str());
        let daemon = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "proxy"},
            "spec": {"selector": {"matchLabels": {"app": "proxy"}}, "template": {
                "metadata": {"labels": {"app": "proxy"}},
                "spec": {
                    "containers": [{"name": "main", "image": "registry.example/app:1"}],
                    "nodeSelector": {NODE_OWNER: testbed.ns}, "tolerations": [{"operator": "Exists"}],
                },
            }},
        });
        testbed.kubectl(&["apply", "-f", "-"], Some(&daemon.to_string())).await?;
        let bare = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "labels": {BARE: "yes"}},
            "spec": {"nodeName": home, "containers": [{"name": "main", "image": "registry.example/app:1"}],
                "tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 1},
        });
        testbed.kubectl(&["apply", "-f", "-"], Some(&bare.to_string())).await?;
        let daemons = |seen: &Seen| (pods_of(seen, "proxy").count() == 3).then_some(());
        testbed.eye.until("three pods of the DaemonSet", daemons).await?;

        let planned = user.drain(&[home, "--plan"]).await?;
        let words = [
            &format!("Node {home} would be cordoned. Nothing was changed."),
            "Deployment/web",
            "each new pod Ready before the old one goes",
            "Pod/bare",
            "stays: it belongs to no workload",
            "stays: DaemonSet/proxy runs one pod on each node",
            &format!("Node {home} would not be empty: 1 pod would not leave."),
        ];
        ends(&planned, STAYS, &words)?;
        ensure!(
            planned.1.contains(&format!("moves to {other}")) || planned.1.contains(&format!("moves to {third}")),
            "{}",
            planned.1
        );
        ensure!(actions(testbed).is_empty() && !is_cordoned(testbed, home).await?, "a plan changed something");

        let drained = user.drain(&[home, "-w"]).await?;
        let words = [
            &format!("Node {home} cordoned."),
            "done\n",
            "2 replicas moved in ",
            &format!("stays: {} Pod/bare on {home} (1 pod): it belongs to no workload", testbed.ns),
            &format!("-> To evict it, too: kubectl ganglion drain {home} --force"),
            "stays as expected: ",
            &format!("Node {home} is cordoned and not empty: 1 pod left."),
        ];
        ends(&drained, STAYS, &words)?;
        let verdict = scene.at_rest(testbed, 2).await?;
        ensure!(verdict.lowest_ready >= 2 && verdict.died.len() == 2, "{verdict:?}");
        ensure!(!nodes_of(testbed, "web").contains(&home.to_owned()) && is_cordoned(testbed, home).await?);
        let first = actions(testbed);
        ensure!(first.len() == 1, "one action for the workload: {first:?}");

        let emptied = user.drain(&[&format!("node/{home}"), "--force", "-o", "json"]).await?;
        ends(&emptied, EMPTY, &[])?;
        let report: Value = serde_json::from_str(&emptied.1).with_context(|| emptied.1.clone())?;
        ensure!(report["outcome"] == "Empty" && report["moved"] == 0 && report["evicted"] == 1, "{report}");
        ends(&user.drain(&[home, "--no-wait"]).await?, EMPTY, &["Nothing to wait for."])?;

        // Weeks later: back by a drain of both other nodes, then a drain of the same node again.
        ends(&user.drain(&[home, "--uncordon"]).await?, EMPTY, &[&format!("Node {home} uncordoned.")])?;
        ensure!(!is_cordoned(testbed, home).await?);
        // The node controller removes its own taint a moment later.
        nodes.open_all().await?;
        nodes.label(other, "rack", "r2").await?;
        nodes.label(third, "rack", "r2").await?;
        let selector = format!("rack=r2,{NODE_OWNER}={}", testbed.ns);
        ends(&user.drain(&["--selector", &selector]).await?, EMPTY, &["2 replicas moved"])?;
        scene.at_rest(testbed, 2).await?;
        ensure!(nodes_of(testbed, "web") == [home, home], "{:?}", nodes_of(testbed, "web"));
        ends(&user.drain(&[other, third, "--uncordon"]).await?, EMPTY, &[])?;
        nodes.open_all().await?;
        ends(&user.drain(&[home, "--parallel", "1"]).await?, EMPTY, &["2 replicas moved"])?;
        let verdict = scene.at_rest(testbed, 2).await?;
        ensure!(verdict.lowest_ready >= 2, "{verdict:?}");
        let more = |seen: &Seen| (seen.actions.len() >= first.len() + 3).then_some(());
        testbed.eye.until("two actions, one replica each, by --parallel 1", more).await?;
        Ok(())
    });
}

#[test]
fn what_cannot_be_replaced_first_moves_only_if_it_is_wished() {
    story("drain-apart", async |testbed| {
        let user = User::administrator(testbed).await?;
        let nodes = testbed.nodes(2, Size::default()).await?;
        let home = nodes.names[0].as_str();
        let volume = format!("{}-data", testbed.ns);
        let objects = [
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume}, "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                "claimRef": {"namespace": testbed.ns, "name": "data"}, "nfs": {"server": "nfs.example", "path": "/"},
            }}),
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": volume,
                "resources": {"requests": {"storage": "1Gi"}},
            }}),
        ];
        for object in &objects {
            testbed.kubectl(&["apply", "-f", "-"], Some(&object.to_string())).await?;
        }
        let claim = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
        let scratch = json!({"volumes": [{"name": "cache", "emptyDir": {}}]});
        let db = single(testbed, &nodes, "db", json!({}), claim).await?;
        let old =
            single(testbed, &nodes, "old", json!({"strategy": {"type": "Recreate", "rollingUpdate": null}}), json!({}))
                .await?;
        let cache = single(testbed, &nodes, "cache", json!({}), scratch).await?;

        let drained = user.drain(&[home]).await?;
        let words = [
            "Deployment/db on ",
            "claim data is ReadWriteOnce",
            "Deployment/old on ",
            "the Deployment has strategy: Recreate",
            "Deployment/cache on ",
            "the data of volume cache are lost with the pod",
            &format!("kubectl ganglion drain {home} --disruption"),
            "3 pods left",
        ];
        ends(&drained, STAYS, &words)?;
        for scene in [&db, &old, &cache] {
            scene.untouched(testbed).await?;
        }
        // An action created by hand reports the same.
        let by_hand = json!({"move": {"workload": testkit::action::deployment("db"), "from": {"nodeName": home}}});
        testbed.act("by-hand", by_hand).await?;
        testbed.ends("by-hand", ("False", "ReplacementCannotBeFirst")).await?;

        let drained = user.drain(&[home, "--disruption"]).await?;
        let moved = ends(&drained, EMPTY, &["3 replicas moved", "is empty but for DaemonSets and static pods"]);
        testbed.kubectl(&["delete", "pv", &volume, "--wait=false"], None).await?;
        moved?;
        for (scene, lowest) in [(&db, 0), (&old, 0), (&cache, 1)] {
            let verdict = scene.at_rest(testbed, 1).await?;
            ensure!(verdict.came.len() == 1 && verdict.came[0].1 == nodes.names[1], "{verdict:?}");
            ensure!(verdict.lowest_ready == lowest, "{}: {verdict:?}", scene.app);
            let surplus = verdict.passing.len();
            ensure!(lowest == 1 || surplus == 0, "something ran beside the old pod: {verdict:?}");
        }
        Ok(())
    });
}

#[test]
fn a_drain_that_was_interrupted_goes_on_or_is_undone() {
    story("drain-break", async |testbed| {
        let user = User::administrator(testbed).await?;
        let (nodes, scene) = on_the_first(testbed).await?;
        let home = nodes.names[0].as_str();
        let made = |seen: &Seen| (seen.actions.len() == 1).then_some(());
        // No operator processes it. The lease says that one works in this namespace.
        lease_is_held(testbed).await?;
        testbed.operator.lock().await.kill();
        let child = user.begin(&[home, "-w"])?;
        let ((), interrupted) = interrupted(child, testbed.eye.until("the action of the drain", made)).await?;
        let words = [
            "Interrupted. 1 action continues in the cluster: ",
            &format!("kubectl ganglion drain {home} -w"),
            &format!("kubectl ganglion drain {home} --uncordon"),
        ];
        ends(&interrupted, INTERRUPTED, &words)?;
        let lease = json!({"spec": {"holderIdentity": ""}}).to_string();
        testbed.kubectl(&["patch", "lease", "ganglion", "--type=merge", "-p", &lease], None).await?;
        let late = user.drain(&[home, "--timeout", "1s", "--lease-namespace", &testbed.ns]).await?;
        let words = [
            "The time is over.",
            "going on with 1 open action",
            &format!("no operator holds the lease ganglion (released in namespace {})", testbed.ns),
        ];
        ends(&late, TIMED_OUT, &words)?;
        testbed.kubectl(&["delete", "lease", "ganglion"], None).await?;
        // Without a lease, a second look decides: an operator whose lease has another name sees the action at once.
        let late = user.drain(&[home, "--timeout", "10s", "--lease-namespace", &testbed.ns]).await?;
        ends(&late, TIMED_OUT, &["no operator holds the lease ganglion (there is none)"])?;
        ensure!(actions(testbed).len() == 1, "another action was created");
        ends(&user.drain(&[home, "--uncordon"]).await?, EMPTY, &["aborted ", "uncordoned."])?;
        testbed.operator.lock().await.start()?;
        let name = testbed.eye.now().actions.keys().next().cloned().context("no action")?;
        testbed.ends(&name, ("False", "Aborted")).await?;
        scene.untouched(testbed).await?;

        testbed.operator.lock().await.kill();
        ends(&user.drain(&[home, "--no-wait"]).await?, EMPTY, &["made ", "To continue, and to follow the actions: "])?;
        testbed.operator.lock().await.start()?;
        let resumed = user.drain(&[home]).await?;
        ends(&resumed, EMPTY, &["is empty but for DaemonSets"])?;
        ensure!(actions(testbed).len() == 2, "the open action was not continued");
        let verdict = scene.at_rest(testbed, 2).await?;
        ensure!(verdict.lowest_ready >= 2 && verdict.died.len() == 2, "{verdict:?}");
        Ok(())
    });
}

/// Successors of evicted pods wait for room: the end of the drain names each with the words of the scheduler, and the
/// next drain or a new node ends the wait.
#[test]
fn the_end_of_the_time_names_pods_that_wait_for_room() {
    story("drain-pending", async |testbed| {
        let user = User::administrator(testbed).await?;
        let mut nodes = testbed.nodes(1, Size::default()).await?;
        let home = nodes.names[0].clone();
        let other = nodes.join(None, Size { pods: 1, ..Size::default() }).await?;
        let recreate = json!({"strategy": {"type": "Recreate", "rollingUpdate": null}});
        let old = single(testbed, &nodes, "old", recreate, json!({})).await?;
        // Others take the room between the plan and the eviction.
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| write.is_on("pods/eviction"));
        let child = user.begin(&[&home, "--disruption"])?;
        held.reached().await.context("no eviction")?;
        let guest = json!({"metadata": {"name": "guest", "labels": {BARE: "yes"}}, "spec": with(nodes.terms(), json!({
            "nodeName": other, "containers": [{"name": "main", "image": "registry.example/app:1"}]}))});
        testbed.create::<Pod>(guest).await?;
        held.release();
        let waits = |seen: &Seen| {
            let mut all = pods_of(seen, "old");
            let only = all.next().filter(|_| all.next().is_none())?;
            let mut conditions = only.status.as_ref()?.conditions.iter().flatten();
            conditions.any(|one| one.reason.as_deref() == Some("Unschedulable")).then(|| only.name_any())
        };
        let waits = testbed.eye.until("one pod of the workload, which waits for room", waits);
        let (waiting, interrupted) = interrupted(child, waits).await?;
        ends(&interrupted, INTERRUPTED, &[])?;
        let drained = user.drain(&[&home, "--disruption", "--timeout", "1s"]).await?;
        let words = [&*format!("pending: {} Pod/{waiting} of ReplicaSet/old-", testbed.ns), "nodes are available"];
        ends(&drained, TIMED_OUT, &words)?;
        let report = user.drain(&[&home, "--disruption", "--timeout", "1s", "-o", "json"]).await?;
        let report: Value = serde_json::from_str(&report.1).with_context(|| report.1.clone())?;
        ensure!(report["pending"][0]["name"] == json!(waiting), "{report}");
        testbed.kubectl(&["delete", "pod", "guest", "--wait"], None).await?;
        ends(&user.drain(&[&home, "--disruption"]).await?, EMPTY, &["is empty but for DaemonSets"])?;
        let verdict = old.at_rest(testbed, 1).await?;
        ensure!(verdict.died.len() == 1 && verdict.came.len() == 1, "{verdict:?}");
        Ok(())
    });
}

#[test]
fn a_plan_counts_all_moves_together() {
    story("drain-plan", async |testbed| {
        let user = User::administrator(testbed).await?;
        let mut nodes = testbed.nodes(1, Size::default()).await?;
        let other = nodes.join(None, Size { pods: 1, ..Size::default() }).await?;
        let home = nodes.names[0].clone();
        for app in ["first", "second", "third"] {
            single(testbed, &nodes, app, json!({}), json!({})).await?;
        }
        let planned = user.drain(&[&home, "--plan", "-o", "json"]).await?;
        ends(&planned, STAYS, &[])?;
        let report: Value = serde_json::from_str(&planned.1).with_context(|| planned.1.clone())?;
        let list = |name: &str| report[name].as_array().cloned().unwrap_or_default();
        let (leaves, stays) = (list("leaves"), list("stays"));
        ensure!(leaves.len() == 1 && leaves[0]["to"] == json!([other]), "{report}");
        ensure!(stays.len() == 2 && stays.iter().all(|stay| stay["reason"] == "NoCandidateNode"), "{report}");
        ends(&user.drain(&[&home, "--plan"]).await?, STAYS, &["would not be empty: 2 pods would not leave."])
    });
}

/// A quota, or a webhook that refuses pods, is known to the API server alone: the plan asks it.
#[test]
fn a_plan_knows_that_a_quota_refuses_the_new_pods() {
    story("drain-quota-plan", async |testbed| {
        let user = User::administrator(testbed).await?;
        let nodes = testbed.nodes(2, Size::default()).await?;
        let home = nodes.names[0].clone();
        let scene = single(testbed, &nodes, "web", json!({}), json!({})).await?;
        ends(&user.drain(&[&home, "--plan"]).await?, EMPTY, &["Deployment/web"])?;
        crate::scenes::quota(testbed, 1).await?;
        crate::scenes::quota_counts(testbed, 1).await?;
        let words = ["would not accept the new pod", "exceeded quota", "would not be empty: 1 pod would not leave."];
        ends(&user.drain(&[&home, "--plan"]).await?, STAYS, &words)?;
        testbed.kubectl(&["delete", "quota", "full"], None).await?;
        ends(&user.drain(&[&home, "--plan"]).await?, EMPTY, &["Deployment/web"])?;
        scene.untouched(testbed).await.map(drop)
    });
}

#[test]
fn without_the_rights_for_everything_nothing_is_changed() {
    story("drain-rights", async |testbed| {
        let (nodes, scene) = on_the_first(testbed).await?;
        let home = nodes.names[0].as_str();
        let elsewhere = format!("{}-too", testbed.ns);
        testbed.kubectl(&["create", "namespace", &elsewhere], None).await?;
        testbed.watch_too(&elsewhere).await;
        testbed.kill_and_restart().await?;
        nodes.open_only(&[home]).await?;
        let manifest = Workload::deployment("api", 1).spec(nodes.terms()).manifest().to_string();
        testbed.kubectl(&["apply", "-n", &elsewhere, "-f", "-"], Some(&manifest)).await?;
        let there = ["wait", "-n", &elsewhere, "--for=condition=Available", "deployment/api", "--timeout=60s"];
        testbed.kubectl(&there, None).await?;
        nodes.open_all().await?;

        testbed.create::<ServiceAccount>(json!({"metadata": {"name": "planner"}})).await?;
        let metadata = json!({"name": format!("{}-drain", testbed.ns)});
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
            {"apiGroups": ["ganglion.dev"], "resources": ["workloadactions"], "verbs": ["list"]},
        ]});
        let own = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "acts"}, "rules": [
            {"apiGroups": ["ganglion.dev"], "resources": ["workloadactions"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["pods", "pods/eviction"], "verbs": ["create"]},
        ]});
        let account = format!("{}:planner", testbed.ns);
        let user = User(
            Plugin::new(&kubeconfig::direct(&testbed.plane.cluster.config, &testbed.token("planner").await?)).await?,
        );
        let refused = user.drain(&[home]).await?;
        ends(&refused, 1, &["the node cannot be read: nodes"])?;
        for object in [&role, &own] {
            testbed.kubectl(&["apply", "-f", "-"], Some(&object.to_string())).await?;
        }
        let name = role["metadata"]["name"].as_str().unwrap_or_default();
        testbed
            .kubectl(&["create", "clusterrolebinding", name, "--clusterrole", name, "--serviceaccount", &account], None)
            .await?;
        testbed.kubectl(&["create", "rolebinding", "acts", "--role=acts", "--serviceaccount", &account], None).await?;

        let planned = user.drain(&[home, "--dry-run"]).await;
        let drained = user.drain(&[home]).await;
        let is_open = !is_cordoned(testbed, home).await?;
        let selected = user.drain(&[home, "--pod-selector", "app=web"]).await;
        let there =
            testbed.kubectl(&["get", "pods", "-n", &elsewhere, "-o", "jsonpath={.items[*].spec.nodeName}"], None).await;
        testbed.kubectl(&["delete", "clusterrole,clusterrolebinding", name], None).await?;
        let admin = User::administrator(testbed).await?.drain(&[home]).await;
        testbed.kubectl(&["delete", "namespace", &elsewhere, "--wait=false"], None).await?;
        let refused = "cannot create resource \"workloadactions\"";
        ends(&planned?, STAYS, &[refused, "Note: Not looked at: ", "Note: Targets are not known: "])?;
        let words = [
            "nothing was changed, since you do not have the permission to ",
            &format!("create workloadactions.ganglion.dev in namespace {elsewhere}"),
            &format!("create pods/eviction in namespace {elsewhere}"),
        ];
        let drained = drained?;
        ends(&drained, 1, &words)?;
        ensure!(is_open && !drained.1.contains(&format!("in namespace {};", testbed.ns)), "{}", drained.1);
        ends(&selected?, EMPTY, &["2 replicas moved"])?;
        ensure!(there?.trim() == home, "it moved nevertheless");
        // A user with permission drains the rest.
        ends(&admin?, EMPTY, &["1 replica moved"])?;
        let verdict = scene.at_rest(testbed, 2).await?;
        ensure!(verdict.lowest_ready >= 2, "{verdict:?}");
        Ok(())
    });
}

#[test]
fn a_budget_that_allows_nothing_is_told() {
    story("drain-budget", async |testbed| {
        let user = User::administrator(testbed).await?;
        let (nodes, scene) = on_the_first(testbed).await?;
        let home = nodes.names[0].as_str();
        // More than the existing replicas.
        let patch = json!({"spec": {"minAvailable": 4}}).to_string();
        testbed.kubectl(&["patch", "pdb", "web", "--type=merge", "-p", &patch], None).await?;
        let child = user.begin(&[home, "-w"])?;
        let is_blocked = |seen: &Seen| (ready(seen.actions.values().next()?)?.1 == "BudgetBlocked").then_some(());
        let is_blocked = testbed.eye.until("the budget in the way of the action", is_blocked);
        let ((), interrupted) = interrupted(child, is_blocked).await?;
        ends(&interrupted, INTERRUPTED, &[])?;
        let drained = user.drain(&[home, "--timeout", "1s", "-w"]).await?;
        let words = ["BudgetBlocked: ", "PodDisruptionBudget web: ", "The time is over.", "Its action goes on."];
        ends(&drained, TIMED_OUT, &words)?;
        let patch = json!({"spec": {"minAvailable": 2}}).to_string();
        testbed.kubectl(&["patch", "pdb", "web", "--type=merge", "-p", &patch], None).await?;
        ends(&user.drain(&[home]).await?, EMPTY, &["going on with 1 open action", "2 replicas moved"])?;
        let found: Vec<WorkloadAction> =
            testbed.eye.now().actions.values().map(|action| action.as_ref().clone()).collect();
        ensure!(found.len() == 1 && found[0].labels().get("ganglion.dev/drain") == Some(&home.to_owned()), "{found:?}");
        let verdict = scene.at_rest(testbed, 2).await?;
        ensure!(verdict.lowest_ready >= 2, "{verdict:?}");
        Ok(())
    });
}
