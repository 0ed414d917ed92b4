//! The process' watches: one for each kind, each at its own pace. A list is requested, read, and delivered, and
//! anything may happen in between. Objects known only from answers to our own requests are read after a list, as
//! `runtime::watch` does: at once, or when every request sent before the list has been answered.
//!
//! The only place that writes facts into the controller's cache.

use std::any::Any;

use ganglion_core::facts::PodFact;
use ganglion_core::world::{Fact, Listing, Origin, World};
use ganglion_runtime::store::Store;

use crate::cluster::api::{Api, Held};
use crate::cluster::facts::AsFact;
use crate::cluster::object::{Action, Deployment, DisruptionBudget, Node, Pod, Receipt, Scaler, Service, Set};
use crate::cluster::store::Event;

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedKind {
    Pod,
    Node,
    Set,
    Deployment,
    Budget,
    Service,
    Scaler,
    Receipt,
    Action,
}

impl WatchedKind {
    pub const ALL: [Self; 9] = [
        Self::Pod,
        Self::Node,
        Self::Set,
        Self::Deployment,
        Self::Budget,
        Self::Service,
        Self::Scaler,
        Self::Receipt,
        Self::Action,
    ];

    /// Index in [`Self::ALL`].
    pub fn place(self) -> usize {
        Self::ALL.iter().position(|one| *one == self).unwrap_or(0)
    }
}

/// A kind, and how its facts are received.
trait Fed: Held + AsFact<Fact: Fact> {
    /// Changes a fact according to the flaw, before the controller receives it.
    fn misread(_fact: &mut Self::Fact, _lie: Misread) {}
}

/// Change of a received pod.
pub type Misread = fn(&mut PodFact);

impl Fed for Node {}
impl Fed for Set {}
impl Fed for Deployment {}
impl Fed for DisruptionBudget {}
impl Fed for Service {}
impl Fed for Scaler {}
impl Fed for Receipt {}
impl Fed for Action {}
impl Fed for Pod {
    fn misread(fact: &mut PodFact, misreading: Misread) {
        misreading(fact);
    }
}

macro_rules! by_kind {
    ($kind:expr, $call:ident($($argument:expr),*)) => {
        match $kind {
            WatchedKind::Pod => $call::<Pod>($($argument),*),
            WatchedKind::Node => $call::<Node>($($argument),*),
            WatchedKind::Set => $call::<Set>($($argument),*),
            WatchedKind::Deployment => $call::<Deployment>($($argument),*),
            WatchedKind::Budget => $call::<DisruptionBudget>($($argument),*),
            WatchedKind::Service => $call::<Service>($($argument),*),
            WatchedKind::Scaler => $call::<Scaler>($($argument),*),
            WatchedKind::Receipt => $call::<Receipt>($($argument),*),
            WatchedKind::Action => $call::<Action>($($argument),*),
        }
    };
}

/// The watch of one kind.
#[derive(Default)]
pub struct Watch {
    state: State,
    /// Unconfirmed objects are looked up when all tasks up to this number wait for no answer.
    look_up: Option<u64>,
}

/// State of a watch.
#[derive(Default)]
enum State {
    /// Not listed yet, or broken.
    #[default]
    Down,
    /// A list is requested: a [`Listing`] of the kind's facts.
    Asked(Box<dyn Any>),
    /// The list is read, but not delivered yet; the number is the length of the log that it covers.
    Taken(Box<dyn Any>, usize),
    /// Follows the log from here.
    Following(usize),
}

/// Source of a watch, and target of its facts.
pub struct FeedContext<'a> {
    pub api: &'a Api,
    pub store: &'a Store,
    pub misreading: Misread,
    /// Numbers of the oldest task that waits for an answer, and of the last one that started.
    pub tasks: (u64, u64),
}

impl Watch {
    /// Delivers the next event, and requeues the objects that it concerns; false if there is none.
    pub fn hear(&mut self, kind: WatchedKind, context: &FeedContext) -> bool {
        by_kind!(kind, hear(self, context))
    }

    pub fn is_following(&self) -> bool {
        matches!(self.state, State::Following(_))
    }

    /// Breaks the watch; its next step lists again.
    pub fn cut(&mut self) {
        self.state = State::Down;
    }
}

fn fact<T: Fed>(object: &T, context: &FeedContext) -> T::Fact {
    let mut fact = object.fact();
    T::misread(&mut fact, context.misreading);
    fact
}

fn hear<T: Fed>(watch: &mut Watch, context: &FeedContext) -> bool {
    let (store, log) = (context.store, &T::store(context.api).log);
    if watch.look_up.is_some_and(|until| context.tasks.0 > until) {
        watch.look_up = None;
        look_up::<T>(context);
        return true;
    }
    let listing = |list: Box<dyn Any>| list.downcast::<Listing<T::Fact>>().expect("a list of this kind");
    watch.state = match std::mem::take(&mut watch.state) {
        State::Down => State::Asked(Box::new(store.read(|world| world.begin_list::<T::Fact>(None)))),
        State::Asked(list) => State::Taken(list, log.len()),
        State::Taken(list, at) => {
            let mut list = listing(list);
            T::store(context.api)
                .as_of(at)
                .for_each(|object| store.apply_listed(&mut list, fact::<T>(object, context)));
            store.end_list(&list);
            look_up::<T>(context);
            watch.look_up = Some(context.tasks.1);
            State::Following(at)
        }
        State::Following(at) => {
            let Some(event) = log.get(at) else {
                watch.state = State::Following(at);
                return false;
            };
            match event {
                Event::Put(object) => store.apply(fact::<T>(object, context), Origin::Watch),
                Event::Gone(object) => store.remove::<T::Fact>(&object.meta().identity()),
            }
            State::Following(at + 1)
        }
    };
    true
}

fn look_up<T: Fed>(context: &FeedContext) {
    for id in context.store.read(|world| world.table::<T::Fact>().unconfirmed(None)) {
        match T::store(context.api).get(&id.key) {
            Some(object) => context.store.apply(fact::<T>(object, context), Origin::Own),
            None => context.store.remove::<T::Fact>(&id.unversioned()),
        }
    }
}

/// Number of objects of each kind in the controller's cache.
pub fn known(world: &World) -> impl Fn(WatchedKind) -> usize + '_ {
    move |kind| by_kind!(kind, count(world))
}

fn count<T: Fed>(world: &World) -> usize {
    world.table::<T::Fact>().len()
}
