//! Stands for the client of a schema registry in builds without the feature `registry`.

use std::convert::Infallible;

use super::{RegistryConfig, RegistryError, RegistryErrorKind, UnknownSchema};

/// A schema registry; none exists in a build without the feature `registry`.
#[derive(Clone, Debug)]
pub struct Registry(Infallible);

impl Registry {
    /// Refuses, since this build cannot ask a registry.
    ///
    /// # Errors
    /// [`RegistryErrorKind::NoAddress`] without a URL, or if one is no address;
    /// else [`RegistryErrorKind::NoClient`].
    pub fn new(config: &RegistryConfig) -> Result<Self, RegistryError> {
        config.addresses()?;
        Err(RegistryError::of_config(RegistryErrorKind::NoClient))
    }

    /// The id of a schema.
    ///
    /// # Errors
    /// None: there is no registry to ask.
    #[expect(clippy::unused_async, reason = "the client's function waits")]
    pub async fn id(&self, _: &UnknownSchema) -> Result<u32, RegistryError> {
        match self.0 {}
    }
}
