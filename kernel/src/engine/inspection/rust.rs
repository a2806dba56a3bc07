//! Completions and documentation of Rust at the cursor, from rust-analyzer. Private names and Ferrotune's own names are left out, and
//! the most useful completions come first. Never waits for a running cell.

use super::hover;
use crate::execution::{Completion, Completions};
use anyhow::{Result, anyhow};
use evcxr::{AnalysedCode, ContextState, SharedAnalyzer};
use ferrotune_display::Bundle;
use ra_ap_hir::PrefixKind;
use ra_ap_ide::{
    Analysis, CompletionConfig, CompletionFieldsToResolve, CompletionItem, CompletionItemKind, FileId, FilePosition,
    FileRange, HoverConfig, HoverDocFormat, RaFixtureConfig, SubstTyLen, SymbolKind, TextRange, TextSize,
};
use ra_ap_ide_db::imports::insert_use::{ImportGranularity, InsertUseConfig};
use serde_json::{Map, Value};
use std::collections::HashSet;

/// The trait by which cells show values. A user may define a trait of the same name.
const SHOW: &str = "Show";

/// A trait that the first cell brings into scope for evcxr. evcxr does not know whether the user has also imported this trait.
const BACKEND: &str = "SimpleBackend";

/// Traits that are implemented for every type, or for every type with another trait. Their methods come last.
const BLANKET: &[&str] = &[
    "Any",
    "Borrow",
    "BorrowMut",
    "CloneToUninit",
    "From",
    "Into",
    "Receiver",
    "ToOwned",
    "ToString",
    "TryFrom",
    "TryInto",
];

/// rust-analyzer with evcxr's context and the items of the notebook.
pub(super) struct Rust {
    pub(super) analyzer: SharedAnalyzer,
    pub(super) state: ContextState,
    /// Names of the notebook's items.
    pub(super) items: HashSet<String>,
}

impl Rust {
    /// Completions for the cursor, best first.
    pub(super) fn complete(&self, source: &str, cursor: usize) -> Result<Completions> {
        let code = self.state.clone().analysed(source).map_err(|error| anyhow!("{error}"))?;
        let Some(offset) = code.offset_of(cursor) else { return Ok(Completions::none(cursor)) };
        let text = code.source();
        let items = self.analyzer.look_at(&text, |analysis, file| items(analysis, file, offset))?;
        let Some(range) = items.first().map(|item| item.source_range) else { return Ok(Completions::none(cursor)) };
        let (before, typed) = text[..offset].split_at(range.start().into());
        let is_ours = |name: &str| is_internal(name) || (!before.ends_with("::") && self.is_of_first_cell(name));
        let is_offered = |item: &CompletionItem| {
            item.source_range == range && item.lookup().starts_with(typed) && !is_ours(item.lookup())
        };
        let mut items: Vec<CompletionItem> = items.into_iter().filter(is_offered).collect();
        items
            .sort_by_cached_key(|item| (rank(item), u32::MAX - item.relevance.score(), item.label.primary.to_string()));
        let mut known = HashSet::new();
        let matches = items.iter().filter_map(completion).filter(|found| known.insert(found.text.clone())).collect();
        let in_cell = |place: TextSize| user_offset(&code, place);
        Ok(Completions { start: in_cell(range.start())?, end: in_cell(range.end())?, matches })
    }

    /// Documentation of the name at or before the cursor, as a MIME bundle; an empty bundle if there is no documentation.
    pub(super) fn inspect(&self, source: &str, cursor: usize) -> Result<Map<String, Value>> {
        let code = self.state.clone().analysed(source).map_err(|error| anyhow!("{error}"))?;
        let Some(offset) = code.offset_of(cursor) else { return Ok(Map::new()) };
        self.analyzer.look_at(&code.source(), |analysis, file| {
            let range = TextRange::empty(size(offset)?);
            let markup = |format| -> Result<Option<String>> {
                let hover = analysis.hover(&hover_config(format), FileRange { file_id: file, range });
                Ok(hover?.map(|hover| hover.info.markup.into()))
            };
            let (text, markdown) = (markup(HoverDocFormat::PlainText)?, markup(HoverDocFormat::Markdown)?);
            let Some((text, markdown)) = text.zip(markdown) else { return Ok(Map::new()) };
            let mut html = String::new();
            pulldown_cmark::html::push_html(&mut html, pulldown_cmark::Parser::new(&markdown));
            Ok(Bundle::text(hover::text(&text)).with("text/html", hover::html(&html)).data)
        })
    }

    fn is_of_first_cell(&self, name: &str) -> bool {
        name == BACKEND || (name == SHOW && !self.items.contains(SHOW))
    }
}

fn items(analysis: &Analysis, file: FileId, offset: usize) -> Result<Vec<CompletionItem>> {
    let position = FilePosition { file_id: file, offset: size(offset)? };
    Ok(analysis.completions(&completion_config(), position, None)?.unwrap_or_default())
}

fn size(offset: usize) -> Result<TextSize> {
    Ok(TextSize::from(u32::try_from(offset)?))
}

fn user_offset(code: &AnalysedCode, place: TextSize) -> Result<usize> {
    code.user_offset_of(place.into()).ok_or_else(|| anyhow!("a completion replaces generated code"))
}

/// Whether a name is an internal name that evcxr or the kernel writes into every cell.
fn is_internal(name: &str) -> bool {
    let beginnings = ["evcxr_", "Evcxr", "run_user_code_", "ferrotune_shared", "ferrotune_impl_", "vars_ok"];
    beginnings.iter().any(|internal| name.starts_with(internal))
}

/// The rank of a completion: 0 for a type's own members, 1 for members of traits, 2 for operators and members of blanket traits.
fn rank(item: &CompletionItem) -> u8 {
    let of_trait = item.label.detail_left.as_deref().and_then(|detail| detail.trim().strip_prefix("(as "));
    match of_trait.map(|name| name.trim_end_matches(')')) {
        _ if item.relevance.trait_.is_some_and(|info| info.is_op_method) => 2,
        Some(name) if BLANKET.contains(&name) => 2,
        Some(_) => 1,
        None if item.relevance.trait_.is_some() => 1,
        None => 0,
    }
}

/// A completion that changes only the text at the cursor; none for an item that also changes other places.
fn completion(item: &CompletionItem) -> Option<Completion> {
    let mut edits = item.text_edit.iter();
    let edit = edits.next().filter(|edit| edit.delete == item.source_range)?;
    if edits.next().is_some() {
        return None;
    }
    let signature = item.detail.clone().unwrap_or_default();
    Some(Completion { text: edit.insert.clone(), kind: kind(item.kind).to_owned(), signature })
}

/// Jupyter's word for a kind of item.
fn kind(kind: CompletionItemKind) -> &'static str {
    use SymbolKind as Symbol;
    let CompletionItemKind::SymbolKind(symbol) = kind else {
        return if kind == CompletionItemKind::Keyword { "keyword" } else { "instance" };
    };
    match symbol {
        Symbol::Function | Symbol::Method | Symbol::Macro | Symbol::ProcMacro | Symbol::Derive | Symbol::Attribute => {
            "function"
        }
        Symbol::Struct
        | Symbol::Enum
        | Symbol::Union
        | Symbol::Trait
        | Symbol::TypeAlias
        | Symbol::TypeParam
        | Symbol::SelfType => "class",
        Symbol::Module | Symbol::CrateRoot | Symbol::ToolModule => "module",
        _ => "instance",
    }
}

/// The configuration of completions: names only, without arguments, snippets and imports.
fn completion_config() -> CompletionConfig<'static> {
    CompletionConfig {
        enable_postfix_completions: false,
        enable_imports_on_the_fly: false,
        enable_self_on_the_fly: true,
        enable_auto_iter: false,
        enable_auto_await: false,
        enable_private_editable: false,
        enable_term_search: false,
        term_search_fuel: 0,
        full_function_signatures: true,
        callable: None,
        add_colons_to_module: false,
        add_semicolon_to_unit: false,
        snippet_cap: None,
        insert_use: InsertUseConfig {
            granularity: ImportGranularity::Item,
            enforce_granularity: false,
            prefix_kind: PrefixKind::ByCrate,
            group: false,
            skip_glob_imports: false,
        },
        prefer_no_std: false,
        prefer_prelude: true,
        prefer_absolute: false,
        snippets: Vec::new(),
        limit: None,
        fields_to_resolve: CompletionFieldsToResolve::empty(),
        exclude_flyimport: Vec::new(),
        exclude_traits: &[],
        ra_fixture: RaFixtureConfig::default(),
    }
}

fn hover_config(format: HoverDocFormat) -> HoverConfig<'static> {
    HoverConfig {
        links_in_hover: true,
        memory_layout: None,
        documentation: true,
        keywords: true,
        format,
        max_trait_assoc_items_count: None,
        max_fields_count: Some(5),
        max_enum_variants_count: Some(5),
        max_subst_ty_len: SubstTyLen::Unlimited,
        show_drop_glue: false,
        ra_fixture: RaFixtureConfig::default(),
    }
}
