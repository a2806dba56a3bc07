//! A chart as data, and its three forms: Vega-Lite for front ends that support it, SVG for front ends that show pictures,
//! and text for terminals. All forms have the same numbers, and none needs a network.

mod colours;
mod scale;
mod svg;
mod text;
mod vega;

pub use scale::Scale;
pub(crate) use scale::{between, extent};

use ferrotune_display::Bundle;

/// The MIME type of Vega-Lite 5, which JupyterLab and VS Code draw.
const VEGA_LITE: &str = "application/vnd.vegalite.v5+json";

/// A chart: panels that share title, legend and shades.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The chart's title.
    pub title: String,
    /// The panels, each with one plot.
    pub panels: Vec<Panel>,
    /// The scale of the shades, for marks that are coloured by a number.
    pub shades: Option<Shades>,
    /// A note below the chart, for example about points that are omitted.
    pub note: Option<String>,
}

/// A plot with its axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis, from bottom to top.
    pub y: Axis,
    /// The layers, the first at the bottom.
    pub layers: Vec<Layer>,
}

/// An axis of a plot.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The title, with the unit.
    pub title: String,
    /// The range and the kind of scale.
    pub scale: Scale,
}

/// Marks of one kind that belong together.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The layer's name in the legend; a layer with an empty name is not in the legend.
    pub name: String,
    /// The layer's colour.
    pub colour: Colour,
    /// The layer's marks.
    pub marks: Marks,
}

/// The way in which a layer is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// The easily distinguished colour with this number.
    Series(usize),
    /// A separate shade for each mark.
    Shade,
    /// The colour of the texts and the axes.
    Ink,
}

/// The marks that a layer draws. On an axis of names a coordinate is the name's position in the list.
#[derive(Clone, Debug)]
pub enum Marks {
    /// Points at their coordinates.
    Points(Vec<Point>),
    /// The labels of points instead of the points.
    Labels(Vec<Point>),
    /// The labels of points on plates, so that lines below them do not cross the letters.
    Plates(Vec<Point>),
    /// Lines through points.
    Lines(Vec<Line>),
    /// Horizontal bars, one or more in each row.
    Bars(Vec<Bar>),
    /// Adjacent rectangles, each with one value of a function.
    Cells(Vec<Cell>),
}

/// A point of a layer.
#[derive(Clone, Debug)]
pub struct Point {
    /// Horizontal coordinate.
    pub x: f64,
    /// Vertical coordinate.
    pub y: f64,
    /// The value of the point's shade, if the layer has shades.
    pub shade: f64,
    /// The text that appears when the pointer is on the point.
    pub label: String,
}

/// A line of a layer.
#[derive(Clone, Debug)]
pub struct Line {
    /// The corners of the line.
    pub points: Vec<(f64, f64)>,
    /// The value of the line's shade, if the layer has shades.
    pub shade: f64,
    /// The text that names the line.
    pub label: String,
}

/// A horizontal bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The coordinate at which the bar begins.
    pub from: f64,
    /// The coordinate at which the bar ends.
    pub to: f64,
    /// The bar's row, a position on the vertical axis.
    pub row: usize,
    /// The text that names the bar.
    pub label: String,
}

/// A rectangle of a layer.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The rectangle's horizontal range.
    pub x: (f64, f64),
    /// The rectangle's vertical range.
    pub y: (f64, f64),
    /// The value of the rectangle's shade.
    pub shade: f64,
}

/// The scale of shades: blue is low, orange is high.
#[derive(Clone, Debug)]
pub struct Shades {
    /// The quantity that the shades measure.
    pub title: String,
    /// The lowest value.
    pub low: f64,
    /// The highest value.
    pub high: f64,
}

impl Chart {
    /// The chart in every form, for a notebook.
    pub fn bundle(&self) -> Bundle {
        Bundle::text(self.text()).with("image/svg+xml", self.svg()).with(VEGA_LITE, self.vega())
    }
}

impl Axis {
    /// An axis with this title and scale.
    pub fn new(title: impl Into<String>, scale: Scale) -> Axis {
        Axis { title: title.into(), scale }
    }
}

impl Shades {
    /// The position of a value between the lowest and the highest, from 0 to 1.
    pub(crate) fn position(&self, value: f64) -> f64 {
        if self.high > self.low { ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0) } else { 0.5 }
    }
}
