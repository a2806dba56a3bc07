//! Tests of `Prep`: the numbers beside NumPy, single rows, files, trials, and errors.

use crate::reader::{folder, write};
use candle_core::Tensor;
use ferrotune_data::{Column, DataError, DatePart, Fill, Prep, Scale, Table, Value, csv};
use ferrotune_state::{Pack, Share, Shared};
use std::os::fd::AsRawFd as _;

fn gap() -> Value {
    Value::Gap
}

fn houses() -> Table {
    let values = |values: &[f64]| values.iter().map(|value| Value::from(*value)).collect::<Vec<_>>();
    let texts = |texts: [&str; 8]| texts.map(|text| if text.is_empty() { gap() } else { text.into() }).to_vec();
    Table::from_columns([
        ("rooms", values(&[3., f64::NAN, 5., 4., 2., 7., f64::NAN, 4.5])),
        ("age", values(&[10.; 8])),
        ("area", values(&[1e6 + 1., 1e6 + 2., 1e6 + 4., 1e6 + 8., 1e6 + 16., 1e6 + 32., 1e6 + 64., 1e6 + 128.])),
        ("city", texts(["Oslo", "Bergen", "", "Oslo", "Bergen", "Tromsø", "Oslo", "Bergen"])),
        ("garden", [1, 0, 1, 1, 0, 1, 0, 2].map(|bit| if bit == 2 { gap() } else { (bit == 1).into() }).to_vec()),
        (
            "listed",
            texts([
                "2024-05-31",
                "2024-06-01",
                "2023-01-01",
                "",
                "2024-05-31",
                "2024-02-29",
                "2024-12-31",
                "2024-05-31",
            ]),
        ),
        ("price", values(&[310., 480., 295., 400., 250., 900., 333., 410.])),
    ])
    .unwrap()
    .with_target("price")
    .unwrap()
}

fn column(prep: &Prep, features: &Tensor, name: &str) -> Vec<f32> {
    let place =
        prep.names().iter().position(|other| other == name).unwrap_or_else(|| panic!("{name}: {:?}", prep.names()));
    features.narrow(1, place, 1).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn near(found: &[f32], expected: &[f32]) {
    let is_near = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(is_near, "{found:?} is not {expected:?}");
}

fn error<T>(result: Result<T, DataError>) -> String {
    result.err().expect("it fails").to_string()
}

/// The numbers are of NumPy: `r = where(isnan(x), nanmedian(x), x); (r - r.mean()) / r.std()`, which is scikit-learn's `SimpleImputer`
/// and `StandardScaler`.
#[test]
fn features_are_those_of_scikit_learn() {
    let houses = houses();
    let prep = Prep::fit(&houses).unwrap();
    let features = prep.features(&houses).unwrap();
    assert_eq!(features.dims(), [8, prep.width()]);
    let rooms = [-0.916_698_5, 0., 0.550_019_1, -0.183_339_7, -1.650_057_3, 2.016_736_7, 0., 0.183_339_7];
    near(&column(&prep, &features, "rooms"), &rooms);
    assert_eq!(column(&prep, &features, "rooms is missing"), [0., 1., 0., 0., 0., 0., 1., 0.]);
    assert_eq!(column(&prep, &features, "age"), [0.; 8]);
    let area = [
        -0.745_631_7,
        -0.721_481_7,
        -0.673_181_7,
        -0.576_581_6,
        -0.383_381_5,
        0.003_018_752,
        0.775_819_24,
        2.321_420_2,
    ];
    near(&column(&prep, &features, "area"), &area);
    // Bergen and Oslo are equally frequent, and the first one fills the gap.
    assert_eq!(column(&prep, &features, "city=Bergen"), [0., 1., 1., 0., 1., 0., 0., 1.]);
    assert_eq!(column(&prep, &features, "city=Oslo"), [1., 0., 0., 1., 0., 0., 1., 0.]);
    assert_eq!(column(&prep, &features, "city is missing"), [0., 0., 1., 0., 0., 0., 0., 0.]);
    assert_eq!(column(&prep, &features, "garden=true"), [1., 0., 1., 1., 0., 1., 0., 1.]);
    assert_eq!(column(&prep, &features, "listed weekday=Friday"), [1., 0., 0., 1., 1., 0., 0., 1.]);
    assert_eq!(column(&prep, &features, "listed month=2"), [0., 0., 0., 0., 0., 1., 0., 0.]);
    let mean: f32 = column(&prep, &features, "listed days").iter().sum();
    assert!(mean.abs() < 1e-4 && !prep.names().iter().any(|name| name.contains("hour")));
    let prices = prep.targets(&houses).unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(prices, [310., 480., 295., 400., 250., 900., 333., 410.]);
}

#[test]
fn options_change_scales_fills_and_encodings() {
    let houses = houses();
    let options = Prep::options().scale(Scale::MinMax).fill(Fill::Mean).without_flags().ordinal("city").skip("listed");
    let prep = options.fit(&houses).unwrap();
    assert_eq!(prep.names(), ["rooms", "age", "area", "city", "garden=true"]);
    let features = prep.features(&houses).unwrap();
    near(&column(&prep, &features, "rooms"), &[0.2, 0.45, 0.6, 0.4, 0., 1., 0.45, 0.5]);
    let third = 1. / 3.;
    near(&column(&prep, &features, "city"), &[2. * third, third, third, 2. * third, third, 1., 2. * third, third]);
    let prep =
        Prep::options().one_hot_up_to(2).fill_with("rooms", 0).scale_of("rooms", Scale::Unscaled).scaled_target();
    let prep = prep.date_parts("listed", [DatePart::Year]).fill_with("city", "none").fit(&houses).unwrap();
    let features = prep.features(&houses).unwrap();
    assert_eq!(column(&prep, &features, "rooms"), [3., 0., 5., 4., 2., 7., 0., 4.5]);
    near(&column(&prep, &features, "city"), &[0.5, 0.25, 1., 0.5, 0.25, 0.75, 0.5, 0.25]);
    assert_eq!(prep.names().iter().filter(|name| name.starts_with("listed")).count(), 2);
    let prices = prep.targets(&houses).unwrap();
    let expected = [
        -0.580_961_76,
        0.298_891_25,
        -0.658_595_9,
        -0.115_157_23,
        -0.891_498_1,
        2.472_645_8,
        -0.461_922_82,
        -0.063_401_17,
    ];
    near(&prices.to_vec1().unwrap(), &expected);
    let back = prep.inverse(&prices).unwrap().to_vec1::<f32>().unwrap();
    assert!(back.iter().zip([310., 480., 295.]).all(|(price, expected): (&f32, f32)| (price - expected).abs() < 1e-2));
    for (options, expected) in [
        (
            Prep::options().skip("rom"),
            "the table: there is no column `rom`; there are `rooms`, `age`, `area`, `city`, `garden`, `listed`, `price`",
        ),
        (Prep::options().skip("room"), "the table: there is no column `room`; did you mean `rooms`?"),
        (Prep::options().ordinal("rooms"), "column `rooms`: its kind is number, which has no option `ordinal`"),
        (
            Prep::options().scale_of("city", Scale::MinMax),
            "column `city`: its kind is category, which has no option `scale_of`",
        ),
        (Prep::options().date_parts("age", []), "column `age`: its kind is number, which has no option `date_parts`"),
        (
            Prep::options().date_parts("listed", []),
            "column `listed`: `date_parts` names no part; name one, or call `.skip(\"listed\")`",
        ),
        (
            Prep::options().fill_with("rooms", "x"),
            "column `rooms`: its kind is number, and `fill_with` gives the text `x`",
        ),
        (
            Prep::options().fill(Fill::Refuse),
            "column `rooms`: 2 rows have no value, and `Fill::Refuse` fills none; call `.fill_with(\"rooms\", …)`",
        ),
    ] {
        assert_eq!(error(options.fit(&houses)), expected);
    }
}

#[test]
fn a_row_has_the_features_of_its_row_in_the_table() {
    let houses = houses();
    let prep = Prep::fit(&houses).unwrap();
    let row = prep.row([
        ("rooms", 3.into()),
        ("age", 10.into()),
        ("area", (1e6 + 1.).into()),
        ("city", "Oslo".into()),
        ("garden", true.into()),
        ("listed", "2024-05-31".into()),
    ]);
    let first = prep.features(&houses).unwrap().narrow(0, 0, 1).unwrap();
    assert_eq!(row.unwrap().to_vec2::<f32>().unwrap(), first.to_vec2::<f32>().unwrap());
    let empty = prep.row([]).unwrap();
    assert_eq!((column(&prep, &empty, "rooms"), column(&prep, &empty, "rooms is missing")), (vec![0.], vec![1.]));
    assert_eq!(column(&prep, &empty, "city=Bergen"), [1.]);
    // A city that the part for training does not have.
    let other = prep.row([("city", "Bodø".into()), ("price", 3.into())]).unwrap();
    let cities = ["city=Bergen", "city=Oslo", "city=Tromsø", "city is missing"];
    assert!(cities.iter().all(|name| column(&prep, &other, name) == [0.]));
    let whole = Table::from_columns([("rooms", vec![1.into(), 2.into()])]).unwrap();
    let refusing = Prep::options().fill(Fill::Refuse).fit(&whole).unwrap();
    assert_eq!(error(refusing.row([])), "column `rooms`: the row has no value, and nothing fills it; give a number");
    for (name, value, expected) in [
        ("citty", Value::from("Oslo"), "the row: there is no column `citty`; did you mean `city`?"),
        ("rooms", "three".into(), "column `rooms`: it takes a number, and not the text `three`"),
        ("rooms", f64::INFINITY.into(), "column `rooms`: it takes a number, and not the number inf"),
        (
            "age",
            1e300.into(),
            "column `age`: the row is too large for f32; scale the column, or write it in a larger unit",
        ),
        (
            "garden",
            "perhaps".into(),
            "column `garden`: it takes true or false, `true` or `false`, and not the text `perhaps`",
        ),
        ("city", 3.into(), "column `city`: it takes a text, and not the number 3"),
        ("garden", 1.into(), "column `garden`: it takes true or false, `true` or `false`, and not the number 1"),
        (
            "listed",
            "31.05.2024".into(),
            "column `listed`: it takes a date such as \"2024-05-31\", and not the text `31.05.2024`",
        ),
    ] {
        assert_eq!(error(prep.row([(name, value)])), expected);
    }
    let sizes = ["37.0", "36.50", "37.0"].map(Value::from).to_vec();
    let sizes = Table::from_columns([("size", sizes), ("y", [1., 2., 3.].map(Value::from).to_vec())]).unwrap();
    let sizes = Prep::fit(&sizes.with_target("y").unwrap()).unwrap();
    let features = |value: Value| sizes.row([("size", value)]).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!((features(37.into()), features(36.5.into())), (features("37.0".into()), features("36.50".into())));
    assert_eq!(features("".into()), features(gap()));
    assert_eq!(
        error(prep.row([("age", 1.into()), ("age", 2.into())])),
        "column `age`: it is given twice; give it once"
    );
}

#[test]
fn a_prep_travels_to_trials_and_files() {
    let houses = houses();
    let prep = Prep::options().scaled_target().fit(&houses).unwrap();
    let mut pack = Pack::new();
    prep.pack("prep", &mut pack).unwrap();
    houses.pack("houses", &mut pack).unwrap();
    let file = std::fs::File::from(pack.into_memfd().unwrap());
    let shared = Shared::open(format!("/proc/self/fd/{}", file.as_raw_fd()).as_ref()).unwrap();
    let (there, table) = (Prep::unpack("prep", &shared).unwrap(), Table::unpack("houses", &shared).unwrap());
    assert_eq!(there, prep);
    assert_eq!(table.describe(), houses.describe());
    let numbers = |prep: &Prep, table: &Table| prep.features(table).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(numbers(&there, &table), numbers(&prep, &houses));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.prep.json");
    std::fs::write(&path, "older").unwrap();
    prep.save(&path).unwrap();
    let loaded = Prep::load(&path).unwrap();
    assert_eq!(numbers(&loaded, &houses), numbers(&prep, &houses));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let text = std::fs::read_to_string(&path).unwrap();
    let damaged = |text: String| {
        std::fs::write(&path, text).unwrap();
        error(Prep::load(&path)).replace(path.to_str().unwrap(), "FILE")
    };
    let version = damaged(text.replace("\"version\": 1", "\"version\": 2"));
    assert_eq!(
        version,
        "FILE: cannot load the Prep: it has version 2, and this Ferrotune reads version 1; update Ferrotune, or fit again"
    );
    for length in (0..text.len() - 1).step_by(97) {
        assert!(damaged(text[..length].to_owned()).starts_with("FILE: cannot load the Prep: "));
    }
    assert!(damaged("{\"format\": \"x\"}".to_owned()).starts_with("FILE: cannot load the Prep: missing field"));
    assert!(error(Prep::load("nowhere.json")).starts_with("nowhere.json: cannot load the Prep: No such file"));
    assert!(error(prep.save("nowhere/x.json")).starts_with("nowhere/x.json: cannot save the Prep: No such file"));
}

#[test]
fn a_file_becomes_a_trained_row() {
    let Some(folder) = folder("prep::a_file_becomes_a_trained_row") else { return };
    let cities = ["Oslo", "Bergen", "NA", "Tromsø"];
    let row = |row: usize| {
        let rooms = if row.is_multiple_of(9) { String::new() } else { (row % 6).to_string() };
        format!("{row},{rooms},{},2024-{:02}-11,{}\n", cities[row % 4], row % 12 + 1, ["no", "yes"][row % 2])
    };
    let rows: String = (0..2000).map(row).collect();
    let file = write(folder.path(), "houses.csv", format!("id,rooms,city,listed,sold\n{rows}"));
    let houses = csv(&file).drop("id").target("sold").unwrap();
    assert_eq!(houses.classes().unwrap(), ["no", "yes"]);
    let [train, valid] = houses.split([0.8, 0.2], 7).unwrap();
    assert_eq!((train.len(), valid.len()), (1600, 400));
    let prep = Prep::fit(&train).unwrap();
    assert_eq!(prep.classes().unwrap(), ["no", "yes"]);
    let valid = prep.apply(&valid).unwrap();
    let (features, classes) = valid.batch(400, true).iter().next().unwrap().unwrap();
    assert_eq!((features.dims(), classes.dtype()), (&[400, prep.width()][..], candle_core::DType::U32));
    let row = prep.row([("rooms", 3.into()), ("city", "Oslo".into())]).unwrap();
    assert_eq!(row.dims(), [1, prep.width()]);

    // A part of a file that is to be predicted: without the target, with a single word, and with a new city.
    let new = write(folder.path(), "new.csv", "city,rooms,listed\nBodø,3,2025-01-01\n,,\n");
    assert_eq!(prep.features(&csv(&new).table().unwrap()).unwrap().dims(), [2, prep.width()]);
    let new = |text: &str| write(folder.path(), "new.csv", text);
    let read = |text: &str| prep.features(&csv(&new(text)).table().unwrap());
    let file = new("");
    for (text, expected) in [
        ("city,listed\nOslo,2025-01-01\n", "FILE: there is no column `rooms`; there are `city`, `listed`"),
        (
            "city,rooms,listed\n1,1,2025-01-01\n",
            "column `city`: its kind is number here and was category in the fit; read the table with `.category(\"city\")`",
        ),
        (
            "city,rooms,listed\nOslo,many,2025-01-01\n",
            "column `rooms`: its kind is category here and was number in the fit; read the table with `.number(\"rooms\")`",
        ),
        (
            "city,rooms,listed\nOslo,1,1.1.2025\n",
            "column `listed`: its kind is category here and was date in the fit; read the table with `.date(\"listed\")`",
        ),
    ] {
        assert_eq!(error(read(text)).replace(&file, "FILE"), expected);
    }
}

#[test]
fn targets_have_values_and_texts_are_asked_for() {
    let Some(folder) = folder("prep::targets_have_values_and_texts_are_asked_for") else { return };
    let rows: String =
        (0..100).map(|row| format!("{row},name {row},{}\n", if row % 30 == 7 { "" } else { "a" })).collect();
    let file = write(folder.path(), "x.csv", format!("n,name,kind\n{rows}"));
    let table = csv(&file).table().unwrap();
    let seen = |error: String| error.replace(&file, "FILE");
    assert_eq!(
        seen(error(Prep::fit(&table))),
        "column `name`: it is text with 100 different values, which Prep does not encode; read the table with `.drop(\"name\")` or \
         `.category(\"name\")`, or with `.target(\"name\")` if it is to be predicted"
    );
    assert_eq!(
        seen(error(csv(&file).target("kind"))),
        "column `kind`: rows 7, 37 and 2 more of FILE have no value to predict; fill them, or leave such rows out with `.without_gaps(\"kind\")` first"
    );
    assert_eq!(csv(&file).without_gaps("kind").target("kind").unwrap().len(), 96);
    assert_eq!(
        seen(error(csv(&file).target("name"))),
        "column `name`: its kind is text, and a target is a number, a category or yes/no; read the file with `.category(\"name\")` for classes"
    );
    assert_eq!(csv(&file).category("name").target("name").unwrap().classes().map(<[String]>::len), Some(100));
    assert_eq!(seen(error(csv(&file).target("nam"))), "FILE: there is no column `nam`; did you mean `name`?");
    // Classes that are numbers are sorted as numbers.
    let classes = csv(&file).category("n").target("n").unwrap();
    assert_eq!(classes.classes().unwrap()[..3], ["0", "1", "2"]);
    let [train, _] = table.drop("name").unwrap().split([0., 1.], 7).unwrap();
    assert_eq!(seen(error(Prep::fit(&train))), "FILE: the part for training has no rows");
    let only = Table::from_columns([("a", vec![gap(), gap()])]).unwrap();
    assert_eq!(error(Prep::fit(&only)), "column `a`: it has only gaps in the part for training; call `.drop(\"a\")`");
    assert_eq!(only.columns().iter().map(Column::gaps).collect::<Vec<_>>(), [2]);
    let prep = Prep::fit(&table.drop("name").unwrap()).unwrap();
    assert!(
        error(prep.apply(&table))
            .ends_with("the Prep was fitted without a target; read the table with `.target`, or call `.features`")
    );
}
