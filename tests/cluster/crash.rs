//! The operator is killed with SIGKILL at every write of every action, before and after the server has processed it:
//! the end is the same, with exactly one effect.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::TIMEOUT;
use testkit::action::{deployment, move_pod};
use testkit::kstatus::is_over;
use testkit::proxy::Write;
use testkit::proxy::gate::{Held, HoldPoint};
use testkit::testbed::nodes::Size;
use testkit::testbed::{Testbed, stories, story};

use crate::acts::{Act, Verb};
use crate::drain::single;
use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");
/// Every action takes at least this number of writes.
pub const LEAST_WRITES: usize = 9;
const BOTH: [HoldPoint; 2] = [HoldPoint::Before, HoldPoint::After];

/// Maximum time between the end of an action and its last writes.
pub const LAST_WORDS: Duration = Duration::from_secs(1);

/// Waits until the write is held, or until the action has ended without it and this time has passed since.
pub async fn reached(testbed: &Testbed, held: &mut Held, name: &str, late: Duration) -> Result<Option<Write>> {
    let over = testbed
        .eye
        .until("the end of the action", |seen| seen.actions.get(name).filter(|action| is_over(action)).map(drop));
    tokio::select! {
        biased;
        write = held.reached() => return Ok(write),
        over = over => over?,
    }
    Ok(tokio::time::timeout(late, held.reached()).await.ok().flatten())
}

/// Sends SIGKILL at the held write, so that the write or its answer is lost.
pub async fn kill_at(testbed: &Testbed, held: Held) -> Result<()> {
    let mut operator = testbed.operator.lock().await;
    operator.kill();
    held.lose();
    operator.start()
}

/// Number of writes of the undisturbed action.
pub fn clean_run(verb: Verb) -> usize {
    let mut count = 0;
    story(&format!("{}-clean", verb.name()), async |testbed| {
        let act = Act::prepare(testbed, verb, "web").await?;
        act.begin(testbed).await?;
        testbed.ends("web", DONE).await?;
        act.done(testbed).await?;
        count = testbed.proxy.writes().len();
        Ok(())
    });
    count
}

fn killed_at_each_write(verb: Verb) {
    let writes = clean_run(verb);
    assert!(writes >= LEAST_WRITES, "a {} of {writes} writes", verb.name());
    let cases = (1..=writes)
        .flat_map(|nth| BOTH.map(|when| (format!("{}-{nth}-{when:?}", verb.name()).to_lowercase(), (nth, when))));
    stories(cases.collect(), async |testbed, (nth, when)| {
        let act = Act::prepare(testbed, verb, "web").await?;
        let mut held = testbed.proxy.hold(*nth, *when, |_| true);
        act.begin(testbed).await?;
        match reached(testbed, &mut held, "web", LAST_WORDS).await? {
            Some(_) => kill_at(testbed, held).await?,
            // On a busy machine, there are a few more writes, which report what the action waits for.
            None => ensure!(*nth > LEAST_WRITES, "the action ended before write {nth}"),
        }
        testbed.ends("web", DONE).await?;
        act.done(testbed).await
    });
}

#[test]
fn a_move_killed_at_each_write() {
    killed_at_each_write(Verb::Move);
}

#[test]
fn a_create_killed_at_each_write() {
    killed_at_each_write(Verb::Create);
}

#[test]
fn a_delete_killed_at_each_write() {
    killed_at_each_write(Verb::Delete);
}

/// The hardest rollback: the ReplicaSet has adopted the replacement and released the old pod.
async fn turn_back(testbed: &Testbed) -> Result<Act> {
    let act = Act::prepare(testbed, Verb::Move, "web").await?;
    let mut held = testbed.proxy.hold(1, HoldPoint::After, |write| {
        write.is_on("pods")
            && write.body.pointer("/metadata/ownerReferences/0/kind").is_some_and(|kind| kind == "ReplicaSet")
    });
    act.begin(testbed).await?;
    held.reached().await.context("the replacement was never adopted")?;
    testbed.patch_action("web", json!({"spec": {"abort": true}})).await?;
    held.release();
    Ok(act)
}

#[test]
fn a_way_back_killed_at_each_write() {
    let mut writes = 0;
    story("back-clean", async |testbed| {
        let act = turn_back(testbed).await?;
        let before = testbed.proxy.writes().len();
        testbed.ends("web", ("False", "Aborted")).await?;
        act.scene.untouched(testbed).await?;
        writes = testbed.proxy.writes().len() - before;
        Ok(())
    });
    assert!(writes >= 3, "a rollback of only {writes} writes");
    let cases =
        (1..=writes).flat_map(|nth| BOTH.map(|when| (format!("back-{nth}-{when:?}").to_lowercase(), (nth, when))));
    stories(cases.collect(), async |testbed, (nth, when)| {
        let act = turn_back(testbed).await?;
        let mut held = testbed.proxy.hold(*nth, *when, |_| true);
        if reached(testbed, &mut held, "web", LAST_WORDS).await?.is_some() {
            kill_at(testbed, held).await?;
        }
        testbed.ends("web", ("False", "Aborted")).await?;
        act.scene.untouched(testbed).await.map(drop)
    });
}

/// Applies the action, and kills the operator at every write until the action has ended: first before the server has
/// the write, so that it is lost; in the next life after the server has processed it, before the operator receives the
/// answer.
pub async fn in_many_lives(testbed: &Testbed, name: &str, spec: Value) -> Result<()> {
    let mut held = testbed.proxy.hold(1, HoldPoint::Before, |_| true);
    testbed.act(name, spec).await?;
    let (mut lives, mut next) = (1, HoldPoint::After);
    while reached(testbed, &mut held, name, LAST_WORDS).await?.is_some() {
        let gate = testbed.proxy.hold(1, next, |_| true);
        next = if next == HoldPoint::After { HoldPoint::Before } else { HoldPoint::After };
        kill_at(testbed, std::mem::replace(&mut held, gate)).await?;
        lives += 1;
        ensure!(lives < 80, "no end after {lives} lives");
    }
    held.release();
    ensure!(lives > 8, "only {lives} lives");
    Ok(())
}

/// One action across many lives of the operator.
#[test]
fn killed_at_every_single_write() {
    let cases = crate::acts::VERBS.map(|verb| (format!("{}-lives", verb.name()), verb));
    stories(cases.into(), async |testbed, verb| {
        let act = Act::prepare(testbed, *verb, "web").await?;
        in_many_lives(testbed, "web", act.spec()).await?;
        testbed.ends("web", DONE).await?;
        act.done(testbed).await
    });
}

/// If no two pods may run side by side, the old pod is evicted first, once, and one new pod starts.
#[test]
fn a_move_that_evicts_first_killed_at_every_single_write() {
    story("apart-lives", async |testbed| {
        let nodes = testbed.nodes(2, Size::default()).await?;
        let [home, other] = [0, 1].map(|at| nodes.names[at].as_str());
        let recreate = json!({"strategy": {"type": "Recreate", "rollingUpdate": null}});
        let scene = single(testbed, &nodes, "web", recreate, json!({})).await?;
        nodes.cordon(home).await?;
        let change = json!({"workload": deployment("web"), "from": {"nodeName": home}});
        in_many_lives(testbed, "go", json!({"move": change, "disruption": "Allowed"})).await?;
        testbed.ends("go", DONE).await?;
        let verdict = scene.at_rest(testbed, 1).await?;
        let once = verdict.died.len() == 1 && verdict.came.len() == 1 && verdict.came[0].1 == other;
        ensure!(once && verdict.passing.is_empty() && verdict.replicas == [1], "{verdict:?}");
        Ok(())
    });
}

/// The original operator, killed 10 to 60 ms into a move, leaves a surplus replica in 4 of 4 cases, and does not
/// resume.
#[test]
fn killed_at_any_time() {
    let cases: Vec<(String, u64)> = [10, 25, 40, 60].map(|after| (format!("kill-{after}ms"), after)).into();
    stories(cases, async |testbed, after| {
        let acts = [
            Act::prepare(testbed, Verb::Move, "a").await?,
            Act::prepare(testbed, Verb::Create, "b").await?,
            Act::prepare(testbed, Verb::Delete, "c").await?,
        ];
        testbed.operator.lock().await.ready().await?;
        for act in &acts {
            act.begin(testbed).await?;
        }
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(*after)).await;
            testbed.kill_and_restart().await?;
            tokio::time::timeout(TIMEOUT, async { testbed.operator.lock().await.ready().await }).await??;
        }
        for act in &acts {
            testbed.ends(act.name(), DONE).await?;
            act.done(testbed).await?;
        }
        Ok(())
    });
}

/// The API server charges an eviction to the budget before it deletes the pod, and may stop in between when its client
/// disconnects.
#[test]
fn an_eviction_that_was_granted_and_not_carried_out_is_completed() {
    story("half-eviction", async |testbed| {
        let scene = Scene::guarded(testbed, "web", 3).await?;
        let pod = scene.pod(0).0;
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| write.is_on("pods/eviction"));
        testbed.act("go", move_pod(&pod, &scene.free(0))).await?;
        held.reached().await.context("no eviction")?;
        testbed.operator.lock().await.kill();
        held.lose();
        let granted = json!({"status": {"disruptedPods": {&pod: jiff::Timestamp::now().to_string()}}});
        let status = ["patch", "pdb", "web", "--subresource=status", "--type=merge", "-p", &granted.to_string()];
        testbed.kubectl(&status, None).await?;
        testbed
            .kubectl(&["wait", "--for=jsonpath={.status.disruptionsAllowed}=0", "pdb/web", "--timeout=20s"], None)
            .await?;
        let begun = tokio::time::Instant::now();
        testbed.operator.lock().await.start()?;
        testbed.ends("go", ("True", "Succeeded")).await?;
        ensure!(begun.elapsed() < Duration::from_secs(60), "the grant expired first: {:?}", begun.elapsed());
        scene.moved(testbed, &[&pod], &[&scene.free(0)]).await.map(drop)
    });
}
