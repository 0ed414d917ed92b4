//! Limits how often a watch of one path is started.
//!
//! `kube::runtime::watcher` starts the next watch without a pause or a report if the server ends one without an event.
//! If the server, or a proxy in front of it, ended every watch immediately, the operator would send requests as fast as
//! it answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, sleep_until};
use tower::service_fn;

/// Minimum time between the starts of two watches of the same path.
const PACE: Duration = Duration::from_secs(1);

/// Last or scheduled start of a watch, by path.
type Starts = Arc<Mutex<HashMap<String, Instant>>>;

/// A client that delays the start of a watch until [`PACE`] has passed since the last one of the same path.
pub fn paced(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let starts = Starts::default();
    let service = service_fn(move |request: Request<Body>| {
        let (client, starts) = (client.clone(), Arc::clone(&starts));
        async move {
            if let Some(at) = start_at(&starts, &request) {
                sleep_until(at).await;
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
}

/// Time at which this request may be sent; None if it does not start a watch.
fn start_at(starts: &Starts, request: &Request<Body>) -> Option<Instant> {
    let uri = request.uri();
    uri.query().filter(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"))?;
    let mut starts = starts.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let at = starts.get(uri.path()).map_or(now, |last| (*last + PACE).max(now));
    starts.insert(uri.path().to_owned(), at);
    Some(at)
}
