//! The user's options for the cluster.

use crate::LauncherError;

/// The settings with which pods are made.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Options {
    pub(super) image: String,
    pub(super) namespace: Option<String>,
    /// A PersistentVolumeClaim, and the path at which it is mounted.
    pub(super) volume: Option<(String, String)>,
    pub(super) program: Option<String>,
}

impl Options {
    /// Parses options of the form `name=value,…`.
    pub(super) fn parse(text: &str) -> Result<Self, LauncherError> {
        let (mut options, mut claim, mut mount) = (Self::default(), None, None);
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').unwrap_or((item, ""));
            if value.is_empty() || value.chars().any(char::is_control) {
                return Err(wrong(item, "write it with a value, as in image=registry.example.org/ferrotune:1"));
            }
            let value = value.to_owned();
            match name {
                "image" => options.image = value,
                // The namespace becomes part of an address.
                "namespace" if value.chars().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-') => {
                    options.namespace = Some(value);
                }
                "namespace" => return Err(wrong(item, "a namespace has small letters, digits and `-`")),
                "claim" => claim = Some(value),
                "mount" if value.starts_with('/') => mount = Some(value),
                "mount" => return Err(wrong(item, "give a path from the root")),
                "program" => options.program = Some(value),
                _ => return Err(wrong(item, "known are image, namespace, claim, mount and program")),
            }
        }
        options.volume = match (claim, mount) {
            (Some(claim), Some(mount)) => Some((claim, mount)),
            (None, None) => None,
            (Some(_), None) => return Err(wrong("claim", "say with mount=/PATH where it is to be")),
            (None, Some(_)) => return Err(wrong("mount", "say with claim=NAME which PersistentVolumeClaim it is of")),
        };
        if options.image.is_empty() {
            return Err(wrong(
                "image",
                "it is missing; name an image that has the program, as in kubernetes:image=NAME",
            ));
        }
        Ok(options)
    }
}

fn wrong(option: &str, problem: &'static str) -> LauncherError {
    LauncherError::Option { engine: "kubernetes", option: option.into(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn options_are_read() {
        let options = Options::parse("image=reg:5000/a/b:1,namespace=team-1,claim=c,mount=/shared,program=/x").unwrap();
        let expected = Options {
            image: "reg:5000/a/b:1".into(),
            namespace: Some("team-1".into()),
            volume: Some(("c".into(), "/shared".into())),
            program: Some("/x".into()),
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn what_is_no_option_is_refused() {
        let refused = |text: &str| format!("{}\n", Options::parse(text).unwrap_err());
        let texts =
            ["", "image", "image=", "image=a,x=1", "image=a,namespace=A/b", "image=a,claim=c", "image=a,mount=b"];
        expect![[r#"
            the option `image` of kubernetes is wrong: it is missing; name an image that has the program, as in kubernetes:image=NAME
            the option `image` of kubernetes is wrong: write it with a value, as in image=registry.example.org/ferrotune:1
            the option `image=` of kubernetes is wrong: write it with a value, as in image=registry.example.org/ferrotune:1
            the option `x=1` of kubernetes is wrong: known are image, namespace, claim, mount and program
            the option `namespace=A/b` of kubernetes is wrong: a namespace has small letters, digits and `-`
            the option `claim` of kubernetes is wrong: say with mount=/PATH where it is to be
            the option `mount=b` of kubernetes is wrong: give a path from the root
        "#]]
        .assert_eq(&texts.iter().map(|text| refused(text)).collect::<String>());
    }
}
