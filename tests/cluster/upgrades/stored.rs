//! Objects that one version stored with its CRDs, read and finished by the other version with its own CRDs; and each
//! version with the CRDs of the other one.

use anyhow::{Result, ensure};
use ganglion_api::workload_action::WorkloadAction;
use kube::api::DeleteParams;
use serde_json::json;
use testkit::action::{action, create_on, with};
use testkit::former::{CURRENT, OperatorVersion};
use testkit::plane::install;
use testkit::testbed::loops::{SCALES, account, demo, make, push, ready, replicas, travelled, with_loops};
use testkit::testbed::rest::rest_clean;
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, story_on};

use super::flight::Flight;
use super::{VersionChange, changes, plane};
use crate::scenes::Scene;

/// An action that runs once, even if it is recreated.
async fn once(testbed: &Testbed, node: &str) -> Result<()> {
    let spec = with(create_on("once", node), json!({"runPolicy": "Once"}));
    testbed.create::<WorkloadAction>(action("once", spec)).await.map(drop)
}

async fn is_finished(testbed: &Testbed, change: &VersionChange) -> Result<()> {
    testbed.run_program(&change.from.program).await?;
    let mut flight = Flight::prepare(testbed).await?;
    let scene = Scene::guarded(testbed, "once", 2).await?;
    let node = scene.free(0);
    once(testbed, &node).await?;
    testbed.ends("once", ("True", "Succeeded")).await?;
    testbed.operator.lock().await.kill();
    // Nobody works on these for now.
    flight.begin_all(5).await?;
    install::apply(&testbed.plane.cluster, &change.to.base).await?;
    testbed.run_program(&change.to.program).await?;
    flight.lands(&testbed.proxy).await?;
    // Its receipt is still believed.
    testbed.api::<WorkloadAction>().delete("once", &DeleteParams::default()).await?;
    testbed.eye.until("the action to be gone", |seen| (!seen.actions.contains_key("once")).then_some(())).await?;
    once(testbed, &node).await?;
    testbed.ends("once", ("True", "AlreadyExecuted")).await?;
    scene.grown(testbed, &[&node]).await?;
    rest_clean(testbed).await?;
    flight.stop().await
}

#[test]
fn objects_of_one_version_are_finished_by_the_other() {
    for change in changes() {
        let own = plane(&format!("stored-{}", change.name), &change.from);
        story_on(&own.0, Road::Proxy, &format!("stored-{}", change.name), async |testbed| {
            is_finished(testbed, &change).await
        });
    }
}

/// Runs this version. The policies come first in every order: a version does not act while older ones, or edited ones,
/// are in force.
async fn with_policies(testbed: &Testbed, version: &OperatorVersion) -> Result<()> {
    let policies = version.base.join("admission.yaml").display().to_string();
    testbed.plane.cluster.kubectl(&["apply", "--server-side", "-f", &policies], None).await?;
    testbed.run_program(&version.program).await
}

async fn works_with_other_definitions(testbed: &Testbed, change: &VersionChange) -> Result<()> {
    with_policies(testbed, &change.to).await?;
    let mut flight = Flight::prepare(testbed).await?;
    flight.begin_all(5).await?;
    flight.lands(&testbed.proxy).await?;
    rest_clean(testbed).await?;
    let log = std::fs::read_to_string(testbed.operator.lock().await.log())?;
    ensure!(!log.contains("panicked"), "{log}");
    flight.stop().await
}

#[test]
fn each_version_works_with_the_definitions_of_the_other() {
    for change in changes() {
        let own = plane(&format!("defs-{}", change.name), &change.from);
        story_on(&own.0, Road::Proxy, &format!("defs-{}", change.name), async |testbed| {
            works_with_other_definitions(testbed, &change).await
        });
    }
}

/// A loop that an earlier version cannot read. It is left alone, and the loop beside it goes on.
async fn combination_is_left_alone(testbed: &Testbed, former: &OperatorVersion) -> Result<()> {
    account(testbed, SCALES).await?;
    let mut spec = demo();
    let alarms = ["cpu", "memory"].map(|metric| json!({"metric": metric, "side": "Low"}));
    spec["actions"] = json!([{"when": {"all": alarms}, "ladder": [{"scale": {"by": 1, "max": 9}}]}]);
    spec["target"]["name"] = json!("combined");
    for name in ["web", "combined"] {
        Workload::deployment(name, 1).make(testbed).await?;
    }
    make(testbed, "combined", spec).await?;
    make(testbed, "web", demo()).await?;
    let low = json!({"cpu": "1", "memory": "1"});
    let acts = async |name: &str, count: i32| {
        let time = push(testbed, name, low.clone()).await?;
        travelled(testbed, name, time).await?;
        ensure!(replicas(testbed, name).await?.1 == count, "{name}: {:?}", replicas(testbed, name).await?);
        anyhow::Ok(())
    };
    acts("combined", 2).await?;
    with_policies(testbed, former).await?;
    let message = ready(testbed, "combined", "False", "InvalidObject").await?;
    ensure!(message.contains("when"), "{message}");
    push(testbed, "combined", low.clone()).await?;
    acts("web", 2).await?;
    ensure!(replicas(testbed, "combined").await?.1 == 2, "a version that cannot read the loop acted for it");
    // Otherwise, the current version acts on the sample that it finds.
    push(testbed, "combined", json!({"cpu": "9", "memory": "90"})).await?;
    with_policies(testbed, &OperatorVersion::current()?).await?;
    ready(testbed, "combined", "True", "Running").await?;
    acts("combined", 3).await?;
    acts("web", 3).await
}

#[test]
fn a_combination_of_alarms_stops_only_its_own_loop_in_a_former_version() {
    let current = OperatorVersion::current().expect("the program");
    for former in changes().into_iter().filter(|change| change.from.name != CURRENT).map(|change| change.from) {
        let own = plane("combinations", &current);
        story_on(&own.0, Road::Proxy, "combinations", async |testbed| {
            match combination_is_left_alone(testbed, &former).await {
                Ok(()) => Ok(()),
                Err(error) => Err(with_loops(testbed, error).await),
            }
        });
    }
}
