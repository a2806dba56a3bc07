//! Hashes of an objective's source. A hash shows whether a study's trials ran the same code, and names the project of a cell
//! without a project. Comments, spaces, documentation and most attributes do not change the hash.
//!
//! An item of the notebook is part of the hash if the objective names it, or if another item in the hash names it. Names are
//! looked up without scopes: two items with the same name are both part of the hash. So the hash may change without need, but
//! always changes with the code. The values of captured variables and the versions of crates are not part of the hash.

use crate::compile::Text;
use ferrotune_space::spec::StudySpec;
use proc_macro2::TokenStream;
use quote::ToTokens;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use syn::{Item, UseTree};

/// The number of the hash's digits in the name of a cell's own project.
const NAME_DIGITS: usize = 8;

/// The hash of an objective and of the notebook's items that the objective uses, as 64 hexadecimal digits. `items` is the source
/// of all items.
///
/// # Errors
/// The parser's error if the objective or the items are not Rust.
pub(super) fn hash(objective: &str, items: &str) -> syn::Result<String> {
    let body = text(objective.parse()?);
    let mut by_name: BTreeMap<String, Vec<Text>> = BTreeMap::new();
    for item in &syn::parse_file(items)?.items {
        let text = text(item.to_token_stream());
        for name in names(item, &text) {
            by_name.entry(name).or_default().push(text.clone());
        }
    }
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut texts: BTreeSet<&str> = BTreeSet::new();
    let mut pending: Vec<&str> = body.names.iter().map(String::as_str).collect();
    while let Some(name) = pending.pop() {
        if reached.insert(name) {
            for text in by_name.get(name).into_iter().flatten() {
                texts.insert(&text.text);
                pending.extend(text.names.iter().map(String::as_str));
            }
        }
    }
    Ok(hex([body.text.as_str()].into_iter().chain(texts)))
}

/// The name of the project for a cell that names no project. It depends on the objective, the metrics, the oracle and every other
/// setting that decides which trials are made. It does not depend on the number, the duration and the place of the trials.
///
/// # Errors
/// The lexer's error if the objective does not consist of Rust tokens.
pub(super) fn project(objective: &str, spec: &StudySpec) -> syn::Result<String> {
    // Names of before there could be several studies stay.
    let from = match spec.from.as_slice() {
        [] => json!(null),
        [one] => json!(one),
        several => json!(several),
    };
    let searched = json!([
        spec.objectives,
        spec.constraints,
        spec.oracle,
        spec.pruner,
        spec.executions,
        spec.seed,
        from,
        spec.given.fixed,
        spec.given.tune_only,
    ]);
    let hash = hex([text(objective.parse()?).text.as_str(), &searched.to_string()]);
    Ok(format!("untitled_{}", &hash[..NAME_DIGITS]))
}

fn text(tokens: TokenStream) -> Text {
    Text::of(tokens, &Default::default())
}

/// The names by which an item is used.
fn names(item: &Item, text: &Text) -> BTreeSet<String> {
    let one = |name: &syn::Ident| BTreeSet::from([name.to_string()]);
    match item {
        Item::Const(item) if item.ident != "_" => one(&item.ident),
        Item::Enum(item) => one(&item.ident),
        Item::ExternCrate(item) => one(item.rename.as_ref().map_or(&item.ident, |(_, name)| name)),
        Item::Fn(item) => one(&item.sig.ident),
        Item::Mod(item) => one(&item.ident),
        Item::Static(item) => one(&item.ident),
        Item::Struct(item) => one(&item.ident),
        Item::Trait(item) => one(&item.ident),
        Item::TraitAlias(item) => one(&item.ident),
        Item::Type(item) => one(&item.ident),
        Item::Union(item) => one(&item.ident),
        Item::Macro(item) if item.ident.is_some() => item.ident.iter().map(ToString::to_string).collect(),
        Item::Impl(item) => {
            let of = item.trait_.as_ref().map(|(path, _)| path.to_token_stream()).unwrap_or_default();
            self::text(of.into_iter().chain(item.self_ty.to_token_stream()).collect()).names
        }
        Item::Use(item) => imported(&item.tree),
        // A macro call or an item without a name may define any of the names in it.
        _ => text.names.clone(),
    }
}

/// The names that an import brings into scope.
fn imported(tree: &UseTree) -> BTreeSet<String> {
    match tree {
        UseTree::Path(path) => imported(&path.tree),
        UseTree::Name(leaf) => BTreeSet::from([leaf.ident.to_string()]),
        UseTree::Rename(leaf) => BTreeSet::from([leaf.rename.to_string()]),
        UseTree::Group(group) => group.items.iter().flat_map(imported).collect(),
        UseTree::Glob(_) => BTreeSet::new(),
    }
}

fn hex<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let hash = texts.into_iter().fold(Sha256::new(), |hash, text| hash.chain_update(text).chain_update([0]));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_space::objective::{Direction, Objective};

    const OBJECTIVE: &str = "|trial| { let x: f64 = trial.float(\"x\", 0.0..=1.0).get()?; Ok(loss(&Model { x })) }";
    const ITEMS: &str = "use std::f64::consts::PI;
        struct Model { x: f64 }
        impl Model { fn forward(&self) -> f64 { self.x * PI } }
        impl Clone for Model { fn clone(&self) -> Self { Model { x: self.x } } }
        fn loss(model: &Model) -> f64 { model.forward() }
        fn other() -> u8 { 7 }";

    #[test]
    fn an_item_counts_if_the_objective_reaches_it() {
        let known = hash(OBJECTIVE, ITEMS).unwrap();
        for (from, to) in [
            ("consts::PI", "consts::TAU as PI"),
            ("struct Model { x: f64 }", "struct Model { x: f64, y: f64 }"),
            ("self.x * PI", "self.x + PI"),
            ("Model { x: self.x }", "Model { x: 0. }"),
            ("model.forward()", "model.forward() + 1."),
        ] {
            let changed = ITEMS.replace(from, to);
            assert_ne!(changed, ITEMS);
            assert_ne!(hash(OBJECTIVE, &changed).unwrap(), known, "{from}");
        }
        assert_ne!(hash(&OBJECTIVE.replace("1.0", "2.0"), ITEMS).unwrap(), known);
        assert_eq!(hash(OBJECTIVE, &ITEMS.replace('7', "8")).unwrap(), known);
    }

    #[test]
    fn comments_and_spaces_do_not_count() {
        let known = hash(OBJECTIVE, ITEMS).unwrap();
        let objective = OBJECTIVE.replace("|trial| {", "|trial| {\n    // The rate.\n");
        let items = ITEMS.replace("fn loss", "/// What is minimised.\n/* really */ pub fn loss");
        assert_eq!(hash(&objective, &items).unwrap(), known);
    }

    #[test]
    fn a_project_is_named_by_what_is_searched_and_not_by_how_long() {
        let spec = StudySpec::new("", vec![Objective::new("loss", Direction::Min)]);
        let name = project(OBJECTIVE, &spec).unwrap();
        assert!(name.starts_with("untitled_") && name.len() == 17, "{name}");
        let longer = StudySpec { max_trials: 100, memory_budget_bytes: Some(1 << 30), ..spec.clone() };
        assert_eq!(project(&format!(" {OBJECTIVE}"), &longer).unwrap(), name);
        assert_ne!(project(&OBJECTIVE.replace('1', "2"), &spec).unwrap(), name);
        assert_ne!(project(OBJECTIVE, &StudySpec { oracle: "tpe".into(), ..spec }).unwrap(), name);
    }
}
