//! The picture of a confusion matrix.

use super::{ConfusionMatrix, text_of};
use ferrotune_display::escape;
use std::fmt::Write as _;

/// The side of the whole square of squares.
const SIDE_PIXELS: f64 = 420.0;
/// The sides of one square.
const SQUARE_PIXELS: std::ops::RangeInclusive<f64> = 6.0..=64.0;
/// The least side of a square that has its number in it.
const NUMBERED_PIXELS: f64 = 22.0;
const LETTER_PIXELS: f64 = 7.0;
/// The number of characters of a class's name that have space.
const NAME_CHARS: usize = 16;
/// The distance between names where not all have space.
const NAME_PIXELS: f64 = 14.0;

pub(super) fn svg(matrix: &ConfusionMatrix) -> String {
    let classes = matrix.counts.len().max(1);
    let square = (SIDE_PIXELS / classes as f64).clamp(*SQUARE_PIXELS.start(), *SQUARE_PIXELS.end());
    let names: Vec<String> = matrix.names.iter().map(|name| shortened(name)).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
    let margin = longest * LETTER_PIXELS + 34.0;
    let side = margin + square * classes as f64 + 8.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{side:.0}\" height=\"{side:.0}\" viewBox=\"0 0 {side:.0} {side:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    );
    let middle = margin + square * classes as f64 / 2.0;
    label(&mut svg, (middle, 14.0), 0.0, "middle", "predicted");
    label(&mut svg, (14.0, middle), -90.0, "middle", "class");
    let step = (NAME_PIXELS / square).ceil().max(1.0) as usize;
    for (class, name) in names.iter().enumerate().step_by(step) {
        let place = margin + square * (class as f64 + 0.5);
        label(&mut svg, (margin - 6.0, place + 4.0), 0.0, "end", name);
        label(&mut svg, (place + 4.0, margin - 6.0), -90.0, "start", name);
    }
    // The squares of no row are left to the ground, so that the picture of many classes has few squares.
    let whole = square * classes as f64;
    push(
        &mut svg,
        format_args!(
            "<rect x=\"{margin:.1}\" y=\"{margin:.1}\" width=\"{whole:.1}\" height=\"{whole:.1}\" fill=\"rgb(247,251,255)\" \
             stroke=\"#ddd\"/>"
        ),
    );
    for (row, (counts, shares)) in matrix.counts.iter().zip(matrix.shares()).enumerate() {
        for (column, (count, share)) in counts.iter().zip(shares).enumerate() {
            let corner = (margin + square * column as f64, margin + square * row as f64);
            let title = format!("{} predicted as {}: {}", matrix.names[row], matrix.names[column], text_of(*count));
            if *count != 0.0 {
                ground(&mut svg, corner, square, share, &title);
            }
            number(&mut svg, corner, square, share, &text_of(*count));
        }
    }
    svg + "</svg>"
}

/// A square with its colour and a title that appears under the pointer.
fn ground(svg: &mut String, (x, y): (f64, f64), square: f64, share: f64, title: &str) {
    let mix = |light: f64, dark: f64| (light + (dark - light) * share.clamp(0.0, 1.0)).round();
    let (red, green, blue) = (mix(247.0, 8.0), mix(251.0, 69.0), mix(255.0, 148.0));
    push(
        svg,
        format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{square:.1}\" height=\"{square:.1}\" fill=\"rgb({red},{green},{blue})\" \
             stroke=\"#ddd\" stroke-width=\"0.5\"><title>{}</title></rect>",
            escape::html(title)
        ),
    );
}

/// The number in a square, if it has space.
fn number(svg: &mut String, (x, y): (f64, f64), square: f64, share: f64, count: &str) {
    if square < NUMBERED_PIXELS || count.chars().count() as f64 * LETTER_PIXELS > square {
        return;
    }
    let colour = if share > 0.5 { "#fff" } else { "#222" };
    let (x, y) = (x + square / 2.0, y + square / 2.0 + 4.0);
    push(svg, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" fill=\"{colour}\">{count}</text>"));
}

fn label(svg: &mut String, (x, y): (f64, f64), degrees: f64, anchor: &str, text: &str) {
    let turned = if degrees == 0.0 { String::new() } else { format!(" transform=\"rotate({degrees} {x:.1} {y:.1})\"") };
    push(
        svg,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#222\"{turned}>{}</text>",
            escape::html(text)
        ),
    );
}

fn push(svg: &mut String, part: std::fmt::Arguments<'_>) {
    svg.write_fmt(part).expect("a string takes all text");
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
