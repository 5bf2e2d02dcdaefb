//! `tidegate verify`: do the files here have the digests that they should?

use crate::args::VerifyArgs;
use crate::exit::Exit;
use crate::files;
use crate::json::{self, Found};
use crate::progress::{self, Terminal};
use crate::requests::{digest_for, read_checksums};
use crate::screen::lines;
use crate::signals::SIGPIPE;
use crate::style::{Style, Tone, cut, harmless};
use crate::trouble::{Trouble, in_words};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use tidegate_core::digest::Pieces;
use tidegate_core::units::show_size;
use tidegate_core::{Algorithm, Digest, Span, metalink};
use tidegate_engine::verify::Hasher;

const BUFFER: usize = 256 << 10;
/// Wrong pieces that are told one by one; of more, their number is told.
const MOST_PIECES_TOLD: usize = 10;

/// What a file must be.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Expected {
    path: PathBuf,
    length: Option<u64>,
    digests: Vec<Digest>,
    pieces: Option<Pieces>,
}

/// What was found of a file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Finding {
    /// Each digest that it should have, and the one that it has.
    digests: Vec<(Digest, Digest)>,
    /// What else is wrong: sentences.
    faults: Vec<String>,
}

impl Finding {
    /// Whether the file is all that was expected.
    fn is_right(&self) -> bool {
        self.faults.is_empty() && self.digests.iter().all(|(expected, found)| expected == found)
    }

    /// The strongest digest of the whole that was compared.
    fn strongest(&self) -> Option<Algorithm> {
        self.digests.iter().map(|(expected, _)| expected.algorithm()).max()
    }

    /// What is wrong, line by line.
    fn lines(&self) -> impl Iterator<Item = String> {
        let wrong = self.digests.iter().filter(|(expected, found)| expected != found);
        let both = wrong.flat_map(|(expected, found)| {
            [format!("should have {expected}"), format!("but has     {found}")]
        });
        both.chain(self.faults.iter().cloned())
    }
}

/// Checks every file and says what was found on standard error.
///
/// # Errors
/// When the command makes no sense or a list cannot be read; not for files that are wrong.
pub(crate) fn verify(args: &VerifyArgs, style: Style, terminal: bool) -> Result<Exit, Trouble> {
    let mut exits = Vec::new();
    for expected in expectations(args)? {
        let mut watch = Watch::new(&expected.path, terminal && !args.quiet && !args.json, style);
        let finding = check(&expected, &mut watch);
        watch.end();
        exits.push(match &finding {
            Ok(finding) if finding.is_right() => Exit::Done,
            Ok(_) => Exit::Integrity,
            Err(_) => Exit::GaveUp,
        });
        if args.json {
            // As with `get`: with nobody left to read, the rest is not worth the work.
            if writeln!(io::stdout(), "{}", json::verified(&expected.path, &finding_json(&finding))).is_err()
            {
                return Ok(Exit::Signal(SIGPIPE));
            }
        } else {
            tell(&expected.path, &finding, args.quiet, style);
        }
    }
    Ok(Exit::gravest(exits))
}

/// What was found of a file, for a person.
fn tell(path: &Path, finding: &io::Result<Finding>, quiet: bool, style: Style) {
    let name = harmless(&path.to_string_lossy());
    match finding {
        Ok(finding) if finding.is_right() => {
            if !quiet {
                let by = finding.strongest().map_or_else(|| "pieces".to_owned(), |a| a.to_string());
                say(&format!("{name}: {} ({by})", style.paint(Tone::Good, "right")));
                if finding.strongest().is_some_and(|a| a < Algorithm::Sha224) {
                    say("  This digest finds accidents, but not a file made wrong on purpose.");
                }
            }
        }
        Ok(finding) => {
            say(&format!("{name}: {} [digest-mismatch]", style.paint(Tone::Bad, "wrong")));
            finding.lines().for_each(|line| say(&format!("  {line}")));
        }
        Err(e) => say(&format!("{name}: {}: {}", style.paint(Tone::Bad, "cannot be read"), in_words(e))),
    }
}

/// The same for a program.
fn finding_json(finding: &io::Result<Finding>) -> Found {
    match finding {
        Ok(found) => Found {
            result: if found.is_right() { "right" } else { "wrong" },
            digests: found.digests.iter().map(|(e, f)| (e.to_string(), f.to_string())).collect(),
            faults: found.faults.clone(),
        },
        Err(e) => Found { result: "unreadable", digests: Vec::new(), faults: vec![in_words(e)] },
    }
}

fn say(sentence: &str) {
    for line in lines(sentence, io::stderr().is_terminal()) {
        // Nobody is left to be told that nobody is left.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// What each file must be, from all that was given.
fn expectations(args: &VerifyArgs) -> Result<Vec<Expected>, Trouble> {
    if args.checksum.is_empty() && args.checksum_file.is_none() && args.metalink.is_none() {
        return Err(Trouble::usage("there is nothing to compare the files with")
            .next("Give --checksum ALG=HEX, --checksum-file FILE or --metalink FILE."));
    }
    let mut all: Vec<Expected> =
        args.files.iter().map(|path| Expected { path: path.clone(), ..Expected::default() }).collect();
    let named = !all.is_empty();
    if !args.checksum.is_empty() {
        let [only] = all.as_mut_slice() else {
            return Err(Trouble::usage("--checksum goes with one FILE")
                .next("For many files, list their digests in a file and give it with --checksum-file."));
        };
        for written in &args.checksum {
            only.digests.push(written.parse().map_err(|e| Trouble::usage(format!("--checksum: {e}")))?);
        }
    }
    if let Some(path) = &args.checksum_file {
        let known = read_checksums(path)?;
        if named {
            for expected in &mut all {
                let name = expected.path.to_string_lossy();
                expected.digests.push(digest_for(&known, path, &name)?);
            }
        } else {
            for entry in known.entries {
                let Some(name) = entry.name else {
                    let why = format!("{}:{}: the line names no file", path.display(), entry.line);
                    return Err(Trouble::usage(why).next("Name the file on the command line."));
                };
                all.push(Expected { path: name.into(), digests: vec![entry.digest], ..Expected::default() });
            }
        }
    }
    if let Some(path) = &args.metalink {
        from_metalink(path, named, &mut all)?;
    }
    Ok(all)
}

fn from_metalink(path: &Path, named: bool, all: &mut Vec<Expected>) -> Result<(), Trouble> {
    let content = files::read("--metalink", path)?;
    let document = metalink::parse(&content, None).map_err(|e| {
        Trouble::from(tidegate_core::Failure::from(e)).prefixed(&format!("{}: ", path.display()))
    })?;
    let single = document.files.len() == 1;
    if !named {
        all.extend(
            document.files.iter().map(|f| Expected { path: f.name.as_str().into(), ..Expected::default() }),
        );
    }
    for expected in all {
        let last = expected.path.file_name();
        let found =
            document.files.iter().find(|f| single || Path::new(&f.name) == expected.path).or_else(|| {
                let mut same = document.files.iter().filter(|f| Path::new(&f.name).file_name() == last);
                // Two of the same name in different folders: which is meant nobody knows.
                same.next().filter(|_| same.next().is_none())
            });
        let file = found.ok_or_else(|| {
            Trouble::usage(format!("{} does not describe {}", path.display(), expected.path.display()))
        })?;
        if file.digests.is_empty() && file.pieces.is_none() {
            let why = format!("{} has no digest for {:?} that is known here", path.display(), file.name);
            return Err(Trouble::usage(why));
        }
        expected.digests.extend(file.digests.iter().cloned());
        expected.pieces.clone_from(&file.pieces);
        expected.length = file.size;
    }
    Ok(())
}

/// Reads a file once and compares it with everything that is expected.
fn check(expected: &Expected, watch: &mut Watch) -> io::Result<Finding> {
    let mut file = File::open(&expected.path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    let mut whole: Vec<(Hasher, &Digest)> =
        expected.digests.iter().map(|d| (Hasher::new(d.algorithm()), d)).collect();
    let mut pieces = expected.pieces.as_ref().map(PieceCheck::new);
    let mut buffer = vec![0; BUFFER];
    let mut length = 0u64;
    loop {
        let count = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        whole.iter_mut().for_each(|(hasher, _)| hasher.update(&buffer[..count]));
        if let Some(pieces) = &mut pieces {
            pieces.update(&buffer[..count]);
        }
        length += count as u64;
        watch.tick(length);
    }
    let mut faults = Vec::new();
    if let Some(must) = expected.length.filter(|must| *must != length) {
        faults.push(format!("it has {length} bytes, but should have {must}"));
    }
    let digests = whole.into_iter().map(|(hasher, digest)| (digest.clone(), hasher.finish())).collect();
    faults.extend(pieces.map(PieceCheck::end).unwrap_or_default());
    Ok(Finding { digests, faults })
}

/// Compares pieces as their bytes go by.
struct PieceCheck<'a> {
    pieces: &'a Pieces,
    hasher: Option<Hasher>,
    index: usize,
    filled: u64,
    total: u64,
    wrong: Vec<Span>,
    wrong_count: usize,
}

impl<'a> PieceCheck<'a> {
    fn new(pieces: &'a Pieces) -> Self {
        Self { pieces, hasher: None, index: 0, filled: 0, total: 0, wrong: Vec::new(), wrong_count: 0 }
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(digest) = self.pieces.digests.get(self.index) else {
                self.total += bytes.len() as u64;
                return;
            };
            let room = self.pieces.length.max(1) - self.filled;
            let (now, later) = bytes.split_at(usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len()));
            self.hasher.get_or_insert_with(|| Hasher::new(digest.algorithm())).update(now);
            self.filled += now.len() as u64;
            self.total += now.len() as u64;
            bytes = later;
            if self.filled == self.pieces.length.max(1) {
                self.close();
            }
        }
    }

    fn close(&mut self) {
        let digest = self.pieces.digests.get(self.index);
        let right = self.hasher.take().zip(digest).is_some_and(|(hasher, digest)| hasher.finish() == *digest);
        if !right {
            self.wrong_count += 1;
            let span = Span::new(self.total - self.filled, self.total);
            self.wrong.extend(span.filter(|_| self.wrong.len() < MOST_PIECES_TOLD));
        }
        self.index += 1;
        self.filled = 0;
    }

    fn end(mut self) -> Vec<String> {
        if self.filled > 0 {
            self.close();
        }
        let count = self.pieces.digests.len();
        let mut reasons: Vec<String> = self
            .wrong
            .iter()
            .map(|span| format!("the piece of {} at bytes {span} is wrong", show_size(span.len())))
            .collect();
        if self.wrong_count > self.wrong.len() {
            reasons.push(format!("{} of its {count} pieces are wrong in all", self.wrong_count));
        }
        if self.index < count {
            reasons.push(format!("its last {} of {count} pieces are missing", count - self.index));
        }
        if self.index == count && self.total > self.pieces.length.saturating_mul(count as u64) {
            reasons.push("it is longer than its pieces".to_owned());
        }
        reasons
    }
}

/// Shows how far a check is, on a terminal.
struct Watch {
    name: String,
    length: Option<u64>,
    start: Instant,
    style: Style,
    terminal: Option<Terminal<io::Stderr>>,
}

impl Watch {
    fn new(path: &Path, show: bool, style: Style) -> Self {
        Self {
            name: harmless(&path.to_string_lossy()),
            length: std::fs::metadata(path).ok().map(|m| m.len()).filter(|length| *length > 0),
            start: Instant::now(),
            style,
            terminal: show.then(|| Terminal::new(io::stderr())),
        }
    }

    fn tick(&mut self, done: u64) {
        let Some(terminal) = &mut self.terminal else { return };
        let now = self.start.elapsed();
        if !terminal.is_due(now) {
            return;
        }
        let percent = self.length.map_or(0, |length| (u128::from(done) * 100 / u128::from(length)).min(99));
        let (width, _) = progress::size();
        let line = cut(&format!("{percent}% {}: checking", self.name), width.saturating_sub(1), self.style);
        let _ = terminal.draw(&[], &[line], width, now);
    }

    fn end(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            let _ = terminal.draw(&[], &[], progress::size().0, self.start.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(content: &[u8], expected: Expected) -> Finding {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        let expected = Expected { path: file.path().to_owned(), ..expected };
        check(&expected, &mut Watch::new(file.path(), false, Style::PLAIN)).unwrap()
    }

    fn md5(hex: &str) -> Digest {
        Digest::from_hex(Algorithm::Md5, hex).unwrap()
    }

    fn wrong(finding: Finding) -> Vec<String> {
        assert!(!finding.is_right());
        finding.lines().collect()
    }

    fn right(finding: &Finding) -> Option<Algorithm> {
        assert!(finding.is_right(), "{finding:?}");
        finding.strongest()
    }

    const A: &str = "0cc175b9c0f1b6a831c399e269772661";
    const B: &str = "92eb5ffee6ae2fec3ad71c777531578f";

    #[test]
    fn a_file_is_right_only_when_all_that_is_expected_holds() {
        let digests = vec![md5(A)];
        let expect = |length| Expected { digests: digests.clone(), length, ..Expected::default() };
        assert_eq!(right(&found(b"a", expect(Some(1)))), Some(Algorithm::Md5));
        let both = [format!("should have md5={A}"), format!("but has     md5={B}")];
        assert_eq!(wrong(found(b"b", expect(Some(1)))), both);
        assert_eq!(wrong(found(b"a", expect(Some(2)))), ["it has 1 bytes, but should have 2"]);
    }

    #[test]
    fn wrong_pieces_are_told_with_their_place() {
        let pieces = Some(Pieces { length: 1, digests: vec![md5(A), md5(B), md5(A)] });
        let expect = || Expected { pieces: pieces.clone(), ..Expected::default() };
        assert_eq!(right(&found(b"aba", expect())), None);
        assert_eq!(wrong(found(b"aaa", expect())), ["the piece of 1 B at bytes 1..2 is wrong"]);
        assert_eq!(wrong(found(b"ab", expect())), ["its last 1 of 3 pieces are missing"]);
        assert_eq!(wrong(found(b"abab", expect())), ["it is longer than its pieces"]);
    }

    #[test]
    fn a_last_piece_may_be_shorter_but_no_other() {
        let two = Some(Pieces { length: 2, digests: vec![md5("187ef4436122d1cc2f40dc2b92f0eba0"), md5(A)] });
        let expect = || Expected { pieces: two.clone(), ..Expected::default() };
        assert_eq!(right(&found(b"aba", expect())), None);
        assert_eq!(wrong(found(b"abab", expect())).len(), 1);
    }

    #[test]
    fn of_many_wrong_pieces_the_number_is_told() {
        let pieces = Some(Pieces { length: 1, digests: vec![md5(A); 100] });
        let reasons = wrong(found(&[b'b'; 100], Expected { pieces, ..Expected::default() }));
        assert_eq!(reasons.len(), MOST_PIECES_TOLD + 1);
        assert_eq!(reasons[MOST_PIECES_TOLD], "100 of its 100 pieces are wrong in all");
    }
}
