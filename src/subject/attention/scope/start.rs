//! Whether anything can be drawn at all, asked before a run begins.

use super::{Scope, listed};
use crate::finding::Path;
use crate::input_error::shorten;
use crate::subject::attention::capabilities::{Form, Format, HeadDims};
use crate::subject::attention::feature::Feature;
use crate::subject::attention::pin::{KvPin, Pins};
use crate::subject::attention::validate::{MAX_DIM, MAX_KNOBS, is_knob_name};

impl Scope {
    /// Whether the kernels have any case in common that keeps the pins. Captured tensors bring their head dims, `d_qk` and `d_v`.
    ///
    /// # Errors
    /// What they do not have in common, or which pin is beyond them.
    pub fn start(&self, pins: &Pins, captured: Option<(u32, u32)>) -> Result<(), String> {
        Path::BOTH.into_iter().try_for_each(|path| self.knobs(path))?;
        self.forms()?;
        self.storage(pins)?;
        self.dims(pins, captured)?;
        let anchors = self.anchors();
        if anchors.is_empty() {
            return Err(self.nothing("mask", |side| {
                let all = [Feature::Causal, Feature::CausalTopLeft, Feature::NotCausal];
                let done: Vec<&str> = all.into_iter().filter(|&it| side.lacks(it).is_none()).map(Feature::name).collect();
                listed(&done)
            }));
        }
        if let Some(causal) = pins.causal.filter(|causal| !anchors.contains(causal)) {
            let reason = self.lacks(Feature::of_causal(causal)).unwrap_or_default();
            return Err(beyond(pins, reason));
        }
        let grouped = pins.heads.is_some_and(|(q, kv)| q != kv);
        if let Some(reason) = self.lacks(Feature::GroupedHeads).filter(|_| grouped) {
            return Err(beyond(pins, reason));
        }
        if let Some(reason) = self.lacks(Feature::Fp8Kv).filter(|_| matches!(pins.kv_dtype, Some(KvPin::Fp8(_)))) {
            return Err(beyond(pins, reason));
        }
        Ok(())
    }

    /// Knobs that a case file can hold.
    fn knobs(&self, path: Path) -> Result<(), String> {
        let knobs = &self.side(path).can.knobs;
        let wrong = |name: &str, reason: &str| Err(format!("the {path} kernel declares a knob `{}` {reason}", shorten(name)));
        for (n, knob) in knobs.iter().enumerate() {
            if !is_knob_name(&knob.name) {
                return wrong(&knob.name, "that is no name: letters, digits and _");
            }
            if knobs[..n].iter().any(|it| it.name == knob.name) {
                return wrong(&knob.name, "twice");
            }
            if knob.values.is_empty() || knob.values.iter().any(|value| value.chars().any(char::is_control)) {
                return wrong(&knob.name, "without values, or with one of several lines");
            }
        }
        match knobs.len() <= MAX_KNOBS {
            true => Ok(()),
            false => Err(format!("the {path} kernel declares {} knobs; {MAX_KNOBS} are the most", knobs.len())),
        }
    }

    fn forms(&self) -> Result<(), String> {
        let of = |path, forms: &[Form]| {
            let side = self.side(path);
            if forms.iter().any(|&form| side.does(form)) {
                return Ok(());
            }
            let does: Vec<&str> = Form::ALL.into_iter().filter(|&form| side.does(form)).map(Form::name).collect();
            let wanted: Vec<&str> = forms.iter().map(|form| form.name()).collect();
            let does = if does.is_empty() { "none".to_owned() } else { listed(&does) };
            Err(format!("the {path} kernel has no form of its path: it does {does}; one of {} is needed", listed(&wanted)))
        };
        of(Path::Train, &[Form::Varlen, Form::DenseLeft, Form::DenseRight])?;
        of(Path::Infer, &[Form::Paged, Form::Contiguous])
    }

    fn storage(&self, pins: &Pins) -> Result<(), String> {
        let Some(common) = self.formats() else { return Ok(()) };
        if common.is_empty() {
            return Err(
                self.nothing("format", |side| side.can.formats.as_ref().map_or("any".into(), |list: &Vec<Format>| listed(list)))
            );
        }
        match pins.dtype {
            Some(dtype) if !common.iter().any(|it| it.storage == dtype) => {
                let format = Format { storage: dtype, out: dtype };
                Err(beyond(pins, self.lacks_format(format).unwrap_or_default()))
            }
            _ => Ok(()),
        }
    }

    fn dims(&self, pins: &Pins, captured: Option<(u32, u32)>) -> Result<(), String> {
        let does = |side: &super::SideScope| side.can.head_dims.as_ref().map_or("any".into(), HeadDims::to_string);
        if let Some((d_qk, d_v)) = captured {
            return match self.allows_head_dims(d_qk, d_v) {
                true => Ok(()),
                false => {
                    let [ours, theirs] = self.sides.each_ref().map(does);
                    Err(format!("head dims {d_qk}/{d_v} of the captured tensors: train takes {ours}, infer {theirs}"))
                }
            };
        }
        let free = |pin: Option<u32>| pin.map_or(1..=MAX_DIM, |d| d..=d);
        let any = |(d_qk, d_v): (Option<u32>, Option<u32>)| {
            free(d_qk).any(|d_qk| free(d_v).any(|d_v| self.allows_head_dims(d_qk, d_v)))
        };
        // Most kernels take any: then the first pair is one.
        if any((pins.d_qk, pins.d_v)) {
            Ok(())
        } else if (pins.d_qk, pins.d_v) != (None, None) && any((None, None)) {
            let [ours, theirs] = self.sides.each_ref().map(does);
            Err(beyond(pins, format!("head dims: train takes {ours}, infer {theirs}")))
        } else {
            Err(self.nothing("pair of head dims", does))
        }
    }

    fn nothing(&self, what: &str, does: impl Fn(&super::SideScope) -> String) -> String {
        let [ours, theirs] = self.sides.each_ref().map(|side| match does(side) {
            list if list.is_empty() => "none".to_owned(),
            list => list,
        });
        format!("the kernels have no {what} in common: train does {ours}, infer does {theirs}")
    }
}

fn beyond(pins: &Pins, reason: String) -> String {
    format!("--pin {pins} asks for what a kernel does not do: {reason}")
}
