//! The SwarmPool controller: assigns jobs to the pods of a workload.
//!
//! | step | description |
//! |---|---|
//! | observe | reads the workload, its pods, the source ConfigMaps (`sources`) and the output ConfigMaps (`output`) |
//! | plan | [`ganglion_pools_plan`]: computes the final assignment of all jobs, and the next step of the handover |
//! | act | scales the workload, writes the output ConfigMaps, and makes workers read them (`act`) |
//! | report | writes the status if it changed (`report`) |
//! | in the background | probes workers for the version of the job list that they run (`probes`) |
//!
//! A crash may lose everything in memory: the ConfigMaps contain all that a handover needs.

use ganglion_pools_plan::world::PoolsWorld;
mod act;
mod memory;
mod observe;
mod output;
mod probes;
mod report;
mod sources;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;

use ganglion_api::marks;
use ganglion_api::swarm_pool::SwarmPool;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_core::conditions::Health;
use ganglion_core::facts::{ConfigMapFact, Key};
use ganglion_core::namespaces::Namespaces;
use ganglion_outbound::client::OutboundClient;
use ganglion_pools_plan::state::PoolProblem;
use ganglion_runtime::account::binding_advice;
use ganglion_runtime::context::Context;
use ganglion_runtime::error::Error;
use ganglion_runtime::invalid::{self, StatusWrite};
use ganglion_runtime::polls::PollSet;
use ganglion_runtime::run::{Controller, ReconcileResult};
use ganglion_runtime::watch::namespaces::{NamespaceFeeds, NamespaceWatch};
use memory::Memory;
pub use memory::PoolMemory;
pub use probes::{ProbeKey, run_probes};

/// Requeue delay while the watch for the ConfigMaps of the namespace starts.
const WATCH_PAUSE: SignedDuration = SignedDuration::from_millis(50);

/// Requeue delay if RBAC forbids that watch.
const REFUSED_PAUSE: SignedDuration = SignedDuration::from_secs(15);

/// The SwarmPool controller and its dependencies.
pub struct SwarmPoolController {
    pub ctx: Context,
    pub namespaces: Namespaces,
    /// Watches on the metadata of ConfigMaps, in namespaces that contain pools.
    pub config_maps: NamespaceFeeds<PartialObjectMeta<ConfigMap>, ConfigMapFact>,
    pub outbound: Arc<OutboundClient>,
    pub polls: Arc<PollSet<ProbeKey>>,
    pub memory: PoolMemory,
}

impl Controller for SwarmPoolController {
    type Kind = SwarmPool;
    const NAME: &'static str = "swarm-pool";

    async fn reconcile(self: Arc<Self>, key: Key) -> ReconcileResult {
        let (reason, by) = (PoolReason::InvalidObject.as_str(), (marks::SWARM_STATUS_MANAGER, StatusWrite::Update));
        if let Some(done) = invalid::pass::<SwarmPool>(&self.ctx, &key, reason, by).await {
            return done;
        }
        let known = self.memory.pools().remove(&key);
        let found = self.ctx.store.read(|world| world.table::<SwarmPool>().get(&key).cloned());
        let Some(pool) = found.filter(|pool| pool.metadata.deletion_timestamp.is_none()) else {
            self.forget(&key);
            return self.ctx.finish(Ok(None));
        };
        let mut memory = known.filter(|known| known.is_of(&pool)).unwrap_or_else(|| Memory::new(&pool));
        let done = self.pass(&pool, &mut memory).await;
        self.memory.pools().insert(key, memory);
        self.ctx.finish(done)
    }
}

impl SwarmPoolController {
    /// Reconciles one pool. Returns the time of the next reconcile.
    async fn pass(&self, pool: &Arc<SwarmPool>, memory: &mut Memory) -> Result<Option<Timestamp>, Error> {
        if let Some(problem) = self.refusal(pool) {
            return self.refuse(pool, &problem.health()).await.map(|()| None);
        }
        if pool.spec.suspend == Some(true) {
            let message = "spec.suspend is true: workers keep their current jobs".to_owned();
            self.refuse(pool, &Health::Suspended(PoolReason::Suspended, message)).await?;
            return Ok(None);
        }
        match self.config_maps.state(&namespace(pool)) {
            NamespaceWatch::Ready => {}
            NamespaceWatch::Waiting => return Ok(self.ctx.now().checked_add(WATCH_PAUSE).ok()),
            NamespaceWatch::Refused => {
                self.refuse(pool, &self.not_bound(pool).await?.health()).await?;
                return Ok(self.ctx.now().checked_add(REFUSED_PAUSE).ok());
            }
        }
        match self.steps(pool, memory).await {
            Ok(done) => Ok(done),
            Err(Stop::Problem(problem)) => self.refuse(pool, &problem.health()).await.map(|()| None),
            Err(Stop::Error(error)) => {
                let message = format!("a request to the API server failed: {error}");
                let health = PoolProblem::passing(PoolReason::WriteFailed, message).health();
                // The next reconcile resolves a conflict. A failure of this status write must not hide `error`.
                if !matches!(error, Error::Conflict(_) | Error::NotLeader) {
                    let _ = self.refuse(pool, &health).await;
                }
                Err(error)
            }
        }
    }

    /// Observes, plans, acts and reports.
    async fn steps(&self, pool: &Arc<SwarmPool>, memory: &mut Memory) -> Result<Option<Timestamp>, Stop> {
        let mut workload = self.workload(pool)?;
        let replicas = self.scale(pool, &mut workload, memory).await?;
        let sources = self.read_sources(pool, memory).await?;
        self.read_output(pool, memory).await?;
        let mut seen = self.observe(pool, &workload, memory, sources);
        seen.problems.extend(replicas);
        let done = self.act(pool, memory, &seen).await;
        self.keep_probes(pool, memory, &seen);
        self.report(pool, memory, &seen, &workload, done).await
    }

    /// Returns the problem that stops the pool from being reconciled: its namespace is refused, or an older pool has
    /// the same workload.
    fn refusal(&self, pool: &SwarmPool) -> Option<PoolProblem> {
        if let Some(message) = self.namespaces.refusal(&namespace(pool)) {
            return Some(PoolProblem::new(PoolReason::NamespaceRefused, message));
        }
        let first = self.ctx.store.read(|world| world.first_pool_on_workload_of(pool).cloned());
        if let Some(first) = first.filter(|first| first.metadata.uid != pool.metadata.uid) {
            let name = first.metadata.name.clone().unwrap_or_default();
            let workload = &pool.spec.workload;
            let message = format!(
                "SwarmPool {name} is older and already manages {} {}: delete one of the two pools",
                workload.kind.as_str(),
                workload.name
            );
            return Some(PoolProblem::new(PoolReason::WorkloadTaken, message));
        }
        None
    }

    /// Returns the problem of a namespace in which the operator may not watch ConfigMaps. Lists them once, because the
    /// refusal of the API server names the operator's user, which the advice needs.
    async fn not_bound(&self, pool: &SwarmPool) -> Result<PoolProblem, Error> {
        let namespace = namespace(pool);
        let (api, one) = (self.ctx.writer.api::<ConfigMap>(&namespace), ListParams::default().limit(1));
        let words = match self.ctx.writer.call(api.list(&one)).await {
            Ok(_) => String::new(),
            Err(Error::Forbidden(words)) => words,
            Err(error) => return Err(error),
        };
        let message = format!("ConfigMaps cannot be listed and watched: {}", binding_advice(&words, &namespace));
        Ok(PoolProblem::new(PoolReason::Forbidden, message))
    }

    /// Stops the probes of a deleted pool, and the watches of namespaces without pools.
    fn forget(&self, key: &Key) {
        self.drop_probes(key);
        let namespaces = self.ctx.store.read(ganglion_core::world::World::namespaces_with_pools);
        self.config_maps.retain(&namespaces);
    }
}

/// Reason to end a reconcile before its report.
enum Stop {
    /// A problem that stops the pool until somebody fixes it.
    Problem(PoolProblem),
    /// A failed request.
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<PoolProblem> for Stop {
    fn from(problem: PoolProblem) -> Self {
        Self::Problem(problem)
    }
}

fn own_key(pool: &SwarmPool) -> Key {
    Key::new(namespace(pool), pool.metadata.name.clone().unwrap_or_default())
}

fn namespace(pool: &SwarmPool) -> String {
    pool.metadata.namespace.clone().unwrap_or_default()
}
