//! The magics of devices, as Rust that the cell process runs. A device belongs to the process that computes on it, and the
//! environment of that process decides which devices it sees.

use crate::engine::handlers::files::expanded_text;
use ferrotune_magics::{DeviceChoice, TpuConnect};

/// The Rust of `%tpu_connect`.
pub(in crate::engine) fn connect(TpuConnect { choice, self_test }: &TpuConnect) -> String {
    let connect = match choice {
        DeviceChoice::Best { tpu, require } => format!("ferrotune::device::connect({tpu:?}, {require})"),
        DeviceChoice::Plugin(plugin) => {
            format!("ferrotune::device::connect_plugin({:?})", expanded_text(plugin))
        }
    };
    if *self_test { format!("if {connect} {{ ferrotune::device::self_test(); }}") } else { format!("{connect};") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_wrote_stays_text() {
        let quoted = "\"); panic!(\"".to_owned();
        let request = TpuConnect { choice: DeviceChoice::Plugin(quoted), self_test: true };
        let source = connect(&request);
        let expected = r#"if ferrotune::device::connect_plugin("\"); panic!(\"") { ferrotune::device::self_test(); }"#;
        assert_eq!(source, expected);
        let request = TpuConnect { choice: DeviceChoice::Best { tpu: None, require: true }, self_test: false };
        assert_eq!(connect(&request), "ferrotune::device::connect(None, true);");
    }
}
