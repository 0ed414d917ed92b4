//! Shared polls: their members, and distribution of the results.

use std::sync::Arc;

use super::model::ModelQuestion;
use super::{PollTrouble, usage};
use crate::config::NodeConfigController;
use crate::config::polled::SharedSource;
use ganglion_api::node_config::NodeConfig;
use ganglion_core::facts::{Key, Requests};
use ganglion_nodes_plan::node_spec::{PrometheusValue, Question};
use ganglion_nodes_plan::readings::{NodeSample, Problem};
use ganglion_runtime::polls::PollOutcome;
use usage::{Machine, SeriesWanted};

/// Number of results after which the task yields to others.
pub const TURN: usize = 64;

impl NodeConfigController {
    /// NodeConfigs that are members of a shared poll.
    pub fn members(&self, source: &Arc<SharedSource>) -> Vec<Key> {
        let state = self.polled.state();
        state.groups.get(source).map(|members| members.keys().cloned().collect()).unwrap_or_default()
    }

    pub async fn poll_shared(&self, source: &Arc<SharedSource>) -> PollOutcome {
        let members = self.members(source);
        match &**source {
            SharedSource::Prometheus { namespace, server, value, label, matchers } => {
                let (members, machines) = self.machines(members);
                let (from, wanted) = ((namespace.as_str(), server), SeriesWanted { label, matchers });
                match value {
                    PrometheusValue::Usage(window) => {
                        let results = usage::prometheus(self, from, (wanted, *window), &machines).await;
                        self.hand_out(&members, Question::Usage, results).await
                    }
                    PrometheusValue::Power(metric) => {
                        let results = usage::prometheus_power(self, from, (wanted, metric), &machines).await;
                        self.hand_out(&members, Question::MeasuredPower, results).await
                    }
                }
            }
            SharedSource::MetricsServer => {
                let (members, machines) = self.machines(members);
                let results = usage::metrics_server(self, &machines).await;
                self.hand_out(&members, Question::Usage, results).await
            }
            SharedSource::Model { namespace, server, format, output } => {
                let question = ModelQuestion { server, output: output.as_deref() };
                self.predict(members, source, (namespace, question), *format).await
            }
        }
    }

    /// Records the result of each member.
    pub async fn hand_out(
        &self,
        members: &[Key],
        question: Question,
        results: Result<Vec<Result<Vec<NodeSample>, Problem>>, PollTrouble>,
    ) -> PollOutcome {
        let outcome = results.as_ref().map_or_else(PollTrouble::outcome, |_| PollOutcome::Ok);
        for (at, key) in members.iter().enumerate() {
            match &results {
                Ok(results) => {
                    if let Some(result) = results.get(at) {
                        self.record(key, question.values(), result);
                    }
                }
                Err(trouble) => self.record(key, question.values(), &Err(trouble.problem.clone())),
            }
            if at % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        outcome
    }

    /// Looks up the nodes of these NodeConfigs. Drops NodeConfigs that no longer exist.
    fn machines(&self, members: Vec<Key>) -> (Vec<Key>, Vec<Machine>) {
        self.ctx.store.read(|world| {
            let machine = |key: Key| {
                let name = world.table::<NodeConfig>().get(&key)?.spec.node_name.clone();
                let node = world.node(&name);
                let addresses = node.map(|node| node.addresses.iter().filter_map(|one| one.parse().ok()).collect());
                let allocatable = node.map_or_else(Requests::default, |node| node.allocatable);
                Some((key, Machine { name, addresses: addresses.unwrap_or_default(), allocatable }))
            };
            members.into_iter().filter_map(machine).unzip()
        })
    }
}
