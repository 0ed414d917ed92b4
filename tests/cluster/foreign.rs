//! Other clients change the same objects, at every step. Each case holds the operator just before one of its writes,
//! performs the foreign act as the administrator, and lets the operator continue.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use testkit::eye::Seen;
use testkit::kstatus::{is_over, message, ready};
use testkit::proxy::gate::HoldPoint;
use testkit::testbed::nodes::{TestNodes, tolerating};
use testkit::testbed::workload::{Workload, settled};
use testkit::testbed::{Testbed, story};
use testkit::verdict::{node_of, pods_of, serves};
use tokio::sync::Semaphore;

use crate::acts::{Act, REPLICAS, Verb, is_about};
use crate::crash::reached;

/// Act of another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Foreign {
    Rollout,
    Scale(i32),
    VictimDeleted,
    ReplacementDeleted,
    NodeDeleted,
    WorkloadDeleted,
}

/// More writes than any action has; cases beyond its last write end as if nothing had happened.
const MOST_WRITES: usize = 14;

/// Maximum number of concurrent cases over all testbeds, so that the plane's own controllers can keep up.
static CASES: Semaphore = Semaphore::const_new(10);

impl Foreign {
    /// Reasons with which the action may end unsuccessfully after it has been undone.
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

    /// Performs the act. Returns whether there was an object for it, and whether a serving replica was lost.
    async fn strike(self, testbed: &Testbed, act: &Act) -> Result<(bool, bool)> {
        let app = act.name();
        let deployments: Api<Deployment> = testbed.api();
        let merge = |patch| Patch::Merge(patch);
        match self {
            Self::Rollout => {
                let patch = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
                deployments.patch(app, &PatchParams::default(), &merge(patch)).await?;
                let rolls = |seen: &Seen| (seen.deployments.get(app)?.metadata.generation? > 1).then_some(());
                testbed.eye.until("the rollout to begin", rolls).await?;
                Ok((true, false))
            }
            Self::Scale(to) => {
                deployments.patch(app, &PatchParams::default(), &merge(json!({"spec": {"replicas": to}}))).await?;
                let scaled = |seen: &Seen| (seen.deployments.get(app)?.spec.as_ref()?.replicas? == to).then_some(());
                testbed.eye.until("the new number of replicas", scaled).await?;
                Ok((true, false))
            }
            Self::VictimDeleted => delete_pod(testbed, &act.victim).await,
            Self::ReplacementDeleted => match replacement(testbed, app) {
                Some(name) => delete_pod(testbed, &name).await,
                None => Ok((false, false)),
            },
            Self::NodeDeleted => {
                // A serving replica on the node is lost with it; the eviction of the old pod may be in progress.
                let seen = testbed.eye.now();
                let serving = pods_of(&seen, app).any(|pod| node_of(pod) == act.node && serves(pod));
                Api::<Node>::all(testbed.client.clone()).delete(&act.node, &DeleteParams::default()).await?;
                Ok((true, serving))
            }
            Self::WorkloadDeleted => {
                deployments.delete(app, &DeleteParams::foreground()).await?;
                Ok((true, true))
            }
        }
    }
}

/// Name of the replacement in the action's status.
fn replacement(testbed: &Testbed, app: &str) -> Option<String> {
    let seen = testbed.eye.now();
    let slots = &seen.actions.get(app)?.status.as_ref()?.slots;
    slots.first()?.replacement.as_ref().map(|pod| pod.name.clone())
}

async fn delete_pod(testbed: &Testbed, name: &str) -> Result<(bool, bool)> {
    let serving = testbed.eye.now().pods.get(name).is_some_and(|pod| serves(pod));
    match testbed.api::<Pod>().delete(name, &DeleteParams::default()).await {
        Ok(_) => {
            testbed
                .eye
                .until("the deleted pod to be gone", |seen| (!seen.pods.contains_key(name)).then_some(()))
                .await?;
            Ok((true, serving))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok((false, false)),
        Err(error) => Err(error.into()),
    }
}

/// Deletes the pods of a deleted node, as the pod garbage collector does after 40 s.
async fn collect_garbage(testbed: &Testbed, act: &Act, foreign: Foreign) -> anyhow::Error {
    if foreign != Foreign::NodeDeleted {
        std::future::pending::<()>().await;
    }
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let seen = testbed.eye.now();
        for pod in pods_of(&seen, act.name()).filter(|pod| node_of(pod) == act.node) {
            let gone = testbed.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
            if let Err(error) = gone.map_err(anyhow::Error::from)
                && !error.to_string().contains("not found")
            {
                return error;
            }
        }
    }
}

/// One case: the foreign act just before the nth write of this action.
async fn one(testbed: &Testbed, verb: Verb, foreign: Foreign, nth: usize) -> Result<()> {
    let app = format!("w{nth:02}");
    let own = format!("{}-{app}", testbed.ns);
    let change = |workload: Workload| match foreign {
        // After the scale, a budget of all replicas would correctly forbid every eviction.
        Foreign::Scale(to) if to < 3 => workload.budget(json!({"maxUnavailable": 1})),
        _ => workload.spec(tolerating(&own)),
    };
    let mut act = Act::of(testbed, verb, &app, change).await?;
    if foreign == Foreign::NodeDeleted {
        // A target without other pods, created after the first replicas are scheduled.
        TestNodes::one(&testbed.client, &testbed.ns, &own, &own).await?;
        act.node = own;
    }
    let mut held = testbed.proxy.hold(nth, HoldPoint::Before, is_about(&app));
    act.begin(testbed).await?;
    let write = reached(testbed, &mut held, &app, Duration::ZERO).await?;
    if write.is_none() {
        // The action ended before this write, so the act has no effect on it.
        held.release();
        return act.done(testbed).await;
    }
    let (done, lost) = foreign.strike(testbed, &act).await?;
    held.release();
    let end = format!(
        "the end of {} after {foreign:?} before {}",
        verb.name(),
        write.map(|write| write.to_string()).unwrap_or_default()
    );
    let over = |seen: &Seen| seen.actions.get(&app).filter(|action| is_over(action)).cloned();
    let action = tokio::select! {
        action = testbed.eye.until(&end, over) => action?,
        error = collect_garbage(testbed, &act, foreign) => return Err(error),
    };
    let succeeded = ready(&action) == Some(("True", "Succeeded"));
    let excused =
        ready(&action).is_some_and(|(status, reason)| status == "False" && done && foreign.excuses().contains(&reason));
    ensure!(succeeded || excused, "{end}: {:?} {}", ready(&action), message(&action));
    // If a new pod is lost after its adoption, the replica is not moved back: its ReplicaSet creates another pod.
    let kept = message(&action).contains("its ReplicaSet creates another one");
    let end_of_action = EndOfAction { succeeded, changed: succeeded || kept, lost };
    judge(testbed, &act, foreign, end_of_action).await.map_err(|error| error.context(end))
}

/// End of an action.
struct EndOfAction {
    succeeded: bool,
    /// Whether the change of the number of replicas persists.
    changed: bool,
    /// Whether the foreign act removed a serving replica.
    lost: bool,
}

/// Checks that nothing of the action is left, and that no replica was lost except by the foreign act.
async fn judge(testbed: &Testbed, act: &Act, foreign: Foreign, action: EndOfAction) -> Result<()> {
    let EndOfAction { succeeded, changed, lost } = action;
    let app = act.name();
    if foreign == Foreign::WorkloadDeleted {
        let gone = |seen: &Seen| pods_of(seen, app).next().is_none().then_some(());
        return testbed.eye.until(&format!("every pod of {app} to be gone with it"), gone).await;
    }
    let asked = |seen: &Seen| seen.deployments.get(app).and_then(|object| object.spec.as_ref()?.replicas);
    let replicas = usize::try_from(asked(&testbed.eye.now()).unwrap_or(-1))?;
    tokio::select! {
        settled = settled(testbed, app, replicas) => settled?,
        error = collect_garbage(testbed, act, foreign) => return Err(error),
    }
    let verdict = act.scene.tale.verdict(&testbed.eye);
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
    // If a new pod is deleted after its move was verified, the ReplicaSet replaces it on any node.
    if act.verb == Verb::Move && matches!(foreign, Foreign::VictimDeleted) && succeeded {
        ensure!(verdict.came.iter().any(|(_, node)| *node == act.node), "no new pod on {}: {verdict:?}", act.node);
    }
    Ok(())
}

fn at_each_step(verb: Verb, foreign: Foreign) {
    let name = format!("{}-{foreign:?}", verb.name()).to_lowercase().replace(['(', ')'], "-");
    story(&format!("x-{}", name.trim_end_matches('-')), async |testbed| {
        let cases = (1..=MOST_WRITES).map(async |nth| {
            let _turn = CASES.acquire().await?;
            one(testbed, verb, foreign, nth).await.map_err(|error| error.context(format!("write {nth}")))
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
