//! The reference kernel from outside: call forms, recipes, conventions, and the smallest cases of public bug reports.

mod properties;
mod recipes;
mod reports;
mod setup;
