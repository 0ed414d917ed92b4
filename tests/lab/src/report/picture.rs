//! The picture of a comparison: energy per work and overload of each contender on each fleet, relative to the baseline.

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::cluster::MeasureKind;
use crate::ground::FleetResult;
use crate::statistics::RelativeChange;

/// Figures of the picture, with their colors.
const DRAWN: [(MeasureKind, RGBColor); 3] = [
    (MeasureKind::EnergyPerWork, RGBColor(0, 114, 178)),
    (MeasureKind::EnergyPerWorkSwitched, RGBColor(86, 180, 233)),
    (MeasureKind::Overload, RGBColor(213, 94, 0)),
];

/// Sizes in pixels.
const WIDTH: i32 = 960;
const NAMES: i32 = 260;
const TITLE: i32 = 44;
const BAR: i32 = 8;
const ROW: i32 = 34;

/// Change at the ends of the scale; longer bars are cut.
const SCALE: f64 = 1.0;

/// Draws the picture as SVG.
pub fn picture(results: &[FleetResult]) -> Result<String> {
    let rows: usize = results.iter().map(|result| result.runs.len()).sum();
    let height = TITLE * (count(results.len())? + 1) + ROW * count(rows)?;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH.unsigned_abs(), height.unsigned_abs())).into_drawing_area();
        draw(&area, results).map_err(|error| anyhow!("cannot draw the picture: {error}"))?;
    }
    Ok(svg)
}

fn count(number: usize) -> Result<i32> {
    i32::try_from(number).context("too many rows for a picture")
}

type PictureArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;

type DrawError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn draw<'a>(area: &PictureArea<'a>, results: &[FleetResult]) -> std::result::Result<(), DrawError<'a>> {
    area.fill(&WHITE)?;
    legend(area)?;
    let mut top = TITLE;
    for result in results {
        let title = ("sans-serif", 16).into_font().color(&BLACK);
        area.draw(&Text::new(format!("fleet {}", result.fleet), (8, top + 14), title))?;
        top += TITLE;
        for (contender, _) in &result.runs {
            row(area, top, result, &contender.name)?;
            top += ROW;
        }
    }
    area.present()
}

/// Names of the figures, with the ends of the scale.
fn legend<'a>(area: &PictureArea<'a>) -> std::result::Result<(), DrawError<'a>> {
    let font = ("sans-serif", 13).into_font().color(&BLACK);
    let mut left = NAMES;
    for (kind, color) in DRAWN {
        area.draw(&Rectangle::new([(left, 16), (left + 10, 26)], color.filled()))?;
        area.draw(&Text::new(kind.name(), (left + 16, 15), font.clone()))?;
        left += 230;
    }
    let scale = "change relative to the baseline, from -100 % to +100 %, with 95 % intervals";
    area.draw(&Text::new(scale, (NAMES, 34), font))
}

fn row<'a>(
    area: &PictureArea<'a>,
    top: i32,
    result: &FleetResult,
    contender: &str,
) -> std::result::Result<(), DrawError<'a>> {
    let font = ("sans-serif", 13).into_font().color(&BLACK);
    area.draw(&Text::new(contender.to_owned(), (8, top + 6), font))?;
    let zero = position(0.0);
    for ((kind, color), line) in DRAWN.into_iter().zip(0..) {
        let top = top + line * (BAR + 1);
        if let Some(RelativeChange { mean, low, high }) = result.change(contender, kind) {
            let (from, to) = (zero.min(position(mean)), zero.max(position(mean)));
            area.draw(&Rectangle::new([(from, top), (to, top + BAR)], color.filled()))?;
            let middle = top + BAR / 2;
            area.draw(&PathElement::new([(position(low), middle), (position(high), middle)], BLACK))?;
        }
    }
    area.draw(&PathElement::new([(zero, top - 3), (zero, top + 3 * (BAR + 1) + 2)], BLACK))
}

/// Horizontal position of a change.
fn position(change: f64) -> i32 {
    let half = f64::from(WIDTH - NAMES - 20) / 2.0;
    let middle = f64::from(NAMES) + half;
    (middle + half * (change / SCALE).clamp(-1.0, 1.0)).round() as i32
}
