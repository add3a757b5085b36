//! The table of phrases in `xtask/words.txt`.
//!
//! A row has a number for each area (`-`: not counted there), the phrase, and what to write instead.
//! Lines that start with `#` are comments.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::area::Area;
use super::phrase::Phrase;
use super::prose::Text;

pub struct Table {
    pub rows: Vec<Row>,
    lines: Vec<String>,
}

pub struct Row {
    /// Where in the file the row is.
    line: usize,
    most: BTreeMap<Area, Option<usize>>,
    pub phrase: Phrase,
    pub instead: String,
    places: BTreeMap<Area, Vec<String>>,
}

impl Table {
    pub fn parse(text: &str) -> Result<Table, String> {
        let lines: Vec<String> = text.lines().map(str::to_string).collect();
        let rows = lines.iter().enumerate();
        let rows = rows.filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
        let rows = rows.map(|(at, line)| Row::parse(at, line)).collect::<Result<_, _>>()?;
        Ok(Table { rows, lines })
    }

    pub fn count(&mut self, texts: &[Text]) {
        for row in &mut self.rows {
            for text in texts.iter().filter(|text| row.most.get(&text.area) != Some(&None)) {
                let lines = row.phrase.lines(&text.tokens);
                let places = lines.iter().map(|line| format!("{}:{line}", text.file));
                row.places.entry(text.area).or_default().extend(places);
            }
        }
    }

    /// The file with every number lowered to what was found.
    pub fn lowered(&self) -> String {
        let mut lines = self.lines.clone();
        for row in &self.rows {
            let mut line = String::new();
            for area in Area::ALL {
                match row.most(*area) {
                    Some(most) => drop(write!(line, "{:>8} ", most.min(row.found(*area)))),
                    None => line.push_str("       - "),
                }
            }
            lines[row.line] = format!("{line}| {:<34} | {}", row.phrase.to_string(), row.instead);
        }
        lines.join("\n") + "\n"
    }
}

impl Row {
    fn parse(at: usize, line: &str) -> Result<Row, String> {
        let wrong = || format!("xtask/words.txt:{}: not a row of the table", at + 1);
        let [numbers, phrase, instead] =
            line.split('|').map(str::trim).collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
        let numbers = numbers.split_whitespace().map(|number| match number {
            "-" => Ok(None),
            number => number.parse().map(Some).map_err(|_| wrong()),
        });
        let numbers: Vec<Option<usize>> = numbers.collect::<Result<_, String>>()?;
        if numbers.len() != Area::ALL.len() || phrase.is_empty() {
            return Err(wrong());
        }
        let most = Area::ALL.iter().copied().zip(numbers).collect();
        let (phrase, instead) = (Phrase::parse(phrase), instead.to_string());
        Ok(Row { line: at, most, phrase, instead, places: BTreeMap::new() })
    }

    /// How often the phrase may occur in an area. `None`: it is not counted there.
    pub fn most(&self, area: Area) -> Option<usize> {
        self.most.get(&area).copied().flatten()
    }

    pub fn found(&self, area: Area) -> usize {
        self.places.get(&area).map_or(0, Vec::len)
    }

    pub fn total(&self) -> usize {
        self.places.values().map(Vec::len).sum()
    }

    pub fn places(&self, areas: &[Area]) -> Vec<String> {
        areas.iter().filter_map(|area| self.places.get(area)).flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# a comment\n 5 0 - 0 0 | anew | again\n";

    fn counted(source: &str) -> Table {
        let mut table = Table::parse(TABLE).unwrap();
        let mut texts = Vec::new();
        crate::words::prose::rust("a.rs", source, false, &mut texts);
        table.count(&texts);
        table
    }

    #[test]
    fn numbers_only_fall() {
        let table = counted("// anew\n\n// anew\nconst A: &str = \"it is anew\";");
        assert_eq!(table.rows[0].found(Area::Comments), 2);
        assert_eq!(table.rows[0].places(&[Area::Strings]), ["a.rs:4"]);
        let row: Vec<String> =
            table.lowered().lines().nth(1).unwrap().split_whitespace().map(String::from).collect();
        assert_eq!(row[..5], ["2", "0", "-", "0", "0"]);
    }

    #[test]
    fn areas_without_a_number_are_not_counted() {
        let table = counted("#[cfg(test)]\n// anew");
        assert_eq!(table.rows[0].total(), 0);
    }

    #[test]
    fn a_row_that_cannot_be_read_is_named() {
        assert!(Table::parse("1 2 | anew").is_err_and(|error| error.contains("words.txt:1")));
    }
}
