//! Reasons of SwarmPools: one closed set of words for conditions, events and metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reasons::reasons;

reasons! {
    /// Reason for the state of a SwarmPool. The documentation of each word is user documentation.
    PoolReason:

    // Settled.
    /// Every job has a worker, and every worker uses its current job list.
    Converged,
    /// There are no jobs.
    NoJobs,
    /// `spec.suspend` is true.
    Suspended,

    // In progress.
    /// New workers are not Ready yet.
    WaitingForWorkers,
    /// Workers have not yet confirmed that they stopped the jobs that move to other workers.
    Releasing,
    /// Workers have not yet read their new job lists.
    Refreshing,
    /// A PodDisruptionBudget does not allow the restart of a worker.
    BudgetBlocked,
    /// The API server rejected a write; the operator retries.
    WriteFailed,

    // Requires an action by the user.
    /// A field has a value that cannot be parsed; the message names the field.
    InvalidObject,
    /// Admission policies of the operator are missing or edited, so the operator does not act; the message says which,
    /// and what to do.
    AdmissionPolicyMissing,
    /// The CRD of this kind is older than the operator, so the operator does not act; the message says what to do.
    DefinitionOutdated,
    /// The operator's settings exclude the namespace.
    NamespaceRefused,
    /// The workload does not exist.
    WorkloadNotFound,
    /// An older SwarmPool assigns jobs to the same workload; the message names it.
    WorkloadTaken,
    /// A ConfigMap with the name of the output exists, but the pool does not own it.
    NotOwned,
    /// The file exceeds the maximum size of a ConfigMap: set another layout.
    OutputTooLarge,
    /// A ConfigMap that the spec names does not exist. Assigned jobs stay with their workers.
    SourceNotFound,
    /// The content of a ConfigMap is not a list of jobs, or is not UTF-8 text; the message shows the position. Assigned
    /// jobs stay with their workers.
    SourceInvalid,
    /// The jobs of the namespace's pools need more memory than the operator's settings allow. Assigned jobs stay with
    /// their workers.
    JobsTooMany,
    /// There is no worker.
    NoWorkers,
    /// The workers have reached their maximum number of jobs; some jobs have no worker.
    JobsUnassigned,
    /// There are not enough workers to give each dedicated job its own worker.
    WorkersMissing,
    /// A worker has not been Ready for a long time.
    WorkerNotReady,
    /// A worker has not confirmed for a long time that it stopped jobs; other workers wait for these jobs.
    HandoverTimedOut,
    /// A worker does not report the desired version.
    WorkerOutdated,
    /// An autoscaler or GitOps tool owns the workload's replicas.
    ReplicasOwnedElsewhere,
    /// Another client reverts the pool's changes of the workload's replicas.
    FieldConflict,
    /// The operator lacks a permission; the message names it.
    Forbidden,
}
