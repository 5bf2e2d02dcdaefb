//! What was measured: a table for people, one object for programs, and the bars it is held to.

use crate::machine;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// How a figure is held to a bar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    /// The median may not be higher.
    Max(f64),
    /// The median may not be lower.
    Min(f64),
}

impl Bar {
    fn holds(self, measured: f64) -> bool {
        match self {
            Self::Max(allowed) => measured <= allowed,
            Self::Min(required) => measured >= required,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Max(allowed) => format!("<= {}", figure(allowed)),
            Self::Min(required) => format!(">= {}", figure(required)),
        }
    }
}

/// One figure of one arm, from one value or more.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    arm: String,
    metric: String,
    unit: &'static str,
    values: Vec<f64>,
    bar: Option<Bar>,
}

impl Row {
    /// The middle value, or the mean of the two in the middle; `NaN` of none.
    pub(crate) fn median(&self) -> f64 {
        median(&self.values)
    }

    fn least(&self) -> f64 {
        self.values.iter().copied().fold(f64::NAN, f64::min)
    }

    fn most(&self) -> f64 {
        self.values.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Whether it holds its bar; `None` without one. A figure that could not be had holds nothing.
    fn holds(&self) -> Option<bool> {
        self.bar.map(|bar| bar.holds(self.median()))
    }
}

/// The middle of some values, or the mean of the two in the middle; `NaN` of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len().saturating_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => (low + high) / 2.0,
        _ => f64::NAN,
    }
}

/// What one command found.
#[derive(Debug)]
pub(crate) struct Report {
    command: &'static str,
    title: String,
    rows: Vec<Row>,
    notes: Vec<String>,
    versions: Vec<(String, String)>,
    failures: Vec<String>,
    is_in_columns: bool,
}

impl Report {
    /// Nothing found yet by `command`, which does what `title` says.
    pub(crate) fn new(command: &'static str, title: impl Into<String>) -> Self {
        Self {
            command,
            title: title.into(),
            rows: Vec::new(),
            notes: Vec::new(),
            versions: vec![("tidegate_bench".into(), env!("CARGO_PKG_VERSION").into())],
            failures: Vec::new(),
            is_in_columns: false,
        }
    }

    /// Adds a value to the row of this arm and metric, which is made if it is not there.
    pub(crate) fn add(&mut self, arm: &str, metric: &str, unit: &'static str, value: f64) {
        match self.rows.iter_mut().find(|row| row.arm == arm && row.metric == metric) {
            Some(row) => row.values.push(value),
            None => {
                let row = Row {
                    arm: arm.to_owned(),
                    metric: metric.to_owned(),
                    unit,
                    values: vec![value],
                    bar: None,
                };
                self.rows.push(row);
            }
        }
    }

    /// Holds this metric to a bar, for each arm that `of` chooses. To be called once the values are there.
    pub(crate) fn hold(&mut self, metric: &str, bar: Option<Bar>, of: impl Fn(&str) -> bool) {
        if bar.is_none() {
            return;
        }
        let mut found = false;
        for row in self.rows.iter_mut().filter(|row| row.metric == metric && of(&row.arm)) {
            (row.bar, found) = (bar, true);
        }
        if !found {
            // A bar that nothing was held to must not look like one that holds.
            self.failures.push(format!("{metric} was not measured, so no bar holds"));
        }
    }

    /// The median of an arm's metric, if it was measured.
    pub(crate) fn median_of(&self, arm: &str, metric: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.arm == arm && row.metric == metric)?;
        Some(row.median()).filter(|median| median.is_finite())
    }

    /// The value of an arm's metric below which so many of a hundred are, if it was measured.
    pub(crate) fn percentile_of(&self, arm: &str, metric: &str, percent: f64) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.arm == arm && row.metric == metric)?;
        let mut sorted = row.values.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().filter(|value| value.is_finite())
    }

    /// The values of an arm's metric; none if it was not measured.
    pub(crate) fn values_of(&self, arm: &str, metric: &str) -> &[f64] {
        let row = self.rows.iter().find(|row| row.arm == arm && row.metric == metric);
        row.map_or(&[], |row| &row.values)
    }

    /// Has people see the medians only, in a column for each arm.
    pub(crate) fn in_columns(&mut self) {
        self.is_in_columns = true;
    }

    /// Goes on with what another report has to tell beside its figures.
    pub(crate) fn take_words_of(&mut self, other: Self) {
        self.notes.extend(other.notes);
        self.failures.extend(other.failures);
    }

    /// Has `ours` be before each of the `others` in seconds. One that did not come in is behind.
    pub(crate) fn require_ahead<'a>(&mut self, ours: &str, others: impl IntoIterator<Item = &'a str>) {
        let time = |report: &Self, arm: &str| report.median_of(arm, "seconds").unwrap_or(f64::INFINITY);
        let our_time = time(self, ours);
        for other in others {
            let their_time = time(self, other);
            if our_time > their_time {
                self.fail(format!("{ours} seconds {our_time:.2} > {other} {their_time:.2}"));
            }
        }
    }

    /// A sentence that a reader of the figures should know.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// A version that the figures belong to.
    pub(crate) fn version(&mut self, program: &str, version: String) {
        self.versions.push((program.to_owned(), version));
    }

    /// Something that must not be, whatever the bars say.
    pub(crate) fn fail(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.failures.contains(&text) {
            self.failures.push(text);
        }
    }

    /// Prints everything, and tells whether nothing failed.
    ///
    /// # Errors
    /// Those of standard output.
    pub(crate) fn print(self, as_json: bool) -> io::Result<bool> {
        let failures = self.all_failures();
        let mut out = io::stdout().lock();
        if as_json {
            writeln!(out, "{}", self.json())?;
        } else {
            out.write_all(self.table().as_bytes())?;
        }
        out.flush()?;
        let mut err = io::stderr().lock();
        for failure in &failures {
            writeln!(err, "FAIL: {failure}")?;
        }
        Ok(failures.is_empty())
    }

    fn all_failures(&self) -> Vec<String> {
        let missed = self.rows.iter().filter(|row| row.holds() == Some(false)).map(|row| {
            let (measured, name) = (figure(row.median()), format!("{} {}", row.arm, row.metric));
            match row.bar {
                Some(Bar::Min(required)) => format!("{name} {measured} < required {}", figure(required)),
                Some(Bar::Max(allowed)) => format!("{name} {measured} > allowed {}", figure(allowed)),
                None => name,
            }
        });
        self.failures.iter().cloned().chain(missed).collect()
    }

    fn json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "arm": row.arm,
                    "metric": row.metric,
                    "unit": row.unit,
                    "median": number(row.median()),
                    "min": number(row.least()),
                    "max": number(row.most()),
                    "n": row.values.len(),
                    "bar": row.bar.map(Bar::text),
                    "holds": row.holds(),
                })
            })
            .collect();
        let versions: serde_json::Map<_, _> =
            self.versions.iter().map(|(program, version)| (program.clone(), json!(version))).collect();
        json!({
            "command": self.command,
            "machine": machine::described(),
            "versions": versions,
            "rows": rows,
            "notes": self.notes,
            "failures": self.all_failures(),
        })
    }

    fn table(&self) -> String {
        let mut text = format!("{}: {}\n", self.command, self.title);
        if self.is_in_columns {
            self.columns(&mut text)
        } else {
            self.lines(&mut text)
        }
        for note in &self.notes {
            let _ = writeln!(text, "  note: {note}");
        }
        let versions: Vec<String> = self.versions.iter().map(|(p, v)| format!("{p} {v}")).collect();
        let _ = writeln!(text, "  with: {}; {}", versions.join(", "), machine::sentence());
        text
    }

    /// A line for each metric, and in it a column for each arm.
    fn columns(&self, text: &mut String) {
        let mut arms: Vec<&str> = Vec::new();
        let mut metrics: Vec<(&str, &str)> = Vec::new();
        for row in &self.rows {
            if !arms.contains(&row.arm.as_str()) {
                arms.push(&row.arm);
            }
            if !metrics.contains(&(row.metric.as_str(), row.unit)) {
                metrics.push((&row.metric, row.unit));
            }
        }
        let _ = write!(text, "  {:<28}", "");
        for arm in &arms {
            let _ = write!(text, "{arm:>12}");
        }
        text.push('\n');
        for (metric, unit) in metrics {
            let _ = write!(text, "  {metric:<28}");
            for arm in &arms {
                let shown = self.median_of(arm, metric).map_or("-".to_owned(), figure);
                let _ = write!(text, "{shown:>12}");
            }
            let _ = writeln!(text, "  {unit}");
        }
    }

    /// A line for each arm and metric.
    fn lines(&self, text: &mut String) {
        let head = ["arm", "metric", "median", "min", "max", "n", "unit", "bar"].map(str::to_owned);
        let mut lines = vec![head];
        for row in &self.rows {
            let bar = row.bar.map_or(String::new(), |bar| {
                let sign = if row.holds() == Some(true) { "holds" } else { "MISSED" };
                format!("{} {sign}", bar.text())
            });
            lines.push([
                row.arm.clone(),
                row.metric.clone(),
                figure(row.median()),
                figure(row.least()),
                figure(row.most()),
                row.values.len().to_string(),
                row.unit.to_owned(),
                bar,
            ]);
        }
        let mut widths = [0; 8];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        for line in &lines {
            let mut shown = String::new();
            for (index, (cell, width)) in line.iter().zip(widths).enumerate() {
                // Words to the left, numbers to the right.
                let _ = match index {
                    2..=5 => write!(shown, "{cell:>width$}  "),
                    _ => write!(shown, "{cell:<width$}  "),
                };
            }
            let _ = writeln!(text, "  {}", shown.trim_end());
        }
    }
}

/// What JSON can say of a number: nothing of one that is none.
fn number(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    // Counts are told as such.
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return json!(value as i64);
    }
    json!((value * 10_000.0).round() / 10_000.0)
}

/// A number with as many digits as mean something.
fn figure(value: f64) -> String {
    match value {
        v if !v.is_finite() => "-".to_owned(),
        v if v.fract() == 0.0 => format!("{v:.0}"),
        v if v.abs() >= 1000.0 => format!("{v:.0}"),
        v if v.abs() >= 100.0 => format!("{v:.1}"),
        v if v.abs() >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::new("load", "for a test");
        for value in [3.0, 1.0, 2.0, 10.0] {
            report.add("ours", "seconds", "s", value);
        }
        report.add("curl", "seconds", "s", 7.0);
        report
    }

    #[test]
    fn a_median_of_an_even_number_is_the_mean_of_the_middle() {
        assert_eq!(report().median_of("ours", "seconds"), Some(2.5));
        assert_eq!(report().median_of("curl", "seconds"), Some(7.0));
        assert_eq!(report().median_of("wget2", "seconds"), None);
    }

    #[test]
    fn a_bar_holds_up_to_its_own_value_and_fails_beyond() {
        for (bar, holds) in
            [(Bar::Max(2.5), true), (Bar::Max(2.4), false), (Bar::Min(2.5), true), (Bar::Min(2.6), false)]
        {
            let mut report = report();
            report.hold("seconds", Some(bar), |arm| arm == "ours");
            assert_eq!(report.all_failures().is_empty(), holds, "{bar:?}");
        }
        let mut report = report();
        report.hold("seconds", Some(Bar::Max(2.0)), |arm| arm == "ours");
        assert_eq!(report.all_failures(), ["ours seconds 2.50 > allowed 2"]);
    }

    #[test]
    fn a_bar_that_nothing_was_held_to_fails() {
        let mut report = report();
        report.hold("cpu_pct", Some(Bar::Max(1e9)), |_| true);
        assert_eq!(report.all_failures().len(), 1);
        report.add("ours", "never", "s", f64::NAN);
        report.hold("never", Some(Bar::Max(1e9)), |_| true);
        assert_eq!(report.all_failures().len(), 2, "nor does a figure that could not be had hold one");
    }

    #[test]
    fn the_object_has_the_documented_fields() {
        let mut report = report();
        report.hold("seconds", Some(Bar::Max(3.0)), |arm| arm == "ours");
        let object = report.json();
        let row = &object["rows"][0];
        assert_eq!(row["arm"], "ours");
        assert_eq!(row["metric"], "seconds");
        assert_eq!(row["median"], 2.5);
        assert_eq!((&row["min"], &row["max"], &row["n"]), (&json!(1), &json!(10), &json!(4)));
        assert_eq!((&row["bar"], &row["holds"]), (&json!("<= 3"), &json!(true)));
        assert_eq!(object["rows"][1]["bar"], Value::Null);
        assert_eq!(object["rows"][1]["holds"], Value::Null);
    }
}
