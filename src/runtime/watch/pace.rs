//! Limits how often a watch of one path is started, and how large a page of a list is.
//!
//! `kube::runtime::watcher` starts the next watch without a pause or a report if the server ends one without an event.
//! If the server, or a proxy in front of it, ended every watch immediately, the operator would send requests as fast as
//! it answers.
//!
//! The API server limits a page by the number of objects only, and an object may have more than a megabyte: a page of
//! the usual number could fill the memory. So a page that is too large is requested again with fewer objects. The types
//! of a page occupy many times its text, and at the start all kinds are listed at the same time. So all watches
//! together have a few such pages at a time (`tests/memory_facts.rs` measures them).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::Client;
use kube::client::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use tower::service_fn;
use tracing::debug;

/// Maximum size of a page, in bytes.
const MAX_PAGE: usize = 4 << 20;

/// Maximum bytes of the pages of all kinds that are read or being converted. A typical page has a megabyte.
const IN_FLIGHT: usize = 2 * MAX_PAGE;

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

/// Place of the page that a watch has last received, until it requests another page or starts to follow changes: it has
/// converted the page then.
type PagePlace = Arc<Mutex<Option<OwnedSemaphorePermit>>>;

/// Limits that all watches share. Cheap to clone.
#[derive(Clone)]
pub struct Pace {
    starts: Starts,
    pages: Pages,
    /// One permit for each byte of a page.
    room: Arc<Semaphore>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { starts: Starts::default(), pages: Pages::default(), room: Arc::new(Semaphore::new(IN_FLIGHT)) }
    }
}

impl Pace {
    /// A client for one watch. It delays the start of a watch until [`PACE`] has passed since the last one of the same
    /// path, and requests pages of at most [`MAX_PAGE`] bytes, while there is room for them.
    pub fn client(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let (pace, place) = (self.clone(), PagePlace::default());
        let service = service_fn(move |request: Request<Body>| {
            let (client, pace, place) = (client.clone(), pace.clone(), Arc::clone(&place));
            async move {
                if let Some(at) = start_at(&pace.starts, &request) {
                    lock(&place).take();
                    sleep_until(at).await;
                }
                match limit(request.uri()) {
                    Some(usual) => pace.page(&client, &place, request, usual).await,
                    None => client.send(request).await,
                }
            }
        });
        Client::new(service, namespace)
    }

    /// Sends a request for a page, with fewer objects than usual if they are large.
    async fn page(
        &self,
        client: &Client,
        place: &PagePlace,
        request: Request<Body>,
        usual: u32,
    ) -> Result<Response<Body>, kube::Error> {
        lock(place).take();
        let path = request.uri().path().to_owned();
        let mut count = lock(&self.pages).get(&path).copied().unwrap_or(usual).min(usual);
        loop {
            let most = if count > 1 { MAX_PAGE } else { 2 * MAX_PAGE };
            let response = client.send(with_limit(&request, count)?).await?;
            // A server that does not answer must not keep other kinds from being read: a kind whose conversion webhook
            // hangs, for example.
            let mut room = self.room(most).await?;
            let (head, body) = response.into_parts();
            match Limited::new(body, most).collect().await {
                Ok(page) => {
                    let bytes = page.to_bytes();
                    // Further pages may have smaller objects.
                    let next = if bytes.len() < MAX_PAGE / 4 { count.saturating_mul(2) } else { count };
                    let mut pages = lock(&self.pages);
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
                    *lock(place) = room.split(bytes.len());
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

    /// Waits until there is room for a page.
    async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, kube::Error> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(permits).await;
        room.map_err(|closed| kube::Error::Service(closed.into()))
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
            let count = limit(request.uri()).unwrap_or(0);
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
        let client = Pace::default().client(client);
        assert_eq!(list(&client).await, 3 << 20);
        assert_eq!(*lock(&asked), [250, 62, 15, 3]);
        assert_eq!(list(&client).await, 3 << 20);
        assert_eq!(lock(&asked).len(), 5, "the next page begins with the number that fits");
    }

    #[tokio::test]
    async fn pages_of_small_objects_are_as_large_as_usual() {
        let (client, asked) = server(1 << 10);
        let client = Pace::default().client(client);
        assert_eq!(list(&client).await, 250 << 10);
        assert_eq!(*lock(&asked), [250]);
    }

    #[tokio::test]
    async fn an_object_that_no_page_may_have_is_an_error() {
        let (client, asked) = server(17 << 20);
        let request = Request::get("/apis/x?limit=4").body(Body::empty()).unwrap();
        assert!(Pace::default().client(client).send(request).await.is_err());
        assert_eq!(*lock(&asked), [4, 1]);
    }

    /// The conversion webhook of a kind may hang, for example.
    #[tokio::test(start_paused = true)]
    async fn kinds_without_an_answer_keep_no_other_kind_from_being_read() {
        let service = service_fn(|request: Request<Body>| async move {
            if request.uri().path() == "/apis/hangs" {
                std::future::pending::<()>().await;
            }
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(vec![b'x'; 1 << 10])))
        });
        let (pace, server) = (Pace::default(), Client::new(service, "default"));
        for _ in 0..4 {
            let watch = pace.client(server.clone());
            let request = Request::get("/apis/hangs?limit=250").body(Body::empty()).unwrap();
            tokio::spawn(async move { watch.send(request).await });
        }
        tokio::task::yield_now().await;
        let read = tokio::time::timeout(Duration::from_secs(60), list(&pace.client(server))).await;
        assert_eq!(read.expect("no room"), 1 << 10);
    }

    /// A server whose pages have three mebibytes.
    fn large() -> (Pace, Client, Arc<Mutex<Vec<u32>>>) {
        let (client, asked) = server(3 << 20);
        let pace = Pace::default();
        (pace, client, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn all_watches_together_have_a_few_large_pages_at_a_time() {
        let (pace, server, asked) = large();
        let mut watches: Vec<Client> = (0..6).map(|_| pace.client(server.clone())).collect();
        let request = || Request::get("/apis/x?limit=1").body(Body::empty()).unwrap();
        let waiting = || async { tokio::time::sleep(Duration::from_secs(1)).await };
        let lists: Vec<_> =
            watches.iter().cloned().map(|watch| tokio::spawn(async move { watch.send(request()).await })).collect();
        waiting().await;
        let finished = || lists.iter().filter(|list| list.is_finished()).count();
        assert_eq!((finished(), lock(&asked).len()), (1, 6), "a second page of up to eight mebibytes has no room");
        // The first watch follows changes now, and the second has ended.
        let follow = Request::get("/apis/x?watch=true").body(Body::empty()).unwrap();
        watches[0].send(follow).await.unwrap();
        waiting().await;
        assert_eq!(finished(), 2);
        watches.remove(1);
        waiting().await;
        assert_eq!(finished(), 3);
    }
}
