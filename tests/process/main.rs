//! Kernel processes, well-behaved and not. The children are this binary itself, started with [`child::ROLE`] in its environment, so that
//! no other program is needed.

mod child;
mod conformance;

fn main() -> std::process::ExitCode {
    if let Ok(role) = std::env::var(child::ROLE) {
        return child::play(&role);
    }
    let arguments = libtest_mimic::Arguments::from_args();
    let mut all = Vec::new();
    for (module, tests) in [("conformance", conformance::TESTS)] {
        all.extend(tests.iter().map(|&(name, test)| {
            libtest_mimic::Trial::test(format!("{module}::{name}"), move || {
                test();
                Ok(())
            })
        }));
    }
    libtest_mimic::run(&arguments, all).exit_code()
}
