//! Each field of a ScaledObject.

use jiff::Timestamp;
use kube::core::DynamicObject;
use rstest::rstest;
use serde_json::{Value, json};

use super::{contains, hpa_object, scale};
use crate::import::formula::translate;
use crate::import::{ImportOptions, ImportedLoop, ScaledObjectInput, convert_scaled_object, hpa_name};

/// A ScaledObject of the Deployment `web` with these fields of its spec.
fn object(fields: &Value) -> DynamicObject {
    let mut spec = json!({"scaleTargetRef": {"name": "web"}});
    for (key, value) in fields.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let meta = json!({"name": "orders", "namespace": "shop", "uid": "s"});
    serde_json::from_value(
        json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": meta, "spec": spec}),
    )
    .unwrap()
}

fn convert(fields: &Value, hpa: Option<&DynamicObject>) -> Result<ImportedLoop, String> {
    let (object, now) = (object(fields), "2026-11-27T12:00:00Z".parse::<Timestamp>().unwrap());
    let input = ScaledObjectInput { object: &object, hpa, now };
    convert_scaled_object(input, &ImportOptions::default()).map_err(|refusal| refusal.to_string())
}

fn import(fields: &Value) -> ImportedLoop {
    convert(fields, None).unwrap()
}

fn prometheus(name: &str) -> Value {
    json!({"type": "prometheus", "name": name, "metadata": {
        "serverAddress": "http://prometheus.monitoring:9090", "query": format!("sum({name})"), "threshold": "10",
    }})
}

fn cpu() -> Value {
    json!({"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}})
}

fn cron(start: &str, end: &str, desired: &str) -> Value {
    json!({"type": "cron", "metadata": {
        "timezone": "Europe/Berlin", "start": start, "end": end, "desiredReplicas": desired,
    }})
}

#[test]
fn a_prometheus_trigger_is_asked_by_the_loop_itself() {
    let mut trigger = prometheus("orders");
    trigger["metadata"]["activationThreshold"] = json!("50");
    let import = import(&json!({"triggers": [trigger]}));
    let source = json!({"prometheus": {"url": "http://prometheus.monitoring:9090", "query": "sum(orders)"}});
    assert_eq!(import.manifest["metrics"], json!([{"name": "orders", "source": source}]));
    assert_eq!(
        *scale(&import, 0),
        json!({"track": {"type": "AverageValue", "target": "10", "activation": "50"}, "min": 0, "max": 100, "cooldown": "300s"})
    );
    assert_eq!(import.manifest["interval"], "15s");
    for words in ["KEDA goes from any number to 0", "an empty answer of Prometheus", "pollingInterval is 30 s"] {
        assert!(contains(&import.differences, words), "{words} is not in {:?}", import.differences);
    }
}

#[test]
fn usage_does_not_take_part_in_the_step_to_0() {
    let import =
        import(&json!({"triggers": [cpu(), prometheus("orders")], "pollingInterval": 5, "cooldownPeriod": 60}));
    assert_eq!(scale(&import, 0)["track"], json!({"type": "Utilization", "target": "60", "activation": "1E"}));
    assert_eq!((&scale(&import, 1)["cooldown"], &import.manifest["interval"]), (&json!("60s"), &json!("5s")));
    let former =
        json!({"type": "memory", "metadata": {"type": "AverageValue", "value": "1Gi", "containerName": "app"}});
    let import = super::scaled_object::import(&json!({"triggers": [former], "minReplicaCount": 1}));
    assert_eq!(
        import.manifest["metrics"][0]["source"],
        json!({"resource": {"resource": "memory", "container": "app"}})
    );
    assert_eq!(scale(&import, 0)["track"], json!({"type": "AverageValue", "target": "1Gi"}));
}

/// Z6: the cooldown is only for the step to 0.
#[test]
fn a_cooldown_without_0_has_no_effect_and_that_is_said() {
    let import =
        import(&json!({"triggers": [cpu()], "minReplicaCount": 1, "cooldownPeriod": 60, "maxReplicaCount": 7}));
    assert_eq!(scale(&import, 0).get("cooldown"), None);
    assert!(contains(&import.differences, "cooldownPeriod is left out: it has no effect"), "{:?}", import.differences);
    assert!(!contains(&import.differences, "in one step"), "Z5 is about 0: {:?}", import.differences);
}

#[test]
fn idle_is_0_if_nothing_lies_between() {
    let fields = json!({"triggers": [prometheus("orders")], "minReplicaCount": 1, "idleReplicaCount": 0});
    assert_eq!(scale(&import(&fields), 0)["min"], 0);
    let fields = json!({"triggers": [prometheus("orders")], "minReplicaCount": 3, "idleReplicaCount": 0});
    assert!(convert(&fields, None).unwrap_err().contains("idleReplicaCount is 0 and minReplicaCount is 3"));
}

#[test]
fn behavior_and_advice_come_from_advanced() {
    let import = import(&json!({"triggers": [cpu()], "minReplicaCount": 1, "advanced": {
        "restoreToOriginalReplicaCount": true,
        "horizontalPodAutoscalerConfig": {"name": "mine", "behavior": {"scaleUp": {"selectPolicy": "Min"}}}}}));
    assert_eq!((&scale(&import, 0)["up"], &scale(&import, 0)["down"]), (&json!({"select": "Min"}), &json!({})));
    assert!(contains(&import.warnings, "restoreToOriginalReplicaCount is true"), "{:?}", import.warnings);
    let named = object(&json!({"advanced": {"horizontalPodAutoscalerConfig": {"name": "mine"}}}));
    assert_eq!((hpa_name(&named).as_str(), hpa_name(&object(&json!({}))).as_str()), ("mine", "keda-hpa-orders"));
}

/// C9: the largest open window wins, as a floor beside the other triggers.
#[test]
fn cron_triggers_become_floors_with_the_largest_first() {
    let triggers = json!([
        cpu(),
        cron("0 8 * * *", "0 18 * * *", "5"),
        cron("0 12 * * *", "0 14 * * *", "20"),
        cron("0 22 * * *", "0 6 * * *", "500")
    ]);
    let import = import(&json!({"triggers": triggers, "minReplicaCount": 2, "maxReplicaCount": 50}));
    let schedule = scale(&import, 0)["schedule"].as_array().unwrap();
    let numbers: Vec<&Value> = schedule.iter().map(|entry| &entry["min"]).collect();
    assert_eq!(numbers, [&json!(50), &json!(20), &json!(5)], "at most the maximum");
    let window = json!({"start": "0 12 * * *", "until": "0 14 * * *", "timeZone": "Europe/Berlin"});
    assert_eq!(schedule[1]["during"], window);
    assert!(!contains(&import.differences, "do not alternate"), "{:?}", import.differences);
}

#[test]
fn a_schedule_alone_sets_the_number() {
    let import = import(&json!({"triggers": [cron("0 8 * * MON-FRI", "0 18 * * MON-FRI", "5")]}));
    let scale = scale(&import, 0);
    assert_eq!((scale.get("track"), &scale["min"], &scale["schedule"][0]["to"]), (None, &json!(0), &json!(5)));
    assert_eq!(import.spec.metrics.len(), 1);
    assert!(!contains(&import.differences, "above the target"), "{:?}", import.differences);
    let daily = super::scaled_object::import(&json!({"triggers": [cron("@daily", "0 9 * * *", "1")]}));
    assert_eq!(super::scale(&daily, 0)["schedule"][0]["during"]["start"], "0 0 * * *");
}

/// A formula sees a cron trigger as its number, and 1 outside of its window.
#[test]
fn a_cron_trigger_of_a_formula_becomes_a_metric() {
    let mut office = cron("0 8 * * MON-FRI", "0 18 * * MON-FRI", "5");
    office["name"] = json!("office");
    let import = import(&json!({"triggers": [prometheus("load"), office],
        "advanced": {"scalingModifiers": {"formula": "max(load, office)", "target": "1"}}}));
    let source = json!({"during": [{"start": "0 8 * * MON-FRI", "until": "0 18 * * MON-FRI", "timeZone": "Europe/Berlin"}],
        "value": "5", "otherwise": "1"});
    assert_eq!(json!(import.spec.metrics[1].source.cron), source);
    assert_eq!(json!(import.spec.metrics[2].source.formula), json!({"expression": "max(load, office)"}));
    assert_eq!(scale(&import, 0).get("schedule"), None);
}

/// C5: KEDA is open until Sunday 22:10, since the next end comes before the next start.
#[test]
fn windows_that_differ_are_listed() {
    let import =
        import(&json!({"triggers": [cpu(), cron("30 6 * * MON-FRI", "10 22 * * *", "5")], "minReplicaCount": 1}));
    // 22:10 in Berlin is 21:10 UTC in winter; Friday is the 27th.
    let words = "from 2026-11-27T21:10:00Z to 2026-11-29T21:10:00Z: KEDA is open, the loop closed";
    assert!(contains(&import.differences, words), "{:?}", import.differences);
    // A start on each day and one end in a week: KEDA opens only on the last day.
    let fields = json!({"triggers": [cpu(), cron("0 8 * * *", "0 18 * * FRI", "5")], "minReplicaCount": 1});
    let words = "KEDA is closed, the loop open";
    assert!(contains(&super::scaled_object::import(&fields).differences, words));
}

/// M8: the target is the one that the scaler has at each poll.
#[test]
fn an_external_scaler_is_asked_for_its_target_each_time() {
    use crate::import::draft::LoopDraft;
    use crate::import::triggers::{TriggerContext, convert};
    let trigger =
        json!({"type": "external-push", "name": "jobs", "metadata": {"scalerAddress": "jobs:9090", "queue": "a"}});
    let mut draft = LoopDraft::default();
    let mut context = TriggerContext {
        object: "orders",
        hpa: None,
        wakes: true,
        fallback: None,
        in_formula: false,
        names: Default::default(),
    };
    let trigger = serde_json::from_value(trigger).unwrap();
    convert(&mut draft, &mut context, (0, &trigger), Timestamp::UNIX_EPOCH);
    let manifest = draft.manifest(&Default::default(), "15s", &ImportOptions::default());
    let metadata = json!({"queue": "a"});
    let value = json!({"scaler": {"address": "jobs:9090", "metadata": metadata, "stream": true}});
    let target = json!({"scaler": {"address": "jobs:9090", "metadata": metadata, "value": "Target"}});
    let formula = json!({"formula": {"expression": "jobs_value / jobs_target"}});
    assert_eq!(
        manifest["metrics"],
        json!([{"name": "jobs_value", "source": value}, {"name": "jobs_target", "source": target},
            {"name": "jobs", "source": formula}])
    );
    let track = &manifest["actions"][0]["ladder"][0]["scale"]["track"];
    assert_eq!(*track, json!({"type": "AverageValue", "target": "1"}));
}

/// I6: any other trigger is read from KEDA, with the target that its HorizontalPodAutoscaler shows.
#[test]
fn any_other_trigger_is_read_from_keda() {
    let trigger = json!({"type": "rabbitmq", "metadata": {"queueName": "orders", "value": "20", "activationValue": "3"},
        "authenticationRef": {"name": "rabbit"}});
    let fields = json!({"triggers": [cpu(), trigger]});
    let problem = convert(&fields, None).unwrap_err();
    assert!(problem.contains("triggers[1] of type rabbitmq") && problem.contains("let KEDA work"), "{problem}");
    let external = json!({"type": "External", "external": {"metric": {"name": "s1-rabbitmq-orders"},
        "target": {"type": "AverageValue", "averageValue": "20"}}});
    let hpa = hpa_object(&json!({"metrics": [external]}));
    let selector = json!({"matchLabels": {"scaledobject.keda.sh/name": "orders"}});
    let source = json!({"external": {"metric": "s1-rabbitmq-orders", "selector": selector}});
    match convert(&fields, Some(&hpa)) {
        Ok(import) => {
            assert_eq!(import.manifest["metrics"][1]["source"], source);
            let track = json!({"type": "AverageValue", "target": "20", "activation": "3"});
            assert_eq!(scale(&import, 1)["track"], track);
            assert!(contains(&import.differences, "must stay"), "{:?}", import.differences);
        }
        // This version has no such source.
        Err(problem) => assert!(problem.contains("needs the source external"), "{problem}"),
    }
}

/// KEDA gives the target times the fallback's replicas once it has failed, also while the ScaledObject is paused.
#[test]
fn the_fallback_of_keda_comes_before_that_of_the_loop() {
    let trigger = json!({"type": "rabbitmq", "metadata": {"queueName": "orders", "value": "20"}});
    let external = json!({"type": "External", "external": {"metric": {"name": "s0-rabbitmq-orders"},
        "target": {"type": "AverageValue", "averageValue": "20"}}});
    let hpa = hpa_object(&json!({"metrics": [external]}));
    let fallback = json!({"failureThreshold": 4, "replicas": 6});
    let differences = |trigger: Value| {
        convert(&json!({"triggers": [trigger], "fallback": fallback}), Some(&hpa)).unwrap().differences
    };
    assert!(contains(&differences(trigger), "its fallback comes first"));
    assert!(!contains(&differences(prometheus("orders")), "its fallback comes first"));
}

#[test]
fn a_fallback_is_an_assumed_value_where_it_is_the_same() {
    let fallback = json!({"failureThreshold": 4, "replicas": 6});
    let import = import(&json!({"triggers": [cpu(), prometheus("orders")], "fallback": fallback}));
    assert_eq!(import.manifest["metrics"][0].get("missing"), None, "usage has none");
    assert_eq!(import.manifest["metrics"][1]["missing"], json!({"after": "60s", "then": "Assume", "value": "60"}));
    let mut by_value = prometheus("orders");
    by_value["metricType"] = json!("Value");
    for (fields, words) in [
        (json!({"triggers": [by_value], "fallback": fallback}), "divides by ready pods"),
        (
            json!({"triggers": [prometheus("a")], "fallback": {"failureThreshold": 1, "replicas": 0}}),
            "an outage is not 0",
        ),
        (
            json!({"triggers": [prometheus("a")],
                "fallback": {"failureThreshold": 1, "replicas": 1, "behavior": "currentReplicas"}}),
            "fallback.behavior is currentReplicas",
        ),
    ] {
        let problem = convert(&fields, None).unwrap_err();
        assert!(problem.contains(words), "{problem}");
    }
}

#[test]
fn a_formula_replaces_the_actions_of_its_triggers() {
    let modifiers = json!({"formula": "max([a, b]) + (a ?? b ?? 8)", "target": "5", "activationTarget": "2"});
    let fields = json!({"triggers": [prometheus("a"), prometheus("b"), cpu()], "advanced": {"scalingModifiers": modifiers},
        "fallback": {"failureThreshold": 2, "replicas": 3}});
    let import = import(&fields);
    let names: Vec<_> = import.spec.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "cpu", "formula"]);
    let expression = json!({"formula": {"expression": "max(a, b) + (coalesce(a, b, 8))"}});
    assert_eq!(import.manifest["metrics"][3]["source"], expression);
    assert_eq!(import.manifest["metrics"][3]["missing"]["value"], "15");
    let tracked: Vec<_> =
        import.spec.actions.iter().flatten().map(|action| action.when.alarms()[0].metric.as_str()).collect();
    assert_eq!(tracked, ["cpu", "formula"]);
    assert_eq!(scale(&import, 1)["track"], json!({"type": "AverageValue", "target": "5", "activation": "2"}));
}

#[rstest]
#[case("a + b * 2", Ok("a + b * 2"))]
#[case("a > 2 ? a + b : 1", Ok("a > 2 ? a + b : 1"))]
#[case("not (a > 1 and b < 2 or a == b)", Ok("!(a > 1 && b < 2 || a == b)"))]
#[case("avg([a, b])", Ok("(((a) + (b)) / 2)"))]
#[case("sum([a, -b])", Ok("((a) + (-b))"))]
#[case("float(a) / 2.5", Ok("(a) / 2.5"))]
#[case("a ** 2", Err("`**` is not expected there"))]
#[case("a % 2", Err("`%` cannot be expressed"))]
#[case("count([a, b], {# > 1})", Err("`{` cannot be expressed"))]
#[case("ceil(a)", Err("the function `ceil` cannot be expressed"))]
#[case("c", Err("`c` is not the name of a trigger"))]
#[case("(a", Err("`)` is expected before its end"))]
#[case("a +", Err("an operand is missing at its end"))]
#[case("1.2.3", Err("`1.2.3` is no number"))]
#[case("", Err("an operand is missing at its end"))]
fn formulas_are_translated_or_refused(#[case] formula: &str, #[case] expected: Result<&str, &str>) {
    let names = ["a", "b"].map(|name| (name.to_owned(), name.to_owned())).into();
    assert_eq!(translate(formula, &names).as_deref().map_err(String::as_str), expected);
}

#[test]
fn a_formula_without_end_is_refused() {
    let names = [("a".to_owned(), "a".to_owned())].into();
    for formula in ["(".repeat(100_000), "-".repeat(100_000) + "a", "a ? ".repeat(100_000), "a + ".repeat(400) + "a"] {
        assert!(translate(&formula, &names).is_err(), "{}", &formula[..9]);
    }
}

#[rstest]
#[case(json!({"triggers": [cpu()]}), "nothing could wake the target")]
#[case(json!({"triggers": [{"type": "cpu", "metadata": {"value": "60"}}], "minReplicaCount": 1}), "triggers[0].metricType")]
#[case(json!({"triggers": [cron("0 8 * * *", "0 8 * * *", "5")]}), "never opens")]
#[case(json!({"triggers": [cron("0 8 * * *", "0 9 * * *", "0")]}), "desiredReplicas is 0")]
#[case(json!({"triggers": [cron("@every 1h", "0 9 * * *", "1")]}), "start is @every 1h: use five cron fields")]
#[case(json!({"triggers": [cron("8 o'clock", "0 9 * * *", "1")]}), "cron pattern")]
#[case(json!({"triggers": [prometheus("a")], "paused": true}), "unknown field `paused`")]
#[case(json!({"triggers": [prometheus("a"), cron("0 8 * * *", "0 9 * * *", "1")],
    "advanced": {"scalingModifiers": {"formula": "a", "target": "1"}}}), "triggers[1] has no name, which")]
#[case(json!({"triggers": [prometheus("a")], "advanced": {"scalingModifiers": {"formula": "a % 2", "target": "1"}}}), "`%`")]
#[case(json!({"triggers": [prometheus("a")], "maxReplicaCount": 1_000_000}), "maxReplicaCount is 1000000")]
fn what_cannot_be_expressed_is_named(#[case] fields: Value, #[case] words: &str) {
    let problem = convert(&fields, None).unwrap_err();
    assert!(problem.contains(words), "{problem}");
}

#[test]
fn annotations_that_scale_are_refused_by_name() {
    let mut object = object(&json!({"triggers": [prometheus("a")]}));
    object.metadata.annotations = Some([("autoscaling.keda.sh/paused-replicas".to_owned(), "3".to_owned())].into());
    let input = ScaledObjectInput { object: &object, hpa: None, now: Timestamp::UNIX_EPOCH };
    let problem = convert_scaled_object(input, &ImportOptions::default()).unwrap_err().to_string();
    assert!(problem.contains("autoscaling.keda.sh/paused-replicas"), "{problem}");
}
