//! How a report looks: a table for people, a page for readers. JSON is the report itself.
//!
//! No figure is made here. Amounts are rounded once, for display; names from outside are made harmless.

pub mod amount;
pub mod grid;
pub mod html;
pub mod svg;
pub mod table;
pub mod view;
