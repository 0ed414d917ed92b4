//! Triggers of actions: one alarm, or a combination of alarms.
//!
//! A combination is evaluated from the active alarms alone, so it has no state of its own that a restart could lose.

use std::fmt::{Display, Formatter, Result as FmtResult};

use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::metric::Side;
use super::rules;
use crate::line::{variant, word};

/// Minimum number of alarms in a combination. One alarm has a form of its own.
const COMBINED_LEAST: usize = 2;

/// An alarm of a metric.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct Alarm {
    /// Name of the metric.
    #[schemars(length(min = 1, max = 40))]
    pub metric: String,
    /// Low, High, Equal, Missing, or Target.
    pub side: Side,
}

/// Trigger of an action.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(from = "WhenFields", into = "WhenFields")]
pub enum When {
    /// This alarm is active.
    One(Alarm),
    /// All of these alarms are active.
    All(Vec<Alarm>),
    /// At least one of these alarms is active.
    Any(Vec<Alarm>),
}

/// An alarm, or a combination of alarms. Either metric and side are set, or all, or any.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.metric) == has(self.side) && [has(self.metric), has(self.all), has(self.any)].filter(set, set).size() == 1").message("set metric and side, or all, or any"),
    validation = rules::combined_sides("all"),
    validation = rules::combined_sides("any"),
    validation = rules::combined_once("all"),
    validation = rules::combined_once("any"),
)]
struct WhenFields {
    /// Name of the metric. The action is for the alarm of this metric on this side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 40))]
    metric: Option<String>,
    /// Low, High, Equal, Missing, or Target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    side: Option<Side>,
    /// The action is for all of these alarms together: it is taken only while every one of them is active. While the
    /// value of one is unknown, it is not taken. In the order of alarms, the combination has the place of its alarm
    /// that is first there, before the action for that alarm alone. 2 to 8; not on side Target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 8))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    all: Option<Vec<Alarm>>,
    /// The action is for each of these alarms: it is taken while at least one of them is active and its value is known.
    /// In the order of alarms, the combination has the place of its active alarm that is first there, after the action
    /// for that alarm alone. 2 to 8; not on side Target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 8))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    any: Option<Vec<Alarm>>,
}

impl When {
    /// The alarms, in the order of the spec.
    pub fn alarms(&self) -> &[Alarm] {
        match self {
            Self::One(alarm) => std::slice::from_ref(alarm),
            Self::All(alarms) | Self::Any(alarms) => alarms,
        }
    }

    /// The alarm, unless it is a combination.
    pub fn one(&self) -> Option<&Alarm> {
        match self {
            Self::One(alarm) => Some(alarm),
            Self::All(_) | Self::Any(_) => None,
        }
    }

    /// Whether the number of replicas follows a metric. Such an alarm is never combined.
    pub fn is_target(&self) -> bool {
        self.one().is_some_and(|alarm| alarm.side == Side::Target)
    }

    /// Whether one of the alarms is of this metric.
    pub fn is_about(&self, metric: &str) -> bool {
        self.alarms().iter().any(|alarm| alarm.metric == metric)
    }

    /// Whether the action is triggered, if these alarms are active.
    pub fn is_met(&self, is_active: impl Fn(&Alarm) -> bool) -> bool {
        match self {
            Self::One(alarm) => is_active(alarm),
            Self::All(alarms) => !alarms.is_empty() && alarms.iter().all(is_active),
            Self::Any(alarms) => alarms.iter().any(is_active),
        }
    }

    /// Short name for a message: the metric, or all alarms of a combination.
    pub fn subject(&self) -> String {
        self.one().map_or_else(|| self.to_string(), |alarm| alarm.metric.clone())
    }

    /// Reads the text of [`When`] at the beginning of a line. Returns it with the rest of the line.
    pub(crate) fn read(line: &str) -> Option<(Self, &str)> {
        let (first, rest) = read_alarm(line)?;
        let more = |joint: &str| read_more(first.clone(), joint, rest);
        let all = more(ALL).map(|(alarms, rest)| (Self::All(alarms), rest));
        let any = || more(ANY).map(|(alarms, rest)| (Self::Any(alarms), rest));
        all.or_else(any).or(Some((Self::One(first.clone()), rest)))
    }
}

/// Words between the alarms of a combination in a text.
const ALL: &str = "and ";
const ANY: &str = "or ";

fn read_alarm(text: &str) -> Option<(Alarm, &str)> {
    let (side, rest) = text.split_once(' ')?;
    let (metric, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((Alarm { metric: metric.to_owned(), side: variant(side)? }, rest))
}

/// Reads the further alarms of a combination; None if there are none.
fn read_more<'a>(first: Alarm, joint: &str, mut rest: &'a str) -> Option<(Vec<Alarm>, &'a str)> {
    let mut alarms = vec![first];
    while let Some((alarm, after)) = rest.strip_prefix(joint).and_then(read_alarm) {
        alarms.push(alarm);
        rest = after;
    }
    (alarms.len() >= COMBINED_LEAST).then_some((alarms, rest))
}

impl Default for When {
    fn default() -> Self {
        Self::One(Alarm::default())
    }
}

impl Display for Alarm {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        write!(f, "{} {}", self.side, word(&self.metric))
    }
}

/// Such as `Low cpu`, `High queue and Low errors`, or `High queue or High latency`.
impl Display for When {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        let joint = match self {
            Self::One(_) | Self::All(_) => ALL,
            Self::Any(_) => ANY,
        };
        for (index, alarm) in self.alarms().iter().enumerate() {
            if index > 0 {
                write!(f, " {joint}")?;
            }
            write!(f, "{alarm}")?;
        }
        Ok(())
    }
}

/// Other forms, which the rules of a ClosedLoop refuse, become a condition without alarms: it is never met, and the
/// parsed spec names it. The object stays readable, as each object that the schema accepts must.
impl From<WhenFields> for When {
    fn from(fields: WhenFields) -> Self {
        let WhenFields { metric, side, all, any } = fields;
        match (metric, side, all, any) {
            (Some(metric), Some(side), None, None) => Self::One(Alarm { metric, side }),
            (None, None, Some(alarms), None) => Self::All(alarms),
            (None, None, None, Some(alarms)) => Self::Any(alarms),
            _ => Self::Any(Vec::new()),
        }
    }
}

impl From<When> for WhenFields {
    fn from(when: When) -> Self {
        match when {
            When::One(Alarm { metric, side }) => Self { metric: Some(metric), side: Some(side), ..Self::default() },
            When::All(alarms) => Self { all: Some(alarms), ..Self::default() },
            When::Any(alarms) => Self { any: Some(alarms), ..Self::default() },
        }
    }
}

impl JsonSchema for When {
    fn inline_schema() -> bool {
        WhenFields::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        WhenFields::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        WhenFields::json_schema(generator)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::{from_value, json};

    use super::*;

    fn alarm() -> impl Strategy<Value = Alarm> {
        let side = prop_oneof![Just(Side::Low), Just(Side::High), Just(Side::Equal), Just(Side::Missing)];
        // A metric may have the name of a joint.
        let metric =
            prop_oneof![4 => "[a-zA-Z][a-zA-Z0-9_]{0,39}", 1 => Just("and".to_owned()), 1 => Just("or".to_owned())];
        (metric, side).prop_map(|(metric, side)| Alarm { metric, side })
    }

    pub fn when() -> impl Strategy<Value = When> {
        let some = || proptest::collection::vec(alarm(), 2..9);
        prop_oneof![alarm().prop_map(When::One), some().prop_map(When::All), some().prop_map(When::Any)]
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_it_was_written(when in when(), rest in "([a-zA-Z0-9]{1,5}:?( [a-z]{1,5}){0,2})?") {
            prop_assume!(!rest.starts_with("and ") && !rest.starts_with("or "));
            let line = format!("{when} {rest}");
            prop_assert_eq!(When::read(line.trim_end()), Some((when, rest.as_str())));
        }

        #[test]
        fn an_object_is_read_as_it_was_written(when in when()) {
            prop_assert_eq!(from_value::<When>(json!(when)).unwrap(), when);
        }

        #[test]
        fn all_is_the_intersection_and_any_the_union(alarms in proptest::collection::vec(alarm(), 2..9), bits: u8) {
            let active: Vec<&Alarm> =
                alarms.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1).map(|(_, one)| one).collect();
            let is_active = |one: &Alarm| active.contains(&one);
            let each: Vec<bool> = alarms.iter().map(is_active).collect();
            prop_assert_eq!(When::All(alarms.clone()).is_met(is_active), !each.contains(&false));
            prop_assert_eq!(When::Any(alarms.clone()).is_met(is_active), each.contains(&true));
        }
    }

    #[test]
    fn the_text_is_for_people() {
        let alarm = |metric: &str, side: &str| json!({"metric": metric, "side": side});
        for (object, text) in [
            (alarm("cpu", "Low"), "Low cpu"),
            (json!({"all": [alarm("queue", "High"), alarm("errors", "Low")]}), "High queue and Low errors"),
            (json!({"any": [alarm("queue", "High"), alarm("lag", "High")]}), "High queue or High lag"),
        ] {
            assert_eq!(from_value::<When>(object).unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_forms_are_read_and_never_met() {
        let low = |metric: &str| json!({"metric": metric, "side": "Low"});
        for object in [
            json!({}),
            json!({"metric": "cpu"}),
            json!({"side": "Low"}),
            json!({"all": []}),
            json!({"all": [low("a"), low("b")], "any": [low("a"), low("b")]}),
            json!({"metric": "a", "side": "Low", "all": [low("a"), low("b")]}),
        ] {
            assert!(!from_value::<When>(object.clone()).unwrap().is_met(|_| true), "{object}");
        }
    }
}
