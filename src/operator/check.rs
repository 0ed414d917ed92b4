//! `ganglion check`: checks whether a loop would work before it is applied. Uses the operator's code with the user's
//! permissions and from the user's network location. Changes nothing.

mod cluster;

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::{Client, Config};
use serde_json::Value;

use super::{Error, ProgressLine, outbound, read};
use crate::operator::settings::Settings;
use cluster::Surroundings;
use ganglion_api::closed_loop::ClosedLoop;
use ganglion_api::closed_loop::metric::Source;
use ganglion_api::decision::ReplicaChange;
use ganglion_api::marks;
use ganglion_api::monitoring::{Monitoring, MonitoringSpec, MonitoringStatus};
use ganglion_core::check::CheckReport;
use ganglion_core::facts::{Key, Uid};
use ganglion_core::names::DEFAULT_ACCOUNT;
use ganglion_core::world::Origin;
use ganglion_loops::closed_loop::{Assessed, Neighbours};
use ganglion_loops::monitoring::{PollRequest, SourceAccess, Sources, current_values, replicas_of};
use ganglion_loops::target::{Actor, Targets, Trials};
use ganglion_loops_plan::check::{Forecast, ForecastInput, ProposedRung, forecast, formulas, tracking};
use ganglion_loops_plan::decision::DecisionRules;
use ganglion_loops_plan::execution::Trial;
use ganglion_loops_plan::monitoring::source_rule::SourceRule;
use ganglion_loops_plan::monitoring::tracking::TargetReading;
use ganglion_loops_plan::monitoring::{Measurement, MonitoringRules, SourceResult, SourceValue};
use ganglion_loops_plan::rung;
use ganglion_loops_plan::validate::assessment::NamespaceAccess;
use ganglion_loops_plan::validate::preflight::PreflightQuestion;
use ganglion_outbound::address::{self, Names, Rules};
use ganglion_outbound::client::Unanswered;
use ganglion_runtime::account::Account;
use ganglion_runtime::context::Context;
use ganglion_runtime::discovery::Discovery;
use ganglion_runtime::error::Error as RequestError;
use ganglion_runtime::refusals::Refusals;
use ganglion_runtime::store::Store;

/// Checks loops. Each document is a ClosedLoop manifest; problems with a loop are in its report.
pub async fn check(
    config: Config,
    namespace: &str,
    settings: &Settings,
    loops: &[Value],
    values: &BTreeMap<String, String>,
    say: ProgressLine<'_>,
) -> Result<Vec<CheckReport>, Error> {
    let rules = Rules { show_causes: true, ..outbound::rules(&config, settings)? };
    let client = super::client(config)?;
    let mut reports = Vec::new();
    for (at, document) in loops.iter().enumerate() {
        let text = |path: &str| document.pointer(path).and_then(Value::as_str);
        let key = Key::new(text("/metadata/namespace").unwrap_or(namespace), text("/metadata/name").unwrap_or(""));
        say(&format!("checks loop {} of {}, {key}, its rights and its sources", at + 1, loops.len()));
        let mut report = CheckReport::on(format!("ClosedLoop {}/{}", key.namespace, key.name));
        match key.name.as_str() {
            "" => report.failed("metadata.name is missing"),
            _ => LoopCheck::new(&client, &rules, settings, key).run(document, values, &mut report).await,
        }
        reports.push(report);
    }
    Ok(reports)
}

/// The check of one loop, with the same parts as the operator's controllers.
struct LoopCheck<'a> {
    client: Client,
    settings: &'a Settings,
    key: Key,
    ctx: Context,
    targets: Targets,
    sources: Sources,
}

impl<'a> LoopCheck<'a> {
    fn new(client: &Client, rules: &Rules, settings: &'a Settings, key: Key) -> Self {
        let ctx = read::context(client, Store::new(crate::operator::world::world()), settings, "check");
        let web = Arc::new(outbound::web(Names::new(rules.clone(), address::system), settings, &ctx.metrics));
        let outbound = Arc::new(outbound::client(web, settings, &ctx.metrics));
        let discovery = Arc::new(Discovery::default());
        let patchable = settings.patchable_kinds().into();
        let targets = Targets { ctx: ctx.clone(), discovery: Arc::clone(&discovery), patchable };
        let sources = Sources { ctx: ctx.clone(), outbound, discovery };
        Self { client: client.clone(), settings, key, ctx, targets, sources }
    }

    async fn run(&self, document: &Value, values: &BTreeMap<String, String>, report: &mut CheckReport) {
        let around = Surroundings { client: &self.client, store: &self.ctx.store, namespace: &self.key.namespace };
        let Some(parent) = around.accepted(document, &self.key.name, report).await else { return };
        let parent = Arc::new(parent);
        around.read(&parent.spec.target, report).await;
        around.read_nodes(&parent.spec.metrics, report).await;
        // The loop as it would be stored, in place of an older version.
        self.ctx.store.apply(ClosedLoop::clone(&parent), Origin::Own);
        let Some((monitoring, stages)) = self.assess(&parent, report) else { return };
        around.binding(report).await;
        around.policies(report).await;
        let account = self.may_speak_for_the_account(&parent, report).await;
        let changes = if account { self.rungs(&parent, report).await } else { BTreeMap::new() };
        let reading = self.target(&monitoring, &stages.0, account).await;
        let measured = self.measure(monitoring, &stages.0, values, account, report).await;
        let replicas = self.ctx.store.read(|world| replicas_of(world, &self.key, &parent.spec.target));
        let replicas = replicas.ok_or("the target does not exist, or you may not read it");
        let target = reading.as_ref().map(|reading| reading.as_ref().map_err(String::as_str));
        let input = ForecastInput { measured: &measured, replicas, target, now: self.ctx.now() };
        for (name, result) in formulas(&stages.0, input) {
            match result {
                Ok(found) => report.passed(format!("metric {name}: {}", found.value)),
                Err(why) => report.unsure(format!("metric {name}: unknown: {why}")),
            }
        }
        match tracking(&stages.0, input) {
            Ok(lines) => lines.into_iter().for_each(|line| report.passed(line)),
            Err(why) => report.unsure(format!("number of replicas: unknown: {why}")),
        }
        let found = forecast((&stages.0, &stages.1), &parent.spec, input);
        report.now = Some(proposal(found, &changes));
    }

    /// Assesses the loop as the operator would. None if it could not start to work.
    fn assess(
        &self,
        parent: &Arc<ClosedLoop>,
        report: &mut CheckReport,
    ) -> Option<(MonitoringSpec, (MonitoringRules, DecisionRules))> {
        let refused = self.settings.namespaces().refusal(&self.key.namespace);
        let access = refused.map_or(NamespaceAccess::Granted, NamespaceAccess::Refused);
        let neighbours = Neighbours::read(&self.ctx, &self.key, parent, access);
        let assessed = Assessed::new(neighbours, self.ctx.now());
        let assessment = &assessed.assessment;
        if let Some(problem) = &assessment.problem {
            report.failed(problem.message());
            return None;
        }
        report.passed("its spec can be used, and nothing else acts on the same target");
        for warning in [&assessment.overlap, &assessment.feedback].into_iter().flatten() {
            report.unsure(warning.clone());
        }
        Some((assessment.children.monitoring.clone(), assessment.stages.clone()?))
    }

    /// Whether the user may impersonate the loop's service account, which is required to check its permissions.
    async fn may_speak_for_the_account(&self, parent: &ClosedLoop, report: &mut CheckReport) -> bool {
        let name = parent.spec.service_account_name.clone().unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned());
        let (writer, namespace) = (self.ctx.writer.clone(), self.key.namespace.clone());
        let account = Account { writer, namespace, name, manager: marks::LOOP_MANAGER };
        let refused = match account.try_out().await {
            Ok(()) => return true,
            Err(RequestError::Forbidden(_)) => "you may not impersonate it, as the role edit allows".to_owned(),
            Err(error) => error.to_string(),
        };
        report.unsure(format!("actions and rights of service account {}: not checked: {refused}", account.name));
        false
    }

    /// Tries each rung. Returns the change that each would make, by metric, side and place.
    async fn rungs(&self, parent: &ClosedLoop, report: &mut CheckReport) -> BTreeMap<String, String> {
        let question = PreflightQuestion::new(Uid::of(&parent.metadata), &parent.spec);
        let actor = Actor::new(&self.targets, &self.key, &question.target, question.account.as_deref());
        let mut actor = actor.after(Refusals::believed(self.ctx.now()));
        let mut trials = Trials::new(&self.targets, &self.sources.outbound, &mut actor);
        let mut changes = BTreeMap::new();
        for placed in &question.rungs {
            let place = &placed.place;
            match trials.try_rung(&placed.rung).await {
                Ok(Trial::Possible { before, after }) => {
                    let change = before.map_or_else(
                        || after.clone(),
                        |before| format!("{} {before} → {after}", rung::dimension(&placed.rung)),
                    );
                    report.passed(format!("{place}: {change}"));
                    changes.insert(place.clone(), change);
                }
                Ok(Trial::Limited(why)) => {
                    report.passed(format!("{place}: no change now: {why}"));
                    changes.insert(place.clone(), format!("no change: {why}"));
                }
                Ok(Trial::Impossible(_, why)) => {
                    report.failed(format!("{place}: {why}"));
                    changes.insert(place.clone(), format!("{place} would fail, see above"));
                }
                Ok(Trial::Unknown(why)) => report.unsure(format!("{place}: {why}")),
                Err(error) => report.unsure(format!("{place}: not checked: {error}")),
            }
        }
        changes
    }

    /// Reads the state of the target, if an action is on side Target.
    async fn target(
        &self,
        spec: &MonitoringSpec,
        rules: &MonitoringRules,
        account: bool,
    ) -> Option<Result<TargetReading, String>> {
        if !account && rules.tracking.is_some() {
            return Some(Err("not read: this requires the service account".to_owned()));
        }
        self.sources.target(&PollRequest::new(self.key.clone(), spec, rules.interval)).await
    }

    /// Queries each source once, except for metrics whose value is given.
    async fn measure(
        &self,
        spec: MonitoringSpec,
        rules: &MonitoringRules,
        given: &BTreeMap<String, String>,
        account: bool,
        report: &mut CheckReport,
    ) -> Measurement {
        let mut asked = spec.clone();
        let own = |value: &String| Ok(SourceValue::from(value.clone()));
        let mut values: BTreeMap<String, SourceResult> = BTreeMap::new();
        asked.metrics.retain(|metric| {
            let (name, source) = (&metric.name, &metric.source);
            if let Some(value) = given.get(name) {
                report.passed(format!("metric {name}: {value}, as given"));
                values.insert(name.clone(), own(value));
                return false;
            }
            let elsewhere = source.node_config.as_ref().is_some_and(|one| one.namespace.is_some());
            if !account && (SourceRule::of(source).reads_as_account || elsewhere) {
                report.unsure(format!("metric {name}: not queried: the query requires the service account"));
                return false;
            }
            if source.push.is_some() {
                report.unsure(format!("metric {name}: pushed; try a value with --value {name}=NUMBER"));
            }
            source.push.is_none()
        });
        for (name, got) in self.sources.query(&PollRequest::new(self.key.clone(), &asked, rules.interval)).await {
            values.insert(name.clone(), self.told(&name, got, report));
        }
        let windows = spec.metrics.iter().filter_map(|metric| Some((&metric.name, metric.over.as_ref()?)));
        for (name, over) in windows.filter(|(name, _)| !given.contains_key(*name)) {
            let (function, window) = (over.function.as_str(), over.window.as_str());
            let words =
                format!("its {function} over {window} is not known here: try a value with --value {name}=NUMBER");
            if let Some(found) = values.get_mut(name).filter(|found| found.is_ok()) {
                report.unsure(format!("metric {name}: {words}"));
                *found = Err(words);
            }
        }
        let is_known = |source: &Source| source.loop_.is_some() || source.node_config.is_some();
        let known = asked.metrics.iter().filter(|one| is_known(&one.source)).map(|one| one.name.clone());
        let known: Vec<String> = known.collect();
        let mut object = Monitoring::new(&self.key.name, asked);
        object.metadata.namespace = Some(self.key.namespace.clone());
        let access = SourceAccess::believing();
        let measured = current_values(&self.ctx, &access, &object, &MonitoringStatus::default(), values).await;
        let mut measured = measured.unwrap_or_default();
        for name in known {
            if let Some(got) = measured.values.remove(&name) {
                let got = self.told(&name, got.map_err(Unanswered::from), report);
                measured.values.insert(name, got);
            }
        }
        measured
    }

    /// Reports the result of a source.
    fn told(&self, name: &str, got: Result<SourceValue, Unanswered>, report: &mut CheckReport) -> SourceResult {
        match &got {
            Ok(found) => report.passed(format!("metric {name}: {}", found.value)),
            Err(why) if why.passing => {
                report.unsure(format!("metric {name}: no response here; the operator may get one: {}", why.words));
            }
            Err(why) => report.failed(format!("metric {name}: {}", why.words)),
        }
        got.map_err(|why| why.words)
    }
}

/// Describes what the loop would do now.
fn proposal(found: Forecast, changes: &BTreeMap<String, String>) -> String {
    match found {
        Forecast::Nothing(why) => format!("nothing would be done: {why}"),
        Forecast::Act(ProposedRung { cause, replicas: Some(ReplicaChange { from, to }), .. }) => {
            format!("{cause}: replicas {from} → {to}")
        }
        Forecast::Act(ProposedRung { when, rung, cause, pending, replicas: None }) => {
            let place = format!("rung {} on {when}", rung + 1);
            let found = changes.iter().find(|(known, _)| known.starts_with(&format!("{place} (")));
            let change = found.map_or(place, |(_, change)| change.clone());
            let wait = if pending { ", once that has lasted" } else { "" };
            format!("{cause}{wait}: {change}")
        }
    }
}
