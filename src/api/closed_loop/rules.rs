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
    let tracked = "has(self.actions) && self.actions.exists(a, has(a.when.side) && a.when.side == 'Target' && a.when.metric == m.name)";
    let message = "'metrics[%s]: metric \"%s\" raises no alarm, and no formula or action on side Target uses it: set at least one of \
                   low, high, equal, or missing with then: Alarm'.format([string(self.metrics.indexOf(m)), m.name])";
    each("metrics", "m", &format!("{alarm} || {operand} || {tracked}"), message)
}

/// The metric of each action exists.
pub fn action_metrics() -> Rule {
    let message = unknown("actions[%s]", "string(self.actions.indexOf(a))", "a.when.metric");
    each("actions", "a", &format!("!has(a.when.metric) || {}", exists("a.when.metric")), &message)
}

/// The metric of each action, if it exists, can raise the alarm.
pub fn action_sides() -> Rule {
    let good = format!("!has(a.when.metric) || self.metrics.all(m, {})", has_level("a.when"));
    each("actions", "a", &good, &no_level("a.when"))
}

/// No two actions are on the same alarm.
pub fn one_action_an_alarm() -> Rule {
    let good = "!has(a.when.metric) || self.actions.exists_one(b, has(b.when.metric) && b.when.metric == a.when.metric \
                && b.when.side == a.when.side)";
    let alarms = "self.actions.map(b, b.when)";
    let message = format!(
        "'actions[%s] and actions[%s] are both on side %s of metric \"%s\"; give one of them a longer ladder instead'\
         .format([string({alarms}.indexOf(a.when)), string({alarms}.lastIndexOf(a.when)), a.when.side, a.when.metric])"
    );
    each("actions", "a", good, &message)
}

/// The metric of each combined alarm exists.
pub fn combined_metrics(list: &str) -> Rule {
    each_combined(list, &exists("x.metric"), &unknown("actions[%s]", "string(self.actions.indexOf(a))", "x.metric"))
}

/// The metric of each combined alarm, if it exists, can raise it.
pub fn combined_levels(list: &str) -> Rule {
    each_combined(list, &format!("self.metrics.all(m, {})", has_level("x")), &no_level("x"))
}

/// No two actions are on the same combination, in whatever order it lists its alarms.
pub fn one_action_a_combination(list: &str) -> Rule {
    let good = format!(
        "!has(a.when.{list}) || self.actions.exists_one(b, has(b.when.{list}) && b.when.{list}.size() == a.when.{list}.size() \
         && b.when.{list}.all(y, a.when.{list}.exists(x, x.metric == y.metric && x.side == y.side)))"
    );
    let message = format!(
        "'actions[%s]: another action has the same alarms in when.{list}; give one of them a longer ladder instead'\
         .format([string(self.actions.indexOf(a))])"
    );
    each("actions", "a", &good, &message)
}

/// No combined alarm is on side Target: an action that tracks is for one metric.
pub fn combined_sides(list: &str) -> Rule {
    let message = format!(
        "'{list}[%s]: side Target cannot be combined with other alarms'.format([string(self.{list}.indexOf(x))])"
    );
    each(list, "x", "x.side != 'Target'", &message)
}

/// No alarm is in a combination twice.
pub fn combined_once(list: &str) -> Rule {
    let good = format!("self.{list}.exists_one(y, y.metric == x.metric && y.side == x.side)");
    let message = format!(
        "'{list}[%s] and {list}[%s] are the same alarm'\
         .format([string(self.{list}.indexOf(x)), string(self.{list}.lastIndexOf(x))])"
    );
    each(list, "x", &good, &message)
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
    let parts =
        ["all", "any"].map(|list| format!("has(self.when.{list}) && self.when.{list}.exists(x, x.side == 'Missing')"));
    let is_missing = format!("has(self.when.side) && self.when.side == 'Missing' || {}", parts.join(" || "));
    each("ladder", "r", &format!("!({is_missing}) || !({lowers})"), message)
}

/// An action on side Target has one rung, which tracks, and no other action tracks.
pub fn tracking_has_one_rung() -> Rule {
    let tracks = "has(r.scale) && (has(r.scale.track) || has(r.scale.schedule))";
    let good = format!(
        "({tracks}) == {target} && (!{target} || self.ladder.size() == 1)",
        target = "(has(self.when.side) && self.when.side == 'Target')"
    );
    let message = "'ladder[%s]: an action on side Target has exactly one rung, scale with track or schedule, and only such an \
                   action has one'.format([string(self.ladder.indexOf(r))])";
    each("ladder", "r", &good, message)
}

/// All actions that track have the same bounds and the same pace: there is one number of replicas.
pub fn one_pace() -> Rule {
    let good = "!has(a.when.side) || a.when.side != 'Target' || self.actions.all(b, !has(b.when.side) || b.when.side != 'Target' || a.ladder.all(r, b.ladder.all(q, \
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

/// A rule that each combined alarm `x` of each action `a` satisfies `good`. The message describes the first that does
/// not.
fn each_combined(list: &str, good: &str, message: &str) -> Rule {
    let first = format!("a.when.{list}.map(x, !({good}), {message})[0]");
    each("actions", "a", &format!("!has(a.when.{list}) || a.when.{list}.all(x, {good})"), &first)
}

/// Whether the metric `m` is another one than that of this alarm, or can raise the alarm.
fn has_level(alarm: &str) -> String {
    format!(
        "(m.name != {alarm}.metric || ({alarm}.side == 'Low' ? has(m.low) : {alarm}.side == 'High' ? has(m.high) \
         : {alarm}.side == 'Equal' ? has(m.equal) : {alarm}.side == 'Target' || has(m.missing) && has(m.missing.then) \
         && m.missing.then == 'Alarm'))"
    )
}

/// Message about a metric that cannot raise this alarm of action `a`.
fn no_level(alarm: &str) -> String {
    let needs = format!("{alarm}.side == 'Missing' ? 'missing with then: Alarm' : {alarm}.side.lowerAscii()");
    format!(
        "'actions[%s]: metric \"%s\" has no alarm on side %s: it needs %s'\
         .format([string(self.actions.indexOf(a)), {alarm}.metric, {alarm}.side, {needs}])"
    )
}

fn exists(name: &str) -> String {
    format!("self.metrics.exists(m, m.name == {name})")
}

/// Message about an unknown metric name; `at` contains `%s` for `index`.
fn unknown(at: &str, index: &str, name: &str) -> String {
    format!("'{at}: metric \"%s\" is not in metrics (known: %s)'.format([{index}, {name}, {KNOWN}])")
}
