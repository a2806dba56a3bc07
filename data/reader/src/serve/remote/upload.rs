//! The upload of new objects, in parts if they are large.

use super::place::Place;
use super::reason::{Access, reason};
use super::runtime;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use object_store::{Error, ObjectStoreExt as _, WriteMultipart};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// The size of a part in bytes. The stores accept at most 10,000 such parts: 156 GiB.
const PIECE: u64 = 16 << 20;

/// The number of parts that are sent at the same time.
const SIDE_BY_SIDE: usize = 3;

/// The part at `position` of a file whose first `bytes` bytes are uploaded.
pub(crate) fn piece(file: &File, position: u64, bytes: u64) -> io::Result<Bytes> {
    let mut piece = vec![0; (bytes - position).min(PIECE) as usize];
    file.read_exact_at(&mut piece, position)?;
    Ok(piece.into())
}

/// Puts the first `bytes` bytes of a file at an address. Does nothing if an object of that length exists.
pub(crate) fn put(address: &str, file: &File, bytes: u64) -> Result<()> {
    let place = Place::of(address)?;
    runtime()?.block_on(async {
        match place.store.head(&place.key).await {
            Ok(present) if present.size == bytes => return Ok(()),
            // If the user may not list the objects, a store may deny access to an object that does not exist.
            Ok(_) | Err(Error::NotFound { .. } | Error::PermissionDenied { .. }) => {}
            Err(error) => return Err(reason(&place, Access::Write, &error)),
        }
        send(&place, file, bytes).await
    })
}

async fn send(place: &Place, file: &File, bytes: u64) -> Result<()> {
    let refused = |error: Error| reason(place, Access::Write, &error);
    let unread = || format!("cannot read what is to be {}", place.name);
    if bytes <= PIECE {
        let whole = piece(file, 0, bytes).with_context(unread)?;
        place.store.put(&place.key, whole.into()).await.map_err(refused)?;
        return Ok(());
    }
    let upload = place.store.put_multipart(&place.key).await.map_err(refused)?;
    let mut upload = WriteMultipart::new_with_chunk_size(upload, PIECE as usize);
    let mut position = 0;
    let sent: Result<()> = async {
        while position < bytes {
            upload.wait_for_capacity(SIDE_BY_SIDE).await.map_err(refused)?;
            let piece = piece(file, position, bytes).with_context(unread)?;
            position += piece.len() as u64;
            upload.put(piece);
        }
        Ok(())
    }
    .await;
    if let Err(error) = sent {
        // Without this call, the store keeps the parts that have arrived until a rule of the bucket removes them.
        return Err(match upload.abort().await {
            Ok(()) => error,
            Err(left) => error.context(format!("parts of {} stay in the store ({left})", place.name)),
        });
    }
    upload.finish().await.map(drop).map_err(refused)
}
