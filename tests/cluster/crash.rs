//! The operator is killed with SIGKILL at every write of every action, before and after the server has processed it:
//! the end is the same, with exactly one effect.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::TIMEOUT;
use testkit::action::{deployment, move_pod};
use testkit::kstatus::is_over;
use testkit::proxy::Write;
use testkit::proxy::gate::{Held, When};
use testkit::world::nodes::Size;
use testkit::world::{World, stories, story};

use crate::acts::{Act, Verb};
use crate::drain::single;
use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");
/// Every action takes at least this number of writes.
const LEAST_WRITES: usize = 9;
const BOTH: [When; 2] = [When::Before, When::After];

/// Maximum time between the end of an action and its last writes.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Waits until the write is held, or until the action has ended without it and this time has passed since.
pub async fn reached(world: &World, held: &mut Held, name: &str, late: Duration) -> Result<Option<Write>> {
    let over = world
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
pub async fn kill_at(world: &World, held: Held) -> Result<()> {
    let mut operator = world.operator.lock().await;
    operator.kill();
    held.lose();
    operator.start()
}

/// Number of writes of the undisturbed action.
fn clean_run(verb: Verb) -> usize {
    let mut count = 0;
    story(&format!("{}-clean", verb.name()), async |world| {
        let act = Act::prepare(world, verb, "web").await?;
        act.begin(world).await?;
        world.ends("web", DONE).await?;
        act.done(world).await?;
        count = world.proxy.writes().len();
        Ok(())
    });
    count
}

fn killed_at_each_write(verb: Verb) {
    let writes = clean_run(verb);
    assert!(writes >= LEAST_WRITES, "a {} of {writes} writes", verb.name());
    let cases = (1..=writes)
        .flat_map(|nth| BOTH.map(|when| (format!("{}-{nth}-{when:?}", verb.name()).to_lowercase(), (nth, when))));
    stories(cases.collect(), async |world, (nth, when)| {
        let act = Act::prepare(world, verb, "web").await?;
        let mut held = world.proxy.hold(*nth, *when, |_| true);
        act.begin(world).await?;
        match reached(world, &mut held, "web", LAST_WORDS).await? {
            Some(_) => kill_at(world, held).await?,
            // On a busy machine, there are a few more writes, which report what the action waits for.
            None => ensure!(*nth > LEAST_WRITES, "the action ended before write {nth}"),
        }
        world.ends("web", DONE).await?;
        act.done(world).await
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
async fn turn_back(world: &World) -> Result<Act> {
    let act = Act::prepare(world, Verb::Move, "web").await?;
    let mut held = world.proxy.hold(1, When::After, |write| {
        write.is_on("pods")
            && write.body.pointer("/metadata/ownerReferences/0/kind").is_some_and(|kind| kind == "ReplicaSet")
    });
    act.begin(world).await?;
    held.reached().await.context("the replacement was never adopted")?;
    world.patch_action("web", json!({"spec": {"abort": true}})).await?;
    held.release();
    Ok(act)
}

#[test]
fn a_way_back_killed_at_each_write() {
    let mut writes = 0;
    story("back-clean", async |world| {
        let act = turn_back(world).await?;
        let before = world.proxy.writes().len();
        world.ends("web", ("False", "Aborted")).await?;
        act.scene.untouched(world).await?;
        writes = world.proxy.writes().len() - before;
        Ok(())
    });
    assert!(writes >= 3, "a rollback of only {writes} writes");
    let cases =
        (1..=writes).flat_map(|nth| BOTH.map(|when| (format!("back-{nth}-{when:?}").to_lowercase(), (nth, when))));
    stories(cases.collect(), async |world, (nth, when)| {
        let act = turn_back(world).await?;
        let mut held = world.proxy.hold(*nth, *when, |_| true);
        if reached(world, &mut held, "web", LAST_WORDS).await?.is_some() {
            kill_at(world, held).await?;
        }
        world.ends("web", ("False", "Aborted")).await?;
        act.scene.untouched(world).await.map(drop)
    });
}

/// Applies the action, and kills the operator at every write until the action has ended: first before the server has
/// the write, so that it is lost; in the next life after the server has processed it, before the operator receives the
/// answer.
pub async fn in_many_lives(world: &World, name: &str, spec: Value) -> Result<()> {
    let mut held = world.proxy.hold(1, When::Before, |_| true);
    world.act(name, spec).await?;
    let (mut lives, mut next) = (1, When::After);
    while reached(world, &mut held, name, LAST_WORDS).await?.is_some() {
        let gate = world.proxy.hold(1, next, |_| true);
        next = if next == When::After { When::Before } else { When::After };
        kill_at(world, std::mem::replace(&mut held, gate)).await?;
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
    stories(cases.into(), async |world, verb| {
        let act = Act::prepare(world, *verb, "web").await?;
        in_many_lives(world, "web", act.spec()).await?;
        world.ends("web", DONE).await?;
        act.done(world).await
    });
}

/// If no two pods may run side by side, the old pod is evicted first, once, and one new pod starts.
#[test]
fn a_move_that_evicts_first_killed_at_every_single_write() {
    story("apart-lives", async |world| {
        let nodes = world.nodes(2, Size::default()).await?;
        let [home, other] = [0, 1].map(|at| nodes.names[at].as_str());
        let recreate = json!({"strategy": {"type": "Recreate", "rollingUpdate": null}});
        let scene = single(world, &nodes, "web", recreate, json!({})).await?;
        nodes.cordon(home).await?;
        let change = json!({"workload": deployment("web"), "from": {"nodeName": home}});
        in_many_lives(world, "go", json!({"move": change, "disruption": "Allowed"})).await?;
        world.ends("go", DONE).await?;
        let verdict = scene.at_rest(world, 1).await?;
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
    stories(cases, async |world, after| {
        let acts = [
            Act::prepare(world, Verb::Move, "a").await?,
            Act::prepare(world, Verb::Create, "b").await?,
            Act::prepare(world, Verb::Delete, "c").await?,
        ];
        world.operator.lock().await.ready().await?;
        for act in &acts {
            act.begin(world).await?;
        }
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(*after)).await;
            world.kill_and_restart().await?;
            tokio::time::timeout(TIMEOUT, async { world.operator.lock().await.ready().await }).await??;
        }
        for act in &acts {
            world.ends(act.name(), DONE).await?;
            act.done(world).await?;
        }
        Ok(())
    });
}

/// The API server charges an eviction to the budget before it deletes the pod, and may stop in between when its client
/// disconnects.
#[test]
fn an_eviction_that_was_granted_and_not_carried_out_is_completed() {
    story("half-eviction", async |world| {
        let scene = Scene::guarded(world, "web", 3).await?;
        let pod = scene.pod(0).0;
        let mut held = world.proxy.hold(1, When::Before, |write| write.is_on("pods/eviction"));
        world.act("go", move_pod(&pod, &scene.free(0))).await?;
        held.reached().await.context("no eviction")?;
        world.operator.lock().await.kill();
        held.lose();
        let granted = json!({"status": {"disruptedPods": {&pod: jiff::Timestamp::now().to_string()}}});
        let status = ["patch", "pdb", "web", "--subresource=status", "--type=merge", "-p", &granted.to_string()];
        world.kubectl(&status, None).await?;
        world
            .kubectl(&["wait", "--for=jsonpath={.status.disruptionsAllowed}=0", "pdb/web", "--timeout=20s"], None)
            .await?;
        let begun = tokio::time::Instant::now();
        world.operator.lock().await.start()?;
        world.ends("go", ("True", "Succeeded")).await?;
        ensure!(begun.elapsed() < Duration::from_secs(60), "the grant expired first: {:?}", begun.elapsed());
        scene.moved(world, &[&pod], &[&scene.free(0)]).await.map(drop)
    });
}
