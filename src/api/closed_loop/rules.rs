//! CEL rules that compare parts of a loop's spec. Each message names the item that breaks the rule.
//!
//! When a CRD is applied, the API server estimates the maximum cost of each expression, messages included. The limit is
//! 10000000 per expression. `+` and `join` cost the length of the texts that they read. The length of `string(1)`, and
//! of texts in a list made by `map` or `filter`, is unknown to the estimate; such an expression is rejected. `format`
//! costs only the length of its pattern.
//!
//! The oldest supported API server is 1.30: it lacks macros with two variables (1.32) and `first()` (1.34). kube's
//! evaluator, which the tests use, lacks `dyn()`: all arguments of a `format` must have the same type.

use kube::core::{Message, Rule};

/// Names of all metrics, as text.
const KNOWN: &str = "'%s'.format([self.metrics.map(m, m.name)])";

/// Each metric of the rank exists.
pub fn rank() -> Rule {
    each("policy.rank", "n", &exists("n"), &unknown("policy.rank[%s]", "string(self.policy.rank.indexOf(n))", "n"))
}

/// Each metric with a weight exists.
pub fn weights() -> Rule {
    each("policy.weights", "n", &exists("n"), &unknown("policy.weights[%s]", "n", "n"))
}

/// The metric of each tunable level exists.
pub fn thresholds() -> Rule {
    let metric = "t.path.split('.')[0]";
    let index = "string(self.tunable.thresholds.indexOf(t))";
    let good = "self.metrics.exists(m, t.path.startsWith(m.name + '.'))";
    each("tunable.thresholds", "t", good, &unknown("tunable.thresholds[%s]", index, metric))
}

/// Each metric has an alarm or is tracked, or a formula has its name. A part of a longer name counts, too: the operator
/// reads formulas and finds the rest.
pub fn needed_metrics() -> Rule {
    let alarm = "has(m.low) || has(m.high) || has(m.equal) || has(m.missing) && has(m.missing.then) && m.missing.then == 'Alarm'";
    let operand = "self.metrics.exists(f, has(f.source.formula) && f.source.formula.expression.contains(m.name))";
    let tracked = "has(self.actions) && self.actions.exists(a, a.when.side == 'Target' && a.when.metric == m.name)";
    let message = "'metrics[%s]: metric \"%s\" raises no alarm, and no formula or action on side Target uses it: set at least one of \
                   low, high, equal, or missing with then: Alarm'.format([string(self.metrics.indexOf(m)), m.name])";
    each("metrics", "m", &format!("{alarm} || {operand} || {tracked}"), message)
}

/// The metric of each action exists.
pub fn action_metrics() -> Rule {
    let message = unknown("actions[%s]", "string(self.actions.indexOf(a))", "a.when.metric");
    each("actions", "a", &exists("a.when.metric"), &message)
}

/// The metric of each action, if it exists, can raise the alarm.
pub fn action_sides() -> Rule {
    let level = "a.when.side == 'Low' ? has(m.low) : a.when.side == 'High' ? has(m.high) : a.when.side == 'Equal' ? has(m.equal) \
                 : a.when.side == 'Target' || has(m.missing) && has(m.missing.then) && m.missing.then == 'Alarm'";
    let needs = "a.when.side == 'Missing' ? 'missing with then: Alarm' : a.when.side.lowerAscii()";
    let message = format!(
        "'actions[%s]: metric \"%s\" has no alarm on side %s: it needs %s'\
         .format([string(self.actions.indexOf(a)), a.when.metric, a.when.side, {needs}])"
    );
    each("actions", "a", &format!("self.metrics.all(m, m.name != a.when.metric || ({level}))"), &message)
}

/// No two actions are on the same alarm.
pub fn one_action_an_alarm() -> Rule {
    let good = "self.actions.exists_one(b, b.when.metric == a.when.metric && b.when.side == a.when.side)";
    let alarms = "self.actions.map(b, b.when)";
    let message = format!(
        "'actions[%s] and actions[%s] are both on side %s of metric \"%s\"; give one of them a longer ladder instead'\
         .format([string({alarms}.indexOf(a.when)), string({alarms}.lastIndexOf(a.when)), a.when.side, a.when.metric])"
    );
    each("actions", "a", good, &message)
}

/// An action on a ClosedLoop must be tune (or webhook), and tune requires a ClosedLoop as target.
pub fn tuned_target() -> Rule {
    let good = "has(r.webhook) || has(r.tune) == (self.target.kind == 'ClosedLoop')";
    let problem = "has(r.tune) ? 'tune is for a target that is a ClosedLoop, and the target is a %s'.format([self.target.kind]) \
                   : 'the target is a ClosedLoop, which can only be tuned'";
    let message = format!(
        "a.ladder.map(r, !({good}), 'actions[%s].ladder[%s]: %s'\
         .format([string(self.actions.indexOf(a)), string(a.ladder.indexOf(r)), {problem}]))[0]"
    );
    each("actions", "a", &format!("a.ladder.all(r, {good})"), &message)
}

/// A source `loop` names its loop, unless the target is a ClosedLoop.
pub fn named_source() -> Rule {
    let good = "self.target.kind == 'ClosedLoop' || !has(m.source.__loop__) || has(m.source.__loop__.name)";
    let message = "'metrics[%s]: source.loop of metric \"%s\" needs a name, since the target is a %s and not a ClosedLoop'\
                   .format([string(self.metrics.indexOf(m)), m.name, self.target.kind])";
    each("metrics", "m", good, message)
}

/// An action on side Missing does not lower capacity.
pub fn missing_lowers_nothing() -> Rule {
    let lowers =
        "has(r.scale) && has(r.scale.by) && r.scale.by < 0 || has(r.workloadAction) && has(r.workloadAction.delete)";
    let message =
        "'ladder[%s]: an action on side Missing must not lower capacity'.format([string(self.ladder.indexOf(r))])";
    each("ladder", "r", &format!("self.when.side != 'Missing' || !({lowers})"), message)
}

/// An action on side Target has one rung, which tracks, and no other action tracks.
pub fn tracking_has_one_rung() -> Rule {
    let tracks = "has(r.scale) && (has(r.scale.track) || has(r.scale.schedule))";
    let good = format!(
        "({tracks}) == (self.when.side == 'Target') && (self.when.side != 'Target' || self.ladder.size() == 1)"
    );
    let message = "'ladder[%s]: an action on side Target has exactly one rung, scale with track or schedule, and only such an \
                   action has one'.format([string(self.ladder.indexOf(r))])";
    each("ladder", "r", &good, message)
}

/// All actions that track have the same bounds and the same pace: there is one number of replicas.
pub fn one_pace() -> Rule {
    let good = "a.when.side != 'Target' || self.actions.all(b, b.when.side != 'Target' || a.ladder.all(r, b.ladder.all(q, \
                !has(r.scale) || !has(q.scale) || (has(r.scale.min) ? r.scale.min : 1) == (has(q.scale.min) ? q.scale.min : 1) \
                && (has(r.scale.max) ? r.scale.max : 0) == (has(q.scale.max) ? q.scale.max : 0))))";
    let message =
        "'actions[%s]: all actions on side Target need the same min and max'.format([string(self.actions.indexOf(a))])";
    each("actions", "a", good, message)
}

/// A rule that each item of this list or map satisfies `good`. The message may use the item; it describes the first
/// item that breaks the rule.
fn each(path: &str, item: &str, good: &str, message: &str) -> Rule {
    let list = format!("self.{path}");
    let parts = list.match_indices('.').skip(1).map(|(end, _)| &list[..end]);
    let unset: String = parts.chain([list.as_str()]).map(|part| format!("!has({part}) || ")).collect();
    Rule::new(format!("{unset}{list}.all({item}, {good})"))
        .message(Message::Expression(format!("{list}.map({item}, !({good}), {message})[0]")))
        .field_path(format!(".{path}"))
}

fn exists(name: &str) -> String {
    format!("self.metrics.exists(m, m.name == {name})")
}

/// Message about an unknown metric name; `at` contains `%s` for `index`.
fn unknown(at: &str, index: &str, name: &str) -> String {
    format!("'{at}: metric \"%s\" is not in metrics (known: %s)'.format([{index}, {name}, {KNOWN}])")
}
