use hotcell_request::{ToolError, tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: f64,
}

/// Adds.
#[tool(name = "math.add", version = "1.0.0", effects(pure), sandbox = false)]
fn add(input: Add) -> Result<f64, ToolError> {
    Ok(input.a)
}

/// Adds.
#[tool(name = "math.add", name = "math.sub", version = "1.0.0", effects(pure))]
fn twice(input: Add) -> Result<f64, ToolError> {
    Ok(input.a)
}

/// Adds.
#[tool(version = "1.0.0", effects(pure))]
fn no_name(input: Add) -> Result<f64, ToolError> {
    Ok(input.a)
}

/// Adds.
#[tool(name = "math.add", version = "1.0.0", effects(pure), retry(attempts = 3))]
fn without_wait(input: Add) -> Result<f64, ToolError> {
    Ok(input.a)
}

fn main() {}
