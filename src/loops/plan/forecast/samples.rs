//! Demand of the bucket that is not over.

/// Maximum number of samples that are kept. If there are more, every second one is.
const MAX_SAMPLES: usize = 64;

/// Samples of one bucket, evenly spread over it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BucketSamples {
    kept: Vec<f64>,
    /// Number of all samples.
    seen: u64,
    /// Binary logarithm of the distance between two samples that are kept.
    halvings: u32,
}

impl BucketSamples {
    pub fn add(&mut self, sample: f64) {
        if self.seen.is_multiple_of(1 << self.halvings) {
            if self.kept.len() == MAX_SAMPLES {
                let mut is_even = false;
                self.kept.retain(|_| {
                    is_even = !is_even;
                    is_even
                });
                self.halvings = (self.halvings + 1).min(62);
            }
            if self.seen.is_multiple_of(1 << self.halvings) {
                self.kept.push(sample);
            }
        }
        self.seen = self.seen.saturating_add(1);
    }

    /// The upper quartile: capacity has to serve more than the mean, and one outlier must not count. None without
    /// samples.
    pub fn quartile(&self) -> Option<f64> {
        let mut sorted = self.kept.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get((sorted.len().checked_sub(1)? * 3).div_ceil(4)).copied()
    }
}
