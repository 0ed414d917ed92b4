//! Tests of the expression language from the user's perspective: text in, result or message out.

mod formula;
mod properties;

use super::*;
use k8s_openapi::api::core::v1::Taint;
use rstest::rstest;
use std::collections::BTreeMap;

const GIB: i64 = 1 << 30;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// node-4 in zone a: 3 of 110 pods, 2 of 4 cores, 6 of 16 GiB.
fn with_node<T>(test: impl FnOnce(NodeView<'_>) -> T) -> T {
    let labels =
        labels(&[(ZONE_LABEL, "a"), ("disk", "ssd"), ("example.com/rank", "7"), ("zone", "decoy"), ("empty", "")]);
    let taint = |key: &str, value: Option<&str>| Taint {
        key: key.into(),
        value: value.map(str::to_owned),
        effect: "NoSchedule".into(),
        time_added: None,
    };
    test(NodeView {
        name: "node-4",
        labels: &labels,
        taints: &[taint("dedicated", Some("db")), taint("example.com/spot", None)],
        ready: true,
        schedulable: false,
        pods: PodsView { count: 3, arriving: 1, capacity: 110 },
        cpu: ResourceView { allocatable: 4_000, requested: 2_000 },
        memory: ResourceView { allocatable: 16 * GIB, requested: 6 * GIB },
        measured: MeasuredView { cpu: Some(0.25), power: Some(180.0), ..MeasuredView::default() },
    })
}

fn answer(text: &str) -> Result<bool, ExpressionError> {
    let expression = Expression::parse(text)?;
    with_node(|node| expression.matches(&node))
}

fn message(text: &str) -> String {
    answer(text).expect_err(text).to_string()
}

#[rstest]
#[case("node.pods < 4 && node.memory.requestedShare < 0.5", true)]
#[case("node.pods < 3 && node.memory.requestedShare < 0.5", false)]
#[case("node.pods + 1 < 5", true)]
#[case("node.pods + 1 < 4", false)]
#[case("node.pods - 4 < 0", true)]
#[case("node.pods == 3", true)]
#[case("node.pods == 3.0", true)]
#[case("node.pods < 2.5", false)]
#[case("node.pods < 3.5", true)]
#[case("3.5 > node.pods", true)]
#[case("-node.pods < 0", true)]
#[case("node.pods in [1, 2, 3]", true)]
#[case("node.pods in [1.5, 3.0]", true)]
#[case("node.pods in []", false)]
#[case("node.podCapacity - node.pods >= 107", true)]
#[case("node.pods * 2 % 4 == 2", true)]
#[case("node.pods / 2 == 1", true)]
#[case("node.memory.requestedShare < 1", true)]
#[case("node.memory.requestedShare == 0.375", true)]
#[case("node.cpu.requestedShare == 0.5", true)]
#[case("node.cpu.allocatable - node.cpu.requested >= 2000", true)]
#[case("node.memory.allocatable / 1024 / 1024 / 1024 == 16", true)]
#[case("node.memory.requested < 0.4 * node.memory.allocatable", true)]
#[case("node.memory.requested < node.memory.allocatable * 0.3", false)]
#[case("node.cpu.requestedShare + 1 == 1.5", true)]
#[case("double(node.pods) / node.podCapacity < 0.03", true)]
#[case("int(node.cpu.requestedShare * 100) == 50", true)]
#[case("node.ready", true)]
#[case("node.schedulable", false)]
#[case("!node.schedulable", true)]
#[case("node.ready == true", true)]
#[case("node.ready ? node.pods < 4 : node.pods > 100", true)]
#[case("(node.ready ? 1 : 2.5) < 1.5", true)]
#[case("node.name == \"node-4\"", true)]
#[case("node.name == 'node-4'", true)]
#[case("node.name != 'node-4'", false)]
#[case("node.name in ['node-1', 'node-4']", true)]
#[case("node.name < 'node-5'", true)]
#[case("node.name.startsWith('node-')", true)]
#[case("node.name.endsWith('5')", false)]
#[case("node.name.contains('de-')", true)]
#[case("node.name == 'node' + '-4'", true)]
#[case("node.zone == 'a'", true)]
#[case("has(node.zone)", true)]
#[case("node.labels['disk'] == 'ssd'", true)]
#[case("node.labels.disk == 'ssd'", true)]
#[case("node.labels.zone == 'decoy'", true)]
#[case("node.labels['empty'] == ''", true)]
#[case("node.labels['topology.kubernetes.io/zone'] == node.zone", true)]
#[case("int(node.labels['example.com/rank']) > 6", true)]
#[case("double(node.labels['example.com/rank']) == 7", true)]
#[case("'disk' in node.labels", true)]
#[case("'gpu' in node.labels", false)]
#[case("has(node.labels.disk)", true)]
#[case("has(node.labels.gpu)", false)]
#[case("'gpu' in node.labels && node.labels['gpu'] == 'a100'", false)]
#[case("has(node.labels.gpu) && node.labels.gpu == 'a100'", false)]
// A missing value does not matter if the result does not depend on it.
#[case("node.labels['gpu'] == 'a100' || node.pods < 4", true)]
#[case("node.labels['gpu'] == 'a100' && node.pods > 4", false)]
#[case("true", true)]
#[case("  node.ready\n  && true // why", true)]
fn answers(#[case] text: &str, #[case] expected: bool) {
    assert_eq!(answer(text), Ok(expected));
}

#[rstest]
#[case("node.labels['gpu'] == 'a100'", "gpu")]
#[case("node.labels['gpu'] != 'a100'", "gpu")]
#[case("!(node.labels['gpu'] == 'a100')", "gpu")]
#[case("node.labels['gpu'] == ''", "gpu")]
#[case("node.labels['gpu'] == node.labels['gpu']", "gpu")]
#[case("node.labels['gpu'] in ['']", "gpu")]
#[case("node.labels['gpu'] == 'a100' || node.pods > 4", "gpu")]
#[case("node.labels['a\"b'] == ''", "a\"b")]
fn a_missing_label_never_matches_by_accident(#[case] text: &str, #[case] label: &str) {
    let error = ExpressionError::MissingLabel { node: "node-4".into(), label: label.into() };
    assert_eq!(answer(text), Err(error.clone()));
    assert_eq!(error.concern(), Concern::Node);
}

#[rstest]
#[case("node.name == 'x' && node.cpu.utilization < 0.2", Some(false))]
#[case("node.cpu.utilization < 0.2 && node.name == 'x'", Some(false))]
#[case("node.pods == 3 || node.power > 100.0", Some(true))]
#[case("node.pods == 3 && node.inletTemperature > 20.0", None)]
#[case("node.pods == 3", Some(true))]
#[case("node.pods == 3 && node.cpu.utilization < 0.2", None)]
#[case("node.name == 'x' || node.memory.utilization < 0.2", None)]
#[case("!has(node.power)", None)]
#[case("has(node.power) ? node.pods == 3 : node.pods < 4", None)]
fn an_answer_that_no_load_changes_is_known(#[case] text: &str, #[case] expected: Option<bool>) {
    let expression = Expression::parse(text).unwrap();
    assert_eq!(with_node(|node| expression.matches_with_any_load(&node)), expected);
}

#[rstest]
#[case("node.taints['dedicated'] == 'db'", true)]
#[case("node.taints.dedicated == 'web'", false)]
#[case("node.taints['example.com/spot'] == ''", true)]
#[case("'example.com/spot' in node.taints && !('gpu' in node.taints)", true)]
#[case("has(node.taints.dedicated) && !has(node.taints.gpu)", true)]
#[case("node.pods - node.arriving == 2", true)]
fn taints_and_what_arrives_are_seen(#[case] text: &str, #[case] expected: bool) {
    assert_eq!(answer(text), Ok(expected));
}

#[test]
fn a_missing_taint_never_matches_by_accident() {
    let error = ExpressionError::MissingTaint { node: "node-4".into(), key: "gpu".into() };
    assert_eq!(answer("node.taints['gpu'] != 'a100'"), Err(error));
    assert!(message("node.taints == 'a'").contains("node.taints by itself"));
}

#[rstest]
#[case("1 / (node.pods - 3) == 1", ExpressionError::DivisionByZero { node: "node-4".into() })]
#[case("1 % (node.pods - 3) == 1", ExpressionError::DivisionByZero { node: "node-4".into() })]
#[case("9223372036854775807 + node.pods > 0", ExpressionError::Overflow { node: "node-4".into() })]
#[case("-9223372036854775807 - node.pods > 0", ExpressionError::Overflow { node: "node-4".into() })]
#[case("9223372036854775807 * node.pods > 0", ExpressionError::Overflow { node: "node-4".into() })]
#[case("-(-9223372036854775807 - 1) > 0", ExpressionError::Overflow { node: "node-4".into() })]
#[case("(-9223372036854775807 - 1) / (node.pods - 4) > 0", ExpressionError::Overflow { node: "node-4".into() })]
#[case("(-9223372036854775807 - 1) % (node.pods - 4) == 0", ExpressionError::Overflow { node: "node-4".into() })]
#[case("int(node.name) > 0", ExpressionError::Conversion { node: "node-4".into(), function: "int".into() })]
#[case("double(node.name) > 0.0", ExpressionError::Conversion { node: "node-4".into(), function: "double".into() })]
#[case("int(node.cpu.requestedShare * 1e300) > 0", ExpressionError::Conversion { node: "node-4".into(), function: "int".into() })]
#[case("0.0 / 0.0 < 1.0", ExpressionError::NotComparable { node: "node-4".into() })]
fn a_node_without_an_answer_says_why(#[case] text: &str, #[case] expected: ExpressionError) {
    assert_eq!(answer(text), Err(expected.clone()));
    assert_eq!(expected.concern(), Concern::Node);
}

#[rstest]
#[case("", "an empty expression")]
#[case(" \n", "an empty expression")]
#[case("node.pods <", "syntax error at line 1, column")]
#[case("node.pods < 3)", "syntax error at line 1, column 14")]
#[case("node.ready &&\nnode.pods = 3", "syntax error at line 2, column 11")]
#[case("node.pods < 99999999999999999999", "syntax error at line 1, column 13")]
#[case("node.mem < 3", "unknown name \"node.mem\": known are node.name, node.ready,")]
#[case("node.memory.requestedshare < 0.5", "(did you mean node.memory.requestedShare?): known are")]
#[case("node.cpu.used < 0.5", "unknown name \"node.cpu.used\": known are")]
#[case("node.podcapacity < 3", "(did you mean node.podCapacity?)")]
#[case("pods < 3", "unknown name \"pods\" (did you mean node.pods?)")]
#[case(".node.pods < 3", "unknown name \".node.pods\" (did you mean node.pods?)")]
#[case("node.pods.count < 3", "unknown name \"node.pods.count\"")]
#[case("node.cpu < 3", "unknown name \"node.cpu\"")]
#[case("node", "unknown name \"node\"")]
#[case("int", "unknown name \"int\"")]
#[case("node.labels.example.com == 'a'", "node.labels[\"key\"]")]
#[case("has(node.lables.disk)", "unknown name \"node.lables.disk\"")]
#[case("has(node.pods)", "has(…) of this cannot be used")]
#[case("node.labels == 'a'", "node.labels by itself cannot be used")]
#[case("node.labels[node.name] == 'a'", "a computed key cannot be used")]
#[case("node.name in node.labels", "a computed key cannot be used")]
#[case("node['pods'] < 3", "[…] cannot be used: only labels and taints have it")]
#[case("[1, 2][0] < 3", "[…] cannot be used")]
#[case("'a' in 'abc'", "in with anything else cannot be used")]
#[case("[1] == [1]", "a list cannot be used")]
#[case("{'a': 1} == {'a': 1}", "{…} cannot be used")]
#[case("Node{pods: 3}.pods < 3", "computed value")]
#[case("[1, 2].all(x, x > 0)", "all, exists, map, filter")]
#[case("[1, 2].exists(x, x > 0)", "all, exists, map, filter")]
#[case("[1, 2].exists_one(x, x > 0)", "all, exists, map, filter")]
#[case("[1, 2].map(x, x) == [1]", "all, exists, map, filter")]
#[case("[1, 2].filter(x, x > 0) == [1]", "all, exists, map, filter")]
#[case("node.ready && node.labels.all(k, k == 'a')", "all, exists, map, filter")]
#[case("size(node.name) > 3", "unknown function \"size\": known are int, double, has,")]
#[case("node.name.matches('a.*')", "unknown function \"matches\"")]
#[case("duration('5s') > 3", "unknown function \"duration\"")]
#[case("optional.of(3).value() == 3", "unknown function \"value\"")]
#[case("startsWith(node.name, 'a')", "startsWith is called as node.name.startsWith(\"text\")")]
#[case("node.name.startsWith()", "startsWith is called as")]
#[case("int() == 1", "int is called as int(value)")]
#[case("node.pods.int() == 1", "int is called as int(value)")]
#[case("node.pods < 3u", "a number such as 3u cannot be used: write 3")]
#[case("node.name == null", "null cannot be used")]
#[case("node.name == b'a'", "b\"…\" cannot be used")]
#[case("node.pods", "the expression gives an int, not a bool")]
#[case("'yes'", "the expression gives a string, not a bool")]
#[case("node.name < 3", "\"<\" cannot take a string and an int")]
#[case("node.name == 3", "\"==\" cannot take a string and an int")]
#[case("node.pods in ['a']", "\"in\" cannot take an int and a string")]
#[case("node.ready < true", "\"<\" needs a number or a string, and got a bool")]
#[case("!node.pods", "\"!\" needs a bool, and got an int")]
#[case("-node.name == 'a'", "\"-\" needs a number, and got a string")]
#[case("node.ready && node.pods", "\"&&\" needs a bool, and got an int")]
#[case("node.pods || node.ready", "\"||\" needs a bool, and got an int")]
#[case("node.pods ? true : false", "\"?\" needs a bool, and got an int")]
#[case("node.ready ? true : 3", "\"? :\" cannot take a bool and an int")]
#[case("node.ready + true", "\"+\" needs a number, and got a bool")]
#[case("node.name * 'a' == 'b'", "\"*\" needs a number, and got a string")]
#[case("node.cpu.requestedShare % 2 == 1", "\"%\" needs an int, and got a double")]
#[case("int(node.ready) == 1", "\"int\" needs a number or a string, and got a bool")]
#[case("node.pods.startsWith('a')", "\"startsWith\" needs a string, and got an int")]
#[case("node.name.startsWith(3)", "\"startsWith\" needs a string, and got an int")]
// Nearly always true, and never intended.
#[case("node.pods / node.podCapacity < 0.5", "drops its fraction")]
#[case("0.5 > node.pods / node.podCapacity", "drops its fraction")]
#[case("(1 + node.pods / node.podCapacity) * 0.5 < 1.0", "drops its fraction")]
#[case("double(node.pods / node.podCapacity) < 0.5", "drops its fraction")]
#[case("node.pods / node.podCapacity in [0.5]", "drops its fraction")]
fn refuses_with_advice(#[case] text: &str, #[case] part: &str) {
    let error = Expression::parse(text).expect_err(text);
    let message = error.to_string();
    assert!(message.contains(part), "{text}: {message}");
    assert!(message.chars().count() < 800, "{text}: {message}");
    assert_eq!(error.concern(), Concern::Text);
}

#[test]
fn the_messages_read_well() {
    assert_eq!(
        message("node.mem < 3"),
        "unknown name \"node.mem\": known are node.name, node.ready, node.schedulable, node.pods, node.arriving, \
         node.podCapacity, node.cpu.allocatable, node.cpu.requested, node.cpu.requestedShare, \
         node.memory.allocatable, node.memory.requested, node.memory.requestedShare, \
         node.cpu.utilization, node.memory.utilization, node.power, node.inletTemperature, node.differentialPressure, \
         node.zone, node.labels[\"key\"], node.taints[\"key\"]"
    );
    assert_eq!(
        message("node.zone == node.labels['gpu']"),
        "node \"node-4\" has no label \"gpu\": to allow for that, put \"gpu\" in node.labels && \
         before it"
    );
}

#[rstest]
#[case(0, 0)]
#[case(0, 5)]
#[case(-1, 5)]
fn a_node_with_nothing_to_give_looks_full(#[case] allocatable: i64, #[case] requested: i64) {
    let expression = Expression::parse("node.memory.requestedShare == 1").unwrap();
    let answer = with_node(|mut node| {
        node.memory = ResourceView { allocatable, requested };
        expression.matches(&node)
    });
    assert_eq!(answer, Ok(true));
}

#[test]
fn a_node_without_a_zone_is_in_none() {
    let expression = Expression::parse("node.zone != 'b'").unwrap();
    let nothing = BTreeMap::new();
    let answer = with_node(|node| expression.matches(&NodeView { labels: &nothing, ..node }));
    let error = ExpressionError::MissingLabel { node: "node-4".into(), label: ZONE_LABEL.into() };
    assert_eq!(answer, Err(error));
}

#[test]
fn is_shared_across_threads_and_compares_by_text() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    let one = Expression::parse("node.pods < 3").unwrap();
    shared(&one);
    assert_eq!(one.clone(), Expression::parse("node.pods < 3").unwrap());
    assert_ne!(one, Expression::parse("node.pods < 4").unwrap());
    assert_eq!(one.as_str(), one.to_string());
    assert_eq!(format!("{one:?}"), "Expression(\"node.pods < 3\")");
}

#[test]
fn its_length_is_bounded_in_characters() {
    let padded = |chars: usize| format!("node.name != '{}'", "ä".repeat(chars - 15));
    assert_eq!(answer(&padded(MAX_CHARS)), Ok(true));
    let error = ExpressionError::TooLong { chars: MAX_CHARS + 1 };
    assert_eq!(answer(&padded(MAX_CHARS + 1)), Err(error));
}

/// `1+1+…` of this depth, in a comparison.
fn sum(depth: usize) -> String {
    format!("1{} > 0", "+1".repeat(depth - 2))
}

#[test]
fn its_depth_is_bounded() {
    assert_eq!(answer(&sum(MAX_DEPTH)), Ok(true));
    assert_eq!(answer(&sum(MAX_DEPTH + 1)), Err(ExpressionError::TooDeep));
    assert_eq!(answer(&sum(240)), Err(ExpressionError::TooDeep));
}

#[test]
fn its_brackets_are_bounded() {
    let nested = |count: usize| format!("{}node.ready{}", "(".repeat(count), ")".repeat(count));
    assert_eq!(answer(&nested(31)), Ok(true));
    assert_eq!(answer(&nested(33)), Err(ExpressionError::TooDeep));
    assert_eq!(answer(&nested(250)), Err(ExpressionError::TooDeep));
}

#[test]
fn its_terms_are_bounded() {
    // The operator, the value, and the elements count as terms.
    let list = |terms: usize| format!("1 in [{}2]", "2,".repeat(terms - 3));
    assert_eq!(answer(&list(MAX_TERMS)), Ok(false));
    assert_eq!(answer(&list(MAX_TERMS + 1)), Err(ExpressionError::TooManyTerms));
}

#[test]
fn the_deepest_expression_evaluates_on_half_an_ordinary_stack() {
    let deep = Expression::parse(&sum(MAX_DEPTH)).unwrap();
    let evaluation =
        thread::Builder::new().stack_size(1 << 20).spawn(move || with_node(|node| deep.matches(&node))).unwrap();
    assert_eq!(evaluation.join().unwrap(), Ok(true));
}

/// The deepest nesting of each kind within 512 characters, with and without closing brackets.
#[rstest]
#[case("(", ")")]
#[case("[", "]")]
#[case("{1:", "}")]
#[case("!", "")]
#[case("-", "")]
#[case("!(", ")")]
#[case("-(", ")")]
#[case("f(", ")")]
#[case("a.b(", ")")]
#[case("a[", "]")]
#[case("A{b:", "}")]
#[case("1+", "")]
#[case("1<", "")]
#[case("true?true:", "")]
#[case("true?", ":1")]
#[case("x.all(y,", ")")]
#[case("[1].map(x,", ")")]
#[case("has(a.", ")")]
#[case("a.", "")]
#[case("1||", "")]
#[case("1&&", "")]
#[case("", ".b")]
#[case("", "[0]")]
#[case("", "()")]
#[case("", ".a()")]
fn survives_nesting(#[case] open: &str, #[case] close: &str) {
    for (open_share, close_share) in [(1, 1), (1, 0), (0, 1)] {
        let width = open.len() * open_share + close.len() * close_share;
        let Some(count) = (MAX_CHARS - 1).checked_div(width) else {
            continue;
        };
        for middle in ["1", "a", ""] {
            let text = format!("{}{middle}{}", open.repeat(count * open_share), close.repeat(count * close_share));
            let error = answer(&text).expect_err(&text);
            assert_ne!(error, ExpressionError::Unreadable, "{text}");
        }
    }
}

#[rstest]
#[case("node.cpu.utilization < 0.3", true)]
#[case("node.power > 170.0 && node.power < 190", true)]
#[case("has(node.power)", true)]
#[case("has(node.inletTemperature) && node.inletTemperature > 20.0", false)]
#[case("!has(node.memory.utilization)", true)]
fn measured_values_can_be_asked_for(#[case] text: &str, #[case] expected: bool) {
    assert_eq!(answer(text).expect(text), expected);
}

#[test]
fn a_value_that_is_not_measured_matches_nothing() {
    assert_eq!(
        message("node.differentialPressure < 5.0"),
        "node \"node-4\" has no fresh value of node.differentialPressure: to allow for that, put \
         has(node.differentialPressure) && before it"
    );
    assert!(!answer("has(node.memory.utilization) && node.memory.utilization < 0.5").expect("an answer"));
}

#[rstest]
#[case("node.pods < 3", true)]
#[case("node.memory.requestedShare < 0.5 && node.ready", true)]
#[case("node.zone == \"a\" || node.power < 3.0", false)]
fn what_pods_take_is_known_from_the_expression(#[case] text: &str, #[case] expected: bool) {
    assert_eq!(Expression::parse(text).expect(text).reads_pods(), expected);
}

#[rstest]
#[case("10.0 * (1.0 - node.cpu.utilization)", Ok(7.5))]
#[case("node.pods", Ok(3.0))]
#[case("node.power / 0.0", Err("not a finite number"))]
#[case("node.inletTemperature", Err("no fresh value of node.inletTemperature"))]
#[case("node.ready", Err("not a number"))]
#[case("metric.value", Err("known are node.name"))]
fn nodes_are_scored(#[case] text: &str, #[case] expected: Result<f64, &str>) {
    let found = NodeScore::parse(text).and_then(|score| with_node(|node| score.of(&node)));
    match (found, expected) {
        (Ok(found), Ok(expected)) => assert_eq!(found, expected),
        (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
        (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
    }
}
