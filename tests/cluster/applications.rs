//! moveApplication: the workloads of an application leave some nodes and run on others, in waves with a limited number
//! of replicas. No replica is missing at any time, even when faults occur in between.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ganglion_api::workload_action::WorkloadAction;
use ganglion_api::workload_action::status::Step;
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::TIMEOUT;
use testkit::action::with;
use testkit::eye::{Happening, Seen};
use testkit::kstatus::{is_over, message, ready};
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::nodes::{Size, TestNodes};
use testkit::testbed::rest::BARE;
use testkit::testbed::workload::{Workload, settled};
use testkit::testbed::{Testbed, stories, story};
use testkit::verdict::node_of;

use crate::crash::{kill_at, reached};
use crate::scenes::Scene;

const DONE: (&str, &str) = ("True", "Succeeded");

/// Writes of an application with three replicas: three moves, two of them in one action, and its own writes.
const LEAST_WRITES: usize = 24;

/// Maximum time between the end of an action and its last writes.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Two replicas of `cart` and one of `web`, guarded, on nodes 0 and 1, which they must leave; nodes 2 and 3 are free.
struct Shop {
    nodes: TestNodes,
    cart: Scene,
    web: Scene,
}

impl Shop {
    async fn open(testbed: &Testbed) -> Result<Self> {
        Self::of(testbed, |_, workload| workload).await
    }

    async fn of(testbed: &Testbed, change: impl Fn(&str, Workload) -> Workload) -> Result<Self> {
        let nodes = testbed.nodes(4, Size::default()).await?;
        nodes.open_only(&[&nodes.names[0], &nodes.names[1]]).await?;
        for (at, side) in ["old", "old", "new", "new"].iter().enumerate() {
            nodes.label(&nodes.names[at], "side", side).await?;
        }
        let mut scenes = Vec::new();
        for (app, replicas) in [("cart", 2), ("web", 1)] {
            let workload = Workload::deployment(app, replicas).guarded().spec(nodes.terms());
            let workload = change(app, workload.label("part-of", "shop"));
            scenes.push(Scene::set(testbed, app, replicas, workload).await?);
        }
        nodes.open_all().await?;
        let web = scenes.remove(1).again(testbed);
        Ok(Self { nodes, cart: scenes.remove(0).again(testbed), web })
    }

    fn leave(&self, more: Value) -> Value {
        let on = |side: &str| json!({"nodeSelector": {"side": side}});
        let spec = json!({
            "selector": {"part-of": "shop"}, "from": on("old"), "to": on("new"), "maxParallel": 2, "order": ["cart", "web"],
        });
        json!({"moveApplication": with(spec, more)})
    }

    /// Checks that every replica is on the new nodes, each was created once, and none was missing at any time.
    async fn has_left(&self, testbed: &Testbed) -> Result<()> {
        for scene in [&self.cart, &self.web] {
            let verdict = scene.at_rest(testbed, scene.replicas).await?;
            let new = &self.nodes.names[2..];
            let moved = verdict.came.len() == scene.replicas && verdict.came.iter().all(|(_, node)| new.contains(node));
            ensure!(moved && verdict.died.len() == scene.replicas, "{} has not left: {verdict:?}", scene.app);
            ensure!(verdict.lowest_ready >= scene.replicas, "{} was short: {verdict:?}", scene.app);
            ensure!(verdict.generations == 1, "{} was written: {verdict:?}", scene.app);
        }
        Ok(())
    }

    /// Checks that each workload has all its replicas, and that none was missing at any time, regardless of the
    /// outcome.
    async fn is_whole(&self, testbed: &Testbed) -> Result<()> {
        for scene in [&self.cart, &self.web] {
            let verdict = scene.at_rest(testbed, scene.replicas).await?;
            ensure!(verdict.lowest_ready >= scene.replicas, "{} was short: {verdict:?}", scene.app);
        }
        Ok(())
    }
}

/// Moves of an application.
fn moves<'a>(seen: &'a Seen, name: &'a str) -> impl Iterator<Item = &'a WorkloadAction> {
    let is_of = move |action: &&WorkloadAction| action.owner_references().iter().any(|owner| owner.name == name);
    seen.actions.values().map(AsRef::as_ref).filter(is_of)
}

/// Maximum number of replicas that moved at the same time.
fn most_in_motion(testbed: &Testbed) -> usize {
    let (mut now, mut most) = (BTreeMap::new(), 0);
    for happening in &testbed.eye.now().history {
        let Happening::Action(action) = happening else { continue };
        let slots = action.status.iter().flat_map(|status| &status.slots);
        let at_work = slots.filter(|slot| !slot.step.is_end() && slot.step != Step::Queued).count();
        now.insert(action.name_any(), at_work);
        most = most.max(now.values().sum());
    }
    most
}

#[test]
fn an_application_leaves_its_nodes_and_again_does_nothing() {
    story("application", async |testbed| {
        let shop = Shop::open(testbed).await?;
        testbed.act("go", shop.leave(json!({}))).await?;
        let action = testbed.ends("go", DONE).await?;
        shop.has_left(testbed).await?;
        let words = message(&action);
        ensure!(words == "3 of 3 replicas of 2 workloads moved", "{words}");
        let status = action.status.clone().unwrap_or_default();
        let progress = status.application.clone().unwrap_or_default();
        ensure!((progress.moved, progress.workloads_done, progress.left) == (3, 2, 0), "{progress:?}");
        let summary = status.summary.unwrap_or_default();
        ensure!(summary.done == "3/3" && summary.workload.as_deref() == Some("part-of=shop"), "{summary:?}");
        ensure!(most_in_motion(testbed) == 2, "{} replicas were in motion", most_in_motion(testbed));
        let seen = testbed.eye.now();
        let made: Vec<String> = moves(&seen, "go").map(ResourceExt::name_any).collect();
        ensure!(made.len() == 2, "{made:?}");
        ensure!(seen.receipts.len() == 1, "only the application has a receipt: {:?}", seen.receipts.keys());
        let rows = testbed.kubectl(&["get", "wa", "-l", "ganglion.dev/application=go", "--no-headers"], None).await?;
        ensure!(rows.lines().count() == 2 && rows.contains("Deployment/cart"), "{rows}");

        testbed.act("again", shop.leave(json!({}))).await?;
        let again = testbed.ends("again", DONE).await?;
        ensure!(message(&again).starts_with("nothing to do: no replica of the workloads with"), "{}", message(&again));
        ensure!(moves(&testbed.eye.now(), "again").next().is_none());

        testbed.kubectl(&["delete", "wa", "go", "--wait=true", "--timeout=30s"], None).await?;
        testbed
            .eye
            .until("its moves to be gone with it", |seen| moves(seen, "go").next().is_none().then_some(()))
            .await?;
        shop.has_left(testbed).await
    });
}

#[test]
fn killed_at_each_write_it_ends_the_same() {
    let mut writes = 0;
    story("application-clean", async |testbed| {
        let shop = Shop::open(testbed).await?;
        testbed.act("go", shop.leave(json!({}))).await?;
        testbed.ends("go", DONE).await?;
        shop.has_left(testbed).await?;
        writes = testbed.proxy.writes().len();
        Ok(())
    });
    assert!(writes >= LEAST_WRITES, "an application of {writes} writes");
    let when = |nth: usize| if nth.is_multiple_of(2) { HoldPoint::Before } else { HoldPoint::After };
    let cases = (1..=writes).map(|nth| (format!("application-{nth}-{:?}", when(nth)).to_lowercase(), nth));
    stories(cases.collect(), async |testbed, nth| {
        let shop = Shop::open(testbed).await?;
        let mut held = testbed.proxy.hold(*nth, when(*nth), |_| true);
        testbed.act("go", shop.leave(json!({}))).await?;
        match reached(testbed, &mut held, "go", LAST_WORDS).await? {
            Some(_) => kill_at(testbed, held).await?,
            // On a busy machine, there are a few more writes, which report what the action waits for.
            None => ensure!(*nth > LEAST_WRITES, "the application ended before write {nth}"),
        }
        testbed.ends("go", DONE).await?;
        shop.has_left(testbed).await?;
        let seen = testbed.eye.now();
        ensure!(seen.receipts.len() == 1 && moves(&seen, "go").count() == 2, "{:?}", seen.actions.keys());
        Ok(())
    });
}

/// The new pods of `web`, which moves second, have an image that cannot be pulled.
#[test]
fn a_replica_that_cannot_move() {
    let cases = ["Stop", "Continue", "Rollback"].map(|policy| (format!("application-{policy}").to_lowercase(), policy));
    stories(cases.into(), async |testbed, policy| {
        let bad = |app: &str, workload: Workload| match app {
            "web" => workload.replacements("image-missing"),
            _ => workload,
        };
        let shop = Shop::of(testbed, bad).await?;
        // One replica at a time: the first two have moved when the third fails.
        testbed
            .act(
                "go",
                with(
                    shop.leave(json!({"onFailure": policy, "maxParallel": 1})),
                    json!({"timeouts": {"readySeconds": 3}}),
                ),
            )
            .await?;
        let action = testbed.ends("go", ("False", "ImagePullFailed")).await?;
        let words = message(&action);
        ensure!(words.contains("Deployment/web could not move (WorkloadAction go-web-"), "{words}");
        shop.is_whole(testbed).await?;
        shop.web.untouched(testbed).await?;
        let verdict = shop.cart.tale.verdict(&testbed.eye);
        let old = &shop.nodes.names[..2];
        let home = verdict.came.iter().filter(|(_, node)| old.contains(node)).count();
        match *policy {
            "Rollback" => {
                let back = action.status.as_ref().and_then(|status| status.application.as_ref()?.moved_back);
                ensure!(home == 2 && back == Some(2), "{home} are back, {back:?} counted: {verdict:?}");
                ensure!(words.contains("2 of these moved back"), "{words}");
            }
            _ => ensure!(home == 0 && verdict.came.len() == 2, "{verdict:?}"),
        }
        Ok(())
    });
}

/// The first replica in order fails: with Stop, no other starts; with Continue, all others move.
#[test]
fn a_failure_of_the_first() {
    let cases = [("application-first-stop", "Stop", 0), ("application-first-continue", "Continue", 1)];
    let cases = cases.map(|(name, policy, moved)| (name.to_owned(), (policy, moved)));
    stories(cases.into(), async |testbed, (policy, moved)| {
        let bad = |app: &str, workload: Workload| match app {
            "cart" => workload.replacements("crash-loop"),
            _ => workload,
        };
        let shop = Shop::of(testbed, bad).await?;
        testbed
            .act(
                "go",
                with(
                    shop.leave(json!({"onFailure": policy, "maxParallel": 1})),
                    json!({"timeouts": {"readySeconds": 3}}),
                ),
            )
            .await?;
        let action = testbed.over("go").await?;
        let status = action.status.clone().unwrap_or_default();
        let progress = status.application.context("no progress")?;
        ensure!(progress.moved == *moved, "{progress:?} {}", message(&action));
        ensure!(ready(&action).is_some_and(|(status, _)| status == "False"), "{}", message(&action));
        ensure!(
            progress.failed >= 1 && progress.moves.iter().any(|one| one.workload == "Deployment/cart"),
            "{progress:?}"
        );
        shop.is_whole(testbed).await?;
        shop.cart.untouched(testbed).await.map(drop)
    });
}

/// A pod without a controller, and a pod of a DaemonSet, both with the application's labels.
#[test]
fn what_stays_is_told_before_anything_moves() {
    story("application-plan", async |testbed| {
        let shop = Shop::open(testbed).await?;
        let node = &shop.nodes.names[0];
        let pod = |name: &str, owner: Value| {
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "labels": {"part-of": "shop", BARE: "true"}, "ownerReferences": owner},
                "spec": with(shop.nodes.terms(), json!({"nodeName": node, "containers": [{"name": "c", "image": "i"}]})),
            })
        };
        testbed.kubectl(&["create", "-f", "-"], Some(&pod("bare", json!([])).to_string())).await?;
        // The operator may see the pod a moment later, and a plan is made once.
        let planned = async {
            for at in 0_u32.. {
                let name = format!("plan-{at}");
                testbed.act(&name, with(shop.leave(json!({})), json!({"mode": "Plan"}))).await?;
                let action = testbed.ends(&name, ("True", "Planned")).await?;
                let plan = action.status.as_ref().and_then(|status| status.plan.clone()).context("no plan")?;
                if let Some(bare) = plan.pods.iter().find(|pod| pod.name == "bare") {
                    return anyhow::Ok((name, bare.clone(), plan));
                }
            }
            bail!("no plan lists the pod")
        };
        let (name, bare, plan) = tokio::time::timeout(TIMEOUT, planned).await.context("the pod is not listed")??;
        ensure!(!bare.chosen && bare.message.contains("belongs to no workload"), "{bare:?}");
        ensure!(plan.replicas.len() == 3 && plan.replicas.iter().all(|replica| replica.to.is_some()), "{plan:?}");
        let (_, text) = testbed.ganglion(&["explain", "wa", &name]).await?;
        ensure!(text.contains("bare on") && text.contains("belongs to no workload"), "{text}");
        let is_plan = |action: &str| action.starts_with("plan-");
        ensure!(testbed.eye.now().actions.values().all(|action| is_plan(&action.name_any())), "a plan created moves");
        shop.is_whole(testbed).await
    });
}

#[test]
fn replicas_born_meanwhile_leave_too() {
    story("application-born", async |testbed| {
        let shop = Shop::open(testbed).await?;
        // New pods land on the old nodes while only those are open.
        let names = &shop.nodes.names;
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| write.method == "POST" && write.is_on("pods"));
        testbed.act("go", shop.leave(json!({"maxParallel": 1, "order": ["web"]}))).await?;
        held.reached().await.context("no pod was made")?;
        shop.nodes.open_only(&[&names[0], &names[1]]).await?;
        testbed.kubectl(&["scale", "deployment", "cart", "--replicas=3"], None).await?;
        settled(testbed, "cart", 3).await?;
        shop.nodes.open_all().await?;
        held.release();
        let action = testbed.ends("go", DONE).await?;
        ensure!(message(&action) == "4 of 4 replicas of 2 workloads moved", "{}", message(&action));
        let seen = testbed.eye.now();
        let pods = seen.pods.values().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        ensure!(pods.into_iter().all(|pod| names[2..].contains(&node_of(pod).to_owned())), "one is left");
        Ok(())
    });
}

/// Fault at a write of the moves.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Abort,
    Delete,
    DeleteMove,
    Rollout,
    TargetGone,
    SourceGone,
}

#[test]
fn what_happens_in_between_costs_no_replica() {
    let faults = [Fault::Abort, Fault::Delete, Fault::DeleteMove, Fault::Rollout, Fault::TargetGone, Fault::SourceGone];
    let cases = faults.into_iter().flat_map(|fault| [3, 8, 14].map(|nth| (fault, nth)));
    let cases = cases.map(|(fault, nth)| (format!("application-{fault:?}-{nth}").to_lowercase(), (fault, nth)));
    stories(cases.collect(), async |testbed, (fault, nth)| {
        let shop = Shop::open(testbed).await?;
        // A move must exist before it can be deleted, however many writes that takes.
        let mut held = match fault {
            Fault::DeleteMove => {
                testbed.proxy.hold(usize::div_ceil(*nth, 2), HoldPoint::Before, |write| write.is_on("pods"))
            }
            _ => testbed
                .proxy
                .hold(*nth, HoldPoint::Before, |write| write.is_on("pods") || write.is_on("workloadactions")),
        };
        testbed.act("go", shop.leave(json!({}))).await?;
        held.reached().await.context("no such write")?;
        let names = &shop.nodes.names;
        match fault {
            Fault::Abort => testbed.patch_action("go", json!({"spec": {"abort": true}})).await?,
            Fault::Delete => drop(testbed.kubectl(&["delete", "wa", "go", "--wait=false"], None).await?),
            Fault::DeleteMove => {
                let first = |seen: &Seen| moves(seen, "go").next().map(ResourceExt::name_any);
                let first = testbed.eye.until("a move", first).await?;
                testbed.kubectl(&["delete", "wa", &first, "--wait=false"], None).await?;
            }
            Fault::Rollout => drop(testbed.kubectl(&["rollout", "restart", "deployment", "cart"], None).await?),
            Fault::TargetGone => drop(testbed.kubectl(&["delete", "node", &names[2]], None).await?),
            Fault::SourceGone => drop(testbed.kubectl(&["delete", "node", &names[0]], None).await?),
        }
        held.release();
        let over = testbed.eye.until("its end", |seen| match seen.actions.get("go") {
            None => Some(None),
            Some(action) if is_over(action) => Some(Some(action.clone())),
            Some(_) => None,
        });
        let action = over.await?;
        if let (Fault::Abort, Some(action)) = (fault, &action) {
            ensure!(
                matches!(ready(action), Some(("False", "Aborted") | DONE)),
                "{:?} {}",
                ready(action),
                message(action)
            );
        }
        let late = testbed.eye.until("its moves to end", |seen| moves(seen, "go").all(is_over).then_some(()));
        late.await?;
        match fault {
            // The pods of a lost node are gone with it, regardless of the move.
            Fault::TargetGone | Fault::SourceGone => {
                shop.cart.at_rest(testbed, 2).await?;
                shop.web.at_rest(testbed, 1).await.map(drop)
            }
            _ => shop.is_whole(testbed).await,
        }
    });
}

/// The same workloads, in a different order and on the same nodes.
#[test]
fn two_that_overlap() {
    story("application-overlap", async |testbed| {
        let shop = Shop::open(testbed).await?;
        testbed.act("one", shop.leave(json!({"order": ["cart"]}))).await?;
        testbed.act("two", shop.leave(json!({"order": ["web"]}))).await?;
        for name in ["one", "two"] {
            let action = testbed.over(name).await?;
            ensure!(ready(&action) == Some(DONE), "{name}: {:?} {}", ready(&action), message(&action));
        }
        let moved = |name: &str| {
            let seen = testbed.eye.now();
            let progress = seen.actions.get(name).and_then(|action| action.status.as_ref()?.application.clone());
            progress.map_or(0, |progress| progress.moved)
        };
        ensure!(moved("one") + moved("two") == 3, "{} and {}", moved("one"), moved("two"));
        shop.has_left(testbed).await
    });
}

#[test]
fn suspended_it_stands_still_and_goes_on() {
    story("application-suspend", async |testbed| {
        let shop = Shop::open(testbed).await?;
        let mut held = testbed.proxy.hold(1, HoldPoint::Before, |write| write.method == "POST" && write.is_on("pods"));
        testbed.act("go", shop.leave(json!({"maxParallel": 1}))).await?;
        held.reached().await.context("no pod was made")?;
        testbed.patch_action("go", json!({"spec": {"suspend": true}})).await?;
        held.release();
        let suspended = |seen: &Seen| {
            let reason = |action: &WorkloadAction| ready(action).map(|(_, reason)| reason.to_owned());
            let all = moves(seen, "go").chain(seen.actions.get("go").map(AsRef::as_ref));
            all.filter(|action| !is_over(action))
                .all(|action| reason(action).as_deref() == Some("Suspended"))
                .then_some(())
        };
        testbed.eye.until("all to stand still", suspended).await?;
        let Some(count) = Some(moves(&testbed.eye.now(), "go").count()).filter(|count| *count == 1) else {
            bail!("it created another move");
        };
        testbed.patch_action("go", json!({"spec": {"suspend": false}})).await?;
        testbed.ends("go", DONE).await?;
        ensure!(count < moves(&testbed.eye.now(), "go").count(), "it did not continue");
        shop.has_left(testbed).await
    });
}
