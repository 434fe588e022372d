//! Removes what crashes leave in the store: half-written files, and contents that no row refers to.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FlockOperation, OFlags};

use crate::digest::Digest;
use crate::dir;
use crate::error::StoreError;
use crate::store::{Store, halves};

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    pub partials: u64,
    pub contents: u64,
    pub bytes: u64,
}

impl Store {
    /// Removes half-written files, and contents for which `is_referenced` says no. It asks while nobody
    /// holds the store, so the answer must come from what is committed now, and not from a transaction
    /// that began before. One directory is locked at a time, and others can write in between.
    ///
    /// [`StoreError::Busy`] if somebody holds the store for long: try again later.
    pub fn sweep<E: From<StoreError>>(
        &self,
        mut is_referenced: impl FnMut(&Digest) -> Result<bool, E>,
    ) -> Result<Swept, E> {
        let mut swept = Swept::default();
        self.sweep_partials(&mut swept)?;
        for shard in self.shards()? {
            let (shard, dir) = shard?;
            let lock = self.lock(FlockOperation::NonBlockingLockExclusive)?;
            for digest in digests(&shard, &dir)? {
                let digest = digest?;
                if !is_referenced(&digest)? {
                    remove(&dir, &digest, &mut swept)?;
                }
            }
            drop(lock);
        }
        Ok(swept)
    }

    fn sweep_partials(&self, swept: &mut Swept) -> Result<(), StoreError> {
        // Who writes one holds the store.
        let lock = self.lock(FlockOperation::NonBlockingLockExclusive)?;
        let sweeping = || StoreError::io("sweep the artifact store");
        for name in dir::names(&*self.dir).map_err(sweeping())? {
            let name = name.map_err(sweeping())?;
            if name.starts_with(dir::PARTIAL) {
                rustix::fs::unlinkat(&*self.dir, name, AtFlags::empty())
                    .map_err(|errno| sweeping()(errno.into()))?;
                swept.partials += 1;
            }
        }
        drop(lock);
        Ok(())
    }

    /// The directories of contents, with the first two digits of those.
    pub(crate) fn shards(
        &self,
    ) -> Result<impl Iterator<Item = Result<(String, OwnedFd), StoreError>>, StoreError> {
        let names = dir::names(&*self.dir).map_err(StoreError::io("list the artifact store"))?;
        Ok(names.filter_map(|name| {
            let opened = name.and_then(|name| {
                let is_shard = name.len() == 2 && name.bytes().all(|b| b.is_ascii_hexdigit());
                let open = || dir::open_beneath(&*self.dir, &name, OFlags::DIRECTORY);
                Ok(is_shard.then(open).transpose()?.map(|dir| (name, dir)))
            });
            opened.map_err(StoreError::io("list the artifact store")).transpose()
        }))
    }
}

/// The contents in one directory. What has another name than a content's is left alone.
pub(crate) fn digests(
    shard: &str,
    dir: &OwnedFd,
) -> Result<impl Iterator<Item = Result<Digest, StoreError>>, StoreError> {
    let names = dir::names(dir).map_err(StoreError::io("list the artifact store"))?;
    Ok(names.filter_map(move |name| match name {
        Ok(rest) => format!("{shard}{rest}").parse().ok().map(Ok),
        Err(error) => Some(Err(StoreError::io("list the artifact store")(error))),
    }))
}

fn remove(dir: &OwnedFd, digest: &Digest, swept: &mut Swept) -> Result<(), StoreError> {
    let (_, name) = halves(digest);
    let removed = || -> io::Result<i64> {
        let stat = rustix::fs::statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        rustix::fs::unlinkat(dir, &name, AtFlags::empty())?;
        Ok(stat.st_size)
    };
    let size = removed().map_err(StoreError::io("sweep the artifact store"))?;
    swept.contents += 1;
    swept.bytes = swept.bytes.saturating_add(u64::try_from(size).unwrap_or(0));
    Ok(())
}
