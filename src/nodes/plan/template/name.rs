//! Names of the NodeConfigs of a template.

use ganglion_core::digest::digest;

/// The longest name of an object.
const MAX_NAME: usize = 253;

/// How many characters of a digest end a name that was cut.
const DIGEST: usize = 10;

/// The longest value of a label.
const MAX_LABEL: usize = 63;

/// `<template>-<node>`. One that is too long is cut, and ends with a digest of both names.
#[must_use]
pub fn of(template: &str, node: &str) -> String {
    let name = format!("{template}-{node}");
    if name.len() <= MAX_NAME {
        return name;
    }
    let kept: String = name.chars().take(MAX_NAME - DIGEST - 1).collect();
    format!("{}-{}", kept.trim_end_matches(['-', '.']), digest(&[template, node], DIGEST))
}

/// The template's name as the value of a label, if it fits.
#[must_use]
pub fn label(template: &str) -> Option<&str> {
    (template.len() <= MAX_LABEL).then_some(template)
}
