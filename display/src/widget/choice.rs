//! A control with a list of words, one of which is chosen.

use super::{Widget, fallback, invalid};
use crate::{Bundle, Show};
use serde_json::json;
use std::io;

/// A list in the front end from which the user chooses one word. Its copies are the same list.
#[derive(Clone, Debug)]
pub struct Dropdown {
    label: String,
    options: Vec<String>,
    widget: Widget,
}

/// Makes a list of words, one of which is chosen.
///
/// # Errors
/// If there are no options, an option is repeated, or the value is not an option; or if the kernel cannot be reached.
///
/// ```
/// use ferrotune_display::widget;
/// let optimiser = widget::dropdown("optimiser", &["sgd", "adam"], "adam")?;
/// optimiser.show();
/// assert_eq!(optimiser.value()?, "adam");
/// assert!(widget::dropdown("optimiser", &["sgd", "adam"], "adma").is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn dropdown(label: &str, options: &[impl AsRef<str>], value: &str) -> io::Result<Dropdown> {
    let options: Vec<String> = options.iter().map(|option| option.as_ref().to_owned()).collect();
    if let Some((at, option)) = options.iter().enumerate().find(|(at, option)| options[..*at].contains(option)) {
        return Err(invalid(format!("the list {label:?} has {option:?} twice; leave out the one at {at}")));
    }
    let index = index_of(label, &options, value)?;
    let state = json!({"description": label, "_options_labels": options, "index": index});
    let widget = Widget::open("Dropdown", "DescriptionStyle", state)?;
    Ok(Dropdown { label: label.to_owned(), options, widget })
}

impl Dropdown {
    /// The last choice of the user or of a cell.
    ///
    /// # Errors
    /// If the list is closed, or if nothing is chosen.
    pub fn value(&self) -> io::Result<String> {
        let index = self.widget.get("index")?;
        let option = index.as_u64().and_then(|index| self.options.get(usize::try_from(index).ok()?));
        let none = || invalid(format!("nothing is chosen in the list {:?}; choose one of its options", self.label));
        option.cloned().ok_or_else(none)
    }

    /// Chooses another option, also in the front end.
    ///
    /// # Errors
    /// If the value is not an option, or if the list is closed.
    pub fn set(&mut self, value: &str) -> io::Result<()> {
        let index = index_of(&self.label, &self.options, value)?;
        self.widget.set("index", index)
    }

    control!();
}

impl Show for Dropdown {
    fn bundle(&self) -> Bundle {
        let value = self.value().unwrap_or_else(|error| error.to_string());
        self.widget.bundle_or(fallback(&self.label, &value))
    }
}

fn index_of(label: &str, options: &[String], value: &str) -> io::Result<usize> {
    let index = options.iter().position(|option| option == value);
    index.ok_or_else(|| {
        let options: Vec<String> = options.iter().map(|option| format!("{option:?}")).collect();
        let offered = if options.is_empty() { "nothing".to_owned() } else { options.join(", ") };
        invalid(format!("the list {label:?} offers {offered}, but its value is {value:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_offered_can_be_chosen() {
        let error = |options: &[&str], value| dropdown("d", options, value).unwrap_err().to_string();
        assert_eq!(error(&[], "a"), r#"the list "d" offers nothing, but its value is "a""#);
        assert_eq!(error(&["a", "b\n"], ""), r#"the list "d" offers "a", "b\n", but its value is """#);
        assert_eq!(error(&["a", "b", "a"], "a"), r#"the list "d" has "a" twice; leave out the one at 2"#);
        let mut list = dropdown("d", &["", "<b>"], "").unwrap();
        assert_eq!(list.value().unwrap(), "");
        list.set("<b>").unwrap();
        assert_eq!(list.value().unwrap(), "<b>");
        assert!(list.set("c").is_err());
        assert_eq!(list.bundle().data["text/html"], "<div>d: <b>&lt;b&gt;</b></div>");
        list.widget.set("index", serde_json::Value::Null).unwrap();
        assert_eq!(
            list.value().unwrap_err().to_string(),
            r#"nothing is chosen in the list "d"; choose one of its options"#
        );
    }
}
