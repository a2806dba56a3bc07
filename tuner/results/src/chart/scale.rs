//! Maps values to positions on an axis, and chooses the ticks of an axis.

use crate::number::significant;

/// The kind and the range of an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Scale {
    /// A linear scale.
    Linear {
        /// The first value.
        low: f64,
        /// The last value.
        high: f64,
    },
    /// A linear scale for whole numbers: no tick lies between two of them.
    Whole {
        /// The first value.
        low: f64,
        /// The last value.
        high: f64,
    },
    /// A logarithmic scale; both ends are positive.
    Log {
        /// The first value.
        low: f64,
        /// The last value.
        high: f64,
    },
    /// A scale from 0 to 1 without ticks, for parallel coordinates, whose marks include an axis for each parameter.
    Share,
    /// A scale of names next to each other; coordinates are positions in the list.
    Names(Vec<String>),
}

/// The smallest and the largest of the finite numbers; 0 and 1 if no number is finite.
pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let finite = values.into_iter().filter(|value| value.is_finite());
    let (low, high) =
        finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

impl Scale {
    /// A linear scale with a margin on both sides of the values.
    pub fn around(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = with_margin(values);
        Scale::Linear { low, high }
    }

    /// A linear scale for whole numbers with a margin on both sides of the values.
    pub fn around_whole(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = with_margin(values);
        Scale::Whole { low, high }
    }

    /// A logarithmic scale with a margin; a linear one if not all values are positive.
    pub fn around_log(values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = extent(values);
        if low <= 0.0 {
            return Scale::around([low, high]);
        }
        let room = ((high.ln() - low.ln()) * 0.04).exp().max(1.05);
        Scale::Log { low: (low / room).max(f64::MIN_POSITIVE), high: (high * room).min(f64::MAX) }
    }

    /// A scale of the same kind that begins and ends with these values.
    pub(crate) fn exactly(&self, values: impl IntoIterator<Item = f64>) -> Scale {
        let (low, high) = extent(values);
        match self {
            Scale::Linear { .. } if low < high => Scale::Linear { low, high },
            Scale::Whole { .. } if low < high => Scale::Whole { low, high },
            Scale::Log { .. } if low < high => Scale::Log { low, high },
            other => other.clone(),
        }
    }

    /// The position of a value, from 0 at the first end to 1 at the last.
    pub(crate) fn position(&self, value: f64) -> f64 {
        match self {
            // Halves are subtracted, because the difference of two finite numbers may overflow.
            Scale::Linear { low, high } | Scale::Whole { low, high } => {
                (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0)
            }
            Scale::Share => value,
            Scale::Log { low, high } => (value.max(f64::MIN_POSITIVE).ln() - low.ln()) / (high.ln() - low.ln()),
            Scale::Names(names) => (value + 0.5) / names.len().max(1) as f64,
        }
    }

    /// The value at a position from 0 to 1; on an axis of names a fractional index.
    pub(crate) fn value_at(&self, position: f64) -> f64 {
        match self {
            Scale::Linear { low, high } | Scale::Whole { low, high } => between(*low, *high, position),
            Scale::Share => position,
            Scale::Log { low, high } => (low.ln() + (high.ln() - low.ln()) * position).exp(),
            Scale::Names(names) => position * names.len() as f64 - 0.5,
        }
    }

    /// The number of places next to each other: the number of names, or one.
    pub(crate) fn places(&self) -> usize {
        match self {
            Scale::Names(names) => names.len().max(1),
            _ => 1,
        }
    }

    /// About `count` values with their labels; of names, at most `4 * count`.
    pub(crate) fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        match self {
            Scale::Linear { low, high } => linear_ticks(*low, *high, count, 0.0),
            Scale::Whole { low, high } => linear_ticks(*low, *high, count, 1.0),
            Scale::Share => Vec::new(),
            Scale::Log { low, high } => log_ticks(*low, *high, count),
            Scale::Names(names) => {
                let every = names.len().div_ceil(count.max(1) * 4).max(1);
                names.iter().enumerate().step_by(every).map(|(index, name)| (index as f64, name.clone())).collect()
            }
        }
    }
}

/// The number at this share of the distance from `low` to `high`. The distance may exceed the largest number.
pub(crate) fn between(low: f64, high: f64, share: f64) -> f64 {
    2.0 * (low / 2.0 + (high / 2.0 - low / 2.0) * share)
}

/// The smallest and the largest value, extended by a margin on both sides.
fn with_margin(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let (low, high) = extent(values);
    let room = if high > low { (high / 2.0 - low / 2.0) * 0.08 } else { (low.abs() * 0.1).max(0.5) };
    ((low - room).max(-f64::MAX), (high + room).min(f64::MAX))
}

/// The ticks of a linear scale: multiples of 1, 2 or 5 times a power of ten, at least `least_step` apart.
fn linear_ticks(low: f64, high: f64, count: usize, least_step: f64) -> Vec<(f64, String)> {
    let raw = ((high / 2.0 - low / 2.0) / count.max(1) as f64 * 2.0).max(least_step);
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= raw * 0.999);
    let step = step.unwrap_or(10.0 * power);
    // A range that consists only of rounding errors has no ticks of its own.
    if !step.is_normal() || !(low / step).is_finite() {
        return vec![(low, significant(low, 4))];
    }
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    let tick = |index: i64| index as f64 * step;
    (first..=last).take(4 * count).map(|index| (tick(index), significant(tick(index), 6))).collect()
}

/// The ticks of a logarithmic scale: powers of ten; in a short range also 2 and 5 times these, and in a very short range evenly
/// spaced values.
fn log_ticks(low: f64, high: f64, count: usize) -> Vec<(f64, String)> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let factors: &[f64] = if last - first <= 3 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let every = (last - first).max(1).cast_unsigned().div_ceil(count.max(1) as u32 * 2) as usize;
    let all = (first..=last).step_by(every.max(1));
    let all = all.flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
    let inside: Vec<f64> = all.filter(|tick| (low..=high).contains(tick)).collect();
    if inside.len() < 2 {
        return linear_ticks(low, high, count, 0.0);
    }
    inside.into_iter().map(|tick| (tick, significant(tick, 2))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> String {
        scale.ticks(5).into_iter().map(|(_, label)| label).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks_are_round_numbers_inside_the_range() {
        assert_eq!(labels(&Scale::Linear { low: 0.0, high: 1.0 }), "0 0.2 0.4 0.6 0.8 1");
        assert_eq!(labels(&Scale::Linear { low: -0.7, high: 12.3 }), "0 5 10");
        assert_eq!(labels(&Scale::Linear { low: -0.08, high: 2.08 }), "0 0.5 1 1.5 2");
        assert_eq!(labels(&Scale::Whole { low: -0.08, high: 2.08 }), "0 1 2");
        assert_eq!(labels(&Scale::Whole { low: 2.5, high: 3.5 }), "3");
        assert_eq!(labels(&Scale::Whole { low: 0.0, high: 100.0 }), "0 20 40 60 80 100");
        assert_eq!(labels(&Scale::Linear { low: 1e9, high: 3e9 }), "1e9 1.5e9 2e9 2.5e9 3e9");
        assert_eq!(labels(&Scale::Log { low: 1e-5, high: 1e-1 }), "1e-5 0.0001 0.001 0.01 0.1");
        assert_eq!(labels(&Scale::Log { low: 10.0, high: 90.0 }), "10 20 50");
        assert_eq!(labels(&Scale::Log { low: 1e-30, high: 1e30 }).split(' ').count(), 10);
    }

    #[test]
    fn positions_and_values_belong_together() {
        for scale in [Scale::around([2.0, 7.0]), Scale::around_log([1e-4, 3.0]), Scale::Names(vec!["a".into(); 3])] {
            for position in [0.0, 0.3, 1.0] {
                assert!((scale.position(scale.value_at(position)) - position).abs() < 1e-12, "{scale:?}");
            }
        }
    }

    #[test]
    fn the_largest_numbers_have_places_and_ticks() {
        for values in [[-1e308, 1e308], [-f64::MAX, f64::MAX], [f64::MAX, f64::MAX]] {
            let scale = Scale::around(values);
            let places = values.map(|value| scale.position(value));
            assert!(places.iter().all(|place| (0.0..=1.0).contains(place)), "{scale:?}: {places:?}");
            assert!(scale.value_at(0.5).is_finite(), "{scale:?}");
            assert!(scale.ticks(5).iter().all(|(tick, _)| tick.is_finite()), "{scale:?}");
        }
        assert_eq!(Scale::around([-1e308, 1e308]).position(0.0), 0.5);
        assert_eq!(labels(&Scale::around([-1e308, 1e308])), "-1e308 -5e307 0 5e307 1e308");
        let log = Scale::around_log([1e-280, 1e280]);
        assert!((log.position(1.0) - 0.5).abs() < 1e-12 && (log.value_at(0.5) - 1.0).abs() < 1e-9, "{log:?}");
    }

    #[test]
    fn equal_values_and_none_at_all_have_a_scale() {
        for scale in [Scale::around([3.0, 3.0]), Scale::around([0.0]), Scale::around([]), Scale::around_log([2.0])] {
            let position = scale.position(3.0);
            assert!(position.is_finite() && !scale.ticks(5).is_empty(), "{scale:?}");
        }
        assert_eq!(extent([f64::NAN, f64::INFINITY]), (0.0, 1.0));
    }
}
