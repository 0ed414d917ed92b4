//! The scheduler extender: filters and scores nodes by a policy for kube-scheduler, and limits its preemption.
//!
//! Replies come from memory only; no request is sent to the API server or any other server. If a request cannot be
//! served, the reply contains no opinion, so that scheduling continues without the policy. Owns the limits of requests.
//! The format is in `wire`, the decisions are in [`ganglion_placement_plan`].

mod bodies;
mod delays;
pub mod wire;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

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
use delays::{DelayBudget, MAX_DELAY};
use ganglion_api::placement_policy::PolicyMode;
use ganglion_placement_plan::policy::CompiledPolicy;
use ganglion_placement_plan::question::{NodeRejection, PlacedPod};
use ganglion_placement_plan::wire::score;
use ganglion_runtime::metrics::{ExtenderLabels, Metrics, VerbLabel};
use ganglion_runtime::watch::Readiness;
use wire::{CandidateNodes, ExtenderRequest, MAX_NODES, MAX_VICTIMS, PreemptionRequest, WireError};

/// Requests of at least this size in bytes are processed on a blocking thread, so that they do not delay others.
const LARGE: usize = 256 << 10;

/// Interval between evaluations of a request while pods are on their way to a node.
const SETTLING_PAUSE: Duration = Duration::from_millis(20);

/// Result if no node passes, and in a moment one may.
const TOO_EARLY: ResultLabel = "too_early";

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
    delays: DelayBudget,
    warned: AtomicI64,
}

/// Verb of the extender protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtenderVerb {
    Filter,
    Prioritize,
    Preempt,
}

impl ExtenderVerb {
    fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
            Self::Preempt => "preempt",
        }
    }
}

/// Result of a request, as a metric label.
type ResultLabel = &'static str;

/// Result of one evaluation of a request.
enum Evaluation {
    Done(ResultLabel, Response),
    /// No node passes, and in a moment one may, when pods of these namespaces are bound. A pod that is rejected is only
    /// tried again after minutes, if nothing else changes that the scheduler watches.
    TooEarly(ReadBody, BTreeSet<String>),
}

/// Reply to a scheduler.
struct ExtenderReply {
    outcome: ResultLabel,
    response: Response,
    /// Namespaces of the pods to wait for; empty if a later reply would be the same.
    awaited: BTreeSet<String>,
}

impl From<(ResultLabel, Response)> for ExtenderReply {
    fn from((outcome, response): (ResultLabel, Response)) -> Self {
        Self { outcome, response, awaited: BTreeSet::new() }
    }
}

/// Delay of one reply.
struct ReplyDelay {
    begun: Instant,
    /// End of the time that is counted.
    counted: Instant,
}

impl ReplyDelay {
    fn new(now: Instant) -> Self {
        Self { begun: now, counted: now }
    }

    /// Counts the time until now and another pause in advance: a scheduler that does not wait for the reply was stopped
    /// all the same. Returns false if the reply must not be delayed further.
    fn extend(&mut self, budget: &DelayBudget, awaited: &BTreeSet<String>, now: Instant) -> bool {
        let end = now + SETTLING_PAUSE;
        let may_wait = end.saturating_duration_since(self.begun) <= MAX_DELAY
            && budget.spend(awaited, end.saturating_duration_since(self.counted), now);
        if may_wait {
            self.counted = end;
        }
        may_wait
    }
}

impl Extender {
    /// Creates an extender that accepts requests of at most `max_body` bytes.
    pub fn new(ready: Readiness, placement: PlacementCache, metrics: Metrics, max_body: usize) -> Self {
        let (bodies, delays) = (Bodies::new(max_body), DelayBudget::default());
        Self(Arc::new(ExtenderParts { ready, placement, metrics, bodies, delays, warned: AtomicI64::new(i64::MIN) }))
    }

    pub fn router(self) -> Router {
        Router::new()
            .route("/policies/{policy}/filter", post(filter))
            .route("/policies/{policy}/prioritize", post(prioritize))
            .route("/policies/{policy}/preempt", post(preempt))
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

    async fn answer_apart(self, verb: ExtenderVerb, policy: String, mut body: ReadBody) -> (ResultLabel, Response) {
        let mut is_last = false;
        let mut delayed: Option<ReplyDelay> = None;
        loop {
            let evaluation = if body.bytes().len() < LARGE {
                self.answer(verb, &policy, body, is_last)
            } else {
                let (extender, policy) = (self.clone(), policy.clone());
                let done = tokio::task::spawn_blocking(move || extender.answer(verb, &policy, body, is_last)).await;
                done.unwrap_or_else(|_| {
                    let words = "a bug in the operator; see its log";
                    Evaluation::Done("panic", text(StatusCode::INTERNAL_SERVER_ERROR, words))
                })
            };
            let awaited;
            (body, awaited) = match evaluation {
                Evaluation::Done(outcome, response) => return (outcome, response),
                Evaluation::TooEarly(body, awaited) => (body, awaited),
            };
            let now = Instant::now();
            is_last = !delayed.get_or_insert_with(|| ReplyDelay::new(now)).extend(&self.0.delays, &awaited, now);
            if !is_last {
                tokio::time::sleep(SETTLING_PAUSE).await;
            }
        }
    }

    /// Evaluates a request. The last evaluation is never too early.
    fn answer(&self, verb: ExtenderVerb, name: &str, mut body: ReadBody, is_last: bool) -> Evaluation {
        let bytes = body.bytes().clone();
        // The policy comes first: without one, nothing but the candidates is read.
        let policy = self.policy(name);
        let answered = match verb {
            ExtenderVerb::Filter => self.filter_or_score(false, policy, &bytes, &mut body),
            ExtenderVerb::Prioritize => self.filter_or_score(true, policy, &bytes, &mut body),
            ExtenderVerb::Preempt => self.preempt(policy, &bytes, &mut body).map(ExtenderReply::from),
        };
        let ExtenderReply { outcome, response, awaited } = answered.unwrap_or_else(|error| invalid(&error).into());
        if !awaited.is_empty() && !is_last {
            body.vacate();
            return Evaluation::TooEarly(body, awaited);
        }
        Evaluation::Done(outcome, body.answered(response))
    }

    fn filter_or_score(
        &self,
        scores: bool,
        policy: Result<Arc<CompiledPolicy>, ResultLabel>,
        bytes: &[u8],
        body: &mut ReadBody,
    ) -> Result<ExtenderReply, WireError> {
        let no_opinion = |candidates: &CandidateNodes<'_>| {
            let nothing = if scores { PolicyAnswer::Scores(Vec::new()) } else { PolicyAnswer::Rejections(Vec::new()) };
            json(nothing.encode(candidates))
        };
        let policy = match policy {
            Ok(policy) => policy,
            Err(outcome) => {
                let candidates = CandidateNodes::parse(bytes, MAX_NODES)?;
                let has_room = body.occupy(candidates.len());
                let reply = if has_room { (outcome, no_opinion(&candidates)) } else { ("refused", no_room()) };
                return Ok(reply.into());
            }
        };
        let ExtenderRequest { pod, candidates } = ExtenderRequest::parse(bytes, MAX_NODES)?;
        if !body.occupy(candidates.len()) {
            return Ok(("refused", no_room()).into());
        }
        if !policy.concerns(&pod) {
            return Ok(("other_pod", no_opinion(&candidates)).into());
        }
        let names: Vec<&str> = candidates.names().collect();
        let (placement, is_shadow, now) = (&self.0.placement, policy.mode == PolicyMode::Shadow, Timestamp::now());
        let mut awaited = BTreeSet::new();
        let answer = if scores {
            PolicyAnswer::Scores(placement.score(&policy, &pod, &names, !is_shadow, now))
        } else if is_shadow {
            PolicyAnswer::Rejections(placement.shadow(&policy, &pod, &names, now))
        } else {
            let rejections;
            (rejections, awaited) = placement.filter(&policy, &pod, &names, now);
            PolicyAnswer::Rejections(rejections)
        };
        if is_shadow {
            answer.log(&policy, &pod, &names);
            return Ok(("shadow", no_opinion(&candidates)).into());
        }
        let outcome = if awaited.is_empty() { "ok" } else { TOO_EARLY };
        Ok(ExtenderReply { outcome, response: json(answer.encode(&candidates)), awaited })
    }

    /// Leaves out the nodes that the policy rejects even without the pods to preempt. The scheduler then does not
    /// preempt pods there.
    fn preempt(
        &self,
        policy: Result<Arc<CompiledPolicy>, ResultLabel>,
        bytes: &[u8],
        body: &mut ReadBody,
    ) -> Result<(ResultLabel, Response), WireError> {
        let PreemptionRequest { pod, nodes } = PreemptionRequest::parse(bytes, MAX_NODES, MAX_VICTIMS, policy.is_ok())?;
        if !body.occupy(nodes.iter().map(|node| node.uids.len().saturating_add(1)).sum()) {
            return Ok(("refused", no_room()));
        }
        let no_opinion = || json(wire::preemption_reply(&nodes, |_| true));
        let (policy, pod) = match (policy, pod) {
            (Ok(policy), Some(pod)) => (policy, pod),
            (Ok(_), None) => return Err(WireError::NoPod),
            (Err(outcome), _) => return Ok((outcome, no_opinion())),
        };
        if !policy.concerns(&pod) {
            return Ok(("other_pod", no_opinion()));
        }
        if policy.mode == PolicyMode::Shadow {
            return Ok(("shadow", no_opinion()));
        }
        let rejections = self.0.placement.filter_preemption(&policy, &pod, &nodes, Timestamp::now());
        let is_kept = |at: usize| rejections.get(at).is_none_or(Option::is_none);
        Ok(("ok", json(wire::preemption_reply(&nodes, is_kept))))
    }

    /// The policy of this name; as an error the outcome if it cannot be used.
    fn policy(&self, name: &str) -> Result<Arc<CompiledPolicy>, ResultLabel> {
        if !self.0.ready.is_ready() {
            return Err("cold");
        }
        let why = match self.0.placement.policy(name) {
            Some(Ok(policy)) if policy.is_extender => return Ok(policy),
            // Its labels are terms of the pod, and would count twice.
            Some(Ok(_)) => "delivered_by_labels",
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
}

/// Result of a policy, in the order of the candidates.
enum PolicyAnswer {
    Rejections(Vec<Option<NodeRejection>>),
    Scores(Vec<f64>),
}

impl PolicyAnswer {
    /// Encodes the reply. A candidate without a result passes, and scores 0.
    fn encode(self, candidates: &CandidateNodes<'_>) -> Vec<u8> {
        match self {
            Self::Rejections(rejections) => wire::filter_reply(candidates, &rejections),
            Self::Scores(totals) => {
                let scores: Vec<u8> = totals.into_iter().map(score).collect();
                wire::prioritize_reply(candidates, &scores)
            }
        }
    }

    /// Logs the result that the scheduler does not get in mode Shadow.
    fn log(&self, policy: &CompiledPolicy, pod: &PlacedPod, names: &[&str]) {
        let (policy, pod) = (&policy.name, &pod.key);
        match self {
            Self::Rejections(rejections) => {
                let rejected = rejections.iter().flatten().count();
                let first = names.iter().zip(rejections).find_map(|(name, one)| Some((name, &one.as_ref()?.0)));
                let first = first.map(|(name, reason)| format!("{name}: {reason}"));
                info!(%policy, %pod, nodes = names.len(), rejected, first, "shadow filter");
            }
            Self::Scores(totals) => {
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

async fn preempt(State(extender): State<Extender>, Path(policy): Path<String>, request: Request<Body>) -> Response {
    extender.serve(ExtenderVerb::Preempt, policy, request).await
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
