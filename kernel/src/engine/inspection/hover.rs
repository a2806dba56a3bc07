//! rust-analyzer's documentation, made readable for users: without the name of the notebook's generated crate and the lines of
//! examples that rustdoc hides, and with the paths that cells can write.

const CRATE: &str = "ctx::";
/// Crates that no cell can name, each with the path by which cells name its items.
const PATHS: [(&str, &str); 8] = [
    ("ferrotune_trial", "ferrotune"),
    ("ferrotune_data", "ferrotune::data"),
    ("ferrotune_devices", "ferrotune::devices"),
    ("ferrotune_display", "ferrotune::display"),
    ("ferrotune_nn", "ferrotune::nn"),
    ("ferrotune_space", "ferrotune"),
    ("ferrotune_state", "ferrotune"),
    ("ferrotune_xla", "ferrotune::xla"),
];
/// Modules of these crates that cells can name.
const PUBLIC: [&str; 5] = ["loss", "optim", "pjrt", "shared", "widget"];
/// The text above an item of the notebook: the name of the generated crate, as plain text and as HTML.
const PLACE: [&str; 2] = ["ctx\n\n", "<pre><code class=\"language-rust\">ctx\n</code></pre>\n"];
const CODE: &str = "<pre><code";
const END: &str = "</code></pre>";

/// Cleans documentation in plain text, where headings have no `#`.
pub(super) fn text(text: &str) -> String {
    let text = text.strip_prefix(PLACE[0]).unwrap_or(text);
    let lines = text.lines().filter(|line| !is_hidden(line)).map(without_crate);
    lines.map(|line| with_public_paths(&line)).collect::<Vec<_>>().join("\n")
}

/// Cleans documentation in HTML, where an example in Rust is a code block without a class or with the class of Rust.
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
        lines.push(with_public_paths(&without_crate(shown)));
    }
    lines.join("\n")
}

fn is_hidden(line: &str) -> bool {
    line == "#" || line.starts_with("# ")
}

fn without_crate(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    for (index, part) in line.split(CRATE).enumerate() {
        // `my_ctx::f` belongs to another crate.
        if index > 0 && shown.ends_with(|before: char| before.is_alphanumeric() || before == '_') {
            shown.push_str(CRATE);
        }
        shown.push_str(part);
    }
    shown
}

/// A line in which the paths of Ferrotune's crates are written as in cells. Most modules of these crates are private, and are left out.
fn with_public_paths(line: &str) -> String {
    let mut shown = line.to_owned();
    for (name, path) in PATHS {
        let mut parts = shown.split(name);
        let mut replaced = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let is_longer = |text: &str| text.starts_with(|next: char| next.is_alphanumeric() || next == '_');
            if is_longer(part) || replaced.ends_with(|before: char| before.is_alphanumeric() || before == '_') {
                replaced.push_str(name);
                replaced.push_str(part);
                continue;
            }
            // A line that has only a path is the place of an item.
            let is_place = replaced.is_empty() || replaced.ends_with('>');
            replaced.push_str(path);
            let mut rest = part;
            while let Some((module, behind)) = module(rest)
                && (behind.starts_with("::") || is_place && behind.is_empty())
            {
                if PUBLIC.contains(&module) {
                    replaced.push_str("::");
                    replaced.push_str(module);
                }
                rest = behind;
            }
            replaced.push_str(rest);
        }
        shown = replaced;
    }
    shown
}

/// The module at the beginning of `::module::rest` or `::module`, and the text after the module.
fn module(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("::")?;
    let end = rest.find(|next: char| !next.is_alphanumeric() && next != '_').unwrap_or(rest.len());
    let module = &rest[..end];
    let is_module = module.starts_with(|first: char| first.is_lowercase());
    is_module.then_some((module, &rest[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_lines_and_the_generated_crate_are_left_out() {
        assert_eq!(text("ctx::shop\n# use x;\n#\nlet a = my_ctx::f();"), "shop\nlet a = my_ctx::f();");
        assert_eq!(text("ctx\n\nstruct Till"), "struct Till");
        assert_eq!(text("ferrotune_trial::trial\n\npub struct Trial"), "ferrotune\n\npub struct Trial");
        let shown = text("fn f(a: ferrotune_data::dataset::Dataset<u8>) -> my_ferrotune_data::A");
        assert_eq!(shown, "fn f(a: ferrotune::data::Dataset<u8>) -> my_ferrotune_data::A");
        assert_eq!(text("ferrotune_trial::optim::adamw\n"), "ferrotune::optim");
        assert_eq!(text("as `ferrotune_trial::seed` says"), "as `ferrotune::seed` says");
        assert_eq!(text("ferrotune_state::save\n\npub trait Save"), "ferrotune\n\npub trait Save");
        let of_notebook = "<pre><code class=\"language-rust\">ctx\n</code></pre>\n<p>struct Till</p>";
        assert_eq!(html(of_notebook), "<p>struct Till</p>");
        let page = "<h1>Examples</h1>\n<pre><code class=\"language-rust\"># use x;\nlet a = 1;\n# Ok(())\n</code></pre>\n\
                    <pre><code class=\"language-toml\"># install it\n# twice\n</code></pre>\n<p>ctx::Till</p>";
        let expected = "<h1>Examples</h1>\n<pre><code class=\"language-rust\">\nlet a = 1;\n</code></pre>\n\
                        <pre><code class=\"language-toml\"># install it\n# twice\n</code></pre>\n<p>Till</p>";
        assert_eq!(html(page), expected);
    }
}
