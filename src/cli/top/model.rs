//! State of the view. It changes only by `update`.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::command::PlannedCommand;
use super::facts::{TopDetail, TopId, TopObject};
use super::kinds::TopKind;
use super::rows::TopRow;
use super::table::TopColumn;
use super::trend::Trend;
use crate::cli::width::clean;
use ganglion_core::quantity;

/// Maximum number of objects of a kind in the view.
pub const OBJECTS: usize = 5_000;

/// Number of metrics of a loop above which values of former metrics are dropped.
const METRICS: usize = 64;

/// Maximum number of characters of the result of a key.
const NOTICE: usize = 1024;

/// The namespaces that are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopScope {
    All,
    Namespace(String),
}

impl TopScope {
    /// The namespace, unless it is all.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::All => None,
            Self::Namespace(namespace) => Some(namespace),
        }
    }

    pub fn words(&self) -> String {
        self.namespace().map_or_else(|| "all namespaces".to_owned(), |namespace| format!("namespace {namespace}"))
    }
}

/// State of the watch of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchState {
    /// The first list is not complete.
    Listing,
    Live,
    /// The watch broke; the objects are shown as they were.
    Stale {
        since: Timestamp,
        why: String,
    },
    /// The user may not list or watch the kind.
    Denied,
    /// The API server does not serve the kind.
    Missing,
}

/// The part of the screen that keys act on.
#[derive(Clone, Debug, PartialEq)]
pub enum TopPane {
    List,
    /// The explanation of an object, or why there is none.
    Detail {
        id: TopId,
        text: Option<Result<String, String>>,
        scroll: usize,
    },
    Help,
}

/// An input at the bottom of the screen.
#[derive(Clone, Debug, PartialEq)]
pub enum TopPrompt {
    /// Text before the change, restored by Esc.
    Filter(String),
    Namespace(String),
    Confirm(PlannedCommand),
}

/// The explanation in the detail pane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explaining {
    /// A request is on its way.
    pub requested: bool,
    /// The object changed since the last request.
    pub outdated: bool,
}

/// Result of the last key, and whether it is a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopNotice {
    pub text: String,
    pub is_bad: bool,
}

/// State of the view.
#[derive(Clone, Debug, PartialEq)]
pub struct TopModel {
    pub scope: TopScope,
    /// Kinds with rows.
    pub kinds: Vec<TopKind>,
    /// The only kind that is listed; None: all.
    pub tab: Option<TopKind>,
    pub filter: String,
    pub sort: TopColumn,
    pub descending: bool,
    pub pane: TopPane,
    pub prompt: Option<TopPrompt>,
    pub notice: Option<TopNotice>,
    pub explaining: Explaining,
    pub watches: BTreeMap<TopKind, WatchState>,
    /// Number of the set of watches; news of former ones is dropped.
    pub epoch: u64,
    pub objects: BTreeMap<TopId, TopObject>,
    /// Recent values by loop and metric.
    pub trends: BTreeMap<TopId, BTreeMap<String, Trend>>,
    /// Last mode of each loop, by uid, that was not Paused.
    pub modes: BTreeMap<String, String>,
    /// Sorted rows that match.
    pub rows: Vec<TopRow>,
    pub is_outdated: bool,
    pub selected: Option<TopId>,
    /// The user has selected a row. Until then, the first row is selected, whichever it is.
    pub has_moved: bool,
    /// Width and height of the terminal.
    pub size: (u16, u16),
    pub has_color: bool,
}

impl TopModel {
    pub fn new(scope: TopScope, kinds: Vec<TopKind>, size: (u16, u16), has_color: bool) -> Self {
        let watches = TopKind::watched(&kinds).into_iter().map(|kind| (kind, WatchState::Listing)).collect();
        Self {
            scope,
            kinds,
            tab: None,
            filter: String::new(),
            sort: TopColumn::Kind,
            descending: false,
            pane: TopPane::List,
            prompt: None,
            notice: None,
            explaining: Explaining::default(),
            watches,
            epoch: 0,
            objects: BTreeMap::new(),
            trends: BTreeMap::new(),
            modes: BTreeMap::new(),
            rows: Vec::new(),
            is_outdated: false,
            selected: None,
            has_moved: false,
            size,
            has_color,
        }
    }

    /// Stores an object, and the values and the mode that it shows.
    pub fn put(&mut self, object: TopObject) {
        let id = object.id.clone();
        let is_new = !self.objects.contains_key(&id);
        if is_new
            && self.objects.len() >= OBJECTS
            && self.objects.keys().filter(|known| known.kind == id.kind).count() >= OBJECTS
        {
            return;
        }
        match &object.detail {
            TopDetail::Loop { mode, .. } if mode != "Paused" => {
                self.modes.insert(object.uid.clone(), mode.clone());
            }
            TopDetail::Monitoring { levels, readings, .. } => {
                if let Some(trends) = self.trends.get_mut(&id.as_kind(TopKind::Loop)).filter(|all| all.len() > METRICS)
                {
                    trends.retain(|metric, _| levels.iter().any(|(name, _)| name == metric));
                }
                for reading in readings {
                    if let (Some(at), Ok(value)) = (reading.at, quantity::number(&reading.value)) {
                        self.trend(&id, &reading.metric).add(at, value);
                    }
                }
            }
            TopDetail::Decision { past, .. } => {
                for one in past {
                    self.trend(&id, &one.metric).add(one.at, one.value);
                }
            }
            _ => {}
        }
        self.objects.insert(id, object);
        self.is_outdated = true;
    }

    fn trend(&mut self, id: &TopId, metric: &str) -> &mut Trend {
        let metrics = self.trends.entry(id.as_kind(TopKind::Loop)).or_default();
        metrics.entry(metric.to_owned()).or_default()
    }

    /// Removes an object, and the values and the mode of a loop.
    pub fn remove(&mut self, id: &TopId) {
        let removed = self.objects.remove(id);
        if id.kind == TopKind::Loop {
            self.trends.remove(id);
            self.modes.retain(|uid, _| removed.as_ref().is_none_or(|object| object.uid != *uid));
        }
        self.is_outdated = true;
    }

    /// Sorts and filters the rows again if an object changed since the last time.
    pub fn refresh(&mut self) {
        if !std::mem::take(&mut self.is_outdated) {
            return;
        }
        let is_listed = |kind: TopKind| self.kinds.contains(&kind) && self.tab.is_none_or(|tab| tab == kind);
        let listed = self.objects.values().filter(|object| is_listed(object.id.kind));
        let all = listed.map(|object| TopRow::of(object, &self.objects));
        let mut rows: Vec<TopRow> = all.filter(|row| row.matches(&self.filter)).collect();
        rows.sort_by(|a, b| {
            let order = compare(a, b, self.sort);
            let order = if self.descending { order.reverse() } else { order };
            order.then_with(|| a.id.cmp(&b.id))
        });
        self.rows = rows;
        if !self.has_moved || !self.rows.iter().any(|row| Some(&row.id) == self.selected.as_ref()) {
            self.selected = self.rows.first().map(|row| row.id.clone());
        }
    }

    /// Shows the result of a key.
    pub fn tell(&mut self, text: &str, is_bad: bool) {
        self.notice = Some(TopNotice { text: clean(text, NOTICE), is_bad });
    }

    /// Selects the row of an object.
    pub fn select(&mut self, id: Option<TopId>) {
        self.has_moved = true;
        self.selected = id;
    }

    /// Position of the selected row.
    pub fn position(&self) -> usize {
        self.rows.iter().position(|row| Some(&row.id) == self.selected.as_ref()).unwrap_or_default()
    }

    /// The object of the detail pane or the selected row.
    pub fn subject(&self) -> Option<&TopObject> {
        let id = match &self.pane {
            TopPane::Detail { id, .. } => Some(id),
            TopPane::List | TopPane::Help => self.selected.as_ref(),
        };
        self.objects.get(id?)
    }

    /// Columns of the table: the namespace is shown if there may be several.
    pub fn columns(&self) -> Vec<TopColumn> {
        let is_shown = |column: &TopColumn| match column {
            TopColumn::Namespace => self.scope == TopScope::All,
            TopColumn::Kind => self.tab.is_none(),
            TopColumn::Trend => self.rows.iter().any(|row| row.metric.is_some()),
            _ => true,
        };
        TopColumn::ALL.into_iter().filter(is_shown).collect()
    }

    /// One line for each kind that cannot be shown, and for a kind with too many objects.
    pub fn gaps(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, watch) in &self.watches {
            lines.extend(gap(*kind, watch, &self.scope));
        }
        for kind in &self.kinds {
            if self.objects.keys().filter(|id| id.kind == *kind).count() >= OBJECTS {
                lines.push(format!("{}: only {OBJECTS} objects are shown; select a namespace with n", kind.title()));
            }
        }
        lines
    }

    /// Time since which a part of the view is stale, the number of these watches, and the reason of the first.
    pub fn stale(&self) -> Option<(Timestamp, usize, &str)> {
        let stale = self.watches.values().filter_map(|watch| match watch {
            WatchState::Stale { since, why } => Some((*since, why.as_str())),
            WatchState::Listing | WatchState::Live | WatchState::Denied | WatchState::Missing => None,
        });
        let all: Vec<(Timestamp, &str)> = stale.collect();
        let (since, why) = all.iter().min()?;
        Some((*since, all.len(), why))
    }

    pub fn is_listing(&self) -> bool {
        self.watches.values().any(|watch| *watch == WatchState::Listing)
    }
}

/// Line for a kind that cannot be shown.
pub fn gap(kind: TopKind, watch: &WatchState, scope: &TopScope) -> Option<String> {
    match watch {
        WatchState::Denied => {
            let namespace = scope.namespace().filter(|_| kind.is_namespaced());
            let of = namespace.map(|name| format!(" in namespace {name}")).unwrap_or_default();
            Some(format!("{}: not permitted: list and watch {}{of}", kind.title(), kind.full_name()))
        }
        WatchState::Missing => Some(format!("{}: not installed: {}", kind.title(), kind.full_name())),
        WatchState::Listing | WatchState::Live | WatchState::Stale { .. } => None,
    }
}

fn compare(a: &TopRow, b: &TopRow, column: TopColumn) -> std::cmp::Ordering {
    match column {
        TopColumn::Kind => a.id.kind.cmp(&b.id.kind),
        TopColumn::Namespace => a.id.namespace.cmp(&b.id.namespace),
        TopColumn::Name => a.id.name.cmp(&b.id.name),
        TopColumn::State => (a.tone, &a.state).cmp(&(b.tone, &b.state)),
        TopColumn::Reason => a.reason.cmp(&b.reason),
        TopColumn::Progress => a.progress.cmp(&b.progress),
        // The youngest first.
        TopColumn::Age => b.created.cmp(&a.created),
        TopColumn::Trend | TopColumn::Message => a.message.cmp(&b.message),
    }
}
