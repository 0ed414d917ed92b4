//! Writes the status of a NodeConfig if it is worth a write, and records the results of polls.

use super::polled::NodeState;
use super::{NodeConfigController, STATUS};
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::node_config::{NodeConfig, NodeConfigStatus};
use ganglion_core::conditions::{DATA_AVAILABLE, Stamp};
use ganglion_core::facts::Key;
use ganglion_core::status::StatusTiming;
use ganglion_core::world::Fact;
use ganglion_nodes_plan::news::StatusTimes;
use ganglion_nodes_plan::node_plan::POWER_ERROR;
use ganglion_nodes_plan::node_spec::ParsedNodeSpec;
use ganglion_nodes_plan::readings::{NodeSample, Problem};
use ganglion_nodes_plan::report::INACCURATE;
use ganglion_runtime::error::Error;
use ganglion_runtime::events::{
    ConditionChange, ConditionEvent, EventText, condition_events, node_reference, reference,
};
use ganglion_runtime::frame::Next;
use ganglion_runtime::metrics::NodeMeasurement;

/// Delay of a poll after its last missing input arrived: inputs of other nodes may arrive meanwhile.
const INPUT_DELAY: std::time::Duration = std::time::Duration::from_secs(1);

/// Conditions of a NodeConfig that have events.
const EVENTS: [ConditionEvent; 3] = [
    ConditionEvent::warning(DATA_AVAILABLE, "False", ConditionChange::Status),
    ConditionEvent::normal(DATA_AVAILABLE, "True", ConditionChange::Opposite),
    ConditionEvent::warning(INACCURATE, "True", ConditionChange::Status),
];

impl NodeConfigController {
    /// Records the result of a poll. Enqueues the object if its status is worth a write.
    pub fn record(&self, key: &Key, values: &[NodeValue], result: &Result<Vec<NodeSample>, Problem>) {
        let (mut is_known, mut begins_to_fail) = (false, false);
        for (at, value) in values.iter().enumerate() {
            let one = match result {
                Ok(samples) => samples.get(at).cloned().map(Ok),
                Err(problem) => Some(Err(problem.clone())),
            };
            let Some(outcome) = one.and_then(|one| self.polled.record(key, *value, one)) else { continue };
            is_known = true;
            begins_to_fail |= outcome.begins_to_fail;
            if let Some(sample) = outcome.sample {
                let measured = NodeMeasurement { value: sample.value, at: sample.at, interval: outcome.interval };
                let (object, node) = (key.to_string(), outcome.node.as_str());
                self.ctx.metrics.node_values.set(&object, node, value.as_str(), measured);
                if let Some(error) = outcome.error {
                    let error = NodeMeasurement { value: error, ..measured };
                    self.ctx.metrics.node_values.set(&object, node, POWER_ERROR, error);
                }
            }
            if let Some(poll) = outcome.wakes {
                self.polls.wake(poll, INPUT_DELAY);
            }
        }
        if begins_to_fail {
            // The reconcile schedules the staleness check, which may be due before the next poll.
            self.ctx.store.queue::<NodeConfig>().add([key.clone()]);
        } else if is_known {
            self.enqueue_if_changed(key);
        }
    }

    /// Enqueues the object if its status is worth a write.
    pub fn enqueue_if_changed(&self, key: &Key) {
        let object = self.ctx.store.read(|world| world.table::<NodeConfig>().get(key).cloned());
        if let Some((_, StatusTiming::Now)) = object.and_then(|object| self.next_status(key, &object)) {
            self.ctx.store.queue::<NodeConfig>().add([key.clone()]);
        }
    }

    /// Computes the status, and whether it is worth a write.
    fn next_status(&self, key: &Key, object: &NodeConfig) -> Option<(NodeConfigStatus, StatusTiming)> {
        let stamp = Stamp { generation: object.metadata.generation.unwrap_or(0), now: self.ctx.now() };
        let nothing = NodeConfigStatus::default();
        let written = object.status.as_ref().unwrap_or(&nothing);
        let state = self.polled.state();
        let known = state.objects.get(key)?;
        let mut status = known.status(written, stamp)?;
        let longest = known.plan.parsed.as_ref().ok().map(ParsedNodeSpec::longest_interval).unwrap_or_default();
        status.valid_until = self.rule.valid_until(&status, longest, stamp.now);
        let times = StatusTimes { written: known.written_at, polled_since: known.polled_since };
        let timing = self.rule.timing(written, &status, times, stamp.now);
        Some((status, timing))
    }

    /// Writes the status if it is worth a write.
    pub async fn report_status(&self, object: &NodeConfig) -> Result<Next, Error> {
        let key = object.id().key;
        // Taken before the write: values that become stale during the write are not stale in it.
        let now = self.ctx.now();
        let Some((status, timing)) = self.next_status(&key, object) else {
            let state = self.polled.state();
            return Ok(state.objects.get(&key).and_then(NodeState::first_values_deadline).into());
        };
        let later = match timing {
            StatusTiming::Never => None,
            StatusTiming::At(at) => Some(at),
            StatusTiming::Now => {
                self.write_status(&key, object, &status).await?;
                None
            }
        };
        let state = self.polled.state();
        let stale = state.objects.get(&key).and_then(|node| node.next_stale_check(now));
        Ok(Next::earliest([stale, later]))
    }

    async fn write_status(&self, key: &Key, object: &NodeConfig, status: &NodeConfigStatus) -> Result<(), Error> {
        let before = object.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
        let events = condition_events(&EVENTS, before, &status.conditions);
        // The node may be unknown: it does not exist, or the watch lags.
        let node = self.ctx.store.read(|world| world.node(&object.spec.node_name).map(|node| node.id.clone()));
        let related = node.as_ref().map(node_reference);
        let own = events.iter().map(|event| EventText { related: related.clone(), ..about_node(object, event) });
        STATUS.write(&self.ctx, object, status, own.collect::<Vec<_>>()).await?;
        if let Some(node) = related {
            for event in &events {
                self.ctx.events.publish(node.clone(), of_node(object, event));
            }
        }
        if let Some(node) = self.polled.state().objects.get_mut(key) {
            node.written_at = Some(self.ctx.now());
        }
        Ok(())
    }
}

/// Event of a NodeConfig, with the name of its node.
fn about_node(object: &NodeConfig, event: &EventText) -> EventText {
    EventText { note: format!("node {}: {}", object.spec.node_name, event.note), ..event.clone() }
}

/// The same event, of the node.
fn of_node(object: &NodeConfig, event: &EventText) -> EventText {
    let id = object.id();
    let text = EventText { note: format!("NodeConfig {}: {}", id.key, event.note), ..event.clone() };
    text.with_related(reference::<NodeConfig>(&id)).in_occurrence(&id.version)
}
