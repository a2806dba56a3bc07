//! The cell magics that show the cell's text as HTML, LaTeX or Markdown.

use crate::action::Action;
use crate::arguments::Arguments;
use crate::error::MagicError;
use crate::magic::{Invocation, Magic};

pub(super) const HTML: Magic = Magic {
    forms: &["%%html"],
    usage: "%%html on the first line of a cell, and HTML below",
    summary: "show the cell as HTML",
    help: "Example\n  %%html\n  <b>accuracy</b> 0.97",
    arguments: &[],
    options: &[],
    runs_line: false,
    build: html,
};

pub(super) const LATEX: Magic = Magic {
    forms: &["%%latex"],
    usage: "%%latex on the first line of a cell, and LaTeX below",
    summary: "show the cell as LaTeX",
    help: "Front ends draw formulas, which stand between dollar signs or in an environment.\n\
           \n\
           Example\n  %%latex\n  $e^{i\\pi} = -1$",
    arguments: &[],
    options: &[],
    runs_line: false,
    build: latex,
};

pub(super) const MARKDOWN: Magic = Magic {
    forms: &["%%markdown"],
    usage: "%%markdown on the first line of a cell, and Markdown below",
    summary: "show the cell as Markdown",
    help: "Example\n  %%markdown\n  The **best** trial has an accuracy of 0.97.",
    arguments: &[],
    options: &[],
    runs_line: false,
    build: markdown,
};

fn html(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    shown(invocation, "text/html")
}

fn latex(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    shown(invocation, "text/latex")
}

fn markdown(invocation: &Invocation<'_>) -> Result<Action, MagicError> {
    shown(invocation, "text/markdown")
}

fn shown(invocation: &Invocation<'_>, mime_type: &'static str) -> Result<Action, MagicError> {
    Arguments::read(invocation)?;
    Ok(Action::Show { mime_type, text: invocation.body.unwrap_or_default().to_owned() })
}
