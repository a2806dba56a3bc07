//! Which tests of `cargo xtask test` run.

use anyhow::{Result, bail};

/// What is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    Whole,
    /// Style, Rust tests, and the tests in Python that are short and break often.
    Fast,
    /// A share of all that [`Selection::Fast`] leaves out.
    Part(Part),
}

/// One of several shares of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Counted from 1.
    number: usize,
    count: usize,
}

impl Selection {
    /// What the user asks for behind `cargo xtask test`.
    pub(super) fn of_arguments() -> Result<Self> {
        let arguments: Vec<String> = std::env::args().skip(2).collect();
        Self::of(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(super) fn of(arguments: &[&str]) -> Result<Self> {
        match arguments {
            [] => Ok(Self::Whole),
            ["--fast"] => Ok(Self::Fast),
            ["--part", part] => match Part::of(part) {
                Some(part) => Ok(Self::Part(part)),
                None => bail!("--part takes a share such as 1/3, and was given {part}"),
            },
            _ => bail!("usage: cargo xtask test [--fast | --part 1/3]"),
        }
    }

    /// Those of some things that [`Selection::Fast`] leaves out that are among it.
    pub(super) fn of_rest<T>(self, rest: impl IntoIterator<Item = T>) -> Vec<T> {
        match self {
            Self::Whole => rest.into_iter().collect(),
            Self::Fast => Vec::new(),
            Self::Part(part) => rest.into_iter().skip(part.number - 1).step_by(part.count).collect(),
        }
    }
}

impl Part {
    fn of(text: &str) -> Option<Self> {
        let (number, count) = text.split_once('/')?;
        let part = Self { number: number.parse().ok()?, count: count.parse().ok()? };
        (1..=part.count).contains(&part.number).then_some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_the_rest_and_each_thing_is_in_one() {
        let rest = || 0..10;
        let mut shared: Vec<i32> = (1..=3)
            .flat_map(|number| Selection::of(&["--part", &format!("{number}/3")]).unwrap().of_rest(rest()))
            .collect();
        shared.sort_unstable();
        assert_eq!(shared, Selection::Whole.of_rest(rest()));
        assert!(Selection::Fast.of_rest(rest()).is_empty());
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for part in ["0/3", "4/3", "1", "1/0", "a/b", "-1/3"] {
            let error = Selection::of(&["--part", part]).unwrap_err().to_string();
            assert_eq!(error, format!("--part takes a share such as 1/3, and was given {part}"));
        }
        assert!(Selection::of(&["--quick"]).is_err());
    }
}
