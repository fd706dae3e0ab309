//! Patterns in lanes of `u32`, as this crate holds them, and in their storage width, as bodies do.

use std::io::{self, Read, Write};
use zerocopy::IntoBytes;

/// Converted at a time: small enough to stay in the first-level cache.
const STAGED: usize = 16 << 10;

/// Writes the low `width` bytes of each lane.
pub(super) fn write(bits: &[u32], width: usize, to: &mut impl Write) -> io::Result<()> {
    if width == 4 && cfg!(target_endian = "little") {
        return to.write_all(bits.as_bytes());
    }
    let mut staged = [0; STAGED];
    for lanes in bits.chunks(STAGED / width) {
        let bytes = &mut staged[..lanes.len() * width];
        match width {
            1 => bytes.iter_mut().zip(lanes).for_each(|(byte, &lane)| *byte = lane as u8),
            2 => bytes.chunks_exact_mut(2).zip(lanes).for_each(|(to, &lane)| to.copy_from_slice(&(lane as u16).to_le_bytes())),
            _ => bytes.chunks_exact_mut(4).zip(lanes).for_each(|(to, &lane)| to.copy_from_slice(&lane.to_le_bytes())),
        }
        to.write_all(bytes)?;
    }
    Ok(())
}

/// Fills the lanes with patterns of `width` bytes.
pub(super) fn read(bits: &mut [u32], width: usize, from: &mut impl Read) -> io::Result<()> {
    if width == 4 && cfg!(target_endian = "little") {
        return from.read_exact(bits.as_mut_bytes());
    }
    let mut staged = [0; STAGED];
    for lanes in bits.chunks_mut(STAGED / width) {
        let bytes = &mut staged[..lanes.len() * width];
        from.read_exact(bytes)?;
        match width {
            1 => lanes.iter_mut().zip(&*bytes).for_each(|(lane, &byte)| *lane = byte.into()),
            2 => lanes
                .iter_mut()
                .zip(bytes.chunks_exact(2))
                .for_each(|(lane, it)| *lane = u16::from_le_bytes([it[0], it[1]]).into()),
            _ => lanes
                .iter_mut()
                .zip(bytes.chunks_exact(4))
                .for_each(|(lane, it)| *lane = u32::from_le_bytes([it[0], it[1], it[2], it[3]])),
        }
    }
    Ok(())
}
