//! Which plan features a campaign's runs took, in words and as JSON: for every command that runs one.

use crate::finding::Path;
use crate::input_error::tame;
use crate::reach::ReachCounts;
use crate::subject::attention::Attention;
use crate::subject::attention::reach::{Asked, PlanFeature};
use serde_json::{Value, json};
use std::fmt::Write;

/// Characters of a kernel's own name that are shown.
const NAME: usize = 240;

/// What was reached of what was asked.
pub(super) struct ReachReport {
    asked: Asked,
    counts: ReachCounts,
    /// The sides that show nothing of their inside, with their kernel's name.
    stand_ins: Vec<(Path, String)>,
}

impl ReachReport {
    pub(super) fn new(attention: &Attention, counts: ReachCounts) -> Self {
        let of = |path| {
            let side = attention.pair.side(path);
            side.reference.is_none().then(|| (path, tame(&side.kernel.identity().name, NAME)))
        };
        let stand_ins = Path::BOTH.into_iter().filter_map(of).collect();
        ReachReport { stand_ins, ..ReachReport::of_references(attention.asked(), counts) }
    }

    /// Of a campaign in which both sides are reference kernels.
    pub(super) fn of_references(asked: Asked, counts: ReachCounts) -> Self {
        ReachReport { asked, counts, stand_ins: Vec::new() }
    }

    /// What is asked for and never came: such a campaign is no pass.
    pub(super) fn missing(&self) -> Vec<PlanFeature> {
        self.asked.missing(&self.counts)
    }

    /// The lines of a summary. `failed` is a campaign with findings, which may have ended early; `more` are the options for more cases.
    pub(super) fn lines(&self, failed: bool, more: &str) -> String {
        let mut text = String::new();
        let count = |it: PlanFeature| format!("{it} {}", it.count(&self.counts));
        let asked =
            PlanFeature::ALL.into_iter().filter(|&it| self.asked.reason_against(it).is_none() || it.count(&self.counts) > 0);
        let counts: Vec<String> = asked.map(count).collect();
        if !counts.is_empty() {
            let _ = writeln!(text, "reached, in so many cases: {}", counts.join(", "));
        }
        for (reason, features) in self.not_asked() {
            let _ = writeln!(text, "not asked of these kernels: {}, for want of {}", listed(&features), tame(&reason, NAME));
        }
        for (path, name) in &self.stand_ins {
            let _ = writeln!(
                text,
                "stand-in: splits and blocks inside {path} ({name}), and whether it shows order, are those of a reference kernel with the arithmetic that it declares"
            );
        }
        let missing = self.missing();
        if !missing.is_empty() && failed {
            let _ = writeln!(text, "never reached: {}", listed(&missing));
        } else if !missing.is_empty() {
            let _ = writeln!(
                text,
                "UNVERIFIABLE: never reached: {}; a match says nothing about that. Run more cases ({more})",
                listed(&missing)
            );
        }
        text
    }

    /// The same as fields of a summary.
    pub(super) fn json(&self) -> Value {
        let names = |features: &[PlanFeature]| features.iter().map(|it| it.name()).collect::<Vec<_>>();
        let reached: Value =
            PlanFeature::ALL.into_iter().map(|it| (it.name().to_owned(), Value::from(it.count(&self.counts)))).collect();
        let not_asked: Value = self
            .not_asked()
            .into_iter()
            .flat_map(|(reason, features)| {
                features.into_iter().map(move |it| (it.name().to_owned(), Value::from(reason.as_str())))
            })
            .collect();
        json!({
            "cases": reached,
            "not_asked": not_asked,
            "never": names(&self.missing()),
            "stand_in": self.stand_ins.iter().map(|(path, _)| path.to_string()).collect::<Vec<_>>(),
        })
    }

    /// What is not asked for, by reason, in the order of the features.
    fn not_asked(&self) -> Vec<(String, Vec<PlanFeature>)> {
        let mut groups: Vec<(String, Vec<PlanFeature>)> = Vec::new();
        for feature in PlanFeature::ALL {
            let Some(reason) = self.asked.reason_against(feature) else { continue };
            match groups.iter_mut().find(|(other, _)| other == reason) {
                Some((_, features)) => features.push(feature),
                None => groups.push((reason.to_owned(), vec![feature])),
            }
        }
        groups
    }
}

fn listed(features: &[PlanFeature]) -> String {
    features.iter().map(|it| it.name()).collect::<Vec<_>>().join(", ")
}
