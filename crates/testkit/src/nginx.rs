//! x
/// x
pub struct Nginx;
