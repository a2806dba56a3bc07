//! Widgets of ipywidgets 8: sliders, boxes, buttons and bars whose state a cell reads and sets.
//!
//! The kernel keeps the state. So a cell reads the user's last value, even if no cell ran at that time, and neither a crash nor
//! `%undo` nor `%restore` changes a widget. A front end without widgets shows the widget's present value as
//! HTML or text. Without a front end, as in a trial or a plain program, a widget has the value that the program sets.

/// The methods of all controls. Each control has a field `widget`, and is [`Show`].
macro_rules! control {
    () => {
        /// Shows the control. The same control may be shown in several places.
        pub fn show(&self) -> $crate::show::Handle {
            $crate::show::show($crate::Show::bundle(self))
        }

        /// Removes the control from the front end.
        ///
        /// # Errors
        /// If the control is closed already.
        pub fn close(&self) -> std::io::Result<()> {
            self.widget.close()
        }
    };
}

mod bar;
mod button;
mod choice;
mod held;
mod input;
pub mod model;

use crate::comm::{Comm, Message};
use crate::show::{self, Handle};
use crate::{Bundle, Show, escape};
use serde_json::{Map, Value, json};
use std::io;
use std::sync::Arc;

pub use bar::{Bar, bar};
pub use button::{Button, button};
pub use choice::{Dropdown, dropdown};
pub use input::{Input, InputValue, checkbox, float_box, float_slider, int_box, int_slider, text_box};

/// A widget of any model of ipywidgets, for models without their own function here.
///
/// ```no_run
/// use ferrotune_display::{comm::json, widget::Widget};
/// let colour = Widget::open("ColorPicker", "DescriptionStyle", json!({"value": "teal"}))?;
/// colour.show();
/// println!("{}", colour.get("value")?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Widget {
    /// The comms of the widget, or `None` if there is no kernel.
    comms: Option<Arc<Comms>>,
    /// The state that the cell has set, which applies if there is no kernel.
    own: Map<String, Value>,
}

/// The comms of a widget. All handles of the widget share them, and the widget is held as long as a handle lives.
#[derive(Debug)]
struct Comms {
    model: Comm,
    layout: Comm,
    style: Comm,
}

impl Widget {
    /// Opens a widget with a model of `@jupyter-widgets/controls`, such as `IntSlider`, with the model of its style, such as
    /// `SliderStyle`, and with a state. Missing values of the state have ipywidgets' defaults. The view is that of ipywidgets unless the
    /// state has another `_view_name`.
    ///
    /// # Errors
    /// If the state is not an object, or the kernel cannot be reached.
    pub fn open(model: &str, style: &str, state: Value) -> io::Result<Self> {
        let Value::Object(own) = state else {
            return Err(invalid(format!("the state of a {model} is not an object with values")));
        };
        let comms = match Comms::open(model, style, &own) {
            Ok(comms) => Some(Arc::new(comms)),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => None,
            Err(error) => return Err(error),
        };
        Ok(Self { comms, own })
    }

    /// A value of the state; null if neither the cell nor the front end has set it.
    ///
    /// # Errors
    /// If the widget is closed, or the kernel cannot be reached.
    pub fn get(&self, name: &str) -> io::Result<Value> {
        let value = match &self.comms {
            Some(comms) => comms.model.state()?.remove(name),
            None => self.own.get(name).cloned(),
        };
        Ok(value.unwrap_or_default())
    }

    /// Sets a value of the state, here and in the front end. Front ends drop messages beyond some hundred a second.
    ///
    /// # Errors
    /// The errors of [`Widget::get`].
    pub fn set(&mut self, name: &str, value: impl Into<Value>) -> io::Result<()> {
        let value = value.into();
        if let Some(comms) = &self.comms {
            let state = json!({name: value});
            comms.model.send(json!({"method": "update", "state": state, "buffer_paths": []}))?;
        }
        self.own.insert(name.to_owned(), value);
        Ok(())
    }

    /// Sends the widget's view a custom message.
    ///
    /// # Errors
    /// The errors of [`Widget::get`].
    pub fn send(&self, content: impl Into<Value>) -> io::Result<()> {
        let Some(comms) = &self.comms else { return Ok(()) };
        comms.model.send(json!({"method": "custom", "content": content.into()}))
    }

    /// The custom messages that have arrived since the last call. Does not wait.
    ///
    /// # Errors
    /// The errors of [`Widget::get`].
    pub fn receive(&self) -> io::Result<Vec<Message>> {
        self.comms.as_ref().map_or_else(|| Ok(Vec::new()), |comms| comms.model.receive())
    }

    /// Removes the widget from the front end.
    ///
    /// # Errors
    /// The errors of [`Widget::get`].
    pub fn close(&self) -> io::Result<()> {
        let Some(comms) = &self.comms else { return Ok(()) };
        // All three comms are closed, even if one of them is closed already.
        let closed = [&comms.model, &comms.layout, &comms.style].map(Comm::close);
        closed.into_iter().collect()
    }

    /// Shows the widget. The same widget may be shown in several places.
    pub fn show(&self) -> Handle {
        show::show(Show::bundle(self))
    }

    /// The fallback, with the widget for front ends that have widgets.
    fn bundle_or(&self, fallback: Bundle) -> Bundle {
        match &self.comms {
            Some(comms) => model::view(comms.model.id(), fallback),
            None => fallback,
        }
    }
}

impl Show for Widget {
    fn bundle(&self) -> Bundle {
        self.bundle_or(Bundle::text("a widget, which this front end does not show"))
    }
}

impl Comms {
    fn open(model: &str, style: &str, own: &Map<String, Value>) -> io::Result<Self> {
        let label = own.get("description").and_then(Value::as_str).unwrap_or_default();
        let layout = open(&model::layout_of(model, label))?;
        let style = open(&model::style(style))?;
        let control = model::control(model, layout.id(), style.id(), own);
        let comms = Self { model: open(&control)?, layout, style };
        held::add(comms.ids());
        Ok(comms)
    }

    fn ids(&self) -> [&str; 3] {
        [&self.layout, &self.style, &self.model].map(Comm::id)
    }
}

impl Drop for Comms {
    fn drop(&mut self) {
        held::remove(self.ids());
    }
}

/// Sends the values of bars that were not sent yet, and reports which widgets the variables still hold. The prelude calls this at the
/// end of each cell.
///
/// # Errors
/// The error of the first bar that failed; the other bars are sent nevertheless.
pub fn send_late() -> io::Result<()> {
    let sent = bar::send_late();
    held::report();
    sent
}

fn open(state: &Map<String, Value>) -> io::Result<Comm> {
    let metadata = Map::from_iter([("version".to_owned(), json!(model::PROTOCOL))]);
    Comm::open(model::TARGET, Message { data: model::opening(state), metadata, buffers: Vec::new() })
}

/// The display of a control in a front end without widgets: its label and its value.
fn fallback(label: &str, value: &str) -> Bundle {
    let text = format!("{label}: {value} (a widget, which this front end does not show)");
    let html = format!("<div>{}: <b>{}</b></div>", escape::html(label), escape::html(value));
    Bundle::text(text).with("text/html", html)
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
