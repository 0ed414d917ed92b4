//! One watch: lists a kind, then follows its changes, for ever, with a backoff of its own.
//!
//! Owns the protocol of list and watch. `kube::runtime::watcher` is not used since it does not tell the version of a list,
//! without which an object that we wrote while the list was on its way could not be told from one that is gone; nor does
//! it bound the time of a list, or turn a page into facts before it asks for the next.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Api;
use kube::api::{ListParams, Request, WatchEvent, WatchParams};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::State;
use super::kinds::{self, Known, Sort, Watched};
use crate::logic::facts::Identity;
use crate::logic::world::Kind;
use crate::metrics::WatchLabels;

/// Objects in one page of a list: about a megabyte of pods. What a page takes while it is turned into facts is several
/// times that, and an allocator does not easily give it back.
const PAGE: u32 = 100;

/// Seconds that the server keeps one watch open.
const WATCH_SECONDS: u32 = 285;

/// A watch that has been silent for this long is taken for dead: the server sends a bookmark about every minute.
const SILENCE: Duration = Duration::from_secs(150);

/// Backoff between two attempts: first and longest pause.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

#[derive(Debug, Error)]
enum Error {
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("the version to go on from is too old")]
    Expired,
    #[error("the list has no version")]
    NoVersion,
    #[error("the server ended the watch at once")]
    Closed,
    #[error("{} ({})", .0.message, .0.code)]
    Refused(Box<kube::core::Status>),
    #[error("the list was not parsed: {0}")]
    Unparsed(JoinError),
    #[error(transparent)]
    Connection(kube::Error),
}

/// 410 Gone: the version is not kept any more, so a new list is needed.
impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 410 => Self::Expired,
            kube::Error::Api(status) => Self::Refused(status),
            other => Self::Connection(other),
        }
    }
}

impl Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Timeout(_) => "timeout",
            Self::Expired => "expired",
            Self::NoVersion => "no_version",
            Self::Closed => "closed",
            Self::Refused(status) if status.code == 403 => "forbidden",
            Self::Refused(_) => "refused",
            Self::Unparsed(_) => "unparsed",
            Self::Connection(_) => "connection",
        }
    }
}

/// One watch of one kind, in one namespace or in all.
pub struct Watch<K> {
    api: Api<K>,
    namespace: Option<String>,
    timeout: Duration,
    state: Arc<State>,
    /// It has told the caches that it is there.
    synced: bool,
}

impl<K: Watched> Watch<K> {
    /// A watch that has not begun.
    pub fn new(api: Api<K>, namespace: Option<String>, timeout: Duration, state: Arc<State>) -> Self {
        Self { api, namespace, timeout, state, synced: false }
    }

    /// Lists and watches until it is dropped.
    pub async fn run(&mut self) {
        self.run_until(|_| false).await;
    }

    /// Lists and watches while the kind is there for us; then none of its objects is known any more. What the API server
    /// said of it is returned: that it has no such kind, or that we may not look.
    pub async fn run_while_there(&mut self) -> u16 {
        let code = self.run_until(|code| matches!(code, 403 | 404)).await;
        self.state.replace(K::SORT, self.namespace.as_deref(), Vec::new(), "");
        self.sync();
        code
    }

    /// The first list is there, or there is none.
    fn sync(&mut self) {
        if !self.synced {
            self.synced = true;
            self.state.one_synced();
            debug!(kind = kinds::label(K::SORT), namespace = self.namespace, "cache filled");
        }
    }

    /// Lists and watches until the API server refuses with such a code.
    async fn run_until(&mut self, ends: impl Fn(u16) -> bool) -> u16 {
        let mut version: Option<String> = None;
        let mut failures: u32 = 0;
        loop {
            let done = match version.take() {
                None => self.list().await.map(|at| version = Some(at)),
                Some(at) => {
                    let mut at = at;
                    let done = self.follow(&mut at, &mut failures).await;
                    if !matches!(done, Err(Error::Expired)) {
                        version = Some(at);
                    }
                    done
                }
            };
            match done {
                Ok(()) => {
                    self.sync();
                    failures = 0;
                }
                Err(Error::Refused(status)) if ends(status.code) => return status.code,
                Err(error) => self.pause(&error, &mut failures).await,
            }
        }
    }

    /// Reads the whole list, page by page, and puts it into the world. Consistent: a plain list without a version is a
    /// read of the newest state, so a restarted operator sees all that its predecessor wrote. (Streaming lists would be
    /// cheaper, but kube asks for them from version 0, which is any state.)
    ///
    /// While the server makes a page, the one before it is parsed: of many objects, that is half of the time.
    async fn list(&self) -> Result<String, Error> {
        self.state.all_readable(K::SORT, self.namespace.as_deref());
        let mut objects = Vec::new();
        let mut text = self.page(None).await?;
        loop {
            let head = parse::<Head>(&text)?.metadata;
            let items = spawn_blocking(move || parse::<Items<K>>(&text));
            let next = match head.continue_.filter(|token| !token.is_empty()) {
                Some(token) => Some(self.page(Some(token)).await?),
                None => None,
            };
            let items = items.await.map_err(Error::Unparsed)??.items;
            objects.extend(items.into_iter().filter_map(|item| self.object(item)));
            match next {
                Some(next) => text = next,
                None => {
                    let version = head.resource_version.filter(|version| !version.is_empty());
                    let version = version.ok_or(Error::NoVersion)?;
                    self.state.replace(K::SORT, self.namespace.as_deref(), objects, &version);
                    return Ok(version);
                }
            }
        }
    }

    /// One page of the list, as it came.
    async fn page(&self, token: Option<String>) -> Result<String, Error> {
        let params = ListParams { continue_token: token, ..ListParams::default().limit(PAGE) };
        let request = Request::new(self.api.resource_url()).list(&params).map_err(kube::Error::BuildRequest)?;
        let client = self.api.clone().into_client();
        let asked = timeout(self.timeout, client.request_text(request)).await;
        Ok(asked.map_err(|_| Error::Timeout(self.timeout))??)
    }

    /// Follows the changes after a version until the server ends the watch; `version` is where to go on.
    async fn follow(&self, version: &mut String, failures: &mut u32) -> Result<(), Error> {
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let begun = Instant::now();
        let stream = timeout(self.timeout, self.api.watch(&params, version)).await;
        let mut stream = Box::pin(stream.map_err(|_| Error::Timeout(self.timeout))??);
        while let Some(event) = self.event(&mut stream).await? {
            *failures = 0;
            match event {
                WatchEvent::Added(item) | WatchEvent::Modified(item) => {
                    advance(version, &item);
                    if let Some(object) = self.object(item) {
                        self.state.apply(object);
                    }
                }
                WatchEvent::Deleted(item) => {
                    advance(version, &item);
                    let id = Identity::from(item.meta());
                    self.state.readable(K::SORT, &id.key);
                    self.state.remove(K::SORT, &id);
                }
                WatchEvent::Bookmark(mark) => version.clone_from(&mark.metadata.resource_version),
                WatchEvent::Error(status) => return Err(kube::Error::Api(status).into()),
            }
        }
        if begun.elapsed() < Duration::from_secs(1) { Err(Error::Closed) } else { Ok(()) }
    }

    /// The next event; None when the server ended the watch.
    async fn event(
        &self,
        stream: &mut (impl Stream<Item = kube::Result<WatchEvent<K>>> + Unpin),
    ) -> Result<Option<WatchEvent<K>>, Error> {
        loop {
            match timeout(SILENCE, stream.next()).await {
                Err(_) => return Err(Error::Timeout(SILENCE)),
                Ok(None) => return Ok(None),
                Ok(Some(Ok(event))) => return Ok(Some(event)),
                // One object that does not parse must not hide those that follow it. kube takes it for a status without
                // a code.
                Ok(Some(Err(kube::Error::Api(status)))) if status.code == 0 => self.passed_over(),
                Ok(Some(Err(kube::Error::SerdeError(_)))) => self.passed_over(),
                Ok(Some(Err(error))) => return Err(error.into()),
            }
        }
    }

    fn passed_over(&self) {
        warn!(kind = kinds::label(K::SORT), "watch event passed over, it does not parse");
        self.state.count_unreadable(K::SORT);
    }

    /// The fact of an object; None, and remembered as unreadable, where it does not parse.
    fn object(&self, item: K) -> Option<Known> {
        let key = Identity::from(item.meta()).key;
        match item.object() {
            Ok(object) => {
                self.state.readable(K::SORT, &key);
                Some(object)
            }
            Err(error) => {
                warn!(
                    kind = kinds::label(K::SORT),
                    ns = key.namespace,
                    name = key.name,
                    error,
                    "object does not parse"
                );
                self.state.unreadable(K::SORT, key);
                None
            }
        }
    }

    async fn pause(&self, error: &Error, failures: &mut u32) {
        let labels = WatchLabels { kind: kinds::label(K::SORT), reason: error.reason() };
        self.state.metrics.watch_restarts.get_or_create(&labels).inc();
        let longest = BACKOFF.0.saturating_mul(2_u32.saturating_pow((*failures).min(16))).min(BACKOFF.1);
        *failures = failures.saturating_add(1);
        if matches!(K::SORT, Sort::World(Kind::Pod | Kind::Set | Kind::Deployment)) {
            self.state.world.write(|world| world.broke_off(Timestamp::now()));
        }
        if matches!(error, Error::Expired) {
            debug!(kind = kinds::label(K::SORT), "watch fell behind, listing again");
        } else {
            warn!(kind = kinds::label(K::SORT), namespace = self.namespace, %error, "watch failed, trying again");
        }
        tokio::time::sleep(longest.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
    }
}

/// A list without its items.
#[derive(Deserialize)]
struct Head {
    metadata: ListMeta,
}

/// A list without the rest.
#[derive(Deserialize)]
struct Items<K> {
    items: Vec<K>,
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Connection(kube::Error::SerdeError(error)))
}

fn advance<K: Watched>(version: &mut String, item: &K) {
    if let Some(at) = item.meta().resource_version.as_ref().filter(|at| !at.is_empty()) {
        version.clone_from(at);
    }
}
