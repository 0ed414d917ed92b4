//! The process that completes the work in flight: a running operator, or this one.
//!
//! Only one of the two may act at a time, so this process does not begin before it holds the operator's lease, or
//! before nobody can hold it any more, because its namespace is gone.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use super::Error;
use crate::operator::ProgressLine;
use ganglion_runtime::lease::{ApiError, Elector, KubeLeases, LeaseLost, Leases, Timings};

/// Interval between two reads of the lease and the namespace.
const PACE: Duration = Duration::from_millis(500);

/// Multiple of its duration after which a lease has expired, no matter how much clocks differ.
const LONG_EXPIRED: i32 = 4;

/// Identity of the operator that holds the lease and renews it; None if there is none. Observes a lease, or its
/// absence, for as long as a lease lasts, by the clock of this process: an operator whose lease was deleted creates it
/// again.
pub async fn running_operator(
    leases: &impl Leases,
    timings: Timings,
    say: ProgressLine<'_>,
) -> Result<Option<String>, ApiError> {
    let begun = Instant::now();
    let mut first: Option<Option<String>> = None;
    loop {
        let lease = leases.get().await?;
        let version = lease.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        if let Some(lease) = &lease {
            let holder = holder(lease);
            if holder.is_none() || is_long_expired(lease, Timestamp::now()) {
                return Ok(None);
            }
            if first.as_ref().is_some_and(|first| *first != version) {
                return Ok(holder);
            }
        }
        let limit = lease.as_ref().and_then(lasts).unwrap_or(timings.duration);
        if begun.elapsed() >= limit {
            return Ok(None);
        }
        let what = if lease.is_some() { "renews its lease" } else { "creates its lease, which is missing" };
        say(&format!("waits up to {} s for an operator that {what}", limit.as_secs()));
        first.get_or_insert(version);
        sleep(PACE).await;
    }
}

/// Time for which a lease lasts after a renewal, as its holder says.
fn lasts(lease: &Lease) -> Option<Duration> {
    let seconds = lease.spec.as_ref()?.lease_duration_seconds?;
    u64::try_from(seconds).ok().map(Duration::from_secs)
}

/// Identity of the holder of a lease; None if the lease is free.
pub fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())
}

/// Whether a lease expired long ago by the wall clock.
pub fn is_long_expired(lease: &Lease, now: Timestamp) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    let lasts = SignedDuration::try_from(lasts(lease).unwrap_or_default()).unwrap_or_default();
    renewed.is_none_or(|renewed| now.duration_since(renewed.0) > lasts * LONG_EXPIRED)
}

/// The operator's lease, as far as this process can hold it.
pub struct LeaseKeeper {
    client: Client,
    namespace: String,
    elector: Elector<KubeLeases>,
    /// Whether the lease was acquired. Otherwise nobody can hold it.
    is_held: bool,
}

impl LeaseKeeper {
    /// Acquires the lease. Fails if another holder renews it.
    pub async fn acquire(
        client: Client,
        namespace: &str,
        mut elector: Elector<KubeLeases>,
        timings: Timings,
    ) -> Result<Self, Error> {
        let is_held = tokio::select! {
            () = elector.acquire() => true,
            () = closed(&client, namespace) => false,
            () = sleep(timings.duration * 3) => return Err(Error::OperatorStarted(namespace.to_owned())),
        };
        Ok(Self { client, namespace: namespace.to_owned(), elector, is_held })
    }

    /// Returns when another process may hold the lease. Nobody can create a lease in a namespace that is gone or going.
    pub async fn lost(&mut self) -> LeaseLost {
        if self.is_held {
            let lost = self.elector.hold().await;
            if matches!(lost, LeaseLost::Taken(_)) || !is_closed(&self.client, &self.namespace).await {
                return lost;
            }
        }
        std::future::pending().await
    }

    /// Releases the lease, so that an operator could acquire it at once.
    pub async fn release(mut self) {
        if self.is_held {
            self.elector.release().await;
        }
    }
}

/// Returns once no lease can be created in the namespace.
async fn closed(client: &Client, namespace: &str) {
    while !is_closed(client, namespace).await {
        sleep(PACE).await;
    }
}

/// Whether the namespace is gone, or is being deleted and has lost its leases.
async fn is_closed(client: &Client, namespace: &str) -> bool {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.get_opt(namespace).await {
        Ok(None) => true,
        Ok(Some(found)) if found.metadata.deletion_timestamp.is_some() => {
            let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
            leases.list(&Default::default()).await.is_ok_and(|leases| leases.items.is_empty())
        }
        Ok(Some(_)) | Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;

    const TIMINGS: Timings = Timings {
        duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    /// A lease that is renewed, or recreated, after a number of reads.
    struct Scripted {
        reads: Mutex<u32>,
        first: Option<Lease>,
        later: Option<Lease>,
        changes_after: u32,
    }

    impl Leases for Scripted {
        async fn get(&self) -> Result<Option<Lease>, ApiError> {
            let mut reads = self.reads.lock().unwrap();
            *reads += 1;
            Ok(if *reads > self.changes_after { self.later.clone() } else { self.first.clone() })
        }

        async fn create(&self, _: &Lease) -> Result<Lease, ApiError> {
            Err(ApiError::Conflict)
        }

        async fn replace(&self, _: &Lease) -> Result<Lease, ApiError> {
            Err(ApiError::Conflict)
        }
    }

    fn lease(version: u32, holder: &str, age: i64) -> Option<Lease> {
        let renewed = Timestamp::now() - SignedDuration::from_secs(age);
        let renewed = renewed.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        serde_json::from_value(json!({
            "metadata": {"name": "ganglion", "resourceVersion": version.to_string()},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        }))
        .ok()
    }

    async fn running(first: Option<Lease>, later: Option<Lease>) -> (Option<String>, Duration, Vec<String>) {
        let begun = Instant::now();
        let said = Mutex::new(Vec::new());
        let leases = Scripted { reads: Mutex::new(0), first, later, changes_after: 5 };
        (
            running_operator(&leases, TIMINGS, &|line| said.lock().unwrap().push(line.to_owned())).await.unwrap(),
            begun.elapsed(),
            said.into_inner().unwrap(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_runs_if_its_lease_changes_or_appears() {
        let one = || Some("one".to_owned());
        assert_eq!(running(lease(1, "one", 0), lease(2, "one", 0)).await.0, one());
        assert_eq!(running(None, lease(2, "one", 0)).await.0, one(), "it was deleted, and its holder creates it again");
        // The clock of the operator is behind.
        assert_eq!(running(lease(1, "one", 40), lease(2, "one", 38)).await.0, one());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_nobody_renews_is_observed_for_as_long_as_it_lasts() {
        let (holder, took, said) = running(lease(1, "one", 0), lease(1, "one", 0)).await;
        assert_eq!((holder, took >= Duration::from_secs(15)), (None, true));
        assert!(said.iter().all(|line| line == "waits up to 15 s for an operator that renews its lease"), "{said:?}");
        let (holder, took, said) = running(None, None).await;
        assert_eq!((holder, took >= Duration::from_secs(15)), (None, true));
        assert_eq!(said[0], "waits up to 15 s for an operator that creates its lease, which is missing");
        let (holder, took, said) = running(lease(1, "", 0), lease(1, "", 0)).await;
        assert_eq!((holder, took, said.len()), (None, Duration::ZERO, 0), "it was released");
        let (holder, took, said) = running(lease(1, "one", 600), lease(1, "one", 600)).await;
        assert_eq!((holder, took, said.len()), (None, Duration::ZERO, 0), "it expired long ago");
    }
}
