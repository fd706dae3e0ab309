//! What frames say: hello, welcome, calls and their answers.
