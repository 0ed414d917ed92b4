//! The process' watches: one for each kind, each at its own pace, with lists that are consistent when they are taken and
//! may be stale when they arrive.

use ganglion::logic::facts::Identity;
use ganglion::logic::world::{Kind, Object, Source, Wakes, World};

use crate::cluster::api::{Api, Held};
use crate::cluster::facts::AsFact;
use crate::cluster::object::{Action, Budget, Deployment, Node, Pod, Receipt, Scaler, Service, Set};
use crate::cluster::store::Event;

/// How far one kind's watch is.
#[derive(Debug, Default)]
pub enum Watch {
    /// Not listed yet, or broken.
    #[default]
    Down,
    /// Listed; the list has not arrived yet.
    Listed { objects: Vec<Object>, at: usize, version: u64 },
    /// Follows the log from here.
    Following(usize),
}

enum Heard {
    Put(Object),
    Gone(Identity),
}

fn event<T: Held + AsFact>(api: &Api, at: usize) -> Option<Heard> {
    Some(match T::store(api).log.get(at)? {
        Event::Put(object) => Heard::Put(object.fact()),
        Event::Gone(object) => Heard::Gone(object.meta().identity()),
    })
}

fn list<T: Held + AsFact>(api: &Api) -> (Vec<Object>, usize) {
    let store = T::store(api);
    (store.values().map(|object| object.fact()).collect(), store.log.len())
}

macro_rules! by_kind {
    ($kind:expr, $call:ident($($argument:expr),*)) => {
        match $kind {
            Kind::Pod => $call::<Pod>($($argument),*),
            Kind::Node => $call::<Node>($($argument),*),
            Kind::Set => $call::<Set>($($argument),*),
            Kind::Deployment => $call::<Deployment>($($argument),*),
            Kind::Budget => $call::<Budget>($($argument),*),
            Kind::Service => $call::<Service>($($argument),*),
            Kind::Scaler => $call::<Scaler>($($argument),*),
            Kind::Receipt => $call::<Receipt>($($argument),*),
            Kind::Action => $call::<Action>($($argument),*),
        }
    };
}

impl Watch {
    /// Takes in what comes next; None if nothing does.
    pub fn hear(&mut self, kind: Kind, api: &Api, world: &mut World) -> Option<Wakes> {
        match self {
            Self::Down => {
                let (objects, at) = by_kind!(kind, list(api));
                *self = Self::Listed { objects, at, version: api.version() };
                Some(Wakes::new())
            }
            Self::Listed { objects, at, version } => {
                let (objects, at, version) = (std::mem::take(objects), *at, version.to_string());
                *self = Self::Following(at);
                Some(world.replace(kind, None, objects, &version))
            }
            Self::Following(at) => {
                let heard = by_kind!(kind, event(api, *at))?;
                *at += 1;
                Some(match heard {
                    Heard::Put(object) => world.apply(object, Source::Watch),
                    Heard::Gone(id) => world.remove(kind, &id),
                })
            }
        }
    }

    pub fn is_following(&self) -> bool {
        matches!(self, Self::Following(_))
    }
}
