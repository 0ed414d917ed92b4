//! Children of a loop: no tool counts them as its own, nor deletes them; they go with the loop.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::gitops::GitOpsTool;
use testkit::gitops::argo_cd::ArgoCd;
use testkit::gitops::flux::Flux;
use testkit::gitops::helm::Helm;
use testkit::testbed::Testbed;
use testkit::testbed::loops::{demo, loop_story};

use super::{gone, loop_with_account, web};

/// Kinds of a loop and its children.
const FAMILY: &str = "loop,mon,dec,exe";

/// Kinds and uids of the loop and its children.
async fn family(testbed: &Testbed) -> Result<BTreeSet<String>> {
    let format = r#"jsonpath={range .items[*]}{.kind} {.metadata.uid}{"\n"}{end}"#;
    let listed = testbed.kubectl(&["get", FAMILY, "-o", format], None).await?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// Deploys a loop, two revisions with it, and one without it. Calls `check` after each.
async fn deployed_and_deleted<'a, T: GitOpsTool<'a>>(
    testbed: &'a Testbed,
    check: impl AsyncFn(&T) -> Result<()>,
) -> Result<()> {
    let mut tool = T::start(testbed).await?;
    let mut workload = web(testbed, None)?;
    let mut manifests = loop_with_account(testbed, demo());
    manifests.push(workload.clone());
    tool.deploy(&manifests).await?.healthy()?;
    let before = family(testbed).await?;
    ensure!(before.len() == 4, "{before:?}");
    check(&tool).await?;

    tool.resync().await?.healthy()?;
    workload["metadata"]["annotations"] = json!({"example.com/revision": "2"});
    manifests.pop();
    manifests.push(workload.clone());
    tool.deploy(&manifests).await?.healthy()?;
    let after = family(testbed).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    check(&tool).await?;

    manifests.retain(|manifest| manifest["kind"] != "ClosedLoop");
    tool.deploy(&manifests).await?.healthy()?;
    gone(testbed, FAMILY).await?;
    check(&tool).await?;
    tool.remove().await
}

#[test]
fn helm_leaves_the_children_of_a_loop_alone() {
    loop_story("children-helm", async |testbed| deployed_and_deleted::<Helm>(testbed, async |_| Ok(())).await);
}

#[test]
fn flux_leaves_the_children_of_a_loop_alone() {
    loop_story("children-flux", async |testbed| deployed_and_deleted::<Flux>(testbed, async |_| Ok(())).await);
}

#[test]
fn argo_cd_counts_no_children_of_a_loop() {
    loop_story("children-argo", async |testbed| {
        deployed_and_deleted::<ArgoCd>(testbed, async |argo_cd| {
            let application = argo_cd.application().await?;
            let resources = application.data["status"]["resources"].as_array().cloned().unwrap_or_default();
            let children = ["Monitoring", "Decision", "Execution"];
            for resource in resources {
                let kind = resource["kind"].as_str().unwrap_or_default();
                ensure!(!children.contains(&kind), "a child counts as part of the application: {resource}");
                ensure!(resource["status"] == "Synced", "not in sync: {resource}");
            }
            Ok(())
        })
        .await
    });
}
