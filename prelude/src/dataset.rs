//! The display of a dataset at the end of a cell: its number of elements, their shapes and dtypes, and the first elements.

use crate::display::{Bundle, escape};
use crate::tensor;
use candle_core::Tensor;
use ferrotune_data::DataError;
use std::fmt::Debug;

/// The number of elements that are shown.
const SHOWN: usize = 5;

/// A dataset's length and type, and its first elements. Rows are shown one below the other; of images and batches, only the first.
pub(crate) fn bundle(
    dataset: &dyn Debug,
    preview: impl Fn(usize) -> Result<Option<Vec<Vec<Tensor>>>, DataError>,
) -> Bundle {
    let line = format!("{dataset:?}");
    // Images and batches are read one at a time.
    let begin = preview(1).and_then(|first| match first {
        Some(elements) if are_rows(&elements) => preview(SHOWN),
        other => Ok(other),
    });
    let elements = match begin {
        Ok(Some(elements)) => elements,
        Ok(None) => {
            return lines(&line, "a function or a shuffle makes its elements; .epoch(0).next() makes the first one");
        }
        Err(error) => return lines(&line, &format!("its first element cannot be read: {error}")),
    };
    let Some(first) = elements.first() else { return lines(&line, "it has no elements") };
    let kinds = first.iter().map(|tensor| format!("{:?} {}", tensor.dims(), tensor.dtype().as_str()));
    let kinds = format!("its first element: {}", kinds.collect::<Vec<_>>().join(", "));
    let (title, tensors) = match stacked(&elements) {
        Some(stacked) => (format!("{kinds}; the first {} elements below one another:", elements.len()), stacked),
        None => (format!("{kinds}:"), first.clone()),
    };
    let tensors: Vec<&Tensor> = tensors.iter().collect();
    let values = match tensors[..] {
        [tensor] => tensor::bundle(tensor),
        _ => tensor::bundle_of_all(&tensors),
    };
    let text = format!("{line}\n{title}\n{}", values.text_of("text/plain"));
    let heading = format!("<div>{}</div><div>{}</div>", escape::html(&line), escape::html(&title));
    match values.text_of("text/html") {
        "" => Bundle::text(text),
        html => Bundle::text(text).with_text("text/html", &format!("{heading}{html}")),
    }
}

/// Whether all tensors are numbers or rows of numbers.
fn are_rows(elements: &[Vec<Tensor>]) -> bool {
    elements.iter().flatten().all(|tensor| tensor.rank() <= 1)
}

/// The elements below one another, where they are rows of the same lengths.
fn stacked(elements: &[Vec<Tensor>]) -> Option<Vec<Tensor>> {
    if !are_rows(elements) || elements.len() < 2 {
        return None;
    }
    let columns = 0..elements[0].len();
    let column = |at: usize| Tensor::stack(&elements.iter().map(|element| &element[at]).collect::<Vec<_>>(), 0).ok();
    columns.map(column).collect()
}

fn lines(first: &str, second: &str) -> Bundle {
    Bundle::text(format!("{first}\n{second}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use ferrotune_data::{Columns, Dataset};

    fn text<T: Columns>(dataset: &Dataset<T>) -> String {
        bundle(dataset, |count| dataset.preview(count)).text_of("text/plain").to_owned()
    }

    fn rows() -> Dataset<(Tensor, Tensor)> {
        let inputs = Tensor::arange(0f32, 6., &Device::Cpu).unwrap().reshape((3, 2)).unwrap();
        Dataset::from_tensors((inputs, Tensor::new(&[7u32, 8, 9], &Device::Cpu).unwrap())).unwrap()
    }

    #[test]
    fn rows_are_shown_below_one_another() {
        let expected = "Dataset of 3 elements of type (Tensor, Tensor)\n\
            its first element: [2] f32, [] u32; the first 3 elements below one another:\n\
            0: Tensor [3, 2] f32 on cpu\n0.0  1.0\n2.0  3.0\n4.0  5.0\n\n1: Tensor [3] u32 on cpu\n7  8  9";
        assert_eq!(text(&rows()), expected);
    }

    #[test]
    fn of_batches_the_first_one_is_shown() {
        let expected = "Dataset of 2 elements of type (Tensor, Tensor)\nits first element: [2, 2] f32, [2] u32:\n\
            0: Tensor [2, 2] f32 on cpu\n0.0  1.0\n2.0  3.0\n\n1: Tensor [2] u32 on cpu\n7  8";
        let batches = rows().batch(2, false);
        assert_eq!(text(&batches), expected);
        assert_eq!(text(&batches.prefetch(2)), expected);
        assert_eq!(batches.iter().position().epoch, 0, "no pass has begun");
    }

    #[test]
    fn a_display_calls_no_function_of_the_user() {
        let mapped = rows().map(1, |_| -> Result<Tensor, _> { panic!("a display has called it") });
        let expected = "Dataset of 3 elements of type Tensor\n\
            a function or a shuffle makes its elements; .epoch(0).next() makes the first one";
        assert_eq!(text(&mapped), expected);
        assert_eq!(
            text(&rows().zip(&mapped).batch(2, true).map(1, |((inputs, _), _)| Ok(inputs))),
            expected.replace('3', "1")
        );
        assert!(text(&rows().take(0)).ends_with("\nit has no elements"));
    }
}
