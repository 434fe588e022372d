//! What `#[tool]` says about functions that cannot be tools.

#[test]
fn a_function_that_cannot_be_a_tool_is_told_why() {
    trybuild::TestCases::new().compile_fail("tests/macro/*.rs");
}
