//! What a rule is shown. docs/extension.d.ts describes the same to whoever writes rules.

use serde::Serialize;
use serde_json::Value;

/// The call to be judged. What a call does not have is `null`.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CallView<'a> {
    pub operation: &'a str,
    pub tool: &'a str,
    pub args: &'a Value,
    pub path: Option<&'a str>,
    pub host: Option<&'a str>,
    pub method: Option<&'a str>,
    pub tenant: &'a str,
    pub subject: &'a str,
    pub door: &'a str,
    /// Of the subject, as the operator gave them.
    pub tags: &'a [String],
}

/// What is known besides the call.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FactsView<'a> {
    /// Milliseconds since 1970, the one reading of the clock that the whole evaluation uses.
    pub now: u64,
    /// Of the workflow.
    pub state: Option<&'a str>,
    pub mode: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of an interface in docs/extension.d.ts.
    fn declared(interface: &str) -> Vec<&'static str> {
        let text = include_str!("../../../docs/extension.d.ts");
        let body = text.split(&format!("interface {interface} {{\n")).nth(1).unwrap();
        let fields = body.split("\n}").next().unwrap().lines().map(str::trim);
        let fields = fields.filter(|line| !line.starts_with(['/', '*']));
        fields.filter_map(|line| line.split([':', '?']).next()?.split(' ').next_back()).collect()
    }

    fn keys(value: &impl Serialize) -> Vec<String> {
        let value = serde_json::to_value(value).unwrap();
        value.as_object().unwrap().keys().cloned().collect()
    }

    fn sorted(mut names: Vec<&str>) -> Vec<&str> {
        names.sort_unstable();
        names
    }

    #[test]
    fn rules_see_what_the_declarations_say() {
        let call = CallView {
            operation: "fs.write",
            tool: "fs.write",
            args: &Value::Null,
            path: None,
            host: None,
            method: None,
            tenant: "t",
            subject: "s",
            door: "cli",
            tags: &[],
        };
        assert_eq!(
            sorted(declared("Call")),
            sorted(keys(&call).iter().map(String::as_str).collect())
        );
        let facts = FactsView { now: 0, state: None, mode: None };
        assert_eq!(
            sorted(declared("Facts")),
            sorted(keys(&facts).iter().map(String::as_str).collect())
        );
    }
}
