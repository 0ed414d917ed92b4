//! The manifests in `crds/` are what the types say: drift fails here, not at a user's.

#[test]
fn the_manifests_are_what_the_types_say() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/crds");
    let mut expected = Vec::new();
    for (name, text) in ganglion::cli::manifests().unwrap() {
        let there = std::fs::read_to_string(format!("{dir}/{name}")).unwrap_or_default();
        assert!(there == text, "crds/{name} is stale: cargo run -- crds");
        expected.push(name);
    }
    let mut there: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "kustomization.yaml")
        .collect();
    there.sort();
    expected.sort();
    assert_eq!(there, expected, "crds/ holds a manifest of no kind, or lacks one");
    let list = std::fs::read_to_string(format!("{dir}/kustomization.yaml")).unwrap();
    for name in expected {
        assert!(list.contains(&format!("- {name}")), "crds/kustomization.yaml lacks {name}");
    }
}

#[test]
fn each_file_is_named_after_its_kind() {
    for (name, text) in ganglion::cli::manifests().unwrap() {
        assert!(name.ends_with(".ganglion.dev.yaml"), "{name}");
        assert!(text.contains(&format!("name: {}", name.trim_end_matches(".yaml"))), "{name}");
    }
}
