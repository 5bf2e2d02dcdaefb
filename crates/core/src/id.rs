//! Names of things inside one run. Each is its own type, so one cannot be passed for another.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, serde::Serialize, serde::Deserialize)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A download, for as long as the queue remembers it. Never reused.
    DownloadId
);
id!(
    /// A place a download may be fetched from: its index in [`crate::Request::mirrors`].
    MirrorId
);
id!(
    /// One fetch of one span over one connection. Never reused inside an engine.
    SegmentId
);
