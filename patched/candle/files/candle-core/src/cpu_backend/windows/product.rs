//! Products of matrices that are in slices.

use crate::WithDType;
use gemm::Parallelism;

/// A side of a product of matrices, and how far its rows and columns are apart.
pub(super) struct Side<'a, T> {
    pub(super) values: &'a [T],
    pub(super) row: usize,
    pub(super) column: usize,
}

impl<'a, T> Side<'a, T> {
    /// A matrix whose rows have so many values.
    pub(super) fn rows(values: &'a [T], row: usize) -> Side<'a, T> {
        Side { values, row, column: 1 }
    }

    /// Whether all elements of a matrix with so many rows and columns are among the values.
    pub(super) fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0 || columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.values.len()
    }
}

/// Writes the product of a matrix `(m, k)` and a matrix `(k, n)`, or adds it to what is there.
pub(super) fn multiply<T: WithDType>(
    (m, n, k): (usize, usize, usize),
    dst: &mut [T],
    adds: bool,
    (left, right): (Side<'_, T>, Side<'_, T>),
    threads: usize,
) {
    assert!(left.holds(m, k) && right.holds(k, n) && m * n <= dst.len(), "a matrix of a convolution is too small");
    // SAFETY: all elements of the three matrices are within their slices, and `dst` is borrowed for writing.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            dst.as_mut_ptr(),
            1,
            n as isize,
            adds,
            left.values.as_ptr(),
            left.column as isize,
            left.row as isize,
            right.values.as_ptr(),
            right.column as isize,
            right.row as isize,
            T::one(),
            T::one(),
            false,
            false,
            false,
            if threads > 1 { Parallelism::Rayon(threads) } else { Parallelism::None },
        );
    }
}
