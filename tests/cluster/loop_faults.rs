//! Closed loops under faults: floods of samples; deleted children, targets and loops; changed policies; an API server
//! that rejects requests, loses answers or is down. There must be one effect per decision, nothing lost, and never an
//! endless series of requests.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::http::StatusCode;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::{Decision, Outcome};
use ganglion_api::execution::{Execution, ExecutionState};
use ganglion_api::monitoring::Monitoring;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testkit::block_on;
use testkit::plane::Plane;
use testkit::proxy::Write;
use testkit::proxy::storm::{Fault, Storm};
use testkit::testbed::loops::{
    SCALES, account, decision_status, demo, ended, has_data, loop_story, make, push, push_at, put, ready, replicas,
    travelled, until, with_loops,
};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Road, Testbed, stories, story_on};

/// Time without any event after which a state counts as stable.
const CALM: Duration = Duration::from_secs(3);

fn low() -> Value {
    json!({"cpu": "2", "memory": "40"})
}

/// A Deployment `web` with one replica, an account that may scale it, and a loop with this spec.
async fn scene(testbed: &Testbed, spec: Value) -> Result<()> {
    Workload::deployment("web", 1).create(testbed).await?;
    account(testbed, SCALES).await?;
    make(testbed, "web", spec).await?;
    ready(testbed, "web", "True", "Running").await.map(drop)
}

fn with(pointer: &str, value: Value) -> Value {
    let mut spec = demo();
    match pointer.rsplit_once('/') {
        Some((parent, member)) => spec.pointer_mut(parent).expect("a part of the demo's spec")[member] = value,
        None => unreachable!("a pointer begins with a slash"),
    }
    spec
}

/// Checks that there were at most this number of writes since then. Not counted: Events (at most one per minute), and
/// requests that are repeated after a conflict, for example with a write of the Deployment's status.
fn at_most(testbed: &Testbed, before: usize, most: usize, what: &str) -> Result<()> {
    let writes = testbed.proxy.writes();
    let counts = |write: &&Write| !write.is_on("events") && write.answer != Some(StatusCode::CONFLICT);
    let since: Vec<String> = writes.iter().skip(before).filter(counts).map(ToString::to_string).collect();
    ensure!(since.len() <= most, "{what}: {} writes, more than {most}:\n{}", since.len(), since.join("\n"));
    Ok(())
}

/// Waits until no more writes occur. Returns their number.
async fn at_rest(testbed: &Testbed) -> usize {
    let mut before = testbed.proxy.writes().len();
    loop {
        tokio::time::sleep(CALM).await;
        let now = testbed.proxy.writes().len();
        if now == before {
            return now;
        }
        before = now;
    }
}

/// Checks that each decision had one effect, and that each effect changed the target.
async fn one_effect_each(testbed: &Testbed, first: i64) -> Result<i64> {
    let decision = decision_status(testbed, "web").await?;
    let served: i64 = decision.counters.iter().map(|counter| counter.served).sum();
    let changes = replicas(testbed, "web").await?.0 - first;
    ensure!(served == changes, "{served} served, {changes} changes: {:?}", decision.history);
    Ok(changes)
}

#[test]
fn an_acting_iteration_is_four_writes_and_the_action() {
    loop_story("faults-writes", async |testbed| {
        scene(testbed, with("/trace", json!("EverySample"))).await?;
        let time = push(testbed, "web", low()).await?;
        travelled(testbed, "web", time).await?;
        has_data(testbed, "web").await?;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let before = testbed.proxy.writes().len();
            let time = push(testbed, "web", low()).await?;
            travelled(testbed, "web", time).await?;
            tokio::time::sleep(Duration::from_millis(300)).await;
            at_most(testbed, before, 5, "monitoring, decision, claim, scale, end")?;
        }
        Ok(())
    });
}

#[test]
fn a_flood_of_samples_out_of_order_repeated_and_from_the_future() {
    loop_story("faults-flood", async |testbed| {
        scene(testbed, with("/policy/dwell", json!("1s"))).await?;
        let (first, _) = replicas(testbed, "web").await?;
        let before = testbed.proxy.writes().len();
        let mut last = Timestamp::now();
        let begun = tokio::time::Instant::now();
        let mut pace = tokio::time::interval(Duration::from_millis(10));
        for number in 0..400 {
            pace.tick().await;
            let now = Timestamp::now();
            let time = match number % 20 {
                3 => now - SignedDuration::from_secs(5),
                7 => last,
                11 => now + SignedDuration::from_mins(1),
                _ => now,
            };
            let cpu = (number % 4).to_string();
            push_at(testbed, "web", time, json!({"cpu": cpu, "memory": "40"})).await?;
            last = if number % 20 == 11 { last } else { time };
        }
        let took = begun.elapsed();
        let time = push(testbed, "web", json!({"cpu": "20", "memory": "60"})).await?;
        let (seen, said, _) = travelled(testbed, "web", time).await?;
        ensure!((seen.as_str(), said.as_str()) == ("No Event", "No Event"), "{seen} / {said}");
        let changes = one_effect_each(testbed, first).await?;
        let most = i64::try_from(took.as_secs())? + 2;
        ensure!((2..=most).contains(&changes), "{changes} effects in {took:?} with a dwell of a second");
        let refused = testbed.api::<Monitoring>().get("web").await?.status.and_then(|status| status.refused);
        let refused = refused.context("no sample was rejected")?;
        ensure!(refused.out_of_order > 0 && refused.from_future > 0, "{refused:?}");
        // Per effect: four writes and the action. In addition: an edge when the dwell starts to apply, the reports of
        // rejections, and patches that met a newer sample, each of which occurs at most once.
        let seconds = usize::try_from(took.as_secs())?;
        let since = testbed.proxy.writes().split_off(before);
        let late = since.iter().filter(|write| write.answer == Some(StatusCode::UNPROCESSABLE_ENTITY)).count();
        ensure!(late <= 400, "{late} patches met one of 400 samples");
        at_most(testbed, before, 8 * usize::try_from(changes)? + 10 + seconds + late, "a flood")?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = testbed.proxy.writes().len();
        tokio::time::sleep(CALM).await;
        at_most(testbed, before, 1, "after the flood: the table")
    });
}

#[test]
fn a_standing_alarm_is_served_when_its_dwell_ends_without_another_sample() {
    loop_story("faults-dwell", async |testbed| {
        scene(testbed, with("/policy/dwell", json!("4s"))).await?;
        let (first, _) = replicas(testbed, "web").await?;
        let time = push(testbed, "web", low()).await?;
        travelled(testbed, "web", time).await?;
        let time = push(testbed, "web", low()).await?;
        let (_, said, _) = travelled(testbed, "web", time).await?;
        ensure!(said.starts_with("Hold cpu: dwell: no action before"), "{said}");
        let served =
            until::<Decision, _>(testbed, "web", "the dwell to end", |one| one.status.filter(|one| one.seq == 2))
                .await?;
        ensure!(served.tag.is_some_and(|tag| tag.time.0 == time), "{:?}", served.message);
        tokio::time::sleep(CALM * 2).await;
        ensure!(one_effect_each(testbed, first).await? == 2, "it continues without a sample");
        let acts: Vec<Timestamp> = decision_status(testbed, "web").await?.acts.iter().map(|act| act.at.0).collect();
        ensure!(acts[1].duration_since(acts[0]) >= SignedDuration::from_secs(4), "{acts:?}");
        Ok(())
    });
}

#[test]
fn a_decision_that_is_deleted_forgets_no_number_and_no_dwell_and_says_what_it_forgot() {
    loop_story("faults-deleted", async |testbed| {
        scene(testbed, with("/policy/dwell", json!("30s"))).await?;
        let (first, _) = replicas(testbed, "web").await?;
        let time = push(testbed, "web", low()).await?;
        travelled(testbed, "web", time).await?;
        let old = testbed.api::<Decision>().get("web").await?.uid();
        testbed.api::<Decision>().delete("web", &DeleteParams::default()).await?;
        let said = until::<Decision, _>(testbed, "web", "the Decision to come back", |one| {
            if one.uid() == old {
                return None;
            }
            let status = one.status?;
            (status.seq == 1).then_some(status.conditions.first()?.message.clone())
        })
        .await?;
        ensure!(said.contains("of the deleted Decision are lost"), "{said}");
        let time = push(testbed, "web", low()).await?;
        let (_, said, _) = travelled(testbed, "web", time).await?;
        ensure!(said.starts_with("Hold cpu: dwell: no action before"), "{said}");
        ensure!(replicas(testbed, "web").await? == (first + 1, 2), "{:?}", replicas(testbed, "web").await?);
        Ok(())
    });
}

#[test]
fn a_policy_that_changes_in_the_middle_of_a_settle_brings_no_second_effect() {
    loop_story("faults-policy", async |testbed| {
        scene(testbed, with("/actions/0/settle", json!("1h"))).await?;
        let (first, _) = replicas(testbed, "web").await?;
        let time = push(testbed, "web", json!({"cpu": "2", "memory": "60"})).await?;
        travelled(testbed, "web", time).await?;
        let mut spec = with("/actions/0/settle", json!("2h"));
        spec["policy"]["rank"] = json!(["memory", "cpu"]);
        let patch = Patch::Merge(json!({"spec": spec}));
        testbed.api::<ClosedLoop>().patch("web", &PatchParams::default(), &patch).await?;
        until::<Decision, _>(testbed, "web", "the policy to arrive", |one| {
            (one.spec.rank == ["memory", "cpu"] && one.status?.observed_generation == one.metadata.generation)
                .then_some(())
        })
        .await?;
        // By then, the other children have observed their new generation, too.
        let before = at_rest(testbed).await;
        let begun = tokio::time::Instant::now();
        for _ in 0..5 {
            let time = push(testbed, "web", json!({"cpu": "2", "memory": "60"})).await?;
            let (_, said, _) = travelled_or_held(testbed, time).await?;
            ensure!(said.contains("settles until") || said.contains("React to cpu"), "{said}");
        }
        // While the alarm persists, the status shows the last sample about once a second.
        let shown = usize::try_from(begun.elapsed().as_millis() / 900)? + 1;
        at_most(testbed, before, 3 + shown, "held samples")?;
        ensure!(replicas(testbed, "web").await? == (first + 1, 2), "{:?}", replicas(testbed, "web").await?);
        // A different action takes effect at once.
        let time = push(testbed, "web", json!({"cpu": "20", "memory": "40"})).await?;
        ensure!(travelled(testbed, "web", time).await?.2.is_some(), "memory is held by the settle of cpu");
        Ok(())
    });
}

/// Like [`travelled`], but also accepts a sample that changes nothing and is therefore not written; returns the last
/// message then.
async fn travelled_or_held(testbed: &Testbed, time: Timestamp) -> Result<(String, String, bool)> {
    tokio::time::sleep(Duration::from_millis(200)).await;
    let decision = decision_status(testbed, "web").await?;
    let acted = decision.tag.as_ref().is_some_and(|tag| tag.time.0 == time);
    Ok((String::new(), decision.message.unwrap_or_default(), acted))
}

#[test]
fn a_target_that_goes_is_named_and_one_that_comes_back_is_scaled() {
    loop_story("faults-target", async |testbed| {
        let rungs =
            json!([{"scale": {"by": 1, "max": 9}}, {"scale": {"by": 2, "max": 9}}, {"scale": {"by": 3, "max": 9}}]);
        scene(testbed, with("/actions/0/ladder", rungs)).await?;
        let mut target = testbed.api::<Deployment>().get("web").await?;
        testbed.api::<Deployment>().delete("web", &DeleteParams::default()).await?;
        until_gone(testbed).await?;
        push(testbed, "web", json!({"cpu": "2", "memory": "60"})).await?;
        let message = ready(testbed, "web", "False", "TargetNotFound").await?;
        ensure!(message.contains("there is no Deployment web"), "{message}");
        let before = testbed.proxy.writes().len();
        tokio::time::sleep(CALM).await;
        at_most(testbed, before, 1, "while the target is gone")?;
        target.metadata = ObjectMeta { name: Some("web".into()), ..ObjectMeta::default() };
        target.spec.as_mut().context("a spec")?.replicas = Some(4);
        testbed.api::<Deployment>().create(&PostParams::default(), &target).await?;
        let time = push(testbed, "web", json!({"cpu": "2", "memory": "60"})).await?;
        let done = travelled(testbed, "web", time).await?.2.context("it did not act")?;
        ensure!(ended(&done) == (Some(ExecutionState::Done), "4", "6"), "{:?}", ended(&done));
        ready(testbed, "web", "True", "Running").await.map(drop)
    });
}

async fn until_gone(testbed: &Testbed) -> Result<()> {
    let gone = async {
        while testbed.api::<Deployment>().get_opt("web").await?.is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(testkit::TIMEOUT, gone).await?
}

#[test]
fn a_loop_that_is_deleted_acts_no_more_and_one_made_again_starts_from_nothing() {
    loop_story("faults-remade", async |testbed| {
        scene(testbed, demo()).await?;
        let time = push(testbed, "web", low()).await?;
        travelled(testbed, "web", time).await?;
        let (first, _) = replicas(testbed, "web").await?;
        let old = testbed.api::<Monitoring>().get("web").await?.uid();
        testbed.api::<ClosedLoop>().delete("web", &DeleteParams::default()).await?;
        // Recreated at once, while the old children still exist.
        put(testbed, "web", demo()).await?;
        let fresh = until::<Monitoring, _>(testbed, "web", "children of its own", |one| {
            (one.uid() != old && one.status.as_ref()?.message.is_some()).then_some(one)
        })
        .await?;
        ensure!(fresh.spec.sample.is_none(), "{:?}", fresh.spec.sample);
        ready(testbed, "web", "True", "Running").await?;
        tokio::time::sleep(CALM).await;
        ensure!(replicas(testbed, "web").await?.0 == first, "an old sample had a second effect");
        testbed.api::<ClosedLoop>().delete("web", &DeleteParams::default()).await?;
        let gone = async {
            while testbed.api::<Execution>().get_opt("web").await?.is_some() {
                let _ = push(testbed, "web", low()).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(testkit::TIMEOUT, gone).await.context("its children still exist")??;
        // Samples pushed before the deletion was observed may have been acted on; later ones must not.
        let (last, _) = replicas(testbed, "web").await?;
        let before = testbed.proxy.writes().len();
        tokio::time::sleep(CALM).await;
        ensure!(replicas(testbed, "web").await?.0 == last, "it acts although it is deleted");
        at_most(testbed, before, 0, "after the loop")
    });
}

#[test]
fn a_calm_loop_and_a_restart_write_nothing() {
    loop_story("faults-calm", async |testbed| {
        scene(testbed, with("/interval", json!("1s"))).await?;
        let time = push(testbed, "web", json!({"cpu": "2", "memory": "60"})).await?;
        travelled(testbed, "web", time).await?;
        let patch = Patch::Merge(json!({"spec": {"metrics": [
            {"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}, "missing": {"after": "1h"}},
            {"name": "memory", "source": {"push": {}}, "low": {"raise": "50"}, "missing": {"after": "1h"}},
        ]}}));
        testbed.api::<ClosedLoop>().patch("web", &PatchParams::default(), &patch).await?;
        for cpu in ["20", "21", "22"] {
            push(testbed, "web", json!({"cpu": cpu, "memory": "60"})).await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        has_data(testbed, "web").await?;
        // The summary of a decision is written at most 30 s after the previous one.
        tokio::time::sleep(Duration::from_secs(31)).await;
        let before = testbed.proxy.writes().len();
        tokio::time::sleep(Duration::from_secs(10)).await;
        at_most(testbed, before, 0, "calm, looked at each second")?;
        testbed.kill_and_restart().await?;
        testbed.operator.lock().await.ready().await?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        at_most(testbed, before, 0, "after a restart")
    });
}

#[test]
fn a_storm_leaves_one_effect_for_each_number_and_loses_none() {
    let weather: [(&str, u64, &[Fault]); 4] = [
        ("conflicts", 40, &[Fault::Conflict]),
        ("throttled", 25, &[Fault::TooMany]),
        ("away", 30, &[Fault::Unavailable]),
        ("all", 35, &[Fault::Conflict, Fault::TooMany, Fault::Unavailable, Fault::LostAnswer]),
    ];
    let cases = weather.into_iter().zip(1..);
    let cases =
        cases.map(|((name, percent, faults), seed)| (format!("faults-{name}"), Storm::new(percent, seed, faults)));
    stories(cases.collect(), async |testbed, storm| {
        let done = async {
            scene(testbed, demo()).await?;
            let (first, _) = replicas(testbed, "web").await?;
            let before = testbed.proxy.writes().len();
            testbed.proxy.storm(Some(storm.clone()));
            for _ in 0..5 {
                let time = push(testbed, "web", low()).await?;
                travelled(testbed, "web", time).await?;
            }
            testbed.proxy.storm(None);
            ensure!(
                one_effect_each(testbed, first).await? == 5,
                "{:?}",
                decision_status(testbed, "web").await?.history
            );
            at_most(testbed, before, 150, "a storm")
        };
        match done.await {
            Ok(()) => Ok(()),
            Err(error) => Err(with_loops(testbed, error).await),
        }
    });
}

#[test]
fn watches_that_are_cut_lose_no_sample() {
    loop_story("faults-cut", async |testbed| {
        scene(testbed, demo()).await?;
        let (first, _) = replicas(testbed, "web").await?;
        for _ in 0..5 {
            testbed.proxy.streams().cut();
            let time = push(testbed, "web", low()).await?;
            testbed.proxy.streams().cut();
            travelled(testbed, "web", time).await?;
        }
        ensure!(one_effect_each(testbed, first).await? == 5, "{:?}", decision_status(testbed, "web").await?.history);
        let outcomes: Vec<_> =
            decision_status(testbed, "web").await?.history.iter().map(|entry| entry.outcome).collect();
        ensure!(outcomes == [Some(Outcome::Served); 5], "{outcomes:?}");
        Ok(())
    });
}

#[test]
fn an_api_server_that_is_restarted_costs_no_decision() {
    let own = block_on(Plane::own("loops", 1)).expect("a plane of its own");
    story_on(&own.0, Road::Direct, "faults-restart", async |testbed| {
        let done = async {
            scene(testbed, demo()).await?;
            let (first, _) = replicas(testbed, "web").await?;
            for kill in [false, true] {
                let time = push(testbed, "web", low()).await?;
                let fault: &[&str] = if kill { &["restart", "apiserver", "--kill"] } else { &["restart", "apiserver"] };
                own.0.cluster.fault(fault).await?;
                let mut operator = testbed.operator.lock().await;
                // Without its lease the operator ends, and its kubelet restarts it.
                if operator.ended()?.is_some() {
                    operator.start()?;
                }
                drop(operator);
                travelled(testbed, "web", time).await?;
            }
            ensure!(
                one_effect_each(testbed, first).await? == 2,
                "{:?}",
                decision_status(testbed, "web").await?.history
            );
            Ok(())
        };
        match done.await {
            Ok(()) => Ok(()),
            Err(error) => Err(with_loops(testbed, error).await),
        }
    });
}
