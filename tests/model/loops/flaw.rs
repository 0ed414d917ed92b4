//! Operators with one flaw each: the real one, with its requests, or what it learns, changed on the way. Each must be caught
//! by the rule that is there for it.

use std::collections::BTreeMap;

use ganglion_api::decision::Entry;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, Asked, Sort};

/// What is wrong with the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// Acts without having recorded what it is about to do.
    SkipsClaim,
    /// Insists on no version.
    Careless,
    /// Remembers of no action when it was.
    ForgetsDwell,
    /// Counts as served what a limit blocked.
    CountsLimited,
    /// Takes what is no number for zero.
    ReadsZero,
    /// Writes into the loop's spec.
    WritesSpec,
    /// Leaves the bounds of the rung.
    Exceeds,
    /// Says that it has scaled, and has not.
    ClaimsSuccess,
    /// Writes with every look.
    Restless,
    /// Begins anew with the numbers of samples.
    ForgetsSequence,
    /// Never hears of samples.
    Deaf,
    /// Takes what another leader wrote for its own.
    TrustsOthers,
    /// Never looks again when time alone brings something to do.
    Oversleeps,
}

impl Flaw {
    /// The request that is carried out instead.
    pub fn bend(self, asked: &Asked) -> Asked {
        let mut bent = asked.clone();
        let status = asked.sub == "status";
        let body = &mut bent.body;
        match (self, asked.sort) {
            (Self::ForgetsDwell, Sort::Decision) if status => {
                body["status"]["acts"] = json!([]);
                let history = body.pointer_mut("/status/history").and_then(Value::as_array_mut);
                for line in history.into_iter().flatten() {
                    let Ok(mut entry) = Entry::deserialize(&*line) else { continue };
                    (entry.at, entry.ended) = (MicroTime(Timestamp::UNIX_EPOCH), None);
                    *line = json!(entry);
                }
            }
            (Self::CountsLimited, Sort::Decision) if status => {
                let counters = body.pointer_mut("/status/counters").and_then(Value::as_array_mut);
                for counter in counters.into_iter().flatten() {
                    let limited = counter["limited"].as_i64().unwrap_or(0);
                    counter["served"] = json!(counter["served"].as_i64().unwrap_or(0) + limited);
                }
            }
            (Self::Exceeds, Sort::Deployment) if asked.writes() => body["spec"]["replicas"] = json!(50),
            (Self::Restless, Sort::Monitoring) if status => drop(body["status"]["heartbeat"].take()),
            (Self::ForgetsSequence, Sort::Monitoring) if status && body["status"]["tag"]["sequence"] == json!(5) => {
                body["status"]["tag"]["sequence"] = json!(1);
            }
            (Self::WritesSpec, Sort::Loop) if status => {
                (bent.sub, bent.merge) = (String::new(), true);
                body["spec"] = json!({"interval": "7s"});
            }
            _ => {}
        }
        bent
    }

    /// What the operator believes has happened, where nothing does.
    pub fn pretend(self, asked: &Asked, api: &Api) -> Option<(u16, Value)> {
        let there = Value::clone(api.get(asked.sort, &asked.name)?);
        match self {
            Self::SkipsClaim if asked.sort == Sort::Execution && !asked.body["status"]["claim"].is_null() => {
                let mut claimed = there;
                claimed["status"] = asked.body["status"].clone();
                Some((200, claimed))
            }
            Self::ClaimsSuccess if asked.scales() => Some((200, there)),
            _ => None,
        }
    }

    /// What the nth process calls its leader term.
    pub fn term(self, process: u64) -> String {
        if self == Self::TrustsOthers { "same".to_owned() } else { format!("term{process}") }
    }

    /// What of a sample it gets to see.
    pub fn misread(self, values: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let read = |value: String| {
            let lost = self == Self::ReadsZero && value.parse::<f64>().map_or(true, |value| !value.is_finite());
            if lost { "0".to_owned() } else { value }
        };
        values.into_iter().map(|(name, value)| (name, read(value))).collect()
    }
}
