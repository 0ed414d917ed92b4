//! The curves of power that were fetched, and which to fetch next.
//!
//! Fetches nothing and knows no server: [`CurveCache::wanted`] gives batches, whoever sends them hands in each answer. Reading takes
//! no mutable access, so that requests of the scheduler are answered from memory while a batch is under way.
//!
//! A model has at most one batch under way, and no key is in two. A batch counts as under way until it is answered or has failed,
//! or until [`CurveRules::answer`] has passed: its task may have ended without a word. That is a failure, and what comes later is
//! ignored.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::curve::{Curve, CurveInput, CurveKey, POINTS};

/// Times and sizes of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurveRules {
    /// Curves are fetched again at this age. At twice this age they count as missing.
    pub refresh: SignedDuration,
    /// Curves that nobody has wanted for this long are forgotten.
    pub unused: SignedDuration,
    /// The pause after a failure; it doubles with each further one.
    pub pause: SignedDuration,
    /// The longest pause after a failure.
    pub longest_pause: SignedDuration,
    /// How long a batch may be under way. Must be longer than the time limit of a request, and of its wait for a turn.
    pub answer: SignedDuration,
    /// Maximum number of curves.
    pub most: usize,
}

impl Default for CurveRules {
    fn default() -> Self {
        Self {
            refresh: SignedDuration::from_mins(30),
            unused: SignedDuration::from_hours(1),
            pause: SignedDuration::from_secs(15),
            longest_pause: SignedDuration::from_mins(5),
            answer: SignedDuration::from_mins(2),
            most: 20_000,
        }
    }
}

/// How much may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Predictions in one batch. Fewer than [`POINTS`] are room for no curve.
    pub rows: usize,
    /// Batches under way, of all models.
    pub batches: usize,
}

/// What is known for a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CurveLookup<'a> {
    Fresh(&'a Curve),
    /// Due to be fetched again; still good.
    Old(&'a Curve),
    /// Not asked yet, or not answered yet.
    Missing,
    /// The reason of the last failure. There is no curve, or it is too old.
    Failed(&'a str),
}

/// Curves of one model, to be predicted by one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurveBatch {
    model: Arc<str>,
    keys: Arc<[CurveKey]>,
    /// The call that gave it.
    turn: u64,
}

/// Failures in a row.
#[derive(Clone, Debug)]
struct Trouble {
    reason: Arc<str>,
    count: u32,
    at: Timestamp,
}

#[derive(Debug, Default)]
struct Entry {
    /// Boxed, as all entries are looked through again and again.
    curve: Option<(Box<Curve>, Timestamp)>,
    trouble: Option<Trouble>,
    /// When, and in which call, it was wanted last.
    wanted: Timestamp,
    turn: u64,
}

#[derive(Debug, Default)]
struct Model {
    under_way: Option<(CurveBatch, Timestamp)>,
    /// The call that asked it last; 0 if none has.
    asked: u64,
    trouble: Option<Trouble>,
}

/// Why a curve is to be fetched, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    Missing,
    Old,
    /// Last, so that what does not work takes no time from what works.
    Failed,
}

/// The curves of a model that are due, the most urgent first.
type Due<'a> = Vec<(Cause, Timestamp, &'a CurveKey)>;

/// Curves by key.
#[derive(Debug, Default)]
pub struct CurveCache {
    rules: CurveRules,
    entries: HashMap<CurveKey, Entry>,
    models: BTreeMap<Arc<str>, Model>,
    /// The number of calls of `wanted`.
    turn: u64,
    refused: usize,
}

const NO_POINT: &str = "the model gives no valid prediction";
const NO_ANSWER: &str = "the last request was not answered in time";
const OTHER_COUNT: &str = "the answer has another number of predictions than the request";

impl CurveBatch {
    /// The model on a server.
    #[must_use]
    pub fn model(&self) -> &Arc<str> {
        &self.model
    }

    /// What is asked for. Not empty, and in no other batch that is under way.
    #[must_use]
    pub fn keys(&self) -> &[CurveKey] {
        &self.keys
    }

    /// The inputs, in the order in which [`CurveCache::answered`] expects the predictions.
    pub fn rows(&self) -> impl Iterator<Item = CurveInput> + '_ {
        self.keys.iter().flat_map(CurveKey::inputs)
    }
}

impl CurveCache {
    #[must_use]
    pub fn new(rules: CurveRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// What is known for a key. Does not count as a use: only [`Self::wanted`] keeps and fetches curves.
    #[must_use]
    pub fn get(&self, key: &CurveKey, now: Timestamp) -> CurveLookup<'_> {
        let entry = self.entries.get(key);
        if let Some((curve, at)) = entry.and_then(|entry| entry.curve.as_ref()) {
            let age = now.duration_since(*at);
            if age <= self.rules.refresh {
                return CurveLookup::Fresh(curve);
            }
            if age <= self.rules.expiry() {
                return CurveLookup::Old(curve);
            }
        }
        let of_model = || self.models.get(key.model()).and_then(|model| model.trouble.as_ref());
        let trouble = entry.and_then(|entry| entry.trouble.as_ref()).or_else(of_model);
        trouble.map_or(CurveLookup::Missing, |trouble| CurveLookup::Failed(&trouble.reason))
    }

    /// The number of keys that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no key is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many of the keys of the last call of [`Self::wanted`] found no place. They are missing until others are no longer in
    /// use.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// What to fetch now, of the keys in use: at most one batch for each model, and none for a model that has one under way.
    ///
    /// Call it when a batch has ended and when keys have changed, and from time to time for those that have become due. All keys
    /// in use must be given each time. Of the models, those with missing curves are first, then those with old ones, then those
    /// whose last request failed; among equals, the one that was asked least recently.
    pub fn wanted<'k>(
        &mut self,
        in_use: impl IntoIterator<Item = &'k CurveKey>,
        now: Timestamp,
        room: Room,
    ) -> Vec<CurveBatch> {
        self.turn = self.turn.saturating_add(1);
        self.note(in_use, now);
        self.forget(now);
        self.give_up(now);
        let under_way = self.models.values().filter(|model| model.under_way.is_some()).count();
        let due = self.due(now, room.rows / POINTS);
        let mut models: Vec<_> = due
            .iter()
            .filter_map(|(name, due)| {
                let (model, (cause, ..)) = (self.models.get(*name)?, due.first()?);
                let cause = if model.trouble.is_some() { Cause::Failed } else { *cause };
                Some((cause, model.asked, *name, due))
            })
            .collect();
        models.sort_unstable_by_key(|(cause, asked, name, _)| (*cause, *asked, *name));
        models.truncate(room.batches.saturating_sub(under_way));
        let batches: Vec<_> = models
            .into_iter()
            .map(|(_, _, name, due)| {
                let keys = due.iter().map(|(_, _, key)| (*key).clone()).collect();
                CurveBatch { model: Arc::clone(name), keys, turn: self.turn }
            })
            .collect();
        for batch in &batches {
            let model = self.models.entry(Arc::clone(&batch.model)).or_default();
            model.asked = self.turn;
            model.under_way = Some((batch.clone(), now));
        }
        batches
    }

    /// Takes the predictions of a batch, in the order of its rows. None: the row has no prediction.
    pub fn answered(&mut self, batch: &CurveBatch, watts: &[Option<f64>], now: Timestamp) {
        if watts.len() != batch.keys.len().saturating_mul(POINTS) {
            return self.failed(batch, OTHER_COUNT, now);
        }
        let Some(model) = self.ended(batch) else { return };
        model.trouble = None;
        let no_point: Arc<str> = NO_POINT.into();
        for (key, watts) in batch.keys.iter().zip(watts.chunks(POINTS)) {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            match Curve::of(key, watts) {
                Some(curve) => {
                    entry.curve = Some((Box::new(curve), now));
                    entry.trouble = None;
                }
                None => entry.trouble = Some(Trouble::after(entry.trouble.as_ref(), &no_point, now)),
            }
        }
    }

    /// The batch got no answer, for this reason. Its model is not asked for a while; its keys come after the others then, so that
    /// one that the model cannot answer does not hold up all.
    pub fn failed(&mut self, batch: &CurveBatch, reason: &str, now: Timestamp) {
        let Some(model) = self.ended(batch) else { return };
        let reason = reason.into();
        model.trouble = Some(Trouble::after(model.trouble.as_ref(), &reason, now));
        for key in &*batch.keys {
            if let Some(entry) = self.entries.get_mut(key) {
                entry.trouble = Some(Trouble::after(entry.trouble.as_ref(), &reason, now));
            }
        }
    }

    /// The model of a batch that has ended; None if the batch was given up before.
    fn ended(&mut self, batch: &CurveBatch) -> Option<&mut Model> {
        let model = self.models.get_mut(&batch.model)?;
        model.under_way.take_if(|(asked, _)| asked.turn == batch.turn)?;
        Some(model)
    }

    /// Gives up the batches that were not answered in time.
    fn give_up(&mut self, now: Timestamp) {
        let is_late = |(_, since): &&(CurveBatch, Timestamp)| now.duration_since(*since) > self.rules.answer;
        let under_way = self.models.values().filter_map(|model| model.under_way.as_ref());
        let late: Vec<_> = under_way.filter(is_late).map(|(batch, _)| batch.clone()).collect();
        late.iter().for_each(|batch| self.failed(batch, NO_ANSWER, now));
    }

    /// Notes the keys in use. New ones take the place of those that were wanted least recently, never of others in use.
    fn note<'k>(&mut self, in_use: impl IntoIterator<Item = &'k CurveKey>, now: Timestamp) {
        let mut new = BTreeSet::new();
        for key in in_use {
            match self.entries.get_mut(key) {
                Some(entry) => (entry.wanted, entry.turn) = (now, self.turn),
                None => {
                    new.insert(key);
                }
            }
        }
        self.make_room(new.len());
        let free = self.rules.most.saturating_sub(self.entries.len());
        self.refused = new.len().saturating_sub(free);
        for key in new.into_iter().take(free) {
            let entry = Entry { wanted: now, turn: self.turn, ..Entry::default() };
            self.entries.insert(key.clone(), entry);
            self.models.entry(Arc::clone(key.model())).or_default();
        }
    }

    /// Makes room for new keys, as far as there are keys that are not in use.
    fn make_room(&mut self, new: usize) {
        let excess = self.entries.len().saturating_add(new).saturating_sub(self.rules.most);
        if excess == 0 {
            return;
        }
        let unused = self.entries.iter().filter(|(_, entry)| entry.turn != self.turn);
        let mut unused: Vec<_> = unused.map(|(key, entry)| (entry.turn, key.clone())).collect();
        unused.sort_unstable();
        for (_, key) in unused.into_iter().take(excess) {
            self.entries.remove(&key);
        }
    }

    /// Forgets keys that nobody wants, and models without keys.
    fn forget(&mut self, now: Timestamp) {
        let rules = self.rules;
        self.entries.retain(|_, entry| now.duration_since(entry.wanted) <= rules.unused);
        let used: BTreeSet<_> = self.entries.keys().map(CurveKey::model).collect();
        self.models.retain(|name, model| model.under_way.is_some() || used.contains(name));
    }

    /// The keys in use that are due, by model, of the models that may be asked: at most so many of each.
    fn due(&self, now: Timestamp, most: usize) -> BTreeMap<&Arc<str>, Due<'_>> {
        let is_open = |model: &Model| {
            model.under_way.is_none() && model.trouble.as_ref().is_none_or(|trouble| self.rules.is_over(trouble, now))
        };
        let mut due: BTreeMap<_, Due<'_>> =
            self.models.iter().filter(|(_, model)| is_open(model)).map(|(name, _)| (name, Due::new())).collect();
        for (key, entry) in self.entries.iter().filter(|(_, entry)| entry.turn == self.turn) {
            if let (Some((cause, since)), Some(due)) = (self.rules.cause(entry, now), due.get_mut(key.model())) {
                due.push((cause, since, key));
            }
        }
        for due in due.values_mut() {
            // Thousands may be due, of which one batch is asked.
            if most < due.len() {
                due.select_nth_unstable(most);
                due.truncate(most);
            }
            due.sort_unstable();
        }
        due
    }
}

impl Trouble {
    /// One failure more.
    fn after(last: Option<&Self>, reason: &Arc<str>, at: Timestamp) -> Self {
        let count = last.map_or(0, |last| last.count).saturating_add(1);
        Self { reason: Arc::clone(reason), count, at }
    }
}

impl CurveRules {
    /// The age at which a curve counts as missing.
    fn expiry(&self) -> SignedDuration {
        self.refresh.saturating_mul(2)
    }

    /// Whether the pause after a failure is over.
    fn is_over(&self, trouble: &Trouble, now: Timestamp) -> bool {
        let factor = 1_i32.checked_shl(trouble.count.saturating_sub(1)).filter(|factor| *factor > 0);
        let pause = self.pause.saturating_mul(factor.unwrap_or(i32::MAX)).min(self.longest_pause);
        now.duration_since(trouble.at) >= pause
    }

    /// Why a key is due, and since when it is as it is; None if it is not due.
    fn cause(&self, entry: &Entry, now: Timestamp) -> Option<(Cause, Timestamp)> {
        if let Some(trouble) = &entry.trouble {
            return self.is_over(trouble, now).then_some((Cause::Failed, trouble.at));
        }
        let Some((_, at)) = &entry.curve else { return Some((Cause::Missing, Timestamp::MIN)) };
        let age = now.duration_since(*at);
        let cause = if age > self.expiry() { Cause::Missing } else { Cause::Old };
        (age > self.refresh).then_some((cause, *at))
    }
}

#[cfg(test)]
mod tests;
