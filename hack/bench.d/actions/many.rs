//! 500 moves at once to named nodes, on 200 nodes with 2,000 pods: the rate relative to the bare protocol, and whether
//! each move was exact. Then about as many moves without a target off cordoned nodes, relative to the named ones. All
//! kinds alternate for several rounds. Each of the operator's rounds measures its own unit, because a machine may do
//! twice as much work in one half minute as in the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use ganglion_api::workload_action::WorkloadAction;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use testkit::eye::{Eye, Seen};
use testkit::plane::install::Installed;
use testkit::verdict::{Story, node_of, pods_of, serves};

use super::bare;
use crate::fleet;
use crate::frame::{Bench, Bound, Progress, median, number, operator};
use crate::unit::Unit;
use testkit::plane::audit::Audit;

const NODES: usize = 200;
const DEPLOYMENTS: usize = 50;
const REPLICAS: usize = 40;
const MOVES_EACH: usize = 10;
/// Spreads the Deployments over several namespaces, as teams would: the control plane's controllers do more work per
/// change of a pod, the more pods and budgets its namespace has.
const NAMESPACES: usize = 10;
const ROUNDS: usize = 3;

/// Number of writes that measure a round's unit, before and after the round.
const WRITES: usize = 100;

/// Minimum rate, relative to the bare protocol. The bare protocol keeps no records and is not exact.
const RATE: f64 = 0.45;

/// Minimum rate of moves without a target, relative to named ones.
const FREE_RATE: f64 = 2.0;

/// Maximum time per move of a whole round, in unit writes.
const WRITES_FOR_EACH: f64 = 25.0;

/// Maximum time of a round; moves that have not ended by then count as lost.
const LIMIT: Duration = Duration::from_secs(300);

/// Interval of the check for the end of all moves: 1/200 of the duration.
const GLANCE: Duration = Duration::from_millis(100);

/// Disables all limits on concurrent moves.
const SETTINGS: &str = "workloadActions:\n  limits: {inAll: null, perNamespace: null, perWorkload: null, \
                        perSourceNode: null, perTargetNode: null}\n";

/// One requested move.
struct Wish {
    namespace: String,
    action: WorkloadAction,
    app: String,
    victim: String,
    /// The target node; None if the scheduler chooses.
    node: Option<String>,
}

fn namespaces() -> Vec<String> {
    (0..NAMESPACES).map(|index| format!("team-{index}")).collect()
}

/// Result of one round.
#[derive(Default)]
struct Round {
    rate: f64,
    /// Time per move, in units.
    each: f64,
    requests: f64,
    lost: usize,
    wrong: usize,
    doubled: usize,
    missing: usize,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let home = bench.home("many")?;
    let audit = Audit::prepare(&home, false)?;
    let cluster = bench.plane("many", NODES, audit.options()).await?;
    Installed::default().install(&cluster).await?;
    fleet::deployments(&cluster.client, &namespaces(), DEPLOYMENTS, REPLICAS).await?;
    let eye = Eye::open_wide(&cluster.client).await?;
    let settings = home.join("settings.yaml");
    std::fs::write(&settings, SETTINGS)?;
    let (settings, namespaces) = (settings.display().to_string(), namespaces());
    let watched = namespaces.iter().flat_map(|namespace| ["--watch-namespace", namespace]);
    let options: Vec<&str> = ["--settings", &settings].into_iter().chain(watched).collect();
    let operator = operator(bench, "many", &cluster, &options).await?;
    let (mut rounds, mut free, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..ROUNDS {
        bare.push(bare_rate(&cluster.client, &eye, turn).await?);
        let named = wishes(&eye.now(), &format!("move-{turn}"))?;
        let round = round(&cluster.client, &eye, &audit, &format!("named-{turn}"), named).await;
        if round.as_ref().map_or(true, |round| round.lost > 0) {
            eprintln!("The end of the operator's log:\n{}", operator.log_tail(20));
        }
        rounds.push(round?);
        let fullest = fullest(&eye.now());
        cordon(&cluster.client, &fullest, true).await?;
        let leaving = leaving(&eye.now(), &fullest, &format!("leave-{turn}"))?;
        free.push(self::round(&cluster.client, &eye, &audit, &format!("free-{turn}"), leaving).await?);
        cordon(&cluster.client, &fullest, false).await?;
    }
    report(bench, &rounds, &bare);
    report_free(bench, &free, &rounds);
    operator.stop().await?;
    cluster.down().await
}

async fn round(client: &Client, eye: &Eye, audit: &Audit, name: &str, wishes: Vec<Wish>) -> Result<Round> {
    let idle = format!("unit-{name}");
    fleet::namespace(client, &idle).await?;
    let mut unit = Unit::new(client, &idle).await?;
    unit.measure(WRITES).await?;
    let stories: Vec<(String, Story)> =
        (0..DEPLOYMENTS).map(|index| format!("d-{index}")).map(|app| (app.clone(), Story::begin(eye, &app))).collect();
    let actions: Vec<WorkloadAction> = wishes.iter().map(|wish| wish.action.clone()).collect();
    let progress = Progress::count(&format!("{} moves at once, {name} of {ROUNDS}", wishes.len()), wishes.len());
    let (began, clock) = (Timestamp::now(), Instant::now());
    let (applied, took) = tokio::join!(fleet::apply_all(client, &actions), all_ended(eye, &wishes, clock, &progress));
    applied?;
    progress.end();
    let rested = rest(eye).await;
    let ended = Timestamp::now();
    let mut round = judge(eye, &wishes, &stories);
    rested?;
    unit.measure(WRITES).await?;
    round.rate = number(wishes.len() - round.lost) / took;
    round.each = took * 1e3 / number(wishes.len()) / unit.millis();
    let requests = audit.between(began, ended).await?;
    let mine = requests.iter().filter(|request| request.by_operator && !request.is_upkeep()).count();
    round.requests = number(mine) / number(wishes.len());
    Ok(round)
}

/// Reports the median of the rounds, and the sum of all errors.
fn report(bench: &mut Bench, rounds: &[Round], bare: &[f64]) {
    let middle = |figure: fn(&Round) -> f64| median(&rounds.iter().map(figure).collect::<Vec<f64>>());
    let all = |figure: fn(&Round) -> usize| number(rounds.iter().map(figure).sum());
    let most = |figure: fn(&Round) -> usize| number(rounds.iter().map(figure).max().unwrap_or(0));
    let name = format!("{} moves at once on {NODES} nodes, {} pods", DEPLOYMENTS * MOVES_EACH, DEPLOYMENTS * REPLICAS);
    let (rate, bare) = (middle(|round| round.rate), median(bare));
    bench.claim(&format!("{name}: rate, relative to the bare protocol"), rate / bare, "times", Bound::AtLeast(RATE));
    bench.note("  rate", rate, "a second");
    bench.note("  rate of the bare protocol (same number at once, not exact)", bare, "a second");
    bench.claim("  time per move, all together", middle(|round| round.each), "writes", Bound::AtMost(WRITES_FOR_EACH));
    bench.claim("  lost (did not succeed)", all(|round| round.lost), "moves", Bound::AtMost(0.0));
    let wrong = "  wrong (another pod terminated, or a replica on another node)";
    bench.claim(wrong, all(|round| round.wrong), "pods", Bound::AtMost(0.0));
    bench.claim("  doubled", all(|round| round.doubled), "pods", Bound::AtMost(0.0));
    let missing = "  Ready replicas missing at the worst moment";
    bench.claim(missing, most(|round| round.missing), "of a workload", Bound::AtMost(0.0));
    bench.note("  API requests per move", middle(|round| round.requests), "requests");
}

/// Reports moves without a target, relative to those with one.
fn report_free(bench: &mut Bench, free: &[Round], named: &[Round]) {
    let middle = |rounds: &[Round], figure: fn(&Round) -> f64| median(&rounds.iter().map(figure).collect::<Vec<f64>>());
    let rate = middle(free, |round| round.rate);
    let relative = rate / middle(named, |round| round.rate);
    let name = "as many moves without a target off cordoned nodes: rate, relative to named targets";
    bench.claim(name, relative, "times", Bound::AtLeast(FREE_RATE));
    bench.note("  rate", rate, "a second");
    let requests = middle(free, |round| round.requests);
    bench.claim(
        "  API requests per move, relative to named targets",
        requests / middle(named, |round| round.requests),
        "times",
        Bound::AtMost(1.0 / FREE_RATE),
    );
    bench.note("  API requests per move", requests, "requests");
    let all = |figure: fn(&Round) -> usize| number(free.iter().map(figure).sum());
    bench.claim("  lost (did not succeed)", all(|round| round.lost), "moves", Bound::AtMost(0.0));
    bench.claim("  wrong or doubled", all(|round| round.wrong + round.doubled), "pods", Bound::AtMost(0.0));
    let missing = number(free.iter().map(|round| round.missing).max().unwrap_or(0));
    bench.claim("  Ready replicas missing at the worst moment", missing, "of a workload", Bound::AtMost(0.0));
}

/// Closes or opens the nodes that moves without a target leave.
async fn cordon(client: &Client, nodes: &BTreeSet<String>, closed: bool) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"spec": {"unschedulable": closed}}));
    for node in nodes {
        api.patch(node, &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

/// Nodes whose pods are about as many as the moves to named nodes: those with most pods first.
fn fullest(seen: &Seen) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for pod in seen.pods.values() {
        *counts.entry(node_of(pod)).or_default() += 1;
    }
    let mut nodes: Vec<(usize, String)> = counts.into_iter().map(|(node, count)| (count, node)).collect();
    nodes.sort_by(|one, other| other.cmp(one));
    let mut left = DEPLOYMENTS * MOVES_EACH;
    let leaves = |(count, _): &(usize, String)| {
        let wanted = left > 0;
        left = left.saturating_sub(*count);
        wanted
    };
    nodes.into_iter().take_while(leaves).map(|(_, node)| node).collect()
}

/// Selects all pods on these nodes.
fn leaving(seen: &Seen, nodes: &BTreeSet<String>, name: &str) -> Result<Vec<Wish>> {
    let mut wishes = Vec::new();
    for index in 0..DEPLOYMENTS {
        let app = format!("d-{index}");
        let namespace = fleet::home_of(&namespaces(), index).to_owned();
        for pod in pods_of(seen, &app).filter(|pod| nodes.contains(&node_of(pod))) {
            let victim = pod.name_any();
            let action = fleet::leave(&namespace, &format!("{name}-{}", wishes.len()), &victim)?;
            wishes.push(Wish { namespace: namespace.clone(), action, app: app.clone(), victim, node: None });
        }
    }
    Ok(wishes)
}

/// Rate of the control plane on this machine: the same number of concurrent moves by the bare protocol, in moves per
/// second. With so many moves the protocol is not exact: if another move filled the ReplicaSet's place first, it hands
/// over its replacement without a surplus pod that is deleted.
async fn bare_rate(client: &Client, eye: &Eye, turn: usize) -> Result<f64> {
    let wishes = wishes(&eye.now(), "bare")?;
    let taken = bare::Taken::new(eye.now().pods.keys().cloned().collect());
    let text = format!("{} moves by the bare protocol, {} of {ROUNDS}", wishes.len(), turn + 1);
    let progress = Progress::count(&text, wishes.len());
    let (began, done) = (Instant::now(), AtomicUsize::new(0));
    let moves = wishes.iter().enumerate().map(|(index, wish)| {
        let number = turn * wishes.len() + index;
        let (taken, done, progress) = (&taken, &done, &progress);
        async move {
            let node = wish.node.as_deref().unwrap_or_default();
            let wanted = bare::Wanted { app: &wish.app, victim: &wish.victim, node, number };
            bare::exchange(client, eye, &wish.namespace, &wanted, taken).await?;
            progress.at(done.fetch_add(1, Ordering::Relaxed) + 1);
            anyhow::Ok(())
        }
    });
    try_join_all(moves).await?;
    let rate = number(wishes.len()) / began.elapsed().as_secs_f64();
    progress.end();
    rest(eye).await?;
    Ok(rate)
}

/// Selects [`MOVES_EACH`] pods of each Deployment, each with a target far from its node.
fn wishes(seen: &Seen, name: &str) -> Result<Vec<Wish>> {
    let mut wishes = Vec::new();
    for index in 0..DEPLOYMENTS {
        let app = format!("d-{index}");
        let namespace = fleet::home_of(&namespaces(), index).to_owned();
        for pod in pods_of(seen, &app).take(MOVES_EACH) {
            let at: usize = node_of(pod).trim_start_matches("node-").parse()?;
            let node = format!("node-{}", (at + NODES / 2) % NODES);
            let victim = pod.name_any();
            let action = fleet::move_pod(&namespace, &format!("{name}-{}", wishes.len()), &victim, &node)?;
            wishes.push(Wish { namespace: namespace.clone(), action, app: app.clone(), victim, node: Some(node) });
        }
    }
    Ok(wishes)
}

/// Waits until all actions have ended. Returns the elapsed seconds, or the limit. Checks at intervals: a check at each
/// of the tens of thousands of events would affect the measurement.
async fn all_ended(eye: &Eye, wishes: &[Wish], clock: Instant, progress: &Progress) -> f64 {
    let names: Vec<String> = wishes.iter().map(|wish| wish.action.name_any()).collect();
    while clock.elapsed() < LIMIT {
        let ended = eye.look(|seen| names.iter().filter(|name| fleet::ended(seen, name).is_some()).count());
        progress.at(ended);
        if ended == names.len() {
            break;
        }
        tokio::time::sleep(GLANCE).await;
    }
    clock.elapsed().as_secs_f64()
}

/// Waits until every workload has all its replicas, and no other pod exists.
async fn rest(eye: &Eye) -> Result<()> {
    let rest = |seen: &Seen| {
        let held = seen.actions.values().any(|action| !action.finalizers().is_empty());
        let whole = seen.pods.len() == DEPLOYMENTS * REPLICAS && seen.pods.values().all(|pod| serves(pod));
        (whole && !held).then_some(())
    };
    eye.within(Duration::from_secs(60), "rest after all moves", rest).await
}

/// Counts the errors of a round.
fn judge(eye: &Eye, wishes: &[Wish], stories: &[(String, Story)]) -> Round {
    let seen = eye.now();
    let succeeded =
        |wish: &&Wish| fleet::ended(&seen, &wish.action.name_any()).is_some_and(|(reason, _)| reason == "Succeeded");
    for wish in wishes.iter().filter(|wish| !succeeded(wish)).take(5) {
        eprintln!("{}: {:?}", wish.action.name_any(), fleet::ended(&seen, &wish.action.name_any()));
    }
    let mut round = Round { lost: wishes.iter().filter(|wish| !succeeded(wish)).count(), ..Round::default() };
    for (app, story) in stories {
        let verdict = story.verdict(eye);
        let asked: BTreeSet<&String> = wishes.iter().filter(|wish| wish.app == *app).map(|wish| &wish.victim).collect();
        round.wrong += verdict.died.iter().filter(|pod| !asked.contains(pod)).count();
        // The scheduler places no pod on a cordoned node.
        if wishes.iter().any(|wish| wish.node.is_some()) {
            let of_app = wishes.iter().filter(|wish| wish.app == *app);
            round.wrong += unwanted(of_app, verdict.came.iter().map(|(_, node)| node));
        }
        round.doubled += verdict.came.len().saturating_sub(asked.len());
        round.missing = round.missing.max(REPLICAS.saturating_sub(verdict.lowest_ready));
        round.wrong += usize::from(verdict.generations != 1);
    }
    round
}

/// Number of new replicas on nodes that no action requested. Missing replicas on requested nodes do not offset them.
fn unwanted<'a>(wishes: impl Iterator<Item = &'a Wish>, came: impl Iterator<Item = &'a String>) -> usize {
    let mut nodes: BTreeMap<&String, isize> = BTreeMap::new();
    for node in wishes.filter_map(|wish| wish.node.as_ref()) {
        *nodes.entry(node).or_default() += 1;
    }
    for node in came {
        *nodes.entry(node).or_default() -= 1;
    }
    nodes.values().filter(|left| **left < 0).map(|left| left.unsigned_abs()).sum()
}
