//! `ganglion remove`: removes everything of the operator from the cluster but what the installation deletes.
//!
//! With a running operator, deletes the objects of users and waits until the operator has completed or undone the work
//! in flight. Without one, the operator's own controllers do that in this process (`controllers`), so that there is one
//! implementation of rollback and cleanup. Then sweeps the marks that are left. A removal stores no state: it can be
//! interrupted at any time and run again.

mod actor;
mod cluster;
mod controllers;
mod error;
mod kinds;
mod report;
mod sweep;
mod work;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, Config};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::drain::LEASE;
use super::read;
use crate::operator;
use crate::operator::ProgressLine;
use crate::operator::settings::Settings;
use actor::{LeaseKeeper, running_operator};
use cluster::{FoundMarks, RemovalClient, display};
use controllers::CompletingControllers;
pub use error::Error;
use ganglion_actions_plan::drain::UserRight;
use ganglion_actions_plan::gitops_manager;
use ganglion_api::marks;
use ganglion_api::workload_action::WorkloadAction;
use ganglion_core::facts::Identity;
use ganglion_core::world::Fact;
use ganglion_runtime::lease::KubeLeases;
use kinds::NamedKind;
pub use report::{
    CleanedObject, RemovalActor, RemovalReport, RemovalSurvey, interruption_text, report_text, survey_text,
};
pub use sweep::SweptKind;
use work::{NAMED, RemovalWork};

/// Maximum time for the cleanup of marks after the last action is gone: a round of the janitor and twice its grace.
const CLEANUP: Duration = Duration::from_secs(90);

/// The same if the controllers run here, whose janitor has rounds of a second.
const CLEANUP_HERE: Duration = Duration::from_secs(30);

/// Maximum number of sweeps: a write of the operator may arrive after the first.
const MOST_SWEEPS: usize = 3;

/// Options of a removal.
#[derive(Clone, Debug)]
pub struct RemovalOptions {
    /// Namespace of the operator.
    pub namespace: String,
    /// Namespaces whose objects go. Empty: those in the operator's lease; without any there, the whole cluster.
    pub namespaces: Vec<String>,
    /// Maximum time to wait; None: no limit.
    pub timeout: Option<Duration>,
    /// Identity of this process in the lease.
    pub identity: String,
    /// Removes objects that GitOps tools create again, too.
    pub force: bool,
}

/// A removal, with what it found.
pub struct Removal {
    config: Config,
    cluster: RemovalClient,
    settings: Settings,
    options: RemovalOptions,
    pub survey: RemovalSurvey,
}

impl Removal {
    /// Reads everything that would be removed. Changes nothing. `config` is without a read timeout, for watches.
    pub async fn new(config: Config, options: RemovalOptions, say: ProgressLine<'_>) -> Result<Self, Error> {
        say("reads the operator's leases");
        let settings = Settings::default();
        let mut for_requests = config.clone();
        for_requests.read_timeout = Some(settings.request_timeout());
        let client = operator::client(for_requests)?;
        let found = leases(&client).await?;
        let own = found.iter().find(|lease| lease.metadata.namespace.as_deref() == Some(&options.namespace));
        let scope = scope(&options.namespaces, own);
        if scope.is_none()
            && let Some(other) = found.iter().find(|lease| is_other(lease, &options.namespace))
        {
            return Err(Error::OtherOperator(other.metadata.namespace.clone().unwrap_or_default()));
        }
        check_rights(&client, kinds::rights(scope.as_deref(), &options.namespace, false)).await?;
        let leases = KubeLeases::new(client.clone(), &options.namespace, LEASE, settings.request_timeout());
        let failed = |source| Error::Leases { namespace: options.namespace.clone(), source };
        let running = running_operator(&leases, operator::timings(&settings), say).await.map_err(failed)?;
        if running.is_none() {
            check_rights(&client, kinds::rights(scope.as_deref(), &options.namespace, true)).await?;
        }
        let actor = running.map_or(RemovalActor::ThisProcess, RemovalActor::Operator);
        let mut survey = RemovalSurvey {
            actor,
            namespaces: scope.clone(),
            objects: BTreeMap::new(),
            managed: Vec::new(),
            marked: Vec::new(),
            gated: Vec::new(),
        };
        let cluster = RemovalClient { client, scope };
        say("reads the objects and marks to be removed");
        complete(&mut survey, &cluster, &options.namespace).await?;
        Ok(Self { config, cluster, settings, options, survey })
    }

    /// Why nothing must be changed, if there is a reason.
    pub fn obstacle(&self) -> Result<(), Error> {
        let named = |all: &[String]| all.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
        if !self.survey.managed.is_empty() && !self.options.force {
            return Err(Error::Managed(named(&self.survey.managed)));
        }
        Ok(())
    }

    /// Removes everything. `stop` interrupts it at the next safe point.
    pub async fn run(&self, stop: &CancellationToken, say: ProgressLine<'_>) -> Result<RemovalReport, Error> {
        self.obstacle()?;
        let until = self.options.timeout.map(|limit| Instant::now() + limit);
        let work = RemovalWork { cluster: &self.cluster, until, stop, say };
        let deleted = match &self.survey.actor {
            RemovalActor::Operator(identity) => {
                self.check_policies().await?;
                say(&format!("operator {identity} completes its work"));
                work.end_all(CLEANUP).await?
            }
            RemovalActor::ThisProcess => self.run_here(&work).await?,
        };
        self.sweep(&work, deleted).await
    }

    /// The running operator must not be waited for if it does not act.
    async fn check_policies(&self) -> Result<(), Error> {
        match read::policy_problem(&self.cluster.client, WorkloadAction::KIND).await {
            Ok(Some(problem)) => {
                Err(Error::Idle { problem: problem.to_string(), namespace: self.options.namespace.clone() })
            }
            // A user who may not read policies learns from the actions whether the operator acts.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Completes the work in flight in this process, while it holds the operator's lease.
    async fn run_here(&self, work: &RemovalWork<'_>) -> Result<BTreeMap<String, usize>, Error> {
        let RemovalOptions { namespace, identity, .. } = &self.options;
        let (client, scope) = (self.cluster.client.clone(), self.cluster.scope.clone().unwrap_or_default());
        let timings = operator::timings(&self.settings);
        let elector = operator::elector(&client, &self.settings, identity, &scope, namespace);
        (work.say)("no operator runs: this process completes its work, once it holds the operator's lease");
        let mut lease = tokio::select! {
            () = work.stop.cancelled() => return Err(Error::Interrupted(Vec::new())),
            lease = LeaseKeeper::acquire(client, namespace, elector, timings) => lease?,
        };
        let here = async {
            // Before the controllers start, so that no action goes on that could be undone.
            let mut deleted = BTreeMap::new();
            work.delete_once(&mut deleted).await?;
            let (settings, namespace, identity) = (self.settings.clone(), namespace.clone(), identity.clone());
            let controllers = CompletingControllers::new(self.config.clone(), settings, scope, namespace, identity)?;
            let ended = controllers.run_during(work.end_all(CLEANUP_HERE)).await?;
            add(&mut deleted, ended);
            Ok(deleted)
        };
        let result = tokio::select! {
            biased;
            lost = lease.lost() => return Err(Error::Lease(lost)),
            result = here => result,
        };
        lease.release().await;
        result
    }

    /// Removes receipts, marks and ConfigMaps, once no action is left.
    async fn sweep(
        &self,
        work: &RemovalWork<'_>,
        mut deleted: BTreeMap<String, usize>,
    ) -> Result<RemovalReport, Error> {
        let receipts = kinds::receipts();
        let (mut cleaned, mut gated, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..MOST_SWEEPS {
            add(&mut deleted, work.delete_kind(&receipts).await?);
            let FoundMarks { marked, gated: found } = self.cluster.marks().await?;
            gated = found;
            if marked.is_empty() {
                break;
            }
            for object in marked {
                work.check(&["marks to be removed".to_owned()])?;
                let unknown = object.step.unknown;
                let Some(object) = self.cluster.clean(object).await? else { continue };
                left.extend(unknown.map(|what| format!("{}, {what}", object.object)));
                cleaned.push(object);
            }
        }
        let maps = self.cluster.own_maps(&self.options.namespace).await?;
        self.cluster.delete(&NamedKind::of::<ConfigMap>(), &maps).await?;
        deleted.insert("ConfigMap".to_owned(), maps.len());
        let namespace = &self.options.namespace;
        match &self.survey.actor {
            RemovalActor::ThisProcess => {
                let tls = &self.settings.placement.tls_secret;
                add(&mut deleted, self.cluster.delete_own(namespace, tls, LEASE).await?);
            }
            RemovalActor::Operator(_) => left.push(format!(
                "Lease and Secrets in namespace {namespace}: the running operator uses them; they go with the namespace"
            )),
        }
        Ok(RemovalReport { deleted, cleaned, gated, left })
    }
}

/// Namespaces of a removal: those that the user names, or else those that the operator's lease names; None: all.
fn scope(named: &[String], lease: Option<&Lease>) -> Option<Vec<String>> {
    if !named.is_empty() {
        return Some(named.to_vec());
    }
    let annotation = lease?.metadata.annotations.as_ref()?.get(marks::NAMESPACES)?;
    Some(annotation.split(',').map(str::to_owned).collect())
}

/// Fails if the user lacks one of these rights.
async fn check_rights(client: &Client, rights: Vec<UserRight>) -> Result<(), Error> {
    let missing = read::missing_rights(client, rights).await;
    let missing = missing.map_err(|error| Error::of("SelfSubjectAccessReviews", error))?;
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Error::MissingRights(missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))),
    }
}

/// Whether a lease is that of a running operator in another namespace.
fn is_other(lease: &Lease, namespace: &str) -> bool {
    lease.metadata.namespace.as_deref() != Some(namespace)
        && actor::holder(lease).is_some()
        && !actor::is_long_expired(lease, Timestamp::now())
}

/// The leases of operators in all namespaces, as far as the user may list them.
async fn leases(client: &Client) -> Result<Vec<Lease>, Error> {
    let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    match Api::<Lease>::all(client.clone()).list(&named).await {
        Ok(found) => Ok(found.items),
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(Vec::new()),
        Err(error) => Err(Error::of("Leases", error)),
    }
}

/// Adds the objects of users, and the marks.
async fn complete(survey: &mut RemovalSurvey, cluster: &RemovalClient, namespace: &str) -> Result<(), Error> {
    for kind in kinds::of_users().into_iter().chain([kinds::receipts()]) {
        let objects = cluster.objects(&kind).await?;
        survey.objects.insert(kind.resource.kind.clone(), objects.len());
        for object in &objects {
            if let Some(tool) = gitops_manager(&object.metadata) {
                let name = display(&kind, &Identity::from(&object.metadata).key);
                survey.managed.push(format!("{name} belongs to {tool}"));
            }
        }
    }
    survey.objects.insert("ConfigMap".to_owned(), cluster.own_maps(namespace).await?.len());
    let FoundMarks { marked, gated } = cluster.marks().await?;
    survey.marked = marked.iter().map(cluster::MarkedObject::cleaned).collect();
    survey.gated = gated;
    Ok(())
}

fn add(sum: &mut BTreeMap<String, usize>, more: BTreeMap<String, usize>) {
    for (kind, count) in more {
        *sum.entry(kind).or_default() += count;
    }
}

#[cfg(test)]
mod tests;
