//! Tests that no text makes the parser panic: every prefix of some cells, these cells with random damage, and cells made of the
//! table's own words.
//!
//! One seed always makes the same random cells. A failure names its seed; `FERROTUNE_FUZZ_SEED` repeats the run with that seed.

use ferrotune_magics::{Part, cell_magic, complete, help, parse, rust_in, split, table};
use std::panic;
use std::time::{Duration, Instant};

const CELLS: &[&str] = &[
    "%%tune --oracle hyperband --objective 'val accuracy':max --memory=1.5GiB --timeout \"90s\"\r\n|trial| { r#\"é\"# }\n",
    "let a = '\\u{1F980}'; let s = \"\\\"ß\\\\\"; /* ü /* */ */ fn f<'a>() {}\n%time f()?;\n  %best 3 --project=日本\n?%tune",
    "#![allow(unused)]\n:dep a = \"1\"\nlet r#type = br##\"\"#\"##;\n'l: loop { break 'l }\n%%\n% \n%trials?",
    "%%time\n\nmacro_rules! m { () => {} }\nlet a = b\n%c;\n",
    "%\u{301}%%\u{200b}time 🦀\n%🦀\n%日本語 --x=\u{feff}'\n",
    "let n = 3;\n!echo $n \\\r\n  | tee 'ä b.txt' \\\n\n%cd -\n%env A=b=c\n%timeit -n 5 -r 2 (!done)\n",
    "%%bash\nfor i in 1 2; do echo \"$i\"; done\n!\n",
    "%%writefile --append a/\u{2028}b.rs\n%%html\n",
    "??std::collections::HashMap\n",
    "%history 2..=9 --numbered --file x\n%memory limit 2.5GiB\n%undo 3\n%dep serde@1.0 --features derive,std\nvec!?",
];

/// Characters that are inserted at random into a cell.
const PIECES: &str = "%?'\"\\/*#rb{}()[];:-=!.,@\n\r\t é🦀0\u{2028}\u{0}";

/// Words that a magic may accept, and words that no magic accepts, separated by `|`.
const WORDS: &str = "0|-1|3|1e400|nan|18446744073709551616|2..=1|..|1.5GiB|90s|loss:min|:|a=b|=|'open|\"a b\"|''|--|-|\
     --no-such|tpe|é🦀|v5e:2x2|serde@|f()?;|{|status|limit|/|~|\\|\u{feff}";

/// The duration of the test with random cells.
const TIME: Duration = Duration::from_secs(2);

/// A small random number generator (SplitMix64), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound as u64) as usize
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

/// Parses a cell, and checks that all places are inside the cell and that an error is one line. The parsed steps do not matter.
fn feed(cell: &str) {
    let lines = cell.lines().count().max(1);
    let parts = split(cell).parts;
    assert_eq!(parts.iter().map(|part| part.text).collect::<String>(), cell);
    assert!(parts.iter().all(|part| (1..=lines).contains(&part.first_line)), "{cell:?}: {parts:?}");
    if let Some((Part { text, first_line, .. }, body)) = cell_magic(cell) {
        assert!(cell.ends_with(&format!("{text}{body}")) && first_line <= lines, "{cell:?}: {text:?} {body:?}");
    }
    for line in [cell].into_iter().chain(cell.lines()) {
        assert!(line.is_char_boundary(complete(line).start), "{line:?}: {:?}", complete(line));
        assert!(rust_in(line).is_none_or(|start| line.is_char_boundary(start)), "{line:?}: {:?}", rust_in(line));
    }
    help(cell);
    if let Err(error) = parse(cell) {
        assert!((1..=lines).contains(&error.line), "{cell:?}: {error}");
        assert!(!error.to_string().contains(char::is_control), "{cell:?}: {error}");
    }
}

#[test]
fn every_prefix_and_suffix_is_survived() {
    for cell in CELLS {
        for (index, _) in cell.char_indices() {
            feed(&cell[..index]);
            feed(&cell[index..]);
        }
    }
}

/// A cell with some bytes changed, removed or inserted.
fn damaged(random: &mut Random) -> String {
    let mut bytes = random.of(CELLS).as_bytes().to_vec();
    let pieces: Vec<char> = PIECES.chars().collect();
    for _ in 0..=random.below(6) {
        let place = random.below(bytes.len());
        match random.below(3) {
            0 => bytes[place] = random.below(256) as u8,
            1 => drop(bytes.drain(place..(place + 1 + random.below(8)).min(bytes.len() - 1).max(place))),
            _ => {
                let piece = pieces[random.below(pieces.len())].to_string();
                bytes.splice(place..place, piece.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A cell of magics of the table, with options of these or of other magics, with valid and invalid values, and sometimes with a body.
fn composed(random: &mut Random) -> String {
    let words: Vec<&str> = WORDS.split('|').collect();
    let mut cell = String::new();
    for _ in 0..=random.below(2) {
        let magic = &table()[random.below(table().len())];
        cell.push_str(random.of(magic.forms));
        for _ in 0..random.below(5) {
            let owner = if random.below(8) == 0 { &table()[random.below(table().len())] } else { magic };
            cell.push_str(random.of(&[" ", " ", " ", "\t", "", "  "]));
            if !owner.options.is_empty() && random.below(2) == 0 {
                cell.push_str(owner.options[random.below(owner.options.len())].name);
                cell.push_str(random.of(&[" ", "="]));
            }
            cell.push_str(random.of(&words));
        }
        cell.push_str(random.of(&["\n", "\r\n", "?\n", ""]));
    }
    cell.push_str(random.of(&["", "", "|trial| Ok(1.0)\n", "1 + 1", "%time f()", "!ls"]));
    cell
}

/// The seeds of this run: the seed in `FERROTUNE_FUZZ_SEED`, or new seeds until the time is over.
fn seeds() -> Box<dyn Iterator<Item = u64>> {
    if let Ok(seed) = std::env::var("FERROTUNE_FUZZ_SEED") {
        return Box::new(std::iter::once(seed.parse().expect("FERROTUNE_FUZZ_SEED is a whole number")));
    }
    let first = std::time::UNIX_EPOCH.elapsed().expect("the clock is after 1970").as_nanos() as u64;
    let begun = Instant::now();
    Box::new((0..).map(move |number| first.wrapping_add(number)).take_while(move |_| begun.elapsed() < TIME))
}

#[test]
fn random_cells_are_survived() {
    for (seed, make) in seeds().flat_map(|seed| [(seed, damaged as fn(&mut Random) -> String), (seed, composed)]) {
        let cell = make(&mut Random(seed));
        let survived = panic::catch_unwind(|| feed(&cell));
        assert!(survived.is_ok(), "FERROTUNE_FUZZ_SEED={seed} makes this cell again: {cell:?}");
    }
}
