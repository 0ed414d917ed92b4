//! Tests of lists at any moment: between two of our requests, or between a request and its answer. In the end the world
//! contains exactly the objects of the API server.

use std::collections::{BTreeMap, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;

use super::*;

/// The next step of the test, for one of a few pods where it names one.
#[derive(Clone, Debug)]
enum Happens {
    /// Other clients create, change or delete a pod.
    Made(u8),
    Changed(u8),
    Deleted(u8),
    /// A request of ours is executed; its answer is pending.
    WeMake(u8),
    WeChange(u8),
    WeDelete(u8),
    /// The oldest answer arrives.
    Answer,
    /// The watch delivers its next event.
    Hear,
    /// The watch breaks and loses undelivered events, so a list is needed.
    Break,
    /// The list is requested; the server takes the snapshot; the answer is complete.
    Ask,
    Take,
    Complete,
}

fn happenings() -> impl Strategy<Value = Vec<Happens>> {
    let pod = || 0..3_u8;
    let one = prop_oneof![
        2 => pod().prop_map(Happens::Made),
        2 => pod().prop_map(Happens::Changed),
        2 => pod().prop_map(Happens::Deleted),
        2 => pod().prop_map(Happens::WeMake),
        2 => pod().prop_map(Happens::WeChange),
        2 => pod().prop_map(Happens::WeDelete),
        6 => Just(Happens::Answer),
        4 => Just(Happens::Hear),
        1 => Just(Happens::Break),
        3 => Just(Happens::Ask),
        3 => Just(Happens::Take),
        3 => Just(Happens::Complete),
    ];
    prop::collection::vec(one, 0..80)
}

/// Result of a request of ours.
enum OwnResult {
    Is(Box<PodFact>),
    Gone(Identity),
}

/// State of the watch.
enum Watch {
    Broken,
    Asked(Listing<PodFact>),
    Taken(Listing<PodFact>, Vec<PodFact>, usize),
    /// It has delivered the server's log up to this index.
    Follows(usize),
}

/// The API server with a single client, the operator.
struct Scene {
    world: World,
    there: BTreeMap<Key, PodFact>,
    /// All changes: the pod after the change, or before its deletion.
    log: Vec<(PodFact, bool)>,
    version: u64,
    answers: VecDeque<OwnResult>,
    watch: Watch,
}

impl Scene {
    fn new() -> Self {
        let answers = VecDeque::new();
        Self {
            world: World::default(),
            there: BTreeMap::new(),
            log: Vec::new(),
            version: 10,
            answers,
            watch: Watch::Broken,
        }
    }

    fn put(&mut self, pod: PodFact) -> PodFact {
        self.there.insert(pod.id.key.clone(), pod.clone());
        self.log.push((pod.clone(), true));
        pod
    }

    fn make(&mut self, number: u8) -> Option<PodFact> {
        self.version += 1;
        let new = pod(number, self.version);
        let id = Identity { uid: format!("u{}", self.version).into(), ..new.id };
        (!self.there.contains_key(&id.key)).then(|| self.put(PodFact { id, ..PodFact::default() }))
    }

    fn change(&mut self, number: u8) -> Option<PodFact> {
        let mut known = self.there.get(&pod(number, 0).id.key)?.clone();
        self.version += 1;
        known.id.version = self.version.to_string();
        known.node = Some(self.version.to_string().into());
        Some(self.put(known))
    }

    fn delete(&mut self, number: u8) -> Option<Identity> {
        let mut last = self.there.remove(&pod(number, 0).id.key)?;
        self.version += 1;
        let id = last.id.clone();
        last.id.version = self.version.to_string();
        self.log.push((last, false));
        Some(id)
    }

    fn step(&mut self, happens: &Happens) {
        match *happens {
            Happens::Made(number) => drop(self.make(number)),
            Happens::Changed(number) => drop(self.change(number)),
            Happens::Deleted(number) => drop(self.delete(number)),
            Happens::WeMake(number) => {
                let answer = self.make(number).map(Box::new).map(OwnResult::Is);
                self.answers.extend(answer);
            }
            Happens::WeChange(number) => {
                let answer = self.change(number).map(Box::new).map(OwnResult::Is);
                self.answers.extend(answer);
            }
            Happens::WeDelete(number) => {
                let gone = self.delete(number).map(|id| OwnResult::Gone(id.unversioned()));
                self.answers.extend(gone);
            }
            Happens::Answer => match self.answers.pop_front() {
                Some(OwnResult::Is(pod)) => drop(self.world.apply(*pod, Origin::Own)),
                Some(OwnResult::Gone(id)) => drop(self.world.remove::<PodFact>(&id)),
                None => {}
            },
            Happens::Hear => drop(self.hear()),
            Happens::Break => self.watch = Watch::Broken,
            Happens::Ask | Happens::Take | Happens::Complete => self.list(happens),
        }
    }

    fn list(&mut self, happens: &Happens) {
        self.watch = match (std::mem::replace(&mut self.watch, Watch::Broken), happens) {
            (Watch::Broken, Happens::Ask) => Watch::Asked(self.world.begin_list::<PodFact>(None)),
            (Watch::Asked(list), Happens::Take) => {
                Watch::Taken(list, self.there.values().cloned().collect(), self.log.len())
            }
            (Watch::Taken(mut list, pods, at), Happens::Complete) => {
                pods.into_iter().for_each(|pod| drop(self.world.apply_listed(&mut list, pod)));
                self.world.end_list(&list);
                Watch::Follows(at)
            }
            (watch, _) => watch,
        };
    }

    fn hear(&mut self) -> bool {
        let Watch::Follows(at) = &mut self.watch else { return false };
        let Some((pod, is_there)) = self.log.get(*at) else { return false };
        *at += 1;
        match is_there {
            true => self.world.apply(pod.clone(), Origin::Watch),
            false => self.world.remove::<PodFact>(&pod.id),
        };
        true
    }

    /// No further steps: pending requests and lists complete, and unconfirmed objects are looked up.
    fn rest(&mut self) {
        for happens in [Happens::Ask, Happens::Take, Happens::Complete] {
            self.list(&happens);
        }
        while !self.answers.is_empty() {
            self.step(&Happens::Answer);
        }
        while self.hear() {}
        for id in self.world.table::<PodFact>().unconfirmed(None) {
            match self.there.get(&id.key) {
                Some(pod) => self.world.apply(pod.clone(), Origin::Own),
                None => self.world.remove::<PodFact>(&id.unversioned()),
            };
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn in_the_end_the_world_has_what_the_server_has(happenings in happenings()) {
        let mut scene = Scene::new();
        happenings.iter().for_each(|one| scene.step(one));
        scene.rest();
        let known: Vec<&PodFact> = scene.world.table::<PodFact>().values().map(Arc::as_ref).collect();
        prop_assert_eq!(known, scene.there.values().collect::<Vec<_>>());
    }
}

fn placed(namespace: &str, name: &str, version: u64) -> PodFact {
    let id = Identity { key: Key::new(namespace, name), uid: name.into(), version: version.to_string() };
    PodFact { id, ..PodFact::default() }
}

fn names(world: &World) -> Vec<String> {
    world.table::<PodFact>().keys().map(ToString::to_string).collect()
}

#[test]
fn a_new_list_takes_out_what_it_does_not_have() {
    let mut world = World::default();
    list(&mut world, None, [placed("a", "one", 1), placed("b", "two", 2)]);
    list(&mut world, None, [placed("a", "one", 1)]);
    assert_eq!(names(&world), ["a/one"]);
}

#[test]
fn a_list_of_one_namespace_leaves_the_others_alone() {
    let mut world = World::default();
    list(&mut world, Some("a"), [placed("a", "one", 1)]);
    list(&mut world, Some("b"), [placed("b", "two", 2)]);
    list(&mut world, Some("a"), []);
    assert_eq!(names(&world), ["b/two"]);
}

#[test]
fn what_we_write_while_a_list_is_under_way_stays_and_is_looked_up() {
    let mut world = World::default();
    let mut under_way = world.begin_list::<PodFact>(None);
    world.apply_listed(&mut under_way, placed("a", "one", 1));
    world.apply(placed("a", "ours", 12), Origin::Own);
    world.end_list(&under_way);
    assert_eq!(names(&world), ["a/one", "a/ours"]);
    let unconfirmed = world.table::<PodFact>().unconfirmed(None);
    assert_eq!(unconfirmed.iter().map(|id| id.key.to_string()).collect::<Vec<_>>(), ["a/ours"]);
}

#[test]
fn an_object_that_does_not_parse_keeps_what_is_known_of_it() {
    let mut world = World::default();
    list(&mut world, None, [placed("a", "one", 1)]);
    let mut under_way = world.begin_list::<PodFact>(None);
    let odd = placed("a", "one", 2).id;
    let metadata = ObjectMeta {
        namespace: Some(odd.key.namespace.clone()),
        name: Some(odd.key.name.clone()),
        resource_version: Some(odd.version),
        ..ObjectMeta::default()
    };
    world.put_listed(&mut under_way, Unreadable { metadata, ..Unreadable::default() });
    world.end_list(&under_way);
    assert_eq!(names(&world), ["a/one"]);
    assert!(world.table::<PodFact>().unreadable().contains_key(&odd.key));
    list(&mut world, None, [placed("a", "one", 1)]);
    assert!(world.table::<PodFact>().unreadable().is_empty());
}
