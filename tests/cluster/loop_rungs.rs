//! Actions of loops besides scaling: WorkloadActions, other resources, other fields. Each decision has one effect,
//! regardless of when a process is killed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::decision::Decision;
use ganglion_api::execution::{Execution, ExecutionState};
use ganglion_api::marks;
use ganglion_api::monitoring::Monitoring;
use ganglion_api::receipt::WorkloadActionReceipt;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use testkit::action::with;
use testkit::proxy::Write;
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::loops::{
    ACCOUNT, account, ended, grant, loop_story, make, on, push, ready, replicas, says, travelled, until,
    until_decision_status, with_loops,
};
use testkit::testbed::workload::{Workload, settled};
use testkit::testbed::{Testbed, stories};

/// Time without any event after which a state counts as stable.
const CALM: Duration = Duration::from_secs(3);

/// Permissions to add a replica by a WorkloadAction.
const MAKES: &[(&str, &str, &str)] = &[
    ("ganglion.dev", "workloadactions", "create"),
    ("", "pods/eviction", "create"),
    ("apps", "deployments/scale", "patch"),
];

/// Permissions to resize the pods of a Deployment.
pub const RESIZES: &[(&str, &str, &str)] =
    &[("apps", "deployments", "get"), ("", "pods", "list"), ("", "pods/resize", "patch")];

/// Permissions to patch a Deployment.
pub const PATCHES: &[(&str, &str, &str)] = &[("apps", "deployments", "get"), ("apps", "deployments", "patch")];

/// Lets loops change fields of Deployments, as the administrator.
pub async fn allow_patches(testbed: &Testbed) -> Result<()> {
    allow_patches_of(testbed, "{group: apps, kind: Deployment}").await
}

/// Lets loops change fields of this kind, as the administrator.
pub async fn allow_patches_of(testbed: &Testbed, kind: &str) -> Result<()> {
    let mut operator = testbed.operator.lock().await;
    operator.kill();
    testbed.settings(&format!("closedLoops: {{patchableKinds: [{kind}]}}"))?;
    operator.start()
}

/// An action that adds a quarter of the memory, with additional members.
fn memory(members: Value) -> Value {
    let rung = json!({"container": "main", "resource": "memory", "factor": "1.25", "max": "1Gi"});
    json!({"resize": with(rung, members)})
}

async fn pods(testbed: &Testbed) -> Result<Vec<Pod>> {
    let all = testbed.api::<Pod>().list(&ListParams::default()).await?.items;
    Ok(all.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
}

/// Memory request in the pod's spec.
fn requests(pod: &Pod) -> &str {
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    let requests = container.and_then(|one| one.resources.as_ref()).and_then(|all| all.requests.as_ref());
    requests.and_then(|requests| requests.get("memory")).map_or("", |quantity| &quantity.0)
}

/// Action of a loop, with everything that a story needs to distinguish one effect from two.
#[derive(Clone, Copy, Debug)]
enum Rung {
    Action,
    Resize,
    Patch,
}

impl Rung {
    fn name(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Resize => "resize",
            Self::Patch => "patch",
        }
    }

    /// Number of writes of the hops from a sample to its end, including the effect.
    fn writes(self) -> usize {
        match self {
            // Recorded, decided, claimed, created, in progress, done.
            Self::Action => 6,
            // Recorded, decided, claimed, two pods, done; the kubelet may be slow.
            Self::Resize => 6,
            // Recorded, decided, claimed, patched, done.
            Self::Patch => 5,
        }
    }

    fn json(self) -> Value {
        match self {
            Self::Action => json!({"workloadAction": {"create": {"to": {"where": "node.pods < 1000"}}}}),
            Self::Resize => memory(json!({})),
            Self::Patch => json!({"patch": {"path": "spec.minReadySeconds", "to": "7"}}),
        }
    }

    /// Creates the workload, the account and the loop, and waits until samples are accepted.
    async fn scene(self, testbed: &Testbed) -> Result<()> {
        match self {
            Self::Action => {
                Workload::deployment("web", 1).make(testbed).await?;
                account(testbed, MAKES).await?;
            }
            Self::Resize => {
                Workload::deployment("web", 2).requests(json!({"memory": "256Mi"})).make(testbed).await?;
                account(testbed, RESIZES).await?;
            }
            Self::Patch => {
                allow_patches(testbed).await?;
                Workload::deployment("web", 1).make(testbed).await?;
                account(testbed, PATCHES).await?;
            }
        }
        make(testbed, "web", on("Low", json!([self.json()]))).await?;
        ready(testbed, "web", "True", "Running").await.map(drop)
    }

    /// Number of effects.
    async fn effects(self, testbed: &Testbed) -> Result<usize> {
        match self {
            Self::Action => {
                let all = testbed.api::<WorkloadAction>().list(&ListParams::default()).await?;
                let receipts = testbed.api::<WorkloadActionReceipt>().list(&ListParams::default()).await?;
                let more = usize::try_from(replicas(testbed, "web").await?.1 - 1)?;
                ensure!(all.items.len() == more && receipts.items.len() == more, "{more} more: {all:?} {receipts:?}");
                Ok(more)
            }
            Self::Resize => {
                let pods = pods(testbed).await?;
                let times = |pod: &Pod| pod.metadata.generation.unwrap_or(0) - 1;
                let most = pods.iter().map(times).max().unwrap_or(0);
                let alike = pods.len() == 2 && pods.iter().all(|pod| times(pod) == most && requests(pod) == "320Mi");
                ensure!(alike, "{:?}", pods.iter().map(|pod| (times(pod), requests(pod))).collect::<Vec<_>>());
                Ok(usize::try_from(most)?)
            }
            Self::Patch => {
                let web = testbed.api::<Deployment>().get("web").await?;
                let seconds = web.spec.and_then(|spec| spec.min_ready_seconds);
                ensure!(seconds == Some(7), "{seconds:?}");
                Ok(usize::try_from(web.metadata.generation.unwrap_or(0) - 1)?)
            }
        }
    }
}

/// Whether one of the hops wrote it, not the controller of WorkloadActions. Not counted: the loop's own status, which
/// is written at any time.
fn of_the_hops(write: &Write) -> bool {
    let statuses = ["monitorings/status", "decisions/status", "executions/status"];
    let under_way = write.body.pointer("/status/state") == Some(&json!("Executing"))
        && !write.body.to_string().contains("WorkloadAction ");
    // The controller of WorkloadActions also writes workloads, by merge patches.
    let patched = write.is_on("deployments") && write.body.is_array();
    let effect = write.target == "workloadactions" || write.is_on("pods/resize") || patched;
    effect || (statuses.iter().any(|kind| write.is_on(kind)) && !under_way)
}

async fn done(testbed: &Testbed) -> Result<Execution> {
    until::<Execution, _>(testbed, "web", "the end of the decision", |one| {
        (one.status.as_ref()?.state? == ExecutionState::Done).then_some(one)
    })
    .await
}

/// From a sample to its end, killed at this write or not at all. Returns the number of writes.
async fn acted_once(testbed: &Testbed, rung: Rung, kill: Option<(usize, HoldPoint)>) -> Result<usize> {
    rung.scene(testbed).await?;
    let before = testbed.proxy.writes().len();
    let held = kill.map(|(nth, when)| testbed.proxy.hold(nth, when, of_the_hops));
    let time = push(testbed, "web", json!({"cpu": "2"})).await?;
    if let Some(mut held) = held {
        held.reached().await.context("the proxy went away")?;
        let mut operator = testbed.operator.lock().await;
        operator.kill();
        held.lose();
        operator.start()?;
    }
    let (_, said, _) = travelled(testbed, "web", time).await?;
    ensure!(said == "React to cpu", "{said}");
    done(testbed).await?;
    until_decision_status(testbed, "web", "the decision to count", |one| {
        let served: i64 = one.counters.iter().map(|counter| counter.served).sum();
        (served == 1).then_some(())
    })
    .await?;
    let writes = testbed.proxy.writes().iter().skip(before).filter(|write| of_the_hops(write)).count();
    if kill.is_some() {
        tokio::time::sleep(CALM).await;
    }
    ensure!(rung.effects(testbed).await? == 1, "{} effects instead of one", rung.effects(testbed).await?);
    let decision = testbed.api::<Decision>().get("web").await?.status.unwrap_or_default();
    ensure!(decision.seq == 1, "decision {}", decision.seq);
    Ok(writes)
}

fn killed_at_each_write(rung: Rung) {
    let name = rung.name();
    let mut writes = 0;
    loop_story(&format!("rung-{name}"), async |testbed| {
        writes = acted_once(testbed, rung, None).await?;
        Ok(())
    });
    assert_eq!(writes, rung.writes());
    let both = [HoldPoint::Before, HoldPoint::After];
    let cases = (1..=writes).flat_map(|nth| both.map(|when| (nth, when)));
    let cases = cases.map(|(nth, when)| (format!("rung-{name}-{nth}-{when:?}").to_lowercase(), (nth, when)));
    stories(cases.collect(), async |testbed, kill| match acted_once(testbed, rung, Some(*kill)).await {
        Ok(_) => Ok(()),
        Err(error) => Err(with_loops(testbed, error).await),
    });
}

#[test]
fn a_workload_action_killed_at_each_write_is_made_once() {
    killed_at_each_write(Rung::Action);
}

#[test]
fn a_resize_killed_at_each_write_is_done_once() {
    killed_at_each_write(Rung::Resize);
}

#[test]
fn a_patch_killed_at_each_write_is_done_once() {
    killed_at_each_write(Rung::Patch);
}

#[test]
fn only_fields_that_are_there_and_kinds_that_are_allowed_are_patched() {
    loop_story("rung-patch-allowed", async |testbed| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, PATCHES).await?;
        make(testbed, "web", on("Low", json!([Rung::Patch.json()]))).await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let message = ready(testbed, "web", "False", "NotSupported").await?;
        ensure!(
            message.contains("setting closedLoops.patchableKinds of the operator does not list apps/Deployment"),
            "{message}"
        );

        allow_patches(testbed).await?;
        let number = json!({"patch": {"path": "spec.progressDeadlineSeconds", "by": "100", "min": "1", "max": "650"}});
        let cases = [
            (
                json!({"patch": {"path": "spec.nothing.here", "to": "1"}}),
                Err(("NotScalable", "Deployment web has no field spec.nothing")),
            ),
            (
                json!({"patch": {"path": "spec.paused", "by": "1", "min": "0", "max": "2"}}),
                Err(("SpecInvalid", "spec.paused is not a number")),
            ),
            (number, Ok(("600", "650"))),
        ];
        for (index, (rung, expected)) in cases.into_iter().enumerate() {
            let name = format!("case-{index}");
            testbed.api::<ClosedLoop>().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
            make(testbed, &name, on("Low", json!([rung]))).await?;
            push(testbed, &name, json!({"cpu": "2"})).await?;
            match expected {
                Err((reason, words)) => {
                    let message = ready(testbed, &name, "False", reason).await?;
                    ensure!(message.contains(words), "{message}");
                }
                Ok((before, after)) => {
                    let done = until::<Execution, _>(testbed, &name, "the end", |one| {
                        (one.status.as_ref()?.state? == ExecutionState::Done).then_some(one)
                    })
                    .await?;
                    ensure!(ended(&done) == (Some(ExecutionState::Done), before, after), "{:?}", done.status);
                }
            }
        }
        Ok(())
    });
}

#[test]
fn pods_are_resized_in_place_and_later_ones_have_their_template() {
    loop_story("rung-resize-place", async |testbed| {
        Rung::Resize.scene(testbed).await?;
        let before: Vec<_> = pods(testbed).await?.iter().map(ResourceExt::uid).collect();
        let time = push(testbed, "web", json!({"cpu": "2"})).await?;
        let execution = travelled(testbed, "web", time).await?.2.context("it did not act")?;
        let (state, from, to) = ended(&execution);
        ensure!((state, from, to) == (Some(ExecutionState::Done), "request 256Mi", "request 320Mi"), "{from} {to}");
        let message = execution.status.and_then(|status| status.message).unwrap_or_default();
        ensure!(message.contains("in 2 pods; new pods start with the resources of the template"), "{message}");
        let after: Vec<_> = pods(testbed).await?.iter().map(ResourceExt::uid).collect();
        ensure!(before == after, "pods were replaced");

        // One more pod; only this one still has the old resources.
        testbed.kubectl(&["scale", "deployment", "web", "--replicas=3"], None).await?;
        settled(testbed, "web", 3).await?;
        let time = push(testbed, "web", json!({"cpu": "3"})).await?;
        let execution = travelled(testbed, "web", time).await?.2.context("it did not act")?;
        ensure!(ended(&execution) == (Some(ExecutionState::Done), "request 256Mi", "request 320Mi"), "{execution:?}");
        ensure!(pods(testbed).await?.iter().all(|pod| requests(pod) == "320Mi"), "{:?}", pods(testbed).await?);
        Ok(())
    });
}

#[test]
fn a_resize_in_the_template_is_a_rollout() {
    loop_story("rung-resize-template", async |testbed| {
        Workload::deployment("web", 2).requests(json!({"memory": "256Mi"})).make(testbed).await?;
        account(testbed, RESIZES).await?;
        make(testbed, "web", on("Low", json!([memory(json!({"template": true}))]))).await?;
        let message = ready(testbed, "web", "False", "Forbidden").await?;
        ensure!(message.contains("cannot patch resource \"deployments\""), "{message}");
        push(testbed, "web", json!({"cpu": "2"})).await?;
        until::<Execution, _>(testbed, "web", "the end in the pods", |one| {
            (one.status?.state? == ExecutionState::Failed).then_some(())
        })
        .await?;
        testbed.api::<Role>().delete(ACCOUNT, &DeleteParams::default()).await?;
        testbed.api::<RoleBinding>().delete(ACCOUNT, &DeleteParams::default()).await?;
        grant(testbed, &[RESIZES, &[("apps", "deployments", "patch")]].concat()).await?;
        // A failed rung rests for a minute; another metric has its own ladder.
        let mut spec = on("High", json!([memory(json!({"template": true}))]));
        spec["metrics"][0]["low"] = Value::Null;
        testbed.patch_loop("web", json!({"spec": spec})).await?;
        until::<Decision, _>(testbed, "web", "the new ladder", |one| {
            (one.spec.actions.first()?.when.one()?.side == Side::High).then_some(())
        })
        .await?;
        let time = push(testbed, "web", json!({"cpu": "90"})).await?;
        let execution = travelled(testbed, "web", time).await?.2.context("it did not act")?;
        let message = execution.status.and_then(|status| status.message).unwrap_or_default();
        ensure!(message.ends_with("and in the template"), "{message}");
        settled(testbed, "web", 2).await?;
        ensure!(pods(testbed).await?.iter().all(|pod| requests(pod) == "400Mi"), "{:?}", pods(testbed).await?);
        Ok(())
    });
}

#[test]
fn a_resize_that_a_kubelet_refuses_or_puts_off_is_told_of() {
    let cases = [("infeasible", "Failed"), ("deferred", "Executing")];
    let cases = cases.map(|(word, state)| (format!("rung-resize-{word}"), (word, state)));
    stories(cases.into(), async |testbed, (word, state)| {
        Workload::deployment("web", 1)
            .requests(json!({"memory": "256Mi"}))
            .annotate("kwok.ganglion.dev/resize", word)
            .make(testbed)
            .await?;
        account(testbed, RESIZES).await?;
        make(testbed, "web", on("Low", json!([Rung::Resize.json()]))).await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        until::<Execution, _>(testbed, "web", "the kubelet's words", |one| {
            let status = one.status?;
            let there = format!("{:?}", status.state?) == *state && status.message?.contains("Node didn't have enough");
            there.then_some(())
        })
        .await
    });
}

#[test]
fn a_workload_action_is_the_loops_own_and_its_end_is_the_end() {
    loop_story("rung-action-end", async |testbed| {
        Rung::Action.scene(testbed).await?;
        // Only the end of the action triggers the loop again.
        testbed.patch_loop("web", json!({"spec": {"interval": "24h"}})).await?;
        until::<Monitoring, _>(testbed, "web", "the interval", |one| {
            (one.spec.interval?.as_str() == "24h").then_some(())
        })
        .await?;
        // Holds the action when it starts to work, so that it can be observed in progress.
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| write.is_on("pods"));
        let time = push(testbed, "web", json!({"cpu": "2"})).await?;
        held.reached().await.context("no pod was made")?;
        let words = until::<Execution, _>(testbed, "web", "the action to be under way", |one| {
            let status = one.status?;
            (status.state? == ExecutionState::Executing).then_some(status.message?)
        })
        .await?;
        held.release();
        let execution = travelled(testbed, "web", time).await?.2.context("it did not act")?;
        let all = testbed.api::<WorkloadAction>().list(&ListParams::default()).await?;
        let action = all.items.first().context("no action")?;
        let name = action.name_any();
        ensure!(
            name.starts_with("web-1-") && words.starts_with(&format!("WorkloadAction {name}: ")),
            "{name}: {words}"
        );
        let owner = action.owner_references().first().context("no owner")?;
        ensure!((owner.kind.as_str(), &owner.uid) == ("Execution", &execution.uid().unwrap_or_default()), "{owner:?}");
        ensure!(action.labels().get(marks::LOOP).is_some_and(|name| name == "web"), "{:?}", action.labels());
        ensure!(action.spec.ttl_seconds_after_finished == Some(3600), "{:?}", action.spec);
        let after = format!("WorkloadAction {name}");
        ensure!(ended(&execution) == (Some(ExecutionState::Done), "", after.as_str()), "{:?}", execution.status);

        // A failed action fails the decision, with the action's message.
        let spec = on("Low", json!([{"workloadAction": {"create": {"to": {"nodeName": "nowhere"}}}}]));
        testbed.patch_loop("web", json!({"spec": spec})).await?;
        until::<Decision, _>(testbed, "web", "the new ladder", |one| {
            one.spec.actions.first()?.ladder.first()?.workload_action.as_ref()?.create.as_ref()?.to.node_name.clone()
        })
        .await?;
        push(testbed, "web", json!({"cpu": "1"})).await?;
        let message = says(testbed, "web", "LastActionSucceeded", ("False", "Failed")).await?;
        ensure!(message.contains("WorkloadAction web-2-") && message.contains("nowhere"), "{message}");
        ensure!(replicas(testbed, "web").await?.1 == 2, "it created more replicas");
        Ok(())
    });
}

/// No replica has a reason to move when the action begins.
#[test]
fn a_move_that_finds_no_replica_gives_way_to_the_next_rung() {
    loop_story("rung-action-nothing", async |testbed| {
        Workload::deployment("web", 1).make(testbed).await?;
        account(testbed, &[MAKES, &[("apps", "deployments", "get")]].concat()).await?;
        let (from, to) = (json!({"where": "node.name == 'elsewhere'"}), json!({"where": "node.pods < 1000"}));
        let moved = json!({"workloadAction": {"move": {"from": from, "to": to, "count": 2}}});
        make(testbed, "web", on("Low", json!([moved, {"scale": {"by": 1, "max": 5}}]))).await?;
        ready(testbed, "web", "True", "Running").await?;
        let time = push(testbed, "web", json!({"cpu": "2"})).await?;
        let status = travelled(testbed, "web", time).await?.2.and_then(|execution| execution.status);
        let status = status.context("it did not act")?;
        let message = status.message.unwrap_or_default();
        ensure!(status.state == Some(ExecutionState::Limited) && message.contains("nothing to do"), "{message}");
        ensure!(status.carried_out.is_none(), "{:?}", status.carried_out);
        says(testbed, "web", "LastActionSucceeded", ("True", "Limited")).await?;
        let actions = testbed.api::<WorkloadAction>().list(&ListParams::default()).await?.items;
        let status = actions.first().and_then(|action| action.status.clone()).context("no action")?;
        ensure!(status.summary.is_some_and(|summary| summary.done == "0/0"), "{:?}", status.conditions);

        let time = push(testbed, "web", json!({"cpu": "2"})).await?;
        travelled(testbed, "web", time).await?.2.context("it did not act")?;
        ensure!(replicas(testbed, "web").await?.1 == 2, "the next rung scales");
        Ok(())
    });
}

/// The account needs the permissions of the action's author.
#[test]
fn an_action_that_the_loop_may_not_make_names_the_right() {
    let resources = ["\"workloadactions\"", "\"pods/eviction\"", "\"deployments/scale\""];
    let cases = (0..).zip(resources).map(|(has, lacks)| (format!("rung-action-right-{has}"), (has, lacks)));
    stories(cases.collect(), async |testbed, (has, lacks)| {
        Workload::deployment("web", 1).create(testbed).await?;
        account(testbed, &MAKES[..*has]).await?;
        make(testbed, "web", on("Low", json!([Rung::Action.json()]))).await?;
        push(testbed, "web", json!({"cpu": "2"})).await?;
        let message = ready(testbed, "web", "False", "Forbidden").await?;
        for words in ["grant service account web-loop", *lacks] {
            ensure!(message.contains(words), "{words} is not in {message}");
        }
        Ok(())
    });
}
