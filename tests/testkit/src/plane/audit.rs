//! The API server's own record of who asked what and when.
//!
//! The policy records the operator's requests, and on demand those of the components that it waits for.

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

/// The components that a move waits for, as the API server knows them: user, resources.
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

/// Name of the record in its directory.
const LOG: &str = "audit.log";

/// How far the record may be behind.
const DELAY: Duration = Duration::from_secs(2);

/// One request that was answered.
#[derive(Clone, Debug)]
pub struct Request {
    pub by_operator: bool,
    /// In the name of another user.
    pub impersonates: bool,
    /// Refused by the authorizer.
    pub forbidden: bool,
    /// Answered with an error, such as a conflict: nothing was written.
    pub failed: bool,
    pub verb: String,
    pub group: String,
    /// Such as `pods/eviction`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub received: Timestamp,
    pub answered: Timestamp,
}

impl Request {
    /// The lease, a question about the own rights, the API server's own addresses, or a watch or list of the caches: not for any
    /// action.
    pub fn is_upkeep(&self) -> bool {
        ["leases", "selfsubjectreviews", "endpointslices"].contains(&self.resource.as_str())
            || self.verb == "watch"
            || self.verb == "list"
    }

    /// A report that no controller reacts to.
    pub fn is_record(&self) -> bool {
        self.resource == "events" || self.resource.ends_with("/status")
    }

    /// Whether it changed something: a review is created, and stored nowhere.
    pub fn writes(&self) -> bool {
        let reads = matches!(self.verb.as_str(), "get" | "list" | "watch");
        !reads && !self.failed && !self.resource.ends_with("reviews")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    object_ref: Option<Object>,
    response_status: Option<Answer>,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct Answer {
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

/// See the module.
pub struct Audit {
    log: PathBuf,
    options: Vec<String>,
}

impl Audit {
    /// Prepares the record of a plane that is still to be started.
    pub fn prepare(home: &Path, others: bool) -> Result<Self> {
        let (policy, log) = (home.join("audit-policy.yaml"), home.join(LOG));
        let operator = format!("- level: Metadata\n  users: [\"system:serviceaccount:{NAMESPACE}:{ACCOUNT}\"]\n");
        let others = if others { OTHERS } else { "" };
        let head =
            "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted, Panic]\nrules:";
        fs::write(&policy, format!("{head}\n{operator}{others}- level: None\n"))?;
        let flag = |name: &str, value: &str| ["--arg".to_owned(), format!("apiserver=--{name}={value}")];
        let options = [
            flag("audit-policy-file", &policy.display().to_string()),
            flag("audit-log-path", &log.display().to_string()),
            flag("audit-log-maxsize", "4000"),
            // Written beside the requests, not within them: the record is not to be part of what it tells of.
            flag("audit-log-mode", "batch"),
        ];
        Ok(Self { log, options: options.concat() })
    }

    /// Options of `hack/controlplane up`.
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// Everything recorded that was received in this time.
    pub async fn between(&self, from: Timestamp, to: Timestamp) -> Result<Vec<Request>> {
        tokio::time::sleep(DELAY).await;
        let mut requests = read(&self.log)?;
        requests.retain(|request| from <= request.received && request.received <= to);
        requests.sort_by_key(|request| request.received);
        Ok(requests)
    }
}

/// Where the planes of tests leave their records, a directory each.
pub fn kept() -> PathBuf {
    root().join("target/audit")
}

/// Everything recorded by the planes of tests, since somebody last cleared the directory.
pub fn read_kept() -> Result<Vec<Request>> {
    let planes = fs::read_dir(kept()).with_context(|| format!("no records in {}", kept().display()))?;
    let mut requests = Vec::new();
    for plane in planes {
        let log = plane?.path().join(LOG);
        // The server makes it with the first request that is recorded.
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
        // The last line may be half written.
        let Ok(line) = serde_json::from_str::<Line>(&line?) else { continue };
        let Some(object) = line.object_ref else { continue };
        let slash = if object.subresource.is_empty() { "" } else { "/" };
        requests.push(Request {
            by_operator: line.user.username == operator,
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

/// How often each kind of request is there, such as `patch pods`, most frequent first.
pub fn tally<'a>(requests: impl Iterator<Item = &'a Request>) -> Vec<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests {
        *counts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), name.clone()));
    counts
}
