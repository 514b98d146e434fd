//! Rows of text in columns.

use super::amount::harmless;

/// On which side the texts of a column stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// The widest that a column of names becomes; longer names lose their middle.
const NAME_WIDTH_MAX: usize = 56;

/// A small table: a header and rows of one length.
#[derive(Clone, Debug)]
pub struct Grid {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// A table with the names of its columns.
    pub fn new(columns: &[(&str, Side)]) -> Grid {
        Grid {
            sides: columns.iter().map(|(_, side)| *side).collect(),
            rows: vec![columns.iter().map(|(name, _)| name.to_string()).collect()],
        }
    }

    /// Adds a row; names from outside are made harmless. Only the last column keeps long texts whole.
    pub fn row(&mut self, cells: Vec<String>) {
        let last = self.sides.len().saturating_sub(1);
        let shown = |(at, cell): (usize, &String)| if at == last { harmless(cell) } else { shorten(&harmless(cell)) };
        self.rows.push(cells.iter().enumerate().map(shown).collect());
    }

    /// Whether there are no rows below the header.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// Appends the table to the text, two blanks in, without blanks at line ends.
    pub fn write(&self, out: &mut String) {
        if self.is_empty() {
            out.push_str("  Nothing to show.\n");
            return;
        }
        let width_of = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.sides.len()).map(width_of).collect();
        for row in &self.rows {
            let mut line = String::from(" ");
            for ((cell, side), width) in row.iter().zip(&self.sides).zip(&widths) {
                let blanks = " ".repeat(width - cell.chars().count().min(*width));
                line.push(' ');
                match side {
                    Side::Left => line.extend([cell.as_str(), &blanks]),
                    Side::Right => line.extend([blanks.as_str(), cell]),
                }
                line.push(' ');
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
}

/// Keeps both ends of a long name, more of the later: paths and providers' ids differ there most.
fn shorten(text: &str) -> String {
    let count = text.chars().count();
    if count <= NAME_WIDTH_MAX {
        return text.to_string();
    }
    let head = NAME_WIDTH_MAX / 3;
    let tail = NAME_WIDTH_MAX - head - 1;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{start}\u{2026}{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stand_left_and_figures_right() {
        let mut grid = Grid::new(&[("what", Side::Left), ("amount", Side::Right)]);
        let mut text = String::new();
        grid.write(&mut text);
        assert_eq!(text, "  Nothing to show.\n");
        grid.row(vec!["é".into(), "1.00".into()]);
        grid.row(vec!["idle".into(), "1,000.00".into()]);
        let mut text = String::new();
        grid.write(&mut text);
        assert_eq!(text, "  what    amount\n  é         1.00\n  idle  1,000.00\n");
    }

    #[test]
    fn long_names_lose_their_middle() {
        let short = shorten(&"a".repeat(100));
        assert_eq!(short.chars().count(), NAME_WIDTH_MAX);
        assert!(short.contains('\u{2026}'));
    }
}
