//! Moves of replicas in an application that a tool manages: it sees no difference, and undoes nothing.

use anyhow::{Result, ensure};
use testkit::action::move_pod;
use testkit::gitops::GitOpsTool;
use testkit::gitops::argo_cd::ArgoCd;
use testkit::gitops::flux::Flux;
use testkit::gitops::helm::Helm;
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, story};
use testkit::verdict::Story;

use super::placed;
use crate::scenes::Scene;

const REPLICAS: usize = 3;

/// Moves a replica, and lets the tool compare and correct. `watched` returns a value that a sync would change.
async fn moved<'a, T: GitOpsTool<'a>>(testbed: &'a Testbed, watched: impl AsyncFn(&T) -> Result<String>) -> Result<()> {
    let mut tool = T::start(testbed).await?;
    let workload = Workload::deployment("web", REPLICAS).guarded();
    workload.surround(testbed).await?;
    tool.deploy(&[placed(testbed, workload.manifest())]).await?.healthy()?;
    workload.settle(testbed).await?;
    let scene = Scene { app: "web".to_owned(), replicas: REPLICAS, tale: Story::begin(&testbed.eye, "web") };
    let before = watched(&tool).await?;
    let ((pod, _), node) = (scene.pod(0), scene.free(0));
    testbed.act("move", move_pod(&pod, &node)).await?;
    testbed.ends("move", ("True", "Succeeded")).await?;
    scene.moved(testbed, &[&pod], &[&node]).await?;
    tool.resync().await?.healthy()?;
    scene.moved(testbed, &[&pod], &[&node]).await?;
    let after = watched(&tool).await?;
    ensure!(after == before, "the tool has synced: {before} became {after}");
    tool.remove().await
}

#[test]
fn helm_does_not_undo_a_move() {
    story("move-helm", async |testbed| moved::<Helm>(testbed, async |_| Ok(String::new())).await);
}

#[test]
fn flux_does_not_undo_a_move() {
    story("move-flux", async |testbed| moved::<Flux>(testbed, async |flux| Ok(flux.changes().join("\n"))).await);
}

#[test]
fn argo_cd_sees_no_difference_after_a_move() {
    story("move-argo", async |testbed| {
        moved::<ArgoCd>(testbed, async |argo_cd| {
            let application = argo_cd.application().await?;
            Ok(application.data["status"]["operationState"]["startedAt"].to_string())
        })
        .await
    });
}
