//! Layout of the table: which columns are shown in how much room.

use std::collections::BTreeMap;

use super::rows::TopRow;
use crate::cli::width::width;
use jiff::Timestamp;

/// Blank columns between two columns of the table.
pub const GAP: usize = 1;

/// Number of bars of a sparkline in the table.
pub const TREND: usize = 12;

/// A column of the table, in the order from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopColumn {
    Kind,
    Namespace,
    Name,
    State,
    Reason,
    Progress,
    Trend,
    Age,
    Message,
}

impl TopColumn {
    pub const ALL: [Self; 9] = [
        Self::Kind,
        Self::Namespace,
        Self::Name,
        Self::State,
        Self::Reason,
        Self::Progress,
        Self::Trend,
        Self::Age,
        Self::Message,
    ];

    /// Columns in the order in which a narrow terminal loses them. The name stays.
    const DROPPED: [Self; 8] =
        [Self::Message, Self::Trend, Self::Namespace, Self::Reason, Self::Progress, Self::Age, Self::Kind, Self::State];

    /// Columns in the order in which they get more room than their minimum.
    const SERVED: [Self; 9] = [
        Self::State,
        Self::Age,
        Self::Kind,
        Self::Trend,
        Self::Name,
        Self::Reason,
        Self::Progress,
        Self::Namespace,
        Self::Message,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Kind => "KIND",
            Self::Namespace => "NAMESPACE",
            Self::Name => "NAME",
            Self::State => "STATE",
            Self::Reason => "REASON",
            Self::Progress => "PROGRESS",
            Self::Trend => "TREND",
            Self::Age => "AGE",
            Self::Message => "MESSAGE",
        }
    }

    /// Text of the cell. The sparkline has no text.
    pub fn cell(self, row: &TopRow, now: Timestamp) -> String {
        match self {
            Self::Kind => row.id.kind.short().to_owned(),
            Self::Namespace => row.id.namespace.clone(),
            Self::Name => row.id.name.clone(),
            Self::State => row.state.clone(),
            Self::Reason => row.reason.clone(),
            Self::Progress => row.progress.clone(),
            Self::Trend => String::new(),
            Self::Age => row.age(now),
            Self::Message => row.message.clone(),
        }
    }

    /// Room below which the column is not shown.
    fn least(self) -> usize {
        match self {
            Self::Kind | Self::Age => 4,
            Self::Namespace | Self::Reason => 9,
            Self::Name => 8,
            Self::State => 8,
            Self::Progress => 10,
            Self::Trend => TREND,
            Self::Message => 12,
        }
    }

    /// Room above which more is given to others first.
    fn usual(self) -> usize {
        match self {
            Self::Name => 24,
            Self::Namespace => 16,
            Self::Reason => 20,
            Self::Progress => 30,
            Self::Kind | Self::Age => 6,
            Self::State => 10,
            Self::Trend => TREND,
            Self::Message => usize::MAX,
        }
    }
}

/// Width of the widest cell of each column, its title included.
pub fn natural(rows: &[TopRow], columns: &[TopColumn], now: Timestamp) -> BTreeMap<TopColumn, usize> {
    let widest = |column: &TopColumn| {
        let cells = rows.iter().map(|row| width(&column.cell(row, now)));
        let bars = if *column == TopColumn::Trend { TREND } else { 0 };
        (*column, cells.max().unwrap_or_default().max(width(column.title())).max(bars))
    };
    columns.iter().map(widest).collect()
}

/// The columns that fit into this width, with their widths, from left to right. At least the name is shown.
pub fn layout(natural: &BTreeMap<TopColumn, usize>, room: usize) -> Vec<(TopColumn, usize)> {
    let least = |column: TopColumn, wanted: usize| column.least().min(wanted);
    let mut widths: BTreeMap<TopColumn, usize> =
        natural.iter().map(|(column, wanted)| (*column, least(*column, *wanted))).collect();
    // The message, which is also shown below the table, does not narrow the other columns.
    let usual = widths.iter().map(|(column, least)| natural[column].min(column.usual()).max(*least)).sum::<usize>();
    let message = natural.get(&TopColumn::Message).copied().unwrap_or_default();
    let usual = usual.saturating_sub(message) + least(TopColumn::Message, message);
    if usual + GAP * widths.len().saturating_sub(1) > room {
        widths.remove(&TopColumn::Message);
    }
    for column in TopColumn::DROPPED {
        if total(&widths) > room {
            widths.remove(&column);
        }
    }
    if let Some(name) = widths.get_mut(&TopColumn::Name) {
        *name = (*name).min(room);
    }
    for limit in [TopColumn::usual as fn(TopColumn) -> usize, |_| usize::MAX] {
        for column in TopColumn::SERVED {
            let left = room.saturating_sub(total(&widths));
            let wanted = natural.get(&column).copied().unwrap_or_default().min(limit(column));
            if let Some(given) = widths.get_mut(&column) {
                *given += wanted.saturating_sub(*given).min(left);
            }
        }
    }
    widths.into_iter().collect()
}

fn total(widths: &BTreeMap<TopColumn, usize>) -> usize {
    widths.values().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use TopColumn as C;

    fn wide(width: usize) -> BTreeMap<TopColumn, usize> {
        C::ALL.into_iter().map(|column| (column, width)).collect()
    }

    fn shown(natural: &BTreeMap<TopColumn, usize>, room: usize) -> Vec<TopColumn> {
        layout(natural, room).into_iter().map(|(column, _)| column).collect()
    }

    proptest! {
        #[test]
        fn the_table_fits(widths in proptest::collection::vec(0_usize..300, 9), room in 0_usize..200) {
            let natural: BTreeMap<TopColumn, usize> = C::ALL.into_iter().zip(widths).collect();
            let columns: BTreeMap<TopColumn, usize> = layout(&natural, room).into_iter().collect();
            prop_assert!(columns.contains_key(&C::Name));
            prop_assert!(total(&columns) <= room);
            prop_assert!(columns.iter().all(|(column, width)| *width <= natural[column]));
        }

        #[test]
        fn more_room_shows_no_fewer_columns(
            widths in proptest::collection::vec(0_usize..300, 9),
            room in 0_usize..200,
        ) {
            let natural: BTreeMap<TopColumn, usize> = C::ALL.into_iter().zip(widths).collect();
            prop_assert!(layout(&natural, room).len() <= layout(&natural, room + 1).len());
        }
    }

    #[test]
    fn columns_are_dropped_in_a_fixed_order() {
        let natural = wide(253);
        assert_eq!(shown(&wide(12), 130), C::ALL);
        assert_eq!(
            shown(&natural, 80),
            [C::Kind, C::Namespace, C::Name, C::State, C::Reason, C::Progress, C::Trend, C::Age]
        );
        assert_eq!(shown(&natural, 60), [C::Kind, C::Namespace, C::Name, C::State, C::Reason, C::Progress, C::Age]);
        assert_eq!(shown(&natural, 50), [C::Kind, C::Name, C::State, C::Reason, C::Progress, C::Age]);
        assert_eq!(shown(&natural, 40), [C::Kind, C::Name, C::State, C::Progress, C::Age]);
        assert_eq!(shown(&natural, 20), [C::Name, C::State]);
        assert_eq!(shown(&natural, 5), [C::Name]);
    }

    #[test]
    fn a_long_name_leaves_room_for_others() {
        let mut natural = wide(10);
        natural.insert(C::Name, 253);
        let columns: BTreeMap<TopColumn, usize> = layout(&natural, 120).into_iter().collect();
        assert_eq!((columns[&C::Reason], columns[&C::Progress]), (10, 10));
        assert_eq!(total(&columns), 120);
    }
}
