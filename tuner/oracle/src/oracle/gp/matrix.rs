//! The linear algebra that a Gaussian process needs: the Cholesky factor of a symmetric matrix, and solutions of its
//! systems. Row-major, for a few hundred rows, without BLAS.

/// The lower triangle L of `L Lᵀ = A`.
#[derive(Clone, Debug)]
pub(super) struct Cholesky {
    size: usize,
    /// The triangle, row-major; entries above the diagonal are not used.
    lower: Vec<f64>,
}

impl Cholesky {
    /// Factors the symmetric matrix whose lower triangle is in `matrix` (row-major); `None` if it is not positive
    /// definite.
    pub(super) fn of(mut matrix: Vec<f64>, size: usize) -> Option<Cholesky> {
        for row in 0..size {
            let (above, rest) = matrix.split_at_mut(row * size);
            let current = &mut rest[..=row];
            for column in 0..row {
                let other = &above[column * size..=column * size + column];
                current[column] = (current[column] - dot(&current[..column], &other[..column])) / other[column];
            }
            let pivot = current[row] - dot(&current[..row], &current[..row]);
            if pivot.is_nan() || pivot <= 0.0 {
                return None;
            }
            current[row] = pivot.sqrt();
        }
        Some(Cholesky { size, lower: matrix })
    }

    /// Half of the logarithm of the determinant of A.
    pub(super) fn half_log_determinant(&self) -> f64 {
        (0..self.size).map(|row| self.lower[row * self.size + row].ln()).sum()
    }

    /// Computes `L⁻¹ b` in place.
    pub(super) fn solve_lower(&self, b: &mut [f64]) {
        for row in 0..self.size {
            let lower = self.row(row);
            b[row] = (b[row] - dot(&lower[..row], &b[..row])) / lower[row];
        }
    }

    /// Computes `L⁻ᵀ b` in place.
    pub(super) fn solve_upper(&self, b: &mut [f64]) {
        for row in (0..self.size).rev() {
            let lower = self.row(row);
            b[row] /= lower[row];
            let value = b[row];
            for (b, lower) in b[..row].iter_mut().zip(lower) {
                *b -= lower * value;
            }
        }
    }

    /// Computes `A⁻¹ b` in place.
    pub(super) fn solve(&self, b: &mut [f64]) {
        self.solve_lower(b);
        self.solve_upper(b);
    }

    /// The lower triangle of A⁻¹, row-major; zeros above it.
    pub(super) fn inverse(&self) -> Vec<f64> {
        let size = self.size;
        // Row i has column i of L⁻¹ from its diagonal on, so that factors of a product are contiguous in memory.
        let mut columns = vec![0.0; size * size];
        for column in 0..size {
            let (row, _) = columns[column * size..].split_at_mut(size);
            row[column] = 1.0 / self.lower[column * size + column];
            for index in column + 1..size {
                let lower = self.row(index);
                row[index] = -dot(&lower[column..index], &row[column..index]) / lower[index];
            }
        }
        let mut inverse = vec![0.0; size * size];
        for row in 0..size {
            for column in 0..=row {
                let (a, b) = (&columns[row * size..(row + 1) * size], &columns[column * size..(column + 1) * size]);
                inverse[row * size + column] = dot(&a[row..], &b[row..]);
            }
        }
        inverse
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.lower[row * self.size..=row * self.size + row]
    }
}

/// Inner product as four sums, which the processor computes in parallel.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a_fours, a_rest) = a.as_chunks::<4>();
    let (b_fours, b_rest) = b.as_chunks::<4>();
    let mut sums = [0.0; 4];
    for (a, b) in a_fours.iter().zip(b_fours) {
        for lane in 0..4 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A positive definite matrix without accidental symmetries.
    fn matrix(size: usize) -> Vec<f64> {
        let entry = |row: usize, column: usize| {
            let (row, column) = (row.max(column) as f64, row.min(column) as f64);
            (-(row - column).powi(2) / 8.0).exp() + if row == column { 0.1 + row / 10.0 } else { 0.0 }
        };
        (0..size * size).map(|index| entry(index / size, index % size)).collect()
    }

    #[test]
    fn factor_times_its_transpose_is_the_matrix() {
        let (size, matrix) = (7, matrix(7));
        let factor = Cholesky::of(matrix.clone(), size).unwrap();
        for row in 0..size {
            for column in 0..=row {
                let product = dot(&factor.row(row)[..=column], factor.row(column));
                assert!((product - matrix[row * size + column]).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn inverse_and_solution_agree_with_the_matrix() {
        let (size, matrix) = (9, matrix(9));
        let factor = Cholesky::of(matrix.clone(), size).unwrap();
        let inverse = factor.inverse();
        for column in 0..size {
            let mut unit = vec![0.0; size];
            unit[column] = 1.0;
            factor.solve(&mut unit);
            for row in column..size {
                assert!((unit[row] - inverse[row * size + column]).abs() < 1e-12);
            }
            let back = dot(&matrix[..size], &unit);
            assert!((back - f64::from(u8::from(column == 0))).abs() < 1e-12);
        }
    }

    #[test]
    fn matrix_that_is_not_positive_definite_is_refused() {
        assert!(Cholesky::of(vec![1.0, 0.0, 2.0, 1.0], 2).is_none());
        assert!(Cholesky::of(vec![f64::NAN], 1).is_none());
    }
}
