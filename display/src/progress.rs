//! Progress bars around iterators. Bars within another bar are lines of its display, which is updated at most five
//! times a second.

use crate::show::{self, Handle};
use crate::{Bundle, escape};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(200);
/// The interval at which a bar checks whether its display needs an update.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

thread_local! {
    /// The display of the outermost bar that runs on this thread.
    static OUTERMOST: RefCell<Weak<Mutex<Screen>>> = const { RefCell::new(Weak::new()) };
}

/// Wraps an iterator so that the notebook shows its progress, its speed and the remaining time.
///
/// ```
/// let sum: u64 = ferrotune_display::progress(0..1000u64).sum();
/// assert_eq!(sum, 499_500);
///
/// for epoch in ferrotune_display::progress(0..3).named("epochs") {
///     for batch in ferrotune_display::progress(0..10).named("batches") {
///         // train
///     }
/// }
/// ```
pub fn progress<I: IntoIterator>(items: I) -> Progress<I::IntoIter> {
    let items = items.into_iter();
    let total = items.size_hint().1;
    Progress {
        items,
        bar: Bar { name: String::new(), note: String::new(), total, done: 0, started: Instant::now() },
        drawn: None,
        line: None,
        is_running: false,
    }
}

/// An iterator that shows its progress; see [`progress`].
#[derive(Debug)]
pub struct Progress<I> {
    items: I,
    bar: Bar,
    drawn: Option<Instant>,
    line: Option<Line>,
    /// Whether an item was given out and is not done.
    is_running: bool,
}

impl<I> Progress<I> {
    /// Shows a name before the bar.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.bar.name = name.into();
        self
    }

    /// Sets the number of items, for an iterator that does not know it.
    #[must_use]
    pub fn of(mut self, total: usize) -> Self {
        self.bar.total = Some(total);
        self
    }

    /// Shows a text after the bar, such as the last loss, in place of the text before.
    pub fn note(&mut self, text: impl Into<String>) {
        self.bar.note = text.into();
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= LOOK_INTERVAL) {
            self.draw();
        }
    }

    fn draw(&mut self) {
        self.drawn = Some(Instant::now());
        self.line.get_or_insert_with(Line::new).draw(&self.bar);
    }
}

impl<I: Iterator> Iterator for Progress<I> {
    type Item = I::Item;

    /// The item before is done when the next one is asked for.
    fn next(&mut self) -> Option<I::Item> {
        if self.is_running {
            self.bar.done += 1;
        }
        if self.drawn.is_none() {
            self.bar.started = Instant::now();
            self.draw();
        } else if self.drawn.is_some_and(|drawn| drawn.elapsed() >= LOOK_INTERVAL) {
            self.draw();
        }
        let item = self.items.next();
        self.is_running = item.is_some();
        if item.is_none() {
            // The bar ends here and not at its drop, so that a later bar is not within it.
            self.end();
        }
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl<I> Progress<I> {
    fn end(&mut self) {
        if let Some(line) = self.line.take() {
            line.end(&self.bar);
        }
    }
}

impl<I> Drop for Progress<I> {
    fn drop(&mut self) {
        self.end();
    }
}

/// The progress of an iterator.
#[derive(Clone, Debug)]
struct Bar {
    name: String,
    note: String,
    total: Option<usize>,
    done: usize,
    started: Instant,
}

/// A bar's line on a display.
#[derive(Debug)]
struct Line {
    screen: Arc<Mutex<Screen>>,
    number: u64,
}

/// The lines of one display, from the outermost bar to the innermost.
#[derive(Debug, Default)]
struct Screen {
    handle: Option<Handle>,
    lines: Vec<(u64, Bar)>,
    numbers: u64,
    updated: Option<Instant>,
}

impl Line {
    fn new() -> Self {
        let screen = OUTERMOST.with_borrow_mut(|outermost| {
            outermost.upgrade().filter(|screen| !lock(screen).lines.is_empty()).unwrap_or_else(|| {
                let screen = Arc::new(Mutex::new(Screen::default()));
                *outermost = Arc::downgrade(&screen);
                screen
            })
        });
        let number = {
            let mut screen = lock(&screen);
            screen.numbers += 1;
            screen.numbers
        };
        Self { screen, number }
    }

    fn draw(&self, bar: &Bar) {
        let mut screen = lock(&self.screen);
        match screen.lines.iter_mut().find(|(number, _)| *number == self.number) {
            Some((_, line)) => line.clone_from(bar),
            None => screen.lines.push((self.number, bar.clone())),
        }
        screen.show(Instant::now());
    }

    /// Ends a bar. The outermost bar stays on the display, and an inner bar is replaced by the next one.
    fn end(self, bar: &Bar) {
        self.draw(bar);
        let mut screen = lock(&self.screen);
        if screen.lines.first().is_some_and(|(number, _)| *number == self.number) {
            screen.updated = None;
            screen.show(Instant::now());
        }
        screen.lines.retain(|(number, _)| *number != self.number);
    }
}

impl Screen {
    fn show(&mut self, now: Instant) {
        if self.updated.is_some_and(|updated| now - updated < INTERVAL) {
            return;
        }
        self.updated = Some(now);
        let bundle = stacked(&self.lines, now);
        match &self.handle {
            Some(handle) => handle.update(bundle),
            None => self.handle = Some(show::show(bundle)),
        }
    }
}

fn lock(screen: &Mutex<Screen>) -> MutexGuard<'_, Screen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stacked(lines: &[(u64, Bar)], now: Instant) -> Bundle {
    let lines: Vec<Bundle> = lines.iter().map(|(_, bar)| picture(bar, now - bar.started)).collect();
    let part = |mime_type, end| lines.iter().map(|line| line.text_of(mime_type)).collect::<Vec<_>>().join(end);
    Bundle::text(part("text/plain", "\n")).with("text/html", part("text/html", "<br>"))
}

fn picture(Bar { name, note, total, done, .. }: &Bar, elapsed: Duration) -> Bundle {
    let rate = if elapsed.is_zero() { 0.0 } else { *done as f64 / elapsed.as_secs_f64() };
    let name = if name.is_empty() { String::new() } else { format!("{name} ") };
    let note = if note.is_empty() { String::new() } else { format!(", {note}") };
    let Some(total) = total.filter(|total| *total > 0) else {
        let text = format!("{name}{done} done, {}, {}{note}", speed(rate), clock(elapsed.as_secs_f64()));
        return Bundle::text(text.as_str()).with("text/html", escape::html(&text));
    };
    let left = total.saturating_sub(*done);
    let time = match (left, rate > 0.0) {
        (0, _) => clock(elapsed.as_secs_f64()),
        (_, true) => format!("{}, {} left", clock(elapsed.as_secs_f64()), clock(left as f64 / rate)),
        (_, false) => clock(elapsed.as_secs_f64()),
    };
    let numbers = format!("{:3.0}% {done}/{total}, {}, {time}{note}", 100.0 * *done as f64 / total as f64, speed(rate));
    let html = format!(
        "{}<progress value=\"{done}\" max=\"{total}\"></progress> {}",
        escape::html(&name),
        escape::html(&numbers)
    );
    Bundle::text(format!("{name}{numbers}")).with("text/html", html)
}

/// The text of a speed: items a second, or seconds an item if that is easier to read.
fn speed(rate: f64) -> String {
    match rate {
        0.0 => "0/s".to_owned(),
        100.0.. => format!("{rate:.0}/s"),
        1.0.. => format!("{rate:.1}/s"),
        _ => format!("{:.1} s each", 1.0 / rate),
    }
}

/// The text of a time: `2.5 s`, `3:07 min` or `1:02:03 h`.
fn clock(seconds: f64) -> String {
    if seconds < 59.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match whole / 3600 {
        0 => format!("{}:{:02} min", whole / 60, whole % 60),
        hours => format!("{hours}:{:02}:{:02} h", whole / 60 % 60, whole % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(done: usize, total: Option<usize>, seconds: f64) -> String {
        let bar = Bar { name: String::new(), note: String::new(), total, done, started: Instant::now() };
        picture(&bar, Duration::from_secs_f64(seconds)).text_of("text/plain").to_owned()
    }

    #[test]
    fn the_picture_says_how_far_it_is_and_how_long_it_still_takes() {
        assert_eq!(text(3, Some(12), 2.0), " 25% 3/12, 1.5/s, 2.0 s, 6.0 s left");
        assert_eq!(text(12, Some(12), 200.0), "100% 12/12, 16.7 s each, 3:20 min");
        assert_eq!(text(0, Some(12), 0.0), "  0% 0/12, 0/s, 0.0 s");
        assert_eq!(text(3, None, 2.0), "3 done, 1.5/s, 2.0 s");
        assert_eq!(text(1, Some(3), 3723.0), " 33% 1/3, 3723.0 s each, 1:02:03 h, 2:04:06 h left");
        let bar = Bar {
            name: "<b>".to_owned(),
            note: "loss 0.5".to_owned(),
            total: Some(2),
            done: 1,
            started: Instant::now(),
        };
        assert!(
            picture(&bar, Duration::ZERO)
                .text_of("text/html")
                .starts_with("&lt;b&gt; <progress value=\"1\" max=\"2\">")
        );
    }

    #[test]
    fn a_bar_within_another_is_a_line_of_its_display() {
        let lines =
            || OUTERMOST.with_borrow(|outermost| outermost.upgrade().map_or(0, |screen| lock(&screen).lines.len()));
        for _ in progress(0..2) {
            assert_eq!(lines(), 1);
            for inner in progress(0..3) {
                assert_eq!(lines(), 2);
                if inner == 1 {
                    break;
                }
            }
            assert_eq!(lines(), 1);
        }
        assert_eq!(lines(), 0);
    }
}
