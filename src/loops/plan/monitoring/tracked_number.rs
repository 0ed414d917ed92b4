//! One pass: metrics and target as [`crate::track`] reads them, and its result as a part of the status.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::level::{MetricState, RangedValue};
use super::rules::{MonitoringRules, ObserveContext};
use super::stored_values::metric_state;
use super::tracking::{OwnScaling, PassMemory, TargetNews, TargetReading, TrackedSource, TrackingRules};
use super::value::SourceResult;
use crate::common::{elapsed, micro_time, number_text, opening_text};
use crate::schedule;
use crate::track::{
    Nanos, Restraint, TrackInput, TrackOutcome, TrackPass, TrackReason, TrackTarget, TrackedMetric, ZeroOrigin, decide,
};
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::monitoring::{AlarmState, MonitoringStatus, TrackingState};

/// Maximum length of a line of the explanation, in characters.
const MAX_LINE: usize = 400;

/// Why an assumed value does not lower.
const ASSUMED: &str = "its value is assumed";

/// Maximum number of lines of the explanation.
const MAX_LINES: usize = 64;

impl MonitoringRules {
    /// Determines the number of replicas if there is news. Returns the memory with this pass.
    pub(super) fn track(&self, status: &mut MonitoringStatus, context: ObserveContext) -> Option<PassMemory> {
        let Some(tracking) = &self.tracking else {
            status.tracking = None;
            return None;
        };
        let news = context.target?;
        let replicas = match (news.reading, context.replicas) {
            (Err(why), _) => Err(why),
            (Ok(TargetReading { replicas: Some(replicas), .. }), _) => Ok(*replicas),
            (Ok(TargetReading { replicas: None, .. }), cached) => cached,
        };
        let is_recent = |state: &TrackingState| !self.is_outdated(state, context.now);
        let replicas = match replicas {
            Ok(replicas) => replicas,
            // The next pass has the new number. Until then, the last one stands.
            Err(_) if news.is_changing && status.tracking.as_ref().is_some_and(is_recent) => return None,
            Err(why) => {
                let problem: String = why.chars().take(MAX_LINE).collect();
                let state = status.tracking.get_or_insert_with(|| unknown_state(context.now));
                state.problem = Some(problem);
                return None;
            }
        };
        let mut memory = news.memory.clone();
        let counted = status.tracking.as_ref().map_or(0, |state| state.counted);
        let new_change = news.own_change.filter(|change| change.seq > counted);
        if let Some(OwnScaling { before, after, at, .. }) = new_change {
            memory.record_change(before, after, at.min(context.now));
        }
        let rules = tracking.at(context.now);
        let metrics: Vec<TrackedMetric> =
            tracking.sources.iter().map(|source| self.tracked(source, status, replicas, context, news)).collect();
        let zero = if memory.is_own_zero() { ZeroOrigin::Own } else { ZeroOrigin::Other };
        let outlook = news.forecast.map(|memory| memory.forecast(context.now));
        let pass = TrackPass { replicas, metrics: &metrics, zero, now: context.now, forecast: outlook.as_ref() };
        let outcome = decide(&rules, &mut memory, &pass);
        let mut forecast = news.forecast.cloned();
        if let Some(memory) = &mut forecast {
            // An assumed value is no demand.
            let is_assumed = metrics.iter().any(|metric| metric.restraint.down.as_deref() == Some(ASSUMED));
            memory.record(outcome.demand().filter(|_| !is_assumed), context.now);
        }
        let stored = context.written.tracking.as_ref().and_then(|state| state.memory.clone());
        let text = if memory.needs_write(stored.as_deref(), &rules, replicas, context.now) {
            Some(memory.text(&rules, context.now))
        } else {
            stored
        };
        status.tracking = Some(TrackingState {
            replicas,
            wants: outcome.replicas,
            reason: outcome.reason.as_str().to_owned(),
            at: micro_time(context.now),
            lines: lines(&outcome),
            memory: text,
            counted: news.own_change.map_or(counted, |change| change.seq.max(counted)),
            problem: None,
        });
        let alarm = alarm(tracking, &outcome, replicas);
        status.alarms.retain(|old| old.side != Side::Target || Some(&old.metric) == alarm.as_ref());
        if let Some(metric) = alarm
            && !status.alarms.iter().any(|old| old.side == Side::Target)
        {
            status.alarms.push(target_alarm(metric, micro_time(context.now)));
        }
        Some(PassMemory { track: memory, forecast })
    }

    /// Returns the alarm on side Target between two passes: that of the last one, as long as it is not outdated.
    pub(super) fn target_alarm(
        &self,
        raised: &[AlarmState],
        status: &MonitoringStatus,
        context: ObserveContext,
    ) -> Option<AlarmState> {
        let (_, state) = self.tracking.as_ref().zip(status.tracking.as_ref())?;
        let alarm = raised.iter().find(|alarm| alarm.side == Side::Target)?;
        let is_outdated = self.is_outdated(state, context.now);
        let is_of_before = state.at < micro_time(context.watched_since);
        let excess = f64::from(state.wants.abs_diff(state.replicas)) / f64::from(state.replicas.max(1));
        Some(AlarmState {
            excess: Some(number_text(excess)),
            unknown: false,
            held: is_outdated || is_of_before || state.problem.is_some(),
            ..alarm.clone()
        })
    }

    /// Whether the last pass is too old to act on.
    fn is_outdated(&self, state: &TrackingState, now: Timestamp) -> bool {
        elapsed(&state.at, now) > self.interval.saturating_mul(3)
    }

    fn tracked(
        &self,
        source: &TrackedSource,
        status: &MonitoringStatus,
        replicas: i32,
        context: ObserveContext,
        news: TargetNews,
    ) -> TrackedMetric {
        let now = context.now;
        let phase = schedule::phase(&source.windows, now);
        let (target, input) = match source.target {
            // The target of a metric that asks for nothing is not read.
            None => (TrackTarget::Value(Nanos::ZERO), TrackInput::Idle("only the schedule sets the number".to_owned())),
            Some(target) if !phase.open => {
                (target, TrackInput::Idle(format!("outside its window; opens {}", opening_text(phase.end, now))))
            }
            Some(target) if source.is_of_pods => (target, of_pods(news.results.get(&source.metric))),
            Some(target) => match source.at_zero.filter(|_| replicas == 0) {
                Some(value) => (target, TrackInput::Total { value, ready_pods: 0 }),
                None => (target, self.total(source, target, status, replicas, context, news)),
            },
        };
        let levels = self.levels_of(&source.metric);
        let state = levels.map(|levels| metric_state(status, &source.metric, levels, now));
        let reading = status.values.iter().find(|reading| reading.metric == source.metric);
        let measured = reading.map(|reading| reading.measured_at.as_ref().unwrap_or(&reading.at).0);
        TrackedMetric {
            tolerances: source.tolerances.clone(),
            activation: source.activation,
            restraint: restraint(
                !source.is_of_pods && matches!(state, Some(MetricState::Assumed(_))),
                target,
                &input,
                measured,
                news.own_change,
            ),
            ..TrackedMetric::new(&source.metric, target, input)
        }
    }

    /// One number for all pods.
    fn total(
        &self,
        source: &TrackedSource,
        target: TrackTarget,
        status: &MonitoringStatus,
        replicas: i32,
        context: ObserveContext,
        news: TargetNews,
    ) -> TrackInput {
        let metric = &source.metric;
        let Some(levels) = self.levels_of(metric) else {
            return TrackInput::Unknown("it is no metric of this loop".to_owned());
        };
        let reading = status.values.iter().find(|reading| &reading.metric == metric);
        let ready_pods = news.reading.ok().and_then(|reading| reading.ready_pods).unwrap_or(0);
        let number = |value| TrackInput::Total { value, ready_pods };
        match metric_state(status, metric, levels, context.now) {
            MetricState::Known(value) if value.least < value.most => {
                let number_of = |value| number(nanos(value));
                within_range(value, target, replicas).map_or_else(TrackInput::Unknown, number_of)
            }
            MetricState::Known(value) => {
                let exact = reading.and_then(|reading| Nanos::parse(reading.value.as_str()).ok());
                number(exact.unwrap_or_else(|| nanos(value.value)))
            }
            MetricState::Assumed(value) => number(nanos(value.value)),
            MetricState::Standing(_) => TrackInput::Unknown(
                reading.and_then(|reading| reading.problem.clone()).unwrap_or_else(|| "it has no new value".to_owned()),
            ),
            MetricState::Unknown | MetricState::Missing => {
                let unknown = status.unknown.iter().find(|unknown| &unknown.metric == metric);
                TrackInput::Unknown(unknown.map_or_else(|| "it has no value".to_owned(), |one| one.message.clone()))
            }
        }
    }
}

/// State of a target that was never read.
fn unknown_state(now: Timestamp) -> TrackingState {
    TrackingState {
        replicas: 0,
        wants: 0,
        reason: TrackReason::MetricUnknown.as_str().to_owned(),
        at: micro_time(now),
        lines: Vec::new(),
        memory: None,
        counted: 0,
        problem: None,
    }
}

/// Directions in which the value of a metric says nothing: an assumed value does not lower. A value from before the
/// last change would make the same change once more, if it is multiplied by the pods that are left or new; a total for
/// each replica is not.
fn restraint(
    is_assumed: bool,
    target: TrackTarget,
    input: &TrackInput,
    measured: Option<Timestamp>,
    own_change: Option<OwnScaling>,
) -> Restraint {
    let measured = match input {
        // A sample of a period in which the change was made is one of before.
        TrackInput::Pods { pods, .. } => pods.iter().filter_map(|pod| pod.sample?.begun()).min(),
        TrackInput::Total { .. } if matches!(target, TrackTarget::Value(_)) => measured,
        TrackInput::Total { .. } | TrackInput::Unknown(_) | TrackInput::Idle(_) => None,
    };
    let is_before = |change: &OwnScaling| measured.is_some_and(|measured| measured <= change.at);
    let before = own_change.filter(is_before);
    let why = |change: OwnScaling| format!("it was measured before decision {} took effect", change.seq);
    Restraint {
        down: if is_assumed {
            Some(ASSUMED.to_owned())
        } else {
            before.filter(|change| change.after < change.before).map(why)
        },
        up: before.filter(|change| change.after > change.before && matches!(target, TrackTarget::Value(_))).map(why),
    }
}

fn of_pods(result: Option<&SourceResult>) -> TrackInput {
    match result {
        Some(Ok(value)) => match &value.pods {
            Some(samples) => TrackInput::Pods { measure: samples.measure, pods: samples.pods.clone() },
            None => TrackInput::Unknown("its source has no values of single pods".to_owned()),
        },
        Some(Err(why)) => TrackInput::Unknown(why.clone()),
        None => TrackInput::Unknown("its source has not answered yet".to_owned()),
    }
}

/// The end of the range that is nearest to the target: it raises or lowers whatever the other pods use. An error if the
/// target is in the range.
fn within_range(value: RangedValue, target: TrackTarget, replicas: i32) -> Result<f64, String> {
    let at_target = match target {
        TrackTarget::AverageValue(target) => target.billionths() as f64 / 1e9 * f64::from(replicas.max(1)),
        TrackTarget::Value(target) => target.billionths() as f64 / 1e9,
        TrackTarget::Utilization { percent } => f64::from(percent),
    };
    if value.least > at_target {
        Ok(value.least)
    } else if value.most < at_target {
        Ok(value.most)
    } else {
        let most = if value.most.is_finite() { number_text(value.most).0 } else { "any number".to_owned() };
        Err(format!("some pods are not measured: it is between {} and {most}", number_text(value.least).0))
    }
}

fn nanos(value: f64) -> Nanos {
    // Numbers beyond the range of quantities are clamped.
    Nanos::new((value * 1e9).round() as i128)
}

fn lines(outcome: &TrackOutcome) -> Vec<String> {
    outcome.lines.iter().take(MAX_LINES).map(|line| line.to_string().chars().take(MAX_LINE).collect()).collect()
}

/// Metric of the alarm, if the number of replicas is not right: that with the largest proposal.
fn alarm(tracking: &TrackingRules, outcome: &TrackOutcome, replicas: i32) -> Option<String> {
    if outcome.replicas == replicas {
        return None;
    }
    let proposals = || outcome.metrics.iter().filter_map(|metric| Some((metric.replicas?, &metric.name)));
    let largest = proposals().map(|(number, _)| number).max();
    let decisive = proposals().find(|(number, _)| Some(*number) == largest).map(|(_, name)| name.clone());
    decisive.or_else(|| tracking.sources.first().map(|source| source.metric.clone()))
}

fn target_alarm(metric: String, since: MicroTime) -> AlarmState {
    AlarmState { metric, side: Side::Target, since, excess: None, unknown: false, held: false }
}

/// State of the condition `Tracking`: status, reason and message. Numbers are in [`TrackingState`], so that the
/// condition does not change with each pass.
pub(super) fn tracking_health(status: &MonitoringStatus) -> Option<(&'static str, LoopReason, String)> {
    let state = status.tracking.as_ref()?;
    if let Some(problem) = &state.problem {
        return Some(("False", LoopReason::TargetUnknown, problem.clone()));
    }
    let is = |reason: TrackReason| state.reason == reason.as_str();
    let (truth, reason, message) = if is(TrackReason::StoppedAtZero) {
        let message =
            "somebody else scaled the target to 0, so it stays there: scale it to 1 or more to start it again";
        ("False", LoopReason::StoppedAtZero, message)
    } else if is(TrackReason::MetricUnknown) {
        let message = "a metric is unknown and could ask for more replicas, so their number stays: see DataAvailable";
        ("False", LoopReason::UnknownValue, message)
    } else if is(TrackReason::AtMax) {
        ("True", LoopReason::AtMax, "the number of replicas is max, and the metrics ask for more")
    } else if is(TrackReason::AtMin) {
        ("True", LoopReason::AtMin, "the number of replicas is min, and the metrics ask for fewer")
    } else if is(TrackReason::Inactive) && state.wants == 0 {
        ("True", LoopReason::Inactive, "no metric is active: the target wakes when one is")
    } else {
        ("True", LoopReason::Tracking, "the number of replicas follows the metrics")
    };
    Some((truth, reason, message.to_owned()))
}

/// Time after which a changed memory is written, if nothing else is.
pub(super) fn memory_rest(
    after: &MonitoringStatus,
    written: &MonitoringStatus,
    interval: SignedDuration,
) -> Option<SignedDuration> {
    let memory = |status: &MonitoringStatus| status.tracking.as_ref().and_then(|state| state.memory.clone());
    (memory(after) != memory(written)).then_some(interval)
}
