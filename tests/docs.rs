//! The documents are true: links lead somewhere, the README is short, and the architecture page names what exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ganglion_api::node_config::NodeConfigTemplate;
use ganglion_core::facts::NodeFact;
use ganglion_nodes_plan::template::{compile, render};

const MAX_README_LINES: usize = 160;
const ARCHITECTURE: &str = "src/ARCHITECTURE.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Contents of a file, by its path from the root.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Paths of all Markdown files below this folder, except those of builds and packages.
fn pages_below(folder: &Path) -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" && name != "node_modules" && name != ".git" {
            pages.extend(pages_below(&path));
        } else if path.extension() == Some("md".as_ref()) {
            pages.push(path);
        }
    }
    pages
}

/// The lines outside code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The parts of a line that are set as code, and those that are not.
fn spans(line: &str, code: bool) -> impl Iterator<Item = &str> {
    line.split('`').skip(usize::from(code)).step_by(2)
}

/// Targets of all links.
fn links(text: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for line in prose(text) {
        // A link may have code as its text, so that its target follows the code.
        for span in spans(line, false) {
            targets.extend(span.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
        }
    }
    targets
}

/// Anchors of all headings, as GitHub derives them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let is_part = |character: &char| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_');
        anchors.insert(heading.chars().filter(is_part).collect::<String>().replace(' ', "-"));
    }
    anchors
}

/// Links of a page that lead nowhere.
fn broken_links(page: &Path, text: &str) -> Vec<String> {
    let mut broken = Vec::new();
    for link in links(text) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
        let target = if path.is_empty() { page.to_path_buf() } else { page.with_file_name("").join(path) };
        if !target.exists() {
            broken.push(format!("{link}: no such file"));
        } else if let Some(anchor) = anchor.filter(|_| target.extension() == Some("md".as_ref())) {
            let text = if path.is_empty() { text.to_owned() } else { fs::read_to_string(&target).unwrap() };
            if !anchors(&text).contains(anchor) {
                broken.push(format!("{link}: no such heading"));
            }
        }
    }
    broken
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let pages = pages_below(root());
    assert!(pages.len() > 10, "{pages:?}");
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        assert_eq!(broken_links(&page, &text), [""; 0], "{}", page.display());
    }
}

#[test]
fn a_broken_link_is_found() {
    let page = root().join("README.md");
    let text =
        "# One two\n[a](#one-two) [b](#three) [c](LICENSE) [`d`](nothing.md)\n```\n[e](code.md)\n```\n`[f](code.md)`";
    assert_eq!(broken_links(&page, text), ["#three: no such heading", "nothing.md: no such file"]);
    assert_eq!(
        broken_links(&page, "[a](kustomize/README.md#nowhere)"),
        ["kustomize/README.md#nowhere: no such heading"]
    );
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(
        lines <= MAX_README_LINES,
        "README.md has {lines} lines, at most {MAX_README_LINES}: move details to a page"
    );
}

/// A function or type that the architecture page names, and the file that contains it.
#[derive(Debug, PartialEq)]
struct Call<'a> {
    name: &'a str,
    file: &'a str,
}

/// The numbered items of the page: 1. `Type::function` (`path`): text
fn calls(page: &str) -> Vec<Result<Call<'_>, String>> {
    let mut calls = Vec::new();
    for line in prose(page) {
        let Some((number, item)) = line.split_once(". ") else { continue };
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let parts: Vec<&str> = item.split('`').collect();
        calls.push(match parts.as_slice() {
            ["", name, " (", file, rest, ..] if rest.starts_with("):") => Ok(Call { name, file }),
            _ => Err(format!("{line}: write `Type::function` (`path`): text")),
        });
    }
    calls
}

/// Whether the words follow each other in the text, up to the end of the last word.
fn has_words(text: &str, words: &str) -> bool {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    text.match_indices(words).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + words.len()..].chars().next());
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

/// Whether the file declares a type, or implements its methods.
fn has_type(source: &str, name: &str) -> bool {
    let declares = ["struct", "enum", "trait"].iter().any(|word| has_words(source, &format!("{word} {name}")));
    let implements = source.lines().any(|line| line.starts_with("impl") && has_words(line, name));
    declares || implements
}

/// Why the code does not have what the page names; None if it does.
fn missing(call: &Call<'_>) -> Option<String> {
    let Ok(source) = fs::read_to_string(root().join(call.file)) else {
        return Some(format!("{}: no such file", call.file));
    };
    let (owner, function) = match call.name.split_once("::") {
        Some((owner, function)) => (Some(owner), Some(function)),
        None if call.name.starts_with(char::is_uppercase) => (Some(call.name), None),
        None => (None, Some(call.name)),
    };
    let has_owner = owner.is_none_or(|owner| has_type(&source, owner));
    let has_function = function.is_none_or(|function| has_words(&source, &format!("fn {function}")));
    (!has_owner || !has_function).then(|| format!("{} is not in {}", call.name, call.file))
}

/// Statements of the page that do not hold in the code.
fn mistakes(page: &str) -> Vec<String> {
    let mut mistakes = Vec::new();
    for call in calls(page) {
        mistakes.extend(call.map_or_else(Some, |call| missing(&call)));
    }
    for line in prose(page) {
        for code in spans(line, true) {
            let is_path = ["src/", "tests/", "hack/", "kustomize/", "samples/"].iter().any(|top| code.starts_with(top));
            let path = code.split(' ').next().unwrap_or_default();
            if is_path && !code.starts_with("hack/bench ") && !root().join(path).exists() {
                mistakes.push(format!("{path}: no such file"));
            }
        }
    }
    mistakes
}

#[test]
fn the_architecture_page_names_what_exists() {
    let page = read(ARCHITECTURE);
    assert!(calls(&page).len() > 50, "the flows are not found");
    assert_eq!(mistakes(&page), [""; 0]);
}

#[test]
fn a_wrong_name_is_found() {
    let page = "1. `World::apply` (`src/core/world/mod.rs`): stores\n\
                2. `World::aply` (`src/core/world/mod.rs`): a function that is not there\n\
                3. `Word::apply` (`src/core/world/mod.rs`): a type that is not there\n\
                4. `appl` (`src/core/world/mod.rs`): a part of a name\n\
                5. `apply` (`src/core/word.rs`): a file that is not there\n\
                6. apply, anywhere\n\
                See `src/logic`.";
    assert_eq!(
        mistakes(page),
        [
            "World::aply is not in src/core/world/mod.rs",
            "Word::apply is not in src/core/world/mod.rs",
            "appl is not in src/core/world/mod.rs",
            "src/core/word.rs: no such file",
            "6. apply, anywhere: write `Type::function` (`path`): text",
            "src/core/word.rs: no such file",
            "src/logic: no such file",
        ]
    );
}

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Arrows of a diagram: `a & b --> c & d`.
fn arrows(page: &str) -> Arrows {
    let mut arrows = Arrows::new();
    let diagram = page.split("```mermaid").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    for (from, to) in diagram.lines().filter_map(|line| line.split_once("-->")) {
        for source in from.split('&') {
            let targets = to.split('&').map(|target| target.trim().to_owned());
            arrows.entry(source.trim().to_owned()).or_default().extend(targets);
        }
    }
    arrows
}

/// Dependencies between the packages of the workspace, by their names without `ganglion-`.
fn dependencies() -> Arrows {
    let short = |name: &str| name.strip_prefix("ganglion-").unwrap_or(name).to_owned();
    let manifest = read("Cargo.toml");
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).expect("members on one line");
    let folders = members.trim_end_matches(']').split(',').map(|folder| folder.trim().trim_matches('"'));
    let mut packages = Arrows::new();
    for folder in folders.chain(["."]).filter(|folder| *folder == "." || folder.starts_with("src/")) {
        let text = read(&format!("{folder}/Cargo.toml"));
        let (mut section, mut name, mut uses) = ("", "", BTreeSet::new());
        for line in text.lines() {
            match line.split_once([' ', '.']) {
                _ if line.starts_with('[') => section = line,
                Some(("name", rest)) if section == "[package]" => {
                    name = rest.trim_start_matches("= ").trim_matches('"')
                }
                Some((package, _)) if section == "[dependencies]" && package.starts_with("ganglion-") => {
                    uses.insert(short(package));
                }
                _ => {}
            }
        }
        packages.insert(short(name), uses);
    }
    packages
}

/// All that can be reached by arrows from here.
fn reachable<'a>(arrows: &'a Arrows, from: &str, reached: &mut BTreeSet<&'a str>) {
    for target in arrows.get(from).into_iter().flatten() {
        if reached.insert(target) {
            reachable(arrows, target, reached);
        }
    }
}

/// Arrows of the diagram that no manifest has, and dependencies that the diagram does not show.
fn wrong_arrows(diagram: &Arrows, packages: &Arrows) -> Vec<String> {
    let mut wrong = Vec::new();
    for (from, targets) in diagram {
        let uses = packages.get(from);
        for target in targets.iter().filter(|target| !uses.is_some_and(|uses| uses.contains(*target))) {
            wrong.push(format!("{from} does not use {target}"));
        }
    }
    for (package, uses) in packages {
        let mut shown = BTreeSet::new();
        reachable(diagram, package, &mut shown);
        for used in uses.iter().filter(|used| !shown.contains(used.as_str())) {
            wrong.push(format!("no arrows lead from {package} to {used}"));
        }
    }
    wrong
}

#[test]
fn the_diagram_shows_the_dependencies() {
    let diagram = arrows(&read(ARCHITECTURE));
    assert!(diagram.len() > 10, "{diagram:?}");
    assert_eq!(wrong_arrows(&diagram, &dependencies()), [""; 0]);
}

#[test]
fn a_wrong_arrow_and_a_missing_one_are_found() {
    let packages = arrows("```mermaid\na --> b & c\nb --> c\n```");
    assert_eq!(wrong_arrows(&arrows("```mermaid\na --> b\nb --> c\n```"), &packages), [""; 0], "c is reached by b");
    assert_eq!(
        wrong_arrows(&arrows("```mermaid\na --> b & d\nc --> a\n```"), &packages),
        ["a does not use d", "c does not use a", "no arrows lead from a to c", "no arrows lead from b to c",]
    );
}

/// Renders an expression for a node, after an `a`, since a sensor must not be empty.
fn rendered(expression: &str) -> Result<String, String> {
    let document = serde_json::json!({
        "apiVersion": "ganglion.dev/v1alpha1", "kind": "NodeConfigTemplate", "metadata": {"name": "page"},
        "spec": {"nodeSelector": {}, "template": {"metricsCollector": {
            "inletTemp": {"type": "Redfish", "endpoint": "https://bmc", "sensor": format!("a{expression}")},
        }}},
    });
    let template: NodeConfigTemplate = serde_json::from_value(document).map_err(|error| error.to_string())?;
    let mut node = NodeFact { addresses: vec!["10.0.3.7".into(), "fd00::7".into()], ..NodeFact::default() };
    node.id.key.name = "node-1.example".into();
    node.labels = [("example.com/bmc".to_owned(), "10.9.8.7".to_owned())].into();
    let compiled = compile(&template.spec.template).map_err(|error| error.to_string())?;
    let spec = render(&compiled, &node).map_err(|error| error.to_string())?;
    let sensor = spec.metrics_collector.and_then(|collector| collector.inlet_temp?.sensor);
    Ok(sensor.unwrap_or_default())
}

/// Errors about templates lead to these tables.
#[test]
fn every_expression_on_the_page_of_templates_can_be_rendered() {
    let page = read("samples/nodeconfigtemplate/README.md");
    let section =
        page.split("\n## Expressions\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
    let mut count = 0;
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let row = row.replace("\\|", "|");
        // In a table of equivalents, the column on the right is ours.
        let code: Vec<&str> = spans(&row, true).filter(|code| code.starts_with('{')).collect();
        let is_equivalent = row.matches("| `{").count() == 2;
        for expression in code.iter().skip(usize::from(is_equivalent)) {
            rendered(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
            count += 1;
        }
    }
    assert!(count > 15, "only {count} expressions are found");
    rendered("{{ upper .Hostname }}").expect_err("a function of Go");
}

/// The page of each kind, with the sources of its events.
const EVENT_PAGES: [(&str, &[&str]); 6] = [
    ("workloadaction", &["src/actions/controller/events.rs", "src/actions/controller/janitor.rs"]),
    (
        "closedloop",
        &[
            "src/loops/controller/closed_loop/report.rs",
            "src/loops/controller/closed_loop/mod.rs",
            "src/loops/controller/execution/events.rs",
            "src/loops/plan/acted.rs",
        ],
    ),
    ("nodeconfig", &["src/nodes/controller/config/report.rs"]),
    ("nodeconfigtemplate", &["src/nodes/controller/template/report.rs"]),
    ("placementpolicy", &["src/placement/controller/policy/mod.rs", "src/placement/controller/learned/save.rs"]),
    ("swarmpool", &["src/pools/controller/report.rs", "src/pools/controller/scale.rs"]),
];

/// Files that define the names of conditions.
const CONDITION_NAMES: [&str; 7] = [
    "src/actions/plan/notify/mod.rs",
    "src/nodes/plan/report.rs",
    "src/placement/plan/publish/report.rs",
    "src/placement/plan/labels/report.rs",
    "src/placement/plan/labels/application.rs",
    "src/placement/controller/learned/save.rs",
    "src/core/conditions.rs",
];

/// The texts between two strings, each time.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    text.split(start).skip(1).filter_map(|rest| rest.split(end).next()).collect()
}

/// A text constant or literal as its value; other expressions by their last variant.
fn value_of(expression: &str, constants: &BTreeMap<String, String>) -> Option<String> {
    let expression = expression.trim();
    if let Some(literal) = expression.strip_prefix('"') {
        return literal.strip_suffix('"').map(str::to_owned);
    }
    if let Some(variant) = expression.strip_suffix(".as_str()") {
        return variant.rsplit_once("::").map(|(_, variant)| variant.to_owned());
    }
    constants.get(expression).cloned()
}

/// Texts of the constants that these files define.
fn text_constants(sources: &[String]) -> BTreeMap<String, String> {
    let mut constants = BTreeMap::new();
    for line in sources.iter().flat_map(|source| source.lines()) {
        let Some((name, value)) = line.split_once(": &str = \"") else { continue };
        let name = name.trim_start_matches("pub ").trim_start_matches("const ");
        constants.insert(name.to_owned(), value.trim_end_matches("\";").to_owned());
    }
    constants
}

/// Reasons of the events that these files publish, without their tests; for a condition, its type and status.
fn published_events(paths: &[&str]) -> BTreeSet<String> {
    let product = |path: &&str| read(path).split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
    let sources: Vec<String> = paths.iter().map(product).collect();
    let own = text_constants(&sources);
    let mut constants = text_constants(&CONDITION_NAMES.iter().map(product).collect::<Vec<_>>());
    constants.extend(own.clone());
    let mut events = BTreeSet::new();
    for source in &sources {
        for kind in ["warning", "normal"] {
            for rule in between(source, &format!("ConditionEvent::{kind}("), ")") {
                let parts: Vec<_> = rule.split(',').filter_map(|part| value_of(part, &constants)).collect();
                assert_eq!(parts.len(), 2, "{rule}");
                events.insert(parts.join("="));
            }
            for reason in between(source, &format!("EventText::{kind}("), ",") {
                events.extend(value_of(reason, &constants));
            }
        }
        if source.contains("EventText::of(ready") {
            events.insert("Ready".to_owned());
        }
        let by_rung = between(source, "pub fn event_reason(", "\n}\n");
        events.extend(by_rung.iter().flat_map(|body| between(body, "LoopReason::", "\n")).map(str::to_owned));
    }
    // Reasons that a function passes on as a variable are constants of these files.
    let is_reason = |(name, value): &(&String, &String)| {
        sources.iter().any(|source| source.contains(&format!(", {name},")) || source.contains(&format!("({name}, ")))
            && value.starts_with(char::is_uppercase)
            && !events.iter().any(|event| event.starts_with(&format!("{value}=")))
    };
    let passed: Vec<String> = own.iter().filter(is_reason).map(|(_, value)| value.clone()).collect();
    events.extend(passed);
    events
}

#[test]
fn the_page_of_each_kind_lists_its_events() {
    for (page, sources) in EVENT_PAGES {
        let text = read(&format!("samples/{page}/README.md"));
        let section = between(&text, "\n## Events\n", "\n## ").concat();
        let mut listed = BTreeSet::new();
        for row in section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| object")) {
            let columns: Vec<&str> = row.split('|').map(str::trim).collect();
            assert_eq!(columns.len(), 6, "{page}: {row}");
            let [reason, kind] = [columns[2], columns[3]];
            assert!(kind.starts_with("Normal") || kind == "Warning", "{page}: {row}");
            listed.extend(spans(reason, true).map(str::to_owned));
        }
        let published = published_events(sources);
        assert!(!published.is_empty(), "{page}: no event is found in {sources:?}");
        assert_eq!(listed, published, "{page}: the page and the code");
    }
}
