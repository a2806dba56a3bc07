//! Converts a command to text for a POSIX shell, which runs the command with exactly its arguments.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// The characters, in addition to letters and digits, that need no quotes in a shell.
const PLAIN: &[u8] = b"%+,-./:=@_";

/// The words of a command, quoted if necessary.
pub(crate) fn words(command: &[OsString]) -> Vec<u8> {
    command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(&b' ')
}

/// A word, in single quotes if it has a character that the shell might interpret.
pub(crate) fn quoted(word: &OsStr) -> Vec<u8> {
    let bytes = word.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || PLAIN.contains(byte);
    // A first word with `=` would set a variable.
    if !bytes.is_empty() && bytes.iter().all(plain) && !bytes.contains(&b'=') {
        return bytes.into();
    }
    let mut quoted = vec![b'\''];
    for &byte in bytes {
        match byte {
            b'\'' => quoted.extend(br"'\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn shell_gives_a_command_its_words() {
        let cases =
            ["", "plain", "a b", "it's", "$HOME `id` $(id)", "\"\\\n\t", "a=b", "*", "~", "#x", "-n", "é%A", "!x"];
        let mut command = vec![OsString::from("printf"), "%s\\0".into()];
        command.extend(cases.map(OsString::from));
        command.push(OsStr::from_bytes(b"\xff").into());
        let mut script = b"exec ".to_vec();
        script.extend(words(&command));
        let output = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script)).output().unwrap();
        let mut expected = cases.join("\0").into_bytes();
        expected.extend(b"\0\xff\0");
        assert_eq!(output.stdout, expected);
    }

    #[test]
    fn plain_words_have_no_quotes() {
        assert_eq!(words(&["python".into(), "/a/b.py".into(), "x y".into()]), b"python /a/b.py 'x y'");
    }
}
