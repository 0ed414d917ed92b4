//! Drives a run: the cluster settles; then all parts take steps in random order; finally the other clients stop, and
//! everything must come to rest.

mod operate;

use std::collections::BTreeMap;
use std::rc::Rc;

use ganglion_core::facts::Key;
use tokio::runtime::Runtime;

use crate::check::invariants::Invariants;
use crate::check::{Cause, Violation, rest, violation};
use crate::cluster::api::{Api, BEGINNING};
use crate::cluster::foreign::{Act, Foreign};
use crate::cluster::{Part, SimulatedCluster};
use crate::operator::Move;
use crate::operator::build::runtime;
use crate::operator::feed::WatchedKind;
use crate::operator::flaw::Flaw;
use crate::operator::process::Process;
use crate::random::Rng;
use crate::scripts::{Cue, What};
use crate::setup::{Choice, Setup, Timed};
use crate::stage;

/// Simulated seconds within which everything must end after other clients stop.
const TIMEOUT: i64 = 24 * 3600;

/// Maximum number of rounds of all parts without passing time; more indicate an endless loop.
const MOST_ROUNDS: usize = 300;

/// The same per action, if there are many.
const ROUNDS_OF_ONE: usize = 20;

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Done {
    pub steps: u64,
    pub ends: BTreeMap<String, usize>,
    pub violation: Option<Violation>,
    pub lines: Vec<String>,
}

pub struct Run<'a> {
    setup: &'a Setup,
    pub cluster: SimulatedCluster,
    /// Cues of a script.
    pub cues: Vec<(Cue, What)>,
    /// Number of writes of the operator so far.
    writes: usize,
    flaw: Flaw,
    runtime: Rc<Runtime>,
    operator: Process,
    invariants: Invariants,
    foreign: Foreign,
    rng: Rng,
    steps: u64,
}

/// Runs this situation; with `trace`, the result has one line per step.
pub fn run(setup: &Setup, flaw: Flaw, trace: bool) -> Done {
    let mut run = Run::new(setup, flaw, trace);
    let result = run.all();
    run.done(result.err())
}

impl<'a> Run<'a> {
    pub fn new(setup: &'a Setup, flaw: Flaw, trace: bool) -> Self {
        let mut rng = Rng::new(setup.seed);
        let mut api = Api::new(Rng::new(rng.next()));
        api.lines = trace.then(Vec::new);
        // Seeds the controller's jitter.
        fastrand::seed(setup.seed);
        let runtime = Rc::new(runtime());
        Self {
            setup,
            cluster: SimulatedCluster::new(api),
            cues: Vec::new(),
            writes: 0,
            flaw,
            operator: Process::start(&runtime, flaw.limits(&setup.limits), flaw.misreading()),
            runtime,
            invariants: Invariants::new(setup.limits.clone(), setup.has_room),
            foreign: Foreign::default(),
            rng,
            steps: 0,
        }
    }

    /// Runs everything.
    pub fn all(&mut self) -> Result<(), Violation> {
        self.begin()?;
        self.mix()?;
        self.settle()
    }

    /// Actions in the order in which their first replicas were admitted.
    pub fn begun(&self) -> &[Key] {
        &self.invariants.begun
    }

    fn done(self, violation: Option<Violation>) -> Done {
        let lines = self.cluster.api.lines.unwrap_or_default();
        Done { steps: self.steps, ends: self.invariants.ends, violation, lines }
    }

    /// Creates nodes and workloads, and lets them settle.
    pub fn begin(&mut self) -> Result<(), Violation> {
        let api = &mut self.cluster.api;
        for node in &self.setup.nodes {
            api.add_node(&node.name, &node.zone, node.cpu, node.pods, crate::cluster::object::Fate::Good);
        }
        for workload in &self.setup.workloads {
            if workload.deployment {
                api.add_deployment(&workload.app, workload.replicas, &workload.shape);
            } else {
                api.add_set(&workload.app, workload.replicas, &workload.shape);
            }
            for (index, rule) in workload.budgets.iter().enumerate() {
                api.add_budget(&format!("{}-{index}", workload.app), &workload.app, *rule);
            }
            if workload.scaler {
                api.add_scaler(&workload.app);
            }
        }
        while self.cluster.quiesce() {}
        self.cluster.api.clock += 3_600_000;
        while self.cluster.quiesce() {}
        self.invariants.take(&mut self.cluster, &Cause::Foreign)?;
        for account in self.invariants.accounts.values_mut() {
            account.settle();
            // Replicas that do not fit into the cluster are missing from the start.
            account.ever_disturbed = account.serving < account.asked;
            account.disturbed = account.ever_disturbed;
        }
        for node in &self.setup.nodes {
            let fate = node.fate;
            let key = ganglion_core::facts::Key::new("", node.name.clone());
            let _ =
                self.cluster.api.update::<crate::cluster::object::Node>(&key, crate::cluster::api::If::any(), |node| {
                    node.fate = fate
                });
        }
        self.cluster.api.replacements = self.setup.replacements;
        self.cluster.api.linger = self.setup.linger;
        Ok(())
    }

    /// Takes steps of all parts in random order.
    fn mix(&mut self) -> Result<(), Violation> {
        let (choices, weights): (Vec<Choice>, Vec<u32>) = self.setup.pace.iter().copied().unzip();
        let mut frozen = vec![0usize; choices.len()];
        let mut acts = self.setup.acts.iter().peekable();
        let mut waiting: Vec<&Timed> = Vec::new();
        let mut step = 0;
        for _ in 0..self.setup.steps * 8 {
            if step >= self.setup.steps {
                break;
            }
            while let Some(timed) = acts.next_if(|timed| timed.at <= step) {
                waiting.push(timed);
            }
            for timed in std::mem::take(&mut waiting) {
                let mut rng = Rng::new(timed.pick);
                if !self.act(&timed.act, &mut rng)? && timed.act.waits() {
                    waiting.push(timed);
                }
            }
            if self.rng.chance(3) {
                let index = self.rng.below(choices.len());
                frozen[index] = step + 20 + self.rng.below(300);
            }
            let index = self.rng.weighted(&weights);
            if frozen[index] > step {
                continue;
            }
            if self.choose(choices[index])? {
                step += 1;
                self.foreign_apply()?;
            }
        }
        self.steps += step as u64;
        Ok(())
    }

    /// Performs the act; false if there is no suitable object.
    pub fn act(&mut self, act: &Act, rng: &mut Rng) -> Result<bool, Violation> {
        let done = self.foreign.perform(&mut self.cluster.api, act, rng);
        self.invariants.vanished |= done && matches!(act, Act::Vanish);
        self.invariants.take(&mut self.cluster, &Cause::Foreign)?;
        Ok(done)
    }

    fn foreign_apply(&mut self) -> Result<(), Violation> {
        if !self.foreign.is_done() && self.foreign.apply(&mut self.cluster.api) {
            self.invariants.take(&mut self.cluster, &Cause::Foreign)?;
        }
        Ok(())
    }

    /// Takes one step; false if there was nothing to do.
    fn choose(&mut self, choice: Choice) -> Result<bool, Violation> {
        match choice {
            Choice::Part(part) => self.part(part),
            Choice::Move(step) => self.operate(step),
            Choice::Tick => {
                self.cluster.api.clock += self.rng.between(1, 2000);
                self.cluster.sets.keep_up(&self.cluster.api);
                Ok(true)
            }
            Choice::Leap => {
                self.cluster.api.clock += self.rng.between(5_000, 400_000);
                self.cluster.api.say(|| "time passes".to_owned());
                self.cluster.sets.keep_up(&self.cluster.api);
                self.cluster.sets.resync();
                Ok(true)
            }
        }
    }

    fn part(&mut self, part: Part) -> Result<bool, Violation> {
        let did = self.cluster.step(part);
        if !self.cluster.api.notes.is_empty() {
            self.invariants.take(&mut self.cluster, &Cause::Cluster(part))?;
        }
        Ok(did)
    }

    /// After other clients have stopped: all parts take steps until nothing is left to do.
    pub fn settle(&mut self) -> Result<(), Violation> {
        self.cluster.api.say(|| "others stop".to_owned());
        if self.cues.is_empty() {
            self.resume_all()?;
        }
        let end = self.cluster.api.seconds() + TIMEOUT;
        let (mut idle, mut hurry) = (0, 0);
        loop {
            let before = self.cluster.api.version();
            self.round()?;
            if self.cluster.api.version() != before {
                idle = 0;
                hurry += 1;
                if hurry > MOST_ROUNDS.max(self.setup.acts.len() * ROUNDS_OF_ONE) {
                    return violation("Livelock", format!("{hurry} rounds of writes without passing time"));
                }
                continue;
            }
            hurry = 0;
            if self.cue()? {
                continue;
            }
            let Some(next) = self.next_time() else { break };
            idle += 1;
            self.pass(next);
            if self.cluster.api.seconds() > end || (idle > 300 && self.all_ended()) {
                break;
            }
        }
        if !self.all_ended() {
            self.resync()?;
        }
        self.operator.look(|world| rest::check(&self.invariants, &self.cluster.api, world))?;
        if self.cluster.api.seconds() > end {
            return violation("NoRest", format!("still active after {TIMEOUT} s"));
        }
        Ok(())
    }

    /// Performs the next cue of the script, if it is due.
    fn cue(&mut self) -> Result<bool, Violation> {
        let Some((when, what)) = self.cues.first().copied() else { return Ok(false) };
        if !stage::is_time(when, self.writes, &self.cluster.api) {
            return Ok(false);
        }
        self.cues.remove(0);
        stage::follow(self, what)?;
        Ok(true)
    }

    /// Resumes all suspended actions.
    fn resume_all(&mut self) -> Result<(), Violation> {
        for pick in 0..64 {
            let suspended = self.cluster.api.actions.values().any(|one| one.spec.suspend && !one.finished());
            if !suspended {
                break;
            }
            self.act(&Act::Resume, &mut Rng::new(pick))?;
        }
        Ok(())
    }

    fn all_ended(&self) -> bool {
        self.cluster.api.actions.values().all(|action| action.finished())
    }

    /// Finds actions that should have been requeued: a resync must find nothing to do.
    fn resync(&mut self) -> Result<(), Violation> {
        let before = self.cluster.api.version();
        self.operator.requeue_all();
        self.round()?;
        if self.cluster.api.version() == before {
            return Ok(());
        }
        violation("LostRequeue", "an action had something to do, but was not requeued")
    }

    fn next_time(&self) -> Option<i64> {
        let operator = self.operator.next_time();
        let cluster = self.cluster.next_time().map(|at| at * 1000);
        operator.into_iter().chain(cluster).min()
    }

    fn pass(&mut self, next: i64) {
        let clock = &mut self.cluster.api.clock;
        *clock = next.max(*clock + 1);
        let seconds = self.cluster.api.seconds() - BEGINNING;
        self.cluster.api.say(|| format!("time is {seconds}"));
        self.cluster.sets.keep_up(&self.cluster.api);
        self.cluster.sets.resync();
    }

    fn round(&mut self) -> Result<(), Violation> {
        for part in Part::ALL {
            let once = matches!(part, Part::SetsRetry | Part::DeploymentsRetry);
            while self.part(part)? && !once {
                self.steps += 1;
            }
        }
        if !self.foreign.is_done() {
            self.foreign_apply()?;
            self.resume_all()?;
        }
        for kind in WatchedKind::ALL {
            while self.operate(Move::Hear(kind))? {
                self.steps += 1;
            }
        }
        for _ in 0..200 {
            let mut did = false;
            for step in [Move::Plan, Move::Send, Move::Answer, Move::Sweep] {
                while self.operate(step)? {
                    self.steps += 1;
                    did = true;
                    // The next cue of a script may be due in the middle of other work.
                    if self.cue()? {
                        return Ok(());
                    }
                }
            }
            if !did {
                return Ok(());
            }
        }
        Ok(())
    }
}
