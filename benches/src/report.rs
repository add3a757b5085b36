//! Results as text and as JSON.

use serde_json::{Value, json};

use crate::timing::{Time, readable};

#[derive(Default)]
pub struct Report {
    notes: Vec<String>,
    sections: Vec<Section>,
}

/// One table.
pub struct Section {
    pub title: &'static str,
    pub columns: Vec<String>,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub what: String,
    pub cells: Vec<Cell>,
    /// The target, and whether it is met.
    pub target: Option<(String, bool)>,
}

pub enum Cell {
    None,
    Time(Time),
    Ratio(f64),
    Count(f64),
    Megabytes(f64),
}

impl Report {
    pub fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    pub fn section(&mut self, title: &'static str, columns: &[&str], lines: Vec<Line>) {
        let columns = columns.iter().map(|column| column.to_string()).collect();
        self.sections.push(Section { title, columns, lines });
    }

    pub fn print(&self, json: bool) {
        if json {
            println!("{:#}", self.to_json());
            return;
        }
        for section in &self.sections {
            section.print();
        }
        for note in &self.notes {
            println!("{note}");
        }
    }

    fn to_json(&self) -> Value {
        let sections: Vec<Value> = self.sections.iter().map(Section::to_json).collect();
        json!({ "sections": sections, "notes": self.notes })
    }
}

impl Section {
    fn print(&self) {
        print!("{:<34}", self.title);
        for column in &self.columns {
            print!("{column:>22}");
        }
        println!();
        for line in &self.lines {
            print!("  {:<32}", line.what);
            for cell in &line.cells {
                print!("{:>22}", cell.readable());
            }
            match &line.target {
                None => println!(),
                Some((target, true)) => println!("   {target}: met"),
                Some((target, false)) => println!("   {target}: MISSED"),
            }
        }
        println!();
    }

    fn to_json(&self) -> Value {
        let lines = self.lines.iter().map(|line| {
            let cells: serde_json::Map<String, Value> = self
                .columns
                .iter()
                .zip(&line.cells)
                .map(|(column, cell)| (column.clone(), cell.to_json()))
                .collect();
            let target = line.target.as_ref().map(|(text, met)| json!({"is": text, "met": met}));
            json!({ "what": line.what, "values": cells, "target": target })
        });
        json!({ "title": self.title, "lines": lines.collect::<Vec<_>>() })
    }
}

impl Line {
    pub fn new(what: impl Into<String>, cells: Vec<Cell>) -> Line {
        Line { what: what.into(), cells, target: None }
    }

    pub fn target(mut self, target: &str, met: bool) -> Line {
        self.target = Some((target.into(), met));
        self
    }
}

impl Cell {
    fn readable(&self) -> String {
        match self {
            Cell::None => String::new(),
            Cell::Time(time) => {
                format!("{} (min {})", readable(time.median_ns), readable(time.min_ns))
            }
            Cell::Ratio(ratio) if *ratio < 10.0 => format!("{ratio:.2}×"),
            Cell::Ratio(ratio) => format!("{}×", grouped(*ratio)),
            Cell::Count(count) => grouped(*count),
            Cell::Megabytes(size) => format!("{size:.0} MB"),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Cell::None => Value::Null,
            Cell::Time(time) => json!({
                "median_ns": time.median_ns, "min_ns": time.min_ns, "samples": time.samples,
            }),
            Cell::Ratio(number) | Cell::Count(number) | Cell::Megabytes(number) => json!(number),
        }
    }
}

/// A whole number with commas between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
