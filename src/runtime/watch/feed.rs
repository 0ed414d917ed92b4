//! The watch of one kind: applies its events to the store and recovers from failures.
//!
//! Owns the backoff of this watch, and reads objects that no watch event has confirmed.

use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join;
use jiff::Timestamp;
use kube::api::GetParams;
use kube::core::Request;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, warn};

use super::Watched;
use super::ready::Awaited;
use crate::guard::Guard;
use crate::metrics::{KindLabel, Metrics, WatchLabels};
use crate::refusals::BELIEVED_AFTER;
use crate::store::Store;
use ganglion_core::facts::{Identity, Key};
use ganglion_core::world::{Fact, Listing, Origin, Unreadable};

/// Time after which the server ends a watch request, in seconds. kube abandons a silent watch five seconds later.
const WATCH_SECONDS: u32 = 145;

/// Number of objects per page of a list. Converting a page to facts needs several times the memory of its text, and
/// allocators return little of it to the system.
const PAGE: u32 = 250;

/// Backoff between two attempts: first and maximum delay.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Interval at which a missing optional kind is looked for.
const LOOK: Duration = Duration::from_secs(15);

/// Time for which an optional kind must be unavailable before its objects are removed. An API server answers 403 while
/// it loads the roles, and 404 while a CRD is replaced; the autoscalers of that kind continue to act meanwhile.
const ABSENT_AFTER: Duration = Duration::from_secs(60);

/// Interval at which the first list of an optional kind is requested while it is forbidden, which may be passing.
const FORBIDDEN_LOOK: Duration = Duration::from_secs(1);

/// Maximum interval between two checks whether there is room for objects that were not stored for want of it.
const ROOM_CHECK: Duration = Duration::from_secs(60);

/// Maximum number of such objects that are read in one check.
const READMITTED: usize = 256;

/// Watch of objects `K`, stored as facts `F`.
pub struct Feed<K, F> {
    api: Api<Guard<K>>,
    namespace: Option<String>,
    /// Field selector.
    fields: Option<String>,
    timeout: Duration,
    store: Store,
    metrics: Metrics,
    awaited: Awaited,
    /// Consecutive failures.
    failures: u32,
    /// The store contains the objects of a complete list.
    listed: bool,
    /// Time since which the API server has reported the kind as missing or forbidden.
    unavailable: Option<Instant>,
    /// Objects that the current list has delivered so far; None once the watch follows changes.
    list: Option<Listing<F>>,
    /// Wakes the look-up of unconfirmed objects.
    list_complete: Arc<Notify>,
    /// Whether the operator may not list and watch the objects.
    refused: Arc<AtomicBool>,
    /// Requests to list the objects again.
    relists: Option<mpsc::UnboundedReceiver<Awaited>>,
    /// Requests that the next complete list answers.
    relisting: Vec<Awaited>,
}

/// Reason why a watcher is replaced.
enum Replaced {
    /// The watcher cannot recover.
    Broken,
    /// The objects must be listed again.
    Relisted,
    /// The API server does not serve the kind (404), or RBAC does not allow the operator to list or watch it (403).
    Unavailable(u16),
}

impl<K: Watched, F: Fact + From<K>> Feed<K, F> {
    pub fn new(
        api: Api<Guard<K>>,
        namespace: Option<String>,
        timeout: Duration,
        store: Store,
        metrics: Metrics,
        awaited: Awaited,
    ) -> Self {
        let list_complete = Arc::new(Notify::new());
        let (fields, failures, listed, unavailable) = (None, 0, false, None);
        Self {
            api,
            namespace,
            fields,
            timeout,
            store,
            metrics,
            awaited,
            failures,
            listed,
            unavailable,
            list: None,
            list_complete,
            refused: Arc::default(),
            relists: None,
            relisting: Vec::new(),
        }
    }

    /// Watches only objects that match this field selector.
    pub fn with_fields(self, fields: String) -> Self {
        Self { fields: Some(fields), ..self }
    }

    /// Stores in `refused` whether RBAC denies the watch.
    pub fn reporting_refusal(self, refused: Arc<AtomicBool>) -> Self {
        Self { refused, ..self }
    }

    /// Lists the objects again on each of these requests, and answers it once the store contains the new list.
    pub fn relisted_by(self, relists: mpsc::UnboundedReceiver<Awaited>) -> Self {
        Self { relists: Some(relists), ..self }
    }

    /// Watches until it is dropped.
    pub async fn run(self) {
        join(self.look_up(), self.watch()).await;
    }

    /// Watches while the kind is installed. Does not log a kind that is not installed; logs a missing permission once.
    /// At the start, the process is not ready while a missing permission may be passing: without the admission
    /// policies, for instance, every object would get a condition, and another one soon after.
    pub async fn run_while_installed(self) {
        join(self.look_up(), self.watch_while_installed()).await;
    }

    async fn watch(mut self) {
        loop {
            if let Replaced::Unavailable(_) = self.follow().await {
                self.back_off().await;
            }
        }
    }

    async fn watch_while_installed(mut self) {
        let mut reported = false;
        loop {
            let Replaced::Unavailable(code) = self.follow().await else { continue };
            let since = *self.unavailable.get_or_insert_with(Instant::now);
            if self.listed && since.elapsed() < ABSENT_AFTER {
                // There is no newer list; the view of a kind that cannot be read must not keep others waiting.
                self.relisted();
                self.back_off().await;
                continue;
            }
            if self.awaited.is_waiting() && code == 403 && since.elapsed() < BELIEVED_AFTER.unsigned_abs() {
                sleep(FORBIDDEN_LOOK).await;
                continue;
            }
            self.listed = false;
            let empty = self.store.read(|world| world.begin_list::<F>(self.namespace.as_deref()));
            self.store.end_list(&empty);
            self.store.write(|world| world.unavailable::<F>());
            self.refused.store(code == 403, Ordering::Release);
            self.synced();
            if code == 403 && !reported {
                reported = true;
                warn!(kind = F::KIND, "kind is not watched: the operator may not list and watch it");
            }
            let pause = LOOK.mul_f64(1.0 + 0.2 * fastrand::f64());
            tokio::select! {
                () = sleep(pause) => {}
                relist = requested(&mut self.relists) => self.relisting.push(relist),
            }
        }
    }

    /// Follows one watcher until it must be replaced.
    async fn follow(&mut self) -> Replaced {
        let config = watcher::Config { page_size: Some(PAGE), ..watcher::Config::default() }.timeout(WATCH_SECONDS);
        let config = watcher::Config { field_selector: self.fields.clone(), ..config };
        let mut events = pin!(watcher(self.api.clone(), config));
        self.list = None;
        loop {
            // After the list, the watcher itself abandons a silent connection.
            let limit = self.list.as_ref().map(|_| self.timeout);
            let next = async {
                match limit {
                    Some(limit) => timeout(limit, events.next()).await,
                    None => Ok(events.next().await),
                }
            };
            let next = tokio::select! {
                biased;
                relist = requested(&mut self.relists) => {
                    self.relisting.push(relist);
                    return Replaced::Relisted;
                }
                next = next => next,
            };
            match next {
                Ok(Some(Ok(event))) => self.handle(event),
                Ok(Some(Err(error))) => {
                    if let Some(replaced) = self.failed(&error).await {
                        return replaced;
                    }
                }
                Ok(None) => return Replaced::Broken,
                Err(_) => {
                    self.report("timeout", &format!("no answer within {:?}", self.timeout));
                    self.back_off().await;
                    return Replaced::Broken;
                }
            }
        }
    }

    fn handle(&mut self, event: Event<Guard<K>>) {
        match event {
            Event::Init => self.list = Some(self.store.read(|world| world.begin_list::<F>(self.namespace.as_deref()))),
            Event::InitApply(object) => {
                let read = self.fact(object);
                let Some(list) = &mut self.list else { return };
                match read {
                    Ok(fact) => self.store.apply_listed(list, fact),
                    Err(object) => self.store.put_listed(list, *object),
                }
            }
            Event::InitDone => {
                (self.failures, self.listed, self.unavailable) = (0, true, None);
                self.refused.store(false, Ordering::Release);
                if let Some(list) = self.list.take() {
                    self.store.end_list(&list);
                }
                self.synced();
                self.list_complete.notify_one();
            }
            Event::Apply(object) => {
                self.failures = 0;
                match self.fact(object) {
                    Ok(fact) => self.store.apply(fact, Origin::Watch),
                    Err(object) => self.store.put_unreadable::<F>(*object),
                }
            }
            Event::Delete(object) => self.store.remove::<F>(&Identity::from(object.meta())),
        }
    }

    /// Converts the object to a fact, if it parses.
    fn fact(&self, object: Guard<K>) -> Result<F, Box<Unreadable>> {
        object.0.map(F::from).map_err(Box::new).inspect_err(|object| {
            let Key { namespace, name } = object.id().key;
            warn!(kind = F::KIND, ns = namespace, name, error = object.error, "object is not read");
            self.metrics.unreadable.get_or_create(&KindLabel { kind: F::KIND }).inc();
        })
    }

    /// Reports readiness: the first list is complete, or the kind is not installed.
    fn synced(&mut self) {
        if self.awaited.ready() {
            debug!(kind = F::KIND, namespace = self.namespace, "cache filled");
        }
        self.relisted();
    }

    /// Answers the requests to list the objects again.
    fn relisted(&mut self) {
        for mut relist in self.relisting.drain(..) {
            relist.ready();
        }
    }

    /// Looks up unconfirmed objects after each list, and objects that were not stored for want of room. Runs in the
    /// task of the watch, so that a panic here also ends the watch, which is noticed.
    fn look_up(&self) -> impl Future<Output = ()> + use<K, F> {
        let look_up = LookUp {
            api: self.api.clone(),
            namespace: self.namespace.clone(),
            store: self.store.clone(),
            timeout: self.timeout,
            unconfirmed: PhantomData::<F>,
        };
        let listed = Arc::clone(&self.list_complete);
        async move {
            listed.notified().await;
            loop {
                tokio::select! {
                    biased;
                    () = listed.notified() => {}
                    () = look_up.always() => {}
                }
            }
        }
    }

    /// Handles an error of the watcher: logs it and backs off. Returns a value if the watcher must be replaced.
    async fn failed(&mut self, error: &watcher::Error) -> Option<Replaced> {
        let replaced = match code(error) {
            Some(code @ (403 | 404)) => Some(Replaced::Unavailable(code)),
            // kube would start the watch at the same expired version again.
            Some(410) if matches!(error, watcher::Error::WatchStartFailed(_)) => Some(Replaced::Broken),
            _ => None,
        };
        self.report(reason(error), &error.to_string());
        if !matches!(replaced, Some(Replaced::Unavailable(_))) {
            self.back_off().await;
        }
        replaced
    }

    fn report(&self, reason: &'static str, error: &str) {
        self.metrics.watch_restarts.get_or_create(&WatchLabels { kind: F::KIND, reason }).inc();
        self.store.write(|world| world.watch_broke::<F>(Timestamp::now()));
        if matches!(reason, "expired" | "not_there") {
            debug!(kind = F::KIND, namespace = self.namespace, error, "watch ended");
        } else {
            warn!(kind = F::KIND, namespace = self.namespace, error, "watch failed, retrying");
        }
    }

    async fn back_off(&mut self) {
        let longest = BACKOFF.0.saturating_mul(2_u32.saturating_pow(self.failures.min(16))).min(BACKOFF.1);
        self.failures = self.failures.saturating_add(1);
        sleep(longest.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
    }
}

/// Returns when the objects must be listed again.
async fn requested(relists: &mut Option<mpsc::UnboundedReceiver<Awaited>>) -> Awaited {
    let request = match relists {
        Some(relists) => relists.recv().await,
        None => None,
    };
    match request {
        Some(request) => request,
        // Nobody can request it any more.
        None => std::future::pending().await,
    }
}

/// HTTP status code of an error that the API server returned.
fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status.code),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// The `reason` label in metrics.
fn reason(error: &watcher::Error) -> &'static str {
    match (error, code(error)) {
        (watcher::Error::NoResourceVersion, _) => "no_version",
        (_, Some(410)) => "expired",
        (_, Some(403)) => "forbidden",
        (_, Some(404)) => "not_there",
        (_, Some(_)) => "refused",
        (_, None) => "connection",
    }
}

/// Reads objects that only answers to our own requests have shown: an object that was deleted before the list started
/// appears neither in the list nor in the watch that follows it.
struct LookUp<K, F> {
    api: Api<Guard<K>>,
    namespace: Option<String>,
    store: Store,
    timeout: Duration,
    unconfirmed: PhantomData<F>,
}

impl<K: Watched, F: Fact + From<K>> LookUp<K, F> {
    /// Looks them up twice: now, and once every request sent before the list has been answered or has timed out. Then
    /// reads objects again for which there is room now. Never returns.
    async fn always(&self) {
        self.all().await;
        sleep(self.timeout).await;
        self.all().await;
        loop {
            sleep(ROOM_CHECK.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
            self.refused().await;
        }
    }

    /// Reads objects again that were not stored for want of room.
    async fn refused(&self) {
        for id in self.store.read(|world| world.readmissible::<F>(self.namespace.as_deref(), READMITTED)) {
            // A failed read is repeated in the next round.
            if let Ok(Ok(Some(Guard(Ok(found))))) = timeout(self.timeout, self.one(&id)).await {
                self.store.readmit(F::from(found));
            }
        }
    }

    async fn all(&self) {
        for id in self.store.read(|world| world.table::<F>().unconfirmed(self.namespace.as_deref())) {
            match timeout(self.timeout, self.one(&id)).await {
                Ok(Ok(Some(Guard(Ok(found))))) => self.store.apply(F::from(found), Origin::Own),
                Ok(Ok(None)) => self.store.remove::<F>(&id.unversioned()),
                // The watch reports objects that do not parse. A failed read is repeated after the next list.
                Ok(Ok(Some(Guard(Err(_)))) | Err(_)) | Err(_) => {}
            }
        }
    }

    async fn one(&self, id: &Identity) -> kube::Result<Option<Guard<K>>> {
        let namespace = Some(id.key.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let request = Request::new(K::url_path(&(), namespace)).get(&id.key.name, &GetParams::default());
        let request = request.map_err(kube::Error::BuildRequest)?;
        match self.api.clone().into_client().request(request).await {
            Ok(found) => Ok(Some(found)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }
}
