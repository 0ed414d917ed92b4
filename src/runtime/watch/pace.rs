//! Limits how often a watch of one path is started, and how large a page of a list is.
//!
//! `kube::runtime::watcher` starts the next watch without a pause or a report if the server ends one without an event.
//! If the server, or a proxy in front of it, ended every watch immediately, the operator would send requests as fast as
//! it answers.
//!
//! The API server limits a page by the number of objects only, and an object may have more than a megabyte: a page of
//! the usual number could fill the memory. So a page that is too large is requested again with fewer objects.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, sleep_until};
use tower::service_fn;
use tracing::debug;

/// Maximum size of a page, in bytes.
const MAX_PAGE: usize = 8 << 20;

/// Maximum number of paths whose pages are smaller than usual.
const MAX_PATHS: usize = 1024;

/// Divisor of the number of objects if a page is too large.
const SHRINK: u32 = 4;

/// Minimum time between the starts of two watches of the same path.
const PACE: Duration = Duration::from_secs(1);

/// Last or scheduled start of a watch, by path.
type Starts = Arc<Mutex<HashMap<String, Instant>>>;

/// Number of objects per page, by path, where the usual number is too large.
type Pages = Arc<Mutex<HashMap<String, u32>>>;

/// A client that delays the start of a watch until [`PACE`] has passed since the last one of the same path, and that
/// requests pages of at most [`MAX_PAGE`] bytes.
pub fn paced(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let (starts, pages) = (Starts::default(), Pages::default());
    let service = service_fn(move |request: Request<Body>| {
        let (client, starts, pages) = (client.clone(), Arc::clone(&starts), Arc::clone(&pages));
        async move {
            if let Some(at) = start_at(&starts, &request) {
                sleep_until(at).await;
            }
            match limit(request.uri()) {
                Some(usual) => page(&client, &pages, request, usual).await,
                None => client.send(request).await,
            }
        }
    });
    Client::new(service, namespace)
}

/// Sends a request for a page, with fewer objects than usual if they are large.
async fn page(
    client: &Client,
    pages: &Pages,
    request: Request<Body>,
    usual: u32,
) -> Result<Response<Body>, kube::Error> {
    let path = request.uri().path().to_owned();
    let mut count = lock(pages).get(&path).copied().unwrap_or(usual).min(usual);
    loop {
        let response = client.send(with_limit(&request, count)?).await?;
        let (head, body) = response.into_parts();
        let most = if count > 1 { MAX_PAGE } else { 2 * MAX_PAGE };
        match Limited::new(body, most).collect().await {
            Ok(page) => {
                let bytes = page.to_bytes();
                // Further pages may have smaller objects.
                let next = if bytes.len() < MAX_PAGE / 4 { count.saturating_mul(2) } else { count };
                let mut pages = lock(pages);
                if next >= usual {
                    pages.remove(&path);
                } else {
                    // Without its entry, a path only begins with pages that are too large once more.
                    if pages.len() >= MAX_PATHS {
                        pages.clear();
                    }
                    pages.insert(path, next);
                }
                drop(pages);
                return Ok(Response::from_parts(head, Body::from(bytes)));
            }
            Err(error) if count > 1 && error.is::<LengthLimitError>() => {
                debug!(path, count, "page is too large");
                count = (count / SHRINK).max(1);
            }
            Err(error) => return Err(kube::Error::Service(error)),
        }
    }
}

/// The same request with this number of objects.
fn with_limit(request: &Request<Body>, count: u32) -> Result<Request<Body>, kube::Error> {
    let uri = request.uri();
    let query = uri.query().unwrap_or_default().split('&').map(|pair| match pair.strip_prefix("limit=") {
        Some(_) => format!("limit={count}"),
        None => pair.to_owned(),
    });
    let path = format!("{}?{}", uri.path(), query.collect::<Vec<_>>().join("&"));
    let mut same = Request::get(path).body(Body::empty()).map_err(kube::Error::HttpError)?;
    same.headers_mut().clone_from(request.headers());
    Ok(same)
}

/// Number of objects in the page that this request is for; None if it is for no page.
fn limit(uri: &Uri) -> Option<u32> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("limit="))?.parse().ok()
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time at which this request may be sent; None if it does not start a watch.
fn start_at(starts: &Starts, request: &Request<Body>) -> Option<Instant> {
    let uri = request.uri();
    uri.query().filter(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"))?;
    let mut starts = lock(starts);
    let now = Instant::now();
    // Namespaces, and with them paths, come and go.
    starts.retain(|_, at| *at + PACE > now);
    let at = starts.get(uri.path()).map_or(now, |last| (*last + PACE).max(now));
    starts.insert(uri.path().to_owned(), at);
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose objects have this many bytes, and the page sizes that it was asked for.
    fn server(object: usize) -> (Client, Arc<Mutex<Vec<u32>>>) {
        let asked = Arc::<Mutex<Vec<u32>>>::default();
        let seen = Arc::clone(&asked);
        let service = service_fn(move |request: Request<Body>| {
            let count = limit(request.uri()).unwrap();
            lock(&seen).push(count);
            let body = vec![b'x'; object * count as usize];
            async move { Ok::<_, std::convert::Infallible>(Response::new(Body::from(body))) }
        });
        (Client::new(service, "default"), asked)
    }

    async fn list(client: &Client) -> usize {
        let request = Request::get("/apis/x?limit=250&continue=5").body(Body::empty()).unwrap();
        client.send(request).await.unwrap().into_body().collect().await.unwrap().to_bytes().len()
    }

    #[tokio::test]
    async fn a_page_that_is_too_large_is_requested_with_fewer_objects() {
        let (client, asked) = server(1 << 20);
        let client = paced(client);
        assert_eq!(list(&client).await, 3 << 20);
        assert_eq!(*lock(&asked), [250, 62, 15, 3]);
        assert_eq!(list(&client).await, 3 << 20);
        assert_eq!(lock(&asked).len(), 5, "the next page begins with the number that fits");
    }

    #[tokio::test]
    async fn pages_of_small_objects_are_as_large_as_usual() {
        let (client, asked) = server(1 << 10);
        let client = paced(client);
        assert_eq!(list(&client).await, 250 << 10);
        assert_eq!(*lock(&asked), [250]);
    }

    #[tokio::test]
    async fn an_object_that_no_page_may_have_is_an_error() {
        let (client, asked) = server(17 << 20);
        let request = Request::get("/apis/x?limit=4").body(Body::empty()).unwrap();
        assert!(paced(client).send(request).await.is_err());
        assert_eq!(*lock(&asked), [4, 1]);
    }
}
