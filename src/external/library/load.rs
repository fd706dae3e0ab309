//! Opening a library: what it must export, and what it says about itself.

use super::abi;
use crate::external::message::welcome::Welcome;
use crate::subject::attention::capabilities::Form;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use sha2::{Digest, Sha256};
use std::error::Error;
use std::ffi::{CStr, c_char};
use std::path::Path;

/// What a library exports, and says.
pub(super) struct Loaded {
    /// The `kernel` object of the protocol's welcome.
    pub(super) declared: Welcome,
    /// SHA-256 of the file.
    pub(super) digest: String,
    pub(super) varlen: Option<abi::Function<abi::VarlenArgs>>,
    pub(super) dense: Option<abi::Function<abi::DenseArgs>>,
    pub(super) paged: Option<abi::Function<abi::PagedArgs>>,
}

/// Opens a library, for good: it is never closed, since threads and destructors of its own would be left without code.
#[allow(unsafe_code)]
pub(super) fn load(path: &Path) -> Result<Loaded, String> {
    let fail = |reason: String| format!("library {}: {reason}", path.display());
    // A name without a slash would be looked for in the loader's own folders, and another file than the digest's might be opened.
    let file = std::fs::canonicalize(path).map_err(|error| fail(error.to_string()))?;
    let bytes = std::fs::read(&file).map_err(|error| fail(error.to_string()))?;
    let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    // SAFETY: this runs the library's initialisers. The user named the library to have its code run.
    let library = unsafe { Library::open(Some(&file), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| {
        // The loader's own words are in the source of the error.
        let detail = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        fail(format!("cannot be loaded: {detail}"))
    })?;
    let version = function::<unsafe extern "C" fn() -> u32>(&library, "lastbit_abi_version").ok_or_else(|| {
        fail(
            "exports no lastbit_abi_version; a kernel library exports what include/lastbit.h declares (in C++ as extern \"C\")"
                .into(),
        )
    })?;
    // SAFETY: the header declares this name with this type.
    let version = unsafe { version() };
    if version != abi::VERSION {
        let known = abi::VERSION;
        return Err(fail(format!(
            "has ABI version {version}; this lastbit speaks version {known}: compile it against the include/lastbit.h of this version"
        )));
    }
    let text = function::<unsafe extern "C" fn() -> *const c_char>(&library, "lastbit_kernel_info")
        .ok_or_else(|| fail("exports no lastbit_kernel_info".into()))?;
    // SAFETY: as for the version.
    let text = unsafe { text() };
    if text.is_null() {
        return Err(fail("lastbit_kernel_info returned NULL".into()));
    }
    // SAFETY: the header asks for a text that is ended by a zero byte and lives as long as the library.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().map_err(|error| fail(format!("lastbit_kernel_info is not UTF-8: {error}")))?;
    let declared = Welcome::parse(text).map_err(|reason| {
        // To the author of a library the text has this name.
        fail(format!("lastbit_kernel_info{}", reason.strip_prefix("welcome").unwrap_or(&reason)))
    })?;
    let loaded = Loaded {
        digest,
        varlen: function(&library, "lastbit_varlen"),
        dense: function(&library, "lastbit_dense"),
        paged: function(&library, "lastbit_paged"),
        declared,
    };
    std::mem::forget(library);
    exports_its_forms(&loaded).map_err(fail)?;
    Ok(loaded)
}

/// A symbol that is a function; `None` where it is missing or null.
#[allow(unsafe_code)]
fn function<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: `F` is the type that the header gives for this name, in every call above, and a function pointer, so `Option` reads a null
    // symbol as `None`. That the library's function is of that type is what `lastbit_abi_version` stands for.
    unsafe { library.get::<Option<F>>(name) }.ok().and_then(|symbol| *symbol)
}

fn exports_its_forms(loaded: &Loaded) -> Result<(), String> {
    let forms = loaded.declared.capabilities.forms.as_deref();
    for form in forms.unwrap_or(&Form::ALL) {
        let (symbol, there) = match form {
            Form::Varlen => ("lastbit_varlen", loaded.varlen.is_some()),
            Form::DenseLeft | Form::DenseRight => ("lastbit_dense", loaded.dense.is_some()),
            Form::Paged | Form::Contiguous => ("lastbit_paged", loaded.paged.is_some()),
        };
        if !there {
            let declares = match forms {
                Some(_) => format!("declares the form `{}`", form.name()),
                None => "lists no `forms`, which declares all of them,".into(),
            };
            return Err(format!("{declares} and exports no {symbol}: export it, or list only the forms that it has"));
        }
    }
    Ok(())
}
