//! The actions that the active alarms trigger, each with the alarms that trigger it.
//!
//! A combination has no state of its own: it is met or not by the alarms and unknown values of one status.

use jiff::Timestamp;

use super::alarm_action::AlarmAction;
use ganglion_api::closed_loop::metric::Side;
use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::closed_loop::when::{Alarm, When};
use ganglion_api::decision::Rejected;
use ganglion_api::monitoring::{AlarmState, MonitoringStatus};

/// An action that active alarms trigger, or an alarm without an action.
#[derive(Clone, Debug)]
pub struct AlarmCandidate<'a> {
    /// None: no action is declared for the alarm.
    pub(super) action: Option<&'a AlarmAction>,
    /// The alarm that is first in the order. The candidate ranks as this alarm.
    pub lead: &'a AlarmState,
    /// All alarms that trigger the action.
    pub alarms: Vec<&'a AlarmState>,
}

impl AlarmCandidate<'_> {
    /// The alarm or the combination of alarms.
    pub fn when(&self) -> When {
        let one = || When::One(Alarm { metric: self.lead.metric.clone(), side: self.lead.side });
        self.action.map_or_else(one, |action| action.when.clone())
    }

    /// Whether it is this alarm or combination of alarms.
    pub fn is(&self, when: &When) -> bool {
        match self.action {
            Some(action) => action.when == *when,
            None => when.one().is_some_and(|alarm| is_of(self.lead, alarm)),
        }
    }

    /// Whether the number of replicas follows a metric.
    pub fn is_target(&self) -> bool {
        self.lead.side == Side::Target
    }

    /// Whether one of the alarms is of this metric.
    pub fn is_about(&self, metric: &str) -> bool {
        self.alarms.iter().any(|alarm| alarm.metric == metric)
    }

    /// Whether the value of an alarm is unknown or assumed.
    pub fn is_unknown(&self) -> bool {
        self.alarms.iter().any(|alarm| alarm.unknown)
    }

    /// The values of the alarms that satisfy the test, for a message.
    pub fn values(&self, test: impl Fn(&AlarmState) -> bool) -> String {
        let is_combined = self.action.is_some_and(|action| action.when.one().is_none());
        let names = self.alarms.iter().filter(|alarm| test(alarm)).map(|alarm| alarm.metric.as_str());
        if is_combined { format!("the value of {}", names.collect::<Vec<_>>().join(", ")) } else { "its value".into() }
    }

    /// Whether each of the alarms triggers the action on its own.
    pub fn is_any(&self) -> bool {
        self.action.is_some_and(|action| matches!(action.when, When::Any(_)))
    }

    /// Order among candidates whose leads are equal: the more specific condition first.
    pub fn specificity(&self) -> u8 {
        match self.action.map(|action| &action.when) {
            Some(When::All(_)) => 0,
            Some(When::One(_)) | None => 1,
            Some(When::Any(_)) => 2,
        }
    }
}

/// Whether this is the state of the alarm.
pub fn is_of(state: &AlarmState, alarm: &Alarm) -> bool {
    state.metric == alarm.metric && state.side == alarm.side
}

/// Whether the alarm or combination of alarms is met by these alarms.
pub fn is_met(when: &When, alarms: &[AlarmState]) -> bool {
    when.is_met(|alarm| alarms.iter().any(|state| is_of(state, alarm)))
}

/// Returns the candidates of these alarms.
pub fn candidates<'a>(actions: &'a [AlarmAction], alarms: &'a [AlarmState]) -> Vec<AlarmCandidate<'a>> {
    let plain = alarms.iter().filter_map(|lead| {
        let action = actions.iter().find(|action| action.when.one().is_some_and(|alarm| is_of(lead, alarm)));
        // An alarm that is only part of combinations needs no action of its own.
        let is_needed = action.is_some() || !is_combined(actions, lead);
        is_needed.then(|| AlarmCandidate { action, lead, alarms: vec![lead] })
    });
    let combined = actions.iter().filter(|action| action.when.one().is_none()).filter_map(|action| {
        let triggers = triggers(&action.when, alarms);
        Some(AlarmCandidate { action: Some(action), lead: triggers.first()?, alarms: triggers })
    });
    plain.chain(combined).collect()
}

fn is_combined(actions: &[AlarmAction], state: &AlarmState) -> bool {
    let mut combined = actions.iter().filter(|action| action.when.one().is_none());
    combined.any(|action| action.when.alarms().iter().any(|alarm| is_of(state, alarm)))
}

/// Returns why each combination with some active alarms is not met.
pub fn partly_met(actions: &[AlarmAction], seen: &MonitoringStatus) -> Vec<Rejected> {
    let combined = actions.iter().map(|action| &action.when).filter(|when| matches!(when, When::All(_)));
    combined.filter_map(|when| rejection_of_unmet(when, seen)).collect()
}

/// Returns the alarms that trigger the action: all of them, or for `any` those whose values are known best. None of
/// them if the condition is not met.
fn triggers<'a>(when: &When, alarms: &'a [AlarmState]) -> Vec<&'a AlarmState> {
    if !is_met(when, alarms) {
        return Vec::new();
    }
    let mut active: Vec<&AlarmState> =
        when.alarms().iter().filter_map(|alarm| alarms.iter().find(|state| is_of(state, alarm))).collect();
    if matches!(when, When::Any(_)) {
        let doubt = |state: &AlarmState| (state.held, state.unknown);
        let least = active.iter().map(|state| doubt(state)).min();
        active.retain(|state| Some(doubt(state)) == least);
    }
    active
}

/// Returns since when the condition is met, or what is missing: since the last of its alarms is active, or for `any`,
/// the first of those that are still active.
pub fn met_since(when: &When, seen: &MonitoringStatus) -> Result<Timestamp, String> {
    let state = |alarm: &Alarm| seen.alarms.iter().find(|state| is_of(state, alarm));
    let active = when.alarms().iter().filter_map(state).map(|state| state.since.0);
    let since = if matches!(when, When::Any(_)) { active.min() } else { active.max() };
    since.filter(|_| is_met(when, &seen.alarms)).ok_or_else(|| {
        let missing = when.alarms().iter().filter(|alarm| state(alarm).is_none());
        let words = missing.map(|alarm| match has_no_value(&alarm.metric, seen) {
            true => format!("{} is unknown", alarm.metric),
            false => format!("{alarm} is not active"),
        });
        words.collect::<Vec<_>>().join(", ")
    })
}

/// Returns why the combination is not met although some of its alarms are active.
fn rejection_of_unmet(when: &When, seen: &MonitoringStatus) -> Option<Rejected> {
    let (active, missing): (Vec<&Alarm>, Vec<&Alarm>) =
        when.alarms().iter().partition(|alarm| seen.alarms.iter().any(|state| is_of(state, alarm)));
    let message = met_since(when, seen).err().filter(|_| !active.is_empty())?;
    let is_unknown = missing.iter().all(|alarm| has_no_value(&alarm.metric, seen));
    let reason = if is_unknown { LoopReason::UnknownValue } else { LoopReason::NotAllActive };
    Some(Rejected { when: when.clone(), reason, message })
}

/// Whether the metric has no value, not even an assumed one.
fn has_no_value(metric: &str, seen: &MonitoringStatus) -> bool {
    seen.unknown.iter().any(|unknown| unknown.metric == metric && unknown.assumed.is_none())
}
