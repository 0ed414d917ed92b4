//! The source `nodeConfig`: reads the status of NodeConfigs from the store. A change of a NodeConfig enqueues the loops
//! that read it.
//!
//! For NodeConfigs of another namespace, the loop's account must be allowed to list them there. The answer of the API
//! server is cached for some minutes.

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

/// Lifetime of a cached permission.
const GRANTED: SignedDuration = SignedDuration::from_mins(5);

/// Lifetime of a cached refusal. It is short, since somebody may be creating the role binding.
const REFUSED: SignedDuration = SignedDuration::from_secs(10);

/// Maximum number of cached answers. A full cache is emptied.
const MOST: usize = 4096;

const NOT_CHECKED: &str = "it is not known yet whether the loop may read NodeConfigs of that namespace";

/// Cache of the permissions of accounts to list the NodeConfigs of other namespaces.
#[derive(Default)]
pub struct NodeAccess(Mutex<HashMap<AccessKey, Answer>>);

/// Account, and the namespace whose NodeConfigs it reads.
type AccessKey = (Key, String);

/// Reason why the account lacks the permission, if so, and the time at which this answer expires.
type Answer = (Option<String>, Timestamp);

impl NodeAccess {
    fn all(&self) -> MutexGuard<'_, HashMap<AccessKey, Answer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why the loop of this Monitoring may not read the NodeConfigs of another namespace, if so, and until when
    /// the answer is valid.
    async fn refusal(&self, ctx: &Context, object: &Monitoring, namespace: &str) -> Answer {
        let own = object.id().key.namespace;
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

/// Returns the answer to cache. If the reply is an error, such as during a restart of the API server, the cached answer
/// stays in effect.
fn answer(reply: Result<Option<String>, Error>, known: Option<Answer>, now: Timestamp) -> Answer {
    match (reply, known) {
        (Ok(None), _) => (None, now + GRANTED),
        (Ok(refused), _) => (refused, now + REFUSED),
        (Err(_), Some((known, _))) => (known, now + REFUSED),
        (Err(error), None) => (Some(format!("{NOT_CHECKED}: {error}")), now + REFUSED),
    }
}

/// Returns why this account may not list the NodeConfigs of this namespace, if so.
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
            "service account {} of namespace {} may not list nodeconfigs in namespace {namespace}: \
             grant it the role view there",
            account.name, account.namespace
        ))),
        Err(Error::Forbidden(refused)) => Ok(Some(account.words(&refused))),
        Err(error) => Err(error),
    }
}

/// Metrics with a source `nodeConfig`.
fn sources(spec: &MonitoringSpec) -> impl Iterator<Item = (&String, &NodeConfigField)> {
    let all = spec.metrics.iter().filter(|_| !spec.paused);
    all.filter_map(|metric| Some((&metric.name, metric.source.node_config.as_ref()?)))
}

/// Whether the account of one loop may read the NodeConfigs of other namespaces, by namespace.
#[derive(Default)]
pub struct NodePermissions(BTreeMap<String, Answer>);

impl NodePermissions {
    /// Time at which the permissions are checked again. No change of a NodeConfig triggers that.
    pub fn expire(&self) -> Option<Timestamp> {
        self.0.values().map(|(_, until)| *until).min()
    }
}

/// Returns the permissions that the sources `nodeConfig` of this Monitoring need.
pub async fn permissions(ctx: &Context, access: &NodeAccess, object: &Monitoring) -> NodePermissions {
    let own = object.id().key.namespace;
    let mut permissions = BTreeMap::new();
    for (_, source) in sources(&object.spec) {
        let Some(namespace) = source.namespace.as_ref().filter(|namespace| **namespace != own) else { continue };
        permissions.insert(namespace.clone(), access.refusal(ctx, object, namespace).await);
    }
    NodePermissions(permissions)
}

/// Reads all sources `nodeConfig`: values by metric. Empty if no metric has such a source.
pub fn values(ctx: &Context, permissions: &NodePermissions, object: &Monitoring) -> BTreeMap<String, SourceResult> {
    let own = object.id().key.namespace;
    let mut values = BTreeMap::new();
    for (metric, source) in sources(&object.spec) {
        let namespace = source.namespace.as_deref().unwrap_or(&own);
        let value = match permissions.0.get(namespace) {
            Some((Some(refused), _)) => Err(refused.clone()),
            Some((None, _)) => ctx.store.read(|world| read(world, source, namespace, ctx.now())),
            None if namespace == own => ctx.store.read(|world| read(world, source, namespace, ctx.now())),
            // The spec has changed since the permissions were read; the change enqueues the loop.
            None => Err(NOT_CHECKED.to_owned()),
        };
        values.insert(metric.clone(), value);
    }
    values
}

fn read(world: &World, source: &NodeConfigField, namespace: &str, now: Timestamp) -> SourceResult {
    let named = source.node_name.iter().filter_map(|name| world.node(name));
    let all = world.nodes().filter(|_| source.node_name.is_none());
    let known = named.chain(all).map(|node| {
        let name = node.id.key.name.as_str();
        let here = world.node_configs_of(name).filter(|config| config.metadata.namespace.as_deref() == Some(namespace));
        // If two NodeConfigs are for one node, only the older one has values.
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
