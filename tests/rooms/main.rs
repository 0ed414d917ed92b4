//! Boundaries of the source folders ("rooms"): which packages may use which, and what their code must not name. No
//! modules depend on each other in a circle, and a type name means one thing. Everything is derived from the manifests
//! and the sources.

mod borders;
mod circles;
mod names;
mod source;

use source::WORKSPACE;

#[test]
fn every_file_says_what_it_owns() {
    for file in WORKSPACE.iter().flat_map(|package| &package.files) {
        assert!(file.says_what_it_owns, "{} does not begin with what it is", file.path.display());
    }
}

#[test]
fn no_file_grows_beyond_what_a_reader_can_hold_in_mind() {
    for file in WORKSPACE.iter().flat_map(|package| &package.files) {
        assert!(file.lines <= 600, "{} has {} lines: split it by subject", file.path.display(), file.lines);
    }
}

#[test]
fn only_tests_unwrap() {
    for package in WORKSPACE.iter().filter(|package| package.name != "testkit") {
        for file in &package.files {
            assert_eq!(
                file.code.unwraps,
                0,
                "{} unwraps: return an error, or expect with a reason",
                file.path.display()
            );
        }
    }
}
