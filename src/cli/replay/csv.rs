//! The decisions of replays as CSV.

use super::ShownReplay;
use super::text::outcome;

/// First line.
const HEADER: &str = "file,loop,seq,time,alarm,value,rung,action,before,after,outcome,message\n";

/// One line for each decision.
pub fn text(shown: &[ShownReplay]) -> String {
    let mut text = HEADER.to_owned();
    for one in shown {
        for decision in &one.report.decisions {
            let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
            let fields = [
                one.file.clone(),
                one.report.name.clone(),
                decision.seq.to_string(),
                decision.at.to_string(),
                decision.when.clone(),
                or_empty(&decision.value),
                decision.rung.to_string(),
                decision.action.clone(),
                or_empty(&decision.before),
                or_empty(&decision.after),
                outcome(decision).to_owned(),
                or_empty(&decision.message),
            ];
            text += &fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",");
            text.push('\n');
        }
    }
    text
}

/// A field, in quotes if it needs them.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_separators_are_quoted() {
        assert_eq!(quoted("scale by 1, at most 6"), "\"scale by 1, at most 6\"");
        assert_eq!(quoted("a \"b\""), "\"a \"\"b\"\"\"");
        assert_eq!(quoted("a b"), "a b");
    }
}
