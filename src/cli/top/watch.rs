//! The watches of the view: one for each kind. They list again after each failure, with a backoff.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use kube::core::DynamicObject;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::facts::{TopId, TopObject};
use super::kinds::TopKind;
use super::model::TopScope;
use super::update::{TopEvent, WatchNews};
use ganglion_runtime::error::failure;

/// Time after which the server ends a watch request, in seconds. kube abandons a silent watch five seconds later.
const WATCH_SECONDS: u32 = 145;

/// Number of objects per page of a list.
const PAGE: u32 = 250;

/// Time limit of the first list.
const LIST: Duration = Duration::from_secs(30);

/// Backoff between two attempts: first and maximum delay. A person waits for the result.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Interval at which a kind is looked for that is missing or forbidden.
const LOOK: Duration = Duration::from_secs(15);

/// Time for which a listed kind must be missing or forbidden before its objects leave the view. An API server that
/// starts answers 403 while it loads the roles, and 404 before it serves the CRDs.
const ABSENT_AFTER: Duration = Duration::from_secs(10);

/// Objects of a kind in these namespaces.
pub fn api(client: &Client, kind: TopKind, scope: &TopScope) -> Api<DynamicObject> {
    match scope.namespace().filter(|_| kind.is_namespaced()) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
        None => Api::all_with(client.clone(), &kind.resource()),
    }
}

/// The running watches. They end when they are dropped.
pub struct TopWatches {
    client: Client,
    sender: mpsc::Sender<TopEvent>,
    tasks: JoinSet<()>,
}

impl TopWatches {
    pub fn new(client: Client, sender: mpsc::Sender<TopEvent>) -> Self {
        Self { client, sender, tasks: JoinSet::new() }
    }

    /// Replaces the running watches.
    pub fn start(&mut self, scope: &TopScope, epoch: u64, kinds: &[TopKind]) {
        self.tasks = JoinSet::new();
        for kind in TopKind::watched(kinds) {
            let watch = KindWatch {
                api: api(&self.client, kind, scope),
                kind,
                epoch,
                sender: self.sender.clone(),
                failures: 0,
                listed: false,
                unavailable: None,
            };
            self.tasks.spawn(watch.run());
        }
    }
}

/// The watch of one kind.
struct KindWatch {
    api: Api<DynamicObject>,
    kind: TopKind,
    epoch: u64,
    sender: mpsc::Sender<TopEvent>,
    /// Consecutive failures.
    failures: u32,
    /// A list was complete.
    listed: bool,
    /// Time since which the API server has reported the kind as missing or forbidden.
    unavailable: Option<Instant>,
}

/// The receiver has gone.
struct NoReceiver;

impl KindWatch {
    async fn run(mut self) {
        loop {
            let Ok(news) = self.follow().await else { return };
            let news = self.judge(news);
            let pause = if matches!(news, WatchNews::Broke(_)) { self.backoff() } else { LOOK };
            if self.send(news).await.is_err() {
                return;
            }
            sleep(pause).await;
        }
    }

    /// Follows one watcher until it fails. Returns the failure.
    async fn follow(&mut self) -> Result<WatchNews, NoReceiver> {
        let config = watcher::Config { page_size: Some(PAGE), ..watcher::Config::default() }.timeout(WATCH_SECONDS);
        let mut events = pin!(watcher(self.api.clone(), config));
        let mut list = Some(Vec::new());
        loop {
            let next = match &list {
                Some(_) => timeout(LIST, events.next()).await,
                None => Ok(events.next().await),
            };
            match next {
                Ok(Some(Ok(event))) => {
                    if let Some(news) = self.news(event, &mut list) {
                        self.send(news).await?;
                    }
                }
                Ok(Some(Err(error))) => return Ok(reason(&error)),
                Ok(None) => return Ok(WatchNews::Broke("the watch ended".to_owned())),
                Err(_) => return Ok(WatchNews::Broke(format!("no answer within {} s", LIST.as_secs()))),
            }
        }
    }

    fn news(&mut self, event: Event<DynamicObject>, list: &mut Option<Vec<TopObject>>) -> Option<WatchNews> {
        match event {
            Event::Init => {
                *list = Some(Vec::new());
                None
            }
            Event::InitApply(object) => {
                list.get_or_insert_default().push(TopObject::read(self.kind, &object));
                None
            }
            Event::InitDone => {
                (self.failures, self.listed, self.unavailable) = (0, true, None);
                Some(WatchNews::Listed(list.take().unwrap_or_default()))
            }
            Event::Apply(object) => Some(WatchNews::Changed(Box::new(TopObject::read(self.kind, &object)))),
            Event::Delete(object) => {
                let TopId { kind, namespace, name } = TopObject::read(self.kind, &object).id;
                Some(WatchNews::Deleted(TopId { kind, namespace, name }))
            }
        }
    }

    /// For some seconds, a listed kind that is missing or forbidden counts as a broken watch.
    fn judge(&mut self, news: WatchNews) -> WatchNews {
        let why = match news {
            WatchNews::Denied => "access is denied",
            WatchNews::Missing => "the API server does not serve the kind",
            news => return news,
        };
        let since = *self.unavailable.get_or_insert_with(Instant::now);
        if self.listed && since.elapsed() < ABSENT_AFTER {
            return WatchNews::Broke(why.to_owned());
        }
        news
    }

    fn backoff(&mut self) -> Duration {
        let longest = BACKOFF.0.saturating_mul(2_u32.saturating_pow(self.failures.min(16))).min(BACKOFF.1);
        self.failures = self.failures.saturating_add(1);
        longest.mul_f64(0.5 + 0.5 * fastrand::f64())
    }

    async fn send(&self, news: WatchNews) -> Result<(), NoReceiver> {
        let event = TopEvent::Watched { epoch: self.epoch, kind: self.kind, news };
        self.sender.send(event).await.map_err(|_| NoReceiver)
    }
}

/// Meaning of an error of the watcher.
fn reason(error: &watcher::Error) -> WatchNews {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => unread(error),
        watcher::Error::WatchError(status) if status.code == 410 => {
            WatchNews::Broke("the version of the watch has expired".to_owned())
        }
        watcher::Error::WatchError(status) => WatchNews::Broke(status.message.clone()),
        watcher::Error::NoResourceVersion => WatchNews::Broke("the list has no version".to_owned()),
    }
}

/// Meaning of an error of a list or of a watch.
pub fn unread(error: &kube::Error) -> WatchNews {
    match error {
        kube::Error::Api(status) if status.code == 403 => WatchNews::Denied,
        kube::Error::Api(status) if status.code == 404 => WatchNews::Missing,
        error => WatchNews::Broke(failure(error)),
    }
}
