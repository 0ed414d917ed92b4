//! Rules for loops after every write, evaluated from the objects in the API server and the author of each write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ganglion_api::decision::{Decision, DecisionStatus, Outcome};
use ganglion_api::execution::{Claim, Execution, ExecutionState};
use ganglion_api::monitoring::{MonitoringStatus, Reading, Tag};
use ganglion_core::duration;
use ganglion_loops_plan::decision::Executor;
use ganglion_loops_plan::decision::settlement;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::{Api, By, Sort, Write};
use super::process::{NOW, now};
use crate::check::{Violation, violation};

/// Maximum age of a usable value: three intervals, plus the time that requests take.
pub const FRESH: i64 = 45_000;
const LATE: i64 = 60_000;

/// A claim recorded when a request was sent: uid of the Execution, claim, and number of the sample.
pub type Intent = (String, Claim, i64);

/// An effect on the target.
struct Effect {
    executor: String,
    seq: i64,
    /// Wall clock, and a clock that never steps.
    at: (i64, i64),
    ghost: bool,
    /// Number of its sample.
    sample: i64,
}

/// A sample that was pushed.
#[derive(Debug)]
pub struct PushedSample {
    pub values: BTreeMap<String, String>,
    /// Earliest time that the clock has shown since it was pushed.
    since: i64,
    /// Arrival of its values, as Monitoring has recorded it.
    arrived: Option<i64>,
}

impl PushedSample {
    /// The value of this metric, if it is a number.
    fn number(&self, metric: &str) -> Option<&str> {
        self.values.get(metric).map(String::as_str).filter(|text| text.parse().is_ok_and(f64::is_finite))
    }
}

#[derive(Default)]
pub struct Invariants {
    /// Number of log entries processed.
    read: usize,
    /// Pushed samples by time.
    pub samples: BTreeMap<Timestamp, PushedSample>,
    /// Current time, and the latest time that the clock has shown.
    clock: (i64, i64),
    effects: Vec<Effect>,
    /// Number of effects that were forgotten together with the Decision that recorded them.
    forgotten: usize,
    /// Number of decisions that may count as served without an effect: performed by others.
    granted: i64,
    /// Counters that must never decrease, by object and name.
    counts: BTreeMap<(String, String), i64>,
    /// Monitorings that the current process has written, and open decisions that it has confirmed.
    monitored: BTreeSet<String>,
    confirmed: BTreeSet<(String, i64)>,
    /// Decisions that were claimed, and those whose Execution was deleted.
    claimed: BTreeSet<i64>,
    lost: BTreeSet<i64>,
    /// Leader term of the current process.
    term: String,
    pub decisions: u64,
    pub writes: BTreeMap<(Sort, String), u64>,
}

fn parsed<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("what is stored can be read")
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// The last recorded claim.
pub fn intent(api: &Api) -> Option<Intent> {
    let claims = api.log.iter().rev().filter(|write| write.sort == Sort::Execution && write.name == "web");
    let mut claims =
        claims.filter_map(|write| write.new.as_ref()).filter(|object| !object["status"]["claim"].is_null());
    claims.next().map(|object| {
        let status = &object["status"];
        (uid(object), parsed(&status["claim"]), status["tag"]["sequence"].as_i64().unwrap_or(0))
    })
}

impl Invariants {
    /// Starts with a process in this leader term.
    pub fn of(term: String) -> Self {
        Self { term, ..Self::default() }
    }

    /// Another process starts, in another leader term.
    pub fn restarted(&mut self, term: String) {
        self.term = term;
        self.monitored.clear();
        self.confirmed.clear();
    }

    /// A sample is pushed. Samples of the same time have the same values.
    pub fn pushed(&mut self, time: Timestamp, values: BTreeMap<String, String>) {
        self.samples.entry(time).or_insert(PushedSample { values, since: NOW.get(), arrived: None });
    }

    /// Notes the time. If the clock was set back, samples may arrive at times before they were pushed.
    fn note_time(&mut self) {
        let now = NOW.get();
        if now < self.clock.0 {
            self.samples.values_mut().for_each(|sample| sample.since = sample.since.min(now));
        }
        self.clock = (now, now.max(self.clock.1));
    }

    /// The newest sample that a status with this tag is based on, and its time.
    fn sample_of(&self, tag: Option<&Tag>) -> Option<(&Timestamp, &PushedSample)> {
        self.samples.range(..=tag?.time.0).next_back()
    }

    /// Processes every write since the last call. `sent` is the claim that was recorded when the writing request was
    /// sent, and `steady` a clock that never steps.
    pub fn take(&mut self, api: &Api, sent: Option<&Intent>, steady: i64) -> Result<(), Violation> {
        self.note_time();
        while let Some(write) = api.log.get(self.read).cloned() {
            self.read += 1;
            if write.by == By::Others {
                continue;
            }
            *self.writes.entry((write.sort, write.name.clone())).or_default() += 1;
            let Some(new) = &write.new else { continue };
            if let Some(old) = &write.old {
                untouched(&write, old, new)?;
            }
            match write.sort {
                Sort::Deployment => self.scaled(api, &write, sent, steady)?,
                Sort::Monitoring => self.monitored(&write, new)?,
                Sort::Decision => self.decided(api, &write, steady)?,
                Sort::Execution => self.executed(api, &write)?,
                Sort::Loop => self.tuned(new)?,
            }
        }
        Ok(())
    }

    fn grows(&mut self, whose: &str, what: &str, now: i64) -> Result<(), Violation> {
        let before = self.counts.entry((whose.to_owned(), what.to_owned())).or_insert(now);
        if *before > now {
            return violation("WentBack", format!("{what} of {whose} went from {before} to {now}"));
        }
        *before = now;
        Ok(())
    }

    fn scaled(&mut self, api: &Api, write: &Write, sent: Option<&Intent>, steady: i64) -> Result<(), Violation> {
        let (Some(old), Some(new)) = (&write.old, &write.new) else { return Ok(()) };
        let replicas = |object: &Value| object["spec"]["replicas"].as_i64().unwrap_or(-1);
        let (from, to) = (replicas(old), replicas(new));
        let claim = sent.filter(|(_, claim, _)| claim.goal.replicas.map(i64::from) == Some(to));
        let Some((executor, claim, sample)) = claim else {
            return violation("NoIntent", format!("scaled from {from} to {to}, but {sent:?} was recorded"));
        };
        if self.effects.iter().any(|effect| effect.executor == *executor && effect.seq == claim.seq) {
            return violation("TwoEffects", format!("decision {} has two effects, the last one to {to}", claim.seq));
        }
        let generation = old["metadata"]["generation"].as_i64();
        if claim.generation != generation || claim.uid != Some(uid(old).into()) {
            return violation("BlindAct", format!("claimed at {:?}, done at {generation:?}", claim.generation));
        }
        let chosen = api.get(Sort::Decision, "web").map(|object| &object["status"]["chosen"]);
        let other = chosen.filter(|chosen| chosen["seq"] == claim.seq && chosen["executor"] != json!(executor));
        if let Some(other) = other.filter(|_| write.by == By::Operator) {
            return violation("NotMine", format!("{executor} carries out {other}"));
        }
        let scale = claim.action.scale.clone().unwrap_or_default();
        let (min, max) = (scale.min.map_or(from, i64::from), scale.max.map_or(from, i64::from));
        if (to > from && to > max) || (to < from && to < min) {
            return violation("OutOfBounds", format!("from {from} to {to}, within {min} and {max}"));
        }
        let (executor, at, ghost) = (executor.clone(), (NOW.get(), steady), write.by == By::Ghost);
        self.effects.push(Effect { executor, seq: claim.seq, at, ghost, sample: *sample });
        Ok(())
    }

    fn monitored(&mut self, write: &Write, new: &Value) -> Result<(), Violation> {
        let status: MonitoringStatus = parsed(&new["status"]);
        if write.by == By::Operator && status.term.as_deref() == Some(&*self.term) {
            self.monitored.insert(write.name.clone());
        }
        self.grows(&uid(new), "sequence", status.tag.as_ref().map_or(0, |tag| tag.sequence))?;
        let before: MonitoringStatus = write.old.as_ref().map(|old| parsed(&old["status"])).unwrap_or_default();
        for reading in status.values.iter().filter(|reading| reading.metric != "imbalance") {
            self.read_from_sample(&before, &status, reading)?;
        }
        Ok(())
    }

    /// Checks a value of a status: it is that of the newest sample, or the last one before if that sample has none. It
    /// counts from its arrival, which stays the same.
    fn read_from_sample(
        &mut self,
        before: &MonitoringStatus,
        status: &MonitoringStatus,
        reading: &Reading,
    ) -> Result<(), Violation> {
        let Some((&time, sample)) = self.sample_of(status.tag.as_ref()) else {
            return violation("InventedValue", format!("{reading:?}, and nothing was pushed until {:?}", status.tag));
        };
        let last = before.values.iter().find(|last| last.metric == reading.metric);
        let is_kept = last.is_some_and(|last| (&last.value, &last.at) == (&reading.value, &reading.at));
        let latest = self.clock.1;
        // A process that finds a sample when it starts takes the sender's time.
        let came = |time: &Timestamp, sample: &PushedSample| {
            let at = reading.at.0.as_millisecond();
            let is_value = sample.number(&reading.metric) == Some(reading.value.as_str());
            is_value && at <= latest && (reading.at.0 == *time || sample.since <= at)
        };
        let old = self.sample_of(before.tag.as_ref()).map(|(time, _)| *time);
        let is_true = if sample.number(&reading.metric).is_some() {
            let is_first = last.is_none() || old != Some(time);
            reading.problem.is_none() && came(&time, sample) && (is_first || is_kept)
        } else {
            let is_marked =
                reading.problem.is_some() || status.unknown.iter().any(|unknown| unknown.metric == reading.metric);
            // Samples whose status was not worth a write.
            let mut unwritten = self.samples.range(old.unwrap_or(Timestamp::MIN)..time);
            is_marked && (is_kept || unwritten.any(|(time, sample)| Some(*time) != old && came(time, sample)))
        };
        if !is_true {
            return violation(
                "InventedValue",
                format!("{reading:?}, was {last:?}, and {:?} was pushed", sample.values),
            );
        }
        if let Some(sample) = self.samples.get_mut(&time).filter(|sample| sample.number(&reading.metric).is_some()) {
            sample.arrived = Some(reading.at.0.as_millisecond());
        }
        Ok(())
    }

    fn executed(&mut self, api: &Api, write: &Write) -> Result<(), Violation> {
        let (Some(old), Some(new)) = (&write.old, &write.new) else { return Ok(()) };
        let (before, after): (Execution, Execution) = (parsed(old), parsed(new));
        let (before, after) = (before.status.unwrap_or_default(), after.status.unwrap_or_default());
        let seq = after.seq.unwrap_or(0);
        self.grows(&uid(new), "execution", seq)?;
        if write.name == "web" {
            self.claimed.extend(after.claim.as_ref().map(|claim| claim.seq));
        }
        let claims = before.claim.is_none() && after.claim.is_some() && write.by == By::Operator;
        if claims && !self.confirmed.contains(&(write.name.clone(), seq)) {
            return violation("StaleClaim", format!("decision {seq} is claimed, which this leader has not confirmed"));
        }
        let ended = after.state == Some(ExecutionState::Done) && before.state != after.state;
        let ours = self.effects.iter().any(|effect| effect.executor == uid(new) && effect.seq == seq);
        if write.name != "web" || !ended || ours {
            return Ok(());
        }
        // Another client may have brought the target to the goal.
        let goal = before.claim.as_ref().and_then(|claim| claim.goal.replicas);
        let mut others = api.log.iter().filter(|one| one.by == By::Others && one.sort == Sort::Deployment);
        if !others.any(|one| one.new.as_ref().is_some_and(|object| object["spec"]["replicas"] == json!(goal))) {
            return violation("FalseDone", format!("decision {seq} is reported as done, but is not"));
        }
        self.granted += 1;
        Ok(())
    }

    fn tuned(&mut self, new: &Value) -> Result<(), Violation> {
        for entry in new["status"]["tuning"].as_array().into_iter().flatten() {
            self.grows(entry["uid"].as_str().unwrap_or_default(), "tuning", entry["seq"].as_i64().unwrap_or(0))?;
        }
        Ok(())
    }

    fn decided(&mut self, api: &Api, write: &Write, steady: i64) -> Result<(), Violation> {
        let Some(new) = &write.new else { return Ok(()) };
        let (id, decision): (String, Decision) = (uid(new), parsed(new));
        let status = decision.status.clone().unwrap_or_default();
        if write.old.is_none() && write.name == "web" {
            self.forgotten = self.effects.len();
        }
        self.grows(&id, "decision", status.seq)?;
        self.grows(&id, "sequence", status.tag.as_ref().map_or(0, |tag| tag.sequence))?;
        for counter in &status.counters {
            for (what, count) in [("wanted", counter.wanted), ("served", counter.served), ("limited", counter.limited)]
            {
                self.grows(&id, &format!("{what} {}", counter.metric), count)?;
            }
        }
        // A decision in a status with its own term counts as confirmed.
        let open = status.chosen.as_ref().filter(|chosen| chosen.outcome.is_none());
        if let Some(chosen) = open.filter(|_| write.by == By::Operator && status.term.as_deref() == Some(&*self.term)) {
            if !self.monitored.contains(&write.name) {
                return violation(
                    "BlindDecision",
                    "made or confirmed before monitoring has written in this leader term",
                );
            }
            self.confirmed.insert((write.name.clone(), chosen.seq));
        }
        if write.name != "web" {
            return Ok(());
        }
        let before: DecisionStatus = write.old.as_ref().map(|old| parsed(&old["status"])).unwrap_or_default();
        // A recreated Decision takes over the number.
        if status.seq > before.seq && !status.history.is_empty() {
            self.decisions += 1;
            self.chosen(&decision, &before, &status, steady)?;
        }
        self.carried_out(&status)?;
        self.counted(api, &status)
    }

    /// The limits must count only decisions that may have been carried out: an open one, one that was claimed, and one
    /// whose Execution was deleted.
    fn carried_out(&mut self, status: &DecisionStatus) -> Result<(), Violation> {
        let lost = status.history.iter().filter(|entry| entry.outcome == Some(Outcome::Lost));
        self.lost.extend(lost.map(|entry| entry.seq));
        let open = status.chosen.as_ref().filter(|chosen| chosen.outcome.is_none()).map(|chosen| chosen.seq);
        let may_be_done = |seq| open == Some(seq) || self.claimed.contains(&seq) || self.lost.contains(&seq);
        match status.acts.iter().find(|act| !act.dry_run && !may_be_done(act.seq)) {
            Some(act) => violation("NothingDone", format!("{act} counts, but it was never claimed")),
            None => Ok(()),
        }
    }

    /// Checks a new decision: it must be due.
    fn chosen(
        &mut self,
        decision: &Decision,
        before: &DecisionStatus,
        status: &DecisionStatus,
        steady: i64,
    ) -> Result<(), Violation> {
        let Some(chosen) = &status.chosen else { return violation("NoChoice", "a new number without a choice") };
        if chosen.outcome == Some(Outcome::DryRun) {
            return Ok(());
        }
        let policy = decision.spec.policy.clone().unwrap_or_default();
        let millis = |text: &str| duration::parse(text).map_or(0, |span| i64::try_from(span.as_millis()).unwrap_or(0));
        let at = chosen.at.0.as_millisecond();
        // Either clock may be behind when one of them steps.
        let age = |effect: &Effect| (at - effect.at.0).max(steady - effect.at.1);
        let known = self.effects.iter().skip(self.forgotten).filter(|effect| !effect.ghost);
        let dwell = policy.dwell.as_ref().map_or(0, |dwell| millis(dwell.as_str()));
        // The last effect is also known from the Execution.
        let last = self.effects.last().filter(|last| chosen.executor == *last.executor && !last.ghost);
        if let Some(early) = known.clone().chain(last).find(|effect| age(effect) < dwell) {
            return violation("Dwell", format!("{} ms after decision {} instead of {dwell}", age(early), early.seq));
        }
        if let Some(budget) = &policy.budget {
            let recent = known.filter(|effect| age(effect) < millis(budget.per.as_str())).count();
            if recent >= usize::try_from(budget.max).unwrap_or(0) {
                return violation("Budget", format!("{recent} in {} instead of {}", budget.per.as_str(), budget.max));
            }
        }
        let tag = status.tag.as_ref();
        let again = before.tag.as_ref().map(|tag| tag.sequence) == tag.map(|tag| tag.sequence);
        let mut waited = before.rejected.iter().filter(|one| one.when == chosen.served());
        let outranked = ganglion_api::closed_loop::reasons::LoopReason::Outranked;
        if again && !waited.any(|one| one.reason != outranked) {
            return violation("TwoForOneSample", format!("decisions {} and {} about {tag:?}", before.seq, status.seq));
        }
        // A recreated Decision must not decide again about a sample that its predecessor acted on.
        if before.history.is_empty() && last.is_some_and(|last| tag.is_some_and(|tag| tag.sequence <= last.sample)) {
            return violation("TwoForOneSample", format!("decision {} about {tag:?} again", status.seq));
        }
        let lowers = chosen.action.scale.as_ref().is_some_and(|scale| scale.by.is_some_and(|by| by < 0));
        let sample = self.sample_of(tag).map(|(_, sample)| sample);
        let value = sample.and_then(|sample| sample.number(&chosen.metric)?.parse::<f64>().ok());
        let fresh = sample.and_then(|sample| sample.arrived).is_some_and(|arrived| at - arrived <= FRESH + LATE);
        // Between raise and clear, the alarm persists. An unknown value never justifies an action.
        if !(fresh && value.is_some_and(|value| if lowers { value < 20.0 } else { value > 80.0 })) {
            let rule = if lowers { "UnknownLowers" } else { "UnknownServed" };
            return violation(rule, format!("{} by {:?} on {sample:?}", chosen.metric, chosen.action));
        }
        Ok(())
    }

    /// The number of served decisions must not exceed the number of effects.
    fn counted(&self, api: &Api, status: &DecisionStatus) -> Result<(), Violation> {
        let execution = api.get(Sort::Execution, "web").map(|object| parsed::<Execution>(object));
        let settled = settlement::with_outcome(status, execution.as_ref().and_then(Executor::from_execution), now());
        let served: i64 = settled.counters.iter().map(|counter| counter.served).sum();
        let done = i64::try_from(self.effects.len()).unwrap_or(0) + self.granted;
        if served > done {
            return violation("ServedTooMuch", format!("{served} served, {done} done"));
        }
        Ok(())
    }

    /// Number of the operator's writes per object.
    pub fn written(&self) -> BTreeMap<(Sort, String), u64> {
        self.writes.clone()
    }
}

/// The operator must not write the spec of a user, nor a sample; of a target, it may write only the replicas.
fn untouched(write: &Write, old: &Arc<Value>, new: &Arc<Value>) -> Result<(), Violation> {
    let same = match write.sort {
        Sort::Loop => old["spec"] == new["spec"],
        Sort::Monitoring => old["spec"]["sample"] == new["spec"]["sample"],
        Sort::Decision | Sort::Execution => true,
        Sort::Deployment => old["spec"]["template"] == new["spec"]["template"],
    };
    if same { Ok(()) } else { violation("WroteSpec", format!("{:?} {}", write.sort, write.name)) }
}
