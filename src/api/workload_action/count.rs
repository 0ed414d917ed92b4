//! Number of replicas of an action: a number, or all replicas.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Maximum number of replicas that one action changes. The status contains a slot for each of them, and must stay small
/// enough for etcd.
pub const MOST_REPLICAS: i32 = 100;

const ALL: &str = "All";

/// A number of replicas, or `All`: all replicas that exist when the action begins.
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
