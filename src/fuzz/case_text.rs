//! Hostile text: case files, relations, kernel names.

use crate::source::{Bytes, Choose, Source};
use crate::subject::attention::check::Pair;
use crate::subject::attention::draw::{Hints, Profile, draw};
use crate::subject::attention::file::Named;
use crate::subject::attention::implementation::Implementation;
use crate::subject::attention::oracle::Mode;
use crate::subject::attention::reference::Reference;
use crate::subject::attention::relation::{SidedRelation, rotate};
use crate::subject::attention::trial::{Checks, Trial};
use crate::subject::attention::{file, text};
use arbitrary::Unstructured;

/// Longest text of one execution, in bytes: a case file of a few sequences has 3000.
const TEXT_MAX: usize = 1 << 14;

/// Most edits of a drawn file.
const EDITS: u32 = 4;

/// Words that an edit may put anywhere.
const WORDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "65537",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "\"0xffffffffffffffff\"",
    "\"0x7fc00000\"",
    "nan",
    "-inf",
    "1e39",
    "-0.0",
    "\"\"",
    "\"mirror\"",
    "{}",
    "[]",
    "[[]]",
    "[run]",
    "[data]",
    "true",
    "=",
    ".",
    "\"",
    "#",
    "\n",
    "\r\n",
    "\u{0}",
    "\u{7f}",
    "\u{2028}",
    "0x10",
    "1_000",
    "1979-05-27",
    "'''",
    "\\u0000",
    "e",
    "x = 1\n",
];

/// Text as a case file, as a relation and as the name of a kernel: refused with a reason, or read and printed to the same text for ever.
///
/// UTF-8 is taken as it is. Anything that begins with the byte 0xff, which UTF-8 never holds, is choices: a case and two kernels are
/// drawn and printed, the file is read back, and then up to four of its words are dropped, doubled, exchanged or replaced.
///
/// # Panics
/// When printing and parsing do not agree.
pub fn case_text(data: &[u8]) {
    match data {
        [0xff, choices @ ..] => drawn(&mut Bytes::new(&mut Unstructured::new(choices))),
        _ => {
            let Ok(content) = std::str::from_utf8(data) else { return };
            if content.len() > TEXT_MAX {
                return;
            }
            as_file(content);
            as_relation(content);
            as_kernel(content);
        }
    }
}

fn as_file(content: &str) {
    let Ok(file) = text::parse(content, "input") else { return };
    let printed = text::print(&file);
    let again = text::parse(&printed, "printed").expect("printed text parses");
    assert_eq!(text::print(&again), printed, "printing is not canonical");
    if let Ok(asked) = file::check("input", &file) {
        for kernel in [asked.train, asked.infer] {
            if let Named::Reference(kernel) = kernel {
                as_kernel(&kernel.to_string());
            }
        }
    }
}

fn as_relation(content: &str) {
    if let Ok(relation) = content.parse::<SidedRelation>() {
        assert_eq!(relation.to_string(), content, "a relation has one text");
    }
}

fn as_kernel(content: &str) {
    let Ok(kernel) = Reference::parse(content) else { return };
    let name = kernel.to_string();
    let again = Reference::parse(&name).unwrap_or_else(|reason| panic!("`{content}` is named `{name}`: {reason}"));
    assert_eq!(again, kernel, "`{content}` is named `{name}`");
    assert_eq!(again.to_string(), name, "a kernel has one name");
    assert_eq!(Reference::from_fields(kernel.fields()), Ok(kernel), "`{content}` spelled out");
}

fn drawn(source: &mut dyn Source) {
    let train = Reference::draw(source);
    let infer = train.draw_beside(source);
    let turn = source.below(1 << 16);
    let case = draw(source, Profile::Quick, &Hints::default());
    let relation = rotate(&case, turn, 1, source).pop();
    let (train, infer) = (Implementation::reference(train), Implementation::reference(infer));
    let pair = Pair { train, infer, oracle: Mode::Enclosure, captured: None, witness: false };
    let file = file::file(String::new(), &pair, &Trial::new(case, Checks::Only { oracle: true, pair: true, relation }), None);
    let printed = text::print(&file);
    assert_eq!(text::parse(&printed, "printed").as_ref(), Ok(&file), "a drawn case is not read back:\n{printed}");
    file::check("printed", &file).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    as_file(&edited(&printed, source));
}

/// The text with some of its words dropped, doubled, exchanged or replaced.
fn edited(text: &str, source: &mut dyn Source) -> String {
    let mut words = words(text);
    for _ in 0..source.range(1, EDITS) {
        let [at, other] = [(); 2].map(|()| source.below(words.len() as u64) as usize);
        match source.below(5) {
            0 => words[at] = source.pick(WORDS),
            1 => words[at] = "",
            2 => words.insert(at, words[at]),
            3 => words.swap(at, other),
            _ => words[at] = words[other],
        }
    }
    words.concat()
}

/// Cuts a text into names, numbers and single other characters, and nothing is lost.
fn words(text: &str) -> Vec<&str> {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| !inside(c)).unwrap_or(rest.len()).max(if inside(first) { 1 } else { first.len_utf8() });
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after;
    }
    words
}
