//! Replicas that a tool has in its manifests: the loop leaves them alone and names the tool; the advice in its message
//! hands them over without a change of the number; a loop that insists stops after three changes that were undone.

use anyhow::{Result, ensure};
use ganglion_api::execution::Execution;
use serde_json::{Value, json};
use testkit::action::{create_on, deployment, with};
use testkit::gitops::GitOpsTool;
use testkit::gitops::argo_cd::ArgoCd;
use testkit::gitops::flux::Flux;
use testkit::gitops::helm::Helm;
use testkit::kstatus;
use testkit::testbed::Testbed;
use testkit::testbed::loops::{SCALES, account, loop_story, make, on, push, ready, replicas, travelled, until};
use testkit::testbed::pools::{self, is, pool, pool_story};
use testkit::testbed::workload::settled;
use testkit::verdict::Story;

use super::web;
use crate::owners::{looped, run_advised};

const REPLICAS: usize = 3;

/// Number of requests of loops that change the number of replicas.
fn scales(testbed: &Testbed) -> usize {
    testbed.proxy.writes().iter().filter(|write| write.is_on("deployments/scale")).count()
}

/// Waits until the loop has refused to scale. Returns its message.
async fn refused(testbed: &Testbed) -> Result<String> {
    until::<Execution, _>(testbed, "web", "the refusal", |one| {
        let status = one.status?;
        (status.reason?.as_str() == "ReplicasOwnedElsewhere").then_some(status.message?)
    })
    .await
}

/// The manifest without replicas and with another annotation, by which the tools notice that it has changed.
fn left_out(testbed: &Testbed) -> Result<Value> {
    let mut manifest = web(testbed, None)?;
    manifest["metadata"]["annotations"] = json!({"example.com/revision": "2"});
    Ok(manifest)
}

/// A loop that yields, and a user who follows the advice; `after` is the manifest then.
async fn handed_over<'a, T: GitOpsTool<'a>>(testbed: &'a Testbed, mut tool: T, after: Value) -> Result<()> {
    tool.deploy(&[web(testbed, Some(REPLICAS))?]).await?.healthy()?;
    settled(testbed, "web", REPLICAS).await?;
    let tale = Story::begin(&testbed.eye, "web");
    looped(testbed).await?;
    let message = ready(testbed, "web", "False", "ReplicasOwnedElsewhere").await?;
    ensure!(message.contains(&format!("belongs to {}", T::MANAGER)), "{message}");
    refused(testbed).await?;
    ensure!(scales(testbed) == 0, "the loop has scaled what belongs to {}", T::MANAGER);

    run_advised(testbed, &message).await?;
    tool.resync().await?.healthy()?;
    tool.deploy(std::slice::from_ref(&after)).await?.healthy()?;
    settled(testbed, "web", REPLICAS).await?;
    push(testbed, "web", json!({"cpu": "2"})).await?;
    settled(testbed, "web", REPLICAS + 1).await?;
    let before = replicas(testbed, "web").await?;
    tool.resync().await?.healthy()?;
    tool.deploy(&[after]).await?.healthy()?;
    ensure!(replicas(testbed, "web").await? == before, "{} has set the number back", T::MANAGER);
    ensure!(scales(testbed) == 1, "{} writes for one sample", scales(testbed));
    let verdict = tale.verdict(&testbed.eye);
    ensure!(verdict.died.is_empty() && verdict.replicas == [3, 4], "{verdict:?}");
    tool.remove().await
}

#[test]
fn helm_hands_replicas_over() {
    loop_story("owner-helm", async |testbed| {
        handed_over(testbed, Helm::start(testbed).await?, left_out(testbed)?).await
    });
}

#[test]
fn flux_hands_replicas_over() {
    loop_story("owner-flux", async |testbed| {
        handed_over(testbed, Flux::start(testbed).await?, left_out(testbed)?).await
    });
}

/// Argo CD applies on the client, so that the advice is another one.
#[test]
fn argo_cd_hands_replicas_over() {
    loop_story("owner-argo", async |testbed| {
        handed_over(testbed, ArgoCd::start(testbed).await?, web(testbed, None)?).await
    });
}

#[test]
fn argo_cd_with_server_side_apply_hands_replicas_over() {
    loop_story("owner-argo-ssa", async |testbed| {
        let argo_cd = ArgoCd::start(testbed).await?;
        argo_cd.configure(json!({"syncPolicy": {"syncOptions": ["ServerSideApply=true"]}})).await?;
        handed_over(testbed, argo_cd, left_out(testbed)?).await
    });
}

/// The managed fields no longer show the tool after a person has scaled.
#[test]
fn flux_is_remembered_when_a_person_scales() {
    loop_story("owner-flux-person", async |testbed| {
        let mut flux = Flux::start(testbed).await?;
        flux.deploy(&[web(testbed, Some(REPLICAS))?]).await?.healthy()?;
        looped(testbed).await?;
        refused(testbed).await?;
        testbed.kubectl(&["scale", "deployment", "web", "--replicas=4"], None).await?;
        settled(testbed, "web", 4).await?;
        push(testbed, "web", json!({"cpu": "3"})).await?;
        until::<Execution, _>(testbed, "web", "the second refusal", |one| {
            let said = one.status?.message?;
            (said.contains("belongs to kustomize-controller") && said.contains("kubectl has changed it")).then_some(())
        })
        .await?;
        flux.resync().await?.healthy()?;
        settled(testbed, "web", REPLICAS).await?;
        ensure!(scales(testbed) == 0, "the loop has scaled");
        flux.remove().await
    });
}

/// A loop that insists, and a tool that sets the number back each time, as field manager `by`.
async fn fought<'a, T: GitOpsTool<'a>>(testbed: &'a Testbed, mut tool: T, rung: Value, by: &str) -> Result<()> {
    tool.deploy(&[web(testbed, Some(REPLICAS))?]).await?.healthy()?;
    settled(testbed, "web", REPLICAS).await?;
    account(testbed, SCALES).await?;
    make(testbed, "web", on("Low", json!([rung]))).await?;
    ready(testbed, "web", "True", "Running").await?;
    for round in 0..3 {
        let time = push(testbed, "web", json!({"cpu": "2"})).await?;
        let (_, said, execution) = travelled(testbed, "web", time).await?;
        ensure!(execution.is_some(), "round {round}: {said}");
        tool.resync().await?.healthy()?;
        settled(testbed, "web", REPLICAS).await?;
    }
    push(testbed, "web", json!({"cpu": "3"})).await?;
    let message = ready(testbed, "web", "False", "FieldConflict").await?;
    ensure!(message.starts_with(&format!("{by} undid what this loop did to Deployment")), "{message}");
    ensure!(scales(testbed) == 3, "{} writes", scales(testbed));
    tool.resync().await?.healthy()?;
    tool.remove().await
}

fn forced() -> Value {
    json!({"scale": {"by": 1, "max": 9}, "onReplicaOwner": "Force"})
}

#[test]
fn a_loop_that_insists_against_flux_stops() {
    loop_story("fight-flux", async |testbed| {
        fought(testbed, Flux::start(testbed).await?, forced(), Flux::MANAGER).await
    });
}

#[test]
fn a_loop_that_insists_against_argo_cd_stops() {
    loop_story("fight-argo", async |testbed| {
        fought(testbed, ArgoCd::start(testbed).await?, forced(), ArgoCd::MANAGER).await
    });
}

/// Argo CD replaces objects, so that neither managed fields nor an annotation show that it will write again.
#[test]
fn a_loop_against_argo_cd_that_replaces_objects_stops() {
    loop_story("fight-argo-replace", async |testbed| {
        let argo_cd = ArgoCd::start(testbed).await?;
        argo_cd.configure(json!({"syncPolicy": {"syncOptions": ["Replace=true"]}})).await?;
        fought(testbed, argo_cd, json!({"scale": {"by": 1, "max": 9}}), "argocd-application-controller").await
    });
}

/// The tool ignores the replicas, and the loop knows.
async fn ignored<'a, T: GitOpsTool<'a>>(testbed: &'a Testbed, mut tool: T) -> Result<()> {
    tool.deploy(&[web(testbed, Some(REPLICAS))?]).await?.healthy()?;
    settled(testbed, "web", REPLICAS).await?;
    account(testbed, SCALES).await?;
    make(testbed, "web", on("Low", json!([forced()]))).await?;
    ready(testbed, "web", "True", "Running").await?;
    push(testbed, "web", json!({"cpu": "2"})).await?;
    settled(testbed, "web", REPLICAS + 1).await?;
    tool.resync().await?.healthy()?;
    // A new revision is applied.
    let mut changed = web(testbed, Some(REPLICAS))?;
    changed["metadata"]["annotations"] = json!({"example.com/revision": "2"});
    tool.deploy(&[changed]).await?.healthy()?;
    let (_, after) = replicas(testbed, "web").await?;
    ensure!(after == 4, "{} has set the number to {after}", T::MANAGER);
    ensure!(scales(testbed) == 1, "{} writes for one sample", scales(testbed));
    tool.remove().await
}

#[test]
fn flux_that_ignores_replicas_works_beside_a_loop() {
    loop_story("ignored-flux", async |testbed| {
        let flux = Flux::start(testbed).await?;
        flux.configure(ignoring_flux()).await?;
        ignored(testbed, flux).await
    });
}

/// The tool ignores the replicas; an action adds one, and a pool sets their number.
async fn ignored_by_actions_and_pools<'a, T: GitOpsTool<'a>>(testbed: &'a Testbed, mut tool: T) -> Result<()> {
    tool.deploy(&[web(testbed, Some(REPLICAS))?]).await?.healthy()?;
    settled(testbed, "web", REPLICAS).await?;
    let tale = Story::begin(&testbed.eye, "web");
    testbed.act("careful", create_on("web", "node-0")).await?;
    let refused = testbed.ends("careful", ("False", "ReplicasOwnedElsewhere")).await?;
    ensure!(kstatus::message(&refused).contains(T::MANAGER), "{}", kstatus::message(&refused));
    let jobs: Vec<Value> = (0..5).map(|job| json!({"name": format!("job-{job}")})).collect();
    let mut spec = json!({
        "workload": deployment("web"), "replicas": REPLICAS + 2, "jobs": {"inline": jobs},
        "output": {"configMap": "web-jobs"}, "refresh": {"policy": "None"}, "handover": {"policy": "Immediate"},
    });
    pool(testbed, "careful", spec.clone()).await?;
    let message = pools::message(&is(testbed, "careful", "False", "ReplicasOwnedElsewhere").await?);
    ensure!(message.contains(T::MANAGER) && message.contains("onReplicaOwner: Force"), "{message}");
    testbed.kubectl(&["delete", "swp", "careful"], None).await?;

    testbed.act("more", with(create_on("web", "node-0"), json!({"onReplicaOwner": "Force"}))).await?;
    testbed.ends("more", ("True", "Succeeded")).await?;
    settled(testbed, "web", REPLICAS + 1).await?;
    tool.resync().await?.healthy()?;
    spec["onReplicaOwner"] = json!("Force");
    pool(testbed, "web", spec).await?;
    settled(testbed, "web", REPLICAS + 2).await?;
    tool.resync().await?.healthy()?;
    let mut changed = web(testbed, Some(REPLICAS))?;
    changed["metadata"]["annotations"] = json!({"example.com/revision": "2"});
    tool.deploy(&[changed]).await?.healthy()?;
    settled(testbed, "web", REPLICAS + 2).await?;
    let verdict = tale.verdict(&testbed.eye);
    ensure!(verdict.died.is_empty() && verdict.replicas == [3, 4, 5], "{verdict:?}");
    tool.remove().await
}

#[test]
fn flux_that_ignores_replicas_works_beside_actions_and_pools() {
    pool_story("ignored-more-flux", async |testbed| {
        let flux = Flux::start(testbed).await?;
        flux.configure(ignoring_flux()).await?;
        ignored_by_actions_and_pools(testbed, flux).await
    });
}

#[test]
fn argo_cd_that_ignores_replicas_works_beside_actions_and_pools() {
    pool_story("ignored-more-argo", async |testbed| {
        let argo_cd = ArgoCd::start(testbed).await?;
        argo_cd.configure(ignoring(&[])).await?;
        ignored_by_actions_and_pools(testbed, argo_cd).await
    });
}

/// Spec of a Kustomization that ignores the replicas of Deployments.
fn ignoring_flux() -> Value {
    json!({"ignore": [{"paths": ["/spec/replicas"], "target": {"kind": "Deployment"}}]})
}

/// Sync options and ignored differences of the usual setup for autoscaled workloads with Argo CD.
fn ignoring(options: &[&str]) -> Value {
    let differences = json!([{"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}]);
    let options = [options, &["RespectIgnoreDifferences=true"]].concat();
    json!({"ignoreDifferences": differences, "syncPolicy": {"syncOptions": options}})
}

#[test]
fn argo_cd_that_ignores_replicas_works_beside_a_loop() {
    loop_story("ignored-argo", async |testbed| {
        let argo_cd = ArgoCd::start(testbed).await?;
        argo_cd.configure(ignoring(&[])).await?;
        ignored(testbed, argo_cd).await
    });
}

#[test]
fn argo_cd_with_server_side_apply_that_ignores_replicas_works_beside_a_loop() {
    loop_story("ignored-argo-ssa", async |testbed| {
        let argo_cd = ArgoCd::start(testbed).await?;
        argo_cd.configure(ignoring(&["ServerSideApply=true"])).await?;
        ignored(testbed, argo_cd).await
    });
}
