//! The magics of devices, as Rust that the cell process runs: a device belongs to the process that computes on it, and
//! that process' environment decides which devices it sees.

use ferrotune_magics::{SelfTest, TpuCheck, TpuConnect};

/// `%tpu_connect`
pub(super) fn connect(request: &TpuConnect) -> String {
    let TpuConnect { tpu, require, self_test } = request;
    let connect = format!("ferrotune::device::connect({tpu:?}, {require})");
    match self_test {
        SelfTest::Off => format!("{connect};"),
        SelfTest::Tpu => format!("if {connect} {{ ferrotune::device::self_test(None); }}"),
        SelfTest::Plugin(plugin) => format!("if {connect} {{ ferrotune::device::self_test(Some({plugin:?})); }}"),
    }
}

/// `%tpu_check`
pub(super) fn check(TpuCheck { tpu, file }: &TpuCheck) -> String {
    format!("ferrotune::device::check({tpu:?}, {file:?});")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_wrote_stays_text() {
        let quoted = "\"); panic!(\"".to_owned();
        let source = check(&TpuCheck { tpu: "v5e:2x2".into(), file: quoted.clone() });
        assert_eq!(source, r#"ferrotune::device::check("v5e:2x2", "\"); panic!(\"");"#);
        let request = TpuConnect { tpu: None, require: true, self_test: SelfTest::Plugin(quoted) };
        let source = connect(&request);
        let expected =
            r#"if ferrotune::device::connect(None, true) { ferrotune::device::self_test(Some("\"); panic!(\"")); }"#;
        assert_eq!(source, expected);
    }
}
