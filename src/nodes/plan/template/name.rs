//! Names of the NodeConfigs of a template.

use ganglion_core::digest::digest;

/// Maximum length of an object name.
const MAX_NAME: usize = 253;

/// Number of digest characters at the end of a truncated name.
const DIGEST: usize = 10;

/// Maximum length of a label value.
const MAX_LABEL: usize = 63;

/// Returns `<template>-<node>`. A name that is too long is truncated and ends with a digest of both names.
pub fn of(template: &str, node: &str) -> String {
    let name = format!("{template}-{node}");
    if name.len() <= MAX_NAME {
        return name;
    }
    let kept: String = name.chars().take(MAX_NAME - DIGEST - 1).collect();
    format!("{}-{}", kept.trim_end_matches(['-', '.']), digest(&[template, node], DIGEST))
}

/// Name of the template as a label value; None if it is too long.
pub fn label(template: &str) -> Option<&str> {
    (template.len() <= MAX_LABEL).then_some(template)
}
