//! Tests of writes of replicas that the API server refuses: jobs are handed over nevertheless.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::json;

use super::step::{following, memory, observed};
use crate::refusals::RefusalCause;
use crate::replicas::{FOLLOWS_WORKLOAD, FollowStep, RefusedWrite, follow_condition};
use crate::step::{ObservedPool, PoolMemory, PoolStep, next_step};
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_core::conditions::Stamp;

const FORBIDDEN: &str =
    "swarmpools.ganglion.dev \"p\" is forbidden: User \"o\" cannot patch resource \"swarmpools/scale\"";

fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

/// The refusal at this second after one at each of the earlier seconds.
fn refused(cause: RefusalCause, replicas: i32, seconds: &[i64]) -> Option<RefusedWrite> {
    let next = |earlier: Option<RefusedWrite>, second: &i64| {
        Some(RefusedWrite::new(earlier.as_ref(), cause, replicas, FORBIDDEN, at(*second)))
    };
    seconds.iter().fold(None, next)
}

fn step_at(observed: &mut ObservedPool, memory: &mut PoolMemory, second: i64) -> PoolStep {
    observed.now = at(second);
    next_step(observed, memory)
}

#[rstest]
#[case::once_forbidden(RefusalCause::Permission, &[0], 10)]
#[case::forbidden(RefusalCause::Permission, &[0, 10], 610)]
#[case::denied(RefusalCause::Admission, &[0], 600)]
#[case::old_crd(RefusalCause::OldCrd, &[0], 600)]
#[case::once_unanswered(RefusalCause::NoAnswer, &[0], 10)]
#[case::unanswered(RefusalCause::NoAnswer, &[0, 10, 30], 70)]
#[case::long_unanswered(RefusalCause::NoAnswer, &[0, 10, 30, 70, 150, 310, 630, 1230], 1830)]
fn a_pool_that_may_not_follow_hands_over_its_jobs_and_tries_again(
    #[case] cause: RefusalCause,
    #[case] refusals: &[i64],
    #[case] retry: i64,
) {
    let mut observed = following(Some(3), &[3, 2], 2);
    let mut memory = memory(&observed);
    let last = *refusals.last().unwrap();
    assert!(matches!(step_at(&mut observed, &mut memory, last), PoolStep::Follow(FollowStep::Write(2))));
    memory.follow_refused = refused(cause, 2, refusals);
    // The number that was not written does not count as the operator's.
    let PoolStep::Follow(FollowStep::Record(followed)) = step_at(&mut observed, &mut memory, last) else {
        panic!("the number is still recorded")
    };
    assert_eq!(followed, [3]);
    let mut observed = following(Some(3), &[3], 2);
    for second in [last, retry - 1] {
        assert!(matches!(step_at(&mut observed, &mut memory, second), PoolStep::HandOver(_)), "{second}");
    }
    assert_eq!(memory.follow_refused.as_ref().unwrap().refusal.retry_at(), Some(at(retry)));
    assert!(matches!(step_at(&mut observed, &mut memory, retry), PoolStep::Follow(FollowStep::Record(_))));
    assert!(matches!(step_at(&mut observed, &mut memory, last - 1), PoolStep::Follow(_)), "the clock was set back");
    // The next process knows of no refusal.
    assert!(matches!(step_at(&mut observed, &mut PoolMemory::default(), last), PoolStep::Follow(_)));
}

#[test]
fn a_pool_that_may_not_scale_its_workload_hands_over_its_jobs_and_says_so() {
    let mut observed = observed(json!({"replicas": 5}));
    let mut memory = memory(&observed);
    assert!(matches!(step_at(&mut observed, &mut memory, 10), PoolStep::Scale(5)));
    for (cause, reason, advice) in [
        (RefusalCause::Permission, PoolReason::Forbidden, "resources: [statefulsets], verbs: [patch]}"),
        (RefusalCause::Admission, PoolReason::WriteFailed, "set another number"),
    ] {
        memory.scale_refused = refused(cause, 5, &[0, 10]);
        let PoolStep::HandOver(handover) = step_at(&mut observed, &mut memory, 609) else { panic!("no handover") };
        let problem = &handover.problems[0];
        assert!(problem.passing && problem.reason == reason, "{problem:?}");
        assert!(problem.message.starts_with("StatefulSet w cannot be scaled to 5 replicas"), "{problem:?}");
        assert!(problem.message.contains(advice) && problem.message.ends_with(FORBIDDEN), "{problem:?}");
        assert!(matches!(step_at(&mut observed, &mut memory, 610), PoolStep::Scale(5)));
    }
    // Another number is tried at once.
    memory.scale_refused = refused(RefusalCause::Admission, 6, &[0]);
    assert!(matches!(step_at(&mut observed, &mut memory, 1), PoolStep::Scale(5)));
}

#[test]
fn the_condition_says_why_the_pool_does_not_follow_and_what_to_do() {
    let condition = |shown, followed: &[i32], refused: Option<RefusedWrite>| {
        let observed = following(shown, followed, 2);
        let stamp = Stamp { generation: 1, now: at(10) };
        follow_condition(&observed.pool, observed.workload.as_ref().unwrap(), refused.as_ref(), stamp)
    };
    for (cause, reason, advice) in [
        (
            RefusalCause::Permission,
            "Forbidden",
            "add the rule {apiGroups: [ganglion.dev], resources: [swarmpools/scale], verbs: [patch]} to the operator's \
             ClusterRole, or apply kustomize/base of the operator's version again",
        ),
        (RefusalCause::Admission, "WriteFailed", "or set spec.replicas of the pool"),
        (RefusalCause::OldCrd, "WriteFailed", "kubectl apply --server-side -k crds"),
    ] {
        let refusal = refused(cause, 2, &[0, 10]);
        for (shown, followed) in [(None, &[][..]), (Some(3), &[3][..])] {
            let found = condition(shown, followed, refusal.clone()).unwrap();
            assert_eq!(
                (found.type_.as_str(), found.status.as_str(), found.reason.as_str()),
                (FOLLOWS_WORKLOAD, "False", reason)
            );
            assert!(found.message.starts_with("spec.replicas cannot be set to 2, the number of StatefulSet w"));
            assert!(found.message.contains(advice) && found.message.ends_with(FORBIDDEN), "{}", found.message);
        }
        assert_eq!(condition(Some(2), &[2], refusal.clone()), None, "it shows the number");
        assert_eq!(condition(Some(3), &[], refusal), None, "it does not follow");
    }
    assert_eq!(condition(None, &[], refused(RefusalCause::Permission, 2, &[0])), None, "it may be a start");
    assert_eq!(condition(None, &[], None), None);
}

proptest! {
    /// Whatever the workload and other clients set, and whichever writes are refused: each reconcile comes to an end,
    /// no write is tried twice within ten minutes, and a number that somebody sets in the pool is that of the workload
    /// in the end.
    #[test]
    fn a_pool_that_may_not_follow_can_still_be_scaled(
        events in prop::collection::vec((prop::bool::ANY, 0..4_i32, 0..700_i64, prop::bool::ANY), 1..12),
    ) {
        let (mut shown, mut followed, mut wanted, mut now) = (None, Vec::new(), 0, 0);
        let (mut memory, mut set_in_pool, mut tried) = (PoolMemory::default(), BTreeSet::new(), None);
        for (is_pool, number, pause, is_forbidden) in events {
            now += pause;
            if is_pool {
                shown = Some(number);
                set_in_pool.insert(number);
            } else {
                wanted = number;
            }
            let is_scaled = is_pool && !followed.contains(&number);
            for step in 0.. {
                prop_assert!(step < 6, "no end");
                let mut observed = following(shown, &followed, wanted);
                match step_at(&mut observed, &mut memory, now) {
                    PoolStep::Follow(FollowStep::Record(numbers)) => followed = numbers,
                    PoolStep::Follow(FollowStep::Write(number)) if is_forbidden => {
                        prop_assert!(tried.is_none_or(|tried| now - tried >= 600));
                        tried = Some(now);
                        let cause = RefusalCause::Admission;
                        memory.follow_refused = Some(RefusedWrite::new(None, cause, number, FORBIDDEN, at(now)));
                    }
                    PoolStep::Follow(FollowStep::Write(number)) => {
                        (shown, tried, memory.follow_refused) = (Some(number), None, None);
                    }
                    PoolStep::Scale(number) => {
                        prop_assert!(set_in_pool.contains(&number));
                        wanted = number;
                    }
                    _ => break,
                }
                prop_assert!(followed.len() <= 2);
            }
            prop_assert!(!is_scaled || wanted == number);
            if is_forbidden && tried == Some(now) {
                prop_assert!(followed.iter().all(|number| Some(*number) == shown), "{followed:?}");
            }
        }
    }
}
