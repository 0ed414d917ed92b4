//! The source `nodeConfig`: reads the status of NodeConfigs from the store. A change of one requeues the loops that read it.
//!
//! In another namespace than the loop's its account must be allowed to list NodeConfigs; the API server is asked, and its answer
//! kept for some minutes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authorization::v1::ResourceAttributes;

use ganglion_api::GROUP;
use ganglion_api::closed_loop::source::NodeConfigField;
use ganglion_api::marks;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec};
use ganglion_core::facts::Key;
use ganglion_core::names::DEFAULT_ACCOUNT;
use ganglion_core::world::{Fact, World};
use ganglion_loops_plan::monitoring::SourceResult;
use ganglion_loops_plan::sources::nodes::{KnownNode, amount};
use ganglion_runtime::account::Account;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;

/// How long an answer is relied on: yes, and no, since somebody may just be making the binding.
const GRANTED: SignedDuration = SignedDuration::from_mins(5);
const REFUSED: SignedDuration = SignedDuration::from_secs(10);

/// Capacity, in answers.
const MOST: usize = 4096;

/// Which accounts may list the NodeConfigs of which other namespaces.
#[derive(Default)]
pub struct NodeAccess(Mutex<HashMap<AccessKey, Answer>>);

/// An account, and the namespace that it asks for.
type AccessKey = (Key, String);

/// Why the account may not, if it may not, and until when that is relied on.
type Answer = (Option<String>, Timestamp);

impl NodeAccess {
    fn all(&self) -> MutexGuard<'_, HashMap<AccessKey, Answer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the loop of this Monitoring may not read the NodeConfigs of this namespace, if it may not, and when to ask again.
    async fn refusal(&self, ctx: &Context, object: &Monitoring, namespace: &str) -> Answer {
        let own = object.id().key.namespace;
        if namespace == own {
            return (None, Timestamp::MAX);
        }
        let name = object.spec.service_account_name.clone().unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned());
        let id = (Key::new(own.clone(), name.clone()), namespace.to_owned());
        let known = self.all().get(&id).cloned();
        if let Some(known) = known.as_ref().filter(|(_, until)| ctx.now() < *until) {
            return known.clone();
        }
        let manager = marks::MONITORING_STATUS_MANAGER;
        let account = Account { writer: ctx.writer.clone(), namespace: own, name, manager };
        let answer = answer(ask(&account, namespace).await, known, ctx.now());
        let mut all = self.all();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(id, answer.clone());
        answer
    }
}

/// The answer after this reply. What may pass by itself, such as a restart of the API server, takes no right back.
fn answer(reply: Result<Option<String>, Error>, known: Option<Answer>, now: Timestamp) -> Answer {
    match (reply, known) {
        (Ok(None), _) => (None, now + GRANTED),
        (Ok(refused), _) => (refused, now + REFUSED),
        (Err(_), Some((known, _))) => (known, now + REFUSED),
        (Err(error), None) => {
            let words = format!("whether the loop may read NodeConfigs of that namespace is not known yet: {error}");
            (Some(words), now + REFUSED)
        }
    }
}

/// Why this account may not list the NodeConfigs of this namespace, if it may not.
async fn ask(account: &Account, namespace: &str) -> Result<Option<String>, Error> {
    let attributes = ResourceAttributes {
        verb: Some("list".to_owned()),
        group: Some(GROUP.to_owned()),
        resource: Some("nodeconfigs".to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ResourceAttributes::default()
    };
    match account.may(attributes).await {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some(format!(
            "service account {} of namespace {} may not list nodeconfigs in namespace {namespace}: grant it the role view there",
            account.name, account.namespace
        ))),
        Err(Error::Forbidden(refused)) => Ok(Some(account.words(&refused))),
        Err(error) => Err(error),
    }
}

/// The metrics with a source `nodeConfig`.
fn sources(spec: &MonitoringSpec) -> impl Iterator<Item = (&String, &NodeConfigField)> {
    let all = spec.metrics.iter().filter(|_| !spec.paused);
    all.filter_map(|metric| Some((&metric.name, metric.source.node_config.as_ref()?)))
}

/// What the sources `nodeConfig` of a loop give.
#[derive(Default)]
pub struct NodeAnswer {
    /// The values; empty if no metric has such a source.
    pub values: BTreeMap<String, SourceResult>,
    /// When to ask again whether the account may read them, which no change of a NodeConfig tells.
    pub again: Option<Timestamp>,
}

/// Reads all sources `nodeConfig`.
pub async fn asked(ctx: &Context, access: &NodeAccess, object: &Monitoring) -> NodeAnswer {
    let mut answer = NodeAnswer::default();
    for (metric, source) in sources(&object.spec) {
        let own = object.id().key.namespace;
        let namespace = source.namespace.as_deref().unwrap_or(&own);
        let (refused, until) = access.refusal(ctx, object, namespace).await;
        answer.again = answer.again.into_iter().chain(Some(until).filter(|until| *until < Timestamp::MAX)).min();
        let value = match refused {
            Some(refused) => Err(refused),
            None => ctx.store.read(|world| read(world, source, namespace, ctx.now())),
        };
        answer.values.insert(metric.clone(), value);
    }
    answer
}

fn read(world: &World, source: &NodeConfigField, namespace: &str, now: Timestamp) -> SourceResult {
    let named = source.node_name.iter().filter_map(|name| world.node(name));
    let all = world.nodes().filter(|_| source.node_name.is_none());
    let known = named.chain(all).map(|node| {
        let name = node.id.key.name.as_str();
        let here = world.node_configs_of(name).filter(|config| config.metadata.namespace.as_deref() == Some(namespace));
        // Of two for one node the younger has no values.
        let status = here.filter_map(|config| config.status.as_ref()).max_by_key(|status| status.sampled_at.as_ref());
        KnownNode { name, labels: &node.labels, status }
    });
    amount(source, known, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_by_itself_takes_no_right_back() {
        let now = Timestamp::UNIX_EPOCH;
        let granted = answer(Ok(None), None, now);
        assert_eq!(granted, (None, now + GRANTED));
        assert_eq!(answer(Err(Error::Broken), Some(granted.clone()), now), (None, now + REFUSED));
        let refused = answer(Ok(Some("no".to_owned())), Some(granted), now);
        assert_eq!(refused, (Some("no".to_owned()), now + REFUSED));
        assert_eq!(answer(Err(Error::Broken), Some(refused.clone()), now), refused);
        assert!(answer(Err(Error::Broken), None, now).0.is_some_and(|words| words.contains("not known yet")));
    }
}
