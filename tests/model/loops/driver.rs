//! Drives a run: samples arrive, requests are answered or lost, the process crashes, other clients write, the clock
//! steps. Then all that stops, and everything must come to rest with a correct status.

mod settle;

use std::collections::BTreeMap;
use std::sync::Arc;

use ganglion_api::marks;
use ganglion_runtime::metrics::Metrics;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::{Api, Asked, By, Sort, failure};
use super::flaw::Flaw;
use super::invariants::{Intent, Invariants, intent};
use super::process::{NOW, Process};
use super::setup::{self, Choice, Setup};
use crate::check::{Violation, violation};
use crate::random::Rng;

/// Start time of a run, in milliseconds since the epoch.
const BEGINNING: i64 = 1_800_000_000_000;

/// Result of a run.
#[derive(Debug, Default)]
pub struct Done {
    pub steps: u64,
    pub decisions: u64,
    pub violation: Option<Violation>,
    pub lines: Vec<String>,
}

pub struct Run<'a> {
    setup: &'a Setup,
    flaw: Flaw,
    metrics: Metrics,
    pub api: Api,
    process: Process,
    /// Number of processes before this one.
    processes: u64,
    /// Requests of processes that have ended, with the claim that was recorded when they were sent.
    ghosts: Vec<(Asked, Option<Intent>)>,
    /// The same for the waiting requests, by their index.
    intents: Vec<Option<Intent>>,
    invariants: Invariants,
    rng: Rng,
    /// Milliseconds of a clock that never steps.
    steady: i64,
    steps: u64,
    lines: Option<Vec<String>>,
}

/// Runs this situation; with `trace`, the result has one line per step.
pub fn run(setup: &Setup, flaw: Flaw, trace: bool) -> Done {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        NOW.set(BEGINNING);
        fastrand::seed(setup.seed);
        let metrics = Metrics::new();
        let mut run = Run {
            setup,
            flaw,
            process: Process::start(&metrics, &flaw.term(0)),
            processes: 0,
            metrics,
            api: Api::new(flaw == Flaw::Careless),
            ghosts: Vec::new(),
            intents: Vec::new(),
            invariants: Invariants::of(flaw.term(0)),
            rng: Rng::new(setup.seed),
            steady: BEGINNING,
            steps: 0,
            lines: trace.then(Vec::new),
        };
        let violation = run.all().await.err();
        Done { steps: run.steps, decisions: run.invariants.decisions, violation, lines: run.lines.unwrap_or_default() }
    })
}

impl Run<'_> {
    async fn all(&mut self) -> Result<(), Violation> {
        self.restore();
        self.mix().await?;
        self.settle().await
    }

    fn say(&mut self, line: impl FnOnce() -> String) {
        let at = NOW.get() - BEGINNING;
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{at:>8} {}", line()));
        }
    }

    /// Recreates the user's objects.
    fn restore(&mut self) {
        let deployment = json!({"metadata": {}, "spec": {"replicas": 3, "template": {}}});
        let made = |spec: &Value, kind| json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": kind, "metadata": {}, "spec": spec});
        let _ = self.api.create(By::Others, Sort::Deployment, "web", deployment);
        let _ = self.api.create(By::Others, Sort::Loop, "web", made(&self.setup.fast, "ClosedLoop"));
        if self.setup.slow {
            let _ = self.api.create(By::Others, Sort::Loop, "slow", made(&setup::slow(), "ClosedLoop"));
        }
    }

    async fn mix(&mut self) -> Result<(), Violation> {
        let (choices, weights): (Vec<Choice>, Vec<u32>) = self.setup.pace.iter().copied().unzip();
        for _ in 0..self.setup.steps {
            let choice = choices[self.rng.weighted(&weights)];
            self.choose(choice).await?;
            self.steps += 1;
        }
        Ok(())
    }

    async fn choose(&mut self, choice: Choice) -> Result<(), Violation> {
        match choice {
            Choice::Push => self.push(),
            Choice::Hear => {
                let place = self.rng.below(Process::kinds());
                self.hear(place);
            }
            Choice::Begin => {
                let part = self.rng.below(Process::kinds());
                self.process.begin(part).await;
            }
            Choice::Serve => {
                if let Some(index) = self.waiting(false) {
                    self.serve(index)?;
                }
            }
            Choice::Answer => {
                if let Some(index) = self.waiting(true) {
                    self.answer(index).await;
                }
            }
            Choice::Refuse => {
                if let Some(index) = self.waiting(false) {
                    self.refuse(index).await;
                }
            }
            Choice::LoseAnswer => {
                if let Some(index) = self.waiting(true) {
                    self.say(|| "operator: an answer is lost".into());
                    self.intents.swap_remove(index);
                    self.process.lose(index).await;
                }
            }
            Choice::Crash => self.crash(),
            Choice::Haunt => self.haunt()?,
            Choice::Cut => {
                let place = self.rng.below(Process::kinds());
                self.process.cut(place);
            }
            Choice::Tick => self.pass(1, 1500),
            Choice::Leap if self.process.pending.is_empty() => self.pass(5_000, 400_000),
            Choice::Leap => {}
            Choice::StepClock => {
                let step = self.rng.between(-30_000, 30_000);
                self.say(|| format!("the clock steps by {step} ms"));
                NOW.set(NOW.get() + step);
            }
            Choice::Garbage => {
                self.api.collect();
                self.restore();
            }
            Choice::Scale => self.scale(),
            Choice::Delete => self.delete(),
            Choice::EditChild => self.edit(),
            Choice::Policy => self.policy(),
            Choice::Approve => self.approve(),
        }
        self.note()
    }

    /// The API server rejects a request.
    async fn refuse(&mut self, index: usize) {
        let asked = self.process.pending[index].asked.to_string();
        let (code, reason) = *self.rng.pick(&FAILURES).unwrap_or(&FAILURES[0]);
        self.say(|| format!("operator: {asked} -> {code}"));
        self.process.pending[index].answer = Some(failure(code, reason));
        self.answer(index).await;
    }

    /// Records the current claim for new requests, and processes the writes of others.
    fn note(&mut self) -> Result<(), Violation> {
        while self.intents.len() < self.process.pending.len() {
            self.intents
                .push(self.process.pending[self.intents.len()].asked.scales().then(|| intent(&self.api)).flatten());
        }
        self.invariants.take(&self.api, None, self.steady)
    }

    fn pass(&mut self, low: i64, high: i64) {
        let time = self.rng.between(low, high);
        NOW.set(NOW.get() + time);
        self.steady += time;
    }

    fn hear(&mut self, place: usize) -> bool {
        (self.flaw != Flaw::Deaf || place != 1 || !self.process.is_synced()) && self.process.hear(place, &self.api)
    }

    /// Picks a request that waits to be carried out, or for its answer to arrive.
    fn waiting(&mut self, served: bool) -> Option<usize> {
        let pending = self.process.pending.iter().enumerate();
        let fit: Vec<usize> = pending.filter(|(_, one)| one.answer.is_some() == served).map(|(at, _)| at).collect();
        self.rng.pick(&fit).copied()
    }

    fn serve(&mut self, index: usize) -> Result<(), Violation> {
        let asked = self.process.pending[index].asked.clone();
        let answer = self.carry_out(By::Operator, &asked, self.intents[index].clone())?;
        self.process.pending[index].answer = Some(answer);
        Ok(())
    }

    fn carry_out(&mut self, by: By, asked: &Asked, sent: Option<Intent>) -> Result<(u16, Value), Violation> {
        let bent = self.flaw.bend(asked, &self.api);
        let answer = match self.flaw.pretend(asked, &self.api) {
            Some(answer) => answer,
            None => self.api.serve(by, &bent),
        };
        if asked.writes() {
            self.say(|| format!("{by:?}: {asked} -> {}", answer.0));
        }
        self.invariants.take(&self.api, sent.as_ref(), self.steady)?;
        Ok(answer)
    }

    async fn answer(&mut self, index: usize) {
        self.intents.swap_remove(index);
        self.process.answer(index).await;
        if self.flaw == Flaw::Oversleeps {
            self.process.oversleep();
        }
    }

    fn crash(&mut self) {
        self.say(|| "operator: crashes and starts again".into());
        self.processes += 1;
        let term = self.flaw.term(self.processes);
        let next = Process::start(&self.metrics, &term);
        self.invariants.restarted(term);
        let old = std::mem::replace(&mut self.process, next);
        let sent = old.pending.into_iter().zip(std::mem::take(&mut self.intents));
        let unheard = sent.filter(|(one, _)| one.answer.is_none() && one.asked.writes());
        self.ghosts.extend(unheard.map(|(one, intent)| (one.asked, intent)));
    }

    fn haunt(&mut self) -> Result<(), Violation> {
        if self.ghosts.is_empty() {
            return Ok(());
        }
        let index = self.rng.below(self.ghosts.len());
        let (asked, intent) = self.ghosts.swap_remove(index);
        self.carry_out(By::Ghost, &asked, intent).map(drop)
    }

    fn push(&mut self) {
        let now = NOW.get();
        let last = self.invariants.samples.last_key_value().map_or(now, |(time, _)| time.as_millisecond());
        let time = match self.rng.below(20) {
            0 => last,
            1 => last - self.rng.between(1, 20_000),
            2 => now + self.rng.between(9_000, 40_000),
            3 => now - self.rng.between(0, 5_000),
            _ => now,
        };
        let values = setup::values(&mut self.rng);
        self.sample(time, &values);
    }

    /// Pushes a sample. If a sample with the same time exists, the push is ignored, because the API server never has
    /// both.
    fn sample(&mut self, millis: i64, values: &[(&str, &str)]) {
        let time = Timestamp::from_millisecond(millis).unwrap_or_default();
        let values: BTreeMap<String, String> =
            values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let values = self.invariants.samples.get(&time).map_or(values, |sample| sample.values.clone());
        if self.api.get(Sort::Monitoring, "web").is_none() {
            return;
        }
        self.invariants.pushed(time, values.clone());
        self.say(|| format!("sender: {} {values:?}", millis - BEGINNING));
        let sample = json!({"time": time.to_string(), "values": self.flaw.misread(values)});
        self.api.change(By::Others, Sort::Monitoring, "web", |object| object["spec"]["sample"] = sample);
    }

    fn scale(&mut self) {
        let replicas = self.rng.between(0, 9);
        let touch = self.rng.chance(300);
        self.say(|| {
            format!("somebody: {}", if touch { "touches the target".into() } else { format!("scales to {replicas}") })
        });
        self.api.change(By::Others, Sort::Deployment, "web", |object| match touch {
            true => object["status"]["seen"] = json!(replicas),
            false => object["spec"]["replicas"] = json!(replicas),
        });
    }

    fn delete(&mut self) {
        let all = [
            (Sort::Deployment, "web"),
            (Sort::Monitoring, "web"),
            (Sort::Decision, "web"),
            (Sort::Execution, "web"),
            (Sort::Loop, "web"),
            (Sort::Execution, "slow"),
        ];
        let (sort, name) = *self.rng.pick(&all).unwrap_or(&all[0]);
        self.say(|| format!("somebody: deletes {sort:?} {name}"));
        self.api.delete(By::Others, sort, name);
    }

    fn edit(&mut self) {
        let sort = *self.rng.pick(&Sort::CHILDREN).unwrap_or(&Sort::Decision);
        self.say(|| format!("somebody: edits {sort:?} web"));
        self.api.change(By::Others, sort, "web", |object| match sort {
            Sort::Decision => object["spec"]["rank"] = json!(["b"]),
            Sort::Execution => object["spec"]["approve"] = json!("7"),
            _ => object["metadata"]["labels"] = Value::Null,
        });
    }

    fn policy(&mut self) {
        let policy = setup::policy(&mut self.rng);
        let modes: &[&str] = if self.setup.approves {
            &["Auto", "Auto", "Approve", "Approve", "Paused", "DryRun"]
        } else {
            &["Auto", "Auto", "Auto", "Paused", "DryRun"]
        };
        let mode = *self.rng.pick(modes).unwrap_or(&"Auto");
        self.say(|| format!("somebody: {mode} {policy}"));
        self.api.change(By::Others, Sort::Loop, "web", |object| {
            object["spec"]["policy"] = policy;
            object["spec"]["mode"] = json!(mode);
        });
    }

    fn approve(&mut self) {
        let decision = self.api.get(Sort::Decision, "web");
        let digest = decision.map(|object| object["status"]["chosen"]["digest"].clone()).filter(Value::is_string);
        let Some(digest) = digest else { return };
        self.say(|| format!("somebody: approves {digest}"));
        self.api.change(By::Others, Sort::Loop, "web", |object| {
            object["metadata"]["annotations"] = json!({ marks::APPROVE: digest });
        });
    }
}

/// Errors of requests that are not carried out.
const FAILURES: [(u16, &str); 4] =
    [(409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")];

/// The object with this name, for the checks.
pub fn object<'a>(api: &'a Api, sort: Sort, name: &str) -> Result<&'a Arc<Value>, Violation> {
    api.get(sort, name).map_or_else(|| violation("LostChild", format!("{sort:?} {name} does not exist")), Ok)
}
