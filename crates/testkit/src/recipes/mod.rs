//! Every behaviour by name, each one kind of misbehaviour.
//!
//! The names `tc-NN` are public bug reports made small; the other names are the same kinds in other
//! clothes. A recipe says what a client may end with ([`crate::Origin::right`]): where that is nothing,
//! every "complete" is a lie. Recipes with phases begin in the first; a test goes on with
//! [`crate::Origin::enter_phase`].

mod auth;
mod change;
mod coding;
mod endings;
mod framing;
mod heads;
mod honest;
mod limits;
mod names;
mod proofs;
mod ranges;
mod redirects;

use crate::body::Body;
use crate::exchange::{Answer, Framing};
use crate::origin::{Builder, Origin};
use crate::request::RequestSeen;
use crate::resource::Resource;
use crate::site::Site;

pub use names::{DISPOSITIONS, TRAVERSALS};

/// The user name that recipes with credentials want.
pub const USER: &str = "tide";
/// The password that they want.
pub const PASSWORD: &str = "gate:pass word";
/// The token that they want.
pub const TOKEN: &str = "mF_9.B5f-4.1JqM";

/// A behaviour with a name.
#[derive(Clone, Copy)]
pub struct Recipe {
    /// Its name, as in `tidegate-origin --behaviour NAME`.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    make: fn(&Given) -> Builder,
}

impl Recipe {
    /// The Origin to be, to which more can be told before it starts.
    pub fn builder(&self, given: &Given) -> Builder {
        (self.make)(given)
    }
}

/// What recipes are made for.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// The length of the file, in bytes.
    pub size: u64,
    /// The seed of its content.
    pub seed: u64,
}

impl Default for Given {
    /// 8 MiB from seed 1.
    fn default() -> Self {
        Self { size: 8 << 20, seed: 1 }
    }
}

impl Given {
    /// The content: B in the reports.
    pub fn body(&self) -> Body {
        Body::random(self.seed, self.size)
    }

    /// Other content of the same length: B2 in the reports.
    pub fn other(&self) -> Body {
        Body::random(self.seed.wrapping_add(1), self.size)
    }

    /// The content, served honestly.
    pub fn file(&self) -> Resource {
        Resource::new(self.body())
    }

    /// The other content, served honestly as a newer version: `"v2"`, and modified a day later.
    pub fn newer(&self) -> Resource {
        Resource::new(self.other()).etag("\"v2\"").last_modified(Some(A_DAY_LATER))
    }
}

/// All recipes, those of one kind together.
pub fn all() -> impl Iterator<Item = &'static Recipe> {
    [
        honest::RECIPES,
        ranges::RECIPES,
        framing::RECIPES,
        heads::RECIPES,
        endings::RECIPES,
        limits::RECIPES,
        change::RECIPES,
        redirects::RECIPES,
        coding::RECIPES,
        names::RECIPES,
        auth::RECIPES,
        proofs::RECIPES,
    ]
    .into_iter()
    .flatten()
}

/// The recipe with this name.
pub fn find(name: &str) -> Option<&'static Recipe> {
    all().find(|recipe| recipe.name == name)
}

const A_DAY_LATER: &str = "Wed, 16 Nov 2022 12:45:26 GMT";

const fn recipe(name: &'static str, about: &'static str, make: fn(&Given) -> Builder) -> Recipe {
    Recipe { name, about, make }
}

/// One file and nothing else.
fn one(resource: Resource) -> Builder {
    Origin::builder().site(Site::file(resource))
}

/// The same file in two phases.
fn two(first: Resource, second: Resource) -> Builder {
    one(first).phase(Site::file(second))
}

/// A server that never sends a whole file, whatever it says.
fn never(resource: Resource) -> Builder {
    one(resource).right([])
}

/// Turns an answer into a 200 with all of this.
fn make_whole(answer: &mut Answer, body: &Body) {
    answer.status = 200;
    answer.remove("Content-Range");
    answer.body = body.clone();
    answer.cut = None;
    answer.frame(Framing::Length);
}

/// Serves by one or the other of several resources.
fn choose(
    resources: Vec<Resource>,
    choice: impl Fn(&RequestSeen) -> usize + Send + Sync + 'static,
) -> Resource {
    let body = resources.last().map_or_else(|| Body::bytes(""), |resource| resource.body().clone());
    Resource::new(body).respond(move |own, exchange| {
        let chosen = resources.get(choice(exchange.request())).or(resources.last()).unwrap_or(own);
        let answer = chosen.answer(exchange.request());
        exchange.send(&answer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_plain_and_described() {
        let mut names = HashSet::new();
        for recipe in all() {
            assert!(names.insert(recipe.name), "{} twice", recipe.name);
            let plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
            assert!(recipe.name.bytes().all(plain), "{}", recipe.name);
            assert!(recipe.about.len() > 10 && !recipe.about.contains('\n'), "{}", recipe.name);
        }
        assert!(names.len() > 150, "{}", names.len());
    }

    #[test]
    fn every_report_that_needs_a_server_has_its_recipe() {
        for number in [
            1, 3, 4, 6, 7, 8, 9, 10, 11, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31, 32, 34, 35, 36, 37, 40, 41,
            42, 43, 44, 45,
        ] {
            assert!(find(&format!("tc-{number:02}")).is_some(), "tc-{number:02}");
        }
    }
}
