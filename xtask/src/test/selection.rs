//! The choice of tests for a run of `cargo xtask test`.

use super::emulated;
use anyhow::{Result, bail};

/// The tests to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    Whole,
    /// The style checks, the Rust tests, and the tests in Python that are short and often fail.
    Fast,
    /// A share of all tests that [`Selection::Fast`] leaves out.
    Part(Part),
    /// The tests of libtpu's answers for large programs.
    Peaks,
    /// The Rust tests on an emulated machine of another architecture.
    Emulated,
}

/// One of several shares of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The share's number, counted from 1.
    number: usize,
    count: usize,
}

impl Selection {
    /// The selection in the arguments of `cargo xtask test`.
    pub(super) fn of_arguments() -> Result<Self> {
        let arguments: Vec<String> = std::env::args().skip(2).collect();
        Self::of(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn of(arguments: &[&str]) -> Result<Self> {
        match arguments {
            [] => Ok(Self::Whole),
            ["--fast"] => Ok(Self::Fast),
            ["--peaks"] => Ok(Self::Peaks),
            ["--part", part] => match Part::of(part) {
                Some(part) => Ok(Self::Part(part)),
                None => bail!("--part takes a share such as 1/3, and was given {part}"),
            },
            ["--target", target] if emulated::is_known(target) => Ok(Self::Emulated),
            ["--target", target] => bail!("--target takes aarch64, and was given {target}"),
            _ => bail!("usage: cargo xtask test [--fast | --part 1/3 | --peaks | --target aarch64]"),
        }
    }
}

impl Part {
    pub(super) fn of(text: &str) -> Option<Self> {
        let (number, count) = text.split_once('/')?;
        let part = Self { number: number.parse().ok()?, count: count.parse().ok()? };
        (1..=part.count).contains(&part.number).then_some(part)
    }

    /// The items of this share.
    pub(super) fn share<T>(self, items: Vec<T>) -> Vec<T> {
        items.into_iter().skip(self.number - 1).step_by(self.count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_in_one_share() {
        let items: Vec<i32> = (0..10).collect();
        let mut shared: Vec<i32> =
            ["1/3", "2/3", "3/3"].iter().flat_map(|part| Part::of(part).unwrap().share(items.clone())).collect();
        shared.sort_unstable();
        assert_eq!(shared, items);
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for part in ["0/3", "4/3", "1", "1/0", "a/b", "-1/3"] {
            let error = Selection::of(&["--part", part]).unwrap_err().to_string();
            assert_eq!(error, format!("--part takes a share such as 1/3, and was given {part}"));
        }
        assert!(Selection::of(&["--quick"]).is_err());
        let error = Selection::of(&["--target", "riscv64"]).unwrap_err().to_string();
        assert_eq!(error, "--target takes aarch64, and was given riscv64");
        assert_eq!(Selection::of(&["--target", "aarch64"]).unwrap(), Selection::Emulated);
        assert_eq!(Selection::of(&[]).unwrap(), Selection::Whole);
        assert_eq!(Selection::of(&["--fast"]).unwrap(), Selection::Fast);
    }
}
