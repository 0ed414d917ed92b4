//! The same drains by `kubectl drain` and by `kubectl ganglion drain`, on equal scenes: the exit code of each, what it
//! leaves on the node, and how many replicas serve meanwhile.

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, stream};
use ganglion_actions_plan::drain::action::is_seen;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use testkit::TIMEOUT;
use testkit::action::with;
use testkit::eye::{Happening, Seen};
use testkit::testbed::Testbed;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::verdict::{APP, Story, node_of, pods_of};

use super::rows::{Disturbance, Elsewhere, OWNER, Row, Run, SCENE, SHARED, Side, behaves, rows};
use super::{User, said, story};

/// Number of rows at once: more would only wait for the processors.
const AT_ONCE: usize = 16;

/// Label of the objects outside the namespace.
const MARK: &str = "test.ganglion.dev/compared-by";

/// Kinds of the objects outside the namespace.
const CLUSTER_KINDS: &str = "persistentvolume,priorityclass,validatingwebhookconfiguration";

/// A side of each row, with its nodes.
async fn sides(testbed: &Testbed, nodes: &mut TestNodes, rows: &[Row]) -> Result<Vec<[Side; 2]>> {
    let owner: ConfigMap = testbed.create(json!({"metadata": {"name": OWNER}})).await?;
    let owner = owner.uid().unwrap_or_default();
    let homes = nodes.names.clone();
    let shared = nodes.join(None, Size { pods: 500, ..Size::default() }).await?;
    nodes.label(&shared, SCENE, SHARED).await?;
    let mut all = Vec::new();
    for (row, pair) in rows.iter().zip(homes.chunks(2)) {
        let mut side = async |who: &str, home: &str| {
            let is_system = row.name == "kube-system";
            // Other tests may use the namespace, too.
            let app = if is_system { format!("{who}-{}", testbed.ns) } else { format!("{who}-{}", row.name) };
            nodes.label(home, SCENE, &app).await?;
            let scenes = match row.elsewhere {
                Elsewhere::Room => json!([app, SHARED]),
                Elsewhere::Full | Elsewhere::Joins => {
                    let full = nodes.join(None, Size { pods: 0, ..Size::default() }).await?;
                    nodes.label(&full, SCENE, &app).await?;
                    json!([app])
                }
            };
            let here = json!({"key": SCENE, "operator": "In", "values": scenes});
            let terms = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [here]}]}}}});
            let namespace = if is_system { "kube-system".to_owned() } else { testbed.ns.clone() };
            Ok::<Side, anyhow::Error>(Side {
                app,
                namespace,
                mark: (MARK.to_owned(), testbed.ns.clone()),
                home: home.to_owned(),
                terms: with(nodes.terms(), terms),
                owner: owner.clone(),
            })
        };
        all.push([side("kubectl", &pair[0]).await?, side("ganglion", &pair[1]).await?]);
    }
    Ok(all)
}

async fn create(testbed: &Testbed, items: Vec<Value>) -> Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    testbed.plane.cluster.kubectl(&["create", "-f", "-"], Some(&list)).await.map(drop)
}

/// Waits until all pods of a scene run on its first node.
async fn runs(testbed: &Testbed, row: &Row, side: &Side) -> Result<()> {
    if side.namespace != testbed.ns {
        let available = ["--for=condition=Available", &format!("deployment/{}", side.app), "--timeout=60s"];
        let wait = [&["wait", "-n", &side.namespace], available.as_slice()].concat();
        return testbed.plane.cluster.kubectl(&wait, None).await.map(drop);
    }
    let runs = |seen: &Seen| {
        let here = pods_of(seen, &side.app).filter(|pod| node_of(pod) == side.home);
        let running =
            here.filter(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running"));
        (running.count() == replicas(row, side)).then_some(())
    };
    testbed.eye.until(&format!("the pods of {}", side.app), runs).await
}

fn replicas(row: &Row, side: &Side) -> usize {
    let asked = (row.objects)(side)[0].pointer("/spec/replicas").and_then(Value::as_u64);
    asked.and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
}

/// Changes a scene as its row says, and waits until the change has its effect.
async fn disturb(testbed: &Testbed, row: &Row, side: &Side) -> Result<()> {
    match row.disturbance {
        Disturbance::None => Ok(()),
        Disturbance::Quota => {
            let most = replicas(row, side).to_string();
            let class = side.cluster_metadata()["name"].clone();
            let of_class = json!({"scopeName": "PriorityClass", "operator": "In", "values": [class]});
            let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": side.app},
                "spec": {"hard": {"pods": most}, "scopeSelector": {"matchExpressions": [of_class]}}});
            testbed.kubectl(&["create", "-f", "-"], Some(&quota.to_string())).await?;
            let used = format!("--for=jsonpath={{.status.used.pods}}={most}");
            testbed
                .kubectl(&["wait", &used, &format!("resourcequota/{}", side.app), "--timeout=60s"], None)
                .await
                .map(drop)
        }
        Disturbance::Webhook => {
            let rule =
                json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
            let hook = json!({
                "name": "pods.example.com", "clientConfig": {"url": "https://127.0.0.1:9/"}, "rules": [rule],
                "objectSelector": {"matchLabels": {APP: side.app}}, "failurePolicy": "Fail", "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            });
            let hooks = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": side.cluster_metadata(), "webhooks": [hook],
            });
            create(testbed, vec![hooks]).await?;
            let refused = async {
                while !is_refused(testbed, side).await? {}
                Ok(())
            };
            tokio::time::timeout(TIMEOUT, refused).await.context("the webhook is not asked")?
        }
        Disturbance::Paused => {
            change(testbed, side, json!({"paused": true, "template": behaves("plain")})).await?;
            let seen = |found: &Deployment| {
                let observed = found.status.as_ref().and_then(|status| status.observed_generation);
                observed == found.metadata.generation
            };
            until(testbed, side, "its controller sees that it is paused", seen).await
        }
        Disturbance::Rollout => {
            let mut template = behaves("slow-start");
            template["metadata"]["annotations"]["kwok.ganglion.dev/start-delay"] = json!("1s");
            change(testbed, side, json!({"template": template})).await?;
            let begun = |seen: &Seen| (pods_of(seen, &side.app).count() > replicas(row, side)).then_some(());
            testbed.eye.until(&format!("a new pod of {}", side.app), begun).await
        }
        Disturbance::StuckRollout => {
            // The new pod must not come to the node that is drained.
            testbed.plane.cluster.kubectl(&["cordon", &side.home], None).await?;
            let changed = json!({"progressDeadlineSeconds": 1, "template": behaves("never-ready")});
            change(testbed, side, changed).await?;
            let stuck = |found: &Deployment| {
                let conditions = found.status.iter().flat_map(|status| status.conditions.iter().flatten());
                conditions.into_iter().any(|one| one.type_ == "Progressing" && one.status == "False")
            };
            until(testbed, side, "its rollout is stuck", stuck).await
        }
        Disturbance::Finished => {
            let over = json!({"status": {"phase": "Succeeded"}}).to_string();
            let names =
                testbed.eye.look(|seen: &Seen| pods_of(seen, &side.app).map(|pod| pod.name_any()).collect::<Vec<_>>());
            for name in names {
                let patch = ["patch", "pod", &name, "--subresource=status", "--type=merge", "-p", &over];
                testbed.kubectl(&patch, None).await?;
            }
            let is_over = |seen: &Seen| {
                let mut phases = pods_of(seen, &side.app).filter_map(|pod| pod.status.as_ref()?.phase.as_deref());
                phases.all(|phase| phase == "Succeeded").then_some(())
            };
            testbed.eye.until(&format!("the pods of {} to end", side.app), is_over).await
        }
    }
}

async fn change(testbed: &Testbed, side: &Side, spec: Value) -> Result<()> {
    let patch = json!({"spec": spec}).to_string();
    testbed.kubectl(&["patch", "deployment", &side.app, "--type=merge", "-p", &patch], None).await.map(drop)
}

async fn until(testbed: &Testbed, side: &Side, what: &str, holds: impl Fn(&Deployment) -> bool) -> Result<()> {
    let test = |seen: &Seen| seen.deployments.get(&side.app).filter(|found| holds(found)).map(|_| ());
    testbed.eye.until(&format!("Deployment {}: {what}", side.app), test).await
}

/// Whether the API server refuses new pods of the scene.
async fn is_refused(testbed: &Testbed, side: &Side) -> Result<bool> {
    let pod = json!({"metadata": {"name": format!("{}-tried", side.app), "labels": {APP: side.app}},
        "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]}});
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match testbed.api::<Pod>().create(&dry, &serde_json::from_value(pod)?).await {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) if status.message.contains("failed calling webhook") => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the watch has seen that so many pods of the scene are left on its first node. It does not see other
/// namespaces.
async fn catches_up(testbed: &Testbed, row: &Row, side: &Side, left: usize) -> Result<()> {
    if side.namespace != testbed.ns {
        return Ok(());
    }
    let counts = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        row.disturbance == Disturbance::Finished || !matches!(phase, Some("Succeeded" | "Failed"))
    };
    let seen = |seen: &Seen| {
        let here = pods_of(seen, &side.app).filter(|pod| node_of(pod) == side.home && counts(pod));
        (here.count() == left).then_some(())
    };
    testbed.eye.until(&format!("{left} pods of {} on {}", side.app, side.home), seen).await
}

/// Number of pods of the scene on its first node. Pods that have ended count only if the row is about them.
async fn left(testbed: &Testbed, row: &Row, side: &Side) -> Result<usize> {
    let counts_finished = row.disturbance == Disturbance::Finished;
    let phases = if counts_finished { "" } else { ",status.phase!=Succeeded,status.phase!=Failed" };
    let here = ListParams::default().labels(&format!("{APP}={}", side.app));
    let here = here.fields(&format!("spec.nodeName={}{phases}", side.home));
    Ok(Api::<Pod>::all(testbed.client.clone()).list(&here).await?.items.len())
}

/// Adds a node for the scene when its new pods, or its action, wait for one.
async fn join(testbed: &Testbed, row: &Row, side: &Side) -> Result<()> {
    if row.elsewhere != Elsewhere::Joins {
        return Ok(());
    }
    let waits = |seen: &Seen| {
        let of_scene = |name: &str| name.contains(&side.app);
        let is_acting = seen.actions.values().any(|action| of_scene(&action.name_any()) && is_seen(action));
        (is_acting || pods_of(seen, &side.app).any(|pod| node_of(pod).is_empty())).then_some(())
    };
    testbed.eye.until(&format!("{} to wait for a node", side.app), waits).await?;
    let name = format!("{}-late", side.home);
    TestNodes::one(&testbed.client, &testbed.ns, &name, &testbed.ns).await?;
    testbed.plane.cluster.kubectl(&["label", "node", &name, &format!("{SCENE}={}", side.app)], None).await.map(drop)
}

/// Drains the first node of a scene. Returns the lowest number of replicas that served meanwhile.
async fn drain(testbed: &Testbed, user: &User, row: &Row, side: &Side, is_ours: bool) -> Result<usize> {
    let run: &Run = if is_ours { &row.ours } else { &row.theirs };
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
    let (output, joined) = tokio::join!(command.output(), join(testbed, row, side));
    joined?;
    let (code, text) = said(output?)?;
    let left = left(testbed, row, side).await?;
    ensure!((code, left) == (run.code, run.left), "exit code {code}, {left} left of {words:?}:\n{text}");
    catches_up(testbed, row, side, left).await?;
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
    tokio::try_join!(disturb(testbed, row, theirs), disturb(testbed, row, ours))?;
    let both = tokio::join!(drain(testbed, user, row, theirs, false), drain(testbed, user, row, ours, true));
    let (theirs_lowest, ours_lowest) = (both.0.context("kubectl drain")?, both.1.context("kubectl ganglion drain")?);
    ensure!(ours_lowest >= theirs_lowest, "{ours_lowest} replicas served with ours, {theirs_lowest} with kubectl's");
    Ok(())
}

/// Removes what would hinder the end of the namespace, or stay outside it.
async fn clear(testbed: &Testbed, sides: &[[Side; 2]]) -> Result<()> {
    let cluster = &testbed.plane.cluster;
    let marked = format!("{MARK}={}", testbed.ns);
    cluster.kubectl(&["delete", CLUSTER_KINDS, "-l", &marked, "--wait=false"], None).await?;
    for side in sides.iter().flatten().filter(|side| side.namespace != testbed.ns) {
        let selector = format!("{APP}={}", side.app);
        cluster
            .kubectl(&["delete", "deployment", "-n", &side.namespace, "-l", &selector, "--wait=false"], None)
            .await?;
    }
    let held = |seen: &Seen| seen.pods.values().filter(|pod| !pod.finalizers().is_empty()).cloned().collect::<Vec<_>>();
    for pod in testbed.eye.look(held) {
        testbed.patch_pod(&pod.name_any(), json!({"metadata": {"finalizers": null}})).await?;
    }
    Ok(())
}

async fn compare_all(testbed: &Testbed, rows: &[Row], sides: &[[Side; 2]], nodes: &TestNodes) -> Result<()> {
    let user = User::administrator(testbed).await?;
    let homes: Vec<&str> = sides.iter().flatten().map(|side| side.home.as_str()).collect();
    nodes.open_only(&homes).await?;
    let scenes: Vec<(&Row, &[Side; 2])> = rows.iter().zip(sides).collect();
    let objects = scenes.iter().flat_map(|(row, sides)| sides.iter().flat_map(|side| (row.objects)(side)));
    // A class must exist before the pods that have it.
    let (first, others): (Vec<Value>, Vec<Value>) = objects.partition(|object| object["kind"] == "PriorityClass");
    create(testbed, [first, others].concat()).await?;
    for (row, [theirs, ours]) in &scenes {
        runs(testbed, row, theirs).await?;
        runs(testbed, row, ours).await?;
    }
    nodes.open_all().await?;
    let compared = stream::iter(&scenes).map(async |(row, sides)| {
        compare(testbed, &user, row, sides).await.map_err(|error| format!("{}: {error:#}", row.name))
    });
    let outcomes: Vec<Result<(), String>> = compared.buffer_unordered(AT_ONCE).collect().await;
    let complaints: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    if !complaints.is_empty() {
        bail!("{} of {} rows:\n{}", complaints.len(), rows.len(), complaints.join("\n"));
    }
    Ok(())
}

#[test]
fn a_drain_empties_what_kubectl_drain_empties() {
    story("drain-compare", async |testbed| {
        let rows = rows();
        let mut nodes = testbed.nodes(2 * rows.len(), Size::default()).await?;
        let sides = sides(testbed, &mut nodes, &rows).await?;
        let compared = compare_all(testbed, &rows, &sides, &nodes).await;
        clear(testbed, &sides).await?;
        compared
    });
}
