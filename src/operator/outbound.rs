//! Limits and rules of requests to servers that users name, derived from the settings, and their periodic upkeep.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kube::{Client, Config};
use prometheus_client::metrics::counter::Counter;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Error;
use crate::operator::settings::{MaxBytes, Outbound, PrivateNetwork, RequestMethod, Settings};
use ganglion_outbound::address::{self, Names};
use ganglion_outbound::client::{AnswerLimits, OutboundClient};
use ganglion_outbound::private::PrivateRule;
use ganglion_outbound::web::Web;
use ganglion_runtime::api_server;
use ganglion_runtime::fairness::FairLimit;
use ganglion_runtime::metrics::{LimitLabel, Metrics};

/// Interval at which the API server's endpoints are refreshed and unused Secrets are dropped.
const ROUND: Duration = Duration::from_secs(60);

/// Addresses that requests to users' servers may connect to.
pub fn rules(config: &Config, settings: &Settings) -> Result<address::Rules, Error> {
    let outbound = &settings.outbound;
    let url = &config.cluster_url;
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
    let api_server = url.host().filter(|_| !outbound.allow_api_server).map(|host| (host.to_owned(), port));
    Ok(address::Rules {
        denied_networks: parsed("deniedNetworks", &outbound.denied_networks)?,
        denied_hosts: parsed("deniedHosts", &outbound.denied_hosts)?,
        allowed_networks: parsed("allowedNetworks", &outbound.allowed_networks)?,
        allowed_hosts: parsed("allowedHosts", &outbound.allowed_hosts)?,
        private: outbound.private_networks.iter().map(private_rule).collect::<Result<_, _>>()?,
        only_allowed: outbound.only_allowed,
        show_causes: false,
        api_server,
    })
}

fn private_rule(rule: &PrivateNetwork) -> Result<PrivateRule, Error> {
    let setting = "privateNetworks";
    let PrivateNetwork { namespaces, networks, hosts, ports, methods } = rule;
    let method = |method: &RequestMethod| match method {
        RequestMethod::Get => Method::GET,
        RequestMethod::Post => Method::POST,
    };
    let rule = PrivateRule {
        namespaces: namespaces.clone(),
        networks: parsed(setting, networks)?,
        hosts: parsed(setting, hosts)?,
        ports: ports.clone(),
        methods: methods.iter().map(method).collect(),
    };
    match rule.problem() {
        Some(problem) => Err(Error::Setting { setting, problem: problem.to_owned() }),
        None => Ok(rule),
    }
}

fn parsed<T: FromStr<Err: Display>>(setting: &'static str, texts: &[String]) -> Result<Vec<T>, Error> {
    let parse =
        |text: &String| text.parse().map_err(|error: T::Err| Error::Setting { setting, problem: error.to_string() });
    texts.iter().map(parse).collect()
}

/// The HTTP client, with a limit on bytes in flight.
pub fn web(names: Names, settings: &Settings, metrics: &Metrics) -> Web {
    Web::new(names, FairLimit::new(settings.outbound.max_bytes.in_flight, full(metrics, "bytes")))
}

/// The client of the controllers, with limits on the number of requests and the size of responses.
pub fn client(web: Arc<Web>, settings: &Settings, metrics: &Metrics) -> OutboundClient {
    let Outbound { timeout_seconds, concurrency, .. } = settings.outbound;
    let MaxBytes { sample, object, pods, node, nodes, in_flight: _ } = settings.outbound.max_bytes;
    let requests = FairLimit::new(concurrency, full(metrics, "requests"));
    OutboundClient::new(
        web,
        Duration::from_secs(timeout_seconds),
        requests,
        AnswerLimits { sample, object, pods, node, nodes },
    )
}

/// Counter of requests that waited or failed because of this limit.
fn full(metrics: &Metrics, limit: &'static str) -> Counter {
    metrics.outbound_full.get_or_create(&LimitLabel { limit }).clone()
}

/// Once a minute until the end: refreshes the API server's endpoints, which requests to users' servers must not reach,
/// and drops Secrets and closes sessions that no such request has used for a while.
pub async fn keep_up(
    client: Client,
    names: Names,
    outbound: Arc<OutboundClient>,
    timeout: Duration,
    ended: CancellationToken,
) {
    let rounds = async {
        loop {
            outbound.drop_unused_secrets();
            outbound.close_unused_sessions().await;
            let pause = guard_api_server(&client, &names, timeout).await;
            tokio::time::sleep(pause).await;
        }
    };
    tokio::select! {
        () = ended.cancelled() => {}
        () = rounds => {}
    }
    outbound.close_sessions().await;
}

/// Refreshes the API server's endpoints. Returns the time until the next refresh.
async fn guard_api_server(client: &Client, names: &Names, timeout: Duration) -> Duration {
    match tokio::time::timeout(timeout, api_server::endpoints(client)).await {
        Ok(Ok(endpoints)) => {
            names.guard(endpoints);
            ROUND
        }
        Ok(Err(error)) => {
            warn!(%error, "the API server's endpoints cannot be read; only the address of its Service is refused to loops");
            ROUND
        }
        Err(_) => timeout,
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower_test::mock;

    use super::*;
    use ganglion_api::refs::Auth;
    use ganglion_outbound::client::Outgoing;
    use ganglion_runtime::account::Account;
    use ganglion_runtime::writer::Writer;

    /// A client of an API server that has one Secret and no endpoints.
    fn api_server() -> Client {
        let (service, mut handle) = mock::pair::<Request<Body>, Response<Body>>();
        tokio::spawn(async move {
            while let Some((request, send)) = handle.next_request().await {
                let is_secret = request.uri().path() == "/api/v1/namespaces/a/secrets/s";
                let body = if is_secret {
                    json!({"data": {"token": "b3Blbg=="}})
                } else {
                    json!({"addressType": "IPv4", "metadata": {}, "endpoints": [], "ports": []})
                };
                send.send_response(Response::new(Body::from(body.to_string().into_bytes())));
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_secret_that_no_request_names_any_more_leaves_the_memory() {
        let (api, timeout, ended) = (api_server(), Duration::from_secs(10), CancellationToken::new());
        let (settings, metrics) = (Settings::default(), Metrics::new());
        let names = Names::new(address::Rules::default(), address::system);
        let outbound = Arc::new(client(Arc::new(web(names.clone(), &settings, &metrics)), &settings, &metrics));
        let upkeep = tokio::spawn(keep_up(api.clone(), names, Arc::clone(&outbound), timeout, ended.clone()));

        let writer = Writer::new(api, timeout, CancellationToken::new(), metrics.clone());
        let account = Account { writer, namespace: "a".into(), name: "default".into(), manager: "m" };
        let auth: Auth = serde_json::from_value(json!({"bearer": {"name": "s", "key": "token"}})).unwrap();
        let url = "http://127.0.0.1/";
        let refused = outbound
            .get(&account, Outgoing { url, auth: Some(&auth), ca: None, headers: &[], within: timeout })
            .await
            .err();
        assert_eq!(
            refused.map(|why| why.words).as_deref(),
            Some("the address is refused: 127.0.0.1 is a loopback address")
        );
        tokio::time::sleep(Duration::from_secs(240)).await;
        assert_eq!(outbound.secrets_kept(), 1);
        tokio::time::sleep(Duration::from_secs(121)).await;
        assert_eq!(outbound.secrets_kept(), 0);
        ended.cancel();
        upkeep.await.unwrap();
    }

    #[test]
    fn rules_come_from_the_settings_and_a_wrong_one_is_named() {
        let config = Config::new("https://api.example/".parse().unwrap());
        let rules = |yaml: &str| rules(&config, &Settings::parse(yaml).unwrap()).map_err(|error| error.to_string());
        let found = rules("outbound: {deniedNetworks: [10.0.0.0/8], allowedHosts: [.example.com], onlyAllowed: true}");
        let found = found.unwrap();
        assert_eq!(found.api_server, Some(("api.example".to_owned(), 443)));
        assert!(found.denied_networks.len() == 1 && found.allowed_hosts.len() == 1 && found.only_allowed);
        assert_eq!(rules("outbound: {allowApiServer: true}").unwrap().api_server, None);
        let error = rules("outbound: {allowedNetworks: [10.0.0.1/8]}").unwrap_err();
        assert!(error.starts_with("setting outbound.allowedNetworks: \"10.0.0.1/8\" is not a network"), "{error}");
        let found = rules(
            "outbound: {privateNetworks: [{namespaces: [platform]}, {networks: [10.0.0.0/8], ports: [443], methods: [GET]}]}",
        );
        assert_eq!(found.unwrap().private.len(), 2);
        let error = rules("outbound: {privateNetworks: [{networks: [10.0.0.0/8], ports: [443]}]}").unwrap_err();
        assert!(
            error.starts_with("setting outbound.privateNetworks: a rule without namespaces names ports"),
            "{error}"
        );
        let error = rules("outbound: {deniedHosts: [10.0.0.1]}").unwrap_err();
        assert!(error.starts_with("setting outbound.deniedHosts: \"10.0.0.1\" is not a host"), "{error}");
    }
}
