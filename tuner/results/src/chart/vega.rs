//! A chart as Vega-Lite 5, including its data: <https://vega.github.io/vega-lite/docs/>. The axes have the same ranges
//! as in the chart's other forms.

use super::colours::{INK, ON_PLATE, PLATE, SHADES, hex, line_width, series};
use super::{Axis, Chart, Colour, Layer, Marks, Panel, Scale};
use serde_json::{Value, json};

/// The size of a plot with its axes and legends, in pixels. With the 38 pixels of the plot's menu, this is less than a cell's output
/// in a browser window of 1000 pixels. Front ends cut a wider plot, or make users scroll.
const WHOLE: (u32, u32) = (520, 380);
/// The width of a single plot, if the front end calculates the width: the room for outputs in JupyterLab's window with both side bars
/// open.
const WHOLE_WIDTH: &str = "clamp(windowSize()[0] - 740, 520, 800)";
/// The size of each of several panels without its axes, since Vega-Lite fits only a single plot into a given size.
const PANEL: (u32, u32) = (180, 160);
const PANELS_A_ROW: usize = 2;
/// The size of letters, and the width of most letters, in pixels.
const LETTERS: u32 = 12;
const LETTER: f64 = 7.0;
/// The area in square pixels that makes a shape 10 times as large as its path.
const PLATE_SIZE: u32 = 400;
/// The number of columns of a legend, each at most 180 pixels wide.
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
        spec["usermeta"] = json!({"embedOptions": embed_options(single)});
        // Front ends draw the plot on the page, which has the theme's colour.
        spec["background"] = json!("transparent");
        spec["padding"] = json!(12);
        spec["config"] = config();
        spec["$schema"] = json!("https://vega.github.io/schema/vega-lite/v5.json");
        spec["title"] = match &self.note {
            Some(note) => json!({"text": self.title, "subtitle": note}),
            None => json!(self.title),
        };
        spec
    }

    fn panel_spec(&self, panel: &Panel, (width, height): (u32, u32)) -> Value {
        let layers = panel.layers.iter().flat_map(|layer| match layer.marks {
            Marks::Plates(_) => vec![self.plate_spec(panel, layer), self.layer_spec(panel, layer)],
            _ => vec![self.layer_spec(panel, layer)],
        });
        let mut spec = json!({"width": width, "height": height, "layer": layers.collect::<Vec<Value>>()});
        if panel.y.scale == Scale::Share {
            // The marks of this plot include the axes.
            spec["view"] = json!({"stroke": null});
            for layer in spec["layer"].as_array_mut().into_iter().flatten() {
                layer["encoding"]["x"]["axis"] =
                    json!({"domain": false, "ticks": false, "grid": false, "labelAngle": 0});
            }
        }
        spec
    }

    /// The layer of plates, the backgrounds of labels: points whose shape is as wide as the label.
    fn plate_spec(&self, panel: &Panel, layer: &Layer) -> Value {
        let mut spec = self.layer_spec(panel, layer);
        let shape = json!({"expr": "datum.plate"});
        spec["mark"] = json!({"type": "point", "filled": true, "opacity": 1, "size": PLATE_SIZE, "shape": shape});
        spec["encoding"]["color"] = json!({"value": PLATE});
        if let Some(encoding) = spec["encoding"].as_object_mut() {
            encoding.remove("text");
        }
        for point in spec["data"]["values"].as_array_mut().into_iter().flatten() {
            point["plate"] = json!(plate(point["label"].as_str().unwrap_or_default(), label_limit(&panel.x)));
        }
        spec
    }

    fn layer_spec(&self, panel: &Panel, layer: &Layer) -> Value {
        let (mark, data) = marks(panel, layer);
        let mut encoding = json!({"x": channel("x", &panel.x), "y": channel("y", &panel.y)});
        match layer.marks {
            Marks::Points(_) => {}
            Marks::Labels(_) | Marks::Plates(_) => encoding["text"] = json!({"field": "label", "type": "nominal"}),
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
        encoding["color"] = match layer.marks {
            Marks::Plates(_) => json!({"value": ON_PLATE}),
            _ => self.colour(layer),
        };
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
            (Colour::Shade, None) | (Colour::Ink, _) => json!({"value": INK}),
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

/// The options of vega-embed, with which front ends draw the plot. An SVG, unlike a canvas, changes its colours when the theme
/// changes.
fn embed_options(single: bool) -> Value {
    let mut options = json!({"renderer": "svg"});
    if single {
        // The initial value is used until the expression is evaluated.
        let signal = json!({"name": "width", "value": WHOLE.0, "update": WHOLE_WIDTH});
        options["patch"] =
            json!([{"op": "remove", "path": "/width"}, {"op": "add", "path": "/signals", "value": [signal]}]);
    }
    options
}

/// The configuration that gives texts and axes the colour of the page's texts and about their size.
fn config() -> Value {
    json!({
        "axis": {
            "labelColor": INK, "titleColor": INK, "domainColor": INK, "tickColor": INK, "gridColor": INK, "gridOpacity": 0.15,
            "labelFontSize": LETTERS, "titleFontSize": LETTERS,
        },
        "legend": {
            "labelColor": INK, "titleColor": INK, "labelFontSize": LETTERS, "titleFontSize": LETTERS, "orient": "bottom",
            "columns": LEGEND_COLUMNS,
        },
        "title": {"color": INK, "subtitleColor": INK, "anchor": "start", "fontSize": 14},
        "text": {"fontSize": LETTERS},
        "view": {"stroke": INK},
    })
}

/// The encoding channel of an axis in Vega-Lite.
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
            "field": field, "type": "quantitative", "axis": null, "scale": {"domain": [-0.1, 1.1], "nice": false},
        }),
        Scale::Names(names) => json!({
            "field": field, "type": "nominal", "title": title, "sort": names, "scale": {"domain": names},
            "axis": {"labelAngle": label_angle(field, names), "labelOverlap": true},
        }),
    }
}

/// The angle of the labels of names; short names below the chart are horizontal.
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

/// The path of a shape for a label of at most `limit` pixels: a rectangle with round corners. With
/// [`PLATE_SIZE`], Vega draws one unit of the path as 10 pixels.
fn plate(label: &str, limit: f64) -> String {
    let half = ((label.chars().count() as f64 * LETTER).min(limit) / 2.0 + 6.0) / 10.0;
    let inner = half - 0.4;
    format!(
        "M-{inner:.2},-0.9H{inner:.2}Q{half:.2},-0.9,{half:.2},-0.5V0.5Q{half:.2},0.9,{inner:.2},0.9H-{inner:.2}Q-{half:.2},0.9,-{half:.2},0.5\
         V-0.5Q-{half:.2},-0.9,-{inner:.2},-0.9Z"
    )
}

/// The largest length in pixels of a label that does not reach its neighbours.
fn label_limit(axis: &Axis) -> f64 {
    f64::from(WHOLE.0) / axis.scale.places() as f64 - 16.0
}

/// The mark type of a layer and its data.
fn marks(panel: &Panel, layer: &Layer) -> (Value, Vec<Value>) {
    let (x, y) = (|value| coordinate(&panel.x, value), |value| coordinate(&panel.y, value));
    match &layer.marks {
        Marks::Points(points) | Marks::Labels(points) | Marks::Plates(points) => {
            let point = |point: &super::Point| json!({"x": x(point.x), "y": y(point.y), "shade": point.shade, "label": point.label});
            let mark = match layer.marks {
                Marks::Points(_) => json!({"type": "circle", "opacity": 1, "stroke": INK, "strokeWidth": 0.7}),
                _ => json!({"type": "text", "limit": label_limit(&panel.x)}),
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
            let look =
                json!({"type": "line", "strokeWidth": line_width(layer.colour, lines.len()), "strokeJoin": "round"});
            (look, corners.collect())
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
            // Browsers leave gaps between adjacent rectangles, so each rectangle extends a little under its neighbour.
            let beyond = |(from, to): (f64, f64)| to + (to - from) * 0.05;
            let cell = |cell: &super::Cell| {
                json!({
                    "x": place(&panel.x, cell.x), "x2": beyond(cell.x), "y": place(&panel.y, cell.y), "y2": beyond(cell.y),
                    "shade": cell.shade,
                })
            };
            (json!({"type": "rect", "opacity": 1, "clip": true}), cells.iter().map(cell).collect())
        }
    }
}
