//! Makes workers read their job lists: annotates or evicts their pods.

use std::collections::BTreeMap;

use futures::future::join_all;
use kube::api::Patch;
use serde_json::json;

use super::refusals::{cause_of, note};
use super::{SwarmPoolController, key_of, namespace};
use ganglion_api::marks;
use ganglion_core::facts::{Identity, Key, PodFact, SlimPod};
use ganglion_core::world::Origin;
use ganglion_pools_plan::step::{ObservedPool, PlannedHandover};
use ganglion_pools_plan::workers::WorkerMemory;
use ganglion_runtime::error::Error;
use ganglion_runtime::eviction::{self, EvictionAnswer};

/// Result of making workers read their lists.
#[derive(Debug, Default)]
pub struct Refreshed {
    /// true: a live read changed what the next plan reads.
    pub must_plan: bool,
    /// true: a read or an eviction must be repeated soon.
    pub retry: bool,
    /// Message of the API server if a PodDisruptionBudget blocks an eviction.
    pub budget: Option<String>,
}

/// State of the pod of a worker, from a live read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LivePod {
    Absent,
    Finished,
    /// It is bound to no node yet, so it runs nothing, and reads the latest list when it starts.
    Unbound,
    Running,
}

impl SwarmPoolController {
    /// Annotates pods of a Deployment with the slots that they occupy. A refusal is noted, and does not stop the pool:
    /// this process remembers the slots.
    pub(super) async fn annotate_slots(
        &self,
        observed: &ObservedPool,
        handover: &PlannedHandover,
        memory: &mut WorkerMemory,
    ) -> Result<(), Error> {
        let Some(workload) = &observed.workload else { return Ok(()) };
        let unmarked = handover.workers.assigned.unmarked.iter();
        let pods: Vec<(&PodFact, u32)> =
            unmarked.filter_map(|(name, slot)| Some((workload.pods.get(name)?, *slot))).collect();
        let slots = pods.iter().map(|(pod, slot)| (pod.id.uid.clone(), *slot)).collect();
        if memory.slots_refused.as_ref().is_some_and(|refused| refused.waits(observed.now)) && !pods.is_empty() {
            memory.slots = slots;
            return Ok(());
        }
        let writes = pods.iter().map(|(pod, slot)| self.annotate(Some(pod), marks::WORKER, slot.to_string()));
        let mut refusal = None;
        for written in join_all(writes).await {
            if let Err(error) = written {
                refusal = Some(cause_of(error)?);
            }
        }
        match refusal {
            Some(refusal) => {
                memory.slots = slots;
                note(&mut memory.slots_refused, refusal, observed.now);
            }
            None => {
                memory.slots.clear();
                memory.slots_refused = None;
            }
        }
        Ok(())
    }

    /// Makes workers read the published lists. Verifies by a live read that workers whose pod seems gone have stopped.
    pub(super) async fn refresh_workers(
        &self,
        observed: &ObservedPool,
        handover: &PlannedHandover,
        memory: &mut WorkerMemory,
    ) -> Result<Refreshed, Error> {
        let mut refreshed = Refreshed::default();
        let Some(workload) = &observed.workload else { return Ok(refreshed) };
        let lists = &handover.published.lists;
        for name in &handover.plan.verify {
            let Some(list) = lists.get(name) else { continue };
            let cached = workload.pods.get(name);
            let live = self.read_pod(observed, cached, name).await?;
            if cached.is_none() {
                let is_gone = matches!(live, LivePod::Absent | LivePod::Finished);
                refreshed.must_plan |= memory.gone.insert(name.clone(), is_gone) != Some(is_gone);
            }
            if live != LivePod::Running {
                refreshed.must_plan |= memory.stopped.insert(name.clone(), list.version) != Some(list.version);
            }
            refreshed.retry = true;
        }
        memory.stopped.retain(|name, _| lists.contains_key(name));
        memory.gone.retain(|name, _| lists.contains_key(name));
        if refreshed.must_plan {
            // The jobs of that worker go to others first.
            return Ok(refreshed);
        }
        self.annotate_versions(observed, &workload.pods, handover, memory).await?;
        for (name, _) in &handover.plan.restart {
            let Some(pod) = workload.pods.get(name) else { continue };
            match self.ctx.writer.counted("RestartWorker", eviction::evict(&self.ctx, &pod.id, None)).await? {
                EvictionAnswer::Accepted | EvictionAnswer::NotFound => {
                    memory.record_restart(name, lists.get(name).map_or(0, |list| list.version));
                }
                EvictionAnswer::BlockedByBudget(message) | EvictionAnswer::TooManyBudgets(message) => {
                    refreshed.budget = Some(message);
                    refreshed.retry = true;
                }
            }
        }
        memory.restarts.retain(|name, _| lists.contains_key(name));
        Ok(refreshed)
    }

    /// Annotates pods with the version of their lists, because a change of the pod makes its kubelet sync the volume
    /// at once. A kubelet whose cache does not yet have the new ConfigMap syncs again only after up to a minute.
    /// Therefore a pod that does not report the version is annotated again, with a different value. A refusal is
    /// noted, and does not stop the pool: without the annotation, workers read their lists later.
    async fn annotate_versions(
        &self,
        observed: &ObservedPool,
        pods: &BTreeMap<String, PodFact>,
        handover: &PlannedHandover,
        memory: &mut WorkerMemory,
    ) -> Result<(), Error> {
        memory.annotations.retain(|name, _| pods.contains_key(name));
        let (key, now) = (&key_of(&observed.pool), observed.now);
        let waits = memory.versions_refused.as_ref().is_some_and(|refused| refused.waits(now));
        let mut writes = Vec::new();
        for (name, version) in &handover.plan.annotate {
            let Some(pod) = pods.get(name) else { continue };
            if waits {
                // The worker may read the list without the annotation.
                if memory.annotation(&pod.id, *version).is_none() {
                    memory.record_annotation(&pod.id, *version, now);
                    self.probes.wake(key, name);
                }
                continue;
            }
            let value = memory.record_annotation(&pod.id, *version, now);
            writes.push(async move {
                let written = self.annotate(Some(pod), marks::JOB_VERSION, value).await;
                self.probes.wake(key, name);
                written
            });
        }
        if writes.is_empty() {
            return Ok(());
        }
        let mut refusal = None;
        for written in join_all(writes).await {
            if let Err(error) = written {
                refusal = Some(cause_of(error)?);
            }
        }
        match refusal {
            Some(refusal) => note(&mut memory.versions_refused, refusal, now),
            None => memory.versions_refused = None,
        }
        Ok(())
    }

    /// Reads the pod of this worker from the API server.
    async fn read_pod(&self, observed: &ObservedPool, cached: Option<&PodFact>, name: &str) -> Result<LivePod, Error> {
        let key = Key::new(namespace(&observed.pool), name.to_owned());
        match self.ctx.writer.get::<SlimPod>(&key).await? {
            None => {
                if let Some(pod) = cached {
                    self.ctx.store.remove::<PodFact>(&Identity { version: String::new(), ..pod.id.clone() });
                }
                Ok(LivePod::Absent)
            }
            Some(pod) => {
                let pod = PodFact::from(pod);
                let live = match (&pod.node, pod.finished) {
                    (_, true) => LivePod::Finished,
                    (None, false) => LivePod::Unbound,
                    (Some(_), false) => LivePod::Running,
                };
                self.ctx.store.apply(pod, Origin::Own);
                Ok(live)
            }
        }
    }

    /// Sets an annotation of the pod with this uid.
    async fn annotate(&self, pod: Option<&PodFact>, name: &str, value: String) -> Result<(), Error> {
        let Some(pod) = pod else { return Ok(()) };
        let body = json!({"metadata": {"uid": pod.id.uid, "annotations": {name: value}}});
        let patch = Patch::Merge(body);
        let write = self.ctx.writer.patch::<SlimPod>(marks::SWARM_MANAGER, &pod.id.key, &patch);
        match self.ctx.writer.counted("AnnotateWorker", write).await {
            Ok(pod) => {
                self.ctx.store.apply(PodFact::from(pod), Origin::Own);
                Ok(())
            }
            // The pod is gone, or another pod has its name: the watch will deliver that.
            Err(Error::NotFound(_) | Error::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
