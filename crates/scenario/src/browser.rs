//! What a browser does around a request: it keeps cookies and responses, and reads the pages that name further resources.

pub mod cache;
pub mod cookies;
pub mod html;
pub mod pages;
