//! Why a removal does not begin, or does not end.

use thiserror::Error;

use crate::operator;
use ganglion_runtime::error::failure;
use ganglion_runtime::lease::{ApiError, LeaseLost};

/// Error: the operator's objects were not all removed.
#[derive(Debug, Error)]
pub enum Error {
    #[error(
        "nothing was changed, since you do not have the permission to {0}; kustomize/README.md, section Uninstall, lists \
         all permissions of a removal"
    )]
    MissingRights(String),
    #[error(
        "nothing was changed, since GitOps tools create these objects again: {0}; remove them from their repositories \
         first, or remove them all the same with --force"
    )]
    Managed(String),
    #[error(
        "another operator works in this cluster, with its lease in namespace {0}: remove that one first, with \
         --namespace {0}, or limit this removal with --watch-namespace"
    )]
    OtherOperator(String),
    #[error(
        "the running operator would not complete its actions: {problem}. Or stop it, kubectl scale deployment ganglion -n \
         {namespace} --replicas=0, and run this command again, which then completes them itself"
    )]
    Idle { problem: String, namespace: String },
    #[error("an operator has started in namespace {0} meanwhile: run this command again")]
    OperatorStarted(String),
    #[error("the removal did not end in time; it waits for: {}; run this command again to continue", .0.join("; "))]
    TimedOut(Vec<String>),
    #[error("interrupted")]
    Interrupted(Vec<String>),
    #[error("the lease is lost, since another operator has started: {0}; run this command again")]
    Lease(LeaseLost),
    #[error("the controllers have ended by themselves: run this command again")]
    ControllersEnded,
    #[error("{what}: {words}")]
    NotAllowed { what: String, words: String },
    #[error("{what}: the API server failed: {}; run this command again to continue", failure(.source))]
    Api { what: String, source: Box<kube::Error> },
    #[error("the operator's lease in namespace {namespace} cannot be read: {source}")]
    Leases { namespace: String, source: ApiError },
    #[error(transparent)]
    Operator(#[from] operator::Error),
}

impl Error {
    /// Failure of a request about this object or kind.
    pub fn of(what: &str, error: kube::Error) -> Self {
        let what = what.to_owned();
        match error {
            kube::Error::Api(status) if status.is_forbidden() => {
                Self::NotAllowed { what, words: status.message.clone() }
            }
            error => Self::Api { what, source: Box::new(error) },
        }
    }
}
