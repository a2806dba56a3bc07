//! Colours that are visible on light and on dark pages: each has a contrast of at least 3:1 to both, as WCAG 2.1 requires of
//! graphics in its criterion 1.4.11. Texts and axes have the colour of the page's texts if the front end provides it.

use super::{Chart, Colour};

/// The colour of texts, axes and edges: the colour of the text around the chart.
pub(super) const INK: &str = "currentColor";
/// The colour of texts, axes and edges if a chart is a separate picture, which does not have the page's colours.
pub(super) const INK_OF_PICTURES: &str = "#858585";
/// The colours of the plate of a label that lies on lines, and of the letters on the plate.
pub(super) const PLATE: &str = "#616c7a";
pub(super) const ON_PLATE: &str = "#ffffff";
/// Colours of series, which colour-blind people can distinguish: the hues of Okabe and Ito in a narrower range of lightness, and
/// a grey.
const SERIES: [&str; 6] = ["#2a8ad0", "#b87f00", "#009e73", "#d55e00", "#c66a9c", "#808b96"];
/// Shades from low to high: from blue to orange, which colour-blind people can distinguish too.
pub(super) const SHADES: [[u8; 3]; 5] =
    [[79, 134, 232], [150, 118, 222], [198, 100, 176], [222, 106, 96], [212, 128, 24]];

/// The width of each line, if there are `lines` lines. Many lines are thin and not transparent, because transparency reduces contrast.
pub(super) fn line_width(colour: Colour, lines: usize) -> f64 {
    match (colour, lines) {
        (Colour::Ink, _) => 1.0,
        (_, 0..=20) => 1.8,
        (_, 21..=100) => 1.4,
        _ => 1.0,
    }
}

/// The colour of a series by number; the colours repeat after the last one.
pub(super) fn series(index: usize) -> &'static str {
    SERIES[index % SERIES.len()]
}

/// The colour of a mark with this shade, in a layer of this colour.
pub(super) fn of_mark(chart: &Chart, colour: Colour, shade: f64) -> String {
    match (colour, &chart.shades) {
        (Colour::Series(index), _) => series(index).to_owned(),
        (Colour::Shade, Some(shades)) => shaded(shades.position(shade)),
        (Colour::Shade, None) | (Colour::Ink, _) => INK.to_owned(),
    }
}

/// The colour of a shade between 0 and 1.
pub(super) fn shaded(position: f64) -> String {
    hex(mixed(position))
}

fn mixed(position: f64) -> [u8; 3] {
    let place = position * (SHADES.len() - 1) as f64;
    let index = (place as usize).min(SHADES.len() - 2);
    let share = place - index as f64;
    [0, 1, 2].map(|channel: usize| {
        let (low, high) = (f64::from(SHADES[index][channel]), f64::from(SHADES[index + 1][channel]));
        (low + (high - low) * share).round() as u8
    })
}

/// The colour in the syntax of SVG and Vega-Lite.
pub(super) fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The background colours of JupyterLab's themes, and of the dark themes of VS Code and Colab.
    const PAGES: [&str; 4] = ["#ffffff", "#111111", "#1f1f1f", "#383838"];
    const LEAST: f64 = 3.0;
    /// The contrast that WCAG requires of texts.
    const LEAST_OF_TEXT: f64 = 4.5;

    /// The relative luminance of a colour by WCAG 2.1.
    fn luminance(colour: &str) -> f64 {
        let linear = |channel: usize| {
            let value = f64::from(u8::from_str_radix(&colour[1 + 2 * channel..3 + 2 * channel], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(0) + 0.7152 * linear(1) + 0.0722 * linear(2)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn every_colour_is_visible_on_light_and_on_dark_pages() {
        assert!((contrast("#ffffff", "#000000") - 21.0).abs() < 1e-9);
        let shades = (0..=100).map(|step| shaded(f64::from(step) / 100.0));
        let fixed = SERIES.into_iter().chain([INK_OF_PICTURES]).map(str::to_owned);
        for colour in fixed.chain(shades) {
            for page in PAGES {
                let contrast = contrast(&colour, page);
                assert!(contrast >= LEAST, "{colour} on {page}: {contrast:.2}");
            }
        }
        assert!(contrast(ON_PLATE, PLATE) >= LEAST_OF_TEXT);
    }
}
