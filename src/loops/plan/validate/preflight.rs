//! Preflight: checks in advance whether a loop could act: its target, and the permissions of its account.
//!
//! Owns the list of permissions that a rung or the metric of an adapter needs, and the text of the verdict. Must not
//! know how the target is read.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::common::HEARTBEAT;
use crate::rung;
use ganglion_api::closed_loop::action::Rung;
use ganglion_api::closed_loop::metric::Source;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::{ClosedLoopSpec, TargetRef};
use ganglion_core::conditions::{self, Stamp};
use ganglion_core::facts::Uid;
use ganglion_core::metrics_api::{CUSTOM_METRICS, EXTERNAL_METRICS};

/// Type of the condition.
const CONDITION: &str = "Preflight";

/// Delay after the first failed check. It doubles with each further failure, up to the heartbeat. Objects that are
/// applied together exist within seconds.
pub const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(5);

/// Maximum delay while there is no verdict.
const PAUSE_WITHOUT_VERDICT: SignedDuration = SignedDuration::from_secs(10);

/// Verdict on a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preflight {
    /// No verdict yet. The text is the reason if a check was tried.
    Pending(Option<String>),
    /// Every rung could be carried out.
    Passed,
    /// A rung could not be carried out.
    Failed(LoopReason, String),
}

impl Preflight {
    /// Returns the verdict in the loop's status, if it was made for this generation of the spec.
    pub fn stored(conditions: &[Condition], generation: i64) -> Self {
        let stored = conditions.iter().find(|one| one.type_ == CONDITION);
        match stored.filter(|one| one.observed_generation == Some(generation)) {
            None => Self::Pending(None),
            Some(stored) if stored.status == "True" => Self::Passed,
            Some(stored) => Self::Failed(LoopReason::of(&stored.reason), stored.message.clone()),
        }
    }

    /// Returns the condition of the loop; None before the first verdict.
    pub fn condition(&self, old: &[Condition], stamp: Stamp) -> Option<Condition> {
        let (status, reason, message) = match self {
            Self::Pending(_) => return None,
            Self::Passed => ("True", LoopReason::Passed, "the target and the rights of the account allow every action"),
            Self::Failed(reason, message) => ("False", *reason, message.as_str()),
        };
        Some(conditions::condition(old, CONDITION, status, reason.as_str(), message, stamp))
    }

    /// Returns the delay until the next check, after this many consecutive checks that did not pass.
    pub fn pause(&self, failures: u32) -> SignedDuration {
        let most = match self {
            Self::Pending(_) => PAUSE_WITHOUT_VERDICT,
            Self::Passed | Self::Failed(..) => HEARTBEAT,
        };
        let Some(doublings) = failures.checked_sub(1) else { return most };
        FIRST_PAUSE.saturating_mul(1 << doublings.min(16)).min(most)
    }
}

/// Parts of a loop that the verdict depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct PreflightQuestion {
    pub uid: Uid,
    pub target: TargetRef,
    pub account: Option<String>,
    pub rungs: Vec<PlacedRung>,
    /// Metrics whose sources need permissions, see [`source_rights`].
    pub metrics: Vec<(String, Source)>,
}

/// Rung of the spec.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedRung {
    pub rung: Rung,
    /// Position in the spec, such as `rung 1 on Low cpu (scale by 1, at most 9)`.
    pub place: String,
}

impl PreflightQuestion {
    pub fn new(uid: Uid, spec: &ClosedLoopSpec) -> Self {
        let placed = spec.actions.iter().flatten().flat_map(|action| {
            action
                .ladder
                .iter()
                .enumerate()
                .map(|(index, rung)| PlacedRung { rung: rung.clone(), place: rung::place(rung, index, &action.when) })
        });
        let (target, account) = (spec.target.clone(), spec.service_account_name.clone());
        let adapters = spec.metrics.iter().filter(|metric| is_of_adapter(&metric.source));
        let metrics = adapters.map(|metric| (metric.name.clone(), metric.source.clone())).collect();
        Self { uid, target, account, rungs: placed.collect(), metrics }
    }
}

impl PlacedRung {
    /// Returns the verdict that this rung could not be carried out.
    pub fn fails(&self, reason: LoopReason, problem: &str) -> Preflight {
        Preflight::Failed(reason, format!("{}: {problem}", self.place))
    }
}

/// Permission in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessRight {
    /// Namespace; None for that of the loop.
    pub namespace: Option<String>,
    pub verb: &'static str,
    pub group: String,
    pub resource: String,
    pub subresource: Option<String>,
    /// Name of one object; None for all objects.
    pub name: Option<String>,
}

impl AccessRight {
    /// Returns the message of the API server for a missing permission.
    pub fn refusal(&self, namespace: &str, account: &str) -> String {
        let Self { verb, group, resource, subresource, .. } = self;
        let part = subresource.as_ref().map(|part| format!("/{part}")).unwrap_or_default();
        let requested = self.namespace.as_deref().unwrap_or(namespace);
        format!(
            "User \"system:serviceaccount:{namespace}:{account}\" cannot {verb} resource \"{resource}{part}\" in API group \
             \"{group}\" in the namespace \"{requested}\""
        )
    }
}

/// API resource of a target's kind.
#[derive(Clone, Copy, Debug)]
pub struct TargetResource<'a> {
    /// Plural name.
    pub plural: &'a str,
    /// Whether reading the replicas needs the scale subresource.
    pub reads_scale: bool,
}

/// Whether the account needs permissions for the rung. Tuning and events are requests of the operator itself.
pub fn needs_rights(rung: &Rung) -> bool {
    rung.tune.is_none() && rung.webhook.is_none()
}

/// Returns the permissions that the account needs for the rung.
pub fn rights(rung: &Rung, target: &TargetRef, kind: TargetResource) -> Vec<AccessRight> {
    let group = target.api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let right = |verb, group: &str, resource: &str, subresource: Option<&str>, name: Option<&str>| AccessRight {
        namespace: None,
        verb,
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.map(str::to_owned),
        name: name.map(str::to_owned),
    };
    let of_target = |verb, subresource| right(verb, group, kind.plural, subresource, Some(&target.name));
    match rung {
        Rung { scale: Some(_), .. } => {
            let reads = kind.reads_scale.then(|| of_target("get", Some("scale")));
            [of_target("get", None), of_target("patch", Some("scale"))].into_iter().chain(reads).collect()
        }
        Rung { resize: Some(resize), .. } => {
            let pods = [right("list", "", "pods", None, None), right("patch", "", "pods", Some("resize"), None)];
            let template = (resize.template == Some(true)).then(|| of_target("patch", None));
            let usage = rung::lowers_memory_limits(rung).then(|| right("list", "metrics.k8s.io", "pods", None, None));
            [of_target("get", None)].into_iter().chain(pods).chain(template).chain(usage).collect()
        }
        Rung { patch: Some(_), .. } => vec![of_target("get", None), of_target("patch", None)],
        Rung { workload_action: Some(template), .. } => {
            let own = right("create", "ganglion.dev", "workloadactions", None, None);
            // The admission policy requires them of the author of an action.
            let evicts = right("create", "", "pods", Some("eviction"), None);
            let scales = template.move_.is_none().then(|| of_target("patch", Some("scale")));
            [own, evicts].into_iter().chain(scales).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether the source reads a metric of an adapter.
fn is_of_adapter(source: &Source) -> bool {
    source.external.is_some() || source.custom.is_some()
}

/// Object that a metric of an adapter describes; None for other metrics.
pub fn described_object(source: &Source) -> Option<&TargetRef> {
    source.custom.as_ref()?.object.as_ref()
}

/// Returns the permissions that the account needs for the metric of an adapter. The resource is that of the request, as
/// the API server reads it from the path. `plural`: that of the described object's kind.
pub fn source_rights(source: &Source, plural: Option<&str>) -> Vec<AccessRight> {
    let mut rights = Vec::new();
    if let Some(external) = &source.external {
        rights.push(AccessRight {
            namespace: external.namespace.clone(),
            verb: "list",
            group: EXTERNAL_METRICS.group.to_owned(),
            resource: external.metric.clone(),
            subresource: None,
            name: None,
        });
    }
    let Some(custom) = &source.custom else { return rights };
    let of_metric = |resource: String, name: &str, subresource: Option<&String>| AccessRight {
        namespace: None,
        verb: "get",
        group: CUSTOM_METRICS.group.to_owned(),
        resource,
        subresource: subresource.cloned(),
        name: Some(name.to_owned()),
    };
    match (&custom.object, plural) {
        (Some(object), _) if is_namespace(object) => {
            rights.push(of_metric("metrics".to_owned(), &custom.metric, None));
        }
        (Some(object), Some(plural)) => {
            rights.push(of_metric(metric_resource(object, plural), &object.name, Some(&custom.metric)));
        }
        // The poll reports an unknown kind.
        (Some(_), None) => {}
        (None, _) => {
            rights.push(of_metric("pods".to_owned(), "*", Some(&custom.metric)));
            let (group, resource) = (String::new(), "pods".to_owned());
            rights.push(AccessRight { namespace: None, verb: "list", group, resource, subresource: None, name: None });
        }
    }
    rights
}

/// Whether the object is a Namespace, whose metrics have another path.
pub fn is_namespace(object: &TargetRef) -> bool {
    object.api_version == "v1" && object.kind == "Namespace"
}

/// Resource of an object in the path of a custom metric: the plural, and after a dot the API group unless it is the
/// core group.
pub fn metric_resource(object: &TargetRef, plural: &str) -> String {
    let group = object.api_version.split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
    format!("{plural}{group}")
}
