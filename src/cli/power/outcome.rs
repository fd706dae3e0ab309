//! Everything that was measured, and what it comes to.

use crate::exit_code;
use crate::subject::attention::power::judge::Judged;
use crate::subject::attention::power::{Clean, Planted, RivalAlarms, Settings};

/// Everything that was measured.
pub(super) struct Outcome {
    pub(super) settings: Settings,
    pub(super) planted: Vec<Planted>,
    pub(super) clean: Vec<Clean>,
    pub(super) rival_alarms: Vec<RivalAlarms>,
    pub(super) judges: Vec<Judged>,
}

impl Outcome {
    pub(super) fn killed(&self) -> usize {
        self.planted.iter().filter(|it| it.both.kill.is_some()).count()
    }

    /// The share of mutants killed on both sides; of none, all.
    pub(super) fn score(&self) -> f64 {
        if self.planted.is_empty() { 1.0 } else { self.killed() as f64 / self.planted.len() as f64 }
    }

    /// Something is wrong with the harness: it alarms without a reason, or its own judge can be fooled.
    fn is_wrong(&self) -> bool {
        self.clean.iter().any(|it| it.statistics.failed > 0) || self.judges.iter().any(|it| !it.is_as_expected())
    }

    /// Whether each campaign found something or had a match, and the clean ones left no plan feature aside. A skipped or undecided case
    /// is neither, and is shown.
    fn is_judged(&self) -> bool {
        let looked = |it: &Clean| it.statistics.cases == 0 || it.statistics.matches > 0;
        self.planted.iter().all(|it| it.both.is_judged() && it.infer.is_judged())
            && self.clean.iter().all(|it| looked(it) && it.missing().is_empty())
    }

    pub(super) fn code(&self, floor: Option<f64>) -> u8 {
        if self.is_wrong() || floor.is_some_and(|floor| self.score() < floor) {
            exit_code::FINDING
        } else if !self.is_judged() {
            exit_code::UNDECIDED
        } else {
            exit_code::MATCH
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{json, table};
    use super::*;
    use crate::lab::Statistics;
    use crate::subject::attention::Attention;
    use crate::subject::attention::check::Pair;
    use crate::subject::attention::implementation::Implementation;
    use crate::subject::attention::mutant::Mutant;
    use crate::subject::attention::oracle::Mode;
    use crate::subject::attention::power::judge::Role;
    use crate::subject::attention::power::{Beside, Check, FalseAlarm, Hunt, Kill};
    use crate::subject::attention::reach::PlanFeature;
    use crate::subject::attention::reference::Reference;

    fn hunt(killed: bool, matches: u64) -> Hunt {
        let kill = killed.then(|| Kill {
            case: 7,
            check: Check::Oracle,
            checks: vec![Check::Oracle],
            signature: "inaccurate infer o".into(),
        });
        Hunt { kill, cases: 10, matches, not_judged: 0, seconds: 0.5 }
    }

    fn outcome(both: Hunt) -> Outcome {
        let reference = || Implementation::reference(Reference::default());
        let pair = Pair { train: reference(), infer: reference(), oracle: Mode::Off, captured: None, witness: false };
        let asked = Attention::of(pair).asked();
        let mut statistics = Statistics { cases: 10, matches: 10, ..Statistics::default() };
        PlanFeature::ALL.into_iter().for_each(|it| statistics.reach.set(it as usize, 1));
        let rivals = Beside { killed: vec![None, Some(3), None], cases: 10, seconds: 0.0 };
        Outcome {
            settings: Settings { seed: 4, cases: 10, rival_cases: 10, jobs: 1 },
            planted: vec![Planted { mutant: Mutant::ALL[0], both, infer: hunt(true, 0), small: None, rivals }],
            clean: vec![Clean { kernel: "ref:aligned".into(), statistics, asked, first: None, seconds: 0.0 }],
            rival_alarms: Vec::new(),
            judges: Vec::new(),
        }
    }

    #[test]
    fn a_survivor_is_1_only_below_the_floor() {
        let survived = outcome(hunt(false, 9));
        assert_eq!(survived.code(None), exit_code::MATCH);
        assert_eq!(survived.code(Some(0.0)), exit_code::MATCH);
        assert_eq!(survived.code(Some(0.5)), exit_code::FINDING);
        let text = table::page(&survived);
        assert!(text.contains("survived on both sides: A-M1\n"), "{text}");
        assert!(text.contains("score: 0 of 1 killed on both sides (0.000); 1 of 1 in inference alone"), "{text}");
        assert_eq!(outcome(hunt(true, 0)).code(Some(1.0)), exit_code::MATCH);
    }

    #[test]
    fn a_campaign_that_judged_nothing_is_3() {
        let nothing = outcome(hunt(false, 0));
        assert_eq!(nothing.code(None), exit_code::UNDECIDED);
        assert!(table::page(&nothing).contains("not judged"));
        // A skip, as where an overflow is predicted, is shown and no alarm.
        let mut skipped = outcome(hunt(true, 0));
        skipped.clean[0].statistics.skipped = 1;
        assert_eq!(skipped.code(Some(1.0)), exit_code::MATCH);
        assert!(table::page(&skipped).contains("(1 skipped, 0 undecided"));
        let mut empty = outcome(hunt(true, 0));
        empty.clean[0].statistics.matches = 0;
        assert_eq!(empty.code(None), exit_code::UNDECIDED);
    }

    #[test]
    fn a_plan_that_was_never_taken_is_3() {
        let mut short = outcome(hunt(true, 0));
        short.clean[0].statistics.reach.set(PlanFeature::Preempt as usize, 0);
        assert_eq!(short.code(Some(1.0)), exit_code::UNDECIDED);
        let text = table::page(&short);
        assert!(
            text.contains("\n  UNVERIFIABLE: never reached: preempt; a match says nothing about that. Run more cases"),
            "{text}"
        );
        assert_eq!(json::value(&short)["clean"][0]["reach"]["never"][0], "preempt");
    }

    #[test]
    fn a_false_alarm_is_1_and_is_shown_with_its_command() {
        let mut alarmed = outcome(hunt(true, 0));
        alarmed.clean[0].statistics.failed = 1;
        alarmed.clean[0].first = Some(FalseAlarm { case: 8, signature: "mismatch o".into() });
        assert_eq!(alarmed.code(None), exit_code::FINDING);
        let text = table::page(&alarmed);
        assert!(text.contains("FALSE ALARM: case 8: mismatch o"), "{text}");
        assert!(text.contains("lastbit fuzz --train ref:aligned --infer ref:aligned --seed 4 --cases 9\n"), "{text}");
        assert_eq!(json::value(&alarmed)["clean"][0]["first"]["case"], 8);
    }

    #[test]
    fn a_judge_that_can_be_fooled_is_1() {
        for (role, passes, code) in [
            (Role::Sound, vec!["a NaN"], exit_code::FINDING),
            (Role::Sound, vec![], exit_code::MATCH),
            (Role::Rival, vec!["a NaN"], exit_code::MATCH),
            (Role::Faulty, vec!["a NaN"], exit_code::MATCH),
            (Role::Faulty, vec![], exit_code::FINDING),
        ] {
            let mut outcome = outcome(hunt(true, 0));
            outcome.judges.push(Judged { role, name: "it", about: "", passes, impostors: 3, rejects_right: false });
            assert_eq!(outcome.code(None), code, "{role:?}");
        }
    }
}
