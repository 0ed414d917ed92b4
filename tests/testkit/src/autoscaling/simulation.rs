//! One target whose number of replicas follows a load.
//!
//! The metric is a total with a target for each replica, such as requests per second: it does not depend on the number
//! of replicas. A new replica serves after its start-up time; one that is removed ends at once, the youngest first.

use std::collections::VecDeque;

use ganglion_loops_plan::forecast::{ForecastMemory, ForecastRuleError, ForecastRules, ForecastTrust};
use ganglion_loops_plan::track::{
    Nanos, ScalePace, Tolerances, TrackInput, TrackMemory, TrackPass, TrackRules, TrackTarget, TrackedMetric,
    ZeroOrigin, decide,
};
use jiff::Timestamp;

use super::load::{DemandSeries, STEP_SECONDS};
use super::provisioning::Provisioning;

/// Midnight at which simulations begin, in seconds since 1970.
const BEGIN: i64 = 1_800_057_600;

/// Rules of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct ScalingRules {
    pub forecast: Option<ForecastRules>,
    /// Whether load above the target is tolerated up to 10 %, as by default.
    pub is_tolerant: bool,
    /// Time from the request of a replica until it serves, in seconds.
    pub start_up: i64,
}

/// Replicas of the target.
struct SimulatedReplicas {
    requested: i32,
    /// Replicas that start, with the step from which on they serve, oldest first.
    starting: VecDeque<(usize, i32)>,
}

impl SimulatedReplicas {
    fn ready(&mut self, step: usize) -> i32 {
        while self.starting.front().is_some_and(|(from, _)| *from <= step) {
            self.starting.pop_front();
        }
        self.requested - self.starting.iter().map(|(_, number)| number).sum::<i32>()
    }

    fn scale(&mut self, replicas: i32, from: usize) {
        let mut surplus = self.requested - replicas;
        if surplus < 0 {
            self.starting.push_back((from, -surplus));
        }
        while surplus > 0
            && let Some((from, number)) = self.starting.pop_back()
        {
            if number > surplus {
                self.starting.push_back((from, number - surplus));
            }
            surplus -= number.min(surplus);
        }
        self.requested = replicas;
    }
}

/// Metric with this demand, in replicas.
fn metric(demand: Option<f64>, tolerances: &Tolerances) -> TrackedMetric {
    let input = match demand {
        Some(demand) => TrackInput::Total { value: Nanos::new((demand * 1e9) as i128), ready_pods: 0 },
        None => TrackInput::Unknown("the load has a gap".to_owned()),
    };
    let target = TrackTarget::AverageValue(Nanos::from_whole(1));
    TrackedMetric { tolerances: tolerances.clone(), ..TrackedMetric::new("load", target, input) }
}

/// Follows a load with these rules.
pub fn simulate(load: &DemandSeries, rules: ScalingRules) -> Result<Provisioning, ForecastRuleError> {
    let begin = Timestamp::from_second(BEGIN).unwrap_or_default();
    let up = if rules.is_tolerant { Tolerances::default().up } else { Nanos::ZERO };
    let tolerances = Tolerances { up, ..Tolerances::default() };
    let track = TrackRules { min: 1, max: 100_000, pace: ScalePace::default(), cooldown: None };
    let mut memory = TrackMemory::default();
    let mut forecasts = rules.forecast.map(|forecast| ForecastMemory::new(&forecast, begin)).transpose()?;
    let first = load.steps.iter().flatten().next().copied().unwrap_or(1.0);
    let mut replicas = SimulatedReplicas { requested: (first.ceil() as i32).max(1), starting: VecDeque::new() };
    let mut provisioning = Provisioning::default();
    let start_up = usize::try_from(rules.start_up / STEP_SECONDS).unwrap_or(0);
    for (step, (second, demand)) in (BEGIN..).step_by(STEP_SECONDS as usize).zip(&load.steps).enumerate() {
        let now = Timestamp::from_second(second).unwrap_or(begin);
        let forecast = forecasts.as_mut().map(|memory| {
            memory.record(*demand, now);
            memory.forecast(now)
        });
        let metrics = [metric(*demand, &tolerances)];
        let current = replicas.requested;
        let forecast = forecast.as_ref();
        let pass = TrackPass { replicas: current, metrics: &metrics, zero: ZeroOrigin::Own, now, forecast };
        let desired = decide(&track, &mut memory, &pass).replicas;
        memory.record_change(current, desired, now);
        replicas.scale(desired, step + start_up);
        let ready = replicas.ready(step);
        if let Some(demand) = demand {
            let is_trusted = forecast.is_some_and(|forecast| matches!(forecast.trust, ForecastTrust::Trusted(_)));
            provisioning.add(*demand, ready, replicas.requested, is_trusted);
        }
    }
    Ok(provisioning)
}
