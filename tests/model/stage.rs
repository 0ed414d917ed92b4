//! Plays the scripts on the simulated cluster, with the shipped controller and every invariant.

use ganglion_actions_plan::Limits;
use ganglion_core::facts::Key;

use crate::check::{Violation, outcome};
use crate::cluster::api::Api;
use crate::cluster::build::{NAMESPACE, PodShape};
use crate::cluster::foreign::{Act, Whom};
use crate::cluster::object::{Fate, Labels, Rule};
use crate::driver::Run;
use crate::operator::Move as Step;
use crate::operator::flaw::Flaw;
use crate::random::Rng;
use crate::scripts::{ACTION, APP, BudgetRule, Cue, End, Found, HOME, Nature, Of, Script, What};
use crate::setup::{NodeSpec, Setup, Workload};

/// Plays a script; the error says where its end differs.
pub fn play(script: &Script) -> Result<(), String> {
    let setup = setup(script);
    let mut run = Run::new(&setup, Flaw::None, true);
    let played = perform(&mut run, script);
    let api = &run.cluster.api;
    let trace = api.lines.clone().unwrap_or_default().join("\n");
    if let Err(violation) = played {
        return Err(format!("{}: {violation:?}\n{trace}", script.name));
    }
    if !run.cues.is_empty() {
        return Err(format!("{}: {:?} never came\n{trace}", script.name, run.cues));
    }
    let found = found(api, &script.end);
    if found == script.end.wanted() { Ok(()) } else { Err(format!("{}: {found:#?}\n{trace}", script.name)) }
}

/// Plays a script with an eviction that is granted but not carried out. Returns the time it took, in seconds.
pub fn play_interrupted(script: &Script) -> i64 {
    let setup = setup(script);
    let mut run = Run::new(&setup, Flaw::None, false);
    run.cluster.api.interrupts_eviction = true;
    let played = perform(&mut run, script);
    assert!(played.is_ok(), "{}: {played:?}", script.name);
    assert!(!run.cluster.api.interrupts_eviction, "{}: no eviction", script.name);
    assert_eq!(found(&run.cluster.api, &script.end), script.end.wanted(), "{}", script.name);
    let status = run.cluster.api.actions.get(&Key::new(NAMESPACE, ACTION)).and_then(|action| action.status.clone());
    let times = status.and_then(|status| Some((status.started_at?.0, status.finished_at?.0)));
    times.map_or(i64::MAX, |(started, finished)| finished.duration_since(started).as_secs())
}

fn setup(script: &Script) -> Setup {
    let rule = script.budget.map(|budget| match budget {
        BudgetRule::MinAvailable(count) => Rule::MinAvailable(count),
        BudgetRule::MaxUnavailable(count) => Rule::MaxUnavailable(count),
    });
    let home = NodeSpec { name: HOME.to_owned(), zone: "a".to_owned(), cpu: 10_000, pods: 50, fate: Fate::Good };
    let shape = PodShape { cpu: 100, grace: 30, node_selector: Labels::new(), ..PodShape::default() };
    Setup {
        seed: 1,
        steps: 0,
        nodes: vec![home],
        workloads: vec![Workload {
            app: APP.to_owned(),
            deployment: script.of == Of::Deployment,
            replicas: script.replicas,
            shape,
            budgets: rule.into_iter().collect(),
            scaler: false,
        }],
        acts: Vec::new(),
        limits: Limits::default(),
        pace: Vec::new(),
        replacements: (0, Fate::Good),
        linger: (1000, 2),
        has_room: false,
    }
}

fn perform(run: &mut Run<'_>, script: &Script) -> Result<(), Violation> {
    run.begin()?;
    for (name, nature) in script.nodes {
        let (pods, fate) = match nature {
            Nature::Good => (50, Fate::Good),
            Nature::Slow(seconds) => (50, Fate::Slow(*seconds)),
            Nature::Crashes => (50, Fate::Crash),
            Nature::NeverReady => (50, Fate::Never),
            Nature::NoImage => (50, Fate::NoImage),
            Nature::Room(pods) => (*pods, Fate::Good),
        };
        run.cluster.api.add_node(name, "b", 10_000, pods, fate);
    }
    run.act(&Act::Apply(ACTION.to_owned(), Box::new(script.spec(str::to_owned))), &mut Rng::new(1))?;
    run.cues = script.then.to_vec();
    run.settle()
}

/// Whether a cue is due; `writes` is the number of the operator's writes so far.
pub fn is_time(when: Cue, writes: usize, api: &Api) -> bool {
    let action = api.actions.get(&Key::new(NAMESPACE, ACTION));
    match when {
        Cue::Writes(count) => writes >= count,
        Cue::Step(step) => action.is_some_and(|action| action.slots().any(|slot| slot.step == step)),
        Cue::Says(reason) => action.is_some_and(|action| outcome::word(action) == reason),
        Cue::Ended => action.is_some_and(|action| action.finished()),
    }
}

/// Performs a cue.
pub fn follow(run: &mut Run<'_>, what: What) -> Result<(), Violation> {
    let act = match what {
        What::KillOperator => {
            run.operate(Step::Crash)?;
            return Ok(());
        }
        What::Scale(by) => Act::Scale(by),
        What::DeleteReplacement => Act::DeletePod(Whom::Replacement),
        What::Rollout => Act::Rollout,
        What::DeleteWorkload => Act::DeleteWorkload,
        What::Abort => Act::Abort,
        What::DeleteAction => Act::DeleteAction,
        What::Reapply => Act::Reapply,
        What::Suspend => Act::Suspend,
        What::Resume => Act::Resume,
    };
    run.act(&act, &mut Rng::new(1))?;
    Ok(())
}

fn found(api: &Api, end: &End) -> Found {
    let key = Key::new(NAMESPACE, APP);
    let deployment = api.deployments.get(&key).map(|one| one.replicas);
    let serving = |node: &str| {
        let here = api.pods.values().filter(|pod| pod.is_serving() && pod.node.as_deref() == Some(node));
        here.count()
    };
    Found {
        reason: api.actions.get(&Key::new(NAMESPACE, ACTION)).map(|action| outcome::word(action)),
        replicas: deployment.or_else(|| api.sets.get(&key).map(|one| one.replicas)),
        on: end.count(serving),
        receipt: !api.receipts.live.is_empty(),
    }
}
