//! A kernel in a C library, through `include/lastbit.h`.
//!
//! The only place of this crate with `unsafe`: loading a library and calling it cannot be checked by Rust. A library may crash or
//! corrupt the process that calls it, so it is loaded in a child process, unless its user trusts it.

mod abi;
mod call;
mod guarded;
mod load;
mod packing;
mod sanitizer;

use crate::number::Dtype;
use crate::subject::attention::Side;
use crate::subject::attention::capabilities::{Capabilities, Form};
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::feature::Feature;
use crate::subject::attention::kernel::{
    AttentionKernel, Attributes, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall,
};
use crate::subject::attention::numerics::Numerics;
use load::Loaded;
use std::path::Path;

/// A kernel in a C library that is loaded in this process, and stays loaded until it ends.
///
/// Tensors are copied into memory with guards around each: a write outside of `o` and `lse` is [`KernelError::Broken`], as long as it lands
/// within 256 bytes of a tensor. Calls of all libraries of a process wait for each other.
pub struct LibraryKernel {
    loaded: Loaded,
}

impl LibraryKernel {
    /// Loads a library and asks it what it is. Its initialisers run: load only what may run in this process.
    ///
    /// # Errors
    /// The file cannot be read or loaded (with the loader's words), has another ABI version, lacks a symbol of a form that it declares, or
    /// describes itself in a text that is no description. Names the library, and the symbol or field.
    pub fn load(path: &Path) -> Result<LibraryKernel, String> {
        Ok(LibraryKernel { loaded: load::load(path)? })
    }

    /// Refuses what the library does not declare: it may have been compiled against a header that did not know of it.
    fn refuse(&self, form: Form, attributes: &Attributes<'_>) -> Result<(), KernelError> {
        let Capabilities { forms, features, .. } = &self.loaded.declared.capabilities;
        if forms.as_ref().is_some_and(|forms| !forms.contains(&form)) {
            return Err(KernelError::Unsupported(format!("declares no form `{}`", form.name())));
        }
        features.as_ref().map_or(Ok(()), |features| attributes.only(features))
    }
}

/// A form without its function: `load` lets none through that is declared.
fn missing() -> KernelError {
    KernelError::Unsupported("the library does not export this call form".into())
}

impl AttentionKernel for LibraryKernel {
    /// The digest is that of the library's file; one that the library gives itself stands in the details.
    fn identity(&self) -> Identity {
        let mut identity = self.loaded.declared.identity.clone();
        if let Some(digest) = identity.digest.replace(self.loaded.digest.clone()) {
            identity.details.push(("declared digest".into(), digest));
        }
        identity
    }

    fn conventions(&self) -> Conventions {
        self.loaded.declared.conventions
    }

    fn numerics(&self) -> Option<Numerics> {
        self.loaded.declared.numerics.iter().find(|(storage, _)| storage.is_none()).map(|(_, numerics)| *numerics)
    }

    fn numerics_for(&self, storage: Dtype) -> Option<Numerics> {
        self.loaded.declared.numerics_for(storage)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { guarded: true, ..self.loaded.declared.capabilities.clone() }
    }

    fn has_lse(&self) -> bool {
        self.loaded.declared.lse
    }

    /// Only where it is listed: a library that lists nothing is not thought to own a group's communication.
    fn context_parallel(&self) -> bool {
        let features = &self.loaded.declared.capabilities.features;
        features.as_ref().is_some_and(|features| features.contains(&Feature::ContextParallel))
    }

    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        self.refuse(Form::Varlen, call.attributes)?;
        call::varlen(self.loaded.varlen.ok_or_else(missing)?, call, outputs, self.has_lse())
    }

    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let form = match call.padding {
            Side::Left => Form::DenseLeft,
            Side::Right => Form::DenseRight,
        };
        self.refuse(form, call.attributes)?;
        call::dense(self.loaded.dense.ok_or_else(missing)?, call, outputs, self.has_lse())
    }

    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let form = if call.block_table.is_some() { Form::Paged } else { Form::Contiguous };
        self.refuse(form, call.attributes)?;
        call::paged(self.loaded.paged.ok_or_else(missing)?, call, outputs, self.has_lse())
    }
}
