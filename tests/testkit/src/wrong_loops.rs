//! Loops whose parts contradict each other, and the message that a user receives for each.

use serde_json::{Value, json};

use crate::action::with;
use crate::testbed::loops::demo;

/// A loop that a validation rule rejects.
pub struct WrongLoop {
    /// Name of the loop.
    pub name: &'static str,
    pub spec: Value,
    /// Field that the rejection names.
    pub path: String,
    pub message: String,
}

/// Metrics of [`demo`], as messages list them.
const KNOWN: &str = r#"(known: ["cpu", "memory"])"#;

/// At least one loop for each rule that compares parts of a loop. If a list can have several items, the first one is
/// valid.
pub fn wrong_loops() -> Vec<WrongLoop> {
    let parts = [
        unknown_metrics(),
        impossible_alarms(),
        misplaced_rungs(),
        wrong_tracking(),
        wrong_combinations(),
        vec![unnamed_source(), needless_metric(), largest(), largest_combinations()],
    ];
    parts.into_iter().flatten().collect()
}

fn unknown_metrics() -> Vec<WrongLoop> {
    let bounds = |path: &str| json!({"path": path, "min": "1", "max": "2", "maxStep": "1"});
    vec![
        wrong(
            "rank",
            "policy.rank",
            format!("policy.rank[1]: metric \"memroy\" is not in metrics {KNOWN}"),
            json!({"policy": {"rank": ["cpu", "memroy", "disk"]}}),
        ),
        wrong(
            "weights",
            "policy.weights",
            format!("policy.weights[disk]: metric \"disk\" is not in metrics {KNOWN}"),
            json!({"policy": {"select": "Weighted", "weights": {"cpu": "2", "disk": "1"}}}),
        ),
        wrong(
            "thresholds",
            "tunable.thresholds",
            format!("tunable.thresholds[1]: metric \"cp\" is not in metrics {KNOWN}"),
            json!({"tunable": {"by": ["slow"], "thresholds": [bounds("cpu.low.raise"), bounds("cp.low.raise")]}}),
        ),
        wrong(
            "metric",
            "actions",
            format!("actions[2]: metric \"latncy\" is not in metrics {KNOWN}"),
            one_more("actions", on("latncy", "High", json!([scale(1)]))),
        ),
    ]
}

fn impossible_alarms() -> Vec<WrongLoop> {
    let no_alarm = |name, at, metric: &str, side: &str, needs: &str, members| {
        let problem = format!("metric \"{metric}\" has no alarm on side {side}: it needs {needs}");
        wrong(name, "actions", format!("actions[{at}]: {problem}"), members)
    };
    let action = |metric, side| one_more("actions", on(metric, side, json!([scale(1)])));
    vec![
        no_alarm("high", 2, "memory", "High", "high", action("memory", "High")),
        no_alarm("equal", 2, "cpu", "Equal", "equal", action("cpu", "Equal")),
        no_alarm("missing", 2, "cpu", "Missing", "missing with then: Alarm", action("cpu", "Missing")),
        no_alarm("low", 1, "memory", "Low", "low", json!({"metrics": [demo()["metrics"][0], silent("memory")]})),
        wrong(
            "twice",
            "actions",
            "actions[1] and actions[2] are both on side Low of metric \"memory\"; give one of them a longer ladder instead",
            one_more("actions", on("memory", "Low", json!([scale(2)]))),
        ),
    ]
}

fn misplaced_rungs() -> Vec<WrongLoop> {
    let of_loops = json!({"apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "name": "fast"});
    let tune = json!({"tune": {"raiseRank": "LeastServed"}});
    let both = |first: Value, second: Value| json!([on("cpu", "Low", first), on("memory", "Low", second)]);
    let silent_disk = |rung: Value| {
        let metrics = one_more("metrics", silent("disk"));
        with(metrics, one_more("actions", on("disk", "Missing", json!([scale(1), rung]))))
    };
    let lowers = "ladder[1]: an action on side Missing must not lower capacity";
    vec![
        wrong(
            "tune",
            "actions",
            "actions[1].ladder[1]: tune is for a target that is a ClosedLoop, and the target is a Deployment",
            json!({"actions": both(json!([scale(1)]), json!([scale(1), tune]))}),
        ),
        wrong(
            "scale",
            "actions",
            "actions[1].ladder[1]: the target is a ClosedLoop, which can only be tuned",
            json!({"target": of_loops, "actions": both(json!([tune]), json!([tune, scale(1)]))}),
        ),
        wrong("lowers", "actions[2].ladder", lowers, silent_disk(scale(-1))),
        wrong("removes", "actions[2].ladder", lowers, silent_disk(json!({"workloadAction": {"delete": {"count": 1}}}))),
    ]
}

fn wrong_tracking() -> Vec<WrongLoop> {
    let one_rung =
        "an action on side Target has exactly one rung, scale with track or schedule, and only such an action has one";
    let track = json!({"type": "AverageValue", "target": "10"});
    let tracks = |max: i32| json!({"scale": {"track": track, "max": max}});
    let rules = |name, path: &str, message: &str, scale: Value| {
        wrong(name, path, message, one_more("actions", on("cpu", "Target", json!([{"scale": scale}]))))
    };
    let at = "actions[2].ladder[0].scale";
    let more = |with: Value| crate::action::with(json!({"track": track, "max": 9}), with);
    let paces = {
        let mut parts = one_more("actions", on("cpu", "Target", json!([tracks(9)])));
        let actions = parts["actions"].as_array_mut().expect("actions");
        actions.push(on("memory", "Target", json!([tracks(8)])));
        parts
    };
    vec![
        wrong(
            "untracked",
            "actions[2].ladder",
            format!("ladder[0]: {one_rung}"),
            one_more("actions", on("cpu", "Target", json!([scale(1)]))),
        ),
        wrong(
            "tracked-low",
            "actions[2].ladder",
            format!("ladder[1]: {one_rung}"),
            with(
                one_more("actions", on("disk", "Low", json!([scale(1), tracks(9)]))),
                one_more("metrics", json!({"name": "disk", "source": {"push": {}}, "low": {"raise": "1"}})),
            ),
        ),
        wrong("paces", "actions", "actions[2]: all actions on side Target need the same min and max", paces),
        rules("boundless", at, "track and schedule need max, at least 1", json!({"track": track})),
        rules("crossed", at, "min must not be above max", more(json!({"min": 10}))),
        rules(
            "doubled",
            at,
            "set exactly one of by, factor, to, track (or schedule without track)",
            more(json!({"by": 1})),
        ),
        rules(
            "target-zero",
            &format!("{at}.track"),
            "target must be above 0",
            json!({"track": {"type": "Value", "target": "0"}, "max": 9}),
        ),
        rules(
            "below-zero",
            &format!("{at}.track"),
            "target must be above 0",
            json!({"track": {"type": "Value", "target": "-5"}, "max": 9}),
        ),
        rules(
            "percent",
            &format!("{at}.track"),
            "target of a Utilization is a whole number of percent, such as 60",
            json!({"track": {"type": "Utilization", "target": "0.6"}, "max": 9}),
        ),
        rules(
            "tolerance",
            &format!("{at}.track.tolerance"),
            "up must be 0 or more",
            json!({"track": {"type": "Value", "target": "5", "tolerance": {"up": "-0.1"}}, "max": 9}),
        ),
        rules("window", &format!("{at}.down"), "window must be at most 1h", more(json!({"down": {"window": "61m"}}))),
        rules(
            "policy",
            &format!("{at}.up.policies[0]"),
            "set exactly one of pods, percent",
            more(json!({"up": {"policies": [{"pods": 1, "percent": 1, "per": "15s"}]}})),
        ),
        wrong(
            "pace",
            at,
            "up, down, cooldown and forecast go with track",
            with(
                one_more("actions", on("disk", "Low", json!([{"scale": {"by": 1, "max": 5, "up": {"window": "5s"}}}]))),
                one_more("metrics", json!({"name": "disk", "source": {"push": {}}, "low": {"raise": "1"}})),
            ),
        ),
    ]
}

fn wrong_combinations() -> Vec<WrongLoop> {
    let alarm = |metric: &str, side: &str| json!({"metric": metric, "side": side});
    let (cpu, memory) = (alarm("cpu", "Low"), alarm("memory", "Low"));
    let combined = |name, at: &str, message: &str, list: &str, alarms: Value| {
        wrong(name, at, message, one_more("actions", json!({"when": {list: alarms}, "ladder": [scale(1)]})))
    };
    let no_level = |metric: &str, side: &str, needs: &str| {
        format!("actions[2]: metric \"{metric}\" has no alarm on side {side}: it needs {needs}")
    };
    let mut twice = one_more("actions", json!({"when": {"all": [cpu, memory]}, "ladder": [scale(1)]}));
    let again = json!({"when": {"all": [memory, cpu]}, "ladder": [scale(2)]});
    twice["actions"].as_array_mut().expect("actions").push(again);
    let silent_disk = with(
        one_more("metrics", silent("disk")),
        one_more("actions", json!({"when": {"any": [cpu, alarm("disk", "Missing")]}, "ladder": [scale(1), scale(-1)]})),
    );
    let unknown = format!("actions[2]: metric \"latncy\" is not in metrics {KNOWN}");
    let same = "actions[2]: another action has the same alarms in when.all; give one of them a longer ladder instead";
    let lowers = "ladder[1]: an action on side Missing must not lower capacity";
    vec![
        combined("all-metric", "actions", &unknown, "all", json!([cpu, alarm("latncy", "High")])),
        combined("any-metric", "actions", &unknown, "any", json!([alarm("latncy", "High"), cpu])),
        combined(
            "all-level",
            "actions",
            &no_level("memory", "High", "high"),
            "all",
            json!([cpu, alarm("memory", "High")]),
        ),
        combined(
            "any-level",
            "actions",
            &no_level("cpu", "Missing", "missing with then: Alarm"),
            "any",
            json!([alarm("cpu", "Missing"), memory]),
        ),
        combined(
            "all-target",
            "actions[2].when.all",
            "all[1]: side Target cannot be combined with other alarms",
            "all",
            json!([cpu, alarm("memory", "Target")]),
        ),
        combined(
            "any-twice",
            "actions[2].when.any",
            "any[0] and any[2] are the same alarm",
            "any",
            json!([cpu, memory, cpu]),
        ),
        wrong("combined-twice", "actions", same, twice),
        wrong("combined-lowers", "actions[2].ladder", lowers, silent_disk),
    ]
}

fn needless_metric() -> WrongLoop {
    wrong(
        "needless",
        "metrics",
        "metrics[2]: metric \"lag\" raises no alarm, and no formula or action on side Target uses it: set at least one of \
         low, high, equal, or missing with then: Alarm",
        one_more("metrics", json!({"name": "lag", "source": {"push": {}}})),
    )
}

fn unnamed_source() -> WrongLoop {
    wrong(
        "source",
        "metrics",
        "metrics[2]: source.loop of metric \"lag\" needs a name, since the target is a Deployment and not a ClosedLoop",
        one_more("metrics", json!({"name": "lag", "source": {"loop": {"rule": "LastServed"}}, "high": {"raise": "3"}})),
    )
}

/// The longest lists and names that the schema accepts: the cost of evaluating a message is limited, too.
fn largest() -> WrongLoop {
    let names: Vec<String> = (0..16).map(|index| format!("m{index:039}")).collect();
    let metric = |name| json!({"name": name, "source": {"push": {}}, "low": {"raise": "5"}, "high": {"raise": "80"}});
    let metrics: Vec<Value> = names.iter().map(metric).collect();
    let ladder = json!(vec![scale(1); 8]);
    let alarms = names.iter().flat_map(|name| [(name.as_str(), "Low"), (name.as_str(), "High")]);
    let unknown = "x".repeat(40);
    let actions = alarms.take(31).chain([(unknown.as_str(), "High")]);
    let actions: Vec<Value> = actions.map(|(metric, side)| on(metric, side, ladder.clone())).collect();
    wrong(
        "largest",
        "actions",
        format!("actions[31]: metric \"{unknown}\" is not in metrics (known: {names:?})"),
        json!({"policy": {"rank": names}, "metrics": metrics, "actions": actions}),
    )
}

/// The longest combinations that the schema accepts.
fn largest_combinations() -> WrongLoop {
    let names: Vec<String> = (0..16).map(|index| format!("m{index:039}")).collect();
    let metric = |name| json!({"name": name, "source": {"push": {}}, "low": {"raise": "5"}, "high": {"raise": "80"}});
    let metrics: Vec<Value> = names.iter().map(metric).collect();
    let alarms: Vec<Value> =
        names.iter().flat_map(|name| ["Low", "High"].map(|side| json!({"metric": name, "side": side}))).collect();
    let eight = |first: usize| alarms.iter().cycle().skip(first).take(8).cloned().collect::<Vec<_>>();
    let list = |index: usize| if index.is_multiple_of(2) { "all" } else { "any" };
    let action = |index: usize| json!({"when": {list(index): eight(index)}, "ladder": [scale(1)]});
    let mut actions: Vec<Value> = (0..32).map(action).collect();
    let unknown = "x".repeat(40);
    actions[31]["when"]["any"][7]["metric"] = json!(unknown);
    wrong(
        "largest-combinations",
        "actions",
        format!("actions[31]: metric \"{unknown}\" is not in metrics (known: {names:?})"),
        json!({"policy": {"rank": names}, "metrics": metrics, "actions": actions}),
    )
}

/// The loop of the demo with these members replaced.
fn wrong(name: &'static str, path: &str, message: impl Into<String>, members: Value) -> WrongLoop {
    WrongLoop { name, spec: with(demo(), members), path: format!("spec.{path}"), message: message.into() }
}

/// The list of the demo with an additional item.
fn one_more(list: &str, item: Value) -> Value {
    let mut items = demo()[list].as_array().cloned().unwrap_or_default();
    items.push(item);
    json!({list: items})
}

fn on(metric: &str, side: &str, ladder: Value) -> Value {
    json!({"when": {"metric": metric, "side": side}, "ladder": ladder})
}

fn silent(name: &str) -> Value {
    json!({"name": name, "source": {"push": {}}, "missing": {"then": "Alarm"}})
}

fn scale(by: i32) -> Value {
    if by > 0 { json!({"scale": {"by": by, "max": 9}}) } else { json!({"scale": {"by": by, "min": 1}}) }
}
