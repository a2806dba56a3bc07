//! A program in the form in which a plugin's compiler takes it.

use super::abi::{Arguments, Program};

/// A StableHLO module, with the structure that points to it.
pub(super) struct MlirProgram {
    pub(super) arguments: Arguments<Program>,
    _code: Vec<u8>,
}

impl MlirProgram {
    pub(super) fn new(module: &[u8]) -> MlirProgram {
        const FORMAT: &str = "mlir";
        // Older plugins expect a NUL after the text that its length does not include.
        let code = [module, b"\0"].concat();
        let mut arguments = Arguments::<Program>::zeroed();
        (arguments.fields.code, arguments.fields.code_length) = (code.as_ptr(), module.len());
        (arguments.fields.format, arguments.fields.format_length) = (FORMAT.as_ptr(), FORMAT.len());
        MlirProgram { arguments, _code: code }
    }
}
