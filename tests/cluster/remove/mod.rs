//! `kubectl ganglion remove`: the cluster afterwards is what it was before, whatever is deleted first.
//!
//! A removal works on the whole cluster, and these stories delete the installation, so they have a plane of their own
//! and run on it one after the other.

mod before;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::marks;
use ganglion_api::node_config::NodeConfig;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::action::move_pod;
use testkit::eye::Seen;
use testkit::operator::{Operator, SHORT_LEASE, program};
use testkit::plane::install::{self, NAMESPACE};
use testkit::plane::{NODES, Plane, kubeconfig};
use testkit::plugin::Plugin;
use testkit::proxy::Write;
use testkit::proxy::gate::HoldPoint;
use testkit::terminal::PtySession;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, loops, pools, story, story_on};
use testkit::verdict::pods_of;
use testkit::{block_on, root};
use tokio::process::Command;

use crate::node_configs::template;
use crate::scenes::Scene;
use before::Before;

/// Maximum time of a command, which would otherwise wait for an operator that is gone.
const LONGEST: Duration = Duration::from_secs(300);

/// Runs `kubectl ganglion` with these arguments, and returns the exit code and what it printed.
async fn run(mut command: Command) -> Result<(i32, String)> {
    let output = tokio::time::timeout(LONGEST, command.kill_on_drop(true).output());
    let output = output.await.context("the command does not end")??;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Ok((output.status.code().context("ended by a signal")?, said))
}

/// A cluster in use: workloads, an operator for all namespaces, and one object of each kind.
struct Ground<'a> {
    testbed: &'a Testbed,
    nodes: TestNodes,
    operator: Operator,
    _home: TempDir,
    user: Plugin,
    web: Scene,
    before: Before,
}

impl<'a> Ground<'a> {
    async fn prepare(testbed: &'a Testbed) -> Result<Self> {
        // The operator of the testbed works in one namespace only.
        testbed.operator.lock().await.kill();
        testbed.kubectl(&["delete", "lease", "--all"], None).await?;
        let home = TempDir::new()?;
        let settings = home.path().join("settings.yaml");
        std::fs::write(&settings, format!("outbound: {{allowedNetworks: [127.0.0.0/8]}}\n{SHORT_LEASE}\n"))?;
        // The installation, and so the account, is new in each story.
        let token = install::token(&testbed.client).await?;
        let file = settings.display().to_string();
        let options = ["--lease-namespace", NAMESPACE, "--settings", &file];
        let through = kubeconfig::through(&testbed.proxy.address, &token);
        let mut operator = Operator::prepare(&home.path().join("operator"), &through, &options)?;
        operator.start()?;
        operator.ready().await?;
        let user = Plugin::new(&testbed.administrator().await?).await?;
        let nodes = testbed.nodes(3, Size::default()).await?;
        let web = Scene::guarded(testbed, "web", 3).await?;
        Workload::deployment("idle", 1).spec(nodes.terms()).make(testbed).await?;
        pools::deployment(testbed, 2).await?;
        gated_set(testbed, &nodes).await?;
        testbed.kubectl(&["rollout", "status", "deployment", pools::WORKERS, "--timeout=60s"], None).await?;
        // The label by which the template selects the node is the user's.
        let label = format!("example.com/of={}", testbed.ns);
        testbed.kubectl(&["label", "node", &nodes.names[0], &label], None).await?;
        let autoscaler = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "idle"},
            "spec": {"scaleTargetRef": deployment("idle"), "maxReplicas": 2},
        });
        testbed.kubectl(&["apply", "-f", "-"], Some(&autoscaler.to_string())).await?;
        let before = Before::of(testbed).await?;
        let mut ground = Self { testbed, nodes, operator, _home: home, user, web, before };
        ground.use_all_kinds().await?;
        Ok(ground)
    }

    /// Creates an object of each kind but actions, and drains a node.
    async fn use_all_kinds(&mut self) -> Result<()> {
        let testbed = self.testbed;
        loops::account(testbed, loops::SCALES).await?;
        loops::make(testbed, "web", loops::demo()).await?;
        pools::pool(
            testbed,
            "streams",
            pools::spec(json!({
                "workload": deployment(pools::WORKERS), "refresh": {"policy": "None"}, "handover": {"policy": "Immediate"},
            })),
        )
        .await?;
        let numbered = |seen: &Seen| {
            let workers = pods_of(seen, pools::WORKERS).filter(|pod| pod.annotations().contains_key(marks::WORKER));
            (workers.count() == 2).then_some(())
        };
        testbed.eye.until("numbers on the workers", numbered).await?;
        testbed
            .kubectl(&["wait", "--for=create", &format!("configmap/{}", pools::JOBS), "--timeout=60s"], None)
            .await?;
        let policy = json!({
            "apiVersion": "ganglion.dev/v1alpha1", "kind": "PlacementPolicy", "metadata": {"name": "default"},
            "spec": {"agents": [{"name": "safe", "safe": {}}]},
        });
        testbed.kubectl(&["apply", "-f", "-"], Some(&policy.to_string())).await?;
        template(testbed, &self.nodes.names[0]).await?;
        // As an import leaves the autoscaler, which has no metrics here.
        let off = json!({"selectPolicy": "Disabled"});
        let claim = json!({"loop": "idle", "original": null}).to_string();
        let off = json!({
            "metadata": {"annotations": {marks::IMPORTED_BY: claim}},
            "spec": {"behavior": {"scaleUp": off, "scaleDown": off}},
        });
        testbed.kubectl(&["patch", "hpa", "idle", "--type=merge", "-p", &off.to_string()], None).await?;
        let home = self.home_of_idle().await?;
        let (code, said) = run(self.user.command(&["drain", &home, "--disruption"])).await?;
        ensure!(code == 0, "the drain ended with {code}: {said}");
        Ok(())
    }

    async fn home_of_idle(&self) -> Result<String> {
        let pods = ["get", "pods", "-l", "app=idle", "-o", "jsonpath={.items[0].spec.nodeName}"];
        self.testbed.kubectl(&pods, None).await
    }

    /// Begins a move of `web`, and kills the operator at the first write that this selects.
    async fn kill_at(&mut self, when: HoldPoint, which: fn(&Write) -> bool) -> Result<()> {
        let mut held = self.testbed.proxy.hold(1, when, which);
        self.begin_move().await?;
        held.reached().await.context("the move did not come that far")?;
        self.operator.kill();
        held.lose();
        Ok(())
    }

    async fn begin_move(&self) -> Result<()> {
        self.testbed.act("go", move_pod(&self.web.pod(0).0, &self.web.free(0))).await.map(drop)
    }

    async fn remove(&self, options: &[&str]) -> Result<(i32, String)> {
        run(self.user.command(&[&["remove", "--timeout", "3m"], options].concat())).await
    }

    /// Removes everything, and compares the cluster with that before; then deletes the installation.
    async fn is_removed(&mut self) -> Result<String> {
        let (code, said) = self.remove(&["--yes"]).await?;
        ensure!(code == 0, "the removal ended with {code}: {said}");
        ensure!(said.contains(&format!("StatefulSet {}/db has the scheduling gate", self.testbed.ns)), "{said}");
        self.before.compare(self.testbed).await.with_context(|| said.clone())?;
        before::has_no_objects(self.testbed).await.with_context(|| said.clone())?;
        // Its account goes with its namespace.
        self.operator.kill();
        let base = root().join("kustomize/base").display().to_string();
        self.testbed.plane.cluster.kubectl(&["delete", "--ignore-not-found", "-k", &base], None).await?;
        self.before.compare(self.testbed).await?;
        before::has_no_installation(self.testbed).await?;
        let pods: kube::Api<Pod> = self.testbed.api();
        let all = pods.list(&Default::default()).await?;
        ensure!(all.items.len() == 3 + 1 + 2 + 1, "{} pods", all.items.len());
        Ok(said)
    }
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name})
}

/// A StatefulSet whose pods wait for the operator.
async fn gated_set(testbed: &Testbed, nodes: &TestNodes) -> Result<()> {
    let mut pod = nodes.terms();
    pod["containers"] = json!([{"name": "main", "image": "registry.example/app:1"}]);
    pod["schedulingGates"] = json!([{"name": "ganglion.dev/placement"}]);
    let labels = json!({"app": "db"});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db", "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    });
    testbed.kubectl(&["apply", "-f", "-"], Some(&set.to_string())).await?;
    testbed.kubectl(&["rollout", "status", "statefulset/db", "--timeout=60s"], None).await.map(drop)
}

/// The victim has been taken out of its ReplicaSet.
fn detaches(write: &Write) -> bool {
    write.is_on("pods") && write.method == "PATCH" && write.body.to_string().contains("ganglion.dev/peers")
}

/// The ReplicaSet is about to adopt the replacement.
fn takes_in(write: &Write) -> bool {
    let owner = write.body.pointer("/metadata/ownerReferences/0/kind");
    write.is_on("pods") && owner.is_some_and(|kind| kind == "ReplicaSet")
}

async fn running(ground: &mut Ground<'_>) -> Result<()> {
    let testbed = ground.testbed;
    let (code, said) = ground.remove(&["--dry-run"]).await?;
    ensure!(code == 0 && said.contains("by the running operator"), "{code} {said}");
    let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| write.is_on("pods/eviction"));
    ground.begin_move().await?;
    held.reached().await.context("no eviction")?;
    let (code, said) = ground.remove(&[]).await?;
    ensure!(code == 1 && said.contains("requires --yes"), "{code} {said}");
    let action = testbed.eye.now().actions.get("go").cloned().context("the action is gone")?;
    ensure!(action.metadata.deletion_timestamp.is_none(), "deleted without --yes");
    let going = testbed.eye.until("the deletion of the action", |seen| {
        seen.actions.get("go").filter(|action| action.metadata.deletion_timestamp.is_some()).map(drop)
    });
    let (said, release) = tokio::join!(ground.is_removed(), async {
        let going = going.await;
        held.release();
        going
    });
    release?;
    let said = said?;
    ensure!(said.contains("1 ClosedLoop") && said.contains("cordon by ganglion drain"), "{said}");
    // The eviction was on its way, so the move was completed.
    let ((pod, _), node) = (ground.web.pod(0), ground.web.free(0));
    ground.web.moved(testbed, &[&pod], &[&node]).await.map(drop)
}

async fn killed_after_detach(ground: &mut Ground<'_>) -> Result<()> {
    ground.kill_at(HoldPoint::After, detaches).await?;
    let said = ground.is_removed().await?;
    ensure!(said.contains("this process completes its work"), "{said}");
    ground.web.untouched(ground.testbed).await.map(drop)
}

async fn without_its_namespace(ground: &mut Ground<'_>) -> Result<()> {
    ground.kill_at(HoldPoint::Before, takes_in).await?;
    ground.testbed.plane.cluster.kubectl(&["delete", "namespace", NAMESPACE], None).await?;
    ground.is_removed().await?;
    ground.web.untouched(ground.testbed).await.map(drop)
}

async fn without_its_kinds(ground: &mut Ground<'_>) -> Result<()> {
    ground.kill_at(HoldPoint::After, detaches).await?;
    let crds = root().join("crds").display().to_string();
    ground.testbed.plane.cluster.kubectl(&["delete", "--wait=false", "-k", &crds], None).await?;
    ground.is_removed().await?;
    ground.web.untouched(ground.testbed).await.map(drop)
}

async fn without_its_policies(ground: &mut Ground<'_>) -> Result<()> {
    let policies = root().join("kustomize/base/admission.yaml").display().to_string();
    let mut held = ground.testbed.proxy.hold(1, HoldPoint::After, detaches);
    ground.begin_move().await?;
    held.reached().await.context("no detached pod")?;
    ground.testbed.plane.cluster.kubectl(&["delete", "-f", &policies], None).await?;
    let (code, said) = ground.remove(&["--yes"]).await?;
    ensure!(code == 1 && said.contains("the running operator would not complete its actions"), "{code} {said}");
    let action = ground.testbed.eye.now().actions.get("go").cloned().context("the action is gone")?;
    ensure!(action.metadata.deletion_timestamp.is_none(), "deleted although the operator does not act");
    ground.operator.kill();
    held.lose();
    // Its next pod waits at the gate, and no operator releases it.
    ground.testbed.kubectl(&["delete", "pod", "db-0", "--wait=false"], None).await?;
    ground.is_removed().await?;
    ground.testbed.kubectl(&["rollout", "status", "statefulset/db", "--timeout=60s"], None).await?;
    ground.web.untouched(ground.testbed).await.map(drop)
}

#[test]
fn the_cluster_is_as_before_in_each_order() {
    let plane = block_on(Plane::own("remove", NODES)).expect("a plane of its own");
    // One story must not hide the others.
    let failed: Vec<String> = [
        tell(&plane.0, "remove-running", running),
        tell(&plane.0, "remove-killed", killed_after_detach),
        tell(&plane.0, "remove-namespace", without_its_namespace),
        tell(&plane.0, "remove-kinds", without_its_kinds),
        tell(&plane.0, "remove-policies", without_its_policies),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(failed.is_empty(), "failed, see above: {}", failed.join(", "));
}

/// Runs a story on a new installation. Returns its name if it fails.
fn tell(plane: &Arc<Plane>, name: &str, body: impl AsyncFnOnce(&mut Ground<'_>) -> Result<()>) -> Option<String> {
    block_on(install::apply(&plane.cluster, &install::base())).expect("an installation");
    let run = AssertUnwindSafe(|| {
        story_on(plane, Road::Direct, name, async |testbed| {
            let mut ground = Ground::prepare(testbed).await?;
            body(&mut ground).await
        });
    });
    catch_unwind(run).err().map(|_| name.to_owned())
}

/// An operator that watches one namespace: only that one is cleaned.
#[test]
fn a_removal_is_limited_to_the_namespaces_of_its_operator() {
    story("remove-limited", async |testbed| {
        testbed.operator.lock().await.ready().await?;
        let scene = Scene::guarded(testbed, "web", 3).await?;
        loops::make(testbed, "web", loops::demo()).await?;
        testbed.kubectl(&["annotate", "loop", "web", "argocd.argoproj.io/tracking-id=shop"], None).await?;
        let (done, said) = testbed.ganglion(&["remove", "--yes"]).await?;
        ensure!(!done && said.contains("ClosedLoop remove-limited") && said.contains("Argo CD"), "{said}");
        ensure!(testbed.kubectl(&["get", "loop", "web", "-o", "name"], None).await.is_ok(), "the loop was deleted");
        let planner = kubeconfig::direct(&testbed.plane.cluster.config, &testbed.token("default").await?);
        let (done, said) =
            testbed.ganglion_as(&planner, &["remove", "--watch-namespace", &testbed.ns, "--yes"], "").await?;
        ensure!(!done && said.contains("you do not have the permission to") && said.contains("patch pods"), "{said}");
        let (done, said) = testbed.ganglion(&["remove", "--yes", "--force", "-o", "json"]).await?;
        ensure!(done, "{said}");
        let report: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
        ensure!(report["deleted"]["ClosedLoop"] == 1, "{report}");
        ensure!(report["cleaned"] == json!([]), "{report}");
        scene.untouched(testbed).await.map(drop)
    });
}

#[test]
fn an_interrupted_removal_says_what_goes_on_in_the_cluster() {
    story("remove-interrupted", async |testbed| {
        testbed.operator.lock().await.ready().await?;
        let kept = json!({"name": "kept", "finalizers": ["test.ganglion.dev/keep"]});
        let config = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfig", "metadata": kept,
            "spec": {"nodeName": "node-0", "suspend": true}});
        testbed.create::<NodeConfig>(config).await?;
        let home = TempDir::new()?;
        let file = home.path().join("kubeconfig").display().to_string();
        std::fs::write(&file, testbed.administrator().await?)?;
        let args = ["remove", "--yes", "-n", &testbed.ns, "--kubeconfig", &file];
        let mut session = PtySession::start(&program()?, &args, &[], (200, 60))?;
        let kept = format!("NodeConfig {}/kept", testbed.ns);
        session
            .until("the wait in one line", |text| {
                text.lines().filter(|line| line.starts_with('[')).count() == 1 && text.contains(&kept)
            })
            .await?;
        session.press("\x03").await?;
        session.shows(&["Interrupted. Not complete: ", &kept, "Deletions go on: operator ", "left with"]).await?;
        ensure!(!session.text().lines().any(|line| line.starts_with('[')), "{}", session.text());
        session.ends_with(130).await?;
        testbed
            .kubectl(&["patch", "ncfg", "kept", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#], None)
            .await?;
        let (done, said) = testbed.ganglion(&["remove", "--yes"]).await?;
        ensure!(done && said.contains("Now delete the operator itself"), "{said}");
        Ok(())
    });
}
