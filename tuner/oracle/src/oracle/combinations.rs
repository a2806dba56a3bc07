//! Counts the combinations of values that trials have tried, and those that are left. Knows only the parameters that
//! trials have asked for, one after the other, so a range may depend on earlier values. Proposes no trials.
//!
//! The combinations form the tree of Optuna's `BruteForceSampler`: a node is the list of values that a trial has so far, and its
//! children are the values of the next parameter. Records do not store the order of parameters. The next parameter is
//! one that all trials of the node ask for; every such order finds the same combinations.

use ferrotune_space::{Distribution, Value};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The key of a value that is not counted.
const ELSEWHERE: u64 = u64::MAX;

/// A function that gives the sorted coordinates of a parameter's values, by its name and range; `None` if they are not counted.
pub(super) type Levels<'a> = Box<dyn Fn(&str, &Distribution) -> Option<Vec<f64>> + 'a>;

/// A trial as a list of the values that it has.
#[derive(Debug)]
pub(super) struct Member<'a> {
    answers: BTreeMap<&'a str, Answer<'a>>,
    /// Whether the trial has asked for all its parameters. Otherwise it takes one of the combinations that begin with its
    /// values.
    is_whole: bool,
    /// Whether the trial has not ended.
    is_open: bool,
}

#[derive(Debug)]
struct Answer<'a> {
    distribution: &'a Distribution,
    value: Cow<'a, Value>,
    key: u64,
}

impl<'a> Member<'a> {
    /// A trial without values.
    pub(super) fn new(is_whole: bool, is_open: bool) -> Member<'a> {
        Member { answers: BTreeMap::new(), is_whole, is_open }
    }

    /// Adds the value of a parameter, unless there is one.
    pub(super) fn answer(&mut self, name: &'a str, distribution: &'a Distribution, value: &'a Value) {
        let key = key_of(distribution, value);
        self.answers.entry(name).or_insert(Answer { distribution, value: Cow::Borrowed(value), key });
    }

    /// Whether the trial has these values, or may still get them.
    fn may_have(&self, values: &BTreeMap<&str, &Value>) -> bool {
        values.iter().all(|(name, value)| match self.answers.get(name) {
            Some(answer) => *answer.value == **value,
            None => !self.is_whole,
        })
    }
}

impl Answer<'_> {
    fn key_in(&self, distribution: &Distribution) -> u64 {
        if self.distribution == distribution { self.key } else { key_of(distribution, &self.value) }
    }
}

/// The rule that chooses one of several free values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preference {
    /// The first free value.
    First,
    /// The free value nearest to the proposed one; for values without an order, the next one in the list.
    Nearest,
}

/// The combinations that trials have tried or will try.
pub(super) struct Combinations<'a> {
    members: Vec<Member<'a>>,
    levels: Levels<'a>,
    known: RefCell<Vec<Known>>,
}

/// A parameter's name and range, with the values of that range.
type Known = (String, Distribution, Option<Rc<Values>>);

/// The values of a range as sorted coordinates and sorted keys.
#[derive(Debug)]
struct Values {
    units: Vec<f64>,
    keys: Vec<u64>,
}

impl<'a> Combinations<'a> {
    /// The combinations of the given trials.
    pub(super) fn new(members: Vec<Member<'a>>, levels: Levels<'a>) -> Combinations<'a> {
        Combinations { members, levels, known: RefCell::default() }
    }

    /// Whether any trial has asked for all its parameters.
    pub(super) fn has_whole(&self) -> bool {
        self.members.iter().any(|member| member.is_whole)
    }

    /// Whether every known combination is taken. A running trial takes all combinations of parameters that it has not
    /// asked for yet.
    pub(super) fn are_taken(&self) -> bool {
        self.left(&self.members.iter().collect::<Vec<_>>(), &mut Vec::new()) == 0
    }

    /// The value of a parameter for a trial that has the values `asked`: the proposed value, or another value if no
    /// combination with the proposed one is left.
    pub(super) fn free_value(
        &self,
        asked: &BTreeMap<&str, &Value>,
        name: &str,
        distribution: &Distribution,
        proposed: Value,
        preference: Preference,
    ) -> Value {
        let Some(values) = self.values(name, distribution) else { return proposed };
        let members: Vec<&Member<'a>> = self.members.iter().filter(|member| member.may_have(asked)).collect();
        let mut groups: HashMap<u64, Vec<&Member<'a>>> = HashMap::new();
        for member in members {
            if let Some(answer) = member.answers.get(name) {
                groups.entry(answer.key_in(distribution)).or_default().push(member);
            }
        }
        let left = |key: u64, members: &[&Member<'a>]| {
            let mut names: Vec<&str> = asked.keys().copied().chain([name]).collect();
            if values.keys.binary_search(&key).is_err() { 0 } else { self.left(members, &mut names) }
        };
        let is_free = |key: u64| left(key, groups.get(&key).map_or(&[], Vec::as_slice)) > 0;
        // Running trials may have taken all known combinations, but the parameters that they have not asked for yet may have
        // more.
        let is_unfinished = |key: u64| {
            let ended = groups.get(&key).into_iter().flatten().copied().filter(|member| !member.is_open);
            left(key, &ended.collect::<Vec<_>>()) > 0
        };
        let wanted = key_of(distribution, &proposed);
        if is_free(wanted) {
            return proposed;
        }
        let order = values.order(distribution, wanted, preference);
        let free = order.iter().copied().find(|index| is_free(values.keys[*index]));
        if free.is_none() && is_unfinished(wanted) {
            return proposed;
        }
        let found = free.or_else(|| order.into_iter().find(|index| is_unfinished(values.keys[*index])));
        found.map_or(proposed, |index| distribution.from_unit(values.units[index]))
    }

    /// The number of combinations left that begin with the values of the parameters `asked`, which these `members` have
    /// in common. If no further parameter is known, there is one combination.
    fn left<'b>(&self, members: &[&'b Member<'a>], asked: &mut Vec<&'b str>) -> u64 {
        let Some((name, distribution)) = next_question(members, asked) else { return u64::from(members.is_empty()) };
        let Some(values) = self.values(name, distribution) else { return u64::MAX };
        let mut groups: HashMap<u64, Vec<&Member<'a>>> = HashMap::new();
        // Each trial that has not asked for the parameter takes one combination.
        let mut elsewhere = 0;
        for member in members {
            match member.answers.get(name) {
                Some(answer) => groups.entry(answer.key_in(distribution)).or_default().push(member),
                None => elsewhere += u64::from(!member.is_whole),
            }
        }
        groups.retain(|key, _| values.keys.binary_search(key).is_ok());
        asked.push(name);
        let untouched = (values.keys.len() - groups.len()) as u64;
        let left = groups.values().fold(untouched, |sum, group| sum.saturating_add(self.left(group, asked)));
        asked.pop();
        left.saturating_sub(elsewhere)
    }

    fn values(&self, name: &str, distribution: &Distribution) -> Option<Rc<Values>> {
        let mut known = self.known.borrow_mut();
        if let Some((.., values)) = known.iter().find(|(other, range, _)| other == name && range == distribution) {
            return values.clone();
        }
        let values = (self.levels)(name, distribution).map(|units| {
            let keys = units.iter().map(|unit| key(*unit)).collect();
            Rc::new(Values { units, keys })
        });
        known.push((name.to_owned(), distribution.clone(), values.clone()));
        values
    }
}

impl Values {
    /// Indices of all values, in the order of preference if the value with the key `wanted` is taken.
    fn order(&self, distribution: &Distribution, wanted: u64, preference: Preference) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        if preference == Preference::Nearest && wanted != ELSEWHERE {
            if distribution.has_order() {
                order.sort_by_key(|index| self.keys[*index].abs_diff(wanted));
            } else {
                order.rotate_left(self.keys.partition_point(|key| *key < wanted));
            }
        }
        order
    }
}

/// The next parameter of a node, with its range: the parameter that most of the node's trials have. Of several such parameters,
/// one with the same range in all trials is preferred.
fn next_question<'b, 'a>(members: &[&'b Member<'a>], asked: &[&str]) -> Option<(&'b str, &'b Distribution)> {
    let mut questions: BTreeMap<&'b str, (usize, bool, &'b Distribution)> = BTreeMap::new();
    for member in members {
        for (name, answer) in member.answers.iter().filter(|(name, _)| !asked.contains(*name)) {
            let (count, is_one_range, range) = questions.entry(*name).or_insert((0, true, answer.distribution));
            *count += 1;
            *is_one_range &= *range == answer.distribution;
            *range = answer.distribution;
        }
    }
    // Of equal parameters, the first by name.
    let best = questions.into_iter().rev().max_by_key(|(_, (count, is_one_range, _))| (*count, *is_one_range));
    best.map(|(name, (_, _, range))| (name, range))
}

fn key_of(distribution: &Distribution, value: &Value) -> u64 {
    let unit = if distribution.contains(value) { distribution.to_unit(value) } else { None };
    unit.map_or(ELSEWHERE, key)
}

/// The key of a coordinate. A logarithm and its inverse may change the last bit; neighbouring values differ by more than 1e-9.
fn key(unit: f64) -> u64 {
    (unit * 1e9).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::Scale;

    fn int(high: i64) -> Distribution {
        Distribution::Int { low: 1, high, step: 1, scale: Scale::Linear }
    }

    fn all(_: &str, distribution: &Distribution) -> Option<Vec<f64>> {
        distribution.levels(1000)
    }

    /// Trials that ask for a, and then for b in 1..=a.
    struct Trials {
        ranges: Vec<Distribution>,
        values: Vec<Value>,
    }

    impl Trials {
        fn new() -> Trials {
            Trials { ranges: (1..=3).map(int).collect(), values: (1..=3).map(Value::Int).collect() }
        }

        fn of(&self, answers: &[(usize, Option<usize>)]) -> Combinations<'_> {
            let member = |(a, b): &(usize, Option<usize>)| {
                let mut member = Member::new(b.is_some(), false);
                member.answer("a", &self.ranges[2], &self.values[a - 1]);
                if let Some(b) = b {
                    member.answer("b", &self.ranges[a - 1], &self.values[b - 1]);
                }
                member
            };
            Combinations::new(answers.iter().map(member).collect(), Box::new(all))
        }
    }

    #[test]
    fn ranges_that_depend_on_other_values_are_counted() {
        let trials = Trials::new();
        let mut answers: Vec<(usize, Option<usize>)> = Vec::new();
        for (a, b) in [(3, 3), (1, 1), (2, 1), (3, 1), (2, 2)] {
            answers.push((a, Some(b)));
            assert!(!trials.of(&answers).are_taken(), "{answers:?}");
        }
        let (one, three) = (Value::Int(1), Value::Int(3));
        let free = |answers: &[(usize, Option<usize>)], asked: &BTreeMap<&str, &Value>, name: &str, high| {
            trials.of(answers).free_value(asked, name, &int(high), one.clone(), Preference::First)
        };
        assert_eq!(free(&answers, &BTreeMap::new(), "a", 3), three);
        assert_eq!(free(&answers, &BTreeMap::from([("a", &three)]), "b", 3), Value::Int(2));
        answers.push((3, Some(2)));
        assert!(trials.of(&answers).are_taken());
    }

    #[test]
    fn trial_that_failed_before_a_question_takes_one_combination() {
        let trials = Trials::new();
        let mut answers = vec![(1, Some(1)), (2, Some(1)), (2, None), (3, None)];
        // No parameter after a = 3 is known, so there is one combination, and it is taken.
        assert!(trials.of(&answers).are_taken());
        answers.push((3, Some(1)));
        assert!(!trials.of(&answers).are_taken());
        answers.push((3, Some(3)));
        assert!(trials.of(&answers).are_taken());
    }
}
