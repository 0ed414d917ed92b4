//! The process' watches: one for each kind, each at its own pace. A list is asked for, taken, and arrives, and anything may
//! happen in between. What only answers to our own requests told of is looked up after it, as `runtime::watch` does: at
//! once, and when every request of before the list has been answered.
//!
//! The only place that puts facts into what the controller knows.

use std::any::Any;

use ganglion::logic::facts::{Identity, PodFact};
use ganglion::logic::world::{Indexed, Listing, Origin, World};
use ganglion::runtime::store::Store;

use crate::cluster::api::{Api, Held};
use crate::cluster::facts::AsFact;
use crate::cluster::object::{Action, Budget, Deployment, Node, Pod, Receipt, Scaler, Service, Set};
use crate::cluster::store::Event;

/// The kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
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

impl Watched {
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

    /// Where it stands in [`Self::ALL`].
    pub fn place(self) -> usize {
        Self::ALL.iter().position(|one| *one == self).unwrap_or(0)
    }
}

/// A kind, and how a fact of it is heard.
trait Fed: Held + AsFact<Fact: Indexed> {
    /// What the controller hears instead of the truth, if it has that flaw.
    fn misread(_fact: &mut Self::Fact, _lie: Lie) {}
}

/// Changes what is heard of a pod.
pub type Lie = fn(&mut PodFact);

impl Fed for Node {}
impl Fed for Set {}
impl Fed for Deployment {}
impl Fed for Budget {}
impl Fed for Service {}
impl Fed for Scaler {}
impl Fed for Receipt {}
impl Fed for Action {}
impl Fed for Pod {
    fn misread(fact: &mut PodFact, lie: Lie) {
        lie(fact);
    }
}

macro_rules! by_kind {
    ($kind:expr, $call:ident($($argument:expr),*)) => {
        match $kind {
            Watched::Pod => $call::<Pod>($($argument),*),
            Watched::Node => $call::<Node>($($argument),*),
            Watched::Set => $call::<Set>($($argument),*),
            Watched::Deployment => $call::<Deployment>($($argument),*),
            Watched::Budget => $call::<Budget>($($argument),*),
            Watched::Service => $call::<Service>($($argument),*),
            Watched::Scaler => $call::<Scaler>($($argument),*),
            Watched::Receipt => $call::<Receipt>($($argument),*),
            Watched::Action => $call::<Action>($($argument),*),
        }
    };
}

/// One kind's watch.
#[derive(Default)]
pub struct Watch {
    state: State,
    /// When passes that had begun by then wait for no answer, what is not confirmed is looked up.
    look_up: Option<u64>,
}

/// How far it is.
#[derive(Default)]
enum State {
    /// Not listed yet, or broken.
    #[default]
    Down,
    /// A list is asked for: a [`Listing`] of the kind's facts.
    Asked(Box<dyn Any>),
    /// It is taken, and has not arrived yet: how much of the log it knows.
    Taken(Box<dyn Any>, usize),
    /// Follows the log from here.
    Following(usize),
}

/// What a watch hears of, and whom it tells.
pub struct Ear<'a> {
    pub api: &'a Api,
    pub store: &'a Store,
    pub lie: Lie,
    /// Numbers of the oldest pass that waits for an answer, and of the last one that began.
    pub passes: (u64, u64),
}

impl Watch {
    /// Takes in what comes next and requeues the objects that it concerns; false if nothing comes.
    pub fn hear(&mut self, kind: Watched, ear: &Ear) -> bool {
        by_kind!(kind, hear(self, ear))
    }

    pub fn is_following(&self) -> bool {
        matches!(self.state, State::Following(_))
    }

    /// Breaks; it lists again at its next turn.
    pub fn cut(&mut self) {
        self.state = State::Down;
    }
}

fn fact<T: Fed>(object: &T, ear: &Ear) -> T::Fact {
    let mut fact = object.fact();
    T::misread(&mut fact, ear.lie);
    fact
}

fn hear<T: Fed>(watch: &mut Watch, ear: &Ear) -> bool {
    let (store, log) = (ear.store, &T::store(ear.api).log);
    if watch.look_up.is_some_and(|until| ear.passes.0 > until) {
        watch.look_up = None;
        look_up::<T>(ear);
        return true;
    }
    let listing = |list: Box<dyn Any>| list.downcast::<Listing<T::Fact>>().expect("a list of this kind");
    watch.state = match std::mem::take(&mut watch.state) {
        State::Down => State::Asked(Box::new(store.read(|world| world.begin_list::<T::Fact>(None)))),
        State::Asked(list) => State::Taken(list, log.len()),
        State::Taken(list, at) => {
            let mut list = listing(list);
            T::store(ear.api).as_of(at).for_each(|object| list.add(fact::<T>(object, ear)));
            store.end_list(*list);
            look_up::<T>(ear);
            watch.look_up = Some(ear.passes.1);
            State::Following(at)
        }
        State::Following(at) => {
            let Some(event) = log.get(at) else {
                watch.state = State::Following(at);
                return false;
            };
            match event {
                Event::Put(object) => store.apply(fact::<T>(object, ear), Origin::Watch),
                Event::Gone(object) => store.remove::<T::Fact>(&object.meta().identity()),
            }
            State::Following(at + 1)
        }
    };
    true
}

fn look_up<T: Fed>(ear: &Ear) {
    for id in ear.store.read(|world| world.table::<T::Fact>().unconfirmed(None)) {
        match T::store(ear.api).get(&id.key) {
            Some(object) => ear.store.apply(fact::<T>(object, ear), Origin::Own),
            None => ear.store.remove::<T::Fact>(&Identity { version: String::new(), ..id }),
        }
    }
}

/// How many objects of each kind the controller knows.
pub fn known(world: &World) -> impl Fn(Watched) -> usize + '_ {
    move |kind| by_kind!(kind, count(world))
}

fn count<T: Fed>(world: &World) -> usize {
    world.table::<T::Fact>().len()
}
