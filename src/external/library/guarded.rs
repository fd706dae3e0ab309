//! A call's tensors in memory as C has it: elements of the format's width, aligned, with guards around each.

use super::packing::{first_changed, pack, unpacked};
use super::{abi, sanitizer};
use crate::number::Dtype;
use crate::tensor::Tensor;
use std::borrow::Cow;
use std::ops::Range;

/// Addresses of tensors are multiples of this, as DLPack asks.
const ALIGNMENT: usize = 256;
/// At least so many bytes between tensors, and before the first and after the last.
const GUARD: usize = 256;
/// The longest gap: a guard, and what alignment adds.
const LONGEST: usize = GUARD + ALIGNMENT - 1;
/// Axes of the tensor that has most.
const AXES: usize = 4;

/// What guards hold: the canary of BF16, twice. A NaN in 16 and 32 bits, no valid index, and without a zero byte, since zeros are what is
/// written astray most.
const PATTERN: [u8; LONGEST] = {
    let word = 0xffea_ffea_u32.to_ne_bytes();
    let mut bytes = [0; LONGEST];
    let mut n = 0;
    while n < LONGEST {
        bytes[n] = word[n % 4];
        n += 1;
    }
    bytes
};

enum Lanes<'a> {
    Read(Cow<'a, [u32]>),
    Written(&'a mut [u32]),
}

impl Lanes<'_> {
    fn get(&self) -> &[u32] {
        match self {
            Lanes::Read(lanes) => lanes,
            Lanes::Written(lanes) => lanes,
        }
    }
}

/// A tensor of a call.
struct Part<'a> {
    name: &'static str,
    element: abi::ElementType,
    dims: Vec<usize>,
    lanes: Lanes<'a>,
    /// Its bytes, counted from the first aligned address.
    bytes: Range<usize>,
}

impl Part<'_> {
    fn width(&self) -> usize {
        usize::from(self.element.bits) / 8
    }

    /// For messages: `` `o` (bf16 [3, 2, 8]) ``.
    fn label(&self) -> String {
        let dtype = Dtype::ALL.into_iter().find(|&dtype| abi::ElementType::from(dtype) == self.element);
        format!("`{}` ({} {:?})", self.name, dtype.map_or("i32", Dtype::name), self.dims)
    }
}

/// Number of a tensor among those of its call.
#[derive(Clone, Copy)]
pub(super) struct Place(usize);

/// The tensors of one call.
#[derive(Default)]
pub(super) struct Parts<'a> {
    parts: Vec<Part<'a>>,
}

impl<'a> Parts<'a> {
    fn push(&mut self, name: &'static str, element: abi::ElementType, dims: &[usize], lanes: Lanes<'a>) -> Option<Place> {
        let last = self.parts.last().map_or(0, |part| part.bytes.end);
        let start = (last + GUARD).next_multiple_of(ALIGNMENT);
        let bytes = start..start + lanes.get().len() * usize::from(element.bits) / 8;
        self.parts.push(Part { name, element, dims: dims.to_vec(), lanes, bytes });
        Some(Place(self.parts.len() - 1))
    }

    /// An input.
    pub(super) fn read(&mut self, name: &'static str, tensor: &'a Tensor) -> Option<Place> {
        self.push(name, tensor.dtype.into(), &tensor.dims, Lanes::Read(Cow::Borrowed(&tensor.bits)))
    }

    /// An input of 32-bit integers, flat unless dims are given.
    pub(super) fn integers(&mut self, name: &'static str, values: &'a [u32], dims: Option<[usize; 2]>) -> Option<Place> {
        let flat = [values.len()];
        let dims = dims.as_ref().map_or(&flat[..], |dims| &dims[..]);
        self.push(name, abi::I32, dims, Lanes::Read(Cow::Borrowed(values)))
    }

    /// An input of F32 values that may be absent.
    pub(super) fn values(&mut self, name: &'static str, values: Option<&[f32]>) -> Option<Place> {
        let values = values?;
        let bits: Vec<u32> = values.iter().map(|x| x.to_bits()).collect();
        self.push(name, Dtype::F32.into(), &[values.len()], Lanes::Read(Cow::Owned(bits)))
    }

    /// An output; the kernel finds in it what the tensor holds.
    pub(super) fn write(&mut self, name: &'static str, tensor: &'a mut Tensor) -> Option<Place> {
        self.push(name, tensor.dtype.into(), &tensor.dims, Lanes::Written(&mut tensor.bits))
    }

    /// The bytes between tensors.
    fn gaps(&self) -> impl Iterator<Item = Range<usize>> {
        let end = self.end();
        let starts = std::iter::once(0).chain(self.parts.iter().map(|part| part.bytes.end));
        let ends = self.parts.iter().map(|part| part.bytes.start).chain(std::iter::once(end));
        starts.zip(ends).map(|(start, end)| start..end)
    }

    fn end(&self) -> usize {
        self.parts.last().map_or(0, |part| part.bytes.end) + GUARD
    }
}

/// Shape and strides of a tensor.
type Axes = [i64; 2 * AXES];

/// The memory of calls, kept between them.
pub(super) struct Memory {
    bytes: Vec<u8>,
    axes: Vec<Axes>,
}

impl Memory {
    pub(super) const fn new() -> Self {
        Memory { bytes: Vec::new(), axes: Vec::new() }
    }

    /// Copies tensors in and sets guards, poisoned where AddressSanitizer is there: until [`Laid::finish`].
    pub(super) fn lay<'m, 'a>(&'m mut self, parts: Parts<'a>) -> Laid<'m, 'a> {
        self.axes.clear();
        self.axes.extend(parts.parts.iter().map(|part| {
            let mut axes = [0; 2 * AXES];
            let mut stride = 1;
            for (n, &dim) in part.dims.iter().enumerate().rev() {
                (axes[n], axes[AXES + n]) = (dim as i64, stride);
                stride *= dim as i64;
            }
            axes
        }));
        if self.bytes.len() < parts.end() + ALIGNMENT {
            self.bytes = vec![0; parts.end() + ALIGNMENT];
        }
        let first = self.bytes.as_ptr().align_offset(ALIGNMENT);
        let bytes = &mut self.bytes[first..];
        for gap in parts.gaps() {
            let length = gap.len();
            bytes[gap].copy_from_slice(&PATTERN[..length]);
        }
        for part in &parts.parts {
            pack(part.lanes.get(), part.width(), &mut bytes[part.bytes.clone()]);
        }
        parts.gaps().for_each(|gap| sanitizer::poison(&bytes[gap]));
        Laid { memory: self, first, parts }
    }
}

/// Tensors as a kernel sees them.
pub(super) struct Laid<'m, 'a> {
    memory: &'m mut Memory,
    /// The first aligned byte.
    first: usize,
    parts: Parts<'a>,
}

impl Laid<'_, '_> {
    /// What stands in the call's arguments for a tensor. Its addresses are good until [`Laid::finish`]. They come from
    /// `Vec::as_mut_ptr`, which makes no reference to the elements, so that one tensor's addresses outlive the making of another's.
    pub(super) fn tensor(&mut self, place: Option<Place>) -> abi::Tensor {
        let Some(Place(n)) = place else { return abi::Tensor::NONE };
        let part = &self.parts.parts[n];
        let axes = self.memory.axes.as_mut_ptr().wrapping_add(n).cast::<i64>();
        abi::Tensor {
            data: self.memory.bytes.as_mut_ptr().wrapping_add(self.first + part.bytes.start).cast(),
            device: abi::CPU,
            ndim: part.dims.len() as i32,
            dtype: part.element,
            shape: axes,
            strides: axes.wrapping_add(AXES),
            byte_offset: 0,
        }
    }

    /// Takes the outputs over, unless the kernel wrote anywhere else: then says where.
    pub(super) fn finish(self) -> Result<(), String> {
        let Laid { memory, first, mut parts } = self;
        let bytes = &memory.bytes[first..first + parts.end()];
        sanitizer::unpoison(bytes);
        let mut outside = Vec::new();
        for (n, gap) in parts.gaps().enumerate() {
            if bytes[gap.clone()] != PATTERN[..gap.len()] {
                let before = n.checked_sub(1).map(|n| &parts.parts[n]);
                outside.push(in_gap(&bytes[gap], before, parts.parts.get(n)));
            }
        }
        for part in &parts.parts {
            let Lanes::Read(lanes) = &part.lanes else { continue };
            if let Some(element) = first_changed(&bytes[part.bytes.clone()], lanes, part.width()) {
                outside.push(format!("changed its input {} at element {element}", part.label()));
            }
        }
        if !outside.is_empty() {
            return Err(outside.join("; "));
        }
        for part in &mut parts.parts {
            let width = part.width();
            if let Lanes::Written(lanes) = &mut part.lanes {
                lanes.iter_mut().zip(unpacked(&bytes[part.bytes.clone()], width)).for_each(|(lane, bits)| *lane = bits);
            }
        }
        Ok(())
    }
}

/// What was changed in a guard, told by the tensor that is nearer to it.
fn in_gap(held: &[u8], before: Option<&Part<'_>>, after: Option<&Part<'_>>) -> String {
    let changed: Vec<usize> = (0..held.len()).filter(|&n| held[n] != PATTERN[n]).collect();
    let (first, last) = (changed[0], changed[changed.len() - 1]);
    let bytes = |count: usize| format!("{count} {}", if count == 1 { "byte" } else { "bytes" });
    let range = |near: usize, far: usize| if near == far { bytes(near) } else { format!("{near} to {}", bytes(far)) };
    let count = bytes(changed.len());
    let (past, ahead) = (first + 1, held.len() - last);
    match (before, after) {
        (Some(before), after) if after.is_none() || past <= ahead => {
            format!("changed {count} past the end of {}, {} past it", before.label(), range(past, last + 1))
        }
        (_, Some(after)) => {
            format!("changed {count} before the start of {}, {} before it", after.label(), range(ahead, held.len() - first))
        }
        (_, None) => format!("changed {count} of a call without tensors"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: Dtype, dims: &[usize]) -> Tensor {
        let mut tensor = Tensor::filled(dtype, dims, 0);
        tensor.bits.iter_mut().enumerate().for_each(|(n, bits)| *bits = n as u32 % 97 + 1);
        tensor
    }

    /// Lays two inputs and an output out, and lets `kernel` loose on their addresses.
    fn after(kernel: impl Fn([abi::Tensor; 3])) -> (Result<(), String>, Tensor) {
        let (x, lengths) = (tensor(Dtype::E4M3, &[1, 3, 1, 1]), [5, 6]);
        let mut o = tensor(Dtype::BF16, &[1, 3, 1]);
        let mut memory = Memory::new();
        let mut parts = Parts::default();
        let places = [parts.read("x", &x), parts.write("o", &mut o), parts.integers("lengths", &lengths, None)];
        let mut laid = memory.lay(parts);
        kernel(places.map(|place| laid.tensor(place)));
        (laid.finish(), o)
    }

    /// Writes one byte, at an offset from the first of a tensor.
    #[allow(unsafe_code)]
    fn poke(tensor: abi::Tensor, offset: isize, value: u8) {
        // SAFETY: the tests stay within the tensor or 256 bytes of it, which is all one allocation, unused by Rust meanwhile.
        unsafe { tensor.data.cast::<u8>().wrapping_offset(offset).write(value) }
    }

    #[test]
    fn outputs_are_taken_over() {
        let (result, o) = after(|[_, o, _]| {
            poke(o, 2, 0x34);
            poke(o, 3, 0x12);
        });
        let middle = if cfg!(target_endian = "little") { 0x1234 } else { 0x3412 };
        assert_eq!((result, o.bits), (Ok(()), vec![1, middle, 3]));
    }

    #[test]
    fn tensors_are_row_major_and_aligned() {
        let (result, _) = after(|tensors| {
            for (tensor, ndim) in tensors.iter().zip([4, 3, 1]) {
                assert_eq!((tensor.data.addr() % ALIGNMENT, tensor.ndim, tensor.byte_offset), (0, ndim, 0));
            }
        });
        assert_eq!(result, Ok(()));
        let x = tensor(Dtype::F32, &[2, 3, 4, 5]);
        let mut memory = Memory::new();
        let mut parts = Parts::default();
        let place = parts.read("x", &x);
        memory.lay(parts).tensor(place);
        assert_eq!(memory.axes, [[2, 3, 4, 5, 60, 20, 5, 1]]);
    }

    #[test]
    fn a_write_outside_is_told_by_the_nearest_tensor_and_its_distance() {
        let cases: [(usize, isize, &str); 6] = [
            (1, 6, "changed 1 byte past the end of `o` (bf16 [1, 3, 1]), 1 byte past it"),
            (1, 6 + 199, "changed 1 byte past the end of `o` (bf16 [1, 3, 1]), 200 bytes past it"),
            (1, -1, "changed 1 byte before the start of `o` (bf16 [1, 3, 1]), 1 byte before it"),
            (0, -256, "changed 1 byte before the start of `x` (e4m3 [1, 3, 1, 1]), 256 bytes before it"),
            (2, 8 + 255, "changed 1 byte past the end of `lengths` (i32 [2]), 256 bytes past it"),
            (2, 4, "changed its input `lengths` (i32 [2]) at element 1"),
        ];
        for (n, offset, expected) in cases {
            // Zero is what goes astray most.
            let (result, o) = after(|tensors| poke(tensors[n], offset, 0));
            assert_eq!(
                (result, o.bits),
                (Err(expected.to_owned()), vec![1, 2, 3]),
                "an output of a broken call is not taken over"
            );
        }
        let (result, _) = after(|tensors| {
            (6..10).for_each(|n| poke(tensors[1], n, 0));
            poke(tensors[0], 0, 9);
        });
        let both = "changed 4 bytes past the end of `o` (bf16 [1, 3, 1]), 1 to 4 bytes past it; \
                    changed its input `x` (e4m3 [1, 3, 1, 1]) at element 0";
        assert_eq!(result, Err(both.to_owned()));
    }

    #[test]
    fn memory_that_was_used_before_is_guarded_anew() {
        let mut memory = Memory::new();
        for rows in [200, 3, 50] {
            let mut o = tensor(Dtype::F32, &[rows, 7, 1]);
            let given = o.clone();
            let mut parts = Parts::default();
            parts.write("o", &mut o);
            assert_eq!(memory.lay(parts).finish(), Ok(()));
            assert_eq!(o, given);
        }
    }
}
