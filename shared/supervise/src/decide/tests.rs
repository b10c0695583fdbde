//! The decisions as tables and properties.
