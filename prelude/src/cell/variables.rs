//! The magic `%whos`, which shows a table of variables. The kernel writes a call for each variable into a cell. Reads variables, and
//! never changes one.
//!
//! The facts of a variable depend on its type. In `(&&&&Variable(&value)).facts()` the compiler takes the first of
//! these traits that the type has: [`OfVector`], [`OfElements`], [`OfDebug`], [`OfAny`].

use crate::device;
use crate::display::{self, beginning};
use candle_core::Tensor;
use ferrotune_machine::format::bytes;
use std::any::Any;
use std::fmt::Debug;

/// The largest number of characters of a value in the table.
const SHOWN_CHARS: usize = 60;

/// A variable for the table.
#[derive(Debug)]
pub struct Variable<'a, T>(pub &'a T);

/// The facts of a variable in the table.
#[derive(Debug)]
pub struct Facts {
    bytes: usize,
    value: String,
}

impl Facts {
    /// The facts of a variable that only this borrower of it may use.
    pub fn of_borrowed(borrower: &str) -> Facts {
        Facts { bytes: 0, value: format!("borrowed by {borrower}") }
    }
}

/// The facts of vectors whose elements are `Debug`.
pub trait OfVector {
    /// Returns the vector's memory, length and elements.
    fn facts(&self) -> Facts;
}

impl<T: Debug> OfVector for &&&Variable<'_, Vec<T>> {
    fn facts(&self) -> Facts {
        let Facts { bytes, value } = of_vector(self.0);
        Facts { bytes, value: format!("{value}: {}", beginning(self.0, SHOWN_CHARS)) }
    }
}

/// The facts of all other vectors.
pub trait OfElements {
    /// Returns the vector's memory and length.
    fn facts(&self) -> Facts;
}

impl<T> OfElements for &&Variable<'_, Vec<T>> {
    fn facts(&self) -> Facts {
        of_vector(self.0)
    }
}

fn of_vector<T>(vector: &Vec<T>) -> Facts {
    let elements = if vector.len() == 1 { "element" } else { "elements" };
    let bytes = size_of_val(vector) + vector.capacity() * size_of::<T>();
    Facts { bytes, value: format!("{} {elements}", vector.len()) }
}

/// The facts of other values that are `Debug`. The memory of a tensor or a string includes its data.
pub trait OfDebug {
    /// Returns the value's memory and the beginning of its text.
    fn facts(&self) -> Facts;
}

impl<T: Debug + 'static> OfDebug for &Variable<'_, T> {
    fn facts(&self) -> Facts {
        let (value, own) = (self.0 as &dyn Any, size_of_val(self.0));
        if let Some(tensor) = value.downcast_ref::<Tensor>() {
            let device = device::place(tensor.device());
            let value = format!("{:?} {:?} on {device}", tensor.dims(), tensor.dtype());
            return Facts { bytes: own + tensor.elem_count() * tensor.dtype().size_in_bytes(), value };
        }
        let held = value.downcast_ref::<String>().map_or(0, String::capacity);
        Facts { bytes: own + held, value: beginning(self.0, SHOWN_CHARS) }
    }
}

/// The facts of any other value.
pub trait OfAny {
    /// Returns the value's memory.
    fn facts(&self) -> Facts;
}

impl<T> OfAny for Variable<'_, T> {
    fn facts(&self) -> Facts {
        Facts { bytes: size_of_val(self.0), value: String::new() }
    }
}

/// A variable that borrows from others, for the table.
#[derive(Debug)]
pub struct Borrower<'a, T>(pub &'a T);

impl<T: Debug> OfDebug for &Borrower<'_, T> {
    fn facts(&self) -> Facts {
        Facts { bytes: size_of_val(self.0), value: beginning(self.0, SHOWN_CHARS) }
    }
}

impl<T> OfAny for Borrower<'_, T> {
    fn facts(&self) -> Facts {
        Facts { bytes: size_of_val(self.0), value: String::new() }
    }
}

/// Shows the table: the name, the type and the facts of each variable.
pub fn show<const N: usize>(variables: [(&str, &str, Facts); N]) {
    let row = |(name, type_name, facts): (&str, &str, Facts)| {
        vec![name.to_owned(), type_name.to_owned(), bytes(facts.bytes as u64), facts.value]
    };
    let rows: Vec<Vec<String>> = variables.into_iter().map(row).collect();
    display::show(display::table(&["variable", "type", "size", "value"], &rows));
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    #[test]
    #[expect(clippy::needless_borrow, reason = "as the kernel writes it, which does not know the types")]
    fn the_type_decides_which_facts_there_are() {
        struct Plain;
        let plain = (&&&&Variable(&Plain)).facts();
        assert_eq!((plain.bytes, &*plain.value), (0, ""));
        let plains = (&&&&Variable(&vec![Plain])).facts();
        assert_eq!(plains.value, "1 element");
        let mut numbers = Vec::with_capacity(4);
        numbers.extend([1.0_f64, 2.0]);
        let numbers = (&&&&Variable(&numbers)).facts();
        assert_eq!((numbers.bytes, &*numbers.value), (size_of::<Vec<f64>>() + 32, "2 elements: [1.0, 2.0]"));
        let tensor = Tensor::zeros((2, 3), DType::F32, &Device::Cpu).unwrap();
        let tensor = (&&&&Variable(&tensor)).facts();
        assert_eq!((tensor.bytes, &*tensor.value), (size_of::<Tensor>() + 24, "[2, 3] F32 on cpu"));
    }
}
