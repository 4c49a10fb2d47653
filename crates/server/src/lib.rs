//! Puts protocol, driver, services and store together.
