//! Actions in Git: pruned and restored, deleted by a person, during a rollout, in waves and hooks. Each has one effect.

use anyhow::{Context, Result, ensure};
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::action::{action, create_on, move_pod};
use testkit::gitops::GitOpsTool;
use testkit::gitops::argo_cd::ArgoCd;
use testkit::gitops::flux::Flux;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::rest::app_clean;
use testkit::testbed::workload::{Workload, settled};
use testkit::testbed::{Testbed, story};
use testkit::verdict::Story;

use super::{gone, placed, web};
use crate::scenes::Scene;

/// Annotation of Argo CD: the sync wave of an object.
const WAVE: &str = "argocd.argoproj.io/sync-wave";

/// Manifest of an action that adds a replica to `web`.
fn more(testbed: &Testbed, name: &str) -> Value {
    placed(testbed, action(name, create_on("web", "node-0")))
}

/// Uids of all receipts.
async fn receipts(testbed: &Testbed) -> Result<Vec<String>> {
    let listed = testbed.api::<WorkloadActionReceipt>().list(&Default::default()).await?;
    Ok(listed.items.into_iter().filter_map(|receipt| receipt.uid()).collect())
}

/// Waits until the workload has this number of replicas, and checks that it never had more.
async fn grown_to(testbed: &Testbed, tale: &Story, replicas: usize) -> Result<()> {
    settled(testbed, "web", replicas).await?;
    let verdict = tale.verdict(&testbed.eye);
    let most = verdict.replicas.iter().copied().max();
    ensure!(most == Some(i32::try_from(replicas)?) && verdict.died.is_empty(), "{verdict:?}");
    Ok(())
}

/// An action that is pruned and restored, and one that a person deletes.
async fn restored<'a, T: GitOpsTool<'a>>(testbed: &'a Testbed) -> Result<()> {
    let mut tool = T::start(testbed).await?;
    let (workload, more) = (web(testbed, None)?, more(testbed, "more"));
    tool.deploy(std::slice::from_ref(&workload)).await?.healthy()?;
    settled(testbed, "web", 1).await?;
    let tale = Story::begin(&testbed.eye, "web");
    let both = [workload.clone(), more];
    tool.deploy(&both).await?.healthy()?;
    grown_to(testbed, &tale, 2).await?;
    let proofs = receipts(testbed).await?;
    ensure!(proofs.len() == 1, "{proofs:?}");

    tool.deploy(&[workload]).await?.healthy()?;
    gone(testbed, "wa").await?;
    ensure!(receipts(testbed).await? == proofs, "the receipt was pruned");
    tool.deploy(&both).await?.healthy()?;
    testbed.ends("more", ("True", "AlreadyExecuted")).await?;
    testbed.kubectl(&["delete", "wa", "more"], None).await?;
    tool.resync().await?.healthy()?;
    testbed.ends("more", ("True", "AlreadyExecuted")).await?;
    grown_to(testbed, &tale, 2).await?;
    tool.remove().await
}

#[test]
fn flux_restores_an_action_without_a_second_effect() {
    story("restored-flux", async |testbed| restored::<Flux>(testbed).await);
}

#[test]
fn argo_cd_restores_an_action_without_a_second_effect() {
    story("restored-argo", async |testbed| restored::<ArgoCd>(testbed).await);
}

/// A new revision of the workload, while the operator is about to evict a pod that has moved.
async fn rolled<'a, T: GitOpsTool<'a>>(testbed: &'a Testbed) -> Result<()> {
    const REPLICAS: usize = 3;
    let mut tool = T::start(testbed).await?;
    let workload = Workload::deployment("web", REPLICAS).guarded();
    workload.surround(testbed).await?;
    let mut manifest = placed(testbed, workload.manifest());
    tool.deploy(std::slice::from_ref(&manifest)).await?.healthy()?;
    workload.settle(testbed).await?;
    let scene = Scene { app: "web".to_owned(), replicas: REPLICAS, tale: Story::begin(&testbed.eye, "web") };
    let ((pod, _), node) = (scene.pod(0), scene.free(0));
    let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| write.is_on("pods/eviction"));
    testbed.act("move", move_pod(&pod, &node)).await?;
    held.reached().await.context("no eviction")?;
    manifest["spec"]["template"]["metadata"]["annotations"] = json!({"example.com/revision": "2"});
    tool.deploy(std::slice::from_ref(&manifest)).await?.healthy()?;
    held.release();
    testbed.over("move").await?;

    app_clean(testbed, "web").await?;
    settled(testbed, "web", REPLICAS).await?;
    let verdict = scene.tale.verdict(&testbed.eye);
    ensure!(verdict.lowest_ready >= REPLICAS && verdict.died.len() >= REPLICAS, "{verdict:?}");
    let pods = testbed.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].metadata.annotations}"], None).await?;
    ensure!(pods.matches(r#""example.com/revision":"2""#).count() == REPLICAS, "{pods}");
    tool.resync().await?.healthy()?;
    ensure!(scene.tale.verdict(&testbed.eye) == verdict, "the tool has undone the end of the move");
    tool.remove().await
}

#[test]
fn flux_rolls_a_revision_out_during_a_move() {
    story("rolled-flux", async |testbed| rolled::<Flux>(testbed).await);
}

#[test]
fn argo_cd_rolls_a_revision_out_during_a_move() {
    story("rolled-argo", async |testbed| rolled::<ArgoCd>(testbed).await);
}

#[test]
fn a_later_wave_of_argo_cd_waits_for_the_end_of_an_action() {
    story("waves-argo", async |testbed| {
        let mut argo_cd = ArgoCd::start(testbed).await?;
        let mut after = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "after"}});
        after["metadata"]["annotations"] = json!({WAVE: "2"});
        let mut more = more(testbed, "more");
        more["metadata"]["annotations"] = json!({WAVE: "1"});
        argo_cd.deploy(&[placed(testbed, after), more, web(testbed, None)?]).await?.healthy()?;
        let ended = testbed.api::<WorkloadAction>().get("more").await?.status.and_then(|status| status.finished_at);
        let ended = ended.context("the action has not ended")?;
        let after = testbed.api::<ConfigMap>().get("after").await?.creation_timestamp();
        ensure!(after.as_ref().is_some_and(|after| after.0 >= ended.0), "{after:?} is before {ended:?}");
        settled(testbed, "web", 2).await?;
        argo_cd.remove().await
    });
}

/// Argo CD creates a hook again with each sync. With a generated name, it is another action each time.
#[test]
fn a_hook_of_argo_cd_runs_once_unless_its_name_is_generated() {
    story("hooks-argo", async |testbed| {
        let mut argo_cd = ArgoCd::start(testbed).await?;
        let hook = |mut manifest: Value| {
            manifest["metadata"]["annotations"] = json!({
                "argocd.argoproj.io/hook": "PostSync",
                "argocd.argoproj.io/hook-delete-policy": "BeforeHookCreation",
            });
            manifest
        };
        let named = hook(more(testbed, "named"));
        let mut generated = hook(more(testbed, "generated"));
        generated["metadata"].as_object_mut().context("no metadata")?.remove("name");
        generated["metadata"]["generateName"] = json!("generated-");
        let mut workload = web(testbed, None)?;
        // The named hook adds a replica once, the generated one with each sync.
        for (revision, replicas) in [("1", 3), ("2", 4)] {
            workload["metadata"]["annotations"] = json!({"example.com/revision": revision});
            argo_cd.deploy(&[workload.clone(), named.clone(), generated.clone()]).await?.healthy()?;
            settled(testbed, "web", replicas).await?;
        }
        testbed.ends("named", ("True", "AlreadyExecuted")).await?;
        argo_cd.remove().await
    });
}
