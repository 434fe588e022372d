//! The launcher's executable, as something that can be executed and that nobody can change.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;

use hotcell_types::hex;
use rustix::fs::{MemfdFlags, OFlags, SealFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::random;

/// The launcher's executable.
#[cfg(not(feature = "holes"))]
const IMAGE: &[u8] = include_bytes!(env!("HOTCELL_LAUNCHER"));
/// The launcher of the escape tests, which can leave layers out.
#[cfg(feature = "holes")]
const IMAGE: &[u8] = include_bytes!(env!("HOTCELL_LAUNCHER_WITH_HOLES"));

/// The same code as a library that interpreters load.
#[cfg(not(feature = "holes"))]
const LIBRARY: &[u8] = include_bytes!(env!("HOTCELL_ZYGOTE"));
#[cfg(feature = "holes")]
const LIBRARY: &[u8] = include_bytes!(env!("HOTCELL_ZYGOTE_WITH_HOLES"));

/// Where root puts it on hosts that execute nothing from memory.
const INSTALLED: &str = "/var/lib/hotcell";

/// The file to execute: made once per process.
pub(crate) fn image() -> io::Result<&'static File> {
    static FILE: OnceLock<File> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file);
    }
    let file = match sealed(IMAGE) {
        // Where the host forbids execution from memory, asking for it is refused.
        Err(Errno::ACCESS) => installed(Path::new(INSTALLED), IMAGE)?,
        other => other?,
    };
    Ok(FILE.get_or_init(|| file))
}

/// The library for zygotes: made once per process. Where the host executes nothing from memory, there are
/// no zygotes.
pub(crate) fn library() -> io::Result<&'static File> {
    static FILE: OnceLock<File> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file);
    }
    let file = sealed(LIBRARY)?;
    Ok(FILE.get_or_init(|| file))
}

/// In memory, sealed.
pub(crate) fn sealed(bytes: &[u8]) -> Result<File, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = match rustix::fs::memfd_create("hotcell-jail", flags | MemfdFlags::EXEC) {
        // Kernels before 6.3 do not know the flag that says it will be executed.
        Err(Errno::INVAL) => rustix::fs::memfd_create("hotcell-jail", flags)?,
        other => other?,
    };
    let mut file = File::from(memory);
    file.write_all(bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// In a file that only root can write; root puts it there.
fn installed(dir: &Path, bytes: &[u8]) -> io::Result<File> {
    let digest = hex::text(&Sha256::digest(bytes));
    let path = dir.join(format!("launcher-{digest}"));
    match checked(&path, bytes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    if !rustix::process::geteuid().is_root() {
        let why = format!("`{}` is not there", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    install(dir, &path, bytes)?;
    checked(&path, bytes)
}

/// Beside and then renamed, so that nobody sees half of it.
fn install(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = dir.join(format!(".launcher-{}", random::digits()?));
    DirBuilder::new().recursive(true).create(dir)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o500).open(&beside)?;
    // For everybody, whatever root's umask is.
    let written = fs::set_permissions(dir, Permissions::from_mode(0o755))
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.set_permissions(Permissions::from_mode(0o555)))
        .and_then(|()| file.sync_all());
    drop(file);
    let placed = written.and_then(|()| fs::rename(&beside, path));
    if placed.is_err() {
        fs::remove_file(&beside).ok();
    }
    placed
}

/// Opened, of root alone, and byte for byte the launcher.
fn checked(path: &Path, bytes: &[u8]) -> io::Result<File> {
    const ROOT: u32 = 0;
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let flags = OFlags::NOFOLLOW.bits() as i32;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    let is_roots = about.uid() == ROOT && about.mode() & WRITABLE_BY_OTHERS == 0;
    let mut found = Vec::new();
    if about.is_file() && is_roots && about.len() == bytes.len() as u64 {
        Read::by_ref(&mut file).take(about.len()).read_to_end(&mut found)?;
    }
    if found == bytes {
        return Ok(file);
    }
    let why = format!("`{}` is not root's, or not this hotcell's launcher", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(found: io::Result<File>) -> Option<io::ErrorKind> {
        found.err().map(|error| error.kind())
    }

    #[test]
    fn only_roots_own_copy_of_the_launcher_is_executed() {
        let dir = tempfile::tempdir().unwrap();
        if !rustix::process::geteuid().is_root() {
            let missing = installed(dir.path(), b"launcher");
            assert_eq!(kind(missing), Some(io::ErrorKind::PermissionDenied));
            return;
        }
        for _ in 0..2 {
            let mut text = String::new();
            installed(dir.path(), b"launcher").unwrap().read_to_string(&mut text).unwrap();
        }
        let path = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o555);
        let refused = || kind(installed(dir.path(), b"launcher"));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o575)).unwrap();
        assert_eq!(refused(), Some(io::ErrorKind::PermissionDenied), "writable for its group");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o555)).unwrap();
        fs::write(&path, "LAUNCHER").unwrap();
        assert_eq!(refused(), Some(io::ErrorKind::PermissionDenied), "something else in it");
        fs::write(&path, "launcher").unwrap();
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        assert_eq!(refused(), Some(io::ErrorKind::PermissionDenied), "of somebody else");
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::chown(&elsewhere, Some(0), None).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(refused().is_some(), "a link");
    }
}
