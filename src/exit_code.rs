//! Exit codes of the `lastbit` command. They are part of its interface.

/// Everything that ran matched.
pub const MATCH: u8 = 0;
/// There is a finding.
pub const FINDING: u8 = 1;
/// The command line or an input file is wrong.
pub const USAGE: u8 = 2;
/// No finding, but something is undecided or cannot be verified.
pub const UNDECIDED: u8 = 3;
/// Nothing ran, or nothing was compared.
pub const NOTHING: u8 = 4;
/// A kept case did not show what its file expects, whatever else it showed.
pub const UNMET: u8 = 5;
/// A fault of `lastbit` itself.
pub const INTERNAL: u8 = 70;
/// Results could not be written.
pub const OUTPUT: u8 = 74;

/// The table printed by `lastbit --help`.
pub const HELP: &str = "Exit codes:
  0   everything that ran matched
  1   a finding
  2   usage, or bad input
  3   no finding, but something is undecided or cannot be verified
  4   nothing ran, or nothing was compared
  5   a kept case did not show what its file expects
  70  a fault of lastbit itself
  74  results could not be written";
