//! Controls with a value that the user sets: sliders, number boxes, text boxes and checkboxes.

use super::{Widget, fallback, invalid};
use crate::{Bundle, Show};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io;
use std::ops::RangeInclusive;

/// The types of the value of an [`Input`]: `i64`, `f64`, `bool` or `String`.
pub trait InputValue: Clone + Display + PartialOrd + Into<Value> {
    /// Converts a value from a front end; `None` if it has another type.
    fn of(value: &Value) -> Option<Self>;
}

impl InputValue for i64 {
    fn of(value: &Value) -> Option<Self> {
        value.as_i64()
    }
}

impl InputValue for f64 {
    fn of(value: &Value) -> Option<Self> {
        value.as_f64()
    }
}

impl InputValue for bool {
    fn of(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl InputValue for String {
    fn of(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

/// A control in the front end whose value a cell reads and sets. Its copies are the same control.
#[derive(Clone, Debug)]
pub struct Input<T> {
    label: String,
    widget: Widget,
    /// The range of a slider; `None` for other controls.
    range: Option<RangeInclusive<T>>,
}

impl<T: InputValue> Input<T> {
    fn open(model: &str, style: &str, label: &str, mut state: Value) -> io::Result<Self> {
        state["description"] = json!(label);
        let widget = Widget::open(model, style, state)?;
        Ok(Self { label: label.to_owned(), widget, range: None })
    }

    /// The last value that the user or a cell has set.
    ///
    /// # Errors
    /// If the control is closed, or its box does not contain such a value.
    pub fn value(&self) -> io::Result<T> {
        let value = self.widget.get("value")?;
        T::of(&value).ok_or_else(|| invalid(format!("the control {:?} holds {value}; set another value", self.label)))
    }

    /// Sets the value, also in the front end.
    ///
    /// # Errors
    /// If the value is outside of a slider's range, NaN or infinite, or if the control is closed.
    pub fn set(&mut self, value: T) -> io::Result<()> {
        if let Some(range) = &self.range {
            check(&self.label, range, &value)?;
        }
        self.widget.set("value", finite(&self.label, &value)?)
    }

    control!();
}

impl<T: InputValue> Show for Input<T> {
    fn bundle(&self) -> Bundle {
        let value = self.value().map_or_else(|error| error.to_string(), |value| value.to_string());
        self.widget.bundle_or(fallback(&self.label, &value))
    }
}

/// Makes a slider for whole numbers.
///
/// # Errors
/// If the value is outside of the range, or if the kernel cannot be reached.
///
/// ```
/// use ferrotune_display::widget;
/// let epochs = widget::int_slider("epochs", 1..=50, 10)?;
/// epochs.show();
/// assert_eq!(epochs.value()?, 10);
/// assert!(widget::int_slider("epochs", 1..=50, 99).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn int_slider(label: &str, range: RangeInclusive<i64>, value: i64) -> io::Result<Input<i64>> {
    check(label, &range, &value)?;
    let state = json!({"min": range.start(), "max": range.end(), "value": value});
    Ok(Input { range: Some(range), ..Input::open("IntSlider", "SliderStyle", label, state)? })
}

/// Makes a slider for numbers, with a hundred steps.
///
/// # Errors
/// The errors of [`int_slider`], and an error if the range is infinite.
pub fn float_slider(label: &str, range: RangeInclusive<f64>, value: f64) -> io::Result<Input<f64>> {
    check(label, &range, &value)?;
    let (start, end) = (finite(label, range.start())?, finite(label, range.end())?);
    // The difference of two finite numbers may be infinite. A slider cannot have a step of 0.
    let step = (range.end() / 100.0 - range.start() / 100.0).max(f64::MIN_POSITIVE);
    let state = json!({"min": start, "max": end, "value": value, "step": step, "readout_format": ".3g"});
    Ok(Input { range: Some(range), ..Input::open("FloatSlider", "SliderStyle", label, state)? })
}

/// Makes a box for a whole number.
///
/// # Errors
/// If the kernel cannot be reached.
pub fn int_box(label: &str, value: i64) -> io::Result<Input<i64>> {
    Input::open("IntText", "DescriptionStyle", label, json!({"value": value, "step": 1}))
}

/// Makes a box for a number.
///
/// # Errors
/// If the value is NaN or infinite, or if the kernel cannot be reached.
pub fn float_box(label: &str, value: f64) -> io::Result<Input<f64>> {
    Input::open("FloatText", "DescriptionStyle", label, json!({"value": finite(label, &value)?}))
}

/// Makes a box for a line of text.
///
/// # Errors
/// If the kernel cannot be reached.
pub fn text_box(label: &str, value: &str) -> io::Result<Input<String>> {
    Input::open("Text", "TextStyle", label, json!({"value": value}))
}

/// Makes a checkbox.
///
/// # Errors
/// If the kernel cannot be reached.
pub fn checkbox(label: &str, value: bool) -> io::Result<Input<bool>> {
    Input::open("Checkbox", "CheckboxStyle", label, json!({"value": value, "indent": false}))
}

fn check<T: PartialOrd + Display>(label: &str, range: &RangeInclusive<T>, value: &T) -> io::Result<()> {
    if range.contains(value) {
        return Ok(());
    }
    let (start, end) = (range.start(), range.end());
    Err(invalid(format!("the slider {label:?} goes from {start} to {end}, but its value is {value}")))
}

/// The value as JSON. Fails for NaN and infinite numbers, which JSON does not have.
fn finite<T: InputValue>(label: &str, value: &T) -> io::Result<Value> {
    let json: Value = value.clone().into();
    if json.is_null() {
        return Err(invalid(format!("the control {label:?} cannot hold {value}; give a finite number")));
    }
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_kernel_a_control_keeps_what_the_program_has_set() {
        let mut rate = float_slider("rate", 0.0..=1.0, 0.5).unwrap();
        assert_eq!(rate.value().unwrap(), 0.5);
        rate.set(1.0).unwrap();
        assert_eq!(rate.value().unwrap(), 1.0);
        let bundle = rate.bundle();
        assert_eq!(bundle.data["text/plain"], "rate: 1 (a widget, which this front end does not show)");
        assert_eq!(bundle.data["text/html"], "<div>rate: <b>1</b></div>");
    }

    #[test]
    fn a_slider_stays_within_its_range() {
        let mut slider = int_slider("n", 1..=3, 3).unwrap();
        for error in [int_slider("n", 1..=3, 4).unwrap_err(), slider.set(4).unwrap_err()] {
            assert_eq!(error.to_string(), r#"the slider "n" goes from 1 to 3, but its value is 4"#);
        }
        assert_eq!(slider.value().unwrap(), 3);
    }

    #[test]
    fn a_number_that_json_does_not_have_is_an_error_that_names_the_control() {
        let text = |result: io::Result<Input<f64>>| result.unwrap_err().to_string();
        assert_eq!(text(float_box("x", f64::NAN)), r#"the control "x" cannot hold NaN; give a finite number"#);
        assert_eq!(
            text(float_slider("x", 0.0..=f64::INFINITY, 1.0)),
            r#"the control "x" cannot hold inf; give a finite number"#
        );
        assert!(text(float_slider("x", 0.0..=1.0, f64::NAN)).ends_with("its value is NaN"));
        let mut number = float_box("x", 1.0).unwrap();
        assert!(number.set(f64::NEG_INFINITY).is_err());
        assert_eq!(number.value().unwrap(), 1.0);
    }

    #[test]
    fn the_step_of_a_slider_is_a_positive_number() {
        for range in [0.0..=1.0, 2.0..=2.0, f64::MIN..=f64::MAX] {
            let slider = float_slider("x", range.clone(), *range.start()).unwrap();
            let step = slider.widget.get("step").unwrap().as_f64();
            assert!(step.is_some_and(|step| step > 0.0), "{range:?}: {step:?}");
        }
    }

    #[test]
    fn values_of_another_type_are_none() {
        assert_eq!(i64::of(&json!(1.5)), None);
        assert_eq!(f64::of(&json!(1)), Some(1.0));
        assert_eq!(bool::of(&json!(null)), None);
        assert_eq!(String::of(&json!("a")), Some("a".to_owned()));
    }
}
