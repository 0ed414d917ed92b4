//! Conditions under which a loop acts: its mode and the limits of its policy, as shown by `kubectl get dec,exe`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::closed_loop::{ClosedLoop, LoopMode};
use ganglion_api::decision::{Decision, Outcome};
use ganglion_api::execution::{Execution, ExecutionState};
use ganglion_api::marks;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use testkit::proxy::Write;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::loops::{
    SCALES, account, condition, ended, loop_story, make, on, push, ready, replicas, travelled, until,
    until_decision_status, with_loops,
};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, stories};

/// Time without any event after which a state counts as stable.
const CALM: Duration = Duration::from_secs(3);

fn up() -> Value {
    on("Low", json!([{"scale": {"by": 1, "max": 100}}]))
}

/// A Deployment `web` with one replica, and a loop on it.
async fn scene(testbed: &Testbed, spec: Value) -> Result<()> {
    Workload::deployment("web", 1).create(testbed).await?;
    account(testbed, SCALES).await?;
    make(testbed, "web", spec).await?;
    let ready_is = testbed.api::<ClosedLoop>().get("web").await?.spec.mode;
    if ready_is == LoopMode::Paused {
        return ready(testbed, "web", "True", "Paused").await.map(drop);
    }
    ready(testbed, "web", "True", "Running").await.map(drop)
}

/// Changes the mode, and waits until the hops have adopted it.
async fn switch(testbed: &Testbed, mode: &str) -> Result<()> {
    testbed.patch_loop("web", json!({"spec": {"mode": mode}})).await?;
    let wanted = json!(mode);
    until::<Decision, _>(testbed, "web", "the mode to reach the hops", |one| {
        let seen = one.status.as_ref()?.observed_generation == one.metadata.generation;
        (seen && json!(one.spec.mode) == wanted).then_some(())
    })
    .await
}

async fn said(testbed: &Testbed, cpu: &str) -> Result<String> {
    let time = push(testbed, "web", json!({"cpu": cpu})).await?;
    Ok(travelled(testbed, "web", time).await?.1)
}

/// Waits until the loop reports this about a sample that is not acted on.
async fn says(testbed: &Testbed, cpu: &str, words: &str) -> Result<()> {
    let time = push(testbed, "web", json!({"cpu": cpu})).await?;
    let message = until::<Decision, _>(testbed, "web", &format!("{words:?} about {cpu}"), |one| {
        let status = one.status?;
        (status.tag?.time.0 >= time).then_some(status.message?)
    })
    .await?;
    ensure!(message.contains(words), "{words:?} is not in {message:?}");
    let table = testbed.kubectl(&["get", "dec,exe"], None).await?;
    ensure!(table.contains(words), "{words:?} is not in\n{table}");
    Ok(())
}

async fn last(testbed: &Testbed) -> Result<Option<Outcome>> {
    let status = testbed.api::<Decision>().get("web").await?.status.unwrap_or_default();
    Ok(status.history.last().and_then(|entry| entry.outcome))
}

#[test]
fn a_dry_run_says_what_it_would_do_and_changes_nothing() {
    loop_story("modes-dry", async |testbed| {
        let mut spec = up();
        spec["mode"] = json!("DryRun");
        scene(testbed, spec).await?;
        let (first, _) = replicas(testbed, "web").await?;
        let message = said(testbed, "2").await?;
        ensure!(message == "Would react to cpu", "{message}");
        let entry = testbed.api::<Decision>().get("web").await?.status.unwrap_or_default().history;
        let entry = entry.last().context("nothing in the history")?;
        ensure!(entry.action == "scale by 1, at most 100" && entry.outcome == Some(Outcome::DryRun), "{entry:?}");
        ensure!(replicas(testbed, "web").await? == (first, 1), "it acted");

        switch(testbed, "Auto").await?;
        let message = said(testbed, "3").await?;
        ensure!(message == "React to cpu" && replicas(testbed, "web").await? == (first + 1, 2), "{message}");
        switch(testbed, "DryRun").await?;
        let message = said(testbed, "2").await?;
        ensure!(message == "Would react to cpu" && replicas(testbed, "web").await? == (first + 1, 2), "{message}");
        Ok(())
    });
}

/// Writes the annotation by hand, and waits until the operator has observed it.
async fn approve(testbed: &Testbed, digest: &str) -> Result<()> {
    testbed.patch_loop("web", json!({"metadata": {"annotations": {marks::APPROVE: digest}}})).await?;
    let arrived = |one: Execution| (one.spec.approve.as_deref() == Some(digest)).then_some(());
    until::<Execution, _>(testbed, "web", "the approval", arrived).await
}

#[test]
fn a_proposal_waits_for_its_digest_and_ends_with_its_alarm() {
    loop_story("modes-approve", async |testbed| {
        let mut spec = up();
        spec["mode"] = json!("Approve");
        scene(testbed, spec).await?;
        let (first, _) = replicas(testbed, "web").await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let digest = until::<Decision, _>(testbed, "web", "the proposal", |one| {
            let status = one.status.filter(|status| status.message.as_deref() == Some("Propose to react to cpu"))?;
            status.chosen?.digest
        })
        .await?;
        let advice = format!("approve it with the annotation ganglion.dev/approve={digest}, see `ganglion approve`");
        says(testbed, "3", &format!("decision 1 is a proposal; {advice}")).await?;
        // The sequence number of the decision is not an approval.
        approve(testbed, "1").await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        tokio::time::sleep(CALM).await;
        ensure!(replicas(testbed, "web").await? == (first, 1), "it acted without approval");

        let (good, output) = testbed.ganglion(&["approve", "web"]).await?;
        let asked = format!("to approve it: ganglion approve web {digest}");
        ensure!(good && output.contains("proposes: ") && output.contains(&asked), "{output}");
        let (good, output) = testbed.ganglion(&["approve", "web", "0123456789"]).await?;
        ensure!(!good && output.contains("the proposal changed"), "{output}");
        let (good, output) = testbed.ganglion(&["approve", "web", &digest]).await?;
        ensure!(good && output.starts_with("approved decision 1 of loop"), "{output}");
        let done = until::<Execution, _>(testbed, "web", "what was approved", |one| {
            (one.status.as_ref()?.state? == ExecutionState::Done).then_some(one)
        })
        .await?;
        ensure!(ended(&done) == (Some(ExecutionState::Done), "1", "2"), "{:?}", done.status);

        // The approval of one proposal does not approve the next one, and is too late when the alarm is over.
        until_decision_status(testbed, "web", "the decision to count", |one| one.chosen?.outcome).await?;
        push(testbed, "web", json!({"cpu": "3"})).await?;
        let second = until::<Decision, _>(testbed, "web", "the second proposal", |one| {
            one.status?.chosen.filter(|chosen| chosen.seq == 2)?.digest
        })
        .await?;
        let message = said(testbed, "20").await?;
        ensure!(message == "No Event" && last(testbed).await? == Some(Outcome::Withdrawn), "{message}");
        approve(testbed, &second).await?;
        tokio::time::sleep(CALM).await;
        ensure!(replicas(testbed, "web").await? == (first + 1, 2), "a withdrawn proposal was performed");
        Ok(())
    });
}

/// The answer to a write of the loop's status contains the approval before the watch reports it.
#[test]
fn an_approval_beside_a_write_of_the_status_is_carried_out() {
    loop_story("modes-beside", async |testbed| {
        let mut spec = up();
        spec["mode"] = json!("Approve");
        scene(testbed, spec).await?;
        testbed.proxy.streams().delay("closedloops", Duration::from_secs(2));
        let awaits = |write: &Write| write.is_on("closedloops/status") && write.reason() == Some("AwaitsApproval");
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, awaits);
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let digest = until::<Decision, _>(testbed, "web", "the proposal", |one| one.status?.chosen?.digest).await?;
        held.reached().await.context("the status of the loop was not written")?;
        testbed.patch_loop("web", json!({"metadata": {"annotations": {marks::APPROVE: digest}}})).await?;
        held.release();
        until::<Execution, _>(testbed, "web", "what was approved", |one| {
            (one.status?.state? == ExecutionState::Done).then_some(())
        })
        .await
    });
}

#[test]
fn what_was_claimed_before_a_pause_is_not_carried_out_after_a_restart() {
    loop_story("modes-pause", async |testbed| {
        scene(testbed, up()).await?;
        let (first, _) = replicas(testbed, "web").await?;
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| write.is_on("deployments/scale"));
        push(testbed, "web", json!({"cpu": "2"})).await?;
        held.reached().await.context("it was never scaled")?;
        testbed.patch_loop("web", json!({"spec": {"mode": "Paused"}})).await?;
        {
            let mut operator = testbed.operator.lock().await;
            operator.kill();
            held.lose();
            operator.start()?;
        }
        until::<Execution, _>(testbed, "web", "the end of what was claimed", |one| {
            (one.status?.state? == ExecutionState::Overtaken).then_some(())
        })
        .await?;
        ready(testbed, "web", "True", "Paused").await?;
        push(testbed, "web", json!({"cpu": "3"})).await?;
        until::<Decision, _>(testbed, "web", "the pause", |one| (one.status?.message? == "Paused").then_some(()))
            .await?;
        ensure!(replicas(testbed, "web").await? == (first, 1), "{:?}", replicas(testbed, "web").await?);
        // The sample that was pushed meanwhile is still valid, and is acted on once.
        switch(testbed, "Auto").await?;
        until_decision_status(testbed, "web", "the sample to be acted on", |one| {
            let chosen = one.chosen?;
            (chosen.seq == 2 && chosen.outcome? == Outcome::Served).then_some(())
        })
        .await?;
        tokio::time::sleep(CALM).await;
        ensure!(replicas(testbed, "web").await? == (first + 1, 2), "{:?}", replicas(testbed, "web").await?);
        Ok(())
    });
}

/// An approved proposal, and a change of the mode while it is being performed.
#[test]
fn a_change_of_mode_in_the_middle_does_nothing_twice() {
    let modes = ["DryRun", "Approve", "Auto"].map(|mode| (format!("modes-to-{mode}").to_lowercase(), mode));
    stories(modes.into(), async |testbed, mode| {
        let reported = async {
            let mut spec = up();
            spec["mode"] = json!("Approve");
            scene(testbed, spec).await?;
            let (first, _) = replicas(testbed, "web").await?;
            let mut held = testbed.proxy.hold(1, HoldPoint::After, |write| write.is_on("deployments/scale"));
            push(testbed, "web", json!({"cpu": "2"})).await?;
            let digest = until::<Decision, _>(testbed, "web", "the proposal", |one| one.status?.chosen?.digest).await?;
            testbed.patch_loop("web", json!({"metadata": {"annotations": {marks::APPROVE: digest}}})).await?;
            held.reached().await.context("it was never scaled")?;
            testbed.patch_loop("web", json!({"spec": {"mode": mode}})).await?;
            let mut operator = testbed.operator.lock().await;
            operator.kill();
            held.lose();
            operator.start()?;
            drop(operator);
            until_decision_status(testbed, "web", "the decision to count", |one| {
                (one.chosen?.outcome? == Outcome::Served).then_some(())
            })
            .await?;
            let message = said(testbed, "20").await?;
            ensure!(message == "No Event" && replicas(testbed, "web").await? == (first + 1, 2), "{message}");
            Ok(())
        };
        match reported.await {
            Ok(()) => Ok(()),
            Err(error) => Err(with_loops(testbed, error).await),
        }
    });
}

#[test]
fn limits_hold_and_say_until_when() {
    let always = json!([{"cron": "* * * * *", "duration": "2m"}]);
    let cases = [
        ("dwell", json!({"dwell": "1h"}), "Hold cpu: dwell: no action before 2"),
        (
            "budget",
            json!({"budget": {"max": 1, "per": "1h"}}),
            "Hold cpu: all 1 actions of the budget are used until 2",
        ),
        ("limit", json!({"limits": [{"name": "market-days", "during": always, "dwell": "1h"}]}), "(limit market-days)"),
    ];
    let cases = cases.map(|(name, policy, words)| (format!("modes-{name}"), (policy, words)));
    stories(cases.into(), async |testbed, (policy, words)| {
        let mut spec = up();
        spec["policy"] = policy.clone();
        scene(testbed, spec).await?;
        let message = said(testbed, "2").await?;
        ensure!(message == "React to cpu", "{message}");
        says(testbed, "3", words).await?;
        ensure!(replicas(testbed, "web").await?.1 == 2, "it acted");
        Ok(())
    });
}

#[test]
fn an_action_is_done_at_its_times_only() {
    loop_story("modes-during", async |testbed| {
        let seldom = json!([{"start": "0 0 29 2 *", "until": "0 1 * * *"}]);
        let mut spec = up();
        spec["actions"][0]["during"] = json!([{"cron": "* * * * *", "duration": "2m", "timeZone": "Europe/Berlin"}]);
        scene(testbed, spec.clone()).await?;
        let message = said(testbed, "2").await?;
        ensure!(message == "React to cpu", "{message}");
        spec["actions"][0]["during"] = seldom;
        testbed.patch_loop("web", json!({"spec": {"actions": spec["actions"]}})).await?;
        until::<Decision, _>(testbed, "web", "the new window", |one| {
            (one.spec.actions.first()?.during.as_ref()?.first()?.start.as_deref() == Some("0 0 29 2 *")).then_some(())
        })
        .await?;
        says(testbed, "3", "Hold cpu: outside its window; opens 20").await?;
        ensure!(replicas(testbed, "web").await?.1 == 2, "it acted");
        Ok(())
    });
}

#[test]
fn a_loop_that_goes_to_and_fro_is_damped_or_frozen() {
    let cases = [("Damp", "capacity is not lowered until 2", "90"), ("Freeze", "no action until 2", "2")];
    let cases = cases.map(|(then, words, cpu)| (format!("modes-{then}").to_lowercase(), (then, words, cpu)));
    stories(cases.into(), async |testbed, (then, words, cpu)| {
        let mut spec = up();
        spec["policy"] = json!({"oscillation": {"reversals": 2, "per": "1h", "then": then}});
        spec["actions"] = json!([
            {"when": {"metric": "cpu", "side": "Low"}, "ladder": [{"scale": {"by": 1, "max": 100}}]},
            {"when": {"metric": "cpu", "side": "High"}, "ladder": [{"scale": {"by": -1, "min": 1}}]},
        ]);
        scene(testbed, spec).await?;
        for cpu in ["2", "90", "3"] {
            let message = said(testbed, cpu).await?;
            ensure!(message == "React to cpu", "{message}");
        }
        ensure!(replicas(testbed, "web").await?.1 == 2, "{:?}", replicas(testbed, "web").await?);
        says(testbed, cpu, words).await?;
        ensure!(replicas(testbed, "web").await?.1 == 2, "it acted");
        if *then == "Damp" {
            let message = said(testbed, "1").await?;
            ensure!(message == "React to cpu", "what raises is not damped: {message}");
        }
        Ok(())
    });
}

#[test]
fn a_window_says_when_it_opens_and_one_that_never_opens_is_refused() {
    loop_story("modes-window", async |testbed| {
        let mut spec = up();
        let tomorrow = (Timestamp::now() + SignedDuration::from_hours(20)).strftime("%H").to_string();
        spec["actions"][0]["during"] = json!([{"cron": format!("30 {tomorrow} * * *"), "duration": "1h"}]);
        scene(testbed, spec).await?;
        says(testbed, "2", &format!("outside its window; opens {tomorrow}:30 UTC")).await?;

        for cron in ["0 0 31 2,4,6,9,11 *", "0 0 29 2 +THU"] {
            let window = json!([{"cron": cron, "duration": "1h"}]);
            let action = json!({"when": {"metric": "cpu", "side": "Low"}, "ladder": up()["actions"][0]["ladder"], "during": window});
            testbed.patch_loop("web", json!({"spec": {"actions": [action]}})).await?;
            let words = format!("during[0].cron: {cron:?} names a time that does not come within five years");
            until::<ClosedLoop, _>(testbed, "web", &format!("{words:?}"), |one| {
                let conditions = one.status?.conditions;
                let stalled = condition(&conditions, "Stalled")?;
                (stalled.reason == "SpecInvalid" && stalled.message.contains(&words)).then_some(())
            })
            .await?;
            ready(testbed, "web", "False", "SpecInvalid").await?;
        }
        Ok(())
    });
}
