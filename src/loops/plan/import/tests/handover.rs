//! The steps of a handover, from what is in the cluster. The test performs each step as the API server would.

use kube::ResourceExt;
use kube::core::DynamicObject;
use rstest::rstest;
use serde_json::{Value, json};

use super::hpa_object;
use crate::import::handover::{HandoverStep, HandoverView, next_apply, next_undo};
use crate::import::{ImportClaim, ImportRecord, ImportedKind, ImportedScaler};
use ganglion_api::closed_loop::{ClosedLoop, LoopMode};
use ganglion_api::execution::Execution;
use ganglion_api::marks;

/// An autoscaler and the loops of its namespace.
struct Scene {
    kind: ImportedKind,
    object: DynamicObject,
    loops: Vec<ClosedLoop>,
    has_hpa: bool,
    claims: bool,
}

impl Scene {
    fn hpa(fields: &Value) -> Self {
        let object = hpa_object(fields);
        Self { kind: ImportedKind::HorizontalPodAutoscaler, object, loops: Vec::new(), has_hpa: false, claims: false }
    }

    fn scaled_object(annotations: &Value) -> Self {
        let object = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
            "metadata": {"name": "web", "uid": "s", "annotations": annotations}, "spec": {}});
        let object = serde_json::from_value(object).unwrap();
        Self { kind: ImportedKind::ScaledObject, object, loops: Vec::new(), has_hpa: true, claims: false }
    }

    fn next(&self, name: &str, undo: bool) -> Result<HandoverStep, String> {
        let status = if self.claims { json!({"claim": claim()}) } else { json!({}) };
        let execution: Execution = serde_json::from_value(json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "Execution",
            "metadata": {"name": name}, "spec": {"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
            "status": status}))
        .unwrap();
        let view = HandoverView {
            name,
            scaler: ImportedScaler { kind: self.kind, object: &self.object },
            has_hpa: self.has_hpa,
            loops: &self.loops,
            execution: Some(&execution),
        };
        if undo { next_undo(view) } else { next_apply(view) }.map_err(|refusal| refusal.to_string())
    }

    fn parent(&mut self, name: &str) -> &mut ClosedLoop {
        self.loops.iter_mut().find(|one| one.name_any() == name).unwrap()
    }

    /// The operator has seen the loop.
    fn observe(&mut self, name: &str) {
        let reason = match self.parent(name).spec.mode {
            LoopMode::Paused => "Paused",
            LoopMode::Auto | LoopMode::DryRun | LoopMode::Approve => "Running",
        };
        let condition = |kind: &str, reason: &str| {
            json!({"type": kind, "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let conditions =
            [condition("Ready", reason), condition("Preflight", "Passed"), condition("DataAvailable", "Known")];
        let generation = self.parent(name).metadata.generation;
        let status = json!({"observedGeneration": generation, "conditions": conditions});
        self.parent(name).status = Some(serde_json::from_value(status).unwrap());
    }

    fn set_mode(&mut self, name: &str, mode: LoopMode) {
        let parent = self.parent(name);
        parent.spec.mode = mode;
        parent.metadata.generation = parent.metadata.generation.map(|generation| generation + 1);
    }

    /// Performs a step. Returns its name.
    fn perform(&mut self, name: &str, step: HandoverStep) -> &'static str {
        match step {
            HandoverStep::CreateLoop(record) => {
                self.loops.push(made(name, &record));
                "CreateLoop"
            }
            HandoverStep::SwitchOff(object) => {
                self.object = *object;
                "SwitchOff"
            }
            HandoverStep::SwitchOn(object) => {
                self.object = *object;
                "SwitchOn"
            }
            HandoverStep::Rehearse => {
                self.set_mode(name, LoopMode::DryRun);
                "Rehearse"
            }
            HandoverStep::Start => {
                self.set_mode(name, LoopMode::Auto);
                "Start"
            }
            HandoverStep::Pause => {
                self.set_mode(name, LoopMode::Paused);
                "Pause"
            }
            HandoverStep::DeleteLoop => {
                self.loops.retain(|one| one.name_any() != name);
                "DeleteLoop"
            }
            HandoverStep::Await(what) => {
                if what.contains("KEDA") {
                    self.has_hpa = false;
                } else {
                    self.claims = false;
                    self.observe(name);
                }
                "Await"
            }
            HandoverStep::Done => "Done",
        }
    }

    /// Performs all steps; returns their names.
    fn run(&mut self, undo: bool) -> Vec<&'static str> {
        let mut steps = Vec::new();
        while steps.last() != Some(&"Done") {
            assert!(steps.len() < 20, "{steps:?}");
            let step = self.next("web", undo).unwrap();
            steps.push(self.perform("web", step));
        }
        steps
    }
}

fn claim() -> Value {
    let at = "2026-01-01T00:00:00.000000Z";
    json!({"seq": 1, "at": at, "deadline": at, "do": {"scale": {"to": 1}}, "goal": {"replicas": 1}})
}

/// A loop that an import has created, with bounds 2 to 10.
fn made(name: &str, record: &ImportRecord) -> ClosedLoop {
    let scale = json!({"track": {"type": "Utilization", "target": "50"}, "min": 2, "max": 10});
    serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop",
        "metadata": {"name": name, "generation": 1,
            "annotations": {marks::IMPORTED_FROM: serde_json::to_string(record).unwrap()}},
        "spec": {"mode": "DryRun", "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"name": "cpu", "source": {"resource": {"resource": "cpu"}}}],
            "actions": [{"when": {"metric": "cpu", "side": "Target"}, "ladder": [{"scale": scale}]}]},
    }))
    .unwrap()
}

const APPLY: [&str; 6] = ["CreateLoop", "Await", "SwitchOff", "Start", "Await", "Done"];
const UNDO: [&str; 5] = ["Pause", "Await", "SwitchOn", "DeleteLoop", "Done"];

/// I1: both directions are switched off, and `behavior` is exactly as before in the end, also if there was none.
#[rstest]
#[case(json!({"minReplicas": 2}))]
#[case(json!({"minReplicas": 2, "behavior": {}}))]
#[case(json!({"minReplicas": 2, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 9, "selectPolicy": "Min"}}}))]
fn an_autoscaler_is_off_and_then_as_before(#[case] fields: Value) {
    let mut scene = Scene::hpa(&fields);
    let before = scene.object.clone();
    assert_eq!(scene.run(false), APPLY);
    let behavior = &scene.object.data["spec"]["behavior"];
    assert_eq!(
        [&behavior["scaleUp"]["selectPolicy"], &behavior["scaleDown"]["selectPolicy"]],
        ["Disabled", "Disabled"]
    );
    assert_eq!(scene.parent("web").spec.mode, LoopMode::Auto);
    assert_eq!(scene.run(false), ["Done"], "there is nothing left to do");
    assert_eq!(scene.run(true), UNDO);
    scene.object.metadata.annotations = scene.object.metadata.annotations.filter(|all| !all.is_empty());
    assert_eq!((scene.object, scene.loops.len()), (before, 0));
}

/// I2: the loop starts only once KEDA has deleted its HorizontalPodAutoscaler.
#[rstest]
#[case(json!({}))]
#[case(json!({"autoscaling.keda.sh/paused": "false"}))]
fn a_scaled_object_is_paused_before_the_loop_starts(#[case] annotations: Value) {
    let mut scene = Scene::scaled_object(&annotations);
    assert_eq!(scene.run(false), ["CreateLoop", "Await", "SwitchOff", "Await", "Start", "Await", "Done"]);
    assert_eq!(scene.object.annotations()[marks::KEDA_PAUSED], "true");
    assert_eq!(scene.run(true), UNDO);
    assert_eq!(json!(scene.object.annotations()), annotations);
}

/// A command that is killed before or after any step goes on, also in the other direction.
#[test]
fn a_handover_can_turn_at_every_point() {
    for point in 0..APPLY.len() {
        let mut scene = Scene::hpa(&json!({"minReplicas": 2}));
        for _ in 0..point {
            let step = scene.next("web", false).unwrap();
            scene.perform("web", step);
        }
        scene.run(true);
        let is_claimed = scene.object.annotations().contains_key(marks::IMPORTED_BY);
        assert!(scene.loops.is_empty() && !is_claimed && scene.object.data["spec"]["behavior"].is_null(), "{point}");
    }
    for point in 0..UNDO.len() {
        let mut scene = Scene::hpa(&json!({"minReplicas": 2}));
        scene.run(false);
        for _ in 0..point {
            let step = scene.next("web", true).unwrap();
            scene.perform("web", step);
        }
        scene.run(false);
        let mode = scene.parent("web").spec.mode;
        let behavior = &scene.object.data["spec"]["behavior"];
        assert_eq!((mode, &behavior["scaleUp"]["selectPolicy"]), (LoopMode::Auto, &json!("Disabled")), "{point}");
    }
}

/// In no order are both the autoscaler and the loop active.
#[test]
fn never_two_at_once() {
    let mut scene = Scene::hpa(&json!({"minReplicas": 2}));
    for undo in [false, true, false, true] {
        loop {
            let step = scene.next("web", undo).unwrap();
            if scene.perform("web", step) == "Done" {
                break;
            }
            let behavior = &scene.object.data["spec"]["behavior"];
            let is_on = behavior["scaleUp"]["selectPolicy"] != "Disabled";
            let acts = scene.loops.iter().any(|one| matches!(one.spec.mode, LoopMode::Auto | LoopMode::Approve));
            assert!(!(is_on && acts), "both act");
        }
    }
}

#[test]
fn a_loop_that_is_not_ready_takes_nothing_over() {
    let mut scene = Scene::hpa(&json!({"minReplicas": 2}));
    let step = scene.next("web", false).unwrap();
    scene.perform("web", step);
    scene.observe("web");
    for (kind, status) in [("Ready", "False"), ("Preflight", "Unknown"), ("DataAvailable", "False")] {
        let mut unready = scene.parent("web").clone();
        let conditions = &mut unready.status.as_mut().unwrap().conditions;
        let condition = conditions.iter_mut().find(|one| one.type_ == kind).unwrap();
        (condition.status, condition.message) = (status.to_owned(), "why".to_owned());
        let ready = std::mem::replace(scene.parent("web"), unready);
        let step = scene.next("web", false);
        let Ok(HandoverStep::Await(what)) = &step else { panic!("{kind}: {step:?}") };
        assert!(what.contains(kind) && what.contains("why"), "{what}");
        *scene.parent("web") = ready;
    }
    assert!(matches!(scene.next("web", false), Ok(HandoverStep::SwitchOff(_))));
}

#[test]
fn a_change_in_progress_is_awaited_before_the_autoscaler_is_on() {
    let mut scene = Scene::hpa(&json!({"minReplicas": 2}));
    scene.run(false);
    let step = scene.next("web", true).unwrap();
    assert_eq!(scene.perform("web", step), "Pause");
    scene.observe("web");
    scene.claims = true;
    assert!(matches!(scene.next("web", true), Ok(HandoverStep::Await(_))));
    scene.claims = false;
    assert!(matches!(scene.next("web", true), Ok(HandoverStep::SwitchOn(_))));
}

#[rstest]
#[case(json!({"minReplicas": 3}))]
#[case(json!({"minReplicas": 2, "maxReplicas": 9}))]
fn bounds_outside_those_of_the_autoscaler_are_refused(#[case] fields: Value) {
    let mut scene = Scene::hpa(&json!({"minReplicas": 2}));
    let step = scene.next("web", false).unwrap();
    scene.perform("web", step);
    for (key, value) in fields.as_object().unwrap() {
        scene.object.data["spec"][key] = value.clone();
    }
    let problem = scene.next("web", false).unwrap_err();
    assert!(problem.contains("even if it is off") && problem.contains("min and max of ClosedLoop web"), "{problem}");
}

/// The second of two imports is refused by name, before and after the autoscaler is off.
#[test]
fn a_second_import_is_refused_by_name() {
    let mut scene = Scene::hpa(&json!({"minReplicas": 2}));
    let step = scene.next("web", false).unwrap();
    scene.perform("web", step);
    let refused = |scene: &Scene| {
        let problem = scene.next("other", false).unwrap_err();
        assert!(problem.contains("already imported as ClosedLoop web") && problem.contains("--name web"), "{problem}");
    };
    refused(&scene);
    scene.run(false);
    refused(&scene);
    // The annotation on the autoscaler outlives the loop.
    scene.loops.clear();
    refused(&scene);
    let step = scene.next("web", true).unwrap();
    assert_eq!(scene.perform("web", step), "SwitchOn");
}

#[test]
fn a_loop_of_somebody_else_is_left_alone() {
    let mut scene = Scene::hpa(&json!({"minReplicas": 2}));
    let record =
        ImportRecord { kind: ImportedKind::ScaledObject, name: "x".into(), uid: "x".into(), original: Value::Null };
    scene.loops.push(made("web", &record));
    assert!(scene.next("web", false).unwrap_err().contains("replaces ScaledObject x"));
    assert_eq!(scene.next("web", true), Ok(HandoverStep::Done));
    scene.loops[0].metadata.annotations = None;
    assert!(scene.next("web", false).unwrap_err().contains("no import has created it"));
    assert_eq!(scene.next("web", true), Ok(HandoverStep::Done));
}

#[test]
fn an_autoscaler_that_somebody_has_switched_on_stays_as_it_is() {
    let mut scene = Scene::hpa(&json!({"minReplicas": 2}));
    scene.run(false);
    let changed = json!({"scaleUp": {"selectPolicy": "Max"}, "scaleDown": {"selectPolicy": "Min"}});
    scene.object.data["spec"]["behavior"] = changed.clone();
    // --apply switches it off again, and keeps what was there first.
    for expected in ["Rehearse", "Await"] {
        let step = scene.next("web", false).unwrap();
        assert_eq!(scene.perform("web", step), expected);
    }
    let step = scene.next("web", false).unwrap();
    let HandoverStep::SwitchOff(off) = &step else { panic!("{step:?}") };
    let claim: ImportClaim = serde_json::from_str(&off.annotations()[marks::IMPORTED_BY]).unwrap();
    assert_eq!(claim.original, Value::Null);
    // --undo leaves the change alone.
    scene.run(true);
    assert_eq!(scene.object.data["spec"]["behavior"], changed);
}

#[test]
fn an_autoscaler_that_changed_meanwhile_is_not_taken_over() {
    let mut scene = Scene::hpa(&json!({"minReplicas": 2}));
    let step = scene.next("web", false).unwrap();
    scene.perform("web", step);
    scene.object.data["spec"]["behavior"] = json!({"scaleUp": {"selectPolicy": "Min"}});
    let refusal = scene.next("web", false).unwrap_err();
    assert!(refusal.starts_with("HorizontalPodAutoscaler web was changed since"), "{refusal}");
    scene.object.metadata.annotations = Some([(marks::IMPORTED_BY.to_owned(), "{".to_owned())].into());
    assert!(scene.next("web", true).unwrap_err().contains("cannot be read"));
}
