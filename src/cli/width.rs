//! Text by display width: wide characters take two columns of a terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Mark of a text that was cut.
const CUT: &str = "…";

/// Number of columns of a terminal that the text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Replaces characters that would change the terminal or the direction of text, and limits the number of characters. A
/// status may contain text of any client.
pub fn clean(text: &str, most: usize) -> String {
    let is_plain = |c: char| {
        !c.is_control() && !matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let shown: String = text.chars().take(most).map(|c| if is_plain(c) { c } else { ' ' }).collect();
    shown.trim_end().to_owned()
}

/// Cuts the text to this number of columns.
pub fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let room = columns.saturating_sub(width(CUT));
    let mut shown = take(text, room).to_owned();
    if columns >= width(CUT) {
        shown.push_str(CUT);
    }
    shown
}

/// The text in exactly this number of columns.
pub fn fit(text: &str, columns: usize) -> String {
    let mut shown = cut(text, columns);
    shown.push_str(&" ".repeat(columns.saturating_sub(width(&shown))));
    shown
}

/// Splits the text into lines of at most this number of columns, at blanks where possible. Indents stay.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut rest = line;
        while width(rest) > columns {
            let head = take(rest, columns);
            // A character may be wider than the line.
            let end = if head.is_empty() { rest.chars().next().map_or(0, char::len_utf8) } else { head.len() };
            let indent = rest.len() - rest.trim_start().len();
            let blank =
                rest[..end].rfind(' ').filter(|at| *at > indent && !rest[end..].starts_with(' ')).unwrap_or(end);
            lines.push(rest[..blank].trim_end().to_owned());
            rest = rest[blank..].trim_start();
        }
        if !rest.is_empty() || line.is_empty() {
            lines.push(rest.to_owned());
        }
    }
    lines
}

/// The longest beginning of the text that takes at most this number of columns.
fn take(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, character) in text.char_indices() {
        used += character.width().unwrap_or(0);
        if used > columns {
            return &text[..at];
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_fitted_text_has_its_width(text in "\\PC{0,40}", columns in 0_usize..30) {
            prop_assert!(width(&cut(&text, columns)) <= columns);
            let fitted = fit(&text, columns);
            prop_assert_eq!(width(&fitted), columns, "{:?}", fitted);
        }

        #[test]
        fn wrapped_lines_lose_no_word(text in "[a-z ]{0,80}", columns in 1_usize..20) {
            let joined: String = wrap(&text, columns).concat().split_whitespace().collect();
            prop_assert_eq!(joined, text.split_whitespace().collect::<String>());
            prop_assert!(wrap(&text, columns).iter().all(|line| width(line) <= columns));
        }

        #[test]
        fn a_clean_text_has_no_controls(text in any::<String>()) {
            prop_assert!(!clean(&text, 100).contains(char::is_control));
        }
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(cut("漢字漢字", 5), "漢字…");
        assert_eq!(fit("漢字漢字", 6), "漢字… ");
        assert_eq!(cut("漢字", 4), "漢字");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(wrap("漢字漢", 1), ["漢", "字", "漢"]);
    }

    #[test]
    fn escape_sequences_of_a_status_are_not_sent_to_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mred\u{202e}x\n", 100), "a [31mred x");
    }
}
