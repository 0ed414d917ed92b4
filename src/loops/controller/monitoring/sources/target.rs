//! The target of a loop that tracks: its own pods, and its number of replicas if that is not in the caches.

use std::collections::BTreeSet;

use super::objects::pod_selector;
use super::{PollRequest, SourceReader, late};
use ganglion_api::closed_loop::TargetRef;
use ganglion_core::document;
use ganglion_core::facts::ReplicaSetFact;
use ganglion_loops_plan::monitoring::formula;
use ganglion_loops_plan::monitoring::tracking::TargetReading;
use ganglion_loops_plan::sources::{self, PodList};
use ganglion_outbound::client::objects::{self, ReadError};
use ganglion_runtime::account::ObjectPath;

/// Pods of the target: their labels, and the controllers that belong to it.
pub struct OwnPods {
    pub labels: String,
    /// uids of the target and of its ReplicaSets; None if pods of its kind may have other controllers.
    owners: Option<BTreeSet<String>>,
}

impl OwnPods {
    /// Whether the target owns pods of this controller. Others may have pods with the same labels.
    pub fn own(&self, controller: Option<&str>) -> bool {
        self.owners.as_ref().is_none_or(|owners| controller.is_some_and(|uid| owners.contains(uid)))
    }
}

impl SourceReader<'_> {
    /// Reads the labels and the controllers of the target's pods.
    pub async fn target_pods(&self) -> Result<OwnPods, String> {
        let target = self.target.ok_or_else(|| "the loop has no target".to_owned())?;
        let object = self.object(target).await?.bytes;
        let labels = pod_selector(target, &object)?;
        if labels.selects_all() {
            return Err(
                "the target's selector matches every pod: tracking needs one that matches its own pods".to_owned()
            );
        }
        let uid = document::at(&object, "metadata.uid").map(|text| text.trim_matches('"').to_owned())?;
        let owned_sets: Vec<String> = self.sources.ctx.store.read(|world| {
            let sets = world.within::<ReplicaSetFact>(&self.account.namespace);
            let owned = sets.filter(|set| set.controller.as_ref().is_some_and(|owner| owner.uid.as_str() == uid));
            owned.map(|set| set.id.uid.to_string()).collect()
        });
        let is_direct = matches!(target.kind.as_str(), "ReplicaSet" | "StatefulSet" | "ReplicationController");
        let owners = (is_direct || !owned_sets.is_empty()).then(|| owned_sets.into_iter().chain([uid]).collect());
        Ok(OwnPods { labels: labels.to_string(), owners })
    }

    /// Reads the state of the target.
    async fn target_reading(&self, counts_ready_pods: bool) -> Result<TargetReading, String> {
        let target = self.target.ok_or_else(|| "the loop has no target".to_owned())?;
        let is_cached = formula::replica_resource(target).is_some();
        let replicas = if is_cached { None } else { Some(self.replicas(target).await?) };
        let mut ready_pods = None;
        if counts_ready_pods {
            let own = self.target_pods().await?;
            let pods: PodList = self.list("list of pods", "v1", &own.labels).await?;
            ready_pods = Some(sources::ready_pods(&pods, |controller| own.own(controller)));
        }
        Ok(TargetReading { replicas, ready_pods })
    }

    /// Reads the number of replicas from the scale subresource.
    async fn replicas(&self, target: &TargetRef) -> Result<i32, String> {
        let TargetRef { api_version, kind, name } = target;
        let what = format!("{kind}/scale {name}");
        let found = match self.sources.discovery.find(&self.sources.ctx, api_version, kind).await {
            Ok(Some(found)) => found,
            Ok(None) => return Err(format!("the API server does not know a namespaced kind {kind} in {api_version}")),
            Err(error) => return Err(ReadError::Api(error).for_account(&self.account, &what)),
        };
        if !found.has_scale {
            return Err(format!("{kind} has no scale subresource: tracking needs a number of replicas"));
        }
        let path = found.path(&self.account.namespace).map_err(|error| error.to_string())?;
        let path = ObjectPath { kind: &path, name: objects::name(name)?, subresource: Some("scale") };
        let opened = self.account.open(path).await;
        let outbound = &self.sources.outbound;
        let scale = outbound.read(&self.account, &what, opened, outbound.limits.object).await?;
        let replicas = document::number(&scale.bytes, "spec.replicas")?;
        replicas.parse().map_err(|_| format!("{what} has no whole number of replicas"))
    }
}

impl super::Sources {
    /// Reads the state of the target within the time of the request; None if no action is on side Target.
    pub async fn target(&self, request: &PollRequest) -> Option<Result<TargetReading, String>> {
        if request.tracking.is_empty() {
            return None;
        }
        let within = request.within(self.outbound.request_timeout);
        let reader = self.reader(request, within);
        let read = reader.target_reading(request.tracking.counts_ready_pods);
        let read = tokio::time::timeout(within + super::SLACK, read).await;
        Some(read.unwrap_or_else(|_| Err(late("no answer about the target", within).words)))
    }
}
