//! Due attempts, the record of attempts, and the event that is sent, for all responses of receivers.

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::event::{EndOutcome, MAX_EVENT, event};
use super::*;
use ganglion_api::workload_action::status::{Slot, Step};

const START: Timestamp = Timestamp::UNIX_EPOCH;

/// An action that has ended, with this number of receivers.
fn ended(receivers: usize) -> WorkloadAction {
    let notify: Vec<Value> = (0..receivers).map(|at| json!({"url": format!("http://r{at}.example/hook")})).collect();
    let conditions = [json!({"type": "Ready", "status": "True", "reason": "Succeeded", "message": "moved web-a",
        "lastTransitionTime": "1970-01-01T00:00:00Z", "observedGeneration": 3})];
    let mut action: WorkloadAction = serde_json::from_value(json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "WorkloadAction",
        "metadata": {"namespace": "shop", "name": "go", "uid": "u1", "generation": 3},
        "spec": {"move": {"pod": {"name": "web-a"}, "to": {"nodeName": "b"}}, "notify": notify},
        "status": {
            "observedGeneration": 3, "conditions": conditions, "finishedAt": "1970-01-01T00:00:00Z",
            "startedAt": "1970-01-01T00:00:00Z",
            "summary": {"action": "Move", "workload": "Deployment/web", "from": "a", "to": "b", "done": "1/1"},
        },
    }))
    .unwrap();
    let all = begun(action.spec.notify.as_deref());
    let status = action.status.as_mut().unwrap();
    status.conditions.extend(condition(&[], &all, Stamp { generation: 3, now: START }));
    status.notifications = all;
    action
}

fn status(action: &WorkloadAction) -> &WorkloadActionStatus {
    action.status.as_ref().unwrap()
}

fn one(action: &WorkloadAction, at: usize) -> &Notification {
    &status(action).notifications[at]
}

/// Status, reason and message of the condition.
fn notified(action: &WorkloadAction) -> (&str, &str, &str) {
    let found = status(action).conditions.iter().find(|one| one.type_ == NOTIFIED).unwrap();
    (&found.status, &found.reason, &found.message)
}

fn missed(code: u16) -> AttemptResult {
    AttemptResult::Missed { code: Some(code), message: format!("the server answers {code}") }
}

fn refused(code: u16) -> AttemptResult {
    AttemptResult::Refused { code: Some(code), message: format!("the server answers {code}") }
}

const ACCEPTED: AttemptResult = AttemptResult::Accepted { code: 204 };

/// Makes the attempt that is due for a receiver, and records it.
fn make(action: &mut WorkloadAction, receiver: usize, at: Timestamp, result: AttemptResult) {
    let id = due(action, at).into_iter().find(|one| one.receiver == receiver).expect("an attempt is due");
    let made = [AttemptMade { id, at, result }];
    action.status = Some(recorded(action, &made, at, 0.5).expect("it is news"));
    assert_eq!(recorded(action, &made, at, 0.5), None, "it is recorded once");
}

fn result() -> impl Strategy<Value = AttemptResult> {
    prop_oneof![6 => Just(missed(500)), 1 => Just(refused(400)), 1 => Just(ACCEPTED)]
}

proptest! {
    #[test]
    fn whatever_receivers_answer_the_attempts_end_and_nothing_else_changes(
        results in prop::collection::vec(result(), 40),
        receivers in 1_usize..4,
        seconds in 0_i64..15,
        random in 0.0_f64..1.0,
    ) {
        let (mut action, mut now, mut results) = (ended(receivers), START, results.into_iter().cycle());
        let before = action.clone();
        let mut made = vec![0; receivers];
        while is_pending(&action) {
            let all = due(&action, now);
            prop_assert!(!all.is_empty(), "a time without an attempt was waited for");
            now += SignedDuration::from_secs(seconds);
            let all: Vec<AttemptMade> =
                all.into_iter().map(|id| AttemptMade { id, at: now, result: results.next().unwrap() }).collect();
            for attempt in &all {
                made[attempt.id.receiver] += 1;
                prop_assert_eq!(attempt.id.number, made[attempt.id.receiver]);
            }
            action.status = Some(recorded(&action, &all, now, random).unwrap());
            prop_assert!(all.iter().all(|made| !due(&action, now).iter().any(|one| one.receiver == made.id.receiver)));
            prop_assert!(recorded(&action, &all, now, random).is_none());
            let (pending, others) = (is_pending(&action), due(&action, now));
            let next = next_due(status(&action), now);
            prop_assert_eq!(!others.is_empty() || next.is_some(), pending);
            prop_assert_eq!(notified(&action).0 == "Unknown", pending);
            now = next.filter(|_| others.is_empty()).unwrap_or(now);
        }
        let most = 21 * 60 + seconds * i64::from(MAX_ATTEMPTS) * 3;
        prop_assert!(made.iter().all(|made| (1..=MAX_ATTEMPTS).contains(made)));
        prop_assert!(now.duration_since(START).as_secs() <= most, "it took {now}");
        let delivered = status(&action).notifications.iter().all(|one| one.outcome == NotificationOutcome::Delivered);
        prop_assert_eq!(notified(&action).0, if delivered { "True" } else { "False" });

        // The action itself and the event stay as before.
        prop_assert_eq!(event(&action), event(&before));
        let rest = |action: &WorkloadAction| {
            let mut action = action.clone();
            let status = action.status.as_mut().unwrap();
            status.notifications.clear();
            status.conditions.retain(|one| one.type_ != NOTIFIED);
            action
        };
        prop_assert_eq!(rest(&action), rest(&before));
    }

    #[test]
    fn an_event_is_bounded_and_says_what_it_leaves_out(slots in 0_usize..300, length in 0_usize..1024) {
        let mut action = ended(1);
        let status = action.status.as_mut().unwrap();
        status.conditions[0].message = "\u{1}".repeat(length);
        status.slots = (0..slots).map(|at| slot(at, Step::Succeeded)).collect();
        for slot in &mut status.slots {
            slot.victim.as_mut().unwrap().name = "n".repeat(253);
        }
        let body = event(&action).unwrap().body;
        prop_assert!(body.len() <= MAX_EVENT);
        let data = &serde_json::from_slice::<Value>(&body).unwrap()["data"];
        let shown = data["replicas"].as_array().unwrap().len();
        prop_assert_eq!(data["replicasTotal"].as_u64(), Some(slots as u64));
        prop_assert_eq!(data["truncated"].as_bool(), Some(shown < slots));
        prop_assert!(shown == slots || shown >= 30, "{} of {} replicas", shown, slots);
    }
}

fn slot(index: usize, step: Step) -> Slot {
    serde_json::from_value(json!({
        "id": format!("s{index}"), "index": index, "attempt": 0, "step": step, "since": "1970-01-01T00:00:00Z",
        "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "replicaSet": {"name": "web-1", "uid": "r"}, "label": "pod-template-hash",
        "victim": {"name": "web-a", "node": "a"}, "replacement": {"name": "web-n", "node": "b"},
    }))
    .unwrap()
}

#[test]
fn nothing_is_due_before_the_end_nor_without_receivers() {
    let mut action = ended(2);
    assert_eq!(due(&action, START).len(), 2);
    action.status.as_mut().unwrap().finished_at = None;
    assert_eq!((due(&action, START), event(&action)), (vec![], None));
    let none = ended(0);
    assert_eq!((due(&none, START), is_pending(&none)), (vec![], false));
    assert!(status(&none).conditions.iter().all(|one| one.type_ != NOTIFIED));
    let mut fewer = ended(2);
    fewer.spec.notify.as_mut().unwrap().pop();
    assert_eq!(due(&fewer, START).len(), 1, "only receivers in the spec are notified");
    make(&mut fewer, 0, START, ACCEPTED);
    assert!(!is_pending(&fewer), "it would wait forever");
}

#[test]
fn an_action_that_is_being_deleted_is_notified_once() {
    let mut action = ended(1);
    action.metadata.deletion_timestamp = Some(Time(START));
    assert_eq!(due(&action, START).len(), 1);
    make(&mut action, 0, START, missed(500));
    assert_eq!(due(&action, START + SignedDuration::from_hours(1)), []);
}

#[test]
fn pauses_double_and_the_last_attempt_is_the_tenth() {
    let (mut action, mut now, mut pauses) = (ended(1), START, Vec::new());
    for number in 1..=MAX_ATTEMPTS {
        make(&mut action, 0, now, missed(503));
        let next = one(&action, 0).next_attempt_at.as_ref().map(|time| time.0);
        assert_eq!((one(&action, 0).attempts, next.is_some()), (number, number < MAX_ATTEMPTS));
        let Some(next) = next else { break };
        assert_eq!(due(&action, next - SignedDuration::from_millis(1)), []);
        pauses.push(next.duration_since(now).as_millis());
        now = next;
    }
    assert_eq!(pauses, [2200, 4400, 8800, 17600, 35200, 70400, 140_800, 281_600, 563_200]);
    let failed = one(&action, 0);
    assert_eq!((failed.outcome, failed.code), (NotificationOutcome::Failed, Some(503)));
    assert_eq!(pause(1, 0.0).as_millis(), 2000);
    assert_eq!(pause(1, 7.0).as_millis(), 2400);
}

#[test]
fn a_clock_that_was_set_back_does_not_postpone_an_attempt() {
    let (mut action, late) = (ended(1), START + SignedDuration::from_hours(24));
    make(&mut action, 0, late, missed(500));
    assert_eq!((due(&action, late).len(), due(&action, START).len()), (0, 1));
}

#[test]
fn an_attempt_counts_once_and_in_its_turn() {
    let mut action = ended(1);
    let attempt = |number| AttemptMade { id: AttemptId { receiver: 0, number }, at: START, result: missed(500) };
    assert_eq!(recorded(&action, &[attempt(2)], START, 0.0), None);
    let other = AttemptMade { id: AttemptId { receiver: 1, number: 1 }, ..attempt(1) };
    assert_eq!(recorded(&action, &[other], START, 0.0), None);
    make(&mut action, 0, START, refused(404));
    assert!(!is_news(&action, attempt(2).id), "it was given up");
}

#[test]
fn the_condition_says_who_did_not_accept_and_when_the_next_attempt_is() {
    let mut action = ended(3);
    let begun = "0 of 3 receivers have accepted the event; the event is being sent";
    assert_eq!(notified(&action), ("Unknown", "Delivering", begun));
    make(&mut action, 0, START, ACCEPTED);
    make(&mut action, 1, START, missed(500));
    let waits = "1 of 3 receivers have accepted the event; http://r1.example/hook: attempt 1 of 10 failed: the server \
        answers 500; the next one is made at 00:00:02 UTC";
    assert_eq!(notified(&action), ("Unknown", "DeliveryRetrying", waits));
    make(&mut action, 2, START, refused(400));
    assert_eq!(notified(&action).1, "DeliveryRetrying", "one is open");
    make(&mut action, 1, START + SignedDuration::from_mins(1), ACCEPTED);
    let given_up = "2 of 3 receivers have accepted the event; http://r2.example/hook was given up after 1 attempt: the \
        server answers 400; the action's result stands: repair the receiver, or name another one in the next action";
    assert_eq!(notified(&action), ("False", "DeliveryFailed", given_up));
    let generation = status(&action).conditions.iter().map(|one| one.observed_generation);
    assert!(generation.eq([Some(3), Some(3)]));

    let mut single = ended(1);
    make(&mut single, 0, START, ACCEPTED);
    assert_eq!(notified(&single), ("True", "Delivered", "the receiver has accepted the event"));
    let mut both = ended(2);
    make(&mut both, 0, START, ACCEPTED);
    make(&mut both, 1, START, ACCEPTED);
    assert_eq!(notified(&both).2, "all 2 receivers have accepted the event");
}

#[rstest]
#[case("https://a.example/hook", "https://a.example/hook")]
#[case("https://a.example:8443", "https://a.example:8443")]
#[case("https://me:secret@a.example/hook", "https://a.example/hook")]
#[case("https://me:s@cret@a.example/hook/@x", "https://a.example/hook/@x")]
#[case("https://a.example/hook?token=secret", "https://a.example/hook")]
#[case("https://a.example?token=a/b@c", "https://a.example")]
#[case("https://a.example/#secret", "https://a.example/")]
#[case("https://", "https://")]
fn a_url_is_shown_without_what_may_be_secret(#[case] url: &str, #[case] shown: &str) {
    assert_eq!(shown_url(url), shown);
    assert_eq!(shown_url(&format!("http://a/{}", "é".repeat(2000))).chars().count(), SHOWN_URL);
}

#[test]
fn long_words_of_an_attempt_are_cut() {
    let mut action = ended(1);
    make(&mut action, 0, START, AttemptResult::Missed { code: None, message: "é".repeat(9999) });
    assert_eq!(one(&action, 0).message.as_ref().unwrap().chars().count(), MAX_MESSAGE);
}

#[test]
fn the_event_says_what_became_of_the_action() {
    let mut action = ended(1);
    action.status.as_mut().unwrap().slots = vec![slot(0, Step::Succeeded)];
    let sent = event(&action).unwrap();
    assert_eq!(sent.id, "u1-succeeded");
    let expected = json!({
        "specversion": "1.0", "id": "u1-succeeded", "type": "dev.ganglion.workloadaction.succeeded",
        "source": "/apis/ganglion.dev/v1alpha1/namespaces/shop/workloadactions/go",
        "subject": "Deployment/web", "time": "1970-01-01T00:00:00Z", "datacontenttype": "application/json",
        "data": {
            "namespace": "shop", "name": "go", "uid": "u1", "action": "Move",
            "ready": "True", "reason": "Succeeded", "message": "moved web-a",
            "summary": {"action": "Move", "workload": "Deployment/web", "from": "a", "to": "b", "done": "1/1"},
            "startedAt": "1970-01-01T00:00:00Z", "finishedAt": "1970-01-01T00:00:00Z",
            "replicas": [{"from": "a", "to": "b", "step": "Succeeded", "oldPod": "web-a", "newPod": "web-n", "reason": null}],
            "replicasTotal": 1, "truncated": false,
        },
    });
    assert_eq!(serde_json::from_slice::<Value>(&sent.body).unwrap(), expected);
    action.status.as_mut().unwrap().summary.as_mut().unwrap().workload = None;
    let without: Value = serde_json::from_slice(&event(&action).unwrap().body).unwrap();
    assert!(without.get("subject").is_none(), "an attribute has no null");
}

#[rstest]
#[case(Reason::Succeeded, &[Step::Succeeded], EndOutcome::Succeeded)]
#[case(Reason::AlreadyExecuted, &[], EndOutcome::AlreadyExecuted)]
#[case(Reason::Planned, &[], EndOutcome::Planned)]
#[case(Reason::NodeNotFound, &[], EndOutcome::Failed)]
#[case(Reason::Expired, &[], EndOutcome::Expired)]
#[case(Reason::QueueTimedOut, &[], EndOutcome::Expired)]
#[case(Reason::Aborted, &[Step::RolledBack], EndOutcome::Aborted)]
#[case(Reason::Aborted, &[Step::Succeeded, Step::Failed], EndOutcome::Failed)]
#[case(Reason::ReplacementNotReady, &[Step::Succeeded, Step::RolledBack], EndOutcome::RolledBack)]
#[case(Reason::VictimStuck, &[Step::RolledBack, Step::Failed], EndOutcome::Failed)]
fn the_outcome_is_one_word(#[case] reason: Reason, #[case] steps: &[Step], #[case] outcome: EndOutcome) {
    let slots = steps.iter().enumerate().map(|(at, step)| slot(at, *step)).collect();
    assert_eq!(EndOutcome::of(&WorkloadActionStatus { slots, ..WorkloadActionStatus::default() }, reason), outcome);
}
