//! What may be asked for: names of packages with versions and markers, and nothing that leads pip to a file,
//! an address or an option.

use std::fmt;

/// Most packages that are asked for, and most characters of each.
pub const MOST: usize = 1000;
pub const MOST_CHARACTERS: usize = 500;
/// Most bytes of a file of requirements.
pub const MOST_BYTES: u64 = 256 * 1024;

/// What `--preset` stands for.
pub const PRESETS: [(&str, &[&str]); 2] =
    [("python", &[]), ("data", &["matplotlib", "numpy", "pandas"])];

/// One package, in the one form that pip is given it in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement(String);

/// Why something is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{shown}` cannot be asked for")]
pub struct Refused {
    shown: String,
    why: &'static str,
}

impl Refused {
    fn new(line: &str, why: &'static str) -> Refused {
        let shown: String = line.chars().take(80).collect();
        Refused { shown: shown.escape_debug().to_string(), why }
    }

    pub fn why(&self) -> &'static str {
        self.why
    }
}

/// The lines of a `requirements.txt`, without what is only for people.
pub fn lines(text: &str) -> Vec<String> {
    let without_comment = |line: &str| {
        let end = line.starts_with('#').then_some(0).or_else(|| line.find(" #"));
        line.get(..end.unwrap_or(line.len())).unwrap_or(line).trim().to_owned()
    };
    text.lines().map(|line| without_comment(line.trim())).filter(|line| !line.is_empty()).collect()
}

impl Requirement {
    pub fn parse(line: &str) -> Result<Requirement, Refused> {
        let refused = |why| Err(Refused::new(line, why));
        let line = line.trim();
        if line.len() > MOST_CHARACTERS {
            return refused("it is too long");
        }
        if line.starts_with('-') {
            return refused(
                "it is an option of pip: where packages come from is for this host's pip to say",
            );
        }
        if line.contains("://") || line.contains('@') {
            return refused("it is an address: packages are asked for by name");
        }
        if line.contains(['/', '\\']) || line.starts_with('.') {
            return refused("it is a path: packages are asked for by name");
        }
        // pip would read it as options from there on.
        if line.split_whitespace().any(|word| word.starts_with('-')) {
            return refused("it has an option of pip in it");
        }
        let (wanted, marker) = match line.split_once(';') {
            Some((wanted, marker)) => (wanted.trim(), Some(marker.trim())),
            None => (line, None),
        };
        let end = wanted.find(|c: char| !is_of_name(c)).unwrap_or(wanted.len());
        let (name, rest) = wanted.split_at_checked(end).unwrap_or((wanted, ""));
        if !is_name(name) {
            return refused("it does not begin with the name of a package");
        }
        if ARCHIVES.iter().any(|end| name.to_ascii_lowercase().ends_with(end)) {
            return refused("it is the name of a file: packages are asked for by name");
        }
        let (extras, versions) = match rest.trim().strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((extras, versions)) => (Some(extras), versions.trim()),
                None => return refused("its `[` has no `]`"),
            },
            None => (None, rest.trim()),
        };
        let extras: Vec<&str> = extras.into_iter().flat_map(|list| list.split(',')).collect();
        let extras: Vec<&str> = extras.into_iter().map(str::trim).collect();
        if !extras.iter().all(|extra| is_name(extra)) {
            return refused("what is between `[` and `]` are not names");
        }
        let versions = versions
            .strip_prefix('(')
            .and_then(|inner| inner.strip_suffix(')'))
            .unwrap_or(versions);
        let versions: Vec<&str> =
            versions.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
        if !versions.iter().all(|part| is_version(part)) {
            return refused("what follows the name is not versions, such as `==2.1` or `>=1, <2`");
        }
        if marker.is_some_and(|marker| !is_marker(marker)) {
            return refused(
                "what follows `;` is not a marker, such as `python_version < \"3.12\"`",
            );
        }
        let mut text = name.to_owned();
        if !extras.is_empty() {
            text.push_str(&format!("[{}]", extras.join(",")));
        }
        text.push_str(&versions.join(","));
        if let Some(marker) = marker {
            text.push_str(&format!(" ; {marker}"));
        }
        Ok(Requirement(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What pip takes for a file whatever else it says.
const ARCHIVES: [&str; 8] =
    [".whl", ".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.lzma"];

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

fn is_name(text: &str) -> bool {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    is_end(text.chars().next()) && is_end(text.chars().next_back()) && text.chars().all(is_of_name)
}

fn is_version(text: &str) -> bool {
    /// The longer ones first.
    const COMPARE: [&str; 8] = ["===", "==", "~=", "!=", "<=", ">=", "<", ">"];
    let Some(version) = COMPARE.iter().find_map(|sign| text.strip_prefix(sign)) else {
        return false;
    };
    let version = version.trim();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+!*".contains(c);
    !version.is_empty() && version.chars().all(is_plain)
}

fn is_marker(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || " \"'<>=!~._-+()*,".contains(c);
    !text.is_empty() && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_versions_extras_and_markers_have_one_form() {
        for (line, form) in [
            ("numpy", "numpy"),
            (" numpy == 2.1.0 ", "numpy== 2.1.0"),
            ("numpy>=1.20,<3", "numpy>=1.20,<3"),
            ("ruamel.yaml~=0.18", "ruamel.yaml~=0.18"),
            ("requests[socks, security] >=2", "requests[socks,security]>=2"),
            ("a_b-c (>=1)", "a_b-c>=1"),
            ("x==1.*; python_version < '3.12'", "x==1.* ; python_version < '3.12'"),
            ("torch==2.1+cpu", "torch==2.1+cpu"),
        ] {
            assert_eq!(
                Requirement::parse(line).map(|one| one.to_string()),
                Ok(form.into()),
                "{line}"
            );
        }
    }

    #[test]
    fn options_paths_and_addresses_are_refused() {
        for (line, why) in [
            ("-e .", "option"),
            ("--index-url https://example.com/simple", "option"),
            ("-r other.txt", "option"),
            ("--hash=sha256:00", "option"),
            ("https://example.com/a.whl", "address"),
            ("a @ https://example.com/a.whl", "address"),
            ("a @ file:///etc/passwd", "address"),
            ("git+ssh://example.com/a", "address"),
            ("./a", "path"),
            ("../a", "path"),
            ("/etc/passwd", "path"),
            ("a/b", "path"),
            ("numpy \\", "path"),
            (".", "path"),
            ("a-1.0-py3-none-any.whl", "file"),
            ("a.tar.gz", "file"),
            ("numpy --no-binary :all:", "option"),
            ("numpy --hash=sha256:00", "option"),
            ("a; os_name == 'x' -e", "option"),
            ("numpy 2", "versions"),
            ("numpy==", "versions"),
            ("numpy=2", "versions"),
            ("$HOME", "begin"),
            ("${INDEX}", "begin"),
            ("a[", "no `]`"),
            ("a[b;c]", "no `]`"),
            ("a; os_name == `id`", "marker"),
            ("a;", "marker"),
            ("a\u{0}b", "versions"),
            ("ä", "begin"),
            ("", "begin"),
            ("a-", "begin"),
        ] {
            let refused = Requirement::parse(line).expect_err(line);
            assert!(refused.why().contains(why), "{line}: {}", refused.why());
        }
        assert!(Requirement::parse(&"a".repeat(MOST_CHARACTERS + 1)).is_err());
    }

    #[test]
    fn what_a_file_says_to_people_is_left_out() {
        let text = "# what we need\n\nnumpy  # fast\r\n pandas==2 ; os_name == 'posix'\n#end";
        assert_eq!(lines(text), ["numpy", "pandas==2 ; os_name == 'posix'"]);
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_taken_has_nothing_that_leads_elsewhere(line in "\\PC{0,40}") {
            if let Ok(taken) = Requirement::parse(&line) {
                let text = taken.as_str();
                assert!(!text.contains(['/', '\\', '@', '$', '\n', '\r', '\0', '#']), "{text}");
                assert!(!text.starts_with(['-', '.']) && !text.contains(" -"), "{text}");
            }
        }
    }
}
