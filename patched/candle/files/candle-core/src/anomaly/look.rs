//! Which numbers that are not finite an array has.

use crate::backend::BackendStorage;
use crate::op::Op;
use crate::{CpuStorage, Layout, Shape, Storage, Tensor};
use std::fmt;

/// The first NaN and the first infinity of an array, by their place in it.
#[derive(Clone, Copy, Default)]
pub(super) struct Kinds {
    nan: Option<usize>,
    infinity: Option<(usize, bool)>,
}

impl Kinds {
    /// None if the values are not there, as those of a compiled step while it is traced.
    pub(super) fn of_result(storage: &Storage, shape: &Shape) -> Option<Kinds> {
        in_storage(storage, &Layout::contiguous(shape))
    }

    pub(super) fn of(tensor: &Tensor) -> Option<Kinds> {
        in_storage(&tensor.storage(), tensor.layout())
    }

    /// The numbers that define an operation beside its inputs.
    pub(super) fn of_numbers(op: &Op) -> Kinds {
        match op {
            Op::Affine { mul, add, .. } => in_numbers([*mul, *add].into_iter()),
            Op::Powf(_, number) | Op::Elu(_, number) => in_numbers([*number].into_iter()),
            _ => Kinds::default(),
        }
    }

    pub(super) fn and(self, other: Kinds) -> Kinds {
        Kinds { nan: self.nan.or(other.nan), infinity: self.infinity.or(other.infinity) }
    }

    pub(super) fn is_any(&self) -> bool {
        self.nan.is_some() || self.infinity.is_some()
    }

    /// The first one of a kind that `given` has not, and its place.
    pub(super) fn that_are_not_in(&self, given: &Kinds) -> Option<(&'static str, usize)> {
        let nan = self.nan.filter(|_| given.nan.is_none()).map(|place| ("NaN", place));
        let infinity = self.infinity.filter(|_| given.infinity.is_none());
        let infinity = infinity.map(|(place, is_negative)| (if is_negative { "-inf" } else { "inf" }, place));
        // Of both, the one that comes first in the array.
        [nan, infinity].into_iter().flatten().min_by_key(|(_, place)| *place)
    }
}

/// `element [0, 2]`, by the number of an element.
pub(super) struct Place<'a>(pub(super) usize, pub(super) &'a Shape);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut place: Vec<usize> = Vec::new();
        for size in self.1.dims().iter().rev() {
            place.push(rest % size);
            rest /= size;
        }
        place.reverse();
        write!(f, "element {place:?}")
    }
}

fn in_storage(storage: &Storage, layout: &Layout) -> Option<Kinds> {
    if !storage.dtype().is_float() {
        return Some(Kinds::default());
    }
    match storage {
        Storage::Cpu(storage) => Some(in_memory(storage, layout)),
        Storage::Cuda(storage) => Some(in_memory(&storage.to_cpu_storage().ok()?, layout)),
        Storage::Metal(storage) => Some(in_memory(&storage.to_cpu_storage().ok()?, layout)),
    }
}

fn in_memory(storage: &CpuStorage, layout: &Layout) -> Kinds {
    match storage {
        CpuStorage::F64(values) => in_values(values, layout, |value| value),
        CpuStorage::F32(values) => in_values(values, layout, f64::from),
        CpuStorage::F16(values) => in_values(values, layout, f64::from),
        CpuStorage::BF16(values) => in_values(values, layout, f64::from),
        _ => Kinds::default(),
    }
}

fn in_values<T: Copy>(values: &[T], layout: &Layout, number: impl Fn(T) -> f64) -> Kinds {
    match layout.contiguous_offsets() {
        Some((start, end)) => in_numbers(values[start..end].iter().map(|value| number(*value))),
        None => in_numbers(layout.strided_index().map(|place| number(values[place]))),
    }
}

fn in_numbers(numbers: impl Iterator<Item = f64>) -> Kinds {
    let mut kinds = Kinds::default();
    for (place, number) in numbers.enumerate() {
        if number.is_finite() {
            continue;
        }
        if number.is_nan() {
            kinds.nan.get_or_insert(place);
        } else {
            kinds.infinity.get_or_insert((place, number < 0.0));
        }
    }
    kinds
}
