//! A histogram as a table: a bin, a bar, a count. It needs no drawing to be read, and fits any width.

use super::super::words::{count, share};
use maud::{Markup, html};

/// A row of a histogram.
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) count: u64,
    /// Drawn in the colour and pattern of what failed.
    pub(super) alarming: bool,
}

/// Bars as long as the logarithm of their counts, so that one element in a million is still seen; the numbers beside them are exact.
pub(super) fn histogram(caption: &str, bin: &str, what: &str, bars: &[Bar], rule_after: Option<(usize, &str)>) -> Markup {
    let all: u64 = bars.iter().map(|bar| bar.count).sum();
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or_default();
    html! {
        table.bars {
            caption { b { (caption) } " " span { (count(all)) " " (what) ", bars to a logarithmic scale" } }
            thead {
                tr {
                    th scope="col" { (bin) }
                    td.track {}
                    th.number scope="col" { (what) }
                    th.number scope="col" { "share" }
                }
            }
            tbody {
                @for (n, bar) in bars.iter().enumerate() {
                    tr.alarming[bar.alarming && bar.count > 0].none[bar.count == 0] {
                        th scope="row" { (bar.name) }
                        td.track { @if bar.count > 0 { div.bar style={ "width:" (length(bar.count, most)) "%" } {} } }
                        td.number { (count(bar.count)) }
                        td.number { (share(bar.count, all)) }
                    }
                    @if let Some((place, words)) = rule_after && place == n {
                        tr.rule { td colspan="4" { (words) } }
                    }
                }
            }
        }
    }
}

/// In percent, to a tenth. One is seen.
fn length(n: u64, most: u64) -> String {
    let log = |n: u64| ((n + 1) as f64).ln();
    format!("{:.1}", (100.0 * log(n) / log(most.max(1))).max(0.5))
}
