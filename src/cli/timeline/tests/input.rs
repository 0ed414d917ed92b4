//! Input that is missing, cut, or of another version.

use super::*;

fn limits(kind: TimelineKind, objects: &TimelineObjects) -> String {
    timeline(kind, objects).limits.join("\n")
}

#[test]
fn an_object_that_no_operator_has_seen_has_its_creation_only() {
    for (kind, mut objects) in [
        (TimelineKind::Loop, loop_objects()),
        (TimelineKind::Action, action_objects()),
        (TimelineKind::Pool, pool_objects()),
    ] {
        objects.parent.as_object_mut().unwrap().remove("status");
        objects.children.clear();
        objects.events.clear();
        let timeline = timeline(kind, &objects);
        assert_eq!(
            timeline.entries.iter().map(|entry| entry.text.as_str()).collect::<Vec<_>>(),
            ["created"],
            "{kind:?}"
        );
    }
}

#[test]
fn a_history_that_is_cut_says_so() {
    let timeline = timeline(TimelineKind::Loop, &loop_objects());
    let gaps: Vec<&str> = timeline.gaps.iter().map(|gap| gap.text.as_str()).collect();
    assert_eq!(gaps, ["2 earlier decisions are no longer kept", "1 decision between is not recorded"]);
    let limits = timeline.limits.join("\n");
    assert!(limits.contains("Earlier decisions are not kept: the history holds 3 decisions"), "{limits}");
    assert!(limits.contains("Events expire after an hour"), "{limits}");
}

#[test]
fn fields_of_other_versions_are_ignored_and_a_status_that_cannot_be_parsed_is_named() {
    let mut objects = loop_objects();
    objects.parent["spec"]["newer"] = json!({"a": 1});
    objects.parent["status"]["newer"] = json!(7);
    assert_eq!(timeline(TimelineKind::Loop, &objects), timeline(TimelineKind::Loop, &loop_objects()));
    let decision = ("Decision".to_owned(), "web".to_owned());
    objects.children.get_mut(&decision).unwrap()["status"]["seq"] = json!("six");
    let said = limits(TimelineKind::Loop, &objects);
    assert!(said.contains("The status of Decision web cannot be parsed (invalid type: string \"six\""), "{said}");
    objects.parent["spec"]["metrics"] = json!("none");
    assert!(TimelineKind::Loop.timeline(&objects, now(), None).is_err());
}

#[test]
fn a_child_of_another_owner_is_left_out() {
    let mut objects = loop_objects();
    for child in objects.children.values_mut() {
        child["metadata"]["ownerReferences"] = json!([{"uid": "another"}]);
    }
    assert!(timeline(TimelineKind::Loop, &objects).series.is_empty());
}

#[test]
fn since_leaves_out_what_is_older_and_says_how_much() {
    let since = whole("10:02:00").parse().unwrap();
    let all = timeline(TimelineKind::Loop, &loop_objects()).entries.len();
    let timeline = TimelineKind::Loop.timeline(&loop_objects(), now(), Some(since)).unwrap();
    assert!(timeline.entries.iter().all(|entry| entry.at >= since) && timeline.start == since);
    let left_out = all - timeline.entries.len();
    let said = timeline.limits.join("\n");
    assert!(said.contains(&format!("{left_out} earlier entries are not shown: --since begins at")), "{said}");
}

#[test]
fn a_text_cannot_command_the_terminal() {
    let mut objects = loop_objects();
    objects.parent["status"]["tuning"][0]["message"] = json!("\u{1b}]0;owned\u{7}\u{1b}[2J\r\n</text><script>");
    let timeline = timeline(TimelineKind::Loop, &objects);
    let style = crate::cli::timeline::text::TextStyle { width: Some(80), colors: false };
    let shown = crate::cli::timeline::text::text(&timeline, style);
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    let picture = crate::cli::timeline::svg::svg(&timeline);
    assert!(!picture.contains("<script") && picture.contains("&lt;script&gt;"), "{picture}");
}

#[test]
fn an_action_of_many_pods_reads_the_events_of_some_and_says_so() {
    let mut objects = action_objects();
    let slots = objects.parent["status"]["slots"].as_array_mut().unwrap();
    let first = slots[0].clone();
    for index in 2..40 {
        let mut slot = first.clone();
        (slot["id"], slot["index"]) = (json!(format!("s{index}")), json!(index));
        slot["victim"]["name"] = json!(format!("old-{index}"));
        slot["replacement"]["name"] = json!(format!("new-{index}"));
        slots.push(slot);
    }
    let pods = TimelineKind::Action.events(&objects.parent).iter().filter(|one| one.contains("kind=Pod")).count();
    assert_eq!(pods, 20);
    let said = limits(TimelineKind::Action, &objects);
    assert!(said.contains("Events of 20 of its 80 pods are shown."), "{said}");
}
