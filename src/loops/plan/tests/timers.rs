//! Timers in random situations, compared with a small model: `for`, dwell, budget, oscillation and undo counts follow
//! from the values that were accepted and the effects that were carried out. A failed poll, a gap, a restart at any
//! write, another leader, a withdrawn proposal and a change of the mode move none of them.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::json;

use super::bench::{Loop, at, seconds, spec};
use crate::common::micro_time;
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::LimitState;
use ganglion_api::execution::ExecutionState;
use ganglion_api::monitoring::AlarmState;

/// Time that a value has to be beyond a level.
const LASTING: SignedDuration = SignedDuration::from_secs(20);

/// Maximum age of a value.
const AFTER: SignedDuration = SignedDuration::from_secs(60);

const BUDGET_PERIOD: SignedDuration = SignedDuration::from_mins(5);
const OSCILLATION_PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// Reversals after which capacity is not lowered.
const REVERSALS: usize = 2;

/// Time after which a change has stayed, and the pause after a conflict.
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// Pause of a ladder after a failure.
const FAILED_PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// Undone changes in a row after which the loop stops.
const MOST_UNDONE: usize = 3;

/// Limits of a policy.
#[derive(Clone, Copy, Debug)]
struct Limits {
    dwell: i64,
    budget: usize,
}

/// Something that happens to a loop.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The source answers with this value.
    Value(i32),
    /// The source fails.
    Failure,
    /// Nothing comes.
    Gap,
    /// Another process leads from now on.
    Leader,
    Mode(LoopMode),
    /// A user approves the proposal.
    Approval,
    /// Somebody sets the replicas back.
    Undo,
}

/// An event, and when it happens.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Seconds since the event before.
    pause: i64,
    event: Event,
    /// The process ends after this many writes and effects of the event. The next event finds a new process.
    crash: Option<usize>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let modes = prop_oneof![
        4 => Just(LoopMode::Auto),
        2 => Just(LoopMode::Approve),
        1 => Just(LoopMode::DryRun),
        1 => Just(LoopMode::Paused),
    ];
    let event = prop_oneof![
        4 => Just(Event::Value(90)),
        4 => Just(Event::Value(10)),
        1 => prop_oneof![Just(25), Just(50), Just(75)].prop_map(Event::Value),
        2 => Just(Event::Failure),
        2 => Just(Event::Gap),
        1 => Just(Event::Leader),
        1 => modes.prop_map(Event::Mode),
        1 => Just(Event::Approval),
        3 => Just(Event::Undo),
    ];
    let pause = prop_oneof![12 => 1..20_i64, 4 => 20..60_i64, 1 => 60..5000_i64];
    let crash = prop_oneof![8 => Just(None), 1 => (0..7_usize).prop_map(Some)];
    // Values come in runs; otherwise no alarm would last.
    let runs = (event, 1..6_usize).prop_flat_map(move |(event, times)| {
        let times = if matches!(event, Event::Value(_)) { times } else { 1 };
        let step = (pause.clone(), Just(event), crash.clone());
        prop::collection::vec(step.prop_map(|(pause, event, crash)| Step { pause, event, crash }), times)
    });
    prop::collection::vec(runs, 1..40).prop_map(|runs| runs.into_iter().flatten().collect())
}

/// The last value of the source.
#[derive(Clone, Copy, Debug)]
struct LastValue {
    value: i32,
    /// Time from which its age counts.
    from: Timestamp,
    /// The source has failed since, or has not answered a new process.
    has_failed: bool,
}

/// Alarms that follow from the values.
#[derive(Clone, Copy, Debug, Default)]
struct Alarms {
    /// None: it is unknown.
    last: Option<LastValue>,
    /// Since when the value is beyond each level, and whether the alarm is raised.
    high: Option<(Timestamp, bool)>,
    low: Option<(Timestamp, bool)>,
}

/// Next state of an alarm.
fn stage(before: Option<(Timestamp, bool)>, beyond: bool, cleared: bool, now: Timestamp) -> Option<(Timestamp, bool)> {
    match before {
        Some((since, true)) => (!cleared).then_some((since, true)),
        Some((since, false)) => beyond.then(|| (since, now.duration_since(since) >= LASTING)),
        None => beyond.then_some((now, false)),
    }
}

impl Alarms {
    /// Evaluates the levels at this time.
    fn evaluate(&mut self, now: Timestamp) {
        self.last = self.last.filter(|last| now.duration_since(last.from) <= AFTER);
        match self.last.map(|last| last.value) {
            Some(value) => {
                self.high = stage(self.high, value > 80, value <= 70, now);
                self.low = stage(self.low, value < 20, value >= 30, now);
            }
            None => {
                self.high = self.high.filter(|(_, is_raised)| *is_raised);
                self.low = self.low.filter(|(_, is_raised)| *is_raised);
            }
        }
    }

    /// The source has not answered yet: its last value stands, and its age counts from now.
    fn stand(&mut self, now: Timestamp) {
        let stands = |last: LastValue| LastValue { from: last.from.max(now), has_failed: true, ..last };
        self.last = self.last.map(stands);
    }

    fn is_raised(&self, side: Side) -> bool {
        let alarm = if side == Side::High { self.high } else { self.low };
        alarm.is_some_and(|(_, is_raised)| is_raised)
    }

    /// Sides and times of the alarms that are raised, or that are not.
    fn list(&self, raised: bool) -> Vec<(Side, Timestamp)> {
        let all = [(Side::Low, self.low), (Side::High, self.high)];
        let all = all.into_iter().filter_map(|(side, alarm)| Some((side, alarm?)));
        all.filter(|(_, (_, is_raised))| *is_raised == raised).map(|(side, (since, _))| (side, since)).collect()
    }
}

/// A change of the loop that nobody has undone yet.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// Time since which the changes have stayed.
    since: Timestamp,
    before: i32,
    after: i32,
}

/// The model.
#[derive(Debug)]
struct Model {
    limits: Limits,
    alarms: Alarms,
    /// Alarms as last written: all that survives the process.
    written: Alarms,
    /// Actions that were carried out, and by how much they changed the replicas.
    acts: Vec<(Timestamp, i32)>,
    change: Option<Change>,
    /// Undone changes in a row.
    undone: usize,
    undone_at: Option<Timestamp>,
    failed_at: Option<Timestamp>,
}

impl Model {
    fn recent(&self, now: Timestamp) -> Vec<Timestamp> {
        let recent = self.acts.iter().map(|(at, _)| *at).filter(|at| now.duration_since(*at) < BUDGET_PERIOD);
        recent.collect()
    }

    /// The limits as the status shows them.
    fn limits(&self, now: Timestamp) -> LimitState {
        let dwell_until = self.acts.last().map(|(at, _)| *at + seconds(self.limits.dwell)).filter(|until| *until > now);
        let turns = self.acts.windows(2).filter(|pair| pair[0].1 != pair[1].1).map(|pair| pair[1].0);
        let turns: Vec<Timestamp> = turns.filter(|at| now.duration_since(*at) < OSCILLATION_PERIOD).collect();
        let last = turns.len().checked_sub(REVERSALS).map(|index| turns[index]);
        LimitState {
            dwell_until: dwell_until.map(micro_time),
            budget_left: Some(i32::try_from(self.limits.budget.saturating_sub(self.recent(now).len())).unwrap()),
            damped_until: last.map(|at| micro_time(at + OSCILLATION_PERIOD)),
            frozen_until: None,
        }
    }

    /// Whether an action on this side is right at this time.
    fn allows(&self, side: Side, now: Timestamp) -> bool {
        let limits = self.limits(now);
        let last = self.acts.last().map(|(at, _)| *at);
        let is_new = self.alarms.last.is_some_and(|value| !value.has_failed && last.is_none_or(|at| value.from > at));
        let is_damped = side == Side::Low && limits.damped_until.is_some();
        self.alarms.is_raised(side)
            && is_new
            && limits.dwell_until.is_none()
            && limits.budget_left > Some(0)
            && !is_damped
    }

    /// Notes that the loop begins an action by `by` on these replicas; returns whether it has to give the field up.
    fn begins(&mut self, by: i32, replicas: i32, now: Timestamp) -> bool {
        if let Some(Change { since, before, after }) = self.change {
            let was = after - before;
            if (replicas - after).signum() == -was.signum() {
                self.undone = (self.undone + 1).min(MOST_UNDONE);
                self.undone_at = Some(now);
                self.change = None;
            } else if now.duration_since(since) >= HOUR || was.signum() != by.signum() {
                self.undone = 0;
            }
        }
        let is_news = self.undone_at.is_some_and(|at| now.duration_since(at) < HOUR);
        self.undone >= MOST_UNDONE && is_news
    }
}

/// A loop and the model of it.
struct Scene {
    this: Loop,
    model: Model,
    now: Timestamp,
    /// The process has ended.
    is_dead: bool,
}

impl Scene {
    fn new(limits: Limits) -> Self {
        let level = |raise: &str, clear: &str| json!({"raise": raise, "clear": clear, "for": "20s"});
        let this = Loop::new(
            "fast",
            spec(json!({
                "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "interval": "10s",
                "metrics": [{"name": "load", "source": {"prometheus": {"url": "http://a", "query": "a"}},
                    "low": level("20", "30"), "high": level("80", "70"), "missing": {"after": "60s"}}],
                "policy": {
                    "dwell": format!("{}s", limits.dwell), "budget": {"max": limits.budget, "per": "5m"},
                    "oscillation": {"reversals": REVERSALS, "per": "10m", "then": "Damp"},
                },
                "actions": [
                    {"when": {"metric": "load", "side": "High"}, "ladder": [{"scale": {"by": 1, "max": 2000}}]},
                    {"when": {"metric": "load", "side": "Low"}, "ladder": [{"scale": {"by": -1, "min": 1}}]},
                ],
            })),
        );
        let alarms = Alarms::default();
        let model = Model {
            limits,
            alarms,
            written: alarms,
            acts: Vec::new(),
            change: None,
            undone: 0,
            undone_at: None,
            failed_at: None,
        };
        let this = Loop { replicas: 1000, watched_since: Some(at(0)), ..this };
        Self { this, model, now: at(0), is_dead: false }
    }

    fn is_paused(&self) -> bool {
        self.this.spec.mode == LoopMode::Paused
    }

    /// Lets this happen to the loop, and compares the loop with the model.
    fn hop(&mut self, happens: impl FnOnce(&mut Loop, Timestamp)) -> Result<(), TestCaseError> {
        let (this, now) = (&mut self.this, self.now);
        let (seq, began, replicas) = (this.stored.1.seq, this.execution.seq, this.replicas);
        let (effects, carried_out) = (this.effects.len(), this.execution.carried_out.clone());
        let stored = this.stored.0.clone();
        happens(this, now);
        if self.is_paused() {
            (self.model.alarms.high, self.model.alarms.low) = (None, None);
        } else {
            self.model.alarms.evaluate(now);
        }
        let this = &self.this;
        if this.stored.0 != stored {
            self.model.written = self.model.alarms;
        }
        let is_real = matches!(this.spec.mode, LoopMode::Auto | LoopMode::Approve);
        if this.stored.1.seq > seq && is_real {
            let chosen = this.stored.1.chosen.as_ref().unwrap();
            prop_assert!(self.model.allows(chosen.side, now), "{:?} at {now}: {:?}", chosen.side, self.model);
        }
        let by = |side| if side == Side::High { 1 } else { -1 };
        if this.execution.seq > began && this.execution.seq > Some(0) {
            let side = this.stored.1.chosen.as_ref().unwrap().side;
            let gives_up = self.model.begins(by(side), replicas, now);
            prop_assert_eq!(this.execution.reason == Some(LoopReason::FieldConflict), gives_up, "at {}", now);
            if gives_up {
                self.model.failed_at = Some(now);
            }
        }
        prop_assert_eq!(this.execution.undone.len(), self.model.undone, "at {}: {:?}", now, this.execution);
        prop_assert!(this.effects.len() <= effects + 1);
        if let Some(done) = this.execution.carried_out.as_ref().filter(|done| Some(*done) != carried_out.as_ref()) {
            prop_assert_eq!(done.at.0, now);
            let has_effect = this.effects.last().is_some_and(|(seq, _)| *seq == done.seq);
            prop_assert!(has_effect && this.execution.state == Some(ExecutionState::Done), "{:?}", this.execution);
            let (before, after) = (&this.execution.before, &this.execution.after);
            let number = |text: &Option<String>| text.as_ref().unwrap().parse::<i32>().unwrap();
            let (before, after) = (number(before), number(after));
            self.model.acts.push((now, after - before));
            let since = self.model.change.map_or(now, |change| change.since);
            self.model.change = Some(Change { since, before, after });
        }
        Ok(())
    }

    /// Compares what the loop has written with the model.
    fn compare(&self) -> Result<(), TestCaseError> {
        let (this, now) = (&self.this, self.now);
        let listed = |alarms: &[AlarmState]| -> Vec<(Side, Timestamp)> {
            alarms.iter().map(|alarm| (alarm.side, alarm.since.0)).collect()
        };
        prop_assert_eq!(listed(&this.stored.0.alarms), self.model.alarms.list(true), "raised at {}", now);
        prop_assert_eq!(listed(&this.stored.0.pending), self.model.alarms.list(false), "pending at {}", now);
        let status = this.status_at(now);
        let served = status.counters.iter().map(|counter| counter.served).sum::<i64>();
        prop_assert_eq!(usize::try_from(served).unwrap(), this.effects.len(), "served at {}", now);
        let is_open = status.chosen.as_ref().is_some_and(|chosen| chosen.outcome.is_none());
        let is_counted = this.decision.chosen.as_ref().is_none_or(|chosen| chosen.outcome.is_some());
        if !is_open && is_counted && this.spec.mode != LoopMode::DryRun {
            prop_assert_eq!(this.decision.limits.clone(), Some(self.model.limits(now)), "at {}", now);
        }
        Ok(())
    }

    /// Lets time pass until the next event.
    fn pass(&mut self, until: Timestamp) -> Result<(), TestCaseError> {
        if self.is_dead {
            self.now = until;
            return self.restart();
        }
        for _ in 0..100 {
            let Some(wake) = self.this.next_wake(self.now).filter(|wake| *wake < until) else { break };
            self.now = wake;
            self.hop(|this, now| this.wait(now))?;
        }
        self.now = until;
        Ok(())
    }

    /// Starts a new process.
    fn restart(&mut self) -> Result<(), TestCaseError> {
        self.is_dead = false;
        self.this.restart(self.now);
        self.model.alarms = self.model.written;
        self.model.alarms.stand(self.now);
        self.hop(|this, now| this.wait(now))
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        self.pass(self.now + seconds(step.pause))?;
        self.this.writes_left = step.crash;
        let was_open = self.this.status_at(self.now).chosen.is_some_and(|chosen| chosen.outcome.is_none());
        let seq = self.this.stored.1.seq;
        match step.event {
            Event::Value(value) if !self.is_paused() => {
                self.model.alarms.last = Some(LastValue { value, from: self.now, has_failed: false });
                self.hop(|this, now| this.poll(now, &[("load", &value.to_string(), now)]))?;
            }
            Event::Failure if !self.is_paused() => {
                self.model.alarms.last = self.model.alarms.last.map(|last| LastValue { has_failed: true, ..last });
                self.hop(Loop::fail)?;
            }
            Event::Leader => {
                self.this.writes_left = None;
                self.restart()?;
            }
            Event::Mode(mode) => {
                let resumes = self.is_paused() && mode != LoopMode::Paused;
                self.this.spec.mode = mode;
                if resumes {
                    self.this.watched_since = Some(self.now);
                    self.this.unanswered = vec!["load".to_owned()];
                    self.model.alarms.stand(self.now);
                }
                self.hop(|this, now| this.wait(now))?;
            }
            Event::Approval => {
                self.this.approval = self.this.stored.1.chosen.as_ref().and_then(|chosen| chosen.digest.clone());
                self.hop(|this, now| this.wait(now))?;
            }
            Event::Undo => {
                if let Some(change) = self.model.change.filter(|_| self.this.execution.claim.is_none()) {
                    self.this.replicas = change.before;
                    self.this.generation += 1;
                    self.this.written_by = Some("hand".to_owned());
                }
                self.hop(|this, now| this.wait(now))?;
            }
            Event::Gap | Event::Value(_) | Event::Failure => self.hop(|this, now| this.wait(now))?,
        }
        self.is_dead = self.this.writes_left.is_some();
        if self.is_dead {
            return Ok(());
        }
        self.compare()?;
        let has_failed = self.model.failed_at.is_some_and(|at| self.now.duration_since(at) <= FAILED_PAUSE);
        let (now, mode) = (self.now, self.this.spec.mode);
        if matches!(step.event, Event::Value(_)) && !was_open && !has_failed && mode == LoopMode::Approve {
            let allowed = [Side::High, Side::Low].into_iter().any(|side| self.model.allows(side, now));
            prop_assert_eq!(self.this.stored.1.seq > seq, allowed, "a proposal at {}", now);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200, rng_seed: RngSeed::Fixed(1), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn timers_follow_from_values_and_effects(steps in steps(), dwell in 0..60_i64, budget in 1..5_usize) {
        let mut scene = Scene::new(Limits { dwell, budget });
        scene.hop(|this, now| this.wait(now))?;
        for step in steps {
            scene.step(step)?;
        }
    }
}
