//! Pareto fronts: the points with several losses that no other point dominates. Uses no reference point and no weights.

/// Whether `a` is in no loss worse than `b` and in some loss better. Both points have the same number of losses.
pub fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a.iter().zip(b).any(|(a, b)| a < b)
}

/// Indices of the points that no other point dominates, in order. Keeps all of several equal points. A point with a NaN
/// is never kept and dominates no other point.
///
/// ```
/// use ferrotune_oracle::analysis::pareto::front;
/// assert_eq!(front(&[vec![1.0, 3.0], vec![2.0, 2.0], vec![2.0, 4.0], vec![3.0, 1.0]]), [0, 1, 3]);
/// ```
pub fn front(points: &[Vec<f64>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).filter(|index| !points[*index].iter().any(|x| x.is_nan())).collect();
    // In this order a point comes after those that dominate it, so it needs comparing only with the front so far.
    order.sort_by(|a, b| lexicographic(&points[*a], &points[*b]));
    let mut front: Vec<usize> = Vec::new();
    for index in order {
        if !front.iter().any(|other| dominates(&points[*other], &points[index])) {
            front.push(index);
        }
    }
    front.sort_unstable();
    front
}

/// Crowding distance of each point of a front (Deb et al. 2002, IEEE TEC 6(2)): the distance of its neighbours, summed
/// over the losses as shares of their ranges; infinite at the ends of a range.
pub fn crowding(front: &[&[f64]]) -> Vec<f64> {
    let mut distances = vec![0.0; front.len()];
    for loss in 0..front.first().map_or(0, |point| point.len()) {
        let mut order: Vec<usize> = (0..front.len()).collect();
        order.sort_by(|a, b| front[*a][loss].total_cmp(&front[*b][loss]));
        let (first, last) = (order[0], order[order.len() - 1]);
        let range = front[last][loss] - front[first][loss];
        // If all values are equal, no point is at an end of the range.
        if range.is_nan() || range <= 0.0 {
            continue;
        }
        (distances[first], distances[last]) = (f64::INFINITY, f64::INFINITY);
        for neighbours in order.windows(3) {
            let gap = (front[neighbours[2]][loss] - front[neighbours[0]][loss]) / range;
            distances[neighbours[1]] += if gap.is_nan() { 0.0 } else { gap };
        }
    }
    distances
}

pub(super) fn lexicographic(a: &[f64], b: &[f64]) -> std::cmp::Ordering {
    let differences = a.iter().zip(b).map(|(a, b)| a.total_cmp(b));
    differences.into_iter().find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_is_what_no_other_point_dominates() {
        let points: Vec<Vec<f64>> =
            (0..200_u32).map(|k| [7, 11, 13].map(|factor| f64::from(k * factor % 29)).to_vec()).collect();
        let undominated = |index: &usize| !points.iter().any(|other| dominates(other, &points[*index]));
        assert_eq!(front(&points), (0..points.len()).filter(undominated).collect::<Vec<_>>());
    }

    #[test]
    fn equal_points_stay_together_and_nan_has_no_place() {
        assert_eq!(front(&[vec![1.0, 1.0], vec![f64::NAN, 0.0], vec![1.0, 1.0], vec![1.0, 2.0]]), [0, 2]);
        assert_eq!(front(&[vec![2.0], vec![1.0], vec![1.0]]), [1, 2]);
        assert!(front(&[]).is_empty());
    }
}
