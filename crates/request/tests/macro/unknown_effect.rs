use hotcell_request::{ToolError, tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: f64,
}

/// Adds.
#[tool(name = "math.add", version = "1.0.0", effects(pure, everything))]
fn add(input: Add) -> Result<f64, ToolError> {
    Ok(input.a)
}

/// Adds.
#[tool(name = "math.add", version = "1.0.0", effects())]
fn add_nothing(input: Add) -> Result<f64, ToolError> {
    Ok(input.a)
}

fn main() {}
