//! The pod for which agents answer when a policy is delivered as labels.
//!
//! By default, its requests are the mean requests of the pods on the nodes, weighted by the requests themselves: those
//! of the pod to which a typical core, or byte, belongs. With a smaller pod, the agent `safe` would accept nodes that
//! the large pods of the workload overload. Pods without a node do not count: otherwise, the author of a pod that fits
//! nowhere could change the labels for all.

use std::ops::RangeInclusive;

use crate::placed_pod::PlacedPod;
use ganglion_api::placement_policy::labels::{LabelOptions, TypicalRequest};
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::scalars::Number;
use ganglion_core::facts::Requests;
use ganglion_core::quantity::{self, QuantityError};
use ganglion_core::world::World;

/// Requests in millicores and MiB without pods that request any: what kube-scheduler assumes for such a container.
const MILLICORES: i64 = 100;
const MEBIBYTES: i64 = 200;

/// Requests stay while they are so many times those of the pods: all labels depend on them.
const KEPT: RangeInclusive<f64> = 0.75..=1.33;

const MEBIBYTE: i64 = 1 << 20;

/// How the typical pod of a policy is chosen.
#[derive(Clone, Debug)]
pub struct TypicalRules {
    /// Requests of the spec, as text, and in millicores and bytes.
    given: TypicalRequest,
    cpu: Option<i64>,
    memory: Option<i64>,
    scheduler: String,
}

/// Requests of the pods on the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlacedRequests {
    /// In millicores.
    cpu: RequestSums,
    /// In bytes.
    memory: RequestSums,
}

/// Sum of the requests for a resource, and of their squares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RequestSums {
    requests: i128,
    squares: i128,
}

impl PlacedRequests {
    pub fn of(world: &World) -> Self {
        let mut placed = Self::default();
        for node in world.nodes() {
            for hold in world.holds(&node.name()) {
                placed.add(hold.requests, node.allocatable);
            }
        }
        placed
    }

    /// Adds a pod. Its author may have named the node, which then refuses a pod that is larger.
    fn add(&mut self, requests: Requests, allocatable: Requests) {
        self.cpu.add(requests.cpu.min(allocatable.cpu));
        self.memory.add(requests.memory.min(allocatable.memory));
    }
}

impl RequestSums {
    fn add(&mut self, request: i64) {
        let request = i128::from(request.max(0));
        self.requests = self.requests.saturating_add(request);
        self.squares = self.squares.saturating_add(request.saturating_mul(request));
    }

    /// Mean of the requests, weighted by themselves; None without requests.
    #[expect(clippy::cast_precision_loss, reason = "rounded to two digits")]
    fn weighted_mean(self) -> Option<f64> {
        (self.requests > 0).then(|| self.squares as f64 / self.requests as f64)
    }
}

/// A pod with these requests, without labels and owner.
#[derive(Clone, Debug)]
pub struct TypicalPod {
    pub request: TypicalRequest,
    pub pod: PlacedPod,
}

impl TypicalPod {
    /// Two of these pods as one: until a label changes, another pod may come.
    pub fn pair(&self) -> PlacedPod {
        let Requests { cpu, memory, .. } = self.pod.requests;
        let requests = Requests { cpu: cpu.saturating_mul(2), memory: memory.saturating_mul(2), ..self.pod.requests };
        PlacedPod { requests, cores: self.pod.cores.saturating_mul(2), ..self.pod.clone() }
    }
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
    pub fn pod(&self, placed: &PlacedRequests, former: Option<&TypicalRequest>) -> TypicalPod {
        let former = former.cloned().unwrap_or_default();
        let former_cpu = former.cpu.and_then(|text| quantity::cpu_millis(&text.0).ok());
        let cpu = self.cpu.unwrap_or_else(|| settled(former_cpu, placed.cpu.weighted_mean()).unwrap_or(MILLICORES));
        let former_memory = former.memory.and_then(|text| quantity::bytes(&text.0).ok());
        let present = placed.memory.weighted_mean().map(|bytes| bytes / f64::from(1 << 20));
        let mebibytes = settled(former_memory.map(|bytes| bytes / MEBIBYTE), present).unwrap_or(MEBIBYTES);
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

/// The former amount while it is near the present one, otherwise the present one with two digits, at least 1.
fn settled(former: Option<i64>, present: Option<f64>) -> Option<i64> {
    let present = present?;
    #[expect(clippy::cast_precision_loss, reason = "compared with a wide range")]
    let is_near = |former: &i64| KEPT.contains(&(*former as f64 / present));
    Some(former.filter(is_near).unwrap_or_else(|| rounded(present)))
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
    use crate::tests::inventory::{hold, identity, node, pod};
    use crate::world::registered;
    use ganglion_core::facts::PodFact;
    use ganglion_core::world::Origin;

    const LARGE: Requests = Requests { cpu: i64::MAX, memory: i64::MAX, gpu: 0, storage: 0 };

    /// Pods with these millicores and MiB.
    fn placed(pods: &[(i64, i64)]) -> PlacedRequests {
        let mut placed = PlacedRequests::default();
        for (cpu, mebibytes) in pods {
            placed.add(Requests { cpu: *cpu, memory: mebibytes << 20, ..Requests::default() }, LARGE);
        }
        placed
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
        let TypicalPod { request: found, pod } = rules(None).pod(&PlacedRequests::default(), None);
        assert_eq!(found, request("100m", "200Mi"));
        assert_eq!((pod.requests.cpu, pod.cores, pod.requests.memory), (100, 100, 200 << 20));
        assert_eq!(pod.scheduler, "green");
        let pair = TypicalPod { request: found, pod }.pair();
        assert_eq!((pair.requests.cpu, pair.cores, pair.requests.memory), (200, 200, 400 << 20));
    }

    /// A typical core belongs to a larger pod than the mean: (1 + 1 + 16) / 6 cores.
    #[test]
    fn large_pods_count_more() {
        let placed = placed(&[(1000, 2048), (1000, 2048), (4000, 2048)]);
        assert_eq!(rules(None).pod(&placed, None).request, request("3", "2000Mi"));
        let given = TypicalRequest { memory: None, ..request("250m", "") };
        assert_eq!(rules(Some(given)).pod(&placed, None).request, request("250m", "2000Mi"));
        assert_eq!(rules(Some(request("0.5", "1Gi"))).pod(&placed, None).request, request("0.5", "1Gi"));
    }

    #[rstest]
    #[case::near("850m", "850m")]
    #[case::also_near("1300m", "1300m")]
    #[case::small("700m", "1")]
    #[case::large("1400m", "1")]
    #[case::not_a_number("much", "1")]
    fn it_changes_noticeably_or_not_at_all(#[case] former: &str, #[case] expected: &str) {
        let former = request(former, "300Mi");
        let found = rules(None).pod(&placed(&[(1000, 300)]), Some(&former)).request;
        assert_eq!(found, request(expected, "300Mi"));
    }

    /// Pods without a node, on a node that does not exist, finished ones, and amounts that no node has.
    #[test]
    fn only_what_nodes_can_run_counts() {
        let mut world = registered();
        world.apply(node("n1", 1, &[]), Origin::Watch);
        let huge = |name: &str, node| pod(name, 1, node, hold(1_000_000, 5));
        world.apply(pod("real", 1, Some("n1"), hold(1000, 5)), Origin::Watch);
        world.apply(huge("waits", None), Origin::Watch);
        world.apply(huge("nowhere", Some("other")), Origin::Watch);
        world.apply(PodFact { finished: true, ..huge("refused", Some("n1")) }, Origin::Watch);
        let typical = |world: &World| rules(None).pod(&PlacedRequests::of(world), None).request;
        assert_eq!(typical(&world), request("1", "1000Mi"));
        world.apply(huge("named", Some("n1")), Origin::Watch);
        assert_eq!(typical(&world).cpu, Some(Number("7200m".to_owned())), "eight cores count, which the node has");
        world.remove::<PodFact>(&identity("n", "named", 2));
        assert_eq!(typical(&world), request("1", "1000Mi"));
    }

    proptest! {
        /// The amounts in the status are those that the agents get, and a second pass changes nothing.
        #[test]
        fn the_status_has_the_amounts_of_the_pod(
            pods in prop::collection::vec((0..i64::MAX, 0_i64..1 << 43), 0..20),
        ) {
            let placed = placed(&pods);
            let TypicalPod { request, pod } = rules(None).pod(&placed, None);
            let text = |number: &Option<Number>| number.clone().expect("an amount").0;
            prop_assert_eq!(quantity::cpu_millis(&text(&request.cpu)).ok(), Some(pod.requests.cpu));
            prop_assert_eq!(quantity::bytes(&text(&request.memory)).ok(), Some(pod.requests.memory));
            prop_assert!(pod.requests.cpu > 0 && pod.requests.memory > 0);
            prop_assert_eq!(&rules(None).pod(&placed, Some(&request)).request, &request);
        }
    }
}
