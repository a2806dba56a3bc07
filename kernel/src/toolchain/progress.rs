//! The progress of a build, read from cargo's output: one line at a time for the user. All other lines are kept.

use std::time::Instant;

/// Environment in which cargo writes its progress even without a terminal.
pub(crate) const ENVIRONMENT: [(&str, &str); 3] =
    [("CARGO_TERM_PROGRESS_WHEN", "always"), ("CARGO_TERM_PROGRESS_WIDTH", "80"), ("CARGO_TERM_COLOR", "never")];

/// First words of cargo's lines about its current step.
const STEPS: [&str; 5] = ["Blocking", "Compiling", "Downloaded", "Downloading", "Updating"];

/// The state of a build.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The generated package that has the user's crates as dependencies; it is never shown.
    package: &'static str,
    started: Instant,
    /// The beginning of a line whose rest has not arrived yet.
    bytes: Vec<u8>,
    step: String,
    /// The number of crates that are built, and the number of all crates.
    count: Option<(usize, usize)>,
    compiled: usize,
    /// All lines that are not about a step.
    messages: String,
}

impl Progress {
    pub(crate) fn of(package: &'static str) -> Self {
        let (bytes, step, messages) = Default::default();
        Self { package, started: Instant::now(), bytes, step, count: None, compiled: 0, messages }
    }

    /// Reads more of cargo's output, and returns the line to show if it has changed.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Option<String> {
        self.bytes.extend_from_slice(bytes);
        let before = self.line();
        while let Some(end) = self.bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            self.take_line(String::from_utf8_lossy(&line).trim_end());
        }
        let line = self.line();
        (line != before).then_some(line)
    }

    /// A line about the finished build.
    pub(crate) fn summary(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64();
        match self.compiled {
            0 => format!("Downloaded what was missing in {seconds:.1} s"),
            1 => format!("Compiled 1 crate in {seconds:.1} s"),
            many => format!("Compiled {many} crates in {seconds:.1} s"),
        }
    }

    /// A line about a build that failed or was stopped.
    pub(crate) fn unfinished(&self) -> String {
        format!("{}: not finished", self.line())
    }

    /// Cargo's other lines: warnings and errors.
    pub(crate) fn messages(&self) -> &str {
        self.messages.trim_end()
    }

    fn line(&self) -> String {
        match self.count {
            Some((done, total)) if self.step.starts_with("Compiling") => format!("{} ({done}/{total})", self.step),
            _ => self.step.clone(),
        }
    }

    fn take_line(&mut self, line: &str) {
        // Cargo clears its progress bar before it writes a line.
        let line = line.trim_start_matches("\u{1b}[K");
        let text = line.trim_start();
        let mut words = text.split(' ');
        let verb = words.next().unwrap_or_default();
        if let Some(count) = count(text) {
            self.count = Some(count);
        } else if verb == "Compiling" {
            if let Some(name) = words.next().filter(|name| *name != self.package) {
                // The line goes on with the version, and then with the folder of a crate on this machine.
                self.step = ["Compiling", name, words.next().unwrap_or_default()].join(" ");
                self.compiled += 1;
            }
        } else if STEPS.contains(&verb) {
            self.step = text.to_owned();
        } else if !matches!(verb, "Finished" | "Locking" | "Adding") {
            self.messages.push_str(line);
            self.messages.push('\n');
        }
    }
}

/// The numbers in `Building [===>   ] 3/12: serde, syn`, without the generated package, which is built last.
fn count(text: &str) -> Option<(usize, usize)> {
    let (_, rest) = text.strip_prefix("Building [")?.split_once("] ")?;
    let (done, total) = rest.split(':').next()?.trim().split_once('/')?;
    let total = total.parse::<usize>().ok()?.saturating_sub(1);
    Some((done.parse::<usize>().ok()?.min(total), total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_is_one_line_that_changes() {
        let mut progress = Progress::of("root");
        let lines = [
            "    Updating crates.io index\n",
            "   Compiling serde v1.0.2\n",
            "    Building [         ] 0/4: serde    \r",
            "   Compiling own v0.1.0 (/crates/own)\n    Building [=>   ] 1/4: own, serde   \r",
            "warning: unused variable\n  --> a.rs\n",
            "    Building [==>   ] 2/4: ow",
            "n    \r",
            "   Compiling root v0.0.0 (/tmp/x)\n    Building [====>] 3/4: root\r\n",
            "    Finished `dev` profile\n",
        ];
        let shown: Vec<_> = lines.iter().map(|line| progress.take(line.as_bytes())).collect();
        let expected = [
            Some("Updating crates.io index"),
            Some("Compiling serde v1.0.2"),
            Some("Compiling serde v1.0.2 (0/3)"),
            Some("Compiling own v0.1.0 (1/3)"),
            None,
            None,
            Some("Compiling own v0.1.0 (2/3)"),
            Some("Compiling own v0.1.0 (3/3)"),
            None,
        ];
        assert_eq!(shown.iter().map(Option::as_deref).collect::<Vec<_>>(), expected);
        assert_eq!(progress.messages(), "warning: unused variable\n  --> a.rs");
        assert!(progress.summary().starts_with("Compiled 2 crates in "), "{}", progress.summary());
    }
}
