//! Single reads: each is limited in time, and returns why it failed.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::facts::{NotRead, ReadResult};
use crate::operator::read::pages;

/// Maximum time of a read, with all pages of a list. A single request has the timeout of the client.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Labels of all objects in kustomize/base. An overlay may change names, but not these.
const LABELS: &str = "app.kubernetes.io/name=ganglion,app.kubernetes.io/part-of=ganglion";

/// Limits a read in time.
pub async fn timed<T>(read: impl Future<Output = kube::Result<T>>) -> ReadResult<T> {
    match tokio::time::timeout(TIMEOUT, read).await {
        Ok(done) => done.map_err(NotRead::from),
        Err(_) => Err(NotRead::Failed(format!("no answer within {} s", TIMEOUT.as_secs()))),
    }
}

/// A kind that can be read.
pub trait CheckedKind: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug {}
impl<K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug> CheckedKind for K {}

/// Reads all objects of a kind.
pub async fn list<K: CheckedKind>(api: &Api<K>) -> ReadResult<Vec<K>> {
    let mut found = Vec::new();
    timed(pages(api, |object| found.push(object))).await?;
    Ok(found)
}

/// Reads the objects of a kind that have the labels of the base.
pub async fn labelled<K: CheckedKind>(api: &Api<K>) -> ReadResult<Vec<K>> {
    Ok(timed(api.list(&ListParams::default().labels(LABELS))).await?.items)
}

pub async fn get<K: CheckedKind>(api: Api<K>, name: &str) -> ReadResult<Option<K>> {
    timed(api.get_opt(name)).await
}

/// Reads a document; None if there is none at this path.
pub async fn document<T: DeserializeOwned>(client: &Client, path: &str) -> ReadResult<Option<T>> {
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|error| NotRead::Failed(error.to_string()))?;
    let read = async {
        match client.request::<T>(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            found => found.map(Some),
        }
    };
    timed(read).await
}
