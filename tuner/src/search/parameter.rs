//! The answers to a trial's requests for parameters: a parameter's value, or what is wrong with the request.

use super::answer::refused;
use super::{Search, SearchError};
use ferrotune_space::given::{Values, fit};
use ferrotune_space::wire::Reply;
use ferrotune_space::{Distribution, Parameter, Value};

impl Search {
    /// Answers with the value of a parameter, which is recorded the first time, or with the reason why there is none.
    /// `place` is the position of the request in the objective's source.
    pub(super) fn suggest(
        &mut self,
        number: u64,
        name: &str,
        distribution: &Distribution,
        default: Option<&Value>,
        place: &str,
    ) -> Result<Reply, SearchError> {
        let placed = |reason: String| if place.is_empty() { reason } else { format!("{place}: {reason}") };
        if let Some(reason) = self.objection(number, name, distribution, default) {
            return Ok(refused(placed(reason)));
        }
        if let Some((other, reason)) = self.other_kind(number, name, distribution) {
            // If trials of this search disagree, the parameter depends on the trial. If a trial of an earlier search
            // disagrees, all trials of this search do.
            return match other < self.earlier_trials {
                true => Err(SearchError::Parameter { reason: placed(reason) }),
                false => Ok(refused(placed(reason))),
            };
        }
        if let Some(known) = self.record(number).parameters.get(name) {
            return Ok(Reply::Value { value: known.value.clone() });
        }
        if let Some(reason) = self.oracle.objection(name, distribution) {
            return Ok(refused(placed(reason)));
        }
        let default = default.and_then(|default| distribution.clamp_to_lattice(default));
        if let Some(default) = &default {
            self.journal.defaults_to(name, default)?;
        }
        let value = match self.spec.given.value(
            self.preset(number, name, distribution),
            name,
            distribution,
            default.as_ref(),
        ) {
            Err(reason) => return Ok(refused(reason)),
            Ok(Some(given)) => given,
            Ok(None) => match default {
                Some(default) if number == 0 => default,
                _ => self.oracle.suggest(number, name, distribution, self.journal.trials()),
            },
        };
        self.journal.asked_at(name, place)?;
        self.journal.parameter(number, name, Parameter { distribution: distribution.clone(), value: value.clone() })?;
        Ok(Reply::Value { value })
    }

    /// The values that a trial was enqueued with. Values of another study's best trial may be outside a range that has
    /// changed; the oracle then chooses instead.
    fn preset(&self, number: u64, name: &str, distribution: &Distribution) -> &Values {
        static NONE: Values = Values::new();
        let preset = &self.record(number).preset;
        let is_of_source = self.spec.warm_starts.iter().any(|warm_start| warm_start.best == *preset);
        let fits = preset.get(name).is_none_or(|value| fit(value, distribution).is_some());
        if is_of_source && !fits { &NONE } else { preset }
    }

    /// The objection to a request for a parameter: by itself, or together with the other requests of its trial.
    fn objection(
        &self,
        number: u64,
        name: &str,
        distribution: &Distribution,
        default: Option<&Value>,
    ) -> Option<String> {
        if let Err(error) = distribution.validate(name) {
            return Some(error.to_string());
        }
        if let Some(default) = default.filter(|default| !distribution.contains(default)) {
            return Some(format!("the default {default} of `{name}` is not {distribution}"));
        }
        let before = &self.record(number).parameters.get(name)?.distribution;
        (!before.is_alike(distribution)).then(|| {
            let place = self.place(name);
            format!("trial {number} asks for `{name}` as {distribution} after {before}{place}; give every parameter one range")
        })
    }

    /// The last trial in which a parameter has another kind, and a text about that. Bounds may change from trial to trial:
    /// a search that is continued may search a larger range.
    fn other_kind(&self, number: u64, name: &str, distribution: &Distribution) -> Option<(u64, String)> {
        if self.record(number).parameters.contains_key(name) {
            return None;
        }
        let mut others =
            self.trials().iter().rev().filter_map(|trial| Some((trial.number, trial.parameters.get(name)?)));
        let (other, known) = others.next()?;
        let before = &known.distribution;
        (std::mem::discriminant(before) != std::mem::discriminant(distribution)).then(|| {
            let place = self.place(name);
            let cure = "use another name, another --project or --overwrite";
            (other, format!("`{name}` is {distribution} here and {before} in trial {other}{place}; {cure}"))
        })
    }

    /// The position in the objective's source at which it asks for a parameter, as a suffix of a message.
    fn place(&self, name: &str) -> String {
        self.journal.place_of(name).map_or_else(String::new, |place| format!(" at {place}"))
    }
}
