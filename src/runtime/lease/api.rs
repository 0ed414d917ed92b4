//! The Lease object in a cluster. Every call has a timeout; the given client must not retry on its own.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};

use super::{ApiError, Leases};

/// A Lease in a cluster.
pub struct KubeLeases {
    api: Api<Lease>,
    name: String,
    timeout: Duration,
}

impl KubeLeases {
    /// The lease of this namespace and name.
    pub fn new(client: Client, namespace: &str, name: &str, timeout: Duration) -> Self {
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), timeout }
    }

    async fn timed<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
        match tokio::time::timeout(self.timeout, call).await {
            Err(_) => Err(ApiError::Timeout(self.timeout)),
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Err(ApiError::Conflict),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Err(ApiError::NotFound),
            Ok(result) => Ok(result?),
        }
    }
}

impl Leases for KubeLeases {
    async fn get(&self) -> Result<Option<Lease>, ApiError> {
        self.timed(self.api.get_opt(&self.name)).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.timed(self.api.create(&PostParams::default(), lease)).await
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, ApiError> {
        self.timed(self.api.replace(&self.name, &PostParams::default(), lease)).await
    }
}
