//! Generates the situation of a run from its seed: nodes, workloads, actions, acts of other clients with their times,
//! and the pace of each part. A situation is data, so that a failing one can be reduced.

use ganglion_actions_plan::Limits;
use ganglion_api::refs::{NodePreference, NodeSource, PodRef, Target, WorkloadRef};
use ganglion_api::workload_action::{
    Create, Delete, Disruption, Mode, Move as MoveSpec, MoveApplication, OnFailure, ReplicaCount, RunPolicy, Swap,
    SwapSide, Timeouts, WorkloadActionSpec,
};

use crate::cluster::Part;
use crate::cluster::build::{PART_OF, PodShape, labels, place};
use crate::cluster::foreign::{Act, Whom};
use crate::cluster::object::{Fate, Labels, Rule};
use crate::operator::Move;
use crate::operator::feed::WatchedKind;
use crate::random::Rng;

#[derive(Clone, Debug)]
pub struct NodeSpec {
    pub name: String,
    pub zone: String,
    pub cpu: i64,
    pub pods: i64,
    pub fate: Fate,
}

#[derive(Clone, Debug)]
pub struct Workload {
    /// `NAMESPACE/NAME`, or a name alone; unique among workloads.
    pub app: String,
    /// A Deployment, or else a standalone ReplicaSet.
    pub deployment: bool,
    pub replicas: i32,
    pub shape: PodShape,
    pub budgets: Vec<Rule>,
    pub scaler: bool,
}

/// An act of another client that happens once after this number of steps.
#[derive(Clone, Debug)]
pub struct Timed {
    pub at: usize,
    pub act: Act,
    /// Seed for the choice of its object.
    pub pick: u64,
}

/// Possible next step of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    Part(Part),
    Move(Move),
    /// Up to two seconds pass.
    Tick,
    /// Minutes pass.
    Leap,
}

#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of the interleaving.
    pub seed: u64,
    pub steps: usize,
    pub nodes: Vec<NodeSpec>,
    pub workloads: Vec<Workload>,
    pub acts: Vec<Timed>,
    pub limits: Limits,
    pub pace: Vec<(Choice, u32)>,
    pub replacements: (u32, Fate),
    /// Per mille of pods whose end takes this number of seconds.
    pub linger: (u32, i64),
    /// Whether the cluster has room for all pods without the operator, so that a preemption is its fault.
    pub has_room: bool,
}

impl Setup {
    /// The situation of this seed.
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let nodes = nodes(&mut rng);
        let workloads = workloads(&mut rng);
        let steps = 200 + rng.below(1200);
        let mut acts = actions(&mut rng, &workloads, &nodes, steps);
        if rng.chance(700) {
            for _ in 0..=rng.below(6) {
                acts.push(Timed { at: rng.below(steps), act: act(&mut rng), pick: rng.next() });
            }
        }
        acts.sort_by_key(|timed| timed.at);
        let bad = [Fate::Never, Fate::Crash, Fate::NoImage, Fate::Slow(30), Fate::Slow(400)];
        let fate = rng.pick(&bad).copied().unwrap_or_default();
        let replacements = (if rng.chance(300) { 400 } else { 0 }, fate);
        let linger = (if rng.chance(400) { 500 } else { 0 }, *rng.pick(&[5, 30, 600]).unwrap_or(&30));
        Self {
            seed: rng.next(),
            steps,
            nodes,
            workloads,
            acts,
            limits: limits(&mut rng),
            pace: pace(&mut rng),
            replacements,
            linger,
            has_room: false,
        }
    }
}

impl Setup {
    /// The same, with one or two applications that leave some nodes.
    pub fn with_applications(seed: u64) -> Self {
        let mut setup = Self::random(seed);
        let mut rng = Rng::new(seed ^ 0x5eed);
        for index in 0..1 + rng.below(2) {
            let spec = application(&mut rng, &setup.nodes);
            let act = Act::Apply(format!("application-{index}"), Box::new(spec));
            setup.acts.push(Timed { at: rng.below(setup.steps / 2), act, pick: rng.next() });
        }
        setup.acts.sort_by_key(|timed| timed.at);
        setup
    }

    /// The same, or with applications, and with troubles of kubelets, of webhooks and of the scheduler.
    pub fn with_troubles(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7b1e);
        let mut setup = if rng.chance(300) { Self::with_applications(seed) } else { Self::random(seed) };
        for workload in &mut setup.workloads {
            workload.shape.prioritized = rng.chance(300);
        }
        if rng.chance(300) {
            let fates = [Fate::Rejected, Fate::Late(4), Fate::Late(60), Fate::Late(400)];
            setup.replacements = (500, rng.pick(&fates).copied().unwrap_or_default());
        }
        if let Some(node) = setup.nodes.last_mut().filter(|_| rng.chance(200)) {
            node.fate = Fate::Late(30);
        }
        for _ in 0..=rng.below(5) {
            setup.acts.push(Timed { at: rng.below(setup.steps), act: trouble(&mut rng), pick: rng.next() });
        }
        setup.acts.sort_by_key(|timed| timed.at);
        setup
    }

    /// A cluster with at most two free places, pods with and without a priority, and nobody but the operator.
    pub fn crowded(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xc20d);
        let mut setup = Self::random(seed);
        setup.nodes.iter_mut().for_each(|node| (node.fate, node.pods) = (Fate::Good, rng.between(1, 3)));
        let places: i64 = setup.nodes.iter().map(|node| node.pods).sum();
        let free = i64::try_from(rng.below(3)).unwrap_or(0);
        let prioritized = rng.between(1, 3).min(places - 1);
        let mut workload = setup.workloads[0].clone();
        (workload.shape.node_selector, workload.scaler) = (Labels::new(), false);
        setup.workloads = [(prioritized, true), ((places - prioritized - free).max(1), false)]
            .into_iter()
            .enumerate()
            .map(|(index, (replicas, prioritized))| {
                let mut one = Workload { app: format!("app-{index}"), budgets: Vec::new(), ..workload.clone() };
                (one.replicas, one.shape.prioritized) = (i32::try_from(replicas).unwrap_or(1), prioritized);
                one
            })
            .collect();
        setup.acts = actions(&mut rng, &setup.workloads, &setup.nodes, setup.steps);
        for act in &mut setup.acts {
            if let Act::Apply(_, spec) = &mut act.act {
                spec.disruption = Disruption::Never;
            }
        }
        setup.acts.sort_by_key(|timed| timed.at);
        (setup.replacements, setup.has_room) = ((0, Fate::Good), true);
        setup
    }

    /// No disturbances, no failures, and room for everything: only moves of one replica each.
    pub fn calm(seed: u64) -> Self {
        let mut setup = Self::random(seed);
        let mut rng = Rng::new(seed);
        for node in &mut setup.nodes {
            (node.fate, node.pods) = (Fate::Good, 50);
        }
        for workload in &mut setup.workloads {
            (workload.shape.node_selector, workload.scaler) = (Labels::new(), false);
            workload.budgets.clear();
        }
        setup.replacements = (0, Fate::Good);
        setup.limits = Limits { in_all: setup.limits.in_all, ..Limits::default() };
        setup.acts = (0..1 + rng.below(4))
            .filter_map(|index| {
                let workload = rng.pick(&setup.workloads)?.clone();
                let spec = WorkloadActionSpec {
                    move_: Some(MoveSpec {
                        workload: Some(reference(&workload)),
                        pod: None,
                        from: None,
                        to: Some(Target {
                            node_name: Some(rng.pick(&setup.nodes)?.name.as_str().into()),
                            ..Target::default()
                        }),
                        count: None,
                        up_to: None,
                    }),
                    ..WorkloadActionSpec::default()
                };
                let act = Act::Apply(format!("action-{index}"), Box::new(spec));
                Some(Timed { at: rng.below(100), act, pick: rng.next() })
            })
            .collect();
        setup.acts.sort_by_key(|timed| timed.at);
        setup
    }
}

fn application(rng: &mut Rng, nodes: &[NodeSpec]) -> WorkloadActionSpec {
    let node = |rng: &mut Rng| rng.pick(nodes).map(|node| node.name.as_str().into());
    let from = if rng.chance(700) {
        NodeSource { node_name: node(rng), ..NodeSource::default() }
    } else {
        NodeSource { node_selector: Some(labels(&[("zone", "a")])), ..NodeSource::default() }
    };
    let some = |rng: &mut Rng| rng.chance(700).then(|| i32::try_from(1 + rng.below(3)).unwrap_or(1));
    let move_application = MoveApplication {
        selector: labels(&[PART_OF]),
        from,
        to: rng.chance(500).then(|| target(rng, nodes)),
        max_parallel: some(rng),
        max_parallel_per_workload: some(rng),
        order: None,
        on_failure: rng.pick(&[OnFailure::Stop, OnFailure::Continue, OnFailure::Rollback]).copied(),
    };
    WorkloadActionSpec {
        move_application: Some(move_application),
        timeouts: timeouts(rng),
        run_policy: RunPolicy::Once,
        disruption: if rng.chance(150) { Disruption::Allowed } else { Disruption::Never },
        ..WorkloadActionSpec::default()
    }
}

fn reference(workload: &Workload) -> WorkloadRef {
    let kind = if workload.deployment { "Deployment" } else { "ReplicaSet" };
    WorkloadRef { api_version: "apps/v1".into(), kind: kind.into(), name: place(&workload.app).1.to_owned() }
}

fn nodes(rng: &mut Rng) -> Vec<NodeSpec> {
    let tight = rng.chance(300);
    let count = 2 + rng.below(5);
    let mut all: Vec<NodeSpec> = (0..count)
        .map(|index| NodeSpec {
            name: format!("node-{index}"),
            zone: if index % 2 == 0 { "a".to_owned() } else { "b".to_owned() },
            cpu: 10_000,
            pods: if tight { rng.between(2, 5) } else { 50 },
            fate: Fate::Good,
        })
        .collect();
    if rng.chance(200)
        && let Some(node) = all.last_mut()
    {
        node.fate = *rng.pick(&[Fate::Never, Fate::Crash, Fate::NoImage, Fate::Slow(100)]).unwrap_or(&Fate::Never);
    }
    all
}

fn workloads(rng: &mut Rng) -> Vec<Workload> {
    (0..*rng.pick(&[1, 1, 1, 2, 2, 3]).unwrap_or(&1))
        .map(|index| {
            let replicas = i32::try_from(rng.between(1, 5)).unwrap_or(1);
            let rule = match rng.below(4) {
                0 => Rule::MinAvailable(replicas),
                1 => Rule::MinAvailable((replicas - 1).max(1)),
                2 => Rule::MaxUnavailable(1),
                _ => Rule::MaxUnavailable(0),
            };
            let mut budgets = Vec::new();
            if rng.chance(450) {
                budgets.push(rule);
            }
            if rng.chance(30) {
                budgets.extend([rule, rule]);
            }
            let selector = if rng.chance(100) { labels(&[("zone", "a")]) } else { Labels::new() };
            let deployment = rng.chance(700);
            Workload {
                app: format!("app-{index}"),
                deployment,
                replicas,
                shape: PodShape {
                    revision: index,
                    cpu: 100,
                    grace: if rng.chance(150) { 0 } else { 30 },
                    cost: rng.chance(150).then(|| "7".to_owned()),
                    node_selector: selector,
                    prioritized: false,
                },
                budgets,
                scaler: deployment && rng.chance(50),
            }
        })
        .collect()
}

fn actions(rng: &mut Rng, workloads: &[Workload], nodes: &[NodeSpec], steps: usize) -> Vec<Timed> {
    (0..1 + rng.below(4))
        .filter_map(|index| {
            let workload = rng.pick(workloads)?.clone();
            let spec = action(rng, &workload, workloads, nodes);
            let act = Act::Apply(format!("action-{index}"), Box::new(spec));
            let at = if rng.chance(600) { rng.below(30) } else { rng.below(steps) };
            Some(Timed { at, act, pick: rng.next() })
        })
        .collect()
}

fn target(rng: &mut Rng, nodes: &[NodeSpec]) -> Target {
    if rng.chance(700) {
        let node_name = rng.pick(nodes).map(|node| node.name.as_str().into());
        return Target { node_name, ..Target::default() };
    }
    let zone = if rng.chance(500) { "a" } else { "b" };
    if rng.chance(300) {
        let first = NodePreference { node_selector: Some(labels(&[("zone", zone)])), condition: None };
        return Target { preferences: Some(vec![first]), ..Target::default() };
    }
    Target { node_selector: Some(labels(&[("zone", zone)])), ..Target::default() }
}

/// Placeholder for a name that is filled in when the action is applied: of any pod, or of a node that has one.
pub const SOME: &str = "?";

pub fn action(rng: &mut Rng, workload: &Workload, workloads: &[Workload], nodes: &[NodeSpec]) -> WorkloadActionSpec {
    let of = reference(workload);
    let to = target(rng, nodes);
    let count = rng.chance(500).then(|| i32::try_from(rng.between(1, 3)).unwrap_or(1));
    let from = rng.chance(300).then(|| NodeSource {
        node_name: rng.pick(nodes).map(|node| node.name.as_str().into()),
        ..NodeSource::default()
    });
    let by_pod = rng.chance(300);
    let pod = by_pod.then(|| PodRef { name: SOME.into() });
    let workload = (!by_pod).then(|| of.clone());
    let (count_of, from_of) = if by_pod { (None, None) } else { (count, from) };
    let mut spec = WorkloadActionSpec {
        timeouts: timeouts(rng),
        disruption: if rng.chance(150) { Disruption::Allowed } else { Disruption::Never },
        stable_seconds: if rng.chance(200) { 20 } else { 0 },
        run_policy: if rng.chance(150) { RunPolicy::OncePerObject } else { RunPolicy::Once },
        mode: if rng.chance(30) { Mode::Plan } else { Mode::Execute },
        ttl_seconds_after_finished: rng.chance(100).then_some(60),
        suspend: rng.chance(30),
        ..WorkloadActionSpec::default()
    };
    let all = !by_pod && rng.chance(200);
    let counted = if all { Some(ReplicaCount::All) } else { count_of.map(ReplicaCount::Number) };
    let up_to = if all { count } else { None };
    match rng.below(6) {
        0 => spec.create = Some(Create { workload: of, to, count }),
        1 => spec.delete = Some(Delete { workload, pod, from: from_of, count: counted, up_to }),
        2 => spec.swap = Some(swap(rng, of, workloads, nodes)),
        _ => {
            let to = (!rng.chance(200)).then_some(to);
            spec.move_ = Some(MoveSpec { workload, pod, from: from_of, to, count: counted, up_to });
        }
    }
    spec
}

/// A swap of a replica of one workload for one or two of any workload.
fn swap(rng: &mut Rng, of: WorkloadRef, workloads: &[Workload], nodes: &[NodeSpec]) -> Swap {
    let mut side = |workload: Option<WorkloadRef>| {
        let node = rng.chance(300).then(|| rng.pick(nodes).map(|node| node.name.as_str().into())).flatten();
        let from = node.map(|node| NodeSource { node_name: Some(node), ..NodeSource::default() });
        let workload = workload.or_else(|| rng.pick(workloads).map(reference));
        SwapSide { workload, pod: None, from }
    };
    let (replica, mut with) = (side(Some(of)), vec![side(None)]);
    if rng.chance(300) {
        with.push(SwapSide { from: None, ..with[0].clone() });
    }
    Swap { replica, with }
}

fn timeouts(rng: &mut Rng) -> Option<Timeouts> {
    let mut some = |low, high| i32::try_from(rng.between(low, high)).ok();
    let short = Timeouts {
        queue_seconds: some(30, 600),
        schedule_seconds: some(5, 60),
        ready_seconds: some(5, 120),
        drain_seconds: some(5, 120),
    };
    rng.chance(500).then_some(short)
}

fn act(rng: &mut Rng) -> Act {
    match rng.below(23) {
        0 | 1 => Act::Scale(1),
        2 | 3 => Act::Scale(-1),
        4 => Act::DeletePod(Whom::Victim),
        5 => Act::DeletePod(Whom::Replacement),
        6 => Act::DeletePod(Whom::Surplus),
        7 => Act::DeletePod(Whom::Anybody),
        8 | 9 => Act::Unready(*rng.pick(&[1, 30, 400]).unwrap_or(&1)),
        10 => Act::Cordon,
        11 => Act::Uncordon,
        12 => Act::DeleteNode,
        13 | 14 => Act::Rollout,
        15 if rng.chance(400) => Act::DeleteWorkload,
        15 | 16 => Act::Abort,
        17 => Act::DeleteAction,
        18 => Act::Reapply,
        19 => {
            if rng.chance(500) {
                Act::Suspend
            } else {
                Act::Resume
            }
        }
        21 => Act::Vanish,
        20 => Act::Quota(if rng.chance(300) { None } else { Some(rng.below(2)) }),
        _ => {
            if rng.chance(500) {
                Act::Revert
            } else {
                Act::TightenBudget
            }
        }
    }
}

fn trouble(rng: &mut Rng) -> Act {
    let whom = *rng.pick(&[Whom::Victim, Whom::Replacement, Whom::Surplus, Whom::Anybody]).unwrap_or(&Whom::Anybody);
    let seconds = *rng.pick(&[5, 60, 900]).unwrap_or(&60);
    match rng.below(7) {
        6 => Act::Strand(whom),
        0 => Act::Reject(1 + rng.below(3)),
        1 => Act::Fail(whom),
        2 | 3 => Act::Hold(whom, seconds),
        4 => Act::FailWebhook(seconds, *rng.pick(&[0, 0, 10]).unwrap_or(&0)),
        _ => Act::Preempt,
    }
}

fn limits(rng: &mut Rng) -> Limits {
    let mut some = || rng.chance(150).then(|| 1 + rng.below(2));
    Limits {
        in_all: some(),
        per_namespace: some(),
        per_workload: some(),
        per_source_node: some(),
        per_target_node: some(),
        ..Limits::default()
    }
}

/// Weight of each choice; in every run, each part has its own pace.
pub fn pace(rng: &mut Rng) -> Vec<(Choice, u32)> {
    let speeds = [2, 8, 20, 60];
    let mut all: Vec<(Choice, u32)> = Vec::new();
    for part in Part::ALL {
        let slow = matches!(part, Part::SetsRetry | Part::DeploymentsRetry);
        let speed = if slow { 2 } else { *rng.pick(&speeds).unwrap_or(&8) };
        all.push((Choice::Part(part), speed));
    }
    for kind in WatchedKind::ALL {
        all.push((Choice::Move(Move::Hear(kind)), *rng.pick(&speeds).unwrap_or(&8)));
    }
    all.push((Choice::Move(Move::Plan), *rng.pick(&[20, 60]).unwrap_or(&20)));
    all.push((Choice::Move(Move::Send), *rng.pick(&[10, 60]).unwrap_or(&20)));
    all.push((Choice::Move(Move::Answer), *rng.pick(&[10, 60]).unwrap_or(&20)));
    all.push((Choice::Move(Move::Sweep), 2));
    all.push((Choice::Tick, *rng.pick(&[0, 5, 20]).unwrap_or(&5)));
    all.push((Choice::Leap, u32::from(rng.chance(300))));
    if rng.chance(500) {
        all.push((Choice::Move(Move::Crash), 1 + u32::from(rng.chance(300)) * 6));
    }
    if rng.chance(300) {
        all.push((Choice::Move(Move::LoseAnswer), 3));
    }
    if rng.chance(300) {
        all.push((Choice::Move(Move::Refuse), 3));
    }
    if rng.chance(300) {
        all.extend(WatchedKind::ALL.map(|kind| (Choice::Move(Move::Cut(kind)), 1)));
    }
    all
}
