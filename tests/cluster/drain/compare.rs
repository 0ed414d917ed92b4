//! The same drains by `kubectl drain` and by `kubectl ganglion drain`, on equal scenes: the exit code of each, what it
//! leaves on the node, and how many replicas serve meanwhile.

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::action::with;
use testkit::eye::{Happening, Seen};
use testkit::testbed::Testbed;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::rest::BARE;
use testkit::testbed::workload::BEHAVIOR;
use testkit::verdict::{APP, Story, node_of, pods_of};

use super::{EMPTY, STAYS, TIMED_OUT, User, said, story};

/// Number of rows at once: more would only wait for the processors.
const AT_ONCE: usize = 8;

/// Label of the nodes of one scene.
const SCENE: &str = "test.ganglion.dev/scene";

/// Name of the ConfigMap that stands for an object of a custom controller.
const OWNER: &str = "owner";

/// Exit code of `kubectl drain` for all that it does not evict, a timeout included.
const FAILED: i32 = 1;

/// Expected end of a drain with these options.
struct Run {
    options: &'static [&'static str],
    code: i32,
    /// Number of pods on the node afterwards.
    left: usize,
}

fn run(options: &'static [&'static str], code: i32, left: usize) -> Run {
    Run { options, code, left }
}

/// One comparison: objects of a scene, and the drains of two such scenes.
struct Row {
    name: &'static str,
    objects: fn(&Side) -> Vec<Value>,
    theirs: Run,
    ours: Run,
}

/// One of the two equal scenes of a row: an app on the first of two nodes.
struct Side {
    app: String,
    namespace: String,
    home: String,
    /// Terms that select the two nodes.
    terms: Value,
    /// uid of [`OWNER`].
    owner: String,
}

impl Side {
    fn metadata(&self, name: &str) -> Value {
        json!({"name": name, "namespace": self.namespace, "labels": {APP: self.app}})
    }

    fn template(&self, more: Value) -> Value {
        let spec = json!({
            "containers": [{"name": "main", "image": "registry.example/app:1"}], "terminationGracePeriodSeconds": 1,
        });
        let mut template = json!({"metadata": {"labels": {APP: self.app}}, "spec": with(self.terms.clone(), spec)});
        json_patch::merge(&mut template, &more);
        template
    }

    fn workload(&self, kind: &str, more: Value, template: Value) -> Value {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": self.metadata(&self.app),
            "spec": {"selector": {"matchLabels": {APP: self.app}}, "template": self.template(template)},
        });
        json_patch::merge(&mut object["spec"], &more);
        object
    }

    fn deployment(&self, replicas: usize) -> Value {
        self.workload("Deployment", json!({"replicas": replicas}), json!({}))
    }

    /// A pod on the first node without a controller.
    fn bare(&self, more: Value) -> Value {
        let mut pod = self.template(json!({"spec": {"nodeName": self.home}}));
        let mut metadata = self.metadata(&self.app);
        metadata["labels"][BARE] = json!("yes");
        pod["metadata"] = metadata;
        json_patch::merge(&mut pod, &json!({"apiVersion": "v1", "kind": "Pod"}));
        json_patch::merge(&mut pod, &more);
        pod
    }

    /// A pod that belongs to an object of another kind.
    fn custom(&self, more: Value) -> Value {
        let owner = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": self.owner, "controller": true,
        });
        let mut pod = self.bare(json!({"metadata": {"ownerReferences": [owner]}}));
        json_patch::merge(&mut pod, &more);
        pod
    }

    fn budget(&self, name: &str, available: usize) -> Value {
        let name = format!("{}-{name}", self.app);
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": self.metadata(&name),
            "spec": {"minAvailable": available, "selector": {"matchLabels": {APP: self.app}}}})
    }

    fn on_disk(&self) -> Value {
        let volume = json!({"spec": {"volumes": [{"name": "cache", "emptyDir": {}}]}});
        self.workload("Deployment", json!({}), volume)
    }

    fn job(&self) -> Value {
        let runs = json!({"metadata": {"annotations": {BEHAVIOR: "never-ready"}}, "spec": {"restartPolicy": "Never"}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": self.metadata(&self.app),
            "spec": {"template": self.template(runs)}})
    }

    fn set(&self) -> Value {
        self.workload("StatefulSet", json!({"serviceName": self.app}), json!({}))
    }
}

/// Annotation of a static pod's mirror.
fn mirror() -> Value {
    json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}})
}

fn held() -> Value {
    json!({"metadata": {"finalizers": ["example.com/keep"]}})
}

fn slow_to_end() -> Value {
    let annotations = json!({BEHAVIOR: "slow-termination", "kwok.ganglion.dev/termination-delay": "3s"});
    json!({"metadata": {"annotations": annotations}, "spec": {"terminationGracePeriodSeconds": 30}})
}

/// Row by row what `kubectl drain` does, and what ours does. Where they differ, ours is gentler, or asks for an option.
fn rows() -> Vec<Row> {
    let row = |name, objects, theirs, ours| Row { name, objects, theirs, ours };
    vec![
        row("free", |side| vec![side.deployment(2)], run(&[], 0, 0), run(&[], EMPTY, 0)),
        row("budget-many", |side| vec![side.deployment(2), side.budget("b", 0)], run(&[], 0, 0), run(&[], EMPTY, 0)),
        row("budget-one", |side| vec![side.deployment(2), side.budget("b", 1)], run(&[], 0, 0), run(&[], EMPTY, 0)),
        // Only a replacement that comes first can empty the node.
        row(
            "budget-none",
            |side| vec![side.deployment(2), side.budget("b", 2)],
            run(&["--timeout=3s"], FAILED, 2),
            run(&[], EMPTY, 0),
        ),
        row(
            "budgets",
            |side| vec![side.deployment(1), side.budget("b", 0), side.budget("c", 0)],
            run(&["--timeout=3s"], FAILED, 1),
            run(&[], STAYS, 1),
        ),
        row("disk", |side| vec![side.on_disk()], run(&[], FAILED, 1), run(&[], STAYS, 1)),
        row(
            "disk-lost",
            |side| vec![side.on_disk()],
            run(&["--delete-emptydir-data"], 0, 0),
            run(&["--disruption"], EMPTY, 0),
        ),
        row("bare", |side| vec![side.bare(json!({}))], run(&[], FAILED, 1), run(&[], STAYS, 1)),
        row("bare-force", |side| vec![side.bare(json!({}))], run(&["--force"], 0, 0), run(&["--force"], EMPTY, 0)),
        row(
            "bare-budget",
            |side| vec![side.bare(json!({})), side.budget("b", 1)],
            run(&["--force", "--timeout=3s"], FAILED, 1),
            run(&["--force", "--timeout=3s"], TIMED_OUT, 1),
        ),
        row(
            "daemon",
            |side| vec![side.workload("DaemonSet", json!({}), json!({}))],
            run(&[], 0, 1),
            run(&[], EMPTY, 1),
        ),
        row("mirror", |side| vec![side.bare(mirror())], run(&["--force"], 0, 1), run(&["--force"], EMPTY, 1)),
        row("job", |side| vec![side.job()], run(&[], 0, 0), run(&["--evict-jobs"], EMPTY, 0)),
        row("job-left", |side| vec![side.job()], run(&[], 0, 0), run(&["--leave-jobs"], STAYS, 1)),
        row("set", |side| vec![side.set()], run(&[], 0, 0), run(&[], STAYS, 1)),
        row("custom", |side| vec![side.custom(json!({}))], run(&[], 0, 0), run(&[], STAYS, 1)),
        row("custom-out", |side| vec![side.custom(json!({}))], run(&[], 0, 0), run(&["--disruption"], EMPTY, 0)),
        row(
            "custom-budget",
            |side| vec![side.custom(json!({})), side.budget("b", 1)],
            run(&["--timeout=3s"], FAILED, 1),
            run(&["--disruption", "--timeout=3s"], TIMED_OUT, 1),
        ),
        row(
            "finalizer",
            |side| vec![side.custom(held())],
            run(&["--timeout=3s"], FAILED, 1),
            run(&["--disruption", "--timeout=3s"], TIMED_OUT, 1),
        ),
        row(
            "grace",
            |side| vec![side.workload("Deployment", json!({"replicas": 2}), slow_to_end())],
            run(&[], 0, 0),
            run(&[], EMPTY, 0),
        ),
        row(
            "grace-period",
            |side| vec![side.custom(slow_to_end())],
            run(&["--grace-period=7"], 0, 0),
            run(&["--disruption", "--grace-period=7"], EMPTY, 0),
        ),
        row(
            "selected",
            |side| vec![side.deployment(1)],
            run(&["--pod-selector=app=other"], 0, 1),
            run(&["--pod-selector=app=other"], EMPTY, 1),
        ),
        row(
            "dry-run",
            |side| vec![side.deployment(2)],
            run(&["--dry-run=client"], 0, 2),
            run(&["--dry-run=client"], EMPTY, 2),
        ),
        row("kube-system", |side| vec![side.deployment(1)], run(&[], 0, 0), run(&["--disruption"], EMPTY, 0)),
    ]
}

/// A side of each row, with its nodes.
async fn sides(testbed: &Testbed, nodes: &TestNodes, rows: &[Row]) -> Result<Vec<[Side; 2]>> {
    let owner: ConfigMap = testbed.create(json!({"metadata": {"name": OWNER}})).await?;
    let owner = owner.uid().unwrap_or_default();
    let side = async |row: &Row, who: &str, pair: &[String]| {
        let is_system = row.name == "kube-system";
        // Other tests may use the namespace, too.
        let app = if is_system { format!("{who}-{}", testbed.ns) } else { format!("{who}-{}", row.name) };
        for node in pair {
            nodes.label(node, SCENE, &app).await?;
        }
        let mut terms = nodes.terms();
        terms["nodeSelector"][SCENE] = json!(app);
        let namespace = if is_system { "kube-system".to_owned() } else { testbed.ns.clone() };
        Ok::<Side, anyhow::Error>(Side { app, namespace, home: pair[0].clone(), terms, owner: owner.clone() })
    };
    let mut all = Vec::new();
    for (row, four) in rows.iter().zip(nodes.names.chunks(4)) {
        all.push([side(row, "kubectl", &four[..2]).await?, side(row, "ganglion", &four[2..]).await?]);
    }
    Ok(all)
}

/// Creates the objects of a scene, and waits until all pods run on its first node.
async fn set(testbed: &Testbed, row: &Row, side: &Side) -> Result<()> {
    let items = (row.objects)(side);
    let count = items[0].pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    testbed.plane.cluster.kubectl(&["create", "-f", "-"], Some(&list)).await?;
    if side.namespace != testbed.ns {
        let available = ["--for=condition=Available", &format!("deployment/{}", side.app), "--timeout=60s"];
        let wait = [&["wait", "-n", &side.namespace], available.as_slice()].concat();
        return testbed.plane.cluster.kubectl(&wait, None).await.map(drop);
    }
    let runs = |seen: &Seen| {
        let here = pods_of(seen, &side.app).filter(|pod| node_of(pod) == side.home);
        let running =
            here.filter(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running"));
        (running.count() as u64 == count).then_some(())
    };
    testbed.eye.until(&format!("the pods of {}", side.app), runs).await
}

/// Number of pods of the scene on its first node.
async fn left(testbed: &Testbed, side: &Side) -> Result<usize> {
    let here = ListParams::default().labels(&format!("{APP}={}", side.app));
    let here = here.fields(&format!("spec.nodeName={},status.phase!=Succeeded,status.phase!=Failed", side.home));
    Ok(Api::<Pod>::all(testbed.client.clone()).list(&here).await?.items.len())
}

/// Drains the first node of a scene. Returns the lowest number of replicas that served meanwhile.
async fn drain(testbed: &Testbed, user: &User, side: &Side, run: &Run, is_ours: bool) -> Result<usize> {
    let tale = Story::begin(&testbed.eye, &side.app);
    let node = format!("node/{}", side.home);
    let mut words = vec!["drain", &node];
    words.extend(run.options);
    if !run.options.iter().any(|option| option.starts_with("--timeout")) {
        words.push("--timeout=60s");
    }
    if !is_ours {
        words.push("--ignore-daemonsets");
    }
    let mut command = if is_ours { user.0.command(&words) } else { user.0.kubectl(&words) };
    let (code, text) = said(command.output().await?)?;
    let left = left(testbed, side).await?;
    ensure!((code, left) == (run.code, run.left), "exit code {code}, {left} left of {words:?}:\n{text}");
    let period = run.options.iter().find_map(|option| option.strip_prefix("--grace-period=")).map(str::parse::<i64>);
    if let Some(period) = period.transpose()? {
        let has_period = |seen: &Seen| {
            seen.history.iter().any(|happening| {
                let Happening::Pod(pod) = happening else { return false };
                pod.labels().get(APP) == Some(&side.app) && pod.metadata.deletion_grace_period_seconds == Some(period)
            })
        };
        ensure!(testbed.eye.look(has_period), "no pod had a grace period of {period} s");
    }
    Ok(tale.verdict(&testbed.eye).lowest_ready)
}

async fn compare(testbed: &Testbed, user: &User, row: &Row, [theirs, ours]: &[Side; 2]) -> Result<()> {
    let both =
        tokio::join!(drain(testbed, user, theirs, &row.theirs, false), drain(testbed, user, ours, &row.ours, true));
    let (theirs_lowest, ours_lowest) = (both.0.context("kubectl drain")?, both.1.context("kubectl ganglion drain")?);
    ensure!(ours_lowest >= theirs_lowest, "{ours_lowest} replicas served with ours, {theirs_lowest} with kubectl's");
    Ok(())
}

#[test]
fn a_drain_empties_what_kubectl_drain_empties() {
    story("drain-compare", async |testbed| {
        let user = User::administrator(testbed).await?;
        let rows = rows();
        let nodes = testbed.nodes(4 * rows.len(), Size::default()).await?;
        let sides = sides(testbed, &nodes, &rows).await?;
        let homes: Vec<&str> = sides.iter().flatten().map(|side| side.home.as_str()).collect();
        nodes.open_only(&homes).await?;
        let scenes: Vec<(&Row, &[Side; 2])> = rows.iter().zip(&sides).collect();
        let made = stream::iter(&scenes).map(async |(row, [theirs, ours])| {
            set(testbed, row, theirs).await?;
            set(testbed, row, ours).await
        });
        for outcome in made.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
            outcome?;
        }
        nodes.open_all().await?;
        let compared = stream::iter(&scenes).map(async |(row, sides)| {
            compare(testbed, &user, row, sides).await.map_err(|error| format!("{}: {error:#}", row.name))
        });
        let complaints: Vec<Result<(), String>> = compared.buffer_unordered(AT_ONCE).collect().await;
        // Nothing of these may hinder the end of the namespace, or stay in another one.
        for side in sides.iter().flatten() {
            let selector = format!("{APP}={}", side.app);
            if side.namespace != testbed.ns {
                let all = ["delete", "deployment", "-n", &side.namespace, "-l", &selector, "--wait=false"];
                testbed.plane.cluster.kubectl(&all, None).await?;
            }
        }
        let free = json!({"metadata": {"finalizers": null}});
        let held = testbed
            .eye
            .look(|seen| seen.pods.values().filter(|pod| !pod.finalizers().is_empty()).cloned().collect::<Vec<_>>());
        for pod in held {
            testbed.patch_pod(&pod.name_any(), free.clone()).await?;
        }
        let complaints: Vec<String> = complaints.into_iter().filter_map(Result::err).collect();
        if !complaints.is_empty() {
            bail!("{} of {} rows:\n{}", complaints.len(), rows.len(), complaints.join("\n"));
        }
        Ok(())
    });
}
