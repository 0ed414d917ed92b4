//! A replica that takes over lists all objects before it acts: its watches may lag.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use serde_json::json;
use testkit::kstatus;
use testkit::proxy::Write;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::replicas::Replica;
use testkit::testbed::rest::rest_clean;
use testkit::testbed::{Testbed, story};
use testkit::verdict::pods_of;

use super::late::with_standby;
use crate::acts::{Act, Verb};

/// Kinds whose watches lag.
const LAGGING: [&str; 5] = ["pods", "workloadactions", "workloadactionreceipts", "replicasets", "deployments"];

/// Longer than the story.
const LAG: Duration = Duration::from_secs(3600);

fn creates_pod(write: &Write) -> bool {
    write.is_on("pods") && write.method == http::Method::POST
}

/// Delays what the watches of the standby deliver from now on.
fn delay(standby: &Replica, by: Duration) {
    for kind in LAGGING {
        standby.proxy.streams().delay(kind, by);
    }
}

/// Waits until the caches of the standby have the current state of the action.
async fn knows(testbed: &Testbed, standby: &Replica, name: &str) -> Result<()> {
    let action = testbed.eye.now().actions.get(name).cloned().context("no action")?;
    let reason = kstatus::condition(&action, "Reconciling").context("the action does not run")?.reason.clone();
    let series = format!("ganglion_actions{{state=\"running\",reason=\"{reason}\"}} 1");
    let seen = async {
        while !standby.operator.get("/metrics").await.is_ok_and(|text| text.contains(&series)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(testkit::TIMEOUT, seen).await.with_context(|| format!("the standby does not serve {series}"))
}

/// The former leader has created a pod and, after an abort, evicted it. A standby that knows only the intent to create
/// it must not create it again.
#[test]
fn a_pod_that_the_former_leader_created_and_evicted_is_not_created_again() {
    story("stale-view", async |testbed| {
        let act = Act::prepare(testbed, Verb::Move, "web").await?;
        let next = Act::prepare(testbed, Verb::Move, "next").await?;
        let standby = with_standby(testbed).await?;
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, creates_pod);
        act.begin(testbed).await?;
        held.reached().await.context("no pod is created")?;
        knows(testbed, &standby, "web").await?;
        delay(&standby, LAG);
        let mut created = testbed.proxy.hold(1, HoldPoint::After, creates_pod);
        held.release();
        created.reached().await.context("no pod was created")?;
        testbed.patch_action("web", json!({"spec": {"abort": true}})).await?;
        created.release();
        testbed.ends("web", ("False", "Aborted")).await?;
        act.scene.untouched(testbed).await?;
        let pods: Vec<String> = act.scene.tale.pods().into_iter().map(|(name, _)| name).collect();

        testbed.operator.lock().await.kill();
        testbed.another_leads("one").await?;
        delay(&standby, Duration::ZERO);
        let other = |seen: &testkit::eye::Seen| {
            pods_of(seen, "web").map(|pod| pod.name_any()).find(|name| !pods.contains(name))
        };
        testbed.eye.never(Duration::from_secs(3), "a pod of the action that ended was created", other).await?;
        // The standby acts: the silence above is no accident.
        next.begin(testbed).await?;
        testbed.ends("next", ("True", "Succeeded")).await?;
        next.done(testbed).await?;
        let creations = standby.proxy.writes().into_iter().filter(creates_pod).count();
        ensure!(creations == 1, "the standby created {creations} pods for one move");
        // While the standby runs, to finish the last write.
        rest_clean(testbed).await
    });
}
