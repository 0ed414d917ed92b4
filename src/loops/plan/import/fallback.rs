//! `fallback` of a ScaledObject as `missing` of each metric.
//!
//! KEDA reports the target times `fallback.replicas`, which is that number of replicas if the value is divided by the
//! number of replicas. For a Value it is not, so such a fallback is refused.

use serde::Deserialize;
use serde_json::{Value, json};

use super::difference::ImportDifference;
use super::draft::{LoopDraft, TrackDraft};
use ganglion_core::quantity;

/// Nanos in one.
const ONE: i128 = 1_000_000_000;

/// Longest age of a value, in seconds: a day.
const LONGEST: i64 = 86_400;

/// `spec.fallback`.
#[derive(Deserialize, Clone, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KedaFallback {
    failure_threshold: i32,
    replicas: i32,
    behavior: Option<String>,
}

impl KedaFallback {
    /// The fallback for a loop with this interval in seconds. None: it was refused.
    pub fn parse(&self, draft: &mut LoopDraft, interval: i32) -> Option<Fallback> {
        if let Some(other) = self.behavior.as_deref().filter(|other| !matches!(*other, "" | "static")) {
            draft.refuse(format!(
                "fallback.behavior is {other}: use static, or remove fallback; a loop then holds the number"
            ));
            return None;
        }
        if self.replicas < 1 {
            draft.refuse(format!(
                "fallback.replicas is {}: for a loop, an outage is not 0. Use 1 or more, or remove fallback",
                self.replicas
            ));
            return None;
        }
        draft.differs([ImportDifference::AssumedNeverLowers]);
        let seconds = i64::from(self.failure_threshold).max(1).saturating_mul(i64::from(interval)).min(LONGEST);
        Some(Fallback { replicas: self.replicas, after: format!("{seconds}s") })
    }
}

/// Replicas that count after failures, and the age of the last value from which they count.
#[derive(Clone, Debug)]
pub struct Fallback {
    replicas: i32,
    after: String,
}

impl Fallback {
    /// `missing` of a metric that is tracked like this.
    pub fn missing(&self, track: &TrackDraft) -> Result<Value, String> {
        if track.type_ != "AverageValue" {
            return Err(
                "fallback with metricType Value divides by ready pods: use AverageValue, or remove fallback".into()
            );
        }
        let product = quantity::nanos(&track.target).ok().and_then(|one| one.checked_mul(i128::from(self.replicas)));
        let Some(product) = product.filter(|product| (0..=quantity::MAX_NANOS).contains(product)) else {
            return Err(format!(
                "fallback: {} times {} is no number that a loop can use; change the target, or remove fallback",
                track.target, self.replicas
            ));
        };
        let (whole, rest) = (product / ONE, product % ONE);
        let value = if rest == 0 { whole.to_string() } else { format!("{whole}.{rest:09}") };
        Ok(json!({"after": self.after, "then": "Assume", "value": value}))
    }
}
