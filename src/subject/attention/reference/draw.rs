//! Reference kernels from a source of choices.

use super::Reference;
use super::preset::PRESETS;
use crate::source::{Choose, Source};
use crate::subject::attention::conventions::Conventions;
use crate::subject::attention::numerics::Numerics;

impl Reference {
    /// A kernel with any numerics: a preset (`aligned` is the simplest), some of whose fields are drawn anew. One in eight does
    /// not mean what it declares, and one in eight declares something else than the default and means it.
    pub fn draw(source: &mut dyn Source) -> Reference {
        let mut kernel = Reference::new(PRESETS[source.below(PRESETS.len() as u64) as usize].numerics);
        let most = Numerics::FIELDS.len() as u32;
        let times = source.range(0, most);
        kernel.numerics.redraw(times, source);
        match source.below(8) {
            6 => convention(&mut kernel.actual, source),
            7 => {
                convention(&mut kernel.actual, source);
                kernel.declared = kernel.actual;
            }
            _ => {}
        }
        kernel.renamed()
    }

    /// A kernel to run beside this one: in half of the draws this one with one or two fields of its numerics drawn anew (and
    /// seldom an actual convention), whose recipes are often equal; in a quarter this one; else any.
    pub fn draw_beside(&self, source: &mut dyn Source) -> Reference {
        match source.below(4) {
            0 => self.clone(),
            1 | 2 => {
                let mut kernel = self.clone();
                let times = source.range(1, 2);
                kernel.numerics.redraw(times, source);
                if source.below(8) == 7 {
                    convention(&mut kernel.actual, source);
                }
                kernel.renamed()
            }
            _ => Reference::draw(source),
        }
    }
}

/// Draws one convention anew.
fn convention(conventions: &mut Conventions, source: &mut dyn Source) {
    let field = source.pick(&Conventions::FIELDS);
    let values = Conventions::values(field).unwrap_or_default();
    let values: Vec<&str> = values.split(", ").collect();
    conventions.set(field, source.pick(&values)).expect("one of the field's values");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Choices, Stream};
    use std::collections::BTreeSet;

    #[test]
    fn a_dry_source_gives_the_default_twice() {
        let mut dry = Choices::replay(vec![]);
        let kernel = Reference::draw(&mut dry);
        assert_eq!(kernel, Reference::default());
        assert_eq!(kernel.draw_beside(&mut dry), kernel);
    }

    #[test]
    fn kernels_have_names_and_differ_in_every_convention() {
        let mut seen = BTreeSet::new();
        let mut near = 0;
        for index in 0..2000 {
            let mut source = Stream::new(2, index);
            let kernel = Reference::draw(&mut source);
            let beside = kernel.draw_beside(&mut source);
            for kernel in [&kernel, &beside] {
                assert_eq!(Reference::parse(&kernel.to_string()).as_ref(), Ok(kernel));
                for field in Conventions::FIELDS {
                    seen.insert((field, kernel.actual.get(field).expect("a field"), kernel.declared == kernel.actual));
                }
            }
            let differing = Numerics::FIELDS.iter().filter(|field| kernel.numerics.get(field) != beside.numerics.get(field));
            near += u32::from((1..=2).contains(&differing.count()));
        }
        for field in Conventions::FIELDS {
            for value in Conventions::values(field).expect("a field").split(", ") {
                for honest in [true, false] {
                    assert!(seen.contains(&(field, value.to_owned(), honest)), "{field}={value}, honest: {honest}");
                }
            }
        }
        assert!(near > 600, "{near} of 2000");
    }
}
