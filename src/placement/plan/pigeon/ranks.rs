//! The imbalance of the utilisation of one resource, with one node replaced.

/// Utilisations from 0 to 1 in ascending order, with prefix sums.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ranks {
    sorted: Vec<f64>,
    /// Mean utilisation. Sums are taken relative to it.
    center: f64,
    /// Prefix sums of the relative utilisations and of their squares. The first entry is the empty sum.
    sums: Vec<(f64, f64)>,
}

impl Ranks {
    pub fn of(mut utilisations: Vec<f64>) -> Self {
        utilisations.sort_unstable_by(f64::total_cmp);
        let count = utilisations.len().max(1) as f64;
        let center = utilisations.iter().sum::<f64>() / count;
        let following = utilisations.iter().scan((0.0, 0.0), |(first, second), utilisation| {
            let relative = utilisation - center;
            *first += relative;
            *second += relative * relative;
            Some((*first, *second))
        });
        let sums = std::iter::once((0.0, 0.0)).chain(following).collect();
        Self { sorted: utilisations, center, sums }
    }

    /// Distance of the nodes from their mean after `new` replaces `old`: 1 if all nodes are full or empty, 0 if all are
    /// equal. None if all are empty or all are full, since the distance is not defined then.
    pub fn unbalance(&self, old: Option<f64>, new: Option<f64>) -> Option<f64> {
        let relative = |value: Option<f64>| value.map_or(0.0, |value| value - self.center);
        let one = |value: Option<f64>| if value.is_some() { 1.0 } else { 0.0 };
        let count = self.sorted.len() as f64 - one(old) + one(new);
        let total = self.sums.last().copied().unwrap_or_default();
        let mean_shift = (total.0 - relative(old) + relative(new)) / count;
        let mean = self.center + mean_shift;
        if !(mean > 0.0 && mean < 1.0) {
            return None;
        }
        let rank = self.sorted.partition_point(|utilisation| *utilisation < mean);
        let before = self.sums.get(rank).copied().unwrap_or(total);
        // Sums of squared distances from the new mean, separately below and above it.
        let distance = |count: f64, (first, second): (f64, f64)| {
            count * mean_shift * mean_shift - 2.0 * mean_shift * first + second
        };
        let mut below = distance(rank as f64, before);
        let mut above = distance((self.sorted.len() - rank) as f64, (total.0 - before.0, total.1 - before.1));
        for (value, sign) in [(old, -1.0), (new, 1.0)] {
            let Some(value) = value else { continue };
            let side = if value < mean { &mut below } else { &mut above };
            *side += sign * (value - mean) * (value - mean);
        }
        let square = below.max(0.0) / (mean * mean) + above.max(0.0) / ((1.0 - mean) * (1.0 - mean));
        Some((square / count).sqrt())
    }
}
