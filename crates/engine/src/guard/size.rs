//! How large a result may be. It is looked at before anything else is done with it: whatever goes through a value
//! by calling itself, its own end included, runs out of stack on one that is deep enough.

use hotcell_request::json::DEPTH_MOST;
use serde_json::Value;

/// Most bytes of texts, and most values, of a result.
const BYTES_MOST: usize = 16 * 1024 * 1024;
const VALUES_MOST: usize = 1024 * 1024;

/// What is too much about a value, which is gone then.
pub(crate) fn fits(value: Value) -> Result<Value, String> {
    match measure(&value) {
        Ok(()) => Ok(value),
        Err(why) => {
            dismantle(value);
            Err(why)
        }
    }
}

fn measure(value: &Value) -> Result<(), String> {
    let (mut bytes, mut values) = (0_usize, 0_usize);
    let mut left = vec![(value, 0)];
    while let Some((value, depth)) = left.pop() {
        values += 1;
        match value {
            Value::String(text) => bytes = bytes.saturating_add(text.len()),
            Value::Array(items) => left.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(members) => {
                bytes = members.keys().fold(bytes, |all, name| all.saturating_add(name.len()));
                left.extend(members.values().map(|member| (member, depth + 1)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        if depth > DEPTH_MOST {
            return Err(format!("it is more than {DEPTH_MOST} deep"));
        }
        if bytes > BYTES_MOST {
            return Err(format!("it has more than {BYTES_MOST} bytes"));
        }
        if values.max(left.len()) > VALUES_MOST {
            return Err(format!("it has more than {VALUES_MOST} parts"));
        }
    }
    Ok(())
}

/// From outside to inside, so that nothing calls itself.
fn dismantle(value: Value) {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(members) => left.extend(members.into_iter().map(|(_, member)| member)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_deep_long_or_many_does_not_fit_and_the_rest_does() {
        let deep = |depth: usize| (0..depth).fold(json!(1), |inner, _| Value::Array(vec![inner]));
        assert!(fits(deep(DEPTH_MOST)).is_ok());
        for (value, why) in [
            (deep(DEPTH_MOST + 1), "deep"),
            (deep(1_000_000), "deep"),
            (json!(["x".repeat(BYTES_MOST), "y"]), "bytes"),
            (json!(vec![1; VALUES_MOST + 1]), "parts"),
        ] {
            assert!(fits(value).unwrap_err().contains(why), "{why}");
        }
    }
}
