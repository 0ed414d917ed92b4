//! The SwarmPool controller: assigns jobs to the pods of a workload.
//!
//! | step | description |
//! |---|---|
//! | observe | the pool, its workload and pods, and its ConfigMaps, from caches (`observe`) |
//! | plan | `ganglion_pools_plan::step`: scale the workload, read ConfigMaps, or hand over jobs |
//! | act | scales the workload or follows its replicas (`scale`), reads and writes ConfigMaps (`config_maps`), makes workers read them (`workers`) |
//! | report | the status, if it is worth a write (`report`) |
//! | background | probes workers for the version of the job list that they run (`probes`) |
//!
//! A crash may lose everything in memory: the ConfigMaps contain all that a handover needs.

mod config_maps;
mod observe;
pub mod probes;
mod refusals;
mod report;
mod scale;
#[cfg(test)]
mod tests;
mod workers;

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use tokio::runtime::{Handle, RuntimeFlavor};

use config_maps::WriteFailure;
use ganglion_api::marks;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_core::conditions::Health;
use ganglion_core::definitions::GuardProblem;
use ganglion_core::facts::{ConfigMapFact, Key};
use ganglion_core::namespaces::Namespaces;
use ganglion_outbound::client::OutboundClient;
use ganglion_pools_plan::PoolProblem;
use ganglion_pools_plan::step::{ListsToPublish, ObservedPool, PlannedHandover, PoolMemory, PoolStep, next_step};
use ganglion_pools_plan::world::PoolsWorld;
use ganglion_runtime::account::binding_advice;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::fairness::{FairLimit, FairMemory};
use ganglion_runtime::frame::{Memories, Next, Reconciler};
use ganglion_runtime::status::{StatusMethod, StatusWriter};
use ganglion_runtime::watch::namespaces::NamespaceFeeds;
pub use probes::{ProbeKey, WorkerProbes, run_probes};
use workers::Refreshed;

/// Requeue delay while the watch for the ConfigMaps of the namespace starts.
const WATCH_PAUSE: SignedDuration = SignedDuration::from_millis(50);

/// Requeue delay if RBAC forbids that watch.
const FORBIDDEN_PAUSE: SignedDuration = SignedDuration::from_secs(15);

/// Number of jobs or workers above which a plan takes milliseconds: 1,000 dedicated jobs and workers take 2 ms, 20,000
/// of both take half a second.
const LARGE: usize = 1_000;

/// Size of a text in bytes above which parsing it may take milliseconds.
const LARGE_TEXT: usize = 64 << 10;

const STATUS: StatusWriter = StatusWriter {
    manager: marks::SWARM_STATUS_MANAGER,
    effect: "RecordPool",
    invalid: PoolReason::InvalidObject.as_str(),
    method: StatusMethod::Update,
    observes_generation: true,
};

/// The SwarmPool controller and its dependencies.
pub struct SwarmPoolController {
    pub ctx: Context,
    pub namespaces: Namespaces,
    /// Watches on the metadata of ConfigMaps, in namespaces that contain pools.
    pub config_maps: NamespaceFeeds<PartialObjectMeta<ConfigMap>, ConfigMapFact>,
    pub outbound: Arc<OutboundClient>,
    /// Probes change their state while pools are reconciled, so it is not in `memories`.
    pub probes: WorkerProbes,
    pub memories: Memories<PoolMemory>,
    /// Memory for the jobs of all pools.
    pub job_memory: FairMemory,
    /// ConfigMaps that pools read at the same time.
    pub reads: FairLimit,
}

/// Size of [`SwarmPoolController::reads`]: two ConfigMaps for each namespace.
pub const READS: usize = 8;

/// Result of a step.
pub enum PoolDone {
    /// An effect changed what the next plan reads.
    Changed,
    /// Nothing was done: the pool waits.
    Waits(Next),
    /// The pool is not reconciled further until then, because of a problem or because somebody suspended it.
    Refused(Health<PoolReason>, Next),
    /// The published lists are as planned, and workers are made to read them.
    Refreshed(Refreshed),
}

impl From<PoolProblem> for PoolDone {
    fn from(problem: PoolProblem) -> Self {
        Self::Refused(problem.health(), Next::AwaitChange)
    }
}

impl Reconciler for SwarmPoolController {
    type Kind = SwarmPool;
    type Memory = PoolMemory;
    type Observed = ObservedPool;
    type Plan = PoolStep;
    type Done = PoolDone;
    const NAME: &'static str = "swarm-pool";
    /// Usually: scale, record the replicas, read, publish, refresh.
    const MAX_ROUNDS: usize = 5;

    fn ctx(&self) -> &Context {
        &self.ctx
    }

    fn memories(&self) -> &Memories<PoolMemory> {
        &self.memories
    }

    async fn unreadable(&self, key: &Key) -> Option<Result<(), Error>> {
        STATUS.report_unreadable::<SwarmPool>(&self.ctx, key).await
    }

    async fn unguarded(&self, key: &Key, problem: &GuardProblem) -> Result<(), Error> {
        STATUS.report_unguarded::<SwarmPool>(&self.ctx, key, problem).await
    }

    async fn begin(&self, _: &Key, memory: &mut PoolMemory) -> Result<(), Error> {
        memory.has_just_read = false;
        Ok(())
    }

    fn observe(self: &Arc<Self>, key: &Key, _: &mut PoolMemory) -> Option<ObservedPool> {
        self.observe_pool(key)
    }

    fn plan(&self, observed: &ObservedPool, memory: &mut PoolMemory) -> PoolStep {
        let workers = observed.workload.as_ref().map_or(0, |workload| workload.fact.replicas as usize);
        let is_large = memory.sources.job_count().max(workers) > LARGE;
        let step = without_blocking(is_large, || next_step(observed, memory));
        // The plan drops sources that are gone. Less memory is always granted.
        self.job_memory.hold(&key_of(&observed.pool), memory.sources.bytes());
        step
    }

    async fn act(
        self: &Arc<Self>,
        observed: &ObservedPool,
        step: &PoolStep,
        memory: &mut PoolMemory,
    ) -> Result<PoolDone, Error> {
        match step {
            PoolStep::Refuse(health) => Ok(PoolDone::Refused(health.clone(), Next::AwaitChange)),
            PoolStep::AwaitWatch => Ok(PoolDone::Waits(observed.now.checked_add(WATCH_PAUSE).ok().into())),
            PoolStep::ReportForbiddenWatch => {
                let problem = self.forbidden_watch(&observed.pool).await?;
                let retry = observed.now.checked_add(FORBIDDEN_PAUSE).ok();
                Ok(PoolDone::Refused(problem.health(), retry.into()))
            }
            PoolStep::Scale(replicas) => self.scale(observed, *replicas, memory).await,
            PoolStep::Follow(step) => self.follow(observed, step, memory).await,
            PoolStep::Read { sources, outputs } => {
                self.read_sources(&key_of(&observed.pool), sources, &mut memory.sources).await?;
                self.read_outputs(&observed.pool, outputs, &mut memory.output).await?;
                memory.has_just_read = true;
                Ok(PoolDone::Changed)
            }
            PoolStep::HandOver(handover) => self.hand_over(observed, handover, memory).await,
        }
    }

    /// Updates the probes and writes the status. After a failed step, reports the failure.
    async fn report(
        self: &Arc<Self>,
        observed: &ObservedPool,
        step: &PoolStep,
        done: Result<&PoolDone, &Error>,
        memory: &mut PoolMemory,
    ) -> Result<Next, Error> {
        match (step, done) {
            // A suspended or refused pool makes no requests.
            (PoolStep::Refuse(_) | PoolStep::ReportForbiddenWatch, _) | (_, Ok(PoolDone::Refused(..))) => {
                self.probes.remove(&key_of(&observed.pool));
            }
            (PoolStep::HandOver(handover), _) => self.probes.update(observed, handover, &memory.workers),
            (PoolStep::AwaitWatch | PoolStep::Scale(_) | PoolStep::Follow(_) | PoolStep::Read { .. }, _) => {}
        }
        match (done, step) {
            (Ok(PoolDone::Changed), _) => Ok(Next::Again),
            (Ok(PoolDone::Waits(next)), _) => Ok(*next),
            (Ok(PoolDone::Refused(health, next)), _) => {
                self.report_refused(&observed.pool, health).await?;
                Ok(*next)
            }
            (Ok(PoolDone::Refreshed(refreshed)), PoolStep::HandOver(handover)) => {
                self.report_handover(observed, handover, refreshed, memory).await
            }
            (Ok(PoolDone::Refreshed(_)), _) => Ok(Next::AwaitChange),
            // The next reconcile resolves a conflict.
            (Err(Error::Conflict(_) | Error::NotLeader), _) => Ok(Next::AwaitChange),
            (Err(error), _) => {
                let words = error.words_of_failing().unwrap_or_else(|| error.to_string());
                let message = format!("{} failed: {words}", request_of(step));
                let health = PoolProblem::passing(PoolReason::WriteFailed, message).health();
                self.report_refused(&observed.pool, &health).await?;
                Ok(Next::AwaitChange)
            }
        }
    }

    /// Stops the probes of a deleted pool, and the watches of namespaces without pools.
    fn forget(&self, key: &Key) {
        self.probes.remove(key);
        self.job_memory.hold(key, 0);
        let namespaces = self.ctx.store.read(PoolsWorld::namespaces_with_pools);
        self.config_maps.retain(&namespaces);
    }
}

impl SwarmPoolController {
    /// Publishes the job lists. If they are published, makes workers read them.
    async fn hand_over(
        &self,
        observed: &ObservedPool,
        handover: &PlannedHandover,
        memory: &mut PoolMemory,
    ) -> Result<PoolDone, Error> {
        self.annotate_slots(observed, handover, &mut memory.workers).await?;
        if matches!(handover.publication, ListsToPublish::AwaitReports) {
            return Ok(PoolDone::Waits(handover.plan.due.into()));
        }
        let (output, lists) = (&mut memory.output, handover.lists());
        let has_written = match self.write_outputs(&observed.pool, output, lists, observed.now).await {
            Ok(has_written) => has_written,
            Err(WriteFailure::Problem(problem)) => return Ok(problem.into()),
            Err(WriteFailure::Request(error)) => return Err(error),
        };
        if let ListsToPublish::Confirm(_) = handover.publication {
            memory.output.is_distrusted = false;
            return Ok(PoolDone::Changed);
        }
        memory.assignment.slots = handover.workers.assigned.slots.keys().copied().collect();
        if has_written {
            return Ok(PoolDone::Changed);
        }
        let refreshed = self.refresh_workers(observed, handover, &mut memory.workers).await?;
        Ok(if refreshed.must_plan { PoolDone::Changed } else { PoolDone::Refreshed(refreshed) })
    }

    /// Returns the problem of a namespace in which the operator may not watch ConfigMaps. Lists them once, because the
    /// refusal of the API server names the operator's user, which the advice needs.
    async fn forbidden_watch(&self, pool: &SwarmPool) -> Result<PoolProblem, Error> {
        let namespace = namespace(pool);
        let (api, params) = (self.ctx.writer.api::<ConfigMap>(&namespace), ListParams::default().limit(1));
        let refusal = match self.ctx.writer.call(api.list(&params)).await {
            Ok(_) => String::new(),
            Err(Error::Forbidden(refusal)) => refusal,
            Err(error) => return Err(error),
        };
        let message = format!("ConfigMaps cannot be listed and watched: {}", binding_advice(&refusal, &namespace));
        Ok(PoolProblem::new(PoolReason::Forbidden, message))
    }
}

/// The requests of a step, as the subject of a sentence.
fn request_of(step: &PoolStep) -> &'static str {
    match step {
        PoolStep::Scale(_) => "a write of the workload's replicas",
        PoolStep::Follow(_) => "a write of the pool's replicas",
        PoolStep::Read { .. } => "a read of ConfigMaps",
        PoolStep::HandOver(_) => "a request about ConfigMaps or pods",
        PoolStep::Refuse(_) | PoolStep::AwaitWatch | PoolStep::ReportForbiddenWatch => "a request to the API server",
    }
}

/// Runs work of this thread. If it is large, other reconciles go on meanwhile.
fn without_blocking<R>(is_large: bool, work: impl FnOnce() -> R) -> R {
    // A runtime with one thread has no other reconciles, and cannot do this.
    let has_threads = || Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_large && has_threads() { tokio::task::block_in_place(work) } else { work() }
}

/// Whether it may take milliseconds to parse a ConfigMap.
fn is_large(map: &ConfigMap) -> bool {
    map.data.iter().flatten().map(|(_, text)| text.len()).sum::<usize>() > LARGE_TEXT
}

fn key_of(pool: &SwarmPool) -> Key {
    Key::new(namespace(pool), pool.metadata.name.clone().unwrap_or_default())
}

fn namespace(pool: &SwarmPool) -> String {
    pool.metadata.namespace.clone().unwrap_or_default()
}
