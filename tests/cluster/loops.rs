//! Closed loops: samples are pushed, messages pass through the hops, and a real workload is scaled, once per decision,
//! regardless of when a process is killed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::{Execution, ExecutionState};
use ganglion_api::marks;
use ganglion_api::monitoring::Monitoring;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ReplicationController, ServiceAccount};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::loops::{
    ACCOUNT, SCALES, account, decision_status, demo, ended, grant, has_data, loop_story, make, push, put, ready,
    replicas, travelled, until, with_loops,
};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, stories};

/// Time without any event after which a state counts as stable.
const CALM: Duration = Duration::from_secs(3);

/// A Deployment `web` with one replica, an account that may scale it, and the demo's loop.
async fn scene(testbed: &Testbed) -> Result<()> {
    Workload::deployment("web", 1).create(testbed).await?;
    account(testbed, SCALES).await?;
    make(testbed, "web", demo()).await?;
    ready(testbed, "web", "True", "Running").await.map(drop)
}

#[test]
fn the_messages_of_the_demo() {
    loop_story("loops-parity", async |testbed| {
        scene(testbed).await?;
        let (first, _) = replicas(testbed, "web").await?;
        let time = push(testbed, "web", json!({"cpu": "2", "memory": "40"})).await?;
        let (seen, said, done) = travelled(testbed, "web", time).await?;
        ensure!((seen.as_str(), said.as_str()) == ("Low cpu,Low memory", "React to cpu"), "{seen} / {said}");
        let done = done.context("the tag is not in the Execution")?;
        ensure!(ended(&done) == (Some(ExecutionState::Done), "1", "2"), "{:?}", ended(&done));
        let seen = testbed.api::<Monitoring>().get("web").await?.status.and_then(|status| status.tag);
        let tag = done.status.and_then(|status| status.tag);
        ensure!(tag == seen && tag.is_some_and(|tag| tag.time.0 == time), "the tag differs from {seen:?}");
        ensure!(replicas(testbed, "web").await? == (first + 1, 2), "{:?}", replicas(testbed, "web").await?);

        let time = push(testbed, "web", json!({"cpu": "20", "memory": "40"})).await?;
        let (seen, said, done) = travelled(testbed, "web", time).await?;
        ensure!((seen.as_str(), said.as_str()) == ("Low memory", "React to memory"), "{seen} / {said}");
        ensure!(done.is_some() && replicas(testbed, "web").await? == (first + 2, 3), "{done:?}");

        let time = push(testbed, "web", json!({"cpu": "20", "memory": "60"})).await?;
        let (seen, said, done) = travelled(testbed, "web", time).await?;
        ensure!((seen.as_str(), said.as_str()) == ("No Event", "No Event"), "{seen} / {said}");
        ensure!(done.is_none() && replicas(testbed, "web").await? == (first + 2, 3), "{done:?}");
        ready(testbed, "web", "True", "Running").await?;
        until::<ClosedLoop, _>(testbed, "web", "the loop to say what was decided", |one| {
            (one.status?.summary?.decision? == "No Event").then_some(())
        })
        .await?;
        for (kinds, shown) in [
            ("loop", ["Deployment/web", "none", "replicas 2 → 3", "Running"]),
            ("mon,dec,exe", ["No Event", "changed Deployment/web from 2 to 3", "Done", "Watching"]),
        ] {
            let table = testbed.kubectl(&["get", kinds], None).await?;
            for words in shown {
                ensure!(table.contains(words), "{words} is not in\n{table}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_calm_loop_writes_nothing() {
    loop_story("loops-calm", async |testbed| {
        scene(testbed).await?;
        let time = push(testbed, "web", json!({"cpu": "20", "memory": "60"})).await?;
        until::<Monitoring, _>(testbed, "web", "the first sample", |one| {
            (one.status?.tag?.time.0 == time).then_some(())
        })
        .await?;
        has_data(testbed, "web").await?;
        tokio::time::sleep(CALM).await;
        let before = testbed.proxy.writes().len();
        for cpu in ["21", "22", "23"] {
            push(testbed, "web", json!({"cpu": cpu, "memory": "60"})).await?;
            tokio::time::sleep(CALM / 3).await;
        }
        let writes = testbed.proxy.writes();
        ensure!(writes.len() == before, "it wrote {:?}", writes.get(before..));
        Ok(())
    });
}

/// Number of writes from a sample to its end, without disturbance.
fn clean_run() -> usize {
    let mut count = 0;
    loop_story("loops-clean", async |testbed| {
        scene(testbed).await?;
        let before = testbed.proxy.writes().len();
        let time = push(testbed, "web", json!({"cpu": "2", "memory": "40"})).await?;
        travelled(testbed, "web", time).await?;
        count = testbed.proxy.writes().len() - before;
        Ok(())
    });
    count
}

#[test]
fn killed_at_each_write_there_is_one_effect() {
    let writes = clean_run();
    assert!(
        (6..=8).contains(&writes),
        "{writes} writes: the sample, two hops, the claim, the action, its end, and the loop's data and first action"
    );
    let both = [HoldPoint::Before, HoldPoint::After];
    let cases = (1..=6).flat_map(|nth| both.map(|when| (format!("loops-{nth}-{when:?}").to_lowercase(), (nth, when))));
    stories(cases.collect(), async |testbed, (nth, when)| {
        let done = async {
            scene(testbed).await?;
            let (first, _) = replicas(testbed, "web").await?;
            let mut held = testbed.proxy.hold(*nth, *when, |_| true);
            let time = push(testbed, "web", json!({"cpu": "2", "memory": "40"})).await?;
            held.reached().await.context("the proxy went away")?;
            {
                let mut operator = testbed.operator.lock().await;
                operator.kill();
                held.lose();
                operator.start()?;
            }
            let (_, said, _) = travelled(testbed, "web", time).await?;
            ensure!(said == "React to cpu", "{said}");
            until::<Execution, _>(testbed, "web", "the end of the decision", |one| {
                (one.status?.state? == ExecutionState::Done).then_some(())
            })
            .await?;
            tokio::time::sleep(CALM).await;
            ensure!(replicas(testbed, "web").await? == (first + 1, 2), "{:?}", replicas(testbed, "web").await?);
            let decision = decision_status(testbed, "web").await?;
            let served: i64 = decision.counters.iter().map(|counter| counter.served).sum();
            ensure!((decision.seq, served) == (1, 1), "{} {served}", decision.seq);
            Ok(())
        };
        match done.await {
            Ok(()) => Ok(()),
            Err(error) => Err(with_loops(testbed, error).await),
        }
    });
}

#[test]
fn a_missing_right_is_named() {
    loop_story("loops-rights", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        make(testbed, "web", demo()).await?;
        push(testbed, "web", json!({"cpu": "2", "memory": "40"})).await?;
        let message = ready(testbed, "web", "False", "Forbidden").await?;
        for words in ["create the account if there is none", "cannot get resource \"deployments\""] {
            ensure!(message.contains(words), "{words} is not in {message}");
        }
        testbed.create::<ServiceAccount>(json!({"metadata": {"name": ACCOUNT}})).await?;
        grant(testbed, &SCALES[..1]).await?;
        // Two loops on one target are covered by another story.
        testbed.api::<ClosedLoop>().delete("web", &DeleteParams::default()).await?;
        make(testbed, "other", demo()).await?;
        push(testbed, "other", json!({"cpu": "2", "memory": "40"})).await?;
        let message = ready(testbed, "other", "False", "Forbidden").await?;
        for words in ["grant service account web-loop", "cannot patch resource \"deployments/scale\""] {
            ensure!(message.contains(words), "{words} is not in {message}");
        }
        ensure!(replicas(testbed, "web").await?.1 == 1, "it was scaled without the right");
        Ok(())
    });
}

/// The loop goes on by itself once the quota is gone.
#[test]
fn children_that_a_quota_refuses_are_named() {
    loop_story("loops-quota", async |testbed| {
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
            "spec": {"hard": {"count/decisions.ganglion.dev": "0"}}});
        testbed.kubectl(&["create", "-f", "-"], Some(&quota.to_string())).await?;
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        put(testbed, "web", demo()).await?;
        let message = ready(testbed, "web", "False", "ChildRefused").await?;
        ensure!(message.contains("decisions.ganglion.dev") && message.contains("quota: none"), "{message}");
        testbed.kubectl(&["delete", "quota", "none"], None).await?;
        ready(testbed, "web", "True", "Running").await.map(drop)
    });
}

#[test]
fn children_come_back_and_what_is_not_owned_is_left_alone() {
    loop_story("loops-children", async |testbed| {
        let not_owned = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "Decision", "metadata": {"name": "web"},
            "spec": {"rank": ["mine"]}});
        testbed.create::<Decision>(not_owned).await?;
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        put(testbed, "web", demo()).await?;
        let message = ready(testbed, "web", "False", "NotOwned").await?;
        ensure!(message.contains("Decision web"), "{message}");
        let left = testbed.api::<Decision>().get("web").await?;
        ensure!(left.spec.rank == ["mine"] && left.owner_references().is_empty(), "{left:?}");
        testbed.api::<Decision>().delete("web", &DeleteParams::default()).await?;
        ready(testbed, "web", "True", "Running").await?;

        let merge = |patch| (PatchParams::default(), Patch::Merge(patch));
        let (params, patch) = merge(json!({"spec": {"rank": ["memory"], "policy": {"dwell": "1h"}}}));
        testbed.api::<Decision>().patch("web", &params, &patch).await?;
        let (params, patch) = merge(json!({"metadata": {"labels": {marks::LOOP: null}}, "spec": {"approve": "7"}}));
        testbed.api::<Execution>().patch("web", &params, &patch).await?;
        until::<Decision, _>(testbed, "web", "the rank to come back", |one| {
            let dwell = one.spec.policy.and_then(|policy| policy.dwell);
            (one.spec.rank == ["cpu", "memory"] && dwell.is_none()).then_some(())
        })
        .await?;
        until::<Execution, _>(testbed, "web", "the label to come back, and what was added to go", |one| {
            (one.labels().contains_key(marks::LOOP) && one.spec.approve.is_none()).then_some(())
        })
        .await?;

        let old = testbed.api::<Monitoring>().get("web").await?.uid();
        testbed.api::<Monitoring>().delete("web", &DeleteParams::default()).await?;
        testbed.api::<Execution>().delete("web", &DeleteParams::default()).await?;
        until::<Monitoring, _>(testbed, "web", "the Monitoring to come back", |one| (one.uid() != old).then_some(()))
            .await?;
        until::<Execution, _>(testbed, "web", "the Execution to come back", |one| one.status?.seq).await?;
        let time = push(testbed, "web", json!({"cpu": "2", "memory": "40"})).await?;
        ensure!(travelled(testbed, "web", time).await?.2.is_some(), "the loop does not act any more");
        Ok(())
    });
}

#[test]
fn who_came_later_does_not_act() {
    loop_story("loops-stalled", async |testbed| {
        scene(testbed).await?;
        put(testbed, "young", demo()).await?;
        let message = ready(testbed, "young", "False", "LoopConflict").await?;
        ensure!(message.contains("ClosedLoop web acts on replicas"), "{message}");
        until::<Execution, _>(testbed, "young", "its Execution", |one| one.status?.seq).await?;
        push(testbed, "young", json!({"cpu": "2", "memory": "40"})).await?;
        let held = until::<Decision, _>(testbed, "young", "the sample to be decided about", |one| {
            Some(one.status?.message?).filter(|message| message.starts_with("Hold"))
        })
        .await?;
        ensure!(held.contains("ClosedLoop web") && replicas(testbed, "web").await?.1 == 1, "{held}");
        Ok(())
    });
}

#[test]
fn anything_with_a_scale_subresource_is_scaled() {
    loop_story("loops-any-kind", async |testbed| {
        let template = json!({"metadata": {"labels": {"app": "rc"}},
            "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]}});
        testbed
            .create::<ReplicationController>(json!({"metadata": {"name": "rc"},
                "spec": {"replicas": 1, "selector": {"app": "rc"}, "template": template}}))
            .await?;
        let rights = [
            ("", "replicationcontrollers", "get"),
            ("", "replicationcontrollers/scale", "get"),
            ("", "replicationcontrollers/scale", "patch"),
        ];
        account(testbed, &rights).await?;
        let mut spec = demo();
        spec["target"] = json!({"apiVersion": "v1", "kind": "ReplicationController", "name": "rc"});
        make(testbed, "rc", spec.clone()).await?;
        let time = push(testbed, "rc", json!({"cpu": "2"})).await?;
        let done = travelled(testbed, "rc", time).await?.2.context("it did not act")?;
        ensure!(ended(&done) == (Some(ExecutionState::Done), "1", "2"), "{:?}", done.status);

        spec["target"] = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "rc"});
        make(testbed, "map", spec).await?;
        push(testbed, "map", json!({"cpu": "2"})).await?;
        let message = ready(testbed, "map", "False", "NotScalable").await?;
        ensure!(message.contains("ConfigMap has no scale subresource"), "{message}");
        Ok(())
    });
}

#[test]
fn a_loop_has_series_of_its_own_while_it_is_there() {
    loop_story("loops-series", async |testbed| {
        scene(testbed).await?;
        for cpu in ["2", "20"] {
            let time = push(testbed, "web", json!({"cpu": cpu, "memory": "60"})).await?;
            travelled(testbed, "web", time).await?;
        }
        ready(testbed, "web", "True", "Running").await?;
        let of = format!("{{namespace=\"{}\",name=\"web\"", testbed.ns);
        let text = testbed.operator.lock().await.get("/metrics").await?;
        for line in [
            format!("ganglion_loop_ready{of}}} 1"),
            format!("ganglion_loop_value{of},metric=\"cpu\"}} 20.0"),
            format!("ganglion_loop_decisions_total{of},metric=\"cpu\",outcome=\"wanted\"}} 1"),
        ] {
            ensure!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
        }
        ensure!(!text.contains(&format!("ganglion_loop_alarm{of}")), "the alarm is over\n{text}");
        testbed.kubectl(&["delete", "closedloop", "web"], None).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let text = testbed.operator.lock().await.get("/metrics").await?;
        ensure!(!text.contains(&of), "{text}");
        Ok(())
    });
}

#[test]
fn after_the_slow_loop_raised_memory_the_same_sample_is_another_reaction() {
    loop_story("loops-slow", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        let mut fast = demo();
        fast["tunable"] = json!({"by": ["slow"], "rank": true});
        make(testbed, "web", fast).await?;
        let slow = json!({
            "interval": "1s",
            "target": {"apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "name": "web"},
            "metrics": [{"name": "imbalance", "source": {"loop": {"rule": "LastServed", "window": 3}}, "high": {"raise": "0"}}],
            "actions": [{"when": {"metric": "imbalance", "side": "High"}, "ladder": [{"tune": {"raiseRank": "LeastServed"}}]}],
        });
        make(testbed, "slow", slow).await?;
        // Deleted loops have filled the list; one entry has no owner, and one has expired.
        let entry = |by: &str, at: &str| json!({"by": by, "uid": by, "seq": 1, "at": at, "rank": ["cpu", "memory"]});
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let entries = ["gone-1", "gone-2", "gone-3"].map(|by| entry(by, &now)).into_iter();
        let entries: Vec<Value> = entries.chain([entry("web", "2026-01-01T00:00:00.000000Z")]).collect();
        let full = Patch::Merge(json!({"status": {"tuning": entries}}));
        testbed.api::<ClosedLoop>().patch_status("web", &PatchParams::default(), &full).await?;
        let both = || json!({"cpu": "2", "memory": "40"});
        for _ in 0..3 {
            let time = push(testbed, "web", both()).await?;
            let (seen, said, _) = travelled(testbed, "web", time).await?;
            ensure!((seen.as_str(), said.as_str()) == ("Low cpu,Low memory", "React to cpu"), "{seen} / {said}");
        }
        let tuned = until::<ClosedLoop, _>(testbed, "web", "the slow loop to raise memory", |one| {
            let status = one.status?;
            (status.effective?.rank == ["memory", "cpu"]).then_some(status.tuning)
        })
        .await?;
        let words: Vec<_> = tuned.iter().map(|one| (one.by.as_str(), one.message.as_deref())).collect();
        ensure!(words == [("slow", Some("Increase rank memory"))], "{words:?}");
        until::<Execution, _>(testbed, "slow", "the slow loop's own word", |one| {
            (one.status?.message? == "Increase rank memory").then_some(())
        })
        .await?;
        let time = push(testbed, "web", both()).await?;
        let (seen, said, _) = travelled(testbed, "web", time).await?;
        ensure!((seen.as_str(), said.as_str()) == ("Low cpu,Low memory", "React to memory"), "{seen} / {said}");
        Ok(())
    });
}

#[test]
fn a_loop_that_is_taken_out_of_tunable_by_has_no_effect_at_once() {
    loop_story("loops-untuned", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, SCALES).await?;
        let mut fast = demo();
        fast["tunable"] = json!({"by": ["slow"], "rank": true});
        make(testbed, "web", fast).await?;
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let entry = json!({"by": "slow", "uid": "slow", "seq": 1, "at": now, "rank": ["memory", "cpu"]});
        let tuned = Patch::Merge(json!({"status": {"tuning": [entry]}}));
        testbed.api::<ClosedLoop>().patch_status("web", &PatchParams::default(), &tuned).await?;
        let is_ranked = async |rank: [&str; 2]| {
            until::<ClosedLoop, _>(testbed, "web", &format!("the rank {rank:?}"), |one| {
                (one.status?.effective?.rank == rank).then_some(())
            })
            .await
        };
        is_ranked(["memory", "cpu"]).await?;
        let both = || json!({"cpu": "2", "memory": "40"});
        let time = push(testbed, "web", both()).await?;
        let (_, said, _) = travelled(testbed, "web", time).await?;
        ensure!(said == "React to memory", "{said}");

        testbed.patch_loop("web", json!({"spec": {"tunable": {"by": ["other"]}}})).await?;
        is_ranked(["cpu", "memory"]).await?;
        let time = push(testbed, "web", both()).await?;
        let (_, said, _) = travelled(testbed, "web", time).await?;
        ensure!(said == "React to cpu", "{said}");
        Ok(())
    });
}
