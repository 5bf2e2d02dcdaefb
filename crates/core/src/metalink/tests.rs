use super::*;
use crate::digest::Algorithm;
use proptest::prelude::*;

const SHA1: &str = "a96cf3f0266b91d87d5124cf94326422800b627d";
const MD5: &str = "92296e19c406d77d21bda0bb944eac46";
const SHA256: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn v4(inside: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{inside}</metalink>"
    )
}

fn v4_file(inside: &str) -> String {
    v4(&format!("<file name=\"aria2.tar.bz2\">{inside}<url>http://h/a</url></file>"))
}

fn v3(inside: &str) -> String {
    format!(
        "<metalink version=\"3.0\" xmlns=\"http://www.metalinker.org/\"><files>{inside}</files></metalink>"
    )
}

fn v3_file(inside: &str) -> String {
    v3(&format!("<file name=\"f\">{inside}</file>"))
}

fn read(text: &str) -> Result<Metalink, MetalinkError> {
    parse(text.as_bytes(), None)
}

fn only(text: &str) -> MetalinkFile {
    let mut metalink = read(text).unwrap();
    assert_eq!(metalink.files.len(), 1);
    metalink.files.remove(0)
}

fn places(file: &MetalinkFile) -> Vec<(&str, i32)> {
    file.mirrors.iter().map(|m| (m.mirror.url().as_str(), m.priority)).collect()
}

#[test]
fn a_document_of_version_4_is_read_whole() {
    let piece = "<hash>a96cf3f0266b91d87d5124cf94326422800b627d</hash>";
    let file = only(&v4(&format!(
        "<file name=\"dir/a b.iso\"><size> 2097153 </size><version>0.5.2</version><language>en-US</language>\
         <language>fr</language><os>Linux-x86</os><hash type=\"md5\">{MD5}</hash><hash type=\"sha-256\">{SHA256}</hash>\
         <pieces length=\"1048576\" type=\"sha-1\">{piece}{piece}{piece}</pieces>\
         <url priority=\"2\" location=\"US\">https://two.example/f</url><url>http://last.example/f</url>\
         <url priority=\"1\" location=\"jp\">http://one.ex<!-- cut -->ample/f</url>\
         <metaurl mediatype=\"torrent\">http://h/f.torrent</metaurl>\
         <url priority=\"1\">ftp://u:p@ftp.example/f</url></file>"
    )));
    assert_eq!(file.name, "dir/a b.iso");
    assert_eq!(file.size, Some(2_097_153));
    assert_eq!(file.version.as_deref(), Some("0.5.2"));
    assert_eq!(file.languages, ["en-US", "fr"]);
    assert_eq!(file.os, ["Linux-x86"]);
    let digests: Vec<String> = file.digests.iter().map(ToString::to_string).collect();
    assert_eq!(digests, [format!("sha-256={SHA256}"), format!("md5={MD5}")]);
    let pieces = file.pieces.as_ref().unwrap();
    assert_eq!((pieces.length, pieces.digests.len()), (1 << 20, 3));
    assert_eq!(
        places(&file),
        [("http://one.example/f", 1), ("https://two.example/f", 2), ("http://last.example/f", 999_999)]
    );
    assert_eq!(file.mirrors[1].location.as_deref(), Some("us"));
    let skipped: Vec<(&str, &str)> = file.skipped.iter().map(|s| (s.what.as_str(), s.why.as_str())).collect();
    assert_eq!(
        skipped,
        [
            ("ftp://ftp.example/f", "is ftp, and only http and https are spoken"),
            ("metaurl", "leads to \"torrent\", which is not read")
        ]
    );
}

#[test]
fn what_spoils_a_document_of_version_4() {
    // B45.
    for inside in [
        "<size>-1</size>",
        "<size>+1</size>",
        "<size>9223372036854775808</size>",
        "<size></size>",
        "<url priority=\"0\">http://h/b</url>",
        "<url priority=\"1000000\">http://h/b</url>",
        "<url priority=\"A\">http://h/b</url>",
        "<metaurl>http://h/t</metaurl>",
        "<metaurl mediatype=\"torrent\" priority=\"0\">http://h/t</metaurl>",
        "<pieces type=\"sha-1\"></pieces>",
        "<pieces length=\"A\" type=\"sha-1\"></pieces>",
        "<pieces length=\"1\"></pieces>",
        "<hash>abc</hash>",
        "<hash type=\"\">abc</hash>",
    ] {
        let error = read(&v4_file(inside)).unwrap_err();
        assert!(matches!(error, MetalinkError::Invalid { .. }), "{inside}: {error}");
    }
    for priority in ["1", "100", "999999"] {
        let file = only(&v4_file(&format!("<url priority=\"{priority}\">http://h/b</url>")));
        assert!(places(&file).contains(&("http://h/b", priority.parse().unwrap())));
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    // B33 and B45.
    for name in [
        "",
        "/foo",
        "./foo",
        "../foo",
        "foo/../bar",
        "foo/.",
        "foo/..",
        ".",
        "..",
        "/",
        "foo/",
        "&#9;",
        "../x",
        "a//b",
        "a\\..\\b",
        "a&#10;b",
    ] {
        let file = format!("<file name=\"{name}\"><url>http://h/a</url></file>");
        assert!(matches!(read(&v4(&file)), Err(MetalinkError::Name { .. })), "{name:?}");
        // B46: version 3 goes on without it.
        let other = "<file name=\"good\"></file>";
        let metalink = read(&v3(&format!("<file name=\"{name}\"></file>{other}"))).unwrap();
        assert_eq!((metalink.files.len(), metalink.skipped.len()), (1, 1), "{name:?}");
        assert!(matches!(
            read(&v3(&format!("<file name=\"{name}\"></file>"))),
            Err(MetalinkError::NoFile { .. })
        ));
    }
    assert!(matches!(read(&v4("<file><url>http://h/a</url></file>")), Err(MetalinkError::Name { .. })));
    assert!(matches!(
        read(&v4(&format!("<file name=\"{}\"/>", "x".repeat(256)))),
        Err(MetalinkError::Name { .. })
    ));
    for name in ["foo", "foo/bar", ".bashrc", "..foo", "a b", "ファイル"] {
        assert_eq!(only(&v4(&format!("<file name=\"{name}\"/>"))).name, name);
    }
    assert_eq!(
        read(&v4("<file name=\"../x\"/>")).unwrap_err().to_string(),
        "the Metalink document names a file \"../x\": it leads out of the directory"
    );
}

#[test]
fn damaged_checksums_are_left_out_and_the_file_kept() {
    let good = "<hash>a96cf3f0266b91d87d5124cf94326422800b627d</hash>";
    for (inside, what) in [
        ("<hash type=\"sha-1\">zz</hash>".to_owned(), "hash"),
        ("<hash type=\"md6\">00</hash>".to_owned(), "hash"),
        (format!("<pieces length=\"1\" type=\"sha-1\">{good}<hash>bad</hash></pieces>"), "pieces"),
        (format!("<size>3</size><pieces length=\"1\" type=\"sha-1\">{good}{good}</pieces>"), "pieces"),
        (format!("<size>1</size><pieces length=\"1\" type=\"sha-1\">{good}{good}</pieces>"), "pieces"),
        (format!("<pieces length=\"0\" type=\"sha-1\">{good}</pieces>"), "pieces"),
        (format!("<pieces length=\"1\" type=\"foo\">{good}</pieces>"), "pieces"),
    ] {
        let file = only(&v4_file(&inside));
        assert!(file.digests.is_empty() && file.pieces.is_none(), "{inside}");
        assert_eq!(file.skipped.len(), 1);
        assert_eq!(file.skipped[0].what, what);
        assert_eq!(file.mirrors.len(), 1);
    }
    // An unknown type is passed over, the next is used.
    let file = only(&v4_file(&format!("<hash type=\"md6\">00</hash><hash type=\"sha-1\">{SHA1}</hash>")));
    assert_eq!(file.digests[0].algorithm(), Algorithm::Sha1);
    let weak_then_strong = format!(
        "<pieces length=\"1\" type=\"md5\"><hash>{MD5}</hash></pieces><pieces length=\"1\" type=\"sha-1\">{good}</pieces>"
    );
    assert_eq!(only(&v4_file(&weak_then_strong)).pieces.unwrap().digests[0].algorithm(), Algorithm::Sha1);
}

#[test]
fn relative_links_are_taken_from_the_base() {
    let text = v4("<file name=\"f\"><url>aria2.tar.bz2</url></file>");
    let base = Url::parse("http://base/dir/file").unwrap();
    let metalink = parse(text.as_bytes(), Some(&base)).unwrap();
    assert_eq!(places(&metalink.files[0]), [("http://base/dir/aria2.tar.bz2", 999_999)]);
    let file = only(&text);
    assert!(file.mirrors.is_empty());
    assert_eq!(file.skipped[0].why, "cannot be read: relative URL without a base");
}

#[test]
fn only_http_links_to_a_host_are_mirrors() {
    for link in [
        "ftp://h/a",
        "file:///etc/passwd",
        "data:80",
        "foo:123",
        "mailto:a@b",
        "http://",
        "",
        "http://h:99999/",
    ] {
        let file = only(&v4(&format!("<file name=\"f\"><url>{link}</url></file>")));
        assert!(file.mirrors.is_empty(), "{link}");
        assert_eq!(file.skipped.len(), 1, "{link}");
    }
    let file = only(&v4_file("<url>http://h/a</url><url>http://h/a</url>"));
    assert_eq!((file.mirrors.len(), file.skipped.len()), (1, 2));
}

#[test]
fn a_document_of_version_3_is_read_whole() {
    // B46.
    let file = only(&v3_file(&format!(
        "<size>A</size><version>0.5.3</version><os>Linux</os><language>en</language>\
         <verification><hash type=\"md5\">{MD5}</hash><hash type=\"sha1\">{SHA1}</hash>\
         <pieces length=\"262144\" type=\"sha1\"><hash piece=\"1\">{}</hash><hash piece=\"0\">{SHA1}</hash></pieces></verification>\
         <resources><url type=\"http\" preference=\"50\">http://fifty/</url><url type=\"http\" location=\"JP\" preference=\"100\">http://hundred/</url>\
         <url type=\"bittorrent\" preference=\"100\">http://torrent/</url><url type=\"ftp\">ftp://ftp/</url>\
         <url preference=\"101\">http://wild/</url></resources>",
        SHA1.replace('a', "b")
    )));
    assert_eq!(file.size, None);
    let algorithms: Vec<Algorithm> = file.digests.iter().map(Digest::algorithm).collect();
    assert_eq!(algorithms, [Algorithm::Sha1, Algorithm::Md5]);
    let pieces = file.pieces.as_ref().unwrap();
    assert_eq!(pieces.digests[0].to_string(), format!("sha-1={SHA1}"));
    assert_eq!(places(&file), [("http://hundred/", 1), ("http://fifty/", 51), ("http://wild/", 999_999)]);
    assert_eq!(file.skipped.len(), 2);
}

#[test]
fn pieces_of_version_3_must_be_numbered_without_gaps() {
    for numbers in [[0, 0], [1, 2], [0, 2]] {
        let hashes: String = numbers.iter().map(|n| format!("<hash piece=\"{n}\">{SHA1}</hash>")).collect();
        let file = only(&v3_file(&format!(
            "<verification><pieces length=\"1\" type=\"sha1\">{hashes}</pieces></verification>"
        )));
        assert!(file.pieces.is_none(), "{numbers:?}");
        assert_eq!(file.skipped[0].what, "pieces");
    }
}

#[test]
fn filters_are_exact_and_preferences_reorder() {
    let mut file = only(&v4(
        "<file name=\"f\"><version>0.5.2</version><language>en-US</language><os>Linux-x86</os>\
         <url priority=\"10\" location=\"us\">http://us/</url><url priority=\"50\" location=\"jp\">http://jp/</url>\
         <url priority=\"60\">https://tls/</url></file>",
    ));
    let wants = |version: &str, language: &str, os: &str| {
        let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        Filter { version: some(version), language: some(language), os: some(os) }
    };
    for filter in [wants("", "", ""), wants("0.5.2", "", ""), wants("0.5.2", "en-US", "Linux-x86")] {
        assert!(file.matches(&filter), "{filter:?}");
    }
    for filter in [wants("0.6.0", "", ""), wants("", "en", ""), wants("", "", "linux-x86")] {
        assert!(!file.matches(&filter), "{filter:?}");
    }
    file.prefer(&["JP".to_owned()], Some("https"));
    assert_eq!(places(&file), [("http://jp/", -50), ("https://tls/", -40), ("http://us/", 10)]);
}

#[test]
fn what_is_not_metalink_is_refused() {
    for text in
        ["", "foo", "<a/>", "<metalink/>", "<metalink xmlns=\"urn:other\"/>", "<a></b>", "<html><br></html>"]
    {
        assert!(
            matches!(read(text), Err(MetalinkError::Damaged { .. } | MetalinkError::NotMetalink)),
            "{text}: {:?}",
            read(text)
        );
    }
    assert_eq!(read(&v4("")), Err(MetalinkError::NoFile { why: None }));
    assert_eq!(parse(b"\xff<metalink/>", None), Err(MetalinkError::NotUtf8));
    let whole = v4_file("<size>1</size>");
    for cut in 0..whole.len() {
        assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
    }
    assert!(read(&format!("\u{feff}{whole}")).is_ok());
}

#[test]
fn a_document_cannot_grow_beyond_its_bounds() {
    let bomb = "<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]>";
    let whole = v4_file("");
    assert_eq!(read(&whole.replacen('\n', bomb, 1)), Err(MetalinkError::Doctype));
    assert_eq!(read(&" ".repeat(MAX_BYTES + 1)), Err(MetalinkError::TooLarge { most: MAX_BYTES }));
    let complex = |inside: &str| match read(&v4_file(inside)) {
        Err(MetalinkError::TooComplex { what }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(complex(&"<a/>".repeat(200_000)), "elements");
    assert_eq!(complex(&"<a>".repeat(100)), "elements within elements");
    let attributes: String = (0..100_000).map(|i| format!(" a{i}=\">\"")).collect();
    assert_eq!(complex(&format!("<a{attributes}/>")), "attributes");
    assert_eq!(complex(&"<a b='1' c='2' d='3'/>".repeat(120_000)), "attributes");
    let namespaces: String = (0..2000).map(|i| format!("<a xmlns:n{i}=\"u{i}\"/>")).collect();
    assert_eq!(complex(&namespaces), "namespaces");
    let files = "<file name=\"f\"/>".repeat(MAX_FILES + 1);
    assert_eq!(read(&v4(&files)), Err(MetalinkError::TooComplex { what: "files" }));
    let links: String = (0..=MAX_MIRRORS).map(|i| format!("<url>http://h/{i}</url>")).collect();
    let file = only(&v4_file(&links));
    assert_eq!((file.mirrors.len(), file.skipped.len()), (MAX_MIRRORS, 2));
    // What only looks like elements is not counted.
    let quiet = format!("<!--{0}--><identity><![CDATA[{0}]]></identity>", "<a>".repeat(1000));
    assert!(read(&v4_file(&quiet)).is_ok());
}

#[test]
fn a_failure_tells_the_reason_and_gives_up() {
    let failure = Failure::from(read("foo").unwrap_err());
    assert_eq!(failure.code, Code::BadMetalink);
    assert!(failure.message.starts_with("the Metalink document is damaged: "), "{failure}");
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, None);
    }

    #[test]
    fn nothing_that_looks_like_a_document_panics(
        tokens in prop::collection::vec(prop::sample::select(vec![
            "<file name=\"f\">", "</file>", "<url priority=\"1\">", "</url>", "http://h/", "<size>", "</size>", "12",
            "<pieces length=\"1\" type=\"sha-1\">", "</pieces>", "<hash type=\"md5\">", "<hash piece=\"0\">", "</hash>",
            "<verification>", "</verification>", "<resources>", "</resources>", "<!--", "-->", "<![CDATA[", "]]>", "&lt;",
            "\"", "<", ">", "/", "é", SHA1,
        ]), 0..40),
    ) {
        let inside = tokens.concat();
        let _ = (read(&v4(&inside)), read(&v3(&inside)), read(&v4_file(&inside)), read(&v3_file(&inside)), read(&inside));
    }

    #[test]
    fn a_name_that_is_taken_stays_in_its_directory(name in "[./a\\\\ \\t]{0,8}") {
        if name_problem(&name).is_none() {
            let path = std::path::Path::new(&name);
            prop_assert!(path.components().all(|c| matches!(c, std::path::Component::Normal(_))));
            prop_assert!(path.file_name().is_some());
        }
    }
}
