//! Colours that are readable on light and on dark pages.

use super::{Chart, Colour};

/// Text, ticks and frames.
pub(super) const INK: &str = "#777777";
/// Colours of series: those of Okabe and Ito, which colour-blind people can distinguish, without black and yellow.
const SERIES: [&str; 6] = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9"];
/// Shades from low to high.
pub(super) const SHADES: [[u8; 3]; 5] = [[58, 82, 165], [33, 130, 160], [53, 175, 121], [170, 190, 50], [245, 170, 30]];

/// The colour of a series by number; after the last colour the first one follows.
pub(super) fn series(index: usize) -> &'static str {
    SERIES[index % SERIES.len()]
}

/// The colour of a mark with this shade, in a layer of this colour.
pub(super) fn of_mark(chart: &Chart, colour: Colour, shade: f64) -> String {
    match (colour, &chart.shades) {
        (Colour::Series(index), _) => series(index).to_owned(),
        (Colour::Shade, Some(shades)) => shaded(shades.position(shade)),
        (Colour::Shade, None) => INK.to_owned(),
    }
}

/// The colour of a shade between 0 and 1.
pub(super) fn shaded(position: f64) -> String {
    let place = position * (SHADES.len() - 1) as f64;
    let index = (place as usize).min(SHADES.len() - 2);
    let share = place - index as f64;
    let mixed = |channel: usize| {
        let (low, high) = (f64::from(SHADES[index][channel]), f64::from(SHADES[index + 1][channel]));
        (low + (high - low) * share).round() as u8
    };
    hex([mixed(0), mixed(1), mixed(2)])
}

/// The colour in the syntax of SVG and Vega-Lite.
pub(super) fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
