//! Properties of all expressions.

use super::*;
use proptest::prelude::*;

/// Part of an expression: its text, and its value unless a label is missing.
type Known = (String, Option<bool>);

/// Conditions on the node of `with_node`, with their expected values.
fn condition() -> impl Strategy<Value = Known> {
    let atom = prop_oneof![
        (-5_i64..10).prop_map(|n| (format!("node.pods < {n}"), Some(3 < n))),
        (-5_i64..10).prop_map(|n| (format!("node.pods + 1 >= {n}"), Some(4 >= n))),
        (0_u32..8).prop_map(|n| {
            let limit = f64::from(n) / 4.0;
            (format!("node.memory.requestedShare <= {limit:?}"), Some(0.375 <= limit))
        }),
        Just(("node.ready".to_owned(), Some(true))),
        Just(("node.zone == 'b'".to_owned(), Some(false))),
        Just(("node.labels['disk'] == 'ssd'".to_owned(), Some(true))),
        Just(("node.labels['gpu'] == 'a100'".to_owned(), None)),
        Just(("node.labels['gpu'] != 'a100'".to_owned(), None)),
        Just(("'gpu' in node.labels".to_owned(), Some(false))),
    ];
    atom.prop_recursive(4, 12, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|(text, value)| (format!("!({text})"), value.map(|v| !v))),
            (inner.clone(), inner.clone()).prop_map(|((a, x), (b, y))| {
                let value = match (x, y) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                };
                (format!("({a}) && ({b})"), value)
            }),
            (inner.clone(), inner.clone()).prop_map(|((a, x), (b, y))| {
                let value = match (x, y) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                };
                (format!("({a}) || ({b})"), value)
            }),
            (inner.clone(), inner.clone(), inner).prop_map(|((a, x), (b, y), (c, z))| {
                (format!("({a}) ? ({b}) : ({c})"), x.and_then(|x| if x { y } else { z }))
            }),
        ]
    })
}

/// Any syntax of the language, well typed or not.
fn anything() -> impl Strategy<Value = String> {
    let atom = prop::sample::select(vec![
        "node.name",
        "node.zone",
        "node.ready",
        "node.pods",
        "node.podCapacity",
        "node.labels",
        "node.labels['disk']",
        "node.labels['gpu']",
        "node.cpu.requestedShare",
        "node.memory.requested",
        "node",
        "node.mem",
        "0",
        "1",
        "-1",
        "3u",
        "9223372036854775807",
        "-9223372036854775808",
        "0.0",
        "0.5",
        "1e308",
        "-1e-308",
        "'a'",
        "''",
        "b'a'",
        "null",
        "true",
        "false",
        "[]",
        "{}",
        "[1, 2.0]",
        "{'a': 1}",
        "N{a: 1}",
    ])
    .prop_map(str::to_owned);
    atom.prop_recursive(5, 24, 3, |inner| {
        let binary = prop::sample::select(vec![
            "&&", "||", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", " in ",
        ]);
        let call = prop::sample::select(vec![
            "!", "-", "int", "double", "has", "size", "string", "type", "duration", "optional.of",
        ]);
        let method = prop::sample::select(vec![
            "startsWith", "contains", "matches", "all", "exists", "map", "filter", "orValue",
        ]);
        prop_oneof![
            4 => (inner.clone(), binary, inner.clone()).prop_map(|(a, op, b)| format!("({a}{op}{b})")),
            2 => (call, inner.clone()).prop_map(|(name, a)| format!("{name}({a})")),
            1 => (inner.clone(), method, inner.clone()).prop_map(|(a, name, b)| format!("{a}.{name}({b})")),
            1 => (inner.clone(), method_arguments(), inner.clone()).prop_map(|(a, name, b)| format!("{a}.{name}(x, {b})")),
            1 => (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[{b}]")),
            1 => (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
        ]
    })
}

fn method_arguments() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["all", "exists", "exists_one", "map", "filter", "f"])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn agrees_with_logic_by_hand((text, expected) in condition()) {
        prop_assume!(text.chars().count() <= MAX_CHARS);
        match (answer(&text), expected) {
            (Ok(found), Some(expected)) => prop_assert_eq!(found, expected, "{}", text),
            (Err(ExpressionError::MissingLabel { .. }), None) => {}
            (found, expected) => prop_assert!(false, "{text}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn compares_ints_and_doubles_as_numbers(pods in -1_000_i64..1_000, limit in -4_000_i32..4_000) {
        let limit = f64::from(limit) / 4.0;
        let expression = Expression::parse(&format!("node.pods < {limit:?}")).unwrap();
        let found = with_node(|mut node| {
            node.pods.count = pods;
            expression.matches(&node)
        });
        prop_assert_eq!(found, Ok((pods as f64) < limit));
    }

    #[test]
    fn any_name_and_label_is_only_text(name in any::<String>(), value in any::<String>()) {
        let expression = Expression::parse("node.name == node.labels['x']").unwrap();
        let labels = labels(&[("x", &value)]);
        let found = with_node(|node| expression.matches(&NodeView { name: &name, labels: &labels, ..node }));
        prop_assert_eq!(found, Ok(name == value));
    }

    #[test]
    fn survives_any_text(text in any::<String>(), near in "[-a-z0-9.()\\[\\]{}'\"\\\\!?:&|<>=+*/%, \n`@#_ä]{0,60}") {
        for text in [text, near] {
            prop_assert_ne!(answer(&text), Err(ExpressionError::Unreadable), "{}", text);
        }
    }

    #[test]
    fn survives_any_expression(text in anything(), cut in any::<prop::sample::Index>()) {
        let cut = text.chars().take(cut.index(text.chars().count() + 1)).collect();
        for text in [text, cut] {
            let found = answer(&text);
            // After the type checks, the evaluator has no unexpected errors.
            let unforeseen = matches!(
                found,
                Err(ExpressionError::Unreadable | ExpressionError::Failed { .. })
            );
            prop_assert!(!unforeseen, "{text}: {found:?}");
        }
    }
}
