//! The audit log of the API server: who requested what, and when.
//!
//! The policy records the operator's requests, and optionally those of the components that it waits for.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use crate::plane::install::{ACCOUNT, NAMESPACE};
use crate::root;

/// Audit rule for whoever creates or deletes actions, which explains an action that a story misses.
const ACTIONS: &str = r#"
- level: Metadata
  verbs: [create, delete, deletecollection]
  resources: [{group: ganglion.dev, resources: [workloadactions]}]
"#;

/// Audit rules for the components that a move waits for: user, resources.
const OTHERS: &str = r#"
- level: Metadata
  users: ["system:kube-scheduler"]
  resources: [{group: "", resources: [pods/binding]}]
- level: Metadata
  users: [kwok, "system:serviceaccount:kube-system:replicaset-controller"]
  resources: [{group: "", resources: [pods, pods/status]}]
- level: Metadata
  users: ["system:serviceaccount:kube-system:disruption-controller"]
  resources: [{group: policy, resources: [poddisruptionbudgets, poddisruptionbudgets/status]}]
"#;

/// Name of the log in its directory.
const LOG: &str = "audit.log";

/// Maximum delay of the log.
const DELAY: Duration = Duration::from_secs(2);

/// One answered request.
#[derive(Clone, Debug)]
pub struct Request {
    pub user: String,
    pub by_operator: bool,
    /// Whether it impersonates another user.
    pub impersonates: bool,
    /// Whether the authorizer rejected it.
    pub forbidden: bool,
    /// Whether the response was an error, such as a conflict, so that nothing was written.
    pub failed: bool,
    /// Whether it was a dry run.
    pub is_dry: bool,
    pub verb: String,
    pub group: String,
    /// For example `pods/eviction`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub received: Timestamp,
    pub answered: Timestamp,
}

impl Request {
    /// Whether the request serves no particular action: lease, review of the operator's own permissions, the API
    /// server's own endpoints, or a watch or list of the caches.
    pub fn is_upkeep(&self) -> bool {
        ["leases", "selfsubjectreviews", "endpointslices"].contains(&self.resource.as_str())
            || self.verb == "watch"
            || self.verb == "list"
    }

    /// Whether it writes a record that no controller reacts to.
    pub fn is_record(&self) -> bool {
        self.resource == "events" || self.resource.ends_with("/status")
    }

    /// Whether it changed something. Reviews are created but not stored.
    pub fn writes(&self) -> bool {
        let reads = matches!(self.verb.as_str(), "get" | "list" | "watch");
        !reads && !self.failed && !self.is_dry && !self.resource.ends_with("reviews")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditLine {
    verb: String,
    user: User,
    #[serde(default, rename = "requestURI")]
    uri: String,
    impersonated_user: Option<User>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    object_ref: Option<Object>,
    response_status: Option<ResponseStatus>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    #[serde(default)]
    api_group: String,
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

pub struct Audit {
    log: PathBuf,
    options: Vec<String>,
}

impl Audit {
    /// Prepares the audit log of a plane before it is started.
    pub fn prepare(home: &Path, others: bool) -> Result<Self> {
        Self::with_rules(home, if others { OTHERS } else { ACTIONS })
    }

    /// The same, with the requests of this user beside those of the operator.
    pub fn beside(home: &Path, user: &str) -> Result<Self> {
        Self::with_rules(home, &format!("\n- level: Metadata\n  users: [\"{user}\"]\n"))
    }

    fn with_rules(home: &Path, others: &str) -> Result<Self> {
        let (policy, log) = (home.join("audit-policy.yaml"), home.join(LOG));
        let operator = format!("- level: Metadata\n  users: [\"system:serviceaccount:{NAMESPACE}:{ACCOUNT}\"]\n");
        let head =
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted, Panic]\nrules:";
        fs::write(&policy, format!("{head}\n{operator}{others}- level: None\n"))?;
        let flag = |name: &str, value: &str| ["--arg".to_owned(), format!("apiserver=--{name}={value}")];
        let options = [
            flag("audit-policy-file", &policy.display().to_string()),
            flag("audit-log-path", &log.display().to_string()),
            flag("audit-log-maxsize", "4000"),
            // Batch mode writes the log outside of the requests, so that logging does not affect their measured times.
            flag("audit-log-mode", "batch"),
        ];
        Ok(Self { log, options: options.concat() })
    }

    /// Options for `hack/controlplane up`.
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// Requests received in this period.
    pub async fn between(&self, from: Timestamp, to: Timestamp) -> Result<Vec<Request>> {
        tokio::time::sleep(DELAY).await;
        let mut requests = read(&self.log)?;
        requests.retain(|request| from <= request.received && request.received <= to);
        requests.sort_by_key(|request| request.received);
        Ok(requests)
    }
}

/// Directory in which the planes of the tests leave their audit logs, one directory each.
pub fn kept() -> PathBuf {
    root().join("target/audit")
}

/// Requests in all audit logs of test planes, since that directory was last cleared.
pub fn read_kept() -> Result<Vec<Request>> {
    let planes = fs::read_dir(kept()).with_context(|| format!("no records in {}", kept().display()))?;
    let mut requests = Vec::new();
    for plane in planes {
        let log = plane?.path().join(LOG);
        // The server creates the log with the first recorded request.
        if log.exists() {
            requests.extend(read(&log)?);
        }
    }
    Ok(requests)
}

fn read(log: &Path) -> Result<Vec<Request>> {
    let operator = format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    let file = fs::File::open(log).with_context(|| format!("no audit log at {}", log.display()))?;
    let mut requests = Vec::new();
    for line in BufReader::new(file).lines() {
        // The last line may be incomplete.
        let Ok(line) = serde_json::from_str::<AuditLine>(&line?) else { continue };
        let Some(object) = line.object_ref else { continue };
        let slash = if object.subresource.is_empty() { "" } else { "/" };
        requests.push(Request {
            by_operator: line.user.username == operator,
            is_dry: line.uri.contains("dryRun="),
            user: line.user.username,
            impersonates: line.impersonated_user.is_some(),
            forbidden: line.annotations.get("authorization.k8s.io/decision").is_some_and(|said| said == "forbid"),
            failed: line.response_status.is_some_and(|answer| answer.code >= 400),
            verb: line.verb,
            group: object.api_group,
            resource: format!("{}{slash}{}", object.resource, object.subresource),
            namespace: object.namespace,
            name: object.name,
            received: line.request_received_timestamp,
            answered: line.stage_timestamp,
        });
    }
    Ok(requests)
}

/// Number of requests of each kind, such as `patch pods`, in descending order.
pub fn tally<'a>(requests: impl Iterator<Item = &'a Request>) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests {
        *counts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
    counts
}
