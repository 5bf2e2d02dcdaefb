//! x
/// x
pub struct Proxy;
