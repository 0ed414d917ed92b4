//! Approvals of proposals, which are annotations of a loop that a tool has deployed.

use anyhow::{Context, Result, ensure};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::marks;
use kube::ResourceExt;
use serde_json::json;
use testkit::gitops::GitOpsTool;
use testkit::gitops::flux::Flux;
use testkit::testbed::Testbed;
use testkit::testbed::loops::{loop_story, on, push, until};
use testkit::testbed::workload::settled;

use super::{loop_with_account, web};

/// Waits for a proposal of the loop. Returns its digest.
async fn proposed(testbed: &Testbed) -> Result<String> {
    until::<Decision, _>(testbed, "web", "a proposal", |one| one.status?.chosen?.digest).await
}

/// Flux removes what managers whose name starts with kubectl have written into its objects.
#[test]
fn flux_leaves_an_approval_alone() {
    loop_story("approve-flux", async |testbed| {
        let mut flux = Flux::start(testbed).await?;
        let mut spec = on("Low", json!([{"scale": {"by": 1, "max": 9}}]));
        spec["mode"] = json!("Approve");
        let mut manifests = loop_with_account(testbed, spec);
        manifests.push(web(testbed, None)?);
        flux.deploy(&manifests).await?.healthy()?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let digest = proposed(testbed).await?;
        // Flux reconciles before the operator sees the approval.
        testbed.operator.lock().await.kill();
        let (good, output) = testbed.ganglion(&["approve", "web", &digest]).await?;
        ensure!(good, "{output}");
        flux.resync().await?.healthy()?;
        let parent = testbed.api::<ClosedLoop>().get("web").await?;
        let approval = parent.annotations().get(marks::APPROVE).context("Flux has removed the approval")?;
        ensure!(*approval == digest, "{approval}");
        testbed.kill_and_restart().await?;
        settled(testbed, "web", 2).await?;
        flux.remove().await
    });
}
