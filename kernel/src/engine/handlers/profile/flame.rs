//! The view of a cell's samples in a notebook: the flame graph, and tables of the hottest lines and functions.

use ferrotune_display::{Bundle, escape, table};
use ferrotune_sampler::{Flame, Hot};

/// The largest number of rows in each table.
const MOST_ROWS: usize = 12;

/// The largest number of characters of a name in the tables.
const LONGEST_NAME: usize = 90;

pub(super) fn of(flame: &Flame) -> Bundle {
    let (cpu, wall) = (flame.cpu_us() as f64 / 1e6, flame.wall_us as f64 / 1e6);
    let heading = format!("{cpu:.2} s of CPU time in {wall:.2} s, {} samples", flame.samples);
    if flame.samples == 0 {
        let text = format!("the cell used too little CPU time for a flame graph: no thread used 10 ms in {wall:.2} s");
        return Bundle::text(text);
    }
    let svg = flame.svg(&heading);
    let tables = [
        hot("line of a cell, with all that it calls", &flame.hottest_lines(MOST_ROWS), flame),
        hot("line or function, without what it calls", &flame.hottest_functions(MOST_ROWS), flame),
    ];
    let join = |kind: &str, between: &str| {
        tables.iter().flatten().map(|table| table.text_of(kind)).collect::<Vec<&str>>().join(between)
    };
    let html = format!("<p>{}</p>{}<div>{svg}</div>", escape::html(&heading), join("text/html", ""));
    Bundle::text(format!("{heading}\n\n{}", join("text/plain", "\n\n")))
        .with("image/svg+xml", svg)
        .with("text/html", html)
}

fn hot(title: &str, hottest: &[Hot], flame: &Flame) -> Option<Bundle> {
    let total = flame.cpu_us().max(1) as f64;
    let row = |(name, time): &Hot| {
        let share = format!("{:.1} %", 100.0 * *time as f64 / total);
        vec![shortened(name), format!("{:.0}", *time as f64 / 1e3), share]
    };
    let rows: Vec<Vec<String>> = hottest.iter().map(row).collect();
    (!rows.is_empty()).then(|| table(&[title, "ms", "share"], &rows))
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= LONGEST_NAME {
        return name.to_owned();
    }
    name.chars().take(LONGEST_NAME - 1).chain(['…']).collect()
}
