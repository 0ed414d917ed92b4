//! Kinds of others, watched while they are installed. They may be installed, or taken away, at any time.

use std::time::Duration;

use tracing::warn;

use super::kinds;
use super::kinds::Watched;
use super::watch::Watch;

/// How often it is looked whether the kind is there now.
const LOOK: Duration = Duration::from_secs(15);

/// Watches the kind whenever it is there. That it is not is nothing to speak of; that we may not look is said once.
pub async fn run<K: Watched>(mut watch: Watch<K>) {
    let mut complained = false;
    loop {
        if watch.run_while_there().await == 403 && !complained {
            complained = true;
            warn!(
                kind = kinds::label(K::SORT),
                "objects of this kind are not looked at: list and watch are not granted"
            );
        }
        tokio::time::sleep(LOOK.mul_f64(1.0 + 0.2 * fastrand::f64())).await;
    }
}
