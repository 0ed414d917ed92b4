//! Writes the status of a NodeConfig if it is worth a write, and records the results of polls.

use jiff::{SignedDuration, Timestamp};

use super::{NodeConfigController, events};
use ganglion_api::marks;
use ganglion_api::node_config::status::NodeValue;
use ganglion_api::node_config::{NodeConfig, NodeConfigStatus};
use ganglion_core::conditions::Stamp;
use ganglion_core::facts::{Identity, Key};
use ganglion_nodes_plan::asked::Asked;
use ganglion_nodes_plan::news::{StatusTimes, Worth};
use ganglion_nodes_plan::readings::{NodeSample, Problem};
use ganglion_runtime::error::Error;
use ganglion_runtime::metrics::NodeMeasurement;

/// Delay of a poll after its last missing input arrived: inputs of other nodes may arrive meanwhile.
const SOON: std::time::Duration = std::time::Duration::from_secs(1);

/// Added to the time of the next staleness check while all polls succeed: a pass per node every three intervals would
/// cost more than the polls. The first failed poll enqueues the object at once.
const UNHEARD: SignedDuration = SignedDuration::from_secs(120);

impl NodeConfigController {
    /// Records the result of a poll. Enqueues the object if its status is worth a write.
    pub fn take(&self, key: &Key, values: &[NodeValue], result: &Result<Vec<NodeSample>, Problem>) {
        let (mut is_known, mut begins_to_fail) = (false, false);
        for (at, value) in values.iter().enumerate() {
            let one = match result {
                Ok(samples) => samples.get(at).cloned().map(Ok),
                Err(problem) => Some(Err(problem.clone())),
            };
            let Some(taken) = one.and_then(|one| self.memory.take(key, *value, one)) else { continue };
            is_known = true;
            begins_to_fail |= taken.begins_to_fail;
            if let Some(sample) = taken.sample {
                let measured = NodeMeasurement { value: sample.value, at: sample.at, interval: taken.interval };
                self.ctx.metrics.node_values.set(&key.to_string(), &taken.node, value.as_str(), measured);
            }
            if let Some(poll) = taken.wakes {
                self.polls.wake(poll, SOON);
            }
        }
        if begins_to_fail {
            // The pass schedules the staleness check, which may be due before the next poll.
            self.ctx.store.queue::<NodeConfig>().add([key.clone()]);
        } else if is_known {
            self.consider(key);
        }
    }

    /// Enqueues the object if its status is worth a write.
    pub fn consider(&self, key: &Key) {
        let object = self.ctx.store.read(|world| world.node_config(key).cloned());
        if let Some((_, Worth::Now)) = object.and_then(|object| self.news(key, &object)) {
            self.ctx.store.queue::<NodeConfig>().add([key.clone()]);
        }
    }

    /// Computes the status, and whether it is worth a write.
    fn news(&self, key: &Key, object: &NodeConfig) -> Option<(NodeConfigStatus, Worth)> {
        let stamp = Stamp { generation: object.metadata.generation.unwrap_or(0), now: self.ctx.now() };
        let nothing = NodeConfigStatus::default();
        let written = object.status.as_ref().unwrap_or(&nothing);
        let state = self.memory.state();
        let known = state.objects.get(key)?;
        let mut status = known.status(written, stamp)?;
        let longest = known.watched.asked.as_ref().ok().map(Asked::longest_interval).unwrap_or_default();
        status.valid_until = self.rule.valid_until(&status, longest, stamp.now);
        let times = StatusTimes { written: known.written_at, asked: known.since };
        let worth = self.rule.worth(written, &status, times, stamp.now);
        Some((status, worth))
    }

    /// Writes the status if it is worth a write. Returns the time of the next pass.
    pub async fn report(&self, key: &Key, object: &NodeConfig) -> Result<Option<Timestamp>, Error> {
        // Taken before the write: values that become stale during the write are not stale in it.
        let now = self.ctx.now();
        let Some((status, worth)) = self.news(key, object) else {
            return Ok(self.memory.state().objects.get(key).and_then(super::memory::Known::waits_until));
        };
        let later = match worth {
            Worth::Nothing => None,
            Worth::At(at) => Some(at),
            Worth::Now => {
                self.write(key, object, &status).await?;
                None
            }
        };
        let state = self.memory.state();
        let stale = state.objects.get(key).and_then(|known| {
            let asked = known.watched.asked.as_ref().ok()?;
            let stale = known.readings.next_stale(asked, now)?;
            let is_well = known.watched.measured().is_some() && !known.readings.has_problem(asked);
            let unheard = if is_well { UNHEARD } else { SignedDuration::ZERO };
            stale.checked_add(unheard).ok()
        });
        Ok(stale.into_iter().chain(later).min())
    }

    async fn write(&self, key: &Key, object: &NodeConfig, status: &NodeConfigStatus) -> Result<(), Error> {
        let id = Identity::from(&object.metadata);
        let write = self.ctx.writer.replace_status::<NodeConfig>(marks::NODE_CONFIG_STATUS_MANAGER, &id, status);
        self.ctx.write_own::<NodeConfig, NodeConfig>("RecordNodeConfig", object, write).await?;
        if let Some(known) = self.memory.state().objects.get_mut(key) {
            known.written_at = Some(self.ctx.now());
        }
        let before = object.status.clone().unwrap_or_default();
        if let Some(event) = events::transition_event(&before, status) {
            self.ctx.events.publish(events::subject(object), event);
        }
        Ok(())
    }
}
