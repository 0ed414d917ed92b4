//! Registers and unregisters the polls of a NodeConfig with the poll engine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;

use crate::config::NodeConfigController;
use crate::config::polled::{NodeState, NodeStates};
use crate::config::polled::{PollKey, SharedSource};
use ganglion_api::node_config::source::CpuUsageFormat;
use ganglion_core::facts::Key;
use ganglion_nodes_plan::node_spec::{Question, SourceServer, SpecSource, ValueSource};
use ganglion_outbound::client::attempt::host;
use ganglion_runtime::polls::PollTarget;

/// Maximum number of concurrent requests to a BMC_CONCURRENCY, and to a server for many nodes.
const BMC_CONCURRENCY: usize = 1;
const SERVER_CONCURRENCY: usize = 8;

/// Timeout of a poll in request timeouts: a refused request is repeated with a newer Secret.
const REQUESTS: u32 = 3;

/// Same for models, which are requested in batches.
const MANY_REQUESTS: u32 = 12;

/// Same for Redfish. The first search of a large machine takes up to 128 requests; a BMC may need a third of the
/// request timeout for each. A BMC that does not answer at all ends the search with its first request.
const SEARCH_REQUESTS: u32 = 43;

/// Delay of the first answer for a new member of a shared poll.
const JOIN: Duration = Duration::from_secs(1);

impl NodeConfigController {
    /// Registers the polls that this NodeConfig needs, and unregisters those that it no longer needs.
    pub fn sync_polls(&self, key: &Key) {
        let mut state = self.polled.state();
        let Some(known) = state.objects.get_mut(key) else { return };
        let required = required_polls(key, known);
        if known.polls == required {
            return;
        }
        let before = std::mem::replace(&mut known.polls, required.clone());
        for poll in before.keys().filter(|poll| !required.contains_key(*poll)) {
            self.leave(&mut state, key, poll);
        }
        for (poll, source) in required {
            if before.get(&poll) != Some(&source) {
                self.join(&mut state, key, poll, &source);
            }
        }
    }

    /// Unregisters all polls of this NodeConfig.
    pub fn remove_polls(&self, key: &Key) {
        let mut state = self.polled.state();
        let Some(known) = state.objects.get_mut(key) else { return };
        for poll in std::mem::take(&mut known.polls).keys() {
            self.leave(&mut state, key, poll);
        }
    }

    /// Registers a poll that is new, or whose source has changed. A corrected source is polled at once.
    fn join(&self, state: &mut NodeStates, key: &Key, poll: PollKey, SpecSource { source, interval }: &SpecSource) {
        let interval = *interval;
        match &poll {
            PollKey::Own(question, _) => {
                let target = self.own_target(*question, key, source, interval);
                self.polls.restart(poll, target);
            }
            PollKey::Shared(shared) => {
                let members = state.groups.entry(Arc::clone(shared)).or_default();
                members.insert(key.clone(), interval);
                let shortest = members.values().min().copied().unwrap_or(interval);
                self.polls.put(poll.clone(), self.shared_target(shared, shortest));
                self.polls.wake(poll, JOIN);
            }
        }
    }

    fn leave(&self, state: &mut NodeStates, key: &Key, poll: &PollKey) {
        let PollKey::Shared(source) = poll else {
            self.polls.remove(poll.clone());
            return;
        };
        let Some(members) = state.groups.get_mut(source) else { return };
        members.remove(key);
        match members.values().min().copied() {
            Some(shortest) => self.polls.put(poll.clone(), self.shared_target(source, shortest)),
            None => {
                state.groups.remove(source);
                state.models.remove(source);
                self.polls.remove(poll.clone());
            }
        }
    }

    fn own_target(&self, question: Question, key: &Key, source: &ValueSource, interval: SignedDuration) -> PollTarget {
        let (host, at_once, requests) = match source {
            ValueSource::Redfish { server, .. } => (host(&server.url), BMC_CONCURRENCY, SEARCH_REQUESTS),
            ValueSource::DifferentialPressureApi { server, .. } => (host(&server.url), SERVER_CONCURRENCY, REQUESTS),
            _ => (format!("{key}/{}", question.word()), 1, REQUESTS),
        };
        self.target(host, at_once, &key.namespace, interval, requests)
    }

    fn shared_target(&self, source: &SharedSource, interval: SignedDuration) -> PollTarget {
        match source {
            SharedSource::Prometheus { namespace, server, .. } => {
                self.target(host(&server.url), SERVER_CONCURRENCY, namespace, interval, REQUESTS)
            }
            SharedSource::Model { namespace, server, .. } => {
                self.target(host(&server.url), SERVER_CONCURRENCY, namespace, interval, MANY_REQUESTS)
            }
            SharedSource::MetricsServer => self.target("metrics.k8s.io".to_owned(), 1, "", interval, REQUESTS),
        }
    }

    fn target(
        &self,
        host: String,
        at_once: usize,
        tenant: &str,
        interval: SignedDuration,
        requests: u32,
    ) -> PollTarget {
        let interval = Duration::try_from(interval).unwrap_or(Duration::from_secs(1));
        let timeout = self.outbound.request_timeout * requests + Duration::from_secs(1);
        PollTarget { host: host.into(), at_once, tenant: tenant.into(), interval, timeout }
    }
}

/// Polls that this NodeConfig needs, with their sources.
fn required_polls(key: &Key, known: &NodeState) -> HashMap<PollKey, SpecSource> {
    let Some(parsed) = known.plan.measured() else { return HashMap::new() };
    let namespace = || key.namespace.clone();
    let shared = |source| Some(PollKey::Shared(Arc::new(source)));
    let model = |server: &SourceServer, format, output: Option<&String>| {
        let (server, output) = (server.clone(), output.cloned());
        shared(SharedSource::Model { namespace: namespace(), server, format, output })
    };
    let poll = |question: Question, source: &ValueSource| match source {
        ValueSource::Fake if question == Question::Model => None,
        ValueSource::Linear { .. } | ValueSource::FamilyLine(_) => match &known.model {
            Some(server) => model(server, CpuUsageFormat::Percent, None),
            None => Some(PollKey::Own(question, key.clone())),
        },
        ValueSource::Fake | ValueSource::Redfish { .. } | ValueSource::DifferentialPressureApi { .. } => {
            Some(PollKey::Own(question, key.clone()))
        }
        ValueSource::Prometheus { server, value, label, matchers } => {
            let (server, value, label, matchers) = (server.clone(), value.clone(), label.clone(), matchers.clone());
            shared(SharedSource::Prometheus { namespace: namespace(), server, value, label, matchers })
        }
        ValueSource::MetricsServer => shared(SharedSource::MetricsServer),
        // The model of the endpoint provider takes precedence over the one in the spec.
        ValueSource::V2Inference { server, format, output } => {
            model(known.model.as_ref().unwrap_or(server), *format, output.as_ref())
        }
        ValueSource::NamedModel => known.model.as_ref().and_then(|server| model(server, CpuUsageFormat::Percent, None)),
    };
    let all = parsed.sources.iter();
    all.filter_map(|(question, one)| Some((poll(*question, &one.source)?, one.clone()))).collect()
}
