//! Text layout for a terminal: paragraphs and tables of limited width.
//!
//! Not comfy-table, which the demos use for frames and colors: it would wrap names in every column, whereas only the
//! last column may wrap here; and paragraphs, ages and times would stay.

use jiff::Timestamp;

/// Maximum width of a line.
const WIDTH: usize = 120;

/// Spaces between two columns.
const GAP: usize = 2;

/// Minimum width to which a column is narrowed.
const LEAST: usize = 8;

/// Renders `words` after `beginning`, wrapped; continuation lines are indented to the first word. Each line ends with a
/// line break.
pub fn paragraph(beginning: &str, words: &str) -> String {
    let indent = beginning.chars().count();
    let mut lines = vec![beginning.to_owned()];
    let mut empty = true;
    for word in words.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if !empty && line + 1 + word.chars().count() > WIDTH {
            lines.push(" ".repeat(indent));
            empty = true;
        }
        if let Some(line) = lines.last_mut() {
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
        }
        empty = false;
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Renders a time in UTC.
pub fn clock(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Renders the time since `at`, as kubectl does.
pub fn age(at: Timestamp, now: Timestamp) -> String {
    match now.duration_since(at).as_secs().max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Renders a table with aligned columns. If it is too wide, its widest columns are narrowed: the last one wraps, the
/// others are truncated.
pub fn table<R: AsRef<[String]>>(header: impl IntoIterator<Item = impl Into<String>>, rows: Vec<R>) -> String {
    let header: Vec<String> = header.into_iter().map(Into::into).collect();
    let mut widths: Vec<usize> = header.iter().map(|name| name.chars().count()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row.as_ref()) {
            *width = cell.chars().count().max(*width);
        }
    }
    while widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) > WIDTH {
        match widths.iter_mut().max() {
            Some(widest) if *widest > LEAST => *widest -= 1,
            _ => break,
        }
    }
    std::iter::once(header.as_slice()).chain(rows.iter().map(AsRef::as_ref)).map(|cells| row(cells, &widths)).collect()
}

fn row(cells: &[String], widths: &[usize]) -> String {
    let last = widths.len().saturating_sub(1);
    let beginning: String = cells
        .iter()
        .zip(widths)
        .take(last)
        .map(|(cell, width)| format!("{:<width$}{}", cut(cell, *width), " ".repeat(GAP)))
        .collect();
    paragraph(&beginning, cells.get(last).map_or("", String::as_str))
}

fn cut(cell: &str, width: usize) -> String {
    if cell.chars().count() <= width {
        return cell.to_owned();
    }
    cell.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_break_between_words_and_stand_under_their_first() {
        let text = paragraph("  why  ", &"word ".repeat(40));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(lines[0].starts_with("  why  word word") && lines[1].starts_with("       word"), "{text}");
        assert_eq!(paragraph("a ", &"x".repeat(200)).lines().count(), 1, "a word that is too long stands alone");
    }

    #[test]
    fn a_table_is_aligned_and_narrowed_where_it_is_too_wide() {
        let rows: Vec<[String; 3]> =
            vec![["1".into(), "a".into(), "short".into()], ["22".into(), "y".repeat(200), "word ".repeat(30)]];
        let text = table(["N", "NAME", "WORDS"], rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(lines[2].starts_with("22  yyy") && lines[2].contains("…  word"), "{text}");
        let [first, second] = [lines[2], lines[3]].map(|line| line.find("word").map(|at| line[..at].chars().count()));
        assert!(first.is_some() && first == second, "{text}");
        assert_eq!(text.matches("word").count(), 30, "{text}");
    }
}
