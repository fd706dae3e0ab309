//! What the cases covered, counted from the cases that ran.

use super::certificate::{Boundary, Counts, Coverage, LengthBin, Map, Ways};
use super::claim::Claim;
use super::record::CaseRecord;
use super::work::Work;
use crate::subject::attention::battery::Part;
use crate::subject::attention::battery::space::{self, Row};
use crate::subject::attention::{Anchor, Cache, Case, Data, TrainLayout};
use std::collections::{BTreeMap, BTreeSet};

/// Pages and blocks that lengths are looked at around, besides those of the kernels.
const USUAL: [u32; 3] = [16, 64, 128];

/// Counts cases as they come.
pub(super) struct Counting {
    coverage: Coverage,
    sizes: Vec<(String, u32)>,
    maps: BTreeMap<(usize, String, String), [u64; 3]>,
    lengths: BTreeMap<u32, LengthBin>,
    /// Knob values of the cases that ran.
    rows: BTreeSet<Row>,
}

/// The tables: what stands down the side, and across.
const MAPS: [(&str, &str); 4] =
    [("claim", "positions"), ("format", "positions"), ("cache", "training layout"), ("heads", "head dims")];

/// Upper end of the bin of a length.
pub(super) fn bin(kv: u32) -> u32 {
    if kv == 0 { 0 } else { kv.next_power_of_two() }
}

/// The longest sequence of a case.
pub(super) fn longest(case: &Case) -> u32 {
    case.problem.sequences.iter().map(|it| it.kv).max().unwrap_or(0)
}

impl Counting {
    pub(super) fn new(work: &Work) -> Counting {
        let mut sizes: Vec<(String, u32)> = work.battery.granules().iter().map(|&g| (format!("block {g}"), g)).collect();
        sizes.extend(USUAL.iter().filter(|g| !work.battery.granules().contains(g)).map(|&g| (format!("page {g}"), g)));
        Counting { coverage: Coverage::default(), sizes, maps: BTreeMap::new(), lengths: BTreeMap::new(), rows: BTreeSet::new() }
    }

    /// Takes a case in.
    pub(super) fn add(&mut self, work: &Work, case: &Case, record: &CaseRecord, part: Part) {
        let kv = longest(case);
        let place = if !record.failures.is_empty() { 1 } else { usize::from(!record.is_match()) * 2 };
        let length = self.lengths.entry(bin(kv)).or_insert(LengthBin { up_to: bin(kv), ..LengthBin::default() });
        length.cases += u64::from(record.has_run() || !record.failures.is_empty());
        length.failed += u64::from(!record.failures.is_empty());
        length.mismatched += u64::from(record.pair[1] > 0);
        for &claim in &work.claims {
            let evidence = evidence(claim, record, part);
            if evidence.elements > 0 || evidence.failed {
                let place = usize::from(evidence.failed);
                self.count(0, claim.name().to_owned(), positions(kv), place);
            }
        }
        let problem = &case.problem;
        let format = match problem.dtype == problem.out_dtype {
            true => problem.dtype.to_string(),
            false => format!("{}->{}", problem.dtype, problem.out_dtype),
        };
        let format = problem.fp8_kv.as_ref().map_or(format.clone(), |kv| format!("{format}, KV {}", kv.dtype));
        self.count(1, format.clone(), positions(kv), place);
        let cache = match case.infer.cache {
            Cache::Contiguous { .. } => "contiguous".to_owned(),
            Cache::Paged { page, .. } => format!("pages to {:>3}", page.next_power_of_two()),
        };
        let layout = match case.train.layout {
            TrainLayout::Varlen => "varlen",
            TrainLayout::Dense { side, .. } => match side {
                crate::subject::attention::Side::Left => "dense, left",
                crate::subject::attention::Side::Right => "dense, right",
            },
        };
        self.count(2, cache.clone(), layout.to_owned(), place);
        let heads = format!("{} KV x {}", problem.kv_heads(), problem.group_ids.len());
        self.count(3, heads, format!("to {:>3}", problem.d_qk.max(problem.d_v).next_power_of_two()), place);
        if record.has_run() {
            self.rows.insert(work.battery.space().read(case));
            self.features(case, format, cache, layout, kv);
        }
    }

    fn count(&mut self, map: usize, row: String, column: String, place: usize) {
        self.maps.entry((map, row, column)).or_default()[place] += 1;
    }

    fn features(&mut self, case: &Case, format: String, cache: String, layout: &str, kv: u32) {
        let problem = &case.problem;
        let q = problem.sequences.iter().map(|it| it.q).max().unwrap_or(0);
        let ranks = [&case.train.context, &case.infer.context].into_iter().map(|it| it.map_or(1, |it| it.ranks)).max();
        let heads = case.train.head_ranks.max(case.infer.head_ranks);
        let mut ranges = vec![
            ("kv", u64::from(kv)),
            ("q", u64::from(q)),
            ("batch", problem.sequences.len() as u64),
            ("q_heads", problem.q_heads() as u64),
            ("kv_heads", problem.kv_heads() as u64),
            ("d_qk", u64::from(problem.d_qk)),
            ("d_v", u64::from(problem.d_v)),
            ("context ranks", u64::from(ranks.unwrap_or(1))),
            ("head ranks", u64::from(heads)),
        ];
        if let Cache::Paged { page, .. } = case.infer.cache {
            ranges.push(("page", u64::from(page)));
        }
        for (name, value) in ranges {
            let range = self.coverage.ranges.entry(name.to_owned()).or_insert([value, value]);
            *range = [range[0].min(value), range[1].max(value)];
        }
        let mask = match problem.mask.causal {
            Some(Anchor::BottomRight) => "causal, bottom-right",
            Some(Anchor::TopLeft) => "causal, top-left",
            None => "none",
        };
        let window = match (problem.mask.window_left, problem.mask.window_right) {
            (None, None) => "none",
            (Some(_), None) => "left",
            (None, Some(_)) => "right",
            (Some(_), Some(_)) => "both sides",
        };
        let regime = match &case.data {
            Data::Drawn { regime, .. } => {
                let text = format!("{regime:?}");
                text.split([' ', '{', '(']).next().unwrap_or_default().to_lowercase()
            }
            Data::Literal(_) => "literal".to_owned(),
            Data::Captured { .. } => "captured".to_owned(),
        };
        let yes = |it: bool| if it { "yes" } else { "no" }.to_owned();
        for (name, value) in [
            ("format", format),
            ("mask", mask.to_owned()),
            ("window", window.to_owned()),
            ("softcap", yes(problem.softcap.is_some())),
            ("sinks", yes(problem.sinks.is_some())),
            ("ALiBi", yes(problem.alibi_slopes.is_some())),
            ("training layout", layout.to_owned()),
            ("cache", cache),
            ("data", regime),
        ] {
            *self.coverage.values.entry(name.to_owned()).or_default().entry(value).or_default() += 1;
        }
        for (name, size) in &self.sizes {
            let place = match kv {
                1 => "1".to_owned(),
                kv if kv + 1 == *size => "g-1".to_owned(),
                kv if kv == *size => "g".to_owned(),
                kv if kv == size + 1 => "g+1".to_owned(),
                kv if kv == 2 * size => "2g".to_owned(),
                kv if kv == 2 * size + 1 => "2g+1".to_owned(),
                kv if kv + 1 == 3 * size => "3g-1".to_owned(),
                kv if kv > 0 && kv % size == 0 => "other multiple".to_owned(),
                _ => "elsewhere".to_owned(),
            };
            let boundaries = &mut self.coverage.boundaries;
            if !boundaries.iter().any(|it| it.name == *name) {
                boundaries.push(Boundary { name: name.clone(), size: *size, hits: Counts::new() });
            }
            let boundary = boundaries.iter_mut().find(|it| it.name == *name).expect("it is there now");
            *boundary.hits.entry(place).or_default() += 1;
        }
    }

    pub(super) fn finish(mut self, work: &Work) -> Coverage {
        let space = work.battery.space();
        self.coverage.pairs = ways(space.ways(2, &self.rows));
        self.coverage.triples = (work.battery.cases(Part::Triples) > 0).then(|| ways(space.ways(3, &self.rows)));
        self.coverage.lengths = self.lengths.into_values().collect();
        for (n, (down, across)) in MAPS.into_iter().enumerate() {
            let of = |keep: fn(&(usize, String, String)) -> &String| {
                let mut names: Vec<String> = self.maps.keys().filter(|it| it.0 == n).map(|it| keep(it).clone()).collect();
                names.sort();
                names.dedup();
                names
            };
            let (mut rows, columns) = (of(|it| &it.1), of(|it| &it.2));
            if down == "claim" {
                // In the order of the certificate.
                rows.sort_by_key(|name| Claim::ALL.iter().position(|it| it.name() == name));
            }
            let cell =
                |row: &String, column: &String| self.maps.get(&(n, row.clone(), column.clone())).copied().unwrap_or_default();
            let cells = rows.iter().map(|row| columns.iter().map(|column| cell(row, column)).collect()).collect();
            self.coverage.maps.push(Map { down: down.to_owned(), across: across.to_owned(), rows, columns, cells });
        }
        self.coverage
    }
}

fn ways(it: space::Ways) -> Ways {
    let space::Ways { knobs, all, excluded, valid, covered, missing } = it;
    Ways { knobs, all, excluded, valid, covered, missing }
}

/// A length's bin in words, which sort as the lengths do.
fn positions(kv: u32) -> String {
    format!("to {:>5}", bin(kv))
}

/// What a case has to say of a claim.
pub(super) struct Evidence {
    pub(super) elements: u64,
    pub(super) differing: u64,
    pub(super) failed: bool,
}

/// Elements that were held against a bound.
fn bounded(record: &CaseRecord) -> u64 {
    let [judged, .., unbounded, out_of_range] = record.accuracy;
    judged - unbounded - out_of_range
}

/// See [`Evidence`].
pub(super) fn evidence(claim: Claim, record: &CaseRecord, part: Part) -> Evidence {
    let [elements, differing] = match claim {
        Claim::TrainEqInfer => record.pair,
        Claim::Accurate if part == Part::Outside => [0; 2],
        Claim::Accurate => [bounded(record), record.exceeding],
        Claim::RejectsOrCorrect => [bounded(record) + record.refused, record.exceeding],
        // How many of them differ is not in a digest.
        Claim::VersionEqual => [record.accuracy[0], 0],
        _ => record
            .along
            .iter()
            .filter(|(changed, _)| claim.sees(changed, part))
            .fold([0; 2], |sum, (_, more)| [sum[0] + more[0], sum[1] + more[1]]),
    };
    Evidence { elements, differing, failed: record.fails(claim) }
}
