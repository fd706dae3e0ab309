//! Reports of certificates: each format is what its readers expect, whatever a kernel calls itself.

#[path = "report/fixture.rs"]
mod fixture;
#[path = "report/formats.rs"]
mod formats;
#[path = "report/hostile.rs"]
mod hostile;
#[path = "report/page.rs"]
mod page;
#[path = "report/reading.rs"]
mod reading;
