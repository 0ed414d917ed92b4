//! The shell: runs a planner as the real process does.
//!
//! One plan at a time for each action; between a plan and its request, and between a request and its answer, anything may
//! happen. Own writes are known as soon as they are answered. An [`Effect::Admit`] is planned again and written in one go.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use ganglion::api::workload_action::WorkloadActionStatus;
use ganglion::logic::facts::{Identity, Key, PodFact};
use ganglion::logic::workload_action::Limits;
use ganglion::logic::workload_action::effect::{Effect, Next};
use ganglion::logic::workload_action::janitor::Leftovers;
use ganglion::logic::world::{Object, Source, Wakes, World};
use jiff::Timestamp;

use super::send::{Outcome, describe, look_again, send, write_receipt};
use super::watch::Watch;
use super::{Deed, KINDS, Move, Operator, Planner, index};
use crate::cluster::api::Api;

/// What is under way for an action.
#[derive(Debug)]
enum Task {
    Send { effect: Effect, report: bool },
    Answer { effect: Effect, outcome: Outcome },
}

#[derive(Debug)]
pub struct Shell<P> {
    planner: P,
    limits: Limits,
    world: World,
    watches: [Watch; KINDS.len()],
    woken: BTreeSet<Key>,
    timers: BTreeMap<Key, Timestamp>,
    tasks: BTreeMap<Key, Task>,
    /// Effects that no answer came for: looked up before anything else is planned.
    unanswered: BTreeMap<Key, Effect>,
    /// The wait that each action is in, and since when, in milliseconds.
    waits: BTreeMap<Key, (u64, i64)>,
    /// Milliseconds that a wait must last before it is reported.
    patience: i64,
    leftovers: Leftovers,
    /// What the janitor is about to do, and when it looks again.
    cleaning: VecDeque<Effect>,
    next_sweep: Option<Timestamp>,
}

impl<P: Planner> Shell<P> {
    pub fn new(planner: P, limits: Limits, patience: i64) -> Self {
        Self {
            planner,
            limits,
            world: World::default(),
            watches: Default::default(),
            woken: BTreeSet::new(),
            timers: BTreeMap::new(),
            tasks: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            waits: BTreeMap::new(),
            patience,
            leftovers: Leftovers::default(),
            cleaning: VecDeque::new(),
            next_sweep: None,
        }
    }

    fn crash(&mut self) {
        self.world = World::default();
        self.watches = Default::default();
        self.woken.clear();
        self.timers.clear();
        self.tasks.clear();
        self.unanswered.clear();
        self.waits.clear();
        self.leftovers = Leftovers::default();
        self.cleaning.clear();
        self.next_sweep = None;
    }

    fn is_synced(&self) -> bool {
        self.watches.iter().all(Watch::is_following)
    }

    fn plan(&mut self, api: &mut Api) -> Deed {
        let now = api.now();
        let due: Vec<Key> = self
            .woken
            .iter()
            .chain(self.timers.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key))
            .filter(|key| !self.tasks.contains_key(key))
            .cloned()
            .collect();
        let Some(key) = api.rng.pick(&due).cloned() else { return Deed::Nothing };
        if let Some(effect) = self.unanswered.remove(&key) {
            let wakes = self.take_in(look_again(api, &effect));
            self.woken.extend(wakes);
            return Deed::Inside;
        }
        self.woken.remove(&key);
        self.timers.remove(&key);
        let next = self.planner.next(&key, &self.world, now, &self.limits);
        self.take(api, key, next)
    }

    /// Notes what is to be done for an action.
    fn take(&mut self, api: &mut Api, key: Key, next: Next) -> Deed {
        match next {
            Next::Do(effect) => {
                api.say(|| format!("operator: plans to {}", describe(&effect)));
                self.tasks.insert(key.clone(), Task::Send { effect: effect.clone(), report: false });
                Deed::Planned { action: key, effect }
            }
            Next::Wait { until, report } => {
                self.rest(api, &key, until, report);
                Deed::Inside
            }
        }
    }

    /// Waits; what it waits for is reported when that has lasted a moment.
    fn rest(&mut self, api: &Api, key: &Key, until: Option<Timestamp>, report: Option<Box<WorkloadActionStatus>>) {
        let Some(action) = self.world.action(key) else {
            self.waits.remove(key);
            return;
        };
        let action_id = Identity::from(&action.metadata);
        let report = report.filter(|report| action.status.as_ref() != Some(&**report));
        if let Some(until) = until {
            self.timers.insert(key.clone(), until);
        }
        let Some(status) = report else {
            self.waits.remove(key);
            return;
        };
        let what = essence(&status);
        let since = match self.waits.get(key) {
            Some((same, since)) if *same == what => *since,
            _ => {
                self.waits.insert(key.clone(), (what, api.clock));
                api.clock
            }
        };
        if api.clock >= since + self.patience {
            let effect = Effect::Record { action: action_id, status };
            self.tasks.insert(key.clone(), Task::Send { effect, report: true });
            return;
        }
        let told = Timestamp::from_millisecond(since + self.patience).unwrap_or(api.now());
        let timer = self.timers.entry(key.clone()).or_insert(told);
        *timer = told.min(*timer);
    }

    fn sendable(&self) -> Vec<Key> {
        let sends = self.tasks.iter().filter(|(_, task)| matches!(task, Task::Send { .. }));
        sends.map(|(key, _)| key.clone()).collect()
    }

    fn answerable(&self) -> Vec<Key> {
        let answers = self.tasks.iter().filter(|(_, task)| matches!(task, Task::Answer { .. }));
        answers.map(|(key, _)| key.clone()).collect()
    }

    fn send(&mut self, api: &mut Api) -> Deed {
        let Some(key) = api.rng.pick(&self.sendable()).cloned() else { return Deed::Nothing };
        let Some(Task::Send { mut effect, report }) = self.tasks.remove(&key) else { return Deed::Nothing };
        let admits = matches!(effect, Effect::Admit { .. });
        if admits {
            match self.planner.next(&key, &self.world, api.now(), &self.limits) {
                Next::Do(again @ Effect::Admit { .. }) => effect = again,
                other => return self.take(api, key, other),
            }
        }
        let outcome = self.send_both(api, &effect);
        let done = outcome.is_done();
        api.say(|| match &outcome {
            Outcome::Changed(_) | Outcome::Ending(_) => format!("operator: {}", describe(&effect)),
            Outcome::Gone(..) => format!("operator: {} -> gone", describe(&effect)),
            Outcome::Conflict => format!("operator: {} -> conflict", describe(&effect)),
            Outcome::Refused(refusal) => format!("operator: {} -> {:?}", describe(&effect), refusal.kind),
        });
        let deed = Deed::Sent { action: key.clone(), effect: effect.clone(), report, done };
        self.tasks.insert(key.clone(), Task::Answer { effect, outcome });
        if admits {
            self.answer(api, &key);
        }
        deed
    }

    /// An effect, and the receipt that goes beside an admission. Either of the two may come to nothing.
    fn send_both(&mut self, api: &mut Api, effect: &Effect) -> Outcome {
        let Effect::Admit { receipt: Some(receipt), .. } = effect else { return send(api, effect) };
        if !api.rng.chance(100) {
            let made = write_receipt(api, receipt);
            api.say(|| format!("operator: writes receipt {} beside the admission", receipt.key));
            self.take_in(made);
        }
        if api.rng.chance(200) {
            return Outcome::Conflict;
        }
        send(api, effect)
    }

    fn answer(&mut self, api: &mut Api, key: &Key) -> Deed {
        let Some(Task::Answer { effect, outcome }) = self.tasks.remove(key) else { return Deed::Nothing };
        let outcome = if matches!(outcome, Outcome::Conflict) { look_again(api, &effect) } else { outcome };
        if let Outcome::Refused(refusal) = outcome {
            let next = self.planner.refused(key, &self.world, api.now(), &effect, &refusal);
            return self.take(api, key.clone(), next);
        }
        let wakes = self.take_in(outcome);
        self.woken.extend(wakes);
        self.woken.insert(key.clone());
        Deed::Inside
    }

    /// The janitor's round: looks, or does one thing that it found.
    fn sweep(&mut self, api: &mut Api) -> Deed {
        let Some(effect) = self.cleaning.pop_front() else {
            let (effects, again) = self.planner.sweep(&mut self.leftovers, &self.world, api.now());
            self.cleaning = effects.into();
            self.next_sweep = again.filter(|at| *at > api.now());
            return if self.cleaning.is_empty() { Deed::Nothing } else { Deed::Inside };
        };
        let outcome = send(api, &effect);
        api.say(|| format!("janitor: {}{}", describe(&effect), if outcome.is_done() { "" } else { " -> not done" }));
        let done = outcome.is_done();
        let wakes = self.take_in(outcome);
        self.woken.extend(wakes);
        Deed::Sent { action: Key::default(), effect, report: false, done }
    }

    /// What a request came to, as far as it is a fact.
    fn take_in(&mut self, outcome: Outcome) -> Wakes {
        match outcome {
            Outcome::Changed(object) => self.world.apply(object, Source::Own),
            Outcome::Gone(kind, id) => self.world.remove(kind, &id),
            Outcome::Ending(id) => self.ending(&id),
            Outcome::Conflict | Outcome::Refused(_) => Wakes::new(),
        }
    }

    /// The pod as it was known, but on its way out.
    fn ending(&mut self, id: &Identity) -> Wakes {
        match self.world.pod(&id.key).filter(|known| known.id.uid == id.uid).cloned() {
            Some(known) => self.world.apply(Object::Pod(PodFact { terminating: true, ..known }), Source::Own),
            None => Wakes::new(),
        }
    }
}

/// What tells one wait from another: steps and reasons, not the words and times.
fn essence(report: &WorkloadActionStatus) -> u64 {
    let mut hash = DefaultHasher::new();
    for slot in &report.slots {
        (slot.index, slot.attempt, slot.step, slot.reason).hash(&mut hash);
    }
    for condition in &report.conditions {
        (&condition.type_, &condition.status, &condition.reason, condition.observed_generation).hash(&mut hash);
    }
    hash.finish()
}

impl<P: Planner> Operator for Shell<P> {
    fn step(&mut self, api: &mut Api, step: Move) -> Deed {
        match step {
            Move::Hear(kind) => match self.watches[index(kind)].hear(kind, api, &mut self.world) {
                Some(wakes) => {
                    self.woken.extend(wakes);
                    Deed::Inside
                }
                None => Deed::Nothing,
            },
            Move::Plan if self.is_synced() => self.plan(api),
            Move::Sweep if self.is_synced() => self.sweep(api),
            Move::Send => self.send(api),
            Move::Answer => match api.rng.pick(&self.answerable()).cloned() {
                Some(key) => self.answer(api, &key),
                None => Deed::Nothing,
            },
            Move::LoseAnswer => match api.rng.pick(&self.answerable()).cloned() {
                Some(key) => {
                    api.say(|| format!("operator: no answer for {key}"));
                    if let Some(Task::Answer { effect, .. }) = self.tasks.remove(&key) {
                        self.unanswered.insert(key.clone(), effect);
                    }
                    self.woken.insert(key);
                    Deed::Inside
                }
                None => Deed::Nothing,
            },
            Move::Crash => {
                api.say(|| "operator: crashes and starts again".to_owned());
                self.crash();
                Deed::Inside
            }
            Move::Cut(kind) if self.watches[index(kind)].is_following() => {
                api.say(|| format!("operator: watch of {kind:?} breaks"));
                self.watches[index(kind)] = Watch::Down;
                Deed::Inside
            }
            Move::Plan | Move::Sweep | Move::Cut(_) => Deed::Nothing,
        }
    }

    fn world(&self) -> &World {
        &self.world
    }

    fn next_time(&self) -> Option<Timestamp> {
        self.timers.values().copied().chain(self.next_sweep).min()
    }

    fn wake_all(&mut self) {
        self.woken.extend(self.world.running().map(|action| {
            let meta = &action.metadata;
            Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        }));
    }
}
