//! Recognises an HTTP/1.1 greeting.
