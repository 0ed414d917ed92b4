//! Tests of the steps for each kind of rung, and that nothing is done twice.

use rstest::rstest;
use serde_json::{Value, json};

use crate::common::micro_time;
use crate::execution::{
    EffectResult, ExecutionContext, ExecutionEffect, ExecutionStep, ObjectVersion, Sent, TargetState, TunedLoop,
    WorkloadActionState, action_name, after_effect, next_step, undone_fields,
};
use crate::proposal::digest_of;
use crate::tests::bench::{at, spec};
use crate::tuning::effective_policy;
use ganglion_api::closed_loop::ClosedLoopSpec;
use ganglion_api::closed_loop::LoopMode::{self, Approve};
use ganglion_api::closed_loop::action::LoopAction;
use ganglion_api::closed_loop::policy::Tuning;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::decision::{Chosen, Outcome};
use ganglion_api::execution::{CarriedOut, ExecutionSpec, ExecutionState, ExecutionStatus};
use ganglion_api::workload_action::ReplicaCount;
use ganglion_core::conditions::{self, Stamp};
use ganglion_core::facts::Uid;

const UID: &str = "11111111-2222-3333-4444-555555555555";

struct Bench {
    spec: ExecutionSpec,
    actions: Vec<LoopAction>,
    status: ExecutionStatus,
    mode: LoopMode,
    chosen: Chosen,
    uid: Uid,
}

fn thing(generation: i64) -> ObjectVersion {
    ObjectVersion { uid: "t".into(), generation, version: (generation * 10).to_string(), ..ObjectVersion::default() }
}

impl Bench {
    fn new(rung: Value) -> Self {
        let target = json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}});
        let actions = json!([{"when": {"metric": "cpu", "side": "Low"}, "ladder": [rung]}]);
        let chosen = json!({"seq": 1, "metric": "cpu", "side": "Low", "rung": 0, "do": rung, "executor": "exe",
            "mode": "Auto", "at": "2026-11-18T08:26:40.000000Z", "leastServed": "memory"});
        Self {
            spec: serde_json::from_value(target).unwrap(),
            actions: serde_json::from_value(actions).unwrap(),
            status: ExecutionStatus { seq: Some(0), ..ExecutionStatus::default() },
            mode: LoopMode::Auto,
            chosen: serde_json::from_value(chosen).unwrap(),
            uid: "exe".into(),
        }
    }

    fn job<'a>(&'a self, seen: Option<&'a TargetState>, sent: Sent, second: i64) -> ExecutionContext<'a> {
        ExecutionContext {
            spec: &self.spec,
            actions: &self.actions,
            status: &self.status,
            uid: &self.uid,
            generation: 1,
            loop_name: "slow",
            mode: self.mode,
            chosen: Some(&self.chosen),
            is_confirmed: true,
            tag: None,
            seen,
            sent,
            now: at(second),
        }
    }

    fn next(&self, seen: &TargetState) -> ExecutionStep {
        next_step(&self.job(Some(seen), Sent::Maybe, 0))
    }

    #[track_caller]
    fn recorded(&mut self, next: ExecutionStep) {
        let ExecutionStep::Record(status) = next else { panic!("not recorded: {next:?}") };
        self.status = *status;
    }

    /// Claims the decision and returns the effect.
    #[track_caller]
    fn effect(&mut self, seen: &TargetState) -> ExecutionEffect {
        let claim = self.next(seen);
        self.recorded(claim);
        assert_eq!(self.status.state, Some(ExecutionState::Claimed));
        match next_step(&self.job(Some(seen), Sent::NotYet, 0)) {
            ExecutionStep::Act(effect) => *effect,
            other => panic!("no effect: {other:?}"),
        }
    }

    /// Type, status and reason of each condition.
    fn conditions(&self) -> Vec<(&str, &str, &str)> {
        let conditions = self.status.conditions.iter();
        conditions.map(|one| (one.type_.as_str(), one.status.as_str(), one.reason.as_str())).collect()
    }

    #[track_caller]
    fn ends(&mut self, seen: &TargetState, state: ExecutionState, reason: LoopReason) {
        let next = self.next(seen);
        self.recorded(next);
        assert_eq!((self.status.state, self.status.reason), (Some(state), Some(reason)));
        assert_eq!((self.status.seq, &self.status.claim), (Some(1), &None));
    }
}

fn up() -> Value {
    json!({"scale": {"by": 1, "max": 9}})
}

/// While policies are missing, the conditions say so. They may be back long before the next decision.
#[rstest]
#[case::idle(None)]
#[case::blocked(Some("another loop acts on it"))]
fn an_execution_at_rest_replaces_conditions_that_others_have_written(#[case] blocked: Option<&str>) {
    let seen = TargetState::Scale(thing(1), 3);
    let mut bench = Bench::new(up());
    bench.status = ExecutionStatus::default();
    let first = bench.next(&seen);
    bench.recorded(first);
    bench.spec.blocked = blocked.map(str::to_owned);
    if blocked.is_some() {
        let report = bench.next(&seen);
        bench.recorded(report);
    }
    bench.chosen.executor = "another".into();
    assert_eq!(bench.next(&seen), ExecutionStep::Nothing);
    let own = bench.status.clone();
    let stamp = Stamp { generation: 1, now: at(0) };
    bench.status.conditions = conditions::stalled(&own.conditions, "AdmissionPolicyMissing", "missing".into(), stamp);
    let report = bench.next(&seen);
    bench.recorded(report);
    assert_eq!(bench.status, own);
    assert_eq!(bench.next(&seen), ExecutionStep::Nothing);
}

/// A status can be written by others: a decision or claim with an action that the loop does not have is not carried
/// out.
#[rstest]
#[case::webhook(json!({"webhook": {"url": "https://elsewhere.example/"}}), &TargetState::Nothing)]
#[case::scale(json!({"scale": {"by": -9, "min": 0}}), &TargetState::Scale(thing(1), 3))]
fn an_action_that_the_loop_does_not_have_is_not_carried_out(#[case] forged: Value, #[case] seen: &TargetState) {
    let mut bench = Bench::new(up());
    bench.chosen.action = serde_json::from_value(forged.clone()).unwrap();
    assert_eq!(bench.next(seen), ExecutionStep::Nothing);

    let mut genuine = Bench::new(forged);
    let claim = genuine.next(seen);
    genuine.recorded(claim);
    assert!(matches!(next_step(&genuine.job(Some(seen), Sent::NotYet, 0)), ExecutionStep::Act(_)));
    bench.status = genuine.status;
    let end = next_step(&bench.job(Some(seen), Sent::NotYet, 0));
    bench.recorded(end);
    assert_eq!((bench.status.state, &bench.status.claim), (Some(ExecutionState::Lost), &None));
}

/// The goal of a claim can be written by others, too: it has an effect only if the rung computes it.
#[rstest]
#[case::scale_too_far(up(), TargetState::Scale(thing(1), 3), json!({"replicas": 100}))]
#[case::scale_the_other_way(up(), TargetState::Scale(thing(1), 3), json!({"replicas": 0}))]
#[case::patch(
    json!({"patch": {"path": "spec.rate", "by": "1", "min": "0", "max": "9"}}),
    TargetState::Field(thing(1), Some(json!(3))),
    json!({"value": "100"}),
)]
#[case::patch_of_another_type(
    json!({"patch": {"path": "spec.rate", "to": "5"}}),
    TargetState::Field(thing(1), Some(json!(3))),
    json!({"value": "{\"a\": 5}"}),
)]
#[case::another_action(
    json!({"workloadAction": {"move": {"from": {"nodeName": "a"}, "to": {"nodeName": "b"}}}}),
    TargetState::WorkloadAction(None),
    json!({"workloadAction": "of-another-loop"}),
)]
#[case::another_event(json!({"webhook": {"url": "http://a.b"}}), TargetState::Nothing, json!({"event": "other/1"}))]
fn a_goal_that_the_rung_does_not_compute_has_no_effect(
    #[case] rung: Value,
    #[case] seen: TargetState,
    #[case] forged: Value,
) {
    let mut bench = Bench::new(rung);
    let claim = bench.next(&seen);
    bench.recorded(claim);
    assert!(matches!(next_step(&bench.job(Some(&seen), Sent::NotYet, 0)), ExecutionStep::Act(_)));
    bench.status.claim.as_mut().unwrap().goal = serde_json::from_value(forged).unwrap();
    let end = next_step(&bench.job(Some(&seen), Sent::NotYet, 0));
    bench.recorded(end);
    assert_eq!((bench.status.state, &bench.status.claim), (Some(ExecutionState::Lost), &None));
}

/// A claim with a time in the future does not keep a tuning beyond its lifetime.
#[test]
fn a_tuning_begins_now_at_the_latest() {
    let mut bench = Bench::new(json!({"tune": {"raiseRank": "LeastServed"}}));
    let seen = TargetState::Loop(Box::new(other(None)));
    let claim = bench.next(&seen);
    bench.recorded(claim);
    bench.status.claim.as_mut().unwrap().at = micro_time(at(1_000_000));
    let ExecutionStep::Act(effect) = next_step(&bench.job(Some(&seen), Sent::NotYet, 7)) else { panic!("no effect") };
    let ExecutionEffect::Tune { tuning, .. } = *effect else { panic!("{effect:?}") };
    assert_eq!(tuning.at, micro_time(at(7)));
}

#[test]
fn a_new_execution_says_that_it_is_there() {
    let mut bench = Bench::new(up());
    bench.status = ExecutionStatus::default();
    let first = bench.next(&TargetState::Scale(thing(1), 3));
    bench.recorded(first);
    assert_eq!((bench.status.seq, bench.status.state), (Some(0), Some(ExecutionState::Idle)));
}

#[test]
fn a_claim_comes_before_the_effect_and_the_result_after() {
    let mut bench = Bench::new(up());
    let seen = TargetState::Scale(thing(1), 3);
    assert_eq!(next_step(&bench.job(None, Sent::Maybe, 0)), ExecutionStep::ReadTarget);
    let effect = bench.effect(&seen);
    assert_eq!(effect, ExecutionEffect::Scale { target: thing(1), replicas: 4 });
    let done = after_effect(&bench.job(Some(&seen), Sent::Maybe, 1), &effect, &EffectResult::Done(Some("4".into())));
    bench.recorded(done);
    assert_eq!(bench.status.state, Some(ExecutionState::Done));
    assert_eq!(bench.status.message.as_deref(), Some("changed Deployment/web from 3 to 4"));
    assert_eq!(bench.status.effective.as_deref(), Some("4"));
    assert_eq!(bench.next(&TargetState::Scale(thing(2), 4)), ExecutionStep::Nothing);
}

#[test]
fn only_the_end_of_a_decision_changes_a_condition() {
    let (ready, failed) = (("Ready", "True", "Running"), ("LastActionSucceeded", "False", "Failed"));
    let (done, blocked) = (("LastActionSucceeded", "True", "Done"), ("Ready", "True", "Blocked"));
    let mut bench = Bench::new(up());
    bench.status = ExecutionStatus::default();
    let seen = TargetState::Scale(thing(1), 3);
    let first = bench.next(&seen);
    bench.recorded(first);
    let effect = bench.effect(&seen);
    assert_eq!(bench.conditions(), [ready]);
    let refused = EffectResult::Refused("no".into());
    let end = after_effect(&bench.job(Some(&seen), Sent::Maybe, 1), &effect, &refused);
    bench.recorded(end);
    assert_eq!(bench.conditions(), [ready, failed]);
    bench.chosen.seq = 2;
    let effect = bench.effect(&seen);
    assert_eq!(bench.conditions(), [ready, failed]);
    let end = after_effect(&bench.job(Some(&seen), Sent::Maybe, 2), &effect, &EffectResult::Done(None));
    bench.recorded(end);
    assert_eq!(bench.conditions(), [ready, done]);
    (bench.chosen.seq, bench.spec.blocked) = (3, Some("another loop acts on it".into()));
    let held = bench.next(&seen);
    bench.recorded(held);
    assert_eq!(bench.conditions(), [blocked, done]);
    (bench.chosen.seq, bench.spec.blocked) = (2, None);
    let freed = bench.next(&seen);
    bench.recorded(freed);
    assert_eq!(bench.conditions(), [ready, done]);
    assert_eq!((bench.status.reason, bench.next(&seen)), (Some(LoopReason::Done), ExecutionStep::Nothing));
}

#[test]
fn after_a_crash_the_target_is_looked_at() {
    let claimed = || {
        let mut bench = Bench::new(up());
        bench.effect(&TargetState::Scale(thing(1), 3));
        bench
    };
    // The effect has not happened; only the status of the target changed.
    let seen = TargetState::Scale(ObjectVersion { version: "99".into(), ..thing(1) }, 3);
    let ExecutionStep::Act(effect) = claimed().next(&seen) else { panic!("no effect") };
    assert!(matches!(*effect, ExecutionEffect::Scale { target: ObjectVersion { ref version, .. },
            replicas: 4 } if version == "99"));
    claimed().ends(&TargetState::Scale(thing(2), 4), ExecutionState::Done, LoopReason::Done);
    // The effect happened, and somebody changed the value back: it is not repeated.
    claimed().ends(&TargetState::Scale(thing(3), 3), ExecutionState::Overtaken, LoopReason::Overtaken);
    claimed().ends(&TargetState::Scale(thing(2), 7), ExecutionState::Overtaken, LoopReason::Overtaken);
    let anew = TargetState::Scale(ObjectVersion { uid: "other".into(), ..thing(1) }, 3);
    claimed().ends(&anew, ExecutionState::Overtaken, LoopReason::Overtaken);
    claimed().ends(&TargetState::NotFound("gone".into()), ExecutionState::Failed, LoopReason::TargetNotFound);
}

/// The claim was based on an older state; others have changed the target to the same value.
#[test]
fn what_others_did_before_anything_was_sent_is_not_taken_for_its_own() {
    let mut bench = Bench::new(up());
    bench.effect(&TargetState::Scale(thing(1), 3));
    let seen = TargetState::Scale(thing(2), 4);
    let next = next_step(&bench.job(Some(&seen), Sent::NotYet, 0));
    bench.recorded(next);
    assert_eq!(
        (bench.status.state, bench.status.reason),
        (Some(ExecutionState::Overtaken), Some(LoopReason::Overtaken))
    );
}

#[rstest]
#[case(EffectResult::Forbidden("grant patch deployments/scale".into()), LoopReason::Forbidden)]
#[case(EffectResult::NotFound("gone".into()), LoopReason::TargetNotFound)]
#[case(EffectResult::Refused("no".into()), LoopReason::Failed)]
fn what_is_refused_ends(#[case] acted: EffectResult, #[case] reason: LoopReason) {
    let mut bench = Bench::new(up());
    let seen = TargetState::Scale(thing(1), 3);
    let effect = bench.effect(&seen);
    let next = after_effect(&bench.job(Some(&seen), Sent::Maybe, 1), &effect, &acted);
    bench.recorded(next);
    assert_eq!((bench.status.state, bench.status.reason), (Some(ExecutionState::Failed), Some(reason)));
}

#[test]
fn what_is_unclear_is_tried_until_its_time_is_over() {
    let mut bench = Bench::new(up());
    let seen = TargetState::Scale(thing(1), 3);
    let effect = bench.effect(&seen);
    assert!(matches!(
        after_effect(&bench.job(Some(&seen), Sent::Maybe, 1), &effect, &EffectResult::Unclear("?".into())),
        ExecutionStep::Wait(_)
    ));
    assert_eq!(
        after_effect(&bench.job(Some(&seen), Sent::Maybe, 1), &effect, &EffectResult::Conflict),
        ExecutionStep::ReadTarget
    );
    assert!(matches!(next_step(&bench.job(Some(&seen), Sent::Maybe, 119)), ExecutionStep::Act(_)));
    let late = next_step(&bench.job(Some(&seen), Sent::Maybe, 120));
    bench.recorded(late);
    assert_eq!(bench.status.reason, Some(LoopReason::TimedOut));
}

#[test]
fn what_may_not_begin_does_not() {
    let seen = TargetState::Scale(thing(1), 3);
    let idle = |edit: &dyn Fn(&mut Bench)| {
        let mut bench = Bench::new(up());
        edit(&mut bench);
        bench.next(&seen)
    };
    assert_eq!(idle(&|bench| bench.spec.paused = true), ExecutionStep::Nothing);
    assert_eq!(idle(&|bench| bench.chosen.executor = "another".into()), ExecutionStep::Nothing);
    assert_eq!(idle(&|bench| bench.chosen.seq = 0), ExecutionStep::Nothing);
    assert_eq!(
        idle(&|bench| bench.chosen.mode = serde_json::from_value(json!("DryRun")).unwrap()),
        ExecutionStep::Nothing
    );
    let approve = serde_json::from_value(json!("Approve")).unwrap();
    assert_eq!(idle(&|bench| bench.chosen.mode = approve), ExecutionStep::Nothing);
    let wrong = |bench: &mut Bench| (bench.chosen.mode, bench.spec.approve) = (approve, Some("1".into()));
    assert_eq!(idle(&wrong), ExecutionStep::Nothing);
    let right = |bench: &mut Bench| {
        bench.chosen.mode = approve;
        bench.spec.approve = Some(digest_of(&bench.chosen, &bench.spec.target));
    };
    assert!(matches!(idle(&right), ExecutionStep::Record(_)));
}

#[test]
fn what_is_blocked_says_so_once() {
    let mut bench = Bench::new(up());
    bench.spec.blocked = Some("HorizontalPodAutoscaler web".into());
    let seen = TargetState::Scale(thing(1), 3);
    let blocked = bench.next(&seen);
    bench.recorded(blocked);
    assert_eq!((bench.status.reason, bench.status.seq), (Some(LoopReason::Blocked), Some(0)));
    assert_eq!(bench.next(&seen), ExecutionStep::Nothing);
    (bench.spec.blocked, bench.chosen.seq) = (None, 0);
    let freed = bench.next(&seen);
    bench.recorded(freed);
    assert_eq!(
        (bench.status.reason, bench.status.message.as_deref()),
        (Some(LoopReason::Idle), Some("no decision yet"))
    );
}

/// Why a decision is not begun after the block has ended, or is another one.
#[rstest]
#[case::no_decision(|bench: &mut Bench| bench.chosen.seq = 0)]
#[case::paused(|bench: &mut Bench| bench.spec.paused = true)]
#[case::without_its_rung(|bench: &mut Bench| bench.actions.clear())]
#[case::to_be_approved(|bench: &mut Bench| bench.chosen.mode = Approve)]
fn a_block_is_reported_while_it_lasts(#[case] waits: fn(&mut Bench)) {
    let message = |bench: &Bench| conditions::find(&bench.status.conditions, "Ready").unwrap().message.clone();
    let seen = TargetState::Scale(thing(1), 3);
    let mut bench = Bench::new(up());
    bench.spec.blocked = Some("HorizontalPodAutoscaler web".into());
    let blocked = bench.next(&seen);
    bench.recorded(blocked);
    assert_eq!(message(&bench), "HorizontalPodAutoscaler web");
    waits(&mut bench);
    for (blocked, expected) in [(Some("ScaledObject web"), "ScaledObject web"), (None, "carries out decisions")] {
        bench.spec.blocked = blocked.map(str::to_owned);
        let updated = bench.next(&seen);
        bench.recorded(updated);
        assert_eq!((message(&bench).as_str(), bench.status.seq), (expected, Some(0)));
        assert_eq!(bench.next(&seen), ExecutionStep::Nothing);
    }
}

#[test]
fn a_claim_is_brought_to_its_end_in_a_paused_loop_too() {
    let mut bench = Bench::new(up());
    bench.effect(&TargetState::Scale(thing(1), 3));
    bench.spec.paused = true;
    bench.ends(&TargetState::Scale(thing(2), 4), ExecutionState::Done, LoopReason::Done);
}

/// Change between the claim and the next process.
#[rstest]
#[case::paused(|bench: &mut Bench| bench.spec.paused = true)]
#[case::blocked(|bench: &mut Bench| bench.spec.blocked = Some("HorizontalPodAutoscaler web".into()))]
#[case::dry_run(|bench: &mut Bench| bench.mode = LoopMode::DryRun)]
#[case::to_be_approved(|bench: &mut Bench| bench.mode = Approve)]
#[case::approval_taken_back(|bench: &mut Bench| (bench.mode, bench.chosen.mode) = (Approve, Approve))]
#[case::withdrawn(|bench: &mut Bench| bench.chosen.outcome = Some(Outcome::Withdrawn))]
#[case::replaced(|bench: &mut Bench| bench.chosen.seq = 9)]
fn a_claim_is_not_carried_out_after_a_crash_if_the_loop_does_not_want_it(#[case] change: fn(&mut Bench)) {
    let mut bench = Bench::new(up());
    bench.effect(&TargetState::Scale(thing(1), 3));
    change(&mut bench);
    let claimed = bench.status.clone();
    bench.ends(&TargetState::Scale(thing(1), 3), ExecutionState::Overtaken, LoopReason::Withdrawn);
    assert_eq!(bench.status.carried_out, None, "nothing was changed");
    // A change from before the crash is recorded.
    bench.status = claimed;
    bench.ends(&TargetState::Scale(thing(2), 4), ExecutionState::Done, LoopReason::Done);
    assert_eq!(bench.status.carried_out, Some(CarriedOut { seq: 1, at: micro_time(at(0)) }));
}

#[test]
fn it_is_recorded_which_decisions_may_have_changed_something() {
    let seen = TargetState::Scale(thing(1), 3);
    let carried_out = |sent, seen: &TargetState, second, acted: Option<EffectResult>| {
        let mut bench = Bench::new(up());
        let effect = bench.effect(&TargetState::Scale(thing(1), 3));
        let job = bench.job(Some(seen), sent, second);
        let step = match &acted {
            Some(acted) => after_effect(&job, &effect, acted),
            None => next_step(&job),
        };
        bench.recorded(step);
        assert_eq!(bench.status.claim, None);
        bench.status.carried_out.is_some()
    };
    for sent in [Sent::NotYet, Sent::Maybe] {
        assert!(carried_out(sent, &seen, 1, Some(EffectResult::Done(None))));
        assert!(!carried_out(sent, &seen, 1, Some(EffectResult::Forbidden("no".into()))));
        assert!(!carried_out(sent, &seen, 1, Some(EffectResult::Refused("no".into()))));
        assert!(!carried_out(sent, &seen, 120, None), "not accepted in time");
        let changed = TargetState::Scale(thing(2), 7);
        assert_eq!(carried_out(sent, &changed, 1, None), sent == Sent::Maybe, "perhaps carried out, then overtaken");
    }
}

#[test]
fn a_field_is_patched() {
    let rung = json!({"patch": {"path": "spec.rate", "by": "5", "min": "0", "max": "12"}});
    let mut bench = Bench::new(rung);
    let effect = bench.effect(&TargetState::Field(thing(1), Some(json!(10))));
    assert_eq!(effect, ExecutionEffect::Patch { target: thing(1), path: "spec.rate".into(), value: json!(12) });
    bench.ends(&TargetState::Field(thing(2), Some(json!(12))), ExecutionState::Done, LoopReason::Done);
}

#[test]
fn a_workload_action_is_made_once_and_its_end_is_the_end() {
    let rung = json!({"workloadAction": {"move": {"from": {"nodeName": "a"}, "to": {"nodeName": "b"}}}});
    let none = TargetState::WorkloadAction(None);
    let mut bench = Bench::new(rung.clone());
    let ExecutionEffect::Create { name, spec } = bench.effect(&none) else { panic!("nothing made") };
    assert_eq!(name, action_name("slow", &"exe".into(), 1));
    assert!(name.starts_with("slow-1-") && name.len() < 64);
    let moved = spec.move_.unwrap();
    assert_eq!(moved.workload.unwrap().name, "web");
    assert_eq!((moved.count, moved.up_to), (Some(ReplicaCount::All), Some(1)), "at most one");
    let running = TargetState::WorkloadAction(Some(WorkloadActionState::Running("Readying".into())));
    let step = bench.next(&running);
    bench.recorded(step);
    assert_eq!(bench.status.state, Some(ExecutionState::Executing));
    assert!(matches!(bench.next(&running), ExecutionStep::Wait(_)));
    let ended = |end| TargetState::WorkloadAction(Some(end));
    let under_way = bench.status.clone();
    bench.ends(&ended(WorkloadActionState::Succeeded("moved".into())), ExecutionState::Done, LoopReason::Done);
    assert!(bench.status.carried_out.is_some());
    bench.status = under_way.clone();
    let nothing = ended(WorkloadActionState::NothingToDo("no replica".into()));
    bench.ends(&nothing, ExecutionState::Limited, LoopReason::Limited);
    assert_eq!(bench.status.carried_out, None, "it changed nothing");
    bench.status = under_way.clone();
    bench.ends(&ended(WorkloadActionState::Failed("NodeFull".into())), ExecutionState::Failed, LoopReason::Failed);
    bench.status = under_way;
    bench.ends(&none, ExecutionState::Lost, LoopReason::Lost);
}

#[test]
fn an_event_is_never_sent_twice() {
    let rung = json!({"webhook": {"url": "http://a.b"}});
    let mut bench = Bench::new(rung.clone());
    let ExecutionEffect::Send { id, .. } = bench.effect(&TargetState::Nothing) else { panic!("nothing sent") };
    assert_eq!(id, "exe/1");
    let claimed = bench.status.clone();
    bench.ends(&TargetState::Nothing, ExecutionState::Lost, LoopReason::Lost);
    bench.status = claimed;
    let effect = ExecutionEffect::Send { id, webhook: serde_json::from_value(rung["webhook"].clone()).unwrap() };
    let unclear = after_effect(
        &bench.job(Some(&TargetState::Nothing), Sent::Maybe, 1),
        &effect,
        &EffectResult::Unclear("timeout".into()),
    );
    bench.recorded(unclear);
    assert_eq!(bench.status.state, Some(ExecutionState::Lost));
}

fn other(mine: Option<Tuning>) -> TunedLoop {
    let metrics = json!([{"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}}]);
    let tunable = json!({"by": ["slow"], "rank": true,
        "thresholds": [{"path": "cpu.low.raise", "min": "2", "max": "10", "maxStep": "1"}]});
    TunedLoop {
        uid: "fast".into(),
        tunable: serde_json::from_value(tunable).unwrap(),
        rank: vec!["cpu".into(), "memory".into()],
        metrics: serde_json::from_value(metrics).unwrap(),
        mine,
    }
}

#[test]
fn a_loop_is_tuned_with_absolute_values() {
    let mut bench = Bench::new(json!({"tune": {"raiseRank": "LeastServed"}}));
    let seen = TargetState::Loop(Box::new(other(None)));
    let ExecutionEffect::Tune { tuning, uid } = bench.effect(&seen) else { panic!("nothing tuned") };
    assert_eq!((uid.as_str(), tuning.seq, tuning.at.clone()), ("fast", 1, micro_time(at(0))));
    assert_eq!(tuning.rank, Some(vec!["memory".into(), "cpu".into()]));
    assert_eq!(tuning.message.as_deref(), Some("Increase rank memory"));
    bench.ends(&TargetState::Loop(Box::new(other(Some(tuning.clone())))), ExecutionState::Done, LoopReason::Done);
    assert_eq!(bench.status.message.as_deref(), Some("Increase rank memory"));
    // The tuning of an earlier Execution does not count as that of this one.
    let mut bench = Bench::new(json!({"tune": {"raiseRank": "LeastServed"}}));
    let before = Tuning { uid: "before".into(), seq: 17, ..tuning.clone() };
    assert!(matches!(bench.effect(&TargetState::Loop(Box::new(other(Some(before))))), ExecutionEffect::Tune { .. }));
    // Tuning a level keeps the tuned rank.
    let mut bench = Bench::new(json!({"tune": {"threshold": {"path": "cpu.low.raise", "by": "3"}}}));
    bench.chosen.seq = 2;
    let ExecutionEffect::Tune { tuning, .. } = bench.effect(&TargetState::Loop(Box::new(other(Some(tuning))))) else {
        panic!()
    };
    assert_eq!(tuning.thresholds[0].value.as_str(), "6");
    assert!(tuning.rank.is_some());
}

#[test]
fn a_loop_is_tuned_only_where_it_allows_for_it() {
    let refused = |rung: Value, edit: &dyn Fn(&mut TunedLoop)| {
        let mut bench = Bench::new(rung);
        let mut other = other(None);
        edit(&mut other);
        let next = bench.next(&TargetState::Loop(Box::new(other)));
        bench.recorded(next);
        (bench.status.state, bench.status.reason)
    };
    let no = (Some(ExecutionState::Failed), Some(LoopReason::NotTunable));
    let rank = || json!({"tune": {"raiseRank": "LeastServed"}});
    assert_eq!(refused(rank(), &|other| other.tunable = None), no);
    assert_eq!(refused(rank(), &|other| other.tunable.as_mut().unwrap().by = vec!["else".into()]), no);
    assert_eq!(refused(rank(), &|other| other.tunable.as_mut().unwrap().rank = false), no);
    assert_eq!(refused(json!({"tune": {"threshold": {"path": "cpu.low.clear", "by": "1"}}}), &|_| {}), no);
    let limited = (Some(ExecutionState::Limited), Some(LoopReason::Limited));
    assert_eq!(refused(rank(), &|other| other.rank.reverse()), limited);
}

/// A slow loop adds 1 each time, to a level that clears at 6 and may be tuned up to 9. The tuning lasts a day, and is
/// renewed in its second half.
#[test]
fn a_level_is_tuned_up_to_the_next_one_and_stays_there() {
    let rung = json!({"tune": {"threshold": {"path": "cpu.low.raise", "by": "1"}}});
    let spec = spec(json!({
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [{"name": "cpu", "source": {"push": {}}, "low": {"raise": "3", "clear": "6"}}],
        "tunable": {"by": ["slow"], "thresholds": [{"path": "cpu.low.raise", "min": "1", "max": "9", "maxStep": "1"}]},
    }));
    let (mut tuning, mut held, mut ways) = (Vec::new(), None, Vec::new());
    const HALF_A_DAY: i64 = 43_200;
    for (round, second) in (1..).zip([0, 0, 0, 0, HALF_A_DAY - 1, HALF_A_DAY, HALF_A_DAY + 1]) {
        let policy = effective_policy::effective(&spec, &tuning, held.as_ref(), at(second)).unwrap();
        assert_eq!(policy.shown.refused, [""; 0]);
        held = Some(policy.shown);
        let (tunable, metrics) = (spec.tunable.clone(), policy.metrics);
        ways.push(effective_policy::level(&metrics, "cpu.low.raise").unwrap().0);
        let other = TunedLoop { tunable, metrics, mine: tuning.pop(), ..other(None) };
        let mut bench = Bench::new(rung.clone());
        bench.chosen.seq = round;
        let seen = TargetState::Loop(Box::new(other.clone()));
        let claim = next_step(&bench.job(Some(&seen), Sent::Maybe, second));
        bench.recorded(claim);
        tuning = vec![match next_step(&bench.job(Some(&seen), Sent::NotYet, second)) {
            ExecutionStep::Act(effect) => match *effect {
                ExecutionEffect::Tune { tuning, .. } => tuning,
                effect => panic!("{effect:?}"),
            },
            step => {
                assert_eq!((step, bench.status.state), (ExecutionStep::Nothing, Some(ExecutionState::Limited)));
                let message = "cpu.low.raise is at 6, and cpu.low.clear is at 6: the two must not cross";
                assert_eq!(bench.status.message.as_deref(), Some(message));
                other.mine.unwrap()
            }
        }];
    }
    assert_eq!(ways, ["3", "4", "5", "6", "6", "6", "6"]);
    assert_eq!(tuning[0].at, micro_time(at(HALF_A_DAY)));
    assert_eq!(tuning[0].message.as_deref(), Some("Keep cpu.low.raise at 6"));
}

/// Returns the tuning after this rung was carried out on the loop with this spec.
fn tuned(spec: &ClosedLoopSpec, mine: Option<&Tuning>, rung: &Value, (seq, second): (i64, i64)) -> Tuning {
    let before: Vec<Tuning> = mine.cloned().into_iter().collect();
    let policy = effective_policy::effective(spec, &before, None, at(second)).unwrap();
    let (tunable, mine) = (spec.tunable.clone(), mine.cloned());
    let seen = TunedLoop { tunable, rank: policy.rank, metrics: policy.metrics, mine, ..other(None) };
    let seen = TargetState::Loop(Box::new(seen));
    let mut bench = Bench::new(rung.clone());
    bench.chosen.seq = seq;
    let claim = next_step(&bench.job(Some(&seen), Sent::Maybe, second));
    bench.recorded(claim);
    match next_step(&bench.job(Some(&seen), Sent::NotYet, second)) {
        ExecutionStep::Act(effect) => match *effect {
            ExecutionEffect::Tune { tuning, .. } => tuning,
            effect => panic!("{effect:?}"),
        },
        step => panic!("{step:?}"),
    }
}

/// A loop tunes a level, then the rank, then another level, each half an hour after the one before, for an hour.
#[test]
fn a_tuning_renews_only_what_it_changes() {
    let spec = spec(json!({
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "metrics": [
            {"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}},
            {"name": "memory", "source": {"push": {}}, "low": {"raise": "50"}},
        ],
        "tunable": {"by": ["slow"], "rank": true, "ttl": "1h", "thresholds": [
            {"path": "cpu.low.raise", "min": "2", "max": "10", "maxStep": "1"},
            {"path": "memory.low.raise", "min": "10", "max": "90", "maxStep": "5"},
        ]},
    }));
    let level = |path: &str| json!({"tune": {"threshold": {"path": path, "by": "1"}}});
    let rank = json!({"tune": {"raiseRank": "LeastServed"}});
    let first = tuned(&spec, None, &level("cpu.low.raise"), (1, 0));
    let second = tuned(&spec, Some(&first), &rank, (2, 1800));
    let third = tuned(&spec, Some(&second), &level("memory.low.raise"), (3, 3000));
    let state = |tuning: &Tuning, second: i64| {
        let policy = effective_policy::effective(&spec, std::slice::from_ref(tuning), None, at(second)).unwrap();
        assert_eq!(policy.shown.refused, [""; 0]);
        let level = |path: &str| effective_policy::level(&policy.metrics, path).unwrap().0;
        let levels = [level("cpu.low.raise"), level("memory.low.raise")];
        (levels.join(","), policy.rank.join(","), policy.shown.until)
    };
    let expected = |levels: &str, rank: &str, until: Option<i64>| {
        (levels.to_owned(), rank.to_owned(), until.map(|second| micro_time(at(second))))
    };
    assert_eq!(state(&third, 3599), expected("6,51", "memory,cpu", Some(3600)));
    assert_eq!(state(&third, 3600), expected("5,51", "memory,cpu", Some(5400)));
    assert_eq!(state(&third, 5400), expected("5,51", "cpu,memory", Some(6600)));
    assert_eq!(state(&third, 6600), expected("5,50", "cpu,memory", None));
    // A later tuning drops the parts that have expired.
    let fourth = tuned(&spec, Some(&third), &level("memory.low.raise"), (4, 5500));
    assert_eq!(state(&fourth, 5500), expected("5,52", "cpu,memory", Some(9100)));
    assert_eq!((fourth.thresholds.len(), &fourth.rank), (1, &None));
}

/// The operator ends between the claim and its effect, and its next process starts late.
#[rstest]
#[case::soon(119, true)]
#[case::late(120, false)]
#[case::much_later(3_500, false)]
fn an_action_that_was_claimed_long_ago_is_not_created(#[case] second: i64, #[case] is_created: bool) {
    let mut bench = Bench::new(json!({"workloadAction": {"create": {"to": {}}}}));
    let seen = TargetState::Workload(thing(1), 3);
    let claim = next_step(&bench.job(Some(&seen), Sent::Maybe, 0));
    bench.recorded(claim);
    assert_eq!(bench.status.state, Some(ExecutionState::Claimed));
    let missing = TargetState::WorkloadAction(None);
    let step = next_step(&bench.job(Some(&missing), Sent::Maybe, second));
    if is_created {
        let ExecutionStep::Act(effect) = step else { panic!("{step:?}") };
        assert!(matches!(*effect, ExecutionEffect::Create { .. }), "{effect:?}");
        return;
    }
    bench.recorded(step);
    assert_eq!((bench.status.state, bench.status.reason), (Some(ExecutionState::Failed), Some(LoopReason::TimedOut)));
}

#[test]
fn a_first_rank_is_renewed() {
    let mut bench = Bench::new(json!({"tune": {"raiseRank": "LeastServed"}}));
    let rank: Vec<String> = vec!["memory".into(), "cpu".into()];
    let mine = json!({"by": "slow", "uid": "exe", "seq": 0, "at": at(-43_200).to_string(), "rank": rank});
    let seen = |mine: Value| {
        let mine = serde_json::from_value(mine).unwrap();
        TargetState::Loop(Box::new(TunedLoop { rank: rank.clone(), ..other(Some(mine)) }))
    };
    let ExecutionEffect::Tune { tuning, .. } = bench.effect(&seen(mine.clone())) else { panic!("nothing tuned") };
    assert_eq!((tuning.rank, tuning.at), (Some(rank.clone()), micro_time(at(0))));
    assert_eq!(tuning.message.as_deref(), Some("Keep the rank memory,cpu"));
    for (member, value) in [("uid", json!("before")), ("at", json!(at(-43_199).to_string())), ("rank", Value::Null)] {
        let mut mine = mine.clone();
        mine[member] = value;
        let mut bench = Bench::new(json!({"tune": {"raiseRank": "LeastServed"}}));
        let next = bench.next(&seen(mine));
        bench.recorded(next);
        assert_eq!(bench.status.state, Some(ExecutionState::Limited), "{member}");
    }
}

/// The tuned loop is edited between the claim and the change.
#[test]
fn a_level_that_does_not_lead_to_the_claimed_one_any_more_is_not_tuned() {
    for edit in [
        |other: &mut TunedLoop| other.metrics[0].low.as_mut().unwrap().clear = Some("5".into()),
        |other: &mut TunedLoop| other.metrics[0].low.as_mut().unwrap().raise = "3".into(),
        |other: &mut TunedLoop| other.tunable = None,
        |other: &mut TunedLoop| other.tunable.as_mut().unwrap().by = vec!["another".into()],
    ] {
        let mut bench = Bench::new(json!({"tune": {"threshold": {"path": "cpu.low.raise", "by": "1"}}}));
        let mut other = other(None);
        bench.effect(&TargetState::Loop(Box::new(other.clone())));
        edit(&mut other);
        bench.ends(&TargetState::Loop(Box::new(other)), ExecutionState::Overtaken, LoopReason::Overtaken);
    }
}

#[test]
fn a_rung_that_cannot_be_used_is_named() {
    let mut bench = Bench::new(json!({"patch": {"path": "spec.paused", "by": "1", "min": "0", "max": "2"}}));
    bench.chosen.rung = 1;
    let next = bench.next(&TargetState::Field(thing(1), Some(json!(true))));
    bench.recorded(next);
    let expected = "rung 2 on Low cpu (change spec.paused by 1, at least 0, at most 2): spec.paused is not a number";
    assert_eq!(bench.status.reason, Some(LoopReason::SpecInvalid));
    assert_eq!(bench.status.message.as_deref(), Some(expected));
}

#[test]
fn names_are_of_one_decision() {
    assert_ne!(action_name("a", &"uid".into(), 1), action_name("a", &"uid".into(), 2));
    assert_ne!(action_name("a", &"uid".into(), 1), action_name("a", &"other".into(), 1));
    assert!(action_name(&"a".repeat(253), &UID.into(), i64::MAX).len() <= 253);
}

/// In each round the loop raises the replicas by 1. Before the next one, somebody sets them back to 3, or they stay.
struct Contest {
    bench: Bench,
    generation: i64,
    replicas: i32,
    by: Option<String>,
}

impl Contest {
    fn new() -> Self {
        Self { bench: Bench::new(up()), generation: 1, replicas: 3, by: None }
    }

    fn round(&mut self, second: i64) -> Option<LoopReason> {
        self.bench.chosen.seq += 1;
        let seen = ObjectVersion { written_by: self.by.clone(), ..thing(self.generation) };
        let step = next_step(&self.bench.job(Some(&TargetState::Scale(seen, self.replicas)), Sent::Maybe, second));
        self.bench.recorded(step);
        if self.bench.status.claim.is_some() {
            (self.generation, self.replicas, self.by) = (self.generation + 1, self.replicas + 1, None);
            let done = TargetState::Scale(thing(self.generation), self.replicas);
            let step = next_step(&self.bench.job(Some(&done), Sent::Maybe, second));
            self.bench.recorded(step);
        }
        self.bench.status.reason
    }

    fn undo(&mut self, by: Option<&str>) {
        (self.generation, self.replicas, self.by) = (self.generation + 1, 3, by.map(Into::into));
    }
}

/// Results of rounds after each of which the replicas are set back.
fn rounds(by: Option<&str>, pause: i64) -> Vec<Option<LoopReason>> {
    let mut contest = Contest::new();
    let mut round = |second| {
        let reason = contest.round(second);
        contest.undo(by);
        reason
    };
    (0..5).map(|index| round(index * pause)).collect()
}

#[test]
fn what_is_undone_three_times_in_a_row_stops_the_loop() {
    let (done, stop) = (Some(LoopReason::Done), Some(LoopReason::FieldConflict));
    assert_eq!(rounds(Some("flux"), 10), [done, done, done, stop, stop]);
    assert_eq!(rounds(Some("flux"), 312), [done, done, done, stop, stop], "however slowly");
    assert_eq!(rounds(Some("flux"), 3600), [done, done, done, stop, done], "it tries again after an hour");
    assert_eq!(rounds(None, 10), [done; 5], "the other writer is unknown");
}

/// The condition about undone changes ends after an hour; the row does not.
#[test]
fn who_undoes_each_change_after_more_than_an_hour_stops_the_loop() {
    let (done, stop) = (Some(LoopReason::Done), Some(LoopReason::FieldConflict));
    let mut contest = Contest::new();
    for round in 0..4 {
        assert_eq!(contest.round(round * 5000), if round < 3 { done } else { stop });
        let news = |contest: &Contest, second| undone_fields(&contest.bench.status.undone, at(second)).len();
        assert_eq!(news(&contest, round * 5000), usize::from(round > 0));
        assert_eq!(news(&contest, round * 5000 + 3600), 0);
        contest.undo(Some("flux"));
    }
}

/// Rounds of a rung that creates or deletes replicas. After each, somebody sets the replicas back to 9.
#[rstest]
#[case(json!({"create": {"to": {"nodeName": "a"}}}), 10)]
#[case(json!({"create": {"to": {"nodeName": "a"}, "count": 3}}), 12)]
#[case(json!({"delete": {}}), 8)]
#[case(json!({"delete": {"count": 2}}), 7)]
fn created_and_deleted_replicas_that_are_set_back_three_times_stop_the_loop(
    #[case] template: Value,
    #[case] after: i32,
) {
    let mut bench = Bench::new(json!({"workloadAction": template}));
    let mut by = None;
    let mut reasons = Vec::new();
    for seq in 1..=4 {
        bench.chosen.seq = seq;
        let workload = TargetState::Workload(ObjectVersion { written_by: by, ..thing(seq) }, 9);
        let claim = bench.next(&workload);
        bench.recorded(claim);
        if bench.status.claim.is_some() {
            assert_eq!(bench.status.claim.as_ref().unwrap().goal.replicas, Some(after));
            assert_eq!(bench.next(&workload), ExecutionStep::ReadTarget);
            let ended = TargetState::WorkloadAction(Some(WorkloadActionState::Succeeded("done".into())));
            let done = bench.next(&ended);
            bench.recorded(done);
        }
        reasons.push(bench.status.reason);
        by = Some("flux".to_owned());
    }
    let done = Some(LoopReason::Done);
    assert_eq!(reasons, [done, done, done, Some(LoopReason::FieldConflict)]);
    assert!(bench.status.undone.iter().all(|undone| undone.dimension == "replicas" && undone.by == "flux"));
}

#[test]
fn patched_replicas_of_a_custom_resource_are_in_one_row_with_its_scale() {
    let mut bench = Bench::new(json!({"patch": {"path": "spec.size", "by": "1", "min": "1", "max": "9"}}));
    let size = |generation, by: Option<&str>, size: i32| {
        let written_by = by.map(Into::into);
        let replicas_path = Some("spec.size".into());
        TargetState::Field(ObjectVersion { written_by, replicas_path, ..thing(generation) }, Some(json!(size)))
    };
    let mut reasons = Vec::new();
    for seq in 1..=4 {
        bench.chosen.seq = seq;
        let by = (seq > 1).then_some("flux");
        let claim = bench.next(&size(seq * 2, by, 3));
        bench.recorded(claim);
        if bench.status.claim.is_some() {
            let done = bench.next(&size(seq * 2 + 1, None, 4));
            bench.recorded(done);
            assert_eq!(bench.status.last_changes[0].dimension, "replicas");
        }
        reasons.push(bench.status.reason);
    }
    let done = Some(LoopReason::Done);
    assert_eq!(reasons, [done, done, done, Some(LoopReason::FieldConflict)]);
    assert_eq!(bench.status.undone.iter().filter(|undone| undone.dimension == "replicas").count(), 3);
}

#[test]
fn steps_and_bounds_between_two_undos_do_not_end_the_row() {
    let mut contest = Contest::new();
    for round in 0..4 {
        let expected = if round < 3 { LoopReason::Done } else { LoopReason::FieldConflict };
        for step in 0..9 {
            let reason = contest.round(312 * round + step);
            let at_max = round < 3 && step >= 6;
            assert_eq!(reason, Some(if at_max { LoopReason::Limited } else { expected }));
        }
        contest.undo(Some("flux"));
    }
}

#[test]
fn changes_of_another_field_in_between_do_not_hide_an_undo() {
    let mut contest = Contest::new();
    let scale = contest.bench.chosen.action.clone();
    let pause = json!({"patch": {"path": "spec.paused", "to": "true"}});
    contest.bench.actions[0].ladder.push(serde_json::from_value(pause).unwrap());
    for round in 0..4 {
        let expected = if round < 3 { LoopReason::Done } else { LoopReason::FieldConflict };
        assert_eq!(contest.round(round), Some(expected));
        let bench = &mut contest.bench;
        (bench.chosen.rung, bench.chosen.action) = (1, bench.actions[0].ladder[1].clone());
        bench.chosen.seq += 1;
        let effect = bench.effect(&TargetState::Field(thing(contest.generation), Some(json!(false))));
        let done = after_effect(&bench.job(None, Sent::Maybe, round), &effect, &EffectResult::Done(None));
        bench.recorded(done);
        (bench.chosen.rung, bench.chosen.action) = (0, scale.clone());
        contest.undo(Some("flux"));
    }
    let fields: Vec<&str> = contest.bench.status.last_changes.iter().map(|last| last.dimension.as_str()).collect();
    assert_eq!(fields, ["spec.paused"], "the change of the replicas was undone");
}

#[test]
fn a_change_that_stays_ends_the_row() {
    // It is found in place after an hour.
    let mut contest = Contest::new();
    for hour in 0..8 {
        assert_eq!(contest.round(hour * 7200), Some(LoopReason::Done));
        if hour % 2 == 0 {
            assert_eq!(contest.round(hour * 7200 + 3600), Some(LoopReason::Done));
        }
        contest.undo(Some("kubectl"));
        assert!(contest.bench.status.undone.len() < 2);
    }
    // The loop itself wants the other direction.
    let mut contest = Contest::new();
    let down: LoopAction = serde_json::from_value(json!({"when": {"metric": "cpu", "side": "High"},
        "ladder": [{"scale": {"by": -1, "min": 1}}]}))
    .unwrap();
    contest.bench.actions.push(down.clone());
    for second in 0..2 {
        assert_eq!(contest.round(second), Some(LoopReason::Done));
        contest.undo(Some("kubectl"));
    }
    assert_eq!(contest.round(2), Some(LoopReason::Done));
    assert_eq!(contest.bench.status.undone.len(), 2);
    let up = std::mem::replace(&mut contest.bench.chosen.action, down.ladder[0].clone());
    contest.bench.chosen.seq += 1;
    let seen = TargetState::Scale(thing(contest.generation), contest.replicas);
    let claim = next_step(&contest.bench.job(Some(&seen), Sent::Maybe, 3));
    contest.bench.recorded(claim);
    assert_eq!((contest.bench.status.state, contest.bench.status.undone.len()), (Some(ExecutionState::Claimed), 0));
    drop(up);
}

#[test]
fn after_a_conflict_the_loop_tries_once_when_somebody_else_writes_the_field() {
    let (done, stop) = (Some(LoopReason::Done), Some(LoopReason::FieldConflict));
    let mut contest = Contest::new();
    for _ in 0..3 {
        assert_eq!(contest.round(0), done);
        contest.undo(Some("flux"));
    }
    assert_eq!(contest.round(1), stop);
    contest.undo(Some("kubectl"));
    assert_eq!(contest.round(2), done);
    contest.undo(Some("flux"));
    assert_eq!(contest.round(3), stop, "the row goes on");
    contest.undo(Some("kubectl"));
    assert_eq!([contest.round(4), contest.round(3602), contest.round(3603)], [done; 3]);
    assert_eq!(contest.bench.status.undone.len(), 3);
    assert_eq!((contest.round(3604), contest.bench.status.undone.len()), (done, 0), "the first change stayed");
}

#[test]
fn the_content_of_a_patched_field_is_not_shown() {
    let mut bench = Bench::new(json!({"patch": {"path": "spec.word", "to": "\"new\""}}));
    let field = |generation, word: &str| TargetState::Field(thing(generation), Some(json!(word)));
    let effect = bench.effect(&field(1, "hunter2"));
    assert_eq!(bench.status.before.as_deref(), Some("a text of 7 characters"));
    let done = after_effect(&bench.job(None, Sent::Maybe, 1), &effect, &EffectResult::Done(None));
    bench.recorded(done);
    assert_eq!(bench.status.message.as_deref(), Some("changed Deployment/web from a text of 7 characters to \"new\""));
    assert!(!serde_json::to_string(&bench.status).unwrap().contains("hunter2"), "{:?}", bench.status);
    let mut bench = Bench::new(json!({"patch": {"path": "spec.word", "to": "\"new\""}}));
    bench.effect(&field(1, "old"));
    bench.ends(&field(2, "hunter2"), ExecutionState::Overtaken, LoopReason::Overtaken);
    assert!(!serde_json::to_string(&bench.status).unwrap().contains("hunter2"), "{:?}", bench.status);
}

/// An older CRD does not have one of the fields, or others have written the status. The change may have been made.
#[rstest]
#[case::claim(|status: &mut ExecutionStatus| status.claim = None)]
#[case::number_and_claim(|status: &mut ExecutionStatus| (status.seq, status.claim) = (None, None))]
#[case::state_and_claim(|status: &mut ExecutionStatus| (status.state, status.claim) = (None, None))]
fn a_claim_that_is_no_longer_recorded_ends_as_lost_and_is_not_made_again(#[case] forget: fn(&mut ExecutionStatus)) {
    let mut bench = Bench::new(up());
    let seen = TargetState::Scale(thing(1), 2);
    bench.effect(&seen);
    forget(&mut bench.status);
    bench.ends(&seen, ExecutionState::Lost, LoopReason::Lost);
    assert!(matches!(bench.next(&seen), ExecutionStep::Nothing), "the same decision is not begun again");
}
