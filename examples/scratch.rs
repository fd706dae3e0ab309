use lastbit::subject::{Subject, attention::{*, check::*, oracle::Mode, reference::Reference}};
use std::collections::BTreeMap;
fn main() {
    let al = || Implementation::reference(Reference::parse("ref:aligned").unwrap());
    let a = Attention::of(Pair { train: al(), infer: al(), oracle: Mode::Enclosure, captured: None, witness: true });
    let mut s = a.scratch();
    let mut m: BTreeMap<String, [u64; 5]> = BTreeMap::new();
    for i in 0..6000 {
        let t = a.draw(1, i);
        let v = a.check(&t, &mut s);
        let r = match &t.case.data { Data::Drawn { regime, .. } => format!("{regime:?}"), _ => "x".into() };
        let r = r.split(' ').next().unwrap().to_string();
        let e = m.entry(format!("{} {:>12}", t.case.problem.out_dtype, r)).or_default();
        e[0] += 1; e[1] += v.accuracy.out_of_range; e[2] += v.escalations; e[3] += v.order_sensitive.is_some() as u64; e[4] += v.order_sensitive.unwrap_or(false) as u64;
    }
    for (k, v) in m { println!("{k} cases {} oor {} esc {} capable {} sens {} ({:.2})", v[0], v[1], v[2], v[3], v[4], v[4] as f64 / v[3] as f64); }
}
