//! Tests of tables from files: the kinds of columns, and odd files, each of which works or is an error in one line with the cure.

use crate::reader::{folder, write};
use ferrotune_data::{Table, csv, json_table};

/// The kinds, gaps and notes of the columns, or the error.
fn seen(table: Result<Table, ferrotune_data::DataError>, file: &str) -> String {
    let text = match table {
        Ok(table) => {
            let column = |column: &ferrotune_data::Column| {
                let gaps = if column.gaps() > 0 { format!(" {} gaps", column.gaps()) } else { String::new() };
                let note = column.note().map(|note| format!(" ({note})")).unwrap_or_default();
                format!("{}: {}{gaps}{note}", column.name(), column.kind())
            };
            let columns: Vec<String> = table.columns().iter().map(column).collect();
            format!("{} rows; {}", table.len(), columns.join("; "))
        }
        Err(error) => error.to_string(),
    };
    text.replace(file, "FILE")
}

#[test]
fn odd_files_of_text_work_or_name_their_cure() {
    let Some(folder) = folder("tables::odd_files_of_text_work_or_name_their_cure") else { return };
    let files: &[(&[u8], &str)] = &[
        (b"a,b\n1,x\n2,y\n", "2 rows; a: number; b: category"),
        // A mark of the byte order, and lines that end as in Windows.
        (b"\xef\xbb\xbfa,b\r\n1,x\r\n2,y\r\n", "2 rows; a: number; b: category"),
        (b"a,b\n\"1\",\"x, y\"\n2,\"a \"\"quoted\"\" text\nof two lines\"\n", "2 rows; a: number; b: category"),
        (b"a\n1\n", "1 rows; a: number"),
        (b"a\n1", "1 rows; a: number"),
        (b"a,b\n", "FILE: it has no rows"),
        (b"", "FILE is empty: it has not even a header"),
        (b"a,a\n1,2\n", "FILE has several columns `a`; rename them, or call `.drop(\"a\")`, which drops all of them"),
        (b",a\n0,1\n", "FILE: column 0, counted from 0, has no name in the header; name it, or call `.drop(\"\")`"),
        (b"a,b\n1\n", "row 0 of FILE: it has 1 values, and the header has 2"),
        (b"a,b\n1,2,3\n", "row 0 of FILE: it has 3 values, and the header has 2"),
        (b"a,b\n1,\"2\n", "row 0 of FILE: the file ends within a quoted value"),
        (
            b"a\n\xff\n",
            "row 0 of FILE, column `a`: the value is not UTF-8; save the file as UTF-8: invalid utf-8 sequence of 1 bytes from index 0",
        ),
        (b"a;b\n1;2\n", "FILE has a single column `a;b`; if `;` is between its values, call `.delimiter(b';')`"),
        (b"a\tb\n1\t2\n", "FILE has a single column `a\tb`; if `\\t` is between its values, call `.delimiter(b'\\t')`"),
        // Gaps, and a column of nothing else.
        (b"a,b,c\n1,NA,x\n,?,\nnan,null,NULL\n", "3 rows; a: number 2 gaps; b: empty 3 gaps; c: category 2 gaps"),
        // Numbers that are none.
        (
            b"a\n0123\n4567\n",
            "2 rows; a: category (`0123` in row 0 of FILE is a code and no number; `.number(\"a\")` makes numbers of all)",
        ),
        (
            b"a\n1\n9007199254740993\n",
            "2 rows; a: category (`9007199254740993` in row 1 of FILE is a code and no number; `.number(\"a\")` makes numbers of all)",
        ),
        (
            b"a\n1\n1e400\n",
            "column `a`: `1e400` in row 1 of FILE is infinite; make it a gap with `.gaps([\"1e400\"])`, or call `.drop(\"a\")`",
        ),
        (
            b"a\n1\n-inf\n",
            "column `a`: `-inf` in row 1 of FILE is infinite; make it a gap with `.gaps([\"-inf\"])`, or call `.drop(\"a\")`",
        ),
        (b"a\ninf\nmid\n", "2 rows; a: category"),
        (
            b"a,b\n\"1,234\",x\n\"2\",y\n",
            "2 rows; a: text (`1,234` in row 0 of FILE has a comma; write numbers as 1234.5); b: category",
        ),
        (b"a;b\n3,5;x\n4;y\n", "FILE has a single column `a;b`; if `;` is between its values, call `.delimiter(b';')`"),
        (
            b"a\n1\n2\nunknown\n3\n",
            "4 rows; a: text (`unknown` in row 2 of FILE is no number; `.gaps([\"unknown\"])` makes it a gap, and `.category(\"a\")` takes all as texts)",
        ),
        (
            b"a\nx\ny\n7\nz\n",
            "4 rows; a: text (`7` in row 2 of FILE is a number, and others are not; `.category(\"a\")` takes all as texts)",
        ),
        (b"a\n-1.5e3\n+.5\n7.\n", "3 rows; a: number"),
        // Few whole numbers are numbers, also 0 and 1.
        (b"a\n0\n1\n0\n1\n", "4 rows; a: number"),
        // Yes and no.
        (b"a,b,c,d\nyes,TRUE,Y,t\nNo,false,n,f\n", "2 rows; a: yes/no; b: yes/no; c: yes/no; d: yes/no"),
        (b"a\nyes\nyes\n", "2 rows; a: category"),
        (b"a\nyes\ntrue\n", "2 rows; a: category"),
        // Dates.
        (b"a,b\n2024-05-31,2024-05-31T12:30:00Z\n2024-02-29,2024-05-31 12:30:00+02:00\n", "2 rows; a: date; b: date"),
        (
            b"a\n2024-05-31\n2024-02-30\n2024-01-01\n",
            "3 rows; a: text (`2024-02-30` in row 1 of FILE is no date of ISO 8601; write all as 2024-05-31)",
        ),
        (
            b"a\n2024-05-31T12:00Z\n2024-05-31T12:00\n",
            "2 rows; a: text (`2024-05-31T12:00` in row 1 of FILE names a zone and others do not; write all as 2024-05-31)",
        ),
        (b"a\n31.05.2024\n30.05.2024\n", "2 rows; a: category"),
        ("a\n\u{e9}t\u{e9}\n\u{65e5}\u{672c}\n".as_bytes(), "2 rows; a: category"),
    ];
    for (bytes, expected) in files {
        let file = write(folder.path(), "x.csv", bytes);
        assert_eq!(seen(csv(&file).table(), &file), *expected, "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn what_is_asked_for_decides() {
    let Some(folder) = folder("tables::what_is_asked_for_decides") else { return };
    let file = write(
        folder.path(),
        "x.csv",
        ",zip,n,n,day,name\n0,0123,1,1,20240531,a\n1,0007,unknown,1,20240601,b\n2,0100,3,1,,c\n",
    );
    let options = csv(&file).drop("").drop("name");
    let twice = "FILE has several columns `n`; rename them, or call `.drop(\"n\")`, which drops all of them";
    assert_eq!(seen(options.table(), &file), twice);
    let options = options.drop("n").number("zip").date("day");
    assert_eq!(seen(options.table(), &file), "3 rows; zip: number; day: date 1 gaps");
    assert_eq!(seen(options.without_gaps("day").table(), &file), "2 rows; zip: number; day: date");
    let file = write(folder.path(), "y.csv", "x,y\n1,a\nunknown,b\n3,c\n");
    assert_eq!(seen(csv(&file).gaps(["unknown"]).table(), &file), "3 rows; x: number 1 gaps; y: category");
    assert_eq!(seen(csv(&file).category("x").table(), &file), "3 rows; x: category; y: category");
    let codes = write(folder.path(), "codes.csv", "zip,n\n000,0\n0123,5\n0042,0\n");
    let options = csv(&codes).gaps(["000"]).category("zip");
    assert_eq!(seen(options.table(), &codes), "3 rows; zip: category 1 gaps; n: number", "a code is no number");
    let written = write(folder.path(), "z.csv", "x,y\n1,-999.0\n-999,b\n-999.00,c\n");
    assert_eq!(seen(csv(&written).gaps(["-999"]).table(), &written), "3 rows; x: number 2 gaps; y: category 1 gaps");
    for (options, error) in [
        (
            csv(&file).number("x"),
            "column `x`: `unknown` in row 1 of FILE is no number; correct it, or make it a gap with `.gaps([\"unknown\"])`",
        ),
        (
            csv(&file).date("y"),
            "column `y`: `a` in row 0 of FILE is no date of ISO 8601, such as 2024-05-31; correct it, or make it a gap with `.gaps([\"a\"])`",
        ),
        (csv(&file).category("z"), "FILE: there is no column `z`; there are `x`, `y`"),
        (csv(&file).drop("cost"), "FILE has no column `cost` to drop; it has `x`, `y`"),
        (csv(&file).drop("x").drop("y"), "FILE has no column that is not dropped; it has `x`, `y`"),
    ] {
        assert_eq!(seen(options.table(), &file), error);
    }
    let missing = csv(&file).missing(0.).table();
    assert_eq!(
        seen(missing, &file),
        "FILE: `.missing` is for `.features`; a table keeps its gaps, and Prep fills them"
    );
}

#[test]
fn a_kind_comes_from_all_rows() {
    let Some(folder) = folder("tables::a_kind_comes_from_all_rows") else { return };
    // More rows than a block has, with a text in the last one.
    let mut rows: String = (0..40_000).map(|row| format!("{row},{}\n", row % 7)).collect();
    let file = write(folder.path(), "whole.csv", format!("x,k\n{rows}"));
    assert_eq!(seen(csv(&file).table(), &file), "40000 rows; x: number; k: number");
    rows.push_str("n/k,8\n");
    let file = write(folder.path(), "mixed.csv", format!("x,k\n{rows}"));
    let expected = "40001 rows; x: text (`n/k` in row 40000 of FILE is no number; `.gaps([\"n/k\"])` makes it a gap, and `.category(\"x\")` takes all as texts); k: number";
    assert_eq!(seen(csv(&file).table(), &file), expected);
    let described = csv(&file).gaps(["n/k"]).table().unwrap().describe();
    assert_eq!((described.columns[0].count, described.columns[0].gaps), (40_000, 1));
    assert_eq!(described.columns[0].quantiles, Some([0., 9999.75, 19999.5, 29999.25, 39999.]));
}

#[test]
fn files_of_a_pattern_have_the_same_columns() {
    let Some(folder) = folder("tables::files_of_a_pattern_have_the_same_columns") else { return };
    write(folder.path(), "a.csv", "x,y\n1,p\n2,q\n");
    write(folder.path(), "b.csv", "y,x\nr,3\n,zz\n");
    let pattern = folder.path().join("*.csv").to_str().unwrap().to_owned();
    let expected = "4 rows; x: text (`zz` in row 3, counted over all of FILE is no number; `.gaps([\"zz\"])` makes it a gap, and `.category(\"x\")` takes all as texts); y: category 1 gaps";
    assert_eq!(seen(csv(&pattern).table(), &pattern), expected);
    let other = write(folder.path(), "c.csv", "x,z\n1,p\n");
    let expected = "c.csv has a column `z`, which the first file does not have; remove it there, or read other files";
    assert!(seen(csv(&pattern).table(), &pattern).ends_with(expected));
    std::fs::write(&other, "x\n1\n").unwrap();
    let expected = "c.csv has no column `y`, which the first file has; it has `x`";
    assert!(seen(csv(&pattern).table(), &pattern).ends_with(expected));
}

#[test]
fn lines_of_json_are_a_table() {
    let Some(folder) = folder("tables::lines_of_json_are_a_table") else { return };
    let files = [
        (
            "{\"n\": 1, \"t\": \"x\", \"b\": true, \"d\": \"2024-05-31\"}\n\n{\"n\": null, \"t\": \"NA\", \"late\": 0.5}\n",
            "2 rows; n: number 1 gaps; t: category; b: yes/no 1 gaps; d: date 1 gaps; late: number 1 gaps",
        ),
        // Texts in quotes are texts.
        ("{\"n\": \"12\"}\n{\"n\": \"13\"}\n", "2 rows; n: category"),
        (
            "{\"n\": 9007199254740993}\n{\"n\": 1}\n",
            "2 rows; n: category (`9007199254740993` in row 0 of FILE is no number that an f64 keeps; `.number(\"n\")` rounds it)",
        ),
        (
            "{\"n\": 1}\n{\"n\": \"x\"}\n",
            "row 1 of FILE, column `n`: it has a text here and a number in row 0 of FILE; write one type, or call `.drop` with the column's name",
        ),
        (
            "{\"n\": [1]}\n",
            "row 0 of FILE, column `n`: it has a list, and a table has none; call `.drop` with the column's name",
        ),
        ("{\"n\": 1, \"n\": 2}\n", "row 0 of FILE has several values `n`"),
        (
            "[{\"n\": 1},\n{\"n\": 2}]\n",
            "row 0 of FILE is a list, or begins one; write an object on each line, as pandas' `to_json(orient=\"records\", lines=True)` does",
        ),
        ("{\"n\": 1e400}\n", "row 0 of FILE is no object of JSON on one line: number out of range at line 1 column 11"),
        (
            "{\"n\": NaN}\n",
            "row 0 of FILE is no JSON, which has neither NaN nor Infinity; write null: expected value at line 1 column 7",
        ),
        ("", "FILE: it has no rows"),
    ];
    for (text, expected) in files {
        let file = write(folder.path(), "x.jsonl", text);
        assert_eq!(seen(json_table(&file).table(), &file), expected, "{text}");
    }
    let file = write(folder.path(), "x.jsonl", "{\"n\": 1, \"deep\": {\"a\": 1}}\n");
    assert_eq!(seen(json_table(&file).drop("deep").table(), &file), "1 rows; n: number");
    assert_eq!(seen(json_table(&file).drop("deep").gaps(["1.0"]).table(), &file), "1 rows; n: empty 1 gaps");
    let error = json_table(&file).features(["n"]).read().err().unwrap().to_string();
    assert_eq!(error, "lines of JSON become a table only; call `.target` or `.table`, and then `Prep`");
}
