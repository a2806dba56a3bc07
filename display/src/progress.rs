//! A progress bar around any iterator: one updating display, at most five updates a second.

use crate::Bundle;
use crate::escape;
use crate::show::{self, Handle};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(200);

/// Wraps an iterator so that the notebook shows how far it has come.
///
/// ```
/// let sum: u64 = ferrotune_display::progress(0..1000u64).sum();
/// assert_eq!(sum, 499_500);
/// ```
pub fn progress<I: IntoIterator>(items: I) -> Progress<I::IntoIter> {
    let items = items.into_iter();
    let total = items.size_hint().1;
    Progress { items, total, done: 0, started: Instant::now(), shown: None, handle: None }
}

/// An iterator that shows how far it has come; see [`progress`].
#[derive(Debug)]
pub struct Progress<I> {
    items: I,
    total: Option<usize>,
    done: usize,
    started: Instant,
    shown: Option<Instant>,
    handle: Option<Handle>,
}

impl<I: Iterator> Iterator for Progress<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        if self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL) {
            self.draw();
        }
        let item = self.items.next();
        if item.is_some() {
            self.done += 1;
        } else {
            self.draw();
        }
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl<I> Progress<I> {
    fn draw(&mut self) {
        self.shown = Some(Instant::now());
        let bundle = picture(self.done, self.total, self.started.elapsed());
        match &self.handle {
            Some(handle) => handle.update(bundle),
            None => self.handle = Some(show::show(first(bundle))),
        }
    }
}

/// The picture that a front end keeps if it shows no updates, such as Jupyter's console: its text says so.
fn first(bundle: Bundle) -> Bundle {
    let text = bundle.data.get("text/plain").and_then(|text| text.as_str()).unwrap_or_default().trim_start();
    let text = format!("{text} (this line stays where a front end shows no updates)");
    bundle.with("text/plain", text)
}

fn picture(done: usize, total: Option<usize>, elapsed: Duration) -> Bundle {
    let seconds = elapsed.as_secs_f64();
    let rate = if seconds > 0.0 { done as f64 / seconds } else { 0.0 };
    let Some(total) = total.filter(|total| *total > 0) else {
        return Bundle::text(format!("{done} done, {rate:.1}/s, {seconds:.1} s"));
    };
    let text = format!("{:3.0}% {done}/{total}, {rate:.1}/s, {seconds:.1} s", 100.0 * done as f64 / total as f64);
    let html = format!("<progress value=\"{done}\" max=\"{total}\"></progress> {}", escape::html(&text));
    Bundle::text(text).with("text/html", html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_says_how_far_it_is() {
        let bundle = picture(3, Some(12), Duration::from_secs(2));
        assert_eq!(bundle.data["text/plain"], " 25% 3/12, 1.5/s, 2.0 s");
        let bundle = picture(3, None, Duration::from_secs(2));
        assert_eq!(bundle.data["text/plain"], "3 done, 1.5/s, 2.0 s");
        let bundle = first(picture(0, Some(12), Duration::ZERO));
        let text = "0% 0/12, 0.0/s, 0.0 s (this line stays where a front end shows no updates)";
        assert_eq!(bundle.data["text/plain"], text);
        assert!(!bundle.data["text/html"].to_string().contains("this line stays"));
    }
}
