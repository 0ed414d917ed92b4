//! Leader election on a Lease, like client-go: at most one replica acts at any time.
//!
//! Owns the rules. The expiry of another holder's lease is measured with our own monotonic clock, from its last
//! observed change; wall clocks of other replicas are not trusted. Each write carries the resourceVersion that was
//! read, so one of two candidates loses. The holder counts from the time it *sent* its last successful renewal
//! (client-go: from its first attempt after that), and gives up before others may take over. Independent of the work of
//! the holder.

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

/// Reason why a request for the lease failed.
#[derive(Debug, Error)]
pub enum ApiError {
    /// Another replica wrote first.
    #[error("another writer was faster")]
    Conflict,
    /// The object does not exist.
    #[error("the lease does not exist")]
    NotFound,
    #[error(transparent)]
    Other(#[from] kube::Error),
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// The Lease object.
pub trait Leases: Send + Sync {
    /// Reads the object; None if it does not exist.
    fn get(&self) -> impl Future<Output = Result<Option<Lease>, ApiError>> + Send;
    /// Creates the object; returns a conflict if it exists.
    fn create(&self, lease: &Lease) -> impl Future<Output = Result<Lease, ApiError>> + Send;
    /// Replaces the object if it exists and still has the resourceVersion of `lease`.
    fn replace(&self, lease: &Lease) -> impl Future<Output = Result<Lease, ApiError>> + Send;
}

/// Timings of the election, from the settings.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    pub duration: Duration,
    pub renew_deadline: Duration,
    pub retry: Duration,
}

/// Reason why this replica lost the lease.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LeaseLost {
    #[error("the lease could not be renewed within {0:?}")]
    Deadline(Duration),
    #[error("the lease was taken by {0}")]
    Taken(String),
}

/// Lease as last read or written, and the time of its last observed change.
struct ObservedLease {
    lease: Lease,
    since: Instant,
}

/// A replica that competes for the lease or holds it.
pub struct Elector<L> {
    leases: L,
    timings: Timings,
    identity: String,
    name: ObjectMeta,
    /// Annotation of the lease while this replica holds it. Without a value, the lease does not have it.
    annotation: Option<(&'static str, Option<String>)>,
    observed: Option<ObservedLease>,
    /// Time at which the last successful renewal was sent.
    renewed: Option<Instant>,
    /// Another replica may have acted since this one was created.
    follows_another: bool,
}

/// Result of one attempt.
enum RenewalResult {
    Held,
    Other(String),
    /// The request failed.
    Failed,
}

impl<L: Leases> Elector<L> {
    /// A candidate with this identity for this lease.
    pub fn new(leases: L, timings: Timings, identity: String, namespace: &str, name: &str) -> Self {
        let name =
            ObjectMeta { namespace: Some(namespace.to_owned()), name: Some(name.to_owned()), ..ObjectMeta::default() };
        let (annotation, observed, renewed, follows_another) = (None, None, None, false);
        Self { leases, timings, identity, name, annotation, observed, renewed, follows_another }
    }

    /// The same candidate, which sets this annotation of the lease, or removes it if there is no value.
    pub fn annotated(self, key: &'static str, value: Option<String>) -> Self {
        Self { annotation: Some((key, value)), ..self }
    }

    /// Returns when this replica holds the lease. Cancel-safe.
    pub async fn acquire(&mut self) {
        let mut logged = None;
        loop {
            match self.attempt().await {
                RenewalResult::Held => {
                    info!(identity = self.identity, "lease acquired");
                    return;
                }
                RenewalResult::Other(holder) if logged.as_ref() != Some(&holder) => {
                    info!(holder, "standing by, another replica holds the lease");
                    logged = Some(holder);
                }
                RenewalResult::Other(_) | RenewalResult::Failed => {}
            }
            // Up to a fifth longer, so that candidates do not stay synchronized.
            sleep(self.timings.retry.mul_f64(1.0 + 0.2 * fastrand::f64())).await;
        }
    }

    /// Whether another replica may have acted since this one was created: it held the lease, or has released it.
    pub fn follows_another(&self) -> bool {
        self.follows_another
    }

    /// Renews the lease; returns when it is lost. Cancel-safe, so that the caller can release the lease.
    pub async fn hold(&mut self) -> LeaseLost {
        loop {
            sleep(self.timings.retry).await;
            let deadline = self.renewed.map(|at| at + self.timings.renew_deadline);
            let left = deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            match timeout(left, self.renew()).await {
                Ok(None) => {}
                Ok(Some(holder)) => return LeaseLost::Taken(holder),
                Err(_) => return LeaseLost::Deadline(self.timings.renew_deadline),
            }
        }
    }

    /// Retries until an attempt succeeds (None) or another replica holds the lease (its identity).
    async fn renew(&mut self) -> Option<String> {
        loop {
            match self.attempt().await {
                RenewalResult::Held => return None,
                RenewalResult::Other(holder) => return Some(holder),
                // Retries faster than usual, since the deadline is near.
                RenewalResult::Failed => sleep(self.timings.retry / 4).await,
            }
        }
    }

    /// Releases the lease, so that another replica can acquire it at once. Call it when no controller runs any more.
    pub async fn release(&mut self) {
        // A cancelled renewal may have been written, so the lease is read again.
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

    /// One attempt to acquire or renew the lease.
    async fn attempt(&mut self) -> RenewalResult {
        match self.try_once().await {
            Ok(attempt) => attempt,
            Err(error) => {
                debug!(%error, "lease not written");
                if let ApiError::Other(error) = &error {
                    warn!(%error, "request about the lease failed");
                }
                RenewalResult::Failed
            }
        }
    }

    async fn try_once(&mut self) -> Result<RenewalResult, ApiError> {
        // The holder renews based on its last write, without a read, which halves the requests.
        if let (Some(observed), Some(_)) = (&self.observed, self.renewed)
            && holder(&observed.lease) == Some(self.identity.as_str())
        {
            let next = self.next(Some(&observed.lease));
            match self.write(&next, true).await {
                Ok(()) => return Ok(RenewalResult::Held),
                // Changed or deleted: the read below shows whether another replica holds it.
                Err(ApiError::Conflict | ApiError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        let Some(lease) = self.leases.get().await? else { return self.create().await };
        self.observe(&lease);
        if let Some(other) = self.other_holder(&lease) {
            return Ok(RenewalResult::Other(other));
        }
        let next = self.next(Some(&lease));
        self.write(&next, true).await?;
        Ok(RenewalResult::Held)
    }

    /// Creates a lease that does not exist. If the lease was deleted, its holder still acts and recreates it at its
    /// next renewal, so other candidates wait until it would have expired.
    async fn create(&mut self) -> Result<RenewalResult, ApiError> {
        if let Some(other) = self.observed.as_ref().and_then(|observed| self.other_holder(&observed.lease)) {
            return Ok(RenewalResult::Other(other));
        }
        let first = self.next(None);
        self.write(&first, false).await?;
        Ok(RenewalResult::Held)
    }

    /// Writes the lease. The renewal counts from before the request.
    async fn write(&mut self, lease: &Lease, exists: bool) -> Result<(), ApiError> {
        let sent = Instant::now();
        let written = if exists { self.leases.replace(lease).await? } else { self.leases.create(lease).await? };
        self.observed = Some(ObservedLease { lease: written, since: sent });
        self.renewed = Some(sent);
        Ok(())
    }

    /// Records the lease. Its age restarts only if it changed.
    fn observe(&mut self, lease: &Lease) {
        self.follows_another |= holder(lease) != Some(self.identity.as_str());
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        if self.observed.as_ref().is_none_or(|observed| version(&observed.lease) != version(lease)) {
            self.observed = Some(ObservedLease { lease: lease.clone(), since: Instant::now() });
        }
    }

    /// The other replica that holds the lease, unless the lease has expired by our own clock.
    fn other_holder(&self, lease: &Lease) -> Option<String> {
        let other = holder(lease).filter(|holder| *holder != self.identity)?;
        let spec = lease.spec.as_ref()?;
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(self.timings.duration, Duration::from_secs);
        let since = self.observed.as_ref().map_or_else(Instant::now, |observed| observed.since);
        (since.elapsed() < duration).then(|| other.to_owned())
    }

    /// The lease with this replica as the holder, derived from the current one.
    fn next(&self, current: Option<&Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let old = current.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let mine = old.holder_identity.as_deref() == Some(self.identity.as_str());
        let turns = old.lease_transitions.unwrap_or(0);
        let mut metadata = current.map_or_else(|| self.name.clone(), |lease| lease.metadata.clone());
        if let Some((key, value)) = &self.annotation {
            let annotations = metadata.annotations.get_or_insert_default();
            match value {
                Some(value) => annotations.insert((*key).to_owned(), value.clone()),
                None => annotations.remove(*key),
            };
        }
        Lease {
            metadata,
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
