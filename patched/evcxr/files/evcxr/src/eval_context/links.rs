//! What later cells link to, and what is another type than one of an earlier cell.

use super::ContextState;
use crate::code_block::CodeBlock;
use crate::functions::Home;
use crate::versions;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::slice;

impl ContextState {
    /// The items of the cell that is compiled now.
    pub(super) fn compiled_items_code(&self) -> CodeBlock {
        self.code_of_items(|name, item| match (self.homes.get(name), self.types.get(name)) {
            (Some(home), _) => home.with_both_forms(item),
            (None, Some(Some(version))) => versions::in_module(&item, name, *version).unwrap_or(item),
            (None, _) => item,
        })
    }

    /// Makes the cell that is compiled now the home of large functions that it may call. A change of any item takes all homes away,
    /// since it may change what a name in a function means.
    pub(super) fn link_functions(&mut self, before: &ContextState, user_code: &CodeBlock) {
        fn texts(blocks: &[CodeBlock]) -> impl Iterator<Item = &str> {
            blocks.iter().flat_map(|block| &block.segments).map(|segment| segment.code.as_str())
        }
        let is_same = |new: &CodeBlock, old: &CodeBlock| texts(slice::from_ref(new)).eq(texts(slice::from_ref(old)));
        let has = |name: &String, old: &CodeBlock| self.items_by_name.get(name).is_some_and(|new| is_same(new, old));
        let is_as_before = self.items_by_name.len() == before.items_by_name.len()
            && before.items_by_name.iter().all(|(name, old)| has(name, old))
            && texts(&self.unnamed_items).eq(texts(&before.unnamed_items))
            && self.attributes.len() == before.attributes.len()
            && self.extern_crate_stmts == before.extern_crate_stmts
            && self.external_deps == before.compiled_deps;
        if !is_as_before {
            self.homes.clear();
        }
        let code = user_code.code_string();
        // The library of a cell that exports functions itself may be loaded alone, and then defines all statics itself.
        if code.contains("no_mangle") {
            return;
        }
        for name in self.words_reached_from(&code) {
            if !self.homes.contains_key(&name)
                && let Some(item) = self.items_by_name.get(&name).and_then(|block| block.segments.first())
                && let Some(home) = Home::new(&item.code, self.build_num)
            {
                self.homes.insert(name, home);
            }
        }
    }

    /// Puts each type that this cell defines anew, or that has such a type in it, into a module of its own. The compiler knows a type
    /// by its path: with the same path, `Any` would take a value of the old type for one of the new type.
    pub(super) fn tell_types_apart(&mut self, before: &ContextState) {
        let changed = self.changed_names(before);
        // A new type is among them.
        if changed.is_empty() {
            return;
        }
        let is_type = |block: &CodeBlock| block.segments.first().is_some_and(|segment| versions::is_type(&segment.code));
        let types = self.items_by_name.iter().filter(|(_, block)| is_type(block)).map(|(name, _)| name.clone());
        for name in types.collect::<Vec<_>>() {
            let is_another = self.reaches(BTreeSet::from([name.clone()]), &changed);
            let version = is_another.then_some(self.build_num);
            self.types.entry(name).and_modify(|old| *old = version.or(*old)).or_insert(None);
        }
    }

    /// Whether a type is another one since the cell that is compiled now.
    pub(super) fn has_types_anew(&self) -> bool {
        self.types.values().any(|version| *version == Some(self.build_num))
    }

    /// The types, with those of the cell that is compiled now outside of any module.
    pub(super) fn types_without_modules(&self) -> HashMap<String, Option<i32>> {
        let without = |version: &Option<i32>| version.filter(|version| *version != self.build_num);
        self.types.iter().map(|(name, version)| (name.clone(), without(version))).collect()
    }
}
