//! The width of texts in a terminal, or in a font of fixed width.

/// Breaks a text between words, and within words that are longer than a line. None: one line.
pub fn wrap(text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width.map(|width| width.max(8)) else {
        return vec![text.split_whitespace().collect::<Vec<_>>().join(" ")];
    };
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let room = columns(word);
        if used > 0 && used + 1 + room > width {
            lines.push(String::new());
            used = 0;
        }
        if used > 0 {
            push(&mut lines, ' ');
            used += 1;
        }
        for c in word.chars() {
            let wide = width_of(c);
            if used + wide > width {
                lines.push(String::new());
                used = 0;
            }
            push(&mut lines, c);
            used += wide;
        }
    }
    lines
}

fn push(lines: &mut [String], c: char) {
    if let Some(line) = lines.last_mut() {
        line.push(c);
    }
}

/// Columns of a text in a terminal.
pub fn columns(text: &str) -> usize {
    text.chars().map(width_of).sum()
}

/// Columns of a character: two for scripts and symbols that terminals show wide. Names of Kubernetes are ASCII; only
/// messages of other programs contain such characters.
fn width_of(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36f | 0x200b..=0x200f | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f | 0xff00..=0xff60 => 2,
        0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// The beginning of a text that fits these columns.
pub fn fit(text: &str, room: usize) -> String {
    let mut used = 0;
    text.chars()
        .take_while(|c| {
            used += width_of(*c);
            used <= room
        })
        .collect()
}
