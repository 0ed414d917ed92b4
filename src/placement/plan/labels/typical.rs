//! The pod for which agents answer when a policy is delivered as labels.
//!
//! By default, its requests are the mean requests of recent pods, weighted by the requests themselves: those of the pod
//! to which a typical core, or byte, belongs. With a smaller pod, the agent `safe` would accept nodes that the large
//! pods of the workload overload.

use std::ops::RangeInclusive;

use crate::pigeon::LearnedDemand;
use crate::placed_pod::PlacedPod;
use ganglion_api::placement_policy::labels::{LabelOptions, TypicalRequest};
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::scalars::Number;
use ganglion_core::facts::Requests;
use ganglion_core::quantity::{self, QuantityError};

/// Requests in millicores and MiB before a pod was seen: what kube-scheduler assumes for a container without requests.
const FIRST: [i64; 2] = [100, 200];

/// Requests stay while they are so many times the learned ones: all labels depend on them.
const KEPT: RangeInclusive<f64> = 0.75..=1.33;

const MEBIBYTE: i64 = 1 << 20;

/// How the typical pod of a policy is chosen.
#[derive(Clone, Debug)]
pub struct TypicalRules {
    /// Requests of the spec, as text, and in millicores and bytes.
    given: TypicalRequest,
    cpu: Option<i64>,
    memory: Option<i64>,
    /// Scheduler whose pods are learned from.
    pub scheduler: String,
}

/// A pod with these requests, without labels and owner.
#[derive(Clone, Debug)]
pub struct TypicalPod {
    pub request: TypicalRequest,
    pub pod: PlacedPod,
}

impl TypicalRules {
    /// An error if an amount cannot be parsed.
    pub fn new(options: Option<&LabelOptions>, scheduler: &str) -> Result<Self, (PolicyReason, String)> {
        let given = options.and_then(|options| options.typical_request.clone()).unwrap_or_default();
        let invalid = |field: &str, error: QuantityError| {
            (PolicyReason::SpecInvalid, format!("labels.typicalRequest.{field}: {error}"))
        };
        let parsed = |amount: &Option<Number>, parse: fn(&str) -> Result<i64, QuantityError>, field: &str| {
            amount.as_ref().map(|text| parse(&text.0)).transpose().map_err(|error| invalid(field, error))
        };
        let cpu = parsed(&given.cpu, quantity::cpu_millis, "cpu")?;
        let memory = parsed(&given.memory, quantity::bytes, "memory")?;
        Ok(Self { given, cpu, memory, scheduler: scheduler.to_owned() })
    }

    /// The typical pod. `former`: its requests in the pass before.
    pub fn pod(&self, learned: &LearnedDemand, former: Option<&TypicalRequest>) -> TypicalPod {
        let former = former.cloned().unwrap_or_default();
        let [cpu, memory] = weighted(learned);
        let former_cpu = former.cpu.and_then(|text| quantity::cpu_millis(&text.0).ok());
        let cpu = self.cpu.unwrap_or_else(|| settled(former_cpu, cpu).unwrap_or(FIRST[0]));
        let former_memory = former.memory.and_then(|text| quantity::bytes(&text.0).ok());
        let mebibytes = settled(former_memory.map(|bytes| bytes / MEBIBYTE), memory).unwrap_or(FIRST[1]);
        let memory = self.memory.unwrap_or(mebibytes.saturating_mul(MEBIBYTE));
        let request = TypicalRequest {
            cpu: self.given.cpu.clone().or_else(|| Some(Number(quantity::show_millis(cpu)))),
            memory: self.given.memory.clone().or_else(|| Some(Number(format!("{mebibytes}Mi")))),
        };
        let requests = Requests { cpu, memory, ..Requests::default() };
        let scheduler = self.scheduler.clone();
        TypicalPod { request, pod: PlacedPod { requests, cores: cpu, scheduler, ..PlacedPod::default() } }
    }
}

/// Mean requests in millicores and MiB, weighted by themselves; None before a pod was seen.
fn weighted(learned: &LearnedDemand) -> [Option<f64>; 2] {
    // The demand of a pod begins with these two.
    [0, 1].map(|column| {
        let mean = learned.mean[column];
        (learned.arrivals > 0 && mean > 0.0).then(|| mean + learned.covariance[column][column] / mean)
    })
}

/// The former amount while it is near the learned one, otherwise the learned one with two digits, at least 1.
fn settled(former: Option<i64>, learned: Option<f64>) -> Option<i64> {
    let learned = learned?;
    #[expect(clippy::cast_precision_loss, reason = "compared with a wide range")]
    let is_near = |former: &i64| KEPT.contains(&(*former as f64 / learned));
    Some(former.filter(is_near).unwrap_or_else(|| rounded(learned)))
}

/// The number with two digits, at least 1.
#[expect(clippy::cast_possible_truncation, reason = "a bounded number")]
fn rounded(number: f64) -> i64 {
    let number = number.clamp(1.0, 1e15);
    let unit = 10_f64.powf((number.log10().floor() - 1.0).max(0.0));
    ((number / unit).round() * unit) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::pigeon::SMOOTHING;

    fn learned(pods: &[(f64, f64)]) -> LearnedDemand {
        let mut learned = LearnedDemand::default();
        for (cpu, memory) in pods {
            learned.learn(&[*cpu, *memory, 1.0, 0.0, 0.0], SMOOTHING);
        }
        learned
    }

    fn request(cpu: &str, memory: &str) -> TypicalRequest {
        TypicalRequest { cpu: Some(Number(cpu.to_owned())), memory: Some(Number(memory.to_owned())) }
    }

    fn rules(given: Option<TypicalRequest>) -> TypicalRules {
        let options = LabelOptions { typical_request: given, ..LabelOptions::default() };
        TypicalRules::new(Some(&options), "green").expect("valid amounts")
    }

    #[test]
    fn without_pods_it_is_a_pod_without_requests() {
        let TypicalPod { request: found, pod } = rules(None).pod(&LearnedDemand::default(), None);
        assert_eq!(found, request("100m", "200Mi"));
        assert_eq!((pod.requests.cpu, pod.cores, pod.requests.memory), (100, 100, 200 << 20));
        assert_eq!(pod.scheduler, "green");
    }

    /// A typical core belongs to a larger pod than the mean: (1 + 1 + 16) / 6 cores.
    #[test]
    fn large_pods_count_more() {
        let learned = learned(&[(1000.0, 2048.0), (1000.0, 2048.0), (4000.0, 2048.0)]);
        assert_eq!(rules(None).pod(&learned, None).request, request("3", "2000Mi"));
        let given = TypicalRequest { memory: None, ..request("250m", "") };
        assert_eq!(rules(Some(given)).pod(&learned, None).request, request("250m", "2000Mi"));
        assert_eq!(rules(Some(request("0.5", "1Gi"))).pod(&learned, None).request, request("0.5", "1Gi"));
    }

    #[rstest]
    #[case::near("850m", "850m")]
    #[case::also_near("1300m", "1300m")]
    #[case::small("700m", "1")]
    #[case::large("1400m", "1")]
    #[case::not_a_number("much", "1")]
    fn it_changes_noticeably_or_not_at_all(#[case] former: &str, #[case] expected: &str) {
        let former = request(former, "300Mi");
        let found = rules(None).pod(&learned(&[(1000.0, 300.0)]), Some(&former)).request;
        assert_eq!(found, request(expected, "300Mi"));
    }

    proptest! {
        /// The amounts in the status are those that the agents get, and a second pass changes nothing.
        #[test]
        fn the_status_has_the_amounts_of_the_pod(
            pods in prop::collection::vec((0.0_f64..1e9, 0.0_f64..1e9), 0..20),
        ) {
            let learned = learned(&pods);
            let TypicalPod { request, pod } = rules(None).pod(&learned, None);
            let text = |number: &Option<Number>| number.clone().expect("an amount").0;
            prop_assert_eq!(quantity::cpu_millis(&text(&request.cpu)).ok(), Some(pod.requests.cpu));
            prop_assert_eq!(quantity::bytes(&text(&request.memory)).ok(), Some(pod.requests.memory));
            prop_assert!(pod.requests.cpu > 0 && pod.requests.memory > 0);
            prop_assert_eq!(&rules(None).pod(&learned, Some(&request)).request, &request);
        }
    }
}
