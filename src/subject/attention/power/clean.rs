//! The kernels without a fault: whatever is found there is a false alarm.

use super::{Settings, attention, without};
use crate::finding::Finding;
use crate::lab::{Campaign, Done, Flow, Length, Statistics, run};
use crate::subject::attention::Attention;
use crate::subject::attention::mutant::Mutant;
use crate::subject::attention::reach::{Asked, PlanFeature};
use crate::subject::attention::reference::Reference;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// A failure of a kernel that has no fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FalseAlarm {
    /// Number of the case.
    pub case: u64,
    /// What was found.
    pub signature: String,
}

/// What a kernel without a fault showed.
#[derive(Clone, Debug)]
pub struct Clean {
    /// The kernel.
    pub kernel: String,
    /// Its campaign.
    pub statistics: Statistics,
    /// What its campaign had to reach.
    pub asked: Asked,
    /// The first case that failed.
    pub first: Option<FalseAlarm>,
    /// Time.
    pub seconds: f64,
}

impl Clean {
    /// Plan features that its campaign should have reached and did not: of a campaign of no case, none.
    pub fn missing(&self) -> Vec<PlanFeature> {
        if self.statistics.cases == 0 { Vec::new() } else { self.asked.missing(&self.statistics.reach) }
    }

    /// The command that shows the first false alarm.
    pub fn replay(&self, seed: u64) -> Option<String> {
        let first = self.first.as_ref()?;
        let kernel = shell_words::quote(&self.kernel);
        Some(format!("lastbit fuzz --train {kernel} --infer {kernel} --seed {seed} --cases {}", first.case + 1))
    }
}

/// The kernels that some mutants would be without their faults, each once, `ref:aligned` first.
pub fn clean_kernels(mutants: &[Mutant]) -> Vec<Reference> {
    let mut kernels = vec![Reference::default()];
    for kernel in mutants.iter().map(|&mutant| without(mutant)) {
        if !kernels.contains(&kernel) {
            kernels.push(kernel);
        }
    }
    kernels
}

/// A kernel without a fault on both sides. A pass of these must have been able to fail.
fn campaign(reference: &Reference) -> Attention {
    let mut attention = attention(reference.clone(), reference.clone());
    attention.pair.witness = true;
    attention
}

/// What the campaign of a kernel without a fault has to reach.
pub fn clean_asked(reference: &Reference) -> Asked {
    campaign(reference).asked()
}

/// Runs a campaign of `cases` cases on each kernel, which has no fault. `progress` sees the statistics as they grow, with the kernel's name.
pub fn clean(kernels: &[Reference], settings: &Settings, cases: u64, mut progress: impl FnMut(&str, &Statistics)) -> Vec<Clean> {
    let mut results = Vec::new();
    for reference in kernels {
        let kernel = reference.to_string();
        let attention = campaign(reference);
        let asked = attention.asked();
        let (mut statistics, mut first) = (Statistics::default(), None);
        let started = Instant::now();
        let campaign = Campaign { seed: settings.seed, first: 0, length: Length::Cases(cases), jobs: settings.jobs };
        run(&attention, campaign, |Done { index, trial, verdict }| {
            let problem = &trial.case.problem;
            statistics.add(&verdict, problem.out_dtype, problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0));
            if let Some(signature) = verdict.failure().map(Finding::signature)
                && first.is_none()
            {
                first = Some(FalseAlarm { case: index, signature });
            }
            progress(&kernel, &statistics);
            Flow::Continue
        });
        results.push(Clean { kernel, statistics, asked, first, seconds: started.elapsed().as_secs_f64() });
    }
    results
}
