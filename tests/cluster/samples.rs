//! The API server accepts every sample unchanged, and each does what its name says with the workload beside it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use ganglion_api::execution::{Execution, ExecutionState};
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use serde_json::json;
use testkit::kstatus::{message, ready};
use testkit::plane::install::LOOPS;
use testkit::testbed::loops::{push, travelled, until};
use testkit::testbed::workload::settled;
use testkit::testbed::{Testbed, stories, story};
use testkit::verdict::node_of;

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("samples")
}

fn files(below: &str) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(root().join(below))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension() == Some("yaml".as_ref()));
    files.sort();
    ensure!(!files.is_empty(), "no samples in {below}");
    Ok(files)
}

/// Applies a sample in the namespace of the testbed.
pub async fn apply(testbed: &Testbed, file: &Path, more: &[&str]) -> Result<String> {
    // The sample's own namespace, if any, is replaced by the testbed's.
    let text = std::fs::read_to_string(file)?;
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("  namespace:")).collect();
    let mut args = vec!["apply", "-f", "-"];
    args.extend(more);
    testbed.kubectl(&args, Some(&text.join("\n"))).await
}

#[test]
fn every_sample_is_accepted() {
    story("samples", async |testbed| {
        for kind in [
            "workloadaction",
            "workloadactionreceipt",
            "closedloop",
            "closedloop/import",
            "closedloop/push",
            "closedloop/servers",
            "monitoring",
            "nodeconfig",
            "nodeconfigtemplate",
            "swarmpool",
            "placementpolicy",
        ] {
            for file in files(kind)? {
                apply(testbed, &file, &["--dry-run=server", "--validate=strict"]).await?;
            }
        }
        Ok(())
    });
}

/// The pods that samples name: each represents a pod of the user, and the two are on different nodes.
const NAMED: [&str; 2] = ["web-7d4b9c6f5d-x2x9k", "web-7d4b9c6f5d-m4q8t"];

/// Creates the workload of the samples as its comment describes.
async fn workload(testbed: &Testbed) -> Result<()> {
    apply(testbed, &root().join("workload.yaml"), &[]).await?;
    testbed.kubectl(&["scale", "deployment", "web", "--replicas=3"], None).await?;
    settled(testbed, "web", 3).await
}

/// Applies a sample beside the workload of samples/workload.yaml. Returns its action when it has ended.
async fn runs(testbed: &Testbed, name: &str) -> Result<Arc<WorkloadAction>> {
    workload(testbed).await?;
    // A pod that is not already on the node to which a sample moves it.
    let seen = testbed.eye.now();
    let pods = seen.pods.values();
    let first = pods.clone().find(|pod| node_of(pod) != "node-5").context("every replica is on node-5")?;
    let second = pods.into_iter().find(|pod| node_of(pod) != node_of(first)).context("all replicas are on one node")?;
    let text = std::fs::read_to_string(root().join("workloadaction").join(format!("{name}.yaml")))?;
    testbed
        .kubectl(
            &["apply", "-f", "-"],
            Some(&text.replace(NAMED[0], &first.name_any()).replace(NAMED[1], &second.name_any())),
        )
        .await?;
    testbed.over(name).await
}

/// Samples whose places exist regardless of other stories on the plane.
#[test]
fn samples_of_supported_actions_run() {
    let names = [
        "create-minimal",
        "create-full",
        "delete-minimal",
        "delete-full",
        "move-minimal",
        "move-pod",
        "move-all",
        "move-preferences",
        "move-application",
        "swap-pods",
        "plan",
    ];
    let cases = names.map(|name| (format!("sample-{name}"), name));
    stories(cases.into(), async |testbed, name| {
        let action = runs(testbed, name).await?;
        let (ready, words) = (ready(&action), message(&action));
        ensure!(ready.is_some_and(|(status, _)| status == "True"), "{ready:?} {words}");
        Ok(())
    });
}

/// One command starts green, and a loop that nobody has pushed a sample to is Ready, too.
#[test]
fn the_folder_of_loops_is_ready_within_a_minute() {
    story("samples-green", async |testbed| {
        // The folder contains the operator's binding, too.
        testbed.kubectl(&["delete", "rolebinding", LOOPS], None).await?;
        let samples = ["closedloop", "workload.yaml", "closedloop/push/push-minimal.yaml"];
        let [folder, workload, pushed] = samples.map(|name| root().join(name).display().to_string());
        testbed.kubectl(&["apply", "-f", &folder, "-f", &workload, "-f", &pushed], None).await?;
        let ready = ["wait", "loop", "--all", "--for=condition=Ready", "--timeout=60s"];
        testbed.kubectl(&ready, None).await.map(drop)
    });
}

/// As a user would do it: the workload, the permissions, the loop, and a sample that raises its alarm.
#[test]
fn samples_of_loops_act() {
    let cases = [
        ("push-minimal", json!({"requests": "120"}), "React to requests", "4"),
        ("web", json!({"cpu": "20", "memory": "40", "replicasWanted": "9"}), "React to memory", "request 80Mi"),
        (
            "workload-actions",
            json!({"hotNodes": "0", "queue": "2k"}),
            "React to queue",
            "WorkloadAction workload-actions-1-",
        ),
        ("rush", json!({"orders": "120"}), "React to orders", "5"),
        ("weighted", json!({"latency": "0.9", "cost": "1"}), "React to latency", "request 150m"),
    ];
    let cases = cases.map(|(name, values, said, after)| (format!("sample-{name}"), (name, values, said, after)));
    stories(cases.into(), async |testbed, (name, values, said, after)| {
        workload(testbed).await?;
        apply(testbed, &root().join("closedloop/accounts.yaml"), &[]).await?;
        apply(testbed, &root().join("closedloop/push").join(format!("{name}.yaml")), &[]).await?;
        until::<Execution, _>(testbed, name, "the loop's Execution to be there", |execution| execution.status?.seq)
            .await?;
        let time = push(testbed, name, values.clone()).await?;
        let (_, message, execution) = travelled(testbed, name, time).await?;
        let status = execution.context("it did not act")?.status.unwrap_or_default();
        let done = status.state == Some(ExecutionState::Done);
        let what = status.after.clone().unwrap_or_default();
        ensure!(done && message == *said && what.starts_with(after), "{message}: {status:?}");
        Ok(())
    });
}

/// The sample has its own workload, and tracks a target: its decision is about the replicas that it has read as well.
#[test]
fn the_sample_of_a_queue_sets_the_number_of_workers() {
    story("sample-queue", async |testbed| {
        for name in ["accounts.yaml", "push/queue.yaml"] {
            apply(testbed, &root().join("closedloop").join(name), &[]).await?;
        }
        until::<Execution, _>(testbed, "queue", "the Execution to be there", |execution| execution.status?.seq).await?;
        push(testbed, "queue", json!({"jobs": "85"})).await?;
        until::<Deployment, _>(testbed, "workers", "nine workers", |workers| {
            (workers.spec?.replicas? == 9).then_some(())
        })
        .await
    });
}
