//! One file for all workers, or one each, and what of it fits into a ConfigMap.

use std::collections::BTreeMap;

use super::prune::named;
use super::{Published, RECORD_KEY};

/// The API server's limit for the data of a ConfigMap.
const MOST_BYTES: usize = 1_048_576;

/// How long a key of a ConfigMap can be.
const LONGEST_KEY: usize = 253;

/// Whether a ConfigMap can have these two texts, whatever the key of the file.
#[must_use]
pub fn fits(file: &str, record: &str) -> bool {
    LONGEST_KEY + file.len() + RECORD_KEY.len() + record.len() <= MOST_BYTES
}

/// What each worker's own file says. The version of a file is that of its worker, so that a file stays as it is until this
/// worker's jobs change.
#[must_use]
pub fn split(published: &Published) -> BTreeMap<String, Published> {
    let own = published.holdings.iter().map(|(name, holding)| {
        let mut own = Published {
            holdings: BTreeMap::from([(name.clone(), holding.clone())]),
            version: holding.version,
            changes: BTreeMap::new(),
            edited: published.edited,
        };
        let changes = named(&own).into_iter().filter_map(|version| published.changes.get_key_value(&version));
        own.changes = changes.map(|(version, change)| (*version, change.clone())).collect();
        (name.clone(), own)
    });
    own.collect()
}

/// What the files of all workers say together. Of two files that have one worker, the one with the larger version of it counts.
#[must_use]
pub fn join(files: impl IntoIterator<Item = Published>) -> Published {
    let mut all = Published::default();
    for file in files {
        all.version = all.version.max(file.version);
        all.edited |= file.edited;
        all.changes.extend(file.changes);
        for (name, holding) in file.holdings {
            let is_newer = all.holdings.get(&name).is_none_or(|known| known.version < holding.version);
            if is_newer {
                all.holdings.insert(name, holding);
            }
        }
    }
    all
}
