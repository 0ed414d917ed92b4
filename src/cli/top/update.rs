//! The state machine of the view: each event changes the model and returns what the program does next.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind};
use jiff::Timestamp;

use super::command::PlannedCommand;
use super::effect::TopEffect;
use super::facts::{TopId, TopObject};
use super::keys::{INPUT, on_key};
use super::kinds::TopKind;
use super::model::{Explaining, TopModel, TopPane, TopPrompt, WatchState};
use crate::cli::width::clean;

/// News of the watch of a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchNews {
    /// All objects.
    Listed(Vec<TopObject>),
    Changed(Box<TopObject>),
    Deleted(TopId),
    Broke(String),
    Denied,
    Missing,
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub enum TopEvent {
    Key(KeyEvent),
    /// Pasted text. It is input only where text is expected, and never a key that changes something.
    Pasted(String),
    Resized(u16, u16),
    /// News of a watch of this epoch.
    Watched {
        epoch: u64,
        kind: TopKind,
        news: WatchNews,
    },
    /// The rights and the object of a change were checked; the error says why it is not possible.
    Checked(Result<PlannedCommand, String>),
    /// A change was made, or not.
    Performed(Result<String, String>),
    Explained(TopId, Result<String, String>),
    /// A second has passed.
    Second,
}

/// Handles an event.
pub fn update(model: &mut TopModel, event: TopEvent, now: Timestamp) -> Vec<TopEffect> {
    match event {
        TopEvent::Key(key) if key.kind == KeyEventKind::Release => Vec::new(),
        TopEvent::Key(key) => {
            model.refresh();
            on_key(model, key)
        }
        TopEvent::Pasted(text) => {
            if matches!(model.prompt, Some(TopPrompt::Filter(_) | TopPrompt::Namespace(_))) {
                for character in text.chars().filter(|c| !c.is_control()).take(INPUT) {
                    on_key(model, KeyEvent::from(KeyCode::Char(character)));
                }
            }
            Vec::new()
        }
        TopEvent::Resized(width, height) => {
            model.size = (width, height);
            Vec::new()
        }
        TopEvent::Watched { epoch, kind, news } => {
            if epoch == model.epoch {
                on_news(model, kind, news, now);
            }
            Vec::new()
        }
        TopEvent::Checked(Ok(command)) => {
            // The user may have gone on to another input.
            if model.prompt.is_none() {
                model.notice = None;
                model.prompt = Some(TopPrompt::Confirm(command));
            }
            Vec::new()
        }
        TopEvent::Performed(Ok(text)) => {
            model.tell(&text, false);
            Vec::new()
        }
        TopEvent::Checked(Err(text)) | TopEvent::Performed(Err(text)) => {
            model.tell(&text, true);
            Vec::new()
        }
        TopEvent::Explained(of, explained) => {
            if let TopPane::Detail { id, text, .. } = &mut model.pane
                && *id == of
            {
                *text = Some(explained);
                model.explaining.requested = false;
            }
            Vec::new()
        }
        TopEvent::Second => explain_again(model),
    }
}

/// Requests the explanation again if its object changed; at most one request a second, and one at a time.
fn explain_again(model: &mut TopModel) -> Vec<TopEffect> {
    let TopPane::Detail { id, .. } = &model.pane else { return Vec::new() };
    if model.explaining != (Explaining { requested: false, outdated: true }) {
        return Vec::new();
    }
    model.explaining = Explaining { requested: true, outdated: false };
    vec![TopEffect::Explain(id.clone())]
}

fn on_news(model: &mut TopModel, kind: TopKind, news: WatchNews, now: Timestamp) {
    let state = match news {
        WatchNews::Listed(objects) => {
            let gone = |id: &&TopId| id.kind == kind && !objects.iter().any(|object| object.id == **id);
            let gone: Vec<TopId> = model.objects.keys().filter(gone).cloned().collect();
            gone.iter().for_each(|id| model.remove(id));
            objects.into_iter().for_each(|object| put(model, object));
            WatchState::Live
        }
        WatchNews::Changed(object) => {
            put(model, *object);
            WatchState::Live
        }
        WatchNews::Deleted(id) => {
            model.remove(&id);
            WatchState::Live
        }
        WatchNews::Broke(why) => match model.watches.get(&kind) {
            Some(WatchState::Stale { since, .. }) => WatchState::Stale { since: *since, why: clean(&why, 256) },
            _ => WatchState::Stale { since: now, why: clean(&why, 256) },
        },
        WatchNews::Denied => without(model, kind, WatchState::Denied),
        WatchNews::Missing => without(model, kind, WatchState::Missing),
    };
    model.watches.insert(kind, state);
}

fn put(model: &mut TopModel, object: TopObject) {
    if let TopPane::Detail { id, .. } = &model.pane
        && (id.namespace.as_str(), id.name.as_str()) == (object.id.namespace.as_str(), object.id.name.as_str())
    {
        model.explaining.outdated = true;
    }
    model.put(object);
}

/// Removes the objects of a kind that can no longer be read.
fn without(model: &mut TopModel, kind: TopKind, state: WatchState) -> WatchState {
    let gone: Vec<TopId> = model.objects.keys().filter(|id| id.kind == kind).cloned().collect();
    gone.iter().for_each(|id| model.remove(id));
    model.is_outdated = true;
    state
}
