//! Tests of the explanation of a loop, as its user reads it.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::explain::{ExplainedLoop, explain};
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::decision::Decision;
use ganglion_api::execution::Execution;
use ganglion_api::monitoring::Monitoring;

/// A loop and its children, as the API server returns them.
struct Family {
    parent: Value,
    monitoring: Value,
    decision: Value,
    execution: Value,
}

fn at(second: u32) -> String {
    format!("2026-11-21T10:00:{second:02}.000000Z")
}

fn object(kind: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": kind, "metadata": {"name": "web", "namespace": "shop"},
        "spec": spec, "status": status,
    })
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-21T09:59:00Z"})
}

fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!([condition("Ready", status, reason, message)])
}

fn metrics() -> Value {
    json!([
        {"name": "cpu", "source": {"push": {}}, "low": {"raise": "5"}},
        {"name": "memory", "source": {"push": {"key": "mem"}}, "low": {"raise": "50"}},
    ])
}

/// The demo's loop after two decisions; the rank of memory was raised in between.
fn family() -> Family {
    let scale = json!([{"scale": {"by": 1, "max": 10}}]);
    let rung = json!({"scale": {"by": 1, "max": 10}});
    let entry = |seq: i64, second, metric: &str, value: i32, end: &str| {
        format!("{seq} {} Low {metric} {value} rung 0 | scale by 1, at most 10 | {end}", at(second))
    };
    let (first, second) = (entry(1, 1, "cpu", 2, "Served | 3 -> 4"), entry(2, 3, "memory", 40, "-"));
    let parent = object(
        "ClosedLoop",
        json!({
            "serviceAccountName": "web-loop",
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": metrics(), "policy": {"rank": ["cpu", "memory"], "dwell": "1m"},
            "tunable": {"by": ["web-policy"], "rank": true},
            "actions": [
                {"when": {"metric": "cpu", "side": "Low"}, "ladder": scale},
                {"when": {"metric": "memory", "side": "Low"}, "ladder": scale},
            ],
        }),
        json!({
            "conditions": ready("True", "Running", "watches, decides and acts"),
            "effective": {"rank": ["memory", "cpu"], "until": "2026-11-22T10:00:02.000000Z"},
            "tuning": [{"by": "web-policy", "uid": "u", "seq": 1, "at": at(2), "message": "Increase rank memory"}],
        }),
    );
    let monitoring = object(
        "Monitoring",
        json!({"metrics": metrics(), "sample": {"time": at(4), "values": {"cpu": "3", "mem": "41"}}}),
        json!({
            "tag": {"time": at(3), "sequence": 17}, "message": "Low cpu,Low memory",
            "values": [{"metric": "cpu", "value": "2", "at": at(3)}, {"metric": "memory", "value": "40", "at": at(3)}],
            "alarms": [format!("Low cpu since {}", at(1)), format!("Low memory since {}", at(1))],
            "refused": {"outOfOrder": 2, "repeated": 0, "fromFuture": 1, "unreadable": 0},
        }),
    );
    let decision = object(
        "Decision",
        json!({}),
        json!({
            "tag": {"time": at(3), "sequence": 17}, "seq": 2, "message": "React to memory",
            "chosen": {"seq": 2, "metric": "memory", "side": "Low", "rung": 0, "do": rung, "at": at(3),
                "executor": "e", "mode": "Auto"},
            "rejected": ["Low cpu Outranked: another alarm is served first"],
            "limits": {"dwellUntil": "2026-11-21T10:01:03.000000Z", "budgetLeft": 4},
            "history": [first, second],
        }),
    );
    let mut execution = object(
        "Execution",
        json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}),
        json!({"seq": 2, "state": "Claimed", "message": "Deployment/web is to have 5"}),
    );
    execution["metadata"]["uid"] = json!("e");
    Family { parent, monitoring, decision, execution }
}

fn explanation(family: &Family) -> String {
    let parent: ClosedLoop = serde_json::from_value(family.parent.clone()).unwrap();
    let monitoring: Option<Monitoring> = serde_json::from_value(family.monitoring.clone()).unwrap();
    let decision: Option<Decision> = serde_json::from_value(family.decision.clone()).unwrap();
    let execution: Option<Execution> = serde_json::from_value(family.execution.clone()).unwrap();
    let now: Timestamp = "2026-11-21T10:00:04Z".parse().unwrap();
    let (monitoring, decision, execution) = (monitoring.as_ref(), decision.as_ref(), execution.as_ref());
    let text = explain(&ExplainedLoop { parent: &parent, monitoring, decision, execution, now });
    for line in text.lines() {
        assert!(line.chars().count() <= 120 && line.trim_end() == line, "{line:?}");
    }
    text
}

#[test]
fn a_loop_that_acts_is_told_as_a_whole() {
    let expected = "\
Loop web in namespace shop acts on Deployment/web as service account web-loop. Mode: Auto.
Rank of its metrics: memory, cpu. Its spec says cpu, memory.
Loop web-policy at 2026-11-21 10:00:02: Increase rank memory, until 2026-11-22 10:00:02.

DECIDED (UTC)        NO  ALARM       VALUE  LEVEL     ACTION                  OUTCOME      EFFECT
2026-11-21 10:00:01  1   Low cpu     2      under 5   scale by 1, at most 10  Served       3 → 4
2026-11-21 10:00:03  2   Low memory  40     under 50  scale by 1, at most 10  in progress

The last sample that changed the status (number 17, 2026-11-21 10:00:03):
  values       cpu 2, memory 40
  alarms       Low cpu (under 5 since 2026-11-21 10:00:01), Low memory (under 50 since 2026-11-21 10:00:01)
  newer        the sample of 2026-11-21T10:00:04.000000Z changed nothing: cpu 3, mem 41
  refused      2 older than the sample before, 1 from the future (since the loop was created)
  decision     React to memory
  rejected     Low cpu: another alarm is served first (Outranked)
  last action  number 2: Deployment/web is to have 5 (Claimed)
  limits       no action before 2026-11-21 10:01:03; 4 actions are left in the budget

Now: it works, since 2026-11-21 09:59:00 (Running): watches, decides and acts.
-> Nothing to do.
";
    let text = explanation(&family());
    assert!(text == expected, "{text}");
}

#[test]
fn a_value_over_a_period_names_the_period() {
    let mut family = family();
    for metrics in [&mut family.parent["spec"]["metrics"], &mut family.monitoring["spec"]["metrics"]] {
        metrics[0]["over"] = json!({"window": "5m", "as": "mean"});
    }
    let text = explanation(&family);
    assert!(text.contains("  values       cpu 2 (mean over 5m), memory 40\n"), "{text}");
}

#[test]
fn a_combination_is_told_as_met_or_with_what_is_missing() {
    let mut family = family();
    let low = |metric: &str| json!({"metric": metric, "side": "Low"});
    let all = json!({"when": {"all": [low("cpu"), low("memory")]}, "ladder": [{"scale": {"by": 1, "max": 10}}]});
    family.parent["spec"]["actions"] = json!([all]);
    let entry = format!("1 {} Low cpu and Low memory - rung 0 | scale by 1, at most 10 | Served | 3 -> 4", at(1));
    family.decision["status"]["history"] = json!([entry]);
    let told = |family: &Family, words: &str| {
        let text = explanation(family);
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    };
    told(
        &family,
        "\n2026-11-21 10:00:01  1   Low cpu and Low memory  -      -      scale by 1, at most 10  Served   3 → 4\n",
    );
    told(&family, "\n  combined     Low cpu and Low memory: met since 2026-11-21 10:00:01\n");
    family.monitoring["status"]["alarms"] = json!([format!("Low cpu since {}", at(1))]);
    told(&family, "\n  combined     Low cpu and Low memory: not met: Low memory is not active\n");
    family.monitoring["status"]["unknown"] = json!([{"metric": "memory", "since": at(2), "message": "no answer"}]);
    told(&family, "\n  combined     Low cpu and Low memory: not met: memory is unknown\n");
    told(&family, "\n  unknown      memory, since 2026-11-21 10:00:02: no answer\n");
}

#[test]
fn a_tuning_of_a_loop_that_was_taken_out_of_the_list_is_not_told_as_in_effect() {
    let mut family = family();
    family.parent["spec"]["tunable"]["by"] = json!(["other"]);
    let text = explanation(&family);
    let line =
        "Loop web-policy at 2026-11-21 10:00:02: Increase rank memory, not in effect: it is not in tunable.by.\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn a_loop_that_nothing_has_happened_to_says_what_it_waits_for() {
    let mut family = family();
    family.parent["status"] = json!({"conditions": [
        condition("Ready", "True", "Running", "watches, decides and acts"),
        condition("DataAvailable", "Unknown", "NoSample", "no sample has come yet"),
    ]});
    (family.monitoring["status"], family.decision["status"]) = (json!({}), json!({"seq": 0}));
    family.execution["status"] = json!({"seq": 0, "state": "Idle"});
    let text = explanation(&family);
    for words in [
        "Rank of its metrics: cpu, memory.\n",
        "No decision yet.",
        "No sample has been received yet.",
        "Now: it works",
        "DataAvailable is Unknown: no sample has come yet.",
        "-> Push a sample:\n     ganglion push web -n shop cpu=NUMBER mem=NUMBER\n",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    (family.monitoring, family.decision, family.execution) = (Value::Null, Value::Null, Value::Null);
    family.parent["status"] = json!({});
    assert!(
        explanation(&family).contains("Now: the operator has not reconciled this loop yet."),
        "{}",
        explanation(&family)
    );
}

#[test]
fn what_the_user_could_do_is_said() {
    let set = |path: &'static str, value: Value| (path, value);
    let reason = |reason: &str| {
        let words = format!("somebody has the target: {}", "why ".repeat(60));
        set("/parent/status/conditions", ready("False", reason, &words))
    };
    let beside = |kind: &str, reason: &str| {
        let conditions = [condition("Ready", "True", "Running", "acts"), condition(kind, "False", reason, "why")];
        set("/parent/status/conditions", json!(conditions))
    };
    let mode = |mode: &str| set("/parent/spec/mode", json!(mode));
    let limited = "2 2026-11-21T10:00:03.000000Z Low memory 40 rung 0 | scale by 1, at most 10 | Limited";
    let state = |state: &str| set("/execution/status/state", json!(state));
    let passed = |reason: &str| set("/decision/status/rejected", json!([format!("Low cpu {reason}: why")]));
    for ((path, value), words) in [
        (mode("DryRun"), "kubectl patch loop web -n shop --type merge -p '{\"spec\":{\"mode\":\"Auto\"}}'"),
        (mode("Paused"), "To resume it:      kubectl patch loop web"),
        (reason("Forbidden"), "Grant the named right to service account web-loop in namespace shop."),
        (reason("LoopConflict"), "Only one of the two may act"),
        (reason("AutoscalerConflict"), "Only one of the two may act"),
        (reason("NotOwned"), "Delete the named object"),
        (reason("NotSupported"), "kubectl edit loop web -n shop"),
        (reason("TargetNotFound"), "Create Deployment web, or name another target."),
        (reason("NotScalable"), "Name a target that supports the action"),
        (beside("DataAvailable", "SomeUnknown"), "Check the sender or the source of the unknown metrics"),
        (beside("LastActionSucceeded", "Failed"), "If this happens again, check the target."),
        (set("/decision/status/history", json!([limited])), "Its last action reached its min or max"),
        (state("Limited"), "Its last action reached its min or max"),
        (passed("Exhausted"), "No rung is left for Low cpu"),
        (passed("NoAction"), "No action is declared for Low cpu"),
    ] {
        let Family { parent, monitoring, decision, execution } = family();
        let mut all = json!({"parent": parent, "monitoring": monitoring, "decision": decision, "execution": execution});
        let (place, member) = path.rsplit_once('/').unwrap();
        all.pointer_mut(place).unwrap()[member] = value;
        let text = explanation(&Family {
            parent: all["parent"].take(),
            monitoring: all["monitoring"].take(),
            decision: all["decision"].take(),
            execution: all["execution"].take(),
        });
        let advice: String = text.lines().skip_while(|line| !line.starts_with("-> ")).collect::<Vec<_>>().join(" ");
        assert!(advice.contains(words), "{words:?} is not in\n{text}");
        assert!(!advice.contains("Nothing to do."), "{text}");
    }
}

#[rstest::rstest]
#[case("ReplicasOwnedElsewhere", "Follow the steps of the message in their order")]
#[case("FieldOwnedElsewhere", "Follow the steps of the message in their order")]
#[case("FieldConflict", "stop the named manager")]
#[case("NotTunable", "Allow it in spec.tunable of loop web.")]
#[case("ResizePending", "Make room on the pod's node")]
#[case("ResizeTakenBack", "add a rung that adds replicas")]
#[case("UtilizationFeedback", "Set unit: Usage")]
#[case("TimedOut", "If this happens again, check the target.")]
#[case("Overtaken", "If this happens again, check the target.")]
#[case("Blocked", "Only one of the two may act")]
#[case("NotParsed", "check the operator")]
#[case("FromANewerVersion", "Use the ganglion program of the operator's version.")]
fn a_loop_that_does_not_work_has_an_advice(#[case] reason: &str, #[case] words: &str) {
    let mut family = family();
    family.parent["status"]["conditions"] = ready("False", reason, "why");
    let text = explanation(&family);
    assert!(text.contains(words), "{text}");
    assert!(!text.contains("Nothing to do."), "{text}");
}

#[test]
fn a_proposal_waits_until_it_is_approved() {
    let mut family = family();
    family.parent["spec"]["mode"] = json!("Approve");
    family.decision["status"]["chosen"]["mode"] = json!("Approve");
    family.execution["status"] = json!({"seq": 1, "state": "Done"});
    let text = explanation(&family);
    let advice = text.lines().find_map(|line| line.trim().strip_prefix("ganglion approve web "));
    let digest = advice.and_then(|advice| advice.strip_suffix(" -n shop")).expect(&text).to_owned();
    assert!(text.contains("proposed\n"), "{text}");
    family.parent["metadata"]["annotations"] = json!({"ganglion.dev/approve": digest});
    assert!(
        !explanation(&family).contains("proposed") && !explanation(&family).contains("waits for approval"),
        "{}",
        explanation(&family)
    );
}

#[test]
fn the_end_of_the_last_decision_is_told_as_soon_as_the_execution_tells_it() {
    let mut family = family();
    family.execution["status"] = json!({"seq": 2, "state": "Done", "before": "4", "after": "5"});
    let text = explanation(&family);
    assert!(text.contains("scale by 1, at most 10  Served   4 → 5\n"), "{text}");
    family.execution["status"] = json!({"seq": 2, "state": "Failed", "message": "there is no Deployment web"});
    let text = explanation(&family);
    assert!(text.contains("Failed   there is no Deployment web\n"), "{text}");
}
