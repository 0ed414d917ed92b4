//! Tests of resizes that kubelets defer and that are taken back (case R1).

use rstest::rstest;
use serde_json::json;

use super::resize::{Stage, memory, pending, rung};
use crate::execution::{EffectResult, ExecutionEffect, ExecutionStep};
use crate::tests::bench::at;
use ganglion_api::closed_loop::LoopMode;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::execution::{DeferralState, ExecutionState};

/// Five minutes after the claim.
const DUE: i64 = 300;

/// A resize from 256Mi to 512Mi whose claim has timed out, since the kubelets of all pods defer it.
fn deferred(pods: &[&str]) -> Stage {
    let pods: Vec<(&str, &str)> = pods.iter().map(|name| (*name, "256Mi")).collect();
    let mut stage = Stage::new(rung(json!({})), &pods);
    stage.effect();
    for (name, _) in &pods {
        stage.defer(name, "512Mi");
    }
    stage.step(1, None);
    stage.step(120, None);
    assert_eq!(stage.status.reason, Some(LoopReason::TimedOut), "{:?}", stage.status);
    stage
}

impl Stage {
    fn states(&self) -> Vec<DeferralState> {
        self.status.deferred.iter().map(|one| one.state).collect()
    }

    /// Returns the pods that are set back at this time, and their new requests.
    #[track_caller]
    fn set_back_at(&mut self, second: i64) -> Vec<String> {
        let ExecutionEffect::TakeBack { pods, .. } = self.effect_at(second) else { panic!("not a take-back") };
        pods.into_iter().map(|pod| format!("{} {}", pod.name, pod.to.request.unwrap().as_str())).collect()
    }

    /// The kubelet sees that nothing is to be done.
    fn settle_back(&mut self, name: &str) {
        let pod = self.pod(name);
        pod.wants = pod.allocated.clone().unwrap();
        pod.pending = None;
    }
}

#[test]
fn a_resize_that_stays_deferred_is_taken_back_after_five_minutes() {
    let mut stage = deferred(&["a"]);
    assert_eq!(stage.step(200, None), ExecutionStep::Wait(at(DUE)), "nothing else wakes the Execution");
    assert_eq!(stage.states(), [DeferralState::Waiting]);
    assert_eq!(stage.set_back_at(DUE), ["a 256Mi"]);
    assert_eq!(stage.states(), [DeferralState::TakingBack], "the intent is recorded first");
    stage.settle_back("a");
    stage.step(DUE + 1, None);
    assert_eq!(stage.states(), [DeferralState::TakenBack]);
    let expected = "took back the resize of pod a on node n1 to request 512Mi, back to request 256Mi: the kubelet has \
                    answered Deferred: node is full. The node has room for other pods again. The resize to request 512Mi \
                    is not sent again before 12:11 UTC: add a rung that adds replicas, or make room on the node";
    assert_eq!(stage.status.message.as_deref(), Some(expected));
    assert_eq!(
        (stage.status.state, stage.status.reason),
        (Some(ExecutionState::Failed), Some(LoopReason::ResizeTakenBack))
    );
    let last = stage.status.conditions.iter().find(|one| one.type_ == "LastActionSucceeded").unwrap();
    assert_eq!((last.status.as_str(), last.reason.as_str()), ("False", "ResizeTakenBack"));
    assert_eq!(stage.step(DUE + 2, None), ExecutionStep::Nothing);
}

#[test]
fn what_was_taken_back_is_not_sent_again_for_an_hour_but_less_is() {
    let mut stage = deferred(&["a", "b"]);
    stage.settle_back("b");
    assert_eq!(stage.set_back_at(DUE), ["a 256Mi"]);
    stage.settle_back("a");
    stage.step(DUE + 1, None);
    stage.chosen.seq = 2;
    assert_eq!(stage.names_at(DUE + 60), ["b 512Mi"], "b was not deferred when it was read");
    stage.write("b", "512Mi");
    stage.step(DUE + 61, None);
    stage.chosen.seq = 3;
    stage.seen.pods.retain(|pod| pod.name == "a");
    stage.step(DUE + 120, None);
    let message = stage.status.message.clone().unwrap();
    assert_eq!(stage.status.state, Some(ExecutionState::Limited), "{message}");
    let expected = "the resize of pod a on node n1 to request 512Mi was taken back, since the kubelet deferred it; it is \
                    not sent again before 12:11 UTC: ";
    assert!(message.starts_with(expected), "{message}");
    stage.chosen.seq = 4;
    assert_eq!(stage.names_at(DUE + 3602), ["a 512Mi"]);

    let mut stage = deferred(&["a"]);
    stage.set_back_at(DUE);
    stage.settle_back("a");
    stage.step(DUE + 1, None);
    let less = rung(json!({"factor": "1.5"}));
    stage.decide(2, &less);
    assert_eq!(stage.names_at(DUE + 60), ["a 384Mi"]);
}

#[test]
fn the_time_can_be_shorter_than_that_of_the_claim() {
    let mut stage = Stage::new(rung(json!({"takeBackAfter": "10s"})), &[("a", "256Mi")]);
    stage.effect();
    stage.defer("a", "512Mi");
    stage.step(1, None);
    stage.step(9, None);
    assert_eq!(stage.status.state, Some(ExecutionState::Executing));
    stage.step(10, None);
    assert_eq!(stage.status.reason, Some(LoopReason::TimedOut));
    assert_eq!(stage.set_back_at(10), ["a 256Mi"]);
}

/// The last resize of the pod is not the one that was sent, or its kubelet does not wait for room.
#[rstest]
#[case::carried_out(|stage: &mut Stage| stage.write("a", "512Mi"))]
#[case::infeasible(|stage: &mut Stage| stage.pod("a").pending = Some(pending("Infeasible", "too small")))]
#[case::in_progress(|stage: &mut Stage| stage.pod("a").pending = Some(pending("Error", "busy")))]
#[case::somebody_else(|stage: &mut Stage| stage.pod("a").is_resized_by_loop = false)]
#[case::another_goal(|stage: &mut Stage| stage.pod("a").wants = memory("1Gi"))]
#[case::another_pod(|stage: &mut Stage| stage.pod("a").thing.uid = "other".into())]
#[case::gone(|stage: &mut Stage| stage.seen.pods.clear())]
#[case::nothing_reported(|stage: &mut Stage| stage.pod("a").allocated = None)]
fn no_other_resize_is_taken_back(#[case] change: fn(&mut Stage)) {
    let mut stage = deferred(&["a"]);
    let before = stage.status.message.clone();
    change(&mut stage);
    for second in DUE..DUE + 5 {
        let step = stage.step(second, None);
        assert!(!matches!(step, ExecutionStep::Act(_)), "{step:?}");
    }
    assert_eq!((stage.states(), &stage.status.message), (Vec::new(), &before));
}

#[test]
fn a_kubelet_that_answers_late_has_the_same_time_again() {
    let mut stage = deferred(&["a"]);
    stage.pod("a").pending = None;
    stage.step(DUE, None);
    assert_eq!(stage.step(DUE + 1, None), ExecutionStep::Wait(at(2 * DUE)));
    stage.pod("a").pending = Some(pending("Deferred", "node is full"));
    assert_eq!(stage.set_back_at(2 * DUE), ["a 256Mi"]);
}

/// A process may end between any two writes, or lose an answer.
#[test]
fn a_take_back_goes_on_after_a_crash_and_is_not_repeated() {
    let mut stage = deferred(&["a", "b"]);
    assert_eq!(stage.set_back_at(DUE), ["a 256Mi", "b 256Mi"]);
    // The answer about a was lost; the next process reads the pods again.
    stage.settle_back("a");
    assert_eq!(stage.set_back_at(DUE + 10), ["b 256Mi"]);
    // The kubelet of b carries the resize out at this moment.
    stage.write("b", "512Mi");
    stage.step(DUE + 11, None);
    assert_eq!(stage.states(), [DeferralState::TakenBack]);
    assert_eq!(stage.status.deferred[0].pods, [ganglion_api::identity::Uid::from("a")]);
}

#[rstest]
#[case::done(EffectResult::Done(None), None)]
#[case::conflict(EffectResult::Conflict, None)]
#[case::gone(EffectResult::NotFound("pod b".into()), None)]
#[case::forbidden(EffectResult::Forbidden("cannot patch".into()), Some("cannot patch"))]
#[case::refused(EffectResult::Refused("quota".into()), Some("quota"))]
fn an_answer_about_a_take_back_never_ends_another_decision(#[case] answer: EffectResult, #[case] told: Option<&str>) {
    let mut stage = deferred(&["a"]);
    let effect = stage.effect_at(DUE);
    let step = stage.step(DUE, Some((&effect, answer)));
    match told {
        None => assert_eq!(step, ExecutionStep::ReadTarget),
        Some(words) => {
            let message = stage.status.message.clone().unwrap();
            assert!(
                message.starts_with("cannot take back the resize of pod a") && message.ends_with(words),
                "{message}"
            );
            assert_eq!(stage.states(), [DeferralState::Waiting], "it is tried again after the same time");
            assert_eq!(stage.step(DUE + 1, None), ExecutionStep::Wait(at(2 * DUE)));
        }
    }
    let unclear = stage.step(DUE, Some((&effect, EffectResult::Unclear("no answer".into()))));
    assert!(told.is_some() || unclear == ExecutionStep::Wait(at(DUE + 2)), "{unclear:?}");
}

#[test]
fn an_unclear_result_does_not_stop_the_loop_for_long() {
    let mut stage = deferred(&["a"]);
    stage.set_back_at(DUE);
    stage.set_back_at(DUE + 119);
    stage.step(DUE + 120, None);
    assert_eq!(stage.states(), [DeferralState::Waiting]);
    assert!(stage.status.message.as_ref().unwrap().ends_with("the API server did not accept it in time"));
    assert_eq!(stage.set_back_at(2 * DUE + 120), ["a 256Mi"]);
}

#[test]
fn a_loop_that_is_paused_blocked_or_in_a_dry_run_takes_nothing_back() {
    let changes: [fn(&mut Stage, bool); 3] = [
        |stage, on| stage.spec.paused = on,
        |stage, on| stage.spec.blocked = on.then(|| "VerticalPodAutoscaler web acts on app/memory".into()),
        |stage, on| stage.chosen.mode = if on { LoopMode::DryRun } else { LoopMode::Auto },
    ];
    for change in changes {
        let mut stage = deferred(&["a"]);
        change(&mut stage, true);
        let step = stage.step(DUE, None);
        assert_eq!((step, stage.states()), (ExecutionStep::Nothing, vec![DeferralState::Waiting]));
        change(&mut stage, false);
        assert_eq!(stage.set_back_at(DUE + 60), ["a 256Mi"]);
    }
}

/// The next decision has begun meanwhile: its outcome stays.
#[test]
fn a_later_decision_keeps_its_outcome() {
    let mut stage = deferred(&["a", "b"]);
    stage.write("b", "256Mi");
    stage.chosen.seq = 2;
    assert_eq!(stage.names_at(130), ["b 512Mi"]);
    stage.write("b", "512Mi");
    stage.step(131, None);
    assert_eq!((stage.status.seq, stage.status.state), (Some(2), Some(ExecutionState::Done)));
    let message = stage.status.message.clone();
    assert_eq!(stage.set_back_at(DUE), ["a 256Mi"]);
    stage.settle_back("a");
    stage.step(DUE + 1, None);
    assert_eq!((stage.states(), &stage.status.message), (vec![DeferralState::TakenBack], &message));
    assert!(stage.status.deferred[0].message.as_ref().unwrap().starts_with("took back the resize of pod a"));
}

#[test]
fn only_larger_resources_are_taken_back() {
    let mut stage = Stage::new(rung(json!({"factor": "0.5", "min": "1Mi"})), &[("a", "256Mi")]);
    stage.effect();
    stage.defer("a", "128Mi");
    stage.step(1, None);
    stage.step(120, None);
    assert_eq!((stage.status.reason, stage.states()), (Some(LoopReason::TimedOut), Vec::new()));
    // A claim of which no pod was resized has nothing to take back, and neither has one that is done.
    let mut stage = Stage::new(rung(json!({})), &[("a", "256Mi")]);
    stage.effect();
    stage.write("a", "512Mi");
    stage.ends(ExecutionState::Done, LoopReason::Done);
    assert_eq!(stage.states(), []);
}

#[test]
fn few_deferred_resizes_are_stored() {
    let mut stage = deferred(&["a"]);
    for seq in 2..20 {
        stage.chosen.seq = seq;
        stage.pod("a").thing.uid = format!("a{seq}").as_str().into();
        stage.write("a", "256Mi");
        stage.effect_at(130);
        stage.defer("a", "512Mi");
        stage.step(131, None);
        stage.step(260, None);
    }
    assert_eq!(stage.status.deferred.len(), 8);
    assert!(serde_json::to_string(&stage.status).unwrap().len() < 16 << 10);
}
