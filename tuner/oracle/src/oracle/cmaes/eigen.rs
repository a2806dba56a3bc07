//! Eigendecomposition of a small symmetric matrix by Jacobi's rotations. Unsuitable for more than a few hundred rows.

/// The largest number of sweeps over the matrix; more than enough to bring all entries off the diagonal below rounding errors.
const SWEEPS: usize = 30;

/// Eigenvalues in no particular order, and their eigenvectors.
#[derive(Clone, Debug)]
pub(super) struct Eigen {
    /// The eigenvalues, one for each column of `vectors`.
    pub(super) values: Vec<f64>,
    /// The eigenvectors in the columns, stored row by row; the columns are orthonormal.
    pub(super) vectors: Vec<f64>,
}

/// Decomposes `matrix`, which is square and symmetric, row by row.
///
/// The cyclic method of Golub and Van Loan (2013), Matrix Computations, section 8.5.
pub(super) fn decompose(matrix: &[f64]) -> Eigen {
    let size = matrix.len().isqrt();
    let mut rest = matrix.to_vec();
    let mut vectors: Vec<f64> = (0..size * size).map(|cell| f64::from(u8::from(cell % (size + 1) == 0))).collect();
    for _ in 0..SWEEPS {
        let mut rotated = false;
        for p in 0..size {
            for q in p + 1..size {
                rotated |= rotate(&mut rest, &mut vectors, size, p, q);
            }
        }
        if !rotated {
            break;
        }
    }
    Eigen { values: (0..size).map(|row| rest[row * (size + 1)]).collect(), vectors }
}

/// Makes the entries at `(p, q)` and `(q, p)` zero and returns true; changes nothing if these entries are negligible.
fn rotate(rest: &mut [f64], vectors: &mut [f64], size: usize, p: usize, q: usize) -> bool {
    let (diagonal_p, diagonal_q, off) = (rest[p * (size + 1)], rest[q * (size + 1)], rest[p * size + q]);
    if off.abs() <= f64::EPSILON * (diagonal_p * diagonal_q).abs().sqrt() * 0.1 {
        return false;
    }
    let ratio = (diagonal_q - diagonal_p) / (2.0 * off);
    let tangent = ratio.signum() / (ratio.abs() + ratio.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    let sine = tangent * cosine;
    for k in 0..size {
        let (left, right) = (rest[k * size + p], rest[k * size + q]);
        rest[k * size + p] = cosine * left - sine * right;
        rest[k * size + q] = sine * left + cosine * right;
    }
    for k in 0..size {
        let (upper, lower) = (rest[p * size + k], rest[q * size + k]);
        rest[p * size + k] = cosine * upper - sine * lower;
        rest[q * size + k] = sine * upper + cosine * lower;
        let (left, right) = (vectors[k * size + p], vectors[k * size + q]);
        vectors[k * size + p] = cosine * left - sine * right;
        vectors[k * size + q] = sine * left + cosine * right;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A symmetric matrix without structure.
    fn symmetric(size: usize) -> Vec<f64> {
        let entry = |row: usize, column: usize| (((row.min(column) * 7 + row.max(column) * 13) % 11) as f64).sin();
        (0..size * size)
            .map(|cell| entry(cell / size, cell % size) + f64::from(u8::from(cell % (size + 1) == 0)) * 3.0)
            .collect()
    }

    #[test]
    fn values_and_vectors_make_up_the_matrix_again() {
        for size in [1, 2, 5, 20] {
            let matrix = symmetric(size);
            let Eigen { values, vectors } = decompose(&matrix);
            for (cell, entry) in matrix.iter().enumerate() {
                let (row, column) = (cell / size, cell % size);
                let again: f64 =
                    (0..size).map(|k| vectors[row * size + k] * values[k] * vectors[column * size + k]).sum();
                let product: f64 = (0..size).map(|k| vectors[row * size + k] * vectors[column * size + k]).sum();
                assert!((again - entry).abs() < 1e-12, "{size}: {again} for {entry}");
                assert!((product - f64::from(u8::from(row == column))).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn matrix_that_is_diagonal_already_is_left_alone() {
        let eigen = decompose(&[4.0, 0.0, 0.0, 0.0, 1e-20, 0.0, 0.0, 0.0, 9.0]);
        assert_eq!(eigen.values, [4.0, 1e-20, 9.0]);
        assert_eq!(eigen.vectors, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    }
}
