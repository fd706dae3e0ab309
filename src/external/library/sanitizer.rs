//! AddressSanitizer, where its runtime is in this process: guards are poisoned, so that an instrumented kernel is stopped at the very
//! access that leaves a tensor, reads included.

use libloading::os::unix::Library;
use std::ffi::c_void;
use std::sync::OnceLock;

type Mark = unsafe extern "C" fn(*const c_void, usize);

struct Runtime {
    poison: Mark,
    unpoison: Mark,
}

#[allow(unsafe_code)]
fn runtime() -> Option<&'static Runtime> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let find = || {
        let this = Library::this();
        let symbol = |name: &str| {
            // SAFETY: these two names are the runtime's own (sanitizer/asan_interface.h), with this type; a symbol that is null reads as
            // `None`.
            unsafe { this.get::<Option<Mark>>(name) }.ok().and_then(|symbol| *symbol)
        };
        Some(Runtime { poison: symbol("__asan_poison_memory_region")?, unpoison: symbol("__asan_unpoison_memory_region")? })
    };
    RUNTIME.get_or_init(find).as_ref()
}

/// Makes accesses to these bytes by instrumented code end the process.
#[allow(unsafe_code)]
pub(super) fn poison(bytes: &[u8]) {
    if let Some(runtime) = runtime() {
        // SAFETY: the runtime marks the addresses in its shadow memory and touches none of them; they are this process's own, and are
        // unpoisoned before Rust reads or frees them.
        unsafe { (runtime.poison)(bytes.as_ptr().cast(), bytes.len()) }
    }
}

/// Undoes [`poison`].
#[allow(unsafe_code)]
pub(super) fn unpoison(bytes: &[u8]) {
    if let Some(runtime) = runtime() {
        // SAFETY: as in `poison`.
        unsafe { (runtime.unpoison)(bytes.as_ptr().cast(), bytes.len()) }
    }
}
