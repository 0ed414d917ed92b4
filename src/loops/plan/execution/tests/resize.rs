//! Tests of resizes: the chosen pods, their resources, and that no decision resizes a pod twice.

use rstest::rstest;
use serde_json::{Value, json};

use crate::execution::{
    EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, ObjectVersion, PendingResize, PodNode,
    PodResources, ResizeTarget, Sent, TargetState, after_effect, next_step,
};
use crate::tests::bench::at;
use ganglion_api::closed_loop::action::LoopAction;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::Chosen;
use ganglion_api::execution::{ExecutionSpec, ExecutionState, ExecutionStatus, Quantities};

/// An API server with a workload's pods, and the Execution that resizes them.
pub struct Stage {
    pub spec: ExecutionSpec,
    actions: Vec<LoopAction>,
    pub status: ExecutionStatus,
    pub chosen: Chosen,
    pub seen: ResizeTarget,
}

pub fn memory(request: &str) -> Quantities {
    Quantities { request: Some(request.into()), limit: None }
}

fn pod(name: &str, has: &str) -> PodResources {
    PodResources {
        name: name.into(),
        thing: ObjectVersion { uid: name.into(), generation: 1, version: "1".into(), ..ObjectVersion::default() },
        index: Some(0),
        wants: memory(has),
        has: Some(memory(has)),
        allocated: Some(memory(has)),
        ..PodResources::default()
    }
}

pub fn pending(reason: &str, message: &str) -> PendingResize {
    PendingResize { reason: reason.into(), message: message.into() }
}

pub fn rung(members: Value) -> Value {
    let mut resize = json!({"container": "app", "resource": "memory", "factor": "2", "max": "1Gi"});
    resize.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    json!({"resize": resize})
}

impl Stage {
    pub fn new(rung: Value, pods: &[(&str, &str)]) -> Self {
        let target = json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});
        let actions = json!([{"when": {"metric": "memory", "side": "Low"}, "ladder": [rung]}]);
        let chosen = json!({"seq": 1, "metric": "memory", "side": "Low", "rung": 0, "do": rung, "executor": "exe",
            "mode": "Auto", "at": "2026-11-18T08:26:40.000000Z"});
        Self {
            spec: serde_json::from_value(target).unwrap(),
            actions: serde_json::from_value(actions).unwrap(),
            status: ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() },
            chosen: serde_json::from_value(chosen).unwrap(),
            seen: ResizeTarget {
                target: ObjectVersion {
                    uid: "web".into(),
                    generation: 1,
                    version: "1".into(),
                    ..ObjectVersion::default()
                },
                template: Some((Some(0), memory("256Mi"))),
                pods: pods.iter().map(|(name, has)| pod(name, has)).collect(),
                ..ResizeTarget::default()
            },
        }
    }

    pub fn pod(&mut self, name: &str) -> &mut PodResources {
        self.seen.pods.iter_mut().find(|pod| pod.name == name).unwrap()
    }

    /// Writes the spec of this pod, as we or somebody else would; its kubelet follows.
    pub fn write(&mut self, name: &str, wants: &str) {
        let pod = self.pod(name);
        pod.thing.generation += 1;
        (pod.wants, pod.has, pod.allocated) = (memory(wants), Some(memory(wants)), Some(memory(wants)));
        pod.pending = None;
    }

    /// Writes the spec of this pod, as we would; its kubelet on node n1 has no room for it.
    pub fn defer(&mut self, name: &str, wants: &str) {
        let pod = self.pod(name);
        pod.thing.generation += 1;
        pod.wants = memory(wants);
        pod.pending = Some(pending("Deferred", "node is full"));
        pod.is_resized_by_loop = true;
        pod.composition.node = Some(PodNode { name: "n1".into(), ..PodNode::default() });
    }

    pub fn step(&mut self, second: i64, acted: Option<(&ExecutionEffect, EffectResult)>) -> ExecutionStep {
        let seen = TargetState::Resources(Box::new(self.seen.clone()));
        let job = ExecutionContext {
            spec: &self.spec,
            actions: &self.actions,
            status: &self.status,
            uid: &"exe".into(),
            generation: 1,
            loop_name: "web",
            mode: self.chosen.mode,
            chosen: Some(&self.chosen),
            is_confirmed: true,
            tag: None,
            seen: Some(&seen),
            sent: Sent::Maybe,
            now: at(second),
        };
        let step = match acted {
            Some((effect, acted)) => after_effect(&job, effect, &acted),
            None => next_step(&job),
        };
        if let ExecutionStep::Record(status) = &step {
            self.status = (**status).clone();
        }
        step
    }

    /// Returns the next effect, after all records before it.
    #[track_caller]
    pub fn effect(&mut self) -> ExecutionEffect {
        self.effect_at(0)
    }

    #[track_caller]
    pub fn effect_at(&mut self, second: i64) -> ExecutionEffect {
        for _ in 0..3 {
            if let ExecutionStep::Act(effect) = self.step(second, None) {
                return *effect;
            }
        }
        panic!("no effect: {:?}", self.status);
    }

    #[track_caller]
    pub fn names(&mut self) -> Vec<String> {
        self.names_at(0)
    }

    /// Decides on this rung, which becomes the only one.
    pub fn decide(&mut self, seq: i64, rung: &Value) {
        let action = serde_json::from_value(rung.clone()).unwrap();
        self.actions[0].ladder = vec![action];
        (self.chosen.seq, self.chosen.action) = (seq, self.actions[0].ladder[0].clone());
    }

    #[track_caller]
    pub fn names_at(&mut self, second: i64) -> Vec<String> {
        let ExecutionEffect::Resize { pods, .. } = self.effect_at(second) else { panic!("not a resize") };
        pods.into_iter().map(|pod| format!("{} {}", pod.name, pod.to.request.unwrap().as_str())).collect()
    }

    #[track_caller]
    pub fn ends(&mut self, state: ExecutionState, reason: LoopReason) -> String {
        assert!(matches!(self.step(1, None), ExecutionStep::Record(_)));
        assert_eq!((self.status.state, self.status.reason), (Some(state), Some(reason)), "{:?}", self.status.message);
        self.status.message.clone().unwrap_or_default()
    }
}

#[test]
fn the_pods_that_are_behind_are_resized_and_no_other() {
    let mut stage = Stage::new(rung(json!({})), &[("a", "512Mi"), ("b", "256Mi"), ("c", "300Mi")]);
    assert_eq!(stage.names(), ["b 512Mi", "c 512Mi"]);
    assert_eq!(
        (stage.status.before.as_deref(), stage.status.after.as_deref()),
        (Some("request 256Mi"), Some("request 512Mi"))
    );
    stage.write("b", "512Mi");
    assert_eq!(stage.names(), ["c 512Mi"], "the process was killed between the two");
    stage.write("c", "512Mi");
    let message = stage.ends(ExecutionState::Done, LoopReason::Done);
    assert!(message.contains("from request 256Mi to request 512Mi in 2 pods; new pods start with"), "{message}");
}

#[test]
fn who_lowers_begins_with_the_largest() {
    let down = rung(json!({"factor": "0.5", "min": "100Mi"}));
    let mut stage = Stage::new(down, &[("a", "512Mi"), ("b", "256Mi"), ("c", "400Mi")]);
    assert_eq!(stage.names(), ["a 256Mi", "c 256Mi"]);
}

/// Claims can be written by others: neither a goal nor a start that the rung does not connect has an effect.
#[test]
fn a_goal_that_the_rung_does_not_compute_resizes_nothing() {
    for (was, goal) in [("256Mi", "64Gi"), ("32Gi", "64Gi"), ("256Mi", "1Mi")] {
        let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi")]);
        stage.effect();
        let claim = stage.status.claim.as_mut().unwrap();
        (claim.was, claim.goal.quantities) = (Some(memory(was)), Some(memory(goal)));
        stage.ends(ExecutionState::Lost, LoopReason::Lost);
    }
}

/// A comparison of values alone would miss this case.
#[test]
fn a_pod_that_was_set_back_is_not_resized_again() {
    let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi")]);
    stage.effect();
    stage.write("a", "512Mi");
    stage.write("a", "256Mi");
    let message = stage.ends(ExecutionState::Overtaken, LoopReason::Overtaken);
    assert!(message.contains("pod a changed by somebody else"), "{message}");
}

#[test]
fn a_pod_that_is_another_is_left_alone() {
    let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi"), ("b", "256Mi")]);
    stage.effect();
    stage.pod("a").thing.uid = "anew".into();
    assert_eq!(stage.names(), ["b 512Mi"]);
    stage.seen.pods.clear();
    stage.ends(ExecutionState::Overtaken, LoopReason::Overtaken);
    let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi")]);
    stage.effect();
    stage.seen.target.uid = "anew".into();
    stage.ends(ExecutionState::Overtaken, LoopReason::Overtaken);
}

#[test]
fn the_template_comes_after_the_pods_and_only_while_nobody_wrote_the_workload() {
    let with = || rung(json!({"template": true}));
    let mut stage = Stage::new(with(), &[("a", "256Mi")]);
    stage.effect();
    stage.write("a", "512Mi");
    let ExecutionEffect::Template { to, .. } = stage.effect() else { panic!("not the template") };
    assert_eq!(to, memory("512Mi"));
    stage.seen.target.generation = 2;
    stage.seen.template = Some((Some(0), memory("512Mi")));
    // The rollout has replaced the pods already.
    stage.seen.pods.clear();
    let message = stage.ends(ExecutionState::Done, LoopReason::Done);
    assert!(message.contains("and in the template"), "{message}");

    let mut stage = Stage::new(with(), &[("a", "256Mi")]);
    stage.effect();
    stage.write("a", "512Mi");
    stage.seen.target.generation = 2;
    let message = stage.ends(ExecutionState::Done, LoopReason::Done);
    assert!(message.contains("changed by somebody else: the pod template"), "{message}");
}

/// In each round the loop doubles 256Mi, and somebody sets the template back, which replaces the pods.
#[test]
fn a_template_that_somebody_sets_back_three_times_is_left_alone() {
    let mut stage = Stage::new(rung(json!({"template": true})), &[("a", "256Mi")]);
    let mut reasons = Vec::new();
    for round in 1..=4 {
        stage.chosen.seq = round;
        for _ in 0..9 {
            let ExecutionStep::Act(effect) = stage.step(0, None) else { continue };
            match *effect {
                ExecutionEffect::Template { to, .. } => {
                    stage.seen.template = Some((Some(0), to));
                    stage.seen.target.generation += 1;
                    stage.seen.target.written_by = None;
                }
                _ => stage.write("a", "512Mi"),
            }
        }
        reasons.push(stage.status.reason);
        stage.seen.template = Some((Some(0), memory("256Mi")));
        stage.seen.target.generation += 1;
        stage.seen.target.written_by = Some("helm".into());
        stage.write("a", "256Mi");
    }
    let done = Some(LoopReason::Done);
    assert_eq!(reasons, [done, done, done, Some(LoopReason::FieldConflict)]);
}

/// Rounds in which the loop raises the memory of a pod in place. After each, the pod has 256Mi again: because this
/// manager has resized it back, or because it was replaced.
fn rounds_in_place(by: Option<&str>) -> Vec<Option<LoopReason>> {
    let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi")]);
    let mut reasons = Vec::new();
    for round in 1..=5 {
        stage.chosen.seq = round;
        for _ in 0..9 {
            if let ExecutionStep::Act(_) = stage.step(round, None) {
                stage.write("a", "512Mi");
                stage.pod("a").thing.written_by = None;
            }
        }
        reasons.push(stage.status.reason);
        stage.write("a", "256Mi");
        let pod = stage.pod("a");
        match by {
            Some(by) => pod.thing.written_by = Some(by.into()),
            None => pod.thing.uid = format!("a{round}").as_str().into(),
        }
    }
    reasons
}

#[test]
fn pods_that_somebody_resizes_back_three_times_are_left_alone() {
    let (done, stop) = (Some(LoopReason::Done), Some(LoopReason::FieldConflict));
    assert_eq!(rounds_in_place(Some("vpa-updater")), [done, done, done, stop, stop]);
    assert_eq!(rounds_in_place(None), [done; 5], "a pod that was replaced has the resources of the template");
}

#[test]
fn a_pod_that_somebody_resizes_further_is_not_set_back() {
    let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi"), ("b", "256Mi")]);
    for round in 1..=5 {
        stage.chosen.seq = round;
        stage.step(round, None);
        assert_ne!(stage.status.reason, Some(LoopReason::FieldConflict));
        for (name, memory) in [("a", "512Mi"), ("b", "1Gi")] {
            stage.write(name, memory);
        }
        stage.pod("b").thing.written_by = Some("vpa-updater".into());
        stage.step(round, None);
        assert_eq!(stage.status.undone, []);
    }
}

#[test]
fn asked_for_is_not_given() {
    let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi")]);
    let effect = stage.effect();
    assert_eq!(stage.step(0, Some((&effect, EffectResult::Done(None)))), ExecutionStep::ReadTarget);
    stage.write("a", "512Mi");
    stage.pod("a").has = Some(memory("256Mi"));
    let message = stage.ends(ExecutionState::Executing, LoopReason::Executing);
    let expected = "0 of 1 pods are resized; the kubelet has not resized pod a from request 256Mi to request 512Mi yet";
    assert_eq!(message, expected);
    assert_eq!(stage.step(1, None), ExecutionStep::Wait(at(2)), "no watch reports pods, so they are polled");
    stage.pod("a").pending = Some(pending("Deferred", "node is full"));
    assert!(stage.ends(ExecutionState::Executing, LoopReason::Executing).contains("Deferred: node is full"));
    let mut late = stage.status.clone();
    stage.step(500, None);
    assert_eq!(stage.status.reason, Some(LoopReason::TimedOut));
    std::mem::swap(&mut stage.status, &mut late);
    stage.pod("a").pending = Some(pending("Infeasible", "node is too small"));
    assert!(stage.ends(ExecutionState::Failed, LoopReason::Failed).contains("node is too small"));
}

#[rstest]
#[case::no_pod(&[], ExecutionState::Failed, LoopReason::NotScalable)]
#[case::at_its_max(&[("a", "1Gi")], ExecutionState::Limited, LoopReason::Limited)]
fn where_nothing_can_be_done(#[case] pods: &[(&str, &str)], #[case] state: ExecutionState, #[case] reason: LoopReason) {
    Stage::new(rung(json!({})), pods).ends(state, reason);
}

#[test]
fn a_hundred_pods_at_a_time() {
    let names: Vec<String> = (0..130).map(|index| format!("pod-{index:03}")).collect();
    let pods: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "256Mi")).collect();
    let mut stage = Stage::new(rung(json!({})), &pods);
    assert_eq!(stage.names().len(), 100);
    assert!(serde_json::to_string(&stage.status).unwrap().len() < 16 << 10);
}

/// Each decision would raise further what the kubelet has not carried out: 64Mi, 96Mi, 144Mi, 216Mi.
#[rstest]
#[case::deferred(Some(pending("Deferred", "Node didn't have enough resource: memory")))]
#[case::infeasible(Some(pending("Infeasible", "Node didn't have enough capacity: memory")))]
#[case::error(Some(pending("Error", "cannot change the cgroup")))]
#[case::nothing_reported(None)]
fn a_resize_that_is_pending_is_not_added_to(#[case] report: Option<PendingResize>) {
    let mut stage = Stage::new(rung(json!({"factor": "1.5"})), &[("a", "64Mi")]);
    assert_eq!(stage.names(), ["a 96Mi"]);
    stage.write("a", "96Mi");
    (stage.pod("a").has, stage.pod("a").pending) = (Some(memory("64Mi")), report.clone());
    stage.step(1, None);
    stage.step(500, None);
    assert_eq!((stage.status.state, &stage.status.claim), (Some(ExecutionState::Failed), &None));
    let words = report.map(|report| format!(": {report}")).unwrap_or_default();
    for seq in 2..5 {
        stage.chosen.seq = seq;
        let message = stage.ends(ExecutionState::Failed, LoopReason::ResizePending);
        let expected = format!("the kubelet has not resized pod a from request 64Mi to request 96Mi yet{words}");
        assert_eq!(message, expected);
    }
    (stage.pod("a").has, stage.pod("a").pending) = (Some(memory("96Mi")), None);
    stage.chosen.seq = 5;
    assert_eq!(stage.names(), ["a 144Mi"]);
}

#[test]
fn the_other_pods_are_resized_while_one_is_pending() {
    let mut stage = Stage::new(rung(json!({"factor": "1.5"})), &[("a", "64Mi"), ("b", "64Mi"), ("c", "96Mi")]);
    stage.pod("a").wants = memory("96Mi");
    stage.pod("a").pending = Some(pending("Deferred", "node is full"));
    assert_eq!(stage.names(), ["b 96Mi"]);
    // A pending resize of cpu: the kubelet carries out both or none.
    let mut stage = Stage::new(rung(json!({"factor": "1.5"})), &[("a", "64Mi"), ("b", "64Mi")]);
    stage.pod("a").pending = Some(pending("Deferred", "node is full"));
    assert_eq!(stage.names(), ["b 96Mi"]);
}

#[test]
fn a_pending_resize_is_taken_back_by_one_in_the_other_direction() {
    let mut stage = Stage::new(rung(json!({"factor": "1.5"})), &[("a", "64Mi")]);
    (stage.pod("a").wants, stage.pod("a").pending) = (memory("32Mi"), Some(pending("Error", "in use")));
    assert_eq!(stage.names(), ["a 96Mi"]);
    let mut stage = Stage::new(rung(json!({"factor": "0.5", "min": "1Mi"})), &[("a", "64Mi")]);
    (stage.pod("a").wants, stage.pod("a").pending) = (memory("96Mi"), Some(pending("Deferred", "node is full")));
    assert_eq!(stage.names(), ["a 32Mi"]);
    stage.write("a", "32Mi");
    stage.pod("a").has = Some(memory("64Mi"));
    stage.step(1, None);
    stage.step(500, None);
    stage.chosen.seq = 2;
    stage.ends(ExecutionState::Failed, LoopReason::ResizePending);
}

#[test]
fn the_template_is_raised_after_the_kubelets_have_resized_and_new_pods_run() {
    let mut stage = Stage::new(rung(json!({"template": true})), &[("a", "256Mi")]);
    stage.effect();
    stage.write("a", "512Mi");
    stage.pod("a").has = Some(memory("256Mi"));
    stage.ends(ExecutionState::Executing, LoopReason::Executing);
    stage.pod("a").has = Some(memory("512Mi"));
    assert!(matches!(stage.effect(), ExecutionEffect::Template { .. }));
    let mut stage = Stage::new(rung(json!({"template": true})), &[("a", "256Mi")]);
    stage.seen.starting = Some("b".to_owned());
    let message = stage.ends(ExecutionState::Failed, LoopReason::ResizePending);
    assert_eq!(message, "pod b does not run yet: the template is not raised before");
    let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi")]);
    stage.seen.starting = Some("b".to_owned());
    assert_eq!(stage.names(), ["a 512Mi"], "without the template, new pods do not matter");
}
