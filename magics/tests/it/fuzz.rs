//! No text makes the parser panic: every prefix of some cells, and random damage to them.

use ferrotune_magics::{complete, help, parse};

const CELLS: &[&str] = &[
    "%%tune --oracle hyperband --objective 'val accuracy':max --memory=1.5GiB --timeout \"90s\"\r\n|trial| { r#\"é\"# }\n",
    "let a = '\\u{1F980}'; let s = \"\\\"ß\\\\\"; /* ü /* */ */ fn f<'a>() {}\n%time f()?;\n  %best 3 --project=日本\n?%tune",
    "#![allow(unused)]\n:dep a = \"1\"\nlet r#type = br##\"\"#\"##;\n'l: loop { break 'l }\n%%\n% \n%trials?",
    "%%time\n\nmacro_rules! m { () => {} }\nlet a = b\n%c;\n",
    "%\u{301}%%\u{200b}time 🦀\n%🦀\n%日本語 --x=\u{feff}'\n",
];

/// A small generator (xorshift), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// What is parsed matters little here; that the lines lie inside the cell does.
fn feed(cell: &str) {
    complete(cell);
    help(cell);
    match parse(cell) {
        Ok(_) => {}
        Err(error) => {
            assert!((1..=cell.lines().count().max(1)).contains(&error.line), "{cell:?}: {error}");
            assert!(!error.to_string().contains('\n'), "{cell:?}: {error}");
        }
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

#[test]
fn random_damage_is_survived() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let pieces: Vec<char> = "%?'\"\\/*#rb{}()[];:-=\n\r\t é🦀0".chars().collect();
    for _ in 0..20_000 {
        let mut bytes = CELLS[random.below(CELLS.len())].as_bytes().to_vec();
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
        feed(&String::from_utf8_lossy(&bytes));
    }
}
