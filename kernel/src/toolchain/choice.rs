//! The choice of the toolchain that compiles cells: one function, which looks at each candidate only if it matters.

use std::ffi::OsString;

/// The rule by which the toolchain in use was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The user names the toolchain in `FERROTUNE_TOOLCHAIN`.
    Named,
    /// `ferrotune setup` has installed the toolchain.
    Own,
    /// The toolchain is that of the `rustc` on the search path, or in cargo's folder.
    Users,
}

impl Rule {
    /// The rule in words.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Named => "named in FERROTUNE_TOOLCHAIN",
            Self::Own => "installed by `ferrotune setup`",
            Self::Users => "the rustc on the PATH or in ~/.cargo/bin",
        }
    }
}

/// The toolchain to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// The toolchain with this name, or in this folder.
    Named(OsString),
    Own,
    Users,
    /// No toolchain fits: `ferrotune setup` has to install one.
    Missing,
}

/// The candidates: the toolchains of this machine, and the prelude that came with this program.
pub(super) struct Candidates<'a> {
    /// The value of `FERROTUNE_TOOLCHAIN`.
    pub(super) named: Option<OsString>,
    /// Whether `ferrotune setup` has installed a toolchain.
    pub(super) own: bool,
    /// The file name of Rust's standard library in the toolchain of the shipped prelude, which identifies that toolchain.
    pub(super) shipped: Option<&'a str>,
    /// Whether the user has a rustc; with this standard library, if one is given.
    pub(super) users: &'a dyn Fn(Option<&str>) -> bool,
}

impl Candidates<'_> {
    pub(super) fn choose(&self) -> Choice {
        if let Some(named) = self.named.as_ref().filter(|named| !named.is_empty()) {
            return Choice::Named(named.clone());
        }
        if self.own {
            return Choice::Own;
        }
        // Without a shipped prelude every toolchain fits, because the prelude is built for it.
        if (self.users)(self.shipped) { Choice::Users } else { Choice::Missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(named: Option<&str>, own: bool, shipped: Option<&str>, users: Option<&str>) -> Choice {
        let users = |wanted: Option<&str>| users.is_some_and(|version| wanted.is_none_or(|wanted| version == wanted));
        Candidates { named: named.map(OsString::from), own, shipped, users: &users }.choose()
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let named = |name: &str| Choice::Named(name.into());
        let table = [
            // named, own, shipped, the user's
            (Some("nightly"), true, Some("1.95.0"), Some("1.95.0"), named("nightly")),
            (Some("/opt/rust"), false, None, None, named("/opt/rust")),
            (Some(""), true, None, Some("1.96.0"), Choice::Own),
            (None, true, Some("1.95.0"), Some("1.95.0"), Choice::Own),
            (None, false, Some("1.95.0"), Some("1.95.0"), Choice::Users),
            (None, false, Some("1.95.0"), Some("1.96.0"), Choice::Missing),
            (None, false, Some("1.95.0"), Some("1.95.0-nightly"), Choice::Missing),
            (None, false, Some("1.95.0"), None, Choice::Missing),
            (None, false, None, Some("1.96.0"), Choice::Users),
            (None, false, None, None, Choice::Missing),
        ];
        for (named, own, shipped, users, expected) in table {
            assert_eq!(choose(named, own, shipped, users), expected, "{named:?} {own} {shipped:?} {users:?}");
        }
    }

    #[test]
    fn the_users_rustc_is_not_asked_where_it_does_not_matter() {
        let users = |_: Option<&str>| panic!("rustup's proxy takes 20 ms");
        let own = Candidates { named: None, own: true, shipped: Some("1.95.0"), users: &users };
        assert_eq!(own.choose(), Choice::Own);
    }
}
