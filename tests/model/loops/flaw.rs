//! Operators with one flaw each: the real one, with its requests or its input changed on the way. Each flaw must be
//! detected by the rule that is meant for it.

use std::collections::BTreeMap;

use ganglion_api::decision::{Act, Direction, Entry, Outcome};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, Asked, Sort};
use super::process::now;

/// Flaw of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    /// Acts without a recorded claim.
    SkipsClaim,
    /// Sends no preconditions.
    Careless,
    /// Does not remember the times of its actions.
    ForgetsDwell,
    /// Counts limited actions as served.
    CountsLimited,
    /// Counts withdrawn and simulated decisions as actions.
    CountsProposals,
    /// Reads invalid numbers as zero.
    ReadsZero,
    /// Keeps the first value of a metric.
    KeepsValues,
    /// Counts the age of a value from each write.
    Rejuvenates,
    /// Counts the age of a value from the sender's time.
    TrustsSenders,
    /// Writes into the loop's spec.
    WritesSpec,
    /// Exceeds the bounds of the rung.
    Exceeds,
    /// Reports that it has scaled although it has not.
    ClaimsSuccess,
    /// Writes at each reconcile.
    Restless,
    /// Restarts the sequence numbers of samples.
    ForgetsSequence,
    /// Never receives samples.
    Deaf,
    /// Treats the writes of another leader as its own.
    TrustsOthers,
    /// Never reconciles when only a timer is due.
    Oversleeps,
}

/// The readings in the new status of a Monitoring.
fn readings(body: &mut Value) -> impl Iterator<Item = &mut Value> {
    body.pointer_mut("/status/values").and_then(Value::as_array_mut).into_iter().flatten()
}

impl Flaw {
    /// The request that is carried out instead.
    pub fn bend(self, asked: &Asked, api: &Api) -> Asked {
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
            (Self::CountsProposals, Sort::Decision) if status => {
                let history = body["status"]["history"].as_array().cloned().unwrap_or_default();
                let entries = history.iter().filter_map(|line| Entry::deserialize(line).ok());
                let undone = entries.filter(|one| matches!(one.outcome, Some(Outcome::Withdrawn | Outcome::DryRun)));
                let acts = undone.map(|entry| Act {
                    seq: entry.seq,
                    at: entry.at,
                    dry_run: false,
                    direction: Direction::Raise,
                    dimension: "replicas".to_owned(),
                });
                body["status"]["acts"] = json!(acts.collect::<Vec<_>>());
            }
            (Self::KeepsValues, Sort::Monitoring) if status => {
                let stored = api.get(asked.sort, &asked.name).map(|object| &object["status"]["values"]);
                for reading in readings(body) {
                    let mut kept = stored.and_then(Value::as_array).into_iter().flatten();
                    if let Some(kept) = kept.find(|kept| kept["metric"] == reading["metric"]) {
                        *reading = kept.clone();
                    }
                }
            }
            (Self::Rejuvenates, Sort::Monitoring) if status => {
                readings(body).for_each(|reading| reading["at"] = json!(MicroTime(now())));
            }
            (Self::TrustsSenders, Sort::Monitoring) if status => {
                let time = body["status"]["tag"]["time"].clone();
                readings(body).for_each(|reading| reading["at"] = time.clone());
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

    /// Fake answer for a request that is not carried out.
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

    /// Leader term of the nth process.
    pub fn term(self, process: u64) -> String {
        if self == Self::TrustsOthers { "same".to_owned() } else { format!("term{process}") }
    }

    /// Values of a sample as the operator receives them.
    pub fn misread(self, values: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let read = |value: String| {
            let lost = self == Self::ReadsZero && value.parse::<f64>().map_or(true, |value| !value.is_finite());
            if lost { "0".to_owned() } else { value }
        };
        values.into_iter().map(|(name, value)| (name, read(value))).collect()
    }
}
