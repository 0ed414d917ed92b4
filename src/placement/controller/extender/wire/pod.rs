//! The pod of a request, reduced while it is parsed to what the agents read.
//!
//! Every list is summed or searched, none is stored: a megabyte of `{}` holds hundreds of thousands of containers.
//! Members that no agent reads are skipped.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::MAX_LABELS;
use ganglion_api::placement_policy::DEFAULT_SCHEDULER;
use ganglion_core::facts::{ContainerRequests, Key, NodeName, Owner, ResourceAmounts, SPREAD_RATE};
use ganglion_placement_plan::question::{PlacedPod, tolerates_control_plane};

/// The pod of a request.
pub struct WirePod(pub PlacedPod);

impl<'de> Deserialize<'de> for WirePod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let PodParts { metadata, spec, status } = PodParts::deserialize(deserializer)?;
        let (metadata, spec) = (metadata.unwrap_or_default(), spec.unwrap_or_default());
        let containers = spec.containers.unwrap_or_default().0.with_inits(spec.init_containers.unwrap_or_default().0);
        let pod_level = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
        let scheduler = spec.scheduler_name.filter(|name| !name.is_empty());
        Ok(Self(PlacedPod {
            key: Key::new(metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default()),
            uid: metadata.uid.unwrap_or_default().into(),
            labels: metadata.labels.unwrap_or_default().0,
            requests: containers.total(pod_level.0, spec.overhead.unwrap_or_default().0),
            cores: containers.cores(),
            controller: metadata.owner_references.unwrap_or_default().0,
            scheduler: scheduler.unwrap_or_else(|| DEFAULT_SCHEDULER.to_owned()),
            tolerates_control_plane: spec.tolerations.unwrap_or_default().0,
            spread_rate: metadata.annotations.unwrap_or_default().0,
            nominated: status.and_then(|status| status.nominated_node_name).as_deref().map(NodeName::from),
        }))
    }
}

#[derive(Deserialize)]
struct PodParts {
    metadata: Option<Metadata>,
    spec: Option<WireSpec>,
    status: Option<WireStatus>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    nominated_node_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    labels: Option<Labels>,
    annotations: Option<SpreadRate>,
    owner_references: Option<Controller>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    containers: Option<Containers>,
    init_containers: Option<InitContainers>,
    resources: Option<WireResources>,
    overhead: Option<WireAmounts>,
    scheduler_name: Option<String>,
    tolerations: Option<Tolerates>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContainer {
    resources: Option<WireResources>,
    restart_policy: Option<String>,
}

#[derive(Default, Deserialize)]
struct WireResources {
    requests: Option<WireAmounts>,
    limits: Option<WireAmounts>,
}

impl WireContainer {
    fn amounts(&self) -> (ResourceAmounts, ResourceAmounts) {
        let Some(WireResources { requests, limits }) = &self.resources else { return Default::default() };
        let amounts = |list: &Option<WireAmounts>| list.as_ref().map(|list| list.0).unwrap_or_default();
        (amounts(requests), amounts(limits))
    }
}

/// A list whose elements are reduced to one value.
trait Reduced: Default {
    type Element: for<'de> Deserialize<'de>;
    fn add(&mut self, element: Self::Element);
}

/// An object whose members are reduced to one value.
trait ReducedMap: Default {
    /// Whether the member with this key is read.
    fn reads(key: &str) -> bool;
    /// Adds a member. An error if there are too many.
    fn add(&mut self, key: String, value: String) -> Result<(), &'static str>;
}

macro_rules! reduced {
    ($($name:ident: $visitor:ident),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any($visitor(PhantomData))
            }
        }
    )*};
}

reduced!(
    Containers: ListVisitor,
    InitContainers: ListVisitor,
    Controller: ListVisitor,
    Tolerates: ListVisitor,
    Labels: MapVisitor,
    SpreadRate: MapVisitor,
    WireAmounts: MapVisitor
);

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Reduced> Visitor<'de> for ListVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or null")
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<T, A::Error> {
        let mut reduced = T::default();
        while let Some(element) = elements.next_element()? {
            reduced.add(element);
        }
        Ok(reduced)
    }
}

struct MapVisitor<T>(PhantomData<T>);

impl<'de, T: ReducedMap> Visitor<'de> for MapVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or null")
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<T, A::Error> {
        let mut reduced = T::default();
        while let Some(key) = members.next_key::<String>()? {
            if T::reads(&key) {
                let value = members.next_value::<String>()?;
                reduced.add(key, value).map_err(A::Error::custom)?;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(reduced)
    }
}

/// Requests of the containers.
#[derive(Default)]
struct Containers(ContainerRequests);

impl Reduced for Containers {
    type Element = WireContainer;

    fn add(&mut self, container: WireContainer) {
        let (requests, limits) = container.amounts();
        self.0.add(requests, limits);
    }
}

/// Requests of the init containers.
#[derive(Default)]
struct InitContainers(ContainerRequests);

impl Reduced for InitContainers {
    type Element = WireContainer;

    fn add(&mut self, container: WireContainer) {
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        self.0.add_init(container.amounts().0, is_sidecar);
    }
}

/// The controlling owner.
#[derive(Default)]
struct Controller(Option<Owner>);

impl Reduced for Controller {
    type Element = OwnerReference;

    fn add(&mut self, owner: OwnerReference) {
        if owner.controller == Some(true) && self.0.is_none() {
            let OwnerReference { kind, name, uid, .. } = owner;
            self.0 = Some(Owner { kind, name, uid: uid.into() });
        }
    }
}

/// Whether the pod tolerates the taint of control plane nodes.
#[derive(Default)]
struct Tolerates(bool);

impl Reduced for Tolerates {
    type Element = Toleration;

    fn add(&mut self, toleration: Toleration) {
        self.0 |= tolerates_control_plane(&toleration);
    }
}

/// The labels.
#[derive(Default)]
struct Labels(BTreeMap<String, String>);

impl ReducedMap for Labels {
    fn reads(_: &str) -> bool {
        true
    }

    fn add(&mut self, key: String, value: String) -> Result<(), &'static str> {
        if self.0.len() >= MAX_LABELS {
            return Err("the pod has too many labels");
        }
        self.0.insert(key, value);
        Ok(())
    }
}

/// Annotation [`SPREAD_RATE`].
#[derive(Default)]
struct SpreadRate(Option<String>);

impl ReducedMap for SpreadRate {
    fn reads(key: &str) -> bool {
        key == SPREAD_RATE
    }

    fn add(&mut self, _: String, value: String) -> Result<(), &'static str> {
        self.0 = Some(value);
        Ok(())
    }
}

/// A list of resources.
#[derive(Default)]
struct WireAmounts(ResourceAmounts);

impl ReducedMap for WireAmounts {
    fn reads(key: &str) -> bool {
        ResourceAmounts::has(key)
    }

    fn add(&mut self, key: String, value: String) -> Result<(), &'static str> {
        self.0.set(&key, &value);
        Ok(())
    }
}
