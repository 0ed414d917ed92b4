//! The SwarmPool controller: deals jobs out to the pods of a workload.
//!
//! | beat | what |
//! |---|---|
//! | observe | the workload and its pods; the ConfigMaps with jobs (`sources`) and those that workers read (`output`) |
//! | plan | `logic::swarm_pool`: who has which job in the end, and which step comes next |
//! | act | replicas, ConfigMaps, and what has workers read them (`act`) |
//! | beside the passes | workers are asked for the version that they work by (`probes`) |
//! | report | the status, where it says something new (`report`) |
//!
//! Everything in memory may be lost in a crash: what a handover needs is in the ConfigMaps.

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
use ganglion_runtime::run::{Controller, PassResult};
use ganglion_runtime::watch::namespaces::{NamespaceFeeds, NamespaceWatch};
use memory::Memory;
pub use memory::PoolMemory;
pub use probes::{ProbeKey, run_probes};

/// How often a pool looks whether the ConfigMaps of its namespace can be watched now.
const WATCH_PAUSE: SignedDuration = SignedDuration::from_millis(50);

/// The same, where the operator lacks the right.
const REFUSED_PAUSE: SignedDuration = SignedDuration::from_secs(15);

/// The controller and its dependencies.
pub struct SwarmPoolController {
    pub ctx: Context,
    pub namespaces: Namespaces,
    /// The ConfigMaps of namespaces with pools, without their data.
    pub config_maps: NamespaceFeeds<PartialObjectMeta<ConfigMap>, ConfigMapFact>,
    pub outbound: Arc<OutboundClient>,
    pub polls: Arc<PollSet<ProbeKey>>,
    pub memory: PoolMemory,
}

impl Controller for SwarmPoolController {
    type Kind = SwarmPool;
    const NAME: &'static str = "swarm-pool";

    async fn reconcile(self: Arc<Self>, key: Key) -> PassResult {
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
    /// One pass. Returns when the next is due.
    async fn pass(&self, pool: &Arc<SwarmPool>, memory: &mut Memory) -> Result<Option<Timestamp>, Error> {
        if let Some(problem) = self.refusal(pool) {
            return self.refuse(pool, &problem.health()).await.map(|()| None);
        }
        if pool.spec.suspend == Some(true) {
            let message = "spec.suspend is true: the workers go on with the jobs that they have".to_owned();
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
                let message = format!("the API server did not take a request: {error}");
                let health = PoolProblem::passing(PoolReason::WriteFailed, message).health();
                // A conflict is resolved by the next pass; and the cause is what is returned.
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

    /// Why nothing is done for the pool.
    fn refusal(&self, pool: &SwarmPool) -> Option<PoolProblem> {
        if let Some(message) = self.namespaces.refusal(&namespace(pool)) {
            return Some(PoolProblem::new(PoolReason::NamespaceRefused, message));
        }
        let first = self.ctx.store.read(|world| world.first_pool_on_workload_of(pool).cloned());
        if let Some(first) = first.filter(|first| first.metadata.uid != pool.metadata.uid) {
            let name = first.metadata.name.clone().unwrap_or_default();
            let workload = &pool.spec.workload;
            let message = format!(
                "SwarmPool {name}, which is older, deals jobs out to {} {}: delete one of the two",
                workload.kind.as_str(),
                workload.name
            );
            return Some(PoolProblem::new(PoolReason::WorkloadTaken, message));
        }
        None
    }

    /// The problem of a namespace that does not let the operator watch its ConfigMaps. The API server's own words name the
    /// operator's user, which the advice needs.
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

    /// Drops everything of a pool that is gone.
    fn forget(&self, key: &Key) {
        self.drop_probes(key);
        let namespaces = self.ctx.store.read(ganglion_core::world::World::namespaces_with_pools);
        self.config_maps.retain(&namespaces);
    }
}

/// Why a pass ends before its report.
enum Stop {
    /// Nothing can be done until somebody does something.
    Problem(PoolProblem),
    /// A request failed.
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
