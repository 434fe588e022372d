//! Tokens: only what was signed is read, and claims have one spelling.

use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use hotcell_bearer::{
    Allowed, Claims, Connection, Holder, Moment, Paths, Presented, Ring, Scope, migrate, mint,
};
use hotcell_types::Name;

use crate::outcome;

struct Known {
    ring: Ring,
    texts: Vec<String>,
    claims: Vec<Vec<u8>>,
}

/// A text, or claims without a signature.
pub fn bearer(data: &[u8]) -> u64 {
    let known = known();
    let text = String::from_utf8_lossy(data);
    let presented = Presented::read(&known.ring, &text);
    assert_eq!(presented.is_ok(), known.texts.contains(&text.into_owned()), "{data:?}");
    let claims = Claims::decode(data);
    if let Some(claims) = &claims {
        assert_eq!(claims.encode(), data);
        assert!(claims.issued < claims.expires && claims.uses > 0);
    }
    outcome(&[
        presented.is_ok(),
        claims.is_some(),
        claims.as_ref().is_some_and(|claims| claims.parent.is_some()),
        claims.as_ref().is_some_and(|claims| claims.scope.paths.globs().len() > 1),
        claims.as_ref().is_some_and(|claims| claims.holder.run.is_some()),
    ])
}

pub(crate) fn bearer_seeds() -> Vec<Vec<u8>> {
    let known = known();
    let texts = known.texts.iter().map(|text| text.as_bytes().to_vec());
    texts.chain(known.claims.iter().cloned()).chain([b"hct_".to_vec()]).collect()
}

fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        // One for each user, which stays.
        let user = std::fs::metadata("/proc/self").unwrap().uid();
        let home = std::env::temp_dir().join(format!("hotcell-fuzz-{user}"));
        std::fs::create_dir_all(&home).unwrap();
        let ring = Ring::open(&home).unwrap();
        let mut conn = Connection::open_in_memory().unwrap();
        let tx = conn.transaction().unwrap();
        migrate(&tx).unwrap();
        let moment = Moment { clock: 1_700_000_000_000_000_000, boot: [1; 16], uptime: 1 };
        let (mut texts, mut claims) = (Vec::new(), Vec::new());
        for globs in [&[][..], &["src/**"], &["*.rs", "/a/[a-z]?", "docs/"]] {
            let globs = globs.iter().map(|glob| glob.parse().unwrap()).collect();
            let scope = Scope {
                args: Some([2; 32]),
                ..Scope::new("fs.write".parse().unwrap(), Paths::new(globs).unwrap())
            };
            let holder = Holder { tenant: Name::LOCAL, subject: Name::LOCAL, run: None };
            let allowed = Allowed::by_policy(holder, scope, [1; 32]);
            let minted = mint(&tx, &ring, allowed, 3, None, &moment).unwrap();
            texts.push(minted.bearer.reveal().to_owned());
            claims.push(minted.claims.encode());
        }
        Known { ring, texts, claims }
    })
}
