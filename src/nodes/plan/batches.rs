//! Batches of rows for a model that may accept only few rows in a request: its limit is found by refusals.
//!
//! A refused batch is halved, and so are all that follow. A row that is refused alone is wrong itself; then larger
//! batches are tried again.

use std::collections::VecDeque;
use std::ops::Range;

/// Number of batches that are requested at the same time once the model has accepted one.
const AT_ONCE: usize = 8;

/// Number of single rows that a model refuses before it has accepted any row: it would refuse the others, too.
const HOPELESS: usize = 3;

/// Number of wrong rows after which larger batches are not tried again.
const MAX_RETRIES: usize = 3;

/// Effect of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchRefusal {
    /// The rows follow in smaller batches.
    Split,
    /// The model refuses this row.
    Row(usize),
    /// The model refuses every row.
    Model,
}

/// Rows without an answer, and the size of their batches.
#[derive(Clone, Debug)]
pub struct Batches {
    pending: VecDeque<Range<usize>>,
    /// Size of the first batch.
    first: usize,
    /// Size of the next batches.
    size: usize,
    has_accepted: bool,
    /// Number of rows that were refused alone.
    refused: usize,
}

impl Batches {
    /// Batches of these rows with at most `size` of them, at least 1.
    pub fn new(rows: usize, size: usize) -> Self {
        let size = size.max(1);
        Self { pending: std::iter::once(0..rows).collect(), first: size, size, has_accepted: false, refused: 0 }
    }

    /// Batches to request now. Empty if each row has an answer or is in a batch without one.
    pub fn take(&mut self) -> Vec<Range<usize>> {
        let count = if self.has_accepted { AT_ONCE } else { 1 };
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count
            && let Some(rows) = self.pending.pop_front()
        {
            let end = rows.start.saturating_add(self.size).min(rows.end);
            if end < rows.end {
                self.pending.push_front(end..rows.end);
            }
            if rows.start < end {
                taken.push(rows.start..end);
            }
        }
        taken
    }

    /// Records that a batch got no answer and must be requested again.
    pub fn repeat(&mut self, batch: Range<usize>) {
        self.pending.push_front(batch);
    }

    /// Records that the model accepted a batch.
    pub fn accept(&mut self) {
        if !self.has_accepted && self.refused > 0 {
            self.size = self.first;
        }
        self.has_accepted = true;
    }

    /// Records that the model refused a batch.
    pub fn refuse(&mut self, batch: Range<usize>) -> BatchRefusal {
        if batch.len() > 1 {
            self.size = self.size.min(batch.len() / 2);
            self.pending.push_front(batch);
            return BatchRefusal::Split;
        }
        self.refused += 1;
        if !self.has_accepted && self.refused >= HOPELESS {
            return BatchRefusal::Model;
        }
        if self.has_accepted && self.refused <= MAX_RETRIES {
            self.size = self.first;
        }
        BatchRefusal::Row(batch.start)
    }

    /// Whether the model has accepted a batch.
    pub fn has_accepted(&self) -> bool {
        self.has_accepted
    }

    /// Limit of the model, if it is smaller than the first batch.
    pub fn limit(&self) -> Option<usize> {
        (self.has_accepted && self.size < self.first).then_some(self.size)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Result of a poll.
    #[derive(Debug)]
    struct Polled {
        answered: BTreeSet<usize>,
        wrong: BTreeSet<usize>,
        requests: usize,
        /// Whether the model refused every row.
        hopeless: bool,
        limit: Option<usize>,
    }

    /// Polls a model that accepts at most `limit` rows, none of them in `bad`.
    fn poll(rows: usize, size: usize, limit: usize, bad: &BTreeSet<usize>) -> Polled {
        let mut batches = Batches::new(rows, size);
        let (mut answered, mut wrong, mut requests, mut hopeless) = (BTreeSet::new(), BTreeSet::new(), 0, false);
        loop {
            let taken = batches.take();
            if taken.is_empty() || hopeless {
                return Polled { answered, wrong, requests, hopeless, limit: batches.limit() };
            }
            for batch in taken {
                requests += 1;
                if batch.len() <= limit && batch.clone().all(|row| !bad.contains(&row)) {
                    batches.accept();
                    answered.extend(batch);
                    continue;
                }
                match batches.refuse(batch) {
                    BatchRefusal::Split => {}
                    BatchRefusal::Row(row) => assert!(wrong.insert(row)),
                    BatchRefusal::Model => hopeless = true,
                }
            }
        }
    }

    #[test]
    fn a_model_that_takes_one_row_is_asked_for_each_row() {
        let first = poll(300, 1000, 1, &BTreeSet::new());
        assert_eq!((first.answered.len(), first.limit), (300, Some(1)));
        assert!(first.requests <= 300 + 10, "{}", first.requests);
        let next = poll(300, 1, 1, &BTreeSet::new());
        assert_eq!((next.answered.len(), next.requests), (300, 300));
    }

    #[test]
    fn a_row_that_the_model_refuses_costs_the_others_nothing() {
        for bad in [0, 7, 299] {
            let found = poll(300, 1000, 1000, &BTreeSet::from([bad]));
            assert_eq!((found.answered.len(), &found.wrong), (299, &BTreeSet::from([bad])));
            assert_eq!(found.limit, None, "the size of the batch was not the reason");
            assert!(found.requests <= 40, "{} requests for row {bad}", found.requests);
        }
    }

    #[test]
    fn a_model_that_refuses_everything_is_not_asked_for_each_row() {
        let found = poll(1000, 1000, 0, &BTreeSet::new());
        assert!(found.hopeless && found.requests <= 14, "{found:?}");
        assert_eq!(found.limit, None);
        let single = poll(1, 1000, 0, &BTreeSet::new());
        assert_eq!((single.wrong.len(), single.requests), (1, 1));
    }

    #[test]
    fn no_rows_need_no_request() {
        assert_eq!(poll(0, 1000, 1000, &BTreeSet::new()).requests, 0);
    }

    proptest! {
        #[test]
        fn each_row_has_one_answer(rows in 1..400_usize, size in 1..1000_usize, limit in 1..1000_usize,
            bad in prop::collection::btree_set(0..400_usize, 0..4)) {
            let found = poll(rows, size, limit, &bad);
            let bad: BTreeSet<usize> = bad.into_iter().filter(|row| *row < rows).collect();
            if !found.hopeless {
                prop_assert_eq!(&found.wrong, &bad);
                prop_assert_eq!(found.answered.len() + found.wrong.len(), rows);
            }
            let most = rows.div_ceil(limit.min(size).div_ceil(2)) + 40 * (bad.len() + 1);
            prop_assert!(found.requests <= most.max(2 * rows), "{} requests, more than {}", found.requests, most);
            // The next poll needs no refusals for its size.
            if bad.is_empty() {
                let size = found.limit.unwrap_or(size);
                prop_assert_eq!(poll(rows, size, limit, &bad).requests, rows.div_ceil(size));
            }
        }
    }
}
