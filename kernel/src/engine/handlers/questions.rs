//! `name?`, `name??` and `%doc`, which show the documentation of a name, or the source of an item of the notebook.

use crate::engine::Engine;
use crate::failure::Failure;
use anyhow::{Context, Result};
use ferrotune_display::Bundle;
use ferrotune_magics::{Inspect, InspectStyle};
use serde_json::Map;
use syn::spanned::Spanned;
use syn::{Item, Type};

impl Engine {
    /// Carries out `name?` and `name??`.
    pub(in crate::engine) fn answer(&mut self, Inspect { name, style, rust }: &Inspect) -> Result<(), Failure> {
        if let Some(rust) = rust.as_ref().filter(|_| self.is_fallible(name)) {
            return self.run_user_code(rust, 1).map(drop);
        }
        let source = source_of(name, &self.evaluator.last_source()).filter(|_| *style == InspectStyle::Source);
        let bundle = match source {
            Some(source) => Ok(Bundle::text(source.as_str()).with("text/markdown", format!("```rust\n{source}\n```"))),
            None => self.documentation(name),
        };
        self.page(bundle)
    }

    /// Carries out `%doc`.
    pub(in crate::engine) fn document(&mut self, name: &str) -> Result<(), Failure> {
        let documentation = self.documentation(name);
        self.show_result(documentation)
    }

    fn documentation(&mut self, name: &str) -> Result<Bundle> {
        let data = Some(self.knowledge().inspect(name, name.len())?).filter(|data| !data.is_empty());
        let data = data.with_context(|| format!("nothing is known of {name}; write its path, as in std::mem::swap"))?;
        Ok(Bundle { data, metadata: Map::new() })
    }

    /// Whether `name?` is Rust, because the name is a variable that holds a `Result`. In a cell, `?` does not accept an `Option`.
    fn is_fallible(&self, name: &str) -> bool {
        self.evaluator.variables().iter().any(|variable| {
            let outer = variable.type_name.split('<').next().unwrap_or_default().trim();
            variable.name == name && outer.rsplit("::").next() == Some("Result")
        })
    }
}

/// The source of the item with a name, followed by the source of its `impl`s.
fn source_of(name: &str, generated: &str) -> Option<String> {
    let name = name.trim_end_matches('!');
    let file = syn::parse_file(generated).ok()?;
    let (item, implementations) = (
        file.items.iter().find(|item| name_of(item).is_some_and(|own| own == name))?,
        file.items.iter().filter(|item| is_implementation(item, name)),
    );
    let lines: Vec<&str> = generated.lines().collect();
    let text = |item: &Item| {
        let span = item.span();
        Some(lines.get(span.start().line.checked_sub(1)?..span.end().line)?.join("\n"))
    };
    let texts: Option<Vec<String>> = std::iter::once(item).chain(implementations).map(text).collect();
    texts.map(|texts| texts.join("\n\n"))
}

fn name_of(item: &Item) -> Option<&syn::Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Mod(item) => Some(&item.ident),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

fn is_implementation(item: &Item, name: &str) -> bool {
    let Item::Impl(item) = item else { return false };
    let Type::Path(path) = &*item.self_ty else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_an_item_has_its_comments_and_its_implementations() {
        let generated =
            "/// A till.\nstruct Till { sum: u64 }\nfn open() {\n    1;\n}\nimpl Till {\n    fn add(&mut self) {}\n}\n";
        let till = "/// A till.\nstruct Till { sum: u64 }\n\nimpl Till {\n    fn add(&mut self) {}\n}";
        assert_eq!(source_of("Till", generated).as_deref(), Some(till));
        assert_eq!(source_of("open", generated).as_deref(), Some("fn open() {\n    1;\n}"));
        assert_eq!(source_of("add", generated), None);
    }
}
