//! The table at the end of the end-to-end ring: case × version of the harness.

use std::collections::HashMap;
use std::fmt::Write as _;

/// What stands between a suite and what is in it.
const WITHIN: &str = " › ";

/// What became of the cases on each version, in the order in which they ran first.
#[derive(Default)]
pub struct Cases {
    versions: Vec<&'static str>,
    rows: Vec<Row>,
    by_name: HashMap<(String, String), usize>,
}

struct Row {
    file: String,
    name: String,
    /// By version; what did not run there is missing.
    outcomes: HashMap<&'static str, (String, String)>,
}

impl Row {
    /// Where the case stands.
    fn suite(&self) -> String {
        self.name
            .rsplit_once(WITHIN)
            .map_or(self.file.clone(), |(suites, _)| format!("{}{WITHIN}{suites}", self.file))
    }

    /// The case itself.
    fn case(&self) -> &str {
        self.name.rsplit_once(WITHIN).map_or(&self.name, |(_, case)| case)
    }
}

impl Cases {
    /// Takes what `tests/e2e/cases.ts` reported of the cases on one version.
    pub fn add(&mut self, version: &'static str, report: &str) {
        self.versions.push(version);
        for line in report.lines() {
            let mut fields = line.split('\t').map(str::to_owned);
            let (Some(file), Some(name), Some(outcome)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let reason = fields.next().unwrap_or_default();
            let key = (file.clone(), name.clone());
            let index = *self.by_name.entry(key).or_insert(self.rows.len());
            if index == self.rows.len() {
                self.rows.push(Row { file, name, outcomes: HashMap::new() });
            }
            self.rows[index].outcomes.insert(version, (outcome, reason));
        }
    }

    /// The table; what was skipped says why.
    pub fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.case().chars().count() + 2).max().unwrap_or(0);
        let mut table = String::new();
        let mut line = |first: &str, columns: &[&str], last: &str| {
            let columns: String = columns.iter().fold(String::new(), |mut text, column| {
                let _ = write!(text, "  {column:<10}");
                text
            });
            let _ = writeln!(table, "{}", format!("{first:<width$}{columns}  {last}").trim_end());
        };
        line("case", &self.versions, "");
        let mut suite = String::new();
        for row in &self.rows {
            if row.suite() != suite {
                suite = row.suite();
                line(&suite, &[], "");
            }
            let told: Vec<Option<&(String, String)>> =
                self.versions.iter().map(|version| row.outcomes.get(version)).collect();
            let outcomes: Vec<&str> =
                told.iter().map(|one| one.map_or("-", |(outcome, _)| outcome)).collect();
            let reasons = told.iter().flatten().map(|(_, reason)| reason.as_str());
            let reasons: Vec<&str> = reasons.filter(|reason| !reason.is_empty()).collect();
            line(&format!("  {}", row.case()), &outcomes, &reasons.join("; "));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_side_by_side() {
        let mut cases = Cases::default();
        cases.add("0.1.0-rc.8", "row\tit waits\tpass\t\nrow\tat its end › it ends\tfail\t\n");
        cases.add("0.2.1-rc.2", "row\tit waits\tskip\tno such thing\nchaos\tit goes on\tpass\t\n");
        let expected = "\
case          0.1.0-rc.8  0.2.1-rc.2
row
  it waits    pass        skip        no such thing
row › at its end
  it ends     fail        -
chaos
  it goes on  -           pass
";
        assert_eq!(cases.table(), expected);
    }
}
