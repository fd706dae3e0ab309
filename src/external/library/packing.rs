//! From lanes of 32 bits to elements of the format's width, and back.

use zerocopy::IntoBytes;

/// Stores patterns at their width, in the machine's byte order.
pub(super) fn pack(lanes: &[u32], width: usize, bytes: &mut [u8]) {
    match width {
        4 => bytes.copy_from_slice(lanes.as_bytes()),
        2 => bytes.chunks_exact_mut(2).zip(lanes).for_each(|(bytes, &lane)| bytes.copy_from_slice(&(lane as u16).to_ne_bytes())),
        _ => bytes.iter_mut().zip(lanes).for_each(|(byte, &lane)| *byte = lane as u8),
    }
}

/// The first element that is no longer what was packed. Caches are large: whole runs are compared first.
pub(super) fn first_changed(bytes: &[u8], lanes: &[u32], width: usize) -> Option<usize> {
    const RUN: usize = 256;
    let mut packed = [0; 4 * RUN];
    let runs = bytes.chunks(RUN * width).zip(lanes.chunks(RUN));
    let mut differs = |(held, lanes): &(&[u8], &[u32])| {
        let packed = &mut packed[..held.len()];
        pack(lanes, width, packed);
        packed != *held
    };
    let (n, (held, lanes)) = runs.enumerate().find(|(_, run)| differs(run))?;
    let element = unpacked(held, width).zip(lanes).position(|(held, &given)| held != given)?;
    Some(n * RUN + element)
}

/// The patterns that bytes hold.
pub(super) fn unpacked(bytes: &[u8], width: usize) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(width).map(|bytes| match *bytes {
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a] => a.into(),
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_changes_are_found() {
        for width in [1, 2, 4] {
            let mask = u32::MAX >> (32 - 8 * width);
            let lanes: Vec<u32> = (0..1000u32).map(|n| n.wrapping_mul(0x9e37_79b9) & mask).collect();
            let mut bytes = vec![0; lanes.len() * width];
            pack(&lanes, width, &mut bytes);
            assert!(unpacked(&bytes, width).eq(lanes.iter().copied()));
            assert_eq!(first_changed(&bytes, &lanes, width), None);
            for element in [0, 255, 256, 511, 999] {
                let mut changed = bytes.clone();
                changed[element * width + width - 1] ^= 1;
                assert_eq!(first_changed(&changed, &lanes, width), Some(element), "{width} bytes");
            }
        }
    }
}
