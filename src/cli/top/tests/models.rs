//! Rows, trends, gaps and staleness of the model.

use super::*;
use crate::cli::top::model::WatchState;
use crate::cli::top::table::TopColumn;

fn names(model: &mut TopModel) -> Vec<String> {
    model.is_outdated = true;
    model.refresh();
    model.rows.iter().map(|row| row.id.name.clone()).collect()
}

#[test]
fn rows_are_filtered_and_sorted() {
    let mut model = empty((80, 24));
    let stalled = json!({"conditions": [{"type": "Stalled", "status": "True"}]});
    model.put(object(TopKind::Pool, "b", json!({}), json!({})));
    model.put(object(TopKind::Action, "c", json!({}), stalled));
    model.put(object(TopKind::Policy, "a", json!({}), json!({})));
    model.put(object(TopKind::Monitoring, "c", json!({}), json!({})));
    assert_eq!(names(&mut model), ["c", "b", "a"]);
    model.sort = TopColumn::Name;
    assert_eq!(names(&mut model), ["a", "b", "c"]);
    model.sort = TopColumn::State;
    assert_eq!(names(&mut model), ["c", "b", "a"]);
    model.descending = true;
    assert_eq!(names(&mut model), ["b", "a", "c"]);
    model.filter = "stalled".to_owned();
    assert_eq!(names(&mut model), ["c"]);
    model.tab = Some(TopKind::Pool);
    assert!(names(&mut model).is_empty());
    assert_eq!(model.selected, None);
}

#[test]
fn values_of_the_watch_and_of_the_history_are_one_trend() {
    let mut model = empty((80, 24));
    let monitor = |value: &str, at: &str| {
        let values = json!([{"metric": "cpu", "value": value, "at": at}]);
        object(TopKind::Monitoring, "web", json!({}), json!({"values": values}))
    };
    model.put(object(TopKind::Loop, "web", json!({}), json!({})));
    model.put(monitor("1", "2026-11-21T10:00:03Z"));
    model.put(monitor("1", "2026-11-21T10:00:03Z"));
    model.put(monitor("200m", "2026-11-21T10:00:04Z"));
    let line = "3 2026-11-21T09:00:03.000000Z Low cpu 2 rung 0 | scale by 1, at most 10 | Served | 3 -> 4";
    model.put(object(TopKind::Decision, "web", json!({}), json!({"history": [line]})));
    let id = TopId { kind: TopKind::Loop, namespace: "shop".to_owned(), name: "web".to_owned() };
    assert_eq!(model.trends[&id]["cpu"].len(), 3);
    model.remove(&id);
    assert!(model.trends.is_empty() && model.modes.is_empty());
}

#[test]
fn gaps_name_the_right_or_the_kind() {
    let mut model = empty((80, 24));
    model.watches.insert(TopKind::Action, WatchState::Denied);
    model.watches.insert(TopKind::Policy, WatchState::Denied);
    model.watches.insert(TopKind::Pool, WatchState::Missing);
    assert_eq!(
        model.gaps(),
        [
            "Actions: not permitted: list and watch workloadactions.ganglion.dev in namespace shop",
            "Pools: not installed: swarmpools.ganglion.dev",
            "Policies: not permitted: list and watch placementpolicies.ganglion.dev",
        ]
    );
}

#[test]
fn the_view_is_stale_since_the_first_broken_watch() {
    let mut model = empty((80, 24));
    assert_eq!(model.stale(), None);
    let at = |second| Timestamp::from_second(second).unwrap();
    let broken = |second, why: &str| WatchState::Stale { since: at(second), why: why.to_owned() };
    model.watches.insert(TopKind::Pool, broken(9, "later"));
    model.watches.insert(TopKind::Loop, broken(5, "refused"));
    assert_eq!(model.stale(), Some((at(5), 2, "refused")));
}
