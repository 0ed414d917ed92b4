//! Windows, rates and bounds, with a memory of its own: plain lists.

use super::super::case::CaseRules;
use super::{NamedDifference as D, Switches};

/// The stages after the metrics.
#[derive(Clone, Debug, Default)]
pub struct PaceModel {
    /// Times in milliseconds, and numbers.
    pub proposals: Vec<(i64, i32)>,
    /// Times in milliseconds; positive for raises.
    pub changes: Vec<(i64, i32)>,
    /// The same as HorizontalPodAutoscaler has them: raises, and lowerings. A new change takes the place of one that is
    /// older than all periods of its own direction, although the other direction may still count it.
    slots: [Vec<(i64, i32)>; 2],
}

/// Input of the stages after the metrics.
pub struct PaceInput<'a> {
    pub rules: &'a CaseRules,
    pub replicas: i32,
    pub now: i64,
    pub own_zero: bool,
    /// Combined proposal; None if metrics are unknown.
    pub raw: Option<i32>,
    pub switches: &'a Switches,
}

impl PaceModel {
    pub fn record_change(&mut self, rules: &CaseRules, now: i64, by: i32) {
        self.changes.push((now, by));
        let behavior = rules.behavior.clone().unwrap_or_default();
        let direction = if by > 0 { behavior.up } else { behavior.down };
        let given = direction.and_then(|direction| direction.policies);
        let longest = given.map_or(Some(15), |policies| policies.iter().map(|policy| policy.period).max()).unwrap_or(0);
        let slots = &mut self.slots[usize::from(by < 0)];
        match slots.iter_mut().rev().find(|(at, _)| *at < now - longest * 1000) {
            Some(slot) => *slot = (now, by),
            None => slots.push((now, by)),
        }
    }

    /// The next number, and whether the proposal is recorded.
    pub fn result(&self, input: &PaceInput) -> (i32, bool) {
        let PaceInput { rules, replicas, raw, switches, .. } = *input;
        if replicas == 0 && !input.own_zero {
            return (0, false);
        }
        if replicas > rules.max {
            return (rules.max, false);
        }
        if replicas != 0 && replicas < rules.min {
            return (rules.min, false);
        }
        let Some(raw) = raw else {
            let result = if replicas == 0 && !switches.contains(&D::ZeroNeedsMetric) { rules.min } else { replicas };
            return (result, false);
        };
        let result = if rules.behavior.is_some() { self.with_rules(input, raw) } else { self.per_pass(input, raw) };
        (result.clamp(rules.min, rules.max), true)
    }

    fn per_pass(&self, input: &PaceInput, raw: i32) -> i32 {
        let recent = self.proposals.iter().filter(|(at, _)| *at >= input.now - 300_000).map(|(_, number)| *number);
        let highest = recent.max().unwrap_or(raw).max(raw);
        let held = if input.switches.contains(&D::WindowRaises) {
            highest
        } else if raw < input.replicas {
            raw.max(highest.min(input.replicas))
        } else {
            raw
        };
        held.min((2 * input.replicas).max(4))
    }

    fn with_rules(&self, input: &PaceInput, raw: i32) -> i32 {
        let behavior = input.rules.behavior.clone().unwrap_or_default();
        let (up, down) = (behavior.up.unwrap_or_default(), behavior.down.unwrap_or_default());
        let since = |window: i64| {
            self.proposals.iter().filter(move |(at, _)| *at > input.now - window * 1000).map(|(_, number)| *number)
        };
        let lowest = since(up.window.unwrap_or(0)).min().unwrap_or(raw).min(raw);
        let highest = since(down.window.unwrap_or(300)).max().unwrap_or(raw).max(raw);
        let held = input.replicas.max(lowest).min(highest);
        let (direction, raises) = if held > input.replicas { (up, true) } else { (down, false) };
        if held == input.replicas || direction.select == Some("Disabled") {
            return input.replicas;
        }
        let default: &[(bool, u32, i64)] = if raises { &[(false, 4, 15), (true, 100, 15)] } else { &[(true, 100, 15)] };
        let given = direction.policies.map(|policies| {
            policies.iter().map(|policy| (policy.is_percent, policy.value, policy.period)).collect::<Vec<_>>()
        });
        let policies = given.unwrap_or_else(|| default.to_vec());
        let limits = policies.iter().map(|(is_percent, value, period)| {
            let changes: Vec<&(i64, i32)> = if input.switches.contains(&D::ForgottenChanges) {
                self.slots.iter().flatten().collect()
            } else {
                self.changes.iter().collect()
            };
            let recent = changes.iter().filter(|(at, _)| *at > input.now - period * 1000);
            let changed: i32 = recent.map(|(_, by)| by).sum();
            self.policy_limit(input, raises, *is_percent, *value, input.replicas - changed)
        });
        let is_highest = (direction.select != Some("Min")) == raises;
        let limit = if is_highest { limits.max() } else { limits.min() };
        let limit = limit.unwrap_or(input.replicas);
        if raises { held.min(limit.max(input.replicas)) } else { held.max(limit.min(input.replicas)) }
    }

    fn policy_limit(&self, input: &PaceInput, raises: bool, is_percent: bool, value: u32, start: i32) -> i32 {
        let value = value as i32;
        if !is_percent {
            return if raises { start + value } else { start - value };
        }
        if raises && start == 0 && !input.switches.contains(&D::PercentOfNothing) {
            return 1;
        }
        if input.switches.contains(&D::FloatRates) {
            let share = f64::from(value) / 100.0;
            let (up, down) = (f64::from(start) * (1.0 + share), f64::from(start) * (1.0 - share));
            return if raises { up.ceil() as i32 } else { down as i32 };
        }
        let hundredths = if raises { start * (100 + value) } else { start * (100 - value) };
        if raises { -(-hundredths).div_euclid(100) } else { hundredths / 100 }
    }
}
