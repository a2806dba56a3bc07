//! The scale on which the numbers of a range are uniform. Knows no lattices.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The scale on which a range is uniform.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Linear: every interval of the same length has the same share of the values.
    #[default]
    Linear,
    /// Logarithmic: as many values between 0.001 and 0.01 as between 0.01 and 0.1.
    Log,
    /// Logarithmic from the upper end, like Keras Tuner's `reverse_log`: between 0.9 and 0.999 most values are near
    /// 0.999. The mirror image of [`Scale::Log`] in the middle of the range.
    ReverseLog,
}

impl Scale {
    /// The coordinate of `value` on this scale, which rises with the value. Depends only on the sum of the ends of the range.
    pub fn warp(self, (low, high): (f64, f64), value: f64) -> f64 {
        match self {
            Scale::Linear => value,
            Scale::Log => value.ln(),
            Scale::ReverseLog => -mirror((low, high), value).ln(),
        }
    }

    /// The inverse of [`Scale::warp`].
    pub fn unwarp(self, (low, high): (f64, f64), warped: f64) -> f64 {
        match self {
            Scale::Linear => warped,
            Scale::Log => warped.exp(),
            Scale::ReverseLog => mirror((low, high), (-warped).exp()),
        }
    }

    /// The ends of a range on this scale.
    pub fn ends(self, (low, high): (f64, f64)) -> (f64, f64) {
        (self.warp((low, high), low), self.warp((low, high), high))
    }

    /// The name of the method with which an objective asks for this scale.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Scale::Linear => "",
            Scale::Log => ".log()",
            Scale::ReverseLog => ".reverse_log()",
        }
    }
}

/// The mirror image of `value` in the middle of the range. Both ends are positive, so nothing overflows.
fn mirror((low, high): (f64, f64), value: f64) -> f64 {
    low + (high - value)
}

/// The stored form: `false` and `true`, as in versions that had only two scales, or a name.
impl Serialize for Scale {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Scale::Linear => serializer.serialize_bool(false),
            Scale::Log => serializer.serialize_bool(true),
            Scale::ReverseLog => serializer.serialize_str("reverse"),
        }
    }
}

impl<'de> Deserialize<'de> for Scale {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scale, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Stored {
            IsLog(bool),
            Named(Name),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Name {
            Reverse,
        }
        Ok(match Stored::deserialize(deserializer)? {
            Stored::IsLog(false) => Scale::Linear,
            Stored::IsLog(true) => Scale::Log,
            Stored::Named(Name::Reverse) => Scale::ReverseLog,
        })
    }
}
