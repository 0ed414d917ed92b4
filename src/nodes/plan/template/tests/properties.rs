//! Random texts: no panic, no hang, no half-rendered result; WAO's plain fields render as in WAO.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

/// Tokens of both languages, in any order.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "{{-",
        "-}}",
        " ",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        "|",
        "\"",
        "'",
        "`",
        "\\",
        "$",
        "=",
        "+",
        "~",
        "*",
        "-",
        ",",
        ":",
        "hostname",
        "node.labels",
        ".Hostname",
        ".IPv4.Octet4",
        "ipv4",
        "ipv6.address",
        "range(9)",
        "for x in",
        "endfor",
        "if",
        "else",
        "end",
        "endif",
        "set x =",
        "add",
        "split",
        "printf",
        "upper",
        "not",
        "not ",
        "in",
        "is",
        "1",
        "0",
        "1e9",
        "raw",
        "endraw",
        "ä",
        "\n",
        "\u{0}",
    ]);
    prop::collection::vec(piece, 0..80).prop_map(|pieces| pieces.concat())
}

/// Text, and an optional field after it: whether it trims the text before it, its number, whether it trims the text
/// after it.
type Piece = (String, Option<(bool, usize, bool)>);

/// Texts and WAO's fields with trim markers.
fn plain() -> impl Strategy<Value = Vec<Piece>> {
    let field = (any::<bool>(), 0..6_usize, any::<bool>());
    prop::collection::vec(("[a-z/: .-]{0,6}", prop::option::of(field)), 1..8)
}

const FIELDS: [(&str, &str); 6] = [
    (".Hostname", "worker-0"),
    (".IPv4.Address", "10.0.3.7"),
    (".IPv4.Octet1", "10"),
    (".IPv4.Octet2", "0"),
    (".IPv4.Octet3", "3"),
    (".IPv4.Octet4", "7"),
];

/// Template text of WAO, and the result that Go renders.
fn wao(pieces: &[Piece]) -> (String, String) {
    let (mut text, mut result, mut trims) = ("x".to_owned(), "x".to_owned(), false);
    for (words, field) in pieces {
        text.push_str(words);
        result.push_str(if trims { words.trim_start() } else { words });
        trims &= words.trim().is_empty();
        let Some((left, number, right)) = field else { continue };
        let (name, value) = FIELDS[*number];
        text.push_str(&format!("{{{{{} {name} {}}}}}", if *left { "-" } else { "" }, if *right { "-" } else { "" }));
        if *left {
            result.truncate(result.trim_end().len());
        }
        result.push_str(value);
        trims = *right;
    }
    (text, result)
}

proptest! {
    #[test]
    fn no_text_panics_hangs_or_stays_half_rendered(text in soup()) {
        let begun = Instant::now();
        if let Ok(rendered) = sensor_of(&text, &worker()) {
            prop_assert!(!is_template(&rendered), "half rendered");
        }
        prop_assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }

    #[test]
    fn any_text_at_all_is_taken(text in ".{0,300}", inside in ".{0,100}") {
        let _ = sensor_of(&text, &worker());
        let _ = sensor_of(&format!("{{{{{inside}}}}}"), &worker());
    }

    #[test]
    fn plain_fields_give_what_go_gives(pieces in plain()) {
        let (text, expected) = wao(&pieces);
        let found = sensor_of(&text, &worker());
        prop_assert_eq!(found.as_deref(), Ok(expected.as_str()), "{}", text);
    }
}

/// Longest expressions that the schema allows, on the stack of a worker thread.
#[test]
fn deep_and_long_expressions_end_in_time_and_on_the_stack() {
    let inside = [
        "(".repeat(1000),
        "[".repeat(1000),
        "not ".repeat(500),
        "-".repeat(1000) + "1",
        vec!["1"; 1000].join("+"),
        vec!["1"; 120].join("+"),
        vec!["hostname"; 120].join("~"),
        "hostname".to_owned() + &"|upper".repeat(300),
        "hostname".to_owned() + &"|upper".repeat(120),
        "hostname".to_owned() + &".a".repeat(900),
        "(".repeat(120) + "1" + &")".repeat(120),
        "(".repeat(15) + ".Hostname" + &")".repeat(15),
        "{'a':".repeat(100) + "1" + &"}".repeat(100),
        "f(".repeat(100) + &")".repeat(100),
        "f(".repeat(16) + &")".repeat(16),
        "a[".repeat(900),
        "hostname | default(".repeat(16) + "1" + &")".repeat(16),
        "hostname | default(".repeat(400),
        "upper (".repeat(200) + ".Hostname" + &")".repeat(200),
        vec!["1 if 1 else "; 80].concat() + "1",
    ];
    let texts = inside.iter().map(|inside| format!("{{{{ {inside} }}}}"));
    let blocks = ["{% if 1 %}".repeat(200), "{% for a in [1] %}".repeat(100) + "x" + &"{% endfor %}".repeat(100)];
    for text in texts.chain(blocks) {
        let begun = Instant::now();
        let thread = std::thread::Builder::new().stack_size(1 << 20);
        let of = text.clone();
        thread.spawn(move || sensor_of(&of, &worker())).unwrap().join().expect("no panic").ok();
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?} for {text}", begun.elapsed());
    }
}
