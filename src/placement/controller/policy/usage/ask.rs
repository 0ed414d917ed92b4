//! Queries Prometheus and assigns the results to nodes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use futures::future::try_join_all;
use jiff::Timestamp;
use tokio::time::Instant;

use super::UsagePublisher;
use super::write::{Written, spread};
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_core::facts::NodeFact;
use ganglion_outbound::Error;
use ganglion_outbound::client::attempt::{AskedServer, Asker, Attempt, SECRET_PAUSE, Withheld, WithheldWhy};
use ganglion_outbound::node_usage::NodeStatistic;
use ganglion_outbound::prometheus::query_url;
use ganglion_outbound::value::ValueError;
use ganglion_outbound::web::Call;
use ganglion_placement_plan::publish::annotations::SampleAges;
use ganglion_placement_plan::publish::plan::{UsageCoverage, UsagePlan, plan};
use ganglion_placement_plan::publish::publication::{PublishProblem, UsagePublication, shortest_age};
use ganglion_placement_plan::publish::report::UsageReport;
use ganglion_placement_plan::publish::{LEAST_SAMPLES, NodeUsage, Statistic};
use ganglion_placement_plan::world::PlacementWorld;

/// Problem that prevents publishing, and the time of the next attempt; None leaves it to the poll engine.
pub struct UsageTrouble {
    pub problem: PublishProblem,
    pub again: Option<Instant>,
}

impl From<PublishProblem> for UsageTrouble {
    /// A failed poll, so that the poll engine backs off.
    fn from(problem: PublishProblem) -> Self {
        Self { problem, again: None }
    }
}

impl From<Withheld> for UsageTrouble {
    fn from(Withheld { why, words, pause }: Withheld) -> Self {
        let reason = match why {
            WithheldWhy::Unreadable => PolicyReason::SecretUnavailable,
            WithheldWhy::Refused => PolicyReason::LoginRefused,
        };
        Self { problem: (reason, words), again: Some(Instant::now() + pause) }
    }
}

/// Responses by statistic.
type Responses = HashMap<Statistic, NodeStatistic>;

impl UsagePublisher {
    /// Queries Prometheus and annotates the nodes whose usage changed.
    pub async fn publish(&self, publication: &Arc<UsagePublication>) -> Result<UsageReport, UsageTrouble> {
        let at = self.ctx.now();
        let (host, statistics) = self.query_server(publication).await?;
        let usage = |node: &NodeFact| usage(&statistics, node, at);
        let most = publication.max_age;
        let UsagePlan { writes, coverage } = self.ctx.store.read(|world| {
            let shortest = shortest_age(world.policies()).map_or(most, |age| age.min(most));
            plan(world.nodes(), usage, self.ctx.now(), SampleAges { most, shortest })
        });
        let written = self.write_all(writes, spread(publication)).await;
        ended(written, host, coverage)
    }

    async fn query_server(&self, publication: &UsagePublication) -> Result<(String, Responses), UsageTrouble> {
        let server = &publication.server;
        let asker = Asker { ctx: &self.ctx, outbound: &self.outbound };
        let asked = AskedServer {
            url: &server.url,
            namespace: server.namespace.as_deref().unwrap_or_default(),
            auth: server.auth.as_ref().map(Cow::Borrowed),
            ca: server.ca.as_ref(),
            insecure: server.insecure_skip_verify.unwrap_or(false),
            limit: self.outbound.limits.nodes,
            headers: server.headers.as_deref().unwrap_or_default(),
        };
        let mut attempt = Attempt::prepare(asker, asked).await?;
        loop {
            let got = self.answers(publication, &attempt.call).await;
            let error = match &got {
                Err(ValueError::Client(error)) => Some(error),
                _ => None,
            };
            if !attempt.repeats(error).await? {
                let statistics = got.map_err(|error| trouble(&attempt.host, &error))?;
                return Ok((attempt.host, statistics));
            }
        }
    }

    /// Sends all queries. The first one must succeed before the others are sent, so that a wrong password is sent only
    /// once.
    async fn answers(&self, publication: &UsagePublication, call: &Call) -> Result<Responses, ValueError> {
        let label = publication.series.label();
        let answer = |statistic: Statistic, query: &str| {
            let url = query_url(&call.url, query);
            async move {
                let call = Call { url: url?.into(), ..call.clone() };
                let answer = self.outbound.web().get(&call).await?;
                Ok::<_, ValueError>((statistic, NodeStatistic::parse(answer.status, answer.body(), label)?))
            }
        };
        let mut queries = publication.queries.iter();
        let mut all = Responses::new();
        if let Some((statistic, query)) = queries.next() {
            all.extend([answer(*statistic, query).await?]);
        }
        all.extend(try_join_all(queries.map(|(statistic, query)| answer(*statistic, query))).await?);
        Ok(all)
    }
}

/// Result of a poll to which Prometheus responded. If only single nodes cannot be annotated, the poll does not count as
/// failed, since the back-off would delay all nodes.
fn ended(written: Written, host: String, coverage: UsageCoverage) -> Result<UsageReport, UsageTrouble> {
    let Some(words) = written.problem else { return Ok(UsageReport::Answered(host, coverage)) };
    let problem = (PolicyReason::NodeNotWritten, words);
    if written.stopped { Err(problem.into()) } else { Ok(UsageReport::Problem(problem)) }
}

/// Usage of a node, or the reason why it is unknown.
fn usage(statistics: &Responses, node: &NodeFact, at: Timestamp) -> Result<NodeUsage, PublishProblem> {
    let unknown = |words: String| (PolicyReason::UsageUnknown, words);
    let name = &node.id.key.name;
    let addresses: Vec<IpAddr> = node.addresses.iter().filter_map(|one| one.parse().ok()).collect();
    let number = |statistic| {
        let none = || ValueError::NoReading("it was not queried".to_owned());
        statistics.get(&statistic).ok_or_else(none)?.number(name, &addresses)
    };
    if let Some(exporters) = statistics.get(&Statistic::Exporters) {
        exporters.one_exporter(name, &addresses).map_err(|error| (PolicyReason::Ambiguous, error.to_string()))?;
    }
    NodeUsage::new(|statistic| number(statistic).ok(), at).ok_or_else(|| match number(Statistic::Samples) {
        Err(error @ ValueError::Ambiguous(_)) => (PolicyReason::Ambiguous, error.to_string()),
        Err(error) => unknown(error.to_string()),
        Ok(_) => unknown(format!("it has fewer than {LEAST_SAMPLES} samples of node {name} in the window")),
    })
}

fn trouble(host: &str, error: &ValueError) -> UsageTrouble {
    let reason = match error {
        ValueError::Client(error) => reason(error),
        ValueError::Unfit(_) => PolicyReason::SpecInvalid,
        ValueError::NotFound(_) | ValueError::NoReading(_) => PolicyReason::UsageUnknown,
        ValueError::AmbiguousSensor(_)
        | ValueError::Rejected(_)
        | ValueError::Ambiguous(_)
        | ValueError::Invalid(_) => PolicyReason::AnswerInvalid,
    };
    let words = match error {
        // Their messages already name the host.
        ValueError::Client(Error::NoAnswer(_) | Error::Refused(_)) => error.to_string(),
        _ => format!("{host}: {error}"),
    };
    let again = (reason == PolicyReason::SecretUnavailable).then(|| Instant::now() + SECRET_PAUSE);
    UsageTrouble { problem: (reason, words), again }
}

fn reason(error: &Error) -> PolicyReason {
    match error {
        Error::Refused(_) => PolicyReason::AddressRefused,
        Error::Unfit(_) => PolicyReason::SecretUnavailable,
        Error::Certificate(_) => PolicyReason::CertificateRefused,
        Error::Unresolved(_)
        | Error::Unreachable(_)
        | Error::Incompatible
        | Error::Timeout(_)
        | Error::Broken(_)
        | Error::NoAnswer(_)
        | Error::Full => PolicyReason::Unreachable,
        Error::TooLong(_) | Error::Redirect(_) | Error::Query(..) | Error::Partial(_) | Error::Answer(_) => {
            PolicyReason::AnswerInvalid
        }
        Error::Status(_) | Error::Grpc(_) if error.is_refusal() => PolicyReason::LoginRefused,
        Error::Status(_) | Error::Grpc(_) if error.is_passing() => PolicyReason::Unreachable,
        Error::Status(_) | Error::Grpc(_) => PolicyReason::AnswerInvalid,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use ganglion_core::facts::{Identity, Key};
    use serde_json::json;

    use super::*;

    fn statistic(node: &str, value: &str) -> NodeStatistic {
        let series = json!({"metric": {"instance": node}, "value": [1, value]});
        let body = json!({"status": "success", "data": {"resultType": "vector", "result": [series]}}).to_string();
        NodeStatistic::parse(StatusCode::OK, body.as_bytes(), "instance").unwrap()
    }

    #[test]
    fn a_node_with_two_exporters_has_no_usage_and_the_field_for_it_is_named() {
        let id = Identity { key: Key::new("", "a"), ..Identity::default() };
        let node = NodeFact { id, ..NodeFact::default() };
        let of = |several: &str| {
            let statistics = Responses::from([
                (Statistic::Samples, statistic("a:9100", "60")),
                (Statistic::CpuMean, statistic("a:9100", "500")),
                (Statistic::Exporters, statistic(several, "2")),
            ]);
            usage(&statistics, &node, Timestamp::UNIX_EPOCH)
        };
        assert!(of("b:9100").is_ok());
        let (reason, words) = of("a:9100").unwrap_err();
        assert!(reason == PolicyReason::Ambiguous && words.contains("set matchers"), "{words}");
    }

    #[test]
    fn a_poll_fails_where_no_node_can_be_written_and_not_where_one_refuses() {
        let end = |problem: Option<&str>, stopped| {
            let written = Written { problem: problem.map(str::to_owned), stopped, ..Written::default() };
            ended(written, "p:9090".to_owned(), UsageCoverage::default()).ok()
        };
        let refused = UsageReport::Problem((PolicyReason::NodeNotWritten, "refused".to_owned()));
        assert_eq!(end(Some("refused"), false), Some(refused));
        assert_eq!(end(Some("forbidden"), true), None);
        let answered = UsageReport::Answered("p:9090".to_owned(), UsageCoverage::default());
        assert_eq!(end(None, false), Some(answered));
    }
}
