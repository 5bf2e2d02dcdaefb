//! From words to requests: URLs, input files and Metalink files, each mistake found before anything is
//! touched.

use crate::args::GetArgs;
use crate::config::Config;
use crate::environment::Environment;
use crate::files;
use crate::raw::{Origin, RawConfig};
use crate::settings;
use crate::trouble::Trouble;
use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use tidegate_core::checksum_file::{self, ChecksumFile};
use tidegate_core::file_name::{Portability, SafeName, relative_path};
use tidegate_core::request::{Credentials, Destination};
use tidegate_core::{Digest, Mirror, Request, expand, file_name, metalink, units, uri_list};
use url::{Origin as Site, Url};

/// The most requests of one command.
const MAX_REQUESTS: usize = 1_000_000;

/// The settings that may stand below an entry of an input file.
const ENTRY_SETTINGS: [&str; 15] = [
    "dir",
    "on-exists",
    "newer",
    "remote-time",
    "sync",
    "preallocate",
    "max-size",
    "connections",
    "min-split",
    "speed-min",
    "resume",
    "retries",
    "retry-wait",
    "timeout",
    "connect-timeout",
];

/// Fields that say how a body is cut up and sent: they are ours to set.
const OUR_HEADERS: [&str; 7] =
    ["range", "if-range", "content-length", "transfer-encoding", "connection", "te", "expect"];

/// What was asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// At least one.
    pub(crate) requests: Vec<Request>,
    /// What a person should know: sentences.
    pub(crate) notes: Vec<String>,
}

/// Reads the command line and the files that it names.
///
/// # Errors
/// The first mistake.
pub(crate) fn requests(
    args: &GetArgs,
    raw: &RawConfig,
    config: &Config,
    environment: &Environment,
) -> Result<Asked, Trouble> {
    let mut reader = Reader { args, raw, config, environment, requests: Vec::new(), notes: Vec::new() };
    reader.urls()?;
    if let Some(path) = &args.input_file {
        reader.input_file(path)?;
    }
    for path in &args.metalink {
        reader.metalink(path)?;
    }
    reader.options_for_one()?;
    reader.checksum_file()?;
    reader.secrets()?;
    reader.folders()?;
    let dry_run = args.dry_run;
    reader.requests.iter_mut().for_each(|r| r.options.dry_run = dry_run);
    Ok(Asked { requests: reader.requests, notes: reader.notes })
}

/// What a request is called until its name is known: the name asked for, else the end of the link; the host
/// where the link has none, since what stands in for a name tells nothing.
pub(crate) fn working_name(request: &Request) -> String {
    match &request.destination {
        Destination::File { name: Some(name), .. } => name.to_string_lossy().into_owned(),
        Destination::Stdout | Destination::File { name: None, .. } => {
            request.mirrors().first().map(|m| name_of(m.url())).unwrap_or_default()
        }
    }
}

fn name_of(url: &Url) -> String {
    let name = SafeName::choose(None, url, url, Portability::default());
    let stands_in = name.as_str() == file_name::NAMELESS && !url.path().ends_with(file_name::NAMELESS);
    match (url.host_str(), url.port()) {
        (Some(host), Some(port)) if stands_in => format!("{host}:{port}"),
        (Some(host), None) if stands_in => host.to_owned(),
        _ => name.as_str().to_owned(),
    }
}

struct Reader<'a> {
    args: &'a GetArgs,
    raw: &'a RawConfig,
    config: &'a Config,
    environment: &'a Environment,
    requests: Vec<Request>,
    notes: Vec<String>,
}

impl Reader<'_> {
    fn urls(&mut self) -> Result<(), Trouble> {
        let mut urls = Vec::new();
        for written in &self.args.urls {
            urls.extend(self.expanded(written)?);
        }
        if urls.len() != 1 && !self.args.mirror.is_empty() {
            return Err(Trouble::usage("--mirror names another place of one file, so it goes with one URL")
                .next("For many files with mirrors, list them with -i, the places divided by tabs."));
        }
        for url in &urls {
            let mut mirrors = vec![mirror(url)?];
            for other in &self.args.mirror {
                mirrors.push(mirror(other)?);
            }
            self.add(mirrors, self.config.dir.clone(), None)?;
        }
        Ok(())
    }

    fn expanded(&self, written: &str) -> Result<Vec<String>, Trouble> {
        if !self.config.expand {
            return Ok(vec![written.to_owned()]);
        }
        expand::expand(written).map_err(|e| Trouble::usage(format!("--expand: {e}")))
    }

    fn add(
        &mut self,
        mirrors: Vec<Mirror>,
        dir: PathBuf,
        name: Option<PathBuf>,
    ) -> Result<&mut Request, Trouble> {
        if self.requests.len() >= MAX_REQUESTS {
            return Err(Trouble::usage(format!(
                "more than {MAX_REQUESTS} files are too many for one command"
            )));
        }
        let mut request = Request::new(mirrors, Destination::File { dir, name, adopt: None })?;
        request.options = self.config.options.clone();
        self.requests.push(request);
        self.requests.last_mut().ok_or_else(|| Trouble::usage("nothing to fetch"))
    }

    fn input_file(&mut self, path: &Path) -> Result<(), Trouble> {
        let content = files::read("--input-file", path)?;
        let wrong = |line: usize, why: String| Trouble::usage(format!("{}:{line}: {why}", path.display()));
        let entries =
            uri_list::parse(&content).map_err(|e| Trouble::usage(format!("{}: {e}", path.display())))?;
        for entry in entries {
            let at = |trouble: Trouble| wrong(entry.line, trouble.message);
            // With several places they are of one file, which a pattern is not.
            let lists = match entry.uris.as_slice() {
                [one] => self.expanded(one).map_err(at)?.into_iter().map(|url| vec![url]).collect(),
                many => vec![many.to_vec()],
            };
            let own = self.entry(path, &entry)?;
            if lists.len() > 1 && (own.out.is_some() || !own.digests.is_empty()) {
                return Err(wrong(entry.line, "out= and checksum= go with one file".to_owned()));
            }
            for list in lists {
                let mirrors: Result<Vec<Mirror>, Trouble> = list.iter().map(|url| mirror(url)).collect();
                let (dir, name) = match &own.out {
                    Some(out) => place(&own.dir, out).map(|(dir, name)| (dir, Some(name))).map_err(at)?,
                    None => (own.dir.clone(), None),
                };
                let request = self.add(mirrors.map_err(at)?, dir, name).map_err(at)?;
                request.options = own.options.clone();
                request.digests.clone_from(&own.digests);
                request.headers.clone_from(&own.headers);
            }
        }
        Ok(())
    }

    fn entry(&self, path: &Path, entry: &uri_list::Entry) -> Result<Own, Trouble> {
        let wrong = |why: String| Trouble::usage(format!("{}:{}: {why}", path.display(), entry.line));
        let mut own = Own {
            dir: self.config.dir.clone(),
            out: None,
            options: self.config.options.clone(),
            digests: Vec::new(),
            headers: Vec::new(),
        };
        let mut layered: Option<RawConfig> = None;
        let mut limit = None;
        for (name, value) in &entry.options {
            match name.as_str() {
                "out" | "output" => own.out = Some(value.into()),
                "checksum" => own.digests.push(value.parse().map_err(|e| wrong(format!("checksum: {e}")))?),
                "header" => own.headers.push(header(value).map_err(|t| wrong(t.message))?),
                "limit" => limit = units::parse_rate(value).map_err(|e| wrong(format!("limit: {e}")))?,
                _ => match settings::find(name).filter(|s| ENTRY_SETTINGS.contains(&s.key)) {
                    Some(setting) => {
                        let origin = Origin::File { path: path.to_owned(), line: entry.line };
                        let raw = layered.get_or_insert_with(|| self.raw.clone());
                        raw.set(setting.key, value.into(), origin);
                    }
                    None => {
                        let known = ENTRY_SETTINGS.join(", ");
                        let why = format!("{name:?} cannot be said of one file");
                        return Err(
                            wrong(why).next(format!("Known are out, checksum, header, limit, {known}."))
                        );
                    }
                },
            }
        }
        if let Some(raw) = layered {
            let config = Config::new(&raw, self.environment)?;
            own.options = config.options;
            own.dir = config.dir;
        }
        own.options.limit = limit;
        Ok(own)
    }

    fn metalink(&mut self, path: &Path) -> Result<(), Trouble> {
        let content = files::read("--metalink", path)?;
        let document = metalink::parse(&content, None).map_err(|e| {
            Trouble::from(tidegate_core::Failure::from(e)).prefixed(&format!("{}: ", path.display()))
        })?;
        let left_out = |what: &metalink::Skipped| format!("{}: {} {}", path.display(), what.what, what.why);
        self.notes.extend(document.skipped.iter().map(left_out));
        for file in document.files {
            self.notes.extend(file.skipped.iter().map(left_out));
            if file.mirrors.is_empty() {
                let why = format!("{}: there is no place to fetch {:?} from", path.display(), file.name);
                return Err(
                    Trouble::usage(why).next("Add one with --mirror, or fetch the Metalink file again.")
                );
            }
            let mirrors = file.mirrors.into_iter().map(|m| m.mirror).collect();
            let request = self.add(mirrors, self.config.dir.clone(), Some(file.name.into()))?;
            request.digests = file.digests;
            request.pieces = file.pieces;
            request.length = file.size;
        }
        Ok(())
    }

    /// Options that make sense for one file only.
    fn options_for_one(&mut self) -> Result<(), Trouble> {
        let args = self.args;
        let count = self.requests.len();
        let given = [
            ("--output", args.output.is_some()),
            ("--checksum", !args.checksum.is_empty()),
            ("--adopt", args.adopt.is_some()),
        ];
        let Some(request) = self.requests.first_mut() else {
            let where_from =
                if args.input_file.is_some() { "the input file lists no URL" } else { "no URL was given" };
            return Err(
                Trouble::usage(where_from).next("Write `tidegate URL`; `tidegate get --help` tells more.")
            );
        };
        if let Some((option, _)) = given.iter().find(|(_, given)| *given && count > 1) {
            return Err(Trouble::usage(format!("{option} goes with one file, but {count} were asked for"))
                .next("List many files with -i, each with its own out= and checksum=."));
        }
        for written in &args.checksum {
            let digest: Digest = written.parse().map_err(|e| Trouble::usage(format!("--checksum: {e}")))?;
            request.digests.push(digest);
        }
        match args.output.as_deref() {
            Some(name) if name == Path::new("-") => {
                if self.config.output.json {
                    return Err(Trouble::usage("--json and -o - cannot both have standard output"));
                }
                if args.adopt.is_some() {
                    return Err(Trouble::usage("--adopt needs a file to go on with, not -o -"));
                }
                request.destination = Destination::Stdout;
            }
            Some(name) => {
                let (dir, name) = place(&self.config.dir, name)?;
                if dir.join(&name).is_dir() {
                    let shown = dir.join(&name);
                    return Err(Trouble::usage(format!("-o: {} is a folder", shown.display()))
                        .next("Name a folder with -d and the file with -o."));
                }
                request.destination = Destination::File { dir, name: Some(name), adopt: None };
            }
            None => {}
        }
        if let Some(leftover) = &args.adopt {
            if !leftover.is_file() {
                return Err(Trouble::usage(format!("--adopt: {} is not a file", leftover.display())));
            }
            if let Destination::File { adopt, .. } = &mut request.destination {
                *adopt = Some(leftover.clone());
            }
        }
        Ok(())
    }

    fn checksum_file(&mut self) -> Result<(), Trouble> {
        let Some(path) = &self.args.checksum_file else { return Ok(()) };
        let known = read_checksums(path)?;
        for request in &mut self.requests {
            let name = working_name(request);
            let trouble = |trouble: Trouble| {
                let next = trouble.next.clone().unwrap_or_default();
                trouble.next(format!("{next} Or give the digest with --checksum ALG=HEX."))
            };
            request.digests.push(digest_for(&known, path, &name).map_err(trouble)?);
        }
        Ok(())
    }

    /// Credentials and headers go to the site of the first URL only: a list or a Metalink file may name
    /// any host.
    fn secrets(&mut self) -> Result<(), Trouble> {
        let asking = &self.config.asking;
        let credentials = match &asking.bearer_token_file {
            Some(path) => Some(Credentials::Bearer(bearer_token(path)?)),
            None => asking.user.clone(),
        };
        let headers: Result<Vec<_>, _> = self.args.header.iter().map(|text| header(text)).collect();
        let headers = headers?;
        if credentials.is_none() && headers.is_empty() {
            return Ok(());
        }
        let Some(first) = self.requests.first().and_then(site) else { return Ok(()) };
        let mut others = 0usize;
        for request in &mut self.requests {
            if site(request).as_ref() == Some(&first) {
                request.credentials.clone_from(&credentials);
                // What stands below an entry of a list is said last.
                request.headers.splice(0..0, headers.iter().cloned());
            } else {
                others += 1;
            }
        }
        if others > 0 {
            self.notes.push(format!(
                "--header, --user and --bearer-token-file are for {} only: {others} files from elsewhere are asked for without",
                first.ascii_serialization()
            ));
        }
        Ok(())
    }

    /// Nothing is asked of any server for a file that has no place to go to.
    fn folders(&self) -> Result<(), Trouble> {
        let folder = |request: &Request| match &request.destination {
            Destination::File { dir, name, .. } => Some(
                name.as_deref().and_then(Path::parent).map_or_else(|| dir.clone(), |below| dir.join(below)),
            ),
            Destination::Stdout => None,
        };
        let folders: BTreeSet<PathBuf> = self.requests.iter().filter_map(folder).collect();
        match folders.iter().find_map(|folder| no_folder(folder)) {
            Some(why) => {
                Err(Trouble::usage(why).next("Choose another folder with -d, or another name with -o."))
            }
            None => Ok(()),
        }
    }
}

/// Why no file can ever be made below this path, if that can be seen from here. What may pass, and what only
/// trying shows, is told when it is tried.
fn no_folder(path: &Path) -> Option<String> {
    /// Of file systems that the kernel makes up, the one where making a file fails with a riddle.
    const PROC: u64 = 0x9fa0;
    let mut at = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    loop {
        match std::fs::metadata(at) {
            Ok(found) if found.is_file() => return Some(format!("{} is a file, not a folder", at.display())),
            Ok(found) if !found.is_dir() => return Some(format!("{} is not a folder", at.display())),
            Ok(_) => {
                let made_up =
                    rustix::fs::statfs(at).is_ok_and(|system| u64::try_from(system.f_type) == Ok(PROC));
                return made_up
                    .then(|| format!("{} is made up by the system and takes no files", at.display()));
            }
            // A folder that is missing is made; what it is made in must be one.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(_) => return None,
        }
        at = match at.parent() {
            Some(above) if above.as_os_str().is_empty() && at != Path::new(".") => Path::new("."),
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => return None,
        };
    }
}

/// What an entry of an input file says of itself.
struct Own {
    dir: PathBuf,
    out: Option<PathBuf>,
    options: tidegate_core::request::Options,
    digests: Vec<Digest>,
    headers: Vec<(String, String)>,
}

fn site(request: &Request) -> Option<Site> {
    request.mirrors().first().map(|m| m.url().origin())
}

/// A URL as people write it. A word that is neither a URL nor looks like a host is probably a command
/// that does not exist.
fn mirror(written: &str) -> Result<Mirror, Trouble> {
    let lower = written.trim().to_ascii_lowercase();
    if let Some(scheme) = ["http", "https"].into_iter().find(|s| lower.starts_with(&format!("{s}:/")))
        && !lower.starts_with(&format!("{scheme}://"))
    {
        // It would be read as a host of that name.
        return Err(Trouble::usage(format!("a URL begins with {scheme}:/, which lacks a slash"))
            .next(format!("Write it as {scheme}://HOST/PATH.")));
    }
    let like_a_host = |text: &str| text.contains(['.', ':', '/', '[']) || text == "localhost";
    if !like_a_host(written.trim()) {
        let next = "Commands are get, verify, config, doctor, completions, man and help, and come first; URLs begin with http:// or https://.";
        return Err(Trouble::usage(format!("{written:?} is neither a command nor a URL")).next(next));
    }
    Ok(Mirror::parse(written)?)
}

/// Reads a file of digests.
pub(crate) fn read_checksums(path: &Path) -> Result<ChecksumFile, Trouble> {
    let content = files::read("--checksum-file", path)?;
    checksum_file::parse(&content, None)
        .map_err(|e| Trouble::configuration(format!("--checksum-file: {}: {e}", path.display())))
}

/// The digest that a file of digests, read from `path`, has for a file.
///
/// # Errors
/// When it has none, or two that differ.
pub(crate) fn digest_for(known: &ChecksumFile, path: &Path, name: &str) -> Result<Digest, Trouble> {
    /// Who has seen so many knows what the names look like.
    const SHOWN: usize = 3;
    if let Some(entry) = known.find(name) {
        return Ok(entry.digest.clone());
    }
    let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    let listed: BTreeSet<&str> = known.entries.iter().filter_map(|e| e.name.as_deref()).collect();
    if listed.is_empty() || listed.iter().any(|listed| last(listed) == last(name)) {
        let why = format!("{} has two digests for {name:?} that differ", path.display());
        return Err(Trouble::usage(why).next("Find out which is right, and leave the other out."));
    }
    let first: Vec<&str> = known.entries.iter().filter_map(|e| e.name.as_deref()).take(SHOWN).collect();
    let more = match listed.len().saturating_sub(first.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let next = format!("It lists {}{more}.", first.join(", "));
    Err(Trouble::usage(format!("{} has no digest for {name:?}", path.display())).next(next))
}

/// Splits what was asked for as a name into a folder and a name below it. A name that leads up or
/// stands for itself (`../x`, `/srv/x`) moves the folder, since the person said so.
fn place(dir: &Path, name: &Path) -> Result<(PathBuf, PathBuf), Trouble> {
    let wrong = || {
        Trouble::usage(format!("-o: {} does not name a file", name.display()))
            .next("Name a folder with -d and the file with -o.")
    };
    if name.as_os_str().to_string_lossy().ends_with('/') || name.as_os_str().is_empty() {
        return Err(wrong());
    }
    let last = name.file_name().ok_or_else(wrong)?;
    let below = name.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    let (dir, name) = if below {
        let clean: PathBuf = name.components().filter(|c| matches!(c, Component::Normal(_))).collect();
        (dir.to_owned(), clean)
    } else {
        (dir.join(name.parent().unwrap_or_else(|| Path::new(""))), last.into())
    };
    let name = relative_path(&name).map_err(|e| Trouble::usage(format!("-o: {e}")))?;
    Ok((dir, name))
}

/// Reads `KEY: VALUE`.
fn header(written: &str) -> Result<(String, String), Trouble> {
    // The value may be a secret, so messages show the key at most.
    let (key, value) = written
        .split_once(':')
        .ok_or_else(|| Trouble::usage("--header: write a header as 'KEY: VALUE', with a colon"))?;
    let key = key.trim();
    let of_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if key.is_empty() || !key.bytes().all(of_token) {
        return Err(Trouble::usage(format!("--header: {key:?} is not the name of a header")));
    }
    if OUR_HEADERS.iter().any(|ours| key.eq_ignore_ascii_case(ours)) {
        return Err(Trouble::usage(format!("--header: {key} is set by tidegate itself")));
    }
    let value = value.trim();
    if value.bytes().any(|b| (b < 0x20 && b != b'\t') || b == 0x7f) {
        return Err(Trouble::usage(format!("--header: the value of {key} holds a control character")));
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn bearer_token(path: &Path) -> Result<String, Trouble> {
    let text = files::read_text("--bearer-token-file", path)?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
        let why = format!("--bearer-token-file: {} does not hold one token", path.display());
        return Err(Trouble::configuration(why));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests;
