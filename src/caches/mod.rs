//! The caches: one watch for each kind (and watched namespace) feeds the one [`World`] and the one [`Loops`] of the process.
//!
//! Owns the watches and the locks around both, converts objects to facts at the edge and says which actions and loops a
//! change concerns. Decides nothing, and writes nothing to the cluster.

mod guard;
mod kinds;
mod optional;
mod watch;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use kube::Client;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::logic::closed_loop::validate::conflict::ClaimantKind;
use crate::logic::facts::{Identity, Key};
use crate::logic::world::loops::Loops;
use crate::logic::world::rivals::Rivals;
use crate::logic::world::wakes::{maker, maker_of_ended};
use crate::logic::world::{Kind, Object, Source, Wakes, World};
use crate::metrics::{KindLabel, Metrics};
use kinds::{Known, Sort};

/// What the whole process knows, behind its lock. Only closures get at it, so that no guard can live across an await.
#[derive(Default)]
pub struct Store<T>(Arc<RwLock<T>>);

/// The world of this process.
pub type Shared = Store<World>;

/// The closed loops of this process.
pub type SharedLoops = Store<Loops>;

/// The autoscalers of this process' namespaces.
pub type SharedRivals = Store<Rivals>;

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Store<T> {
    /// Looks at it. Poison is passed over: a panic elsewhere does not make facts untrue.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes it.
    pub fn write<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Who wants to know that actions or loops should look again. Must not block.
pub trait Listener: Send + Sync {
    /// These actions are concerned by a change.
    fn wake_actions(&self, actions: Wakes);
    /// These loops are.
    fn wake_loops(&self, loops: Wakes);
}

/// What the watches need to know.
#[derive(Clone)]
pub struct Options {
    /// Watch only these namespaces; all when empty. Nodes are watched either way.
    pub namespaces: Vec<String>,
    /// How long one list request, or the answer to a watch request, may take.
    pub timeout: Duration,
}

/// The running caches.
pub struct Caches {
    pub world: Shared,
    pub loops: SharedLoops,
    pub rivals: SharedRivals,
    state: Arc<State>,
    tasks: JoinSet<()>,
}

/// What the watches share.
pub(crate) struct State {
    world: Shared,
    loops: SharedLoops,
    rivals: SharedRivals,
    listener: Arc<dyn Listener>,
    metrics: Metrics,
    /// Watches that have not delivered their first list.
    unsynced: AtomicUsize,
    synced: Notify,
    /// Objects of our own kinds that do not parse.
    unreadable: Mutex<BTreeSet<(Sort, Key)>>,
}

/// Tells whether the caches are filled; cheap to clone.
#[derive(Clone)]
pub struct Synced(Arc<State>);

impl Synced {
    /// Every watch has delivered its first list.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.0.unsynced.load(Ordering::Acquire) == 0
    }

    /// Returns when every watch has delivered its first list.
    pub async fn ready(&self) {
        loop {
            let notified = self.0.synced.notified();
            if self.is_ready() {
                return;
            }
            notified.await;
        }
    }

    /// Some action or receipt does not parse, so that what it says is not known.
    #[must_use]
    pub fn has_unreadable(&self) -> bool {
        let unreadable = self.0.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        unreadable.iter().any(|(sort, _)| matches!(sort, Sort::World(_)))
    }

    /// Writes the number of known objects to the metrics.
    pub fn measure(&self) {
        let world = self.0.world.read(World::counts).into_iter().map(|(kind, count)| (Sort::World(kind), count));
        let loops = self.0.loops.read(Loops::counts).into_iter().map(|(kind, count)| (Sort::Loops(kind), count));
        for (sort, count) in world.chain(loops) {
            let labels = KindLabel { kind: kinds::label(sort) };
            self.0.metrics.cache_objects.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

impl Caches {
    /// Starts every watch. They run until `stop`, or until this is dropped.
    #[must_use]
    pub fn start(
        client: &Client,
        options: &Options,
        listener: Arc<dyn Listener>,
        metrics: &Metrics,
        stop: &CancellationToken,
    ) -> Self {
        let (world, loops, rivals) = (Shared::default(), SharedLoops::default(), SharedRivals::default());
        let state = Arc::new(State {
            world: world.clone(),
            loops: loops.clone(),
            rivals: rivals.clone(),
            listener,
            metrics: metrics.clone(),
            unsynced: AtomicUsize::new(0),
            synced: Notify::new(),
            unreadable: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        kinds::spawn_all(client, options, &state, &mut tasks, stop);
        Self { world, loops, rivals, state, tasks }
    }

    /// A handle that tells when the caches are filled.
    #[must_use]
    pub fn sync(&self) -> Synced {
        Synced(Arc::clone(&self.state))
    }

    /// Returns when every watch has ended, which they do on `stop`.
    pub async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl State {
    fn expect_one_more(&self) {
        self.unsynced.fetch_add(1, Ordering::AcqRel);
    }

    fn one_synced(&self) {
        if self.unsynced.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.synced.notify_waiters();
        }
    }

    /// Takes in what a watch told of.
    fn apply(&self, object: Known) {
        match object {
            Known::World(object) => {
                let maker = if let Object::Action(action) = &object { maker_of_ended(action) } else { None };
                self.wake_actions(self.world.write(|world| world.apply(object, Source::Watch)));
                self.wake_loops(maker.into_iter().collect());
            }
            Known::Scaler(fact, rival) => {
                self.wake_actions(self.world.write(|world| world.apply(Object::Scaler(fact), Source::Watch)));
                self.touched(&self.rivals.write(|rivals| rivals.apply(rival)));
            }
            Known::Rival(rival) => self.touched(&self.rivals.write(|rivals| rivals.apply(rival))),
            Known::Loops(object) => self.wake_loops(self.loops.write(|loops| loops.apply(object, Source::Watch))),
        }
    }

    /// Takes out what a watch told is deleted.
    fn remove(&self, sort: Sort, id: &Identity) {
        match sort {
            Sort::World(kind) => {
                let maker = self.world.read(|world| {
                    world.action(&id.key).filter(|_| kind == Kind::Action).and_then(|action| maker(action))
                });
                self.wake_actions(self.world.write(|world| world.remove(kind, id)));
                self.wake_loops(maker.into_iter().collect());
                if kind == Kind::Scaler {
                    self.remove(Sort::Rivals(ClaimantKind::HorizontalPodAutoscaler), id);
                }
            }
            Sort::Rivals(kind) => self.touched(&self.rivals.write(|rivals| rivals.remove(kind, id))),
            Sort::Loops(kind) => self.wake_loops(self.loops.write(|loops| loops.remove(kind, id))),
        }
    }

    /// Takes in a whole list of one kind; see [`World::replace`].
    fn replace(&self, sort: Sort, namespace: Option<&str>, objects: Vec<Known>, version: &str) {
        let (mut world, mut loops, mut rivals) = (Vec::new(), Vec::new(), Vec::new());
        for object in objects {
            match object {
                Known::World(object) => world.push(object),
                Known::Rival(rival) => rivals.push(rival),
                Known::Scaler(fact, rival) => {
                    world.push(Object::Scaler(fact));
                    rivals.push(rival);
                }
                Known::Loops(object) => loops.push(object),
            }
        }
        match sort {
            Sort::World(kind) => {
                self.wake_actions(self.world.write(|known| known.replace(kind, namespace, world, version)));
                if kind == Kind::Scaler {
                    let kind = ClaimantKind::HorizontalPodAutoscaler;
                    self.touched(&self.rivals.write(|known| known.replace(kind, namespace, rivals)));
                }
                // Ends that the watch missed are not told one by one.
                if kind == Kind::Action {
                    self.wake_loops(self.loops.read(Loops::keys));
                }
            }
            Sort::Rivals(kind) => {
                self.touched(&self.rivals.write(|known| known.replace(kind, namespace, rivals)));
            }
            Sort::Loops(kind) => {
                self.wake_loops(self.loops.write(|known| known.replace(kind, namespace, loops, version)));
            }
        }
    }

    /// Wakes the loops on these targets.
    fn touched(&self, targets: &[Key]) {
        let mut wakes = Wakes::new();
        self.loops.read(|loops| {
            for target in targets {
                let on_it = loops.within(&target.namespace).filter(|one| one.spec.target.name == target.name);
                wakes.extend(on_it.map(|one| Identity::from(&one.metadata).key));
            }
        });
        self.wake_loops(wakes);
    }

    fn wake_actions(&self, wakes: Wakes) {
        if !wakes.is_empty() {
            self.listener.wake_actions(wakes);
        }
    }

    fn wake_loops(&self, wakes: Wakes) {
        if !wakes.is_empty() {
            self.listener.wake_loops(wakes);
        }
    }

    fn readable(&self, kind: Sort, key: &Key) {
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        // Nearly always empty: do not clone a key for nothing.
        if !unreadable.is_empty() {
            unreadable.remove(&(kind, key.clone()));
        }
    }

    /// A list begins: it will tell what does not parse.
    fn all_readable(&self, kind: Sort, namespace: Option<&str>) {
        let mut unreadable = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        unreadable.retain(|(one, key)| *one != kind || namespace.is_some_and(|namespace| key.namespace != namespace));
    }

    fn count_unreadable(&self, kind: Sort) {
        self.metrics.unreadable.get_or_create(&KindLabel { kind: kinds::label(kind) }).inc();
    }

    fn unreadable(&self, kind: Sort, key: Key) {
        self.count_unreadable(kind);
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).insert((kind, key));
    }
}

#[cfg(test)]
mod tests;
