//! Comma-separated files, read line by line. Each fault names the file, the line and the field.
//!
//! A field must not contain a comma or a quotation mark. Blank lines are allowed; everything else must parse.

use std::io::BufRead;

use thiserror::Error;

/// Fault of a data file.
#[derive(Debug, Error)]
#[error("{file}, line {line}, field {field}: {problem}")]
pub struct DataFault {
    pub file: String,
    /// Line, counted from one; 0 if the file as a whole is meant.
    pub line: usize,
    pub field: String,
    pub problem: String,
}

/// Names the columns of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsvHeader {
    /// The first line must be the names of the columns.
    Present,
    /// The file begins with data.
    Absent,
}

/// Records of a file.
pub struct CsvFile<R> {
    name: String,
    lines: std::io::Lines<R>,
    line: usize,
    columns: &'static [&'static str],
}

/// One line of a file.
#[derive(Debug)]
pub struct CsvRecord {
    file: String,
    line: usize,
    columns: &'static [&'static str],
    text: String,
}

impl<R: BufRead> CsvFile<R> {
    /// Starts to read a file with these columns, in this order.
    pub fn new(name: &str, reader: R, columns: &'static [&'static str], header: CsvHeader) -> Result<Self, DataFault> {
        let mut file = Self { name: name.to_owned(), lines: reader.lines(), line: 0, columns };
        if header == CsvHeader::Present {
            let expected = columns.join(",");
            let first = file.next_line()?.unwrap_or_default();
            if first.trim() != expected {
                return Err(file.fault("header", format!("\"{}\" is not \"{expected}\"", first.trim())));
            }
        }
        Ok(file)
    }

    fn fault(&self, field: &str, problem: String) -> DataFault {
        DataFault { file: self.name.clone(), line: self.line, field: field.to_owned(), problem }
    }

    fn next_line(&mut self) -> Result<Option<String>, DataFault> {
        let Some(text) = self.lines.next() else { return Ok(None) };
        self.line += 1;
        text.map(Some).map_err(|error| self.fault("line", error.to_string()))
    }

    fn next_record(&mut self) -> Result<Option<CsvRecord>, DataFault> {
        while let Some(text) = self.next_line()? {
            if text.trim().is_empty() {
                continue;
            }
            if text.contains('"') {
                return Err(self.fault("line", "quotation marks are not supported".to_owned()));
            }
            let (found, expected) = (text.split(',').count(), self.columns.len());
            if found != expected {
                let columns = self.columns.join(",");
                return Err(self.fault("line", format!("{found} fields instead of {expected}: write {columns}")));
            }
            let (file, line, columns) = (self.name.clone(), self.line, self.columns);
            return Ok(Some(CsvRecord { file, line, columns, text }));
        }
        Ok(None)
    }
}

impl<R: BufRead> Iterator for CsvFile<R> {
    type Item = Result<CsvRecord, DataFault>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_record().transpose()
    }
}

impl CsvRecord {
    /// Fault of a field of this line.
    pub fn fault(&self, column: &str, problem: impl Into<String>) -> DataFault {
        DataFault { file: self.file.clone(), line: self.line, field: column.to_owned(), problem: problem.into() }
    }

    /// Text of a field without surrounding blanks; may be empty.
    pub fn text(&self, column: &str) -> &str {
        let position = self.columns.iter().position(|name| *name == column);
        position.and_then(|position| self.text.split(',').nth(position)).unwrap_or_default().trim()
    }

    /// Text of a field that must not be empty.
    pub fn name(&self, column: &str) -> Result<&str, DataFault> {
        let text = self.text(column);
        if text.is_empty() { Err(self.fault(column, "is empty")) } else { Ok(text) }
    }

    /// Finite number of a field.
    pub fn number(&self, column: &str) -> Result<f64, DataFault> {
        let text = self.text(column);
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| self.fault(column, format!("\"{text}\" is not a number")))
    }

    /// Number of a field that is 0 or more.
    pub fn amount(&self, column: &str) -> Result<f64, DataFault> {
        let number = self.number(column)?;
        if number < 0.0 { Err(self.fault(column, format!("{number} is below 0"))) } else { Ok(number) }
    }

    /// Number of a field that is more than 0.
    pub fn positive(&self, column: &str) -> Result<f64, DataFault> {
        let number = self.number(column)?;
        if number <= 0.0 { Err(self.fault(column, format!("{number} is not above 0"))) } else { Ok(number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[&str] = &["name", "size"];

    fn read(text: &str) -> Result<Vec<(String, f64)>, String> {
        let file = CsvFile::new("x.csv", text.as_bytes(), COLUMNS, CsvHeader::Present).map_err(|f| f.to_string())?;
        file.map(|record| {
            let record = record?;
            Ok((record.name("name")?.to_owned(), record.positive("size")?))
        })
        .collect::<Result<_, DataFault>>()
        .map_err(|fault| fault.to_string())
    }

    #[test]
    fn records_have_their_fields() {
        assert_eq!(read("name,size\na, 1.5\n\nb,2\n").unwrap(), [("a".to_owned(), 1.5), ("b".to_owned(), 2.0)]);
        let file = CsvFile::new("x.csv", &b"a,1\n"[..], COLUMNS, CsvHeader::Absent).unwrap();
        assert_eq!(file.map(|record| record.unwrap().text("name").to_owned()).collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn faults_name_file_line_and_field() {
        for (text, expected) in [
            ("", "x.csv, line 0, field header: \"\" is not \"name,size\""),
            ("a,b\n", "x.csv, line 1, field header: \"a,b\" is not \"name,size\""),
            ("name,size\na,1,2\n", "x.csv, line 2, field line: 3 fields instead of 2: write name,size"),
            ("name,size\n\n,1\n", "x.csv, line 3, field name: is empty"),
            ("name,size\na,x\n", "x.csv, line 2, field size: \"x\" is not a number"),
            ("name,size\na,NaN\n", "x.csv, line 2, field size: \"NaN\" is not a number"),
            ("name,size\na,0\n", "x.csv, line 2, field size: 0 is not above 0"),
            ("name,size\n\"a\",1\n", "x.csv, line 2, field line: quotation marks are not supported"),
        ] {
            assert_eq!(read(text).unwrap_err(), expected);
        }
    }
}
