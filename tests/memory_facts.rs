//! Memory that objects of foreign kinds cost: as facts, and while pages of a list are read. A user with the ClusterRole
//! edit writes them, and the API server limits them to about 1.5 MB each.
//!
//! The allocator counts for the whole process, so the tests of this file run one after the other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ganglion_api::foreign::{ScaledObject, VerticalPodAutoscaler};
use ganglion_core::facts::{
    BudgetFact, ClaimFact, ConfigMapFact, DeploymentFact, HpaFact, PodFact, ReplicaSet, ReplicaSetFact,
    ScaledObjectFact, ServiceFact, SlimAutoscaler, SlimDeployment, SlimPod, StatefulSet, StatefulSetFact, VpaFact,
};
use ganglion_core::world::Fact;
use ganglion_runtime::guard::Guard;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{ObjectList, PartialObjectMeta};
use peak_alloc::PeakAlloc;
use serde::de::DeserializeOwned;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

static TURN: Mutex<()> = Mutex::new(());

const MIB: usize = 1 << 20;

/// Largest page that is read, and bytes of all pages that are read at a time; see `runtime/watch/pace.rs`.
const PAGE: usize = 4 * MIB;
const PAGES: usize = 2 * PAGE;

/// Memory that the shipped limit of 512 MiB has for pages, beside 64 MiB of one namespace and 128 MiB of anything else.
const FOR_PAGES: usize = 256 * MIB;

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A piece repeated with a running number for each `%`, separated by commas, up to this size.
fn repeated(piece: &str, size: usize) -> String {
    let mut text = String::with_capacity(size + piece.len());
    for number in 0.. {
        text.push_str(&piece.replace('%', &format!("{number:x}")));
        if text.len() >= size {
            break;
        }
        text.push(',');
    }
    text
}

/// Objects that repeat one piece: the form of the object with `@` for the pieces, and the piece.
type ObjectForm = (&'static str, &'static str);

/// A kind: reads an object, and returns the fact with the memory that it occupies, or the peak of reading a page.
struct ForeignKind {
    name: &'static str,
    fact: fn(&str) -> FactMemory,
    page: fn(&str) -> usize,
    forms: &'static [ObjectForm],
}

struct FactMemory {
    /// Memory of the fact.
    occupied: usize,
    /// Bytes that count for the namespace.
    counted: usize,
    /// Memory of the reduced fact, if the kind can be reduced.
    reduced: usize,
}

fn fact<K: DeserializeOwned, F: Fact + From<K>>(text: &str) -> FactMemory {
    let before = ALLOCATOR.current_usage();
    let mut fact = F::from(serde_json::from_str::<K>(text).unwrap());
    let occupied = ALLOCATOR.current_usage() - before + size_of::<F>();
    let counted = fact.bytes();
    fact.reduce();
    FactMemory { occupied, counted, reduced: ALLOCATOR.current_usage() - before + size_of::<F>() }
}

fn page<K: DeserializeOwned + kube::Resource<DynamicType = ()> + Clone>(text: &str) -> usize {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let list: ObjectList<Guard<K>> = serde_json::from_str(text).unwrap();
    assert!(list.items.iter().all(|object| object.0.is_ok()));
    ALLOCATOR.peak_usage() - before
}

const LABELS: ObjectForm = (r#"{"metadata":{"name":"x","labels":{@}}}"#, r#""%":"""#);
const OWNERS: ObjectForm =
    (r#"{"metadata":{"name":"x","ownerReferences":[@]}}"#, r#"{"apiVersion":"","kind":"","name":"","uid":""}"#);
const FIELDS: ObjectForm = (r#"{"metadata":{"name":"x","managedFields":[{"fieldsV1":{@}}]}}"#, r#""%":{}"#);

/// The smallest container, with the members that the API server adds.
const CONTAINER: &str = r#"{"name":"%","image":"a","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}"#;

const KINDS: &[ForeignKind] = &[
    ForeignKind {
        name: "Pod",
        fact: fact::<SlimPod, PodFact>,
        page: page::<SlimPod>,
        forms: &[
            LABELS,
            OWNERS,
            FIELDS,
            (r#"{"metadata":{"name":"x","annotations":{"ganglion.dev/peers":"@"}}}"#, "x"),
            (r#"{"metadata":{"name":"x"},"spec":{"schedulerName":"@","containers":[]}}"#, "x"),
            (
                r#"{"metadata":{"name":"x","ownerReferences":[{"apiVersion":"","kind":"@","name":"","uid":"","controller":true}]}}"#,
                "x",
            ),
            (r#"{"metadata":{"name":"x"},"spec":{"containers":[],"tolerations":[@]}}"#, r#"{"operator":"Exists"}"#),
            (r#"{"metadata":{"name":"x"},"spec":{"containers":[@]}}"#, CONTAINER),
            (r#"{"metadata":{"name":"x"},"spec":{"containers":[{"name":"x","env":[@]}]}}"#, r#"{"name":"%"}"#),
            (r#"{"metadata":{"name":"x"},"spec":{"containers":[],"volumes":[@]}}"#, r#"{"name":"%","emptyDir":{}}"#),
            (
                r#"{"metadata":{"name":"x"},"spec":{"containers":[{"name":"x","ports":[@]}]}}"#,
                r#"{"containerPort":1,"hostPort":1}"#,
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"containers":[{"name":"x","resources":{"requests":{@}}}]}}"#,
                r#""%":"1""#,
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"containers":[],"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[@]}}}}"#,
                r#"{"topologyKey":"a"}"#,
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"containers":[],"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"a","labelSelector":{"matchExpressions":[@]}}]}}}}"#,
                r#"{"key":"%","operator":"In","values":["a"]}"#,
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"containers":[],"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"a","namespaces":[@]}]}}}}"#,
                r#""%""#,
            ),
        ],
    },
    ForeignKind {
        name: "ReplicaSet",
        fact: fact::<ReplicaSet, ReplicaSetFact>,
        page: page::<ReplicaSet>,
        forms: &[
            LABELS,
            FIELDS,
            (r#"{"metadata":{"name":"x"},"spec":{"selector":{"matchLabels":{@}}}}"#, r#""%":"""#),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{"matchExpressions":[@]}}}"#,
                r#"{"key":"%","operator":"Exists"}"#,
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":[@]}]}}}"#,
                r#""""#,
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{},"template":{"spec":{"containers":[],"tolerations":[@]}}}}"#,
                r#"{"operator":"Exists"}"#,
            ),
            (r#"{"metadata":{"name":"x"},"spec":{"selector":{},"template":{"metadata":{"labels":{@}}}}}"#, r#""%":"""#),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{},"template":{"spec":{"containers":[],"nodeSelector":{@}}}}}"#,
                r#""%":"""#,
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{},"template":{"spec":{"containers":[],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[@]}]}}}}}}}"#,
                r#"{"key":"%","operator":"Exists"}"#,
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{},"template":{"spec":{"containers":[],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[@]}}}}}}}"#,
                "{}",
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{},"template":{"spec":{"containers":[],"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[@]}}}}}}"#,
                r#"{"topologyKey":"a"}"#,
            ),
            (r#"{"metadata":{"name":"x"},"spec":{"selector":{},"template":{"spec":{"containers":[@]}}}}"#, CONTAINER),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{},"template":{"spec":{"containers":[],"volumes":[@]}}}}"#,
                r#"{"name":"%","emptyDir":{}}"#,
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{},"template":{"spec":{"containers":[],"volumes":[@]}}}}"#,
                r#"{"name":"%","persistentVolumeClaim":{"claimName":"c"}}"#,
            ),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{},"template":{"spec":{"containers":[{"name":"x","env":[@]}]}}}}"#,
                r#"{"name":"%"}"#,
            ),
        ],
    },
    ForeignKind {
        name: "StatefulSet",
        fact: fact::<StatefulSet, StatefulSetFact>,
        page: page::<StatefulSet>,
        forms: &[
            LABELS,
            (r#"{"metadata":{"name":"x"},"spec":{"selector":{"matchLabels":{@}}}}"#, r#""%":"""#),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{},"volumeClaimTemplates":[@]}}"#,
                r#"{"metadata":{"name":"%"}}"#,
            ),
        ],
    },
    ForeignKind {
        name: "Deployment",
        fact: fact::<SlimDeployment, DeploymentFact>,
        page: page::<SlimDeployment>,
        forms: &[
            LABELS,
            (r#"{"metadata":{"name":"x"},"spec":{"template":{},"selector":{"matchLabels":{@}}}}"#, r#""%":"""#),
            (r#"{"metadata":{"name":"x","annotations":{"ganglion.dev/ledger":"@"}}}"#, "x"),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{},"template":{"spec":{"containers":[],"volumes":[@]}}}}"#,
                r#"{"name":"%","emptyDir":{}}"#,
            ),
        ],
    },
    ForeignKind {
        name: "ConfigMap",
        fact: fact::<PartialObjectMeta<ConfigMap>, ConfigMapFact>,
        page: page::<PartialObjectMeta<ConfigMap>>,
        forms: &[LABELS, FIELDS],
    },
    ForeignKind {
        name: "PodDisruptionBudget",
        fact: fact::<PodDisruptionBudget, BudgetFact>,
        page: page::<PodDisruptionBudget>,
        forms: &[
            LABELS,
            (r#"{"metadata":{"name":"x"},"spec":{"selector":{"matchLabels":{@}}}}"#, r#""%":"""#),
            (
                r#"{"metadata":{"name":"x"},"spec":{"selector":{"matchExpressions":[@]}}}"#,
                r#"{"key":"%","operator":"In","values":["a"]}"#,
            ),
        ],
    },
    ForeignKind {
        name: "Service",
        fact: fact::<Service, ServiceFact>,
        page: page::<Service>,
        forms: &[LABELS, (r#"{"metadata":{"name":"x"},"spec":{"selector":{@}}}"#, r#""%":"""#)],
    },
    ForeignKind {
        name: "PersistentVolumeClaim",
        fact: fact::<PersistentVolumeClaim, ClaimFact>,
        page: page::<PersistentVolumeClaim>,
        forms: &[
            (r#"{"metadata":{"name":"x"},"spec":{"accessModes":[@]}}"#, r#""ReadWriteOnce""#),
            (r#"{"metadata":{"name":"x"},"spec":{"volumeName":"@"}}"#, "x"),
        ],
    },
    ForeignKind {
        name: "HorizontalPodAutoscaler",
        fact: fact::<SlimAutoscaler, HpaFact>,
        page: page::<SlimAutoscaler>,
        forms: &[
            (r#"{"metadata":{"name":"x"},"spec":{"maxReplicas":1,"scaleTargetRef":{"kind":"@","name":"x"}}}"#, "x"),
            (
                r#"{"metadata":{"name":"x"},"spec":{"scaleTargetRef":{"kind":"a","name":"x"},"metrics":[@]}}"#,
                r#"{"type":"Resource"}"#,
            ),
        ],
    },
    ForeignKind {
        name: "ScaledObject",
        fact: fact::<ScaledObject, ScaledObjectFact>,
        page: page::<ScaledObject>,
        forms: &[(
            r#"{"apiVersion":"keda.sh/v1alpha1","kind":"ScaledObject","metadata":{"name":"x"},"spec":{"scaleTargetRef":{"name":"@"}}}"#,
            "x",
        )],
    },
    ForeignKind {
        name: "VerticalPodAutoscaler",
        fact: fact::<VerticalPodAutoscaler, VpaFact>,
        page: page::<VerticalPodAutoscaler>,
        forms: &[(
            r#"{"apiVersion":"autoscaling.k8s.io/v1","kind":"VerticalPodAutoscaler","metadata":{"name":"x"},"spec":{"targetRef":{"kind":"Deployment","name":"x"},"resourcePolicy":{"containerPolicies":[@]}}}"#,
            r#"{"containerName":"%"}"#,
        )],
    },
];

fn object((form, piece): &ObjectForm, size: usize) -> String {
    form.replace('@', &repeated(piece, size))
}

/// Memory of a fact that does not count for its namespace.
const UNCOUNTED: usize = 8 << 10;

#[test]
fn the_memory_of_a_fact_counts_for_its_namespace_except_for_some_kibibytes() {
    let _turn = turn();
    for kind in KINDS {
        for form in kind.forms {
            let FactMemory { occupied, counted, reduced } = (kind.fact)(&object(form, MIB));
            println!(
                "{} {}: {} KiB, {} KiB counted, {reduced} B reduced",
                kind.name,
                form.0,
                occupied >> 10,
                counted >> 10
            );
            assert!(occupied <= counted + UNCOUNTED, "{} {}: {occupied} of {counted}", kind.name, form.0);
            assert!(reduced <= UNCOUNTED, "{} {}: {reduced}", kind.name, form.0);
        }
    }
}

#[test]
fn the_pages_that_are_read_at_a_time_fit_into_the_memory_of_the_shipped_deployment() {
    let _turn = turn();
    let mut worst = 0;
    for kind in KINDS {
        for form in kind.forms {
            let items = vec![object(form, PAGE / 4 - form.0.len()); 4].join(",");
            let text = format!(r#"{{"kind":"List","apiVersion":"v1","metadata":{{}},"items":[{items}]}}"#);
            let peak = (kind.page)(&text) + text.len();
            println!("{} {}: {:.1} bytes per byte", kind.name, form.0, peak as f64 / text.len() as f64);
            worst = worst.max(peak / (text.len() / 1024) * (PAGES / 1024));
        }
    }
    assert!(worst < FOR_PAGES, "{} MiB", worst / MIB);
}
