//! The points of a lattice of floats, and the cells of whole numbers. Draws nothing.

/// Index of the last point of the lattice `low, low + step, …` up to `high`.
///
/// Adds a small number before rounding down, because (1.0 - 0.0) / 0.1 may be less than 10.
pub fn last_index(low: f64, high: f64, step: f64) -> f64 {
    ((high - low) / step + 1e-8).floor().max(0.0)
}

/// Point number `index` of the lattice, with the decimals of its bounds: 0.3 rather than 0.30000000000000004.
pub fn point(low: f64, step: f64, index: f64) -> f64 {
    let raw = low + step * index;
    let decimals = decimals(low).max(decimals(step));
    if decimals > 15 {
        return raw;
    }
    // Rounding a small negative number gives -0.0; adding 0.0 removes its sign.
    format!("{raw:.decimals$}").parse().unwrap_or(raw) + 0.0
}

/// The lattice point next to `value`, from `low` to `high`.
pub(crate) fn nearest_point(low: f64, high: f64, step: f64, value: f64) -> f64 {
    let index = ((value - low) / step).round().clamp(0.0, last_index(low, high, step));
    point(low, step, index)
}

/// Number of digits after the point in the shortest decimal form.
fn decimals(number: f64) -> usize {
    number.to_string().split_once('.').map_or(0, |(_, fraction)| fraction.len())
}

/// The real interval of an integer range on a logarithmic scale; both end values get a whole cell.
pub fn whole_cells(low: i64, high: i64) -> (f64, f64) {
    (low as f64 - 0.5, high as f64 + 0.5)
}
