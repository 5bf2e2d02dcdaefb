use super::*;
use crate::args::{Cli, Task};
use std::ffi::OsString;
use std::time::Duration;
use tidegate_core::request::Resume;

fn ask(words: &[&str]) -> Result<Asked, Trouble> {
    let words = ["tidegate"].iter().chain(words).map(OsString::from);
    let Task::Get(args) = Cli::read(words).unwrap().task else { panic!("not get") };
    let mut raw = RawConfig::defaults();
    for (key, option, value) in &args.settings.given {
        raw.set(key, value.clone(), Origin::Option(option.clone()));
    }
    let environment = Environment::default();
    let config = Config::new(&raw, &environment).unwrap();
    requests(&args, &raw, &config, &environment)
}

fn one(words: &[&str]) -> Request {
    let mut requests = ask(words).unwrap().requests;
    assert_eq!(requests.len(), 1);
    requests.remove(0)
}

fn file(content: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), content).unwrap();
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}

const MD5: &str = "md5=d41d8cd98f00b204e9800998ecf8427e";

#[test]
fn each_option_of_get_changes_the_request() {
    let token = file("s3cret\n");
    let sums = file("d41d8cd98f00b204e9800998ecf8427e  a.iso\n");
    let plain = one(&["http://h/a.iso"]);
    let table: &[&[&str]] = &[
        &["-o", "b.iso"],
        &["-o", "-"],
        &["-d", "/d"],
        &["--mirror", "http://m/a.iso"],
        &["--checksum", MD5],
        &["--checksum-file", path(&sums)],
        &["--adopt", path(&sums)],
        &["-H", "X-A: b"],
        &["--user", "me:pw"],
        &["--bearer-token-file", path(&token)],
        &["--dry-run"],
        &["-x", "2"],
        &["--min-split", "2M"],
        &["--resume", "never"],
        &["--retries", "1"],
        &["--retry-wait", "2s"],
        &["--timeout", "2s"],
        &["--connect-timeout", "2s"],
        &["--speed-min", "1k"],
        &["--on-exists", "fail"],
        &["--newer"],
        &["--remote-time"],
        &["--preallocate", "none"],
        &["--sync", "none"],
    ];
    for words in table {
        assert_ne!(one(&[&["http://h/a.iso"], *words].concat()), plain, "{words:?} changes nothing");
    }
}

#[test]
fn a_name_goes_below_the_folder_unless_the_person_says_otherwise() {
    let table = [
        ("a", "/d", "a"),
        ("./a", "/d", "a"),
        ("s/a", "/d", "s/a"),
        ("../a", "/d/..", "a"),
        ("/e/a", "/e", "a"),
        ("s/../a", "/d/s/..", "a"),
    ];
    for (name, dir, below) in table {
        let expected = (PathBuf::from(dir), PathBuf::from(below));
        assert_eq!(place(Path::new("/d"), Path::new(name)), Ok(expected), "{name}");
    }
    let long = "a".repeat(300);
    for name in ["", "s/", "..", "/", "s/..", "a\nb", &long] {
        assert!(place(Path::new("/d"), Path::new(name)).is_err(), "{name}");
    }
}

#[test]
fn urls_expand_only_when_asked_to() {
    assert_eq!(ask(&["http://h/[1-3].zip"]).unwrap().requests.len(), 1);
    assert_eq!(ask(&["--expand", "http://h/[1-3].zip", "http://h/{a,b}"]).unwrap().requests.len(), 5);
}

#[test]
fn an_input_file_says_what_holds_for_each_file() {
    let list = file(&format!(
        "http://h/a\thttp://m/a\n  dir=/d\n  out=s/b\n  checksum={MD5}\n  resume=strict\n  timeout=5s\n  limit=1M\n  header=X-A: b\nhttp://h/c\n"
    ));
    let requests = ask(&["-i", path(&list), "--timeout", "9s"]).unwrap().requests;
    assert_eq!(requests.len(), 2);
    let first = &requests[0];
    assert_eq!(first.mirrors().len(), 2);
    let place = Destination::File { dir: "/d".into(), name: Some("s/b".into()), adopt: None };
    assert_eq!(first.destination, place);
    assert_eq!(first.digests, [MD5.parse().unwrap()]);
    assert_eq!(first.options.resume, Resume::Strict);
    assert_eq!(first.options.stall, Duration::from_secs(5));
    assert_eq!(first.options.limit, Some(1 << 20));
    assert_eq!(first.headers, [("X-A".to_owned(), "b".to_owned())]);
    assert_eq!(requests[1].options.stall, Duration::from_secs(9));
    assert_eq!(requests[1].digests, []);
}

#[test]
fn a_mistake_in_an_input_file_is_told_with_its_line() {
    for (content, end) in [
        ("http://h/a\n\nftp://h/b\n", ":3: "),
        ("http://h/a\n  jobs=3\n", ":1: \"jobs\" cannot be said of one file"),
        ("http://h/a\n  timeout=x\n", ":1: timeout: "),
        ("http://h/a\n  checksum=x\n", ":1: checksum: "),
        ("word\n", ":1: \"word\" is neither"),
    ] {
        let list = file(content);
        let message = ask(&["-i", path(&list)]).unwrap_err().message;
        assert!(message.contains(&format!("{}{end}", path(&list))), "{content:?}: {message}");
    }
}

#[test]
fn a_metalink_brings_places_names_and_digests() {
    let document = file(
        r#"<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="s/a.iso"><size>10</size>
        <hash type="md5">d41d8cd98f00b204e9800998ecf8427e</hash>
        <url priority="2">http://two/a</url><url priority="1">http://one/a</url></file></metalink>"#,
    );
    let request = one(&["-M", path(&document)]);
    assert_eq!(request.mirrors()[0].url().as_str(), "http://one/a");
    assert_eq!(request.length, Some(10));
    assert_eq!(request.digests.len(), 1);
    let place =
        |dir: &str, name: &str| Destination::File { dir: dir.into(), name: Some(name.into()), adopt: None };
    assert_eq!(request.destination, place(".", "s/a.iso"));
    assert_eq!(one(&["-M", path(&document), "-o", "b", "-d", "/d"]).destination, place("/d", "b"));
    let broken = file("<metalink");
    let trouble = ask(&["-M", path(&broken)]).unwrap_err();
    assert_eq!((trouble.word, trouble.exit.code()), ("bad-metalink", 2));
}

#[test]
fn secrets_go_to_the_site_of_the_first_url_only() {
    let words = ["http://h/a", "http://h/b", "https://h/c", "http://g/d", "--user", "me:pw", "-H", "X-A: b"];
    let asked = ask(&words).unwrap();
    let with: Vec<bool> = asked.requests.iter().map(|r| r.credentials.is_some()).collect();
    assert_eq!(with, [true, true, false, false]);
    let with: Vec<usize> = asked.requests.iter().map(|r| r.headers.len()).collect();
    assert_eq!(with, [1, 1, 0, 0]);
    assert!(asked.notes[0].contains("http://h only: 2 files"), "{:?}", asked.notes);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let list = file("http://h/a\nhttp://h/b\n");
    let empty = file("# nothing\n");
    let table: &[&[&str]] = &[
        &["get"],
        &["-i", path(&empty)],
        &["-i", "/nonexistent"],
        &["verfy"],
        &["ftp://h/a"],
        &["http://h/a", "http://h/b", "-o", "c"],
        &["http://h/a", "http://h/b", "--checksum", MD5],
        &["http://h/a", "http://h/b", "--mirror", "http://m/a"],
        &["-i", path(&list), "-o", "c"],
        &["--mirror", "http://m/a"],
        &["http://h/a", "-o", "/"],
        &["http://h/a", "-o", "/tmp"],
        &["http://h/a", "-o", "-", "--json"],
        &["http://h/a", "-o", "-", "--adopt", path(&list)],
        &["http://h/a", "--adopt", "/nonexistent"],
        &["http://h/a", "--checksum", "md5=12"],
        &["http://h/a", "--checksum-file", path(&empty)],
        &["http://h/a", "-H", "no colon"],
        &["http://h/a", "-H", "Range: bytes=0-1"],
        &["http://h/a", "-H", "X: a\r\nY: b"],
        &["http://h/a", "-H", "X Y: a"],
        &["http://h/a", "--bearer-token-file", path(&list)],
        &["--expand", "http://h/[3-1]"],
    ];
    for words in table {
        let trouble = ask(words).unwrap_err();
        assert_eq!(trouble.exit.code(), 2, "{words:?}: {trouble}");
    }
}

#[test]
fn messages_hold_no_secrets() {
    let table: &[&[&str]] = &[
        &["ftp://me:hunter2@h/a"],
        &["http://h/a", "-H", "Authorization hunter2"],
        &["http://h/a", "-H", "Range: hunter2"],
        &["http://h/a", "-H", "X: hunter2\x01"],
    ];
    for words in table {
        let trouble = ask(words).unwrap_err();
        assert!(!format!("{trouble:?}").contains("hunter2"), "{trouble:?}");
    }
}
