//! The pod for which agents answer when a policy is delivered as labels.

use crate::placed_pod::PlacedPod;
use ganglion_api::placement_policy::labels::{LabelOptions, TypicalRequest};
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::scalars::Number;
use ganglion_core::facts::Requests;
use ganglion_core::quantity::{self, QuantityError};

/// Default requests: what kube-scheduler assumes for a container without requests.
const CPU: &str = "100m";
const MEMORY: &str = "200Mi";

/// A pod with these requests, without labels and owner.
#[derive(Clone, Debug)]
pub struct TypicalPod {
    pub request: TypicalRequest,
    pub pod: PlacedPod,
}

impl TypicalPod {
    /// The typical pod of a scheduler. An error if an amount cannot be parsed.
    pub fn new(options: Option<&LabelOptions>, scheduler: &str) -> Result<Self, (PolicyReason, String)> {
        let request = options.and_then(|options| options.typical_request.as_ref());
        let amount = |text: Option<&Number>, default: &str| text.map_or(default, |text| &text.0).to_owned();
        let cpu = amount(request.and_then(|request| request.cpu.as_ref()), CPU);
        let memory = amount(request.and_then(|request| request.memory.as_ref()), MEMORY);
        let invalid = |field: &str, error: QuantityError| {
            (PolicyReason::SpecInvalid, format!("labels.typicalRequest.{field}: {error}"))
        };
        let requests = Requests {
            cpu: quantity::cpu_millis(&cpu).map_err(|error| invalid("cpu", error))?,
            memory: quantity::bytes(&memory).map_err(|error| invalid("memory", error))?,
            ..Requests::default()
        };
        let pod = PlacedPod { requests, cores: requests.cpu, scheduler: scheduler.to_owned(), ..PlacedPod::default() };
        Ok(Self { request: TypicalRequest { cpu: Some(Number(cpu)), memory: Some(Number(memory)) }, pod })
    }
}
