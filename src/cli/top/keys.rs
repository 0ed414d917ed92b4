//! Keys of the view: what each does in the list, in the detail pane and in an input.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::command::{PlannedCommand, TopCommand};
use super::detail::detail_lines;
use super::effect::TopEffect;
use super::kinds::TopKind;
use super::model::{Explaining, TopModel, TopNotice, TopPane, TopPrompt, TopScope};

/// Maximum number of characters of an input.
pub const INPUT: usize = 253;

/// Rows of the screen that are not part of the list.
const FRAME: u16 = 5;

/// Handles a key.
pub fn on_key(model: &mut TopModel, key: KeyEvent) -> Vec<TopEffect> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => vec![TopEffect::Quit { interrupted: true }],
            KeyCode::Char('z') => vec![TopEffect::StopJob],
            _ => Vec::new(),
        };
    }
    if let Some(prompt) = model.prompt.take() {
        return on_prompt(model, prompt, key.code);
    }
    model.notice = None;
    match &mut model.pane {
        TopPane::Help => {
            model.pane = TopPane::List;
            Vec::new()
        }
        TopPane::Detail { scroll, .. } => {
            let page = usize::from(model.size.1.saturating_sub(FRAME)).max(1);
            match key.code {
                KeyCode::Down | KeyCode::Char('j') => *scroll = scroll.saturating_add(1),
                KeyCode::Up | KeyCode::Char('k') => *scroll = scroll.saturating_sub(1),
                KeyCode::PageDown | KeyCode::Char(' ') => *scroll = scroll.saturating_add(page),
                KeyCode::PageUp => *scroll = scroll.saturating_sub(page),
                KeyCode::Home | KeyCode::Char('g') => *scroll = 0,
                KeyCode::End | KeyCode::Char('G') => *scroll = usize::MAX,
                KeyCode::Esc | KeyCode::Char('q' | 'e') | KeyCode::Enter | KeyCode::Left => model.pane = TopPane::List,
                code => return on_command_key(model, code),
            }
            limit_scroll(model);
            Vec::new()
        }
        TopPane::List => on_list_key(model, key.code),
    }
}

/// Keeps the last lines of the detail pane on the screen.
fn limit_scroll(model: &mut TopModel) {
    let lines = detail_lines(model).len();
    let shown = usize::from(model.size.1.saturating_sub(FRAME)).max(1);
    if let TopPane::Detail { scroll, .. } = &mut model.pane {
        *scroll = (*scroll).min(lines.saturating_sub(shown));
    }
}

fn on_list_key(model: &mut TopModel, code: KeyCode) -> Vec<TopEffect> {
    let page = usize::from(model.size.1.saturating_sub(FRAME)).max(1);
    match code {
        KeyCode::Char('q') => return vec![TopEffect::Quit { interrupted: false }],
        KeyCode::Down | KeyCode::Char('j') => select(model, |at| at.saturating_add(1)),
        KeyCode::Up | KeyCode::Char('k') => select(model, |at| at.saturating_sub(1)),
        KeyCode::PageDown | KeyCode::Char(' ') => select(model, |at| at.saturating_add(page)),
        KeyCode::PageUp => select(model, |at| at.saturating_sub(page)),
        KeyCode::Home | KeyCode::Char('g') => select(model, |_| 0),
        KeyCode::End | KeyCode::Char('G') => select(model, |_| usize::MAX),
        KeyCode::Tab | KeyCode::Right => turn(model, 1),
        KeyCode::BackTab | KeyCode::Left => turn(model, model.kinds.len()),
        KeyCode::Char(digit @ '0'..='9') => {
            let at = digit.to_digit(10).unwrap_or_default() as usize;
            if let Some(tab) = tabs(model).get(at) {
                show_tab(model, *tab);
            }
        }
        KeyCode::Char('/') => model.prompt = Some(TopPrompt::Filter(model.filter.clone())),
        KeyCode::Char('n') => model.prompt = Some(TopPrompt::Namespace(String::new())),
        KeyCode::Char('N') => return watch(model, TopScope::All),
        KeyCode::Char('o') => {
            let columns = model.columns();
            let at = columns.iter().position(|column| *column == model.sort).map_or(0, |at| at + 1);
            model.sort = columns[at % columns.len()];
            model.is_outdated = true;
        }
        KeyCode::Char('O') => {
            model.descending = !model.descending;
            model.is_outdated = true;
        }
        KeyCode::Char('?' | 'h') => model.pane = TopPane::Help,
        KeyCode::Esc => {
            model.filter.clear();
            model.is_outdated = true;
        }
        KeyCode::Enter | KeyCode::Char('e') => return explain(model),
        code => return on_command_key(model, code),
    }
    Vec::new()
}

fn on_command_key(model: &mut TopModel, code: KeyCode) -> Vec<TopEffect> {
    let command = match code {
        KeyCode::Char('s') => TopCommand::Suspend,
        KeyCode::Char('r') => TopCommand::Resume,
        KeyCode::Char('x') => TopCommand::Abort,
        KeyCode::Char('a') => TopCommand::Approve,
        _ => return Vec::new(),
    };
    let Some(object) = model.subject() else { return Vec::new() };
    let mode = model.modes.get(&object.uid).map(String::as_str);
    match PlannedCommand::new(command, object, mode) {
        Ok(planned) => {
            let text = format!("checking whether you may {} {} …", command.verb(), object.id.words());
            model.notice = Some(TopNotice { text, is_bad: false });
            vec![TopEffect::Check(planned)]
        }
        Err(why) => {
            model.tell(&why, true);
            Vec::new()
        }
    }
}

fn on_prompt(model: &mut TopModel, prompt: TopPrompt, code: KeyCode) -> Vec<TopEffect> {
    match prompt {
        TopPrompt::Confirm(planned) => {
            if matches!(code, KeyCode::Char('y' | 'Y')) {
                let text = format!("{} {} …", planned.command.verb(), planned.id.words());
                model.notice = Some(TopNotice { text, is_bad: false });
                return vec![TopEffect::Perform(planned)];
            }
            model.tell("nothing was changed", false);
            Vec::new()
        }
        TopPrompt::Filter(before) => {
            match code {
                KeyCode::Esc => model.filter = before,
                KeyCode::Enter => {}
                code => {
                    edit(&mut model.filter, code);
                    model.prompt = Some(TopPrompt::Filter(before));
                }
            }
            model.is_outdated = true;
            Vec::new()
        }
        TopPrompt::Namespace(mut name) => match code {
            KeyCode::Esc => Vec::new(),
            KeyCode::Enter if name.is_empty() => watch(model, TopScope::All),
            KeyCode::Enter => watch(model, TopScope::Namespace(name)),
            code => {
                edit(&mut name, code);
                // Names of namespaces have no other characters.
                name.retain(|c| c.is_ascii_alphanumeric() || c == '-');
                model.prompt = Some(TopPrompt::Namespace(name.to_lowercase()));
                Vec::new()
            }
        },
    }
}

fn edit(text: &mut String, code: KeyCode) {
    match code {
        KeyCode::Char(character) if !character.is_control() && text.chars().count() < INPUT => text.push(character),
        KeyCode::Backspace => {
            text.pop();
        }
        _ => {}
    }
}

/// Starts new watches and forgets the objects of the former ones.
fn watch(model: &mut TopModel, scope: TopScope) -> Vec<TopEffect> {
    let epoch = model.epoch + 1;
    let mut next = TopModel::new(scope.clone(), model.kinds.clone(), model.size, model.has_color);
    next.filter = std::mem::take(&mut model.filter);
    next.modes = std::mem::take(&mut model.modes);
    (next.tab, next.sort, next.descending, next.epoch) = (model.tab, model.sort, model.descending, epoch);
    *model = next;
    vec![TopEffect::Watch(scope, epoch)]
}

fn explain(model: &mut TopModel) -> Vec<TopEffect> {
    let Some(id) = model.selected.clone() else { return Vec::new() };
    model.select(Some(id.clone()));
    model.pane = TopPane::Detail { id: id.clone(), text: None, scroll: 0 };
    model.explaining = Explaining { requested: true, outdated: false };
    vec![TopEffect::Explain(id)]
}

fn select(model: &mut TopModel, next: impl Fn(usize) -> usize) {
    let at = next(model.position()).min(model.rows.len().saturating_sub(1));
    let id = model.rows.get(at).map(|row| row.id.clone());
    model.select(id);
}

/// The tabs: all kinds, then each.
pub fn tabs(model: &TopModel) -> Vec<Option<TopKind>> {
    std::iter::once(None).chain(model.kinds.iter().copied().map(Some)).collect()
}

fn turn(model: &mut TopModel, by: usize) {
    let tabs = tabs(model);
    let at = tabs.iter().position(|tab| *tab == model.tab).unwrap_or_default();
    show_tab(model, tabs[(at + by) % tabs.len()]);
}

fn show_tab(model: &mut TopModel, tab: Option<TopKind>) {
    model.tab = tab;
    model.is_outdated = true;
}
