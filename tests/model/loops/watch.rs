//! The process' watches, at the driver's pace: a list is requested, read, and delivered, and anything may happen in
//! between. Objects known only from answers to our own requests are read after a list, as `runtime::watch` does: at
//! once, or when every request sent before the list has been answered.

use std::sync::Arc;

use ganglion_core::facts::{Identity, Key};
use ganglion_core::world::{Fact, Listing, Origin};
use ganglion_runtime::store::Store;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::api::{Api, NAMESPACE, Sort};

/// A watch of some kind.
pub trait Hears {
    /// Delivers the next event of the kind with this index; false if there is none. `requests` are the numbers of the
    /// oldest request without an answer, and of the last request.
    fn hear(&mut self, place: usize, api: &Api, store: &Store, requests: (u64, u64)) -> bool;
    fn cut(&mut self);
    fn is_synced(&self) -> bool;
}

/// State of the watch of a kind.
pub struct Watch<F> {
    state: State<F>,
    /// Whether it has listed once. Passes continue while it lists again.
    synced: bool,
    /// Unconfirmed objects are looked up when all requests up to this number have been answered.
    look_up: Option<u64>,
}

enum State<F> {
    Down,
    Asked(Listing<F>),
    Taken(Listing<F>, Vec<Arc<Value>>, usize),
    /// Follows the log from here.
    At(usize),
}

impl<F> Default for Watch<F> {
    fn default() -> Self {
        Self { state: State::Down, synced: false, look_up: None }
    }
}

fn fact<F: DeserializeOwned>(object: &Value) -> F {
    serde_json::from_value(object.clone()).expect("what the controllers wrote can be read")
}

impl<F: Fact + DeserializeOwned> Watch<F> {
    /// Delivers the next event of the log; false if there is none.
    fn follow(&mut self, from: usize, sort: Sort, api: &Api, store: &Store) -> bool {
        let next = api.log.iter().enumerate().skip(from).find(|(_, write)| write.sort == sort);
        let Some((at, write)) = next else {
            self.state = State::At(api.log.len());
            return false;
        };
        self.state = State::At(at + 1);
        match &write.new {
            Some(object) => store.apply(fact::<F>(object), Origin::Watch),
            None => {
                let uid = write.old.as_ref().and_then(|old| old["metadata"]["uid"].as_str()).unwrap_or_default();
                let key = Key::new(NAMESPACE, &write.name);
                store.remove::<F>(&Identity { key, uid: uid.into(), version: write.version.to_string() });
            }
        }
        true
    }

    fn look_up(sort: Sort, api: &Api, store: &Store) {
        for id in store.read(|world| world.table::<F>().unconfirmed(None)) {
            match api.get(sort, &id.key.name) {
                Some(object) => store.apply(fact::<F>(object), Origin::Own),
                None => store.remove::<F>(&id.unversioned()),
            }
        }
    }
}

impl<F: Fact + DeserializeOwned> Hears for Watch<F> {
    fn hear(&mut self, place: usize, api: &Api, store: &Store, (oldest, last): (u64, u64)) -> bool {
        let sort = Sort::WATCHED[place];
        if self.look_up.is_some_and(|until| oldest > until || oldest == last) {
            self.look_up = None;
            Self::look_up(sort, api, store);
            return true;
        }
        match std::mem::replace(&mut self.state, State::Down) {
            State::Down => self.state = State::Asked(store.read(|world| world.begin_list::<F>(None))),
            State::Asked(list) => {
                let there = api.objects.iter().filter(|((one, _), _)| *one == sort);
                let there = there.map(|(_, object)| Arc::clone(object)).collect();
                self.state = State::Taken(list, there, api.log.len());
            }
            State::Taken(mut list, there, at) => {
                there.iter().for_each(|object| store.apply_listed(&mut list, fact::<F>(object)));
                store.end_list(&list);
                self.state = State::At(at);
                self.synced = true;
                self.look_up = Some(last);
                Self::look_up(sort, api, store);
            }
            State::At(from) => return self.follow(from, sort, api, store),
        }
        true
    }

    fn cut(&mut self) {
        self.state = State::Down;
    }

    fn is_synced(&self) -> bool {
        self.synced
    }
}
