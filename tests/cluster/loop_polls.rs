//! The cost of polled sources: slow sources do not delay other loops, and calm loops write nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::monitoring::Monitoring;
use serde_json::json;
use testkit::servers::http::{Manner, Server};
use testkit::testbed::Testbed;
use testkit::testbed::loops::{has_data, loop_story, push, put, until};

use super::loop_sources::{scene, unknown, watcher};

/// Number of hanging loops, and the observation time.
const HANGING: usize = 500;
const LOOK: Duration = Duration::from_secs(10);

#[test]
fn loops_whose_sources_hang_do_not_hold_up_the_others() {
    loop_story("sources-hang", async |testbed| {
        let (hangs, healthy) =
            (Server::start(Manner::Hangs).await, Server::start(Manner::Says("200 OK", r#"{"load": 3}"#.into())).await);
        scene(testbed).await?;
        let mut spec = watcher(&[("load", json!({"http": {"url": healthy.url("/"), "path": "load"}}))]);
        spec["trace"] = json!("EverySample");
        let hanging = |nth: usize| {
            let mut hanging = watcher(&[("load", json!({"http": {"url": hangs.url("/"), "path": "load"}}))]);
            hanging["interval"] = json!("5s");
            hanging["target"]["name"] = json!(format!("hangs-{nth}"));
            async move { put(testbed, &format!("hangs-{nth}"), hanging).await }
        };
        stream::iter(0..HANGING).map(hanging).buffer_unordered(8).try_collect::<Vec<ClosedLoop>>().await?;
        put(testbed, "web", spec).await?;
        unknown(testbed, &format!("hangs-{}", HANGING - 1), "load", "no answer within 5 s").await?;
        has_data(testbed, "web").await?;
        let sequence = async || -> Result<i64> {
            let status = testbed.api::<Monitoring>().get("web").await?.status.unwrap_or_default();
            Ok(status.tag.map_or(0, |tag| tag.sequence))
        };
        let before = sequence().await?;
        tokio::time::sleep(LOOK).await;
        let samples = sequence().await? - before;
        // Behind the other loops it would get at most two samples, because each of them hangs for 5 s. The other
        // stories also use the machine; alone, it gets 9 or 10.
        ensure!((4..=11).contains(&samples), "{samples} samples in {LOOK:?}, expected about one per second");
        Ok(())
    });
}

#[test]
fn a_calm_loop_writes_nothing_and_after_a_restart_nothing_either() {
    loop_story("sources-calm", async |testbed| {
        let server = Server::start(Manner::Says("200 OK", r#"{"load": 3}"#.into())).await;
        scene(testbed).await?;
        let http = json!({"http": {"url": server.url("/"), "path": "load"}});
        let object =
            json!({"object": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "path": "spec.replicas"}});
        put(testbed, "asks", watcher(&[("load", http.clone()), ("replicas", object)])).await?;
        put(testbed, "both", watcher(&[("load", http), ("cpu", json!({"push": {}}))])).await?;
        put(testbed, "takes", watcher(&[("cpu", json!({"push": {}}))])).await?;
        let calm = async |testbed: &Testbed| -> Result<()> {
            for name in ["both", "takes"] {
                push(testbed, name, json!({"cpu": "3"})).await?;
            }
            tokio::time::sleep(Duration::from_millis(1500)).await;
            Ok(())
        };
        for name in ["both", "takes"] {
            until::<Monitoring, _>(testbed, name, "its Monitoring", |one| one.status?.message).await?;
        }
        calm(testbed).await?;
        for name in ["asks", "both", "takes"] {
            has_data(testbed, name).await?;
        }
        let monitoring = testbed.api::<Monitoring>().get("takes").await?.status.unwrap_or_default();
        let speaks = monitoring.conditions.iter().any(|one| one.observed_generation.is_some());
        ensure!(!speaks, "a GitOps tool would wait for ever: {monitoring:?}");
        let before = testbed.proxy.writes().len();
        calm(testbed).await?;
        calm(testbed).await?;
        let asked = server.asked.lock().unwrap().len();
        testbed.kill_and_restart().await?;
        testbed.operator.lock().await.ready().await?;
        calm(testbed).await?;
        calm(testbed).await?;
        let writes = testbed.proxy.writes();
        ensure!(writes.len() == before, "it wrote {:?}", writes.get(before..));
        ensure!(server.asked.lock().unwrap().len() > asked, "no server was polled any more");
        let others = testbed.api::<ClosedLoop>().get("asks").await?.status.unwrap_or_default();
        ensure!(others.conditions.iter().all(|one| one.status == "True"), "{others:?}");
        Ok(())
    });
}
