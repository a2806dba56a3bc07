//! What the types of variables rest on: the notebook's own definitions, found in a cell's source from the name of a type.
//!
//! All cells are crates of one name, so the compiler takes a type of an earlier cell for the same one as long as its
//! name and its fields' names are the same. A fingerprint of everything that its layout and its tables of methods
//! follow from tells them apart. Names are looked up without regard to scopes: of two definitions with one name both
//! count, which may drop a variable too many and never one too few.
//!
//! What is hidden behind `dyn Any` and taken out by `downcast` later is beyond what the name of a type says.

mod tokens;

use quote::ToTokens;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use syn::{
    ImplItem, Item, ItemConst, ItemEnum, ItemImpl, ItemMod, ItemStatic, ItemStruct, ItemTrait, ItemTraitAlias,
    ItemType, ItemUnion, ItemUse, TraitItem, UseTree,
};
use tokens::{Imported, Text};

/// Types that are in scope without a path, and so not from a glob import.
const STANDARD_PRELUDE: [&str; 5] = ["Box", "Option", "Result", "String", "Vec"];

type Texts = HashMap<String, Vec<Text>>;

/// The definitions of a cell's source, those of earlier cells included.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    by_name: Texts,
    /// Paths that `use` gives a name.
    imports: Texts,
    /// Crates of the user's from which everything is imported.
    globs: Vec<String>,
}

impl Definitions {
    /// Reads a cell's source; `libraries` are the crates that the user has added, and their files.
    ///
    /// # Errors
    /// The parser's.
    pub(super) fn parse(source: &str, libraries: &[(String, PathBuf)]) -> syn::Result<Self> {
        let file = syn::parse_file(source)?;
        let mut definitions = Self::default();
        for (name, file) in libraries {
            definitions.add(name, Text { text: identity(file), names: BTreeSet::new() });
        }
        definitions.import(&file.items);
        let imported = definitions.imports.keys().cloned().collect();
        definitions.define(&file.items, &imported);
        definitions.define_impls(&file.items, &imported);
        Ok(definitions)
    }

    /// A number that changes with anything that a type rests on; `None` where nothing of that is the notebook's own.
    ///
    /// # Errors
    /// The lexer's, where the name is none.
    pub(super) fn fingerprint(&self, type_name: &str) -> syn::Result<Option<u64>> {
        let written = Text::of(type_name.parse()?, &Imported::new());
        // How the type itself is imported is no part of it: its path is, which the compiler compares.
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

    /// All names that can be reached from some by going from one to those in its texts.
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

    /// Whether nothing says where a name is from: a glob import, or a macro that has defined it.
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
                // So far only crates have been added.
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
                        // It may define any of the names in it.
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

    /// What a table of methods follows from: their signatures. A constant's default counts where it is named.
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

    /// After all else has been defined, for an `impl` may come before its type.
    fn define_impls(&mut self, items: &[Item], imported: &Imported) {
        for item in items {
            match item {
                Item::Impl(item) => self.define_impl(item, imported),
                Item::Mod(module) => self.define_impls(items_of(module), imported),
                _ => {}
            }
        }
    }

    /// Associated types decide about the layout of what is generic over the type; constants and `const fn` about that
    /// of arrays, where they are named. Other functions about nothing.
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

    /// Whose an `impl` is: the notebook's own types that it is for, or else its own trait and that one's arguments.
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

/// Tells one build of a crate from another: its file's name has the version in it, and a crate on this machine may be
/// changed without a new one.
fn identity(library: &Path) -> String {
    let modified = std::fs::metadata(library).and_then(|metadata| metadata.modified());
    let built = modified.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    format!("{} {}", library.display(), built.as_nanos())
}

#[cfg(test)]
mod tests;
