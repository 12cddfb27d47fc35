//! What a policy is built from besides its options.

use crate::{Calibration, CalibrationError, PolicyError, masa, registry};
use std::sync::Arc;

/// What a policy is built from besides its options. Policies open no file: the caller reads what the options name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inputs {
    /// What sharing costs on the machine, if that was measured.
    pub calibration: Option<Arc<Calibration>>,
}

impl Inputs {
    /// Reads the files that a policy's options name.
    ///
    /// # Errors
    /// No such policy, a file that cannot be read or has an error.
    pub fn read(policy: &str, options: &toml::Table) -> Result<Self, PolicyError> {
        let (policy, file) = registry::calibration_file(policy, options)?;
        let Some(file) = file else {
            return Ok(Self::default());
        };
        let or_learned = |error: &CalibrationError| match error {
            CalibrationError::Unreadable { .. } if policy == masa::NAME => {
                ", or calibration = \"built-in\" for learned limits"
            }
            _ => "",
        };
        let calibration =
            Calibration::read(file.as_ref()).map_err(|error| PolicyError::BadOption {
                policy,
                message: format!("{error}{}", or_learned(&error)),
            })?;
        Ok(calibration.into())
    }
}

impl From<Calibration> for Inputs {
    fn from(calibration: Calibration) -> Self {
        Self {
            calibration: Some(Arc::new(calibration)),
        }
    }
}
