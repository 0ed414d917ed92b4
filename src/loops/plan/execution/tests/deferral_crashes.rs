//! Property of taking resizes back, with two operator processes, lost answers, kubelets and another client.

use proptest::prelude::*;
use serde_json::json;

use super::resize::{memory, pending};
use crate::execution::{
    EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, ObjectVersion, PodResources, ResizeTarget, Sent,
    TargetState, after_effect, next_step,
};
use crate::tests::bench::at;
use ganglion_api::closed_loop::action::LoopAction;
use ganglion_api::decision::Chosen;
use ganglion_api::execution::{DeferralState, ExecutionSpec, ExecutionState, ExecutionStatus, Quantities};

/// A pod that the loop doubles, its kubelet, and the Execution.
struct Scene {
    status: ExecutionStatus,
    status_version: u64,
    chosen: Chosen,
    pod: PodResources,
    pod_version: u64,
    /// Goals that the loop has sent.
    sent: Vec<Quantities>,
    now: i64,
}

#[derive(Default)]
struct Process {
    status: Option<(ExecutionStatus, u64)>,
    seen: Option<TargetState>,
}

impl Scene {
    fn new() -> Self {
        let rung = json!({"resize": {"container": "app", "resource": "memory", "factor": "2", "max": "64Gi"}});
        let chosen = json!({"seq": 1, "metric": "m", "side": "Low", "rung": 0, "do": rung, "executor": "exe",
            "mode": "Auto", "at": "2026-11-18T08:26:40.000000Z"});
        let wants = memory("256Mi");
        Self {
            status: ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() },
            status_version: 1,
            chosen: serde_json::from_value(chosen).unwrap(),
            pod: PodResources {
                name: "a".into(),
                thing: ObjectVersion { uid: "a".into(), generation: 1, ..ObjectVersion::default() },
                index: Some(0),
                has: Some(wants.clone()),
                allocated: Some(wants.clone()),
                wants,
                ..PodResources::default()
            },
            pod_version: 1,
            sent: Vec::new(),
            now: 0,
        }
    }

    fn look(&self) -> TargetState {
        let mut pod = self.pod.clone();
        pod.thing.version = self.pod_version.to_string();
        TargetState::Resources(Box::new(ResizeTarget {
            target: ObjectVersion { uid: "web".into(), generation: 1, ..ObjectVersion::default() },
            pods: vec![pod],
            ..ResizeTarget::default()
        }))
    }

    fn write_pod(&mut self, wants: Quantities, by_loop: bool) {
        self.pod.wants = wants;
        self.pod.is_resized_by_loop = by_loop;
        self.pod.thing.written_by = (!by_loop).then(|| "vpa".into());
        self.pod.thing.generation += 1;
        self.pod.pending = None;
        self.pod_version += 1;
    }

    fn carry_out(&mut self) {
        (self.pod.has, self.pod.allocated) = (Some(self.pod.wants.clone()), Some(self.pod.wants.clone()));
        self.pod.pending = None;
        self.pod_version += 1;
    }

    fn defer(&mut self) {
        if self.pod.allocated.as_ref() != Some(&self.pod.wants) && self.pod.pending.is_none() {
            self.pod.pending = Some(pending("Deferred", "node is full"));
            self.pod_version += 1;
        }
    }

    fn act(&mut self, effect: &ExecutionEffect) -> EffectResult {
        let (ExecutionEffect::Resize { pods, .. } | ExecutionEffect::TakeBack { pods, .. }) = effect else {
            panic!("unexpected effect: {effect:?}")
        };
        let change = &pods[0];
        if let ExecutionEffect::TakeBack { .. } = effect {
            if change.thing.version != self.pod_version.to_string() {
                return EffectResult::Conflict;
            }
            assert!(self.pod.is_resized_by_loop, "the resize of another client is taken back");
            assert!(self.pod.is_deferred(), "{:?}", self.pod);
            assert!(self.sent.contains(&self.pod.wants), "{:?}", self.pod.wants);
            assert_eq!(Some(&change.to), self.pod.allocated.as_ref());
        } else {
            if change.thing.generation != self.pod.thing.generation {
                return EffectResult::Conflict;
            }
            self.sent.push(change.to.clone());
        }
        self.write_pod(change.to.clone(), true);
        EffectResult::Done(None)
    }

    fn write(&mut self, process: &mut Process, version: u64, status: ExecutionStatus) {
        *process = Process::default();
        if version == self.status_version {
            self.status_version += 1;
            self.status = status.clone();
            process.status = Some((status, self.status_version));
        }
    }

    /// Takes one step of one process. `lost` drops the answer to an effect, as a crash does.
    fn step(&mut self, process: &mut Process, lost: bool) -> bool {
        let (status, version) =
            process.status.get_or_insert_with(|| (self.status.clone(), self.status_version)).clone();
        let spec: ExecutionSpec =
            serde_json::from_value(json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}))
                .unwrap();
        let ladder = json!([{"when": {"metric": "m", "side": "Low"}, "ladder": [self.chosen.action]}]);
        let actions: Vec<LoopAction> = serde_json::from_value(ladder).unwrap();
        let (chosen, seen) = (self.chosen.clone(), process.seen.clone());
        let context = ExecutionContext {
            spec: &spec,
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
            sent: Sent::Maybe,
            now: at(self.now),
        };
        match next_step(&context) {
            ExecutionStep::Nothing | ExecutionStep::Wait(_) => {
                *process = Process::default();
                return false;
            }
            ExecutionStep::ReadTarget => process.seen = Some(self.look()),
            ExecutionStep::Record(new) => self.write(process, version, *new),
            ExecutionStep::Act(effect) => {
                let acted = self.act(&effect);
                if lost {
                    *process = Process::default();
                    return true;
                }
                match after_effect(&context, &effect, &acted) {
                    ExecutionStep::Record(new) => self.write(process, version, *new),
                    ExecutionStep::ReadTarget => process.seen = Some(self.look()),
                    ExecutionStep::Nothing | ExecutionStep::Wait(_) | ExecutionStep::Act(_) => {}
                }
            }
        }
        true
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
    Passes(i64),
    CarriesOut,
    Defers,
    /// Another client resizes the pod to this many times 256Mi.
    Resizes(u32),
    Decides,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        12 => (any::<bool>(), prop::bool::weighted(0.2)).prop_map(|(who, lost)| Happens::Step(who, lost)),
        1 => any::<bool>().prop_map(Happens::Crash),
        2 => (1..200_i64).prop_map(Happens::Passes),
        1 => Just(Happens::CarriesOut),
        3 => Just(Happens::Defers),
        1 => (1..9_u32).prop_map(Happens::Resizes),
        2 => Just(Happens::Decides),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Asserts of [`Scene::act`]: only a resize of the loop that is deferred at this moment is taken back, to what is
    /// allocated. At the end, no resize of the loop stays deferred.
    #[test]
    fn only_the_loops_own_deferred_resize_is_taken_back(script in prop::collection::vec(happens(), 1..160)) {
        let mut scene = Scene::new();
        let mut processes = [Process::default(), Process::default()];
        for event in script {
            match event {
                Happens::Step(who, lost) => drop(scene.step(&mut processes[usize::from(who)], lost)),
                Happens::Crash(who) => processes[usize::from(who)] = Process::default(),
                Happens::Passes(seconds) => scene.now += seconds,
                Happens::CarriesOut => scene.carry_out(),
                Happens::Defers => scene.defer(),
                Happens::Resizes(times) => scene.write_pod(memory(&format!("{}Mi", 256 * times)), false),
                Happens::Decides if scene.ended() => scene.chosen.seq += 1,
                Happens::Decides => {}
            }
        }
        let mut process = Process::default();
        scene.defer();
        for _ in 0..40 {
            scene.now += 60;
            for _ in 0..8 {
                if !scene.step(&mut process, false) {
                    break;
                }
                scene.defer();
            }
        }
        let is_larger = scene.pod.is_deferred() && scene.pod.is_resized_by_loop;
        prop_assert!(!is_larger, "{:?} {:?}", scene.pod, scene.status);
        let is_waiting = scene.status.deferred.iter().any(|one| one.state != DeferralState::TakenBack);
        prop_assert!(!is_waiting, "{:?}", scene.status);
    }
}
