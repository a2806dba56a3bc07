//! The flame graph as SVG without scripts or fonts: each box is drawn above the box of its caller, and is as wide as
//! its share of the CPU time.

use super::{Call, Flame, Kind};
use ferrotune_display::escape;
use std::fmt::Write as _;

/// The width of the drawing in its own units, which the front end scales.
const WIDTH: f64 = 1000.0;
const ROW: f64 = 17.0;
const LETTER: f64 = 6.3;

/// The least width of a box; a narrower box is left out, with the boxes above it.
const NARROWEST: f64 = 0.7;

/// The greatest number of rows in the drawing.
const MOST_ROWS: usize = 80;

/// The drawing's background colour, which is light so that the text is readable in a dark notebook, too.
const GROUND: &str = "#fbfaf7";
const INK: &str = "#222";

impl Flame {
    /// The flame graph as an SVG document.
    pub fn svg(&self, title: &str) -> String {
        let mut placed = Vec::new();
        let total = self.cpu_us().max(1) as f64;
        let roots = (0..self.boxes.len()).filter(|number| self.boxes[*number].caller.is_none());
        self.place(self.by_time(roots), 0.0, WIDTH / total, 0, &mut placed);
        let rows = placed.iter().map(|(.., row)| row + 1).max().unwrap_or(0);
        let height = rows as f64 * ROW;
        let mut body = String::new();
        for (call, left, width, row) in placed {
            let top = 26.0 + height - (row + 1) as f64 * ROW;
            self.draw(call, left, width, top, total, &mut body);
        }
        let title = escape::html(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" width=\"100%\" \
             font-family=\"monospace\" font-size=\"10.5\" fill=\"{INK}\"><title>{title}</title>\
             <rect width=\"100%\" height=\"100%\" fill=\"{GROUND}\"/>\
             <text x=\"6\" y=\"17\" font-size=\"13\" font-weight=\"bold\">{title}</text>{body}</svg>",
            height + 30.0
        )
    }

    fn by_time(&self, calls: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut calls: Vec<usize> = calls.collect();
        calls.sort_by_key(|number| std::cmp::Reverse(self.boxes[*number].total_us));
        calls
    }

    /// Places boxes side by side, and the boxes of their callees above them.
    fn place<'a>(
        &'a self,
        calls: Vec<usize>,
        mut left: f64,
        scale: f64,
        row: usize,
        placed: &mut Vec<(&'a Call, f64, f64, usize)>,
    ) {
        for number in calls {
            let call = &self.boxes[number];
            let width = call.total_us as f64 * scale;
            if width < NARROWEST || row >= MOST_ROWS {
                return;
            }
            placed.push((call, left, width, row));
            self.place(self.by_time(call.called.iter().copied()), left, scale, row + 1, placed);
            left += width;
        }
    }

    fn draw(&self, call: &Call, left: f64, width: f64, top: f64, total: f64, body: &mut String) {
        let share = 100.0 * call.total_us as f64 / total;
        let tooltip = format!("{}\n{share:.1} %, {:.1} ms of CPU time", call.name, call.total_us as f64 / 1e3);
        let letters = ((width - 5.0) / LETTER).max(0.0) as usize;
        let text = match letters {
            0..3 => String::new(),
            _ => format!(
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                left + 2.5,
                top + 12.0,
                escape::html(&shortened(&call.name, letters))
            ),
        };
        write!(
            body,
            "<g><title>{}</title><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{}\" \
             stroke=\"{GROUND}\" stroke-width=\"0.6\"/>{text}</g>",
            escape::html(&tooltip),
            ROW - 1.0,
            colour(call),
        )
        .expect("a String takes all");
    }
}

/// The colour of a box: grey for threads, and a shade by name of orange for lines of cells and of yellow for functions.
fn colour(call: &Call) -> String {
    let shade = call.name.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % 12;
    match call.kind {
        Kind::Thread => "#d5d3cd".to_owned(),
        Kind::Line => format!("hsl(22,90%,{}%)", 66 + shade),
        Kind::Function => format!("hsl(46,82%,{}%)", 68 + shade),
    }
}

fn shortened(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars().take(letters - 1).chain(['…']).collect()
}
