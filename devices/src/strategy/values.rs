//! The numbers that replicas reduce, each in its own type.

use super::StrategyError;

mod sealed {
    pub trait Sealed: bytemuck::Pod + Into<f64> {
        /// The nearest number of this type.
        fn nearest(number: f64) -> Self;
    }

    impl Sealed for f32 {
        fn nearest(number: f64) -> f32 {
            number as f32
        }
    }

    impl Sealed for f64 {
        fn nearest(number: f64) -> f64 {
            number
        }
    }
}

/// A number that replicas can reduce: `f32` or `f64`.
pub trait Reduce: sealed::Sealed + Send {
    #[doc(hidden)]
    fn hold(values: &[Self]) -> Values;
    #[doc(hidden)]
    fn held(values: &Values) -> Option<&[Self]>;
}

impl Reduce for f32 {
    fn hold(values: &[f32]) -> Values {
        Values::F32(values.to_vec())
    }

    fn held(values: &Values) -> Option<&[f32]> {
        if let Values::F32(values) = values { Some(values) } else { None }
    }
}

impl Reduce for f64 {
    fn hold(values: &[f64]) -> Values {
        Values::F64(values.to_vec())
    }

    fn held(values: &Values) -> Option<&[f64]> {
        if let Values::F64(values) = values { Some(values) } else { None }
    }
}

/// A list of numbers of one of the two types.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Default for Values {
    /// An empty list.
    fn default() -> Values {
        Values::F32(Vec::new())
    }
}

impl Values {
    /// The sum of all lists, divided by `divisor`.
    ///
    /// # Errors
    /// If a list differs from the first one in length or type.
    pub(super) fn combined(mut all: Vec<Values>, divisor: f64) -> Result<Values, StrategyError> {
        if all.is_empty() {
            return Ok(Values::default());
        }
        let mut first = all.remove(0);
        match &mut first {
            Values::F32(values) => add(values, &all, divisor)?,
            Values::F64(values) => add(values, &all, divisor)?,
        }
        Ok(first)
    }
}

fn add<R: Reduce>(first: &mut [R], others: &[Values], divisor: f64) -> Result<(), StrategyError> {
    let others: Vec<&[R]> = others.iter().map(R::held).collect::<Option<_>>().ok_or(StrategyError::Types)?;
    if let Some(other) = others.iter().find(|other| other.len() != first.len()) {
        return Err(StrategyError::Lengths { first: first.len(), other: other.len() });
    }
    set_mean(first, 0, &others, divisor);
    Ok(())
}

/// The number of sums that are computed at a time, so that they stay in the processor's nearest cache.
const BLOCK: usize = 1024;

/// Replaces values by their sums with all `others`, divided by `divisor`. The sums are computed in double precision and in an order
/// that does not depend on which replica was first: `place` of the others come before the values. All have the same length.
pub(super) fn set_mean<R: Reduce>(values: &mut [R], place: usize, others: &[&[R]], divisor: f64) {
    let (before, after) = others.split_at(place);
    // For a power of two, a multiplication gives the same bits, and is faster.
    let factor = Some(divisor.recip()).filter(|_| divisor.log2().fract() == 0.0);
    let mut sums = [0.0; BLOCK];
    for (block, values) in values.chunks_mut(BLOCK).enumerate() {
        let (range, sums) = (block * BLOCK..block * BLOCK + values.len(), &mut sums[..values.len()]);
        let mut is_first = true;
        let mut sum = |part: &[R]| {
            let numbers = sums.iter_mut().zip(part);
            if std::mem::take(&mut is_first) {
                numbers.for_each(|(sum, value)| *sum = (*value).into());
            } else {
                numbers.for_each(|(sum, value)| *sum += (*value).into());
            }
        };
        before.iter().for_each(|other| sum(&other[range.clone()]));
        sum(values);
        after.iter().for_each(|other| sum(&other[range.clone()]));
        let means = values.iter_mut().zip(sums);
        match factor {
            Some(factor) => means.for_each(|(to, sum)| *to = R::nearest(*sum * factor)),
            None => means.for_each(|(to, sum)| *to = R::nearest(*sum / divisor)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_of_sums_in_their_order() {
        let part =
            |seed: usize| (0..BLOCK + 7).map(|index| ((index * 31 + seed * 17) % 101) as f32 * 0.37 - 9.0).collect();
        let parts: [Vec<f32>; 3] = [part(1), part(2), part(3)];
        for divisor in [1.0, 3.0, 4.0] {
            let expected: Vec<f32> = (0..BLOCK + 7)
                .map(|index| (parts.iter().map(|part| f64::from(part[index])).sum::<f64>() / divisor) as f32)
                .collect();
            for place in 0..3 {
                let mut values = parts[place].clone();
                let others: Vec<&[f32]> =
                    (0..3).filter(|other| *other != place).map(|other| &parts[other][..]).collect();
                set_mean(&mut values, place, &others, divisor);
                assert_eq!(values, expected);
            }
        }
    }

    #[test]
    fn values_of_other_types_and_lengths_are_refused() {
        let (two, three) = (Values::F32(vec![1.0; 2]), Values::F32(vec![1.0; 3]));
        let error = Values::combined(vec![two.clone(), Values::F64(vec![1.0; 2])], 2.0);
        assert_eq!(error, Err(StrategyError::Types));
        assert_eq!(Values::combined(vec![two, three], 2.0), Err(StrategyError::Lengths { first: 2, other: 3 }));
    }
}
