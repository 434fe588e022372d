//! API keys: a text is one of those that were made, or opens nothing; ids and scopes have one spelling.

use std::sync::OnceLock;

use hotcell_access::{
    Connection, KeyId, Keys, New, PREFIX, Presented, Refused, Scope, Scopes, TEXT, create,
};
use hotcell_types::Name;

use crate::outcome;

const NOW: i64 = 1_700_000_000_000_000_000;

struct Known {
    keys: Keys,
    texts: Vec<String>,
}

/// A text, an id or a scope.
pub fn api_key(data: &[u8]) -> u64 {
    let known = known();
    let text = String::from_utf8_lossy(data);
    let presented = Presented::read(&text);
    if let Ok(presented) = &presented {
        let id = text.get(PREFIX.len()..PREFIX.len() + 16).unwrap();
        assert_eq!((presented.id().to_string().as_str(), text.len()), (id, TEXT));
    }
    let checked = known.keys.check(&text, NOW);
    assert_eq!(checked.is_ok(), known.texts.iter().any(|known| *known == text), "{data:?}");
    assert_eq!(matches!(checked, Err(Refused::Malformed(_))), presented.is_err());
    let id = text.parse::<KeyId>();
    if let Ok(id) = id {
        assert_eq!(id.to_string(), text);
    }
    let scope = text.parse::<Scope>();
    if let Ok(scope) = scope {
        assert_eq!(scope.name(), text);
        assert!(Scopes::from_iter([scope]).has(scope));
    }
    outcome(&[presented.is_ok(), checked.is_ok(), id.is_ok(), scope.is_ok()])
}

pub(crate) fn key_seeds() -> Vec<Vec<u8>> {
    let known = known();
    let texts = known.texts.iter().map(|text| text.as_bytes().to_vec());
    let ids =
        known.texts.iter().filter_map(|text| text.get(4..20)).map(|id| id.as_bytes().to_vec());
    let scopes = Scope::ALL.iter().map(|scope| scope.name().as_bytes().to_vec());
    texts.chain(ids).chain(scopes).chain([PREFIX.as_bytes().to_vec()]).collect()
}

fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let mut conn = Connection::open_in_memory().unwrap();
        let tx = conn.transaction().unwrap();
        let texts = (0..3).map(|_| {
            let new = New {
                name: Name::LOCAL,
                tenant: Name::LOCAL,
                subject: Name::LOCAL,
                scopes: [Scope::Run].into_iter().collect(),
                life: None,
                rate: None,
                concurrent: None,
            };
            create(&tx, new, NOW).unwrap().0.reveal().to_owned()
        });
        let texts = texts.collect();
        Known { keys: Keys::load(&tx).unwrap(), texts }
    })
}
