//! Pictures of `ganglion timeline` in a real browser: they are drawn in light and dark colors, and no text covers
//! another.

use std::path::Path;

use ganglion::cli::timeline::{TimelineKind, TimelineObjects, picture};
use jiff::Timestamp;
use serde_json::{Value, json};
use testkit::servers::browser::{Browser, ColorScheme, MeasuredPicture};

fn at(second: i64) -> String {
    (Timestamp::from_second(1_795_255_200 + second).unwrap()).strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()
}

fn object(kind: &str, name: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{kind}"), "creationTimestamp": at(0),
            "ownerReferences": [{"apiVersion": "ganglion.dev/v1alpha1", "kind": "ClosedLoop", "name": name, "uid": "uid-ClosedLoop"}]},
        "spec": spec, "status": status,
    })
}

/// A loop with as many decisions as a history holds, five levels of one metric close together, and names and messages
/// as long as they may be, of any script.
fn crowded() -> TimelineObjects {
    let name = "n".repeat(253);
    let metrics = json!([
        {"name": "m".repeat(40), "source": {"push": {}}, "low": {"raise": "5", "clear": "5.1"},
            "high": {"raise": "5.3", "clear": "5.2"}, "equal": {"to": "5.15"}},
        {"name": "memory", "source": {"push": {}}, "low": {"raise": "512Mi"}},
    ]);
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
    let metric = |seq: i64| if seq % 2 == 0 { "memory".to_owned() } else { "m".repeat(40) };
    let entry = |seq: i64| {
        let value = if seq % 2 == 0 { format!("{}Mi", 300 + seq) } else { format!("{}.{}", seq % 9, seq % 10) };
        format!(
            "{seq} {} Low {} {value} rung 0 | scale by 1, at most 100 | Served {} | {} -> {}",
            at(seq * 7),
            metric(seq),
            at(seq * 7 + 1),
            seq,
            seq + 1
        )
    };
    let message = "自動化された変更 <b>&amp; \"ünïcödé\"</b> ".repeat(12);
    let parent = object(
        "ClosedLoop",
        &name,
        json!({"target": target, "metrics": metrics}),
        json!({
            "conditions": [{"type": "Ready", "status": "True", "reason": "Running", "message": message, "lastTransitionTime": at(2).replace(".000000", "")}],
            "tuning": [{"by": "s".repeat(253), "uid": "u", "seq": 1, "at": at(100), "message": "w".repeat(253)}],
        }),
    );
    let monitoring = object(
        "Monitoring",
        &name,
        json!({"metrics": metrics}),
        json!({
            "values": [{"metric": metric(1), "value": "5.15", "at": at(460)}],
            "unknown": [{"metric": "memory", "since": at(452), "message": "no answer"}],
        }),
    );
    let history: Vec<String> = (2..66).map(entry).collect();
    let decision = object("Decision", &name, json!({}), json!({"seq": 65, "history": history}));
    let mut objects = TimelineObjects { parent, ..TimelineObjects::default() };
    for child in [monitoring, decision] {
        objects.children.insert((child["kind"].as_str().unwrap().to_owned(), name.clone()), child);
    }
    objects
}

fn check(name: &str, drawing: &str, browser: &Browser) -> [MeasuredPicture; 2] {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    std::fs::create_dir_all(&folder).unwrap();
    [(ColorScheme::Light, "light"), (ColorScheme::Dark, "dark")].map(|(scheme, word)| {
        browser.screenshot(drawing, scheme, &folder.join(format!("{name}-{word}.png"))).unwrap();
        let measured = browser.measure(drawing, scheme).unwrap();
        assert!(measured.overlaps.is_empty(), "{word}: texts overlap: {:#?}", measured.overlaps);
        assert!(measured.outside.is_empty(), "{word}: texts are cut: {:#?}", measured.outside);
        assert!(
            measured.drawn * 100 > measured.pixels,
            "{word}: only {} of {} pixels",
            measured.drawn,
            measured.pixels
        );
        measured
    })
}

#[test]
fn a_crowded_picture_is_legible_in_light_and_dark() {
    let now = Timestamp::from_second(1_795_255_200 + 470).unwrap();
    let drawing = picture(TimelineKind::Loop, &crowded(), now).unwrap();
    let [light, dark] = check("crowded", &drawing, &Browser::new().unwrap());
    assert!(light.texts > 150, "{} texts", light.texts);
    assert_eq!((light.background.as_str(), light.ink.as_str()), ("rgb(255, 255, 255)", "rgb(31, 35, 40)"));
    assert_eq!((dark.background.as_str(), dark.ink.as_str()), ("rgb(13, 17, 23)", "rgb(230, 237, 243)"));
}

#[test]
fn texts_that_overlap_are_found() {
    let drawing = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"200\" height=\"50\"><rect class=\"page\" width=\"200\" \
                   height=\"50\"/><text x=\"10\" y=\"20\">one</text><text x=\"12\" y=\"22\">two</text>\
                   <text x=\"190\" y=\"40\">outside</text></svg>";
    let measured = Browser::new().unwrap().measure(drawing, ColorScheme::Light).unwrap();
    assert_eq!(measured.overlaps, ["one / two"]);
    assert_eq!(measured.outside, ["outside"]);
}
