//! Polls of many nodes at once: whom the answer concerns, and who gets which part of it.

use std::sync::Arc;

use super::{PollTrouble, usage};
use crate::config::NodeConfigController;
use crate::config::keys::SharedSource;
use ganglion_core::facts::{Key, Requests};
use ganglion_nodes_plan::asked::Question;
use ganglion_nodes_plan::readings::{NodeSample, Problem};
use ganglion_runtime::polls::PollOutcome;
use usage::Machine;

/// After how many results the others of the process have their turn.
pub const TURN: usize = 64;

impl NodeConfigController {
    /// The NodeConfigs that take part in a shared poll.
    pub fn members(&self, source: &Arc<SharedSource>) -> Vec<Key> {
        let state = self.memory.state();
        state.groups.get(source).map(|members| members.keys().cloned().collect()).unwrap_or_default()
    }

    pub async fn poll_shared(&self, source: &Arc<SharedSource>) -> PollOutcome {
        let members = self.members(source);
        match &**source {
            SharedSource::Prometheus { namespace, server, window, label } => {
                let (members, machines) = self.machines(members);
                let results = usage::prometheus(self, namespace, server, (*window, label), &machines).await;
                self.hand_out(&members, Question::Usage, results).await
            }
            SharedSource::MetricsServer => {
                let (members, machines) = self.machines(members);
                let results = usage::metrics_server(self, &machines).await;
                self.hand_out(&members, Question::Usage, results).await
            }
            SharedSource::Model { namespace, server, format } => {
                self.predict(members, namespace, server, *format).await
            }
        }
    }

    /// Gives each its result.
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
                        self.take(key, question.values(), result);
                    }
                }
                Err(trouble) => self.take(key, question.values(), &Err(trouble.problem.clone())),
            }
            if at % TURN == TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
        outcome
    }

    /// These NodeConfigs, with their nodes as the cluster knows them.
    fn machines(&self, members: Vec<Key>) -> (Vec<Key>, Vec<Machine>) {
        self.ctx.store.read(|world| {
            let machine = |key: Key| {
                let name = world.node_config(&key)?.spec.node_name.clone();
                let node = world.node(&name);
                let addresses = node.map(|node| node.addresses.iter().filter_map(|one| one.parse().ok()).collect());
                let allocatable = node.map_or_else(Requests::default, |node| node.allocatable);
                Some((key, Machine { name, addresses: addresses.unwrap_or_default(), allocatable }))
            };
            members.into_iter().filter_map(machine).unzip()
        })
    }
}
