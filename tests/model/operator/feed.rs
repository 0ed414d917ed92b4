//! The process' watches: one for each kind, each at its own pace, with lists that are consistent when they are taken and
//! may be stale when they arrive.
//!
//! The only place that puts facts into what the controller knows.

use ganglion::controllers::workload_action::WorkloadActions;
use ganglion::logic::facts::{
    BudgetFact, DeploymentFact, Identity, NodeFact, PodFact, ReceiptFact, ScalerFact, ServiceFact, SetFact,
};
use ganglion::logic::world::{Kind, Object, Source, World};

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

/// A kind, and how a fact of it is handed in.
trait Fed: Held + AsFact {
    const KIND: Kind;
    fn object(fact: Self::Fact) -> Object;
    /// What the controller hears instead of the truth, if it has that flaw.
    fn misread(_fact: &mut Self::Fact, _lie: Lie) {}
}

/// Changes what is heard of a pod.
pub type Lie = fn(&mut PodFact);

macro_rules! fed {
    ($($kind:ident $fact:ident;)*) => {
        $(impl Fed for $kind {
            const KIND: Kind = Kind::$kind;
            fn object(fact: $fact) -> Object {
                Object::$kind(fact)
            }
        })*
    };
}
fed! {
    Node NodeFact;
    Set SetFact;
    Deployment DeploymentFact;
    Budget BudgetFact;
    Service ServiceFact;
    Scaler ScalerFact;
    Receipt ReceiptFact;
}

impl Fed for Pod {
    const KIND: Kind = Kind::Pod;
    fn object(fact: PodFact) -> Object {
        Object::Pod(fact)
    }
    fn misread(fact: &mut PodFact, lie: Lie) {
        lie(fact);
    }
}

impl Fed for Action {
    const KIND: Kind = Kind::Action;
    fn object(fact: Self::Fact) -> Object {
        Object::Action(Box::new(fact))
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

/// How far one kind's watch is.
#[derive(Clone, Copy, Debug, Default)]
pub enum Watch {
    /// Not listed yet, or broken.
    #[default]
    Down,
    /// Listed; the list has not arrived yet: how much of the log it knows, and its version.
    Listed { at: usize, version: u64 },
    /// Follows the log from here.
    Following(usize),
}

impl Watch {
    /// Takes in what comes next and wakes whom it concerns; false if nothing comes.
    pub fn hear(&mut self, kind: Watched, api: &Api, controller: &WorkloadActions, lie: Lie) -> bool {
        by_kind!(kind, hear(self, api, controller, lie))
    }

    pub fn is_following(&self) -> bool {
        matches!(self, Self::Following(_))
    }
}

fn hear<T: Fed>(watch: &mut Watch, api: &Api, controller: &WorkloadActions, lie: Lie) -> bool {
    let store = T::store(api);
    let object = |object: &T| {
        let mut fact = object.fact();
        T::misread(&mut fact, lie);
        T::object(fact)
    };
    let wakes = match *watch {
        Watch::Down => {
            *watch = Watch::Listed { at: store.log.len(), version: api.version() };
            return true;
        }
        Watch::Listed { at, version } => {
            *watch = Watch::Following(at);
            let list = store.as_of(at).map(|one| object(one)).collect();
            controller.world.write(|world| world.replace(T::KIND, None, list, &version.to_string()))
        }
        Watch::Following(at) => {
            let Some(event) = store.log.get(at) else { return false };
            *watch = Watch::Following(at + 1);
            match event {
                Event::Put(one) => {
                    let heard = object(one);
                    controller.world.write(|world| world.apply(heard, Source::Watch))
                }
                Event::Gone(one) => {
                    let id: Identity = one.meta().identity();
                    controller.world.write(|world| world.remove(T::KIND, &id))
                }
            }
        }
    };
    controller.queue.wake(wakes);
    true
}

/// How many objects of each kind the controller knows.
pub fn known(world: &World) -> impl Fn(Watched) -> usize + use<> {
    let counts = world.counts();
    move |kind| counts.get(&by_kind!(kind, kind_of())).copied().unwrap_or(0)
}

fn kind_of<T: Fed>() -> Kind {
    T::KIND
}
