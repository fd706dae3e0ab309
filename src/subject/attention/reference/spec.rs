//! The reference kernel as a value, and its name: `ref:<preset>[,field=value...][+mutant]`.

use super::preset::{self, PRESETS};
use crate::input_error::unknown;
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::numerics::Numerics;
use std::fmt;
use std::str::FromStr;

/// A reference kernel: numerics, and conventions declared and actual.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The preset its name starts from: the one nearest to the numerics, so that equal kernels have equal names.
    pub preset: String,
    /// The arithmetic.
    pub numerics: Numerics,
    /// What it says its calls mean.
    pub declared: Conventions,
    /// What they mean. A kernel whose two sets differ lies.
    pub actual: Conventions,
    /// The arithmetic it claims for the accuracy bound; `None`: its numerics.
    pub profile: Option<Numerics>,
    /// A planted fault. Nothing is promised of a kernel that has one, and it declares what it would be without.
    pub mutant: Option<Mutant>,
}

impl Default for Reference {
    /// `ref:aligned`.
    fn default() -> Self {
        Reference::new(preset::ALIGNED)
    }
}

impl Reference {
    /// An honest kernel with these numerics.
    pub fn new(numerics: Numerics) -> Reference {
        Reference {
            preset: preset::closest(&numerics).name.into(),
            numerics,
            declared: Conventions::default(),
            actual: Conventions::default(),
            profile: None,
            mutant: None,
        }
    }

    /// Reads a kernel's name: a preset, then fields that change it. Fields are those of [`Numerics`], `declared.` or `actual.` with
    /// a convention, `profile=<preset>`, and `profile.` with a field of [`Numerics`]. `+` and the id of a [`Mutant`] at the end plants
    /// that fault; its settings stand before the fields.
    ///
    /// # Errors
    /// What is wrong with which part, with the nearest known name.
    pub fn parse(text: &str) -> Result<Reference, String> {
        let fail = |reason: String| format!("kernel `{text}`: {reason}");
        let body = text.strip_prefix("ref:").ok_or_else(|| fail("a reference kernel's name begins with `ref:`".into()))?;
        // No preset, field or value begins with a capital: `1e+5` is a number, not a mutant.
        let (body, mutant) = match body.rsplit_once('+') {
            Some((body, id)) if id.trim().starts_with(|c: char| c.is_ascii_uppercase()) => {
                (body, Some(id.trim().parse::<Mutant>().map_err(fail)?))
            }
            _ => (body, None),
        };
        let mut parts = outside_parentheses(body).into_iter();
        let base = find_preset(parts.next().unwrap_or_default()).map_err(fail)?;
        let mut reference = Reference::new(base);
        reference.mutant = mutant;
        for (key, value) in mutant.map_or(&[][..], |mutant| mutant.entry().settings) {
            reference.set(key, value).map_err(fail)?;
        }
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| fail(format!("`{part}` is not of the form field=value")))?;
            reference.set(key.trim(), value.trim()).map_err(|reason| fail(format!("{key}: {reason}")))?;
        }
        reference.settle().map_err(fail)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if let Some(field) = key.strip_prefix("declared.") {
            self.declared.set(field, value)
        } else if let Some(field) = key.strip_prefix("actual.") {
            self.actual.set(field, value)
        } else if let Some(field) = key.strip_prefix("profile.") {
            self.profile.get_or_insert(self.numerics).set(field, value)
        } else if key == "mutant" {
            self.mutant = Some(value.parse()?);
            Ok(())
        } else if key == "profile" {
            self.profile = Some(find_preset(value)?);
            Ok(())
        } else if Numerics::FIELDS.contains(&key) {
            self.numerics.set(key, value)
        } else {
            Err(unknown("field", key, &known_keys().iter().map(String::as_str).collect::<Vec<_>>()))
        }
    }

    /// Checks fields against each other and picks the name's preset.
    fn settle(self) -> Result<Reference, String> {
        self.numerics.validate()?;
        if let Some(profile) = &self.profile {
            profile.validate().map_err(|reason| format!("profile: {reason}"))?;
        }
        Ok(self.renamed())
    }

    /// Picks the name's preset again, after a change of the numerics.
    pub(super) fn renamed(mut self) -> Reference {
        self.preset = preset::closest(&self.numerics).name.into();
        self
    }

    /// Every field spelled out, for files that must outlive changes of the presets: all numerics, `declared.*`, `actual.*` (but
    /// defaults of `ADDED_CONVENTIONS`), and `profile.*` and `mutant` where one is set.
    pub fn fields(&self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        let numerics = |prefix: &str, numerics: &Numerics, fields: &mut Vec<(String, String)>| {
            for field in Numerics::FIELDS {
                fields.push((format!("{prefix}{field}"), numerics.get(field).unwrap_or_default()));
            }
        };
        numerics("", &self.numerics, &mut fields);
        for (prefix, conventions) in [("declared", &self.declared), ("actual", &self.actual)] {
            for field in Conventions::FIELDS {
                let plain = conventions.get(field) == Conventions::default().get(field);
                if !(plain && ADDED_CONVENTIONS.contains(&field)) {
                    fields.push((format!("{prefix}.{field}"), conventions.get(field).unwrap_or_default()));
                }
            }
        }
        if let Some(profile) = &self.profile {
            numerics("profile.", profile, &mut fields);
        }
        if let Some(mutant) = self.mutant {
            fields.push(("mutant".into(), mutant.to_string()));
        }
        fields
    }

    /// The kernel that [`Reference::fields`] spelled out. Everything must be there but what later versions added
    /// (`ADDED_FIELDS`): files of before load for ever.
    ///
    /// # Errors
    /// An unknown or repeated field, a value it cannot have, fields that conflict, or a field left out: of the numerics, of the
    /// conventions, or of a profile that is there in part.
    pub fn from_fields<K, V>(fields: impl IntoIterator<Item = (K, V)>) -> Result<Reference, String>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        let mut reference = Reference::default();
        let mut seen: Vec<String> = Vec::new();
        for (key, value) in fields {
            let (key, value) = (key.as_ref(), value.as_ref());
            if key == "profile" {
                return Err("profile: spell its fields out as `profile.<field>`".into());
            }
            if seen.iter().any(|other| other == key) {
                return Err(format!("{key}: set twice"));
            }
            reference.set(key, value).map_err(|reason| format!("{key}: {reason}"))?;
            seen.push(key.into());
        }
        let profiled = reference.profile.is_some();
        for field in Numerics::FIELDS {
            for prefix in if profiled { &["", "profile."][..] } else { &[""] } {
                let key = format!("{prefix}{field}");
                if !seen.contains(&key) && !ADDED_FIELDS.contains(field) {
                    return Err(format!("{key}: missing"));
                }
            }
        }
        for field in Conventions::FIELDS {
            for prefix in ["declared.", "actual."] {
                let key = format!("{prefix}{field}");
                if !seen.contains(&key) && !ADDED_CONVENTIONS.contains(&field) {
                    return Err(format!("{key}: missing"));
                }
            }
        }
        reference.settle()
    }
}

/// Fields of [`Numerics`] that the first files do not have; absent ones are as in `aligned`, which is what kernels did then.
const ADDED_FIELDS: &[&str] = &["kv.descale", "grid.context"];

/// Conventions that the first files do not have; they are written only where they are not the default.
const ADDED_CONVENTIONS: &[&str] = &["kv_scales"];

fn find_preset(name: &str) -> Result<Numerics, String> {
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    preset::preset(name).map(|preset| preset.numerics).ok_or_else(|| unknown("preset", name, &names))
}

/// Splits at the commas that stand in no parentheses.
fn outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0i32;
    text.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth <= 0
    })
    .collect()
}

/// Every key that a kernel's name may set.
fn known_keys() -> Vec<String> {
    let mut keys: Vec<String> = Numerics::FIELDS.iter().map(ToString::to_string).collect();
    for prefix in ["declared", "actual"] {
        keys.extend(Conventions::FIELDS.iter().map(|field| format!("{prefix}.{field}")));
    }
    keys.push("profile".into());
    keys
}

impl fmt::Display for Reference {
    /// The shortest name: the nearest preset and the fields that differ, in canonical order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = preset::closest(&self.numerics);
        write!(f, "ref:{}", base.name)?;
        for (field, value) in preset::changed(&base.numerics, &self.numerics) {
            write!(f, ",{field}={value}")?;
        }
        let plain = Conventions::default();
        for (prefix, conventions) in [("declared", &self.declared), ("actual", &self.actual)] {
            for field in Conventions::FIELDS {
                if let Some(value) = conventions.get(field).filter(|value| Some(value) != plain.get(field).as_ref()) {
                    write!(f, ",{prefix}.{field}={value}")?;
                }
            }
        }
        if let Some(profile) = &self.profile {
            let base = preset::closest(profile);
            write!(f, ",profile={}", base.name)?;
            for (field, value) in preset::changed(&base.numerics, profile) {
                write!(f, ",profile.{field}={value}")?;
            }
        }
        if let Some(mutant) = self.mutant {
            write!(f, "+{mutant}")?;
        }
        Ok(())
    }
}

impl FromStr for Reference {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Reference::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value other than `aligned`'s for every field that allows one by itself.
    fn other_values() -> Vec<(&'static str, &'static [&'static str])> {
        vec![
            ("kv.descale", &["folded"]),
            ("grid.context", &["gather_partials", "ring_state", "ring_lse"]),
            ("score.order", &["lanes(8)", "pairwise", "fused(16)"]),
            ("score.fma", &["true"]),
            ("score.acc", &["bf16", "f16"]),
            ("score.store", &["bf16", "f16"]),
            ("score.scale", &["on_query", "folded_log2e"]),
            ("softmax.passes", &["two_pass"]),
            ("softmax.block", &["1", "whole", "rule(fa3)", "rule(fa3-one-wg)", "rule(fa3-fp8)"]),
            ("softmax.traverse", &["backward"]),
            ("softmax.rescale", &["threshold(8)", "threshold(0.1)"]),
            ("softmax.scope", &["tile"]),
            ("softmax.exp", &["exp2_poly(3)"]),
            ("softmax.max_init", &["-50000", "-0.1"]),
            ("probs.dtype", &["bf16", "f16"]),
            ("rowsum.order", &["lanes(2)", "pairwise", "fused(4)"]),
            ("rowsum.acc", &["bf16", "f16"]),
            ("rowsum.of", &["rounded_p"]),
            ("value.order", &["lanes(64)", "pairwise", "fused(1)"]),
            ("value.fma", &["true"]),
            ("value.acc", &["bf16", "f16"]),
            ("grid.anchor", &["buffer", "uncached"]),
            ("grid.split", &["fixed_size(3)", "fixed_count(2)", "cache_boundary", "rule(occupancy,132)"]),
            ("grid.merge", &["tree"]),
            ("grid.lse_dtype", &["bf16"]),
            ("grid.partial_dtype", &["f16"]),
            ("finish", &["reciprocal"]),
            ("store", &["truncate"]),
            ("declared.anchor", &["top_left", "bottom_right", "strict"]),
            ("actual.anchor", &["top_left", "bottom_right", "strict"]),
            ("actual.window", &["counts_self", "one_more"]),
            ("actual.empty_row", &["zero_pos_inf", "nan"]),
            ("actual.lse_base", &["2"]),
            ("actual.sink_in_lse", &["no"]),
            ("declared.alibi", &["key_index"]),
            ("actual.cap_order", &["bias_then_cap"]),
            ("declared.kv_scales", &["ignored"]),
            ("actual.kv_scales", &["ignored"]),
            ("profile", &["aligned", "p-bf16"]),
            ("profile.value.acc", &["bf16"]),
        ]
    }

    #[test]
    fn names_and_fields_round_trip() {
        for (field, values) in other_values() {
            for value in values {
                let text = format!("ref:aligned,{field}={value}");
                let reference = Reference::parse(&text).unwrap();
                assert_ne!(reference, Reference::default(), "{text}");
                assert_eq!(Reference::parse(&reference.to_string()).unwrap(), reference, "{text} as {reference}");
                assert_eq!(Reference::from_fields(reference.fields()).unwrap(), reference, "{text}");
            }
        }
        let tested: Vec<&str> = other_values().iter().map(|(field, _)| *field).collect();
        let untested = Numerics::FIELDS.iter().filter(|field| !tested.contains(field) && **field != "probs.normalised");
        assert_eq!(untested.count(), 0);
    }

    #[test]
    fn every_preset_is_its_own_name() {
        for preset in PRESETS {
            let text = format!("ref:{}", preset.name);
            let reference = Reference::parse(&text).unwrap();
            assert_eq!(reference.to_string(), text);
            assert_eq!(Reference::from_fields(reference.fields()).unwrap(), reference);
        }
    }

    #[test]
    fn names_are_canonical() {
        let name = |text: &str| Reference::parse(text).unwrap().to_string();
        assert_eq!(name("ref:aligned,probs.dtype=bf16"), "ref:p-bf16");
        assert_eq!(name("ref:aligned,softmax.block=64"), "ref:aligned");
        assert_eq!(
            name("ref:aligned,actual.anchor=top_left,softmax.block=32,score.fma=true"),
            "ref:aligned,score.fma=true,softmax.block=32,actual.anchor=top_left"
        );
        assert_eq!(name("ref:p-bf16,profile=aligned"), "ref:p-bf16,profile=aligned");
        assert_eq!(
            name("ref:aligned,grid.split=rule:occupancy:78,softmax.block=rule:fa3,store=truncate"),
            "ref:aligned,softmax.block=rule(fa3),grid.split=rule(occupancy,78),store=truncate"
        );
    }

    #[test]
    fn mistakes_name_the_part_and_the_nearest_name() {
        for (text, reason) in [
            ("aligned", "begins with `ref:`"),
            ("ref:alinged", "did you mean `aligned`?"),
            ("ref:aligned,softmax.blok=3", "did you mean `softmax.block`?"),
            ("ref:aligned,actual.ancor=strict", "did you mean `anchor`?"),
            ("ref:aligned,softmax.block", "field=value"),
            ("ref:aligned,softmax.block=0", "softmax.block"),
            ("ref:aligned,softmax.block=99999999999999", "a block length from 1 to 4294967295"),
            ("ref:aligned,grid.split=fixed_size:99999999999999", "fixed_size(n) with n from 1 to 4294967295"),
            ("ref:aligned,probs.normalised=true", "needs softmax.passes=two_pass"),
            ("ref:aligned,profile=nave", "did you mean `naive`?"),
            ("ref:aligned,softmax.block=rule(fa2)", "rule `fa2` is not one of fa3, fa3-one-wg, fa3-fp8"),
            ("ref:aligned,grid.split=rule:occupancy", "rule(occupancy,132)"),
            ("ref:aligned,grid.split=rule(occupancy,0)", "at least 1"),
            ("ref:aligned,grid.split=rule:full:1", "rule `full` is not one of occupancy"),
            ("ref:naive,grid.split=rule:occupancy:1", "needs softmax.passes=two_pass and grid.split=none"),
        ] {
            let error = Reference::parse(text).unwrap_err();
            assert!(error.contains(reason) && error.contains(text), "{error}");
        }
        let mut fields = Reference::default().fields();
        fields.remove(3);
        assert_eq!(Reference::from_fields(fields).unwrap_err(), "score.acc: missing");
    }
}
