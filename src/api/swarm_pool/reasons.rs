//! The reasons of SwarmPools: one closed set of words for conditions, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reasons::reasons;

reasons! {
    /// Reason for the state of a SwarmPool. The docs of each word are for users.
    PoolReason:

    // Settled.
    /// Every job has its worker, and every worker works by its list.
    Converged,
    /// There are no jobs.
    NoJobs,
    /// `spec.suspend` is true.
    Suspended,

    // In progress.
    /// New workers are not Ready yet.
    WaitingForWorkers,
    /// Jobs were taken from workers, which have not confirmed it yet.
    Releasing,
    /// Workers have not yet read what they were given.
    Refreshing,
    /// A PodDisruptionBudget does not allow the restart of a worker.
    BudgetBlocked,
    /// The API server did not take a write; it is tried again.
    WriteFailed,

    // Somebody has to do something.
    /// A field has a value that cannot be read; the message names the field.
    InvalidObject,
    /// The operator's settings exclude the namespace.
    NamespaceRefused,
    /// The workload does not exist.
    WorkloadNotFound,
    /// An older SwarmPool deals jobs out to the same workload; the message names it.
    WorkloadTaken,
    /// A ConfigMap of the output's name exists, and the pool does not own it.
    NotOwned,
    /// The file is larger than a ConfigMap may be: set another layout.
    OutputTooLarge,
    /// A ConfigMap that the spec names does not exist. Jobs that were dealt out stay where they are.
    SourceNotFound,
    /// A ConfigMap has something that is no list of jobs; the message says where. Jobs that were dealt out stay where they are.
    SourceInvalid,
    /// There is no worker.
    NoWorkers,
    /// The workers may not have more jobs; some jobs have no worker.
    JobsUnassigned,
    /// There are not enough workers for the dedicated jobs to have one each.
    WorkersMissing,
    /// A worker has not been Ready for long.
    WorkerNotReady,
    /// A worker has not confirmed for long that it stopped jobs, which wait for it.
    HandoverTimedOut,
    /// A worker does not report the version that it should have.
    WorkerOutdated,
    /// An autoscaler or GitOps tool owns the workload's replicas.
    ReplicasOwnedElsewhere,
    /// Somebody else undoes what the pool writes to the workload's replicas.
    FieldConflict,
    /// The operator lacks a right; the message names it.
    Forbidden,
}
