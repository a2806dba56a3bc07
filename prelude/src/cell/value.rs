//! The display of a cell's last expression.
//!
//! A cell calls `evcxr_display` on a reference to the expression. The compiler takes the first method of that name that the type has:
//!
//! * its own method, or that of a trait of the notebook or of [`display::Show`](crate::display::Show);
//! * the method of [`ShowKnown`], for tensors, strings, and collections;
//! * the method of [`ShowText`], for everything else that is `Debug`.
//!
//! So no cell is compiled twice. Each trait is implemented for references, and needs one reference more than the trait before it,
//! or a mutable one, because Rust prefers the method that needs less.

use crate::dataset;
use crate::display::{Bundle, value};
use crate::tensor;
use candle_core::{Tensor, Var};
use ferrotune_data::{Columns, Dataset};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

/// Shows values of types that this library knows.
pub trait ShowKnown {
    /// Shows the value as the cell's result.
    fn evcxr_display(&self);
}

/// Shows values of all other types that are `Debug`.
pub trait ShowText {
    /// Shows the value as the cell's result.
    fn evcxr_display(&mut self);
}

impl<T: Debug + ?Sized> ShowText for &T {
    fn evcxr_display(&mut self) {
        show(value::text(&&**self));
    }
}

impl ShowKnown for &() {
    fn evcxr_display(&self) {}
}

impl ShowKnown for &Tensor {
    fn evcxr_display(&self) {
        show(tensor::bundle(self));
    }
}

impl ShowKnown for &(Tensor, Tensor) {
    fn evcxr_display(&self) {
        show(tensor::bundle_of_all(&[&self.0, &self.1]));
    }
}

impl ShowKnown for &(Tensor, Tensor, Tensor) {
    fn evcxr_display(&self) {
        show(tensor::bundle_of_all(&[&self.0, &self.1, &self.2]));
    }
}

impl<T: Columns> ShowKnown for &Dataset<T> {
    fn evcxr_display(&self) {
        show(dataset::bundle(self, |count| self.preview(count)));
    }
}

impl ShowKnown for &Var {
    fn evcxr_display(&self) {
        show(tensor::bundle(self));
    }
}

impl ShowKnown for &str {
    fn evcxr_display(&self) {
        show(value::string(self));
    }
}

impl ShowKnown for &String {
    fn evcxr_display(&self) {
        show(value::string(self));
    }
}

impl<T: Debug> ShowKnown for &[T] {
    fn evcxr_display(&self) {
        show(value::sequence(self.len(), &|at| &self[at]));
    }
}

impl<T: Debug> ShowKnown for &Vec<T> {
    fn evcxr_display(&self) {
        show(value::sequence(self.len(), &|at| &self[at]));
    }
}

impl<T: Debug, const N: usize> ShowKnown for &[T; N] {
    fn evcxr_display(&self) {
        show(value::sequence(N, &|at| &self[at]));
    }
}

impl<K: Debug, V: Debug> ShowKnown for &BTreeMap<K, V> {
    fn evcxr_display(&self) {
        show(value::map(self.len(), &mut self.iter().map(|(key, value)| (key as _, value as _)), false));
    }
}

impl<K: Debug, V: Debug, S> ShowKnown for &HashMap<K, V, S> {
    fn evcxr_display(&self) {
        show(value::map(self.len(), &mut self.iter().map(|(key, value)| (key as _, value as _)), true));
    }
}

fn show(bundle: Bundle) {
    crate::display::Show::evcxr_display(&bundle);
}

/// Shows values now, below the cell's earlier output, in the same way as at a cell's end.
///
/// ```ignore
/// ferrotune::show!(weights, "loss", &losses[..3]);
/// ```
#[macro_export]
macro_rules! show {
    ($($value:expr),+ $(,)?) => {{
        use $crate::cell::shown::*;
        $($crate::display::now(|| (&$value).evcxr_display());)+
    }};
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display::Show as _;

    /// Checks that the compiler finds a method for the call that the kernel writes.
    macro_rules! compiles {
        ($($value:expr),+ $(,)?) => {$((&($value)).evcxr_display();)+};
    }

    #[test]
    fn every_type_has_one_way_to_be_shown() {
        let numbers = vec![1, 2];
        let tensor = Tensor::new(1u8, &candle_core::Device::Cpu).unwrap();
        compiles!(
            1 + 1,
            0.5,
            "a",
            numbers,
            &numbers[..1],
            numbers.as_slice(),
            [1.0, 2.0],
            "a".to_owned(),
            Some(&numbers),
            ()
        );
        compiles!(
            (tensor.clone(), tensor.clone()),
            (tensor.clone(), tensor.clone(), tensor.clone()),
            (tensor.clone(), 1)
        );
        compiles!(tensor, &tensor, Var::from_tensor(&tensor).unwrap(), HashMap::from([(1, tensor.clone())]));
        compiles!(Bundle::text("a"), vec![Bundle::text("a")], &Bundle::text("a"), Box::new(1) as Box<dyn Debug>);
        crate::show!(tensor, 3, "a");
    }

    #[derive(crate::display::Show)]
    struct Run<'a, T> {
        id: u32,
        r#type: &'a str,
        loss: T,
        #[show(skip)]
        weights: fn(&dyn Debug),
    }

    #[derive(crate::display::Show)]
    struct Point(f32, #[show(skip)] (), i32);

    #[derive(crate::display::Show)]
    struct Nothing;

    fn text(value: &dyn crate::display::Show) -> String {
        value.bundle().text_of("text/plain").to_owned()
    }

    #[test]
    fn a_derived_struct_is_a_table_of_its_fields() {
        let run = |id, loss| Run { id, r#type: "cnn", loss, weights: |_| () };
        (run(1, 0.5).weights)(&());
        assert_eq!(text(&run(7, 0.5)), "field  value\nid     7\ntype   \"cnn\"\nloss   0.5");
        let rows = "   id  type   loss\n0   7  \"cnn\"   0.5\n1  12  \"cnn\"  0.25";
        assert_eq!(text(&vec![run(7, 0.5), run(12, 0.25)]), rows);
        let point = || Point(0.5, (), -3);
        assert_eq!(text(&point()), "field  value\n    0    0.5\n    2     -3");
        assert_eq!(text(&[point()].as_slice()), "     0   2\n0  0.5  -3");
        assert_eq!(text(&Nothing), "Nothing");
        assert_eq!(text(&vec![Nothing]), "   value\n0  Nothing");
    }
}
