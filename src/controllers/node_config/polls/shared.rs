//! Polls of many nodes at once: whom the answer concerns, and who gets which part of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{PollTrouble, power, usage};
use crate::api::node_config::reasons::NodeReason;
use crate::api::node_config::status::NodeValue;
use crate::clients::inference::PowerInput;
use crate::controllers::node_config::NodeConfigController;
use crate::controllers::node_config::keys::SharedSource;
use crate::logic::facts::{Key, Requests};
use crate::logic::node_config::asked::{Question, Server};
use crate::logic::node_config::readings::{NodeSample, Problem};
use crate::runtime::polls::PollOutcome;
use usage::Machine;

/// When a model is asked again that could be asked about no node.
const IDLE: Duration = Duration::from_secs(15);

/// After how many results the others of the process have their turn.
const TURN: usize = 64;

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
            SharedSource::Model { namespace, server } => self.predict(members, namespace, server).await,
        }
    }

    /// Predicts the power of those whose inputs are fresh.
    async fn predict(&self, members: Vec<Key>, namespace: &str, server: &Server) -> PollOutcome {
        let now = self.ctx.now();
        let mut rows = (Vec::new(), Vec::new());
        for key in members {
            let inputs = self.memory.state().objects.get(&key).map(|known| known.inputs(now));
            match inputs {
                Some(Ok([cpu_percent, inlet_celsius, pascals])) => {
                    rows.0.push(key);
                    rows.1.push(PowerInput { cpu_percent, inlet_celsius, pascals });
                }
                // Whoever takes the last of them wakes this poll.
                None | Some(Err((_, true))) => {}
                Some(Err((missing, false))) => {
                    let words = format!("the prediction needs fresh values of {}", missing.join(", "));
                    let problem = Problem::new(NodeReason::InputMissing, words);
                    self.take(&key, &[NodeValue::Power], &Err(problem));
                }
            }
        }
        let (members, inputs) = rows;
        if members.is_empty() {
            return PollOutcome::WaitUntil(Instant::now() + IDLE);
        }
        let results = power::poll(self, namespace, server, &inputs).await;
        self.hand_out(&members, Question::Power, results).await
    }

    /// Gives each its result.
    async fn hand_out(
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
