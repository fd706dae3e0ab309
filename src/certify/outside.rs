//! Cases that a kernel says it does not do: it must refuse them, or be right.

use crate::finding::{Finding, Path, Verdict};
use crate::subject::attention::Case;
use crate::subject::attention::check::{Pair, Scratch};
use crate::subject::attention::drive::{Poison, Stop};

/// Calls the kernels that declare the case to be outside what they do, as if they had not. A refusal is no finding; an answer is judged. The
/// verdict, and how many refused.
pub(super) fn check(pair: &Pair, case: &Case, scratch: &mut Scratch) -> (Verdict, u64) {
    let inputs = pair.inputs(case);
    let mut verdict = Verdict::default();
    let mut refused = 0;
    let scope = pair.scope();
    let mut sides = [None, None];
    for path in Path::BOTH {
        // What the driver refuses in the kernel's stead is no refusal of the kernel.
        if !scope.side(path).can_be_asked(case) {
            continue;
        }
        match pair.drive_anyway(path, case, &inputs, Poison::Nan) {
            Ok(produced) => sides[path as usize] = Some(produced),
            Err(Stop::Unsupported(_)) => refused += 1,
            Err(Stop::Fault(fault)) => verdict.findings.push(Finding::Fault { path, fault, relation: None }),
        }
    }
    pair.judge(case, &inputs, sides.each_ref().map(Option::as_ref), scratch, &mut verdict);
    (verdict, refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::Attention;
    use crate::subject::attention::battery::{Battery, Part, Size};
    use crate::subject::attention::capabilities::Capabilities;
    use crate::subject::attention::implementation::Implementation;
    use crate::subject::attention::kernel::{AttentionKernel, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall};
    use crate::subject::attention::oracle::Mode;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Does no ranks, and refuses every call.
    #[derive(Default)]
    struct Refuses {
        can: Capabilities,
        calls: AtomicU64,
    }

    impl Refuses {
        fn refuse(&self, ranks: bool) -> Result<(), KernelError> {
            assert!(!ranks, "was never to be asked for ranks");
            self.calls.fetch_add(1, Ordering::Relaxed);
            Err(KernelError::Unsupported("no".into()))
        }
    }

    impl AttentionKernel for Refuses {
        fn identity(&self) -> Identity {
            Identity::cpu("refuses", "1")
        }

        fn capabilities(&self) -> Capabilities {
            self.can.clone()
        }

        fn varlen(&self, call: &VarlenCall<'_>, _: Outputs<'_>) -> Result<(), KernelError> {
            self.refuse(call.attributes.context.is_some())
        }

        fn dense(&self, call: &DenseCall<'_>, _: Outputs<'_>) -> Result<(), KernelError> {
            self.refuse(call.attributes.context.is_some())
        }

        fn paged(&self, call: &PagedCall<'_>, _: Outputs<'_>) -> Result<(), KernelError> {
            self.refuse(call.attributes.context.is_some())
        }
    }

    fn battery(kernel: &Arc<Refuses>) -> Battery {
        let kernel = Implementation::kernel(kernel.clone());
        let pair = Pair { train: kernel.clone(), infer: kernel, oracle: Mode::Off, captured: None, witness: false };
        Battery::new(Size::Quick, 1, &Attention::of(pair))
    }

    /// What the driver refuses in a kernel's stead says nothing of the kernel.
    #[test]
    fn a_refusal_is_an_answer_of_the_kernel() {
        assert_eq!(battery(&Arc::new(Refuses::default())).cases(Part::Outside), 0, "that it does no ranks is no limit of calls");
        let can = Capabilities { max_rows: Some(16), ..Capabilities::default() };
        let kernel = Arc::new(Refuses { can, ..Refuses::default() });
        let battery = battery(&kernel);
        let pair = &battery.attention.pair;
        let mut asked = 0;
        for trial in (0..battery.cases(Part::Outside)).filter_map(|index| battery.trial(Part::Outside, index)) {
            let before = kernel.calls.load(Ordering::Relaxed);
            let (verdict, refused) = check(pair, &trial.case, &mut pair.scratch());
            let calls = kernel.calls.load(Ordering::Relaxed) - before;
            assert!(refused > 0 && refused == calls && verdict.findings.is_empty(), "{refused} {calls} {:?}", verdict.findings);
            asked += 1;
        }
        assert!(asked > 20, "{asked}");
    }
}
