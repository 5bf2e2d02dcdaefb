//! The table of messages, and how it becomes two enums with their writing.

use std::ops::RangeInclusive;
use tidegate_core::frame;

/// How a kind of message goes over the socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Kind {
    /// In the frame. Never given to another message.
    pub number: u8,
    /// For people.
    pub name: &'static str,
    /// The most descriptors that ride on it.
    pub descriptors: usize,
    /// The most bytes that its body may have.
    pub most: usize,
}

/// Of what kind a message is.
pub trait KindOf {
    /// Its kind.
    fn kind(&self) -> &'static Kind;

    /// How many descriptors ride on it.
    fn descriptors(&self) -> RangeInclusive<usize>;
}

/// A body that fits into one frame.
pub(super) const SHORT: usize = frame::MAX_FRAME - 1;

/// A body with lists of spans in it.
pub(super) const LONG: usize = 16 << 20;

/// A body with all cookies and passwords of a user, a request with a hundred thousand pieces, or a thousand downloads.
pub(super) const VERY_LONG: usize = 64 << 20;

/// How long a message of this kind may be, if there is one.
pub(super) fn longest(kinds: &[Kind], number: u8) -> Option<usize> {
    kinds.iter().find(|kind| kind.number == number).map(|kind| kind.most)
}

/// Appends a message to `out`.
pub(super) fn put(kind: &Kind, body: serde_json::Result<Vec<u8>>, out: &mut Vec<u8>) {
    // Writing to memory does not fail, and nothing in a message refuses to be written. If it did, the other side
    // would refuse the empty body: a message is never left out in silence.
    debug_assert!(body.is_ok(), "{}: {body:?}", kind.name);
    frame::encode(kind.number, &body.unwrap_or_default(), out);
}

/// Makes an enum of messages from rows of `number "name" descriptors length Variant { fields }`. The body is an
/// object with the fields and no others.
macro_rules! messages {
    (
        $(#[$on_enum:meta])*
        pub enum $enum:ident {
            $(
                $(#[$on_variant:meta])*
                $number:literal $name:literal $descriptors:literal $most:ident
                $variant:ident { $( $(#[$on_field:meta])* $field:ident: $type:ty, )* }
            )*
        }
    ) => {
        $(#[$on_enum])*
        #[derive(Clone)]
        #[allow(clippy::large_enum_variant, reason = "there are few at a time, and they are not moved about")]
        pub enum $enum {
            $( $(#[$on_variant])* $variant { $( $(#[$on_field])* $field: $type, )* }, )*
        }

        impl $enum {
            /// Every kind of message in this direction.
            pub const KINDS: &'static [$crate::protocol::Kind] = &[
                $( $crate::protocol::Kind {
                    number: $number,
                    name: $name,
                    descriptors: $descriptors,
                    most: $crate::protocol::kinds::$most,
                }, )*
            ];

            fn index(&self) -> usize {
                #[derive(Clone, Copy)]
                enum Index { $( $variant, )* }
                match self { $( Self::$variant { .. } => Index::$variant as usize, )* }
            }

            /// Appends the message to `out`, in its frames.
            pub fn encode(&self, out: &mut Vec<u8>) {
                use $crate::protocol::KindOf;
                $crate::protocol::kinds::put(self.kind(), self.body(), out);
            }

            /// The body alone, as it stands in a frame.
            fn body(&self) -> serde_json::Result<Vec<u8>> {
                match self {
                    $( Self::$variant { $( $field, )* } => {
                        #[derive(serde::Serialize)]
                        struct Body<'a> {
                            $( $field: &'a $type, )*
                            #[serde(skip)]
                            _lifetime: std::marker::PhantomData<&'a ()>,
                        }
                        let _lifetime = std::marker::PhantomData;
                        serde_json::to_vec(&Body { $( $field, )* _lifetime })
                    } )*
                }
            }

            fn read(number: u8, body: &[u8]) -> Result<Self, $crate::protocol::ProtocolError> {
                match number {
                    $( $number => {
                        #[derive(serde::Deserialize)]
                        #[serde(deny_unknown_fields)]
                        struct Body { $( $field: $type, )* }
                        match serde_json::from_slice(body) {
                            Ok(Body { $( $field, )* }) => Ok(Self::$variant { $( $field, )* }),
                            Err(error) => Err($crate::protocol::ProtocolError::body($name, &error)),
                        }
                    } )*
                    number => Err($crate::protocol::ProtocolError::UnknownKind(number)),
                }
            }
        }
    };
}

pub(super) use messages;
