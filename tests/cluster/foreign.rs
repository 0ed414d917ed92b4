//! Others at work on the same objects, at every step: each case holds the operator right before one of its writes, does
//! the foreign act as the administrator, and lets the operator go on.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use testkit::eye::Seen;
use testkit::kstatus::{is_over, message, ready};
use testkit::proxy::gate::When;
use testkit::verdict::{node_of, pods_of, serves};
use testkit::world::nodes::{Nodes, tolerating};
use testkit::world::workload::{Workload, settled};
use testkit::world::{World, story};
use tokio::sync::Semaphore;

use crate::acts::{Act, REPLICAS, Verb, is_about};
use crate::crash::reached;

/// What somebody else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Foreign {
    Rollout,
    Scale(i32),
    VictimDeleted,
    ReplacementDeleted,
    NodeDeleted,
    WorkloadDeleted,
}

/// More than any action takes; the cases past its last write end as if nothing had happened.
const MOST_WRITES: usize = 14;

/// How many cases run at once, over all worlds: the plane's own controllers have to keep up.
static CASES: Semaphore = Semaphore::const_new(10);

impl Foreign {
    /// With which reasons the action may end unsuccessfully, having undone what it did.
    fn excuses(self) -> &'static [&'static str] {
        match self {
            Self::Rollout => &["RolloutStarted", "PodNotFound", "VictimGone", "ReplacementLost"],
            Self::Scale(_) => &["WorkloadScaled", "PodNotFound", "VictimGone", "ReplacementLost", "BudgetBlocked"],
            Self::VictimDeleted => &["PodNotFound", "VictimGone"],
            Self::ReplacementDeleted => &["ReplacementLost"],
            Self::NodeDeleted => {
                &["NodeGone", "NodeNotFound", "ReplacementLost", "Unschedulable", "ReplacementNotReady"]
            }
            Self::WorkloadDeleted => {
                &["WorkloadGone", "WorkloadNotFound", "PodNotFound", "VictimGone", "ReplacementLost", "PodRefused"]
            }
        }
    }

    /// Does it; whether there was anything to do it to, and whether a replica that served was lost by it.
    async fn strike(self, world: &World, act: &Act) -> Result<(bool, bool)> {
        let app = act.name();
        let deployments: Api<Deployment> = world.api();
        let merge = |patch| Patch::Merge(patch);
        match self {
            Self::Rollout => {
                let patch = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
                deployments.patch(app, &PatchParams::default(), &merge(patch)).await?;
                let rolls = |seen: &Seen| (seen.deployments.get(app)?.metadata.generation? > 1).then_some(());
                world.eye.until("the rollout to begin", rolls).await?;
                Ok((true, false))
            }
            Self::Scale(to) => {
                deployments.patch(app, &PatchParams::default(), &merge(json!({"spec": {"replicas": to}}))).await?;
                let scaled = |seen: &Seen| (seen.deployments.get(app)?.spec.as_ref()?.replicas? == to).then_some(());
                world.eye.until("the new number of replicas", scaled).await?;
                Ok((true, false))
            }
            Self::VictimDeleted => delete_pod(world, &act.victim).await,
            Self::ReplacementDeleted => match replacement(world, app) {
                Some(name) => delete_pod(world, &name).await,
                None => Ok((false, false)),
            },
            Self::NodeDeleted => {
                // A replica that served there is lost with the node; the eviction of the old one may be under way.
                let seen = world.eye.now();
                let serving = pods_of(&seen, app).any(|pod| node_of(pod) == act.node && serves(pod));
                Api::<Node>::all(world.client.clone()).delete(&act.node, &DeleteParams::default()).await?;
                Ok((true, serving))
            }
            Self::WorkloadDeleted => {
                deployments.delete(app, &DeleteParams::foreground()).await?;
                Ok((true, true))
            }
        }
    }
}

/// The replacement's name, as the action's status has it.
fn replacement(world: &World, app: &str) -> Option<String> {
    let seen = world.eye.now();
    let slots = &seen.actions.get(app)?.status.as_ref()?.slots;
    slots.first()?.replacement.as_ref().map(|pod| pod.name.clone())
}

async fn delete_pod(world: &World, name: &str) -> Result<(bool, bool)> {
    let serving = world.eye.now().pods.get(name).is_some_and(|pod| serves(pod));
    match world.api::<Pod>().delete(name, &DeleteParams::default()).await {
        Ok(_) => {
            world.eye.until("the deleted pod to be gone", |seen| (!seen.pods.contains_key(name)).then_some(())).await?;
            Ok((true, serving))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok((false, false)),
        Err(error) => Err(error.into()),
    }
}

/// What the pod garbage collector does 40 s after a node is gone: takes the pods away that are still bound to it.
async fn collect_garbage(world: &World, act: &Act, foreign: Foreign) -> anyhow::Error {
    if foreign != Foreign::NodeDeleted {
        std::future::pending::<()>().await;
    }
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let seen = world.eye.now();
        for pod in pods_of(&seen, act.name()).filter(|pod| node_of(pod) == act.node) {
            let gone = world.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
            if let Err(error) = gone.map_err(anyhow::Error::from)
                && !error.to_string().contains("not found")
            {
                return error;
            }
        }
    }
}

/// One case: the foreign act right before the nth write of this action.
async fn one(world: &World, verb: Verb, foreign: Foreign, nth: usize) -> Result<()> {
    let app = format!("w{nth:02}");
    let own = format!("{}-{app}", world.ns);
    let change = |workload: Workload| match foreign {
        // A budget of all replicas would forbid every eviction after that, rightly.
        Foreign::Scale(to) if to < 3 => workload.budget(json!({"maxUnavailable": 1})),
        _ => workload.spec(tolerating(&own)),
    };
    let mut act = Act::of(world, verb, &app, change).await?;
    if foreign == Foreign::NodeDeleted {
        // A target that nobody else is on, made when the first replicas have their places.
        Nodes::one(&world.client, &world.ns, &own, &own).await?;
        act.node = own;
    }
    let mut held = world.proxy.hold(nth, When::Before, is_about(&app));
    act.begin(world).await?;
    let write = reached(world, &mut held, &app, Duration::ZERO).await?;
    if write.is_none() {
        // The action was over before this write: after its end, nothing concerns it any more.
        held.release();
        return act.done(world).await;
    }
    let (done, lost) = foreign.strike(world, &act).await?;
    held.release();
    let end = format!(
        "the end of {} after {foreign:?} before {}",
        verb.name(),
        write.map(|write| write.to_string()).unwrap_or_default()
    );
    let over = |seen: &Seen| seen.actions.get(&app).filter(|action| is_over(action)).cloned();
    let action = tokio::select! {
        action = world.eye.until(&end, over) => action?,
        error = collect_garbage(world, &act, foreign) => return Err(error),
    };
    let succeeded = ready(&action) == Some(("True", "Succeeded"));
    let excused =
        ready(&action).is_some_and(|(status, reason)| status == "False" && done && foreign.excuses().contains(&reason));
    ensure!(succeeded || excused, "{end}: {:?} {}", ready(&action), message(&action));
    // A new pod that is lost after its adoption is no reason to take the replica back: its ReplicaSet makes another.
    let kept = message(&action).contains("its ReplicaSet creates another one");
    let end_of_action = EndOfAction { succeeded, changed: succeeded || kept, lost };
    judge(world, &act, foreign, end_of_action).await.map_err(|error| error.context(end))
}

/// How an action ended.
struct EndOfAction {
    succeeded: bool,
    /// Its change of the number of replicas is to stay.
    changed: bool,
    /// The foreign act ended a replica that served.
    lost: bool,
}

/// Whatever came of the action: nothing of it is left, and no replica was lost but by the foreign act.
async fn judge(world: &World, act: &Act, foreign: Foreign, action: EndOfAction) -> Result<()> {
    let EndOfAction { succeeded, changed, lost } = action;
    let app = act.name();
    if foreign == Foreign::WorkloadDeleted {
        let gone = |seen: &Seen| pods_of(seen, app).next().is_none().then_some(());
        return world.eye.until(&format!("every pod of {app} to be gone with it"), gone).await;
    }
    let asked = |seen: &Seen| seen.deployments.get(app).and_then(|object| object.spec.as_ref()?.replicas);
    let replicas = usize::try_from(asked(&world.eye.now()).unwrap_or(-1))?;
    tokio::select! {
        settled = settled(world, app, replicas) => settled?,
        error = collect_garbage(world, act, foreign) => return Err(error),
    }
    let verdict = act.scene.tale.verdict(&world.eye);
    let change: i32 = match (act.verb, changed) {
        (Verb::Create, true) => 1,
        (Verb::Delete, true) => -1,
        (Verb::Move, _) | (_, false) => 0,
    };
    let base = i32::try_from(REPLICAS)?;
    let end = i32::try_from(replicas)?;
    match foreign {
        Foreign::Scale(to) => ensure!(end == to || end == to + change, "{end} replicas in the end: {verdict:?}"),
        _ => ensure!(end == base + change, "{end} replicas in the end: {verdict:?}"),
    }
    let least = verdict.replicas.iter().copied().min().unwrap_or(base);
    let floor = usize::try_from(least)?.saturating_sub(usize::from(lost));
    ensure!(
        verdict.lowest_ready >= floor,
        "{} Ready at some time, {floor} asked for: {verdict:?}",
        verdict.lowest_ready
    );
    // A new pod that is deleted when its move is verified already is the set's to replace, wherever that may be.
    if act.verb == Verb::Move && matches!(foreign, Foreign::VictimDeleted) && succeeded {
        ensure!(verdict.came.iter().any(|(_, node)| *node == act.node), "nobody is on {}: {verdict:?}", act.node);
    }
    Ok(())
}

fn at_each_step(verb: Verb, foreign: Foreign) {
    let name = format!("{}-{foreign:?}", verb.name()).to_lowercase().replace(['(', ')'], "-");
    story(&format!("x-{}", name.trim_end_matches('-')), async |world| {
        let cases = (1..=MOST_WRITES).map(async |nth| {
            let _turn = CASES.acquire().await?;
            one(world, verb, foreign, nth).await.map_err(|error| error.context(format!("write {nth}")))
        });
        let ended = futures::future::join_all(cases).await;
        let bad: Vec<String> =
            ended.into_iter().filter_map(|ended| ended.err()).map(|error| format!("{error:#}")).collect();
        ensure!(bad.is_empty(), "{} of {MOST_WRITES} cases:\n{}", bad.len(), bad.join("\n"));
        Ok(())
    });
}

#[rstest::rstest]
#[case::rollout(Foreign::Rollout)]
#[case::more(Foreign::Scale(5))]
#[case::fewer(Foreign::Scale(2))]
#[case::victim(Foreign::VictimDeleted)]
#[case::replacement(Foreign::ReplacementDeleted)]
#[case::node(Foreign::NodeDeleted)]
#[case::workload(Foreign::WorkloadDeleted)]
fn a_move_at_each_step(#[case] foreign: Foreign) {
    at_each_step(Verb::Move, foreign);
}

#[rstest::rstest]
#[case::rollout(Foreign::Rollout)]
#[case::more(Foreign::Scale(5))]
#[case::fewer(Foreign::Scale(2))]
#[case::replacement(Foreign::ReplacementDeleted)]
#[case::node(Foreign::NodeDeleted)]
#[case::workload(Foreign::WorkloadDeleted)]
fn a_create_at_each_step(#[case] foreign: Foreign) {
    at_each_step(Verb::Create, foreign);
}

#[rstest::rstest]
#[case::rollout(Foreign::Rollout)]
#[case::more(Foreign::Scale(5))]
#[case::fewer(Foreign::Scale(2))]
#[case::victim(Foreign::VictimDeleted)]
#[case::workload(Foreign::WorkloadDeleted)]
fn a_delete_at_each_step(#[case] foreign: Foreign) {
    at_each_step(Verb::Delete, foreign);
}
