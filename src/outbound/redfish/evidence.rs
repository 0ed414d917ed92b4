//! Weighs the evidence for the intake sensor: the only place that decides which sensor is read.
//!
//! Each witness speaks for a sensor by itself: a mark of the standard, its name, and its upper threshold. A sensor is
//! chosen if no witness prefers another one. A sensor that contradicts itself is not chosen. If it has better evidence
//! than all others in one respect, none is chosen, and the user is asked.

use std::fmt;

use super::SensorPaths;
use super::document::SensorPath;
use super::names::NameMeaning;
use super::sensor::{Mark, Sensor, SensorContext};

/// Upper critical thresholds of sensors in the intake air, in degrees Celsius. In trees of many vendors every sensor
/// with such a threshold is at the inlet.
const AIR: std::ops::RangeInclusive<f64> = 30.0..=50.0;

/// Upper critical threshold in degrees Celsius from which a sensor is not in the intake air, unless two other witnesses
/// say so.
const COMPONENT: f64 = 70.0;

/// Why a sensor is not chosen although a witness speaks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// Its name or its mark is that of a component.
    Component,
    /// Most sensors of the chassis have the same mark.
    CommonMark,
    /// Its threshold is that of a component.
    Threshold,
}

/// A sensor and what speaks for and against it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub sensor: Sensor,
    mark: Mark,
    name: NameMeaning,
    is_air: bool,
    doubt: Option<Doubt>,
}

impl Candidate {
    /// Evidence for the temperature sensors of one chassis.
    pub(super) fn of_chassis(sensors: Vec<Sensor>) -> Vec<Self> {
        let sensors: Vec<Sensor> = sensors.into_iter().filter(Sensor::is_temperature).collect();
        // Some firmware marks every sensor. Absent sensors count, since they show this just as well.
        let marked = sensors.iter().filter(|sensor| sensor.mark == Mark::Intake).count();
        let is_common = sensors.len() > 1 && marked * 2 > sensors.len();
        sensors.into_iter().map(|sensor| Self::new(sensor, is_common)).collect()
    }

    fn new(sensor: Sensor, is_common: bool) -> Self {
        let is_mark_common = is_common && sensor.mark == Mark::Intake;
        let mark = if is_mark_common { Mark::None } else { sensor.mark };
        let (name, is_air) = (sensor.meaning(), sensor.critical.is_some_and(|critical| AIR.contains(&critical)));
        let mut candidate = Self { mark, name, is_air, doubt: None, sensor };
        let is_component = name == NameMeaning::Component || candidate.sensor.context == SensorContext::Component;
        let is_warm = candidate.sensor.critical.is_some_and(|critical| critical >= COMPONENT);
        candidate.doubt = match candidate.count() {
            _ if is_component => Some(Doubt::Component),
            0 | 1 if is_warm => Some(Doubt::Threshold),
            0 if is_mark_common => Some(Doubt::CommonMark),
            _ => None,
        };
        candidate
    }

    /// Degree of each witness.
    fn degrees(&self) -> [u8; 3] {
        let mark = match self.mark {
            Mark::None => 0,
            Mark::Intake => 1,
            Mark::Summary => 2,
        };
        let name = match self.name {
            NameMeaning::Component | NameMeaning::Nothing | NameMeaning::Board => 0,
            NameMeaning::Front => 1,
            NameMeaning::Inlet => 2,
        };
        [mark, name, u8::from(self.is_air)]
    }

    /// Number of witnesses.
    fn count(&self) -> usize {
        self.degrees().into_iter().filter(|degree| *degree > 0).count()
    }

    /// Whether the sensor may be the intake sensor. A threshold is a second witness only.
    pub(super) fn is_claimed(&self) -> bool {
        let [mark, name, _] = self.degrees();
        mark > 0 || name > 0 || self.doubt == Some(Doubt::CommonMark)
    }

    /// Whether no witness prefers the other sensor.
    fn includes(&self, other: &Self) -> bool {
        self.degrees().iter().zip(other.degrees()).all(|(own, other)| *own >= other)
    }

    fn surpasses(&self, other: &Self) -> bool {
        self.includes(other) && !other.includes(self)
    }

    /// Whether the evidence suffices if other parts of the machine could not be read.
    pub(super) fn is_certain(&self) -> bool {
        self.count() > 1 || self.name == NameMeaning::Inlet || self.mark == Mark::Summary
    }

    /// Whether the user may mean this sensor if there is no likely one.
    pub(super) fn is_possible(&self) -> bool {
        self.sensor.is_present && self.doubt != Some(Doubt::Component)
    }

    /// Whether its threshold is not that of the intake air.
    fn is_elsewhere(&self) -> bool {
        self.sensor.critical.is_some() && !self.is_air
    }

    /// Whether the user may mean this sensor: something speaks for it, or it measures the machine as a whole.
    pub(super) fn is_likely(&self) -> bool {
        let is_component = matches!(self.doubt, Some(Doubt::Component | Doubt::Threshold));
        let speaks = self.is_claimed() || self.is_air || self.sensor.names_a_place();
        self.sensor.is_present && (self.name == NameMeaning::Board || speaks && !is_component)
    }
}

/// Lists the witnesses.
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.mark {
            Mark::None => None,
            Mark::Intake => Some("PhysicalContext is Intake"),
            Mark::Summary => Some("ThermalMetrics names it as the intake"),
        };
        let name = match self.name {
            NameMeaning::Component | NameMeaning::Nothing => None,
            NameMeaning::Board => Some("its name means the whole machine"),
            NameMeaning::Front => Some("its name means the front"),
            NameMeaning::Inlet => Some("its name means the inlet"),
        };
        let limit = self.sensor.critical.filter(|_| self.is_air).map(|limit| format!("critical above {limit} °C"));
        let doubt = match self.doubt {
            None => None,
            Some(Doubt::Component) => Some("but it belongs to a component"),
            Some(Doubt::CommonMark) => Some("but most sensors have the mark Intake"),
            Some(Doubt::Threshold) => Some("but its threshold is that of a component"),
        };
        let absent = (!self.sensor.is_present).then_some("but it is absent");
        let words = [mark, name, limit.as_deref(), doubt, absent];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// Result of weighing.
#[derive(Debug)]
pub(super) enum SensorVerdict {
    /// Nothing speaks for any sensor.
    Nothing,
    /// Something speaks for sensors that are absent or contradict themselves.
    Unusable,
    /// Equally good or contradictory sensors.
    Ambiguous(SensorPaths),
    Chosen(Box<ChosenSensor>),
}

/// ChosenSensor sensor, and what else was possible.
#[derive(Debug)]
pub(super) struct ChosenSensor {
    pub best: Candidate,
    /// The next best sensor, even if it is absent or contradicts itself.
    pub runner_up: Option<Candidate>,
    /// A sensor with better evidence is absent at the moment.
    pub is_better_absent: bool,
}

/// Chooses the intake sensor. Sensors without a reading count: they may have one at the next poll.
pub(super) fn weigh(all: &[Candidate]) -> SensorVerdict {
    let claimed: Vec<&Candidate> = all.iter().filter(|candidate| candidate.is_claimed()).collect();
    let present: Vec<&Candidate> = claimed.iter().copied().filter(|candidate| candidate.sensor.is_present).collect();
    let sound: Vec<&Candidate> = present.iter().copied().filter(|candidate| candidate.doubt.is_none()).collect();
    let is_same = |one: &Candidate, other: &Candidate| std::ptr::eq(one, other);
    // The summary is the chassis' own answer to the question.
    let is_only_summary = |candidate: &Candidate| {
        candidate.mark == Mark::Summary && sound.iter().filter(|other| other.mark == Mark::Summary).count() == 1
    };
    let best = sound.iter().copied().find(|best| {
        let beats = |other: &&Candidate| is_same(best, other) || is_only_summary(best) || best.surpasses(other);
        let doubtful = present.iter().filter(|other| other.doubt.is_some());
        sound.iter().all(beats) && doubtful.into_iter().all(|other| best.mark == Mark::Summary || best.includes(other))
    });
    let Some(best) = best else {
        if claimed.is_empty() {
            return SensorVerdict::Nothing;
        }
        // A sensor for which only its threshold speaks is not chosen, but it may be the answer.
        let is_rival = |one: &Candidate| match one.doubt {
            Some(_) if !sound.is_empty() => one.is_claimed() && sound.iter().any(|sound| !sound.includes(one)),
            _ => one.is_likely(),
        };
        let rivals = all.iter().filter(|one| one.sensor.is_present && is_rival(one));
        let paths: Vec<SensorPath> = rivals.map(|one| one.sensor.path.clone()).collect();
        return if paths.len() > 1 { SensorVerdict::Ambiguous(SensorPaths(paths)) } else { SensorVerdict::Unusable };
    };
    let others = claimed.iter().copied().filter(|other| !is_same(best, other));
    let is_better = |other: &&Candidate| !other.sensor.is_present && other.doubt.is_none() && !best.includes(other);
    let is_better_absent = others.clone().any(|other| is_better(&other));
    // The sensor of another place does not replace the absent one.
    if is_better_absent && best.is_elsewhere() {
        return SensorVerdict::Unusable;
    }
    let runner_up = others.max_by_key(|other| other.degrees().iter().sum::<u8>()).cloned();
    SensorVerdict::Chosen(Box::new(ChosenSensor { best: best.clone(), runner_up, is_better_absent }))
}
