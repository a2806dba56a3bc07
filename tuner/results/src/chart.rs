//! A chart as data, and its three forms: Vega-Lite for front ends that support it, SVG for those that show pictures,
//! text for terminals. All forms have the same numbers, and none needs a network.

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

/// One chart: panels that share title, legend and shades.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// One plot each.
    pub panels: Vec<Panel>,
    /// The scale of marks that are coloured by a number.
    pub shades: Option<Shades>,
    /// A note below the chart, for example about points that are left out.
    pub note: Option<String>,
}

/// One plot with its axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis, from bottom to top.
    pub y: Axis,
    /// The layers, the first at the bottom.
    pub layers: Vec<Layer>,
}

/// An axis.
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
    /// Its name in the legend; an empty one is left out.
    pub name: String,
    /// Its colour.
    pub colour: Colour,
    /// The marks.
    pub marks: Marks,
}

/// How a layer is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// One of the easily distinguished colours, by number.
    Series(usize),
    /// Each mark by its own shade.
    Shade,
    /// As the texts and the axes.
    Ink,
}

/// What a layer draws. On an axis of names a coordinate is the name's position in the list.
#[derive(Clone, Debug)]
pub enum Marks {
    /// Points.
    Points(Vec<Point>),
    /// The labels of points instead of the points.
    Labels(Vec<Point>),
    /// The same on plates, so that lines below them do not cross the letters.
    Plates(Vec<Point>),
    /// Lines through points.
    Lines(Vec<Line>),
    /// Horizontal bars, one or more to a row.
    Bars(Vec<Bar>),
    /// Adjacent rectangles, each of which has one value of a function.
    Cells(Vec<Cell>),
}

/// A point.
#[derive(Clone, Debug)]
pub struct Point {
    /// Horizontal coordinate.
    pub x: f64,
    /// Vertical coordinate.
    pub y: f64,
    /// The value for its shade, if the layer has shades.
    pub shade: f64,
    /// The text that appears when the pointer is on it.
    pub label: String,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its corners.
    pub points: Vec<(f64, f64)>,
    /// What colours it, where the layer goes by shades.
    pub shade: f64,
    /// What it is.
    pub label: String,
}

/// A horizontal bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// The row, a position on the vertical axis.
    pub row: usize,
    /// What it is.
    pub label: String,
}

/// A rectangle.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Horizontal range.
    pub x: (f64, f64),
    /// Vertical range.
    pub y: (f64, f64),
    /// The value.
    pub shade: f64,
}

/// The scale of shades: blue is low, orange is high.
#[derive(Clone, Debug)]
pub struct Shades {
    /// What they measure.
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
    /// An axis.
    pub fn new(title: impl Into<String>, scale: Scale) -> Axis {
        Axis { title: title.into(), scale }
    }
}

impl Shades {
    /// Where a value lies between the lowest and the highest, from 0 to 1.
    pub(crate) fn position(&self, value: f64) -> f64 {
        if self.high > self.low { ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0) } else { 0.5 }
    }
}
