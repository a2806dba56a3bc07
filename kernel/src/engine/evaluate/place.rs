//! The mapping from a line of evcxr's generated source to the line of the cell. evcxr splits a cell into statements and items, and
//! inserts into some lines and moves none. It puts the items of all cells, in any order, before a function with the statements of one cell.

use crate::engine::evaluate::commands;
use ra_ap_syntax::ast::HasName as _;
use ra_ap_syntax::{AstNode, Edition, Parse, SourceFile, SyntaxNode, ast};

/// The beginning of the generated function that has the statements of a cell.
pub(in crate::engine) const STATEMENTS: &str = "pub extern \"C-unwind\" fn run_user_code_";
/// What evcxr inserts on the line of a static.
const STATIC: &str = "#[cfg(any(evcxr_cell = ";
/// What evcxr inserts before the parts of a type that is in a module.
const VISIBLE: &str = "pub(super) ";

/// The text that evcxr's splitter puts before a cell to parse the cell as a function's body.
pub(in crate::engine) const HEAD: &str = "fn f(){";

/// A prepared cell, split into statements and items as evcxr splits it.
#[derive(Debug, Default)]
pub(in crate::engine) struct SplitCell(Vec<Segment>);

/// A statement or an item of a cell.
#[derive(Debug)]
struct Segment {
    lines: Vec<String>,
    /// The line where the segment begins, counted from 1.
    line: usize,
    /// The column where the segment begins, in characters from 0.
    column: usize,
    is_item: bool,
}

/// The place in the cell that belongs to a generated line.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::engine) struct Place {
    /// The line in the cell, counted from 1.
    pub(in crate::engine) line: usize,
    /// The number of characters by which the text is further to the right in the cell than in the generated line.
    pub(in crate::engine) shift: usize,
}

impl SplitCell {
    pub(in crate::engine) fn of(cell: &str) -> Self {
        let above = length_above(cell);
        let rust = cell.get(above..).unwrap_or_default();
        let nodes = statements(rust);
        let starts: Vec<usize> = nodes.iter().map(|node| start(node).saturating_sub(HEAD.len())).collect();
        let segments = nodes.iter().enumerate().filter_map(|(at, node)| {
            // The first segment begins at the start of its line.
            let start = if at == 0 { 0 } else { starts[at] };
            let text = rust.get(start..starts.get(at + 1).copied().unwrap_or(rust.len()).min(rust.len()))?;
            let before = &cell[..above + start];
            Some(Segment {
                lines: text.trim_end().lines().map(str::to_owned).collect(),
                line: before.split('\n').count(),
                column: before.rsplit('\n').next().unwrap_or_default().chars().count(),
                is_item: ast::Item::can_cast(node.kind()) && !ast::MacroCall::can_cast(node.kind()),
            })
        });
        Self(segments.collect())
    }

    /// The place in the cell of a generated line, which is counted from 1; none if the line does not come from this cell.
    pub(in crate::engine) fn place(&self, generated: &[&str], line: usize) -> Option<Place> {
        let index = line.checked_sub(1).filter(|index| *index < generated.len())?;
        let found = self.0.iter().filter_map(|segment| Some((segment, segment.start_in(generated, index)?)));
        let found: Vec<(&Segment, usize)> = found.collect();
        if found.is_empty() {
            return None;
        }
        let statements = generated.iter().position(|line| line.starts_with(STATEMENTS)).unwrap_or(generated.len());
        let found = found.into_iter().filter(|(segment, _)| segment.is_item == (index < statements));
        // A short segment may equal a line of a long segment.
        let (segment, start) = found.max_by_key(|(segment, _)| segment.lines.len())?;
        let segment = self.same(segment, generated, start)?;
        Some(Place { line: segment.line + index - start, shift: if index == start { segment.column } else { 0 } })
    }

    /// The segment that begins at a generated line, among segments with the same text. Statements keep their order; of several items
    /// with the same text, evcxr keeps the last.
    fn same(&self, segment: &Segment, generated: &[&str], start: usize) -> Option<&Segment> {
        let later =
            generated.windows(segment.lines.len()).skip(start + 1).filter(|lines| segment.is_text(lines)).count();
        self.0.iter().rev().filter(|other| other.lines == segment.lines).nth(if segment.is_item { 0 } else { later })
    }
}

impl Segment {
    /// The index where the segment begins in the generated source, if the line at `index` is a line of the segment.
    fn start_in(&self, generated: &[&str], index: usize) -> Option<usize> {
        let starts = (index + 1).saturating_sub(self.lines.len())..=index;
        starts.rev().find(|start| {
            generated
                .get(*start..start + self.lines.len())
                .is_some_and(|lines| !lines.is_empty() && self.is_text(lines))
        })
    }

    fn is_text(&self, lines: &[&str]) -> bool {
        self.lines.iter().zip(lines).all(|(own, line)| is_line(own, line))
    }
}

/// Whether a generated line is a line of the cell. evcxr inserts both forms of a static on its line, and makes what is private in a
/// type visible outside of the type's module.
fn is_line(own: &str, generated: &str) -> bool {
    own.trim_end() == generated.trim_end()
        || generated.contains(STATIC) && generated.contains(own.trim())
        || generated.contains(VISIBLE)
            && own.replace(VISIBLE, "").trim_end() == generated.replace(VISIBLE, "").trim_end()
}

/// The first error of rust-analyzer's parser in a cell: its offset in bytes, and its message.
pub(in crate::engine) fn first_error(cell: &str) -> Option<(usize, String)> {
    let above = length_above(cell);
    let error = parse(cell.get(above..)?).errors().into_iter().next()?;
    let at = usize::from(error.range().start()).checked_sub(HEAD.len())?;
    Some(((above + at).min(cell.len()), error.to_string()))
}

/// The names of the variables that the `let` statements of a cell declare.
pub(in crate::engine) fn declared(cell: &str) -> Vec<String> {
    let statements = statements(cell.get(length_above(cell)..).unwrap_or_default());
    let patterns = statements.into_iter().filter_map(ast::LetStmt::cast).filter_map(|statement| statement.pat());
    let names = patterns.flat_map(|pattern| {
        let within = pattern.syntax().descendants().filter_map(ast::IdentPat::cast);
        within.filter_map(|name| name.name().map(|name| name.to_string())).collect::<Vec<_>>()
    });
    names.collect()
}

/// The number of bytes above the Rust of a cell.
fn length_above(cell: &str) -> usize {
    let length: usize = commands::above_rust(cell).map(|(_, line)| line.len() + 1).sum();
    length.min(cell.len())
}

/// Parses a cell's Rust, behind [`HEAD`].
pub(in crate::engine) fn parse(rust: &str) -> Parse<SourceFile> {
    SourceFile::parse(&format!("{HEAD}{rust}\n}}"), Edition::Edition2024)
}

fn statements(rust: &str) -> Vec<SyntaxNode> {
    let file = parse(rust).syntax_node();
    let body = file.children().next().and_then(ast::Fn::cast).and_then(|function| function.body());
    let list = body.and_then(|body| body.stmt_list());
    list.map(|list| list.syntax().children().collect()).unwrap_or_default()
}

fn start(node: &SyntaxNode) -> usize {
    node.text_range().start().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cell: &str, items: &str, statements: &str, line: usize) -> Option<(usize, usize)> {
        let generated = format!("{items}{STATEMENTS}1() {{\n{statements}}}\n");
        let lines: Vec<&str> = generated.lines().collect();
        SplitCell::of(cell).place(&lines, line).map(|place| (place.line, place.shift))
    }

    #[test]
    fn statements_are_found_in_their_order_and_on_shared_lines() {
        let cell = "// text\n:vars\n  boom();\nboom();\nlet a = 1; check(a);";
        let place =
            |line| place(cell, "fn earlier() {\nboom();\n}\n", "  boom();\nboom();\nlet a = 1; \ncheck(a);\n", line);
        assert_eq!([place(5), place(6), place(7), place(8)], [Some((3, 0)), Some((4, 0)), Some((5, 0)), Some((5, 11))]);
        assert_eq!([place(2), place(4), place(0), place(99)], [None; 4]);
        let twice = |line| self::place("f(x); f(x);", "", "f(x); \nf(x);\n", line);
        assert_eq!([twice(2), twice(3)], [Some((1, 0)), Some((1, 6))]);
    }

    #[test]
    fn lines_in_which_evcxr_inserts_are_found() {
        let cell = "fn f() {\n    static N: u8 = 1;\n    boom();\n}\ntrait T {\n    fn g() { boom() }\n}";
        let forms = "#[cfg(any(evcxr_cell = \"1\", not(evcxr_linked)))] static N: u8 = 1; #[cfg(not())] extern {}";
        let items =
            format!("fn f() {{\n    {forms}\n    boom();\n}}\npub(super) trait T {{\n    fn g() {{ boom() }}\n}}\n");
        assert_eq!([3, 6].map(|line| place(cell, &items, "", line)), [Some((3, 0)), Some((6, 0))]);
        assert_eq!(place(cell, &items.replace("u8 = 1", "u8 = 2"), "", 3), None);
    }

    #[test]
    fn items_are_found_wherever_they_stand() {
        let (first, second) = ("fn a(v: &[i32]) -> i32 {\n    v[9]\n}\n", "fn b(v: &[i32]) -> i32 {\n    v[9]\n}\n");
        let cell = format!("{first}{second}b(&[1])");
        let swapped = format!("{second}{first}");
        assert_eq!([2, 5].map(|line| place(&cell, &swapped, "b(&[1])\n", line)), [Some((5, 0)), Some((2, 0))]);
        assert_eq!(place("let a = 1; fn f() {\n  g() }", "fn f() {\n  g() }\n", "let a = 1;\n", 1), Some((1, 11)));
        let parts = "impl A {\n    fn a() {\n        boom() }\n    } impl A { fn b() {\n        boom() }\n}";
        let generated = "impl A { fn b() {\n        boom() }\n}\nimpl A {\n    fn a() {\n        boom() }\n    }\n";
        assert_eq!([2, 6].map(|line| place(parts, generated, "", line)), [Some((5, 0)), Some((3, 0))]);
    }

    #[test]
    fn lines_of_earlier_items_are_not_those_of_this_cell() {
        let earlier = "fn careless() {\n    remove(\"x\");\n}\n";
        assert_eq!(place("let _ = remove(\"x\");", earlier, "let _ = remove(\"x\");\n", 2), None);
        let cell = "go();\nfn g() {\ngo();\n}";
        let place = |line| place(cell, "fn g() {\ngo();\n}\n", "go();\n", line);
        assert_eq!([place(2), place(5)], [Some((3, 0)), Some((1, 0))]);
    }
}
