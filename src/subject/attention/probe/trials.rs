//! What a kernel declares, tried on small cases, each against the oracle.

use super::Probing;
use super::minimal::element;
use super::page::{Declared, Outcome, Trial, Wrong};
use super::sample::Shape;
use super::terms::Terms;
use crate::finding::{Finding, Path, Verdict};
use crate::number::Dtype;
use crate::source::mix;
use crate::subject::attention::capabilities::{Form, Format, HeadDims};
use crate::subject::attention::drive::{Poison, Produced, Stop};
use crate::subject::attention::feature::Feature;
use crate::subject::attention::judge::judge;
use crate::subject::attention::oracle::{Mode, Oracle};
use crate::subject::attention::trial::{Checks, Trial as Asked};
use crate::subject::attention::validate;
use crate::subject::attention::{
    Anchor, Cache, Case, ContextParallel, Data, Fp8Kv, Mask, Regime, Request, Shards, Side, TrainLayout,
};

/// Rows and positions of the cases: decode, a whole sequence, a part of one, and one past a block.
const SHAPES: [&[(u32, u32)]; 4] = [&[(1, 9)], &[(6, 6)], &[(5, 9)], &[(3, 70)]];

/// Makes the case for a shape.
type Make<'t> = Box<dyn Fn(&Terms<'_>, &[(u32, u32)]) -> Case + 't>;

/// Declarations of one root that are named; more are counted.
const NAMED: usize = 3;

/// What is tried: a name, and the cases for one shape.
struct Try<'t> {
    of: Declared,
    what: String,
    shape: Make<'t>,
    paths: Vec<Path>,
    /// Whether the kernel says so in so many words.
    explicit: bool,
}

/// What went wrong in a trial.
struct Bad {
    asked: Asked,
    finding: Finding,
    /// What it has in common with others of the same root.
    root: String,
    why: String,
}

/// Everything declared. What is wrong goes to `wrong`, one entry for each root: a kernel with another mask than it says has it in every
/// form, format and feature.
pub(super) fn trials(probing: &mut Probing<'_>, wrong: &mut Vec<Wrong>) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut roots: Vec<(Bad, Vec<String>)> = Vec::new();
    for it in tries(&probing.terms) {
        let explicit = it.explicit;
        let (trial, bad) = run(probing, it);
        let declared = format!("{} {}", singular(trial.of), trial.what);
        if let Some(bad) = bad {
            match roots.iter_mut().find(|(first, _)| first.root == bad.root) {
                Some((_, all)) => all.push(declared),
                None => roots.push((bad, vec![declared])),
            }
        } else if let (Outcome::Refused(why), true) = (&trial.outcome, explicit) {
            wrong.push(Wrong { what: format!("declares {declared} and refuses it: {why}"), minimal: None });
        }
        trials.push(trial);
    }
    for (first, all) in roots {
        let more = if all.len() > NAMED { format!(" and {} more", all.len() - NAMED) } else { String::new() };
        let named = &all[..all.len().min(NAMED)];
        let what = format!("declares {}{more}: {}", named.join(", "), first.why);
        probing.wrong(wrong, what, &first.asked, &first.finding);
    }
    trials
}

fn run(probing: &mut Probing<'_>, it: Try<'_>) -> (Trial, Option<Bad>) {
    probing.progress(&format!("{}: {}", it.of.name(), it.what));
    let (mut cases, mut refused) = (0, None);
    let mut bad: Option<(Asked, Finding)> = None;
    let paths: Vec<Path> = it.paths.iter().copied().filter(|&path| probing.terms.path(path)).collect();
    'tries: for shape in SHAPES {
        let case = (it.shape)(&probing.terms, shape);
        if validate(&case).is_err() || !shape.iter().all(|&(q, kv)| probing.terms.holds(q.max(kv))) {
            continue;
        }
        let inputs = probing.attention.pair.inputs(&case);
        for &path in &paths {
            // The path alone: the other may not have the form.
            let result = probing.attention.pair.drive(path, &case, &inputs, Poison::Nan, None);
            if let Err(Stop::Unsupported(reason)) = result {
                refused.get_or_insert(reason);
                continue;
            }
            let trial = Asked::new(case.clone(), Checks::Only { oracle: true, pair: false, relation: None });
            let verdict = probing.attention.pair.check(&trial, &mut probing.scratch);
            // Where nothing could be judged, nothing is confirmed.
            cases += u64::from(verdict.accuracy.judged > 0);
            let of_path = |finding: &&Finding| match finding {
                Finding::Inaccurate(it) => it.path == path,
                Finding::Fault { path: of, .. } => *of == path,
                _ => false,
            };
            if bad.is_none() {
                bad = verdict.findings.iter().find(of_path).map(|finding| (trial, finding.clone()));
            }
            // One is enough: each may cost a new process.
            if matches!(bad, Some((_, Finding::Fault { .. }))) {
                break 'tries;
            }
        }
    }
    let bad = bad.map(|(asked, finding)| {
        let hint = hint(probing, &asked, &finding);
        let why = format!("{}{hint}", element(&finding));
        let root = match (&finding, hint.is_empty()) {
            (Finding::Fault { .. }, _) => why.clone(),
            (_, true) => "results beyond their bound".to_owned(),
            // How many results there were is no part of it.
            (_, false) => hint.replace(|it: char| it.is_ascii_digit(), ""),
        };
        Bad { asked, finding, root, why }
    });
    let outcome = match (&bad, refused) {
        (Some(Bad { finding: Finding::Fault { .. }, why, .. }), _) => Outcome::Fails(why.clone()),
        (Some(Bad { why, .. }), _) => Outcome::Wrong(why.clone()),
        (None, Some(reason)) => Outcome::Refused(reason),
        (None, None) if cases == 0 => Outcome::NotTried("no path can be asked, or no result judged".to_owned()),
        (None, None) => Outcome::Works,
    };
    (Trial { of: it.of, what: it.what, outcome, cases }, bad)
}

fn singular(of: Declared) -> &'static str {
    match of {
        Declared::Forms => "form",
        Declared::Formats => "format",
        Declared::Features => "feature",
        Declared::HeadDims => "head dims",
        Declared::PageSizes => "page size",
        Declared::Limits => "no limit on",
    }
}

/// What wrong results have in common with a known mistake.
fn hint(probing: &Probing<'_>, asked: &Asked, finding: &Finding) -> String {
    let Finding::Inaccurate(it) = finding else { return String::new() };
    let pair = &probing.attention.pair;
    let case = &asked.case;
    let inputs = pair.inputs(case);
    let Ok(produced) = pair.drive(it.path, case, &inputs, Poison::Nan, None) else { return String::new() };
    let dtype = produced.o.dtype;
    for narrow in [Dtype::BF16, Dtype::F16].into_iter().filter(|narrow| narrow.precision() < dtype.precision()) {
        let values: Vec<f32> = produced.o.bits.iter().map(|&bits| dtype.to_f32(bits)).filter(|it| *it != 0.0).collect();
        // A result that is a number of the narrower format is common; that every one of many is, is no accident.
        if values.len() >= 32 && values.iter().all(|&value| narrow.squeeze(value) == value) {
            return format!("; all {} results are {narrow} numbers, so it computes in {narrow}", values.len());
        }
    }
    if case.problem.mask.causal == Some(Anchor::BottomRight) {
        let mut other = asked.clone();
        other.case.problem.mask.causal = Some(Anchor::TopLeft);
        let problem = &other.case.problem;
        let anchored = problem.sequences.iter().any(|it| it.q != it.kv);
        if anchored && as_if(probing, it.path, &produced, &other.case) {
            return "; the results are those of a top-left causal mask".to_owned();
        }
    }
    String::new()
}

/// Whether results are within their bounds for another case than the one they were made for.
fn as_if(probing: &Probing<'_>, path: Path, produced: &Produced, case: &Case) -> bool {
    let pair = &probing.attention.pair;
    let mut verdict = Verdict::default();
    let mut oracle = Oracle::new(Mode::Enclosure);
    let inputs = pair.inputs(case);
    let sides = match path {
        Path::Train => [(&pair.train, Some(produced)), (&pair.infer, None)],
        Path::Infer => [(&pair.train, None), (&pair.infer, Some(produced))],
    };
    judge(case, &inputs, sides, &mut [], &mut oracle, &mut verdict);
    verdict.accuracy.judged > 0 && verdict.findings.is_empty()
}

fn tries<'t>(terms: &Terms<'_>) -> Vec<Try<'t>> {
    let mut tries: Vec<Try<'t>> = Vec::new();
    let format = terms.storages().first().copied().unwrap_or(Format { storage: Dtype::F32, out: Dtype::F32 });
    let capabilities = &terms.capabilities;
    let drawn = |case: Case| Case {
        data: Data::Drawn { seed: mix(7, case.problem.total_kv() as u64) & 0xffff_ffff, regime: Regime::Normal },
        ..case
    };
    let normal = || Data::Drawn { seed: 0, regime: Regime::Normal };

    for form in terms.forms() {
        let path = match form {
            Form::Varlen | Form::DenseLeft | Form::DenseRight => Path::Train,
            Form::Paged | Form::Contiguous => Path::Infer,
        };
        let shape = move |terms: &Terms<'_>, sequences: &[(u32, u32)]| {
            let mut shape = Shape::of(terms, format, sequences);
            match form {
                Form::Varlen => shape.layout = TrainLayout::Varlen,
                Form::DenseLeft => shape.layout = TrainLayout::Dense { side: Side::Left, pad_q: 1, pad_kv: 2 },
                Form::DenseRight => shape.layout = TrainLayout::Dense { side: Side::Right, pad_q: 1, pad_kv: 2 },
                Form::Paged => shape.cache = Cache::Paged { page: terms.page(), spare: 1, shuffle: 3, recycled: false },
                Form::Contiguous => shape.cache = Cache::Contiguous { spare: 3 },
            }
            drawn(shape.case(normal()))
        };
        let (of, what, explicit) = (Declared::Forms, form.name().to_owned(), capabilities.forms.is_some());
        tries.push(Try { of, what, shape: Box::new(shape), paths: vec![path], explicit });
    }
    for format in terms.formats() {
        let what = match format.out == format.storage {
            true => format.storage.to_string(),
            false => format!("{}->{}", format.storage, format.out),
        };
        let shape = move |terms: &Terms<'_>, sequences: &[(u32, u32)]| drawn(Shape::of(terms, format, sequences).case(normal()));
        let explicit = capabilities.formats.is_some();
        tries.push(Try { of: Declared::Formats, what, shape: Box::new(shape), paths: Path::BOTH.to_vec(), explicit });
    }
    for feature in Feature::ALL.into_iter().filter(|&feature| terms.feature(feature)) {
        let shape = move |terms: &Terms<'_>, sequences: &[(u32, u32)]| {
            drawn(with_feature(feature, terms, Shape::of(terms, format, sequences), sequences))
        };
        let (what, explicit) = (feature.name().to_owned(), capabilities.features.is_some());
        tries.push(Try { of: Declared::Features, what, shape: Box::new(shape), paths: Path::BOTH.to_vec(), explicit });
    }
    for dims in head_dims(capabilities.head_dims.as_ref()) {
        let shape = move |terms: &Terms<'_>, sequences: &[(u32, u32)]| {
            let mut shape = Shape::of(terms, format, sequences);
            shape.head_dims = dims;
            drawn(shape.case(normal()))
        };
        let what = if dims.0 == dims.1 { dims.0.to_string() } else { format!("{}/{}", dims.0, dims.1) };
        let explicit = capabilities.head_dims.is_some();
        tries.push(Try { of: Declared::HeadDims, what, shape: Box::new(shape), paths: Path::BOTH.to_vec(), explicit });
    }
    if terms.form(Form::Paged) {
        let sizes = capabilities.page_sizes.clone().unwrap_or(vec![1, 16, 64]);
        for page in sizes {
            let shape = move |terms: &Terms<'_>, sequences: &[(u32, u32)]| {
                let mut shape = Shape::of(terms, format, sequences);
                shape.cache = Cache::Paged { page, spare: 1, shuffle: 5, recycled: true };
                drawn(shape.case(normal()))
            };
            let (of, what, explicit) = (Declared::PageSizes, page.to_string(), capabilities.page_sizes.is_some());
            tries.push(Try { of, what, shape: Box::new(shape), paths: vec![Path::Infer], explicit });
        }
    }
    limits(terms, format, &mut tries);
    tries
}

/// Rows without keys, sequences without rows, unlike lengths: for kernels that do not exclude them.
fn limits<'t>(terms: &Terms<'_>, format: Format, tries: &mut Vec<Try<'t>>) {
    let capabilities = &terms.capabilities;
    let normal = || Data::Drawn { seed: 11, regime: Regime::Normal };
    let mut add = |what: &str, declared: bool, sequences: Vec<(u32, u32)>| {
        if !declared {
            return;
        }
        // The shape is the thing tried: it stands in place of the usual ones.
        let shape = move |terms: &Terms<'_>, _: &[(u32, u32)]| Shape::of(terms, format, &sequences).case(normal());
        let (of, paths) = (Declared::Limits, Path::BOTH.to_vec());
        tries.push(Try { of, what: what.to_owned(), shape: Box::new(shape), paths, explicit: false });
    };
    let causal = terms.masks().first() == Some(&Some(Anchor::BottomRight));
    let ragged = Path::BOTH.into_iter().all(|path| !terms.path(path) || terms.ragged(path));
    add("rows without keys", !capabilities.no_empty_rows && causal, vec![(5, 3)]);
    add("sequences without rows or keys", !capabilities.no_empty_sequences && ragged, vec![(3, 4), (0, 3), (0, 0)]);
    add("unlike lengths in a batch", !capabilities.no_ragged, vec![(3, 4), (9, 20), (1, 2)]);
}

/// A case that asks for a feature.
fn with_feature(feature: Feature, terms: &Terms<'_>, mut shape: Shape, sequences: &[(u32, u32)]) -> Case {
    let plain = Data::Drawn { seed: 0, regime: Regime::Normal };
    match feature {
        Feature::Causal => shape.mask = Mask { causal: Some(Anchor::BottomRight), ..Mask::default() },
        Feature::CausalTopLeft => shape.mask = Mask { causal: Some(Anchor::TopLeft), ..Mask::default() },
        Feature::NotCausal => shape.mask = Mask::default(),
        Feature::Window => shape.mask.window_left = Some(3),
        Feature::GroupedHeads => shape.heads = (2, 3),
        Feature::UnequalHeadDims => {
            let (d_qk, d_v) = terms.head_dims();
            let other = match &terms.capabilities.head_dims {
                Some(HeadDims::Only(pairs)) => pairs.iter().copied().find(|(d_qk, d_v)| d_qk != d_v),
                Some(HeadDims::UpTo { max, multiple_of }) if d_v + multiple_of <= *max => Some((d_qk, d_v + multiple_of)),
                Some(HeadDims::UpTo { .. }) => None,
                None => Some((d_qk, d_v / 2)),
            };
            shape.head_dims = other.unwrap_or((d_qk, d_v));
        }
        _ => {}
    }
    let mut case = shape.case(plain);
    let heads = case.problem.q_heads();
    match feature {
        Feature::Softcap => case.problem.softcap = Some(5.0),
        Feature::Sinks => case.problem.sinks = Some((0..heads).map(|head| 0.5 - head as f32).collect()),
        Feature::Alibi => case.problem.alibi_slopes = Some((0..heads).map(|head| 0.5 / (head + 1) as f32).collect()),
        Feature::Fp8Kv => {
            let (k_scales, v_scales) = (vec![0.3], vec![0.7]);
            case.problem.fp8_kv = Some(Fp8Kv { dtype: Dtype::E4M3, k_scales, v_scales });
        }
        Feature::ContextParallel => {
            let longest = sequences.iter().map(|it| it.1).max().unwrap_or(1);
            let context = ContextParallel { ranks: 2, shards: Shards::Contiguous, length: longest.div_ceil(2).max(1) };
            (case.train.context, case.infer.context) = (Some(context), Some(context));
        }
        _ => {}
    }
    // Masks other than the bottom-right one are fed in one step.
    case.infer.requests = sequences.iter().map(|&(q, _)| Request::one_step(q)).collect();
    case
}

/// The ends of a range, a few between, or every pair.
fn head_dims(declared: Option<&HeadDims>) -> Vec<(u32, u32)> {
    match declared {
        None => [1, 8, 17, 64, 128].map(|d| (d, d)).to_vec(),
        Some(HeadDims::Only(pairs)) => pairs.clone(),
        Some(HeadDims::UpTo { max, multiple_of }) => {
            let least = (*multiple_of).max(1);
            let mut dims = vec![least, 64, 128, max - max % least];
            dims.retain(|d| d % least == 0 && d <= max && *d > 0);
            dims.sort_unstable();
            dims.dedup();
            dims.into_iter().map(|d| (d, d)).collect()
        }
    }
}
