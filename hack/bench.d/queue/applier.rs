//! A controller run by `kube::runtime::applier`, as a replacement of `runtime::queue` and `runtime::run` as far as an
//! applier can replace them.
//!
//! Missing: fair turns between namespaces, the number of waiting keys, and passes for deleted objects.

use std::convert::Infallible;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures::channel::mpsc::UnboundedReceiver;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use ganglion_core::facts::{Identity, Key};
use ganglion_runtime::backoff::Backoff;
use ganglion_runtime::error::Error;
use ganglion_runtime::metrics::Metrics;
use ganglion_runtime::run::{Action as Next, ReconcileResult, Run, delay_after};
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::core::PartialObjectMeta;
use kube::runtime::applier;
use kube::runtime::controller::{Action, Config, Error as ApplierError};
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::Event;
use tokio::task::JoinSet;
use tracing::{debug, error};

/// Reconciles the objects of one kind.
pub trait Reconciles: Send + Sync + 'static {
    type Kind;
    const NAME: &'static str;
    fn reconcile(self: Arc<Self>, key: Key) -> impl Future<Output = ReconcileResult> + Send;
}

/// A kind whose objects can be reconciled.
pub trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Send + Sync + 'static
{
}
impl<K> Kind for K
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + Send + Sync + 'static,
{
}

/// Store with the names of the objects of one kind; an applier reconciles only objects in its store.
pub struct Known<K: Kind>(Writer<PartialObjectMeta<K>>);

impl<K: Kind> Known<K> {
    /// A store with these objects.
    pub fn all(keys: &[Key]) -> Self {
        let mut writer = Writer::new(());
        writer.apply_watcher_event(&Event::Init);
        for Key { namespace, name } in keys {
            let mut object = PartialObjectMeta { types: None, metadata: Default::default(), _phantom: PhantomData };
            object.metadata.namespace = Some(namespace.clone());
            object.metadata.name = Some(name.clone());
            writer.apply_watcher_event(&Event::InitApply(object));
        }
        writer.apply_watcher_event(&Event::InitDone);
        Self(writer)
    }
}

/// Data shared by all passes of one controller.
struct Shared<C> {
    controller: Arc<C>,
    metrics: Metrics,
    backoff: Mutex<Backoff<Key>>,
}

impl<C> Shared<C> {
    fn backoff(&self) -> MutexGuard<'_, Backoff<Key>> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a controller until it is stopped and its last pass has ended.
pub async fn run<C: Reconciles>(controller: Arc<C>, keys: UnboundedReceiver<Key>, known: Known<C::Kind>, run: Run)
where
    C::Kind: Kind,
{
    let reference = |key: Key| ObjectRef::<PartialObjectMeta<C::Kind>>::new(&key.name).within(&key.namespace);
    let queue = keys.map(move |key| Ok::<_, Infallible>(reference(key))).take_until(run.stop.cancelled_owned());
    let config = Config::default().concurrency(u16::try_from(run.concurrency).unwrap_or(u16::MAX));
    let shared = Arc::new(Shared { controller, metrics: run.metrics, backoff: Mutex::default() });
    let store: Store<_> = known.0.as_reader();
    let passes = applier(pass::<C>, delay_after_error::<C>, shared, store, queue, config);
    passes
        .for_each(|ended| async move {
            if let Err(ApplierError::ObjectNotFound(object)) = ended {
                debug!(controller = C::NAME, %object, "not known to the store");
            }
        })
        .await;
}

/// Runs one pass in its own task: a panic ends only this pass, and passes of one controller use several processors.
fn pass<C: Reconciles>(
    object: Arc<PartialObjectMeta<C::Kind>>,
    shared: Arc<Shared<C>>,
) -> BoxFuture<'static, Result<Action, Error>>
where
    C::Kind: Kind,
{
    let key = Identity::from(&object.metadata).key;
    let mut task = JoinSet::new();
    task.spawn(Arc::clone(&shared.controller).reconcile(key.clone()));
    async move {
        let begun = Instant::now();
        let (result, word) = match task.join_next().await {
            Some(Ok(Ok(requeue))) => (Ok(requeue), "ok"),
            Some(Ok(Err(error))) => {
                let word = error.class().word();
                (Err(error), word)
            }
            Some(Err(failure)) => {
                error!(controller = C::NAME, %failure, "a pass ended by a fault of this program");
                (Err(Error::Broken), "panic")
            }
            None => (Err(Error::Broken), "panic"),
        };
        shared.metrics.reconciled(C::NAME, word, begun.elapsed());
        let requeue = result?;
        shared.backoff().forget(&key);
        Ok(match requeue {
            Next::AwaitChange => Action::await_change(),
            Next::RequeueAfter(delay) => Action::requeue(delay),
        })
    }
    .boxed()
}

/// Delay before a failed pass is retried.
fn delay_after_error<C: Reconciles>(
    object: Arc<PartialObjectMeta<C::Kind>>,
    error: &Error,
    shared: Arc<Shared<C>>,
) -> Action
where
    C::Kind: Kind,
{
    let key = Identity::from(&object.metadata).key;
    debug!(controller = C::NAME, object = %key, reason = error.reason(), %error, "pass failed");
    let backoff = shared.backoff().failed(key, fastrand::f64());
    Action::requeue(delay_after(error.class(), backoff))
}
