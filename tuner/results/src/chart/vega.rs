//! A chart as Vega-Lite 5, with its data in it: <https://vega.github.io/vega-lite/docs/>. The axes have the same ranges
//! as in the other forms.

use super::colours::{INK, SHADES, hex, series};
use super::{Axis, Chart, Colour, Layer, Marks, Panel, Scale};
use serde_json::{Value, json};

/// What a plot takes with its axes and legends, in pixels: less than the output of a cell where the browser's window is 1000 pixels
/// wide, and 38 pixels for the menu of the plot. Front ends cut what is wider, or make users scroll to it.
const WHOLE: (u32, u32) = (520, 350);
/// What one of several panels takes without its axes, since Vega-Lite fits only a plot that is alone into a size.
const PANEL: (u32, u32) = (190, 160);
const PANELS_A_ROW: usize = 2;
/// Columns of a legend, of which each is at most 180 pixels wide.
const LEGEND_COLUMNS: u32 = 3;

impl Chart {
    /// The chart as a Vega-Lite specification.
    pub fn vega(&self) -> Value {
        let single = self.panels.len() == 1;
        let size = if single { WHOLE } else { PANEL };
        let mut panels: Vec<Value> = self.panels.iter().map(|panel| self.panel_spec(panel, size)).collect();
        let mut spec = if single { panels.remove(0) } else { json!({"concat": panels, "columns": PANELS_A_ROW}) };
        if single {
            spec["autosize"] = json!({"type": "fit", "contains": "padding"});
        }
        // Front ends draw the plot on the page, whose colour is the theme's.
        spec["background"] = json!("transparent");
        spec["config"] = config();
        spec["$schema"] = json!("https://vega.github.io/schema/vega-lite/v5.json");
        spec["title"] = match &self.note {
            Some(note) => json!({"text": self.title, "subtitle": note}),
            None => json!(self.title),
        };
        spec
    }

    fn panel_spec(&self, panel: &Panel, (width, height): (u32, u32)) -> Value {
        let layers: Vec<Value> = panel.layers.iter().map(|layer| self.layer_spec(panel, layer)).collect();
        json!({"width": width, "height": height, "layer": layers})
    }

    fn layer_spec(&self, panel: &Panel, layer: &Layer) -> Value {
        let (mark, data) = marks(panel, &layer.marks);
        let mut encoding = json!({"x": channel("x", &panel.x), "y": channel("y", &panel.y)});
        match layer.marks {
            Marks::Points(_) => {}
            Marks::Labels(_) => encoding["text"] = json!({"field": "label", "type": "nominal"}),
            Marks::Lines(_) => {
                encoding["detail"] = json!({"field": "line", "type": "nominal"});
                encoding["order"] = json!({"field": "corner", "type": "quantitative"});
            }
            Marks::Bars(_) => encoding["x2"] = json!({"field": "x2"}),
            Marks::Cells(_) => {
                for (axis, end) in [(&panel.x, "x2"), (&panel.y, "y2")] {
                    if !matches!(axis.scale, Scale::Names(_)) {
                        encoding[end] = json!({"field": end});
                    }
                }
            }
        }
        if !matches!(layer.marks, Marks::Cells(_)) {
            encoding["tooltip"] = json!({"field": "label", "type": "nominal"});
        }
        encoding["color"] = self.colour(layer);
        let mut spec = json!({"mark": mark, "data": {"values": data}, "encoding": encoding});
        if !layer.name.is_empty() {
            // A JSON string is also a string in Vega's expressions.
            let name = json!(layer.name).to_string();
            spec["transform"] = json!([{"calculate": name, "as": "series"}]);
        }
        spec
    }

    fn colour(&self, layer: &Layer) -> Value {
        match (layer.colour, &self.shades) {
            (Colour::Shade, Some(shades)) => json!({
                "field": "shade", "type": "quantitative", "title": shades.title,
                "scale": {"domain": [shades.low, shades.high], "range": SHADES.map(hex)},
            }),
            (Colour::Series(_), _) if !layer.name.is_empty() => {
                let (names, colours) = self.series_names();
                let scale = json!({"domain": names, "range": colours});
                json!({"field": "series", "type": "nominal", "title": null, "scale": scale})
            }
            (Colour::Series(index), _) => json!({"value": series(index)}),
            (Colour::Shade, None) => json!({"value": series(0)}),
        }
    }

    /// All names of the legend with their colours.
    fn series_names(&self) -> (Vec<&str>, Vec<&str>) {
        let mut names: Vec<(&str, &str)> = Vec::new();
        for layer in self.panels.iter().flat_map(|panel| &panel.layers) {
            if let Colour::Series(index) = layer.colour
                && !layer.name.is_empty()
                && !names.iter().any(|(known, _)| *known == layer.name)
            {
                names.push((&layer.name, series(index)));
            }
        }
        names.into_iter().unzip()
    }
}

/// Text and lines in the ink that is readable on light and on dark pages.
fn config() -> Value {
    json!({
        "axis": {
            "labelColor": INK, "titleColor": INK, "domainColor": INK, "tickColor": INK, "gridColor": INK, "gridOpacity": 0.2,
        },
        "legend": {"labelColor": INK, "titleColor": INK, "orient": "bottom", "columns": LEGEND_COLUMNS},
        "title": {"color": INK, "subtitleColor": INK},
        "view": {"stroke": INK},
    })
}

/// One axis.
fn channel(field: &str, axis: &Axis) -> Value {
    let title = if axis.title.is_empty() { Value::Null } else { json!(axis.title) };
    match &axis.scale {
        Scale::Linear { low, high } => json!({
            "field": field, "type": "quantitative", "title": title, "scale": {"domain": [low, high], "nice": false, "zero": false},
        }),
        Scale::Whole { low, high } => json!({
            "field": field, "type": "quantitative", "title": title, "scale": {"domain": [low, high], "nice": false, "zero": false},
            "axis": {"tickMinStep": 1},
        }),
        Scale::Log { low, high } => json!({
            "field": field, "type": "quantitative", "title": title,
            "scale": {"type": "log", "domain": [low, high], "nice": false},
        }),
        Scale::Share => json!({
            "field": field, "type": "quantitative", "axis": null, "scale": {"domain": [-0.06, 1.06], "nice": false},
        }),
        Scale::Names(names) => json!({
            "field": field, "type": "nominal", "title": title, "sort": names, "scale": {"domain": names},
            "axis": {"labelAngle": label_angle(field, names), "labelOverlap": true},
        }),
    }
}

/// Short names below the chart are horizontal.
fn label_angle(field: &str, names: &[String]) -> i32 {
    let letters: usize = names.iter().map(|name| name.chars().count() + 1).sum();
    if field == "x" && letters > 40 { -35 } else { 0 }
}

/// A coordinate for Vega-Lite: a number, or the name.
fn coordinate(axis: &Axis, value: f64) -> Value {
    match &axis.scale {
        Scale::Names(names) => json!(names.get(value.round().max(0.0) as usize)),
        Scale::Linear { .. } | Scale::Whole { .. } | Scale::Log { .. } | Scale::Share => json!(value),
    }
}

/// The mark type of a layer and its data.
fn marks(panel: &Panel, marks: &Marks) -> (Value, Vec<Value>) {
    let (x, y) = (|value| coordinate(&panel.x, value), |value| coordinate(&panel.y, value));
    match marks {
        Marks::Points(points) | Marks::Labels(points) => {
            let point = |point: &super::Point| json!({"x": x(point.x), "y": y(point.y), "shade": point.shade, "label": point.label});
            let mark = match marks {
                Marks::Points(_) => json!({"type": "circle", "opacity": 0.8, "stroke": INK, "strokeWidth": 0.6}),
                _ => json!({"type": "text", "color": INK}),
            };
            (mark, points.iter().map(point).collect())
        }
        Marks::Lines(lines) => {
            let corners = lines.iter().enumerate().flat_map(|(index, line)| {
                line.points.iter().enumerate().map(move |(corner, (at, value))| {
                    json!({
                        "x": x(*at), "y": y(*value), "line": index, "corner": corner,
                        "shade": line.shade, "label": line.label,
                    })
                })
            });
            let opacity = if lines.len() > 20 { 0.6 } else { 0.9 };
            (json!({"type": "line", "strokeWidth": 1.5, "opacity": opacity}), corners.collect())
        }
        Marks::Bars(bars) => {
            let bar =
                |bar: &super::Bar| json!({"x": bar.from, "x2": bar.to, "y": y(bar.row as f64), "label": bar.label});
            (json!({"type": "bar"}), bars.iter().map(bar).collect())
        }
        Marks::Cells(cells) => {
            let place = |axis: &Axis, (from, to): (f64, f64)| match axis.scale {
                Scale::Names(_) => coordinate(axis, f64::midpoint(from, to)),
                _ => json!(from),
            };
            let cell = |cell: &super::Cell| {
                json!({
                    "x": place(&panel.x, cell.x), "x2": cell.x.1, "y": place(&panel.y, cell.y), "y2": cell.y.1,
                    "shade": cell.shade,
                })
            };
            (json!({"type": "rect", "opacity": 0.6}), cells.iter().map(cell).collect())
        }
    }
}
