//! The scheduler extender: filters and scores nodes by a policy for kube-scheduler.
//!
//! Replies come from memory only; no request is sent to the API server or any other server. If a request cannot be
//! served, the reply contains no opinion, so that scheduling continues without the policy. Owns the limits of requests.
//! The format is in `wire`, the decisions are in [`ganglion_placement_plan`].

mod bodies;
pub mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use jiff::Timestamp;
use tracing::{info, warn};

use crate::cache::PlacementCache;
use bodies::{Bodies, ReadBody, no_room};
use ganglion_api::placement_policy::PolicyMode;
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_placement_plan::question::NodeRejection;
use ganglion_placement_plan::wire::score;
use ganglion_runtime::metrics::{ExtenderLabels, Metrics, VerbLabel};
use ganglion_runtime::watch::Readiness;
use wire::{CandidateNodes, ExtenderRequest, MAX_NODES, RejectedNode, WireError};

/// Requests of at least this size in bytes are processed on a blocking thread, so that they do not delay others.
const LARGE: usize = 256 << 10;

/// Minimum time in seconds between warnings about policies that cannot be used.
const WARNING_PAUSE: i64 = 10;

/// The extender with its data. Cheap to clone.
#[derive(Clone)]
pub struct Extender(Arc<ExtenderParts>);

struct ExtenderParts {
    ready: Readiness,
    placement: PlacementCache,
    metrics: Metrics,
    bodies: Bodies,
    warned: AtomicI64,
}

/// Verb of the extender protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtenderVerb {
    Filter,
    Prioritize,
}

impl ExtenderVerb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
        }
    }
}

/// Result of a request, as a metric label.
type ResultLabel = &'static str;

impl Extender {
    /// Creates an extender that accepts requests of at most `max_body` bytes.
    pub fn new(ready: Readiness, placement: PlacementCache, metrics: Metrics, max_body: usize) -> Self {
        let bodies = Bodies::new(max_body);
        Self(Arc::new(ExtenderParts { ready, placement, metrics, bodies, warned: AtomicI64::new(i64::MIN) }))
    }

    pub fn router(self) -> Router {
        Router::new()
            .route("/policies/{policy}/filter", post(filter))
            .route("/policies/{policy}/prioritize", post(prioritize))
            .route("/healthz", get(async || "ok\n"))
            .with_state(self)
    }

    async fn serve(self, verb: ExtenderVerb, policy: String, request: Request<Body>) -> Response {
        let begun = Instant::now();
        let (outcome, response) = match self.0.bodies.read(request).await {
            Err(refused) => ("refused", refused),
            Ok(body) => self.clone().answer_apart(verb, policy, body).await,
        };
        let metrics = &self.0.metrics;
        metrics.extender_requests.get_or_create(&ExtenderLabels { verb: verb.as_str(), outcome }).inc();
        metrics
            .extender_seconds
            .get_or_create(&VerbLabel { verb: verb.as_str() })
            .observe(begun.elapsed().as_secs_f64());
        response
    }

    async fn answer_apart(self, verb: ExtenderVerb, policy: String, body: ReadBody) -> (ResultLabel, Response) {
        if body.bytes().len() < LARGE {
            return self.answer(verb, &policy, body);
        }
        let done = tokio::task::spawn_blocking(move || self.answer(verb, &policy, body)).await;
        done.unwrap_or_else(|_| {
            ("panic", text(StatusCode::INTERNAL_SERVER_ERROR, "a bug in the operator; see its log"))
        })
    }

    fn answer(&self, verb: ExtenderVerb, name: &str, mut body: ReadBody) -> (ResultLabel, Response) {
        let bytes = body.bytes().clone();
        // The policy comes first: without one, nothing but the candidates is read.
        let (outcome, reply) = match self.policy(name) {
            Ok(policy) => self.opinion(verb, &policy, &bytes, &mut body),
            Err(outcome) => match CandidateNodes::parse(&bytes, MAX_NODES) {
                Ok(candidates) if body.occupy(candidates.len()) => (outcome, no_opinion(verb, &candidates)),
                Ok(_) => ("refused", no_room()),
                Err(error) => invalid(&error),
            },
        };
        (outcome, body.answered(reply))
    }

    fn opinion(
        &self,
        verb: ExtenderVerb,
        policy: &CompiledPolicy,
        bytes: &[u8],
        body: &mut ReadBody,
    ) -> (ResultLabel, Response) {
        let request = match ExtenderRequest::parse(bytes, MAX_NODES) {
            Ok(request) => request,
            Err(error) => return invalid(&error),
        };
        if !body.occupy(request.candidates.len()) {
            return ("refused", no_room());
        }
        if !policy.concerns(&request.pod) {
            return ("other_pod", no_opinion(verb, &request.candidates));
        }
        let answer = self.judge(verb, policy, &request);
        if policy.mode == PolicyMode::Shadow {
            answer.log(policy, &request);
            return ("shadow", no_opinion(verb, &request.candidates));
        }
        ("ok", json(answer.encode(&request.candidates)))
    }

    /// The policy of this name; as an error the outcome if it cannot be used.
    fn policy(&self, name: &str) -> Result<Arc<CompiledPolicy>, ResultLabel> {
        if !self.0.ready.is_ready() {
            return Err("cold");
        }
        let why = match self.0.placement.policy(name) {
            Some(Ok(policy)) => return Ok(policy),
            Some(Err(_)) => "invalid_policy",
            None => "unknown_policy",
        };
        let now = Timestamp::now().as_second();
        let before = self.0.warned.load(Ordering::Relaxed);
        if now.saturating_sub(before) >= WARNING_PAUSE
            && self.0.warned.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            warn!(
                policy = name.chars().take(253).collect::<String>(),
                why, "a scheduler asks for a policy without an opinion"
            );
        }
        Err(why)
    }

    fn judge(&self, verb: ExtenderVerb, policy: &CompiledPolicy, request: &ExtenderRequest<'_>) -> PolicyAnswer {
        let names: Vec<&str> = request.candidates.names().collect();
        self.0.placement.evaluate(policy, &request.pod, &names, Timestamp::now(), |question| match verb {
            ExtenderVerb::Filter => PolicyAnswer::Filter(policy.filter(question)),
            ExtenderVerb::Prioritize => PolicyAnswer::Prioritize(policy.score(question).totals),
        })
    }
}

/// Result of a policy, in the order of the candidates.
enum PolicyAnswer {
    Filter(Vec<Option<NodeRejection>>),
    Prioritize(Vec<f64>),
}

impl PolicyAnswer {
    fn encode(self, candidates: &CandidateNodes<'_>) -> Vec<u8> {
        match self {
            Self::Filter(rejections) => {
                let rejected = |one: NodeRejection| RejectedNode { reason: one.reason, unresolvable: !one.resolvable };
                let rejections: Vec<_> = rejections.into_iter().map(|one| one.map(rejected)).collect();
                wire::filter_reply(candidates, &rejections)
            }
            Self::Prioritize(totals) => {
                let scores: Vec<u8> = totals.into_iter().map(score).collect();
                wire::prioritize_reply(candidates, &scores)
            }
        }
    }

    /// Logs the result that the scheduler does not get in mode Shadow.
    fn log(&self, policy: &CompiledPolicy, request: &ExtenderRequest<'_>) {
        let names: Vec<&str> = request.candidates.names().collect();
        let (policy, pod) = (&policy.name, &request.pod.key);
        match self {
            Self::Filter(rejections) => {
                let rejected = rejections.iter().flatten().count();
                let first = names.iter().zip(rejections).find_map(|(name, one)| Some((name, &one.as_ref()?.reason)));
                let first = first.map(|(name, reason)| format!("{name}: {reason}"));
                info!(%policy, %pod, nodes = names.len(), rejected, first, "shadow filter");
            }
            Self::Prioritize(totals) => {
                let best = names.iter().zip(totals).max_by(|(_, one), (_, other)| one.total_cmp(other));
                let (best, score) = best.map_or(("", 0.0), |(name, total)| (*name, *total));
                info!(%policy, %pod, nodes = names.len(), best, score, "shadow prioritize");
            }
        }
    }
}

async fn filter(State(extender): State<Extender>, Path(policy): Path<String>, request: Request<Body>) -> Response {
    extender.serve(ExtenderVerb::Filter, policy, request).await
}

async fn prioritize(State(extender): State<Extender>, Path(policy): Path<String>, request: Request<Body>) -> Response {
    extender.serve(ExtenderVerb::Prioritize, policy, request).await
}

/// Reply without an opinion: every node passes, and all have the same score.
fn no_opinion(verb: ExtenderVerb, candidates: &CandidateNodes<'_>) -> Response {
    json(match verb {
        ExtenderVerb::Filter => wire::filter_reply(candidates, &[]),
        ExtenderVerb::Prioritize => wire::prioritize_reply(candidates, &[]),
    })
}

fn invalid(error: &WireError) -> (ResultLabel, Response) {
    ("invalid", text(StatusCode::BAD_REQUEST, &error.to_string()))
}

fn json(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn text(status: StatusCode, words: &str) -> Response {
    (status, format!("{words}\n")).into_response()
}

#[cfg(test)]
mod tests;
