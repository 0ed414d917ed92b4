//! Pause after a refused login: many BMCs lock an account after a few wrong passwords.

use std::time::Duration;

/// Pause after the first refusal; it doubles with each further refusal.
const FIRST: Duration = Duration::from_secs(300);

/// Upper limit of the pause.
const LONGEST: Duration = Duration::from_secs(3600);

/// Time before the same credentials are tried again, after this many consecutive refusals.
pub fn pause(refusals: u32) -> Duration {
    FIRST.saturating_mul(2_u32.saturating_pow(refusals.saturating_sub(1).min(8))).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_5_10_20_40_and_60_minutes() {
        let minutes: Vec<u64> = (1..=7).map(|refusals| pause(refusals).as_secs() / 60).collect();
        assert_eq!(minutes, [5, 10, 20, 40, 60, 60, 60]);
        assert_eq!(pause(u32::MAX), LONGEST);
    }
}
