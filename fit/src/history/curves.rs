//! The curves of a history as an SVG picture: the loss, and each other metric, on the data for training and for validation.

use super::History;
use ferrotune_display::escape;
use std::fmt::Write as _;

/// The width and height of a picture, and the room for its labels, in pixels.
const WIDTH: f64 = 260.0;
const HEIGHT: f64 = 170.0;
const MARGIN: f64 = 34.0;

/// The colours of training and validation, which are told apart also without colours by their lines.
const TRAIN: &str = "#1f77b4";
const VALID: &str = "#ff7f0e";

/// A picture for each metric, side by side; empty without two epochs.
pub(super) fn svg(history: &History) -> String {
    let names: Vec<&str> = history.names().into_iter().filter(|name| !name.starts_with("val_")).collect();
    if history.len() < 2 || names.is_empty() {
        return String::new();
    }
    let width = WIDTH * names.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{HEIGHT:.0}\" viewBox=\"0 0 {width:.0} {HEIGHT:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\" fill=\"currentColor\">"
    );
    for (place, name) in names.into_iter().enumerate() {
        chart(&mut svg, WIDTH * place as f64, name, history);
    }
    svg + "</svg>"
}

fn chart(svg: &mut String, left: f64, name: &str, history: &History) {
    let lines = [(history.get(name), TRAIN, ""), (history.get(&format!("val_{name}")), VALID, "5 3")];
    let finite = || lines.iter().flat_map(|(values, ..)| values).copied().filter(|value| value.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    if low > high {
        return;
    }
    let span = if high > low { high - low } else { 1.0 };
    let last = (history.len() - 1) as f64;
    let x = |epoch: usize| left + MARGIN + epoch as f64 / last * (WIDTH - MARGIN - 12.0);
    let y = |value: f64| HEIGHT - 24.0 - (value - low) / span * (HEIGHT - 52.0);
    let (right, bottom) = (left + WIDTH - 12.0, HEIGHT - 24.0);
    push(svg, format_args!("<path d=\"M{:.1} 24V{bottom}H{right:.1}\" fill=\"none\" stroke=\"#888\"/>", left + MARGIN));
    push(svg, format_args!("<text x=\"{:.1}\" y=\"14\">{}</text>", left + MARGIN, escape::html(name)));
    for value in [low, high] {
        let (x, y) = (left + MARGIN - 3.0, y(value) + 4.0);
        push(
            svg,
            format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\" font-size=\"9\">{value:.3}</text>"),
        );
    }
    push(
        svg,
        format_args!(
            "<text x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"9\">epoch {last}</text>",
            HEIGHT - 10.0
        ),
    );
    for (values, colour, dashes) in &lines {
        let points: Vec<String> = values
            .iter()
            .enumerate()
            .filter(|(_, value)| value.is_finite())
            .map(|(epoch, value)| format!("{:.1},{:.1}", x(epoch), y(*value)))
            .collect();
        let points = points.join(" ");
        push(
            svg,
            format_args!(
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\"/>"
            ),
        );
    }
    let legend = [("training", TRAIN, !lines[0].0.is_empty()), ("validation", VALID, !lines[1].0.is_empty())];
    for (place, (label, colour, _)) in legend.iter().filter(|(.., is_there)| *is_there).enumerate() {
        let x = right - 116.0 + 60.0 * place as f64;
        push(svg, format_args!("<text x=\"{x:.1}\" y=\"14\" fill=\"{colour}\" font-size=\"9\">{label}</text>"));
    }
}

fn push(svg: &mut String, part: std::fmt::Arguments<'_>) {
    svg.write_fmt(part).expect("a string takes all text");
}
