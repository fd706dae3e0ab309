//! A call's tensors in memory as C has it: elements of the format's width, aligned, with guards around each.

use super::abi;
use super::sanitizer;
use crate::number::Dtype;
use crate::tensor::Tensor;
use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;

/// Addresses of tensors are multiples of this, as DLPack asks.
const ALIGNMENT: usize = 256;
/// At least so many bytes between tensors, and before the first and after the last.
const GUARD: usize = 256;
/// The longest gap: a guard, and what alignment adds.
const LONGEST: usize = GUARD + ALIGNMENT - 1;
/// Axes of the tensor that has most.
const AXES: usize = 4;

/// What guards hold: the canary of F32, which is a NaN in every format where it stands, and no valid index.
const PATTERN: [u8; LONGEST] = {
    let word = 0xffc0_002a_u32.to_ne_bytes();
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
        let mut outside = String::new();
        for (n, gap) in parts.gaps().enumerate() {
            if bytes[gap.clone()] != PATTERN[..gap.len()] {
                let before = n.checked_sub(1).map(|n| &parts.parts[n]);
                add(&mut outside, &in_gap(&bytes[gap], before, parts.parts.get(n)));
            }
        }
        for part in &parts.parts {
            let Lanes::Read(lanes) = &part.lanes else { continue };
            let held = unpacked(&bytes[part.bytes.clone()], part.width());
            if let Some(element) = held.zip(lanes.iter()).position(|(held, &given)| held != given) {
                add(&mut outside, &format!("changed its input {} at element {element}", part.label()));
            }
        }
        if !outside.is_empty() {
            return Err(outside);
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

fn add(text: &mut String, more: &str) {
    let separator = if text.is_empty() { "" } else { "; " };
    // Writing to a String cannot fail.
    let _ = write!(text, "{separator}{more}");
}

/// What was changed in a guard, told by the tensor that is nearer to it.
fn in_gap(bytes: &[u8], before: Option<&Part<'_>>, after: Option<&Part<'_>>) -> String {
    let changed = || bytes.iter().zip(&PATTERN).enumerate().filter(|(_, (held, set))| held != set).map(|(n, _)| n);
    let (first, last, count) = (changed().next().unwrap_or(0), changed().next_back().unwrap_or(0), changed().count());
    let from_end = bytes.len() - 1 - last;
    let plural = if count == 1 { "byte" } else { "bytes" };
    match (before, after) {
        (Some(before), after) if after.is_none() || first <= from_end => {
            format!("changed {count} {plural} past the end of {}, the first {first} bytes past it", before.label())
        }
        (_, Some(after)) => {
            format!("changed {count} {plural} before the start of {}, the last {from_end} bytes before it", after.label())
        }
        (_, None) => format!("changed {count} {plural} of a call without tensors"),
    }
}

fn pack(lanes: &[u32], width: usize, bytes: &mut [u8]) {
    match width {
        4 => bytes.chunks_exact_mut(4).zip(lanes).for_each(|(bytes, lane)| bytes.copy_from_slice(&lane.to_ne_bytes())),
        2 => bytes.chunks_exact_mut(2).zip(lanes).for_each(|(bytes, &lane)| bytes.copy_from_slice(&(lane as u16).to_ne_bytes())),
        _ => bytes.iter_mut().zip(lanes).for_each(|(byte, &lane)| *byte = lane as u8),
    }
}

fn unpacked(bytes: &[u8], width: usize) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(width).map(|bytes| match *bytes {
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a] => a.into(),
        _ => 0,
    })
}
