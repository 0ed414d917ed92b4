//! Tests of the state machine and of the screen.

mod keys;
mod models;
mod read;
mod screens;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::effect::TopEffect;
use super::facts::{TopId, TopObject};
use super::kinds::TopKind;
use super::model::{TopModel, TopScope};
use super::testing::object;
use super::update::{TopEvent, WatchNews, update};

/// One minute after the objects were created.
fn now() -> Timestamp {
    "2026-11-21T10:01:00Z".parse().unwrap()
}

fn empty(size: (u16, u16)) -> TopModel {
    TopModel::new(TopScope::Namespace("shop".to_owned()), TopKind::SHOWN.to_vec(), size, true)
}

fn ready(status: &str, reason: &str, message: &str) -> Value {
    json!([{"type": "Ready", "status": status, "reason": reason, "message": message}])
}

fn id(kind: TopKind, name: &str) -> TopId {
    object(kind, name, json!({}), json!({})).id
}

/// A loop `web` with values, an action `go`, and a pool `cameras`; the lists of all kinds are complete.
fn filled(size: (u16, u16)) -> TopModel {
    let mut model = empty(size);
    let web = json!({"conditions": ready("True", "Running", "it watches")});
    let steps = ["Succeeded", "Readying", "Queued"].map(|step| json!({"step": step}));
    let go = json!({"slots": steps, "conditions": ready("Unknown", "Moving", "web-1 becomes Ready")});
    listed(&mut model, TopKind::Loop, vec![object(TopKind::Loop, "web", json!({"mode": "DryRun"}), web)]);
    listed(&mut model, TopKind::Action, vec![object(TopKind::Action, "go", json!({}), go)]);
    let pool = json!({"replicas": 3, "jobs": 9, "converged": "3/3", "conditions": ready("True", "Assigned", "")});
    listed(&mut model, TopKind::Pool, vec![object(TopKind::Pool, "cameras", json!({}), pool)]);
    for (second, value) in [(1, "10"), (2, "40"), (3, "93")] {
        listed(&mut model, TopKind::Monitoring, vec![monitoring(second, value)]);
    }
    for kind in [TopKind::Node, TopKind::Policy, TopKind::Decision, TopKind::Execution] {
        listed(&mut model, kind, Vec::new());
    }
    model.refresh();
    model
}

fn monitoring(second: u32, value: &str) -> TopObject {
    let metrics = json!([{"name": "cpu", "low": {"raise": "5"}, "high": {"raise": "80"}}]);
    let values = json!([{"metric": "cpu", "value": value, "at": format!("2026-11-21T10:00:0{second}Z")}]);
    object(TopKind::Monitoring, "web", json!({"metrics": metrics}), json!({"values": values}))
}

fn news(model: &mut TopModel, kind: TopKind, news: WatchNews) {
    let event = TopEvent::Watched { epoch: model.epoch, kind, news };
    assert!(update(model, event, now()).is_empty());
    model.refresh();
}

fn listed(model: &mut TopModel, kind: TopKind, objects: Vec<TopObject>) {
    news(model, kind, WatchNews::Listed(objects));
}

fn press(model: &mut TopModel, code: KeyCode) -> Vec<TopEffect> {
    let effects = update(model, TopEvent::Key(KeyEvent::from(code)), now());
    model.refresh();
    effects
}

fn control(model: &mut TopModel, character: char) -> Vec<TopEffect> {
    update(model, TopEvent::Key(KeyEvent::new(KeyCode::Char(character), KeyModifiers::CONTROL)), now())
}

/// Presses the key of each character.
fn write(model: &mut TopModel, text: &str) -> Vec<TopEffect> {
    text.chars().flat_map(|character| press(model, KeyCode::Char(character))).collect()
}
