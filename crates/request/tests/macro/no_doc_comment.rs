use hotcell_request::{ToolError, tool};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: f64,
}

#[tool(name = "math.add", version = "1.0.0", effects(pure))]
fn add(input: Add) -> Result<f64, ToolError> {
    Ok(input.a)
}

fn main() {}
