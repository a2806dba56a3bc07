//! A chart as text: a grid of characters with its axes, bars as rows, and for lines between named axes a strip for each axis.

use super::{Axis, Bar, Chart, Layer, Line, Marks, Panel, Scale};
use crate::number;

const WIDTH: usize = 64;
const HEIGHT: usize = 16;
/// Characters for points, by the position of their layer in the panel.
const POINTS: [char; 5] = ['•', 'o', 'x', '+', '#'];
/// Characters for densities from low to high.
const DENSITIES: [char; 6] = ['.', ':', '-', '=', '#', '@'];

impl Chart {
    /// The chart for a terminal.
    pub fn text(&self) -> String {
        let mut blocks = vec![self.title.clone()];
        blocks.extend(self.panels.iter().map(|panel| self.panel_text(panel)));
        blocks.extend(self.shades.as_ref().filter(|_| self.has_densities()).map(|shades| {
            let glyphs: String = DENSITIES.iter().collect();
            format!("{}: {} {glyphs} {}", shades.title, number(shades.low), number(shades.high))
        }));
        blocks.extend(self.note.clone());
        blocks.join("\n")
    }

    fn has_densities(&self) -> bool {
        self.panels.iter().flat_map(|panel| &panel.layers).any(|layer| matches!(layer.marks, Marks::Cells(_)))
    }

    fn panel_text(&self, panel: &Panel) -> String {
        if let (Scale::Names(names), Some(lines)) = (&panel.x.scale, lines_of(&panel.layers)) {
            return strips(names, panel, lines);
        }
        if let (Scale::Names(names), true) = (&panel.y.scale, has_bars(&panel.layers)) {
            return bars(&panel.x, names, &panel.layers);
        }
        let mut grid = vec![vec![' '; WIDTH]; HEIGHT];
        for (index, layer) in panel.layers.iter().enumerate() {
            self.draw(&mut grid, panel, layer, glyph(index, layer));
        }
        framed(panel, &grid)
    }

    fn draw(&self, grid: &mut [Vec<char>], panel: &Panel, layer: &Layer, glyph: char) {
        let (x, y) = (&panel.x.scale, &panel.y.scale);
        match &layer.marks {
            Marks::Points(points) => {
                points.iter().for_each(|point| set(grid, x.position(point.x), height(y, point.y), glyph));
            }
            Marks::Lines(lines) => {
                for pair in lines.iter().flat_map(|line| line.points.windows(2)) {
                    let (from, to) =
                        ((x.position(pair[0].0), height(y, pair[0].1)), (x.position(pair[1].0), height(y, pair[1].1)));
                    let glyph = match (from.0 - to.0, from.1 - to.1) {
                        (across, _) if across.abs() < 1e-9 => '│',
                        (_, up) if up.abs() < 1e-9 => '─',
                        _ => glyph,
                    };
                    for step in 0..=WIDTH {
                        let share = step as f64 / WIDTH as f64;
                        set(grid, from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share, glyph);
                    }
                }
            }
            Marks::Cells(cells) => {
                for (row, line) in grid.iter_mut().enumerate() {
                    for (column, place) in line.iter_mut().enumerate() {
                        let at = x.value_at((column as f64 + 0.5) / WIDTH as f64);
                        let up = 1.0 - (row as f64 + 0.5) / HEIGHT as f64;
                        let value = y.value_at(if matches!(y, Scale::Names(_)) { 1.0 - up } else { up });
                        let holds = |range: (f64, f64), value: f64| range.0 <= value && value <= range.1;
                        let cell = cells.iter().find(|cell| holds(cell.x, at) && holds(cell.y, value));
                        if let (Some(cell), Some(shades)) = (cell, &self.shades) {
                            let index = (shades.position(cell.shade) * DENSITIES.len() as f64) as usize;
                            *place = DENSITIES[index.min(DENSITIES.len() - 1)];
                        }
                    }
                }
            }
            // These marks are drawn elsewhere: bars as rows, labels at the ends of strips.
            Marks::Bars(_) | Marks::Labels(_) | Marks::Plates(_) => {}
        }
    }
}

/// The character of a layer for lines that are neither horizontal nor vertical.
fn glyph(index: usize, layer: &Layer) -> char {
    if matches!(layer.marks, Marks::Lines(_)) { '─' } else { POINTS[index % POINTS.len()] }
}

/// The height of a value in the grid, from 0 to 1; names begin at the top.
fn height(scale: &Scale, value: f64) -> f64 {
    let position = scale.position(value);
    if matches!(scale, Scale::Names(_)) { 1.0 - position } else { position }
}

fn set(grid: &mut [Vec<char>], x: f64, y: f64, glyph: char) {
    if !(-1e-9..=1.0 + 1e-9).contains(&x) || !(-1e-9..=1.0 + 1e-9).contains(&y) {
        return;
    }
    let column = ((x * WIDTH as f64) as usize).min(WIDTH - 1);
    let row = (((1.0 - y) * HEIGHT as f64) as usize).min(HEIGHT - 1);
    grid[row][column] = glyph;
}

/// The grid with labels at its sides.
fn framed(panel: &Panel, grid: &[Vec<char>]) -> String {
    let ticks = panel.y.scale.ticks(4);
    let row_of = |value: f64| (((1.0 - height(&panel.y.scale, value)) * HEIGHT as f64) as usize).min(HEIGHT - 1);
    let margin = ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(0);
    let mut lines = vec![format!("{:margin$} ┌{}", "", panel.y.title)];
    for (row, cells) in grid.iter().enumerate() {
        let label = ticks.iter().find(|(value, _)| row_of(*value) == row).map_or("", |(_, label)| label);
        let cells: String = cells.iter().collect();
        lines.push(format!("{label:>margin$} │{}", cells.trim_end()));
    }
    lines.push(format!("{:margin$} └{}", "", "─".repeat(WIDTH)));
    lines.push(format!("{:margin$}  {}", "", tick_line(&panel.x)));
    let names = panel.layers.iter().enumerate().filter(|(_, layer)| !layer.name.is_empty());
    let names: Vec<String> = names.map(|(index, layer)| format!("{} {}", glyph(index, layer), layer.name)).collect();
    lines.push(format!("{:margin$}  {}  {}", "", panel.x.title, names.join("  ")).trim_end().to_owned());
    lines.join("\n")
}

/// The labels of the horizontal axis at their positions, as many as fit.
fn tick_line(axis: &Axis) -> String {
    let mut line = String::new();
    for (value, label) in axis.scale.ticks(5) {
        let length = line.chars().count();
        let place = (axis.scale.position(value) * WIDTH as f64) as usize;
        let start = place.saturating_sub(label.chars().count() / 2);
        if length == 0 || start > length {
            line.push_str(&" ".repeat(start - length));
            line.push_str(&label);
        }
    }
    line
}

fn has_bars(layers: &[Layer]) -> bool {
    layers.iter().any(|layer| matches!(layer.marks, Marks::Bars(_)))
}

/// Bars as rows with their names; the bars of one row follow each other.
fn bars(axis: &Axis, names: &[String], layers: &[Layer]) -> String {
    let margin = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut rows = vec![(vec![' '; WIDTH], String::new()); names.len()];
    for (index, layer) in layers.iter().enumerate() {
        let Marks::Bars(bars) = &layer.marks else { continue };
        let glyph = ['█', '▒', '░', '▓', '▚', '▞'][index % 6];
        for Bar { from, to, row, label } in bars {
            let (from, to) = (axis.scale.position(*from) * WIDTH as f64, axis.scale.position(*to) * WIDTH as f64);
            let first = (from.max(0.0) as usize).min(WIDTH - 1);
            let last = (to.ceil() as usize).clamp(first + 1, WIDTH);
            rows[*row].0[first..last].fill(glyph);
            rows[*row].1.clone_from(label);
        }
    }
    let line = |(name, (cells, label)): (&String, (Vec<char>, String))| {
        format!("{name:>margin$} │{} {label}", cells.into_iter().collect::<String>().trim_end())
    };
    let mut lines: Vec<String> = names.iter().zip(rows).map(line).collect();
    lines.push(format!("{:margin$}  {}", "", axis.title));
    lines.join("\n")
}

fn lines_of(layers: &[Layer]) -> Option<&[Line]> {
    layers.iter().find_map(|layer| match &layer.marks {
        Marks::Lines(lines) => Some(lines.as_slice()),
        _ => None,
    })
}

/// A strip for each name, with the points at which lines cross that axis. Marks the last line.
fn strips(names: &[String], panel: &Panel, lines: &[Line]) -> String {
    let margin = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let strip = |(index, name): (usize, &String)| {
        let mut cells = vec!['·'; WIDTH];
        let crossing = |line: &Line| {
            let (_, value) = line.points.iter().find(|(x, _)| is_at(*x, index))?;
            Some(((panel.y.scale.position(*value) * WIDTH as f64) as usize).min(WIDTH - 1))
        };
        lines.iter().filter_map(crossing).for_each(|place| cells[place] = 'o');
        if let Some(place) = lines.last().and_then(crossing) {
            cells[place] = '●';
        }
        let (low, high) = ends(&panel.layers, index);
        let row = format!("{name:>margin$} {low:>10} {} {high}", cells.into_iter().collect::<String>());
        row.trim_end().to_owned()
    };
    let mut rows: Vec<String> = names.iter().enumerate().map(strip).collect();
    rows.extend(lines.last().map(|line| format!("{:margin$}            ● {}", "", line.label)));
    rows.join("\n")
}

fn is_at(x: f64, index: usize) -> bool {
    (x - index as f64).abs() < 1e-9
}

/// The labels at the two ends of an axis.
fn ends(layers: &[Layer], index: usize) -> (&str, &str) {
    let labels = layers.iter().filter_map(|layer| match &layer.marks {
        Marks::Labels(points) | Marks::Plates(points) => Some(points),
        _ => None,
    });
    let mut here = labels.flatten().filter(|point| is_at(point.x, index)).map(|point| point.label.as_str());
    (here.next().unwrap_or(""), here.next_back().unwrap_or(""))
}
