//! Limits how often a watch of one path is started.
//!
//! `kube::runtime::watcher` starts the next watch at once if the server ends one without an event, and reports nothing. A
//! server, or a proxy in front of it, that ends every watch at once would be called as fast as it answers.

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

type Begun = Arc<Mutex<HashMap<String, Instant>>>;

/// A client that starts watches no faster than that.
pub fn paced(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let begun = Begun::default();
    let service = service_fn(move |request: Request<Body>| {
        let (client, begun) = (client.clone(), Arc::clone(&begun));
        async move {
            if let Some(at) = turn(&begun, &request) {
                sleep_until(at).await;
            }
            client.send(request).await
        }
    });
    Client::new(service, namespace)
}

/// When this request may be sent, if it starts a watch.
fn turn(begun: &Begun, request: &Request<Body>) -> Option<Instant> {
    let uri = request.uri();
    uri.query().filter(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"))?;
    let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let at = begun.get(uri.path()).map_or(now, |last| (*last + PACE).max(now));
    begun.insert(uri.path().to_owned(), at);
    Some(at)
}
