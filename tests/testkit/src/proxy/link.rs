//! The network between the operator and the API server, which can be cut.

use tokio::sync::watch;

/// Whether packets arrive.
pub struct NetworkLink(watch::Sender<bool>);

impl Default for NetworkLink {
    fn default() -> Self {
        Self(watch::Sender::new(true))
    }
}

impl NetworkLink {
    /// From now on, neither requests nor answers arrive. Connections stay open, as with lost packets.
    pub fn cut(&self) {
        self.0.send_replace(false);
    }

    /// Packets arrive again, those that were sent meanwhile as well.
    pub fn mend(&self) {
        self.0.send_replace(true);
    }

    pub fn is_cut(&self) -> bool {
        !*self.0.borrow()
    }

    /// Returns as soon as packets arrive.
    pub async fn mended(&self) {
        // The sender lives as long as this borrow.
        let _ = self.0.subscribe().wait_for(|is_up| *is_up).await;
    }
}
