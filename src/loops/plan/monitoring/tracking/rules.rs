//! The parsed actions on side Target.

use jiff::{SignedDuration, Timestamp};

use crate::common::{FieldError, action_field, duration};
use crate::forecast::ForecastRules;
use crate::schedule::{self, Calendar};
use crate::track::{
    Nanos, PolicySelect, RateChange, RatePolicy, ScalePace, ScaleRules, Tolerances, TrackRules, TrackTarget,
};
use ganglion_api::closed_loop::action::{LoopAction, Scale};
use ganglion_api::closed_loop::metric::Metric;
use ganglion_api::closed_loop::track::{DirectionPace, PaceSelect, ScheduledBounds, Track, TrackType};
use ganglion_api::closed_loop::when::Alarm;
use ganglion_api::monitoring::MonitoringSpec;
use ganglion_api::scalars::Number;
use ganglion_core::duration::show;

/// Cooldown if the spec does not set it, as in KEDA.
const COOLDOWN: SignedDuration = SignedDuration::from_mins(5);

/// Longest cooldown.
const MAX_COOLDOWN: SignedDuration = SignedDuration::from_hours(24);

/// The parsed actions on side Target of a loop.
#[derive(Clone, Debug)]
pub struct TrackingRules {
    /// The actions from which the rules were parsed.
    actions: Vec<LoopAction>,
    pub(in crate::monitoring) sources: Vec<TrackedSource>,
    rules: TrackRules,
    /// None: no forecast.
    pub forecast: Option<ForecastRules>,
    schedule: Vec<ScheduleEntry>,
}

/// A metric with the parsed target of its action.
#[derive(Clone, Debug)]
pub(in crate::monitoring) struct TrackedSource {
    pub metric: String,
    /// None: only the schedule sets the number.
    pub target: Option<TrackTarget>,
    pub tolerances: Tolerances,
    pub activation: Nanos,
    pub at_zero: Option<Nanos>,
    /// Windows in which the metric counts.
    pub windows: Vec<Calendar>,
    /// The source has a value for each pod.
    pub is_of_pods: bool,
}

#[derive(Clone, Debug)]
struct ScheduleEntry {
    window: Calendar,
    bounds: ScheduledBounds,
}

/// The same actions have the same rules.
impl PartialEq for TrackingRules {
    fn eq(&self, other: &Self) -> bool {
        self.actions == other.actions
    }
}

impl TrackingRules {
    /// Parses the actions; None if no action is on side Target.
    pub fn parse(spec: &MonitoringSpec) -> Result<Option<Self>, FieldError> {
        let Some(first) = spec.tracking.first() else { return Ok(None) };
        let scale = scale_of(first)?;
        let field = format!("{}.ladder[0].scale", action_field(&first.when));
        let mut sources = Vec::new();
        for action in &spec.tracking {
            let (other, own) = (scale_of(action)?, action_field(&action.when));
            if pace_of(other) != pace_of(scale) {
                let problem = "min, max, up, down, cooldown, forecast and schedule must be the same in all actions on side \
                    Target: there is one number of replicas";
                return Err(FieldError::new(format!("{own}.ladder[0].scale"), problem));
            }
            sources.push(source(spec, action, other)?);
        }
        let rules = TrackRules {
            min: scale.min.unwrap_or(1),
            max: scale.max.unwrap_or(0),
            pace: pace(&field, scale)?,
            cooldown: Some(cooldown(&field, scale)?),
        };
        rules.check().map_err(|problem| FieldError::new(&*field, problem))?;
        if rules.min == 0 && sources.iter().all(|one| one.is_of_pods) {
            let problem = "with min 0, one metric must have a value without pods, such as the length of a queue: nothing else \
                could wake the target";
            return Err(FieldError::new(format!("{field}.min"), problem));
        }
        let entries = scale.schedule.iter().flatten().enumerate().map(|(index, bounds)| {
            let window = Calendar::parse(&format!("{field}.schedule[{index}].during"), &bounds.during)?;
            Ok(ScheduleEntry { window, bounds: bounds.clone() })
        });
        let schedule = entries.collect::<Result<_, FieldError>>()?;
        let forecast = forecast(spec, &format!("{field}.forecast"), scale)?;
        Ok(Some(Self { actions: spec.tracking.clone(), sources, rules, forecast, schedule }))
    }

    /// Whether an action on side Target uses this metric.
    pub fn tracks(&self, metric: &str) -> bool {
        self.sources.iter().any(|one| one.metric == metric)
    }

    /// The rules at this time: those of the first open entry of the schedule.
    pub fn at(&self, now: Timestamp) -> TrackRules {
        let open = self.schedule.iter().find(|entry| entry.window.phase(now).open);
        let (min, max) = open.map_or((self.rules.min, self.rules.max), |entry| self.bounds(&entry.bounds));
        TrackRules { min, max, ..self.rules.clone() }
    }

    fn bounds(&self, entry: &ScheduledBounds) -> (i32, i32) {
        let TrackRules { min, max, .. } = self.rules;
        match (entry.to, entry.min, entry.max) {
            (Some(to), _, _) => (to, to),
            (None, Some(low), Some(high)) => (low, high),
            (None, Some(low), None) => (low, max.max(low)),
            (None, None, Some(high)) => (min.min(high), high),
            (None, None, None) => (min, max),
        }
    }
}

/// The rung of an action on side Target.
fn scale_of(action: &LoopAction) -> Result<&Scale, FieldError> {
    match action.ladder.as_slice() {
        [rung] if rung.scale.as_ref().is_some_and(Scale::is_tracking) => rung.scale.as_ref(),
        _ => None,
    }
    .ok_or_else(|| {
        let problem = "an action on side Target has exactly one rung, scale with track or schedule";
        FieldError::new(format!("{}.ladder", action_field(&action.when)), problem)
    })
}

/// The parts of a rung that all actions on side Target share.
fn pace_of(scale: &Scale) -> impl PartialEq + '_ {
    (scale.min, scale.max, &scale.up, &scale.down, &scale.cooldown, &scale.forecast, &scale.schedule)
}

fn source(spec: &MonitoringSpec, action: &LoopAction, scale: &Scale) -> Result<TrackedSource, FieldError> {
    let own = action_field(&action.when);
    let field = format!("{own}.ladder[0].scale.track");
    let Some(Alarm { metric, .. }) = action.when.one() else {
        return Err(FieldError::new(format!("{own}.when"), "a combination of alarms has no target"));
    };
    let Some(declared) = spec.metrics.iter().find(|one| one.name == *metric) else {
        return Err(FieldError::new(format!("{own}.when.metric"), format!("{metric} is no metric of this loop")));
    };
    let windows = schedule::parse(&format!("{own}.during"), action.during.as_ref())?;
    let Some(track) = &scale.track else {
        let (tolerances, activation) = (Tolerances::default(), Nanos::ZERO);
        let (metric, is_of_pods) = (metric.clone(), false);
        return Ok(TrackedSource { metric, target: None, tolerances, activation, at_zero: None, windows, is_of_pods });
    };
    let nanos = |name: &str, number: &Option<Number>| {
        let parsed = number.as_ref().map(|number| Nanos::parse(number.as_str()));
        parsed.transpose().map_err(|error| FieldError::new(format!("{field}.{name}"), error))
    };
    let given = track.tolerance.clone().unwrap_or_default();
    let default = Tolerances::default();
    let tolerances = Tolerances {
        up: nanos("tolerance.up", &given.up)?.unwrap_or(default.up),
        down: nanos("tolerance.down", &given.down)?.unwrap_or(default.down),
    };
    tolerances.check().map_err(|problem| FieldError::new(format!("{field}.tolerance"), problem))?;
    Ok(TrackedSource {
        metric: metric.clone(),
        target: Some(target(&field, track, declared)?),
        tolerances,
        activation: nanos("activation", &track.activation)?.unwrap_or(Nanos::ZERO),
        at_zero: nanos("atZero", &track.at_zero)?,
        windows,
        is_of_pods: is_of_pods(declared),
    })
}

/// Whether the source of the metric has a value for each pod.
pub fn is_of_pods(metric: &Metric) -> bool {
    metric.source.resource.is_some() || metric.source.custom.as_ref().is_some_and(|custom| custom.pods.is_some())
}

fn target(field: &str, track: &Track, metric: &Metric) -> Result<TrackTarget, FieldError> {
    let fail = |name: &str, problem: &dyn std::fmt::Display| Err(FieldError::new(format!("{field}.{name}"), problem));
    let usage = metric.source.resource.as_ref().and_then(|source| source.pod_labels.as_ref());
    let pods = metric.source.custom.as_ref().and_then(|custom| custom.pods.as_ref()?.pod_labels.as_ref());
    if usage.or(pods).is_some() {
        let problem =
            "its metric selects pods by podLabels, and tracking needs the target's own pods: remove podLabels";
        return fail("type", &problem);
    }
    if track.type_ == TrackType::Utilization && metric.source.resource.is_none() {
        return fail("type", &"Utilization is for the source resource: use AverageValue or Value");
    }
    if track.type_ == TrackType::Value && is_of_pods(metric) {
        return fail(
            "type",
            &"the source has a value for each pod, and no Value: use AverageValue, or Utilization of usage",
        );
    }
    let text = track.target.as_str();
    let parsed = match track.type_ {
        TrackType::Utilization => match text.parse() {
            Ok(percent) => TrackTarget::utilization(percent),
            Err(_) => return fail("target", &format!("{text} is no whole number of percent, such as 60")),
        },
        TrackType::AverageValue | TrackType::Value => match Nanos::parse(text) {
            Ok(number) if track.type_ == TrackType::Value => TrackTarget::value(number),
            Ok(number) => TrackTarget::average_value(number),
            Err(error) => return fail("target", &error),
        },
    };
    parsed.or_else(|problem| fail("target", &problem))
}

fn forecast(spec: &MonitoringSpec, field: &str, scale: &Scale) -> Result<Option<ForecastRules>, FieldError> {
    let Some(given) = &scale.forecast else { return Ok(None) };
    let parsed = |name: &str, text| duration(&format!("{field}.{name}"), Some(text));
    let rules = ForecastRules { ahead: parsed("ahead", &given.ahead)?, season: parsed("season", &given.season)? };
    let bucket = rules.bucket().map_err(|problem| FieldError::new(field, problem))?;
    let interval = duration("interval", spec.interval.as_ref())?;
    if interval > bucket {
        let problem = format!(
            "the loop's interval is {}, and the forecast needs a value each {}: use a shorter interval, or a longer season",
            show(interval),
            show(bucket)
        );
        return Err(FieldError::new(field, problem));
    }
    Ok(Some(rules))
}

fn cooldown(field: &str, scale: &Scale) -> Result<SignedDuration, FieldError> {
    let Some(text) = &scale.cooldown else { return Ok(COOLDOWN) };
    let field = format!("{field}.cooldown");
    let cooldown = duration(&field, Some(text))?;
    if cooldown > MAX_COOLDOWN { Err(FieldError::new(field, "use at most 24h")) } else { Ok(cooldown) }
}

/// The pace of the rung. Without `up` and `down`, it is that of a HorizontalPodAutoscaler without `behavior`.
fn pace(field: &str, scale: &Scale) -> Result<ScalePace, FieldError> {
    if scale.up.is_none() && scale.down.is_none() {
        return Ok(ScalePace::default());
    }
    let direction = |name: &str, given: &Option<DirectionPace>, default: ScaleRules| {
        given.as_ref().map(|given| scale_rules(&format!("{field}.{name}"), given, default)).transpose()
    };
    let up = direction("up", &scale.up, ScaleRules::default_up())?;
    Ok(ScalePace::rules(up, direction("down", &scale.down, ScaleRules::default_down())?))
}

fn scale_rules(field: &str, given: &DirectionPace, default: ScaleRules) -> Result<ScaleRules, FieldError> {
    let window = given.window.as_ref().map(|window| duration(&format!("{field}.window"), Some(window))).transpose()?;
    let mut policies = Vec::new();
    for (index, policy) in given.policies.iter().flatten().enumerate() {
        let period = duration(&format!("{field}.policies[{index}].per"), Some(&policy.per))?;
        let number = |number: i32| u32::try_from(number).unwrap_or(0);
        let change = match (policy.pods, policy.percent) {
            (Some(pods), None) => RateChange::Pods(number(pods)),
            (None, Some(percent)) => RateChange::Percent(number(percent)),
            _ => {
                return Err(FieldError::new(format!("{field}.policies[{index}]"), "set exactly one of pods, percent"));
            }
        };
        policies.push(RatePolicy { change, period });
    }
    Ok(ScaleRules {
        window: window.unwrap_or(default.window),
        policies: if policies.is_empty() { default.policies } else { policies },
        select: match given.select.unwrap_or_default() {
            PaceSelect::Max => PolicySelect::Max,
            PaceSelect::Min => PolicySelect::Min,
            PaceSelect::Disabled => PolicySelect::Disabled,
        },
    })
}
