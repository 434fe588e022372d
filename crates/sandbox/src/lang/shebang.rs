//! The `#!` line of a script.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// As much of a file as the kernel reads to find out what it is.
pub(super) const HEAD: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shebang {
    /// A path, or a bare name where `env` is to look it up.
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
}

impl Shebang {
    pub(super) fn parse(head: &[u8]) -> Option<Shebang> {
        let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?.trim_ascii();
        let mut words = line.splitn(2, u8::is_ascii_whitespace);
        let program = words.next().filter(|p| !p.is_empty())?;
        let rest = words.next().unwrap_or_default().trim_ascii();
        if Path::new(OsStr::from_bytes(program)).file_name() == Some(OsStr::new("env")) {
            return Shebang::behind_env(rest);
        }
        // The kernel gives everything after the program as one argument.
        let args = if rest.is_empty() { vec![] } else { vec![owned(rest)] };
        Some(Shebang { program: owned(program), args })
    }

    /// `env -S program args…`, with or without the option: scripts that were written for other
    /// systems leave it out.
    fn behind_env(rest: &[u8]) -> Option<Shebang> {
        let rest = rest.strip_prefix(b"-S").unwrap_or(rest);
        let mut words = rest
            .split(u8::is_ascii_whitespace)
            .filter(|w| !w.is_empty())
            .skip_while(|w| w.contains(&b'='));
        let program = owned(words.next().filter(|w| !w.starts_with(b"-"))?);
        Some(Shebang { program, args: words.map(owned).collect() })
    }
}

fn owned(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_split_as_the_kernel_and_env_do() {
        let check = |line: &str, expected: Option<&[&str]>| {
            let got = Shebang::parse(line.as_bytes()).map(|s| {
                let mut words = vec![s.program];
                words.extend(s.args);
                words
            });
            let expected = expected.map(|w| w.iter().map(OsString::from).collect::<Vec<_>>());
            assert_eq!(got, expected, "{line:?}");
        };
        check("#!/bin/sh\necho", Some(&["/bin/sh"]));
        check("#! /bin/sh -e \n", Some(&["/bin/sh", "-e"]));
        check("#!/usr/bin/awk -f -x", Some(&["/usr/bin/awk", "-f -x"]));
        check("#!/usr/bin/env python3\r\n", Some(&["python3"]));
        check("#!/usr/bin/env -S A=1 python3 -u -X dev", Some(&["python3", "-u", "-X", "dev"]));
        check("#!/usr/bin/env -Spython3 -u", Some(&["python3", "-u"]));
        check("#!/usr/bin/env -i", None);
        check("#!", None);
        check("#!  \n/bin/sh", None);
        check(" #!/bin/sh", None);
        check("", None);
    }
}
