//! Reads the facts, concurrently. Only the first request can end the check: where others are refused or fail, the fact
//! is unknown.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::facts::{
    ApiServiceFact, ComponentSpecs, DefinitionFact, InstallationFacts, PrometheusFacts, ReadResult, ServedNames,
};
use super::read_operator::operator;
use super::request::{document, list, timed};
use super::{Error, InstallationOptions, kubernetes, metrics};
use crate::operator::ProgressLine;
use crate::operator::admission;
use crate::operator::outbound;
use crate::operator::read::pages;
use crate::operator::settings::Settings;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::foreign::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use ganglion_api::marks;
use ganglion_core::facts::{PolicyBindingFact, PolicyFact};
use ganglion_core::policies::PolicyState;
use ganglion_core::world::{Origin, World};
use ganglion_outbound::address::{self, Names, Rules};
use ganglion_outbound::private::AddressOrigin;
use ganglion_outbound::prometheus;
use ganglion_outbound::web::Call;
use ganglion_runtime::metrics::Metrics;

/// Maximum time for the version of the server, and for the query to Prometheus.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of the answer of Prometheus, in bytes.
const MOST_BYTES: usize = 64 << 10;

/// Maximum number of URLs of loops that are counted.
const MOST_URLS: usize = 100;

/// Number of parts that are read concurrently.
const PARTS: usize = 7;

/// Reads everything.
pub async fn read(
    client: &Client,
    url: &str,
    options: &InstallationOptions,
    say: ProgressLine<'_>,
) -> Result<InstallationFacts, Error> {
    say(&format!("waits for the API server at {url}"));
    let version = version(client, url).await?;
    let parts = ReadParts { say, done: AtomicUsize::new(0) };
    parts.say();
    let (operator, served, definitions, policies, components, api_services, prometheus) = tokio::join!(
        parts.counted(operator(client, options)),
        parts.counted(served(client)),
        parts.counted(definitions(client)),
        parts.counted(policies(client)),
        parts.counted(components(client)),
        parts.counted(api_services(client)),
        parts.counted(prometheus(client, options.prometheus.as_deref())),
    );
    let (operator, rights, extender) = operator;
    let now = Timestamp::now();
    Ok(InstallationFacts {
        now,
        version,
        served,
        definitions,
        policies,
        components,
        operator,
        rights,
        extender,
        api_services,
        prometheus,
    })
}

/// Reports how many of the parts of an installation were read.
struct ReadParts<'a> {
    say: ProgressLine<'a>,
    done: AtomicUsize,
}

impl ReadParts<'_> {
    fn say(&self) {
        (self.say)(&format!("reads the installation: {} of {PARTS} parts", self.done.load(Ordering::Relaxed)));
    }

    async fn counted<T>(&self, part: impl Future<Output = T>) -> T {
        let found = part.await;
        self.done.fetch_add(1, Ordering::Relaxed);
        self.say();
        found
    }
}

/// Reads the version of the server, which each user may do. Fails if no request can succeed.
async fn version(client: &Client, url: &str) -> Result<ReadResult<String>, Error> {
    let url = url.to_owned();
    match tokio::time::timeout(FIRST_TIMEOUT, client.apiserver_version()).await {
        Err(_) => Err(Error::Timeout { url, seconds: FIRST_TIMEOUT.as_secs() }),
        Ok(Ok(version)) => Ok(Ok(version.git_version)),
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => {
            Err(Error::Unauthorized { url, message: status.message.clone() })
        }
        Ok(Err(error @ (kube::Error::Api(_) | kube::Error::SerdeError(_)))) => Ok(Err(error.into())),
        Ok(Err(error)) => Err(Error::Unreachable { url, error: Box::new(error) }),
    }
}

async fn served(client: &Client) -> BTreeMap<&'static str, ReadResult<ServedNames>> {
    let versions = kubernetes::DISCOVERED.iter().chain(metrics::APIS.iter().flat_map(|checked| checked.api.versions));
    let reads = versions.map(async |version| {
        let path = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let list: ReadResult<Option<APIResourceList>> = document(client, &path).await;
        let names = list.map(|list| list.map(|list| list.resources.into_iter().map(|one| one.name).collect()));
        (*version, names)
    });
    join_all(reads).await.into_iter().collect()
}

async fn definitions(client: &Client) -> Vec<DefinitionFact> {
    let reads = ganglion_api::all().into_iter().map(async |own| {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", own.name_any());
        let stored = document(client, &path).await;
        (own, stored)
    });
    join_all(reads).await
}

async fn policies(client: &Client) -> ReadResult<BTreeMap<&'static str, PolicyState>> {
    let mut world = World::default();
    world.guard(admission::guards());
    let (policies, bindings): (Api<ValidatingAdmissionPolicy>, Api<ValidatingAdmissionPolicyBinding>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    let (policies, bindings) = tokio::try_join!(list(&policies), list(&bindings))?;
    for policy in policies {
        world.apply(PolicyFact::from(policy), Origin::Watch);
    }
    for binding in bindings {
        world.apply(PolicyBindingFact::from(binding), Origin::Watch);
    }
    Ok(world.policy_states())
}

/// Specs of the policy and of the binding of each component that changes pods.
async fn components(client: &Client) -> BTreeMap<&'static str, ComponentSpecs> {
    let read = [marks::PIN_POLICY, marks::LABEL_POLICY].map(async |name| (name, component(client, name).await));
    join_all(read).await.into_iter().collect()
}

async fn component(client: &Client, name: &str) -> ComponentSpecs {
    let spec = async |plural: &str| {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}");
        let found: ReadResult<Option<Value>> = document(client, &path).await;
        found.map(|found| found.map(|mut object| object["spec"].take()))
    };
    let (policy, binding) = tokio::join!(spec("mutatingadmissionpolicies"), spec("mutatingadmissionpolicybindings"));
    [policy, binding]
}

async fn api_services(client: &Client) -> ReadResult<Vec<ApiServiceFact>> {
    let services: Vec<APIService> = list(&Api::all(client.clone())).await?;
    let fact = |service: APIService| {
        let spec = service.spec?;
        let conditions = service.status.and_then(|status| status.conditions).unwrap_or_default();
        let available = conditions.into_iter().find(|condition| condition.type_ == "Available");
        let problem = match available {
            Some(condition) if condition.status == "True" => None,
            Some(condition) => Some(condition.message.or(condition.reason).unwrap_or(condition.status)),
            None => Some("it was just created".to_owned()),
        };
        Some(ApiServiceFact { group: spec.group?, version: spec.version?, problem })
    };
    Ok(services.into_iter().filter_map(fact).collect())
}

async fn prometheus(client: &Client, url: Option<&str>) -> PrometheusFacts {
    let query = async {
        match url {
            Some(url) => Some((url.to_owned(), query(url).await.map_err(|error| error.to_string()))),
            None => None,
        }
    };
    let (queried, named) = tokio::join!(query, urls_of_loops(client));
    PrometheusFacts { queried, named }
}

/// Sends a query that each Prometheus answers. The user names the server of the own network: every address is allowed.
async fn query(url: &str) -> Result<(), ganglion_outbound::Error> {
    let networks = ["0.0.0.0/0", "::/0"].into_iter().filter_map(|network| network.parse().ok());
    let rules = Rules { allowed_networks: networks.collect(), show_causes: true, ..Rules::default() };
    let web = outbound::web(Names::new(rules, address::system), &Settings::default(), &Metrics::new());
    let call = Call {
        url: prometheus::query_url(url, "vector(1)")?.to_string(),
        auth: None,
        headers: Vec::new(),
        ca: None,
        insecure: false,
        redirects: true,
        within: FIRST_TIMEOUT,
        limit: MOST_BYTES,
        tenant: String::new(),
        origin: AddressOrigin::User,
    };
    let answer = web.get(&call).await?;
    prometheus::point(answer.status, answer.body()).map(drop)
}

async fn urls_of_loops(client: &Client) -> ReadResult<BTreeMap<String, usize>> {
    let mut urls = BTreeMap::new();
    let api: Api<ClosedLoop> = Api::all(client.clone());
    let add = |found: ClosedLoop| {
        for source in found.spec.metrics.into_iter().filter_map(|metric| metric.source.prometheus) {
            if urls.len() < MOST_URLS || urls.contains_key(&source.url) {
                *urls.entry(source.url).or_default() += 1;
            }
        }
    };
    let read = async {
        match pages(&api, add).await {
            // The definition is missing, which another point says.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            read => read,
        }
    };
    timed(read).await.map(|()| urls)
}
