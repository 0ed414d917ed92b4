//! Swaps with a fault in between: an abort before each write, a rollout, a deleted node, a scale. In all cases no
//! replica is lost and no leftovers exist; an abort leaves no half of a swap.

use anyhow::{Context, ensure};
use serde_json::json;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::{stories, story};

use crate::crash::reached;
use crate::swaps::Places;

#[test]
fn an_abort_before_each_write_leaves_all_or_none_swapped() {
    let mut writes = 0;
    story("swap-count", async |testbed| {
        let places = Places::roomy(testbed).await?;
        testbed.act("go", places.swap()).await?;
        testbed.ends("go", ("True", "Succeeded")).await?;
        writes = testbed.proxy.writes().len();
        places.swapped(testbed).await
    });
    let cases = (1..=writes).map(|nth| (format!("swap-abort-{nth}"), nth));
    stories(cases.collect(), async |testbed, nth| {
        let places = Places::roomy(testbed).await?;
        let mut held = testbed.proxy.hold(*nth, HoldPoint::Before, |_| true);
        testbed.act("go", places.swap()).await?;
        let Some(_) = reached(testbed, &mut held, "go", std::time::Duration::from_secs(1)).await? else {
            return Ok(());
        };
        testbed.patch_action("go", json!({"spec": {"abort": true}})).await?;
        held.release();
        let action = testbed.over("go").await?;
        match testkit::kstatus::ready(&action) {
            Some(("True", "Succeeded")) => places.swapped(testbed).await,
            Some(("False", "Aborted")) => places.untouched(testbed).await,
            other => anyhow::bail!("ended as {other:?}"),
        }
    });
}

/// Fault at the creation of the first new pod, or at the release of the first old pod.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Rollout,
    Scale,
    Cordon,
    NodeGone,
    VictimDeleted,
}

const FAULTS: [Fault; 5] = [Fault::Rollout, Fault::Scale, Fault::Cordon, Fault::NodeGone, Fault::VictimDeleted];

#[test]
fn what_happens_in_between_costs_no_replica() {
    let moments = [("create", "POST"), ("detach", "PATCH")];
    let cases = FAULTS.iter().flat_map(|fault| moments.map(|moment| (*fault, moment)));
    let cases = cases.map(|(fault, moment)| (format!("swap-{fault:?}-{}", moment.0).to_lowercase(), (fault, moment.1)));
    stories(cases.collect(), async |testbed, (fault, method)| {
        let places = Places::roomy(testbed).await?;
        let method = *method;
        let mut held =
            testbed.proxy.hold(1, HoldPoint::Before, move |write| write.method == method && write.is_on("pods"));
        testbed.act("go", places.swap()).await?;
        held.reached().await.context("no such write")?;
        let asked = match fault {
            Fault::Rollout => testbed.kubectl(&["rollout", "restart", "deployment", "y"], None).await.map(|_| 1)?,
            Fault::Scale => testbed.kubectl(&["scale", "deployment", "y", "--replicas=2"], None).await.map(|_| 2)?,
            Fault::Cordon => places.nodes.cordon(&places.nodes.names[1]).await.map(|()| 1)?,
            Fault::NodeGone => testbed.kubectl(&["delete", "node", &places.nodes.names[1]], None).await.map(|_| 1)?,
            Fault::VictimDeleted => {
                testbed.kubectl(&["delete", "pod", &places.y.pod(0).0, "--wait=false"], None).await.map(|_| 1)?
            }
        };
        held.release();
        testbed.over("go").await?;
        let verdict = places.x.at_rest(testbed, 1).await?;
        ensure!(verdict.lowest_ready >= 1 && verdict.replicas == [1], "x was disturbed: {verdict:?}");
        let verdict = places.y.at_rest(testbed, asked).await?;
        ensure!(verdict.replicas.last() == Some(&i32::try_from(asked)?), "{verdict:?}");
        Ok(())
    });
}
