//! A map of recently used values, which drops those that were used longest ago, so that a long-running program does not grow.

use std::collections::HashMap;
use std::hash::Hash;

/// The greatest number of values in a map: of programs in memory, and of shapes for which one step is compiled.
pub(crate) const MOST_RECENT: usize = 256;

pub(crate) struct Recent<K, V> {
    /// The values, each with the number of its last use.
    values: HashMap<K, (u64, V)>,
    uses: u64,
}

impl<K: Eq + Hash + Clone, V> Recent<K, V> {
    pub(crate) fn new() -> Recent<K, V> {
        Recent { values: HashMap::new(), uses: 0 }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        self.uses += 1;
        let (used, value) = self.values.get_mut(key)?;
        *used = self.uses;
        Some(value)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.values.values().map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.values.remove(key);
    }

    /// Inserts a value, unless there is one for this key. Returns the value of the key.
    pub(crate) fn insert(&mut self, key: K, value: V) -> &V {
        self.uses += 1;
        if self.values.len() >= MOST_RECENT && !self.values.contains_key(&key) {
            let oldest = self.values.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.map(|oldest| self.values.remove(&oldest));
        }
        let kept = self.values.entry(key).or_insert((0, value));
        kept.0 = self.uses;
        &kept.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_is_forgotten() {
        let mut recent = Recent::new();
        for number in 0..MOST_RECENT {
            recent.insert(number, number * 2);
        }
        assert_eq!(recent.get(&0), Some(&0));
        assert_eq!(*recent.insert(0, 7), 0, "what is kept stays");
        for number in MOST_RECENT..MOST_RECENT + 3 {
            recent.insert(number, number * 2);
        }
        assert_eq!(recent.values.len(), MOST_RECENT);
        let forgotten: Vec<usize> = (0..MOST_RECENT + 3).filter(|number| recent.get(number).is_none()).collect();
        assert_eq!(forgotten, [1, 2, 3]);
    }
}
