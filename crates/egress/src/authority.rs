//! The certificate authority of one run, for the tunnels that its policy looks into. Its key is nowhere but
//! here, and gone with the run; nobody but the run has a reason to trust it.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use data_encoding::BASE64;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

use crate::Host;

/// Most hosts whose certificates are kept; more are made anew.
const MOST_LEAVES: usize = 256;
/// Clocks differ; and a run may live for days.
const BEFORE: Duration = Duration::from_secs(24 * 60 * 60);
const AFTER: Duration = Duration::from_secs(90 * 24 * 60 * 60);

pub(crate) struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
    leaves: Mutex<HashMap<Host, Leaf>>,
}

/// A certificate with what is above it, and its key (PKCS #8), in DER.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) chain: Vec<Vec<u8>>,
    pub(crate) key: Vec<u8>,
}

impl Authority {
    pub(crate) fn new() -> Result<Authority, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = valid(CertificateParams::new(Vec::new())?);
        params.distinguished_name.push(DnType::CommonName, "hotcell, for one run");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        let issuer = Issuer::new(params, key);
        Ok(Authority { certificate, issuer, leaves: Mutex::new(HashMap::new()) })
    }

    /// As programs expect a file of authorities to be.
    pub(crate) fn pem(&self) -> String {
        let text = BASE64.encode(self.certificate.der());
        let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
        for (at, letter) in text.chars().enumerate() {
            if at > 0 && at % 64 == 0 {
                pem.push('\n');
            }
            pem.push(letter);
        }
        pem.push_str("\n-----END CERTIFICATE-----\n");
        pem
    }

    pub(crate) fn leaf(&self, host: &Host) -> Result<Leaf, rcgen::Error> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = leaves.get(host) {
            return Ok(leaf.clone());
        }
        let leaf = self.issue(host)?;
        if leaves.len() >= MOST_LEAVES {
            leaves.clear();
        }
        leaves.insert(host.clone(), leaf.clone());
        Ok(leaf)
    }

    fn issue(&self, host: &Host) -> Result<Leaf, rcgen::Error> {
        let name = host.as_str().trim_matches(['[', ']']);
        let mut params = valid(CertificateParams::new(vec![name.to_owned()])?);
        params.distinguished_name.push(DnType::CommonName, "hotcell");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let chain = vec![certificate.der().to_vec(), self.certificate.der().to_vec()];
        Ok(Leaf { chain, key: key.serialize_der() })
    }
}

fn valid(mut params: CertificateParams) -> CertificateParams {
    let now = SystemTime::now();
    params.not_before = now.checked_sub(BEFORE).unwrap_or(now).into();
    params.not_after = now.checked_add(AFTER).unwrap_or(now).into();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}
