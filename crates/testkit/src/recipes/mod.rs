//! x
use crate::origin::*;
/// x
pub struct Given {}
impl Default for Given {
    fn default() -> Self {
        Given {}
    }
}
/// x
pub struct R;
impl R {
    /// x
    pub fn builder(&self, _: &Given) -> Builder {
        Origin::builder()
    }
}
/// x
pub fn find(_: &str) -> Option<R> {
    None
}
