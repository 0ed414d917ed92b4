//! The table of metrics in config/monitoring, compared with the registry.

use ganglion_api::closed_loop::reasons::LoopReason;
use ganglion_api::node_config::reasons::NodeReason;
use ganglion_api::placement_policy::reasons::PolicyReason;
use ganglion_api::reasons::Reason;
use ganglion_api::swarm_pool::reasons::PoolReason;
use ganglion_runtime::metrics::{
    ControllerLabel, EffectLabels, ExtenderLabels, LimitLabel, OutcomeLabel, PollLabels, ReasonLabel, ReconcileLabels,
    SourceLabels, VerbLabel, WatchLabels,
};
use testkit::metrics::{DocumentedMetric, LabelBound, differences, documented, read_scrape, unconventional};

use super::super::*;
use super::{NOW, figures_of_all, seconds};

/// All metrics, each with at least one series. A new field does not compile without a line here.
fn metrics_of_all() -> Metrics {
    let metrics = Metrics::new();
    let Metrics {
        reconciles,
        reconcile_seconds,
        effects,
        effect_seconds,
        queue_length,
        cache_objects,
        unreadable,
        unreported,
        watch_restarts,
        api_errors,
        sources,
        outbound_full,
        events_dropped: _,
        events_left_out: _,
        janitor,
        notifications,
        leader: _,
        memory: _,
        loop_values: _,
        node_polls,
        extender_requests,
        extender_seconds,
        node_values: _,
        trace_spans,
        registry: _,
    } = &metrics;
    let (controller, outcome, kind, reason, verb) = ("decision", "ok", "Pod", "Forbidden", "filter");
    let _ = reconciles.get_or_create(&ReconcileLabels { controller, outcome });
    let _ = reconcile_seconds.get_or_create(&ControllerLabel { controller });
    let _ = effects.get_or_create(&EffectLabels { effect: "Evict", outcome });
    let _ = effect_seconds.get_or_create(&EffectLabels { effect: "Evict", outcome });
    let _ = queue_length.get_or_create(&ControllerLabel { controller });
    let _ = cache_objects.get_or_create(&KindLabel { kind });
    let _ = unreadable.get_or_create(&KindLabel { kind });
    let _ = unreported.get_or_create(&KindLabel { kind });
    let _ = watch_restarts.get_or_create(&WatchLabels { kind, reason: "expired" });
    let _ = api_errors.get_or_create(&ReasonLabel { reason });
    let _ = sources.get_or_create(&SourceLabels { source: "http", outcome });
    let _ = outbound_full.get_or_create(&LimitLabel { limit: "bytes" });
    let _ = janitor.get_or_create(&ReasonLabel { reason: outcome });
    let _ = notifications.get_or_create(&ReasonLabel { reason: "Accepted" });
    let _ = node_polls.get_or_create(&PollLabels { poll: "usage", outcome });
    let _ = extender_requests.get_or_create(&ExtenderLabels { verb, outcome });
    let _ = extender_seconds.get_or_create(&VerbLabel { verb });
    let _ = trace_spans.get_or_create(&OutcomeLabel { outcome: "sent" });
    metrics
}

#[test]
fn the_page_lists_every_metric_with_its_type_and_labels() {
    let text = metrics_of_all().render(&figures::registry(figures_of_all(), seconds(NOW))).unwrap();
    let (page, exported) = (documented().unwrap(), read_scrape(&text).unwrap());
    assert_eq!(differences(&page, &exported), [""; 0]);
    let missing: Vec<&String> = page.keys().filter(|name| !exported.contains_key(*name)).collect();
    assert_eq!(missing, [""; 0], "documented, but not exported");
    assert_eq!(unconventional(&page), [""; 0]);
}

/// Number of values that the page allows.
fn most(metric: &DocumentedMetric, label: &str) -> usize {
    match &metric.labels[label] {
        LabelBound::AtMost(most) => *most,
        LabelBound::Words(words) => words.len(),
        LabelBound::Described => panic!("{label} has no number"),
    }
}

/// Bound of a label with exactly these words.
fn words(all: &[&str]) -> LabelBound {
    LabelBound::Words(all.iter().map(|word| (*word).to_owned()).collect())
}

#[test]
fn closed_sets_of_words_fit_in_the_bounds_of_the_page() {
    let page = documented().unwrap();
    // Each set has `Unknown`, too; states without a condition have `New`.
    let others =
        LoopReason::ALL.len().max(NodeReason::ALL.len()).max(PoolReason::ALL.len()).max(PolicyReason::ALL.len());
    assert!(most(&page["ganglion_actions"], "reason") >= Reason::ALL.len() + 2);
    assert!(most(&page["ganglion_objects"], "reason") >= others + 2);
    assert!(most(&page["ganglion_loop_condition"], "reason") > LoopReason::ALL.len());
    let conditions = ganglion_loops_plan::figures::CONDITIONS;
    assert_eq!(page["ganglion_loop_condition"].labels["condition"], words(&conditions));
    let states = PolicyState::ALL.map(PolicyState::as_str);
    assert_eq!(page["ganglion_admission_policies"].labels["state"], words(&states));
}
