//! Kernel processes, well-behaved and not. The children are this binary itself, started with [`child::ROLE`] in its environment, so that
//! no other program is needed.

mod calls;
mod campaign;
mod child;
mod conformance;
mod faults;
mod frames;
#[path = "../harness/mod.rs"]
mod harness;
mod messages;
mod orphans;

use libtest_mimic::{Arguments, Trial};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(child::ROLE) {
        return child::play(&role);
    }
    let modules = [
        ("campaign", campaign::TESTS),
        ("conformance", conformance::TESTS),
        ("faults", faults::TESTS),
        ("frames", frames::TESTS),
        ("messages", messages::TESTS),
        ("orphans", orphans::TESTS),
    ];
    let trials = modules.iter().flat_map(|(module, tests)| {
        tests.iter().map(move |&(name, test)| {
            Trial::test(format!("{module}::{name}"), move || {
                test();
                Ok(())
            })
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
