//! A random forest of regression trees over the unit cube, whose leaves are boxes. Predicts nothing: the caller needs only
//! the boxes.
//!
//! Breiman (2001), Random Forests, Machine Learning 45.

use ferrotune_space::Distribution;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Number of trees: Optuna's `n_trees`.
const TREES: u64 = 64;
/// The largest number of draws from which a tree learns; it bounds the tree's time.
const MOST_DRAWS: usize = 1_000;

/// The data from which the trees learn: points of the unit cube, and a value for each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'a> {
    /// The range of each coordinate.
    pub(super) ranges: &'a [Distribution],
    pub(super) points: &'a [Vec<f64>],
    pub(super) values: &'a [f64],
}

/// A part of the unit cube in which a tree has one value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leaf {
    pub(super) sides: Vec<Side>,
    pub(super) value: f64,
}

/// The part of one coordinate's range that a leaf covers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Side {
    /// An interval of numbers or of ordered choices.
    Interval { low: f64, high: f64 },
    /// The values of a choice without an order: whether each value belongs to the side.
    Values(Vec<bool>),
}

impl Side {
    fn whole(range: &Distribution) -> Side {
        match range {
            Distribution::Choice { values, is_ordered: false } => Side::Values(vec![true; values.len()]),
            _ => Side::Interval { low: 0.0, high: 1.0 },
        }
    }

    /// The share of the range that the side covers.
    pub(super) fn length(&self) -> f64 {
        self.overlap(self)
    }

    /// The share of the range that two sides have in common.
    pub(super) fn overlap(&self, other: &Side) -> f64 {
        match (self, other) {
            (Side::Interval { low, high }, Side::Interval { low: other_low, high: other_high }) => {
                (high.min(*other_high) - low.max(*other_low)).max(0.0)
            }
            (Side::Values(own), Side::Values(others)) => {
                own.iter().zip(others).filter(|(own, other)| **own && **other).count() as f64 / own.len() as f64
            }
            // The sides of a coordinate have the same kind in all trees.
            _ => 0.0,
        }
    }
}

/// The rule by which a point of a node goes to the first child.
#[derive(Clone, Debug)]
enum Rule {
    Below(f64),
    In(Vec<bool>),
}

/// A split of a node into two children.
struct Split {
    coordinate: usize,
    rule: Rule,
    /// The part of the sum of squares that the split explains.
    gain: f64,
}

/// The leaves of each tree. Every tree learns from as many random draws, with replacement, as there are points, up to [`MOST_DRAWS`].
pub(super) fn forest(sample: Sample<'_>) -> Vec<Vec<Leaf>> {
    let count = sample.points.len();
    let tree = |seed| {
        let mut rng = Pcg64::seed_from_u64(seed);
        let drawn = (0..count.min(MOST_DRAWS)).map(|_| rng.random_range(0..count)).collect();
        tree(sample, drawn, &mut rng)
    };
    (0..TREES).map(tree).collect()
}

fn tree<R: Rng>(sample: Sample<'_>, drawn: Vec<usize>, rng: &mut R) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let mut open = vec![(drawn, sample.ranges.iter().map(Side::whole).collect::<Vec<Side>>())];
    while let Some((members, sides)) = open.pop() {
        let Some(Split { coordinate, rule, .. }) = best_split(sample, &members, rng) else {
            let value = mean(sample, &members);
            leaves.push(Leaf { sides, value });
            continue;
        };
        let unit = |member: &usize| sample.points[*member][coordinate];
        let values = match &sides[coordinate] {
            Side::Values(values) => values.len(),
            Side::Interval { .. } => 0,
        };
        let is_first = |member: &usize| match &rule {
            Rule::Below(limit) => unit(member) < *limit,
            Rule::In(chosen) => chosen[position(unit(member), values)],
        };
        let (first, second) = members.into_iter().partition(is_first);
        let (mut first_sides, mut second_sides) = (sides.clone(), sides);
        divide(&rule, &mut first_sides[coordinate], &mut second_sides[coordinate]);
        open.extend([(first, first_sides), (second, second_sides)]);
    }
    leaves
}

/// Cuts both sides, which are equal before, down to the parts of the children.
fn divide(rule: &Rule, first: &mut Side, second: &mut Side) {
    match (rule, first, second) {
        (Rule::Below(limit), Side::Interval { high, .. }, Side::Interval { low, .. }) => {
            (*high, *low) = (*limit, *limit)
        }
        (Rule::In(chosen), Side::Values(first), Side::Values(second)) => {
            for (index, is_chosen) in chosen.iter().enumerate() {
                first[index] &= *is_chosen;
                second[index] &= !*is_chosen;
            }
        }
        _ => {}
    }
}

/// The index of a choice's value from its coordinate.
fn position(unit: f64, values: usize) -> usize {
    ((unit * values as f64) as usize).min(values.saturating_sub(1))
}

fn mean(sample: Sample<'_>, members: &[usize]) -> f64 {
    members.iter().map(|member| sample.values[*member]).sum::<f64>() / members.len().max(1) as f64
}

/// The split that explains most of a node's sum of squares; `None` if no split explains anything.
fn best_split<R: Rng>(sample: Sample<'_>, members: &[usize], rng: &mut R) -> Option<Split> {
    let first = rng.random_range(0..sample.ranges.len().max(1));
    let mut best: Option<Split> = None;
    for offset in 0..sample.ranges.len() {
        // A random first coordinate, so that the order of the parameters does not decide between equally good splits.
        let coordinate = (first + offset) % sample.ranges.len();
        let split = match &sample.ranges[coordinate] {
            Distribution::Choice { values, is_ordered: false } => by_value(sample, members, coordinate, values.len()),
            _ => by_limit(sample, members, coordinate),
        };
        if let Some(split) = split.filter(|split| best.as_ref().is_none_or(|best| split.gain > best.gain)) {
            best = Some(split);
        }
    }
    best
}

/// The best split of a coordinate by a limit, halfway between two points.
fn by_limit(sample: Sample<'_>, members: &[usize], coordinate: usize) -> Option<Split> {
    let mut pairs: Vec<(f64, f64)> =
        members.iter().map(|member| (sample.points[*member][coordinate], sample.values[*member])).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let groups: Vec<(f64, f64)> = pairs.iter().map(|(_, value)| (1.0, *value)).collect();
    let is_limit = |index: usize| pairs[index].0 > pairs[index - 1].0;
    let (index, gain) = best_cut(&groups, is_limit)?;
    let (below, above) = (pairs[index - 1].0, pairs[index].0);
    let middle = 0.5 * (below + above);
    // Between neighbouring floats there is no other float.
    Some(Split { coordinate, rule: Rule::Below(if middle > below { middle } else { above }), gain })
}

/// The best split of a choice's values into two sets. In the order of their means, one of the cuts is the best of all splits (Fisher
/// 1958).
fn by_value(sample: Sample<'_>, members: &[usize], coordinate: usize, values: usize) -> Option<Split> {
    let mut sums = vec![(0.0, 0.0); values];
    for member in members {
        let sum = &mut sums[position(sample.points[*member][coordinate], values)];
        *sum = (sum.0 + 1.0, sum.1 + sample.values[*member]);
    }
    let mut order: Vec<usize> = (0..values).filter(|value| sums[*value].0 > 0.0).collect();
    let mean = |value: &usize| sums[*value].1 / sums[*value].0;
    order.sort_by(|a, b| mean(a).total_cmp(&mean(b)));
    let groups: Vec<(f64, f64)> = order.iter().map(|value| sums[*value]).collect();
    let (index, gain) = best_cut(&groups, |_| true)?;
    let chosen = (0..values).map(|value| order[..index].contains(&value)).collect();
    Some(Split { coordinate, rule: Rule::In(chosen), gain })
}

/// The best cut of a list of groups, each with its number of members and the sum of their values: the index of the first
/// group of the second part, and the sum of squares that the cut explains.
fn best_cut(groups: &[(f64, f64)], may_cut: impl Fn(usize) -> bool) -> Option<(usize, f64)> {
    let add = |a: (f64, f64), b: &(f64, f64)| (a.0 + b.0, a.1 + b.1);
    let (count, sum) = groups.iter().fold((0.0, 0.0), add);
    let between = |(part, part_sum): (f64, f64)| {
        let (rest, rest_sum) = (count - part, sum - part_sum);
        part * rest / count * (part_sum / part - rest_sum / rest).powi(2)
    };
    let mut below = (0.0, 0.0);
    let mut best: Option<(usize, f64)> = None;
    for (index, group) in groups.iter().enumerate() {
        if index > 0 && may_cut(index) {
            let gain = between(below);
            if gain > best.map_or(0.0, |(_, most)| most) {
                best = Some((index, gain));
            }
        }
        below = add(below, group);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::{Scale, Value};

    #[test]
    fn leaves_of_a_tree_fill_the_cube() {
        let number = Distribution::Float { low: 0.0, high: 1.0, step: None, scale: Scale::Linear };
        let kind = Distribution::Choice { values: (0..3).map(Value::Int).collect(), is_ordered: false };
        let ranges = [number, kind];
        let points: Vec<Vec<f64>> =
            (0..60).map(|k| vec![(f64::from(k) * 0.618).fract(), (f64::from(k % 3) + 0.5) / 3.0]).collect();
        let values: Vec<f64> = points.iter().map(|point| point[0] + if point[1] > 0.5 { 2.0 } else { 0.0 }).collect();
        let forest = forest(Sample { ranges: &ranges, points: &points, values: &values });
        assert_eq!(forest.len() as u64, TREES);
        for leaves in &forest {
            let volume = |leaf: &Leaf| leaf.sides.iter().map(Side::length).product::<f64>();
            assert!((leaves.iter().map(volume).sum::<f64>() - 1.0).abs() < 1e-9);
            for (index, leaf) in leaves.iter().enumerate() {
                let common =
                    |other: &Leaf| -> f64 { leaf.sides.iter().zip(&other.sides).map(|(a, b)| a.overlap(b)).product() };
                assert!(leaves[index + 1..].iter().all(|other| common(other) < 1e-12), "leaves overlap");
            }
        }
        assert_ne!(forest[0], forest[1]);
    }

    #[test]
    fn cut_explains_most_of_the_sum_of_squares() {
        let groups = [(1.0, 0.0), (1.0, 0.0), (1.0, 5.0), (1.0, 6.0)];
        assert_eq!(best_cut(&groups, |_| true), Some((2, 30.25)));
        assert_eq!(best_cut(&groups, |index| index != 2), Some((3, 0.75 * (6.0 - 5.0 / 3.0_f64).powi(2))));
        assert_eq!(best_cut(&[(1.0, 2.0), (1.0, 2.0)], |_| true), None);
        assert_eq!(best_cut(&[], |_| true), None);
    }
}
