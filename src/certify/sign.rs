//! Signatures of certificates: those of OpenSSH (`PROTOCOL.sshsig`), which `ssh-keygen -Y verify -n lastbit` checks too.

use crate::input_error::InputError;
use ssh_key::{HashAlg, LineEnding, PrivateKey, PublicKey, SshSig};
use std::path::Path;

/// Keeps signatures for other purposes from being taken for one of a certificate.
pub const NAMESPACE: &str = "lastbit";

/// A private key.
pub struct Key(PrivateKey);

fn read(path: &Path) -> Result<(String, String), InputError> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| InputError::new(&*file, format!("cannot be read: {error}")))?;
    // What is no text is no key and no signature either, and is told so.
    Ok((file, String::from_utf8_lossy(&bytes).into_owned()))
}

/// What is wrong with a file that should be of some kind; the parser's own words only where it is, and is damaged.
fn no(kind: &str, marked: bool, error: &ssh_key::Error) -> String {
    if marked { format!("is no {kind}: {error}") } else { format!("is no {kind}") }
}

/// What a file of PEM of this kind has.
fn is_pem(text: &str, label: &str) -> bool {
    text.contains(&format!("-----BEGIN {label}-----"))
}

/// Whether it is the half of a key that anyone may have.
fn is_public(text: &str) -> bool {
    PublicKey::from_openssh(text).is_ok()
}

impl Key {
    /// Reads an Ed25519 private key in OpenSSH's format.
    ///
    /// # Errors
    /// Another kind of key, or one that is locked.
    pub fn load(path: &Path) -> Result<Key, InputError> {
        let (file, text) = read(path)?;
        let key = PrivateKey::from_openssh(&text).map_err(|error| {
            let reason = match is_public(&text) {
                true => "is the public half of a key; sign with the private one, whose file has the name without .pub".to_owned(),
                false => {
                    let no = no("OpenSSH private key", is_pem(&text, "OPENSSH PRIVATE KEY"), &error);
                    format!("{no}; `ssh-keygen -t ed25519` makes one")
                }
            };
            InputError::new(&*file, reason)
        })?;
        if key.is_encrypted() {
            let reason = format!(
                "is locked; write the certificate without --sign, then `ssh-keygen -Y sign -n {NAMESPACE} -f {file} CERT`"
            );
            return Err(InputError::new(&*file, reason));
        }
        if key.algorithm() != ssh_key::Algorithm::Ed25519 {
            return Err(InputError::new(&*file, format!("is a key of {}; Ed25519 is what is signed with", key.algorithm())));
        }
        Ok(Key(key))
    }

    /// Signs some bytes; the signature as text.
    ///
    /// # Errors
    /// A key that cannot sign.
    pub fn sign(&self, bytes: &[u8]) -> Result<String, InputError> {
        let signature = self.0.sign(NAMESPACE, HashAlg::Sha512, bytes).and_then(|it| it.to_pem(LineEnding::LF));
        signature.map_err(|error| InputError::new("--sign", format!("cannot sign: {error}")))
    }
}

/// Checks the signature of some bytes by the key in a `.pub` file, or by the one that the signature names where none is given. The
/// fingerprint of the key.
///
/// # Errors
/// A signature or key that cannot be read; another key; bytes that are not what was signed.
pub fn verify(bytes: &[u8], signature: &Path, signer: Option<&Path>) -> Result<String, InputError> {
    let (file, text) = read(signature)?;
    let wrong = |reason: String| InputError::new(&*file, reason);
    let signature =
        SshSig::from_pem(&text).map_err(|error| wrong(no("SSH signature", is_pem(&text, "SSH SIGNATURE"), &error)))?;
    let key = match signer {
        Some(path) => {
            let (file, text) = read(path)?;
            PublicKey::from_openssh(&text).map_err(|error| {
                let reason = match is_pem(&text, "OPENSSH PRIVATE KEY") {
                    true => "is the private half of a key; name the public one, whose file ends in .pub".to_owned(),
                    false => format!(
                        "{}; `ssh-keygen -y -f KEY` prints that of a key",
                        no("public key", text.starts_with("ssh-"), &error)
                    ),
                };
                InputError::new(&*file, reason)
            })?
        }
        None => PublicKey::from(signature.public_key().clone()),
    };
    let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
    if signature.public_key() != key.key_data() {
        let other = signature.public_key().fingerprint(HashAlg::Sha256);
        return Err(wrong(format!("is by another key: {other}, not {fingerprint}")));
    }
    key.verify(NAMESPACE, bytes, &signature)
        .map_err(|_| wrong("does not fit: the certificate is not what was signed".to_owned()))?;
    Ok(fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with `ssh-keygen -t ed25519`, for this test alone.
    const PRIVATE: &str = include_str!("../../tests/certify/key");
    const PUBLIC: &str = include_str!("../../tests/certify/key.pub");

    #[test]
    fn a_signature_holds_for_its_bytes_and_its_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let key = Key::load(&path("key", PRIVATE)).unwrap();
        let signature = path("x.sig", &key.sign(b"text").unwrap());
        let signer = path("key.pub", PUBLIC);
        assert!(verify(b"text", &signature, Some(&signer)).unwrap().starts_with("SHA256:"));
        assert!(verify(b"text", &signature, None).is_ok());
        assert!(verify(b"texT", &signature, Some(&signer)).unwrap_err().to_string().contains("not what was signed"));
        let other = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti user@example.com";
        assert!(verify(b"text", &signature, Some(&path("o.pub", other))).unwrap_err().to_string().contains("another key"));
        assert!(verify(b"text", &path("y.sig", "noise"), None).unwrap_err().to_string().contains("no SSH signature"));
    }

    #[test]
    fn a_file_that_is_no_key_is_told_so_and_which_half_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let load = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Key::load(&path).map(drop).unwrap_err().to_string()
        };
        for noise in [&b"noise"[..], b"", b"\xff\0", b"# Readme\n"] {
            let reason = load(noise);
            assert!(reason.ends_with("is no OpenSSH private key; `ssh-keygen -t ed25519` makes one"), "{reason}");
        }
        assert!(load(PUBLIC.as_bytes()).contains("is the public half"), "{}", load(PUBLIC.as_bytes()));
        let damaged = load(&PRIVATE.as_bytes()[..PRIVATE.len() / 2]);
        assert!(damaged.contains("is no OpenSSH private key: "), "{damaged}");
        let signed = folder.path().join("x.sig");
        let signature = Key(PrivateKey::from_openssh(PRIVATE).unwrap()).sign(b"text").unwrap();
        std::fs::write(&signed, signature).unwrap();
        std::fs::write(&path, PRIVATE).unwrap();
        let reason = verify(b"text", &signed, Some(&path)).unwrap_err().to_string();
        assert!(reason.contains("is the private half"), "{reason}");
        std::fs::write(&path, "noise").unwrap();
        let reason = verify(b"text", &signed, Some(&path)).unwrap_err().to_string();
        assert!(reason.contains("is no public key; `ssh-keygen -y"), "{reason}");
    }
}
