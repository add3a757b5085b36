//! `cargo xtask words`: keeps phrases that the project no longer uses from coming back.
//!
//! `xtask/words.txt` has a table of phrases, what to write instead, and how often each may still occur
//! in each area. The check fails if a count rises. If one falls, run `cargo xtask words --lower`, which
//! writes the smaller number into the table. `cargo xtask words PHRASE` lists every occurrence.
//!
//! Only prose is searched: comments and string literals of Rust sources (a literal without a space is a
//! name, not prose), Markdown without its code, and the texts of the admin UI.

mod area;
mod files;
mod phrase;
mod prose;
mod table;

use std::path::Path;
use std::process::ExitCode;

use area::Area;
use table::Table;

pub const USAGE: &str = "cargo xtask words [--lower | PHRASE]";

pub fn main(words: &[&str]) -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match run(&root, words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("words: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, words: &[&str]) -> Result<bool, String> {
    let file = root.join("xtask/words.txt");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{file:?}: {error}"))?;
    let mut table = Table::parse(&text)?;
    let texts = files::texts(root)?;
    let wanted = words.first().filter(|word| **word != "--lower");
    table.rows.retain(|row| wanted.is_none_or(|wanted| row.phrase.to_string() == **wanted));
    if table.rows.is_empty() {
        return Err(format!("no such phrase in the table: {}", words.join(" ")));
    }
    table.count(&texts);
    if let Some(phrase) = wanted {
        table.rows.iter().flat_map(|row| row.places(Area::ALL)).for_each(|at| println!("{at}"));
        println!("({phrase})");
        return Ok(true);
    }
    if words.contains(&"--lower") {
        let lowered = table.lowered();
        std::fs::write(&file, &lowered).map_err(|error| format!("{file:?}: {error}"))?;
        table = Table::parse(&lowered)?;
        table.count(&texts);
    }
    Ok(verdict(&table))
}

/// Prints counts that rose, and by how much the others fell.
fn verdict(table: &Table) -> bool {
    let mut passes = true;
    let mut fallen = 0;
    for row in &table.rows {
        for &area in Area::ALL {
            let (found, Some(most)) = (row.found(area), row.most(area)) else { continue };
            fallen += most.saturating_sub(found);
            if found > most {
                passes = false;
                let phrase = &row.phrase;
                eprintln!("`{phrase}`: {found} in {area}, at most {most}; write: {}", row.instead);
                eprintln!("  `cargo xtask words \"{phrase}\"` lists them");
            }
        }
    }
    let total: usize = table.rows.iter().map(|row| row.total()).sum();
    println!("{total} occurrences of {} discouraged phrases", table.rows.len());
    if fallen > 0 && passes {
        println!("{fallen} fewer than the table allows: run `cargo xtask words --lower`");
    }
    passes
}
