//! How many replicas an action is about: a number, or all that there are.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The most replicas that one action changes. `status` holds a slot for each, and must stay small enough for etcd.
pub const MOST_REPLICAS: i32 = 100;

const ALL: &str = "All";

/// A number of replicas, or `All`: those that there are when the action begins.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(try_from = "IntOrString", into = "IntOrString")]
pub enum ReplicaCount {
    Number(i32),
    All,
}

impl TryFrom<IntOrString> for ReplicaCount {
    type Error = String;

    fn try_from(count: IntOrString) -> Result<Self, Self::Error> {
        match count {
            IntOrString::Int(number) => Ok(Self::Number(number)),
            IntOrString::String(text) if text == ALL => Ok(Self::All),
            IntOrString::String(text) => Err(format!("count is a number or {ALL}, not {text:?}")),
        }
    }
}

impl From<ReplicaCount> for IntOrString {
    fn from(count: ReplicaCount) -> Self {
        match count {
            ReplicaCount::Number(number) => Self::Int(number),
            ReplicaCount::All => Self::String(ALL.to_owned()),
        }
    }
}

impl JsonSchema for ReplicaCount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ReplicaCount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
            "minimum": 1, "maximum": MOST_REPLICAS, "maxLength": 3, "pattern": "^All$",
        })
    }
}
