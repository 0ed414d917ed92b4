//! `kubectl events --for` of a workload, a node, an action, a loop and a pool is a story in order, each event once,
//! with the name of the other object; also if the operator is killed, or another replica leads. A noisy object has few
//! events.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use testkit::TIMEOUT;
use testkit::action::{deployment, with};
use testkit::operator::SHORT_LEASE;
use testkit::plugin::Plugin;
use testkit::proxy::gate::{Held, HoldPoint};
use testkit::testbed::loops::{SCALES, account, loop_story, make, on, push, ready, travelled};
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::pools::{self, WORKERS, pool_story};
use testkit::testbed::workload::Workload;
use testkit::testbed::{Testbed, stories, story};
use testkit::verdict::{node_of, pods_of};

use crate::crash::kill_at;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

const DONE: (&str, &str) = ("True", "Succeeded");

/// Reasons of events of other components.
const OTHERS: [&str; 5] =
    ["ScalingReplicaSet", "SuccessfulCreate", "RegisteredNode", "NodeNotSchedulable", "NodeSchedulable"];

/// A line of `kubectl events`.
#[derive(Debug)]
struct EventLine {
    age: String,
    reason: String,
    note: String,
}

/// The operator's events about an object, as `kubectl events --for` shows them.
async fn events_for(testbed: &Testbed, object: &str) -> Result<Vec<EventLine>> {
    let namespace = if object.starts_with("node/") { "default" } else { &testbed.ns };
    // `kubectl events` does not find a kind that is newer than its cache; `kubectl get` renews it.
    testbed.kubectl(&["get", object], None).await?;
    let table = testbed.plane.cluster.kubectl(&["-n", namespace, "events", "--for", object], None).await?;
    let mut lines = table.lines();
    let at = lines.next().and_then(|head| head.find("TYPE")).unwrap_or_default();
    let mut events = Vec::new();
    for line in lines {
        let (age, rest) = line.split_at_checked(at).with_context(|| format!("a short line in\n{table}"))?;
        let (_, rest) = rest.split_once(char::is_whitespace).context("no type")?;
        let (reason, rest) = rest.trim_start().split_once(char::is_whitespace).context("no reason")?;
        let (_, note) = rest.trim_start().split_once(char::is_whitespace).context("no object")?;
        let [age, reason, note] = [age, reason, note].map(|part| part.trim().to_owned());
        if !OTHERS.contains(&&*reason) {
            events.push(EventLine { age, reason, note });
        }
    }
    Ok(events)
}

/// Checks that the events about an object are exactly these, in this order: reason, and a part of the note.
async fn reads(testbed: &Testbed, object: &str, expected: &[(&str, &str)]) -> Result<()> {
    let events = events_for(testbed, object).await?;
    let is_same = |(event, (reason, part)): (&EventLine, &(&str, &str))| {
        event.reason == *reason && event.note.contains(part) && !event.age.contains('x')
    };
    let matches = events.len() == expected.len() && events.iter().zip(expected).all(is_same);
    ensure!(matches, "the story of {object} is {events:#?}, not {expected:#?}");
    Ok(())
}

/// Ends the operator and starts it again, so that it may publish an event twice. Callers wait for the last event first:
/// a process that ends waits for its events only for a limited time.
async fn restart(testbed: &Testbed) -> Result<()> {
    let mut operator = testbed.operator.lock().await;
    operator.ready().await?;
    operator.leads().await?;
    operator.signal("-TERM")?;
    let ended = operator.end().await?.context("it did not end")?;
    ensure!(ended.success(), "{ended}");
    operator.kill();
    operator.start()?;
    operator.ready().await?;
    operator.leads().await
}

/// The operator's events with this reason about objects of this kind and name.
async fn stored(testbed: &Testbed, about: (&str, &str), reason: &str) -> Result<Vec<Event>> {
    let namespace = if about.0 == "Node" { "default" } else { &testbed.ns };
    let events: Api<Event> = Api::namespaced(testbed.client.clone(), namespace);
    let of_reason = ListParams::default().fields(&format!("reason={reason}"));
    let is_about = |event: &Event| {
        let object = event.regarding.as_ref();
        object.is_some_and(|object| (object.kind.as_deref(), object.name.as_deref()) == (Some(about.0), Some(about.1)))
    };
    Ok(events.list(&of_reason).await?.into_iter().filter(is_about).collect())
}

/// Number of these events. Repeated events count as often.
async fn count(testbed: &Testbed, about: (&str, &str), reason: &str) -> Result<i32> {
    let events = stored(testbed, about, reason).await?;
    Ok(events.into_iter().map(|event| event.series.map_or(1, |series| series.count)).sum())
}

/// Waits until there is such an event.
async fn until_event(testbed: &Testbed, about: (&str, &str), reason: &str) -> Result<()> {
    until_events(testbed, about, reason, 1).await
}

/// Waits until there are so many of these events.
async fn until_events(testbed: &Testbed, about: (&str, &str), reason: &str, times: i32) -> Result<()> {
    let wait = async {
        while count(testbed, about, reason).await? < times {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(TIMEOUT, wait).await.with_context(|| format!("no {times} events {reason} of {about:?}"))?
}

/// Two nodes, and a Deployment `web` with two replicas on the first one.
async fn on_the_first(testbed: &Testbed) -> Result<TestNodes> {
    let nodes = testbed.nodes(2, Size::default()).await?;
    nodes.open_only(&[&nodes.names[0]]).await?;
    Workload::deployment("web", 2).label("part-of", "shop").spec(nodes.terms()).make(testbed).await?;
    nodes.open_all().await?;
    Ok(nodes)
}

fn off_the_first(nodes: &TestNodes) -> Value {
    let to = json!({"nodeName": nodes.names[1]});
    json!({"move": {"workload": deployment("web"), "from": {"nodeName": nodes.names[0]}, "to": to, "count": 1}})
}

/// Checks the story of that move, as each of the objects tells it.
async fn tells_the_move(testbed: &Testbed, nodes: &TestNodes) -> Result<()> {
    let [from, to] = [0, 1].map(|at| nodes.names[at].as_str());
    let by = format!("by WorkloadAction {}/go", testbed.ns);
    let moved = format!("1 replica of Deployment {}/web", testbed.ns);
    reads(testbed, "wa/go", &[("Planned", "web"), ("Succeeded", "web")]).await?;
    let workload = [
        ("ActionStarted", format!("WorkloadAction go (Move) started: 1 replica from {from} to {to}")),
        ("ActionSucceeded", format!("WorkloadAction go (Move) succeeded: 1 replica from {from} to {to}")),
    ];
    reads(testbed, "deployment/web", &workload.each_ref().map(|(reason, note)| (*reason, note.as_str()))).await?;
    reads(testbed, &format!("node/{from}"), &[("ReplicasLeft", &format!("{moved} left, {by}"))]).await?;
    reads(testbed, &format!("node/{to}"), &[("ReplicasArrived", &format!("{moved} arrived, {by}"))]).await
}

#[test]
fn a_move_is_a_story_of_the_action_the_workload_and_both_nodes() {
    story("events-move", async |testbed| {
        let nodes = on_the_first(testbed).await?;
        testbed.act("go", off_the_first(&nodes)).await?;
        testbed.ends("go", DONE).await?;
        until_event(testbed, ("Node", &nodes.names[1]), "ReplicasArrived").await?;
        restart(testbed).await?;
        tells_the_move(testbed, &nodes).await
    });
}

/// Kills the process at the held write, lets it, or another replica, finish, and starts it again.
async fn finished_by_another(
    testbed: &Testbed,
    held: Held,
    other_leads: bool,
    finished: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    if other_leads {
        let mut second = testbed.another("two")?;
        second.start()?;
        second.ready().await?;
        testbed.operator.lock().await.kill();
        held.lose();
        finished().await?;
        second.stop().await?;
        testbed.operator.lock().await.start()?;
    } else {
        kill_at(testbed, held).await?;
        finished().await?;
    }
    restart(testbed).await
}

/// The first process is killed after the server has evicted the pod, before it is recorded. The story is complete,
/// whether the same replica or another one finishes the action.
#[test]
fn a_move_that_another_process_finishes_is_the_same_story() {
    let cases = [("events-killed".to_owned(), false), ("events-leader".to_owned(), true)];
    stories(cases.into(), async |testbed, other_leads| {
        testbed.settings(SHORT_LEASE)?;
        testbed.kill_and_restart().await?;
        let nodes = on_the_first(testbed).await?;
        let mut held = testbed.proxy.hold(1, HoldPoint::After, |write| write.is_on("pods/eviction"));
        testbed.act("go", off_the_first(&nodes)).await?;
        tokio::time::timeout(TIMEOUT, held.reached()).await?.context("no eviction")?;
        until_event(testbed, ("Deployment", "web"), "ActionStarted").await?;
        let finished = async || {
            testbed.ends("go", DONE).await?;
            until_event(testbed, ("Node", &nodes.names[1]), "ReplicasArrived").await
        };
        finished_by_another(testbed, held, *other_leads, finished).await?;
        tells_the_move(testbed, &nodes).await
    });
}

/// The process is killed at the write of each event. An event that the server has stored appears once; those that wait
/// behind it are lost with the process, and nothing appears twice.
#[test]
fn a_process_killed_while_it_sends_an_event_leaves_none_twice() {
    let cases = (1..=5).flat_map(|nth| {
        [HoldPoint::Before, HoldPoint::After].map(|when| (format!("events-{nth}-{when:?}").to_lowercase(), (nth, when)))
    });
    stories(cases.collect(), async |testbed, (nth, when)| {
        let nodes = on_the_first(testbed).await?;
        let mut held = testbed.proxy.hold_event(*nth, *when);
        testbed.act("go", off_the_first(&nodes)).await?;
        tokio::time::timeout(TIMEOUT, held.reached()).await?.context("no such event")?;
        kill_at(testbed, held).await?;
        testbed.ends("go", DONE).await?;
        restart(testbed).await?;
        let all = [
            (("WorkloadAction", "go"), "Planned"),
            (("Deployment", "web"), "ActionStarted"),
            (("WorkloadAction", "go"), "Succeeded"),
            (("Deployment", "web"), "ActionSucceeded"),
            (("Node", nodes.names[0].as_str()), "ReplicasLeft"),
        ];
        let sent = if *when == HoldPoint::After { *nth } else { *nth - 1 };
        for (at, (about, reason)) in all.into_iter().enumerate() {
            let count = count(testbed, about, reason).await?;
            ensure!(count <= 1 && (at >= sent || count == 1), "{reason} of {about:?} appears {count} times");
        }
        Ok(())
    });
}

#[test]
fn a_drain_is_a_story_of_its_node() {
    story("events-drain", async |testbed| {
        let nodes = on_the_first(testbed).await?;
        let user = Plugin::new(&testbed.administrator().await?).await?;
        let done = user.command(&["drain", &nodes.names[0]]).output().await?;
        ensure!(done.status.success(), "{done:?}");
        ensure!(pods_of(&testbed.eye.now(), "web").all(|pod| node_of(pod) == nodes.names[1]), "it is not empty");
        until_event(testbed, ("Node", &nodes.names[0]), "ReplicasLeft").await?;
        restart(testbed).await?;
        let events = events_for(testbed, &format!("node/{}", nodes.names[0])).await?;
        let left = format!("2 replicas of Deployment {}/web left, by WorkloadAction {}/", testbed.ns, testbed.ns);
        let told: Vec<(&str, bool)> =
            events.iter().map(|event| (event.reason.as_str(), event.note.starts_with(&left))).collect();
        ensure!(told == [("ReplicasLeft", true)], "{events:#?}");

        let [to, from] = [0, 1].map(|at| nodes.names[at].as_str());
        testbed.kubectl(&["uncordon", to], None).await?;
        let places = json!({"from": {"nodeName": from}, "to": {"nodeName": to}});
        testbed.act("back", json!({"moveApplication": with(json!({"selector": {"part-of": "shop"}}), places)})).await?;
        testbed.ends("back", DONE).await?;
        until_event(testbed, ("Node", from), "ActionSucceeded").await?;
        restart(testbed).await?;
        let by = format!("WorkloadAction {}/back", testbed.ns);
        let events = [
            ("ReplicasArrived", "2 replicas"),
            ("ActionStarted", &format!("{by} (MoveApplication) started")),
            ("ReplicasLeft", "2 replicas"),
            ("ActionSucceeded", &format!("{by} (MoveApplication) succeeded, 2/2 replicas")),
        ];
        reads(testbed, &format!("node/{from}"), &events).await
    });
}

/// A Deployment `web` with one replica, and a loop that scales it up while cpu is low.
async fn scaled_up(testbed: &Testbed) -> Result<()> {
    Workload::deployment("web", 1).make(testbed).await?;
    account(testbed, SCALES).await?;
    make(testbed, "web", on("Low", json!([{"scale": {"by": 1, "max": 1000}}]))).await?;
    ready(testbed, "web", "True", "Running").await.map(drop)
}

async fn scale(testbed: &Testbed) -> Result<()> {
    let time = push(testbed, "web", json!({"cpu": "2"})).await?;
    ensure!(travelled(testbed, "web", time).await?.2.is_some(), "no act");
    Ok(())
}

#[test]
fn a_loop_that_scales_is_a_story_of_the_loop_and_the_workload() {
    loop_story("events-loop", async |testbed| {
        scaled_up(testbed).await?;
        for _ in 0..3 {
            scale(testbed).await?;
        }
        for kind in ["ClosedLoop", "Deployment"] {
            until_events(testbed, (kind, "web"), "Scaled", 3).await?;
        }
        restart(testbed).await?;
        let change = |from: usize| format!("replicas {from} → {}: cpu 2 is below 5", from + 1);
        let told = |name: &str| [1, 2, 3].map(|from| format!("{name}: {}", change(from)));
        for (object, other) in [("loop/web", "Deployment/web"), ("deployment/web", "ClosedLoop web")] {
            let notes = told(other);
            reads(testbed, object, &notes.each_ref().map(|note| ("Scaled", note.as_str()))).await?;
        }
        Ok(())
    });
}

/// The process is killed after the target was scaled, before that is recorded.
#[test]
fn a_decision_that_another_process_finishes_is_told_once() {
    let cases = [("events-loop-killed".to_owned(), false), ("events-loop-leader".to_owned(), true)];
    stories(cases.into(), async |testbed, other_leads| {
        testbed.settings(SHORT_LEASE)?;
        testbed.kill_and_restart().await?;
        scaled_up(testbed).await?;
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| {
            write.is_on("executions/status") && write.body.pointer("/status/state").is_some_and(|state| state == "Done")
        });
        push(testbed, "web", json!({"cpu": "2"})).await?;
        tokio::time::timeout(TIMEOUT, held.reached()).await?.context("nothing was done")?;
        let told = async || {
            until_event(testbed, ("Deployment", "web"), "Scaled").await?;
            until_event(testbed, ("ClosedLoop", "web"), "Scaled").await
        };
        finished_by_another(testbed, held, *other_leads, told).await?;
        reads(testbed, "loop/web", &[("Scaled", "Deployment/web: replicas 1 → 2")]).await?;
        reads(testbed, "deployment/web", &[("Scaled", "ClosedLoop web: replicas 1 → 2")]).await
    });
}

#[test]
fn a_noisy_object_has_ten_events_a_minute_and_the_next_one_says_how_many_were_left_out() {
    loop_story("events-noisy", async |testbed| {
        scaled_up(testbed).await?;
        for _ in 0..14 {
            scale(testbed).await?;
        }
        // A minute passes while the loop scales, so that one event follows those that are left out.
        let wait = async {
            loop {
                scale(testbed).await?;
                let events = events_for(testbed, "loop/web").await?;
                if let Some(number) = events.iter().find_map(|event| left_out(&event.note)) {
                    return anyhow::Ok(number);
                }
            }
        };
        let number = tokio::time::timeout(TIMEOUT, wait).await.context("no event says that others were left out")??;
        for (kind, name) in [("ClosedLoop", "web"), ("Deployment", "web")] {
            let events = stored(testbed, (kind, name), "Scaled").await?;
            let mut times: Vec<Timestamp> = events.into_iter().filter_map(|event| Some(event.event_time?.0)).collect();
            times.sort();
            let first_of_eleven = times.windows(11).find(|eleven| eleven[10].duration_since(eleven[0]) < MINUTE);
            ensure!(first_of_eleven.is_none(), "more than ten events of {kind}/{name} in a minute: {times:?}");
            ensure!(times.len() > 10, "only {} events of {kind}/{name}", times.len());
        }
        let metrics = testbed.operator.lock().await.get("/metrics").await?;
        let counted = metrics.lines().find_map(|line| line.strip_prefix("ganglion_events_left_out_total "));
        let counted: u32 = counted.context("no metric")?.parse()?;
        ensure!(counted >= number, "the note counts {number}, and the metric {counted}");
        Ok(())
    });
}

/// Number of events that were left out before the one with this note.
fn left_out(note: &str) -> Option<u32> {
    let number = note.strip_suffix(" more events were left out)")?.rsplit_once('(')?.1;
    number.parse().ok()
}

#[test]
fn a_pool_is_a_story_of_the_pool_and_its_workload() {
    pool_story("events-pool", async |testbed| {
        let _kubelet = pools::scaled(testbed, "cameras").await?;
        until_events(testbed, ("SwarmPool", "cameras"), "Converged", 2).await?;
        until_event(testbed, ("StatefulSet", WORKERS), "Scaled").await?;
        restart(testbed).await?;
        let workload = format!("StatefulSet/{WORKERS}: replicas 2 → 3");
        let events = [
            ("Dealt", "first deal"),
            ("Converged", ""),
            ("Scaled", workload.as_str()),
            ("Dealt", "2 to 3 workers"),
            ("Converged", ""),
        ];
        reads(testbed, "swp/cameras", &events).await?;
        reads(testbed, &format!("sts/{WORKERS}"), &[("Scaled", "SwarmPool cameras: replicas 2 → 3")]).await
    });
}
