//! Properties under crashes: limits are remembered, and each decision has at most one effect.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::execution::{
    EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, ObjectVersion, Sent, TargetState, after_effect,
    next_step,
};
use crate::tests::bench::at;
use crate::tests::properties::{restless, value};
use ganglion_api::closed_loop::action::LoopAction;
use ganglion_api::decision::{Chosen, Direction};
use ganglion_api::execution::{ExecutionSpec, ExecutionState, ExecutionStatus};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_restart_forgets_no_limit(
        samples in prop::collection::vec((1..8_i64, value(), value(), prop::bool::weighted(0.3)), 1..60),
        dwell in 0..20_i64, max in 0..6_i32,
    ) {
        let mut this = restless(dwell, max);
        let mut now = 0;
        let mut done: Vec<i64> = Vec::new();
        for (pause, a, b, crash) in samples {
            now += pause;
            let effects = this.effects.len();
            let (counters, seq) = (this.stored.1.counters.clone(), this.stored.1.seq);
            if crash {
                this.crash();
            }
            this.push(at(now), &[("a", &a), ("b", &b)]);
            for old in &counters {
                let new = this.decision.counters.iter().find(|new| new.metric == old.metric).unwrap();
                prop_assert!(new.wanted >= old.wanted && new.served >= old.served && new.limited >= old.limited);
            }
            prop_assert!(this.decision.seq >= seq);
            if this.effects.len() > effects {
                prop_assert!(done.last().is_none_or(|last| now - last >= dwell), "dwell");
                done.push(now);
                let recent = done.iter().filter(|at| now - **at < 60).count();
                prop_assert!(recent <= usize::try_from(max).unwrap(), "budget");
            }
        }
        let served: i64 = this.status_at(at(now)).counters.iter().map(|counter| counter.served).sum();
        prop_assert_eq!(usize::try_from(served).unwrap(), this.effects.len());
        let mut numbers: Vec<i64> = this.effects.iter().map(|(seq, _)| *seq).collect();
        numbers.dedup();
        prop_assert_eq!(numbers.len(), this.effects.len());
    }
}

/// An API server and a target, with two operator processes that may both believe they are the leader.
struct CrashScene {
    status: ExecutionStatus,
    version: u64,
    chosen: Chosen,
    replicas: i32,
    generation: i64,
    target: u64,
    effects: Vec<(i64, Direction)>,
}

#[derive(Default)]
struct Process {
    status: Option<(ExecutionStatus, u64)>,
    chosen: Option<Chosen>,
    seen: Option<TargetState>,
    sent: bool,
}

impl CrashScene {
    fn new(rung: &Value) -> Self {
        let chosen = json!({"seq": 1, "metric": "cpu", "side": "Low", "rung": 0, "do": rung, "executor": "exe",
            "mode": "Auto", "at": "2026-11-18T08:26:40.000000Z"});
        Self {
            status: ExecutionStatus::default(),
            version: 1,
            chosen: serde_json::from_value(chosen).unwrap(),
            replicas: 3,
            generation: 1,
            target: 1,
            effects: Vec::new(),
        }
    }

    fn look(&self) -> TargetState {
        if self.chosen.action.webhook.is_some() {
            return TargetState::Nothing;
        }
        let version = self.target.to_string();
        TargetState::Scale(
            ObjectVersion { uid: "t".into(), generation: self.generation, version, ..ObjectVersion::default() },
            self.replicas,
        )
    }

    fn act(&mut self, seq: i64, effect: &ExecutionEffect) -> EffectResult {
        match effect {
            ExecutionEffect::Scale { target, .. } if target.version != self.target.to_string() => {
                return EffectResult::Conflict;
            }
            ExecutionEffect::Scale { replicas, .. } => {
                self.replicas = *replicas;
                self.generation += 1;
                self.target += 1;
            }
            ExecutionEffect::Send { .. } => {}
            other => panic!("unexpected effect: {other:?}"),
        }
        self.effects.push((seq, Direction::Raise));
        EffectResult::Done(None)
    }

    fn write(&mut self, process: &mut Process, version: u64, status: ExecutionStatus) -> bool {
        if version != self.version {
            *process = Process::default();
            return false;
        }
        self.version += 1;
        self.status = status.clone();
        process.status = Some((status, self.version));
        true
    }

    /// Takes one step of one process. `lost` drops the answer to an effect, as a crash does.
    fn step(&mut self, process: &mut Process, now: i64, lost: bool) {
        let (status, version) = process.status.get_or_insert_with(|| (self.status.clone(), self.version)).clone();
        let chosen = process.chosen.get_or_insert_with(|| self.chosen.clone()).clone();
        let execution: ExecutionSpec =
            serde_json::from_value(json!({"target": {"apiVersion": "v1", "kind": "K", "name": "n"}})).unwrap();
        let seen = process.seen.clone();
        let ladder = json!([{"when": {"metric": "m", "side": "Low"}, "ladder": [chosen.action]}]);
        let actions: Vec<LoopAction> = serde_json::from_value(ladder).unwrap();
        let job = ExecutionContext {
            spec: &execution,
            actions: &actions,
            status: &status,
            uid: &"exe".into(),
            generation: 1,
            loop_name: "l",
            mode: chosen.mode,
            chosen: Some(&chosen),
            is_confirmed: true,
            tag: None,
            seen: seen.as_ref(),
            sent: if process.sent { Sent::NotYet } else { Sent::Maybe },
            now: at(now),
        };
        match next_step(&job) {
            ExecutionStep::Nothing | ExecutionStep::Wait(_) => *process = Process::default(),
            ExecutionStep::ReadTarget => process.seen = Some(self.look()),
            ExecutionStep::Record(new) => process.sent = self.write(process, version, *new),
            ExecutionStep::Act(effect) => {
                process.sent = false;
                let seq = status.claim.as_ref().unwrap().seq;
                let acted = self.act(seq, &effect);
                if lost {
                    *process = Process::default();
                    return;
                }
                match after_effect(&job, &effect, &acted) {
                    ExecutionStep::Record(new) => drop(self.write(process, version, *new)),
                    ExecutionStep::ReadTarget => process.seen = Some(self.look()),
                    ExecutionStep::Nothing | ExecutionStep::Wait(_) | ExecutionStep::Act(_) => {}
                }
            }
        }
    }

    fn ended(&self) -> bool {
        let open = matches!(self.status.state, None | Some(ExecutionState::Claimed | ExecutionState::Executing));
        !open && self.status.seq == Some(self.chosen.seq)
    }
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    Step(bool, bool),
    Crash(bool),
    /// Reads the status again, but keeps the earlier state of the target.
    Reread(bool),
    ForeignScale(i32),
    ForeignStatus,
    Decide,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        10 => (any::<bool>(), prop::bool::weighted(0.2)).prop_map(|(who, lost)| Happens::Step(who, lost)),
        1 => any::<bool>().prop_map(Happens::Crash),
        1 => any::<bool>().prop_map(Happens::Reread),
        1 => (0..6_i32).prop_map(Happens::ForeignScale),
        1 => Just(Happens::ForeignStatus),
        3 => Just(Happens::Decide),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn each_number_has_at_most_one_effect(
        script in prop::collection::vec(happens(), 1..120),
        rung in prop_oneof![Just(json!({"scale": {"by": 1, "max": 1000}})), Just(json!({"webhook": {"url": "http://a.b"}}))],
    ) {
        let mut world = CrashScene::new(&rung);
        let mut processes = [Process::default(), Process::default()];
        for (second, event) in (0..).zip(script) {
            match event {
                Happens::Step(who, lost) => world.step(&mut processes[usize::from(who)], second, lost),
                Happens::Crash(who) => processes[usize::from(who)] = Process::default(),
                Happens::Reread(who) => {
                    let process = &mut processes[usize::from(who)];
                    *process = Process { seen: process.seen.take(), ..Process::default() };
                }
                Happens::ForeignScale(replicas) => {
                    if replicas != world.replicas {
                        (world.replicas, world.generation) = (replicas, world.generation + 1);
                    }
                    world.target += 1;
                }
                Happens::ForeignStatus => world.target += 1,
                Happens::Decide if world.ended() => world.chosen.seq += 1,
                Happens::Decide => {}
            }
            let mut numbers: Vec<i64> = world.effects.iter().map(|(seq, _)| *seq).collect();
            numbers.sort_unstable();
            let all = numbers.len();
            numbers.dedup();
            prop_assert_eq!(numbers.len(), all, "{:?}", world.effects);
        }
        // Without further faults, every claim comes to an end.
        let mut process = Process::default();
        for second in 200..260 {
            world.step(&mut process, second, false);
        }
        prop_assert!(world.ended(), "{:?}", world.status);
    }
}
