//! The writes of a reconcile except the status: scales the workload, writes the job lists, and makes workers read them.

use std::sync::Arc;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;
use serde_json::json;

use super::memory::{Dealt, Memory, Told};
use super::observe::{Seen, Workload, is_strict};
use super::{Stop, SwarmPoolController};
use ganglion_api::marks;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_api::swarm_pool::status::PoolChange;
use ganglion_api::swarm_pool::{PoolWorkloadKind, SwarmPool};
use ganglion_core::facts::{DeploymentFact, Key, PodFact, StatefulSet, StatefulSetFact};
use ganglion_core::world::Origin;
use ganglion_pools_plan::file::{ListChange, prune};
use ganglion_pools_plan::plan::{HandoverPlan, distrusted, plan};
use ganglion_pools_plan::state::PoolProblem;
use ganglion_runtime::error::Error;
use ganglion_runtime::eviction::{self, EvictionAnswer};

/// Number of times that the pool writes the same replicas within [`WITHIN`] before it gives up.
const MAX_UNDONE: usize = 3;

/// Period of [`MAX_UNDONE`].
const WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// Result of the writes of a reconcile.
#[derive(Debug, Default)]
pub struct Acted {
    pub plan: HandoverPlan,
    /// true: lists were written, so the next reconcile follows at once.
    pub wrote: bool,
    /// true: a read or an eviction must be repeated soon.
    pub retry: bool,
    /// Message of the API server if a PodDisruptionBudget blocks an eviction.
    pub budget: Option<String>,
}

impl SwarmPoolController {
    /// Scales the workload to `spec.replicas` unless another owner sets the field; returns the problem if it was not
    /// scaled. Updates `workload` to the state after the write.
    pub(super) async fn scale(
        &self,
        pool: &SwarmPool,
        workload: &mut Workload,
        memory: &mut Memory,
    ) -> Result<Option<PoolProblem>, Stop> {
        let Some(replicas) = pool.spec.replicas.filter(|replicas| *replicas != workload.scale.replicas) else {
            return Ok(None);
        };
        let Key { namespace, name } = &workload.key;
        let kind = workload.fact.kind.as_str();
        let scaler = self
            .ctx
            .store
            .read(|world| world.replica_scaler_of(namespace, kind, name).map(|found| found.id.key.name.clone()));
        let owner = workload.scale.owned_by.clone().or_else(|| scaler.map(|name| format!("the autoscaler {name}")));
        if let Some(owner) = owner {
            let message = format!(
                "spec.replicas of {kind} {name} belongs to {owner}: leave replicas out of the pool, which then follows \
                 the workload, or out of the manifest that {owner} applies"
            );
            return Ok(Some(PoolProblem::new(PoolReason::ReplicasOwnedElsewhere, message)));
        }
        let now = self.ctx.now();
        memory.scaled.retain(|(at, to)| *to == replicas && now.duration_since(*at) < WITHIN);
        if memory.scaled.len() >= MAX_UNDONE {
            let by = workload.scale.written_by.as_deref().unwrap_or("somebody");
            let message = format!(
                "{by} reverted replicas: {replicas} of {kind} {name} {MAX_UNDONE} times within ten minutes: let only \
                 one of the two set the field, or leave replicas out of the pool"
            );
            return Ok(Some(PoolProblem::new(PoolReason::FieldConflict, message)));
        }
        let write = self.write_replicas(workload, replicas);
        self.ctx.writer.counted("ScaleWorkload", write).await?;
        memory.scaled.push((now, replicas));
        *workload = self.workload(pool)?;
        Ok(None)
    }

    async fn write_replicas(&self, workload: &Workload, replicas: i32) -> Result<(), Error> {
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": workload.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": workload.version},
            {"op": "add", "path": "/spec/replicas", "value": replicas},
        ]);
        let patch = serde_json::from_value(patch).map_err(|error| Error::Malformed(error.to_string()))?;
        let (key, patch, writer) = (&workload.key, Patch::Json::<()>(patch), &self.ctx.writer);
        match workload.fact.kind {
            PoolWorkloadKind::StatefulSet => {
                let set = writer.patch::<StatefulSet>(marks::SWARM_MANAGER, key, &patch).await?;
                self.ctx.store.apply(StatefulSetFact::from(set), Origin::Own);
            }
            PoolWorkloadKind::Deployment => {
                let set = writer.patch::<Deployment>(marks::SWARM_MANAGER, key, &patch).await?;
                self.ctx.store.apply(DeploymentFact::from(set), Origin::Own);
            }
        }
        Ok(())
    }

    /// Plans and executes the next step of the handover.
    pub(super) async fn act(&self, pool: &SwarmPool, memory: &mut Memory, seen: &Seen) -> Result<Acted, Stop> {
        let numbers = seen
            .crew
            .taking
            .iter()
            .map(|(name, slot)| self.annotate(seen.pods.get(name), marks::WORKER, slot.to_string()));
        for done in join_all(numbers).await {
            done?;
        }
        let now = self.ctx.now();
        if memory.distrusts && is_strict(seen) {
            let lists = distrusted(&seen.input(&memory.stopped), now);
            self.write_output(pool, memory, &lists).await?;
            memory.distrusts = false;
            return Ok(Acted { wrote: true, ..Acted::default() });
        }
        let plan = plan(&seen.input(&memory.stopped));
        let mut lists = seen.published.clone();
        if !plan.lists.is_empty() {
            let why = why(pool, memory, seen, plan.moving, now);
            lists.version += 1;
            lists.changes.insert(lists.version, ListChange { at: now, why });
            for (name, list) in plan.lists.clone() {
                match list {
                    Some(list) => drop(lists.holdings.insert(name, list)),
                    None => drop(lists.holdings.remove(&name)),
                }
            }
            prune(&mut lists);
        }
        let wrote = self.write_output(pool, memory, &lists).await?;
        memory.slots = seen.crew.slots.keys().copied().collect();
        let mut acted = Acted { wrote, ..Acted::default() };
        if !wrote {
            self.follow_up(pool, memory, seen, &plan, &mut acted).await?;
        }
        acted.plan = plan;
        Ok(acted)
    }

    /// Makes workers read the written lists: annotates or evicts their pods. Verifies by a live read that workers whose
    /// pod seems gone have stopped.
    async fn follow_up(
        &self,
        pool: &SwarmPool,
        memory: &mut Memory,
        seen: &Seen,
        plan: &HandoverPlan,
        acted: &mut Acted,
    ) -> Result<(), Stop> {
        for name in &plan.verify {
            let Some(holding) = seen.published.holdings.get(name) else { continue };
            if self.has_stopped(seen, name).await? {
                memory.stopped.insert(name.clone(), holding.version);
            }
            acted.retry = true;
        }
        memory.stopped.retain(|name, _| seen.published.holdings.contains_key(name));
        self.tell(pool, memory, seen, plan).await?;
        for (name, _) in &plan.restart {
            let Some(pod) = seen.pods.get(name) else { continue };
            match self.ctx.writer.counted("RestartWorker", eviction::evict(&self.ctx, &pod.id)).await? {
                EvictionAnswer::Accepted | EvictionAnswer::NotFound => {
                    let version = seen.published.holdings.get(name).map_or(0, |holding| holding.version);
                    let again = memory.again.entry(name.clone()).or_default();
                    *again = if again.0 == version { (version, again.1 + 1) } else { (version, 1) };
                }
                EvictionAnswer::BlockedByBudget(words) | EvictionAnswer::TooManyBudgets(words) => {
                    acted.budget = Some(words);
                    acted.retry = true;
                }
            }
        }
        memory.again.retain(|name, _| seen.published.holdings.contains_key(name));
        Ok(())
    }

    /// Annotates pods with the version of their lists, because a change of the pod makes its kubelet sync the volume at
    /// once. A kubelet whose cache does not yet have the new ConfigMap syncs again only after up to a minute. Therefore
    /// a pod that does not report the version is annotated again, with a different value.
    async fn tell(&self, pool: &SwarmPool, memory: &mut Memory, seen: &Seen, plan: &HandoverPlan) -> Result<(), Stop> {
        memory.told.retain(|name, _| seen.pods.contains_key(name));
        let mut writes = Vec::new();
        for (name, version) in &plan.tell {
            let known = memory.told.get(name).filter(|told| told.version == *version);
            let times = known.map_or(0, |told| told.times.saturating_add(1));
            memory.told.insert(name.clone(), Told { version: *version, times, at: seen.now });
            let text = if times == 0 { version.to_string() } else { format!("{version}.{times}") };
            writes.push(async {
                let done = self.annotate(seen.pods.get(name), marks::JOB_VERSION, text).await;
                self.ask_soon(pool, name);
                done
            });
        }
        join_all(writes).await.into_iter().collect::<Result<(), Error>>()?;
        Ok(())
    }

    /// Reads the pod of this worker from the API server. Returns true if it does not run.
    async fn has_stopped(&self, seen: &Seen, name: &str) -> Result<bool, Stop> {
        let key = Key::new(seen.namespace.clone(), name.to_owned());
        match self.ctx.writer.get::<Pod>(&key).await? {
            None => {
                if let Some(known) = seen.pods.get(name) {
                    self.ctx.store.remove::<PodFact>(&known.id.clone().unversioned());
                }
                Ok(true)
            }
            Some(pod) => {
                let pod = PodFact::from(pod);
                let runs = pod.node.is_some() && !pod.finished;
                self.ctx.store.apply(pod, Origin::Own);
                Ok(!runs)
            }
        }
    }

    /// Sets an annotation of the pod with this uid.
    async fn annotate(&self, pod: Option<&PodFact>, name: &str, value: String) -> Result<(), Error> {
        let Some(pod) = pod else { return Ok(()) };
        let body = json!({"metadata": {"uid": pod.id.uid, "annotations": {name: value}}});
        let patch = Patch::Merge(body);
        let write = self.ctx.writer.patch::<Pod>(marks::SWARM_MANAGER, &pod.id.key, &patch);
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

/// Describes what changed since the last assignment, and records the new one in the memory.
fn why(pool: &SwarmPool, memory: &mut Memory, seen: &Seen, moving: usize, now: Timestamp) -> String {
    let drained = pool.spec.drain.iter().flatten().filter(|name| seen.pods.contains_key(*name));
    let new =
        Dealt { workers: seen.crew.slots.len(), drained: drained.cloned().collect(), table: Arc::clone(&seen.table) };
    let why = match &memory.dealt {
        Some(old) => new.difference(old),
        None if seen.published.holdings.is_empty() => Some("first deal".to_owned()),
        None => None,
    };
    memory.dealt = Some(new);
    let version = seen.published.version + 1;
    match (why, &mut memory.change) {
        (None, Some((_, moved))) => {
            *moved += moving;
            "handover continues".to_owned()
        }
        (None, None) if moving == 0 => "handover continues".to_owned(),
        (why, change) => {
            let why = why.unwrap_or_else(|| "jobs or workers changed".to_owned());
            *change = Some((PoolChange { at: Time(now), version, why: why.clone() }, moving));
            why
        }
    }
}
