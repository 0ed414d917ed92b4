//! `behavior` of a HorizontalPodAutoscaler as `up`, `down` and `tolerance`.
//!
//! Without `behavior`, the autoscaler has another algorithm, so `up` and `down` are left out, too. Values that are the
//! defaults are left out: the API server writes all of them into the object.

use serde::Deserialize;
use serde_json::{Value, json};

use super::difference::ImportDifference;
use super::draft::LoopDraft;

/// `spec.behavior`.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HpaBehavior {
    scale_up: Option<HpaRules>,
    scale_down: Option<HpaRules>,
}

/// Rules of one direction.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HpaRules {
    stabilization_window_seconds: Option<i32>,
    select_policy: Option<String>,
    policies: Option<Vec<HpaPolicy>>,
    tolerance: Option<String>,
}

#[derive(Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HpaPolicy {
    #[serde(rename = "type")]
    type_: String,
    value: i32,
    period_seconds: i32,
}

/// A direction with its defaults.
struct HpaDirection {
    name: &'static str,
    window: i32,
    policies: &'static [(&'static str, i32, i32)],
}

const UP: HpaDirection =
    HpaDirection { name: "scaleUp", window: 0, policies: &[("Pods", 4, 15), ("Percent", 100, 15)] };

const DOWN: HpaDirection = HpaDirection { name: "scaleDown", window: 300, policies: &[("Percent", 100, 15)] };

/// Largest change that a policy of a loop allows.
const MOST: i32 = 100_000;

/// Adds the pace of a HorizontalPodAutoscaler to the loop.
pub fn convert(draft: &mut LoopDraft, behavior: Option<&HpaBehavior>) {
    let Some(behavior) = behavior else {
        draft.differs([ImportDifference::WindowHolds, ImportDifference::LoweringWindow]);
        return;
    };
    let (up, down) = (behavior.scale_up.clone().unwrap_or_default(), behavior.scale_down.clone().unwrap_or_default());
    if down.stabilization_window_seconds.is_none() {
        draft.differs([ImportDifference::LoweringWindow]);
    }
    let given = [up.tolerance.is_some(), down.tolerance.is_some()];
    if given.contains(&true) {
        let mut tolerance = json!({});
        for (name, number) in [("up", &up.tolerance), ("down", &down.tolerance)] {
            if let Some(number) = number {
                tolerance[name] = json!(number);
            }
        }
        draft.tolerance = Some(tolerance);
    }
    let (up, down) = (direction(draft, &up, &UP), direction(draft, &down, &DOWN));
    draft.pace.insert("up".to_owned(), up);
    draft.pace.insert("down".to_owned(), down);
}

fn direction(draft: &mut LoopDraft, rules: &HpaRules, defaults: &HpaDirection) -> Value {
    let mut pace = json!({});
    if let Some(policies) = &rules.policies {
        let is_default = policies.len() == defaults.policies.len()
            && policies
                .iter()
                .all(|one| defaults.policies.contains(&(one.type_.as_str(), one.value, one.period_seconds)));
        if !is_default {
            let policies: Vec<Value> =
                policies.iter().enumerate().filter_map(|(at, one)| policy(draft, one, defaults.name, at)).collect();
            pace["policies"] = json!(policies);
        }
    }
    match rules.select_policy.as_deref() {
        None | Some("Max") => {}
        Some(select @ ("Min" | "Disabled")) => pace["select"] = json!(select),
        Some(other) => {
            draft.refuse(format!("behavior.{}.selectPolicy is {other}: use Max, Min or Disabled", defaults.name))
        }
    }
    if let Some(window) = rules.stabilization_window_seconds.filter(|window| *window != defaults.window) {
        pace["window"] = json!(format!("{window}s"));
    }
    pace
}

fn policy(draft: &mut LoopDraft, policy: &HpaPolicy, direction: &str, at: usize) -> Option<Value> {
    let HpaPolicy { type_, value, period_seconds } = policy;
    let field = format!("behavior.{direction}.policies[{at}]");
    if !(1..=MOST).contains(value) {
        draft.refuse(format!("{field}.value is {value}: use 1 to {MOST}"));
    }
    let member = match type_.as_str() {
        "Pods" => "pods",
        "Percent" => {
            draft.differs([ImportDifference::PercentOfZero]);
            "percent"
        }
        _ => {
            draft.refuse(format!("{field}.type is {type_}: use Pods or Percent"));
            return None;
        }
    };
    Some(json!({member: value, "per": format!("{period_seconds}s")}))
}
