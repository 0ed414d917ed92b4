//! The view as a plain table, for pipes and `--once`.

use jiff::Timestamp;

use super::model::TopModel;
use super::table::{TopColumn, natural};
use crate::cli::width::fit;

/// Blanks between two columns.
const GAP: &str = "   ";

/// The rows as text; empty if there are none. No cell is cut.
pub fn plain_table(model: &TopModel, now: Timestamp) -> String {
    if model.rows.is_empty() {
        return String::new();
    }
    let mut columns = model.columns();
    columns.retain(|column| *column != TopColumn::Trend);
    let widths = natural(&model.rows, &columns, now);
    let line = |cell: &dyn Fn(TopColumn) -> String| {
        let cells: Vec<String> = columns.iter().map(|column| fit(&cell(*column), widths[column])).collect();
        cells.join(GAP).trim_end().to_owned() + "\n"
    };
    let rows = model.rows.iter().map(|row| line(&|column| column.cell(row, now)));
    line(&|column| column.title().to_owned()) + &rows.collect::<String>()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::top::kinds::TopKind;
    use crate::cli::top::model::TopScope;
    use crate::cli::top::testing::object;

    #[test]
    fn a_pipe_gets_a_plain_table() {
        let mut model = TopModel::new(TopScope::All, vec![TopKind::Loop, TopKind::Policy], (0, 0), false);
        let ready = json!({"type": "Ready", "status": "True", "reason": "Running", "message": "all well"});
        model.put(object(TopKind::Loop, &"漢".repeat(4), json!({}), json!({"conditions": [ready]})));
        model.put(object(TopKind::Policy, "p", json!({}), json!({"nodes": 2})));
        model.refresh();
        let now = "2026-11-21T10:01:00Z".parse().unwrap();
        assert_eq!(
            plain_table(&model, now),
            "KIND    NAMESPACE   NAME       STATE    REASON    PROGRESS   AGE   MESSAGE\n\
             loop    shop        漢漢漢漢   Ready    Running              60s   all well\n\
             plpol               p          Unseen             2 nodes    60s\n"
        );
        model.filter = "nothing".to_owned();
        model.is_outdated = true;
        model.refresh();
        assert_eq!(plain_table(&model, now), "");
    }
}
