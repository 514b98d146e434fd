//! The files of a world, in the sources' own formats.

pub mod focus;
pub mod kubernetes;
pub mod metric;
pub mod series;
pub mod serving;
pub mod slurm;
pub mod table;
pub mod text;
