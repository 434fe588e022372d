//! docs/openapi.json is what the code says. `UPDATE_DOCS=1` writes it.

use std::path::Path;

use serde_json::Value;

#[test]
fn the_document_that_is_checked_in_is_the_one_that_is_served() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let document = hotcell_serve::openapi();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &document).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        there == document,
        "`UPDATE_DOCS=1 cargo test -p hotcell-serve` writes docs/openapi.json"
    );
}

#[test]
fn everything_that_is_referred_to_is_there() {
    let document: Value = serde_json::from_str(&hotcell_serve::openapi()).unwrap();
    fn walk(value: &Value, document: &Value) {
        match value {
            Value::Object(all) => {
                if let Some(Value::String(place)) = all.get("$ref") {
                    let place = place.strip_prefix('#').unwrap_or_else(|| panic!("{place}"));
                    assert!(document.pointer(place).is_some(), "{place}");
                }
                all.values().for_each(|one| walk(one, document));
            }
            Value::Array(all) => all.iter().for_each(|one| walk(one, document)),
            _ => {}
        }
    }
    walk(&document, &document);
}
