//! Leader election on a Lease, as client-go does it: at any time at most one replica acts.
//!
//! Owns the rules. Whether a lease of somebody else has expired is judged by our own monotonic clock, from the moment we
//! last saw it change: nobody's wall clock is believed. Each write carries the version that was read, so of two
//! candidates one loses. The holder counts from the moment it *sent* its last successful renewal (client-go: from its
//! first attempt after that), and gives up sooner than others may take over. What the holder does with its turn is not known here.

mod api;

use std::future::Future;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

pub use api::KubeLeases;

/// Why a request about the lease did not succeed.
#[derive(Debug, Error)]
pub enum ApiError {
    /// Somebody else wrote first.
    #[error("written by another in between")]
    Conflict,
    #[error(transparent)]
    Other(#[from] kube::Error),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// The one Lease object that is contended for.
pub trait Leases: Send + Sync {
    /// The object; None where there is none.
    fn get(&self) -> impl Future<Output = Result<Option<Lease>, ApiError>> + Send;
    /// Makes it; a conflict where it exists.
    fn create(&self, lease: &Lease) -> impl Future<Output = Result<Lease, ApiError>> + Send;
    /// Writes it, only if it is still of the version that `lease` bears.
    fn replace(&self, lease: &Lease) -> impl Future<Output = Result<Lease, ApiError>> + Send;
}

/// Timings; see the settings for what each means.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    pub duration: Duration,
    pub renew_deadline: Duration,
    pub retry: Duration,
}

/// Why the lease is not ours any more.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Lost {
    #[error("the lease could not be renewed within {0:?}")]
    Deadline(Duration),
    #[error("the lease was taken by {0}")]
    Taken(String),
}

/// A lease as it was last read or written, and since when it is unchanged.
struct ObservedLease {
    lease: Lease,
    since: Instant,
}

/// A candidate, or the holder.
pub struct Elector<L> {
    leases: L,
    timings: Timings,
    identity: String,
    name: ObjectMeta,
    observed: Option<ObservedLease>,
    /// When the last successful renewal was sent.
    renewed: Option<Instant>,
}

/// What one attempt came to.
enum Attempt {
    Held,
    Other(String),
    /// Nothing is known: the request failed.
    Failed,
}

impl<L: Leases> Elector<L> {
    /// A candidate of this identity for the lease of this namespace and name.
    pub fn new(leases: L, timings: Timings, identity: String, namespace: &str, name: &str) -> Self {
        let name =
            ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() };
        Self { leases, timings, identity, name, observed: None, renewed: None }
    }

    /// Returns when the lease is ours. May be dropped at any time.
    pub async fn acquire(&mut self) {
        let mut logged = None;
        loop {
            match self.attempt().await {
                Attempt::Held => {
                    info!(identity = self.identity, "lease acquired");
                    return;
                }
                Attempt::Other(holder) if logged.as_ref() != Some(&holder) => {
                    info!(holder, "standing by, another replica holds the lease");
                    logged = Some(holder);
                }
                Attempt::Other(_) | Attempt::Failed => {}
            }
            // Up to a fifth longer, so that candidates do not stay in step.
            sleep(self.timings.retry.mul_f64(1.0 + 0.2 * fastrand::f64())).await;
        }
    }

    /// Renews the lease; returns when it is not ours any more. May be dropped at any time, to release it.
    pub async fn hold(&mut self) -> Lost {
        loop {
            sleep(self.timings.retry).await;
            let deadline = self.renewed.map(|at| at + self.timings.renew_deadline);
            let left = deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            match timeout(left, self.renew()).await {
                Ok(None) => {}
                Ok(Some(holder)) => return Lost::Taken(holder),
                Err(_) => return Lost::Deadline(self.timings.renew_deadline),
            }
        }
    }

    /// Attempts until one succeeds (None), or another holds the lease (its identity).
    async fn renew(&mut self) -> Option<String> {
        loop {
            match self.attempt().await {
                Attempt::Held => return None,
                Attempt::Other(holder) => return Some(holder),
                // More often than usual: time is running out.
                Attempt::Failed => sleep(self.timings.retry / 4).await,
            }
        }
    }

    /// Gives the lease back so that another replica can take it at once. To be called when nothing acts any more.
    pub async fn release(&mut self) {
        // A renewal that was dropped half-way may have been written: what is there now is what counts.
        match timeout(self.timings.renew_deadline, self.give_back()).await {
            Ok(Ok(true)) => info!("lease released"),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => warn!(%error, "lease not released, it will expire"),
            Err(_) => warn!("lease not released in time, it will expire"),
        }
        self.observed = None;
        self.renewed = None;
    }

    async fn give_back(&mut self) -> Result<bool, ApiError> {
        let Some(lease) = self.leases.get().await? else { return Ok(false) };
        if holder(&lease) != Some(self.identity.as_str()) {
            return Ok(false);
        }
        let mut free = lease;
        let spec = free.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        self.leases.replace(&free).await?;
        Ok(true)
    }

    /// One attempt to take or renew the lease.
    async fn attempt(&mut self) -> Attempt {
        match self.try_once().await {
            Ok(attempt) => attempt,
            Err(error) => {
                debug!(%error, "lease not written");
                // Whatever we believed of it is to be read again.
                if let ApiError::Other(error) = &error {
                    warn!(%error, "request about the lease failed");
                }
                Attempt::Failed
            }
        }
    }

    async fn try_once(&mut self) -> Result<Attempt, ApiError> {
        // The holder writes on what it wrote last, with no read before: half the requests, and a conflict tells the rest.
        if let (Some(observed), Some(_)) = (&self.observed, self.renewed)
            && holder(&observed.lease) == Some(self.identity.as_str())
        {
            let next = self.next(Some(&observed.lease));
            match self.write(&next, true).await {
                Ok(()) => return Ok(Attempt::Held),
                Err(ApiError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        let Some(lease) = self.leases.get().await? else {
            let first = self.next(None);
            self.write(&first, false).await?;
            return Ok(Attempt::Held);
        };
        self.observe(&lease);
        if let Some(other) = self.other_holder(&lease) {
            return Ok(Attempt::Other(other));
        }
        let next = self.next(Some(&lease));
        self.write(&next, true).await?;
        Ok(Attempt::Held)
    }

    /// Writes the lease, and counts from before it was sent.
    async fn write(&mut self, lease: &Lease, exists: bool) -> Result<(), ApiError> {
        let sent = Instant::now();
        let written = if exists { self.leases.replace(lease).await? } else { self.leases.create(lease).await? };
        self.observed = Some(ObservedLease { lease: written, since: sent });
        self.renewed = Some(sent);
        Ok(())
    }

    /// Notes the lease as it stands; the clock starts anew only if it changed.
    fn observe(&mut self, lease: &Lease) {
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        if self.observed.as_ref().is_none_or(|observed| version(&observed.lease) != version(lease)) {
            self.observed = Some(ObservedLease { lease: lease.clone(), since: Instant::now() });
        }
    }

    /// Who else holds the lease, if it has not expired by our own clock.
    fn other_holder(&self, lease: &Lease) -> Option<String> {
        let other = holder(lease).filter(|holder| *holder != self.identity)?;
        let spec = lease.spec.as_ref()?;
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(self.timings.duration, Duration::from_secs);
        let since = self.observed.as_ref().map_or_else(Instant::now, |observed| observed.since);
        (since.elapsed() < duration).then(|| other.to_owned())
    }

    /// The lease as ours, written over what is there.
    fn next(&self, current: Option<&Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let old = current.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let mine = old.holder_identity.as_deref() == Some(self.identity.as_str());
        let turns = old.lease_transitions.unwrap_or(0);
        Lease {
            metadata: current.map_or_else(|| self.name.clone(), |lease| lease.metadata.clone()),
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: Some(i32::try_from(self.timings.duration.as_secs()).unwrap_or(i32::MAX)),
                acquire_time: if mine { old.acquire_time } else { Some(now.clone()) },
                renew_time: Some(now),
                lease_transitions: Some(if mine || current.is_none() { turns } else { turns.saturating_add(1) }),
                ..old
            }),
        }
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

#[cfg(test)]
mod tests;
