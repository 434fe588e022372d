//! What to type for a missing interpreter.

use super::HostFacts;
use crate::lang::Language;

/// How a family of distributions installs a package, by the names it has in os-release.
const FAMILIES: [(&[&str], &str); 5] = [
    (&["debian", "ubuntu"], "sudo apt install"),
    (&["fedora", "rhel", "centos"], "sudo dnf install"),
    (&["alpine"], "sudo apk add"),
    (&["arch"], "sudo pacman -S"),
    (&["suse", "opensuse"], "sudo zypper install"),
];

/// The command that brings an interpreter for `language` on this host.
pub fn install(facts: &HostFacts, language: Language) -> String {
    let is = |names: &[&str]| facts.families.iter().any(|f| names.contains(&f.as_str()));
    let family = FAMILIES.into_iter().find(|(names, _)| is(names));
    let package = match language {
        Language::Python if is(&["arch"]) => "python",
        Language::Python => "python3",
        Language::JavaScript => "nodejs",
        Language::Shell => "bash",
    };
    match family {
        Some((_, command)) => format!("`{command} {package}`"),
        None => format!("install {package} from the distribution"),
    }
}
