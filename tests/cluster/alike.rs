//! The scripts of the model on a real control plane: the same file, with the same four properties compared at the end.
//! If the two differ, the plane is right, and the model must be fixed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use testkit::eye::Seen;
use testkit::kstatus::ready;
use testkit::proxy::gate::{self, Held};
use testkit::scripts::{self, ACTION, APP, BudgetRule, Cue, Found, HOME, Nature, Of, Script, What};
use testkit::testbed::nodes::Size;
use testkit::testbed::workload::{Workload, settled};
use testkit::testbed::{Testbed, story};
use testkit::verdict::{node_of, serves};

use crate::crash::{kill_at, reached};

/// Time for a new process to start and finish the writes of its predecessor.
const LATE: Duration = Duration::from_secs(5);

/// Names of the story's nodes on the plane.
type Places = BTreeMap<&'static str, String>;

/// One test per script, and one that checks that every script has a test.
macro_rules! scripts {
    ($($case:ident: $name:literal,)*) => {
        #[rstest::rstest]
        $(#[case::$case($name)])*
        fn ends_as_in_the_model(#[case] name: &str) {
            play(name);
        }

        #[test]
        fn every_script_is_played() {
            let names: Vec<&str> = scripts::ALL.iter().map(|script| script.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

scripts! {
    moved: "a move",
    moved_under_a_full_budget: "a move under a budget that allows nothing",
    moved_under_none_unavailable: "a move under maxUnavailable 0",
    moved_of_a_set: "a move of a ReplicaSet's pod",
    all_moved: "all replicas move",
    moved_and_killed: "a move whose operator dies after every write",
    grown: "two more",
    grown_and_killed: "one more, whose operator dies after every write",
    shrunk: "two fewer",
    shrunk_and_killed: "one fewer, whose operator dies after every write",
    crashing: "the new pod crashes",
    without_image: "the new pod's image is missing",
    never_ready: "the new pod is never Ready",
    full: "no room",
    never_allowed: "a budget that can never allow it",
    aborted: "aborted while the new pod starts",
    deleted: "deleted while the new pod starts",
    applied_again: "applied again when it is done",
    replacement_deleted: "the new pod is deleted by somebody",
    scaled_up: "somebody scales up while the new pod starts",
    rolled_out: "somebody rolls out while the new pod starts: undone, and done again afterwards",
    workload_deleted: "the workload is deleted while the new pod starts",
    suspended: "suspended before the exchange and resumed",
    half_full: "two move where there is room for one",
    grown_and_crashing: "one more, which crashes",
    crashing_and_killed: "the new pod crashes, and the operator dies after every write",
    never_ready_and_killed: "the operator dies while the new pod is not Ready, as it never is",
    moved_of_a_set_and_killed: "a move of a ReplicaSet's pod, whose operator dies after every write",
    shrunk_to_nothing: "all replicas go",
    shrunk_under_a_full_budget: "one fewer under a budget that allows nothing",
    shrunk_one_at_a_time: "two fewer under a budget that allows one at a time",
    shrunk_when_the_budget_allows: "one fewer under a budget that allows nothing until somebody scales up",
    grown_and_scaled_up: "one more, while somebody scales up",
    grown_and_rolled_out: "one more, while somebody rolls out",
    scaled_down: "somebody scales down while the new pod starts",
    scaled_to_nothing: "somebody scales to nothing while the new pod starts",
    applied_again_meanwhile: "applied again while the new pod starts: undone, and done by the second",
    suspended_and_deleted: "deleted while it is suspended",
}

fn play(name: &str) {
    let (at, script) = scripts::ALL.iter().enumerate().find(|(_, script)| script.name == name).expect("such a script");
    story(&format!("alike-{at}"), async |testbed| {
        let places = set_up(testbed, script).await?;
        perform(testbed, script, &places).await?;
        let rest = rest(testbed, script).await;
        let (found, wanted) = (found(testbed, script, &places), script.end.wanted());
        ensure!(found == wanted, "{name}: the plane ends with {found:#?}\nwhere the script says {wanted:#?}");
        rest
    });
}

/// Creates the workload on the first node, waits until it is at rest, and adds the other nodes.
async fn set_up(testbed: &Testbed, script: &Script) -> Result<Places> {
    let mut nodes = testbed.nodes(1, Size::default()).await?;
    let mut places = Places::from([(HOME, nodes.names[0].clone())]);
    let replicas = usize::try_from(script.replicas)?;
    let workload = match script.of {
        Of::Deployment => Workload::deployment(APP, replicas),
        Of::ReplicaSet => Workload::replica_set(APP, replicas),
    };
    let workload = match script.budget {
        None => workload,
        Some(BudgetRule::MinAvailable(count)) => workload.budget(json!({"minAvailable": count})),
        Some(BudgetRule::MaxUnavailable(count)) => workload.budget(json!({"maxUnavailable": count})),
    };
    workload.requests(json!({"cpu": "100m"})).spec(nodes.terms()).make(testbed).await?;
    for (name, nature) in script.nodes {
        let some = Size::default();
        let (behavior, size) = match nature {
            Nature::Good => (None, some),
            Nature::Slow(seconds) => (Some(format!("slow-start.{seconds}s")), some),
            Nature::Crashes => (Some("crash-loop".to_owned()), some),
            Nature::NeverReady => (Some("never-ready".to_owned()), some),
            Nature::NoImage => (Some("image-missing".to_owned()), some),
            Nature::Room(pods) => (None, Size { pods: u32::try_from(*pods)?, ..some }),
        };
        places.insert(name, nodes.join(behavior.as_deref(), size).await?);
    }
    Ok(places)
}

/// Creates the action, and performs all events of the script.
async fn perform(testbed: &Testbed, script: &Script, places: &Places) -> Result<()> {
    let mut held = hold(testbed, script.then.first());
    let spec = script.spec(|node| places[node].clone());
    testbed.act(ACTION, serde_json::to_value(spec)?).await?;
    for (at, (when, what)) in script.then.iter().enumerate() {
        come(testbed, *when, held.as_mut()).await.with_context(|| format!("{when:?} never came"))?;
        let next = hold(testbed, script.then.get(at + 1));
        let now = std::mem::replace(&mut held, next);
        follow(testbed, script, *what, now).await.with_context(|| format!("{what:?}"))?;
    }
    Ok(())
}

/// Holds the operator at the write of the cue, after the server has processed it and before the operator receives the
/// answer.
fn hold(testbed: &Testbed, cue: Option<&(Cue, What)>) -> Option<Held> {
    let Some((Cue::Writes(count), _)) = cue else { return None };
    let more = count.checked_sub(testbed.proxy.writes().len()).filter(|more| *more > 0)?;
    Some(testbed.proxy.hold(more, gate::HoldPoint::After, |_| true))
}

async fn come(testbed: &Testbed, when: Cue, held: Option<&mut Held>) -> Result<()> {
    match when {
        Cue::Writes(_) => {
            if let Some(held) = held {
                reached(testbed, held, ACTION, LATE).await?.context("the action was over before")?;
            }
            Ok(())
        }
        Cue::Step(step) => {
            let at = |seen: &Seen| {
                let slots = &seen.actions.get(ACTION)?.status.as_ref()?.slots;
                slots.iter().any(|slot| slot.step == step).then_some(())
            };
            testbed.eye.until("the step", at).await
        }
        Cue::Says(reason) => {
            let says = |seen: &Seen| (ready(seen.actions.get(ACTION)?)?.1 == reason).then_some(());
            testbed.eye.until("the reason", says).await
        }
        Cue::Ended => testbed.over(ACTION).await.map(drop),
    }
}

/// Performs an event. A held write continues afterwards, unless the operator is killed.
async fn follow(testbed: &Testbed, script: &Script, what: What, held: Option<Held>) -> Result<()> {
    let kind = if script.of == Of::Deployment { "deployment" } else { "replicaset" };
    let workload = format!("{kind}/{APP}");
    match what {
        What::KillOperator => match held {
            Some(held) => return kill_at(testbed, held).await,
            None => return testbed.kill_and_restart().await,
        },
        What::Scale(by) => {
            let to = replicas(&testbed.eye.now()).context("no workload")? + by;
            testbed.kubectl(&["scale", &workload, &format!("--replicas={to}")], None).await?;
        }
        What::DeleteReplacement => {
            let name = testbed.eye.until("a replacement", replacement).await?;
            testbed.api::<Pod>().delete(&name, &DeleteParams::default()).await?;
        }
        What::Rollout => {
            let patch = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}).to_string();
            testbed.kubectl(&["patch", &workload, "--type=merge", "-p", &patch], None).await?;
        }
        What::DeleteWorkload => {
            testbed.kubectl(&["delete", &workload, "--wait=false"], None).await?;
        }
        What::Abort => testbed.patch_action(ACTION, json!({"spec": {"abort": true}})).await?,
        What::DeleteAction => delete_action(testbed).await?,
        What::Reapply => reapply(testbed).await?,
        What::Suspend => testbed.patch_action(ACTION, json!({"spec": {"suspend": true}})).await?,
        What::Resume => testbed.patch_action(ACTION, json!({"spec": {"suspend": false}})).await?,
    }
    Ok(())
}

fn replacement(seen: &Seen) -> Option<String> {
    let is = |pod: &Pod| pod.annotations().get(marks::ROLE).is_some_and(|role| role == marks::ROLE_REPLACEMENT);
    seen.pods.values().find(|pod| is(pod)).map(|pod| pod.name_any())
}

async fn delete_action(testbed: &Testbed) -> Result<()> {
    testbed.api::<WorkloadAction>().delete(ACTION, &DeleteParams::default()).await?;
    Ok(())
}

async fn gone(testbed: &Testbed) -> Result<()> {
    testbed.eye.until("the action to be gone", |seen| (!seen.actions.contains_key(ACTION)).then_some(())).await
}

async fn reapply(testbed: &Testbed) -> Result<()> {
    let action = testbed.eye.now().actions.get(ACTION).cloned().context("no action")?;
    delete_action(testbed).await?;
    gone(testbed).await?;
    testbed.act(ACTION, serde_json::to_value(&action.spec)?).await.map(drop)
}

/// Waits until the action has ended or is gone, and the workload is complete, or gone with all its pods.
async fn rest(testbed: &Testbed, script: &Script) -> Result<()> {
    match script.end.reason {
        Some(_) => drop(testbed.over(ACTION).await?),
        None => gone(testbed).await?,
    }
    // If this never happens, the comparison reports it. A receipt is corrected when the end is recorded.
    let _ = testbed.eye.within(LATE, "replicas", |seen| (replicas(seen) == script.end.replicas).then_some(())).await;
    let _ = testbed.eye.within(LATE, "receipt", |seen| (has_receipt(seen) == script.end.receipt).then_some(())).await;
    match replicas(&testbed.eye.now()) {
        Some(count) => settled(testbed, APP, usize::try_from(count)?).await,
        None => testbed.eye.until("no pod to be left", |seen| seen.pods.is_empty().then_some(())).await,
    }
}

/// `spec.replicas` of the workload, if it exists.
fn replicas(seen: &Seen) -> Option<i32> {
    let deployment = seen.deployments.get(APP).and_then(|object| object.spec.as_ref()?.replicas);
    deployment.or_else(|| seen.sets.get(APP)?.spec.as_ref()?.replicas)
}

fn has_receipt(seen: &Seen) -> bool {
    !seen.receipts.is_empty()
}

fn found(testbed: &Testbed, script: &Script, places: &Places) -> Found {
    let seen = testbed.eye.now();
    let serving = |node: &str| seen.pods.values().filter(|pod| serves(pod) && node_of(pod) == places[node]).count();
    Found {
        reason: seen.actions.get(ACTION).and_then(|action| ready(action)).map(|(_, reason)| reason.to_owned()),
        replicas: replicas(&seen),
        on: script.end.count(serving),
        receipt: has_receipt(&seen),
    }
}
