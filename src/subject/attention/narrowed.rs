//! A kernel that does less than it could: some of its knobs held fast, or only the calls and the outputs of another kernel.

use crate::number::Dtype;
use crate::subject::attention::capabilities::Capabilities;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::kernel::{
    AttentionKernel, Attributes, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall,
};
use crate::subject::attention::numerics::Numerics;
use std::sync::Arc;

/// The same kernel with narrower declarations.
pub(crate) struct Narrowed {
    kernel: Arc<dyn AttentionKernel>,
    can: Capabilities,
    context_parallel: bool,
    has_lse: bool,
    /// Calls that another kernel would take for something else are refused.
    means: Option<Conventions>,
    /// Name, the one value, and whether that is the default, which is not passed. A case that asks for another value is refused.
    fixed: Vec<(String, String, bool)>,
}

impl Narrowed {
    /// Every call gets the values. Every pair must be a knob of the kernel and one of its values.
    pub(crate) fn fixing(kernel: Arc<dyn AttentionKernel>, pairs: Vec<(String, String)>) -> Self {
        let mut can = kernel.capabilities();
        let (context_parallel, has_lse) = (kernel.context_parallel(), kernel.has_lse());
        let mut fixed = Vec::new();
        for (name, value) in pairs {
            let knob = can.knobs.iter_mut().find(|knob| knob.name == name);
            let default = knob.as_ref().is_some_and(|knob| knob.values.first() == Some(&value));
            // The only value is the default, so that nothing varies it and a case need not name it.
            if let Some(knob) = knob {
                knob.values = vec![value.clone()];
            }
            fixed.push((name, value, default));
        }
        Narrowed { kernel, can, context_parallel, has_lse, means: None, fixed }
    }

    /// A kernel of which nothing is declared but what another one declares: its forms, features, formats and limits, not its knobs; `lse`
    /// only where the other has it. Calls that mean something else to the other are refused. What is shown so, is shown with calls that
    /// the other takes and with outputs that it has.
    pub(crate) fn within(kernel: Arc<dyn AttentionKernel>, other: &dyn AttentionKernel) -> Self {
        let can = Capabilities { knobs: Vec::new(), ..other.capabilities() };
        let context_parallel = other.context_parallel() && kernel.context_parallel();
        let has_lse = other.has_lse() && kernel.has_lse();
        Narrowed { kernel, can, context_parallel, has_lse, means: Some(other.conventions()), fixed: Vec::new() }
    }

    /// The attributes that the kernel gets, whose knobs are `knobs`.
    fn attributes<'a>(&self, asked: &Attributes<'a>, knobs: &'a [(String, String)]) -> Result<Attributes<'a>, KernelError> {
        if let Some(means) = &self.means {
            asked.fit(means).map_err(KernelError::Unsupported)?;
        }
        Ok(Attributes { knobs, ..asked.clone() })
    }

    /// The knobs of a call, with the fixed ones.
    fn knobs(&self, asked: &[(String, String)]) -> Result<Vec<(String, String)>, KernelError> {
        let mut knobs = asked.to_vec();
        for (name, value, default) in &self.fixed {
            match asked.iter().find(|(knob, _)| knob == name) {
                Some((_, other)) if other == value => {}
                Some((_, other)) => {
                    return Err(KernelError::Unsupported(format!(
                        "the kernel file fixes {name} = {value}; the case asks {other}"
                    )));
                }
                None if *default => {}
                None => knobs.push((name.clone(), value.clone())),
            }
        }
        knobs.sort();
        Ok(knobs)
    }
}

impl AttentionKernel for Narrowed {
    fn identity(&self) -> Identity {
        self.kernel.identity()
    }

    fn conventions(&self) -> Conventions {
        self.kernel.conventions()
    }

    fn numerics(&self) -> Option<Numerics> {
        self.kernel.numerics()
    }

    fn numerics_for(&self, storage: Dtype) -> Option<Numerics> {
        self.kernel.numerics_for(storage)
    }

    fn capabilities(&self) -> Capabilities {
        self.can.clone()
    }

    fn afresh(&self) -> Option<Result<Arc<dyn AttentionKernel>, KernelError>> {
        let narrowed = |kernel| {
            let Narrowed { kernel: _, can, context_parallel, has_lse, means, fixed } = self;
            let (can, means, fixed) = (can.clone(), *means, fixed.clone());
            Arc::new(Narrowed { kernel, can, context_parallel: *context_parallel, has_lse: *has_lse, means, fixed }) as _
        };
        Some(self.kernel.afresh()?.map(narrowed))
    }

    fn has_lse(&self) -> bool {
        self.has_lse
    }

    fn context_parallel(&self) -> bool {
        self.context_parallel
    }

    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let knobs = self.knobs(call.attributes.knobs)?;
        let attributes = self.attributes(call.attributes, &knobs)?;
        self.kernel.varlen(&VarlenCall { attributes: &attributes, ..*call }, outputs)
    }

    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let knobs = self.knobs(call.attributes.knobs)?;
        let attributes = self.attributes(call.attributes, &knobs)?;
        self.kernel.dense(&DenseCall { attributes: &attributes, ..*call }, outputs)
    }

    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let knobs = self.knobs(call.attributes.knobs)?;
        let attributes = self.attributes(call.attributes, &knobs)?;
        self.kernel.paged(&PagedCall { attributes: &attributes, ..*call }, outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::attention::capabilities::Knob;
    use crate::subject::attention::conventions::AnchorConvention;
    use crate::subject::attention::reference::Reference;
    use crate::subject::attention::{Anchor, Problem};

    struct Knobbed;

    impl AttentionKernel for Knobbed {
        fn identity(&self) -> Identity {
            Identity::cpu("knobbed", "1")
        }

        fn capabilities(&self) -> Capabilities {
            let knob = |name: &str, values: &[&str]| Knob {
                name: name.into(),
                values: values.iter().map(|value| value.to_string()).collect(),
            };
            Capabilities { knobs: vec![knob("num_splits", &["1", "2", "4"]), knob("threads", &["1", "2"])], ..Default::default() }
        }
    }

    #[test]
    fn a_fixed_knob_no_longer_varies_and_is_passed_off_its_default() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fixed = Narrowed::fixing(Arc::new(Knobbed), vec![pair("num_splits", "4")]);
        let knobs = fixed.capabilities().knobs;
        assert_eq!(knobs[0].values, ["4"]);
        assert_eq!(knobs[1].values, ["1", "2"], "the others vary on");
        assert_eq!(fixed.knobs(&[]).unwrap(), [pair("num_splits", "4")]);
        assert_eq!(fixed.knobs(&[pair("threads", "2")]).unwrap(), [pair("num_splits", "4"), pair("threads", "2")]);
        let refused = fixed.knobs(&[pair("num_splits", "2")]).unwrap_err();
        assert_eq!(refused, KernelError::Unsupported("the kernel file fixes num_splits = 4; the case asks 2".into()));
        let default = Narrowed::fixing(Arc::new(Knobbed), vec![pair("num_splits", "1")]);
        assert_eq!(default.knobs(&[]).unwrap(), [], "a default is not passed");
    }

    /// Declares top-left masks and no `lse`.
    struct TopLeft;

    impl AttentionKernel for TopLeft {
        fn identity(&self) -> Identity {
            Identity::cpu("top-left", "1")
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities { max_rows: Some(16), ..Knobbed.capabilities() }
        }

        fn conventions(&self) -> Conventions {
            Conventions { anchor: AnchorConvention::TopLeft, ..Conventions::default() }
        }

        fn has_lse(&self) -> bool {
            false
        }
    }

    #[test]
    fn within_another_kernel_there_are_its_calls_and_its_outputs_alone() {
        let within = Narrowed::within(Arc::new(Reference::default()), &TopLeft);
        assert_eq!(within.capabilities(), Capabilities { max_rows: Some(16), ..Capabilities::default() });
        assert!(!within.has_lse() && !within.context_parallel());
        // What it computes it means as before: results are judged by that.
        assert_eq!(within.conventions(), Conventions::default());
        let mut problem = Problem::plain(&[(1, 1)], [1, 1], [1, 1], Dtype::F32);
        for (anchor, taken) in [(Anchor::TopLeft, true), (Anchor::BottomRight, false)] {
            problem.mask.causal = Some(anchor);
            let attributes = within.attributes(&Attributes::of(&problem, 1, None, &[]), &[]);
            let refused = "declares anchor top_left; the case asks bottom_right";
            assert_eq!(attributes.err(), (!taken).then(|| KernelError::Unsupported(refused.into())));
        }
    }
}
