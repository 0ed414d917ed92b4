//! An API server that rejects requests, loses answers, lags or is down: nothing is lost, and nothing is done twice.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use testkit::block_on;
use testkit::eye::Seen;
use testkit::kstatus::is_over;
use testkit::plane::Plane;
use testkit::proxy::storm::{Fault, Storm};
use testkit::testbed::rest::rest_clean;
use testkit::testbed::{Road, Testbed, stories, story, story_on};

use crate::acts::{Act, VERBS};

const DONE: (&str, &str) = ("True", "Succeeded");

/// Timeout in these tests: failing requests may cost minutes of backoff.
const LONG: Duration = Duration::from_secs(120);

/// One action of each kind, each on its own workload.
async fn all(testbed: &Testbed) -> Result<Vec<Act>> {
    let acts = VERBS.map(|verb| async move { Act::prepare(testbed, verb, verb.name()).await });
    futures::future::try_join_all(acts).await
}

/// Checks that each did exactly what was requested, once.
async fn all_done(testbed: &Testbed, acts: &[Act]) -> Result<()> {
    for act in acts {
        let over = |seen: &Seen| seen.actions.get(act.name()).filter(|action| is_over(action)).map(drop);
        testbed.eye.within(LONG, &format!("the end of the {}", act.name()), over).await?;
        testbed.ends(act.name(), DONE).await?;
        act.done(testbed).await?;
    }
    Ok(())
}

#[test]
fn a_share_of_all_requests_fails() {
    let weather: [(&str, u64, &[Fault]); 5] = [
        ("conflicts", 40, &[Fault::Conflict]),
        ("throttled", 25, &[Fault::TooMany]),
        ("away", 30, &[Fault::Unavailable]),
        ("forgotten", 30, &[Fault::LostAnswer]),
        ("all-at-once", 35, &[Fault::Conflict, Fault::TooMany, Fault::Unavailable, Fault::LostAnswer]),
    ];
    let cases = weather
        .into_iter()
        .zip(1..)
        .map(|((name, percent, faults), seed)| (format!("storm-{name}"), Storm::new(percent, seed, faults)));
    stories(cases.collect(), async |testbed, storm| {
        let acts = all(testbed).await?;
        testbed.operator.lock().await.ready().await?;
        testbed.proxy.storm(Some(storm.clone()));
        for act in &acts {
            act.begin(testbed).await?;
        }
        all_done(testbed, &acts).await?;
        testbed.proxy.storm(None);
        Ok(())
    });
}

#[test]
fn watches_are_cut_again_and_again() {
    story("watch-cut", async |testbed| {
        let acts = all(testbed).await?;
        testbed.operator.lock().await.ready().await?;
        for act in &acts {
            act.begin(testbed).await?;
        }
        let cut = async {
            loop {
                testbed.proxy.streams().cut();
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
        };
        // Cuts watches twenty times while the actions run, then stops.
        let _ = tokio::time::timeout(Duration::from_secs(3), cut.map(|never: std::convert::Infallible| never)).await;
        all_done(testbed, &acts).await
    });
}

#[test]
fn watches_lag() {
    let lags = [
        ("pods", 700),
        ("replicasets", 700),
        ("workloadactions", 700),
        ("poddisruptionbudgets", 1500),
        ("deployments", 700),
    ];
    let cases = lags.map(|(resource, lag)| (format!("lag-{resource}"), (resource, Duration::from_millis(lag))));
    stories(cases.into(), async |testbed, (resource, lag)| {
        let acts = all(testbed).await?;
        testbed.operator.lock().await.ready().await?;
        testbed.proxy.streams().delay(resource, *lag);
        for act in &acts {
            act.begin(testbed).await?;
        }
        all_done(testbed, &acts).await
    });
}

/// Runs this while the operator is restarted whenever it ends, as a kubelet would do.
async fn kept_alive<T>(testbed: &Testbed, work: impl Future<Output = Result<T>>) -> Result<T> {
    let nurse = async {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let mut operator = testbed.operator.lock().await;
            if operator.ended()?.is_some() {
                operator.start()?;
            }
        }
    };
    tokio::select! {
        done = work => done,
        error = nurse => error,
    }
}

/// Starts actions, injects the fault at once, and again a little later with new actions.
async fn survives(testbed: &Testbed, plane: &Plane, fault: &str) -> Result<()> {
    let mut acts = all(testbed).await?;
    // After a creation without an answer, the ReplicaSet controller creates another pod, and deletes it later.
    acts.iter_mut().for_each(|act| act.substitutes = 2);
    testbed.operator.lock().await.ready().await?;
    kept_alive(testbed, async {
        for act in &acts {
            act.begin(testbed).await?;
        }
        tokio::time::sleep(Duration::from_millis(60)).await;
        match fault {
            "pause" => {
                plane.cluster.fault(&["pause", "etcd"]).await?;
                tokio::time::sleep(Duration::from_secs(20)).await;
                plane.cluster.fault(&["resume", "etcd"]).await?;
            }
            "kill" => plane.cluster.fault(&["restart", "apiserver", "--kill"]).await?,
            _ => plane.cluster.fault(&["restart", "apiserver"]).await?,
        }
        all_done(testbed, &acts).await
    })
    .await
    .context(format!("after {fault}"))
}

#[test]
fn the_api_server_is_restarted_and_etcd_stands_still() {
    let own = block_on(Plane::own("falters", 6)).expect("a plane of its own");
    for (name, fault) in [("restarted", "restart"), ("killed", "kill"), ("etcd-paused", "pause")] {
        story_on(&own.0, Road::Direct, name, async |testbed| survives(testbed, &own.0, fault).await);
    }
}

/// Two replicas of the operator: the standby takes over when the leader is gone, and only one acts at a time.
#[test]
fn another_replica_takes_over() {
    story("takeover", async |testbed| {
        let acts = all(testbed).await?;
        testbed.operator.lock().await.ready().await?;
        let mut second = testbed.another("two")?;
        second.start()?;
        second.ready().await?;
        for act in &acts {
            act.begin(testbed).await?;
        }
        tokio::time::sleep(Duration::from_millis(80)).await;
        testbed.operator.lock().await.kill();
        all_done(testbed, &acts).await?;
        // While the second replica is still running, to finish the last write.
        rest_clean(testbed).await
    });
}
