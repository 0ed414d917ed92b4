//! Facts about the cluster that the check of an installation evaluates, and why one of them is unknown.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::operator::settings::Settings;
use ganglion_core::check::CheckReport;
use ganglion_core::policies::PolicyState;
use ganglion_runtime::error::failure;

/// Why a fact is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRead {
    /// The user may not read it; the message of the API server, which names the permission.
    Forbidden(String),
    Failed(String),
}

impl From<kube::Error> for NotRead {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.is_forbidden() => Self::Forbidden(status.message.clone()),
            other => Self::Failed(failure(other)),
        }
    }
}

impl NotRead {
    /// Adds to the report that this is unknown.
    pub fn add_to(&self, report: &mut CheckReport, what: &str) {
        let (words, advice) = match self {
            Self::Forbidden(words) => (
                words,
                "get the permission that the message names, or let an administrator of the cluster run this check",
            ),
            Self::Failed(words) => (words, "run the check again; if it fails again, look at the log of the API server"),
        };
        report.unsure_with(format!("{what}: not read: {words}"), advice);
    }
}

/// A fact that may be unknown.
pub type ReadResult<T> = Result<T, NotRead>;

/// Resources of an API version; None if the API server does not serve the version.
pub type ServedNames = Option<BTreeSet<String>>;

/// A definition of this program, and the stored one.
pub type DefinitionFact = (CustomResourceDefinition, ReadResult<Option<Value>>);

/// Specs of a MutatingAdmissionPolicy and of its binding; None if there is none.
pub type ComponentSpecs = [ReadResult<Option<Value>>; 2];

/// Everything that the check knows.
#[derive(Clone, Debug)]
pub struct InstallationFacts {
    pub now: Timestamp,
    /// Version of the server, such as `v1.36.3`.
    pub version: ReadResult<String>,
    /// Names of resources, by API version.
    pub served: BTreeMap<&'static str, ReadResult<ServedNames>>,
    pub definitions: Vec<DefinitionFact>,
    pub policies: ReadResult<BTreeMap<&'static str, PolicyState>>,
    /// Specs of the policy and of the binding of each component that changes pods, by the name of both.
    pub components: BTreeMap<&'static str, ComponentSpecs>,
    pub operator: OperatorFacts,
    pub rights: RightsFacts,
    pub extender: ExtenderFacts,
    pub api_services: ReadResult<Vec<ApiServiceFact>>,
    pub prometheus: PrometheusFacts,
}

/// Facts about the running operator.
#[derive(Clone, Debug)]
pub struct OperatorFacts {
    /// Namespace of the operator.
    pub namespace: String,
    /// Other namespaces with a Deployment of the operator.
    pub elsewhere: Vec<String>,
    pub home: ReadResult<Option<Namespace>>,
    /// Where the namespace is missing: what the user may not do, and an installation needs.
    pub not_permitted: ReadResult<Vec<String>>,
    pub deployment: ReadResult<Option<Deployment>>,
    /// Pods of the operator.
    pub pods: ReadResult<Vec<Pod>>,
    pub settings: SettingsFacts,
    pub lease: ReadResult<Option<LeaseFact>>,
    pub budgets: ReadResult<Vec<PodDisruptionBudget>>,
}

/// The operator's settings, or the defaults if they are unknown.
#[derive(Clone, Debug)]
pub struct SettingsFacts {
    pub settings: Settings,
    /// Where they come from, such as `ConfigMap ganglion-settings`; None if nothing names them.
    pub source: Option<String>,
    /// Why they are unknown.
    pub problem: Option<SettingsProblem>,
}

/// Why the settings are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsProblem {
    NotRead(NotRead),
    /// There is no such ConfigMap, or it has no such key.
    Missing,
    /// They are not valid for this version of the program.
    Invalid(String),
}

/// The operator's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseFact {
    pub name: String,
    pub holder: Option<String>,
    /// When it was renewed, by the clock of the holder.
    pub renewed: Option<Timestamp>,
    /// Time without a renewal after which another replica takes over.
    pub seconds: i64,
    /// Namespaces that the operator watches, separated by commas; None: all.
    pub namespaces: Option<String>,
    /// Whether it was renewed while the check looked at it. It looks longer only if the age of the last renewal is
    /// beyond `seconds`, so that the difference of two clocks is no failure.
    pub was_renewed: bool,
}

/// Permissions of the operator's account.
#[derive(Clone, Debug)]
pub struct RightsFacts {
    /// Name of the service account in the operator's namespace.
    pub account: String,
    pub exists: ReadResult<bool>,
    /// Namespaces in which the operator works; empty: all.
    pub watched: Vec<String>,
    /// Required permissions, and whether the account has them.
    pub answers: ReadResult<Vec<(RequiredRight, bool)>>,
    /// Whether the API server's authorizer answered. Otherwise, the roles and bindings were read.
    pub by_authorizer: bool,
}

/// A permission that the operator's account needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequiredRight {
    /// None: in all namespaces, or not in a namespace.
    pub namespace: Option<String>,
    pub object: RightObject,
    pub verb: String,
}

/// Object of a permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RightObject {
    Resource {
        group: String,
        /// With the subresource after a slash.
        resource: String,
        /// None: any object.
        name: Option<String>,
    },
    Path(String),
}

/// Facts about the scheduler extender.
#[derive(Clone, Debug)]
pub struct ExtenderFacts {
    pub services: ReadResult<Vec<Service>>,
    pub slices: ReadResult<Vec<EndpointSlice>>,
    /// The Secret with its certificate.
    pub secret: ReadResult<Option<Secret>>,
}

/// An API that another server behind the API server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServiceFact {
    pub group: String,
    pub version: String,
    /// Why it is not available; None if it is.
    pub problem: Option<String>,
}

/// Facts about Prometheus.
#[derive(Clone, Debug)]
pub struct PrometheusFacts {
    /// URL of the option `--prometheus`, and why it gave no value.
    pub queried: Option<(String, Result<(), String>)>,
    /// URLs that loops name, each with the number of metrics.
    pub named: ReadResult<BTreeMap<String, usize>>,
}
