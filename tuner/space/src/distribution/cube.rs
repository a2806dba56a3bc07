//! Maps every range to the unit interval, so that oracles have one kind of coordinate. Draws nothing.
//!
//! A lattice of n values has n cells of equal width, and the coordinate of a value is the middle of its cell. A
//! continuous range is mapped linearly or by its scale.

use super::{Distribution, Scale, Value};
use crate::lattice::{last_index, point, whole_cells};

impl Distribution {
    /// The coordinate of `value` in the unit interval; `None` if it has another type or is not among the choices. A
    /// value outside the bounds has the coordinate of the bound.
    ///
    /// ```
    /// use ferrotune_space::{Distribution, Scale, Value};
    /// let lr = Distribution::Float { low: 1e-4, high: 1.0, step: None, scale: Scale::Log };
    /// assert_eq!(lr.to_unit(&Value::Float(1e-2)), Some(0.5));
    /// let layers = Distribution::Int { low: 1, high: 4, step: 1, scale: Scale::Linear };
    /// assert_eq!(layers.to_unit(&Value::Int(1)), Some(0.125));
    /// assert_eq!(layers.from_unit(0.2), Value::Int(1));
    /// ```
    pub fn to_unit(&self, value: &Value) -> Option<f64> {
        let unit = match (self, self.clamp_to_lattice(value)?) {
            (Distribution::Choice { values, .. }, value) => {
                let index = values.iter().position(|choice| *choice == value)?;
                (index as f64 + 0.5) / values.len() as f64
            }
            (Distribution::Int { low, step, scale: Scale::Linear, .. }, Value::Int(value)) => {
                let index = (i128::from(value) - i128::from(*low)) / i128::from((*step).max(1));
                (index as f64 + 0.5) / self.cells()?
            }
            (Distribution::Int { low, high, scale, .. }, Value::Int(value)) => {
                let range = whole_cells(*low, *high);
                share(scale.ends(range), scale.warp(range, value as f64))
            }
            (Distribution::Float { low, step: Some(step), .. }, Value::Float(value)) => {
                (((value - low) / step).round() + 0.5) / self.cells()?
            }
            (Distribution::Float { low, high, scale, .. }, Value::Float(value)) => {
                let range = (*low, *high);
                share(scale.ends(range), scale.warp(range, value))
            }
            _ => return None,
        };
        Some(unit.clamp(0.0, 1.0))
    }

    /// The value whose cell contains `unit`; a coordinate outside the interval is moved to the nearer end. The distribution must
    /// be valid (see [`Distribution::validate`]).
    pub fn from_unit(&self, unit: f64) -> Value {
        let unit = if unit.is_nan() { 0.5 } else { unit.clamp(0.0, 1.0) };
        // Conversions saturate; the last cell contains its upper end.
        let cell = |cells: f64| (unit * cells).floor().min(cells - 1.0);
        match self {
            Distribution::Choice { values, .. } => values[cell(values.len() as f64) as usize].clone(),
            Distribution::Int { low, step, scale: Scale::Linear, .. } => {
                let cells = self.cells().unwrap_or(1.0);
                let value = i128::from(*low) + cell(cells) as i128 * i128::from((*step).max(1));
                Value::Int(i64::try_from(value).unwrap_or(i64::MAX).min(self.top_int()))
            }
            Distribution::Int { low, high, scale, .. } => {
                let range = whole_cells(*low, *high);
                let value = scale.unwarp(range, between(scale.ends(range), unit)).round() as i64;
                Value::Int(value.clamp(*low, *high))
            }
            Distribution::Float { low, step: Some(step), .. } => {
                Value::Float(point(*low, *step, cell(self.cells().unwrap_or(1.0))))
            }
            Distribution::Float { low, high, scale, .. } => {
                let range = (*low, *high);
                Value::Float(scale.unwarp(range, between(scale.ends(range), unit)).clamp(*low, *high))
            }
        }
    }

    /// Index of the value whose cell contains `unit`; 0 for a continuous range.
    pub fn cell_at(&self, unit: f64) -> usize {
        // A range with more values than usize saturates.
        if let Distribution::Int { low, scale: Scale::Log | Scale::ReverseLog, .. } = self {
            return match self.from_unit(unit) {
                Value::Int(value) => value.abs_diff(*low) as usize,
                _ => 0,
            };
        }
        self.cells().map_or(0, |cells| (unit.clamp(0.0, 1.0) * cells).floor().min(cells - 1.0) as usize)
    }

    /// The coordinates of all the distribution's values, in order, if there are at most `most`; `None` for a range with more
    /// values, or a continuous one.
    pub fn levels(&self, most: usize) -> Option<Vec<f64>> {
        let cells = self.cells().filter(|cells| *cells <= most as f64)? as usize;
        if let Distribution::Int { low, high, scale: Scale::Log | Scale::ReverseLog, .. } = self {
            return (*low..=*high).map(|value| self.to_unit(&Value::Int(value))).collect();
        }
        // Computed through the value, so that it equals the coordinate of the recorded value.
        (0..cells).map(|cell| self.to_unit(&self.from_unit((cell as f64 + 0.5) / cells as f64))).collect()
    }

    /// Number of the distribution's values; `None` for a continuous range.
    pub fn cells(&self) -> Option<f64> {
        match self {
            Distribution::Choice { values, .. } => Some(values.len() as f64),
            Distribution::Int { low, step, .. } => {
                let span = i128::from(self.top_int()) - i128::from(*low);
                Some((span / i128::from((*step).max(1))) as f64 + 1.0)
            }
            Distribution::Float { low, high, step: Some(step), .. } => Some(last_index(*low, *high, *step) + 1.0),
            Distribution::Float { low, high, .. } => (low == high).then_some(1.0),
        }
    }
}

/// The position of `value` between the bounds, as a share; 0.5 for an interval without length.
fn share((low, high): (f64, f64), value: f64) -> f64 {
    // Halves the bounds first, because the difference of two finite bounds may overflow.
    let length = high / 2.0 - low / 2.0;
    if length > 0.0 { (value / 2.0 - low / 2.0) / length } else { 0.5 }
}

/// The inverse of [`share`]; safe where `high - low` overflows.
fn between((low, high): (f64, f64), share: f64) -> f64 {
    low * (1.0 - share) + high * share
}
