//! One happening is one entry, although a status and an event tell of it; and clocks that differ.

use super::*;
use crate::cli::timeline::follow::ShownEntries;
use crate::cli::timeline::model::Lane;

fn lines(timeline: &Timeline, lane: Lane) -> Vec<&str> {
    timeline.entries.iter().filter(|entry| entry.lane == lane).map(|entry| entry.text.as_str()).collect()
}

#[test]
fn an_event_about_a_decision_is_part_of_its_effect() {
    let timeline = timeline(TimelineKind::Loop, &loop_objects());
    let effects = lines(&timeline, Lane::Effect);
    assert_eq!(effects[0], "decision 3 Served: Deployment/web: replicas 3 → 4: cpu 2 is below 5");
    assert_eq!(effects[2], "decision 6 Failed: Deployment/web: the account web-loop may not patch deployments/scale");
    assert_eq!(lines(&timeline, Lane::Event), ["Deployment/web ScalingReplicaSet: Scaled up replica set web-7d to 4"]);
}

#[test]
fn the_same_event_of_the_target_is_left_out() {
    let mut objects = loop_objects();
    let cause = |kind: &str, name: &str| {
        let note = format!("{kind} {name}: replicas 3 → 4");
        let mut event = event(name, "Deployment", "web", "Scaled", &note, "10:00:03.400001");
        event.related = Some(serde_json::from_value(json!({"kind": kind, "name": name})).unwrap());
        event.related.as_mut().unwrap().uid = Some(format!("uid-{kind}"));
        event
    };
    add_events(&mut objects, [cause("ClosedLoop", "web"), cause("SwarmPool", "other")]);
    let timeline = timeline(TimelineKind::Loop, &objects);
    let events = lines(&timeline, Lane::Event);
    assert!(events.contains(&"Deployment/web Scaled: SwarmPool other: replicas 3 → 4"), "{events:?}");
    assert!(!events.iter().any(|text| text.contains("ClosedLoop web")), "{events:?}");
}

#[test]
fn an_event_without_its_status_stands_alone() {
    let mut objects = loop_objects();
    let decision = ("Decision".to_owned(), "web".to_owned());
    objects.children.get_mut(&decision).unwrap()["status"]["history"] = json!([]);
    let timeline = timeline(TimelineKind::Loop, &objects);
    let events = lines(&timeline, Lane::Event);
    assert!(events.contains(&"ClosedLoop/web Scaled: Deployment/web: replicas 3 → 4: cpu 2 is below 5"), "{events:?}");
}

#[test]
fn a_series_of_events_is_its_first_and_its_last() {
    let mut objects = loop_objects();
    let mut series = event("e9", "Deployment", "web", "FailedCreate", "quota", "10:04:00");
    series.series = Some(serde_json::from_value(json!({"count": 7, "lastObservedTime": at("10:06:00")})).unwrap());
    add_events(&mut objects, [series]);
    let timeline = timeline(TimelineKind::Loop, &objects);
    let shown: Vec<(String, &str)> = timeline
        .entries
        .iter()
        .filter(|entry| entry.text.contains("FailedCreate"))
        .map(|entry| (entry.at.to_string(), entry.text.as_str()))
        .collect();
    assert_eq!(shown.len(), 2);
    assert_eq!(shown[1].0, "2026-11-21T10:06:00Z");
    assert!(shown[1].1.contains("7 times in all") && !shown[0].1.contains("times"), "{shown:?}");
}

#[test]
fn a_condition_and_its_event_are_one_entry() {
    let mut objects = loop_objects();
    objects.parent["status"]["conditions"] =
        json!([condition("Conflict", "True", "LoopConflict", "another loop", "10:05:00")]);
    add_events(&mut objects, [event("e9", "ClosedLoop", "web", "LoopConflict", "another loop", "10:05:01")]);
    let merged = timeline(TimelineKind::Loop, &objects);
    assert_eq!(lines(&merged, Lane::State), ["ClosedLoop became Conflict=True (LoopConflict): another loop"]);
    assert!(!lines(&merged, Lane::Event).iter().any(|text| text.contains("LoopConflict")));
}

#[test]
fn a_reason_that_changed_later_is_not_told_at_the_time_of_the_status() {
    let mut objects = loop_objects();
    objects.parent["status"]["conditions"] =
        json!([condition("Conflict", "True", "LoopConflict", "another loop", "10:05:00")]);
    add_events(&mut objects, [event("e9", "ClosedLoop", "web", "LoopConflict", "another loop", "10:08:00")]);
    let timeline = timeline(TimelineKind::Loop, &objects);
    assert_eq!(lines(&timeline, Lane::State), ["ClosedLoop became Conflict=True"]);
    assert!(lines(&timeline, Lane::Event).contains(&"ClosedLoop/web LoopConflict: another loop"));
}

#[test]
fn events_of_an_earlier_object_of_this_name_are_left_out() {
    let mut objects = loop_objects();
    let mut old = event("e9", "ClosedLoop", "web", "Scaled", "of the loop before", "10:04:00");
    old.involved_object.uid = Some("another".to_owned());
    add_events(&mut objects, [old]);
    assert!(!lines(&timeline(TimelineKind::Loop, &objects), Lane::Event).iter().any(|text| text.contains("before")));
}

#[test]
fn a_change_of_a_pool_is_told_once_by_status_record_and_event() {
    let mut objects = pool_objects();
    let job = |name: &str, since| ganglion_pools_plan::file::ListedJob { name: name.into(), since };
    let list =
        ganglion_pools_plan::file::JobList { version: 2, jobs: vec![job("a", 1), job("b", 2)], ..Default::default() };
    let change = |time: &str, why: &str| ganglion_pools_plan::file::ListChange {
        at: whole(time).parse().unwrap(),
        why: why.to_owned(),
    };
    let published = ganglion_pools_plan::file::Published {
        lists: [("w-0".to_owned(), list)].into(),
        version: 2,
        changes: [(1, change("09:59:05", "first deal")), (2, change("10:00:30", "3 to 4 workers"))].into(),
        ..Default::default()
    };
    let (file, record) = ganglion_pools_plan::file::render(&published);
    let mut map = child_of("SwarmPool", object("ConfigMap", "jobs", json!({}), json!({})));
    map["apiVersion"] = json!("v1");
    map["data"] = json!({"config.yml": file, "handover.json": record});
    add(&mut objects, map);
    let timeline = timeline(TimelineKind::Pool, &objects);
    let jobs = lines(&timeline, Lane::Jobs);
    assert_eq!(jobs, ["version 1: first deal", "version 2: 3 to 4 workers; 1 job to move to another worker"]);
}

#[test]
fn clocks_that_differ_are_reported_and_nothing_is_moved() {
    let mut objects = loop_objects();
    objects.parent["metadata"]["creationTimestamp"] = json!(whole("10:00:33"));
    let timeline = timeline(TimelineKind::Loop, &objects);
    assert_eq!(timeline.skews.len(), 1, "{:?}", timeline.skews);
    let words = timeline.skews[0].words();
    let expected =
        "Clocks differ: that of the operator is at least 29s behind that of the API server: decision 3 was made";
    assert!(words.starts_with(expected), "{words}");
    let created = timeline.entries.iter().position(|entry| entry.text == "created").unwrap();
    assert!(timeline.entries[..created].iter().any(|entry| entry.lane == Lane::Decision), "it was moved");
    let within_a_second = loop_objects();
    assert!(super::timeline(TimelineKind::Loop, &within_a_second).skews.is_empty());
}

#[test]
fn a_clock_that_is_ahead_of_this_machine_is_reported() {
    let early = whole("10:08:00").parse().unwrap();
    let timeline = TimelineKind::Loop.timeline(&loop_objects(), early, None).unwrap();
    assert!(timeline.skews[0].words().contains("that of this machine is at least 59s"), "{:?}", timeline.skews);
    assert!(timeline.end > early);
}

#[test]
fn an_alarm_that_ended_is_told_once() {
    let mut objects = loop_objects();
    let mut shown = ShownEntries::default();
    shown.news(&timeline(TimelineKind::Loop, &objects));
    let monitoring = ("Monitoring".to_owned(), "web".to_owned());
    objects.children.get_mut(&monitoring).unwrap()["status"]["alarms"] =
        json!([format!("Low memory since {}", at("10:08:50"))]);
    let news = shown.news(&timeline(TimelineKind::Loop, &objects));
    let texts: Vec<&str> = news.iter().map(|entry| entry.text.as_str()).collect();
    assert_eq!(texts, ["Low cpu: no longer so, seen at this time"]);
    assert!(shown.news(&timeline(TimelineKind::Loop, &objects)).is_empty());
}

#[test]
fn an_event_that_came_before_its_status_is_not_told_twice() {
    let mut objects = loop_objects();
    let all = objects.children.clone();
    let decision = ("Decision".to_owned(), "web".to_owned());
    objects.children.get_mut(&decision).unwrap()["status"]["history"] = json!([]);
    let mut shown = ShownEntries::default();
    let first = shown.news(&timeline(TimelineKind::Loop, &objects));
    assert!(
        first
            .iter()
            .any(|entry| entry.text == "ClosedLoop/web Scaled: Deployment/web: replicas 3 → 4: cpu 2 is below 5")
    );
    objects.children = all;
    let news = shown.news(&timeline(TimelineKind::Loop, &objects));
    assert!(!news.iter().any(|entry| entry.text.starts_with("decision 3 Served")), "{news:?}");
    assert!(news.iter().any(|entry| entry.text.starts_with("decision 3: ")), "{news:?}");
}

#[test]
fn a_state_is_told_although_its_event_came_before() {
    let mut objects = action_objects();
    let status = objects.parent["status"].clone();
    for later in ["startedAt", "slots"] {
        objects.parent["status"][later].take();
    }
    let mut shown = ShownEntries::default();
    let first = shown.news(&timeline(TimelineKind::Action, &objects));
    let event = "WorkloadAction/go Creating: Deployment/web: creates 2 pods";
    assert!(first.iter().any(|entry| entry.text == event), "{first:?}");
    objects.parent["status"] = status;
    let news = shown.news(&timeline(TimelineKind::Action, &objects));
    let admitted = "admitted, 1m after it was created: Deployment/web: creates 2 pods";
    assert!(news.iter().any(|entry| entry.text == admitted), "{news:?}");
    assert!(shown.news(&timeline(TimelineKind::Action, &objects)).is_empty());
}

#[test]
fn a_time_in_whole_seconds_does_not_put_a_result_before_its_cause() {
    let mut objects = loop_objects();
    let mut event = event("e9", "Deployment", "web", "ScalingReplicaSet", "in the second of decision 6", "10:09:00");
    event.event_time = None;
    event.first_timestamp = Some(serde_json::from_value(json!(whole("10:09:00"))).unwrap());
    add_events(&mut objects, [event]);
    let timeline = timeline(TimelineKind::Loop, &objects);
    assert!(timeline.entries.last().unwrap().text.contains("in the second of decision 6"), "{:?}", timeline.entries);
}
