//! `ganglion plan`: shows what actions would do before they are applied. Uses the operator's planner with the user's
//! permissions. Changes nothing.

mod cluster;

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde_json::Value;
use thiserror::Error;

use crate::operator::ProgressLine;
use crate::operator::ranker::PolicyRanker;
use crate::operator::settings::Settings;
use cluster::ClusterReader;
use ganglion_actions_plan::preview::{ActionPreview, PreviewOutcome, first_new_pod, preview, reserve};
use ganglion_actions_plan::{Limits, verb};
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::{Identity, Key, NodeFact, NodeName};
use ganglion_core::words::without_types;
use ganglion_core::world::{Origin, World};
use ganglion_placement::cache::PlacementCache;
use ganglion_runtime::error::failure;
use ganglion_runtime::store::Store;

/// Field manager of the dry run. It begins like kubectl's field manager, which determines how often the action may run:
/// a person who plans an action will also apply it.
const MANAGER: &str = "kubectl-ganglion";

/// Part of the RBAC refusal for users who cannot create WorkloadActions. Users who can, but lack a permission that the
/// action needs, get another message.
const CANNOT_CREATE: &str = "cannot create resource \"workloadactions\"";

/// Error: there is no plan.
#[derive(Debug, Error)]
pub enum Error {
    #[error(
        "the plan depends on what you may not read ({0}); apply the action with mode: Plan instead: status.plan then has the \
         plan, which the operator makes with its own rights"
    )]
    NotAllowed(String),
    #[error(
        "the cluster does not have the kind WorkloadAction: install the operator's CRDs with `kubectl apply --server-side -k crds`"
    )]
    NoKind,
    #[error("the document is not a valid WorkloadAction: {}", without_types(&.0.to_string()))]
    Parse(serde_json::Error),
    #[error("the owner of the workload's ReplicaSets cannot be read: {0}")]
    Owner(#[source] ganglion_runtime::error::Error),
    #[error("the API server failed: {}", failure(.0))]
    Api(Box<kube::Error>),
}

/// Assumptions of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanBasis<'a> {
    /// Nodes that would be cordoned before the actions start.
    pub cordoned: &'a [NodeName],
    /// true: the user will create all these actions at once. So each counts what the ones before it occupy, without the
    /// limits for replicas at once, and a missing permission to create them is a refusal.
    pub is_maker: bool,
}

/// A document and the API server's verdict.
struct CheckedDocument {
    key: Key,
    verb: &'static str,
    verdict: DryRunVerdict,
}

enum DryRunVerdict {
    /// The action as the API server would store it. The note explains if the API server was not asked.
    Accepted(Box<WorkloadAction>, Option<String>),
    /// The message of the API server.
    Refused(String),
}

/// Plans actions. Each document is a WorkloadAction manifest. It is planned as if it were the only action, unless
/// `basis` says otherwise. The preview says why an action would not start.
pub async fn plan(
    client: &Client,
    namespace: &str,
    settings: &Settings,
    actions: &[Value],
    basis: PlanBasis<'_>,
    say: ProgressLine<'_>,
) -> Result<Vec<ActionPreview>, Error> {
    let mut all = Vec::new();
    for (at, document) in actions.iter().enumerate() {
        say(&format!("asks the API server whether it accepts action {} of {}", at + 1, actions.len()));
        all.push(dry_run(client, namespace, document, basis.is_maker).await?);
    }
    let is_accepted = |asked: &&CheckedDocument| matches!(asked.verdict, DryRunVerdict::Accepted(..));
    let namespaces: BTreeSet<&str> = all.iter().filter(is_accepted).map(|asked| asked.key.namespace.as_str()).collect();
    let policies: BTreeSet<&str> = actions.iter().filter_map(policy_of).collect();
    let store = Store::new(crate::operator::world::world());
    let placement = PlacementCache::new(store.clone());
    let reader = ClusterReader { client, store: &store };
    say("reads nodes, pods, actions and other objects");
    let read =
        if namespaces.is_empty() { Ok(Vec::new()) } else { reader.read(&namespaces, !policies.is_empty()).await };
    let (notes, is_read) = match read {
        // The verdict about their creation is known nevertheless.
        Err(Error::NotAllowed(words)) if basis.is_maker => (vec![format!("Targets are not known: {words}.")], false),
        read => (read?, true),
    };
    if !policies.is_empty() {
        reader.restore(&placement, &policies).await;
    }
    store.write(|world| cordon(world, basis.cordoned));
    let accepted = all.iter().filter_map(|asked| match &asked.verdict {
        DryRunVerdict::Accepted(action, _) => Some(&**action),
        DryRunVerdict::Refused(_) => None,
    });
    say("reads owners and usage of workloads");
    reader.read_owners(settings, accepted.clone()).await?;
    reader.read_usage(accepted).await;
    let now = Timestamp::now();
    let limits = match settings.limits() {
        limits if basis.is_maker => Limits { namespaces: limits.namespaces, ..Limits::default() },
        limits => limits,
    };
    let ranker = PolicyRanker(placement);
    let mut previews = Vec::new();
    let count = all.len();
    for (at, CheckedDocument { key, verb, verdict }) in all.into_iter().enumerate() {
        say(&format!("plans action {} of {count}", at + 1));
        let (action, note) = match verdict {
            DryRunVerdict::Accepted(action, note) => (action, note),
            DryRunVerdict::Refused(words) => {
                previews.push(ActionPreview::refused(key, verb, words));
                continue;
            }
        };
        let ask = |world: &mut World| {
            let found = preview(world, &action, now, &limits, &ranker);
            if !basis.is_maker || found.outcome != PreviewOutcome::Starts {
                return (found, None);
            }
            reserve(world, &action, now, &limits, &ranker);
            (found, first_new_pod(world, &key))
        };
        let (mut found, pod) =
            if is_read { store.write(ask) } else { (ActionPreview::unplanned(key.clone(), verb), None) };
        found.notes = note.into_iter().chain(notes.iter().cloned()).collect();
        if let Some(pod) = pod {
            found = match dry_run_of_pod(client, &key.namespace, &pod).await? {
                PodVerdict::Accepted => found,
                PodVerdict::Unknown(note) => ActionPreview { notes: [found.notes, vec![note]].concat(), ..found },
                PodVerdict::Refused(words) => found.without_pod(&words),
            };
        }
        previews.push(found);
    }
    Ok(previews)
}

/// The API server's verdict about a new pod.
enum PodVerdict {
    Accepted,
    /// It could not be asked. The note says why.
    Unknown(String),
    /// Its message: a quota, or an admission webhook.
    Refused(String),
}

/// Asks the API server whether it would accept a pod: quotas and webhooks are known to it alone.
async fn dry_run_of_pod(client: &Client, namespace: &str, pod: &Value) -> Result<PodVerdict, Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let request = http::Request::post(format!("{}?dryRun=All&fieldManager={MANAGER}", pods.resource_url()));
    let request = request.header(http::header::CONTENT_TYPE, "application/json").body(pod.to_string().into_bytes());
    let answer: Result<PartialObjectMeta<Pod>, kube::Error> =
        client.request(request.map_err(|error| Error::Api(Box::new(kube::Error::HttpError(error))))?).await;
    let status = match answer {
        Ok(_) => return Ok(PodVerdict::Accepted),
        Err(kube::Error::Api(status)) => status,
        Err(error) => return Err(Error::Api(Box::new(error))),
    };
    let is_not_asked = ["cannot create resource \"pods\"", "does not support dry run"];
    Ok(match is_not_asked.iter().any(|words| status.message.contains(words)) {
        true => PodVerdict::Unknown(format!("Quotas and webhooks are not counted: {}.", status.message)),
        false => PodVerdict::Refused(status.message.clone()),
    })
}

/// Marks these nodes as cordoned in the world.
fn cordon(world: &mut World, names: &[NodeName]) {
    for name in names {
        if let Some(node) = world.node(name).cloned() {
            let version = (node.id.order() + 1).to_string();
            let id = Identity { version, ..node.id };
            drop(world.apply(NodeFact { id, cordoned: true, ..node }, Origin::Watch));
        }
    }
}

/// Name of the policy in an action.
fn policy_of(document: &Value) -> Option<&str> {
    let verbs = ["create", "move", "moveApplication"];
    verbs.iter().find_map(|verb| document.pointer(&format!("/spec/{verb}/to/policy"))?.as_str())
}

/// Asks the API server whether it would accept an action.
async fn dry_run(client: &Client, namespace: &str, document: &Value, is_maker: bool) -> Result<CheckedDocument, Error> {
    let text = |path: &str| document.pointer(path).and_then(Value::as_str);
    let namespace = text("/metadata/namespace").unwrap_or(namespace);
    let named = Key::new(namespace, text("/metadata/name").or(text("/metadata/generateName")).unwrap_or_default());
    let parsed = || parse(&named, document);
    let verdict = match create(client, namespace, document).await {
        Ok(stored) => DryRunVerdict::Accepted(Box::new(stored), None),
        Err(kube::Error::Api(status)) if !is_maker && status.code == 403 && status.message.contains(CANNOT_CREATE) => {
            let note = format!("The API server was not asked whether it accepts the action: {}.", status.message);
            DryRunVerdict::Accepted(Box::new(parsed().map_err(Error::Parse)?), Some(note))
        }
        Err(kube::Error::Api(status)) if status.code == 404 && !status.message.contains("namespaces") => {
            return Err(Error::NoKind);
        }
        Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 404 | 409 | 422) => {
            DryRunVerdict::Refused(status.message.clone())
        }
        Err(error) => return Err(Error::Api(Box::new(error))),
    };
    let (key, verb) = match &verdict {
        DryRunVerdict::Accepted(action, _) => (Identity::from(&action.metadata).key, verb(action)),
        DryRunVerdict::Refused(_) => (named.clone(), parsed().map_or("", |action| verb(&action))),
    };
    Ok(CheckedDocument { key, verb, verdict })
}

/// Creates the action in a dry run. Unknown fields are rejected, as with kubectl.
async fn create(client: &Client, namespace: &str, document: &Value) -> Result<WorkloadAction, kube::Error> {
    let actions: Api<WorkloadAction> = Api::namespaced(client.clone(), namespace);
    let params = format!("dryRun=All&fieldManager={MANAGER}&fieldValidation=Strict");
    let request = http::Request::post(format!("{}?{params}", actions.resource_url()));
    let request = request.header(http::header::CONTENT_TYPE, "application/json");
    let body = document.to_string().into_bytes();
    client.request(request.body(body).map_err(kube::Error::HttpError)?).await
}

/// Parses the document as an action.
fn parse(named: &Key, document: &Value) -> Result<WorkloadAction, serde_json::Error> {
    let mut action: WorkloadAction = serde_json::from_value(document.clone())?;
    action.metadata.namespace = Some(named.namespace.clone());
    action.metadata.name = Some(named.name.clone());
    Ok(action)
}
