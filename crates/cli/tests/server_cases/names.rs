//! What files are called, and that they stay in their folder.

use crate::common::{Ended, Place, played, small};
use std::path::Path;
use tidegate_testkit::recipes::{DISPOSITIONS, TRAVERSALS};
use tidegate_testkit::{Body, Origin, Resource};

/// Room that a name must leave for the ends of the part file and its checkpoint.
const LONGEST: usize = 255 - ".part.tide".len();

/// Fetches each of these URLs into a folder of its own, `0`, `1`, …, in one run.
fn fetch_each(place: &Place, urls: &[String]) -> Ended {
    let entries = urls.iter().enumerate().map(|(index, url)| format!("{url}\n  dir={index}\n"));
    let list = place.write_aside("list", entries.collect::<String>());
    let ended = place.get(&["-i", &list]);
    assert_eq!(place.strays(), Vec::<String>::new());
    let folders: Vec<String> = (0..urls.len()).map(|index| index.to_string()).collect();
    let elsewhere: Vec<String> = place.names().into_iter().filter(|name| !folders.contains(name)).collect();
    assert_eq!(elsewhere, Vec::<String>::new(), "{ended:?}");
    ended
}

/// The one file in a folder, and that it is one, with this content.
#[track_caller]
fn only_file(folder: &Path, body: &Body) -> String {
    let entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()).collect();
    let names: Vec<String> = entries.iter().map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert_eq!(names.len(), 1, "{folder:?}: {names:?}");
    assert!(entries[0].file_type().unwrap().is_file(), "{names:?}");
    assert_eq!(body.first_difference_in(entries[0].path()).unwrap(), None, "{names:?}");
    names.into_iter().next().unwrap()
}

#[test]
fn tc_34_the_name_that_the_server_means_is_the_name() {
    let origin = small("tc-34", 2000);
    let urls: Vec<String> = DISPOSITIONS.iter().map(|(path, _, _)| origin.url(path)).collect();
    let place = Place::new();
    fetch_each(&place, &urls).done();
    for (index, (path, _, meant)) in DISPOSITIONS.iter().enumerate() {
        let name = only_file(&place.path(&index.to_string()), &origin.right()[0]);
        let as_well = *path == "/g/f.bin" && name == "a&b.bin";
        assert!(name == *meant || as_well, "{path}: {name:?}, but {meant:?} is meant");
    }
}

#[test]
fn tc_35_no_name_leads_out_of_the_folder() {
    let origin = small("tc-35", 2000);
    let by_header = TRAVERSALS.iter().map(|(path, _)| (*path).to_owned());
    let by_url = origin
        .site()
        .paths()
        .filter(|path| !path.starts_with("/header"))
        .map(str::to_owned)
        .collect::<Vec<_>>();
    let paths: Vec<String> = by_header.chain(by_url).collect();
    let urls: Vec<String> = paths.iter().map(|path| origin.url(path)).collect();
    let place = Place::new();
    let ended = fetch_each(&place, &urls);
    for (index, path) in paths.iter().enumerate() {
        // `/%2e%2e` is `/` to whoever reads URLs by the standard: there is nothing. And a NUL in a head makes it
        // no head at all.
        if path == "/%2e%2e" || path == "/header/h" && ended.says("[protocol-error]") {
            continue;
        }
        let name = only_file(&place.path(&index.to_string()), &origin.right()[0]);
        println!("{path}: {name:?}");
        let plain = !name.contains(['/', '\\', '\0']) && !name.starts_with('.') && !name.is_empty();
        assert!(plain, "{path}: {name:?}: {ended:?}");
    }
}

#[test]
fn tc_36_names_too_long_reserved_or_dotted_are_made_safe() {
    let origin = small("tc-36", 2000);
    let paths: Vec<String> =
        origin.site().paths().filter(|path| *path != "/file.bin").map(str::to_owned).collect();
    let urls: Vec<String> = paths.iter().map(|path| origin.url(path)).collect();
    let place = Place::new();
    fetch_each(&place, &urls).done();
    for (index, path) in paths.iter().enumerate() {
        let name = only_file(&place.path(&index.to_string()), &origin.right()[0]);
        println!("{path}: {name:?}");
        assert!(name.len() <= LONGEST, "{path}: {} bytes", name.len());
        let unsafe_anywhere = name.chars().any(|c| c.is_control() || "<>:\"/\\|?*\u{202e}".contains(c));
        assert!(
            !unsafe_anywhere && !name.ends_with(['.', ' ']) && !name.starts_with('.'),
            "{path}: {name:?}"
        );
        let stem = name.split('.').next().unwrap().to_ascii_uppercase();
        assert!(!["CON", "AUX"].contains(&stem.as_str()), "{path}: {name:?}");
        assert!(!name.ends_with(".part") && !name.ends_with(".part.tide"), "{path}: {name:?}");
        if path == "/long" || path == "/long-cjk" {
            assert!(name.ends_with(".zip"), "{path}: the extension is lost: {name:?}");
        }
    }
}

#[test]
fn tc_43_two_files_of_one_name_become_two_files() {
    let origin = played("tc-43");
    for _ in 0..3 {
        let place = Place::new();
        place.get(&[&origin.url("/one"), &origin.url("/two")]).done();
        let names = place.names();
        assert_eq!(names, ["videoplayback", "videoplayback.1"]);
        let [one, two] = [&origin.right()[0], &origin.right()[1]];
        let straight = place.holds(&names[0], one) && place.holds(&names[1], two);
        let crossed = place.holds(&names[0], two) && place.holds(&names[1], one);
        assert!(straight || crossed, "a file is lost or mixed");
    }
}

#[test]
fn the_same_name_twice_in_one_command_is_two_files_or_one_that_is_the_same() {
    let (a, b) = (Body::random(1, 3 << 20), Body::random(2, 3 << 20));
    let origin = Origin::builder()
        .resource("/a/file.bin", Resource::new(a.clone()))
        .resource("/b/file.bin", Resource::new(b.clone()))
        .start()
        .unwrap();
    let place = Place::new();
    place.get(&[&origin.url("/a/file.bin"), &origin.url("/b/file.bin")]).done();
    assert_eq!(place.names(), ["file.1.bin", "file.bin"]);
    let straight = place.holds("file.bin", &a) && place.holds("file.1.bin", &b);
    assert!(straight || place.holds("file.bin", &b) && place.holds("file.1.bin", &a));
}

/// Content-Disposition values and the names that they mean; `f.bin` where there is none, so that the name of
/// the URL is taken.
const BATTERY: &[(&[u8], &str)] = &[
    // Plain and quoted.
    (b"inline", "f.bin"),
    (b"\"inline\"", "f.bin"),
    (b"inline; filename=\"foo.html\"", "foo.html"),
    (b"attachment; filename=\"Not an attachment!\"", "Not an attachment!"),
    (b"attachment; filename=\"f\\oo.html\"", "foo.html"),
    (b"attachment; filename=\"Here's a semicolon;.html\"", "Here's a semicolon;.html"),
    (b"attachment; foo=\"\\\"\\\\\";filename=\"foo.html\"", "foo.html"),
    (b"attachment; FILENAME=\"foo.html\"", "foo.html"),
    (b"attachment; filename=foo.html", "foo.html"),
    (b"attachment; filename = foo.html", "foo.html"),
    (b"attachment; filename=foo.html ; hello=world", "foo.html"),
    (b"attachment; filename='foo.bar'", "'foo.bar'"),
    (b"attachment; filename=\"50%.html\"", "50%.html"),
    (b"attachment; example=\"filename=example.txt\"", "f.bin"),
    (b"attachment; xfilename=foo.html", "f.bin"),
    (b"attachment; name=\"x\"", "f.bin"),
    // The extended form.
    (b"attachment; filename*=iso-8859-1''foo-%E4.html", "foo-\u{e4}.html"),
    (b"attachment; filename*=UTF-8''foo-%c3%a4-%e2%82%ac.html", "foo-\u{e4}-\u{20ac}.html"),
    (b"attachment; filename*= UTF-8''foo-%c3%a4.html", "foo-\u{e4}.html"),
    (b"attachment; filename* =UTF-8''foo-%c3%a4.html", "foo-\u{e4}.html"),
    (b"attachment; filename*=UTF-8''A-%2541.html", "A-%41.html"),
    (b"attachment; filename*=UTF-8'japanese'konnichiwa", "konnichiwa"),
    (b"attachment; filename=\"foo-ae.html\"; filename*=UTF-8''foo-%c3%a4.html", "foo-\u{e4}.html"),
    (b"attachment; filename*=UTF-8''foo-%c3%a4.html; filename=\"foo-ae.html\"", "foo-\u{e4}.html"),
    // Charset of the plain form.
    (b"attachment; filename=\"foo-\xe4.html\"", "foo-\u{e4}.html"),
    (b"attachment; filename=\"foo-\xc3\xa4.html\"", "foo-\u{e4}.html"),
    // No name at all.
    (b"attachment; filename=\"\"", "f.bin"),
    (b"attachment; filename=\"..\"", "f.bin"),
    (b"attachment; filename=", "f.bin"),
    (b"attachment; filename=;", "f.bin"),
];

#[test]
fn a_name_in_a_header_is_read_as_it_is_meant() {
    let body = Body::random(3, 500);
    let mut builder = Origin::builder();
    for (index, (value, _)) in BATTERY.iter().enumerate() {
        let file = Resource::new(body.clone()).field("Content-Disposition", *value);
        builder = builder.resource(&format!("/{index}/f.bin"), file);
    }
    let origin = builder.start().unwrap();
    let urls: Vec<String> = (0..BATTERY.len()).map(|index| origin.url(&format!("/{index}/f.bin"))).collect();
    let place = Place::new();
    fetch_each(&place, &urls).done();
    let mut wrong = Vec::new();
    for (index, (value, meant)) in BATTERY.iter().enumerate() {
        let name = only_file(&place.path(&index.to_string()), &body);
        if name != *meant {
            wrong.push(format!("{}: {name:?}, but {meant:?} is meant", value.escape_ascii()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Content-Disposition values that cannot be read as they stand. What of them is used is ours to say; the file
/// is one file in its folder.
const UNREADABLE: &[&[u8]] = &[
    b"attachment; filename=foo,bar.html",
    b"attachment; filename=foo.html ;",
    b"attachment; ;filename=foo",
    b"attachment; filename=foo bar.html",
    b"attachment; filename=one; filename=two",
    b"attachment; filename=foo[1](2).html",
    b"filename=foo.html",
    b"x=y; filename=foo.html",
    b"filename=foo.html; attachment",
    b"attachment; foo=foo filename=bar",
    b"attachment filename=bar",
    b"attachment; filename *=UTF-8''foo.html",
    b"attachment; filename*=''x",
    b"attachment; filename*=\"UTF-8''x\"",
    b"attachment; filename*=UTF-8'x",
    b"attachment; filename*=UTF-8''foo%",
    b"attachment; filename*=UTF-8''f%oo",
    b"attachment; filename*=utf-8''foo-%E4.html",
    b"attachment; filename*=iso-8859-1''foo-%c3%a4-%e2%82%ac",
    b"attachment; filename=dir/file",
    b"attachment; filename=\"dir\\\\file\"",
    b"attachment; filename=\"/etc/passwd\"",
];

#[test]
fn a_header_that_cannot_be_read_does_no_harm() {
    let body = Body::random(3, 500);
    let mut builder = Origin::builder();
    for (index, value) in UNREADABLE.iter().enumerate() {
        let file = Resource::new(body.clone()).field("Content-Disposition", *value);
        builder = builder.resource(&format!("/{index}/f.bin"), file);
    }
    let origin = builder.start().unwrap();
    let urls: Vec<String> =
        (0..UNREADABLE.len()).map(|index| origin.url(&format!("/{index}/f.bin"))).collect();
    let place = Place::new();
    fetch_each(&place, &urls).done();
    for (index, value) in UNREADABLE.iter().enumerate() {
        let name = only_file(&place.path(&index.to_string()), &body);
        println!("{}: {name:?}", value.escape_ascii());
        assert!(!name.contains(['/', '\\']), "{name:?}");
    }
}

#[test]
fn a_web_page_under_the_name_of_another_kind_is_told_and_kept() {
    let page = Body::bytes("<html>Please log in</html>");
    let served = |kind: &str| Resource::new(page.clone()).content_type(kind);
    let origin = Origin::builder()
        .resource("/debian.iso", served("text/html; charset=utf-8"))
        .resource("/page.html", served("text/html"))
        .resource("/download", served("text/html"))
        .resource("/honest.iso", served("application/octet-stream"))
        .start()
        .unwrap();
    for (path, words, told) in [
        ("/debian.iso", &[][..], true),
        ("/download", &["-o", "a.tar.gz"], true),
        ("/debian.iso", &["-o", "debian.html"], false),
        ("/page.html", &[], false),
        ("/download", &[], false),
        ("/honest.iso", &[], false),
    ] {
        let place = Place::new();
        let url = origin.url(path);
        let words = [words, &[&url]].concat();
        let ended = place.get_json(&words).done();
        let notices: Vec<String> = ended
            .events()
            .iter()
            .filter(|e| e["event"] == "notice")
            .map(|e| e["message"].to_string())
            .collect();
        assert_eq!(notices.len(), usize::from(told), "{path} {words:?}: {notices:?}");
        assert!(notices.iter().all(|text| text.contains("a web page (text/html)")), "{notices:?}");
        assert_eq!(only_file(&place.folder(), &page), place.finals()[0]);

        let ended = Place::new().get(&words).done();
        assert_eq!(ended.err.matches("a web page").count(), usize::from(told), "{ended:?}");
    }
}

#[test]
fn a_name_in_a_url_is_decoded_once_and_loses_its_query() {
    let body = Body::random(3, 500);
    let table = [
        ("/archives/aria2-1.0.0.tar.bz2", "aria2-1.0.0.tar.bz2"),
        ("/%E3%81%82", "\u{3042}"),
        ("/sp%20ace.bin?token=a/b", "sp ace.bin"),
        ("/A-%2541.html", "A-%41.html"),
    ];
    let mut builder = Origin::builder();
    for (path, _) in table {
        builder = builder.resource(path.split('?').next().unwrap(), Resource::new(body.clone()));
    }
    let origin = builder.start().unwrap();
    let place = Place::new();
    fetch_each(&place, &table.map(|(path, _)| origin.url(path))).done();
    for (index, (path, meant)) in table.iter().enumerate() {
        assert_eq!(only_file(&place.path(&index.to_string()), &body), *meant, "{path}");
    }
}
