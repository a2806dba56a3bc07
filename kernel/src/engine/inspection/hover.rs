//! Documentation as rust-analyzer writes it, without what is not for readers: the name of the notebook's generated crate, and the
//! lines of examples that rustdoc hides.

const CRATE: &str = "ctx::";
/// What stands above an item of the notebook: the generated crate, as the item's place.
const PLACE: [&str; 2] = ["ctx\n\n", "<pre><code class=\"language-rust\">ctx\n</code></pre>\n"];
const CODE: &str = "<pre><code";
const END: &str = "</code></pre>";

/// Plain text: headings have no `#` there.
pub(super) fn text(text: &str) -> String {
    let text = text.strip_prefix(PLACE[0]).unwrap_or(text);
    text.lines().filter(|line| !is_hidden(line)).map(without_crate).collect::<Vec<_>>().join("\n")
}

/// HTML: examples in Rust are code without a class, or with that of Rust.
pub(super) fn html(html: &str) -> String {
    let html = html.strip_prefix(PLACE[1]).unwrap_or(html);
    let (mut lines, mut is_rust) = (Vec::new(), false);
    for line in html.lines() {
        let mut shown = line;
        if let Some(start) = line.find(CODE) {
            let end = line[start..].find("\">").map_or(start + CODE.len() + 1, |end| start + end + 2);
            let (tag, first) = line.split_at(end.min(line.len()));
            is_rust = !tag.contains("class=") || tag.contains("language-rust");
            if is_rust && is_hidden(first) {
                shown = tag;
            }
        } else if is_rust && is_hidden(line) {
            continue;
        }
        is_rust &= !line.contains(END);
        lines.push(without_crate(shown));
    }
    lines.join("\n")
}

fn is_hidden(line: &str) -> bool {
    line == "#" || line.starts_with("# ")
}

fn without_crate(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for (index, part) in line.split(CRATE).enumerate() {
        // `my_ctx::f` is another crate's.
        if index > 0 && shown.ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            shown.push_str(CRATE);
        }
        shown.push_str(part);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_lines_and_the_generated_crate_are_left_out() {
        assert_eq!(text("ctx::shop\n# use x;\n#\nlet a = my_ctx::f();"), "shop\nlet a = my_ctx::f();");
        assert_eq!(text("ctx\n\nstruct Till"), "struct Till");
        let of_notebook = "<pre><code class=\"language-rust\">ctx\n</code></pre>\n<p>struct Till</p>";
        assert_eq!(html(of_notebook), "<p>struct Till</p>");
        let page = "<h1>Examples</h1>\n<pre><code class=\"language-rust\"># use x;\nlet a = 1;\n# Ok(())\n</code></pre>\n\
                    <pre><code class=\"language-toml\"># install it\n# twice\n</code></pre>\n<p>ctx::Till</p>";
        let expected = "<h1>Examples</h1>\n<pre><code class=\"language-rust\">\nlet a = 1;\n</code></pre>\n\
                        <pre><code class=\"language-toml\"># install it\n# twice\n</code></pre>\n<p>Till</p>";
        assert_eq!(html(page), expected);
    }
}
