//! Fingerprints of types: a hash of all the notebook's definitions on which the layout and the vtables of a variable's type
//! depend. The definitions are found in a cell's source, from the name of the type.
//!
//! All cells are crates of one name, so the compiler takes a redefined type for the old one if the names of the type and of
//! its fields are the same. The fingerprint distinguishes them. Names are looked up without scopes: of two definitions with
//! the same name both count, which may drop a variable without need, but never keeps a variable wrongly.
//!
//! A type behind `dyn Any` is not covered, since the variable's type does not name it. evcxr gives a redefined type another path.

mod tokens;

use super::dependencies::Extern;
use quote::ToTokens;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap, HashSet};
use syn::{
    ImplItem, Item, ItemConst, ItemEnum, ItemImpl, ItemMod, ItemStatic, ItemStruct, ItemTrait, ItemTraitAlias,
    ItemType, ItemUnion, ItemUse, TraitItem, UseTree,
};
use tokens::Imported;
pub(crate) use tokens::Text;

/// Types of Rust's own prelude, whose names are known without an import.
const STANDARD_PRELUDE: [&str; 5] = ["Box", "Option", "Result", "String", "Vec"];

type Texts = HashMap<String, Vec<Text>>;

/// The definitions of a cell's source, those of earlier cells included.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    by_name: Texts,
    /// The paths of `use` items, by the names that they give.
    imports: Texts,
    /// The user's crates from which a glob import takes all names.
    globs: Vec<String>,
}

impl Definitions {
    /// Reads a cell's source; `externs` are the crates that the user has added.
    ///
    /// # Errors
    /// The source cannot be parsed.
    pub(super) fn parse(source: &str, externs: &[Extern]) -> syn::Result<Self> {
        let file = syn::parse_file(source)?;
        let mut definitions = Self::default();
        for Extern { name, build, .. } in externs {
            definitions.add(name, Text { text: build.clone(), names: BTreeSet::new() });
        }
        definitions.import(&file.items);
        let imported = definitions.imports.keys().cloned().collect();
        definitions.define(&file.items, &imported);
        definitions.define_impls(&file.items, &imported);
        Ok(definitions)
    }

    /// A number that changes with every definition on which a type depends; `None` if the type depends on none of the notebook's
    /// definitions.
    ///
    /// # Errors
    /// The name is not made of Rust tokens.
    pub(super) fn fingerprint(&self, type_name: &str) -> syn::Result<Option<u64>> {
        let written = Text::of(type_name.parse()?, &Imported::new());
        // The imports of the type's own name do not count: the compiler compares its path.
        let roots = self.reach(&written.names, &[&self.imports]);
        let defined = roots.iter().filter_map(|root| self.by_name.get(*root)).flatten();
        let reached = self.reach(defined.flat_map(|text| &text.names), &[&self.imports, &self.by_name]);
        let definitions = roots.union(&reached).filter_map(|name| self.by_name.get(*name));
        let imports = reached.iter().filter_map(|name| self.imports.get(*name));
        let texts: BTreeSet<&str> = definitions.chain(imports).flatten().map(|text| text.text.as_str()).collect();
        if texts.is_empty() {
            return Ok(None);
        }
        let hash = texts.iter().fold(Sha256::new(), |hash, text| hash.chain_update(text).chain_update([0]));
        Ok(hash.finalize().first_chunk().map(|bytes| u64::from_le_bytes(*bytes)))
    }

    /// All names that can be reached from some names, directly or through the texts of other names.
    fn reach<'a>(&'a self, from: impl IntoIterator<Item = &'a String>, steps: &[&'a Texts]) -> HashSet<&'a str> {
        let mut reached = HashSet::new();
        let mut pending: Vec<&str> = from.into_iter().map(String::as_str).collect();
        while let Some(name) = pending.pop() {
            if !reached.insert(name) {
                continue;
            }
            let texts = steps.iter().filter_map(|texts| texts.get(name)).flatten();
            pending.extend(texts.flat_map(|text| &text.names).map(String::as_str));
            if self.is_unexplained(name) {
                pending.extend(self.globs.iter().map(String::as_str));
            }
        }
        reached
    }

    /// Whether the origin of a name is unknown: a glob import or a macro may define it.
    fn is_unexplained(&self, name: &str) -> bool {
        let is_known = self.by_name.contains_key(name) || self.imports.contains_key(name);
        name.starts_with(char::is_uppercase) && !is_known && !STANDARD_PRELUDE.contains(&name)
    }

    fn import(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Use(item) => self.import_path(item),
                Item::ExternCrate(item) => {
                    let name = item.rename.as_ref().map_or(&item.ident, |(_, name)| name);
                    self.add_import(&name.to_string(), vec![item.ident.to_string()]);
                }
                Item::Mod(module) => self.import(items_of(module)),
                _ => {}
            }
        }
    }

    fn import_path(&mut self, item: &ItemUse) {
        let mut pending = vec![(Vec::new(), &item.tree)];
        while let Some((mut path, tree)) = pending.pop() {
            match tree {
                UseTree::Path(step) => {
                    path.push(step.ident.to_string());
                    pending.push((path, &step.tree));
                }
                UseTree::Group(group) => pending.extend(group.items.iter().map(|tree| (path.clone(), tree))),
                // At this point `by_name` holds the crates only.
                UseTree::Glob(_) => {
                    self.globs.extend(path.into_iter().next().filter(|name| self.by_name.contains_key(name)))
                }
                UseTree::Name(leaf) if leaf.ident == "self" => {
                    if let Some(name) = path.last().cloned() {
                        self.add_import(&name, path);
                    }
                }
                UseTree::Name(leaf) => {
                    path.push(leaf.ident.to_string());
                    self.add_import(&leaf.ident.to_string(), path);
                }
                UseTree::Rename(leaf) => {
                    path.push(leaf.ident.to_string());
                    self.add_import(&leaf.rename.to_string(), path);
                }
            }
        }
    }

    fn add_import(&mut self, name: &str, path: Vec<String>) {
        let text = Text { text: path.join("::"), names: path.into_iter().collect() };
        self.imports.entry(name.to_owned()).or_default().push(text);
    }

    fn define(&mut self, items: &[Item], imported: &Imported) {
        for item in items {
            match item {
                Item::Const(ItemConst { ident, .. })
                | Item::Enum(ItemEnum { ident, .. })
                | Item::Static(ItemStatic { ident, .. })
                | Item::Struct(ItemStruct { ident, .. })
                | Item::TraitAlias(ItemTraitAlias { ident, .. })
                | Item::Type(ItemType { ident, .. })
                | Item::Union(ItemUnion { ident, .. }) => {
                    self.add(&ident.to_string(), Text::of(item.to_token_stream(), imported));
                }
                Item::Fn(function) if function.sig.constness.is_some() => {
                    self.add(&tokens::call(&function.sig.ident), Text::of(item.to_token_stream(), imported));
                }
                Item::Macro(item) => {
                    let text = Text::of(item.to_token_stream(), imported);
                    match &item.ident {
                        Some(name) => self.add(&name.to_string(), text),
                        // The macro may define any of the names in its text.
                        None => {
                            let names = text.names.iter().filter(|name| self.is_unexplained(name));
                            names.cloned().collect::<Vec<_>>().iter().for_each(|name| self.add(name, text.clone()));
                        }
                    }
                }
                Item::Mod(module) => self.define(items_of(module), imported),
                Item::Trait(item) => self.define_trait(item, imported),
                _ => {}
            }
        }
    }

    /// Adds a trait without the bodies of its methods, because a vtable depends on the signatures alone. Adds each constant of the trait
    /// under the constant's own name, too.
    fn define_trait(&mut self, item: &ItemTrait, imported: &Imported) {
        let mut signatures = item.clone();
        for item in &mut signatures.items {
            match item {
                TraitItem::Fn(function) => function.default = None,
                TraitItem::Const(constant) => {
                    self.add(&constant.ident.to_string(), Text::of(constant.to_token_stream(), imported));
                }
                _ => {}
            }
        }
        self.add(&item.ident.to_string(), Text::of(signatures.to_token_stream(), imported));
    }

    /// Adds the parts of `impl` blocks. This comes after all other definitions, since an `impl` may precede its type.
    fn define_impls(&mut self, items: &[Item], imported: &Imported) {
        for item in items {
            match item {
                Item::Impl(item) => self.define_impl(item, imported),
                Item::Mod(module) => self.define_impls(items_of(module), imported),
                _ => {}
            }
        }
    }

    /// Adds the parts of an `impl` on which layouts depend: associated types, and the constants and `const fn` of array lengths.
    fn define_impl(&mut self, item: &ItemImpl, imported: &Imported) {
        for part in &item.items {
            let text = Text::of(part.to_token_stream(), imported);
            match part {
                ImplItem::Type(_) => self.owners(item).iter().for_each(|name| self.add(name, text.clone())),
                ImplItem::Const(constant) => self.add(&constant.ident.to_string(), text),
                ImplItem::Fn(function) if function.sig.constness.is_some() => {
                    self.add(&tokens::call(&function.sig.ident), text);
                }
                _ => {}
            }
        }
    }

    /// The names to which an `impl` belongs: the notebook's types that it is for, or else its trait and the trait's arguments.
    fn owners(&self, item: &ItemImpl) -> Vec<String> {
        let parameters: Vec<_> = item.generics.type_params().map(|parameter| &parameter.ident).collect();
        let own = |tokens| {
            let mut names = Text::of(tokens, &Imported::new()).names;
            names.retain(|name| {
                let meant = self.reach([name], &[&self.imports]);
                parameters.iter().all(|parameter| *parameter != name)
                    && meant.iter().any(|name| self.by_name.contains_key(*name))
            });
            names.into_iter().collect::<Vec<_>>()
        };
        let owners = own(item.self_ty.to_token_stream());
        match &item.trait_ {
            Some((path, _)) if owners.is_empty() => own(path.to_token_stream()),
            _ => owners,
        }
    }

    fn add(&mut self, name: &str, text: Text) {
        self.by_name.entry(name.to_owned()).or_default().push(text);
    }
}

fn items_of(module: &ItemMod) -> &[Item] {
    module.content.as_ref().map_or(&[], |(_, items)| items)
}

#[cfg(test)]
mod tests;
