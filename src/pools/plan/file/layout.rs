//! Splits the lists into one file per worker, joins them again, and checks the size limit of a ConfigMap.

use std::collections::BTreeMap;

use super::prune::named;
use super::{Published, RECORD_KEY};

/// Limit of the API server for the data of a ConfigMap, in bytes.
const MOST_BYTES: usize = 1_048_576;

/// Maximum length of a key of a ConfigMap.
const LONGEST_KEY: usize = 253;

/// Returns true if a ConfigMap can hold these two texts, for any key of the file.
pub fn fits(file: &str, record: &str) -> bool {
    LONGEST_KEY + file.len() + RECORD_KEY.len() + record.len() <= MOST_BYTES
}

/// Splits the lists into one file per worker. The version of a file is that of its worker's list, so that the file does
/// not change until this worker's jobs change.
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

/// Joins the files of all workers. If two files contain the same worker, the one with the larger version of its list
/// wins.
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
