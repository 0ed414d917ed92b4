//! Keys and events of the state machine.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cli::top::command::{PlannedCommand, TopCommand};
use crate::cli::top::model::{TopPane, TopPrompt, WatchState};
use crate::cli::top::table::TopColumn;

fn shown(model: &TopModel) -> Vec<&str> {
    model.rows.iter().map(|row| row.id.name.as_str()).collect()
}

fn check(model: &mut TopModel, key: char) -> PlannedCommand {
    let effects = press(model, KeyCode::Char(key));
    let [TopEffect::Check(planned)] = &effects[..] else { panic!("{effects:?}, {:?}", model.notice) };
    planned.clone()
}

#[test]
fn a_change_is_checked_confirmed_and_made() {
    let mut model = filled((80, 24));
    model.select(Some(id(TopKind::Loop, "web")));
    let planned = check(&mut model, 's');
    assert_eq!(
        (planned.command, planned.id.name.as_str(), planned.uid.as_str()),
        (TopCommand::Suspend, "web", "uid-web")
    );
    assert_eq!(model.prompt, None, "the view asks only after the check of the rights");
    assert!(update(&mut model, TopEvent::Checked(Ok(planned.clone())), now()).is_empty());
    assert_eq!(model.prompt, Some(TopPrompt::Confirm(planned.clone())));
    assert_eq!(press(&mut model, KeyCode::Char('y')), [TopEffect::Perform(planned)]);
    assert_eq!(model.prompt, None);
    update(&mut model, TopEvent::Performed(Ok("done".to_owned())), now());
    assert_eq!(model.notice.as_ref().map(|notice| (notice.text.as_str(), notice.is_bad)), Some(("done", false)));
}

#[test]
fn every_other_key_than_y_changes_nothing() {
    for code in [KeyCode::Char('n'), KeyCode::Esc, KeyCode::Enter, KeyCode::Char('s'), KeyCode::Down] {
        let mut model = filled((80, 24));
        let planned = check(&mut model, 's');
        update(&mut model, TopEvent::Checked(Ok(planned)), now());
        assert!(press(&mut model, code).is_empty(), "{code:?}");
        assert_eq!(model.notice.as_ref().map(|notice| notice.text.as_str()), Some("nothing was changed"));
        assert!(press(&mut model, KeyCode::Char('y')).is_empty());
    }
}

#[test]
fn a_missing_right_is_named_and_nothing_is_asked() {
    let mut model = filled((80, 24));
    check(&mut model, 's');
    let why = "you need the right to patch workloadactions.ganglion.dev (go) in namespace shop".to_owned();
    assert!(update(&mut model, TopEvent::Checked(Err(why.clone())), now()).is_empty());
    assert_eq!(model.prompt, None);
    assert_eq!(model.notice.as_ref().map(|notice| (notice.text.clone(), notice.is_bad)), Some((why, true)));
    assert!(press(&mut model, KeyCode::Char('y')).is_empty());
}

#[test]
fn a_late_answer_does_not_interrupt_an_input() {
    let mut model = filled((80, 24));
    let planned = check(&mut model, 's');
    press(&mut model, KeyCode::Char('/'));
    update(&mut model, TopEvent::Checked(Ok(planned)), now());
    assert!(write(&mut model, "y").is_empty());
    assert_eq!(model.filter, "y");
}

#[test]
fn keys_of_changes_that_are_not_possible_say_why() {
    let mut model = filled((80, 24));
    model.select(Some(id(TopKind::Loop, "web")));
    for (key, expected) in [('x', "cannot be aborted"), ('a', "has no proposal"), ('r', "is not paused")] {
        assert!(press(&mut model, KeyCode::Char(key)).is_empty());
        let notice = model.notice.clone().unwrap();
        assert!(notice.is_bad && notice.text.contains(expected), "{}", notice.text);
    }
}

#[test]
fn a_loop_that_was_paused_gets_its_mode_back() {
    let mut model = filled((80, 24));
    let paused = object(TopKind::Loop, "web", json!({"mode": "Paused"}), json!({}));
    news(&mut model, TopKind::Loop, WatchNews::Changed(Box::new(paused)));
    model.select(Some(id(TopKind::Loop, "web")));
    let planned = check(&mut model, 'r');
    assert!(planned.question.ends_with("This sets spec.mode back to DryRun."), "{}", planned.question);
}

#[test]
fn the_filter_is_edited_kept_and_restored() {
    let mut model = filled((80, 24));
    press(&mut model, KeyCode::Char('/'));
    write(&mut model, "camx");
    press(&mut model, KeyCode::Backspace);
    assert_eq!(shown(&model), ["cameras"]);
    press(&mut model, KeyCode::Enter);
    assert_eq!((model.filter.as_str(), &model.prompt), ("cam", &None));
    press(&mut model, KeyCode::Char('/'));
    write(&mut model, "era");
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.filter, "cam");
    press(&mut model, KeyCode::Esc);
    assert_eq!(shown(&model), ["go", "web", "cameras"]);
}

#[test]
fn pasted_text_is_never_a_command() {
    let mut model = filled((80, 24));
    for text in ["q", "sy", "x\ny"] {
        assert!(update(&mut model, TopEvent::Pasted(text.to_owned()), now()).is_empty());
    }
    assert_eq!(model.prompt, None);
    press(&mut model, KeyCode::Char('/'));
    update(&mut model, TopEvent::Pasted("we\nb\u{1b}".to_owned()), now());
    assert_eq!(model.filter, "web");
}

#[test]
fn kinds_and_order_are_selected() {
    let mut model = filled((80, 24));
    press(&mut model, KeyCode::Char('3'));
    assert_eq!((model.tab, shown(&model)), (Some(TopKind::Pool), vec!["cameras"]));
    press(&mut model, KeyCode::Tab);
    assert_eq!(model.tab, Some(TopKind::Node));
    for _ in 0..2 {
        press(&mut model, KeyCode::BackTab);
    }
    assert_eq!(model.tab, Some(TopKind::Loop));
    press(&mut model, KeyCode::Char('0'));
    press(&mut model, KeyCode::Char('9'));
    assert_eq!(model.tab, None);
    press(&mut model, KeyCode::Char('o'));
    assert_eq!((model.sort, shown(&model)), (TopColumn::Name, vec!["cameras", "go", "web"]));
    press(&mut model, KeyCode::Char('O'));
    assert_eq!(shown(&model), ["web", "go", "cameras"]);
}

#[test]
fn the_selection_stays_on_its_object() {
    let mut model = filled((80, 24));
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Down);
    assert_eq!(model.selected, Some(id(TopKind::Pool, "cameras")));
    press(&mut model, KeyCode::Down);
    let another = object(TopKind::Action, "another", json!({}), json!({}));
    news(&mut model, TopKind::Action, WatchNews::Changed(Box::new(another)));
    assert_eq!((model.selected.clone(), model.position()), (Some(id(TopKind::Pool, "cameras")), 3));
    news(&mut model, TopKind::Pool, WatchNews::Deleted(id(TopKind::Pool, "cameras")));
    assert_eq!(model.selected, Some(id(TopKind::Action, "another")));
    press(&mut model, KeyCode::End);
    assert_eq!(model.position(), 2);
    press(&mut model, KeyCode::Home);
    assert_eq!(model.position(), 0);
}

#[test]
fn another_namespace_has_other_watches() {
    let mut model = filled((80, 24));
    press(&mut model, KeyCode::Char('n'));
    write(&mut model, "Te am-2");
    let scope = TopScope::Namespace("team-2".to_owned());
    assert_eq!(press(&mut model, KeyCode::Enter), [TopEffect::Watch(scope, 1)]);
    assert!(model.objects.is_empty() && model.rows.is_empty() && model.is_listing());
    // Late news of the former watches.
    let late = WatchNews::Listed(vec![object(TopKind::Loop, "web", json!({}), json!({}))]);
    update(&mut model, TopEvent::Watched { epoch: 0, kind: TopKind::Loop, news: late }, now());
    assert!(model.objects.is_empty());
    assert_eq!(press(&mut model, KeyCode::Char('N')), [TopEffect::Watch(TopScope::All, 2)]);
    press(&mut model, KeyCode::Char('n'));
    assert_eq!(press(&mut model, KeyCode::Enter), [TopEffect::Watch(TopScope::All, 3)]);
}

#[test]
fn the_explanation_follows_its_object() {
    let mut model = filled((80, 24));
    let go = id(TopKind::Action, "go");
    assert_eq!(press(&mut model, KeyCode::Enter), [TopEffect::Explain(go.clone())]);
    let changed = || WatchNews::Changed(Box::new(object(TopKind::Action, "go", json!({}), json!({}))));
    news(&mut model, TopKind::Action, changed());
    assert!(update(&mut model, TopEvent::Second, now()).is_empty(), "one request at a time");
    update(&mut model, TopEvent::Explained(go.clone(), Ok("it moves".to_owned())), now());
    assert_eq!(update(&mut model, TopEvent::Second, now()), [TopEffect::Explain(go.clone())]);
    assert!(update(&mut model, TopEvent::Second, now()).is_empty(), "nothing has changed");
    update(&mut model, TopEvent::Explained(id(TopKind::Pool, "other"), Ok("late".to_owned())), now());
    assert!(matches!(&model.pane, TopPane::Detail { text: Some(Ok(text)), .. } if text == "it moves"));
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.pane, TopPane::List);
}

#[test]
fn a_broken_watch_is_stale_until_it_lists_again() {
    let mut model = filled((80, 24));
    news(&mut model, TopKind::Loop, WatchNews::Broke("connection refused".to_owned()));
    let later = now() + jiff::SignedDuration::from_secs(9);
    let again = TopEvent::Watched { epoch: 0, kind: TopKind::Loop, news: WatchNews::Broke("reset".to_owned()) };
    update(&mut model, again, later);
    assert_eq!(model.stale(), Some((now(), 1, "reset")));
    assert!(model.objects.contains_key(&id(TopKind::Loop, "web")));
    listed(&mut model, TopKind::Loop, Vec::new());
    assert_eq!(model.stale(), None);
    assert!(!model.objects.contains_key(&id(TopKind::Loop, "web")));
}

#[test]
fn a_kind_without_rights_has_no_objects() {
    let mut model = filled((80, 24));
    news(&mut model, TopKind::Action, WatchNews::Denied);
    assert_eq!(shown(&model), ["web", "cameras"]);
    assert_eq!(model.watches[&TopKind::Action], WatchState::Denied);
}

#[test]
fn the_view_is_left_by_q_and_by_control_c_and_stopped_by_control_z() {
    let mut model = filled((80, 24));
    assert_eq!(control(&mut model, 'z'), [TopEffect::StopJob]);
    assert_eq!(control(&mut model, 'c'), [TopEffect::Quit { interrupted: true }]);
    press(&mut model, KeyCode::Char('?'));
    assert!(press(&mut model, KeyCode::Char('q')).is_empty(), "q leaves the help");
    assert_eq!(press(&mut model, KeyCode::Char('q')), [TopEffect::Quit { interrupted: false }]);
    press(&mut model, KeyCode::Char('/'));
    assert!(press(&mut model, KeyCode::Char('q')).is_empty(), "q is a letter of the filter");
    assert_eq!(control(&mut model, 'z'), [TopEffect::StopJob]);
    assert_eq!(control(&mut model, 'c'), [TopEffect::Quit { interrupted: true }]);
}

#[test]
fn a_released_key_is_no_key() {
    let mut model = filled((80, 24));
    let released = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
    assert!(update(&mut model, TopEvent::Key(released), now()).is_empty());
}

proptest! {
    #[test]
    fn no_keys_change_an_object_without_y(keys in "[a-xzA-XZ0-9/? ]{0,60}") {
        let mut model = filled((80, 24));
        for key in keys.chars() {
            for effect in press(&mut model, KeyCode::Char(key)) {
                match effect {
                    TopEffect::Perform(planned) => prop_assert!(false, "{planned:?}"),
                    TopEffect::Check(planned) => {
                        update(&mut model, TopEvent::Checked(Ok(planned)), now());
                    }
                    TopEffect::Watch(..) | TopEffect::Explain(_) | TopEffect::StopJob | TopEffect::Quit { .. } => {}
                }
            }
        }
    }
}
