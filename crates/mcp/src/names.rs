//! What tools are called here. hotcell's names have dots and slashes, which several clients refuse; `-` is in
//! none of them, so that it can stand for both, and the way back is without doubt.

use hotcell_request::ToolName;

/// Longest name that is listed: what the strictest clients take.
pub(crate) const NAME_MOST: usize = 64;

/// `fs.read` is `fs-read`, `github/issues.list` is `github--issues-list`.
pub(crate) fn to_client(name: &ToolName) -> String {
    name.to_string().replace('/', "--").replace('.', "-")
}

/// The same back. A name as hotcell itself writes it is understood as well.
pub(crate) fn of_client(text: &str) -> Option<ToolName> {
    // Longer ones are nothing that was ever listed, and are not copied.
    let longest = 2 * ToolName::MAX + 2;
    if text.len() > longest {
        return None;
    }
    let name = text.replacen("--", "/", 1).replace('-', ".");
    name.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_spelling_that_leads_back_to_it() {
        for (name, client) in [
            ("add", "add"),
            ("fs.read", "fs-read"),
            ("a_b.c_d", "a_b-c_d"),
            ("github/issues.list", "github--issues-list"),
            ("github/list", "github--list"),
        ] {
            let name: ToolName = name.parse().unwrap();
            assert_eq!(to_client(&name), client);
            assert_eq!(of_client(client), Some(name.clone()));
            assert_eq!(of_client(&name.to_string()), Some(name));
            let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            assert!(client.chars().all(allowed), "{client}");
        }
    }

    #[test]
    fn what_is_no_name_is_none() {
        let long = "a".repeat(200);
        for text in ["", "-", "--", "a--", "--a", "a---b", "a--b--c", "A", "a b", "a/b/c", &long] {
            assert_eq!(of_client(text), None, "{text:?}");
        }
    }
}
