//! A kernel with some of its knobs held fast.

use crate::number::Dtype;
use crate::subject::attention::capabilities::{Capabilities, Knob};
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::kernel::{
    AttentionKernel, Attributes, DenseCall, Identity, KernelError, Outputs, PagedCall, VarlenCall,
};
use crate::subject::attention::numerics::Numerics;
use std::sync::Arc;

/// Every call gets the fixed values; a case that asks for another one is refused.
pub(super) struct FixedKnobs {
    kernel: Arc<dyn AttentionKernel>,
    /// Name, the one value, and whether that is the default, which is not passed.
    fixed: Vec<(String, String, bool)>,
}

impl FixedKnobs {
    /// Every pair must be a knob of the kernel and one of its values.
    pub(super) fn new(kernel: Arc<dyn AttentionKernel>, pairs: Vec<(String, String)>) -> Self {
        let knobs = kernel.capabilities().knobs;
        let is_default =
            |name: &str, value: &String| knobs.iter().any(|knob| knob.name == name && knob.values.first() == Some(value));
        let fixed = pairs
            .into_iter()
            .map(|(name, value)| {
                let default = is_default(&name, &value);
                (name, value, default)
            })
            .collect();
        FixedKnobs { kernel, fixed }
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

impl AttentionKernel for FixedKnobs {
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
        let mut capabilities = self.kernel.capabilities();
        // The only value is the default, so that nothing varies it and a case need not name it.
        for Knob { name, values } in &mut capabilities.knobs {
            if let Some((_, value, _)) = self.fixed.iter().find(|(fixed, ..)| fixed == name) {
                *values = vec![value.clone()];
            }
        }
        capabilities
    }

    fn afresh(&self) -> Option<Result<Arc<dyn AttentionKernel>, KernelError>> {
        let again = |kernel| Arc::new(FixedKnobs { kernel, fixed: self.fixed.clone() }) as Arc<dyn AttentionKernel>;
        Some(self.kernel.afresh()?.map(again))
    }

    fn has_lse(&self) -> bool {
        self.kernel.has_lse()
    }

    fn context_parallel(&self) -> bool {
        self.kernel.context_parallel()
    }

    fn varlen(&self, call: &VarlenCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let knobs = self.knobs(call.attributes.knobs)?;
        let attributes = Attributes { knobs: &knobs, ..call.attributes.clone() };
        self.kernel.varlen(&VarlenCall { attributes: &attributes, ..*call }, outputs)
    }

    fn dense(&self, call: &DenseCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let knobs = self.knobs(call.attributes.knobs)?;
        let attributes = Attributes { knobs: &knobs, ..call.attributes.clone() };
        self.kernel.dense(&DenseCall { attributes: &attributes, ..*call }, outputs)
    }

    fn paged(&self, call: &PagedCall<'_>, outputs: Outputs<'_>) -> Result<(), KernelError> {
        let knobs = self.knobs(call.attributes.knobs)?;
        let attributes = Attributes { knobs: &knobs, ..call.attributes.clone() };
        self.kernel.paged(&PagedCall { attributes: &attributes, ..*call }, outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let fixed = FixedKnobs::new(Arc::new(Knobbed), vec![pair("num_splits", "4")]);
        let knobs = fixed.capabilities().knobs;
        assert_eq!(knobs[0].values, ["4"]);
        assert_eq!(knobs[1].values, ["1", "2"], "the others vary on");
        assert_eq!(fixed.knobs(&[]).unwrap(), [pair("num_splits", "4")]);
        assert_eq!(fixed.knobs(&[pair("threads", "2")]).unwrap(), [pair("num_splits", "4"), pair("threads", "2")]);
        let refused = fixed.knobs(&[pair("num_splits", "2")]).unwrap_err();
        assert_eq!(refused, KernelError::Unsupported("the kernel file fixes num_splits = 4; the case asks 2".into()));
        let default = FixedKnobs::new(Arc::new(Knobbed), vec![pair("num_splits", "1")]);
        assert_eq!(default.knobs(&[]).unwrap(), [], "a default is not passed");
    }
}
