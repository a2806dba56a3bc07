//! A chart as SVG: axes with ticks and labels, marks with tooltips, a legend. Has no scripts and no fonts. In a page the SVG is no
//! wider than its container, and has the colour of the page's texts if the page has JupyterLab's variables. In an `<img>`, as
//! nbconvert writes it, the SVG cannot use the page's colours.

use super::colours::{INK, INK_OF_PICTURES, ON_PLATE, PLATE, SHADES, hex, line_width, of_mark, series, shaded};
use super::{Axis, Chart, Colour, Layer, Marks, Panel, Scale, Shades};
use crate::number;
use ferrotune_display::escape;

/// The width of a letter, and the height of a line.
const LETTER: f64 = 6.2;
const LINE: f64 = 16.0;
/// The height of a letter.
const LETTER_HEIGHT: f64 = 9.0;
/// The largest number of letters in a label; longer labels are cut.
const LONGEST_LABEL: usize = 18;

/// The factor by which a chart is larger on a page with enough room, so that its texts are as large as those of notebooks.
const ENLARGEMENT: f64 = 1.2;
/// The number of panels in a row, with which several panels are about as wide as a single panel.
const PANELS_A_ROW: usize = 2;

/// A panel of a chart and its position.
struct Frame<'a> {
    panel: &'a Panel,
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

impl Chart {
    /// The chart as an SVG document.
    pub fn svg(&self) -> String {
        let columns = self.panels.len().clamp(1, PANELS_A_ROW);
        let rows = self.panels.len().div_ceil(columns);
        let (width, height) = if columns == 1 { (560.0, 320.0) } else { (230.0, 190.0) };
        let left = self.panels.iter().map(left_margin).fold(0.0, f64::max);
        let below = self.panels.iter().map(|panel| below_margin(panel, width)).fold(0.0, f64::max);
        let (pitch_x, pitch_y) = (left + width + 16.0, height + below + 14.0);
        let mut body = String::new();
        for (index, panel) in self.panels.iter().enumerate() {
            let (column, row) = (index % columns, index / columns);
            let top = 34.0 + row as f64 * pitch_y;
            body.push_str(&self.panel(&Frame { panel, left: column as f64 * pitch_x + left, top, width, height }));
        }
        let total_width = columns as f64 * pitch_x + 8.0;
        let mut bottom = 34.0 + rows as f64 * pitch_y;
        body.push_str(&self.legend(left, &mut bottom));
        if let Some(note) = &self.note {
            body.push_str(&text(left, bottom + 12.0, "start", note));
            bottom += LINE;
        }
        let title = escape::html(&self.title);
        let look = format!(
            "color=\"{INK_OF_PICTURES}\" style=\"max-width:100%;height:auto;color:var(--jp-content-font-color1,{INK_OF_PICTURES})\""
        );
        let shown_width = total_width * ENLARGEMENT;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total_width:.0} {:.0}\" width=\"{shown_width:.0}\" \
             {look} font-family=\"sans-serif\" font-size=\"11\" fill=\"{INK}\"><title>{title}</title>\
             <text x=\"{left:.1}\" y=\"18\" font-size=\"14\" font-weight=\"bold\">{title}</text>{body}</svg>",
            bottom + 6.0
        )
    }

    fn panel(&self, frame: &Frame<'_>) -> String {
        let Frame { left, top, width, height, .. } = *frame;
        let marks: String = frame.panel.layers.iter().map(|layer| self.layer(frame, layer)).collect();
        // A panel whose marks include the axes needs no frame.
        let edges = match frame.panel.y.scale {
            Scale::Share => String::new(),
            _ => format!(
                "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"{INK}\"/>"
            ),
        };
        format!("{}{}{edges}{marks}", x_axis(frame), y_axis(frame))
    }

    fn layer(&self, frame: &Frame<'_>, layer: &Layer) -> String {
        let colour = |shade: f64| of_mark(self, layer.colour, shade);
        match &layer.marks {
            Marks::Points(points) => points
                .iter()
                .map(|point| {
                    let (x, y, colour) = (frame.x(point.x), frame.y(point.y), colour(point.shade));
                    // The edge makes a point visible on a cell of the same colour.
                    let look = format!("fill=\"{colour}\" stroke=\"{INK}\" stroke-width=\"0.7\"");
                    let attributes = format!("circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" {look}");
                    with_tooltip(&attributes, &point.label)
                })
                .collect(),
            Marks::Labels(points) => {
                points.iter().map(|point| text(frame.x(point.x), frame.y(point.y), "middle", &point.label)).collect()
            }
            Marks::Plates(points) => {
                let room = frame.width / frame.panel.x.scale.places() as f64;
                points.iter().map(|point| plate(frame.x(point.x), frame.y(point.y), room, &point.label)).collect()
            }
            Marks::Lines(lines) => {
                let thickness = line_width(layer.colour, lines.len());
                let drawn = lines.iter().map(|line| {
                    let corners: Vec<String> =
                        line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", frame.x(*x), frame.y(*y))).collect();
                    let (corners, colour) = (corners.join(" "), colour(line.shade));
                    let look = format!("stroke=\"{colour}\" stroke-width=\"{thickness}\" stroke-linejoin=\"round\"");
                    with_tooltip(&format!("polyline points=\"{corners}\" fill=\"none\" {look}"), &line.label)
                });
                drawn.collect()
            }
            Marks::Bars(bars) => bars
                .iter()
                .map(|bar| {
                    let row_height = frame.row_height();
                    let (from, to) = (frame.x(bar.from.min(bar.to)), frame.x(bar.from.max(bar.to)));
                    let (y, thickness) = (frame.y(bar.row as f64) - row_height * 0.4, row_height * 0.8);
                    let place = format!("x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\"", (to - from).max(1.0));
                    let colour = colour(0.0);
                    let attributes = format!("rect {place} height=\"{thickness:.1}\" fill=\"{colour}\"");
                    with_tooltip(&attributes, &bar.label)
                })
                .collect(),
            Marks::Cells(cells) => cells
                .iter()
                .map(|cell| {
                    let (left, right) = (frame.x(cell.x.0), frame.x(cell.x.1));
                    let (bottom, top) = (frame.y(cell.y.0), frame.y(cell.y.1));
                    let (x, y, colour) = (left.min(right), top.min(bottom), colour(cell.shade));
                    let (width, height) = ((right - left).abs(), (bottom - top).abs());
                    // The renderer would blend edges between pixels, which draws a grid.
                    let look = format!("fill=\"{colour}\" shape-rendering=\"crispEdges\"");
                    format!("<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" {look}/>")
                })
                .collect(),
        }
    }

    /// Draws the names of the layers and the scale of shades; moves `bottom` below them.
    fn legend(&self, left: f64, bottom: &mut f64) -> String {
        let mut drawn = String::new();
        let (mut x, y) = (left, *bottom + 8.0);
        let mut seen: Vec<&str> = Vec::new();
        for layer in self.panels.iter().flat_map(|panel| &panel.layers) {
            let Colour::Series(index) = layer.colour else { continue };
            if layer.name.is_empty() || seen.contains(&layer.name.as_str()) {
                continue;
            }
            seen.push(&layer.name);
            let colour = series(index);
            drawn.push_str(&format!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
                y - 9.0
            ));
            drawn.push_str(&text(x + 14.0, y, "start", &layer.name));
            x += 30.0 + layer.name.chars().count() as f64 * LETTER;
        }
        if let Some(shades) = &self.shades {
            drawn.push_str(&shade_bar(shades, x, y));
            x += 1.0;
        }
        if x > left {
            *bottom += LINE + 6.0;
        }
        drawn
    }
}

impl Frame<'_> {
    fn x(&self, value: f64) -> f64 {
        self.left + place(&self.panel.x.scale, value) * self.width
    }

    /// The vertical position of a value: numbers increase upwards; names begin at the top.
    fn y(&self, value: f64) -> f64 {
        let position = place(&self.panel.y.scale, value);
        match self.panel.y.scale {
            Scale::Names(_) => self.top + position * self.height,
            _ => self.top + (1.0 - position) * self.height,
        }
    }

    fn row_height(&self) -> f64 {
        match &self.panel.y.scale {
            Scale::Names(names) => self.height / names.len().max(1) as f64,
            _ => 8.0,
        }
    }
}

/// The position of a value on an axis; an axis without ticks leaves room for labels at both ends.
fn place(scale: &Scale, value: f64) -> f64 {
    match scale {
        Scale::Share => 0.08 + 0.84 * value,
        scale => scale.position(value),
    }
}

fn x_axis(frame: &Frame<'_>) -> String {
    let Frame { panel, left, top, width, height } = *frame;
    let bottom = top + height;
    let slanted = labels_are_slanted(&panel.x, width);
    let ticks = panel.x.scale.ticks(tick_count(width / 70.0)).into_iter();
    let ticks = ticks.map(|(value, label)| (frame.x(value), shortened(&label)));
    // A slanted label needs only the width of a line.
    let length = |label: &str| if slanted { LINE } else { (label.chars().count() + 1) as f64 * LETTER };
    let has_own_axes = panel.y.scale == Scale::Share;
    let ticks = readable(ticks, length).map(|(x, label)| {
        let grid = format!(
            "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"{INK}\" stroke-opacity=\"0.2\"/>",
            bottom + 4.0
        );
        let grid = if has_own_axes { String::new() } else { grid };
        let y = bottom + 15.0;
        let turned = if slanted {
            format!("text-anchor=\"end\" transform=\"rotate(-35 {x:.1} {y:.1})\"")
        } else {
            "text-anchor=\"middle\"".to_owned()
        };
        let label = label.map_or_else(String::new, |label| {
            format!("<text x=\"{x:.1}\" y=\"{y:.1}\" {turned}>{}</text>", escape::html(&label))
        });
        format!("{grid}{label}")
    });
    let ticks: String = ticks.collect();
    let y = bottom + below_margin(panel, width) - 4.0;
    format!("{ticks}{}", text(left + width / 2.0, y, "middle", &panel.x.title))
}

fn y_axis(frame: &Frame<'_>) -> String {
    let Frame { panel, left, top, width, height } = *frame;
    let ticks = panel.y.scale.ticks(tick_count(height / 40.0)).into_iter();
    let ticks = ticks.map(|(value, label)| (frame.y(value), shortened(&label)));
    let ticks = readable(ticks, |_| LETTER_HEIGHT).map(|(y, label)| {
        let right = left + width;
        let grid = format!(
            "<line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" stroke=\"{INK}\" stroke-opacity=\"0.2\"/>",
            left - 4.0
        );
        format!("{grid}{}", label.map_or_else(String::new, |label| text(left - 7.0, y + 4.0, "end", &label)))
    });
    let ticks: String = ticks.collect();
    let (x, y) = (left - left_margin(panel) + 14.0, top + height / 2.0);
    let title = escape::html(&panel.y.title);
    format!(
        "{ticks}<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 {x:.1} {y:.1})\">{title}</text>"
    )
}

/// The ticks of an axis; a tick has no label if the label would overlap the one before it.
fn readable(
    ticks: impl Iterator<Item = (f64, String)>,
    length: impl Fn(&str) -> f64,
) -> impl Iterator<Item = (f64, Option<String>)> {
    let mut before: Option<(f64, f64)> = None;
    ticks.map(move |(place, label)| {
        let half = length(&label) / 2.0;
        let has_room = before.is_none_or(|(other, other_half)| (place - other).abs() >= half + other_half);
        if has_room {
            before = Some((place, half));
        }
        (place, has_room.then_some(label))
    })
}

fn tick_count(room: f64) -> usize {
    (room as usize).clamp(2, 8)
}

/// The width of the labels of the vertical axis and its title.
fn left_margin(panel: &Panel) -> f64 {
    let labels = panel.y.scale.ticks(8).into_iter().map(|(_, label)| shortened(&label).chars().count());
    let title = if panel.y.title.is_empty() { 4.0 } else { 20.0 };
    title + labels.max().unwrap_or(0) as f64 * LETTER + 12.0
}

/// The height of the labels of the horizontal axis and its title.
fn below_margin(panel: &Panel, width: f64) -> f64 {
    let labels = if labels_are_slanted(&panel.x, width) { 3.8 * LETTER * 2.2 } else { LINE };
    labels + if panel.x.title.is_empty() { 8.0 } else { LINE + 6.0 }
}

/// Whether the names on an axis would overlap, so that they are drawn at an angle.
fn labels_are_slanted(axis: &Axis, width: f64) -> bool {
    let Scale::Names(names) = &axis.scale else { return false };
    let longest = names.iter().map(|name| shortened(name).chars().count()).max().unwrap_or(0);
    (longest + 1) as f64 * LETTER > width / names.len().max(1) as f64
}

fn shortened(label: &str) -> String {
    shortened_to(label, LONGEST_LABEL)
}

fn shortened_to(label: &str, longest: usize) -> String {
    if label.chars().count() <= longest {
        return label.to_owned();
    }
    label.chars().take(longest.saturating_sub(1)).chain(['…']).collect()
}

fn text(x: f64, y: f64, anchor: &str, content: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape::html(content))
}

/// A label on a plate, both centred at this position and no wider than `room`.
fn plate(x: f64, y: f64, room: f64, label: &str) -> String {
    let label = shortened_to(label, ((room - 2.0 * LETTER) / LETTER).max(3.0) as usize);
    let width = (label.chars().count() + 2) as f64 * LETTER;
    format!(
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{LINE}\" rx=\"4\" fill=\"{PLATE}\"/>\
         <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{ON_PLATE}\">{}</text>",
        x - width / 2.0,
        y - LINE / 2.0,
        y + 4.0,
        escape::html(&label)
    )
}

/// An element with its name, attributes and tooltip.
fn with_tooltip(element: &str, label: &str) -> String {
    if label.is_empty() {
        return format!("<{element}/>");
    }
    let name = element.split(' ').next().unwrap_or_default();
    format!("<{element}><title>{}</title></{name}>", escape::html(label))
}

fn shade_bar(shades: &Shades, x: f64, y: f64) -> String {
    let stops: String = (0..SHADES.len())
        .map(|index| {
            let place = index as f64 / (SHADES.len() - 1) as f64;
            debug_assert_eq!(shaded(place), hex(SHADES[index]));
            format!("<stop offset=\"{place}\" stop-color=\"{}\"/>", shaded(place))
        })
        .collect();
    let (low, high) = (number(shades.low), number(shades.high));
    let after = x + (low.chars().count() + shades.title.chars().count() + 4) as f64 * LETTER;
    format!(
        "<defs><linearGradient id=\"shades\">{stops}</linearGradient></defs>{}\
         <rect x=\"{after:.1}\" y=\"{:.1}\" width=\"90\" height=\"10\" fill=\"url(#shades)\"/>{}",
        text(x, y, "start", &format!("{}: {low}", shades.title)),
        y - 9.0,
        text(after + 96.0, y, "start", &high)
    )
}
