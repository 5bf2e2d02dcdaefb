//! Who still uses what was lent: a part must not be given to another while a fetch may write into it.

use std::convert::Infallible;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Held, and copied, by whoever uses what was lent. To be dropped after it.
#[derive(Clone, Debug)]
pub(crate) struct Loan {
    _sender: Sender<Infallible>,
}

/// Tells the lender when nobody uses it any more.
#[derive(Debug)]
pub(crate) struct Returned(Receiver<Infallible>);

/// Lends something.
pub(crate) fn lend() -> (Loan, Returned) {
    let (sender, receiver) = channel(1);
    (Loan { _sender: sender }, Returned(receiver))
}

impl Returned {
    /// Waits until every loan was dropped.
    pub(crate) async fn wait(mut self) {
        // Nothing can be sent: this returns when there is nobody who could.
        let _ = self.0.recv().await;
    }
}
